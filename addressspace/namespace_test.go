package addressspace

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

func q(ns uint16, name string) uabinary.QualifiedName {
	return uabinary.QualifiedName{Namespace: ns, Name: []byte(name)}
}

// referenceBetween names the type of the forward reference between two nodes.
func referenceBetween(from, to *Node) string {
	for _, r := range from.References() {
		if !r.Inverse && r.Target == to {
			return string(r.Type.BrowseName().Name)
		}
	}
	return ""
}

func TestNamespacePaths(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:plant")
	if ns.Index() != 2 || s.Namespace("urn:plant") != ns || s.Namespace("urn:test").Index() != 1 {
		t.Fatalf("index %d", ns.Index())
	}
	v := ns.Variable("Plant.Boiler.Temperature", 21.5)
	objects := s.Lookup(i0(85))
	n, err := s.ResolvePath(objects.ID(), q(2, "Plant"), q(2, "Boiler"), q(2, "Temperature"))
	if err != nil || n != v.Node() {
		t.Fatalf("ResolvePath: %v, %v", n, err)
	}
	plant, boiler := ns.Node("Plant"), ns.Node("Plant.Boiler")
	if got := referenceBetween(objects, plant) + " " + referenceBetween(plant, boiler) + " " + referenceBetween(boiler, n); got != "Organizes HasComponent HasComponent" {
		t.Errorf("references: %s", got)
	}
	if n.Parent() != boiler || n.TypeDefinition() != s.Lookup(i0(63)) || boiler.TypeDefinition() != s.Lookup(i0(58)) {
		t.Error("parent or type definition")
	}
	f := ns.Folder("Folder")
	ns.Variable("Folder.V", int32(1))
	m := ns.Method("Folder.M", nil, nil, nil)
	if referenceBetween(f, ns.Node("Folder.V")) != "Organizes" || referenceBetween(f, m) != "HasComponent" {
		t.Error("references of a folder")
	}
	dotted := ns.Variable(`Folder.a\.b\\c`, 1.0)
	if b := dotted.Node().BrowseName(); string(b.Name) != `a.b\c` {
		t.Errorf("escaped name is %q", b.Name)
	}
	// Children of a node with an id of its own are found by its path.
	ns.Object("Numbered", NumericNodeID(42))
	child := ns.Variable("Numbered.Child", 1.0)
	if child.Node().Parent() != s.Lookup(uabinary.NumericID(2, 42)) || ns.Node("Numbered") != s.Lookup(uabinary.NumericID(2, 42)) {
		t.Error("parent with a numeric id was not found")
	}
	for _, tt := range []struct {
		names []uabinary.QualifiedName
		want  ua.StatusCode
	}{
		{[]uabinary.QualifiedName{q(2, "Nothing")}, ua.StatusBadNoMatch},
		{[]uabinary.QualifiedName{q(1, "Plant")}, ua.StatusBadNoMatch},
		{make([]uabinary.QualifiedName, 101), ua.StatusBadQueryTooComplex},
	} {
		if _, err := s.ResolvePath(i0(85), tt.names...); uastatus.Code(err) != tt.want {
			t.Errorf("ResolvePath: %v, want %v", err, tt.want)
		}
	}
}

func TestVariableInference(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	for i, tt := range []struct {
		value    any
		dataType uint32
		rank     int32
	}{
		{true, 1, -1}, {int8(1), 2, -1}, {byte(1), 3, -1}, {int16(1), 4, -1}, {uint16(1), 5, -1}, {int32(1), 6, -1}, {uint32(1), 7, -1},
		{int64(1), 8, -1}, {uint64(1), 9, -1}, {float32(1), 10, -1}, {1.5, 11, -1}, {"x", 12, -1}, {time.Unix(0, 0), 13, -1},
		{[]byte{1}, 15, -1}, {42, 6, -1}, {1 << 40, 8, -1}, {time.Second, 290, -1}, {ua.StatusBad, 19, -1},
		{[]string{"a"}, 12, 1}, {[]float64{}, 11, 1}, {[][]int32{{1}, {2}}, 6, 2}, {ua.NewExtensionObject(&ua.Range{}), 884, -1},
		{[]*ua.ExtensionObject{ua.NewExtensionObject(&ua.Argument{})}, 296, 1}, {nil, 24, -2},
	} {
		v := ns.Variable(fmt.Sprint("V", i), tt.value)
		if id := v.Node().DataType().ID(); !id.Equal(i0(tt.dataType)) || v.Node().ValueRank() != tt.rank {
			t.Errorf("%T: DataType %s, ValueRank %d", tt.value, id, v.Node().ValueRank())
		}
	}
	if v := ns.Variable("M", [][]int32{{1}, {2}}); len(v.Node().ArrayDimensions()) != 2 {
		t.Errorf("ArrayDimensions of a matrix: %v", v.Node().ArrayDimensions())
	}
}

func TestSet(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	v := ns.Variable("V", 1.0)
	before := v.Node().Value()
	for _, x := range []any{float32(1), int32(1), "x", []float64{1}, nil, uabinary.DataValue{Mask: 1, Value: uabinary.String("x")}} {
		if err := v.Set(x); uastatus.Code(err) != ua.StatusBadTypeMismatch {
			t.Errorf("Set(%T): %v", x, err)
		}
	}
	if v.Node().Value() != before {
		t.Error("a refused Set changed the value")
	}
	for _, x := range []any{2.0, uabinary.Double(2), ua.MustVariant(2.0), uabinary.DataValue{Mask: 1, Value: uabinary.Double(2)},
		&ua.DataValue{EncodingMask: 1, Value: ua.MustVariant(2.0)}} {
		if err := v.Set(1.0); err != nil {
			t.Fatal(err)
		}
		old := v.Node().Value()
		if err := v.Set(x); err != nil || v.Value() != 2.0 || v.Node().Value() == old || v.Node().Value().SourceTimestamp == 0 {
			t.Errorf("Set(%T): %v, value %v", x, err, v.Value())
		}
	}
	v.SetStatus(ua.StatusBadSensorFailure)
	if dv := v.Node().Value(); dv.Status != ua.StatusBadSensorFailure || v.Value() != 2.0 {
		t.Errorf("after SetStatus: %+v", dv)
	}
	for _, x := range []any{true, int8(-1), byte(200), int16(-2), uint16(3), int32(-4), uint32(5), int64(-6), uint64(7), float32(8.5)} {
		w := ns.Variable(fmt.Sprintf("T%T", x), x)
		if err := w.Set(x); err != nil || w.Value() != x {
			t.Errorf("Set(%T): %v, value %v", x, err, w.Value())
		}
	}
}

func TestAddErrors(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	ns.Variable("V", 1.0)
	before := s.Len()
	for _, tt := range []struct {
		name    string
		path    string
		value   any
		options []Option
		want    ua.StatusCode
	}{
		{"exists", "V", 1.0, nil, ua.StatusBadNodeIDExists},
		{"id exists", "W", 1.0, []Option{NodeID(i0(85))}, ua.StatusBadNodeIDExists},
		{"empty name", "", 1.0, nil, ua.StatusBadBrowseNameInvalid},
		{"X16: name of 513 bytes", strings.Repeat("n", 513), 1.0, nil, ua.StatusBadBrowseNameInvalid},
		{"invalid UTF-8", "a\xff", 1.0, nil, ua.StatusBadBrowseNameInvalid},
		{"no such DataType", "W", 1.0, []Option{DataType(i0(58))}, ua.StatusBadNodeAttributesInvalid},
		{"value of another type", "W", 1.0, []Option{DataType(i0(12))}, ua.StatusBadTypeMismatch},
		{"no such type", "W", 1.0, []Option{TypeDefinition(i0(58))}, ua.StatusBadTypeDefinitionInvalid},
		{"no such parent", "W", 1.0, []Option{Parent(idOf(t, "ns=2;i=999"))}, ua.StatusBadParentNodeIDInvalid},
		{"no such reference type", "W", 1.0, []Option{ParentReference(i0(40))}, ua.StatusBadReferenceTypeIDInvalid},
		{"no such target", "W", 1.0, []Option{Refers(i0(35), idOf(t, "ns=2;i=999"))}, ua.StatusBadTargetNodeIDInvalid},
		{"namespace out of range", "W", 1.0, []Option{BrowseName(9, "x")}, ua.StatusBadNodeIDInvalid},
	} {
		if _, err := ns.AddVariable(tt.path, tt.value, tt.options...); uastatus.Code(err) != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, err, uastatus.Name(tt.want))
		}
	}
	if s.Len() != before {
		t.Errorf("%d nodes were left behind", s.Len()-before)
	}
	if _, err := ns.AddVariable("W", make(chan int)); err == nil {
		t.Error("a channel is a value")
	}
	defer func() {
		if recover() == nil {
			t.Error("Variable of an existing path does not panic")
		}
	}()
	ns.Variable("V", 1.0)
}

// A22, X16: names longer than 127 bytes are nothing special.
func TestBrowseNameLengths(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	for _, n := range []int{127, 128, 200, 512} {
		name := strings.Repeat("n", n)
		ns.Variable(name, 1.0)
		if got, err := s.ResolvePath(i0(85), q(ns.Index(), name)); err != nil || len(got.BrowseName().Name) != n {
			t.Errorf("name of %d bytes: %v", n, err)
		}
	}
	if _, err := s.ResolvePath(i0(85), q(2, strings.Repeat("n", 64<<10))); uastatus.Code(err) != ua.StatusBadNoMatch {
		t.Errorf("lookup of 64 KiB name: %v", err)
	}
}

func TestAnalogProperties(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	v := ns.Variable("V", 21.5, EURange(-50, 150), EngineeringUnits(4408652, "°C", "degree Celsius"), Property("Note", "hi"))
	n := v.Node()
	if n.TypeDefinition() != s.Lookup(i0(2368)) {
		t.Errorf("type is %s", n.TypeDefinition().ID())
	}
	r := n.Property("EURange")
	if r == nil || r.TypeDefinition() != s.Lookup(i0(68)) || !r.DataType().ID().Equal(i0(884)) {
		t.Fatal("EURange")
	}
	x, _ := r.Value().Value.ExtensionObject()
	eo, err := x.UA()
	if rg, ok := eo.Value.(*ua.Range); err != nil || !ok || rg.Low != -50 || rg.High != 150 {
		t.Errorf("EURange is %+v", eo.Value)
	}
	x, _ = n.Property("EngineeringUnits").Value().Value.ExtensionObject()
	eo, err = x.UA()
	if u, ok := eo.Value.(*ua.EUInformation); err != nil || !ok || u.UnitID != 4408652 || u.DisplayName.Text != "°C" {
		t.Errorf("EngineeringUnits is %+v", eo.Value)
	}
	if n.Property("Note") == nil || !n.Property("Note").ID().Equal(ns.NodeID("V.Note")) {
		t.Error("Note")
	}
	if _, err := ns.AddVariable("V2", 1.0, Property("A", 1), Property("A", 2)); err == nil {
		t.Error("two properties of one name")
	}
}

func TestCustomTypes(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	boiler, err := ns.ObjectType("BoilerType")
	if err != nil {
		t.Fatal(err)
	}
	ns.Variable("BoilerType.Level", 3.0, Mandatory(), EURange(0, 10), Writable())
	ns.Variable("BoilerType.Comment", "", Optional())
	ns.Object("BoilerType.Drum", Mandatory())
	ns.Variable("BoilerType.Drum.Pressure", 1.0, Mandatory())
	small, err := ns.ObjectType("SmallBoilerType", Parent(boiler.ID()))
	if err != nil {
		t.Fatal(err)
	}
	if !SubtypeOf(small, boiler) || small.Supertype() != boiler || referenceBetween(boiler, small) != "HasSubtype" {
		t.Error("subtype")
	}
	ns.Object("B1", TypeDefinition(small.ID()))
	level := s.Variable(ns.NodeID("B1.Level"))
	if level == nil || level.Value() != 3.0 || ns.Node("B1.Drum.Pressure") == nil || ns.Node("B1.Comment") != nil {
		t.Fatal("mandatory components were not made, or an optional one was")
	}
	if level.Node().AccessLevel() != AccessReadWrite || level.Node().TypeDefinition() != s.Lookup(i0(2368)) {
		t.Error("the instance's component differs from its declaration")
	}
	if err := level.Set(4.0); err != nil || s.Variable(ns.NodeID("BoilerType.Level")).Value() != 3.0 {
		t.Error("instance and type share a value")
	}
	// A type that contains itself must not make nodes for ever.
	loop, _ := ns.ObjectType("LoopType")
	ns.Object("LoopType.Inner", TypeDefinition(loop.ID()), Mandatory())
	before := s.Len()
	ns.Object("L", TypeDefinition(loop.ID()))
	if made := s.Len() - before; made > maxInstance+2 {
		t.Errorf("%d nodes", made)
	}
	rt, err := ns.ReferenceType("Feeds", InverseName("FedBy"))
	if err != nil || !SubtypeOf(rt, s.Lookup(i0(33))) {
		t.Fatal(err)
	}
	o := ns.Object("O", Refers(rt.ID(), ns.NodeID("B1")))
	if referenceBetween(o, ns.Node("B1")) != "Feeds" {
		t.Error("Refers")
	}
	enum, err := ns.DataType("Color", Parent(i0(29)), Definition(ua.NewExtensionObject(&ua.EnumDefinition{Fields: []*ua.EnumField{{Value: 1, Name: "Red", DisplayName: ua.NewLocalizedText("Red"), Description: ua.NewLocalizedText("")}}})))
	if err != nil {
		t.Fatal(err)
	}
	c := ns.Variable("C", int32(1), DataType(enum.ID()), Writable())
	if code := writeValue(s, c.Node().ID(), "", uabinary.UInt32(1)); code != ua.StatusBadTypeMismatch {
		t.Errorf("UInt32 for an enumeration: %v", code)
	}
	if dv := readAttr(s, enum.ID(), ua.AttributeIDDataTypeDefinition); dv.Status != ua.StatusOK {
		t.Errorf("DataTypeDefinition: %v", dv.Status)
	}
}

func TestDelete(t *testing.T) {
	s := newSpace(t)
	before, objectsBefore := s.Len(), len(s.Lookup(i0(85)).References())
	ns := s.Namespace("urn:t")
	ns.Folder("A")
	v := ns.Variable("A.B.V", 1.0, EURange(0, 1))
	shared := ns.Variable("S", 1.0)
	if !s.AddReference(ns.Node("A"), s.Lookup(i0(47)), shared.Node()) {
		t.Fatal("AddReference")
	}
	a := ns.Node("A")
	w := new(recorder)
	v.Node().Watch(w)
	if n := ns.Delete("A"); n != 4 { // A, B, V, EURange
		t.Errorf("%d nodes deleted, want 4", n)
	}
	if !v.Node().Deleted() || ns.Node("A") != nil || ns.Node("A.B.V") != nil || ns.Node("A.B.V.EURange") != nil || ns.Node("S") == nil {
		t.Error("what should be gone and what should stay")
	}
	if len(w.values) != 1 || w.values[0].Status != ua.StatusBadNodeIDUnknown {
		t.Errorf("the watcher was told %v", w.values)
	}
	if dv := s.ReadValue(&Read{Node: v.Node(), Attribute: 13}); dv.Status != ua.StatusBadNodeIDUnknown {
		t.Errorf("read of a deleted node: %v", dv.Status)
	}
	if s.AddReference(a, s.Lookup(i0(47)), shared.Node()) {
		t.Error("a deleted node got a reference")
	}
	if n := ns.Clear(); n != 1 {
		t.Errorf("Clear deleted %d", n)
	}
	if s.Len() != before || len(s.Lookup(i0(85)).References()) != objectsBefore {
		t.Errorf("%d nodes and %d references of Objects more than before", s.Len()-before, len(s.Lookup(i0(85)).References())-objectsBefore)
	}
	for _, r := range s.Lookup(i0(58)).References() {
		if r.Target.Deleted() {
			t.Error("a type still refers to a deleted instance")
		}
	}
	if s.Delete(i0(58), i0(47)) != 0 {
		t.Error("a type of namespace 0 was deleted")
	}
	ns.Variable("A.B.V", 2.0) // the names are free again
	// A circle of folders goes as a whole.
	s.AddReference(ns.Folder("F"), s.Lookup(i0(35)), ns.Folder("F.G"))
	s.AddReference(ns.Node("F.G"), s.Lookup(i0(35)), ns.Node("F"))
	if n := ns.Delete("F"); n != 2 {
		t.Errorf("%d nodes of a circle deleted", n)
	}
}

func TestReferences(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	a, b := ns.Object("A"), ns.Object("B")
	typ := s.Lookup(i0(35))
	snapshot := a.References()
	n := len(snapshot)
	for range 2 {
		if !s.AddReference(a, typ, b) {
			t.Fatal("AddReference")
		}
	}
	if len(a.References()) != n+1 || len(snapshot) != n {
		t.Errorf("%d references, want %d; a reference that exists is added once", len(a.References()), n+1)
	}
	if s.AddReference(a, b, b) {
		t.Error("an Object was taken for a ReferenceType")
	}
	if !s.DeleteReference(a, typ, b) || s.DeleteReference(a, typ, b) || len(a.References()) != n || len(b.References()) != 2 {
		t.Error("DeleteReference")
	}
	// A HasSubtype loop must not become a loop of the type tree.
	t1, _ := ns.ObjectType("T1")
	t2, _ := ns.ObjectType("T2", Parent(t1.ID()))
	s.AddReference(t2, s.Lookup(i0(45)), t1)
	if SubtypeOf(t1, t2) || !SubtypeOf(t2, t1) {
		t.Error("subtype loop")
	}
}

func TestAddVariables(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	specs := make([]VariableSpec, 1000)
	for i := range specs {
		specs[i] = VariableSpec{Path: fmt.Sprint("W.V", i), Initial: float64(i)}
	}
	vars, err := ns.AddVariables(specs...)
	if err != nil || len(vars) != 1000 || len(ns.Node("W").References()) != 1002 {
		t.Fatalf("%v, %d", err, len(vars))
	}
	if vars[999].Value() != 999.0 || s.NamespaceLen(ns.Index()) != 1001 {
		t.Errorf("value %v, %d nodes", vars[999].Value(), s.NamespaceLen(ns.Index()))
	}
	if vars, err = ns.AddVariables(VariableSpec{Path: "X", Initial: 1.0}, VariableSpec{Path: "X", Initial: 1.0}); err == nil || len(vars) != 1 {
		t.Errorf("duplicate: %v, %d made", err, len(vars))
	}
}

func negInf() float64 { return math.Inf(-1) }

func mustTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

// A structure may name its namespace by URI; checking it must not wait for the
// lock that making the node holds.
func TestStructureWithNamespaceURI(t *testing.T) {
	s := newSpace(t)
	x := structure(886, make([]byte, 16))
	x.TypeID.NamespaceURI = []byte(NamespaceOPCUA)
	v := s.Namespace("urn:t").Variable("V", uabinary.ExtensionObjectVariant(x), DataType(i0(884)), Writable())
	if code := writeValue(s, v.Node().ID(), "", uabinary.ExtensionObjectVariant(x)); code != ua.StatusOK {
		t.Error(uastatus.Name(code))
	}
	x.TypeID.NamespaceURI = []byte("urn:nobody")
	if code := writeValue(s, v.Node().ID(), "", uabinary.ExtensionObjectVariant(x)); code != ua.StatusBadTypeMismatch {
		t.Error(uastatus.Name(code))
	}
}
