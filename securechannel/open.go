package securechannel

import (
	"bytes"
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/internal/stacksize"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Type ids of the channel's own messages (binary encoding).
const (
	idOpenRequest  = 446
	idOpenResponse = 449
	idCloseRequest = 452
)

const (
	requestTypeIssue    = 0
	requestTypeRenew    = 1
	maxDiscoveryMessage = 65535 // bytes of a request on a discovery-only channel
	nonceWithoutPolicy  = 32    // bytes; node-opcua refuses shorter ones, on None too
)

// certificateError is a client certificate that was refused: the precise code
// for the log, another for the wire.
type certificateError struct {
	err  error
	wire ua.StatusCode
}

func (e *certificateError) Error() string { return e.err.Error() }
func (e *certificateError) Unwrap() error { return e.err }

// busyError is a refusal with a hint.
type busyError struct {
	why  string
	wait time.Duration
}

func (e *busyError) Error() string { return e.why + ", come back in " + e.wait.String() }
func (e *busyError) text() string {
	return "RetryAfterMs=" + strconv.FormatInt(int64((e.wait+time.Millisecond-1)/time.Millisecond), 10)
}

// opening is one OpenSecureChannel on its way.
type opening struct {
	ch       *Channel
	buf      *buffer.Buffer // the whole chunk
	header   asymmetricHeader
	policy   *security.Policy
	first    bool
	want     uint32 // sequence number, if sure
	sure     bool
	received time.Time
}

// openRequest is the body of an OpenSecureChannel request.
type openRequest struct {
	header   uabinary.RequestHeader
	version  uint32
	kind     uint32
	mode     ua.MessageSecurityMode
	nonce    []byte
	lifetime time.Duration
}

// openChunk checks, on the reading goroutine, what is cheap about an OPN chunk
// and starts the goroutine for the rest.
func (ch *Channel) openChunk(frame []byte, now time.Time) error {
	if t := ch.issued.Load(); t != nil {
		ch.install(t)
	}
	h, err := parseAsymmetric(frame)
	if err != nil {
		return err
	}
	if ch.opening.Load() {
		return ch.busy("another one is under way", 0)
	}
	o := &opening{ch: ch, first: ch.cur == nil, received: now}
	if o.policy, err = ch.policyOf(&h, o.first); err != nil {
		return err
	}
	if !o.first {
		// 0 is left to the request type, which is inside: ISSUE or RENEW.
		if h.channel != 0 && h.channel != ch.id {
			return uastatus.New(ua.StatusBadTCPSecureChannelUnknown, "renew secure channel", fmt.Errorf("channel %d", h.channel))
		}
		if wait := ch.renewals.take(now, ch.server.live.Load().MinTokenLifetime/4); wait > 0 {
			return ch.busy("too many renewals", wait)
		}
		// Its number is known although it can be read only after decryption,
		// but for the wrap: then the socket is not read meanwhile.
		if o.sure = ch.recvSeq.certain(); o.sure {
			o.want = ch.recvSeq.last + 1
			ch.recvSeq.last++
		} else {
			ch.unsure = true
		}
	}
	if err := ch.admit(o.first, o.policy); err != nil {
		return err
	}
	o.buf = buffer.Get(len(frame))
	o.buf.B = append(o.buf.B, frame...)
	o.header, _ = parseAsymmetric(o.buf.B) // once more: the fields alias
	ch.opening.Store(true)
	ch.conn.Go(o.run)
	return nil
}

// policyOf finds the policy of an OPN header and checks what the header says
// beside it, in an order that costs nothing.
func (ch *Channel) policyOf(h *asymmetricHeader, first bool) (*security.Policy, error) {
	s := ch.server
	if !first {
		// A renewal with another policy or certificate (hostile.md C14).
		if string(h.policy) != ch.policy.URI || !bytes.Equal(leaf(h.certificate), ch.peerCert) && !ch.policy.IsNone() {
			return nil, uastatus.New(ua.StatusBadSecurityChecksFailed, "renew secure channel", errors.New("another policy or certificate"))
		}
	}
	p := security.PolicyByURI(string(h.policy))
	switch {
	case p == nil, !p.IsNone() && !s.policyOffered(p), p.IsNone() && !s.none && s.cfg.NoDiscovery:
		return nil, uastatus.New(ua.StatusBadSecurityPolicyRejected, "open secure channel", fmt.Errorf("policy %q", h.policy))
	case p.IsNone():
		return p, nil
	}
	if thumb := s.cfg.Key.Thumbprint(); !bytes.Equal(h.thumbprint, thumb[:]) {
		return nil, uastatus.New(ua.StatusBadCertificateInvalid, "open secure channel", errors.New("receiver thumbprint is not ours"))
	}
	if len(h.certificate) == 0 {
		return nil, uastatus.New(ua.StatusBadCertificateInvalid, "open secure channel", errors.New("no sender certificate"))
	}
	return p, nil
}

// admit refuses a new channel whose private-key work would have to wait for too
// long (overload.md §8a).
func (ch *Channel) admit(first bool, p *security.Policy) error {
	live := ch.server.live.Load()
	if !first || p.IsNone() || live.MaxCryptoWait < 0 {
		return nil
	}
	if ch.server.cfg.Key.Gate().ExpectedWait(ch.issuePriority()) <= live.MaxCryptoWait {
		return nil
	}
	if live.Shadow {
		ch.server.passed.Add(1)
		return nil
	}
	return ch.busy("private key busy", 0)
}

// busy refuses an OpenSecureChannel with a place in the line, which is no nearer
// than least.
func (ch *Channel) busy(why string, least time.Duration) error {
	wait := max(least, time.Second)
	if hint := ch.server.cfg.Hint; hint != nil {
		wait = max(least, hint(ch.claim().Key, time.Now()))
	}
	return uastatus.New(ua.StatusBadTCPServerTooBusy, "open secure channel", &busyError{why, wait})
}

// run is the goroutine of one OpenSecureChannel.
func (o *opening) run() {
	stacksize.Grow()
	ch := o.ch
	err := o.serve(connContext{ch.conn})
	o.buf.Release()
	if err != nil {
		ch.fail(err) // first, so that nothing else is begun
		ch.opening.Store(false)
	}
	ch.conn.Resume()
}

func (o *opening) serve(ctx context.Context) error {
	ch, s := o.ch, o.ch.server
	id := identity{policy: o.policy, key: s.cfg.Key, peer: ch.peerKey}
	priority := security.PriorityRenew.Preferred(ch.preferred())
	if o.first {
		priority = ch.issuePriority()
		if !o.policy.IsNone() {
			cert, err := s.cfg.Validate(ctx, ch, o.header.certificate, o.policy)
			if err != nil {
				return s.refusedCertificate(err)
			}
			pub, ok := cert.PublicKey.(*rsa.PublicKey)
			if !ok {
				return s.refusedCertificate(uastatus.New(ua.StatusBadCertificateInvalid, "open secure channel", fmt.Errorf("%T", cert.PublicKey)))
			}
			if err := o.policy.CheckKey(pub); err != nil {
				return s.refusedCertificate(err)
			}
			id.peer = pub
		}
	}
	sequence, request, body, err := id.open(ctx, priority, o.buf.B, o.header.end)
	if err != nil {
		return err
	}
	if o.sure && sequence != o.want {
		return sequenceError(sequence, o.want-1)
	}
	if !o.first && !o.sure {
		seq := ch.recvSeq // a copy: the original is the reader's, who waits for us
		if err := seq.accept(sequence); err != nil {
			return err
		}
	}
	rq, err := decodeOpen(body)
	if err != nil {
		return err
	}
	if err := o.check(&rq); err != nil {
		return err
	}

	now := time.Now()
	ch.tokens++
	live := s.live.Load()
	t := &token{id: ch.tokens, created: now, sequence: sequence,
		lifetime: min(max(rq.lifetime, live.MinTokenLifetime), live.MaxTokenLifetime)}
	nonce := security.Nonce(nonceLength(o.policy))
	if !o.policy.IsNone() {
		t.serverKeys(o.policy, rq.nonce, nonce)
	}
	if o.first {
		if err := o.open(&id, &rq, t); err != nil {
			return err
		}
	}
	id.peer = ch.peerKey
	if !o.policy.IsNone() {
		id.thumb = security.Thumbprint(ch.peerCert)
	}
	ch.conn.SetChannelDeadline(t.dead(), transport.TokenExpired, ua.StatusBadSecureChannelTokenUnknown)
	return o.respond(ctx, &id, priority, request, &rq, t, nonce)
}

// check applies the rules that need the request's content.
func (o *opening) check(rq *openRequest) error {
	ch := o.ch
	switch {
	case o.first && (rq.kind == requestTypeRenew || o.header.channel != 0), !o.first && rq.kind == requestTypeRenew && o.header.channel != ch.id:
		return uastatus.New(ua.StatusBadTCPSecureChannelUnknown, "renew secure channel", fmt.Errorf("channel %d", o.header.channel))
	case rq.kind != requestTypeIssue && rq.kind != requestTypeRenew, !o.first && rq.kind == requestTypeIssue:
		return uastatus.New(ua.StatusBadRequestTypeInvalid, "open secure channel", fmt.Errorf("request type %d", rq.kind))
	case !o.first && rq.mode != ch.mode:
		return uastatus.New(ua.StatusBadSecurityChecksFailed, "renew secure channel", errors.New("another mode"))
	case o.policy.IsNone() != (rq.mode == ua.MessageSecurityModeNone):
		return uastatus.New(ua.StatusBadSecurityModeRejected, "open secure channel", fmt.Errorf("mode %d with %v", rq.mode, o.policy))
	case !o.policy.IsNone() && !ch.server.offered(o.policy, rq.mode):
		return uastatus.New(ua.StatusBadSecurityModeRejected, "open secure channel", fmt.Errorf("mode %d", rq.mode))
	case !o.policy.IsNone() && len(rq.nonce) != o.policy.NonceLength(), len(rq.nonce) > maxNonce:
		return uastatus.New(ua.StatusBadNonceInvalid, "open secure channel", fmt.Errorf("nonce of %d bytes", len(rq.nonce)))
	}
	return nil
}

// open makes the channel what it is from now on.
func (o *opening) open(id *identity, rq *openRequest, t *token) error {
	ch, s := o.ch, o.ch.server
	ch.policy, ch.mode = o.policy, rq.mode
	ch.discovery = o.policy.IsNone() && !s.none
	ch.maxBody = s.limits.Load().MaxMessageSize
	if ch.discovery {
		ch.maxBody = min(ch.maxBody, maxDiscoveryMessage)
	}
	if !o.policy.IsNone() {
		ch.peerKey = id.peer
		ch.peerChain = bytes.Clone(o.header.certificate)
		ch.peerCert = leaf(ch.peerChain)
	}
	ch.layout = newLayout(ch.conn.Parameters().BufferSize, ch.policy, ch.mode)
	if !ch.conn.ChannelOpened() {
		return errReplyClosed // the deadline, or a close, was faster
	}
	s.register(ch)
	ch.opened = true
	s.handler.Opened(ch)
	return nil
}

// respond issues the token and answers. Answers to other requests, which come
// while the response is being signed, wait their turn: its sequence number is
// taken first.
func (o *opening) respond(ctx context.Context, id *identity, pr security.Priority, request uint32, rq *openRequest, t *token, nonce []byte) error {
	ch := o.ch
	now := uabinary.FromTime(t.created)
	body := uabinary.AppendTypeID(make([]byte, 0, 256), idOpenResponse)
	body = uabinary.AppendResponseHeader(body, &uabinary.ResponseHeader{Timestamp: now, RequestHandle: rq.header.RequestHandle})
	body = uabinary.AppendUint32(body, 0) // ServerProtocolVersion
	body = uabinary.AppendUint32(body, ch.id)
	body = uabinary.AppendUint32(body, t.id)
	body = uabinary.AppendDateTime(body, now)
	body = uabinary.AppendUint32(body, uint32(t.lifetime/time.Millisecond))
	body = uabinary.AppendByteString(body, nonce)

	ch.out.Lock()
	ch.hold = true
	sequence := ch.sendSeq.next()
	ch.out.Unlock()

	message, err := id.seal(ctx, pr, ch.id, sequence, request, body)
	if err == nil && len(message) > ch.layout.size {
		err = uastatus.New(ua.StatusBadResponseTooLarge, "open secure channel", fmt.Errorf("%d bytes in one chunk", len(message)))
	}

	ch.out.Lock()
	defer ch.out.UnlockAndFlush()
	if err == nil {
		err = ch.out.Admit(len(message))
	}
	if err != nil {
		ch.hold = false
		ch.dropDeferred()
		return err
	}
	copy(ch.out.Grow(len(message)), message)
	switch {
	case ch.sendCur == nil:
		ch.sendCur = t
	case ch.sendNext == nil:
		ch.sendNext = t
	default: // as install does
		ch.sendCur, ch.sendNext = ch.sendNext, t
	}
	// Before the client has its answer, after which it may use the token and
	// even renew it.
	ch.issued.Store(t)
	ch.freshUntil.Store(time.Now().Add(freshAnswer).UnixNano())
	ch.opening.Store(false)
	return ch.resume()
}

func nonceLength(p *security.Policy) int {
	if p.IsNone() {
		return nonceWithoutPolicy
	}
	return p.NonceLength()
}

func (s *Server) refusedCertificate(err error) error {
	wire := ua.StatusBadSecurityChecksFailed
	if s.cfg.WireCode != nil {
		wire = s.cfg.WireCode(err)
	}
	return &certificateError{err, wire}
}

func decodeOpen(body []byte) (rq openRequest, err error) {
	var d uabinary.Decoder
	d.Reset(body, nil)
	if id := d.TypeID(); d.Err() == nil && id != idOpenRequest {
		return rq, uastatus.New(ua.StatusBadTCPMessageTypeInvalid, "open secure channel", fmt.Errorf("type id %d", id))
	}
	rq.header = d.RequestHeader()
	rq.version = d.UInt32()
	rq.kind = d.UInt32()
	rq.mode = ua.MessageSecurityMode(d.UInt32())
	rq.nonce = d.ByteString()
	rq.lifetime = time.Duration(d.UInt32()) * time.Millisecond
	return rq, d.Err()
}

// connContext is a context that ends with its connection.
type connContext struct{ conn transport.Conn }

func (c connContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c connContext) Done() <-chan struct{}       { return c.conn.Done() }
func (c connContext) Value(any) any               { return nil }
func (c connContext) Err() error {
	if c.conn.Closing() {
		return context.Canceled
	}
	return nil
}
