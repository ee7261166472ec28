package securechannel

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/gopcua/opcua/ua"
)

// testHandler counts, and echoes unless message is set.
type testHandler struct {
	message func(ch *Channel, m *Message)
	opened  atomic.Int32
	closed  atomic.Int32
	chans   chan *Channel
	reasons chan transport.CloseReason
}

func newHandler() *testHandler {
	return &testHandler{chans: make(chan *Channel, 1<<16), reasons: make(chan transport.CloseReason, 1<<16)}
}

func (h *testHandler) Opened(ch *Channel) {
	h.opened.Add(1)
	h.chans <- ch
}

func (h *testHandler) Message(ch *Channel, m *Message) {
	if h.message != nil {
		h.message(ch, m)
		return
	}
	_ = ch.Reply(m.RequestID, m.Body)
}

func (h *testHandler) Closed(ch *Channel, r transport.CloseReason) {
	h.closed.Add(1)
	h.reasons <- r
}

// testServer is a Server behind a uatcp.Listener.
type testServer struct {
	*Server
	h      *testHandler
	ln     *uatcp.Listener
	mem    *memnet.Listener
	gate   *transport.Gate
	ends   chan transport.CloseReason // of every connection
	cancel context.CancelFunc
	done   sync.WaitGroup
}

type testOptions struct {
	memory   bool
	handler  *testHandler
	cfg      ServerConfig
	gate     transport.GateOptions
	portable bool
}

func startServer(t testing.TB, o testOptions) *testServer {
	t.Helper()
	before := buffer.Outstanding()
	if o.handler == nil {
		o.handler = newHandler()
	}
	s := &testServer{h: o.handler, ends: make(chan transport.CloseReason, 1<<16)}
	o.cfg.Handler = o.handler
	if o.cfg.Logger == nil {
		o.cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if o.cfg.Offers == nil {
		o.cfg.Offers = []Offer{{security.None, ua.MessageSecurityModeNone}}
	}
	var err error
	if s.Server, err = NewServer(o.cfg); err != nil {
		t.Fatal(err)
	}
	o.gate.Logger = o.cfg.Logger
	if s.gate, err = transport.NewGate(o.gate); err != nil {
		t.Fatal(err)
	}
	uo := uatcp.Options{NewSink: s.NewSink, Gate: s.gate, Limits: o.cfg.Limits, Logger: o.cfg.Logger, Portable: o.portable,
		Closed: func(_ netip.AddrPort, r transport.CloseReason) { s.ends <- r }}
	if o.memory {
		s.mem = memnet.Listen("10.0.0.1:4840")
		s.ln, err = uatcp.New(s.mem, uo)
	} else {
		s.ln, err = uatcp.Listen(context.Background(), "127.0.0.1:0", uo)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.done.Go(func() {
		if err := s.ln.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		s.cancel()
		s.done.Wait()
		if n := s.Budget().Reserved(); n != 0 {
			t.Errorf("%d bytes of the budget left", n)
		}
		if n := s.Channels(); n != 0 {
			t.Errorf("%d channels left", n)
		}
		if u := s.gate.Usage(); u.Connections != 0 || u.Handshakes != 0 {
			t.Errorf("gate: %+v", u)
		}
		if o, c := s.h.opened.Load(), s.h.closed.Load(); o != c {
			t.Errorf("%d opened, %d closed", o, c)
		}
		if n := buffer.Outstanding(); n != before {
			t.Errorf("%d buffers left:\n%s", n-before, buffer.Leaks())
		}
	})
	return s
}

func (s *testServer) connect(t testing.TB) net.Conn {
	t.Helper()
	c := s.connectOnce(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// connectOnce leaves the closing to the caller.
func (s *testServer) connectOnce(t testing.TB) net.Conn {
	t.Helper()
	var c net.Conn
	var err error
	if s.mem != nil {
		c, err = s.mem.Dial(context.Background(), netip.MustParseAddrPort("10.0.0.2:999"))
	} else {
		c, err = net.Dial("tcp", s.ln.Addr().String())
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *testServer) dial(t testing.TB, cfg ClientConfig) *Client {
	t.Helper()
	if cfg.EndpointURL == "" {
		cfg.EndpointURL = "opc.tcp://localhost:4840"
	}
	c, err := Dial(context.Background(), s.connect(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Release)
	return c
}

// roundTrip sends a request and wants it back.
func roundTrip(t testing.TB, c *Client, body []byte) {
	t.Helper()
	id := c.NextRequestID()
	if err := c.Send(id, body); err != nil {
		t.Fatal(err)
	}
	gotID, got, err := c.Receive()
	if err != nil {
		t.Fatal(err)
	}
	if gotID != id || string(got) != string(body) {
		t.Fatalf("request %d came back as %d, %d bytes as %d", id, gotID, len(body), len(got))
	}
}

func body(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

// pki is a server's and a client's key with one gate.
type pki struct {
	gate           *security.CryptoGate
	server, client *security.Key
}

var rsaKeys = sync.OnceValue(func() [3]*rsa.PrivateKey {
	var k [3]*rsa.PrivateKey
	for i, bits := range []int{2048, 2048, 3072} {
		var err error
		if k[i], err = rsa.GenerateKey(rand.Reader, bits); err != nil {
			panic(err)
		}
	}
	return k
})

// newPKI must not be called in a synctest bubble if the keys are new.
func newPKI(t testing.TB, clientKey int) *pki {
	t.Helper()
	gate := security.NewCryptoGate(2)
	t.Cleanup(gate.Close)
	keys := rsaKeys()
	return &pki{gate, newKey(t, keys[0], gate), newKey(t, keys[clientKey], gate)}
}

func newKey(t testing.TB, k *rsa.PrivateKey, gate *security.CryptoGate) *security.Key {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	key, err := security.NewKey([][]byte{der}, k, k, gate)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func trustAll(_ context.Context, _ *Channel, chain []byte, _ *security.Policy) (*x509.Certificate, error) {
	return x509.ParseCertificate(leaf(chain))
}

var allPolicies = []*security.Policy{security.Basic256Sha256, security.Aes128Sha256RsaOaep, security.Aes256Sha256RsaPss,
	security.Basic256, security.Basic128Rsa15}

func (p *pki) serverConfig() ServerConfig {
	cfg := ServerConfig{Key: p.server, Validate: trustAll, Offers: []Offer{{security.None, ua.MessageSecurityModeNone}}}
	for _, policy := range allPolicies {
		cfg.Offers = append(cfg.Offers, Offer{policy, ua.MessageSecurityModeSign}, Offer{policy, ua.MessageSecurityModeSignAndEncrypt})
	}
	return cfg
}

func (p *pki) clientConfig(policy *security.Policy, mode ua.MessageSecurityMode) ClientConfig {
	return ClientConfig{Policy: policy, Mode: mode, Key: p.client, ServerCertificate: p.server.Certificate()}
}

func bothPaths(t *testing.T, o testOptions, f func(t *testing.T, s *testServer)) {
	t.Run("loopback", func(t *testing.T) { f(t, startServer(t, o)) })
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := o
			o.memory = true
			f(t, startServer(t, o))
		})
	})
}

type (
	x509Certificate = x509.Certificate
	syncGroup       = sync.WaitGroup
)
