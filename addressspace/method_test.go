package addressspace

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

func arg(name string, dataType uint32, rank int32) ua.Argument {
	return ua.Argument{Name: name, DataType: ua.NewNumericNodeID(0, dataType), ValueRank: rank}
}

// OPC 10000-4 §5.11.2 Call.
func TestCallMethod(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	ns.Method("O.Add", []ua.Argument{arg("a", 11, -1), arg("b", 6, 1)}, []ua.Argument{arg("sum", 11, -1), arg("who", 12, -1)},
		func(ctx context.Context, c *Call) ([]any, error) {
			sum := c.Arg(0).(float64)
			for _, x := range c.Arg(1).([]int32) {
				sum += float64(x)
			}
			if c.Arg(2) != nil || c.Object != ns.Node("O") {
				t.Error("call")
			}
			return []any{sum, c.Caller.User}, nil
		})
	ns.Method("O.Fail", nil, nil, func(context.Context, *Call) ([]any, error) { return nil, errors.New("x") })
	ns.Method("O.Refuse", []ua.Argument{arg("a", 11, -1)}, nil, func(_ context.Context, c *Call) ([]any, error) {
		c.RefuseArg(0, ua.StatusBadOutOfRange)
		return nil, c.Refused()
	})
	ns.Method("O.Timeout", nil, nil, func(ctx context.Context, c *Call) ([]any, error) { return nil, ua.StatusBadTimeout })
	ns.Method("O.WrongOutput", nil, []ua.Argument{arg("x", 6, -1)}, func(context.Context, *Call) ([]any, error) { return []any{"no"}, nil })
	ns.Method("O.NoOutput", nil, []ua.Argument{arg("x", 6, -1)}, func(context.Context, *Call) ([]any, error) { return nil, nil })
	ns.Method("O.Unbound", nil, nil, nil)
	ns.Method("O.Admin", nil, nil, func(context.Context, *Call) ([]any, error) { return nil, nil }, UserExecutable(func(c *Caller) bool { return c.Admin }))
	ns.Object("Other")
	ints := variant(t, []int32{1, 2})
	for _, tt := range []struct {
		name           string
		object, method uabinary.NodeID
		args           []uabinary.Variant
		want           ua.StatusCode
		argResults     []ua.StatusCode
	}{
		{"good", ns.NodeID("O"), ns.NodeID("O.Add"), []uabinary.Variant{uabinary.Double(1), ints}, ua.StatusOK, nil},
		{"too few", ns.NodeID("O"), ns.NodeID("O.Add"), []uabinary.Variant{uabinary.Double(1)}, ua.StatusBadArgumentsMissing, nil},
		{"too many", ns.NodeID("O"), ns.NodeID("O.Add"), []uabinary.Variant{uabinary.Double(1), ints, ints}, ua.StatusBadTooManyArguments, nil},
		{"wrong types", ns.NodeID("O"), ns.NodeID("O.Add"), []uabinary.Variant{uabinary.String("1"), uabinary.Int32(1)}, ua.StatusBadInvalidArgument,
			[]ua.StatusCode{ua.StatusBadTypeMismatch, ua.StatusBadTypeMismatch}},
		{"second wrong", ns.NodeID("O"), ns.NodeID("O.Add"), []uabinary.Variant{uabinary.Double(1), {}}, ua.StatusBadInvalidArgument,
			[]ua.StatusCode{ua.StatusOK, ua.StatusBadTypeMismatch}},
		{"no object", ns.NodeID("nothing"), ns.NodeID("O.Add"), nil, ua.StatusBadNodeIDUnknown, nil},
		{"object is a DataType", i0(11), ns.NodeID("O.Add"), nil, ua.StatusBadNodeIDInvalid, nil},
		{"no method", ns.NodeID("O"), ns.NodeID("nothing"), nil, ua.StatusBadMethodInvalid, nil},
		{"method is an object", ns.NodeID("O"), ns.NodeID("Other"), nil, ua.StatusBadMethodInvalid, nil},
		{"method of another object", ns.NodeID("Other"), ns.NodeID("O.Add"), nil, ua.StatusBadMethodInvalid, nil},
		{"error", ns.NodeID("O"), ns.NodeID("O.Fail"), nil, ua.StatusBadInternalError, nil},
		{"refused argument", ns.NodeID("O"), ns.NodeID("O.Refuse"), []uabinary.Variant{uabinary.Double(1)}, ua.StatusBadInvalidArgument, []ua.StatusCode{ua.StatusBadOutOfRange}},
		{"code as error", ns.NodeID("O"), ns.NodeID("O.Timeout"), nil, ua.StatusBadTimeout, nil},
		{"wrong output", ns.NodeID("O"), ns.NodeID("O.WrongOutput"), nil, ua.StatusBadInternalError, nil},
		{"no output", ns.NodeID("O"), ns.NodeID("O.NoOutput"), nil, ua.StatusBadInternalError, nil},
		{"no code", ns.NodeID("O"), ns.NodeID("O.Unbound"), nil, ua.StatusBadNotExecutable, nil},
		{"namespace 0, not implemented", i0(2253), i0(11492), nil, ua.StatusBadNotExecutable, nil},
		{"not for this user", ns.NodeID("O"), ns.NodeID("O.Admin"), nil, ua.StatusBadUserAccessDenied, nil},
	} {
		out, argResults, code := s.CallMethod(t.Context(), tt.object, tt.method, tt.args, &Caller{User: "alice"})
		if code != tt.want || !slices.Equal(argResults, tt.argResults) {
			t.Errorf("%s: %v %v, want %v %v", tt.name, uastatus.Name(code), argResults, uastatus.Name(tt.want), tt.argResults)
		}
		if tt.name == "good" {
			if len(out) != 2 || !out[0].Equal(uabinary.Double(4)) || !out[1].Equal(uabinary.String("alice")) {
				t.Errorf("outputs: %v", out)
			}
		}
	}
	for path, want := range map[string]bool{"O.Add": true, "O.Unbound": false, "O.Admin": true} {
		if dv := readAttr(s, ns.NodeID(path), ua.AttributeIDExecutable); !dv.Value.Equal(uabinary.Boolean(want)) {
			t.Errorf("Executable of %s is not %v", path, want)
		}
	}
	if dv := s.ReadValue(&Read{ID: ns.NodeID("O.Admin"), Attribute: uint32(ua.AttributeIDUserExecutable), Caller: &Caller{}}); !dv.Value.Equal(uabinary.Boolean(false)) {
		t.Error("UserExecutable of O.Admin")
	}
}

// A method of a type is called on its instances, by its own node's id or by that
// of the instance's node.
func TestCallMethodOfType(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	typ, err := ns.ObjectType("T")
	if err != nil {
		t.Fatal(err)
	}
	var called []string
	ns.Method("T.Start", []ua.Argument{arg("speed", 11, -1)}, nil, func(_ context.Context, c *Call) ([]any, error) {
		called = append(called, c.Object.ID().String())
		return nil, nil
	}, Mandatory())
	sub, _ := ns.ObjectType("Sub", Parent(typ.ID()))
	one := ns.Object("One", TypeDefinition(sub.ID()))
	ns.Object("Two")
	if ns.Node("One.Start") == nil {
		t.Fatal("the instance has no method node")
	}
	args := []uabinary.Variant{uabinary.Double(1)}
	for _, m := range []string{"T.Start", "One.Start"} {
		if _, _, code := s.CallMethod(t.Context(), one.ID(), ns.NodeID(m), args, nil); code != ua.StatusOK {
			t.Errorf("%s: %v", m, code)
		}
	}
	if len(called) != 2 || called[0] != one.ID().String() {
		t.Errorf("called on %v", called)
	}
	if _, _, code := s.CallMethod(t.Context(), ns.NodeID("Two"), ns.NodeID("T.Start"), args, nil); code != ua.StatusBadMethodInvalid {
		t.Errorf("object of another type: %v", code)
	}
	if !ns.Node("One.Start").Executable() {
		t.Error("the instance's method is not executable")
	}
	if !s.BindMethod(i0(12873), func(context.Context, *Call) ([]any, error) { return nil, nil }) || s.BindMethod(i0(2253), nil) {
		t.Error("BindMethod")
	}
	if _, _, code := s.CallMethod(t.Context(), i0(2253), i0(12873), []uabinary.Variant{uabinary.UInt32(1)}, nil); code != ua.StatusOK {
		t.Errorf("bound ResendData: %v", code)
	}
	if !s.BindMethod(i0(12873), nil) || s.Lookup(i0(12873)).Executable() {
		t.Error("unbind")
	}
}
