package transport

import (
	"net/netip"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/gopcua/opcua/ua"
)

// Parameters are what Hello and Acknowledge have settled.
type Parameters struct {
	ProtocolVersion uint32 // the peer's
	BufferSize      int    // largest chunk in bytes, both directions
	MaxMessageSize  int    // largest message body in bytes the peer takes; 0 = no limit of the peer's
	MaxChunkCount   int    // most chunks of a message the peer takes; 0 = no limit of the peer's
}

// Conn is the lower half of a connection as the secure channel sees it. A
// transport implements it; its methods are safe for concurrent use.
type Conn interface {
	// RemoteAddr is the client's address; behind a balancer the one that its
	// PROXY header carried.
	RemoteAddr() netip.AddrPort
	LocalAddr() netip.AddrPort
	// Ingress is what a classifier claimed the connection as before its first
	// byte; the zero value when none did. It is constant.
	Ingress() isolation.OwnerClaim
	// EndpointURL is the one the peer named in its Hello, unchecked.
	EndpointURL() string
	// Parameters are valid from the first call of Sink.Chunk on.
	Parameters() Parameters
	// Outbox is the outgoing side.
	Outbox() *Outbox
	// Close asks for the end of the connection and returns at once. The first
	// reason counts. Unless the reason is abrupt, what is queued is written,
	// then, when code is not Good, an ERR with code and text; then the
	// connection half-closes and waits a bounded time for the peer's end.
	Close(reason CloseReason, code ua.StatusCode, text string)
	// Closing reports whether Close was called or the peer has gone.
	Closing() bool
	// Done is closed together with the start of the end: work done for this
	// connection may stop.
	Done() <-chan struct{}
	// Resume wakes the reading goroutine that found Sink.Ready false.
	Resume()
	// Go runs f on its own goroutine; the connection's end waits for it.
	Go(f func())
	// ChannelOpened completes the handshake. It reports false when the
	// handshake's deadline, or Close, was faster: the channel must not open.
	ChannelOpened() bool
	// SetChannelDeadline closes the connection with reason and code at that
	// time unless it is set again before; it replaces the handshake's deadline.
	SetChannelDeadline(at time.Time, reason CloseReason, code ua.StatusCode)
	// SetAssemblyDeadline starts (or, with the zero time, stops) the time that
	// a partial message has. Only for the reading goroutine.
	SetAssemblyDeadline(at time.Time)
	// SetReclaimable says whether the connection may be closed for a newcomer
	// when the server is full: it is while its channel carries no session.
	SetReclaimable(bool)
}

// Sink is the upper half of a connection. But for Closed, its methods run on
// the connection's reading goroutine.
type Sink interface {
	// Ready reports whether the next chunk may come. While it is false the
	// socket is not read; Conn.Resume asks again.
	Ready() bool
	// Chunk takes a complete chunk of at least 8 bytes, whose type is OPN, MSG
	// or CLO, whose size is right and within the negotiated one. The memory
	// is the sink's to change until it returns. now is the time of the read.
	Chunk(frame []byte, now time.Time)
	// Busy reports whether the connection is in use: such connections are not
	// reclaimed. Any goroutine may ask.
	Busy() bool
	// Closed is the last call, exactly once, after the socket is closed.
	Closed(reason CloseReason)
}
