package main

import (
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// schemaModule is the module whose schema folder has the type dictionary and the node ids.
const schemaModule = "github.com/gopcua/opcua"

// model is what gen knows about namespace 0.
type model struct {
	structures   []*structure   // by name
	enumerations []*enumeration // by name
}

// structure is one structure or message.
type structure struct {
	name    string
	index   int
	fields  []field
	min     int  // smallest OPC UA Binary encoding in bytes
	message bool // begins with a RequestHeader or ResponseHeader

	dataType, binary, xml, json int // node ids, 0 for none
}

type field struct {
	name  string
	kind  string // constant of uajson
	array bool
	ref   int // index of the structure or enumeration
}

type enumeration struct {
	name   string
	index  int
	values []value
}

type value struct {
	name string
	n    int64
}

// dictionary is an OPC UA type dictionary (OPC 10000-5 Annex C).
type dictionary struct {
	Structures []struct {
		Name     string `xml:"Name,attr"`
		BaseType string `xml:"BaseType,attr"`
		Fields   []struct {
			Name        string `xml:"Name,attr"`
			TypeName    string `xml:"TypeName,attr"`
			LengthField string `xml:"LengthField,attr"`
			SwitchField string `xml:"SwitchField,attr"`
		} `xml:"Field"`
	} `xml:"StructuredType"`
	Enumerations []struct {
		Name        string `xml:"Name,attr"`
		Bits        int    `xml:"LengthInBits,attr"`
		IsOptionSet bool   `xml:"IsOptionSet,attr"`
		Values      []struct {
			Name  string `xml:"Name,attr"`
			Value int64  `xml:"Value,attr"`
		} `xml:"EnumeratedValue"`
	} `xml:"EnumeratedType"`
}

// builtin are the built-in types by their name in the dictionary, with the smallest encoding of each.
var builtin = map[string]struct {
	kind string
	min  int
}{
	"opc:Boolean": {"kindBoolean", 1}, "opc:SByte": {"kindSByte", 1}, "opc:Byte": {"kindByte", 1},
	"opc:Int16": {"kindInt16", 2}, "opc:UInt16": {"kindUInt16", 2}, "opc:Int32": {"kindInt32", 4},
	"opc:UInt32": {"kindUInt32", 4}, "opc:Int64": {"kindInt64", 8}, "opc:UInt64": {"kindUInt64", 8},
	"opc:Float": {"kindFloat", 4}, "opc:Double": {"kindDouble", 8}, "opc:String": {"kindString", 4},
	"opc:CharArray": {"kindString", 4}, "opc:DateTime": {"kindDateTime", 8}, "opc:Guid": {"kindGuid", 16},
	"opc:ByteString": {"kindByteString", 4}, "ua:XmlElement": {"kindXmlElement", 4}, "ua:NodeId": {"kindNodeId", 2},
	"ua:ExpandedNodeId": {"kindExpandedNodeId", 2}, "ua:StatusCode": {"kindStatusCode", 4},
	"ua:QualifiedName": {"kindQualifiedName", 6}, "ua:LocalizedText": {"kindLocalizedText", 1},
	"ua:ExtensionObject": {"kindExtensionObject", 3}, "ua:DataValue": {"kindDataValue", 1}, "ua:Variant": {"kindVariant", 1},
	"ua:DiagnosticInfo": {"kindDiagnosticInfo", 1},
}

// optionSets are the integers behind OptionSets, which JSON has as numbers in every form (OPC 10000-3, OptionSet).
var optionSets = map[int]string{8: "opc:Byte", 16: "opc:UInt16", 32: "opc:UInt32", 64: "opc:UInt64"}

func load() (*model, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", schemaModule).Output()
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", schemaModule, err)
	}
	schema := filepath.Join(strings.TrimSpace(string(out)), "schema")
	ids, err := nodeIDs(filepath.Join(schema, "NodeIds.csv"))
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(schema, "Opc.Ua.Types.bsd"))
	if err != nil {
		return nil, err
	}
	var d dictionary
	if err := xml.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	return resolve(&d, ids)
}

// nodeIDs reads the symbols of namespace 0 and their numeric identifiers.
func nodeIDs(name string) (map[string]int, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, err
	}
	ids := map[string]int{}
	for _, row := range rows {
		n, err := strconv.Atoi(row[1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row[0], err)
		}
		ids[row[0]+","+row[2]] = n
	}
	return ids, nil
}

func resolve(d *dictionary, ids map[string]int) (*model, error) {
	m := &model{}
	types := map[string]string{} // OptionSets by their name in the dictionary
	enums := map[string]*enumeration{}
	for _, e := range d.Enumerations {
		if e.IsOptionSet {
			if types["tns:"+e.Name] = optionSets[e.Bits]; types["tns:"+e.Name] == "" {
				return nil, fmt.Errorf("%s: OptionSet of %d bits", e.Name, e.Bits)
			}
			continue
		}
		x := &enumeration{name: e.Name}
		for _, v := range e.Values {
			x.values = append(x.values, value{v.Name, v.Value})
		}
		slices.SortStableFunc(x.values, func(a, b value) int { return int(a.n - b.n) })
		x.values = slices.CompactFunc(x.values, func(a, b value) bool { return a.n == b.n })
		enums["tns:"+e.Name] = x
		m.enumerations = append(m.enumerations, x)
	}
	slices.SortFunc(m.enumerations, func(a, b *enumeration) int { return strings.Compare(a.name, b.name) })
	for i, e := range m.enumerations {
		e.index = i
	}
	byName := map[string]*structure{}
	for _, t := range d.Structures {
		if t.BaseType == "" {
			continue // a built-in type, or a part of one
		}
		s := &structure{
			name:     t.Name,
			dataType: ids[t.Name+",DataType"],
			binary:   ids[t.Name+"_Encoding_DefaultBinary,Object"],
			xml:      ids[t.Name+"_Encoding_DefaultXml,Object"],
			json:     ids[t.Name+"_Encoding_DefaultJson,Object"],
		}
		byName["tns:"+t.Name] = s
		m.structures = append(m.structures, s)
	}
	slices.SortFunc(m.structures, func(a, b *structure) int { return strings.Compare(a.name, b.name) })
	for i, s := range m.structures {
		s.index = i
	}
	for _, t := range d.Structures {
		s := byName["tns:"+t.Name]
		if s == nil {
			continue
		}
		lengths := map[string]bool{}
		for _, f := range t.Fields {
			lengths[f.LengthField] = true
		}
		for _, f := range t.Fields {
			if f.SwitchField != "" {
				return nil, fmt.Errorf("%s.%s is optional, which the tables cannot say", t.Name, f.Name)
			}
			if lengths[f.Name] {
				continue
			}
			x := field{name: f.Name, array: f.LengthField != ""}
			name := f.TypeName
			if o := types[name]; o != "" {
				name = o
			}
			switch b, e, sub := builtin[name], enums[name], byName[name]; {
			case b.kind != "":
				x.kind = b.kind
			case e != nil:
				x.kind, x.ref = "kindEnumeration", e.index
			case sub != nil:
				x.kind, x.ref = "kindStructure", sub.index
			default:
				return nil, fmt.Errorf("%s.%s: no type %s", t.Name, f.Name, f.TypeName)
			}
			s.fields = append(s.fields, x)
		}
		if len(s.fields) > 0 && s.fields[0].kind == "kindStructure" {
			h := m.structures[s.fields[0].ref].name
			s.message = h == "RequestHeader" || h == "ResponseHeader"
		}
	}
	for _, s := range m.structures {
		if _, err := m.size(s, nil); err != nil {
			return nil, err
		}
	}
	if len(m.structures) < 300 || len(m.enumerations) < 30 {
		return nil, fmt.Errorf("only %d structures and %d enumerations", len(m.structures), len(m.enumerations))
	}
	return m, nil
}

// size sets the smallest encoding of s and reports structures that contain themselves.
func (m *model) size(s *structure, path []*structure) (int, error) {
	if slices.Contains(path, s) {
		return 0, errors.New(s.name + " contains itself: it would need the nesting budget")
	}
	path = append(path, s)
	s.min = 0
	for _, f := range s.fields {
		n := 0
		switch f.kind {
		case "kindEnumeration":
			n = 4
		case "kindStructure":
			var err error
			if n, err = m.size(m.structures[f.ref], path); err != nil {
				return 0, err
			}
			if f.array && n == 0 {
				return 0, fmt.Errorf("%s.%s: elements without size", s.name, f.name)
			}
		default:
			for _, b := range builtin {
				if b.kind == f.kind {
					n = b.min
				}
			}
		}
		if f.array {
			n = 4
		}
		s.min += n
	}
	return s.min, nil
}
