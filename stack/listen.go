package stack

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/https"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
)

// listening is the part of a Server that has to do with sockets.
type listening struct {
	connections *transport.Gate
	deadlines   *transport.Deadlines
	channels    *securechannel.Server
	transport   *transport.LiveLimits
	closes      []atomic.Uint64 // connections ended, by transport.CloseReason

	serving context.Context // of the accept loops
	stop    context.CancelFunc

	mu        sync.Mutex
	listeners []listener
	served    int            // so many of listeners, the first ones, are or were served
	open      bool           // the configured URLs are listened on
	stopped   bool           // no more listeners
	wg        sync.WaitGroup // accept loops, watchTrust
	failed    chan error     // of accept loops
	rate      struct {       // of HTTPS requests without a live session; 0 = none
		perSecond float64
		burst     int
	}
}

// shutdownGrace is what requests that run get when Run's context ends.
const shutdownGrace = 10 * time.Second

func (s *Server) newListening() error {
	o := &s.opts
	gate, err := transport.NewGate(s.gateOptions(o))
	if err != nil {
		return &OptionError{Field: "RateLimits", Reason: err.Error()}
	}
	s.transport = transport.NewLiveLimits(o.Limits.transport())
	channels, err := securechannel.NewServer(s.channelConfig())
	if err != nil {
		return err
	}
	s.connections, s.channels, s.deadlines = gate, channels, transport.NewDeadlines()
	s.closes = make([]atomic.Uint64, len(transport.Reasons())+1)
	s.failed = make(chan error, 1)
	s.rate.perSecond, s.rate.burst = o.HTTP.RequestsPerSecond, or(o.HTTP.RequestBurst, defaultRequestBurst)
	s.serving, s.stop = context.WithCancel(context.Background())
	s.wg.Go(func() { s.watchServiceLevel(s.serving) })
	if s.pki != nil && !s.opts.Security.TrustAll {
		s.wg.Go(func() { s.watchTrust(s.serving) })
	}
	return nil
}

// gateOptions are what connections are admitted by under options, which are
// those of the server or others that are to come into force.
func (s *Server) gateOptions(o *Options) transport.GateOptions {
	return transport.GateOptions{
		MaxConnections:          o.Limits.MaxChannels,
		ConnectionsPerSecond:    float64(o.RateLimits.ConnectionsPerSecond),
		ConnectionBurst:         o.RateLimits.ConnectionBurst,
		ConnectionsUnlimited:    o.RateLimits.Disabled || o.RateLimits.ConnectionsUnlimited,
		PoliteRefusalsPerSecond: o.RateLimits.PoliteRefusalsPerSecond,
		Limiter:                 o.ConnectionLimiter,
		PerAddress:              s.perAddress,
		Isolation:               s.provider,
		Classifier:              o.Classifier,
		Hint:                    s.planner.SlotWithin,
		ProxyPeers:              o.ProxyPeers,
		Shadow:                  o.Shadow,
		HelloTimeout:            o.Limits.HelloTimeout,
		Logger:                  s.log,
	}
}

func (s *Server) listenerOptions() uatcp.Options {
	return uatcp.Options{
		NewSink:   s.channels.NewSink,
		Gate:      s.connections,
		Deadlines: s.deadlines,
		Backlog:   s.opts.RateLimits.ListenBacklog,
		Limits:    s.opts.Limits.transport(), LiveLimits: s.transport,
		Closed: func(_ netip.AddrPort, reason transport.CloseReason) {
			if int(reason) < len(s.closes) {
				s.closes[reason].Add(1)
			}
		},
		Logger: s.log,
	}
}

// A listener accepts the connections of one port. Serving one with a context
// that has ended closes it.
type listener interface {
	Addr() net.Addr
	Serve(ctx context.Context) error
}

// Listen opens the sockets of Options.Endpoints, so that Addrs tells which ports
// were taken; connections wait until Run. Run calls it when nobody has.
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrServerClosed
	}
	if s.open {
		return nil
	}
	configured, err := s.opts.urls()
	if err != nil {
		return err
	}
	var opened []listener
	urls := slices.Clone(configured)
	for _, p := range portsOf(configured) {
		l, err := s.openPort(ctx, p, configured)
		if err != nil {
			abandon(opened)
			return fmt.Errorf("stack: endpoint %s: %w", configured[p[0]], err)
		}
		opened = append(opened, l)
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			for _, i := range p {
				urls[i] = withPort(configured[i], a.Port)
			}
		}
	}
	s.listeners = append(s.listeners, opened...)
	s.open = true
	s.announce.setURLs(urls)
	return nil
}

// portsOf gathers URLs that share a listener, by index: those of one host and
// port, each scheme once.
func portsOf(urls []*url.URL) (ports [][]int) {
next:
	for i, u := range urls {
		for k, p := range ports {
			if listenOn(urls[p[0]]) == listenOn(u) && !slices.ContainsFunc(p, func(j int) bool { return schemeOf(urls[j]) == schemeOf(u) }) {
				ports[k] = append(p, i)
				continue next
			}
		}
		ports = append(ports, []int{i})
	}
	return ports
}

// openPort listens for the URLs of one port. mu is held.
func (s *Server) openPort(ctx context.Context, port []int, urls []*url.URL) (listener, error) {
	var o https.Options
	for _, i := range port {
		switch schemeOf(urls[i]) {
		case schemeTCP:
			o.OPCTCP = true
		case schemeWSS:
			o.WSS = true
		case schemeHTTPS:
			o.HTTPS = true
		}
	}
	at := listenOn(urls[port[0]])
	if !o.WSS && !o.HTTPS {
		return uatcp.Listen(ctx, at, s.listenerOptions())
	}
	if err := s.webOptions(&o); err != nil {
		return nil, err
	}
	return https.Listen(ctx, at, o)
}

// Addrs returns the addresses that are listened on.
func (s *Server) Addrs() []net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	var addrs []net.Addr
	for _, l := range s.listeners {
		addrs = append(addrs, l.Addr())
	}
	return addrs
}

// URLs returns the configured endpoint URLs, with the ports that were taken.
func (s *Server) URLs() []string {
	var out []string
	for _, u := range s.announce.configured() {
		out = append(out, u.String())
	}
	return out
}

// Run listens on the configured endpoints and serves until ctx ends; then it
// shuts the server down, giving running requests 10 s, and returns nil once
// every goroutine has ended. It returns ErrServerClosed when Shutdown was
// called, and the error when an endpoint cannot be listened on.
func (s *Server) Run(ctx context.Context) error {
	err := s.run(ctx)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if down := s.Shutdown(grace); err == nil && ctx.Err() != nil {
		err = down
	}
	return err
}

func (s *Server) run(ctx context.Context) error {
	if err := s.Listen(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return ErrServerClosed
	}
	unserved := s.listeners[s.served:]
	s.served = len(s.listeners)
	for _, l := range unserved {
		s.wg.Go(func() {
			if err := l.Serve(s.serving); err != nil {
				select {
				case s.failed <- err:
				default:
				}
			}
		})
	}
	s.mu.Unlock()
	s.greet()
	select {
	case <-ctx.Done():
		return nil
	case <-s.closing:
		return ErrServerClosed
	case err := <-s.failed:
		return fmt.Errorf("stack: %w", err)
	}
}

// greet logs what an operator wants to see, and warns of what he might not.
func (s *Server) greet() {
	o := &s.opts
	s.log.Info("server running", "endpoints", s.URLs(), "applicationUri", o.ApplicationURI)
	switch {
	case o.Security.TrustAll:
		s.log.Warn("every client certificate is trusted: for demos and tests only")
	case o.Security.AllowNone && o.Security.AllowAnonymous:
		s.log.Warn("anybody may connect without security or identity")
	}
	if len(s.announce.tokens) == 0 {
		s.log.Warn("nobody can log in: there is no Authenticator and Security.AllowAnonymous is not set")
	}
}

// Serve serves opc.tcp on a listener of the caller's, in memory for instance,
// until the server ends; the listener is closed then. It may run beside Run or
// without it.
func (s *Server) Serve(ln net.Listener) error {
	l, err := uatcp.New(ln, s.listenerOptions())
	if err != nil {
		return err
	}
	return s.serve(l, ln)
}

// ServeTLS is Serve for opc.wss and opc.https.
func (s *Server) ServeTLS(ln net.Listener) error {
	o := https.Options{WSS: true, HTTPS: true}
	s.mu.Lock()
	err := s.webOptions(&o)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	l, err := https.New(ln, o)
	if err != nil {
		return err
	}
	return s.serve(l, ln)
}

func (s *Server) serve(l listener, ln net.Listener) error {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		_ = ln.Close()
		return ErrServerClosed
	}
	s.listeners = slices.Insert(s.listeners, s.served, l)
	s.served++
	done := make(chan error, 1)
	s.wg.Go(func() { done <- l.Serve(s.serving) })
	s.mu.Unlock()
	if err := <-done; err != nil {
		return err
	}
	return ErrServerClosed
}

// webOptions fills in what a listener with TLS needs. mu is held.
func (s *Server) webOptions(o *https.Options) error {
	if s.stopped {
		return ErrServerClosed
	}
	if s.tls == nil {
		if err := s.openTLS(); err != nil {
			return err
		}
		s.wg.Go(func() { s.tls.watch(s.serving) })
	}
	t, h := s.listenerOptions(), &s.opts.HTTP
	o.NewSink, o.Gate, o.Deadlines, o.Backlog, o.Limits, o.LiveLimits, o.Closed, o.Logger = t.NewSink, t.Gate, t.Deadlines, t.Backlog, t.Limits, t.LiveLimits, t.Closed, t.Logger
	o.Calls, o.Live = s.calls, s.calls.Live
	o.TLS, o.CryptoGate = s.tls.config(), s.gate
	o.Isolation, o.Budget, o.Governor = s.provider, s.budget, s.governors.http
	o.RetryAfter = s.dispatch.retryAfter
	o.RequestsPerSecond, o.RequestBurst = s.rate.perSecond, s.rate.burst
	o.AllowedOrigins = h.AllowedOrigins
	o.Decoding, o.Tables = &s.dispatch.decoding, s.tables.current
	return nil
}

// retryAfter is when those may come back whom a listener has refused.
func (d *dispatcher) retryAfter(time.Time) time.Duration {
	if d.draining.Load() {
		return drainRetry
	}
	return d.workHint()
}

// refuseConnections makes the gate refuse newcomers as busy.
func (s *Server) refuseConnections(retry time.Duration) {
	s.connections.Stop(retry)
}

// closeListening ends the accept loops and all connections and waits for them.
func (s *Server) closeListening() {
	s.mu.Lock()
	s.stopped = true
	unserved := s.listeners[s.served:]
	s.mu.Unlock()
	s.stop()
	s.wg.Wait()
	abandon(unserved)
	s.deadlines.Close()
}

// abandon closes listeners that were never served.
func abandon(ls []listener) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, l := range ls {
		_ = l.Serve(ctx)
	}
}

// collectConnections adds the transport's metrics.
func (s *Server) collectConnections(c *collector, gauge, counter func(d *prometheus.Desc, v float64, labels ...string)) {
	u := s.connections.Usage()
	gauge(c.connections, float64(u.Connections))
	for name, p := range u.Ports {
		counter(c.connectionsAccepted, float64(p.Admitted), name)
		for reason, n := range p.Refused {
			counter(c.connectionsRefused, float64(n), name, reason.String())
		}
	}
	for _, r := range transport.Reasons() {
		counter(c.connectionCloses, float64(s.closes[r].Load()), r.String())
	}
}
