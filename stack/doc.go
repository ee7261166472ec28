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
// RequestHeader, finds the session and the request's owner, and admits it under
// a lease of package isolation, all before the body is decoded. Then:
//
//   - A request that does not block runs at once on the same goroutine, under
//     one of Limits.RunSlots. When there is none it waits in a fair queue.
//   - A request that may block (Call, operations that go through a host's
//     callback) runs on a goroutine of its own under RequestExecution, after it
//     has waited in a queue of its own kind when that is full.
//   - CreateSession and ActivateSession run on goroutines of their own and pass
//     the establishment gate after they were validated and before any
//     cryptography.
//   - Publish keeps neither goroutine nor buffer while it waits, only its leases
//     of ParkedRequest and RequestQueueBytes.
//
// Over opc.tcp and opc.wss with opcua+uacp the message comes on a SecureChannel.
// Over opc.https, and opc.wss with opcua+uajson, transports hand over whole
// requests; a logical channel stands in for the SecureChannel: one for each
// session, whichever connection its requests come on, one for each call without a
// session, one for each WebSocket. All listeners share the gate, the budget of
// partial messages, isolation and the governors.
//
// A request that waited is looked at again before it runs. Whoever is refused for
// want of room gets BadServerTooBusy with the time after which to come back.
// [Options.Plan] shows how the room is divided, [Server.ApplyLimits] changes it
// while the server runs.
package stack
