// Package session holds the Sessions of a server: OPC 10000-4 §5.7 Session
// Service Set (CreateSession, ActivateSession, CloseSession), the identities
// behind them, their timeouts and their binding to a SecureChannel.
//
// A [Store] answers three services and one question that every other request
// asks, [Store.Lookup]: whose session does this authentication token name, on
// this channel, now? Lookup takes no lock and allocates nothing.
//
// # Locks
//
// Order: Session.activating, then Store.mu. Store.mu guards the table, the
// channel attachments, the queues of never-activated sessions and the deadline
// heap; it is never held across cryptography, a callback of the host or I/O.
// [Channel.SessionAttached] and [Channel.SessionDetached] are called with it
// held and must neither block nor call the Store. Session.activating serialises
// ActivateSession for one session and is held across its cryptography, which is
// what makes a server nonce usable exactly once.
package session
