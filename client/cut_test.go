package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/internal/cutproxy"
	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/stack"
)

// A cutter is a proxy in front of a plant. It cuts one connection that it is
// told to.
type cutter struct {
	*plant
	proxy *cutproxy.Proxy
	mu    sync.Mutex
	next  int // number of the connection to cut; 0: none
	cut   cutproxy.Cut
}

// overCuts runs f against a plant behind a proxy.
func overCuts(t *testing.T, o stack.Options, f func(c *cutter)) {
	inPlant(t, o, func(p *plant) {
		c := &cutter{plant: p}
		c.proxy = &cutproxy.Proxy{
			Dial: func(ctx context.Context) (net.Conn, error) { return p.dial(ctx, "") },
			Plan: func(n int) (cutproxy.Cut, bool) {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.cut, n == c.next
			},
		}
		f(c)
		c.proxy.Close()
	})
}

// through is how a session reaches the server.
func (c *cutter) through(ctx context.Context, address string) (net.Conn, error) {
	c.plant.mu.Lock()
	down := c.down
	c.plant.mu.Unlock()
	if down {
		return nil, syscall.ECONNREFUSED
	}
	near, far := memnet.Pair(net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1")), net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.3:1")), 0)
	if !c.proxy.Carry(far) {
		return nil, syscall.ECONNREFUSED
	}
	return near, nil
}

// arm cuts the connection after the next skip ones.
func (c *cutter) arm(skip int, cut cutproxy.Cut) {
	n := c.proxy.Connections() + 1 + skip
	c.mu.Lock()
	c.next, c.cut = n, cut
	c.mu.Unlock()
}

// once connects with a cut, then reconnects with the same cut, and checks that
// nothing was lost, nothing came twice, and nothing is left. skip is the number
// of connections before the session's own.
func (c *cutter) once(o Options, skip int, cut cutproxy.Cut, value *int64) error {
	c.arm(skip, cut)
	s, err := Connect(c.ctx, plantURL, o)
	if err != nil {
		return err
	}
	so, m := SubscriptionOptions{Interval: time.Second}, Monitor{NodeID: c.id(), QueueSize: 1000}
	sub, err := s.Subscribe(c.ctx, so, m)
	if err != nil { // the cut came here: the caller is told
		code := codeOf(err)
		if code != ua.StatusBadConnectionClosed && code != ua.StatusBadTimeout {
			return fmt.Errorf("subscribe: %w", err)
		}
		if sub, err = s.Subscribe(c.ctx, so, m); err != nil {
			return fmt.Errorf("subscribe again: %w", err)
		}
	}
	first := *value
	set := func() {
		*value++
		c.set(*value)
	}
	g := gather(sub)
	time.Sleep(31 * time.Second) // the backoff starts anew
	set()
	c.arm(0, cut)
	c.proxy.Strike(cutproxy.Cut{Mode: cutproxy.Reset})
	set()
	time.Sleep(2 * time.Minute)
	set()
	time.Sleep(2 * time.Second)
	g.end()
	if err := g.exactly(first, *value); err != nil || g.recreated+g.missed > 0 {
		return fmt.Errorf("%w, recreated %d, missed %d", err, g.recreated, g.missed)
	}
	if st := c.stats(); st.Subscriptions != 1 {
		return fmt.Errorf("%d subscriptions at the server", st.Subscriptions)
	}
	if err := s.Close(c.ctx); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	// A handshake that fell silent ends after two minutes, a channel that did with
	// its token.
	time.Sleep(3 * time.Minute)
	st := c.stats()
	if st.Channels != 0 || st.Sessions != 0 || st.Subscriptions != 0 || st.ParkedPublishes != 0 || st.BudgetReserved != 0 || st.BlockingRequests != 0 || st.Establishing != 0 {
		return fmt.Errorf("left behind: %+v", st)
	}
	stages, owners := c.srv.Isolation().Snapshot()
	for _, u := range stages {
		if u.Used != 0 || owners != 0 {
			return fmt.Errorf("leases left: %d owners, %+v", owners, u)
		}
	}
	if n := c.proxy.Open(); n != 0 {
		return fmt.Errorf("%d connections left", n)
	}
	return nil
}

// A place is one of a sweep.
type place struct {
	direction cutproxy.Direction
	at        int64
}

// sweep cuts at every step-th byte of the handshake and at every byte of its
// first chunk headers; full takes every byte in every mode.
func (c *cutter) sweep(o Options, skip int, step int64, full bool) {
	s, err := Connect(c.ctx, plantURL, o)
	if err != nil {
		c.Fatal(err)
	}
	time.Sleep(time.Second) // the discovery's connection has ended
	up, down := c.proxy.Passed()
	if err := s.Close(c.ctx); err != nil {
		c.Fatal(err)
	}
	if up < 500 || down < 500 || up > 20_000 || down > 20_000 {
		c.Fatalf("a handshake of %d and %d bytes", up, down)
	}
	var places []place
	for d, n := range []int64{up, down} {
		for at := int64(0); at <= n; at += step {
			places = append(places, place{cutproxy.Direction(d), at})
		}
	}
	time.Sleep(3 * time.Minute)
	synctest.Wait()
	before := bubble()
	if len(before) == 0 {
		c.Fatal("no goroutine is seen in the bubble")
	}
	value := int64(0)
	for i, pl := range places {
		modes := cutproxy.Modes()
		if !full {
			modes = slices.Clip(modes[i%len(modes):][:1])
		}
		for _, m := range modes {
			cut := cutproxy.Cut{Mode: m, Direction: pl.direction, At: pl.at, For: 5 * time.Second}
			if err := c.once(o, skip, cut, &value); err != nil {
				c.Fatalf("%v %v after %d bytes of %d and %d: %v", cut.Direction, cut.Mode, cut.At, up, down, err)
			}
		}
	}
	if after := bubble(); len(after) > len(before) {
		c.Errorf("%d goroutines, %d before\n%s", len(after), len(before), strings.Join(after, "\n\n"))
	}
	c.Logf("%d places in a handshake of %d and %d bytes", len(places), up, down)
}

// bubble returns the stacks of the goroutines in the caller's bubble: others come
// and go with the run time.
func bubble() []string {
	buf := make([]byte, 1<<20)
	own, _, _ := strings.Cut(string(buf[:runtime.Stack(buf, false)]), "\n")
	_, mark, _ := strings.Cut(own, "synctest bubble")
	return slices.DeleteFunc(strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n"), func(stack string) bool {
		head, _, _ := strings.Cut(stack, "\n")
		return !strings.HasSuffix(head, "synctest bubble"+mark)
	})
}

// fullSweep takes every byte in every mode: minutes. Set CUTSWEEP=full.
func fullSweep() bool { return os.Getenv("CUTSWEEP") == "full" }

// cutOptions make dead channels end soon.
func (c *cutter) cutOptions() Options {
	o := c.opts()
	o.Transport = TCP{Dial: c.through}
	o.TokenLifetime = time.Minute
	return o
}

// The connection breaks after each byte of the handshake (HEL, OPN, CreateSession,
// ActivateSession), in either direction, in one of four ways, when a session is
// made and when it is taken up again: it comes back, no value is lost or comes
// twice, and nothing is left at the server (hostile.md C8).
func TestCutHandshake(t *testing.T) {
	step := int64(1)
	if raceEnabled || testing.Short() {
		step = 29
	}
	overCuts(t, stack.Options{Authenticator: operator{}}, func(c *cutter) {
		c.sweep(c.cutOptions(), 1, step, fullSweep())
	})
}

// The same with a secured channel. Its private-key operations take real time, so
// only a part of the places is taken, each in another way, unless CUTSWEEP=full.
func TestCutSecuredHandshake(t *testing.T) {
	step := int64(211) // prime to the number of modes
	switch {
	case fullSweep():
		step = 1
	case raceEnabled || testing.Short():
		step = 997
	}
	o := stack.Options{Security: stack.Security{Policies: []*security.Policy{security.Basic256Sha256}, Modes: []ua.MessageSecurityMode{ua.MessageSecurityModeSignAndEncrypt},
		AllowAnonymous: true, TrustAll: true, CryptoWorkers: 1, PKI: filepath.Join(t.TempDir(), "pki")}}
	overCuts(t, o, func(c *cutter) {
		store, err := pki.Open(t.TempDir(), pki.Options{Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		gate := security.NewCryptoGate(1)
		defer gate.Close()
		key, err := LoadKey(store, pki.AppInfo{ApplicationURI: "urn:test:client", ApplicationName: "Test client"}, gate)
		if err != nil {
			t.Fatal(err)
		}
		co := c.cutOptions()
		co.Policy, co.Key = security.Basic256Sha256, key
		co.VerifyServer = func(context.Context, Server) error { return nil }
		c.sweep(co, 1, step, fullSweep())
	})
}

// A sample of the sweep over real sockets, where a reset is the kernel's.
func TestCutSockets(t *testing.T) {
	srv, url := secured(t)
	store, key := ours(t)
	trust(t, store, srv)
	target := srv.Addrs()[0].String()
	for i, cut := range []cutproxy.Cut{
		{Mode: cutproxy.Reset, Direction: cutproxy.Up, At: 0},
		{Mode: cutproxy.Halve, Direction: cutproxy.Up, At: 7},
		{Mode: cutproxy.Delay, Direction: cutproxy.Up, At: 100, For: 20 * time.Millisecond},
		{Mode: cutproxy.Reset, Direction: cutproxy.Down, At: 27},
		{Mode: cutproxy.Halve, Direction: cutproxy.Down, At: 28},
		{Mode: cutproxy.Drop, Direction: cutproxy.Up, At: 1500},
		{Mode: cutproxy.Reset, Direction: cutproxy.Up, At: 2500},
		{Mode: cutproxy.Halve, Direction: cutproxy.Down, At: 2000},
		{Mode: cutproxy.Drop, Direction: cutproxy.Down, At: 2500},
		{Mode: cutproxy.Reset, Direction: cutproxy.Down, At: 4500},
		{Mode: cutproxy.Delay, Direction: cutproxy.Down, At: 4500, For: 20 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%v/%v/%d", cut.Direction, cut.Mode, cut.At), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			next := 2 // after discovery's
			p := &cutproxy.Proxy{
				Dial: func(ctx context.Context) (net.Conn, error) {
					var d net.Dialer
					return d.DialContext(ctx, "tcp", target)
				},
				Plan: func(n int) (cutproxy.Cut, bool) {
					mu.Lock()
					defer mu.Unlock()
					return cut, n == next
				},
			}
			served := make(chan error, 1)
			go func() { served <- p.Serve(ln) }()
			dial := func(ctx context.Context, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "tcp", ln.Addr().String())
			}
			v := srv.AddressSpace().Namespace("urn:cut").Variable(fmt.Sprintf("v%d", i), int64(0))
			s, err := Connect(ctx, url, Options{Policy: security.Basic256Sha256, Mode: ua.MessageSecurityModeSign, Key: key, PKI: store, Logger: quiet(), Transport: TCP{Dial: dial},
				ConnectTimeout: time.Second, RequestTimeout: time.Second, SessionTimeout: 10 * time.Second,
				Reconnect: reconnect.Policy{InitialDelay: time.Millisecond, MaxDelay: 50 * time.Millisecond}})
			if err != nil {
				t.Fatal(err)
			}
			var sub *Subscription
			for sub == nil { // a cut may come here, and the caller is told
				if sub, err = s.Subscribe(ctx, SubscriptionOptions{Interval: 50 * time.Millisecond}, Monitor{NodeID: v.Node().ID().UA(), QueueSize: 100}); err != nil && ctx.Err() != nil {
					t.Fatal(err)
				}
			}
			var values []int64
			take := func(to int64) {
				for _, dv := range sub.Values(ctx) {
					n, _ := dv.Value.Value().(int64)
					if values = append(values, n); n == to {
						return
					}
				}
				t.Fatalf("no %d: %v, %+v", to, values, s.State())
			}
			take(0)
			mu.Lock()
			next = p.Connections() + 1
			mu.Unlock()
			p.Strike(cutproxy.Cut{Mode: cutproxy.Reset})
			for n := range int64(3) {
				if err := v.Set(n + 1); err != nil {
					t.Fatal(err)
				}
			}
			take(3)
			if !slices.Equal(values, []int64{0, 1, 2, 3}) {
				t.Errorf("%v", values)
			}
			if err := s.Close(ctx); err != nil {
				t.Error(err)
			}
			_ = ln.Close()
			p.Close()
			if err := <-served; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
	}
	// A cut may hit CloseSession: the session of that client ends with its timeout,
	// its subscription later still.
	nobodyLeft(t, srv)
}
