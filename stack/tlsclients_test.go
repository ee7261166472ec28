package stack_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/stack"
)

// The authorities of mutual TLS are read again when their file changes; a file
// that cannot be used, or is cut off, changes nothing. Who has a ticket from
// before is no better off.
func TestClientAuthoritiesReload(t *testing.T) {
	folder := t.TempDir()
	o := stack.Options{Security: stack.Security{Policies: stack.NoPolicies, AllowNone: true, AllowAnonymous: true}}
	o.HTTP.AllowPolicyNone = true
	synctest.Test(t, func(t *testing.T) {
		var pairs [2]tls.Certificate
		var files [2][]byte
		for i := range pairs {
			cert, key := pairFile(t, folder, int64(i))
			var err error
			if pairs[i], err = tls.LoadX509KeyPair(cert, key); err != nil {
				t.Fatal(err)
			}
			if files[i], err = os.ReadFile(cert); err != nil {
				t.Fatal(err)
			}
		}
		o.TLS.ClientCAs, o.TLS.RequireClientCertificate = filepath.Join(folder, "clients.pem"), true
		write := func(b []byte) {
			t.Helper()
			if err := os.WriteFile(o.TLS.ClientCAs, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(files[0])
		bubble(t, o, func(s *site) {
			ln := memnet.Listen("192.0.2.2:4843")
			ended := make(chan error, 1)
			go func() { ended <- s.srv.ServeTLS(ln) }()
			caches := [2]tls.ClientSessionCache{tls.NewLRUClientSessionCache(0), tls.NewLRUClientSessionCache(0)}
			p := &peer{T: t}
			body := p.encode(&ua.GetEndpointsRequest{RequestHeader: p.header()})
			enters := func(i int) (yes, resumed bool) {
				t.Helper()
				conn, err := ln.Dial(t.Context(), netip.MustParseAddrPort("192.0.2.1:1"))
				if err != nil {
					t.Fatal(err)
				}
				cfg := insecure()
				cfg.ServerName, cfg.Certificates, cfg.ClientSessionCache = "plant", pairs[i:i+1], caches[i]
				c := tls.Client(conn, cfg)
				defer c.Close()
				if c.Handshake() != nil {
					return false, false
				}
				fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: plant\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				rs, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil { // TLS 1.3: the alert comes behind the handshake
					return false, false
				}
				return rs.StatusCode == http.StatusOK, c.ConnectionState().DidResume
			}
			expect := func(when string, first, second bool) {
				t.Helper()
				for i, want := range []bool{first, second} {
					if got, _ := enters(i); got != want {
						t.Errorf("%s: client %d enters: %v", when, i, got)
					}
				}
			}
			expect("at first", true, false)
			if yes, resumed := enters(0); !yes || !resumed {
				t.Error("a ticket is good for nothing, so this test is as well:", yes, resumed)
			}
			for _, bad := range [][]byte{[]byte("rubbish"), nil, bytes.Join(files[:], nil)[:len(files[0])+len(files[1])-30]} {
				write(bad)
				time.Sleep(3 * time.Second)
				expect("after a bad file", true, false)
			}
			if !testLog.contains("authorities of TLS clients cannot be used") {
				t.Error("the bad file is not in the log")
			}
			write(files[1])
			time.Sleep(3 * time.Second)
			expect("after the change", false, true)
			write(bytes.Join(files[:], nil))
			time.Sleep(3 * time.Second)
			expect("both", true, true)
			s.down()
			<-ended
		})
	})
}

// Without RequireClientCertificate clients may show no certificate, but none that
// the authorities do not know.
func TestClientCertificateIsVerified(t *testing.T) {
	folder := t.TempDir()
	o := stack.Options{Security: stack.Security{Policies: stack.NoPolicies, AllowNone: true, AllowAnonymous: true}}
	o.HTTP.AllowPolicyNone = true
	synctest.Test(t, func(t *testing.T) {
		var pairs [2]tls.Certificate
		for i := range pairs {
			cert, key := pairFile(t, folder, int64(i))
			var err error
			if pairs[i], err = tls.LoadX509KeyPair(cert, key); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				o.TLS.ClientCAs = filepath.Join(folder, "clients.pem")
				if err := os.Rename(cert, o.TLS.ClientCAs); err != nil {
					t.Fatal(err)
				}
			}
		}
		bubble(t, o, func(s *site) {
			ln := memnet.Listen("192.0.2.2:4843")
			ended := make(chan error, 1)
			go func() { ended <- s.srv.ServeTLS(ln) }()
			for _, tc := range []struct {
				name  string
				shown []tls.Certificate
				in    bool
			}{
				{"none", nil, true},
				{"known", pairs[:1], true},
				{"unknown", pairs[1:], false},
			} {
				conn, err := ln.Dial(t.Context(), netip.MustParseAddrPort("192.0.2.1:1"))
				if err != nil {
					t.Fatal(err)
				}
				cfg := insecure()
				cfg.ServerName = "plant"
				cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					if len(tc.shown) == 0 {
						return new(tls.Certificate), nil
					}
					return &tc.shown[0], nil // whatever authorities the server names
				}
				c := tls.Client(conn, cfg)
				in := c.Handshake() == nil
				if in { // TLS 1.3: the alert comes behind the handshake
					fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: plant\r\n\r\n")
					_, err := http.ReadResponse(bufio.NewReader(c), nil)
					in = err == nil
				}
				if in != tc.in {
					t.Errorf("%s certificate: enters %v", tc.name, in)
				}
				_ = c.Close()
			}
			s.down()
			<-ended
		})
	})
}
