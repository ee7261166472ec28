package uatcp

import (
	"errors"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

// Server serves connections that were admitted: its own Listener's, those that a
// port shared by several protocols hands over, and WebSockets (Framed).
type Server struct {
	gate      *transport.Gate
	deadlines *transport.Deadlines
	own       bool // deadlines are
	limits    *transport.LiveLimits
	newSink   func(transport.Conn) transport.Sink
	onClosed  func(netip.AddrPort, transport.CloseReason)
	portable  bool
	log       *slog.Logger

	wg sync.WaitGroup // connections

	mu       sync.Mutex
	conns    map[*conn]struct{}
	stopping bool
	reason   transport.CloseReason // of the stop
	code     ua.StatusCode
}

// NewServer returns a Server without a listener. Of the options it leaves those
// of listeners alone: MaxConnections, Silent and Backlog.
func NewServer(o Options) (*Server, error) {
	if o.NewSink == nil {
		return nil, errors.New("uatcp: Options.NewSink is nil")
	}
	if err := o.Limits.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		gate: o.Gate, deadlines: o.Deadlines, limits: o.LiveLimits,
		newSink: o.NewSink, onClosed: o.Closed, portable: o.Portable, log: o.Logger,
		conns: make(map[*conn]struct{}),
	}
	if s.limits == nil {
		s.limits = transport.NewLiveLimits(o.Limits)
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.gate == nil {
		g, err := transport.NewGate(transport.GateOptions{HelloTimeout: s.limits.Load().HelloTimeout, Logger: o.Logger})
		if err != nil {
			return nil, err
		}
		s.gate = g
	}
	if s.deadlines == nil {
		s.deadlines, s.own = transport.NewDeadlines(), true
	}
	return s, nil
}

// Connections is the number of connections that have not ended.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Serve serves a connection on the calling goroutine until it has ended; its
// Admission is released then.
func (s *Server) Serve(a transport.Accepted) {
	s.mu.Lock()
	awaited := !s.stopping // else Close may have done with waiting
	if awaited {
		s.wg.Add(1)
		defer s.wg.Done()
	}
	s.mu.Unlock()
	s.take(a).serve()
}

// take makes a connection of what was accepted.
func (s *Server) take(a transport.Accepted) *conn {
	c := &conn{
		server: s, nc: a.Conn, admission: a.Admission, remote: a.Remote, local: a.Local, accepted: a,
		done: make(chan struct{}), resume: make(chan struct{}, 1),
	}
	c.stage.Expired = c.stageExpired
	c.assembly.Expired = c.assemblyExpired
	c.out.Init(c, s.limits.Load())
	c.framed, _ = a.Conn.(Framed)
	c.initSocket()
	a.Admission.Bind(c)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	stopping, reason, code := s.stopping, s.reason, s.code
	s.mu.Unlock()
	if stopping {
		c.Close(reason, code, "")
	}
	return c
}

func (s *Server) ended(c *conn, reason transport.CloseReason) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.log.Debug("connection closed", "remote", c.remote, "reason", reason)
	if s.onClosed != nil {
		s.onClosed(c.remote, reason)
	}
}

// Close closes every connection, also those that are yet to come, and returns
// once all have ended. Whoever hands connections over has stopped.
func (s *Server) Close(reason transport.CloseReason, code ua.StatusCode) {
	s.mu.Lock()
	s.stopping, s.reason, s.code = true, reason, code
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.Close(reason, code, "")
	}
	s.wg.Wait()
	if s.own {
		s.deadlines.Close()
	}
}
