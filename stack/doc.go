// Package stack composes the server: it takes options, builds the address
// space, sessions, subscriptions and listeners, dispatches requests, and starts
// and stops the whole.
//
//	srv, err := stack.NewServer(stack.Options{ApplicationName: "Boiler house"})
//	temperature := srv.AddressSpace().Namespace("urn:plant").Variable("Boiler.Temperature", 21.5)
//	go srv.Run(ctx)       // returns when ctx has ended and every goroutine has
//	temperature.Set(22.0) // every subscriber sees it
//
// # Route of a request
//
// A request arrives at [Server] as a complete, verified message on the goroutine
// that reads the connection. The dispatcher decodes the type id and the
// RequestHeader, finds the session, and asks [Admission], all before the body is
// decoded. Then the handler runs at once on the same goroutine, unless it may
// block: Call, the services that need the private key, and operations that go
// through a host's callback run on goroutines of their own, of which there is a
// bounded number. Publish keeps neither goroutine nor buffer while it waits.
package stack
