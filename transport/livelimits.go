package transport

import "sync/atomic"

// LiveLimits are Limits some of which may change while a server runs; its
// listeners and channels share them. Safe for concurrent use.
type LiveLimits struct{ p atomic.Pointer[Limits] }

// NewLiveLimits returns l with the defaults filled in.
func NewLiveLimits(l Limits) *LiveLimits {
	v := new(LiveLimits)
	l = l.Resolved()
	v.p.Store(&l)
	return v
}

// Load is what is in force; it must not be changed.
func (v *LiveLimits) Load() *Limits { return v.p.Load() }

// Apply puts the deadlines (HelloTimeout, HandshakeTimeout, AssemblyTimeout) and
// the bounds of the write queue (WriteQueueBytes, WriteTimeout) of l in force, and
// MaxOutstandingPerConnection. Deadlines count for what begins after that, the
// write queue's bounds for connections that do. The rest of l is not looked at:
// peers have been told of it.
func (v *LiveLimits) Apply(l Limits) {
	l = l.Resolved()
	next := *v.p.Load()
	next.HelloTimeout, next.HandshakeTimeout, next.AssemblyTimeout = l.HelloTimeout, l.HandshakeTimeout, l.AssemblyTimeout
	next.WriteQueueBytes, next.WriteTimeout = l.WriteQueueBytes, l.WriteTimeout
	next.MaxOutstandingPerConnection = l.MaxOutstandingPerConnection
	v.p.Store(&next)
}
