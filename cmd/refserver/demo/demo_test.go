package demo

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

func build(t *testing.T, o Options) (*addressspace.Space, *addressspace.Namespace, *Space) {
	t.Helper()
	space, err := addressspace.New(addressspace.Options{ApplicationURI: "urn:test"})
	if err != nil {
		t.Fatal(err)
	}
	d, err := Build(space, o)
	if err != nil {
		t.Fatal(err)
	}
	return space, space.Namespace(NamespaceURI), d
}

var (
	nobody = &addressspace.Caller{Anonymous: true}
	alice  = &addressspace.Caller{User: "alice"}
	admin  = &addressspace.Caller{User: "root", Admin: true}
)

func read(space *addressspace.Space, node uabinary.NodeID, c *addressspace.Caller) uabinary.DataValue {
	return space.ReadValue(&addressspace.Read{ID: node, Attribute: uint32(ua.AttributeIDValue), Now: uabinary.Now(), Caller: c})
}

func TestEveryBuiltinTypeIsReadAndWritten(t *testing.T) {
	space, ns, _ := build(t, Options{})
	// Part 6 §5.1.2: the built-in types 1 to 25, among them the encodings that
	// other types use; null is none, Variant is found in arrays only.
	want := map[string]ua.TypeID{
		"Boolean": ua.TypeIDBoolean, "SByte": ua.TypeIDSByte, "Byte": ua.TypeIDByte, "Int16": ua.TypeIDInt16,
		"UInt16": ua.TypeIDUint16, "Int32": ua.TypeIDInt32, "UInt32": ua.TypeIDUint32, "Int64": ua.TypeIDInt64,
		"UInt64": ua.TypeIDUint64, "Float": ua.TypeIDFloat, "Double": ua.TypeIDDouble, "String": ua.TypeIDString,
		"DateTime": ua.TypeIDDateTime, "Guid": ua.TypeIDGUID, "ByteString": ua.TypeIDByteString,
		"XmlElement": ua.TypeIDXMLElement, "NodeId": ua.TypeIDNodeID, "ExpandedNodeId": ua.TypeIDExpandedNodeID,
		"StatusCode": ua.TypeIDStatusCode, "QualifiedName": ua.TypeIDQualifiedName,
		"LocalizedText": ua.TypeIDLocalizedText, "Structure": ua.TypeIDExtensionObject,
		"DataValue": ua.TypeIDDataValue, "DiagnosticInfo": ua.TypeIDDiagnosticInfo, "Variant": ua.TypeIDVariant,
	}
	for name, typ := range want {
		for _, kind := range []string{"Scalar", "Array", "Matrix"} {
			if name == "Variant" && kind == "Scalar" {
				continue
			}
			t.Run(kind+" "+name, func(t *testing.T) {
				node := ns.NodeID("Demo." + kind + "." + name)
				dv := read(space, node, nobody)
				if dv.Status != ua.StatusOK || dv.Value.Type() != typ {
					t.Fatalf("read %v of type %v, want type %v", dv.Status, dv.Value.Type(), typ)
				}
				dims := fmt.Sprint(dv.Value.Len(), dv.Value.Dims())
				if w := map[string]string{"Scalar": "-1 []", "Array": "3 [3]", "Matrix": "6 [2 3]"}[kind]; dims != w {
					t.Errorf("shape %s, want %s", dims, w)
				}
				if code := space.Write(node, uint32(ua.AttributeIDValue), nil, &dv, nobody); code != ua.StatusOK {
					t.Errorf("write: %v", code)
				}
			})
		}
	}
}

func TestAccess(t *testing.T) {
	space, ns, _ := build(t, Options{})
	for _, tt := range []struct {
		name        string
		caller      *addressspace.Caller
		read, write ua.StatusCode
	}{
		{"ReadOnly", admin, ua.StatusOK, ua.StatusBadNotWritable},
		{"WriteOnly", admin, ua.StatusBadNotReadable, ua.StatusOK},
		{"ReadWrite", nobody, ua.StatusOK, ua.StatusOK},
		{"None", admin, ua.StatusBadNotReadable, ua.StatusBadNotWritable},
		{"UserWrite", nobody, ua.StatusOK, ua.StatusBadUserAccessDenied},
		{"UserWrite", alice, ua.StatusOK, ua.StatusOK},
		{"AdminOnly", alice, ua.StatusBadUserAccessDenied, ua.StatusBadUserAccessDenied},
		{"AdminOnly", admin, ua.StatusOK, ua.StatusOK},
	} {
		t.Run(tt.name+" by "+tt.caller.User, func(t *testing.T) {
			node := ns.NodeID("Demo.Access." + tt.name)
			if dv := read(space, node, tt.caller); dv.Status != tt.read {
				t.Errorf("read: %v, want %v", dv.Status, tt.read)
			}
			dv := uabinary.DataValue{Mask: ua.DataValueValue, Value: uabinary.Double(1)}
			if code := space.Write(node, uint32(ua.AttributeIDValue), nil, &dv, tt.caller); code != tt.write {
				t.Errorf("write: %v, want %v", code, tt.write)
			}
		})
	}
	stamped := uabinary.DataValue{
		Mask: ua.DataValueValue | ua.DataValueSourceTimestamp, Value: uabinary.Double(1), SourceTimestamp: uabinary.Now(),
	}
	if code := space.Write(ns.NodeID("Demo.Access.ValueOnly"), uint32(ua.AttributeIDValue), nil, &stamped, admin); code != ua.StatusBadWriteNotSupported {
		t.Errorf("a timestamp written to ValueOnly: %v", code)
	}
}

func TestAnalogItemsHaveRangeAndUnit(t *testing.T) {
	_, ns, _ := build(t, Options{})
	n := ns.Node("Demo.DataAccess.Temperature")
	if typ := n.TypeDefinition(); !typ.ID().Equal(uabinary.NumericID(0, id.AnalogItemType)) {
		t.Errorf("type definition %v", typ.ID())
	}
	for _, p := range []string{"EURange", "EngineeringUnits"} {
		if n.Property(p) == nil {
			t.Errorf("no property %s", p)
		}
	}
	if ns.Node("Demo.DataAccess.Valve").Property("TrueState") == nil {
		t.Error("Valve has no TrueState")
	}
}

func call(space *addressspace.Space, ns *addressspace.Namespace, name string, c *addressspace.Caller, args ...uabinary.Variant) ([]uabinary.Variant, ua.StatusCode) {
	out, _, code := space.CallMethod(context.Background(), ns.NodeID("Demo.Methods"), ns.NodeID("Demo.Methods."+name), args, c)
	return out, code
}

func TestMethods(t *testing.T) {
	space, ns, _ := build(t, Options{})
	for _, tt := range []struct {
		name   string
		caller *addressspace.Caller
		args   []uabinary.Variant
		want   ua.StatusCode
	}{
		{"NoArguments", nobody, nil, ua.StatusOK},
		{"NoArguments", nobody, []uabinary.Variant{uabinary.Double(1)}, ua.StatusBadTooManyArguments},
		{"Add", nobody, []uabinary.Variant{uabinary.Double(1)}, ua.StatusBadArgumentsMissing},
		{"Fail", nobody, nil, ua.StatusBadInvalidState},
		{"RefuseArgument", nobody, []uabinary.Variant{uabinary.Double(1)}, ua.StatusBadInvalidArgument},
		{"Slow", nobody, []uabinary.Variant{uabinary.Double(0)}, ua.StatusOK},
		{"Slow", nobody, []uabinary.Variant{uabinary.Double(1e9)}, ua.StatusBadInvalidArgument},
		{"AdminOnly", alice, nil, ua.StatusBadUserAccessDenied},
		{"AdminOnly", admin, nil, ua.StatusOK},
	} {
		if _, code := call(space, ns, tt.name, tt.caller, tt.args...); code != tt.want {
			t.Errorf("%s(%v) by %q: %v, want %v", tt.name, len(tt.args), tt.caller.User, code, tt.want)
		}
	}
	out, code := call(space, ns, "Add", nobody, uabinary.Double(1.5), uabinary.Double(2.25))
	if code != ua.StatusOK || len(out) != 1 {
		t.Fatalf("Add: %v, %d values", code, len(out))
	}
	if sum, _ := out[0].Float64(); sum != 3.75 {
		t.Errorf("Add returned %v", sum)
	}
}

func TestAllTypesReturnsItsArguments(t *testing.T) {
	space, ns, _ := build(t, Options{})
	for method, kind := range map[string]string{"AllTypes": "Scalar", "AllArrays": "Array"} {
		var args []uabinary.Variant
		for _, b := range builtins(ns.Index()) {
			switch b.name {
			case "Variant", "DataValue", "DiagnosticInfo", "Structure":
			default:
				args = append(args, read(space, ns.NodeID("Demo."+kind+"."+b.name), nobody).Value)
			}
		}
		out, code := call(space, ns, method, nobody, args...)
		if code != ua.StatusOK || len(out) != len(args) || len(args) != 21 {
			t.Fatalf("%s: %v, %d of %d values", method, code, len(out), len(args))
		}
		for i := range out {
			if string(out[i].Encoded()) != string(args[i].Encoded()) {
				t.Errorf("%s argument %d: % x, want % x", method, i, out[i].Encoded(), args[i].Encoded())
			}
		}
	}
}

func TestSlowMindsItsContext(t *testing.T) {
	space, ns, _ := build(t, Options{})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		_, _, code := space.CallMethod(ctx, ns.NodeID("Demo.Methods"), ns.NodeID("Demo.Methods.Slow"), []uabinary.Variant{uabinary.Double(30)}, nobody)
		if took := time.Since(begun); took != time.Second || code == ua.StatusOK {
			t.Errorf("ended after %v with %v", took, code)
		}
	})
}

func TestSignals(t *testing.T) {
	space, ns, d := build(t, Options{})
	value := func(name string) float64 {
		f, ok := read(space, ns.NodeID("Demo.Simulation."+name), nobody).Value.Float64()
		if !ok {
			t.Fatalf("%s is no number", name)
		}
		return f
	}
	for _, tt := range []struct {
		step uint32
		want map[string]float64
	}{
		{0, map[string]float64{"Counter": 0, "Sinusoid": 0, "Sawtooth": -1, "Square": 1, "Triangle": -1, "Random": -1}},
		{25, map[string]float64{"Counter": 25, "Sinusoid": 1, "Sawtooth": -0.5, "Square": 1, "Triangle": 0, "Random": -1}},
		{50, map[string]float64{"Counter": 50, "Sawtooth": 0, "Square": -1, "Triangle": 1}},
		{175, map[string]float64{"Counter": 175, "Sinusoid": -1, "Sawtooth": 0.5, "Square": -1, "Triangle": 0}},
	} {
		d.simulation.set(tt.step, 0)
		for name, want := range tt.want {
			if got := value(name); got != want {
				t.Errorf("step %d: %s is %v, want %v", tt.step, name, got, want)
			}
		}
	}
}

func TestRunMovesValuesAndEnds(t *testing.T) {
	space, ns, d := build(t, Options{Variables: 1500})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { d.Run(ctx); close(done) }()
		time.Sleep(5*time.Second + time.Millisecond)
		synctest.Wait()
		if n, _ := read(space, ns.NodeID("Demo.Simulation.Counter"), nobody).Value.Int64(); n != 50 {
			t.Errorf("the counter is at %d after 5 s", n)
		}
		last := read(space, ns.NodeID("Demo.Mass.Folder0001.V0001499"), nobody).Value
		if f, ok := last.Float64(); !ok || f == 1499 {
			t.Errorf("the last mass variable still has its initial value (%v, %v)", f, ok)
		}
		cancel()
		<-done
	})
}

func TestMassVariables(t *testing.T) {
	_, ns, d := build(t, Options{Variables: 2001})
	if len(d.mass) != 2001 {
		t.Errorf("%d mass variables", len(d.mass))
	}
	if ns.Node("Demo.Mass.Folder0002.V0002000") == nil || ns.Node("Demo.Mass.Folder0002.V0002001") != nil {
		t.Error("the last folder does not end with V0002000")
	}
	if ns.Node("Demo.Deep.Level01.Level02.Level03.Level04.Level05.Level06.Level07.Level08.Level09.Level10") == nil {
		t.Error("no ten folders below each other")
	}
	space, err := addressspace.New(addressspace.Options{ApplicationURI: "urn:test"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Build(space, Options{Variables: MaxVariables + 1}); err == nil {
		t.Error("too many variables were accepted")
	}
}

func TestBuildTwiceIsAnError(t *testing.T) {
	space, _, _ := build(t, Options{})
	_, err := Build(space, Options{})
	var status *uastatus.Error
	if !errors.As(err, &status) {
		t.Errorf("second Build: %v", err)
	}
}
