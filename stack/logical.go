package stack

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// A logicalChannel stands in for the SecureChannel where the transport has none.
//
// OPC 10000-6 §7.4.1 (OPC UA HTTPS, Overview) treats all that comes over one
// HTTPS URL as one SecureChannel that clients share. What ends with a channel
// must not end for all of them, so each session has a logical channel of its
// own: made by CreateSession, found by the AuthenticationToken whichever
// connection a request came on, ended with the session. A call without a session
// has one for itself. A WebSocket with opcua+uajson has one for its life.
//
// It ends when nothing holds it: no call that is not answered, no session bound
// to it, and no WebSocket.
type logicalChannel struct {
	calls     *calls
	id        uint32
	policy    *security.Policy
	discovery bool
	lasting   bool
	peer      atomic.Pointer[transport.Peer] // of the call that came last with an identity

	introduced atomic.Pointer[introduction] // nil under None
	proven     atomic.Bool                  // the client has signed with its key
	done       chan struct{}

	mu       sync.Mutex
	ended    bool
	held     int // calls, sessions, the WebSocket
	attached int // activated sessions, of a WebSocket
	pending  map[uint32]*call
	last     uint32 // request id
}

// An introduction is the certificate with which CreateSession introduced the client.
type introduction struct {
	certificate *x509.Certificate
	chain       []byte // with its issuers, for another look when the trust list has changed
}

// errNoCall is returned for a request that has been answered.
var errNoCall = errors.New("no such request")

// meet notes whom the channel is used by. It copies: the Peer of a request may be
// part of what a connection holds, and the channel lives longer.
func (ch *logicalChannel) meet(p *transport.Peer) {
	own := *p
	ch.peer.Store(&own)
}

// ID implements session.Channel.
func (ch *logicalChannel) ID() uint32 { return ch.id }

// SecurityPolicy implements session.Channel: it decides how CreateSession and
// ActivateSession are signed, and nothing else.
func (ch *logicalChannel) SecurityPolicy() *security.Policy { return ch.policy }

// SecurityMode implements session.Channel. OPC 10000-6 §7.4.1 (OPC UA HTTPS,
// Overview): Sign, unless the policy is None.
func (ch *logicalChannel) SecurityMode() ua.MessageSecurityMode { return tlsMode(ch.policy) }

func tlsMode(p *security.Policy) ua.MessageSecurityMode {
	if p.IsNone() {
		return ua.MessageSecurityModeNone
	}
	return ua.MessageSecurityModeSign
}

// PeerCertificate implements session.Channel.
func (ch *logicalChannel) PeerCertificate() []byte {
	if i := ch.introduced.Load(); i != nil {
		return i.certificate.Raw
	}
	return nil
}

// PeerChain is PeerCertificate with the issuers that the client sent.
func (ch *logicalChannel) PeerChain() []byte {
	if i := ch.introduced.Load(); i != nil {
		return i.chain
	}
	return nil
}

// TakeCertificate implements session.Introduced.
func (ch *logicalChannel) TakeCertificate(_ context.Context, chain []byte) error {
	chain = bytes.Clone(chain) // it may alias the request
	cert, err := ch.calls.srv.validatePeer(ch, chain, ch.policy)
	if err != nil {
		return uastatus.New(pki.WireCode(err), "client certificate", err)
	}
	ch.introduced.Store(&introduction{cert, chain})
	return nil
}

// provenCertificate is the certificate whose key the client has shown to have:
// in ActivateSession, or in the TLS handshake.
func (ch *logicalChannel) provenCertificate() []byte {
	if ch.proven.Load() {
		return ch.PeerCertificate()
	}
	if c := ch.peer.Load().Certificate; c != nil {
		return c.Raw
	}
	return nil
}

// RemoteAddr implements session.Channel.
func (ch *logicalChannel) RemoteAddr() netip.AddrPort { return ch.peer.Load().RemoteAddr }

// LocalAddr implements session.Channel.
func (ch *logicalChannel) LocalAddr() netip.AddrPort { return ch.peer.Load().LocalAddr }

// EndpointURL implements session.Channel.
func (ch *logicalChannel) EndpointURL() string { return ch.peer.Load().EndpointURL }

// Ingress implements channel.
func (ch *logicalChannel) Ingress() isolation.OwnerClaim { return ch.peer.Load().Ingress }

// DiscoveryOnly implements channel.
func (ch *logicalChannel) DiscoveryOnly() bool { return ch.discovery }

// Confidential implements session.Confidential: TLS hides what passes.
func (ch *logicalChannel) Confidential() bool { return true }

// MaxResponseSize implements session.Channel: HTTP and WebSocket clients name no limit.
func (ch *logicalChannel) MaxResponseSize() int { return 0 }

// Done implements session.Channel.
func (ch *logicalChannel) Done() <-chan struct{} { return ch.done }

// SessionAttached and SessionDetached implement session.Channel: a WebSocket
// with an activated session is not closed for a newcomer.
func (ch *logicalChannel) SessionAttached() { ch.attach(1) }

// SessionDetached implements session.Channel.
func (ch *logicalChannel) SessionDetached() { ch.attach(-1) }

func (ch *logicalChannel) attach(n int) {
	reclaimable := ch.peer.Load().Reclaimable
	if reclaimable == nil {
		return
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	before := ch.attached > 0
	ch.attached += n
	if after := ch.attached > 0; after != before {
		reclaimable(!after)
	}
}

// SessionBound and SessionUnbound implement session.Introduced: a session keeps its channel.
func (ch *logicalChannel) SessionBound() { ch.hold() }

// SessionUnbound implements session.Introduced.
func (ch *logicalChannel) SessionUnbound() { ch.release() }

// Close implements session.Channel: what is not answered yet never will be.
func (ch *logicalChannel) Close(_ transport.CloseReason, code ua.StatusCode) {
	ch.mu.Lock()
	var open []*call
	for _, c := range ch.pending {
		open = append(open, c)
	}
	ch.mu.Unlock()
	for _, c := range open {
		c.drop(code)
	}
}

// hold keeps the channel; false when it has ended.
func (ch *logicalChannel) hold() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.ended {
		return false
	}
	ch.held++
	return true
}

// release undoes one hold. The last one ends the channel.
func (ch *logicalChannel) release() {
	ch.mu.Lock()
	ch.held--
	last := ch.held == 0 && !ch.ended
	ch.ended = ch.ended || last
	ch.mu.Unlock()
	if last {
		ch.end()
	}
}

func (ch *logicalChannel) end() {
	close(ch.done)
	ch.calls.dispatch.closed(ch)
}

// add registers a call; nil when the channel has ended.
func (ch *logicalChannel) add(c transport.Call) *call {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.ended {
		return nil
	}
	ch.held++
	ch.last++
	own := &call{Call: c, ch: ch, id: ch.last}
	if ch.pending == nil {
		ch.pending = make(map[uint32]*call)
	}
	ch.pending[own.id] = own
	return own
}

func (ch *logicalChannel) find(id uint32) *call {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.pending[id]
}

// resultOffset is where the ServiceResult stands in a response: behind a type
// id of four bytes, the timestamp and the handle.
const resultOffset = 4 + 8 + 4

// Reply implements session.Channel.
func (ch *logicalChannel) Reply(requestID uint32, body []byte) error {
	return ch.answer(requestID, body, 0)
}

// answer is Reply with the hint that a refused client gets.
func (ch *logicalChannel) answer(requestID uint32, body []byte, hint time.Duration) error {
	c := ch.find(requestID)
	if c == nil {
		return uastatus.New(ua.StatusBadSecureChannelClosed, "reply", errNoCall)
	}
	code := ua.StatusOK
	if len(body) >= resultOffset+4 {
		code = ua.StatusCode(binary.LittleEndian.Uint32(body[resultOffset:]))
	}
	return c.respond(body, code, hint)
}

// A call is a transport.Call on its logical channel. Its end frees both.
type call struct {
	transport.Call
	ch *logicalChannel
	id uint32

	mu    sync.Mutex
	ended bool
	gone  func() bool // stops watching for the end of the call's context
}

// respond answers, once. BadResponseTooLarge leaves the call open.
func (c *call) respond(body []byte, code ua.StatusCode, hint time.Duration) error {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return uastatus.New(ua.StatusBadSecureChannelClosed, "reply", errNoCall)
	}
	err := c.Respond(body, code, hint)
	if err != nil && errors.Is(err, ua.StatusBadResponseTooLarge) {
		c.mu.Unlock()
		return err
	}
	c.finish()
	return err
}

// drop ends the call without an answer.
func (c *call) drop(code ua.StatusCode) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.Drop(code)
	c.finish()
}

// finish gives mu back and takes the call off its channel.
func (c *call) finish() {
	c.ended = true
	gone := c.gone
	c.gone = nil
	c.mu.Unlock()
	if gone != nil {
		gone()
	}
	c.ch.mu.Lock()
	delete(c.ch.pending, c.id)
	c.ch.mu.Unlock()
	c.ch.release()
}

// parked says that the request waits for something to report: it holds no body
// and no slot any more, and is dropped when its client stops waiting.
func (c *call) parked(s *session.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended { // answered already
		return
	}
	c.Park()
	engine := c.ch.calls.dispatch.set.Subscriptions
	c.gone = context.AfterFunc(c.Context(), func() {
		engine.DropPublish(s, c.ch, c.id, ua.StatusBadSecureChannelClosed)
	})
}
