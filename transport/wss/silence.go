package wss

import (
	"time"

	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

// A peer with opcua+uajson sends no Hello and opens no SecureChannel, so what
// opc.tcp gives those is the time that its messages have (overload.md §4): the
// first one must be there HelloTimeout after the connection's admission, and while
// no session is activated over the connection there must be another one every
// HandshakeTimeout. A session has a timeout of its own. Pings renew nothing.

// await gives the peer until at for its next message, unless a session is
// activated over the connection.
func (c *jsonConn) await(at time.Time, why transport.CloseReason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaitLocked(at, why)
}

func (c *jsonConn) awaitLocked(at time.Time, why transport.CloseReason) {
	if c.attached || c.reason != transport.ReasonNone {
		return
	}
	c.silentWhy = why
	c.server.o.Deadlines.Set(&c.silent, at)
}

// reclaimable is the Peer's: whether it has no activated session any more.
func (c *jsonConn) reclaimable(yes bool) {
	c.a.Admission.SetReclaimable(yes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attached = !yes
	if yes {
		c.awaitLocked(time.Now().Add(c.server.limits.Load().HandshakeTimeout), transport.HandshakeTimeout)
	} else {
		c.server.o.Deadlines.Set(&c.silent, time.Time{})
	}
}

// silence runs when the time is over. A call that is not answered yet is ours to
// end, and begins it anew.
func (c *jsonConn) silence() {
	c.mu.Lock()
	why := c.silentWhy
	busy := c.outstanding > 0 || c.parked > 0
	if busy {
		c.awaitLocked(time.Now().Add(c.server.limits.Load().HandshakeTimeout), why)
	}
	attached := c.attached
	c.mu.Unlock()
	if !busy && !attached {
		c.close(why, ua.StatusBadTimeout)
	}
}
