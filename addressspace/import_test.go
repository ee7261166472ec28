package addressspace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gopcua/opcua/schema"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace/internal/nodeset"
	"github.com/breakwater-ua/breakwater/uabinary"
)

func testFile(t testing.TB, name string) NodeSetFile {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return NodeSetFile{Name: name, Data: data}
}

func TestImport(t *testing.T) {
	s := newSpace(t)
	s.Namespace("urn:other").Folder("F")                                       // indexes of file and server differ
	result, err := s.Import(testFile(t, "plant.xml"), testFile(t, "base.xml")) // the required one last
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(result.Models, " ") != "urn:base urn:plant" || result.Nodes != 15 || result.Dangling != 0 {
		t.Errorf("%+v", result)
	}
	if got := fmt.Sprint(s.NamespaceArray()[2:]); got != "[urn:other urn:base urn:plant]" {
		t.Fatalf("namespaces %s", got)
	}
	if uris, _ := s.Variable(i0(2255)).Value().([]string); len(uris) != 5 {
		t.Errorf("NamespaceArray is %v", uris)
	}
	const base, plant = 3, 4
	machine := s.Lookup(uabinary.StringID(plant, "Machine"))
	if machine == nil || machine.Parent() != s.Lookup(i0(85)) || string(machine.DisplayName().Text) != "Machine One" ||
		machine.TypeDefinition() != s.Lookup(uabinary.NumericID(base, 1001)) || machine.EventNotifier() != 1 {
		t.Fatal("Machine")
	}
	if n, err := s.ResolvePath(i0(85), q(plant, "Machine"), q(plant, "P")); err != nil || n != s.Lookup(uabinary.StringID(plant, "Machine.P")) {
		t.Errorf("path: %v", err)
	}
	if got := referenceBetween(machine, s.Lookup(uabinary.StringID(plant, "Machine.P"))); got != "Feeds" && got != "HasComponent" {
		t.Errorf("reference %q", got)
	}
	p := s.Lookup(uabinary.StringID(plant, "Machine.P"))
	x, ok := p.Value().Value.ExtensionObject()
	want := uabinary.AppendDouble(uabinary.AppendDouble(nil, 1.5), -2)
	want = uabinary.AppendString(uabinary.AppendString(uabinary.AppendInt32(want, 2), "a"), "b")
	if !ok || x.Encoding != 1 || !x.TypeID.NodeID.Equal(uabinary.NumericID(base, 5001)) || !bytes.Equal(x.Body, want) {
		t.Errorf("P is %+v, want %x", x, want)
	}
	if p.AccessLevel() != 3 {
		t.Errorf("AccessLevel %d", p.AccessLevel())
	}
	// A structure of the imported type may be written, another one not.
	if code := writeValue(s, p.ID(), "", p.Value().Value); code != ua.StatusOK {
		t.Errorf("Write of the own type: %v", code)
	}
	if code := writeValue(s, p.ID(), "", uabinary.ExtensionObjectVariant(structure(886, make([]byte, 16)))); code != ua.StatusBadTypeMismatch {
		t.Errorf("Write of another type: %v", code)
	}
	// Type and methods: the code is bound to the type's method.
	typ := s.Lookup(uabinary.NumericID(base, 1001))
	if !SubtypeOf(typ, s.Lookup(i0(58))) || string(typ.DisplayName().Locale) != "en" {
		t.Error("MachineType")
	}
	if d, ok := typ.Description(); !ok || string(d.Text) != "A machine" {
		t.Error("Description")
	}
	feeds := s.Lookup(uabinary.NumericID(base, 4001))
	if !SubtypeOf(feeds, s.Lookup(i0(33))) {
		t.Error("Feeds")
	}
	named := s.Lookup(uabinary.NumericID(base, 3002))
	d := nodeset.ReadDefinition(*named.attrs.Load().definition)
	if len(d.Fields) != 6 || d.Fields[0].Name != "X" || d.Fields[5].Name != "Any" {
		t.Errorf("NamedPoint has fields %+v", d.Fields)
	}
	if !d.Fields[4].DataType.Equal(uabinary.NumericID(base, 3003)) {
		t.Errorf("field Color has DataType %s", d.Fields[4].DataType)
	}
	for _, check := range []struct {
		t    uint32
		base uint32
	}{{3001, 22}, {3003, 29}} {
		if !SubtypeOf(s.Lookup(uabinary.NumericID(base, check.t)), s.Lookup(i0(check.base))) {
			t.Errorf("i=%d is no subtype of i=%d", check.t, check.base)
		}
	}
}

// oneVariable is a file with one variable of a value.
func oneVariable(dataType, value string) NodeSetFile {
	return NodeSetFile{Name: "value.xml", Data: []byte(`<UANodeSet xmlns="http://opcfoundation.org/UA/2011/03/UANodeSet.xsd">
<NamespaceUris><Uri>urn:v</Uri><Uri>urn:base</Uri></NamespaceUris>
<UAVariable NodeId="ns=1;i=1" BrowseName="1:V" DataType="` + dataType + `" ValueRank="-2"><DisplayName>V</DisplayName>
<References><Reference ReferenceType="i=35" IsForward="false">i=85</Reference></References>
<Value>` + value + `</Value></UAVariable></UANodeSet>`)}
}

// OPC 10000-6 §5.3 OPC UA XML: every built-in type, as scalar and as list.
func TestImportValues(t *testing.T) {
	ids := uabinary.ExpandedNodeID{NodeID: uabinary.NumericID(3, 7), ServerIndex: 2, NamespaceURI: []byte("urn:x")}
	for _, tt := range []struct {
		xml  string
		want any
	}{
		{`<Boolean>true</Boolean>`, true},
		{`<SByte>-5</SByte>`, int8(-5)},
		{`<Byte>250</Byte>`, byte(250)},
		{`<Int16>-300</Int16>`, int16(-300)},
		{`<UInt16>60000</UInt16>`, uint16(60000)},
		{`<Int32> -7 </Int32>`, int32(-7)},
		{`<UInt32>4000000000</UInt32>`, uint32(4000000000)},
		{`<Int64>-9223372036854775808</Int64>`, int64(-9223372036854775808)},
		{`<UInt64>18446744073709551615</UInt64>`, uint64(18446744073709551615)},
		{`<Float>1.5</Float>`, float32(1.5)},
		{`<Double>-INF</Double>`, uabinary.Double(negInf())},
		{`<Double>1e10</Double>`, 1e10},
		{`<String> a &lt; b </String>`, " a < b "},
		{`<DateTime>2024-02-03T04:05:06Z</DateTime>`, uabinary.DateTimeVariant(uabinary.FromTime(mustTime("2024-02-03T04:05:06Z")))},
		{`<DateTime>2024-02-03T04:05:06</DateTime>`, uabinary.DateTimeVariant(uabinary.FromTime(mustTime("2024-02-03T04:05:06Z")))},
		{`<Guid><String>09087e75-8e5e-499b-954f-f2a9603db28a</String></Guid>`, ua.NewGUID("09087e75-8e5e-499b-954f-f2a9603db28a")},
		{"<ByteString>AQI\nD</ByteString>", []byte{1, 2, 3}},
		{`<XmlElement><a x="1">b</a></XmlElement>`, uabinary.XMLElement([]byte(`<a x="1">b</a>`))},
		{`<NodeId><Identifier>ns=1;s=x</Identifier></NodeId>`, uabinary.NodeIDVariant(uabinary.StringID(2, "x"))},
		{`<ExpandedNodeId><Identifier>svr=2;nsu=urn:x;i=7</Identifier></ExpandedNodeId>`, uabinary.ExpandedNodeIDVariant(uabinary.ExpandedNodeID{NodeID: uabinary.NumericID(0, 7), ServerIndex: ids.ServerIndex, NamespaceURI: ids.NamespaceURI})},
		{`<StatusCode><Code>2147483648</Code></StatusCode>`, ua.StatusBad},
		{`<QualifiedName><NamespaceIndex>2</NamespaceIndex><Name>n</Name></QualifiedName>`, uabinary.QualifiedNameVariant(q(3, "n"))},
		{`<LocalizedText><Locale>de</Locale><Text>x</Text></LocalizedText>`, uabinary.LocalizedTextVariant(uabinary.LocalizedText{Locale: []byte("de"), Text: []byte("x")})},
		{`<Variant><Value><Int32>3</Int32></Value></Variant>`, int32(3)},
		{`<DataValue><Value><Double>2.5</Double></Value><StatusCode><Code>0</Code></StatusCode></DataValue>`, uabinary.DataValueVariant(uabinary.DataValue{Mask: 3, Value: uabinary.Double(2.5)})},
		{`<ListOfInt32><Int32>1</Int32><Int32>2</Int32></ListOfInt32>`, []int32{1, 2}},
		{`<ListOfInt32/>`, []int32{}},
		{`<ListOfString><String>a</String><String/></ListOfString>`, []string{"a", ""}},
		{`<ListOfVariant><Variant><Value><Int32>1</Int32></Value></Variant><Variant><Value><String>x</String></Value></Variant></ListOfVariant>`, []*ua.Variant{ua.MustVariant(int32(1)), ua.MustVariant("x")}},
		{`<Matrix><Dimensions><UInt32>2</UInt32><UInt32>2</UInt32></Dimensions><Elements><Int32>1</Int32><Int32>2</Int32><Int32>3</Int32><Int32>4</Int32></Elements></Matrix>`, [][]int32{{1, 2}, {3, 4}}},
		{`<String xsi:nil="true" xmlns:xsi="x"/>`, uabinary.Variant{}},
	} {
		s := newSpace(t)
		if _, err := s.Import(oneVariable("i=24", tt.xml)); err != nil {
			t.Errorf("%s: %v", tt.xml, err)
			continue
		}
		got := s.Lookup(uabinary.NumericID(2, 1)).Value().Value
		if want := variant(t, tt.want); !got.Equal(want) {
			t.Errorf("%s: %x, want %x", tt.xml, got.Encoded(), want.Encoded())
		}
	}
}

// OPC 10000-6 §5.3.1.16: structures of a file's own types become binary; unknown
// ones keep their XML.
func TestImportStructures(t *testing.T) {
	object := func(typ, body string) string {
		return `<ExtensionObject><TypeId><Identifier>` + typ + `</Identifier></TypeId><Body>` + body + `</Body></ExtensionObject>`
	}
	point := func(x, y float64) []byte {
		return uabinary.AppendInt32(uabinary.AppendDouble(uabinary.AppendDouble(nil, x), y), -1)
	}
	for _, tt := range []struct {
		name, xml string
		encoding  byte
		typeID    uabinary.NodeID
		body      []byte
	}{
		{"inherited fields, an enumeration by name, a Variant", object("ns=2;i=3002",
			`<NamedPoint><X>1</X><Y>2</Y><Name><Text>n</Text></Name><Color>Green_5</Color><Any><Value><Int16>3</Int16></Value></Any></NamedPoint>`), 1, uabinary.NumericID(3, 5003),
			uabinary.AppendVariant(uabinary.AppendInt32(uabinary.AppendLocalizedText(point(1, 2), uabinary.Text("n")), 5), uabinary.Int16(3))},
		{"missing fields have their defaults", object("ns=2;i=3002", `<NamedPoint/>`), 1, uabinary.NumericID(3, 5003),
			append(uabinary.AppendInt32(append(point(0, 0), 0), 0), 0)},
		{"union", object("ns=2;i=3004", `<Either><Text>x</Text></Either>`), 1, uabinary.NumericID(3, 5004),
			uabinary.AppendString(uabinary.AppendUint32(nil, 2), "x")},
		{"optional fields", object("ns=2;i=3005", `<Maybe><Always>1</Always><B><X>1</X><Y>2</Y></B></Maybe>`), 1, uabinary.NumericID(3, 5005),
			append(uabinary.AppendInt32(uabinary.AppendUint32(nil, 2), 1), point(1, 2)...)},
		{"namespace 0, by the id of its XML encoding", object("i=885", `<Range><Low>1</Low><High>2</High></Range>`), 1, i0(886),
			uabinary.AppendDouble(uabinary.AppendDouble(nil, 1), 2)},
		{"binary body", object("ns=2;i=5001", `<ByteString>AQID</ByteString>`), 1, uabinary.NumericID(3, 5001), []byte{1, 2, 3}},
		{"unknown type", object("ns=2;i=9999", `<Foo a="1"><Bar/></Foo>`), 2, uabinary.NumericID(3, 9999), []byte(`<Foo a="1"><Bar/></Foo>`)},
	} {
		s := newSpace(t)
		if _, err := s.Import(testFile(t, "base.xml")); err != nil {
			t.Fatal(err)
		}
		// urn:base has index 2 here; another namespace in between shifts it no more.
		s2 := newSpace(t)
		s2.AddNamespace("urn:v")
		if _, err := s2.Import(testFile(t, "base.xml"), oneVariable("i=22", tt.xml)); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		x, ok := s2.Lookup(uabinary.NumericID(2, 1)).Value().Value.ExtensionObject()
		if !ok || x.Encoding != tt.encoding || !x.TypeID.NodeID.Equal(tt.typeID) || !bytes.Equal(x.Body, tt.body) {
			t.Errorf("%s: encoding %d, type %s, body %x, want %x", tt.name, x.Encoding, x.TypeID, x.Body, tt.body)
		}
		// The same with the types in the space already.
		if _, err := s.Import(oneVariable("i=22", tt.xml)); err != nil {
			t.Errorf("%s, in two imports: %v", tt.name, err)
			continue
		}
		y, _ := s.Lookup(uabinary.NumericID(3, 1)).Value().Value.ExtensionObject()
		if !bytes.Equal(y.Body, tt.body) {
			t.Errorf("%s, in two imports: body %x", tt.name, y.Body)
		}
	}
}

func TestImportErrors(t *testing.T) {
	wrap := func(inner string) NodeSetFile {
		return NodeSetFile{Name: "bad.xml", Data: []byte("<UANodeSet>\n<NamespaceUris><Uri>urn:bad</Uri></NamespaceUris>\n" + inner + "\n</UANodeSet>")}
	}
	object := func(id, name, refs string) string {
		return `<UAObject NodeId="` + id + `" BrowseName="` + name + `"><References>` + refs + `</References></UAObject>`
	}
	for _, tt := range []struct {
		name  string
		files []NodeSetFile
		want  string // in the message
	}{
		{"missing model", []NodeSetFile{testFile(t, "plant.xml")}, "plant.xml:9: model urn:plant requires model urn:base version 1.0.0"},
		{"not XML", []NodeSetFile{{Name: "bad.xml", Data: []byte("hello")}}, "bad.xml:1:"},
		{"cut short", []NodeSetFile{{Name: "bad.xml", Data: []byte("<UANodeSet>\n<UAObject NodeId=\"i=1\"")}}, "bad.xml:2:"},
		{"another document", []NodeSetFile{{Name: "bad.xml", Data: []byte("<html></html>")}}, "document element is html"},
		{"latin-1", []NodeSetFile{{Name: "bad.xml", Data: []byte(`<?xml version="1.0" encoding="iso-8859-1"?><UANodeSet/>`)}}, "only UTF-8"},
		{"bad NodeId", []NodeSetFile{wrap("\n" + object("ns=1;q=1", "1:A", ""))}, "bad.xml:4: "},
		{"namespace beyond the table", []NodeSetFile{wrap(object("ns=2;i=1", "1:A", ""))}, "bad.xml:3: NodeId \"ns=2;i=1\": namespace index beyond"},
		{"BrowseName namespace", []NodeSetFile{wrap(object("ns=1;i=1", "7:A", ""))}, "namespace index beyond"},
		{"no BrowseName", []NodeSetFile{wrap(object("ns=1;i=1", "", ""))}, "BrowseName of 0 bytes"},
		{"X16 long BrowseName", []NodeSetFile{wrap(object("ns=1;i=1", strings.Repeat("x", 600), ""))}, "bad.xml:3: BrowseName of 600 bytes"},
		{"twice", []NodeSetFile{wrap(object("ns=1;i=1", "1:A", "") + "\n" + object("ns=1;i=1", "1:A", ""))}, "bad.xml:4: NodeId ns=2;i=1 exists already"},
		{"namespace 0 node", []NodeSetFile{wrap(object("i=85", "Objects", ""))}, "NodeId i=85 exists already"},
		{"no such ReferenceType", []NodeSetFile{wrap(object("ns=1;i=1", "1:A", "\n"+`<Reference ReferenceType="ns=1;i=4">i=85</Reference>`))}, "bad.xml:4: ns=2;i=4 is not a ReferenceType"},
		{"no such alias", []NodeSetFile{wrap(object("ns=1;i=1", "1:A", `<Reference ReferenceType="Organises">i=85</Reference>`))}, `"Organises" is neither`},
		{"no such DataType", []NodeSetFile{wrap(`<UAVariable NodeId="ns=1;i=1" BrowseName="1:V" DataType="ns=1;i=99"/>`)}, "bad.xml:3: ns=2;i=99 is not a DataType"},
		{"bad value", []NodeSetFile{oneVariable("i=6", "\n<Int32>x</Int32>")}, `value.xml:6: "x" is no Int32`},
		{"value out of range", []NodeSetFile{oneVariable("i=3", "<Byte>256</Byte>")}, `"256" is no Byte: value out of range`},
		{"unknown value type", []NodeSetFile{oneVariable("i=3", "<Foo>1</Foo>")}, "unknown type Foo"},
		{"X26 matrix whose dimensions overflow", []NodeSetFile{oneVariable("i=6", `<Matrix><Dimensions><UInt32>2147483647</UInt32><UInt32>2</UInt32></Dimensions><Elements><Int32>1</Int32></Elements></Matrix>`)}, "dimensions too large"},
		{"matrix of another size", []NodeSetFile{oneVariable("i=6", `<Matrix><Dimensions><UInt32>0</UInt32><UInt32>2</UInt32></Dimensions><Elements><Int32>1</Int32></Elements></Matrix>`)}, "1 elements for dimensions of 0"},
		{"deep XML", []NodeSetFile{oneVariable("i=16", "<XmlElement>"+strings.Repeat("<a>", 100_000)+strings.Repeat("</a>", 100_000)+"</XmlElement>")}, "nested more than 64 deep"},
		{"model twice", []NodeSetFile{testFile(t, "base.xml"), testFile(t, "base.xml")}, "model urn:base is in base.xml too"},
		{"models in a circle", []NodeSetFile{
			{Name: "a.xml", Data: []byte(`<UANodeSet><Models><Model ModelUri="a"><RequiredModel ModelUri="b"/></Model></Models></UANodeSet>`)},
			{Name: "b.xml", Data: []byte(`<UANodeSet><Models><Model ModelUri="b"><RequiredModel ModelUri="a"/></Model></Models></UANodeSet>`)},
		}, "requires itself"},
		{"namespace 0 again", []NodeSetFile{{Name: "ns0.xml", Data: schema.OpcUaNodeSet2}}, "model http://opcfoundation.org/UA/ is loaded already"},
	} {
		s := newSpace(t)
		nodes, refs := s.Len(), len(s.Lookup(i0(85)).References())
		_, err := s.Import(tt.files...)
		var placed *nodeset.Error
		if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.As(err, &placed) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if s.Len() != nodes || len(s.NamespaceArray()) != 2 || len(s.Lookup(i0(85)).References()) != refs {
			t.Errorf("%s: a failed import changed the space", tt.name)
		}
	}
	s := newSpace(t)
	if _, err := s.Import(testFile(t, "base.xml")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Import(testFile(t, "base.xml")); err == nil || !strings.Contains(err.Error(), "loaded already") {
		t.Errorf("second import: %v", err)
	}
	if _, err := s.Import(testFile(t, "plant.xml")); err != nil {
		t.Errorf("a required model that is loaded: %v", err)
	}
}

// A structure whose definition contains itself cannot recurse without end.
func TestImportRecursiveDefinition(t *testing.T) {
	f := NodeSetFile{Name: "loop.xml", Data: []byte(`<UANodeSet><NamespaceUris><Uri>urn:l</Uri></NamespaceUris>
<UADataType NodeId="ns=1;i=1" BrowseName="1:L"><References><Reference ReferenceType="i=45" IsForward="false">i=22</Reference><Reference ReferenceType="i=38">ns=1;i=2</Reference></References>
<Definition Name="L"><Field Name="Next" DataType="ns=1;i=1"/></Definition></UADataType>
<UAObject NodeId="ns=1;i=2" BrowseName="Default Binary"/>
<UADataType NodeId="ns=1;i=3" BrowseName="1:A"><References><Reference ReferenceType="i=45" IsForward="false">ns=1;i=4</Reference></References></UADataType>
<UADataType NodeId="ns=1;i=4" BrowseName="1:B"><References><Reference ReferenceType="i=45" IsForward="false">ns=1;i=3</Reference></References></UADataType>
<UAVariable NodeId="ns=1;i=5" BrowseName="1:V" DataType="ns=1;i=3"/>
<UAVariable NodeId="ns=1;i=6" BrowseName="1:W" DataType="ns=1;i=1"><Value><ExtensionObject><TypeId><Identifier>ns=1;i=1</Identifier></TypeId><Body><L/></Body></ExtensionObject></Value></UAVariable>
</UANodeSet>`)}
	if _, err := newSpace(t).Import(f); err == nil || !strings.Contains(err.Error(), "deep") {
		t.Errorf("%v", err)
	}
}

// References to nodes that nobody has are shown and counted.
func TestImportDangling(t *testing.T) {
	s := newSpace(t)
	r, err := s.Import(NodeSetFile{Name: "d.xml", Data: []byte(`<UANodeSet><NamespaceUris><Uri>urn:d</Uri></NamespaceUris>
<UAObject NodeId="ns=1;i=1" BrowseName="1:A" AccessRestrictions="1"><RolePermissions/><References><Reference ReferenceType="i=35">ns=1;i=2</Reference></References></UAObject></UANodeSet>`)})
	if err != nil || r.Dangling != 1 || r.Skipped != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	refs := s.Lookup(uabinary.NumericID(2, 1)).References()
	if len(refs) != 1 || refs[0].Target != nil || !refs[0].TargetID().NodeID.Equal(uabinary.NumericID(2, 2)) {
		t.Errorf("%+v", refs)
	}
}

// X12: nodes come and go while others browse and read everything.
func TestConcurrentImportAndBrowse(t *testing.T) {
	s := newSpace(t)
	base, plant := testFile(t, "base.xml"), testFile(t, "plant.xml")
	rounds := 30
	if raceEnabled {
		rounds = 10
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			buf := make([]byte, 0, 1<<16)
			for {
				select {
				case <-done:
					return
				default:
				}
				seen := map[*Node]bool{}
				todo := []*Node{s.Lookup(i0(84))}
				for len(todo) > 0 {
					n := todo[len(todo)-1]
					todo = todo[:len(todo)-1]
					if seen[n] {
						continue
					}
					seen[n] = true
					refs := n.References()
					for i := range refs {
						r := &refs[i]
						if r.TargetID().IsNull() {
							t.Error("null target")
						}
						if !r.Inverse && r.Target != nil && SubtypeOf(r.Type, s.known.hierarchical) {
							todo = append(todo, r.Target)
						}
					}
					for _, a := range []uint32{13, 4, 14, 21} {
						buf = s.AppendRead(buf[:0], &Read{ID: n.ID(), Attribute: a})
					}
					_, _, _ = n.TypeDefinition(), n.Parent(), n.Property("EURange")
				}
				if len(seen) < 2000 {
					t.Errorf("only %d nodes reached", len(seen))
				}
			}
		})
	}
	before := s.Len()
	for i := range rounds {
		if _, err := s.Import(plant, base); err != nil {
			t.Fatal(err)
		}
		ns := s.Namespace("urn:mine")
		v := ns.Variable("A.B", float64(i), EURange(0, 1), Writable())
		_ = v.Set(2.0)
		writeValue(s, v.Node().ID(), "", uabinary.Double(3))
		if ns.Clear() == 0 || s.Namespace("urn:plant").Clear() == 0 || s.Namespace("urn:base").Clear() == 0 {
			t.Fatal("nothing cleared")
		}
	}
	close(done)
	wg.Wait()
	if s.Len() != before {
		t.Errorf("%d nodes left behind", s.Len()-before)
	}
}

// A second server can import what the first one's namespace 0 was made of as a
// user's file would be: the importer copes with a large real one.
func BenchmarkImport(b *testing.B) {
	var f bytes.Buffer
	f.WriteString(`<UANodeSet><NamespaceUris><Uri>urn:big</Uri></NamespaceUris>`)
	for i := range 10_000 {
		fmt.Fprintf(&f, `<UAVariable NodeId="ns=1;i=%d" BrowseName="1:V%d" DataType="i=11"><DisplayName>V%d</DisplayName><References><Reference ReferenceType="i=35" IsForward="false">i=85</Reference><Reference ReferenceType="i=40">i=63</Reference></References><Value><Double>1.5</Double></Value></UAVariable>`, i+1, i, i)
	}
	f.WriteString(`</UANodeSet>`)
	b.SetBytes(int64(f.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := newSpace(b).Import(NodeSetFile{Name: "big", Data: f.Bytes()}); err != nil {
			b.Fatal(err)
		}
	}
}

// The companion models that node-opcua brings along for interoperability tests,
// in any order, all at once; skipped where they are not installed.
func TestImportCompanionModels(t *testing.T) {
	names, _ := filepath.Glob("../.interop/*/node/node_modules/node-opcua-nodesets/nodesets/*.xml")
	var files []NodeSetFile
	for _, name := range names {
		if filepath.Dir(name) != filepath.Dir(names[0]) {
			break // another installation of the same
		}
		if strings.HasPrefix(filepath.Base(name), "Opc.Ua.NodeSet2") {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, NodeSetFile{Name: filepath.Base(name), Data: data})
	}
	if len(files) == 0 || testing.Short() || raceEnabled {
		t.Skip("no companion models, -short, or the race detector")
	}
	slices.Reverse(files)
	s := newSpace(t)
	r, err := s.Import(files...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d files, %d nodes, %d dangling references", len(files), r.Nodes, r.Dangling)
	s.All(func(n *Node) bool {
		v := n.Value()
		if v == nil {
			return true
		}
		for i := range max(1, v.Value.Len()) {
			e := v.Value
			if e.IsArray() {
				e = e.Element(i)
			}
			if x, ok := e.ExtensionObject(); ok && x.Encoding == ua.ExtensionObjectXML {
				t.Errorf("%s: a structure of type %s stayed XML", n.ID(), x.TypeID)
			}
		}
		return true
	})
}

// What contradicts itself is refused with file and line instead of served.
func TestImportRefusesContradictions(t *testing.T) {
	const head = `<UANodeSet xmlns="http://opcfoundation.org/UA/2011/03/UANodeSet.xsd" xmlns:uax="http://opcfoundation.org/UA/2008/02/Types.xsd">
<NamespaceUris><Uri>urn:bad</Uri></NamespaceUris>
`
	for name, body := range map[string]string{
		"a String for an Int32": `<UAVariable NodeId="ns=1;i=1" BrowseName="1:V" DataType="i=6"><Value><uax:String>42</uax:String></Value></UAVariable>`,
		"a misspelt element":    `<UAVarible NodeId="ns=1;i=1" BrowseName="1:V"/>`,
	} {
		s, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Import(NodeSetFile{Name: "bad.xml", Data: []byte(head + body + "</UANodeSet>")})
		if err == nil || !strings.Contains(err.Error(), "bad.xml:3") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s, _ := New(Options{})
	r, err := s.Import(NodeSetFile{Name: "odd.xml", Data: []byte(head + `<UAVariable NodeId="ns=1;i=1" BrowseName="1:V" DataType="i=6">
<References><Reference ReferenceType="i=47">ns=1;i=999</Reference></References></UAVariable></UANodeSet>`)})
	if err != nil || r.Dangling != 1 || r.Unreachable != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
