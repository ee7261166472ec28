package nodeset

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../../testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParse(t *testing.T) {
	doc, err := Parse("plant.xml", read(t, "plant.xml"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(doc.URIs, []string{"urn:plant", "urn:base"}) || len(doc.Models) != 1 || doc.Models[0].Required[0].URI != "urn:base" {
		t.Errorf("%v, %+v", doc.URIs, doc.Models)
	}
	if len(doc.Nodes) != 2 {
		t.Fatalf("%d nodes", len(doc.Nodes))
	}
	v := doc.Nodes[1]
	if v.Line != 26 || v.Class != ua.NodeClassVariable || v.ID.String() != "ns=1;s=Machine.P" || v.AccessLevel != 3 || v.ValueRank != -1 ||
		v.DataType.String() != "ns=2;i=3001" || len(v.References) != 2 || !v.References[0].Inverse || v.References[0].Line != 29 {
		t.Errorf("%+v", v)
	}
	doc.Remap([]uint16{7, 9})
	if v.ID.Namespace != 7 || v.DataType.Namespace != 9 || v.References[0].Target.Namespace != 7 || v.References[0].Type.Namespace != 0 || v.BrowseName.Namespace != 7 {
		t.Errorf("after Remap: %+v", v)
	}
}

func TestOrder(t *testing.T) {
	doc := func(name string, required ...string) *Document {
		d := &Document{File: name, Models: []Model{{URI: name}}}
		for _, r := range required {
			d.Models[0].Required = append(d.Models[0].Required, Model{URI: r})
		}
		return d
	}
	base := func(uri string) bool { return uri == "base" }
	for _, tt := range []struct {
		docs []*Document
		want string
	}{
		{nil, ""},
		{[]*Document{doc("a"), doc("b")}, "a b"},
		{[]*Document{doc("a", "b", "base"), doc("b", "c"), doc("c", "base")}, "c b a"},
		{[]*Document{doc("a", "b", "c"), doc("b"), doc("c", "b")}, "b c a"},
		{[]*Document{doc("a", "missing")}, "model a requires model missing"},
		{[]*Document{doc("a", "b"), doc("b", "c"), doc("c", "a")}, "requires itself"},
		{[]*Document{doc("a"), doc("a")}, "model a is in a too"},
		{[]*Document{doc("a", "a")}, "a"},
	} {
		out, err := Order(tt.docs, base)
		var names []string
		for _, d := range out {
			names = append(names, d.File)
		}
		if got := strings.Join(names, " "); err == nil && got != tt.want || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q, %v, want %q", got, err, tt.want)
		}
	}
}

// A definition survives the way into the attribute and back.
func TestDefinitionRoundTrip(t *testing.T) {
	for _, d := range []*Definition{
		{Fields: []Field{{Name: "A", DataType: uabinary.NumericID(0, 6), ValueRank: -1}, {Name: "B", DataType: uabinary.StringID(2, "x"), ValueRank: 2, Dims: []uint32{3, 0}, MaxString: 9}}},
		{Fields: []Field{{Name: "A", DataType: uabinary.NumericID(0, 6), ValueRank: -1, Optional: true}}},
		{Union: true, Fields: []Field{{Name: "A", DataType: uabinary.NumericID(0, 6), ValueRank: -1}}},
		{Union: true, Fields: []Field{{Name: "A", DataType: uabinary.NumericID(0, 22), ValueRank: -1, SubTypes: true}}},
		{Fields: []Field{{Name: "A", DataType: uabinary.NumericID(0, 22), ValueRank: -1, SubTypes: true}}},
		{Fields: []Field{{Name: "Red", IsValue: true, Value: 1, DisplayName: uabinary.Text("Rot")}, {Name: "Blue", IsValue: true, Value: -2}}},
	} {
		b := AppendDefinition(nil, d, uabinary.NumericID(0, 22), uabinary.NumericID(1, 5))
		var dec uabinary.Decoder
		dec.Reset(b, nil)
		v := dec.Variant()
		if dec.Err() != nil || dec.Remaining() != 0 {
			t.Fatal(dec.Err())
		}
		got := ReadDefinition(v)
		if got == nil || fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", *d) {
			t.Errorf("%+v came back as %+v", d, got)
		}
	}
	if ReadDefinition(uabinary.Int32(1)) != nil || ReadDefinition(uabinary.Variant{}) != nil {
		t.Error("a definition from nothing")
	}
}

// FuzzDocument reads hostile files; errors carry a place, whatever is accepted
// encodes to a valid Variant.
func FuzzDocument(f *testing.F) {
	f.Add(read(f, "base.xml"))
	f.Add(read(f, "plant.xml"))
	for _, v := range []string{
		`<ListOfVariant><Variant><Value><Int32>1</Int32></Value></Variant></ListOfVariant>`,
		`<Matrix><Dimensions><UInt32>1</UInt32><UInt32>1</UInt32></Dimensions><Elements><Int32>1</Int32></Elements></Matrix>`,
		`<ExtensionObject><TypeId><Identifier>ns=1;i=3</Identifier></TypeId><Body><L><Next/></L></Body></ExtensionObject>`,
		`<DataValue><Value><Guid><String>09087e75-8e5e-499b-954f-f2a9603db28a</String></Guid></Value></DataValue>`,
	} {
		f.Add([]byte(`<UANodeSet><NamespaceUris><Uri>u</Uri></NamespaceUris><UAVariable NodeId="ns=1;i=1" BrowseName="1:V"><Value>` + v + `</Value></UAVariable>
<UADataType NodeId="ns=1;i=3" BrowseName="1:L"><References><Reference ReferenceType="i=45" IsForward="false">i=22</Reference><Reference ReferenceType="i=38">ns=1;i=2</Reference></References>
<Definition Name="L"><Field Name="Next" DataType="ns=1;i=3" ValueRank="1"/></Definition></UADataType><UAObject NodeId="ns=1;i=2" BrowseName="Default Binary"/></UANodeSet>`))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := Parse("fuzz", data)
		if err != nil {
			var placed *Error
			if !errors.As(err, &placed) {
				t.Errorf("error without a place: %v", err)
			}
			return
		}
		doc.Remap(make([]uint16, len(doc.URIs)))
		types := NewTypeTable(nil)
		types.Add(doc)
		for _, n := range doc.Nodes {
			types.DefinitionValue(n.ID)
			if n.Value == nil {
				continue
			}
			b, err := doc.AppendValue(nil, n.Value, types)
			if err != nil {
				continue
			}
			var d uabinary.Decoder
			d.Reset(b, nil)
			if d.Variant(); d.Err() != nil || d.Remaining() != 0 {
				t.Errorf("accepted as %x: %v", b, d.Err())
			}
		}
	})
}
