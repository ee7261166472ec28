package wss

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uajson"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/coder/websocket"
	"github.com/gopcua/opcua/ua"
)

// lengthSize is what precedes each message in the Outbox of a jsonConn: its
// length, which does not reach the wire.
const lengthSize = 4

// freeBody is the size in bytes up to which the memory of a message is not
// charged, as that of a chunk of opc.tcp is not.
const freeBody = buffer.Size64K

// jsonConn is a WebSocket with the sub-protocol opcua+uajson. One goroutine,
// that of the HTTP request that it came from, reads and tears down.
type jsonConn struct {
	server *Server
	ws     *websocket.Conn
	socket *socket
	a      transport.Accepted
	peer   transport.Peer
	out    transport.Outbox
	ctx    context.Context
	cancel context.CancelFunc
	resume chan struct{} // capacity 1

	closing atomic.Bool
	called  bool // there was a Call; of the reading goroutine

	mu          sync.Mutex
	outstanding int // calls that are not answered and not parked
	parked      int
	reason      transport.CloseReason
	code        ua.StatusCode
	status      websocket.StatusCode // of the close frame; 0 = by reason
	attached    bool                 // a session is activated over it
	silent      transport.Deadline   // of the peer's next message
	silentWhy   transport.CloseReason
}

// json serves a WebSocket until it has ended.
func (s *Server) json(ws *websocket.Conn, sock *socket, r *http.Request, a transport.Accepted) {
	c := &jsonConn{server: s, ws: ws, socket: sock, a: a, resume: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(r.Context()))
	c.peer = transport.Peer{
		Profile: transport.ProfileWSSJSON, EndpointURL: "opc.wss://" + r.Host + r.URL.Path,
		RemoteAddr: a.Remote, LocalAddr: a.Local, Ingress: a.Admission.Ingress(),
		Lasting: true, Reclaimable: c.reclaimable, Done: c.ctx.Done(),
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		c.peer.Certificate = r.TLS.PeerCertificates[0]
	}
	c.silent.Expired = c.silence
	c.out.Init(c, s.limits.Load())
	// It counts bytes as they come: package websocket does not tell the length that
	// a frame declares, so one over the limit ends with the first byte over it.
	ws.SetReadLimit(int64(s.limits.Load().MaxMessageSize))
	a.Admission.Bind(c)
	a.Admission.CompleteHandshake()
	s.mu.Lock()
	s.conns[c] = struct{}{}
	stopping := s.stopping
	if !stopping { // else Close may have done with waiting
		s.wg.Add(1)
		defer s.wg.Done()
	}
	s.mu.Unlock()
	if stopping {
		c.close(transport.Shutdown, ua.StatusBadServerHalted)
	}
	c.await(a.At.Add(s.limits.Load().HelloTimeout), transport.HelloTimeout)
	c.read()
	c.finish()
}

// close asks for the end; the first reason counts.
func (c *jsonConn) close(reason transport.CloseReason, code ua.StatusCode) {
	c.closeAs(reason, code, 0)
}

func (c *jsonConn) closeAs(reason transport.CloseReason, code ua.StatusCode, status websocket.StatusCode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason != transport.ReasonNone {
		return
	}
	c.reason, c.code, c.status = reason, code, status
	c.closing.Store(true)
	c.server.o.Deadlines.Set(&c.silent, time.Time{})
	_ = c.socket.SetReadDeadline(time.Unix(1, 0))
	c.cancel()
	c.Drained()
}

// readBy sets the deadline of reading, unless the connection is closing, which
// has set one of its own.
func (c *jsonConn) readBy(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason == transport.ReasonNone {
		_ = c.socket.SetReadDeadline(t)
	}
}

// Busy implements transport.Victim.
func (c *jsonConn) Busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outstanding > 0 || c.parked > 0 || c.out.Pending() > 0
}

// Reclaim implements transport.Victim.
func (c *jsonConn) Reclaim() { c.close(transport.Reclaimed, ua.StatusBadSecureChannelClosed) }

// TryWrite implements transport.Socket: the goroutine for slow peers writes.
func (c *jsonConn) TryWrite([]byte) (int, error) { return 0, nil }

// Write implements transport.Socket. b holds whole messages, each behind its length.
func (c *jsonConn) Write(b []byte) (n int, err error) {
	c.socket.cork()
	for n < len(b) && err == nil {
		end := n + lengthSize + int(binary.LittleEndian.Uint32(b[n:]))
		err = c.ws.Write(context.Background(), websocket.MessageText, b[n+lengthSize:end])
		n = end
	}
	if e := c.socket.uncork(); err == nil {
		err = e
	}
	return n, err
}

// WriteFailed implements transport.Socket.
func (c *jsonConn) WriteFailed(err error, timeout bool) {
	switch {
	case timeout:
		c.close(transport.WriteTimeout, ua.StatusGood)
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		c.close(transport.PeerClosed, ua.StatusGood)
	default:
		c.close(transport.IOError, ua.StatusGood)
	}
}

// Drained implements transport.Socket.
func (c *jsonConn) Drained() {
	select {
	case c.resume <- struct{}{}:
	default:
	}
}

// ExpireWrites implements transport.Socket.
func (c *jsonConn) ExpireWrites(t time.Time) { _ = c.socket.SetWriteDeadline(t) }

// ready reports whether one more message may be read.
func (c *jsonConn) ready() bool {
	c.mu.Lock()
	n := c.outstanding
	c.mu.Unlock()
	return n < c.server.limits.Load().MaxOutstandingPerConnection && !c.out.Congested()
}

func (c *jsonConn) read() {
	for !c.closing.Load() {
		if !c.ready() {
			<-c.resume
			continue
		}
		kind, r, err := c.ws.Reader(context.Background())
		switch {
		case err != nil:
			c.readFailed(err)
		case kind != websocket.MessageText:
			c.closeAs(transport.ProtocolError, ua.StatusBadTCPMessageTypeInvalid, websocket.StatusUnsupportedData)
		default:
			now := time.Now()
			if c.called { // it has AssemblyTimeout now, and then we have to answer
				c.await(now.Add(c.server.limits.Load().HandshakeTimeout), transport.HandshakeTimeout)
			}
			c.readBy(now.Add(c.server.limits.Load().AssemblyTimeout))
			c.message(r, now)
			c.readBy(time.Time{})
		}
	}
}

func (c *jsonConn) readFailed(err error) {
	var t interface{ Timeout() bool }
	switch {
	case websocket.CloseStatus(err) != -1, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		c.close(transport.PeerClosed, ua.StatusGood)
	case errors.Is(err, websocket.ErrMessageTooBig):
		c.closeAs(transport.ProtocolError, ua.StatusBadTCPMessageTooLarge, websocket.StatusMessageTooBig)
	case errors.As(err, &t) && t.Timeout():
		c.close(transport.AssemblyTimeout, ua.StatusBadTimeout)
	case c.socket.failed.Load():
		c.close(transport.IOError, ua.StatusGood)
	default:
		c.server.log.Debug("WebSocket protocol error", "remote", c.a.Remote, "error", err)
		c.close(transport.ProtocolError, ua.StatusBadTCPMessageTypeInvalid)
	}
}

// message reads the rest of a message and hands it on.
func (c *jsonConn) message(r io.Reader, now time.Time) {
	call := &jsonCall{conn: c}
	text := buffer.Get(buffer.Size8K)
	defer func() { text.Release() }()
	for {
		if len(text.B) == cap(text.B) {
			grown := buffer.Get(cap(text.B) + 1)
			if grown.Cap() > freeBody {
				if err := c.server.o.Memory.Take(&call.Memory, c.a.Admission.Owner(), int64(grown.Cap())); err != nil {
					grown.Release()
					c.closeAs(transport.ResourceLimit, ua.StatusBadTCPNotEnoughResources, websocket.StatusTryAgainLater)
					return
				}
			}
			grown.B = append(grown.B, text.B...)
			text.Release()
			text = grown
		}
		n, err := r.Read(text.B[len(text.B):cap(text.B)])
		text.B = text.B[:len(text.B)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			call.Memory.Release()
			c.readFailed(err)
			return
		}
	}
	if !utf8.Valid(text.B) { // RFC 6455 §8.1, Handling Errors in UTF-8-Encoded Data
		call.Memory.Release()
		c.closeAs(transport.ProtocolError, ua.StatusBadDecodingError, websocket.StatusInvalidFramePayloadData)
		return
	}
	if g := c.server.o.Governor; g != nil {
		lease, err := g.Ingress(c.ctx, int64(len(text.B)))
		var refused *admission.RefusedError
		switch {
		case err == nil:
		case errors.As(err, &refused) && refused.Reason == admission.TooLarge:
			call.Memory.Release()
			c.closeAs(transport.ProtocolError, ua.StatusBadTCPMessageTooLarge, websocket.StatusMessageTooBig)
			return
		default:
			call.Memory.Release()
			c.closeAs(transport.TooBusy, ua.StatusBadTCPServerTooBusy, websocket.StatusTryAgainLater)
			return
		}
		call.Lease = lease
	}
	call.From, call.Under, call.At, call.Ctx, call.Read = &c.peer, security.None, now, c.ctx, int64(len(text.B))
	call.Binary = buffer.Get(len(text.B))
	var err error
	call.Binary.B, call.form, err = c.server.tables().AppendBinary(call.Binary.B, text.B, c.server.decoding)
	c.mu.Lock()
	c.outstanding++
	c.mu.Unlock()
	if err != nil {
		handle, _ := uajson.RequestHandle(text.B)
		_ = call.Respond(transport.AppendFault(nil, handle, uastatus.Code(err), now), uastatus.Code(err), 0)
		return
	}
	c.called = true
	c.await(now.Add(c.server.limits.Load().HandshakeTimeout), transport.HandshakeTimeout)
	c.server.o.Calls.Call(call)
	call.Decoded()
}

// finish ends the connection: what is queued, the close frame and the peer's, then
// the socket.
func (c *jsonConn) finish() {
	s := c.server
	c.mu.Lock()
	reason, code, status := c.reason, c.code, c.status
	c.mu.Unlock()
	linger := s.limits.Load().LingerTimeout
	if reason.Abrupt() && reason != transport.PeerClosed {
		linger = 0
	}
	c.out.Finish(nil, linger)
	if !reason.Abrupt() {
		if status == 0 {
			status = closeStatus(reason)
		}
		_ = c.socket.SetDeadline(time.Now().Add(linger))
		_ = c.ws.Close(status, reason.String())
	}
	_ = c.ws.CloseNow()
	c.a.Admission.Release()
	if c.called {
		s.o.Calls.Gone(&c.peer)
	}
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.log.Debug("connection closed", "remote", c.a.Remote, "reason", reason, "code", uastatus.Name(code))
	if s.o.Closed != nil {
		s.o.Closed(c.a.Remote, reason)
	}
}
