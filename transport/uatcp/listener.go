package uatcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

// DefaultBacklog is the length of the queue of connections not yet accepted.
const DefaultBacklog = 512

// Options configure a Listener. Only NewSink is required.
type Options struct {
	// NewSink makes the upper half of a connection once its Hello is accepted;
	// securechannel.Server.NewSink is one.
	NewSink func(transport.Conn) transport.Sink

	// Gate is shared by all listeners of a server; nil = one of its own with
	// default options.
	Gate *transport.Gate

	// Deadlines is shared by all listeners of a server; nil = one of its own.
	Deadlines *transport.Deadlines

	// MaxConnections is this listener's own cap; 0 = none.
	MaxConnections int

	// Silent closes refused connections without the polite ERR, for listeners
	// behind TLS or on a port that several protocols share.
	Silent bool

	// Backlog for Listen; ≤ 0 = 512.
	Backlog int

	// Limits of each connection.
	Limits transport.Limits

	// Closed is told of each connection's end, for metrics; nil = nobody.
	Closed func(remote netip.AddrPort, reason transport.CloseReason)

	// Portable avoids raw system calls also where they are available.
	Portable bool

	// Logger; nil = slog.Default().
	Logger *slog.Logger
}

// Listener serves opc.tcp on one net.Listener.
type Listener struct {
	ln        net.Listener
	gate      *transport.Gate
	port      transport.Port
	deadlines *transport.Deadlines
	own       bool // deadlines are
	limits    transport.Limits
	newSink   func(transport.Conn) transport.Sink
	onClosed  func(netip.AddrPort, transport.CloseReason)
	portable  bool
	log       *slog.Logger
	refusals  refusals
	retries   atomic.Uint64

	wg sync.WaitGroup // connections

	mu       sync.Mutex
	conns    map[*conn]struct{}
	stopping bool
}

// Listen opens a TCP socket on addr ("host:port") with the wanted backlog.
func Listen(ctx context.Context, addr string, o Options) (*Listener, error) {
	lc := listenConfig()
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	l, err := New(ln, o)
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	backlog := o.Backlog
	if backlog <= 0 {
		backlog = DefaultBacklog
	}
	if err := setBacklog(ln.(*net.TCPListener), backlog); err != nil {
		l.log.Info("listen backlog left at the system's default", "error", err)
	} else if most := somaxconn(); most > 0 && most < backlog {
		l.log.Info("listen backlog cut by net.core.somaxconn", "wanted", backlog, "somaxconn", most)
	}
	return l, nil
}

// somaxconn is the kernel's bound on backlogs; 0 = unknown.
func somaxconn() int {
	b, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}

// New serves an existing net.Listener: TCP, or one in memory.
func New(ln net.Listener, o Options) (*Listener, error) {
	if o.NewSink == nil {
		return nil, errors.New("uatcp: Options.NewSink is nil")
	}
	if err := o.Limits.Validate(); err != nil {
		return nil, err
	}
	l := &Listener{
		ln: ln, gate: o.Gate, deadlines: o.Deadlines, limits: o.Limits.Resolved(),
		newSink: o.NewSink, onClosed: o.Closed, portable: o.Portable, log: o.Logger,
		conns: make(map[*conn]struct{}),
	}
	l.port.Max, l.port.Silent = o.MaxConnections, o.Silent
	if l.log == nil {
		l.log = slog.Default()
	}
	if l.gate == nil {
		g, err := transport.NewGate(transport.GateOptions{HelloTimeout: l.limits.HelloTimeout, Logger: o.Logger})
		if err != nil {
			return nil, err
		}
		l.gate = g
	}
	if l.deadlines == nil {
		l.deadlines, l.own = transport.NewDeadlines(), true
	}
	return l, nil
}

// Addr is the address that the listener is bound to.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Connections is the number of connections that have not ended.
func (l *Listener) Connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// AcceptErrors is the number of errors that accepting has survived.
func (l *Listener) AcceptErrors() uint64 { return l.retries.Load() }

const (
	firstBackoff = 5 * time.Millisecond
	lastBackoff  = time.Second
)

// Serve accepts connections until ctx ends; then it stops accepting, closes
// every connection with ERR BadServerHalted and returns once all have ended.
// It never reads in the accept loop, and no error of a connection, nor a lack
// of descriptors, ends it: only the end of the net.Listener does, which is
// returned as an error unless ctx ended first.
func (l *Listener) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = l.ln.Close() })
	defer stop()
	err := l.accept(ctx)
	_ = l.ln.Close()
	l.closeAll(transport.Shutdown, ua.StatusBadServerHalted)
	l.wg.Wait()
	l.refusals.close()
	if l.own {
		l.deadlines.Close()
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (l *Listener) accept(ctx context.Context) error {
	backoff := firstBackoff
	for {
		nc, err := l.ln.Accept()
		switch {
		case err == nil:
			backoff = firstBackoff
			l.admit(nc)
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return fmt.Errorf("uatcp: accept: %w", err)
		default:
			// Descriptors exhausted, a connection reset in the backlog, ...
			l.retries.Add(1)
			l.log.Warn("accept failed, going on", "error", err, "backoff", backoff)
			select {
			case <-time.After(backoff):
			case <-ctx.Done():
			}
			backoff = min(2*backoff, lastBackoff)
		}
	}
}

// admit takes over an accepted socket. It runs in the accept loop: no reads,
// and nothing that waits.
func (l *Listener) admit(nc net.Conn) {
	now := time.Now()
	remote := addrPort(nc.RemoteAddr())
	local := addrPort(nc.LocalAddr())
	a, refusal := l.gate.Admit(remote, local, &l.port)
	if a == nil {
		l.log.Debug("connection refused", "remote", remote, "reason", refusal.Reason)
		l.refuse(nc, refusal)
		return
	}
	c := &conn{
		listener: l, nc: nc, admission: a, remote: remote, local: local,
		done: make(chan struct{}), resume: make(chan struct{}, 1),
	}
	c.stage.Expired = c.stageExpired
	c.assembly.Expired = c.assemblyExpired
	c.out.Init(c, &l.limits)
	c.initSocket()
	a.Bind(c)
	l.mu.Lock()
	l.conns[c] = struct{}{}
	stopping := l.stopping
	l.mu.Unlock()
	if stopping {
		c.Close(transport.Shutdown, ua.StatusBadServerHalted, "")
	}
	l.wg.Go(func() { c.serve(now) })
}

func (l *Listener) ended(c *conn, reason transport.CloseReason) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	l.log.Debug("connection closed", "remote", c.remote, "reason", reason)
	if l.onClosed != nil {
		l.onClosed(c.remote, reason)
	}
}

func (l *Listener) closeAll(reason transport.CloseReason, code ua.StatusCode) {
	l.mu.Lock()
	l.stopping = true
	conns := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		c.Close(reason, code, "")
	}
}

// refuse answers and closes a socket that the Gate did not take.
func (l *Listener) refuse(nc net.Conn, r transport.Refusal) {
	if !r.Polite {
		_ = nc.Close()
		return
	}
	l.refusals.add(nc, (&Error{Code: ua.StatusBadTCPServerTooBusy, Reason: r.Text()}).Append(nil))
}

func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	ap, _ := netip.ParseAddrPort(a.String())
	return ap
}
