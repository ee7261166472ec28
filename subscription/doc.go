// Package subscription implements the MonitoredItem and Subscription service sets
// (OPC 10000-4 §5.13 and §5.14; clause titles in this package are those of the 1.05 releases): subscriptions, monitored
// items, filters, queues, publishing, retransmission and transfer.
//
// # Shape
//
// An [Engine] serves all sessions of a server. Each session that has subscriptions has one publisher: its parked Publish
// requests, its subscriptions and one timer on a shared [wheel.Wheel]. When the timer fires, the publisher runs the
// publishing cycle of every subscription that is due, highest priority first. A session that closes without deleting its
// subscriptions leaves its publisher behind as an orphan, until the subscriptions are transferred or their lifetime ends.
//
// No subscription has a goroutine. Cycles and the sampling of stored values run on the wheel's goroutines; they only
// compare pointers, because the value of a node is immutable and a change is a new pointer. What needs code of the host,
// or locks of the address space (read callbacks, attributes other than Value), is sampled by a few workers. Items with a
// sampling interval of 0 are told of each change by the node itself.
//
// A queued notification is a pointer to the node's encoded value, which all items that monitor it share. A
// NotificationMessage is encoded once; the retransmission queue keeps the encoded bytes.
//
// # Locks
//
// In this order, each may be taken while the ones before it are held:
//
//	publisher.mu     parked requests, list and state machines of the subscriptions; two publishers in order of their number
//	subscription.mu  monitored items and their queues
//	Engine.mu, quota.mu, workers.mu, and inside other packages: the wheel's locks, a node's list of watchers
//
// A node calls [item.Changed] with its own lock held, so nothing that may take a node's lock is called under a lock of this
// package: every read of the address space but Node.Value and other lock-free accessors is done before locking. No code of
// the host ever runs under a lock, hence a callback may delete its own item, subscription or session.
//
// Responses are gathered under publisher.mu and sent after it was released, by one goroutine at a time, which keeps them in
// order.
package subscription
