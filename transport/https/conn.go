package https

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/transport"
)

// conn is an admitted connection below TLS. Until its TLS handshake is done a
// goroutine of the listener's works on it, then those of net/http, then perhaps
// a WebSocket. Whoever closes it, its Admission is released by that.
type conn struct {
	net.Conn
	l     *Listener
	a     transport.Accepted
	begun []byte // read to tell protocols apart, not read yet by TLS
	stage transport.Deadline
	// ctx ends with the connection, and with it the wait for the key.
	ctx    context.Context
	cancel context.CancelFunc

	turn      bool        // it has one of l.turns; of the goroutine that shakes hands
	started   atomic.Bool // the first request has come
	completed atomic.Bool // the Handshake stage is given back
	upgraded  atomic.Bool // to a WebSocket, or it is opc.tcp: its end is told elsewhere
	requests  atomic.Int32
	unread    atomic.Bool   // a body was refused and may still be coming
	waiting   atomic.Int32  // of requests: those that are not parked
	unwritten atomic.Int64  // bytes of answers that the peer has not taken
	late      atomic.Uint32 // why it closes when stage expires
	reason    atomic.Uint32
	closed    atomic.Bool
	endpoint  atomic.Pointer[endpoint] // of the last request

	inHTTP bool // guarded by l.mu
}

type connKey struct{}

// endpoint is an EndpointURL and what it was made of.
type endpoint struct{ host, path, url string }

// endpointURL is that of a request. Most requests of a connection have the same.
func (c *conn) endpointURL(host, path string) string {
	e := c.endpoint.Load()
	if e == nil || e.host != host || e.path != path {
		e = &endpoint{host, path, "opc.https://" + host + path}
		c.endpoint.Store(e)
	}
	return e.url
}

// below is the conn below a connection of net/http.
func below(nc net.Conn) *conn {
	t, ok := nc.(*tls.Conn)
	if !ok {
		return nil
	}
	c, _ := t.NetConn().(*conn)
	return c
}

// take runs in the accept loop: no reads, and nothing that waits.
func (l *Listener) take(a transport.Accepted) {
	c := &conn{Conn: a.Conn, l: l, a: a}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.late.Store(uint32(transport.HelloTimeout))
	c.stage.Expired = func() { _ = c.close(transport.CloseReason(c.late.Load())) }
	a.Admission.Bind(c)
	l.mu.Lock()
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	l.wg.Go(func() { l.shake(c) })
}

// shake is the life of a connection up to its TLS handshake: PROXY header, the
// first byte, handshake. Expiry of the time that it has closes it.
func (l *Listener) shake(c *conn) {
	if c.a.ProxyHeaderDue() {
		c.late.Store(uint32(transport.ProxyHeader))
		l.deadlines.Set(&c.stage, c.a.At.Add(transport.ProxyTimeout))
		r, err := c.a.Carried()
		if err != nil {
			l.log.Debug("PROXY header", "remote", c.a.Remote, "error", err)
			_ = c.close(transport.ProxyHeader)
			return
		}
		if r.Reason != transport.RefusedNone {
			l.log.Debug("connection refused", "remote", c.a.Remote, "reason", r.Reason)
			_ = c.close(transport.TooBusy)
			return
		}
	}
	c.late.Store(uint32(transport.HelloTimeout))
	l.deadlines.Set(&c.stage, c.a.At.Add(l.limits.Load().HelloTimeout))
	var first [1]byte
	if _, err := io.ReadFull(c.Conn, first[:]); err != nil {
		_ = c.close(transport.PeerClosed)
		return
	}
	switch {
	case first[0] == recordHandshake && l.tls != nil:
	case l.o.OPCTCP && (first[0] == 'H' || first[0] == 'R'):
		l.plain(c, first[:])
		return
	default:
		l.log.Debug("neither TLS nor opc.tcp", "remote", c.a.Remote, "byte", first[0])
		_ = c.close(transport.ProtocolError)
		return
	}
	t := tls.Server(c, l.tls)
	err := c.awaitTurn(first[0])
	if err == nil {
		err = t.HandshakeContext(c.ctx)
	}
	c.endTurn()
	if err != nil {
		l.log.Debug("TLS handshake", "remote", c.a.Remote, "error", err)
		why := transport.ProtocolError
		var op *net.OpError
		if errors.Is(err, io.EOF) || errors.As(err, &op) {
			why = transport.PeerClosed
		}
		_ = c.close(why)
		return
	}
	l.mu.Lock()
	c.inHTTP = !l.stopping
	hand := c.inHTTP
	l.mu.Unlock()
	l.wg.Add(1) // until net/http lets go of it
	if !hand || !l.queue.give(t) {
		l.wg.Done()
		_ = c.close(transport.Shutdown)
	}
}

// The record layer of TLS (RFC 8446 §5.1, Record Layer).
const (
	recordHandshake = 22       // the first byte
	recordHeader    = 5        // bytes before the content
	maxRecord       = 16 << 10 // bytes of content in the clear
)

// awaitTurn reads the first record, which holds the ClientHello, and waits while as
// many handshakes as there are processors compute their answer: that takes a
// millisecond, and a crowd that connects at once would be ahead of every request
// of those who are in. Reading costs next to nothing, and who has a turn loses it
// as soon as it has to wait for the peer.
func (c *conn) awaitTurn(first byte) error {
	var record bytes.Buffer
	record.WriteByte(first)
	if _, err := record.ReadFrom(io.LimitReader(c.Conn, recordHeader-1)); err != nil {
		return err
	}
	if record.Len() == recordHeader { // else TLS will say what is wrong
		if n := binary.BigEndian.Uint16(record.Bytes()[recordHeader-2:]); n <= maxRecord {
			if _, err := record.ReadFrom(io.LimitReader(c.Conn, int64(n))); err != nil {
				return err
			}
		}
	}
	c.begun = record.Bytes()
	select {
	case c.l.turns <- struct{}{}:
		c.turn = true
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// endTurn gives the turn to the next, if c has it.
func (c *conn) endTurn() {
	if c.turn {
		c.turn = false
		<-c.l.turns
	}
}

// plain serves a connection as opc.tcp.
func (l *Listener) plain(c *conn, first []byte) {
	if !l.deadlines.Set(&c.stage, time.Time{}) { // it has expired
		return
	}
	c.cancel()
	l.mu.Lock()
	delete(l.conns, c)
	l.plains++
	l.mu.Unlock()
	c.a.Begun = first
	l.tcp.Serve(c.a)
	l.mu.Lock()
	l.plains--
	l.mu.Unlock()
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if len(c.begun) > 0 {
		n := copy(b, c.begun)
		if c.begun = c.begun[n:]; len(c.begun) == 0 {
			c.begun = nil
		}
		return n, nil
	}
	if c.turn {
		c.endTurn()
	}
	return c.Conn.Read(b)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if c.turn {
		c.endTurn()
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn, for TLS and net/http. When a body was refused that
// the client may still be sending, its end is awaited for a moment: a reset
// could swallow the answer that says why.
func (c *conn) Close() error {
	switch {
	case !c.started.Load() && time.Since(c.a.At) >= c.l.limits.Load().HelloTimeout:
		c.reason.CompareAndSwap(uint32(transport.ReasonNone), uint32(transport.HelloTimeout)) // net/http has noticed first
	case c.unread.Load() && !c.closed.Load():
		c.linger()
	}
	return c.close(transport.PeerClosed)
}

// maxLinger bounds the bytes of a refused body that are read and dropped.
const maxLinger = 1 << 20

func (c *conn) linger() {
	h, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || h.CloseWrite() != nil {
		return
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(c.l.limits.Load().LingerTimeout))
	b := buffer.Get(buffer.Size8K)
	defer b.Release()
	for dropped := 0; dropped < maxLinger; {
		n, err := c.Conn.Read(b.Whole())
		if err != nil {
			return
		}
		dropped += n
	}
}

// close closes for a reason; the first one counts. It never waits.
func (c *conn) close(reason transport.CloseReason) error {
	c.reason.CompareAndSwap(uint32(transport.ReasonNone), uint32(reason))
	err := c.Conn.Close()
	if c.closed.Swap(true) {
		return err
	}
	c.cancel()
	c.l.deadlines.Set(&c.stage, time.Time{})
	c.a.Admission.Release()
	c.l.forget(c)
	if !c.upgraded.Load() {
		reason := transport.CloseReason(c.reason.Load())
		c.l.log.Debug("connection closed", "remote", c.a.Remote, "reason", reason)
		if c.l.o.Closed != nil {
			c.l.o.Closed(c.a.Remote, reason)
		}
	}
	return err
}

func (l *Listener) forget(c *conn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
}

// Busy implements transport.Victim.
func (c *conn) Busy() bool { return c.requests.Load() > 0 }

// Reclaim implements transport.Victim.
func (c *conn) Reclaim() { _ = c.close(transport.Reclaimed) }

// freeAnswer is the size in bytes of an answer for which there is always room: how
// many there can be the number of a connection's requests bounds. So what came of
// a request that has changed something is not lost for want of room.
const freeAnswer = buffer.Size8K

// hold counts n bytes of an answer until written. It reports false when they are
// too many, for a peer that does not take those that there are: WriteQueueBytes
// bound all of a connection but one, which may be larger.
func (c *conn) hold(n int) bool {
	bound := int64(c.l.limits.Load().WriteQueueBytes)
	for {
		held := c.unwritten.Load()
		if held > 0 && n > freeAnswer && held+int64(n) > bound {
			return false
		}
		if c.unwritten.CompareAndSwap(held, held+int64(n)) {
			return true
		}
	}
}

// written ends the hold of n bytes.
func (c *conn) written(n int) { c.unwritten.Add(int64(-n)) }

// begin notes a request. It reports false when the time to the first one is
// over. A request for a WebSocket does not complete the handshake yet.
func (c *conn) begin(upgrade bool) bool {
	if c.started.CompareAndSwap(false, true) {
		if !c.l.deadlines.Set(&c.stage, time.Time{}) {
			return false
		}
	}
	if !upgrade {
		c.complete()
	}
	return true
}

// complete gives the Handshake stage back, at the first request.
func (c *conn) complete() {
	if c.completed.CompareAndSwap(false, true) {
		c.a.Admission.CompleteHandshake()
	}
}

// state follows what net/http does with a connection.
func (l *Listener) state(nc net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked {
		l.wg.Done()
	}
}
