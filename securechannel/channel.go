package securechannel

import (
	"crypto/rsa"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Channel is the server's side of a SecureChannel. It lives and dies with its
// connection.
type Channel struct {
	server *Server
	conn   transport.Conn
	out    *transport.Outbox

	// Set by the first OpenSecureChannel, before Handler.Opened; then constant.
	id        uint32
	policy    *security.Policy
	mode      ua.MessageSecurityMode
	discovery bool
	peerCert  []byte // aliases peerChain
	peerChain []byte
	peerKey   *rsa.PublicKey
	layout    layout
	maxBody   int // of a request

	issued      atomic.Pointer[token] // by the opening goroutine, for the reader
	opening     atomic.Bool           // an OpenSecureChannel is under way
	outstanding atomic.Int32          // detached messages
	partial     atomic.Bool           // an assembly is under way
	keepUntil   atomic.Int64          // not reclaimable before; Unix nanoseconds
	freshUntil  atomic.Int64          // the same, for the last OpenSecureChannel's answer

	// Receiving: only of the reading goroutine.
	cur, next *token
	recvSeq   sequence
	unsure    bool // the OPN under way decides the next sequence number
	assembly  assembly
	renewals  renewals
	msg       Message

	// Sending: guarded by the Outbox.
	sendSeq           sequence
	sendCur, sendNext *token
	hold              bool // an OPN response is being signed
	deferred          []deferred
	deferredBytes     int

	mu       sync.Mutex
	sessions int
	active   atomic.Bool // has a session
	opened   bool        // Handler.Opened was called; by the opening goroutine, then Closed
	tokens   uint32      // last token id; only of the opening goroutine
}

func (s *Server) newChannel(conn transport.Conn) *Channel {
	ch := &Channel{server: s, conn: conn, out: conn.Outbox()}
	ch.assembly.budget, ch.assembly.provider, ch.assembly.byOwner = s.cfg.Budget, s.cfg.Isolation, s.byOwner
	ch.recvSeq.legacy, ch.sendSeq.legacy = true, true
	return ch
}

// ID is the SecureChannelId; never 0.
func (ch *Channel) ID() uint32 { return ch.id }

// SecurityPolicy is the channel's policy.
func (ch *Channel) SecurityPolicy() *security.Policy { return ch.policy }

// SecurityMode is the channel's mode.
func (ch *Channel) SecurityMode() ua.MessageSecurityMode { return ch.mode }

// DiscoveryOnly reports whether the channel may only be used for FindServers
// and GetEndpoints: it has no security although no endpoint offers that.
func (ch *Channel) DiscoveryOnly() bool { return ch.discovery }

// PeerCertificate is the client's application certificate in DER, verified and
// validated; nil without security. Callers must not change it.
func (ch *Channel) PeerCertificate() []byte { return ch.peerCert }

// PeerChain is PeerCertificate with the issuers that the client sent behind it,
// for another look when the trust list has changed.
func (ch *Channel) PeerChain() []byte { return ch.peerChain }

// RemoteAddr is the client's address.
func (ch *Channel) RemoteAddr() netip.AddrPort { return ch.conn.RemoteAddr() }

// Ingress is what a classifier claimed the connection as before its first byte;
// the zero value when none did.
func (ch *Channel) Ingress() isolation.OwnerClaim { return ch.conn.Ingress() }

// LocalAddr is the address that the client connected to.
func (ch *Channel) LocalAddr() netip.AddrPort { return ch.conn.LocalAddr() }

// EndpointURL is the URL of the client's Hello, unchecked.
func (ch *Channel) EndpointURL() string { return ch.conn.EndpointURL() }

// Done is closed when the channel begins to close.
func (ch *Channel) Done() <-chan struct{} { return ch.conn.Done() }

// Outstanding is the number of detached requests without an answer.
func (ch *Channel) Outstanding() int { return int(ch.outstanding.Load()) }

// Close closes the channel and its connection and returns at once. The first
// reason counts. If code is not Good and the peer reads, an ERR with it goes
// out after what is queued.
func (ch *Channel) Close(reason transport.CloseReason, code ua.StatusCode) {
	ch.conn.Close(reason, code, "")
}

// SessionAttached notes that an activated session uses the channel: it is not
// reclaimed any more, and its partial messages may use the whole budget.
func (ch *Channel) SessionAttached() { ch.attach(1) }

// SessionDetached undoes one SessionAttached.
func (ch *Channel) SessionDetached() { ch.attach(-1) }

func (ch *Channel) attach(n int) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	before := ch.sessions > 0
	ch.sessions += n
	if after := ch.sessions > 0; after != before {
		ch.active.Store(after)
		ch.conn.SetReclaimable(!after)
	}
}

// KeepUntil keeps the channel from being reclaimed before t: a client that was
// told to come back finds its channel.
func (ch *Channel) KeepUntil(t time.Time) { ch.keepUntil.Store(t.UnixNano()) }

// freshAnswer protects a channel that was answered: its client has had no time
// to go on.
const freshAnswer = time.Second

// Busy implements transport.Sink: what is under way, and the times in which a
// client that waits for its turn, or has just got its channel, keeps it.
func (ch *Channel) Busy() bool {
	if ch.opening.Load() || ch.partial.Load() || ch.outstanding.Load() > 0 {
		return true
	}
	until := max(ch.keepUntil.Load(), ch.freshUntil.Load())
	return until != 0 && time.Now().UnixNano() < until
}

// Ready implements transport.Sink: the socket is not read while too many
// requests are in flight, while the peer does not take its answers, and while
// only an OpenSecureChannel under way knows the next sequence number.
func (ch *Channel) Ready() bool {
	return int(ch.outstanding.Load()) < ch.server.live.Load().MaxOutstandingPerConnection &&
		!ch.out.Congested() && !(ch.unsure && ch.opening.Load())
}

// Closed implements transport.Sink.
func (ch *Channel) Closed(reason transport.CloseReason) {
	ch.assembly.drop()
	ch.partial.Store(false)
	ch.out.Lock()
	ch.dropDeferred()
	ch.sendCur, ch.sendNext = nil, nil
	ch.out.Unlock()
	ch.cur, ch.next = nil, nil
	ch.issued.Store(nil)
	if ch.opened {
		ch.server.unregister(ch)
		ch.server.handler.Closed(ch, reason)
	}
}

// Chunk implements transport.Sink.
func (ch *Channel) Chunk(frame []byte, now time.Time) {
	if kind(frame) == kindOPN {
		if err := ch.openChunk(frame, now); err != nil {
			ch.dropPartial()
			ch.fail(err)
		}
		return
	}
	request, body, err := ch.verify(frame, now)
	if err == nil {
		if kind(frame) == kindCLO {
			ch.dropPartial()
			ch.conn.Close(transport.CloseSecureChannel, ua.StatusGood, "")
			return
		}
		err = ch.chunk(frame[3], request, body, now)
	}
	if err != nil {
		ch.dropPartial() // now, not when the peer has gone
		ch.fail(err)
	}
}

// verify checks and decrypts a MSG or CLO chunk.
func (ch *Channel) verify(frame []byte, now time.Time) (request uint32, body []byte, err error) {
	if t := ch.issued.Load(); t != nil {
		ch.install(t)
	}
	if len(frame) < bodyOffset {
		return 0, nil, errChunkShort
	}
	t, err := ch.receiving(le32(frame[8:]), le32(frame[12:]), now)
	if err != nil {
		return 0, nil, err
	}
	sequence, request, body, err := ch.layout.open(frame, t)
	if err != nil {
		return 0, nil, err
	}
	if err := ch.recvSeq.accept(sequence); err != nil {
		return 0, nil, err
	}
	if t == ch.next {
		ch.promote()
	}
	return request, body, nil
}

// receiving finds the token that secures a chunk. The newest token lives a
// quarter longer than its lifetime; an older one only until it expires, or
// until the newer one has been used.
func (ch *Channel) receiving(channel, id uint32, now time.Time) (*token, error) {
	switch {
	case ch.cur == nil && ch.next == nil, channel != ch.id:
		return nil, uastatus.New(ua.StatusBadTCPSecureChannelUnknown, "chunk", fmt.Errorf("channel %d", channel))
	case ch.cur != nil && id == ch.cur.id:
		if ch.next != nil && now.After(ch.cur.expires()) || now.After(ch.cur.dead()) {
			return nil, errToken
		}
		return ch.cur, nil
	case ch.next != nil && id == ch.next.id:
		return ch.next, nil
	}
	return nil, errToken
}

var errToken = uastatus.New(ua.StatusBadSecureChannelTokenUnknown, "chunk", errors.New("token unknown or expired"))

// install takes a token that was issued while the reading went on.
func (ch *Channel) install(t *token) {
	ch.issued.Store(nil)
	if ch.cur == nil || ch.unsure {
		ch.recvSeq.begun, ch.recvSeq.last = true, t.sequence
		ch.unsure = false
	}
	switch {
	case ch.cur == nil:
		ch.cur = t
	case ch.next == nil:
		ch.next = t
	default:
		// Renewed again before the token in between was used. The client has
		// that one since before it asked for this one, and may use it now.
		ch.cur, ch.next = ch.next, t
	}
}

// promote makes the newer token the only one: the client has used it. From now
// on answers are secured with it, whatever they answer; node-opcua has the old
// keys no longer when a Publish has waited long enough.
func (ch *Channel) promote() {
	ch.cur, ch.next = ch.next, nil
	ch.out.Lock()
	if ch.sendNext == ch.cur {
		ch.sendNext = nil
	}
	ch.sendCur = ch.cur
	ch.out.Unlock()
}

// chunk assembles.
func (ch *Channel) chunk(final byte, request uint32, body []byte, now time.Time) error {
	a := &ch.assembly
	if final == chunkFinal && !a.active() { // nearly always
		if len(body) > ch.maxBody {
			return a.check(len(body), ch.maxBody, 1)
		}
		ch.deliver(request, body, nil, now)
		return nil
	}
	if a.active() && request != a.request {
		ch.dropPartial() // a new request replaces the unfinished one
	}
	switch final {
	case chunkAbort:
		if a.active() {
			ch.dropPartial()
		}
		return nil
	case chunkIntermediate:
		if err := a.check(len(body), ch.maxBody, ch.server.limits.Load().MaxChunkCount); err != nil {
			return err
		}
		if !a.active() {
			if a.provider != nil {
				a.owner = ch.server.assemblyOwner(ch)
			}
			ch.partial.Store(true)
			ch.conn.SetAssemblyDeadline(now.Add(ch.server.limits.Load().AssemblyTimeout))
		}
		return a.add(request, body, ch.active.Load())
	}
	if err := a.check(len(body), ch.maxBody, ch.server.limits.Load().MaxChunkCount); err != nil {
		return err
	}
	if !a.active() {
		ch.deliver(request, body, nil, now)
		return nil
	}
	b := a.finish(body)
	ch.dropPartial()
	ch.deliver(request, b.B, b, now)
	return nil
}

// dropPartial gives up what is being assembled, if anything.
func (ch *Channel) dropPartial() {
	if !ch.partial.Load() {
		return
	}
	ch.assembly.drop()
	ch.partial.Store(false)
	ch.conn.SetAssemblyDeadline(time.Time{})
}

func (ch *Channel) deliver(request uint32, body []byte, b *buffer.Buffer, now time.Time) {
	m := &ch.msg
	*m = Message{RequestID: request, Body: body, Received: now, ch: ch, buf: b}
	ch.server.handler.Message(ch, m)
	m.buf.Release() // nil when it was detached, or lies in the read buffer
	m.buf, m.Body = nil, nil
}

// fail closes because of what the peer sent, or what its request met. The peer
// learns no more of a failed security check than that it failed.
func (ch *Channel) fail(err error) {
	code := uastatus.Code(err)
	reason, wire := transport.ProtocolError, code
	switch code {
	case ua.StatusBadSecurityChecksFailed, ua.StatusBadSequenceNumberInvalid, ua.StatusBadNonceInvalid,
		ua.StatusBadCertificateInvalid:
		reason, wire = transport.SecurityError, ua.StatusBadSecurityChecksFailed
	case ua.StatusBadSecurityPolicyRejected, ua.StatusBadSecurityModeRejected, ua.StatusBadSecureChannelTokenUnknown:
		reason = transport.SecurityError
	case ua.StatusBadTCPNotEnoughResources:
		reason = transport.ResourceLimit
	case ua.StatusBadTCPServerTooBusy:
		reason = transport.TooBusy
	case ua.StatusBadInternalError:
		reason, wire = transport.InternalError, ua.StatusBadTCPInternalError
	}
	var refused *certificateError
	if errors.As(err, &refused) {
		reason, wire = transport.SecurityError, refused.wire
	}
	var busy *busyError
	text := ""
	if errors.As(err, &busy) {
		text = busy.text()
	}
	if !ch.conn.Closing() {
		ch.server.alarm("secure channel closed", "remote", ch.RemoteAddr(), "channel", ch.id,
			"reason", reason, "code", uastatus.Name(code), "error", err)
	}
	ch.conn.Close(reason, wire, text)
}
