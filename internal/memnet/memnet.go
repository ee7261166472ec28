// Package memnet is a network in memory: listeners and connections with
// deadlines, bounded buffers, half-close and reset, that behave like TCP's as
// far as servers care. Nothing in it waits on the operating system, so it works
// inside testing/synctest bubbles.
package memnet

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// DefaultBuffer is the capacity in bytes of each direction of a connection,
// in the place of TCP's socket buffers.
const DefaultBuffer = 64 << 10

var errClosed = net.ErrClosed

// Listener is an in-memory net.Listener.
type Listener struct {
	// Buffer is the capacity of each direction of connections dialled from
	// now on; 0 means DefaultBuffer.
	Buffer int

	addr    net.Addr
	pending chan *Conn
	closed  chan struct{}
	once    sync.Once
}

// Listen returns a listener that reports addr, an "ip:port" pair, as its own
// address. Anything else is reported as 127.0.0.1:4840.
func Listen(addr string) *Listener {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		ap = netip.MustParseAddrPort("127.0.0.1:4840")
	}
	return &Listener{
		addr:    net.TCPAddrFromAddrPort(ap),
		pending: make(chan *Conn, 512),
		closed:  make(chan struct{}),
	}
}

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, errClosed
	default:
	}
	select {
	case c := <-l.pending:
		return c, nil
	case <-l.closed:
		return nil, errClosed
	}
}

// Close ends Accept and Dial. Connections stay; those not yet accepted are reset.
func (l *Listener) Close() error {
	err := errClosed
	l.once.Do(func() {
		err = nil
		close(l.closed)
		for {
			select {
			case c := <-l.pending:
				c.Reset()
			default:
				return
			}
		}
	})
	return err
}

// Addr is the address given to Listen.
func (l *Listener) Addr() net.Addr { return l.addr }

// Dial connects from the given address. It returns as soon as the connection
// is in the listener's backlog, as TCP does.
func (l *Listener) Dial(ctx context.Context, from netip.AddrPort) (net.Conn, error) {
	client, server := Pair(net.TCPAddrFromAddrPort(from), l.addr, l.Buffer)
	select {
	case <-l.closed:
		return nil, errClosed
	default:
	}
	select {
	case l.pending <- server:
		return client, nil
	case <-l.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Pair returns the two ends of a connection. buffer ≤ 0 means DefaultBuffer.
func Pair(client, server net.Addr, buffer int) (c, s *Conn) {
	if buffer <= 0 {
		buffer = DefaultBuffer
	}
	up, down := newPipe(buffer), newPipe(buffer)
	c = &Conn{in: down, out: up, local: client, remote: server}
	s = &Conn{in: up, out: down, local: server, remote: client}
	return c, s
}

// Conn is one end of an in-memory connection.
type Conn struct {
	in, out       *pipe
	local, remote net.Addr

	// closedIn and closedOut say the same; each is guarded by its pipe's mutex.
	closedIn, closedOut bool
}

func (c *Conn) Read(b []byte) (int, error)  { return c.in.read(b, &c.closedIn) }
func (c *Conn) Write(b []byte) (int, error) { return c.out.write(b, &c.closedOut) }

// Close ends both directions. The peer reads what was written, then EOF; when
// unread data was thrown away it gets a reset, as with TCP.
func (c *Conn) Close() error {
	err := errClosed
	c.in.update(func() {
		if !c.closedIn {
			err = nil
		}
		c.closedIn = true
		c.in.readClosed = true
	})
	unread := false
	c.in.update(func() { unread = c.in.n > 0 })
	c.out.update(func() {
		c.closedOut = true
		c.out.writeClosed = true
		if unread && err == nil {
			c.out.reset = true
		}
	})
	c.stopTimers()
	return err
}

// CloseWrite ends the outgoing direction: the peer reads EOF after the rest.
func (c *Conn) CloseWrite() error {
	c.out.update(func() { c.out.writeClosed = true })
	return nil
}

// Reset closes at once: the peer's reads and writes fail with ECONNRESET.
func (c *Conn) Reset() {
	c.in.update(func() { c.closedIn, c.in.reset = true, true })
	c.out.update(func() { c.closedOut, c.out.reset = true, true })
	c.stopTimers()
}

func (c *Conn) stopTimers() {
	c.in.setDeadline(&c.in.readDeadline, time.Time{})
	c.out.setDeadline(&c.out.writeDeadline, time.Time{})
}

// LocalAddr is this end's address.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the other end's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines; the zero time means none.
func (c *Conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline makes pending and future reads fail from t on.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readDeadline, t)
	return nil
}

// SetWriteDeadline makes pending and future writes fail from t on.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeDeadline, t)
	return nil
}

// Buffered is the number of bytes that the peer has written and this end has
// not read yet.
func (c *Conn) Buffered() (n int) {
	c.in.update(func() { n = c.in.n })
	return n
}
