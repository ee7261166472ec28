package transport

import (
	"context"
	"crypto/x509"
	"net/netip"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/gopcua/opcua/ua"
)

// Peer is the far end of a transport that carries whole messages and has no
// SecureChannel: an HTTP request, whose Peer lives as long as it does, or a
// WebSocket with the sub-protocol opcua+uajson. It is constant.
type Peer struct {
	// Profile is the TransportProfileUri (OPC 10000-7).
	Profile string
	// EndpointURL is the URL the peer reached, from the request line and Host,
	// unchecked.
	EndpointURL string
	// RemoteAddr is the client's address; behind a balancer the one that its
	// PROXY header carried.
	RemoteAddr, LocalAddr netip.AddrPort
	// Ingress is what a classifier claimed the connection as before its first
	// byte; the zero value when none did.
	Ingress isolation.OwnerClaim
	// Certificate is the client's of mutual TLS, verified; nil without.
	Certificate *x509.Certificate
	// Lasting is set for a WebSocket, which one client holds from its first to
	// its last message.
	Lasting bool
	// Reclaimable says whether a lasting peer's connection may be closed for a
	// newcomer when the server is full: it may, when nothing is under way, until
	// a session is activated over it. nil for all others.
	Reclaimable func(yes bool)
	// Done is closed when the peer has gone.
	Done <-chan struct{}
}

// Call is one request of a Peer. A transport implements it. Exactly one Respond
// or Drop ends it; both may come from any goroutine.
type Call interface {
	Peer() *Peer
	// Policy is what the header OPCUA-SecurityPolicy named (OPC 10000-6 §7.4.1,
	// HTTPS); None without one.
	Policy() *security.Policy
	// Body is the request in OPC UA Binary, type id first, valid until Park,
	// Respond or Drop.
	Body() []byte
	Received() time.Time
	// Context ends when nobody waits for the answer any more.
	Context() context.Context
	// Principal moves the request from the shared ingress slot to the account
	// of who sent it, once: after the session is found, before the handler
	// runs. It reports false when the account is full: the request is then
	// refused as busy. control and heavy say what kind of service it is.
	Principal(tenant, principal string, control, heavy bool) bool
	// Park says that the answer may take as long as it likes (Publish): body
	// and slots are given back.
	Park()
	// Respond answers with body, OPC UA Binary, type id first, which is copied.
	// hint, when not 0, is when a client that was refused should come back.
	// BadResponseTooLarge says that nothing was sent; the call goes on.
	Respond(body []byte, code ua.StatusCode, hint time.Duration) error
	// Drop ends the call without an answer: the server or its session ended.
	Drop(code ua.StatusCode)
}

// CallHandler is the layer above transports that carry whole messages.
type CallHandler interface {
	// Call takes a complete request and must not block.
	Call(c Call)
	// Gone comes once for each lasting Peer that had a Call, after its last one.
	Gone(p *Peer)
}
