package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/client"
	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/stack"
)

// boilerHouse runs a server on a free port until stop is called.
func boilerHouse() (url string, temperature *addressspace.Variable, stop func()) {
	srv, err := stack.NewServer(stack.Options{
		Endpoints: []string{"opc.tcp://127.0.0.1:0"}, Logger: slog.New(slog.DiscardHandler),
		Security: stack.Security{Policies: stack.NoPolicies, AllowNone: true, AllowAnonymous: true},
	})
	if err != nil {
		panic(err)
	}
	temperature = srv.AddressSpace().Namespace("urn:plant").Variable("Boiler.Temperature", 21.5, addressspace.Writable())
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Listen(ctx); err != nil {
		panic(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	return "opc.tcp://" + srv.Addrs()[0].String(), temperature, func() { cancel(); <-ended }
}

var silent = slog.New(slog.DiscardHandler)

// Connect, read, write, close. Without security, which has to be asked for.
func Example() {
	url, temperature, stop := boilerHouse()
	defer stop()
	ctx := context.Background()

	s, err := client.Connect(ctx, url, client.Options{Policy: security.None, Logger: silent})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(ctx)

	node := temperature.Node().ID().UA()
	v, err := s.ReadValue(ctx, node)
	fmt.Println(v.Value.Value(), err)
	fmt.Println(s.WriteValue(ctx, node, 60.0))
	v, err = s.ReadValue(ctx, node)
	fmt.Println(v.Value.Value(), err)
	_, err = s.ReadValue(ctx, ua.NewStringNodeID(1, "no such node"))
	fmt.Println(errors.Is(err, ua.StatusBadNodeIDUnknown))
	// Output:
	// 21.5 <nil>
	// <nil>
	// 60 <nil>
	// true
}

// A subscription is an iterator. It outlives connections: there is nothing to do
// when one breaks, but a reader that cares sees what was missed.
func ExampleSession_Subscribe() {
	url, temperature, stop := boilerHouse()
	defer stop()
	ctx := context.Background()
	s, err := client.Connect(ctx, url, client.Options{Policy: security.None, Logger: silent})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(ctx)

	sub, err := s.Subscribe(ctx, client.SubscriptionOptions{Interval: 50 * time.Millisecond},
		client.Monitor{NodeID: temperature.Node().ID().UA(), QueueSize: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	for n := range sub.Notifications(ctx) {
		switch {
		case n.Missed > 0:
			fmt.Println("missed", n.Missed)
		case n.Value != nil:
			fmt.Println(n.Value.Value.Value())
			if n.Value.Value.Value() == 23.5 {
				return
			}
			_ = temperature.Set(n.Value.Value.Value().(float64) + 1)
		}
	}
	// Output:
	// 21.5
	// 22.5
	// 23.5
}

// The references of a node come page by page, as they are looked at.
func ExampleSession_Browse() {
	url, _, stop := boilerHouse()
	defer stop()
	ctx := context.Background()
	s, err := client.Connect(ctx, url, client.Options{Policy: security.None, Logger: silent})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(ctx)
	for ref, err := range s.Browse(ctx, client.Children(ua.NewNumericNodeID(0, 85))) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%q\n", ref.BrowseName.Name) // %q, since names are whatever the server likes
	}
	// Unordered output:
	// "Server"
	// "Locations"
	// "Boiler"
}

// A secured session: a key of one's own, a trust list, a patient policy, and a
// gate for the other thousand sessions of the program.
func ExampleConnect() {
	dir, err := os.MkdirTemp("", "pki")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := pki.Open(dir, pki.Options{Logger: silent})
	if err != nil {
		fmt.Println(err)
		return
	}
	gate := security.NewCryptoGate(0)
	defer gate.Close()
	key, err := client.LoadKey(store, pki.AppInfo{ApplicationURI: "urn:example:historian", ApplicationName: "Historian"}, gate)
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err = client.Connect(ctx, "opc.tcp://127.0.0.1:1/nobody-is-here", client.Options{
		ApplicationName: "Historian", Key: key, PKI: store, Logger: silent,
		Identity:  &client.UserName{Name: "operator", Password: []byte("secret")},
		Reconnect: reconnect.Policy{InitialDelay: 20 * time.Millisecond, MaxRetries: 2},
		Gate:      client.NewConnectGate(50),
	})
	fmt.Println(errors.Is(err, reconnect.ErrGaveUp))
	// Output: true
}

// The states show how a recovery is getting on.
func ExampleSession_States() {
	url, _, stop := boilerHouse()
	ctx := context.Background()
	s, err := client.Connect(ctx, url, client.Options{Policy: security.None, Logger: silent, Reconnect: reconnect.Policy{MaxRetries: 1, InitialDelay: 10 * time.Millisecond}})
	if err != nil {
		fmt.Println(err)
		return
	}
	go stop() // the server goes away
	var last client.State
	for st := range s.States(ctx) {
		if st.State != last {
			fmt.Println(st.State)
		}
		last = st.State
	}
	fmt.Println(errors.Is(s.Err(), reconnect.ErrGaveUp), s.Close(ctx) != nil)
	// Output:
	// Online
	// Recovering
	// Waiting
	// Recovering
	// Closed
	// true true
}
