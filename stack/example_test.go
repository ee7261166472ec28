package stack_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/stack"
)

// A program that has values to show: a server in a few lines.
func Example_embedding() {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()

	srv, err := stack.NewServer(stack.Options{ApplicationName: "Boiler house", Endpoints: []string{"opc.tcp://127.0.0.1:0"}, Security: example, Logger: quiet})
	if err != nil {
		panic(err)
	}
	temperature := srv.AddressSpace().Namespace("urn:plant").Variable("Boiler.Temperature", 21.5)
	go temperature.Set(22.0) // every subscriber sees it
	err = srv.Run(ctx)       // returns when ctx has ended and every goroutine has
	fmt.Println("ended:", err)
	// Output: ended: <nil>
}

// Methods and callbacks: a method that takes its time minds its context, a read
// callback computes a value when it is asked for, a write callback refuses what
// does not fit.
func Example_callbacks() {
	srv, err := stack.NewServer(stack.Options{Endpoints: []string{"opc.tcp://127.0.0.1:0"}, Security: example, Logger: quiet})
	if err != nil {
		panic(err)
	}
	ns := srv.AddressSpace().Namespace("urn:plant")

	seconds := []ua.Argument{{Name: "seconds", DataType: ua.NewNumericNodeID(0, id.UInt32), ValueRank: -1}}
	ns.Method("Boiler.Heat", seconds, nil, func(ctx context.Context, c *addressspace.Call) ([]any, error) {
		select {
		case <-time.After(time.Duration(c.Arg(0).(uint32)) * time.Second):
			return nil, nil
		case <-ctx.Done(): // the session closed, the client cancelled, or the server ends
			return nil, ctx.Err()
		}
	})
	ns.Variable("Boiler.Uptime", 0.0).OnRead(func(*addressspace.Caller) (any, error) { return 1.5, nil })
	ns.Variable("Boiler.Setpoint", 60.0, addressspace.Writable()).OnWrite(func(w *addressspace.WriteCall) error {
		if w.Any().(float64) > 90 {
			return ua.StatusBadOutOfRange
		}
		return nil
	})

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	if err := srv.Listen(ctx); err != nil {
		panic(err)
	}
	go func() { ended <- srv.Run(ctx) }()

	client, err := opcua.NewClient("opc.tcp://"+srv.Addrs()[0].String(), opcua.SecurityMode(ua.MessageSecurityModeNone))
	if err != nil {
		panic(err)
	}
	if err := client.Connect(ctx); err != nil {
		panic(err)
	}
	uptime, err := client.Node(ua.NewStringNodeID(ns.Index(), "Boiler.Uptime")).Value(ctx)
	fmt.Println("uptime:", uptime.Value(), err)
	setpoint := &ua.WriteValue{NodeID: ua.NewStringNodeID(ns.Index(), "Boiler.Setpoint"), AttributeID: ua.AttributeIDValue,
		Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(120.0)}}
	written, err := client.Write(ctx, &ua.WriteRequest{NodesToWrite: []*ua.WriteValue{setpoint}})
	fmt.Println("setpoint:", written.Results[0] == ua.StatusBadOutOfRange, err)
	heat, err := client.Call(ctx, &ua.CallMethodRequest{ObjectID: ua.NewStringNodeID(ns.Index(), "Boiler"), MethodID: ua.NewStringNodeID(ns.Index(), "Boiler.Heat"),
		InputArguments: []*ua.Variant{ua.MustVariant(uint32(0))}})
	fmt.Println("heat:", heat.StatusCode == ua.StatusOK, err)
	_ = client.Close(ctx)
	cancel()
	fmt.Println("ended:", <-ended)
	// Output:
	// uptime: 1.5 <nil>
	// setpoint: true <nil>
	// heat: true <nil>
	// ended: <nil>
}

// The examples run without the folder in which a real server keeps its
// certificates: policy None only.
var (
	example = stack.Security{Policies: stack.NoPolicies, AllowNone: true, AllowAnonymous: true}
	quiet   = slog.New(slog.NewTextHandler(io.Discard, nil))
)
