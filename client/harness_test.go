package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
)

const plantURL = "opc.tcp://192.0.2.2:4840"

// quiet shows the log when CLIENTLOG is set.
func quiet() *slog.Logger {
	if os.Getenv("CLIENTLOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

// A network is what tests dial through: it can be down, and it can be cut.
type network struct {
	mu    sync.Mutex
	ln    *memnet.Listener // nil: nobody listens
	down  bool
	dials int
	conns map[*memnet.Conn]bool
	wrap  func(n int, c net.Conn) net.Conn // of dial number n, from 1
}

func (n *network) dial(ctx context.Context, _ string) (net.Conn, error) {
	n.mu.Lock()
	ln, down, wrap := n.ln, n.down, n.wrap
	n.dials++
	number := n.dials
	n.mu.Unlock()
	if ln == nil || down {
		return nil, syscall.ECONNREFUSED
	}
	c, err := ln.Dial(ctx, netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(10000+number%50000)))
	if err != nil {
		return nil, syscall.ECONNREFUSED
	}
	n.mu.Lock()
	if n.conns == nil {
		n.conns = make(map[*memnet.Conn]bool)
	}
	n.conns[c.(*memnet.Conn)] = true
	n.mu.Unlock()
	if wrap != nil {
		return wrap(number, c), nil
	}
	return c, nil
}

// cut resets every connection.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.Reset()
	}
	clear(n.conns)
}

func (n *network) set(down bool) {
	n.mu.Lock()
	n.down = down
	n.mu.Unlock()
}

func (n *network) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

// A plant is a real server in a synctest bubble.
type plant struct {
	*testing.T
	ctx context.Context
	network
	options stack.Options
	srv     *stack.Server
	ended   chan error
	boiler  *addressspace.Variable
}

// operator takes everybody without a proof for one user. An anonymous session
// without security may not take over subscriptions (OPC 10000-4 §5.14.7.1), nor a
// session whose old channel lives.
type operator struct{}

func (operator) Authenticate(context.Context, *session.Attempt) (*session.Identity, error) {
	return &session.Identity{Kind: ua.UserTokenTypeUserName, User: "operator"}, nil
}

func (operator) TokenTypes() []ua.UserTokenType {
	return []ua.UserTokenType{ua.UserTokenTypeAnonymous}
}

// inPlant runs a test against a server, one without security unless a PKI folder
// is named.
func inPlant(t *testing.T, o stack.Options, f func(p *plant)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if o.Security.PKI == "" {
			o.Security = stack.Security{Policies: stack.NoPolicies, AllowNone: true, AllowAnonymous: o.Authenticator == nil}
		}
		o.Logger = quiet()
		p := &plant{T: t, ctx: t.Context(), options: o}
		p.start()
		f(p)
		p.stop()
	})
}

func (p *plant) start() {
	p.Helper()
	srv, err := stack.NewServer(p.options)
	if err != nil {
		p.Fatal(err)
	}
	p.srv, p.ended = srv, make(chan error, 1)
	p.boiler = srv.AddressSpace().Namespace("urn:plant").Variable("Boiler", int64(0), addressspace.Writable())
	ln := memnet.Listen("192.0.2.2:4840")
	go func() { p.ended <- srv.Serve(ln) }()
	p.mu.Lock()
	p.ln = ln
	p.mu.Unlock()
}

// stop ends the server as a crash would and checks that it has nothing left.
func (p *plant) stop() {
	p.Helper()
	p.mu.Lock()
	p.ln = nil
	p.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.srv.Shutdown(ctx)
	if err := <-p.ended; !errors.Is(err, stack.ErrServerClosed) {
		p.Errorf("Serve: %v", err)
	}
	st := p.stats()
	if st.Channels != 0 || st.Sessions != 0 || st.Subscriptions != 0 || st.ParkedPublishes != 0 || st.BudgetReserved != 0 {
		p.Errorf("left behind: %+v", st)
	}
}

// stats are the server's counts once it has tidied up behind its answers.
func (p *plant) stats() stack.Stats {
	synctest.Wait()
	return p.srv.Stats()
}

// nobodyLeft waits until a server on real sockets has no sessions, 20 s at most.
func nobodyLeft(t *testing.T, srv *stack.Server) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		n := srv.Stats().Sessions
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left behind: %d sessions", n)
		}
	}
}

// steady delays for exact times.
var steady = reconnect.Policy{JitterFactor: -1}

func (p *plant) opts() Options {
	return Options{Policy: security.None, Transport: TCP{Dial: p.dial}, Logger: quiet(), Reconnect: steady}
}

func (p *plant) connect(o Options) *Session {
	p.Helper()
	s, err := Connect(p.ctx, plantURL, o)
	if err != nil {
		p.Fatal(err)
	}
	return s
}

func (p *plant) close(s *Session) {
	p.Helper()
	if err := s.Close(context.Background()); err != nil {
		p.Errorf("Close: %v", err)
	}
}

func (p *plant) id() *ua.NodeID { return p.boiler.Node().ID().UA() }

// set writes the boiler's value at the server.
func (p *plant) set(v int64) {
	p.Helper()
	if err := p.boiler.Set(v); err != nil {
		p.Fatal(err)
	}
}

// until waits for a state.
func until(t *testing.T, s *Session, want State) Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for st := range s.States(ctx) {
		if st.State == want {
			return st
		}
	}
	t.Fatalf("never %v, now %+v", want, s.State())
	return Status{}
}

// A tally gathers the values of a subscription.
type tally struct {
	mu        sync.Mutex
	values    []int64
	missed    int
	recreated int
	overflow  int // values that follow one which the server's queue has discarded
	wg        sync.WaitGroup
	stop      context.CancelFunc
}

func gather(sub *Subscription) *tally {
	g := &tally{}
	ctx, cancel := context.WithCancel(context.Background())
	g.stop = cancel
	g.wg.Go(func() {
		for n := range sub.Notifications(ctx) {
			g.mu.Lock()
			g.missed += n.Missed
			if n.Recreated {
				g.recreated++
			}
			if n.Value != nil && n.Value.Value != nil {
				if n.Value.Status&0x480 == 0x480 {
					g.overflow++
				}
				if v, ok := n.Value.Value.Value().(int64); ok {
					g.values = append(g.values, v)
				}
			}
			g.mu.Unlock()
		}
	})
	return g
}

func (g *tally) end() { g.stop(); g.wg.Wait() }

// exactly reports what is wrong when the values are not from, from+1, … to.
func (g *tally) exactly(from, to int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := from
	for i, v := range g.values {
		if v != next {
			return fmt.Errorf("value %d is %d, want %d (of %d, missed %d, recreated %d, overflows %d)", i, v, next, len(g.values), g.missed, g.recreated, g.overflow)
		}
		next++
	}
	if next != to+1 {
		return fmt.Errorf("values up to %d, want %d (missed %d, recreated %d)", next-1, to, g.missed, g.recreated)
	}
	return nil
}
