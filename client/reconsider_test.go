package client

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/security"
)

// inSecuredRogue runs a test against a rogue with a certificate, and gives it the
// options of a client that wants the strongest security.
func inSecuredRogue(t *testing.T, f func(r *rogue, o Options)) {
	t.Helper()
	testKeys()
	var gate *security.CryptoGate
	inRogueWith(t, func(r *rogue) {
		gate = security.NewCryptoGate(1)
		r.key = certified(t, 0, "urn:rogue", gate)
	}, func(r *rogue) {
		defer gate.Close()
		o := r.opts()
		o.Policy, o.Key = nil, certified(t, 1, "urn:client", gate)
		o.VerifyServer = func(context.Context, Server) error { return nil }
		f(r, o)
	})
}

func (r *rogue) connect(o Options) *Session {
	r.Helper()
	s, err := Connect(r.ctx, plantURL, o)
	if err != nil {
		r.Fatal(err)
	}
	return s
}

// recovers cuts the connection and waits until the session is online again.
func (r *rogue) recovers(s *Session) {
	r.Helper()
	time.Sleep(time.Minute)
	r.cut()
	synctest.Wait()
	time.Sleep(time.Minute)
	if st := s.State(); st.State != Online {
		r.Errorf("%+v", st)
	}
}

// A server that comes back with other endpoints is asked for them again.
func TestOtherEndpointsAreDiscovered(t *testing.T) {
	inSecuredRogue(t, func(r *rogue, o Options) {
		more := func(list []*ua.EndpointDescription) []*ua.EndpointDescription {
			better := *list[1]
			better.UserIdentityTokens = better.UserIdentityTokens[:1]
			return []*ua.EndpointDescription{list[0], &better}
		}
		r.on("GetEndpoints", nil)
		s := r.connect(o)
		before := r.asked("GetEndpoints")
		r.on("GetEndpoints", func(int, ua.Request) any { return &ua.GetEndpointsResponse{Endpoints: more(r.endpoints())} })
		r.on("CreateSession", func(_ int, rq ua.Request) any {
			rs := r.created(r.last(), rq.(*ua.CreateSessionRequest))
			rs.ServerEndpoints = more(rs.ServerEndpoints)
			return rs
		})
		r.on("ActivateSession", func(n int, _ ua.Request) any {
			if n == 1 {
				return ua.StatusBadSessionIDInvalid // it has restarted
			}
			return behaved{}
		})
		r.recovers(s)
		if n := r.asked("GetEndpoints"); before != 1 || n != 1 {
			t.Errorf("discovered %d times before, %d after", before, n)
		}
		s.Close(r.ctx)
	})
}

// A user's token that was refused may have been made for an old certificate.
func TestRefusedIdentityIsRediscovered(t *testing.T) {
	inRogue(t, func(r *rogue) {
		r.named = true
		r.on("GetEndpoints", nil)
		s := r.connect(r.opts())
		r.on("GetEndpoints", nil)
		r.on("ActivateSession", func(n int, _ ua.Request) any {
			if n <= 2 && r.asked("GetEndpoints") == 0 {
				return ua.StatusBadIdentityTokenRejected
			}
			return behaved{}
		})
		r.recovers(s)
		if n := r.asked("GetEndpoints"); n != 1 {
			t.Errorf("discovered %d times", n)
		}
		// What says nothing of the endpoint does not cost a discovery.
		r.on("GetEndpoints", nil)
		r.on("ActivateSession", func(n int, _ ua.Request) any {
			if n == 1 {
				return ua.StatusBadSessionIDInvalid
			}
			return behaved{}
		})
		r.recovers(s)
		if n := r.asked("GetEndpoints"); n != 0 {
			t.Errorf("a lost session: discovered %d times", n)
		}
		s.Close(r.ctx)
	})
}

// closing is a connection that its server ends when the client asks for a channel.
type closing struct {
	net.Conn
	over atomic.Bool
}

func (c *closing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && c.over.Load() {
		err = io.EOF
	}
	return n, err
}

func (c *closing) Write(b []byte) (int, error) {
	if string(b[:min(3, len(b))]) == "OPN" {
		c.over.Store(true)
		_ = c.Conn.Close()
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A channel that is refused forgets the endpoint: for a security code at once, for
// a server that hangs up after maxHangups.
func TestRefusedChannelIsRediscovered(t *testing.T) {
	t.Run("hangs up", func(t *testing.T) {
		inRogue(t, func(r *rogue) {
			s := r.connect(r.opts())
			r.on("GetEndpoints", nil)
			first := r.count()
			r.network.mu.Lock()
			r.wrap = func(n int, c net.Conn) net.Conn {
				if n <= first+maxHangups {
					return &closing{Conn: c}
				}
				return c
			}
			r.network.mu.Unlock()
			r.recovers(s)
			if n := r.asked("GetEndpoints"); n != 1 {
				t.Errorf("discovered %d times", n)
			}
			s.Close(r.ctx)
		})
	})
	t.Run("security code", func(t *testing.T) {
		inRogue(t, func(r *rogue) {
			o := r.opts()
			refuse := &refusing{Transport: o.Transport}
			o.Transport = refuse
			s := r.connect(o)
			r.on("GetEndpoints", nil)
			refuse.set(1)
			r.recovers(s)
			if n := r.asked("GetEndpoints"); n != 1 {
				t.Errorf("discovered %d times", n)
			}
			s.Close(r.ctx)
		})
	})
	t.Run("verify", func(t *testing.T) {
		inSecuredRogue(t, func(r *rogue, o Options) {
			var mu sync.Mutex
			refuse := false
			o.VerifyServer = func(context.Context, Server) error {
				mu.Lock()
				defer mu.Unlock()
				if refuse {
					refuse = false
					return errors.New("not this one")
				}
				return nil
			}
			s := r.connect(o)
			r.on("GetEndpoints", nil)
			mu.Lock()
			refuse = true
			mu.Unlock()
			r.recovers(s)
			if n := r.asked("GetEndpoints"); n != 1 {
				t.Errorf("discovered %d times", n)
			}
			s.Close(r.ctx)
		})
	})
}

// refusing is a transport whose next channels are refused for their security.
type refusing struct {
	Transport
	mu   sync.Mutex
	left int
}

func (f *refusing) set(n int) { f.mu.Lock(); f.left = n; f.mu.Unlock() }

func (f *refusing) Open(ctx context.Context, cfg ChannelConfig) (Channel, error) {
	f.mu.Lock()
	refuse := f.left > 0
	if refuse {
		f.left--
	}
	f.mu.Unlock()
	if refuse {
		return nil, ua.StatusBadSecurityChecksFailed
	}
	return f.Transport.Open(ctx, cfg)
}

// An identity that lacks its key or function is refused before anything is sent.
func TestIncompleteIdentity(t *testing.T) {
	for _, i := range []Identity{&X509{}, &IssuedToken{}, (*X509)(nil), (*IssuedToken)(nil), (*UserName)(nil)} {
		var bad *OptionError
		if _, err := Connect(t.Context(), plantURL, Options{Policy: security.None, Identity: i}); !errors.As(err, &bad) || bad.Field != "Identity" {
			t.Errorf("%T: %v", i, err)
		}
	}
}

// The place in the gate is given up while a session waits between attempts.
func TestGateIsFreeBetweenAttempts(t *testing.T) {
	inRogue(t, func(r *rogue) {
		gate := NewConnectGate(1)
		o := r.opts()
		o.Gate, o.Reconnect = gate, reconnect.Policy{InitialDelay: time.Hour, MaxDelay: time.Hour, JitterFactor: -1}
		o.Transport = TCP{Dial: func(context.Context, string) (net.Conn, error) { return nil, errors.New("unreachable") }}
		ctx, cancel := context.WithCancel(r.ctx)
		ended := make(chan error)
		go func() { _, err := Connect(ctx, plantURL, o); ended <- err }()
		synctest.Wait()
		o.Transport = TCP{Dial: r.dial}
		soon, done := context.WithTimeout(r.ctx, time.Second)
		defer done()
		s, err := Connect(soon, plantURL, o)
		if err != nil {
			t.Error(err)
		} else {
			s.Close(r.ctx)
		}
		cancel()
		<-ended
	})
}

// opened notes when its client asks for a channel or a new token.
type opened struct {
	net.Conn
	note func()
}

func (o opened) Write(b []byte) (int, error) {
	if string(b[:min(3, len(b))]) == "OPN" {
		o.note()
	}
	return o.Conn.Write(b)
}

// Tokens are renewed after 75 % of their lifetime (OPC 10000-4 §5.6.2).
func TestRenewalAtThreeQuarters(t *testing.T) {
	inRogueWith(t, func(r *rogue) { r.lifetime = 100 * time.Second }, func(r *rogue) {
		var mu sync.Mutex
		var at []time.Time
		r.wrap = func(_ int, c net.Conn) net.Conn {
			return opened{c, func() { mu.Lock(); at = append(at, time.Now()); mu.Unlock() }}
		}
		s := r.connect(r.opts())
		mu.Lock()
		at = at[len(at)-1:]
		mu.Unlock()
		time.Sleep(240 * time.Second)
		mu.Lock()
		if len(at) != 4 {
			t.Errorf("%d tokens in 240 s", len(at))
		}
		for i := 1; i < len(at); i++ {
			if d := at[i].Sub(at[i-1]); (d - 75*time.Second).Abs() > time.Second {
				t.Errorf("renewed after %v", d)
			}
		}
		mu.Unlock()
		s.Close(r.ctx)
	})
}
