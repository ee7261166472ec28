package nodeset

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// Definition is the DataTypeDefinition of a DataType: the fields of a structure
// or the values of an enumeration. In a Document only the type's own fields are
// there; Types adds those of the supertypes.
type Definition struct {
	Union     bool
	OptionSet bool
	Fields    []Field
}

// Field is one field of a structure or one value of an enumeration.
type Field struct {
	Name        string
	DisplayName uabinary.LocalizedText
	Description uabinary.LocalizedText
	DataType    uabinary.NodeID
	ValueRank   int32
	Dims        []uint32
	MaxString   uint32
	Optional    bool
	SubTypes    bool
	IsValue     bool // an enumeration value
	Value       int64
}

// Enumeration reports whether d lists values and not fields.
func (d *Definition) Enumeration() bool {
	return len(d.Fields) > 0 && d.Fields[0].IsValue
}

// Optional reports whether a structure has optional fields.
func (d *Definition) Optional() bool {
	for i := range d.Fields {
		if d.Fields[i].Optional {
			return true
		}
	}
	return false
}

func (doc *Document) definition(e *Element) (*Definition, error) {
	d := &Definition{Union: e.Attr("IsUnion") == "true", OptionSet: e.Attr("IsOptionSet") == "true"}
	for _, c := range e.Children {
		if c.Name != "Field" {
			continue
		}
		f := Field{Name: c.Attr("Name"), DataType: uabinary.NumericID(0, 24)}
		a := &attrs{e: c}
		f.ValueRank = int32(a.number("ValueRank", -1, 32))
		f.MaxString = uint32(a.number("MaxStringLength", 0, 64))
		f.Optional = a.flag("IsOptional", false)
		f.SubTypes = a.flag("AllowSubTypes", false)
		if s := c.Attr("Value"); s != "" {
			f.IsValue = true
			f.Value = a.number("Value", 0, 64)
		}
		if s := c.Attr("ArrayDimensions"); s != "" {
			dims, err := parseDims(s)
			a.keep("ArrayDimensions", s, err)
			f.Dims = dims
		}
		if a.err != nil {
			return nil, &Error{doc.File, c.Line, a.err}
		}
		if s := c.Attr("DataType"); s != "" {
			id, err := doc.nodeID(s)
			if err != nil {
				return nil, &Error{doc.File, c.Line, fmt.Errorf("field %s: %w", f.Name, err)}
			}
			f.DataType = id
		}
		if t := c.Child("DisplayName"); t != nil {
			f.DisplayName = localized(t)
		} else {
			f.DisplayName = uabinary.Text(f.Name)
		}
		if t := c.Child("Description"); t != nil {
			f.Description = localized(t)
		}
		d.Fields = append(d.Fields, f)
	}
	return d, nil
}

// Binary encodings of the two DataTypeDefinitions of namespace 0.
const (
	structureDefinitionBinary = 122
	enumDefinitionBinary      = 123
)

// AppendDefinition appends d, with all its fields and ids of the server, as the
// Variant of a DataTypeDefinition attribute (OPC 10000-3 §8.48).
func AppendDefinition(b []byte, d *Definition, base, encoding uabinary.NodeID) []byte {
	if d.Enumeration() || d.OptionSet {
		body := uabinary.AppendInt32(nil, int32(len(d.Fields)))
		for i := range d.Fields {
			f := &d.Fields[i]
			body = uabinary.AppendInt64(body, f.Value)
			body = uabinary.AppendLocalizedText(body, f.DisplayName)
			body = uabinary.AppendLocalizedText(body, f.Description)
			body = uabinary.AppendString(body, f.Name)
		}
		return appendStructure(append(b, byte(ua.TypeIDExtensionObject)), uabinary.NumericID(0, enumDefinitionBinary), body)
	}
	kind := int32(0) // Structure
	subtypes := false
	for i := range d.Fields {
		subtypes = subtypes || d.Fields[i].SubTypes
	}
	switch {
	case d.Union && subtypes:
		kind = 4
	case d.Union:
		kind = 2
	case subtypes:
		kind = 3
	case d.Optional():
		kind = 1
	}
	body := uabinary.AppendNodeID(nil, encoding)
	body = uabinary.AppendNodeID(body, base)
	body = uabinary.AppendInt32(body, kind)
	body = uabinary.AppendInt32(body, int32(len(d.Fields)))
	for i := range d.Fields {
		f := &d.Fields[i]
		body = uabinary.AppendString(body, f.Name)
		body = uabinary.AppendLocalizedText(body, f.Description)
		body = uabinary.AppendNodeID(body, f.DataType)
		body = uabinary.AppendInt32(body, f.ValueRank)
		if f.Dims == nil {
			body = uabinary.AppendInt32(body, -1)
		} else {
			body = uabinary.AppendInt32(body, int32(len(f.Dims)))
			for _, n := range f.Dims {
				body = uabinary.AppendUint32(body, n)
			}
		}
		body = uabinary.AppendUint32(body, f.MaxString)
		body = uabinary.AppendBool(body, f.Optional || f.SubTypes)
	}
	return appendStructure(append(b, byte(ua.TypeIDExtensionObject)), uabinary.NumericID(0, structureDefinitionBinary), body)
}

func appendStructure(b []byte, encoding uabinary.NodeID, body []byte) []byte {
	return uabinary.AppendExtensionObject(b, uabinary.ExtensionObject{
		TypeID:   uabinary.ExpandedNodeID{NodeID: encoding},
		Encoding: ua.ExtensionObjectBinary,
		Body:     body,
	})
}

// ReadDefinition is the way back from a DataTypeDefinition attribute, nil when it
// is none.
func ReadDefinition(v uabinary.Variant) *Definition {
	x, ok := v.ExtensionObject()
	if !ok || x.TypeID.Type != uabinary.IDNumeric || x.TypeID.Namespace != 0 {
		return nil
	}
	var d uabinary.Decoder
	d.Reset(x.Body, nil)
	out := &Definition{}
	switch x.TypeID.Numeric {
	case enumDefinitionBinary:
		for range max(0, d.ArrayLen(8+1+1+4)) {
			f := Field{IsValue: true, Value: d.Int64(), DisplayName: d.LocalizedText(), Description: d.LocalizedText()}
			f.Name = d.String()
			out.Fields = append(out.Fields, f)
		}
	case structureDefinitionBinary:
		d.NodeID()
		d.NodeID()
		kind := d.Int32()
		out.Union = kind == 2 || kind == 4
		for range max(0, d.ArrayLen(4+1+2+4+4+4+1)) {
			f := Field{Name: d.String(), Description: d.LocalizedText(), DataType: d.NodeID(), ValueRank: d.Int32()}
			for range max(0, d.ArrayLen(4)) {
				f.Dims = append(f.Dims, d.UInt32())
			}
			f.MaxString = d.UInt32()
			flag := d.Bool()
			f.SubTypes, f.Optional = flag && kind >= 3, flag && kind == 1
			out.Fields = append(out.Fields, f)
		}
	default:
		return nil
	}
	if d.Err() != nil {
		return nil
	}
	return out
}

func parseDims(s string) ([]uint32, error) {
	dims := []uint32{}
	for len(s) > 0 {
		i := 0
		for i < len(s) && s[i] != ',' {
			i++
		}
		n, err := strconv.ParseUint(strings.TrimSpace(s[:i]), 10, 32)
		if err != nil {
			return nil, err
		}
		dims = append(dims, uint32(n))
		s = s[min(i+1, len(s)):]
	}
	return dims, nil
}
