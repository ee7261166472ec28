package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// wssEndpoint is the gateway's endpoint of opc.wss.
func wssEndpoint() *ua.EndpointDescription {
	return &ua.EndpointDescription{EndpointURL: wssURL, SecurityMode: ua.MessageSecurityModeNone, SecurityPolicyURI: security.None.URI, TransportProfileURI: profileWSS,
		UserIdentityTokens: []*ua.UserTokenPolicy{{PolicyID: "anonymous_None", TokenType: ua.UserTokenTypeAnonymous}}}
}

// A session over opc.https and opc.wss: values, big requests, the loss of every
// connection in the middle, and the end. The session is the same one afterwards,
// and no value is lost or comes twice.
func TestWebSessions(t *testing.T) {
	for _, c := range []struct {
		name, url string
		h2        bool
		conns     int // at most, at the same time
	}{
		{"https, HTTP/1.1", httpsURL, false, 16},
		{"https, HTTP/2", httpsURL, true, 3}, // net/http dials for each request until it knows of HTTP/2
		{"wss", wssURL, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inGateway(t, c.h2, func(g *gateway) {
				o := g.webOpts()
				if c.url == wssURL {
					o.Endpoint = g.tokenOf(wssEndpoint())
				}
				s, err := Connect(g.ctx, c.url, o)
				if err != nil {
					t.Fatal(err)
				}
				was, _ := s.ID()
				sub, err := s.Subscribe(g.ctx, SubscriptionOptions{Interval: 100 * time.Millisecond}, Monitor{NodeID: g.id(), QueueSize: 1000})
				if err != nil {
					t.Fatal(err)
				}
				tal := gather(sub)
				big := bytes.Repeat([]byte("x"), 200_000) // several chunks
				blob := g.srv.AddressSpace().Namespace("urn:plant").Variable("Blob", big)
				if v, err := s.ReadValue(g.ctx, blob.Node().ID().UA()); err != nil || !bytes.Equal(v.Value.Value().([]byte), big) {
					t.Errorf("%v", err)
				}
				if err := s.WriteValue(g.ctx, g.id(), int64(1)); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute)
				g.cutWeb()
				g.set(2)
				time.Sleep(time.Minute)
				g.set(3)
				time.Sleep(time.Second)
				tal.end()
				if err := tal.exactly(0, 3); err != nil || tal.recreated+tal.missed > 0 {
					t.Errorf("%v, recreated %d, missed %d", err, tal.recreated, tal.missed)
				}
				if is, _ := s.ID(); is == nil || is.String() != was.String() {
					t.Errorf("session %v, was %v", is, was)
				}
				if g.peak > c.conns && c.conns > 0 {
					t.Errorf("%d connections", g.peak)
				}
				g.close(s)
				time.Sleep(time.Second)
				if st := g.stats(); st.Sessions != 0 || st.Subscriptions != 0 {
					t.Errorf("%+v", st)
				}
				g.mu.Lock()
				if g.open != 0 {
					t.Errorf("%d connections are open", g.open)
				}
				g.mu.Unlock()
			})
		})
	}
}

// A server that does not take a session back over HTTPS, because the channel that
// stood for it is gone: a new session takes the subscriptions over, with what was
// queued, at once and in one attempt.
func TestHTTPSSessionNotTakenBack(t *testing.T) {
	for _, code := range []ua.StatusCode{ua.StatusBadSecurityChecksFailed, ua.StatusBadSecureChannelIDInvalid, ua.StatusBadApplicationSignatureInvalid} {
		t.Run(code.Error(), func(t *testing.T) {
			inGatewayOf(t, stack.Options{Authenticator: operator{}}, false, func(g *gateway) {
				s, err := Connect(g.ctx, httpsURL, g.webOpts())
				if err != nil {
					t.Fatal(err)
				}
				was, _ := s.ID()
				sub, err := s.Subscribe(g.ctx, SubscriptionOptions{Interval: 100 * time.Millisecond}, Monitor{NodeID: g.id(), QueueSize: 1000})
				if err != nil {
					t.Fatal(err)
				}
				tal := gather(sub)
				for v := int64(1); v <= 3; v++ {
					time.Sleep(time.Minute)
					g.set(v)
				}
				g.refuse("ActivateSession", code)
				g.cutWeb()
				g.set(4)
				g.set(5)
				synctest.Wait()
				time.Sleep(breath + time.Millisecond)
				synctest.Wait()
				g.mu.Lock()
				refused := g.refused
				g.mu.Unlock()
				if st := s.State(); refused != 1 || st.State != Online || st.Attempt != 0 {
					t.Errorf("%d refusals, %+v", refused, st)
				}
				time.Sleep(time.Minute)
				g.set(6)
				time.Sleep(time.Second)
				tal.end()
				if err := tal.exactly(0, 6); err != nil || tal.recreated+tal.missed > 0 {
					t.Errorf("%v, recreated %d, missed %d", err, tal.recreated, tal.missed)
				}
				if is, _ := s.ID(); is == nil || is.String() == was.String() || s.State().State != Online {
					t.Errorf("session %v, was %v, %v", is, was, s.State().State)
				}
				if st := g.stats(); st.Subscriptions != 1 {
					t.Errorf("%d subscriptions", st.Subscriptions)
				}
				g.close(s)
			})
		})
	}
}

// tokenOf gives an endpoint the plant's user tokens.
func (g *gateway) tokenOf(e *ua.EndpointDescription) *ua.EndpointDescription {
	list, err := Endpoints(g.ctx, plantURL, g.opts())
	if err != nil {
		g.Fatal(err)
	}
	e.UserIdentityTokens = list[0].UserIdentityTokens
	return e
}

// overload.md §9: 503 and 429 with Retry-After are a busy server with a hint, which
// the first attempt and later ones honour.
func TestWebRetryAfter(t *testing.T) {
	for _, url := range []string{httpsURL, wssURL} {
		for _, status := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests} {
			t.Run(fmt.Sprintf("%s/%d", url[4:7], status), func(t *testing.T) {
				inGateway(t, false, func(g *gateway) {
					o := g.webOpts()
					if url == wssURL {
						o.Endpoint = g.tokenOf(wssEndpoint())
					}
					g.on(func(n int, w http.ResponseWriter, _ *http.Request) bool {
						if n > 2 {
							return false
						}
						w.Header().Set("Retry-After", "7")
						w.WriteHeader(status)
						return true
					})
					begun := time.Now()
					s, err := Connect(g.ctx, url, o)
					if err != nil {
						t.Fatal(err)
					}
					if d := time.Since(begun); d != 14*time.Second {
						t.Errorf("connected after %v", d)
					}
					g.close(s)
				})
			})
		}
	}
}

// A refused request is one request's matter: the session and its connections stay.
func TestHTTPSAnswers(t *testing.T) {
	page := func(status int, kind string, size int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Retry-After", "3")
			w.Header().Set("Location", "https://192.0.2.66/")
			w.WriteHeader(status)
			_, _ = w.Write(bytes.Repeat([]byte("x"), size))
		}
	}
	for _, c := range []struct {
		name string
		send func(http.ResponseWriter)
		code ua.StatusCode
		hint time.Duration
	}{
		{"503", page(503, "text/plain", 10), uastatus.BadServerTooBusy, 3 * time.Second},
		{"429", page(429, "text/plain", 10), uastatus.BadServerTooBusy, 3 * time.Second},
		{"413", page(413, "text/plain", 10), ua.StatusBadRequestTooLarge, 0},
		{"404", page(404, "text/html", 100_000), ua.StatusBadCommunicationError, 0},
		{"403", page(403, "text/html", 10), ua.StatusBadUserAccessDenied, 0},
		{"a redirection is not followed", page(307, "text/html", 10), ua.StatusBadCommunicationError, 0},
		{"a page", page(200, "text/html", 10), ua.StatusBadUnknownResponse, 0},
		{"no message", page(200, "application/octet-stream", 3), ua.StatusBadDecodingError, 0},
		{"too large", page(200, "application/octet-stream", 100_000), ua.StatusBadResponseTooLarge, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inGateway(t, false, func(g *gateway) {
				o := g.webOpts()
				o.Limits.MaxMessageSize = 65_536
				s, err := Connect(g.ctx, httpsURL, o)
				if err != nil {
					t.Fatal(err)
				}
				was, _ := s.ID()
				dials := g.dials
				g.on(func(_ int, w http.ResponseWriter, _ *http.Request) bool { c.send(w); return true })
				_, err = s.ReadValue(g.ctx, g.id())
				if code, hint := reconnect.Signal(err); code != c.code || hint != c.hint {
					t.Errorf("%v: %v, %v", err, code, hint)
				}
				g.on(nil)
				if _, err := s.ReadValue(g.ctx, g.id()); err != nil {
					t.Error(err)
				}
				if is, _ := s.ID(); is.String() != was.String() || s.State().State != Online || g.dials > dials+1 {
					t.Errorf("session %v, was %v, %v, %d connections", is, was, s.State(), g.dials-dials)
				}
				g.close(s)
			})
		})
	}
}

// A request that nobody waits for is taken back, so that it holds no connection.
func TestHTTPSCancels(t *testing.T) {
	inGateway(t, false, func(g *gateway) {
		s, err := Connect(g.ctx, httpsURL, g.webOpts())
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan time.Time, 1)
		begun := time.Now()
		g.on(func(_ int, _ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not look
			<-r.Context().Done()
			ended <- time.Now()
			return true
		})
		ctx, cancel := context.WithTimeout(g.ctx, time.Second)
		defer cancel()
		if _, err := s.ReadValue(ctx, g.id()); !errors.Is(err, ua.StatusBadTimeout) {
			t.Error(err)
		}
		if d := (<-ended).Sub(begun); d != time.Second {
			t.Errorf("the request ended after %v", d)
		}
		g.on(nil)
		if _, err := s.ReadValue(g.ctx, g.id()); err != nil {
			t.Error(err)
		}
		g.close(s)
	})
}

// Who is believed, and that nothing is sent to anybody else.
func TestTLSTrust(t *testing.T) {
	for _, url := range []string{httpsURL, wssURL} {
		inGateway(t, false, func(g *gateway) {
			sum := sha256.Sum256(g.cert.Raw)
			roots := g.webOpts().TLS.RootCAs
			other := strings.Replace(url, "192.0.2.9", "192.0.2.10", 1)
			for _, c := range []struct {
				name string
				url  string
				tls  TLSOptions
				code ua.StatusCode // Good: it connects
			}{
				{"authority", url, TLSOptions{RootCAs: roots}, ua.StatusOK},
				{"no authority", url, TLSOptions{RootCAs: x509.NewCertPool()}, ua.StatusBadCertificateUntrusted},
				{"another host", other, TLSOptions{RootCAs: roots}, ua.StatusBadCertificateHostNameInvalid},
				{"pinned", other, TLSOptions{RootCAs: x509.NewCertPool(), Pins: [][32]byte{{1}, sum}}, ua.StatusOK},
				{"not pinned", url, TLSOptions{RootCAs: roots, Pins: [][32]byte{{1}}}, ua.StatusBadCertificateUntrusted},
				{"not pinned, insecure", url, TLSOptions{InsecureSkipVerify: true, Pins: [][32]byte{{1}}}, ua.StatusBadCertificateUntrusted},
				{"insecure", other, TLSOptions{InsecureSkipVerify: true}, ua.StatusOK},
			} {
				o := g.webOpts()
				o.TLS, o.Reconnect = c.tls, reconnect.Policy{MaxRetries: -1}
				o.Transport = ByScheme{Dial: func(ctx context.Context, a string) (net.Conn, error) { return g.reach(ctx, webHost) }}
				if url == wssURL {
					o.Endpoint = g.tokenOf(wssEndpoint())
				}
				g.on(nil)
				s, err := Connect(g.ctx, c.url, o)
				if codeOf(err) != c.code {
					t.Errorf("%s %s: %v", url, c.name, err)
				}
				g.mu.Lock()
				if (g.requests > 0) != (err == nil) {
					t.Errorf("%s %s: %d requests", url, c.name, g.requests)
				}
				g.mu.Unlock()
				if err == nil {
					g.close(s)
				}
			}
		})
	}
}

// What servers do to WebSockets: text, close codes, another sub-protocol, silence.
// The session comes back each time.
func TestWebSocketTroubles(t *testing.T) {
	accept := func(w http.ResponseWriter, r *http.Request) *websocket.Conn {
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"opcua+uacp"}})
		if err != nil {
			t.Error(err)
		}
		return ws
	}
	for _, c := range []struct {
		name string
		do   func(g *gateway, w http.ResponseWriter, r *http.Request)
		want time.Duration // until it is connected
	}{
		{"text (RFC 6455 1003)", func(g *gateway, w http.ResponseWriter, r *http.Request) {
			ws := accept(w, r)
			_ = ws.Write(g.ctx, websocket.MessageText, []byte("ACKF"))
			if _, _, err := ws.Read(g.ctx); err == nil {
				_, _, err = ws.Read(g.ctx) // the Hello came first
				if websocket.CloseStatus(err) != websocket.StatusUnsupportedData {
					t.Errorf("closed with %v", err)
				}
			}
		}, time.Second},
		{"try again later (1013)", func(g *gateway, w http.ResponseWriter, r *http.Request) {
			_ = accept(w, r).Close(websocket.StatusTryAgainLater, "RetryAfterMs=9000")
		}, 9 * time.Second},
		{"too big (1009)", func(g *gateway, w http.ResponseWriter, r *http.Request) {
			_ = accept(w, r).Close(websocket.StatusMessageTooBig, "")
		}, time.Second},
		{"another sub-protocol", func(g *gateway, w http.ResponseWriter, r *http.Request) {
			ws, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			_, _, _ = ws.Read(g.ctx)
		}, time.Second},
		{"a frame without end", func(g *gateway, w http.ResponseWriter, r *http.Request) {
			ws := accept(w, r)
			_ = ws.Write(g.ctx, websocket.MessageBinary, make([]byte, 200_000))
			_, _, _ = ws.Read(g.ctx)
			_ = ws.CloseNow()
		}, time.Second},
		{"no upgrade", func(_ *gateway, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inGateway(t, false, func(g *gateway) {
				o := g.webOpts()
				o.Endpoint = g.tokenOf(wssEndpoint())
				g.on(func(n int, w http.ResponseWriter, r *http.Request) bool {
					if n == 1 {
						c.do(g, w, r)
					}
					return n == 1
				})
				begun := time.Now()
				s, err := Connect(g.ctx, wssURL, o)
				if err != nil {
					t.Fatal(err)
				}
				if d := time.Since(begun); d < c.want || d > c.want+2*time.Second {
					t.Errorf("connected after %v, want %v", d, c.want)
				}
				if _, err := s.ReadValue(g.ctx, g.id()); err != nil {
					t.Error(err)
				}
				g.close(s)
			})
		})
	}
}

// A server that takes the connection and never says a word of TLS: the attempt ends
// with its context, and the connection with it.
func TestWebSocketSilentTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1"))
		near, far := memnet.Pair(at, at, 0)
		u, err := parseURL(wssURL)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := WebSocket{Dial: func(context.Context, string) (net.Conn, error) { return near, nil }}
		begun := time.Now()
		if _, err := w.Open(ctx, ChannelConfig{URL: u, Policy: security.None}); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if _, err := io.Copy(io.Discard, far); err != nil {
			t.Error(err)
		}
		far.Close()
	})
}

// Schemes have their ports, and the web's names the web's.
func TestSchemes(t *testing.T) {
	for in, want := range map[string]string{
		"opc.https://h/x?y=1": "https://h:4843/x?y=1",
		"opc.https://h:1":     "https://h:1/",
		"https://[::1]":       "https://[::1]:443/",
		"OPC.WSS://h":         "wss://h:4843/",
		"wss://u:p@h/":        "wss://h:443/",
	} {
		u, err := parseURL(in)
		if err != nil {
			t.Fatal(err)
		}
		s, err := schemeOf(u)
		if got := s.webURL(u); err != nil || got != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	for _, in := range []string{"ftp://h", "http://h", "opc.http://h", "h:4840", "opc.tcp://"} {
		if _, err := parseURL(in); !errors.Is(err, ua.StatusBadTCPEndpointURLInvalid) {
			t.Errorf("%s: %v", in, err)
		}
	}
	for _, tr := range []Transport{TCP{}, WebSocket{}, HTTPS{}} {
		refused := 0
		for _, in := range []string{"opc.tcp://h", "opc.wss://h", "opc.https://h"} {
			u, _ := parseURL(in)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := tr.Open(ctx, ChannelConfig{URL: u, Policy: security.None}); err != nil && strings.Contains(err.Error(), "client: no ") {
				refused++
			}
		}
		if refused != 2 {
			t.Errorf("%T refuses %d of 3 schemes", tr, refused)
		}
	}
}
