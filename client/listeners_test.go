package client

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
)

// A works is a server with every listener on loopback. Clients go through its
// dial, which can cut their connections and follows the server to other ports.
type works struct {
	*testing.T
	ctx   context.Context
	dir   string // of certificates and users; the same after a restart
	store *pki.Store
	key   *security.Key
	pin   [sha256.Size]byte // of the TLS certificate
	first map[string]string // URL by scheme, of the first start

	srv    *stack.Server
	cancel context.CancelFunc
	ended  chan error
	level  *addressspace.Variable

	mu    sync.Mutex
	ports map[string]string // where the first start's host:port is now; empty: nowhere
	conns map[net.Conn]bool
	dials int
}

func newWorks(t *testing.T) *works {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	w := &works{T: t, ctx: ctx, dir: t.TempDir(), conns: make(map[net.Conn]bool)}
	users, err := session.OpenUsers(filepath.Join(w.dir, "users.yaml"), session.UsersOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := users.Add(session.User{Name: "operator"}, []byte("secret")); err != nil {
		t.Fatal(err)
	}
	w.start(0)
	t.Cleanup(func() { w.stop() })
	w.store, w.key = ours(t)
	trust(t, w.store, w.srv)
	conn, err := tls.Dial("tcp", w.at(w.first["opc.https"]), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // its certificate is what we want
	if err != nil {
		t.Fatal(err)
	}
	w.pin = sha256.Sum256(conn.ConnectionState().PeerCertificates[0].Raw)
	_ = conn.Close()
	return w
}

// start starts a server whose level has a value.
func (w *works) start(level int64) {
	w.Helper()
	users, err := session.OpenUsers(filepath.Join(w.dir, "users.yaml"), session.UsersOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.srv, err = stack.NewServer(stack.Options{
		ApplicationName: "Works", Logger: quiet(),
		Endpoints:     []string{"opc.tcp://127.0.0.1:0", "opc.wss://127.0.0.1:0", "opc.https://127.0.0.1:0"},
		Authenticator: &session.Identities{Users: users},
		Security: stack.Security{AllowNone: true, TrustAll: true, PKI: filepath.Join(w.dir, "pki"),
			Policies: []*security.Policy{security.Basic256Sha256}},
	})
	if err != nil {
		w.Fatal(err)
	}
	plant := w.srv.AddressSpace().Namespace("urn:works")
	w.level = plant.Variable("Level", level, addressspace.Writable())
	argument := []ua.Argument{{Name: "N", DataType: ua.NewNumericNodeID(0, id.Int64), ValueRank: -1}}
	plant.Method("Double", argument, argument, func(_ context.Context, c *addressspace.Call) ([]any, error) {
		v, _ := c.Args[0].Int64()
		return []any{2 * v}, nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	if err := w.srv.Listen(ctx); err != nil {
		w.Fatal(err)
	}
	w.ended = make(chan error, 1)
	go func() { w.ended <- w.srv.Run(ctx) }()
	now := make(map[string]string)
	for _, s := range w.srv.URLs() {
		u, err := url.Parse(s)
		if err != nil {
			w.Fatal(err)
		}
		now[u.Scheme] = s
	}
	if w.first == nil {
		w.first = now
	}
	ports := make(map[string]string)
	for scheme, s := range w.first {
		ports[hostOf(s)] = hostOf(now[scheme])
	}
	w.mu.Lock()
	w.ports = ports
	w.mu.Unlock()
}

func hostOf(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u.Host
}

// stop ends the server, as a crash would, and waits for its end.
func (w *works) stop() {
	w.mu.Lock()
	w.ports = nil
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = w.srv.Shutdown(ctx)
	w.cancel()
	if w.ended != nil {
		<-w.ended
		w.ended = nil
	}
}

// at is the address of a URL now; empty when nobody listens.
func (w *works) at(rawURL string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ports[hostOf(rawURL)]
}

func (w *works) dial(ctx context.Context, address string) (net.Conn, error) {
	w.mu.Lock()
	to := w.ports[address]
	w.dials++
	w.mu.Unlock()
	if to == "" {
		return nil, syscall.ECONNREFUSED
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", to)
	if err == nil {
		w.mu.Lock()
		w.conns[c] = true
		w.mu.Unlock()
	}
	return c, err
}

// cut closes every connection of clients.
func (w *works) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.(*net.TCPConn).SetLinger(0) // a reset
		_ = c.Close()
	}
	clear(w.conns)
}

func (w *works) opts(p *security.Policy) Options {
	o := Options{
		Policy: p, Logger: quiet(), Transport: ByScheme{Dial: w.dial}, PKI: w.store,
		Identity:  &UserName{Name: "operator", Password: []byte("secret")},
		TLS:       TLSOptions{Pins: [][sha256.Size]byte{w.pin}},
		Reconnect: reconnect.Policy{InitialDelay: 5 * time.Millisecond, MaxDelay: 100 * time.Millisecond},
	}
	if !p.IsNone() {
		o.Mode, o.Key = ua.MessageSecurityModeSignAndEncrypt, w.key
	}
	return o
}

func (w *works) id() *ua.NodeID { return w.level.Node().ID().UA() }

func (w *works) set(v int64) {
	w.Helper()
	if err := w.level.Set(v); err != nil {
		w.Fatal(err)
	}
}

// until waits until a condition holds.
func (w *works) until(what string, f func() bool) {
	w.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.Fatalf("never: %s", what)
		}
	}
}

// seen waits for a value and returns what has come.
func (w *works) seen(g *tally, last int64) []int64 {
	w.Helper()
	var got []int64
	w.until(fmt.Sprintf("value %d", last), func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		got = slices.Clone(g.values)
		return slices.Contains(got, last)
	})
	return got
}

// The same tests over every transport of the server, with and without a security
// policy.
func TestListeners(t *testing.T) {
	w := newWorks(t)
	for _, scheme := range []string{"opc.tcp", "opc.wss", "opc.https"} {
		for _, p := range []*security.Policy{security.None, security.Basic256Sha256} {
			for _, c := range []struct {
				name string
				test func(w *works, url string, o Options)
			}{{"services", listenerServices}, {"cut", listenerCut}, {"restart", listenerRestart}, {"refusal", listenerRefusal}} {
				t.Run(scheme+"/"+p.Name+"/"+c.name, func(t *testing.T) {
					own := w.T
					w.T = t
					defer func() { w.T = own }()
					c.test(w, w.first[scheme], w.opts(p))
				})
			}
		}
	}
}

// Every service that the session has methods for, over the server's own listeners.
func listenerServices(w *works, url string, o Options) {
	s, err := Connect(w.ctx, url, o)
	if err != nil {
		w.Fatal(err)
	}
	ep := s.Endpoint()
	if u := hostOf(ep.EndpointURL); u != hostOf(url) || ep.SecurityPolicyURI != o.Policy.URI {
		w.Errorf("%s %s", ep.EndpointURL, ep.SecurityPolicyURI)
	}
	if err := s.WriteValue(w.ctx, w.id(), int64(41)); err != nil {
		w.Error(err)
	}
	if v, err := s.ReadValue(w.ctx, w.id()); err != nil || v.Value.Value() != int64(41) {
		w.Errorf("read %v, %v", v, err)
	}
	names := map[string]bool{}
	for ref, err := range s.Browse(w.ctx, Children(ua.NewNumericNodeID(0, id.ObjectsFolder))) {
		if err != nil {
			w.Fatal(err)
		}
		names[ref.BrowseName.Name] = true
	}
	if !names["Level"] || !names["Server"] || !names["Double"] {
		w.Errorf("browsed %v", names)
	}
	double := w.srv.AddressSpace().Namespace("urn:works").Node("Double").ID().UA()
	if out, err := s.Call(w.ctx, ua.NewNumericNodeID(0, id.ObjectsFolder), double, int64(21)); err != nil || len(out) != 1 || out[0] != int64(42) {
		w.Errorf("called %v, %v", out, err)
	}
	sub, err := s.Subscribe(w.ctx, SubscriptionOptions{Interval: 50 * time.Millisecond}, Monitor{NodeID: w.id(), QueueSize: 100})
	if err != nil {
		w.Fatal(err)
	}
	g := gather(sub)
	for v := int64(42); v < 62; v++ {
		if err := s.WriteValue(w.ctx, w.id(), v); err != nil {
			w.Error(err)
		}
	}
	w.seen(g, 61)
	g.end()
	if err := g.exactly(41, 61); err != nil || g.missed+g.recreated > 0 {
		w.Errorf("%v, missed %d, recreated %d", err, g.missed, g.recreated)
	}
	if err := s.Close(w.ctx); err != nil {
		w.Error(err)
	}
	w.until("the server has nothing left", func() bool { st := w.srv.Stats(); return st.Sessions == 0 && st.Subscriptions == 0 })
}

// The connection is reset again and again, with values under way: it is the same
// session afterwards, no value is lost, none comes twice.
func listenerCut(w *works, url string, o Options) {
	w.set(0)
	s, err := Connect(w.ctx, url, o)
	if err != nil {
		w.Fatal(err)
	}
	was, _ := s.ID()
	sub, err := s.Subscribe(w.ctx, SubscriptionOptions{Interval: 50 * time.Millisecond}, Monitor{NodeID: w.id(), QueueSize: 1000})
	if err != nil {
		w.Fatal(err)
	}
	g := gather(sub)
	w.seen(g, 0)
	v := int64(0)
	for range 5 {
		for range 3 {
			v++
			w.set(v)
		}
		w.mu.Lock()
		dials := w.dials
		w.mu.Unlock()
		w.cut()
		for range 3 {
			v++
			w.set(v)
		}
		w.seen(g, v)
		w.mu.Lock()
		if w.dials == dials {
			w.Error("no new connection: nothing was cut")
		}
		w.mu.Unlock()
	}
	g.end()
	if err := g.exactly(0, v); err != nil || g.missed+g.recreated > 0 {
		w.Errorf("%v, missed %d, recreated %d", err, g.missed, g.recreated)
	}
	w.until("online", func() bool { return s.State().State == Online })
	if is, _ := s.ID(); is == nil || is.String() != was.String() {
		w.Errorf("session %v, was %v", is, was)
	}
	if err := s.Close(w.ctx); err != nil {
		w.Error(err)
	}
	w.until("the server has nothing left", func() bool { st := w.srv.Stats(); return st.Sessions == 0 && st.Subscriptions == 0 })
}

// The server is started anew: the subscription is made again in a new session,
// which says so, and goes on with the present value.
func listenerRestart(w *works, url string, o Options) {
	w.set(1)
	s, err := Connect(w.ctx, url, o)
	if err != nil {
		w.Fatal(err)
	}
	sub, err := s.Subscribe(w.ctx, SubscriptionOptions{Interval: 50 * time.Millisecond}, Monitor{NodeID: w.id(), QueueSize: 1000})
	if err != nil {
		w.Fatal(err)
	}
	g := gather(sub)
	w.set(2)
	w.seen(g, 2)
	w.stop()
	ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
	if _, err := s.ReadValue(ctx, w.id()); err == nil {
		w.Error("read from a server that is down")
	}
	cancel()
	w.start(3)
	w.seen(g, 3)
	w.set(4)
	w.seen(g, 4)
	g.end()
	if err := g.exactly(1, 4); err != nil || g.missed > 0 || g.recreated != 1 {
		w.Errorf("%v, missed %d, recreated %d", err, g.missed, g.recreated)
	}
	if v, err := s.ReadValue(w.ctx, w.id()); err != nil || v.Value.Value() != int64(4) {
		w.Errorf("read %v, %v", v, err)
	}
	if err := s.Close(w.ctx); err != nil {
		w.Error(err)
	}
}

// A password that the server does not know is its answer over every transport, and
// ends the attempts.
func listenerRefusal(w *works, url string, o Options) {
	o.Identity = &UserName{Name: "operator", Password: []byte("Secret")}
	o.Reconnect = reconnect.Policy{MaxRetries: -1}
	if _, err := Connect(w.ctx, url, o); !errors.Is(err, reconnect.ErrGaveUp) || codeOf(err) != ua.StatusBadUserAccessDenied && codeOf(err) != ua.StatusBadIdentityTokenRejected {
		w.Errorf("%v", err)
	}
	w.until("the server has nothing left", func() bool { return w.srv.Stats().Sessions == 0 })
}
