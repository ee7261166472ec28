package stack

import (
	"math"
	"sync/atomic"

	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// HTTPOptions are for what comes over HTTPS and over WebSockets.
type HTTPOptions struct {
	// AllowPolicyNone offers the security policy None over HTTPS, and WebSockets
	// with JSON, also when Security.AllowNone is not set: TLS protects the
	// messages; what is missing is that applications prove who they are. Browsers
	// and scripts need it. Without it, and without Security.AllowNone, clients
	// over HTTPS sign with their application certificate, and a WebSocket with
	// JSON, which has no such signatures, is for discovery only.
	AllowPolicyNone bool
	// AllowSessionless lets Read, Browse and Write over HTTPS do without a session
	// (a null AuthenticationToken), with the rights of an anonymous caller; it
	// needs Security.AllowAnonymous. Not set: such requests are answered with
	// BadSessionIdInvalid.
	AllowSessionless bool
	// MaxSessionless bounds the requests without a session at once; more are
	// refused with BadServerTooBusy. 0: 32; negative is an error.
	MaxSessionless int
	// AllowedOrigins are the values of the header Origin, such as
	// "https://panel.example.org", from which web pages may use the server; "*"
	// is any. Empty: pages from the server's own host.
	AllowedOrigins []string
	// RequestsPerSecond and RequestBurst bound the HTTPS requests that carry no
	// token of a live session, over all clients; more are answered with status
	// 429. 0: no such limit; negative is an error. RequestBurst 0: 100.
	RequestsPerSecond float64
	RequestBurst      int
}

// Defaults.
const (
	defaultMaxSessionless = 32
	defaultRequestBurst   = 100
)

// checkWeb checks the options of HTTPS and of the governors.
func (o *Options) checkWeb() error {
	h := &o.HTTP
	switch {
	case h.MaxSessionless < 0:
		return bad("HTTP.MaxSessionless", "is negative")
	case h.RequestsPerSecond < 0 || math.IsNaN(h.RequestsPerSecond):
		return bad("HTTP.RequestsPerSecond", "is negative; 0 switches it off")
	case h.RequestBurst < 0:
		return bad("HTTP.RequestBurst", "is negative")
	case h.AllowSessionless && !o.Security.AllowAnonymous:
		return bad("HTTP.AllowSessionless", "gives the rights of anonymous, who is not allowed")
	}
	switch t := &o.TLS; {
	case (t.CertificateFile == "") != (t.KeyFile == ""):
		return bad("TLS", "has only one of CertificateFile and KeyFile")
	case t.RequireClientCertificate && t.ClientCAs == "":
		return bad("TLS.RequireClientCertificate", "needs ClientCAs")
	}
	_, err := newGovernors(&o.Governors)
	return err
}

// sessionless admits requests without a session.
type sessionless struct {
	allowed bool
	most    atomic.Int64
	running atomic.Int64
}

func (s *sessionless) configure(o *Options) {
	s.allowed = o.HTTP.AllowSessionless && o.Security.AllowAnonymous
	s.most.Store(int64(or(o.HTTP.MaxSessionless, defaultMaxSessionless)))
}

// admits reports whether a request without a token may go on without a session. A
// security policy is proven by the signatures of a session: without one the request
// has named it and no more, and gets no rights by that.
func (s *sessionless) admits(ch channel, e *service.Entry) bool {
	if !s.allowed || !e.Sessionless {
		return false
	}
	l, ok := ch.(*logicalChannel)
	return ok && !l.lasting && l.policy.IsNone()
}

// enter takes one of the places; leave gives it back.
func (s *sessionless) enter() ua.StatusCode {
	if s.running.Add(1) > s.most.Load() {
		s.running.Add(-1)
		return uastatus.BadServerTooBusy
	}
	return ua.StatusOK
}

func (s *sessionless) leave() { s.running.Add(-1) }
