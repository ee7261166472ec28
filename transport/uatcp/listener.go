package uatcp

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

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
	// LiveLimits shares limits that may change with the other listeners of a server;
	// nil = Limits as they are.
	LiveLimits *transport.LiveLimits

	// Closed is told of each connection's end, for metrics; nil = nobody.
	Closed func(remote netip.AddrPort, reason transport.CloseReason)

	// Portable avoids raw system calls also where they are available.
	Portable bool

	// Logger; nil = slog.Default().
	Logger *slog.Logger
}

// Listener serves opc.tcp on one net.Listener.
type Listener struct {
	acceptor transport.Acceptor
	server   *Server
	refusals refusals
}

// Listen opens a TCP socket on addr ("host:port") with the wanted backlog.
func Listen(ctx context.Context, addr string, o Options) (*Listener, error) {
	ln, err := Socket(ctx, addr, o.Backlog, o.Logger)
	if err != nil {
		return nil, err
	}
	l, err := New(ln, o)
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	return l, nil
}

// Socket opens a TCP socket on addr ("host:port") whose queue of connections
// that are not accepted yet has the wanted length, ≤ 0 = 512, and whose
// connections notice when their peer has vanished. A nil logger is slog.Default().
func Socket(ctx context.Context, addr string, backlog int, log *slog.Logger) (net.Listener, error) {
	lc := listenConfig()
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if backlog <= 0 {
		backlog = DefaultBacklog
	}
	if log == nil {
		log = slog.Default()
	}
	if err := setBacklog(ln.(*net.TCPListener), backlog); err != nil {
		log.Info("listen backlog left at the system's default", "error", err)
	} else if most := somaxconn(); most > 0 && most < backlog {
		log.Info("listen backlog cut by net.core.somaxconn", "wanted", backlog, "somaxconn", most)
	}
	return ln, nil
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
	s, err := NewServer(o)
	if err != nil {
		return nil, err
	}
	l := &Listener{server: s}
	l.acceptor = transport.Acceptor{
		Listener: ln, Gate: s.gate, Logger: s.log,
		Port:   transport.Port{Name: ln.Addr().String(), Max: o.MaxConnections, Silent: o.Silent},
		Take:   l.take,
		Refuse: l.refuse,
	}
	return l, nil
}

// Addr is the address that the listener is bound to.
func (l *Listener) Addr() net.Addr { return l.acceptor.Listener.Addr() }

// Connections is the number of connections that have not ended.
func (l *Listener) Connections() int { return l.server.Connections() }

// AcceptErrors is the number of errors that accepting has survived.
func (l *Listener) AcceptErrors() uint64 { return l.acceptor.Errors() }

// Serve accepts connections until ctx ends; then it stops accepting, closes
// every connection with ERR BadServerHalted and returns once all have ended.
// It never reads in the accept loop, and no error of a connection, nor a lack
// of descriptors, ends it: only the end of the net.Listener does, which is
// returned as an error unless ctx ended first.
func (l *Listener) Serve(ctx context.Context) error {
	ln := l.acceptor.Listener
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	err := l.acceptor.Run(ctx)
	_ = ln.Close()
	l.server.Close(transport.Shutdown, ua.StatusBadServerHalted)
	l.refusals.close()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// take runs in the accept loop: no reads, and nothing that waits.
func (l *Listener) take(a transport.Accepted) {
	c := l.server.take(a)
	l.server.wg.Go(c.serve)
}

// refuse answers and closes a socket that the Gate did not take.
func (l *Listener) refuse(nc net.Conn, r transport.Refusal) {
	if !r.Polite {
		_ = nc.Close()
		return
	}
	l.refusals.add(nc, (&Error{Code: ua.StatusBadTCPServerTooBusy, Reason: r.Text()}).Append(nil))
}
