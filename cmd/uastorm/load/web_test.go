package load

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/client"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport/wss"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/coder/websocket"
	"github.com/gopcua/opcua/ua"
)

// webTarget is a target without security at a server of HTTP.
func webTarget(t *testing.T, scheme, address string) *Target {
	t.Helper()
	a, err := Resolve(t.Context(), scheme+"://"+address, false)
	if err != nil {
		t.Fatal(err)
	}
	return &Target{Address: a, Policy: security.None, Mode: ua.MessageSecurityModeNone, timeout: 20 * time.Second,
		tls: client.TLSOptions{InsecureSkipVerify: true}, token: &ua.UserTokenPolicy{}, tokenPolicy: security.None}
}

// overload.md §9: what a server says with HTTP and WebSockets are refusals with
// their hints, and what it does not say is silence.
func TestWebRefusals(t *testing.T) {
	status := func(code int, retry string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if retry != "" {
				w.Header().Set("Retry-After", retry)
			}
			w.WriteHeader(code)
		}
	}
	closing := func(code websocket.StatusCode, reason string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{wss.SubprotocolUACP}}); err == nil {
				_ = c.Close(code, reason)
			}
		}
	}
	both, ws, post := []string{SchemeWSS, SchemeHTTPS}, []string{SchemeWSS}, []string{SchemeHTTPS}
	for _, c := range []struct {
		name    string
		schemes []string
		handler http.HandlerFunc
		how     measure.Refusal
		code    ua.StatusCode
		hint    time.Duration
		kept    bool // the channel, for the next attempt
	}{
		{"503 with a hint", both, status(503, "7"), measure.ByError, uastatus.BadServerTooBusy, 7 * time.Second, true},
		{"429 with a hint", both, status(429, "2"), measure.ByError, uastatus.BadServerTooBusy, 2 * time.Second, true},
		{"503 without", both, status(503, ""), measure.ByError, uastatus.BadServerTooBusy, 0, true},
		{"413", post, status(413, ""), measure.ByFault, ua.StatusBadRequestTooLarge, 0, false},
		{"close 1013 with a hint", ws, closing(1013, "RetryAfterMs=700"), measure.ByError, uastatus.BadServerTooBusy, 700 * time.Millisecond, false},
		{"close 1008", ws, closing(1008, "no"), measure.ByError, ua.StatusBadConnectionClosed, 0, false},
		{"cut", both, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, measure.BySilence, ua.StatusBadConnectionClosed, 0, false},
	} {
		for _, scheme := range c.schemes {
			for _, h2 := range []bool{false, true} {
				if h2 && scheme == SchemeWSS {
					continue
				}
				name := c.name + " " + scheme
				if h2 {
					name += " HTTP/2"
				}
				t.Run(name, func(t *testing.T) {
					srv := httptest.NewUnstartedServer(c.handler)
					srv.EnableHTTP2 = h2
					srv.StartTLS()
					defer srv.Close()
					target := webTarget(t, scheme, srv.Listener.Addr().String())
					var l link
					defer l.drop()
					err := l.step(t.Context(), func(ctx context.Context) (*conn, error) { return target.open(ctx, nil, smallBuffer) })
					how, code, hint := classify(err)
					if how != c.how || code != c.code || hint != c.hint {
						t.Errorf("%v, %v, %v (%v); want %v, %v, %v", how, code, hint, err, c.how, c.code, c.hint)
					}
					l.failed(err)
					if kept := l.conn != nil; kept != (c.kept && scheme == SchemeHTTPS) {
						t.Errorf("channel kept: %v", kept)
					}
				})
			}
		}
	}
}

// A TLS handshake that is cut is silence: there was no word in which to refuse.
func TestTLSCut(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	for _, scheme := range []string{SchemeWSS, SchemeHTTPS} {
		target := webTarget(t, scheme, ln.Addr().String())
		err := target.Try(t.Context())
		if how, code, hint := classify(err); how != measure.BySilence || code != ua.StatusBadConnectionClosed || hint != 0 {
			t.Errorf("%s: %v, %v, %v (%v)", scheme, how, code, hint, err)
		}
	}
	_ = ln.Close()
	<-done
}

// Any certificate of TLS will do, unless it is said whose it must be.
func TestTLSAuthorities(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	a, err := Resolve(t.Context(), "opc.https://"+srv.Listener.Addr().String(), false)
	if err != nil {
		t.Fatal(err)
	}
	its, others := x509.NewCertPool(), x509.NewCertPool()
	its.AddCert(srv.Certificate())
	for _, c := range []struct {
		pool *x509.CertPool
		says string
	}{{nil, "404"}, {its, "404"}, {others, "BadCertificateUntrusted"}} {
		_, err := Discover(t.Context(), a, Security{RootCAs: c.pool})
		code := ""
		var status ua.StatusCode
		if errors.As(err, &status) {
			code = uastatus.Name(status)
		}
		if err == nil || !strings.Contains(err.Error()+code, c.says) {
			t.Errorf("%v; want %s", err, c.says)
		}
	}
}
