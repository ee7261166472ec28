package client

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
)

// secured runs a server with all current policies on loopback.
func secured(t *testing.T) (srv *stack.Server, url string) {
	t.Helper()
	dir := t.TempDir()
	known, err := session.OpenUsers(filepath.Join(dir, "users.yaml"), session.UsersOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := known.Add(session.User{Name: "operator"}, []byte("secret")); err != nil {
		t.Fatal(err)
	}
	srv, err = stack.NewServer(stack.Options{
		ApplicationName: "Boiler house", Endpoints: []string{"opc.tcp://127.0.0.1:0"}, Logger: quiet(),
		Authenticator: &session.Identities{Anonymous: true, Users: known},
		Security:      stack.Security{AllowNone: true, AllowAnonymous: true, PKI: filepath.Join(dir, "pki"), TrustAll: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Listen(ctx); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return srv, "opc.tcp://" + srv.Addrs()[0].String()
}

// ours is a client's PKI folder with its key.
func ours(t *testing.T) (store *pki.Store, key *security.Key) {
	t.Helper()
	store, err := pki.Open(t.TempDir(), pki.Options{Logger: quiet(), SuppressRevocationUnknown: true})
	if err != nil {
		t.Fatal(err)
	}
	gate := security.NewCryptoGate(1)
	t.Cleanup(gate.Close)
	key, err = LoadKey(store, pki.AppInfo{ApplicationURI: "urn:test:client", ApplicationName: "Test client"}, gate)
	if err != nil {
		t.Fatal(err)
	}
	return store, key
}

func trust(t *testing.T, store *pki.Store, srv *stack.Server) string {
	t.Helper()
	file := filepath.Join(store.Dir(), pki.FolderTrusted, "server.der")
	if err := os.WriteFile(file, srv.Key().Certificate(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// Every policy, mode and identity against the real server, over real sockets,
// with the connection cut once: the session is taken up again with a fresh nonce.
func TestSecuredSessions(t *testing.T) {
	srv, url := secured(t)
	store, key := ours(t)
	trust(t, store, srv)
	now := ua.NewNumericNodeID(0, id.Server_ServerStatus_CurrentTime)
	for _, p := range []*security.Policy{nil, security.Basic256Sha256, security.Aes128Sha256RsaOaep, security.Aes256Sha256RsaPss} {
		for _, mode := range []ua.MessageSecurityMode{ua.MessageSecurityModeSign, ua.MessageSecurityModeSignAndEncrypt} {
			var identity Identity
			if mode == ua.MessageSecurityModeSignAndEncrypt {
				identity = &UserName{Name: "operator", Password: []byte("secret")}
			}
			t.Run(fmt.Sprintf("%s/%v", policyName(p), mode), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				var mu sync.Mutex
				var last net.Conn
				dial := func(ctx context.Context, address string) (net.Conn, error) {
					var d net.Dialer
					c, err := d.DialContext(ctx, "tcp", address)
					mu.Lock()
					last = c
					mu.Unlock()
					return c, err
				}
				s, err := Connect(ctx, url, Options{Policy: p, Mode: mode, Key: key, PKI: store, Identity: identity, Logger: quiet(),
					Transport: TCP{Dial: dial}, Reconnect: reconnect.Policy{InitialDelay: 20 * time.Millisecond}})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close(ctx)
				was, _ := s.ID()
				sub, err := s.Subscribe(ctx, SubscriptionOptions{Interval: 50 * time.Millisecond}, Monitor{NodeID: now})
				if err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				last.Close()
				mu.Unlock()
				if _, err := s.ReadValue(ctx, now); err != nil && !errors.Is(err, ua.StatusBadConnectionClosed) {
					t.Error(err)
				}
				if _, err := s.ReadValue(ctx, now); err != nil {
					t.Error(err)
				}
				n := 0
				for range sub.Values(ctx) {
					if n++; n == 2 {
						break
					}
				}
				is, _ := s.ID()
				if is == nil || is.String() != was.String() {
					t.Errorf("session %v, was %v", is, was)
				}
				if ep := s.Endpoint(); ep.SecurityMode != mode || p != nil && ep.SecurityPolicyURI != p.URI {
					t.Errorf("%v %s", ep.SecurityMode, ep.SecurityPolicyURI)
				}
			})
		}
	}
	t.Run("user name on an unsecured channel", func(t *testing.T) {
		s, err := Connect(t.Context(), url, Options{Policy: security.None, PKI: store, Identity: &UserName{Name: "operator", Password: []byte("secret")}, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		s.Close(t.Context())
	})
	t.Run("wrong password", func(t *testing.T) {
		_, err := Connect(t.Context(), url, Options{Key: key, PKI: store, Identity: &UserName{Name: "operator", Password: []byte("Secret")}, Logger: quiet(), Reconnect: reconnect.Policy{MaxRetries: -1}})
		if !errors.Is(err, reconnect.ErrGaveUp) || !reconnect.IsFatal(codeOf(err)) {
			t.Errorf("%v", err)
		}
	})
	nobodyLeft(t, srv)
}

func policyName(p *security.Policy) string {
	if p == nil {
		return "strongest"
	}
	return p.Name
}

func codeOf(err error) ua.StatusCode {
	code, _ := reconnect.Signal(err)
	return code
}

// reopened is a store on the same folder that has just read it; an open one looks
// every second.
func reopened(t *testing.T, store *pki.Store) *pki.Store {
	t.Helper()
	again, err := pki.Open(store.Dir(), pki.Options{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// A server that nobody trusts is refused before anything is sent to it, and is
// given up after MaxFatalRetries. Trust taken back counts from the next
// connection on (hostile.md X23, seen from the client).
func TestServerCertificateIsChecked(t *testing.T) {
	srv, url := secured(t)
	store, key := ours(t)
	o := Options{Key: key, PKI: store, Logger: quiet(), Reconnect: reconnect.Policy{InitialDelay: time.Millisecond, JitterFactor: -1}}
	if _, err := Connect(t.Context(), url, o); !errors.Is(err, reconnect.ErrGaveUp) || !errors.Is(err, ua.StatusBadCertificateUntrusted) {
		t.Errorf("untrusted: %v", err)
	}
	file := trust(t, store, srv)
	o.PKI = reopened(t, store)
	s, err := Connect(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	s.Close(t.Context())

	seen := errors.New("never asked")
	o.VerifyServer = func(_ context.Context, s Server) error {
		cert, err := x509.ParseCertificate(s.Chain)
		if seen = err; err == nil && !bytes.Equal(cert.Raw, srv.Key().Certificate()) {
			seen = errors.New("another certificate")
		}
		return seen
	}
	if s, err := Connect(t.Context(), url, o); err != nil || seen != nil {
		t.Errorf("%v, %v", err, seen)
	} else {
		s.Close(t.Context())
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	o.PKI = reopened(t, store)
	if _, err := Connect(t.Context(), url, o); !errors.Is(err, ua.StatusBadCertificateUntrusted) {
		t.Errorf("trust taken back: %v", err)
	}
}
