// Package client is an OPC UA client whose sessions look after themselves.
//
// [Connect] finds a server's endpoints, picks the strongest one that the options
// allow, verifies the server, and returns a [Session] that lives until it is
// closed:
//
//	s, err := client.Connect(ctx, "opc.tcp://boiler.example:4840", client.Options{Key: key, PKI: store})
//	v, err := s.ReadValue(ctx, ua.MustParseNodeID("ns=1;s=Boiler.Temperature"))
//
// # What a session does by itself
//
// It reads the server's state at half the session's timeout, renews the security
// token after three quarters of its lifetime, and keeps Publish requests at the
// server for its subscriptions. When the connection breaks it opens a new one and
// activates the old session on it; what the server sent meanwhile is asked for
// again. When the session is gone it makes a new one and transfers the
// subscriptions, and makes those anew that the server does not have any more (OPC
// 10000-4 §6.7, Re-establishing subscriptions). Notifications arrive in order, each
// once; what the server no longer holds is told as [Notification].Missed, and what a
// reader has let lie for too long as [Notification].Dropped. There is only ever one recovery; how it is getting on shows in [Session.States]. Attempts
// are spaced by client/reconnect, which honours the hints of busy servers.
//
// # What it does not believe
//
// Certificates are checked on every connection against a trust list, a callback,
// or both. The server's signature, the length and freshness of its nonces, and the
// list of endpoints that discovery returned are verified when a session is made
// (OPC 10000-4 §5.7.2, CreateSession). A connection without security, passwords in
// the clear and every other weakening must be asked for by name. Answers of the wrong
// type, missing parts, wrong numbers of results, endless pages and oversized names
// are errors. Names and texts are handed on as the server sent them: whoever
// shows them in a user interface must escape them.
//
// # Calls during a recovery
//
// They wait, up to their context's deadline. A call that was under way when the
// connection broke fails, since nobody can know whether it was executed. Nothing
// that the package calls back, and no reader of notifications or states, runs on
// a goroutine that the session needs, except what the options hold: VerifyServer, the
// Logger's handler, TCP.Dial and IssuedToken.Token. From those a session's calls wait
// in vain until they time out, and Close must be called as go s.Close(ctx).
package client
