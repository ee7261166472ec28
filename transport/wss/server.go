package wss

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uajson"
	"github.com/coder/websocket"
	"github.com/gopcua/opcua/ua"
)

// Options configure a Server. At least one of UACP and Calls is needed.
type Options struct {
	// UACP serves what comes with opcua+uacp; nil = the sub-protocol is not
	// offered. It is the caller's to close.
	UACP *uatcp.Server
	// Calls takes the requests of opcua+uajson; nil = not offered.
	Calls transport.CallHandler

	// AllowedOrigins are the origins of web pages, other than the host itself,
	// that may connect: a host ("dashboard.example:8443") or an origin with its
	// scheme ("https://*.example"), in the manner of path.Match. nil = none.
	AllowedOrigins []string

	// Limits of each connection.
	Limits transport.Limits
	// LiveLimits shares limits that may change with the other listeners of a server;
	// nil = Limits as they are.
	LiveLimits *transport.LiveLimits
	// Deadlines is shared by all listeners.
	Deadlines *transport.Deadlines
	// Memory accounts for messages over 64 KiB of opcua+uajson.
	Memory transport.Memory
	// Governor admits the requests of opcua+uajson; nil = no bound but Limits'.
	Governor *admission.HTTPGovernor
	// RetryAfter is when a client that is refused should come back; nil = 1 s.
	RetryAfter func(now time.Time) time.Duration
	// Decoding bounds JSON messages; nil = the defaults.
	Decoding *uabinary.Limits
	// Tables are the server's NamespaceArray and ServerArray of the moment, with
	// which JSON has ids with their URIs (OPC 10000-6 §5.4.2.10, NodeId). It is
	// asked twice for each request. nil = ids have their indexes.
	Tables func() *uajson.Context

	// Closed is told of each end of a connection with opcua+uajson, for metrics;
	// nil = nobody.
	Closed func(remote netip.AddrPort, reason transport.CloseReason)
	// Logger; nil = slog.Default().
	Logger *slog.Logger
}

// Server makes WebSockets of HTTP/1.1 requests, and serves them.
type Server struct {
	o        Options
	limits   *transport.LiveLimits
	offered  []string
	log      *slog.Logger
	decoding *uabinary.Limits
	tables   func() *uajson.Context // never nil

	wg sync.WaitGroup // JSON connections

	mu       sync.Mutex
	conns    map[*jsonConn]struct{}
	stopping bool
}

// NewServer returns a Server, or an error that names the bad option.
func NewServer(o Options) (*Server, error) {
	s := &Server{o: o, limits: o.LiveLimits, log: o.Logger, decoding: o.Decoding, tables: o.Tables, conns: make(map[*jsonConn]struct{})}
	if s.tables == nil {
		s.tables = func() *uajson.Context { return nil }
	}
	if s.limits == nil {
		s.limits = transport.NewLiveLimits(o.Limits)
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if o.UACP != nil {
		s.offered = append(s.offered, SubprotocolUACP)
	}
	if o.Calls != nil {
		s.offered = append(s.offered, SubprotocolJSON)
	}
	if len(s.offered) == 0 {
		return nil, errors.New("wss: Options.UACP and Options.Calls are both nil")
	}
	if o.Deadlines == nil {
		return nil, errors.New("wss: Options.Deadlines is nil")
	}
	if err := o.Limits.Validate(); err != nil {
		return nil, err
	}
	for _, origin := range o.AllowedOrigins {
		if _, err := path.Match(strings.ToLower(origin), ""); err != nil {
			return nil, fmt.Errorf("wss: Options.AllowedOrigins: %q: %w", origin, err)
		}
	}
	return s, nil
}

// Asked reports whether a request asks for a WebSocket (RFC 6455 §4.1, Client
// Requirements).
func Asked(r *http.Request) bool {
	if r.ProtoMajor != 1 {
		return false
	}
	for _, list := range r.Header["Upgrade"] { // RFC 9110 §7.8, Upgrade
		for v := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(v), "websocket") {
				return true
			}
		}
	}
	return false
}

// Serve answers a request for a WebSocket and serves it on the calling goroutine
// until it has ended. a is the connection below TLS, whose Admission is released
// then. upgraded is called when the change of protocols was answered; before, an
// error has been, and the connection goes on as it was. What is checked, in this
// order:
//
//	governor full                     503 with Retry-After
//	no sub-protocol that is served    400
//	a foreign Origin, or two          403
//	not a proper request              400, 405 or 426
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, a transport.Accepted, upgraded func()) {
	release := func() {} // the slot is for the change of protocols alone
	if g := s.o.Governor; g != nil {
		lease, err := g.Ingress(r.Context(), 0)
		if err != nil {
			w.Header().Set("Retry-After", retrySeconds(s.o.RetryAfter))
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		release = lease.Release
		defer release()
	}
	subprotocol := s.choose(r)
	if subprotocol == "" {
		http.Error(w, "Sec-WebSocket-Protocol: need "+strings.Join(s.offered, " or "), http.StatusBadRequest)
		return
	}
	if len(r.Header["Origin"]) > 1 { // websocket.Accept looks at the first
		http.Error(w, "more than one Origin", http.StatusForbidden)
		return
	}
	h := &hijacker{ResponseWriter: w}
	ws, err := websocket.Accept(h, r, &websocket.AcceptOptions{
		Subprotocols: []string{subprotocol}, OriginPatterns: s.o.AllowedOrigins, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		s.log.Debug("WebSocket refused", "remote", a.Remote, "error", err)
		return
	}
	release()
	upgraded()
	if subprotocol == SubprotocolUACP {
		a.Conn = &chunks{socket: h.socket, ws: ws}
		s.o.UACP.Serve(a)
		return
	}
	s.json(ws, h.socket, r, a)
}

// choose is the first sub-protocol of ours that the client offers.
func (s *Server) choose(r *http.Request) string {
	for _, ours := range s.offered {
		for _, v := range r.Header["Sec-Websocket-Protocol"] {
			for theirs := range strings.SplitSeq(v, ",") {
				if strings.EqualFold(strings.TrimSpace(theirs), ours) {
					return ours
				}
			}
		}
	}
	return ""
}

// retrySeconds is a Retry-After: whole seconds, rounded up.
func retrySeconds(f func(time.Time) time.Duration) string {
	d := time.Second
	if f != nil {
		d = f(time.Now())
	}
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}

// Close ends every connection with opcua+uajson, also those that are yet to
// come, and returns once all have ended.
func (s *Server) Close() {
	s.mu.Lock()
	s.stopping = true
	conns := make([]*jsonConn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.close(transport.Shutdown, ua.StatusBadServerHalted)
	}
	s.wg.Wait()
}
