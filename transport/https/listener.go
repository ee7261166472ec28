package https

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/breakwater-ua/breakwater/transport/wss"
	"github.com/breakwater-ua/breakwater/uajson"
	"github.com/gopcua/opcua/ua"
	"golang.org/x/time/rate"
)

var errNoCertificate = errors.New("https: no certificate")

// Bounds of HTTP that nobody needs to tune.
const (
	maxHeaderBytes = 16 << 10
	idleTimeout    = 2 * time.Minute // of a connection between requests
	// streamsPerConnection is what an HTTP/2 client may have under way, in which
	// long polls are counted: Publish requests of a few sessions.
	streamsPerConnection = 250
	streamWindow         = 64 << 10 // bytes of a body that are received before it is read
	connectionWindow     = 256 << 10
)

// Listener serves one port.
type Listener struct {
	o         Options
	limits    *transport.LiveLimits
	log       *slog.Logger
	acceptor  transport.Acceptor
	deadlines *transport.Deadlines
	own       bool // deadlines are
	memory    transport.Memory
	tls       *tls.Config
	turns     chan struct{} // of TLS handshakes; see conn.awaitTurn
	http      *http.Server
	queue     queue // connections on their way to http

	tcp  *uatcp.Server // opc.tcp and the chunks of opc.wss; nil = neither
	wss  *wss.Server   // nil = no opc.wss
	wg   sync.WaitGroup
	rate limiter

	mu       sync.Mutex
	conns    map[*conn]struct{}
	plains   int // connections with opc.tcp
	stopping bool
}

// Listen opens a TCP socket on addr ("host:port").
func Listen(ctx context.Context, addr string, o Options) (*Listener, error) {
	ln, err := uatcp.Socket(ctx, addr, o.Backlog, o.Logger)
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

// New serves an existing net.Listener: TCP, or one in memory.
func New(ln net.Listener, o Options) (*Listener, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	l := &Listener{
		o: o, limits: o.LiveLimits, log: o.Logger, deadlines: o.Deadlines,
		memory: transport.Memory{Isolation: o.Isolation, Budget: o.Budget},
		queue:  queue{addr: ln.Addr(), ch: make(chan net.Conn), done: make(chan struct{})},
		conns:  make(map[*conn]struct{}),
		turns:  make(chan struct{}, min(runtime.NumCPU(), runtime.GOMAXPROCS(0))),
	}
	if l.limits == nil {
		l.limits = transport.NewLiveLimits(o.Limits)
	}
	if l.log == nil {
		l.log = slog.Default()
	}
	if l.o.Tables == nil {
		l.o.Tables = func() *uajson.Context { return nil }
	}
	gate := o.Gate
	if gate == nil {
		var err error
		if gate, err = transport.NewGate(transport.GateOptions{HelloTimeout: l.limits.Load().HelloTimeout, Logger: l.log}); err != nil {
			return nil, err
		}
	}
	if l.deadlines == nil {
		l.deadlines, l.own = transport.NewDeadlines(), true
	}
	if err := l.uacp(gate); err != nil {
		return nil, err
	}
	l.acceptor = transport.Acceptor{
		Listener: ln, Gate: gate, Logger: l.log,
		Port:   transport.Port{Name: ln.Addr().String(), Max: o.MaxConnections, Silent: true},
		Take:   l.take,
		Refuse: func(nc net.Conn, _ transport.Refusal) { _ = nc.Close() },
	}
	l.SetRate(o.RequestsPerSecond, o.RequestBurst)
	if o.TLS != nil {
		l.tls = config(&o)
	}
	l.http = l.server()
	return l, nil
}

// uacp makes what serves opc.tcp and opc.wss.
func (l *Listener) uacp(gate *transport.Gate) (err error) {
	o := &l.o
	if o.NewSink != nil && (o.OPCTCP || o.WSS) {
		l.tcp, err = uatcp.NewServer(uatcp.Options{
			NewSink: o.NewSink, Gate: gate, Deadlines: l.deadlines, Limits: o.Limits, LiveLimits: l.limits, Closed: o.Closed, Logger: o.Logger,
		})
		if err != nil {
			return err
		}
	}
	if o.WSS {
		l.wss, err = wss.NewServer(wss.Options{
			UACP: l.tcp, Calls: o.Calls, AllowedOrigins: o.AllowedOrigins, Limits: o.Limits, LiveLimits: l.limits, Deadlines: l.deadlines,
			Memory: l.memory, Governor: o.Governor, RetryAfter: o.RetryAfter, Decoding: o.Decoding, Tables: o.Tables, Closed: o.Closed, Logger: o.Logger,
		})
	}
	return err
}

func (l *Listener) server() *http.Server {
	s := &http.Server{
		Handler:           http.HandlerFunc(l.serve),
		TLSConfig:         l.tls,
		ReadHeaderTimeout: l.limits.Load().HelloTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(l.log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, nc net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, below(nc))
		},
		ConnState: l.state,
		Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          streamsPerConnection,
			MaxReceiveBufferPerStream:     streamWindow,
			MaxReceiveBufferPerConnection: connectionWindow,
			WriteByteTimeout:              l.limits.Load().WriteTimeout,
		},
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	return s
}

// Addr is the address that the listener is bound to.
func (l *Listener) Addr() net.Addr { return l.acceptor.Listener.Addr() }

// Connections is the number of connections that have not ended.
func (l *Listener) Connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns) + l.plains
}

// AcceptErrors is the number of errors that accepting has survived.
func (l *Listener) AcceptErrors() uint64 { return l.acceptor.Errors() }

// Serve accepts connections until ctx ends; then it stops accepting, tells
// WebSockets and opc.tcp peers BadServerHalted, gives answers LingerTimeout to be
// written, closes every connection and returns once all have ended. It never
// reads in the accept loop, and no error of a connection, nor a lack of
// descriptors, ends it: only the end of the net.Listener does, which is returned
// as an error unless ctx ended first.
func (l *Listener) Serve(ctx context.Context) error {
	ln := l.acceptor.Listener
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	l.wg.Go(func() { _ = l.http.Serve(&l.queue) }) // ends with the queue, or Shutdown
	err := l.acceptor.Run(ctx)
	_ = ln.Close()

	l.closeAll(false)
	var others sync.WaitGroup
	if l.wss != nil {
		others.Go(l.wss.Close)
	}
	if l.tcp != nil {
		others.Go(func() { l.tcp.Close(transport.Shutdown, ua.StatusBadServerHalted) })
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.limits.Load().LingerTimeout)
	_ = l.http.Shutdown(grace)
	cancel()
	others.Wait()
	l.closeAll(true)
	_ = l.http.Close()
	l.wg.Wait()
	if l.own {
		l.deadlines.Close()
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// closeAll stops connections from being handed to net/http and closes those that
// were not yet, or all.
func (l *Listener) closeAll(all bool) {
	l.mu.Lock()
	l.stopping = true
	var conns []*conn
	for c := range l.conns {
		if all || !c.inHTTP {
			conns = append(conns, c)
		}
	}
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.close(transport.Shutdown)
	}
}

// queue is the net.Listener that http accepts from: connections whose TLS
// handshake is done.
type queue struct {
	addr net.Addr
	ch   chan net.Conn
	once sync.Once
	done chan struct{}
}

// Accept implements net.Listener.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case nc := <-q.ch:
		return nc, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.done) })
	return nil
}

// Addr implements net.Listener.
func (q *queue) Addr() net.Addr { return q.addr }

// give hands a connection over; false when nobody accepts any more.
func (q *queue) give(nc net.Conn) bool {
	select {
	case q.ch <- nc:
		return true
	case <-q.done:
		return false
	}
}

// limiter is the token bucket of requests, nil inside = off.
type limiter struct {
	mu     sync.Mutex
	bucket *rate.Limiter
}

// SetRate puts another rate of requests in force, full at first; 0 = off.
func (l *Listener) SetRate(perSecond float64, burst int) {
	l.rate.mu.Lock()
	defer l.rate.mu.Unlock()
	l.rate.bucket = nil
	if perSecond > 0 {
		if burst <= 0 {
			burst = max(100, int(perSecond))
		}
		l.rate.bucket = rate.NewLimiter(rate.Limit(perSecond), burst)
	}
}

// allow takes a token; or says when there will be one.
func (l *limiter) allow(now time.Time) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bucket == nil || l.bucket.AllowN(now, 1) {
		return 0, true
	}
	missing := 1 - l.bucket.TokensAt(now)
	return time.Duration(missing / float64(l.bucket.Limit()) * float64(time.Second)), false
}

func (l *limiter) off() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bucket == nil
}
