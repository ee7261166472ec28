package demo

import (
	"context"
	"math"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// maxSlow bounds how long the method Slow takes.
const maxSlow = time.Minute

// argument describes one argument of a method.
func argument(name string, dataType uint32, rank int32) ua.Argument {
	return ua.Argument{
		Name: name, DataType: ua.NewNumericNodeID(0, dataType), ValueRank: rank,
		Description: &ua.LocalizedText{},
	}
}

// addMethods adds methods without arguments, with all kinds of arguments, slow
// and failing.
func addMethods(ns *addressspace.Namespace) {
	ns.Object("Demo.Methods", addressspace.Description("Methods to call"))
	add := func(name, description string, in, out []ua.Argument, f addressspace.MethodFunc, more ...addressspace.Option) {
		ns.Method("Demo.Methods."+name, in, out, f, append(more, addressspace.Description(description))...)
	}
	add("NoArguments", "Takes nothing and returns nothing", nil, nil,
		func(context.Context, *addressspace.Call) ([]any, error) { return nil, nil })

	double := func(name string) ua.Argument { return argument(name, id.Double, -1) }
	add("Add", "Returns a + b", []ua.Argument{double("a"), double("b")}, []ua.Argument{double("sum")},
		func(_ context.Context, c *addressspace.Call) ([]any, error) {
			a, _ := c.Args[0].Float64()
			b, _ := c.Args[1].Float64()
			return []any{a + b}, nil
		})

	var scalars, arrays []ua.Argument
	for _, b := range builtins(ns.Index()) {
		switch b.name {
		case "Variant", "DataValue", "DiagnosticInfo", "Structure":
			// Few clients can pass these.
		default:
			scalars = append(scalars, argument(b.name, b.dataType, -1))
			arrays = append(arrays, argument(b.name, b.dataType, 1))
		}
	}
	add("AllTypes", "Returns its arguments, one of each type", scalars, scalars, echo)
	add("AllArrays", "Returns its arguments, an array of each type", arrays, arrays, echo)

	add("Slow", "Returns after so many seconds, 60 at most", []ua.Argument{double("seconds")}, nil, slow)
	add("Fail", "Fails with BadInvalidState", nil, nil,
		func(context.Context, *addressspace.Call) ([]any, error) { return nil, ua.StatusBadInvalidState })
	add("RefuseArgument", "Refuses its argument with BadOutOfRange", []ua.Argument{double("any")}, nil,
		func(_ context.Context, c *addressspace.Call) ([]any, error) {
			c.RefuseArg(0, ua.StatusBadOutOfRange)
			return nil, c.Refused()
		})
	add("AdminOnly", "May be called by administrators", nil, nil,
		func(context.Context, *addressspace.Call) ([]any, error) { return nil, nil },
		addressspace.UserExecutable(func(c *addressspace.Caller) bool { return c.Admin }))
}

// echo returns the arguments, cloned because they alias the request.
func echo(_ context.Context, c *addressspace.Call) ([]any, error) {
	out := make([]any, len(c.Args))
	for i, v := range c.Args {
		out[i] = v.Clone()
	}
	return out, nil
}

func slow(ctx context.Context, c *addressspace.Call) ([]any, error) {
	seconds, _ := c.Args[0].Float64()
	if math.IsNaN(seconds) || seconds < 0 || seconds > maxSlow.Seconds() {
		c.RefuseArg(0, ua.StatusBadOutOfRange)
		return nil, c.Refused()
	}
	wait := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
