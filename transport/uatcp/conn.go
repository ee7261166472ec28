package uatcp

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// conn is one admitted connection. Its goroutine runs serve from admission to
// the end: it alone reads, and it alone tears down, so that whoever calls Close
// never waits and a handler on the reading goroutine may do so, too.
type conn struct {
	server    *Server
	nc        net.Conn
	framed    Framed          // nc as one; nil for a plain stream
	raw       syscall.RawConn // nil: the portable path
	admission *transport.Admission
	remote    netip.AddrPort
	local     netip.AddrPort
	accepted  transport.Accepted
	out       transport.Outbox
	write     rawWrite

	// Settled by the Hello; read by others only after the sink exists.
	sink   transport.Sink
	url    string
	params transport.Parameters

	closing atomic.Bool
	done    chan struct{}
	resume  chan struct{} // capacity 1
	wg      sync.WaitGroup

	mu         sync.Mutex
	reason     transport.CloseReason
	code       ua.StatusCode // of the ERR; Good = none
	text       string
	stage      transport.Deadline // Hello, then handshake, then the channel's
	stageWhy   transport.CloseReason
	stageCode  ua.StatusCode
	handshakes time.Time // end of the handshake

	// Only of the reading goroutine.
	assembly   transport.Deadline
	assembleBy time.Time // the sink's partial message
	frameBy    time.Time // a partial chunk
	armed      time.Time // what assembly is set to
	in         *buffer.Buffer
	start, end int // what of in is read and not consumed
	limit      int // largest acceptable message
	stalled    bool
	head       [HeaderSize]byte
}

func (c *conn) RemoteAddr() netip.AddrPort       { return c.remote }
func (c *conn) LocalAddr() netip.AddrPort        { return c.local }
func (c *conn) Ingress() isolation.OwnerClaim    { return c.admission.Ingress() }
func (c *conn) EndpointURL() string              { return c.url }
func (c *conn) Parameters() transport.Parameters { return c.params }
func (c *conn) Outbox() *transport.Outbox        { return &c.out }
func (c *conn) Closing() bool                    { return c.closing.Load() }
func (c *conn) Done() <-chan struct{}            { return c.done }
func (c *conn) Go(f func())                      { c.wg.Go(f) }

func (c *conn) SetReclaimable(yes bool) { c.admission.SetReclaimable(yes) }

// Close implements transport.Conn.
func (c *conn) Close(reason transport.CloseReason, code ua.StatusCode, text string) {
	c.mu.Lock()
	if c.reason != transport.ReasonNone {
		c.mu.Unlock()
		return
	}
	c.reason, c.code, c.text = reason, code, text
	c.mu.Unlock()
	// Wakes a reader that waits. It comes before closing shows, after which the
	// reader may set a deadline of its own.
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	c.closing.Store(true)
	close(c.done)
	c.Resume()
}

// fail closes because of what the peer sent.
func (c *conn) fail(err error) {
	c.server.log.Debug("opc.tcp protocol error", "remote", c.remote, "error", err)
	c.Close(transport.ProtocolError, uastatus.Code(err), "")
}

// Resume implements transport.Conn.
func (c *conn) Resume() {
	select {
	case c.resume <- struct{}{}:
	default:
	}
}

// ChannelOpened implements transport.Conn. The handshake's deadline and this
// are decided under the lock of the deadlines.
func (c *conn) ChannelOpened() bool {
	if !c.server.deadlines.Set(&c.stage, time.Time{}) || c.closing.Load() {
		return false
	}
	c.admission.CompleteHandshake()
	return true
}

// SetChannelDeadline implements transport.Conn.
func (c *conn) SetChannelDeadline(at time.Time, reason transport.CloseReason, code ua.StatusCode) {
	c.setStage(at, reason, code)
}

func (c *conn) setStage(at time.Time, reason transport.CloseReason, code ua.StatusCode) {
	c.mu.Lock()
	c.stageWhy, c.stageCode = reason, code
	c.mu.Unlock()
	if !c.closing.Load() {
		c.server.deadlines.Set(&c.stage, at)
	}
}

func (c *conn) stageExpired() {
	c.mu.Lock()
	why, code := c.stageWhy, c.stageCode
	c.mu.Unlock()
	c.Close(why, code, "")
}

func (c *conn) assemblyExpired() {
	c.Close(transport.AssemblyTimeout, ua.StatusBadTimeout, "")
}

// SetAssemblyDeadline implements transport.Conn.
func (c *conn) SetAssemblyDeadline(at time.Time) {
	c.assembleBy = at
	if !at.IsZero() {
		c.armAssembly()
	} // else when the socket has nothing more: most messages complete at once
}

func (c *conn) armAssembly() {
	at := c.assembleBy
	if !c.frameBy.IsZero() && (at.IsZero() || c.frameBy.Before(at)) {
		at = c.frameBy
	}
	if at != c.armed {
		c.armed = at
		c.server.deadlines.Set(&c.assembly, at)
	}
}

// Busy implements transport.Victim.
func (c *conn) Busy() bool {
	return c.out.Pending() > 0 || c.sink != nil && c.sink.Busy()
}

// Reclaim implements transport.Victim.
func (c *conn) Reclaim() {
	c.Close(transport.Reclaimed, ua.StatusBadSecureChannelClosed, "")
}

// Drained implements transport.Socket.
func (c *conn) Drained() { c.Resume() }

// WriteFailed implements transport.Socket.
func (c *conn) WriteFailed(err error, timeout bool) {
	switch {
	case timeout:
		c.Close(transport.WriteTimeout, ua.StatusGood, "")
	default:
		c.Close(readReason(err), ua.StatusGood, "")
	}
}

// ExpireWrites implements transport.Socket.
func (c *conn) ExpireWrites(t time.Time) { _ = c.nc.SetWriteDeadline(t) }

// Write implements transport.Socket.
func (c *conn) Write(b []byte) (int, error) { return c.nc.Write(b) }

// serve is the connection's goroutine.
func (c *conn) serve() {
	l, now := c.server, c.accepted.At
	c.setLimit(maxHello)
	c.handshakes = now.Add(l.limits.Load().HandshakeTimeout)
	if !c.accepted.ProxyHeaderDue() || c.proxied(now) {
		c.setStage(now.Add(l.limits.Load().HelloTimeout), transport.HelloTimeout, ua.StatusBadTimeout)
		if len(c.accepted.Begun) > 0 {
			c.widen()
			c.end = copy(c.in.Whole(), c.accepted.Begun)
		}
		c.read()
	}
	c.in.Release()
	c.in = nil
	c.finish()
}

// proxied reads the header and lets the Gate look at the address that it
// carries. It reports false when the connection is to end.
func (c *conn) proxied(now time.Time) bool {
	c.setStage(now.Add(transport.ProxyTimeout), transport.ProxyHeader, ua.StatusGood)
	r, err := c.accepted.Carried()
	if err != nil {
		c.server.log.Debug("PROXY header", "remote", c.remote, "error", err)
		c.Close(transport.ProxyHeader, ua.StatusGood, "")
		return false
	}
	c.remote = c.accepted.Remote
	switch {
	case r.Reason == transport.RefusedNone:
		return true
	case r.Polite:
		c.Close(transport.TooBusy, ua.StatusBadTCPServerTooBusy, r.Text())
	default:
		c.Close(transport.TooBusy, ua.StatusGood, "")
	}
	c.server.log.Debug("connection refused", "remote", c.remote, "reason", r.Reason)
	return false
}

// finish ends the connection: what is queued and the ERR, half-close, the
// peer's end, close. A reset, which what the peer still sends would cause, can
// swallow an ERR that it has not read yet, so after an ERR the peer's own end is
// awaited, within a bound. A client that has asked for the end sends no more.
func (c *conn) finish() {
	l := c.server
	<-c.done // Close, which is why the reading ended, has come so far
	c.mu.Lock()
	reason, code, text := c.reason, c.code, c.text
	c.mu.Unlock()
	var last []byte
	linger := l.limits.Load().LingerTimeout
	switch {
	case reason == transport.PeerClosed: // perhaps only half: answers may be read yet
	case reason.Abrupt():
		linger = 0
	case code != ua.StatusGood:
		if text == "" {
			text = reason.String()
		}
		last = (&Error{Code: code, Reason: text}).Append(nil)
	}
	c.out.Finish(last, linger)
	switch {
	case c.framed != nil:
		c.framed.Finish(reason, code, linger)
	case last != nil:
		c.linger(linger)
	}
	_ = c.nc.Close()
	c.admission.Release()
	c.wg.Wait()
	l.deadlines.Set(&c.stage, time.Time{})
	l.deadlines.Set(&c.assembly, time.Time{})
	if c.sink != nil {
		c.sink.Closed(reason)
	}
	l.ended(c, reason)
}

func (c *conn) linger(d time.Duration) {
	h, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || h.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(d))
	b := buffer.Get(buffer.Size64K)
	defer b.Release()
	for dropped := 0; dropped < maxLinger; {
		n, err := c.nc.Read(b.Whole())
		if err != nil {
			return
		}
		dropped += n
	}
}

// maxLinger bounds the bytes that are read and dropped after an ERR: a client
// in the middle of a large message gets to read why, a flood does not go on.
const maxLinger = 8 << 20

// work hands on what has been read. In one batch the answers are gathered; when
// the sink is not ready in the middle of one, the answers so far go out and the
// socket is left alone until it is.
func (c *conn) work() {
	for {
		c.out.Hold()
		used := c.consume(c.in.Whole()[c.start:c.end], time.Now())
		if used > 0 {
			c.start += used
			c.frameBy = time.Time{}
		}
		c.out.Leave()
		if !c.stalled {
			break
		}
		c.shrink()
		c.frameBy = time.Time{} // it is we who do not read now
		c.armAssembly()
		for !c.closing.Load() && !c.sink.Ready() {
			<-c.resume
		}
		c.stalled = false
		if c.closing.Load() {
			break
		}
	}
	c.compact()
}

func (c *conn) compact() {
	if c.start > 0 {
		copy(c.in.Whole(), c.in.Whole()[c.start:c.end])
		c.start, c.end = 0, c.end-c.start
	}
}

// consume hands on the complete messages at the front of b and returns the
// bytes consumed.
func (c *conn) consume(b []byte, now time.Time) (used int) {
	for !c.closing.Load() && len(b)-used >= HeaderSize {
		size, err := frameSize(b[used:], c.limit)
		if err == nil {
			err = c.expect(b[used:])
		}
		if err != nil {
			c.fail(err)
			return used
		}
		if len(b)-used < size {
			return used
		}
		if c.sink != nil && !c.sink.Ready() {
			c.stalled = true
			return used
		}
		c.message(b[used:used+size:used+size], now)
		used += size
	}
	return used
}

// expect judges a message by its header alone: what does not belong here gets
// its answer without the wait for a body.
func (c *conn) expect(header []byte) error {
	switch kind := kindOf(header); {
	case kind == typeERR, c.sink == nil && kind == typeHEL:
		return nil
	case c.sink != nil && (kind == typeMSG || kind == typeOPN || kind == typeCLO):
		return nil
	}
	// Also ReverseHello: a server never dials from what a peer sends
	// (hostile.md X38).
	return uastatus.New(ua.StatusBadTCPMessageTypeInvalid, "message", errors.New("unexpected "+string(header[:4])))
}

// message takes a whole message that was expected.
func (c *conn) message(frame []byte, now time.Time) {
	switch kindOf(frame) {
	case typeERR:
		e, err := ParseError(frame)
		if err != nil {
			c.fail(err)
			return
		}
		c.server.log.Debug("opc.tcp peer error", "remote", c.remote, "code", uastatus.Name(e.Code), "reason", e.Reason)
		c.Close(transport.PeerClosed, ua.StatusGood, "")
	case typeHEL:
		c.hello(frame)
	default:
		c.sink.Chunk(frame, now)
	}
}

func (c *conn) hello(frame []byte) {
	h, err := ParseHello(frame)
	if err != nil {
		c.fail(err)
		return
	}
	p, ack, err := negotiate(&h, c.server.limits.Load())
	if err != nil {
		c.fail(err)
		return
	}
	c.url, c.params = h.EndpointURL, p
	c.setLimit(p.BufferSize)
	c.sink = c.server.newSink(c)
	c.admission.Hello() // from here on the Gate may ask Busy: under its lock the sink is seen
	c.setStage(c.handshakes, transport.HandshakeTimeout, ua.StatusBadTimeout)
	c.out.Lock()
	copy(c.out.Grow(ackSize), ack.Append(nil))
	c.out.UnlockAndFlush()
}

// setLimit bounds the next messages.
func (c *conn) setLimit(n int) {
	c.limit = n
	if c.framed != nil {
		c.framed.Limit(n)
	}
}

// widen makes sure that in is a whole read buffer.
func (c *conn) widen() {
	size := buffer.ClassSize(max(buffer.Size64K, c.limit))
	if c.in != nil && c.in.Cap() >= size {
		return
	}
	b := buffer.Get(size)
	if c.in != nil {
		copy(b.Whole(), c.in.Whole()[:c.end])
		c.in.Release()
	}
	c.in = b
}

// shrink keeps of the read buffer no more than what is unread needs. A peer
// that stops in the middle of a chunk holds the memory of what it has sent, not
// of what its header claims.
func (c *conn) shrink() {
	c.compact()
	if c.end == 0 {
		c.in.Release()
		c.in = nil
	} else if buffer.ClassSize(c.end) < c.in.Cap() {
		b := buffer.Get(c.end)
		copy(b.Whole(), c.in.Whole()[:c.end])
		c.in.Release()
		c.in = b
	}
}

// pause is called before the reader waits for the socket.
func (c *conn) pause() {
	if c.end > 0 && c.frameBy.IsZero() && c.sink != nil {
		c.frameBy = time.Now().Add(c.server.limits.Load().AssemblyTimeout)
	}
	if !c.armed.IsZero() || !c.frameBy.IsZero() {
		c.armAssembly()
	}
}

// readConn is the portable reading loop. It waits for a header without holding
// a buffer.
func (c *conn) readConn() {
	for !c.closing.Load() {
		if c.end == 0 {
			if _, err := io.ReadFull(c.nc, c.head[:]); err != nil {
				c.readFailed(err)
				return
			}
			c.widen()
			c.end = copy(c.in.Whole(), c.head[:])
			c.work()
		}
		for c.end > 0 && !c.closing.Load() {
			c.pause()
			c.widen()
			n, err := c.nc.Read(c.in.Whole()[c.end:])
			c.end += n
			if n > 0 {
				c.work()
			}
			if err != nil {
				c.readFailed(err)
				return
			}
		}
		c.in.Release()
		c.in = nil
		c.pause()
	}
}

// readFailed closes because of an error of Read: the socket's, or what a Framed
// has found wrong with a frame.
func (c *conn) readFailed(err error) {
	var e *uastatus.Error
	if errors.As(err, &e) {
		c.fail(err)
		return
	}
	c.Close(readReason(err), ua.StatusGood, "")
}

func readReason(err error) transport.CloseReason {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return transport.PeerClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return transport.Administrative // only by Close, which has its reason already
	}
	return transport.IOError
}
