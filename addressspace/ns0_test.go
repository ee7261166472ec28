package addressspace

import (
	"bytes"
	"testing"

	"github.com/gopcua/opcua/schema"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace/internal/nodeset"
	"github.com/breakwater-ua/breakwater/uabinary"
)

func i0(n uint32) uabinary.NodeID { return uabinary.NumericID(0, n) }

func readAttr(s *Space, id uabinary.NodeID, a ua.AttributeID) uabinary.DataValue {
	return s.ReadValue(&Read{ID: id, Attribute: uint32(a), Timestamps: ua.TimestampsToReturnNeither})
}

// Everything the NodeSet2 file says about a node that is not pruned is found in
// the space: the compiled form loses nothing.
func TestNamespace0MatchesNodeSet(t *testing.T) {
	s := newSpace(t)
	doc, err := nodeset.Parse("ns0", schema.OpcUaNodeSet2)
	if err != nil {
		t.Fatal(err)
	}
	doc.Remap(nil)
	types := nodeset.NewTypeTable(nil)
	types.Add(doc)
	checked, missing := 0, 0
	for _, x := range doc.Nodes {
		n := s.Lookup(x.ID)
		if n == nil {
			missing++
			continue
		}
		checked++
		if n.Class() != x.Class || !bytes.Equal(n.BrowseName().Name, x.BrowseName.Name) ||
			!bytes.Equal(n.DisplayName().Text, x.DisplayName.Text) || n.IsAbstract() != x.IsAbstract {
			t.Errorf("%s: class, name or IsAbstract differ", x.ID)
		}
		for _, r := range x.References {
			target := s.Lookup(r.Target)
			if target == nil {
				continue // pruned
			}
			ref := Reference{Type: s.Lookup(r.Type), Target: target, Inverse: r.Inverse}
			back := Reference{Type: ref.Type, Target: n, Inverse: !r.Inverse}
			if !n.hasRef(&ref) || !target.hasRef(&back) {
				t.Errorf("%s: reference %s %s is not there in both directions", x.ID, r.Type, r.Target)
			}
		}
		if x.Class == ua.NodeClassVariable || x.Class == ua.NodeClassVariableType {
			if !n.DataType().ID().Equal(x.DataType) || n.ValueRank() != x.ValueRank || len(n.ArrayDimensions()) != len(x.Dims) {
				t.Errorf("%s: DataType, ValueRank or ArrayDimensions differ", x.ID)
			}
			if x.Value != nil && x.ID.Numeric != idIsNamespaceSubset && x.ID.Numeric != idServerNamespaceArray {
				want, err := doc.AppendValue(nil, x.Value, types)
				if err != nil {
					t.Fatal(err)
				}
				if v := n.Value(); v == nil || !bytes.Equal(v.Value.Encoded(), want) {
					t.Errorf("%s: value differs", x.ID)
				}
			}
		}
	}
	if checked < 4000 || missing > 800 {
		t.Errorf("%d nodes checked, %d missing", checked, missing)
	}
}

func TestNamespace0Values(t *testing.T) {
	s := newSpace(t)
	// EnumStrings of NodeClass is an array of LocalizedText.
	v := s.Lookup(i0(11878)).Value().Value // NodeClass EnumValues
	if v.Type() != ua.TypeIDExtensionObject || v.Len() < 8 {
		t.Fatalf("NodeClass.EnumValues: type %v, %d elements", v.Type(), v.Len())
	}
	x, _ := v.Element(1).ExtensionObject()
	if x.Encoding != ua.ExtensionObjectBinary || x.TypeID.Numeric != 8251 {
		t.Errorf("EnumValueType is encoded as %d, type %s", x.Encoding, x.TypeID)
	}
	eo, err := x.UA()
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := eo.Value.(*ua.EnumValueType); !ok || e.Value != 1 || e.DisplayName.Text != "Object" {
		t.Errorf("second EnumValueType is %+v", eo.Value)
	}
	// Arguments of GetMonitoredItems.
	in, err := s.Lookup(i0(11493)).Value().Value.Value()
	if err != nil {
		t.Fatal(err)
	}
	args := in.([]*ua.ExtensionObject)
	if a := args[0].Value.(*ua.Argument); a.Name != "SubscriptionId" || a.DataType.IntID() != 7 || a.ValueRank != -1 {
		t.Errorf("first argument is %+v", a)
	}
	out := s.Lookup(i0(11492)).argumentList(1)
	if len(out.args) != 2 || out.args[1].rank != 1 || out.args[1].builtin != ua.TypeIDUint32 {
		t.Errorf("output arguments of GetMonitoredItems: %+v", out.args)
	}
}

// OPC 10000-3 §8.48: StructureDefinition has the inherited fields, EnumDefinition
// the values.
func TestNamespace0DataTypeDefinition(t *testing.T) {
	s := newSpace(t)
	definition := func(id uint32) any {
		dv := readAttr(s, i0(id), ua.AttributeIDDataTypeDefinition)
		x, ok := dv.Value.ExtensionObject()
		if !ok {
			t.Fatalf("i=%d: status %v, type %v", id, dv.Status, dv.Value.Type())
		}
		eo, err := x.UA()
		if err != nil {
			t.Fatal(err)
		}
		return eo.Value
	}
	arg := definition(296).(*ua.StructureDefinition)
	if len(arg.Fields) != 5 || arg.Fields[0].Name != "Name" || arg.DefaultEncodingID.IntID() != 298 || arg.StructureType != ua.StructureTypeStructure {
		t.Errorf("Argument: %+v", arg)
	}
	if user := definition(322).(*ua.StructureDefinition); len(user.Fields) != 4 || user.Fields[0].Name != "PolicyId" || user.BaseDataType.IntID() != 316 {
		t.Errorf("UserNameIdentityToken has fields %d, the inherited PolicyId first: %+v", len(user.Fields), user)
	}
	if class := definition(257).(*ua.EnumDefinition); len(class.Fields) != 9 || class.Fields[2].Value != 2 || class.Fields[2].Name != "Variable" {
		t.Errorf("NodeClass: %+v", class)
	}
	if dv := readAttr(s, i0(11), ua.AttributeIDDataTypeDefinition); dv.Status != ua.StatusBadAttributeIDInvalid {
		t.Errorf("Double has a DataTypeDefinition: %v", dv.Status)
	}
}

func TestSubtypeOf(t *testing.T) {
	s := newSpace(t)
	n := func(id uint32) *Node { return s.Lookup(i0(id)) }
	for _, tt := range []struct {
		t, base uint32
		want    bool
	}{
		{46, 33, true}, {46, 44, true}, {47, 44, true}, {35, 44, false}, {33, 31, true},
		{31, 33, false}, {40, 33, false}, {40, 32, true}, {290, 11, true}, {290, 26, true},
		{290, 24, true}, {12, 26, false}, {7, 28, true}, {6, 28, false}, {2368, 62, true}, {61, 58, true},
	} {
		if got := SubtypeOf(n(tt.t), n(tt.base)); got != tt.want {
			t.Errorf("SubtypeOf(i=%d, i=%d) = %v", tt.t, tt.base, got)
		}
	}
	if SubtypeOf(nil, n(33)) || SubtypeOf(n(46), nil) {
		t.Error("nil is a subtype")
	}
}

// Optional parts of the Server object that stand for nothing are not there; what
// clients look for is.
func TestNamespace0DoesNotPretend(t *testing.T) {
	s := newSpace(t)
	for _, id := range []uint32{12637, 14443, 15606, 15644, 11192, 11193, 12749, 12750, 12886, 24226, 32405, 12740} {
		if n := s.Lookup(i0(id)); n != nil {
			t.Errorf("i=%d %s is there", id, n.BrowseName().Name)
		}
	}
	for _, id := range []uint32{84, 85, 86, 87, 2253, 2254, 2255, 2256, 2258, 2267, 2268, 2735, 11704, 11705, 2274, 2275, 11492, 12873, 2004, 17594 /* Dictionaries, for companion models */, 15607 /* RoleSetType */, 12581 /* ServerConfigurationType */} {
		if s.Lookup(i0(id)) == nil {
			t.Errorf("i=%d is missing", id)
		}
	}
	s.All(func(n *Node) bool {
		if n.Class() == ua.NodeClassMethod && n.Executable() {
			t.Errorf("%s %s is executable without code behind it", n.ID(), n.BrowseName().Name)
		}
		return true
	})
	if uris, err := s.Lookup(i0(2255)).Value().Value.Value(); err != nil || len(uris.([]string)) != 2 || uris.([]string)[1] != "urn:test" {
		t.Errorf("NamespaceArray is %v, %v", uris, err)
	}
}

// Several spaces share the compiled bytes; one must not see another's changes.
func TestSpacesAreIndependent(t *testing.T) {
	a, b := newSpace(t), newSpace(t)
	if err := a.Variable(i0(2267)).Set(byte(7)); err != nil {
		t.Fatal(err)
	}
	a.Lookup(i0(2253)).SetDisplayName("Mine")
	a.Namespace("urn:only-a").Folder("F")
	if b.Lookup(i0(2267)).Value() != nil || string(b.Lookup(i0(2253)).DisplayName().Text) != "Server" || len(b.NamespaceArray()) != 2 {
		t.Error("a change of one space shows in another")
	}
	if len(b.Lookup(i0(85)).References()) == len(a.Lookup(i0(85)).References()) {
		t.Error("Objects of both spaces have the same references")
	}
}
