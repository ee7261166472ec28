package load

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/gopcua/opcua/ua"
)

// folder keeps the keys of all tests, so that each is made once.
var folder string

func TestMain(m *testing.M) {
	// As uastorm and refserver do it: room beside the threads for private keys.
	runtime.GOMAXPROCS(2 * runtime.NumCPU())
	dir, err := os.MkdirTemp("", "uastorm")
	if err != nil {
		panic(err)
	}
	folder = dir
	code := 0
	if os.Getenv(childVariable) != "" {
		err = serveChild()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

var ownKey = sync.OnceValues(func() (*security.Key, error) {
	store, err := pki.Open(filepath.Join(folder, "client"), pki.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	chain, key, _, err := store.LoadOrCreate(pki.AppInfo{ApplicationURI: ApplicationURI, ApplicationName: ApplicationName})
	if err != nil {
		return nil, err
	}
	return security.NewKey(chain, key, key, security.NewCryptoGate(runtime.NumCPU()))
})

// A site is a server with a counter that goes up every 10 ms, and a target on it.
type site struct {
	srv     *stack.Server
	ns      *addressspace.Namespace
	address Address
	target  *Target
	port    atomic.Int32 // of the last connection in memory

	stall atomic.Pointer[stall]
}

// In a stall nothing arrives at a client over the network in memory.
type stall struct {
	at   time.Time
	time time.Duration
}

const (
	counterText = "ns=2;s=Counter"
	setText     = "ns=2;s=SetPoint"
)

func serverOptions() stack.Options {
	return stack.Options{
		ApplicationName: "uastorm's test server",
		Endpoints:       []string{"opc.tcp://127.0.0.1:0"},
		Security:        stack.Security{AllowNone: true, AllowAnonymous: true, TrustAll: true, PKI: filepath.Join(folder, "server")},
		// Sooner than newSite gives up: on a busy machine a session may be created for
		// a flood that has ended meanwhile.
		Limits: stack.Limits{ActivationTimeout: 10 * time.Second},
		Logger: slog.New(slog.DiscardHandler),
	}
}

// begin makes a server with nodes to read and write.
func begin(t testing.TB, o stack.Options) (*site, *addressspace.Variable) {
	t.Helper()
	srv, err := stack.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{srv: srv, ns: srv.AddressSpace().Namespace("urn:uastorm:test")}
	counter := s.ns.Variable("Counter", int64(0))
	s.ns.Variable("SetPoint", 21.5, addressspace.Writable())
	if got := s.ns.NodeID("Counter").String(); got != counterText {
		t.Fatalf("the counter is %s", got)
	}
	return s, counter
}

// count counts up until ctx ends.
func count(ctx context.Context, v *addressspace.Variable) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := int64(1); ; n++ {
		select {
		case <-tick.C:
			_ = v.Set(n)
		case <-ctx.Done():
			return
		}
	}
}

// A stalling connection delivers nothing while its site stalls.
type stalling struct {
	net.Conn
	s *site
}

func (c stalling) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if w := c.s.stall.Load(); w != nil {
		if since := time.Since(w.at); since >= 0 && since < w.time {
			time.Sleep(w.time - since)
		}
	}
	return n, err
}

func (s *site) left() string {
	st := s.srv.Stats()
	if st.Sessions != 0 || st.Channels != 0 || st.Subscriptions != 0 || st.BudgetReserved != 0 {
		return fmt.Sprintf("%d sessions, %d channels, %d subscriptions, %d bytes", st.Sessions, st.Channels, st.Subscriptions, st.BudgetReserved)
	}
	return ""
}

// overAll runs a test in a bubble for each scheme.
func overAll(t *testing.T, change func(*stack.Options), f func(t *testing.T, s *site)) {
	t.Helper()
	for _, scheme := range Schemes() {
		t.Run(scheme, func(t *testing.T) { inBubble(t, scheme, change, f) })
	}
}

// inBubble runs a test against a server without security, in memory and on a
// fake clock, and checks then that uastorm has left nothing behind.
func inBubble(t *testing.T, scheme string, change func(*stack.Options), f func(t *testing.T, s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		link := scheme + "://192.0.2.2:4840"
		o := stack.Options{ApplicationName: "uastorm's test server", Endpoints: []string{link}, Logger: slog.New(slog.DiscardHandler),
			Security: stack.Security{Policies: stack.NoPolicies, AllowNone: true, AllowAnonymous: true}}
		if change != nil {
			change(&o)
		}
		s, counter := begin(t, o)
		ln := memnet.Listen("192.0.2.2:4840")
		var work sync.WaitGroup
		if scheme == SchemeTCP {
			work.Go(func() { _ = s.srv.Serve(ln) })
		} else {
			work.Go(func() { _ = s.srv.ServeTLS(ln) })
		}
		ctx, cancel := context.WithCancel(t.Context())
		work.Go(func() { count(ctx, counter) })
		address, err := Resolve(t.Context(), link, true)
		if err != nil {
			t.Fatal(err)
		}
		address.Host = netip.MustParseAddrPort("127.0.0.1:4840")
		address.connect = func(ctx context.Context, from net.IP) (net.Conn, error) {
			a, ok := netip.AddrFromSlice(from.To4())
			if !ok {
				a = netip.MustParseAddr("192.0.2.1")
			}
			c, err := ln.Dial(ctx, netip.AddrPortFrom(a, uint16(50_000+s.port.Add(1)%10_000)))
			if err != nil {
				return nil, err
			}
			return stalling{c, s}, nil
		}
		s.address = address
		s.target = s.discover(t, Security{Policy: security.None})
		f(t, s)
		time.Sleep(time.Minute) // of the bubble: what the server keeps for a while is gone then
		if left := s.left(); left != "" {
			t.Errorf("left at the server: %s", left)
		}
		cancel()
		over, end := context.WithCancel(t.Context())
		end()
		_ = s.srv.Shutdown(over)
		work.Wait()
	})
}

// newSite starts a server with security on a socket until the test ends and checks
// then that uastorm has left nothing behind.
func newSite(t testing.TB, scheme string, change ...func(*stack.Options)) *site {
	t.Helper()
	o := serverOptions()
	o.Endpoints = []string{scheme + "://127.0.0.1:0"}
	for _, f := range change {
		f(&o)
	}
	s, counter := begin(t, o)
	if err := s.srv.Listen(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { _ = s.srv.Run(ctx) })
	work.Go(func() { count(ctx, counter) })
	t.Cleanup(func() {
		eventually(t, "nothing is left at the server", func() bool { return s.left() == "" })
		if left := s.left(); left != "" {
			t.Error(left)
		}
		cancel()
		work.Wait()
	})
	a, err := Resolve(context.Background(), s.srv.URLs()[0], false)
	if err != nil {
		t.Fatal(err)
	}
	s.address = a
	s.target = s.discover(t, Security{Policy: security.Basic256Sha256})
	return s
}

func (s *site) discover(t testing.TB, want Security) *Target {
	t.Helper()
	want.Key = ownKey
	target, err := Discover(context.Background(), s.address, want)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// run runs a plan and returns what was measured.
func (s *site) run(t testing.TB, p *Plan) (*measure.Result, []Facts) {
	t.Helper()
	res, facts, err := s.runUntil(t, context.Background(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res, facts
}

// runUntil is run with a context, and watches the engine.
func (s *site) runUntil(t testing.TB, ctx context.Context, p *Plan, watch func(*Engine)) (*measure.Result, []Facts, error) {
	t.Helper()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	rec, err := measure.Start(measure.Options{Title: "test"})
	if err != nil {
		t.Fatal(err)
	}
	e := New(Options{Target: s.target, Recorder: rec, Sources: NewSources(s.target.Host.Addr(), 0)})
	var watcher sync.WaitGroup
	if watch != nil {
		watcher.Go(func() { watch(e) })
	}
	err = e.Run(ctx, p)
	watcher.Wait()
	res := rec.Finish()
	if t.Failed() || testing.Verbose() {
		for _, v := range res.Events {
			t.Logf("%6.2f s  %s", v.At, v.Text)
		}
	}
	return res, e.Facts(), err
}

func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-tick.C {
		if so() {
			return
		}
	}
	t.Errorf("still not so: %s", what)
}

func phaseOf(t testing.TB, res *measure.Result, name string) *measure.Phase {
	t.Helper()
	for i := range res.Phases {
		if res.Phases[i].Name == name {
			return &res.Phases[i]
		}
	}
	t.Fatalf("no phase %s in %+v", name, res.Phases)
	return nil
}

func number(n int) *int { return &n }

var modes = []ua.MessageSecurityMode{ua.MessageSecurityModeSign, ua.MessageSecurityModeSignAndEncrypt}
