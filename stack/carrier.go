package stack

import (
	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/session"
)

// A channel is what the dispatcher needs of where a request came on: a
// SecureChannel, or the logicalChannel of a transport that has none.
// Implementations are pointers.
type channel interface {
	session.Channel
	// DiscoveryOnly reports whether only the discovery services may be used.
	DiscoveryOnly() bool
	// Ingress is what a classifier claimed the connection as before its first byte.
	Ingress() isolation.OwnerClaim
}

// A carrier is what a request came in: a message of a SecureChannel, or a call
// of a transport that has none. The zero value is nothing.
type carrier struct {
	m   *securechannel.Message
	c   *call
	buf *buffer.Buffer // of a call that was detached: its body
}

// body is the request, of a carrier that was detached.
func (c carrier) body() []byte {
	if c.m != nil {
		return c.m.Body
	}
	return c.buf.B
}

// detach takes the request off its connection's goroutine. A call's body goes
// with its answer, which may come while the handler still works on it
// (runBlocking): what is detached has a copy.
func (c carrier) detach() carrier {
	if c.m != nil {
		return carrier{m: c.m.Detach()}
	}
	if c.buf == nil {
		body := c.c.Body()
		c.buf = buffer.Get(len(body))
		c.buf.B = append(c.buf.B, body...)
	}
	return c
}

// queue is detach for a request that will run soon and will not block.
func (c carrier) queue() carrier {
	if c.m != nil {
		return carrier{m: c.m.Queue()}
	}
	return c.detach()
}

// leave takes a request that may park out of its connection's books. A call
// stays in them until it has parked (see call.parked).
func (c carrier) leave() {
	if c.m != nil {
		c.m.Park()
	}
}

// release ends the life of what was detached, after the answer.
func (c carrier) release() {
	if c.m != nil {
		c.m.Release()
	}
	if c.buf != nil {
		c.buf.Release()
	}
}
