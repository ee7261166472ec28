package https

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/gopcua/opcua/ua"
)

func governed(t *testing.T, o admission.HTTPOptions) Options {
	t.Helper()
	g, err := admission.NewHTTPGovernor(o)
	if err != nil {
		t.Fatal(err)
	}
	return Options{Governor: g}
}

// A Publish that parks holds no slot of the governor and no body, for as long as
// it takes; nor does it count for its connection.
func TestPark(t *testing.T) {
	both(t, func() Options { return governed(t, admission.HTTPOptions{}) }, func(t *testing.T, s *server, c *http.Client) {
		s.h.hold = true
		before := buffer.Outstanding()
		done := make(chan answer)
		go func() { done <- post(t, c, binaryType, request(3)) }()
		call := <-s.h.held
		synctest.Wait()
		if n := s.governor.Status().Node.Data.Count; n != 1 {
			t.Error("governor holds", n)
		}
		reply := s.h.answer(call.Body())
		call.Park()
		if n := s.governor.Status().Node.Data.Count; n != 0 {
			t.Error("parked, and the governor holds", n)
		}
		if n := buffer.Outstanding(); buffer.Debug && n != before {
			t.Error("parked, and holds", n-before, "buffers")
		}
		time.Sleep(time.Hour)
		if err := call.Respond(reply, ua.StatusGood, 0); err != nil {
			t.Error(err)
		}
		a := <-done
		if _, handle, _ := result(t, a.body); a.code != 200 || handle != 3 {
			t.Error(a.code, handle)
		}
	})
}

// The request moves from the node's slot to its sender's account, in the lane of
// its kind; a full account refuses it.
func TestPrincipal(t *testing.T) {
	both(t, func() Options { return governed(t, admission.HTTPOptions{MaxPrincipalRequests: 1}) }, func(t *testing.T, s *server, c *http.Client) {
		s.h.hold = true
		var calls []transport.Call
		done := make(chan answer)
		for range 3 {
			go func() { done <- post(t, s.client(t, false), binaryType, request(1)) }()
			calls = append(calls, <-s.h.held)
		}
		if !calls[0].Principal("t", "alice", false, false) || calls[1].Principal("t", "alice", false, true) || !calls[2].Principal("t", "alice", true, false) {
			t.Error("one ordinary and one control request fit")
		}
		st := s.governor.Status()
		if st.Node.Data.Count != 2 || st.Node.Control.Count != 1 || len(st.VerifiedScopes.Data.Principals) != 1 {
			t.Errorf("%+v", st)
		}
		for _, call := range calls {
			_ = call.Respond(s.h.answer(request(1)), ua.StatusGood, 0)
			<-done
		}
	})
}

// When the client goes, the call's context ends; what it holds lasts as long as
// the work does.
func TestClientGone(t *testing.T) {
	both(t, func() Options { return governed(t, admission.HTTPOptions{}) }, func(t *testing.T, s *server, c *http.Client) {
		s.h.hold = true
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, "POST", "https://plant/", bytes.NewReader(request(1)))
		r.Header.Set("Content-Type", binaryType)
		done := make(chan error)
		go func() {
			_, err := c.Do(r)
			done <- err
		}()
		call := <-s.h.held
		cancel()
		if err := <-done; err == nil {
			t.Error("an answer?")
		}
		<-call.Context().Done()
		<-call.Peer().Done
		synctest.Wait()
		if n := s.governor.Status().Node.Data.Count; n != 1 || len(call.Body()) == 0 {
			t.Error("the call lost its slot while it runs", n)
		}
		if err := call.Respond(s.h.answer(request(1)), ua.StatusGood, 0); !errors.Is(err, ua.StatusBadConnectionClosed) {
			t.Error(err)
		}
		if n := s.governor.Status().Node.Data.Count; n != 0 {
			t.Error("governor holds", n)
		}
	})
}

// A dropped call ends without an answer.
func TestDrop(t *testing.T) {
	both(t, plain, func(t *testing.T, s *server, c *http.Client) {
		s.h.hold = true
		done := make(chan error)
		go func() {
			r, _ := http.NewRequest("POST", "https://plant/", bytes.NewReader(request(1)))
			r.Header.Set("Content-Type", binaryType)
			_, err := c.Do(r)
			done <- err
		}()
		call := <-s.h.held
		call.Drop(ua.StatusBadServerHalted)
		call.Drop(ua.StatusBadServerHalted)
		if err := <-done; err == nil {
			t.Error("an answer?")
		}
		if err := call.Respond(s.h.answer(request(1)), ua.StatusGood, 0); err == nil {
			t.Error("answered after Drop")
		}
	})
}

// An answer that JSON cannot take is refused, and the call goes on.
func TestResponseTooLarge(t *testing.T) {
	both(t, plain, func(t *testing.T, s *server, c *http.Client) {
		s.h.hold = true
		done := make(chan answer)
		go func() { done <- post(t, c, jsonType, []byte(readJSON)) }()
		call := <-s.h.held
		s.h.large = 40 << 20
		if err := call.Respond(s.h.answer(request(1)), ua.StatusGood, 0); !errors.Is(err, ua.StatusBadResponseTooLarge) {
			t.Error(err)
		}
		s.h.large = 0
		if err := call.Respond(s.h.answer(request(1)), ua.StatusGood, 0); err != nil {
			t.Error(err)
		}
		if a := <-done; a.code != 200 {
			t.Error(a.code)
		}
	})
}

// At the end of Serve answers already given are written, silent connections
// closed, and calls told that nobody waits.
func TestShutdown(t *testing.T) {
	both(t, plain, func(t *testing.T, s *server, c *http.Client) {
		s.h.hold = true
		silent := s.dial(t)
		type outcome struct {
			code int
			err  error
		}
		done := make(chan outcome)
		send := func() {
			r, _ := http.NewRequest("POST", "https://plant/", bytes.NewReader(request(1)))
			r.Header.Set("Content-Type", binaryType)
			resp, err := c.Do(r)
			if err != nil {
				done <- outcome{0, err}
				return
			}
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			done <- outcome{resp.StatusCode, err}
		}
		go send()
		answered := <-s.h.held
		go send()
		never := <-s.h.held
		begun := time.Now()
		s.cancel()
		synctest.Wait()
		if err := answered.Respond(s.h.answer(request(1)), ua.StatusGood, 0); err != nil {
			t.Error(err)
		}
		if o := <-done; o.code != 200 || o.err != nil {
			t.Error(o)
		}
		<-never.Context().Done()
		if o := <-done; o.err == nil {
			t.Error("an answer?")
		}
		s.done.Wait()
		if d := time.Since(begun); d > 2*time.Second {
			t.Error("took", d)
		}
		never.Drop(ua.StatusBadServerHalted)
		ends(t, silent)
	})
}

// Mutual TLS: the handler sees the verified certificate.
func TestMutualTLS(t *testing.T) {
	cert, pool := pair()
	bubble(t, Options{TLS: &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven}}, func(t *testing.T, s *server) {
		var p *transport.Peer
		s.h.seen = func(c transport.Call) { p = c.Peer() }
		for _, own := range [][]tls.Certificate{nil, {cert}} {
			c := tls.Client(s.dial(t), &tls.Config{RootCAs: pool, ServerName: "plant", NextProtos: []string{"http/1.1"}, Certificates: own})
			if a := raw(t, c, withLength(len(request(1)))+string(request(1))); a.code != 200 {
				t.Error(a.code)
			}
			if got := p.Certificate; (got != nil) != (own != nil) || got != nil && !got.Equal(cert.Leaf) {
				t.Errorf("%d certificates shown, %v seen", len(own), got != nil)
			}
			_ = c.Close()
		}
	})
}

// Certificates are asked for at each handshake: a new one is in use at once.
func TestCertificateReload(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	second, _ := certify(key, &key.PublicKey)
	first, _ := pair()
	var now atomic.Pointer[tls.Certificate]
	now.Store(&first)
	o := Options{TLS: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return now.Load(), nil }}}
	bubble(t, o, func(t *testing.T, s *server) {
		for _, want := range []*x509.Certificate{first.Leaf, second.Leaf} {
			c := tls.Client(s.dial(t), &tls.Config{InsecureSkipVerify: true})
			if err := c.Handshake(); err != nil || !c.ConnectionState().PeerCertificates[0].Equal(want) {
				t.Error("other certificate", err)
			}
			_ = c.Close()
			now.Store(&second)
		}
	})
}

// The private-key work of an RSA certificate is done on the CryptoGate, that of
// an elliptic curve is not worth the way there.
func TestCryptoGate(t *testing.T) {
	gate := security.NewCryptoGate(1)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaCert, _ := certify(key, &key.PublicKey)
	ecCert, _ := pair()
	dial := func(s *server) error {
		c := tls.Client(s.dial(t), &tls.Config{InsecureSkipVerify: true})
		defer c.Close()
		return c.Handshake()
	}
	withRSA := start(t, true, Options{CryptoGate: gate, TLS: &tls.Config{Certificates: []tls.Certificate{rsaCert}}})
	withEC := start(t, true, Options{CryptoGate: gate, TLS: &tls.Config{Certificates: []tls.Certificate{ecCert}}})
	if err := errors.Join(dial(withRSA), dial(withEC)); err != nil {
		t.Fatal(err)
	}
	gate.Close()
	if dial(withRSA) == nil {
		t.Error("RSA went past the gate")
	}
	if err := dial(withEC); err != nil {
		t.Error(err)
	}
}

// proxyHeader says that a connection comes from 192.0.2.7:5555.
const proxyHeader = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\x0a\x00\x00\x01\x15\xb3\x12\xeb"

// PROXY protocol: the header comes before TLS, and on a shared port before the
// first byte that tells protocols apart.
func TestProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, _ := transport.NewGate(transport.GateOptions{ConnectionsUnlimited: true, ProxyPeers: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32")}})
		sinks := make(chan transport.Conn, 1)
		s := start(t, false, Options{Gate: gate, HTTPS: true, OPCTCP: true, NewSink: sink(sinks)})
		var p *transport.Peer
		s.h.seen = func(c transport.Call) { p = c.Peer() }
		_, pool := pair()

		nc := s.dial(t)
		_, _ = io.WriteString(nc, proxyHeader)
		c := tls.Client(nc, &tls.Config{RootCAs: pool, ServerName: "plant"})
		if a := raw(t, c, withLength(len(request(1)))+string(request(1))); a.code != 200 || p.RemoteAddr.String() != "192.0.2.7:5555" {
			t.Error(a.code, p)
		}

		nc = s.dial(t)
		_, _ = io.WriteString(nc, proxyHeader)
		limits := transport.Limits{}.Resolved()
		if _, err := uatcp.Connect(nc, nc, "opc.tcp://plant", &limits); err != nil {
			t.Error(err)
		} else if got := (<-sinks).RemoteAddr().String(); got != "192.0.2.7:5555" {
			t.Error(got)
		}

		nc = s.dial(t) // none from a balancer
		begun := time.Now()
		ends(t, nc)
		s.expectClosed(t, transport.ProxyHeader)
		if d := time.Since(begun); d != transport.ProxyTimeout {
			t.Error(d)
		}
		nc = s.dial(t)
		_, _ = nc.Write(make([]byte, 100))
		ends(t, nc)
		s.expectClosed(t, transport.ProxyHeader)
	})
}

// still is a Sink that takes what comes.
type still struct{ transport.Conn }

func (still) Ready() bool                  { return true }
func (still) Chunk([]byte, time.Time)      {}
func (still) Busy() bool                   { return false }
func (still) Closed(transport.CloseReason) {}

func sink(seen chan transport.Conn) func(transport.Conn) transport.Sink {
	return func(c transport.Conn) transport.Sink {
		select {
		case seen <- c:
		default:
		}
		return still{c}
	}
}

// One port for opc.tcp, opc.wss and opc.https, told apart by the first byte; on
// sockets opc.tcp keeps its way past package net.
func TestSharedPort(t *testing.T) {
	for _, loopback := range []bool{false, true} {
		run := func(t *testing.T) {
			sinks := make(chan transport.Conn, 1)
			s := start(t, loopback, Options{HTTPS: true, WSS: true, OPCTCP: true, NewSink: sink(sinks)})
			limits := transport.Limits{}.Resolved()
			c := s.dial(t)
			p, err := uatcp.Connect(c, c, "opc.tcp://plant", &limits)
			if err != nil || p.BufferSize != 65535 {
				t.Fatal(p, err)
			}
			<-sinks
			if a := post(t, s.client(t, false), binaryType, request(1)); a.code != 200 {
				t.Error(a.code)
			}
			if a := post(t, s.client(t, true), binaryType, request(1)); a.code != 200 {
				t.Error(a.code)
			}
			if n := s.Connections(); n != 3 {
				t.Error(n, "connections")
			}
			// hostile.md X38: a server never dials, on whatever port.
			r := s.dial(t)
			_, _ = io.WriteString(r, "RHEF\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
			if _, err := uatcp.ReadMessage(r, make([]byte, 8192)); !errors.Is(err, ua.StatusBadTCPMessageTypeInvalid) {
				t.Error(err)
			}
			x := s.dial(t)
			_, _ = io.WriteString(x, "X")
			ends(t, x)
			s.cancel()
			if _, err := uatcp.ReadMessage(c, make([]byte, 8192)); !errors.Is(err, ua.StatusBadServerHalted) {
				t.Error(err)
			}
		}
		if loopback {
			t.Run("sockets", run)
		} else {
			t.Run("memory", func(t *testing.T) { synctest.Test(t, run) })
		}
	}
}

// Options that cannot work are refused by name.
func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{},
		{OPCTCP: true},
		{HTTPS: true, TLS: &tls.Config{}},
		{WSS: true, TLS: &tls.Config{}},
		{HTTPS: true, Calls: &calls{}},
		{HTTPS: true, Calls: &calls{}, TLS: &tls.Config{}, RequestsPerSecond: -1},
		{HTTPS: true, Calls: &calls{}, TLS: &tls.Config{}, Limits: transport.Limits{MaxMessageSize: 1}},
		{WSS: true, Calls: &calls{}, TLS: &tls.Config{}, AllowedOrigins: []string{"[a"}},
	} {
		if _, err := New(noListener{}, o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

type noListener struct{ net.Listener }

func (noListener) Addr() net.Addr { return nil }
