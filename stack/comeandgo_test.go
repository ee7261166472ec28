package stack_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/transport/wss"
)

// Clients of every transport that come, poll, and go without a word: what they
// held comes back, and the server serves on.
func TestClientsComeAndGo(t *testing.T) {
	o := everywhere()
	o.Governors = stack.Governors{HTTP: &admission.HTTPOptions{MaxRequests: 256, MaxTenantRequests: 256, MaxPrincipalRequests: 256}, Commands: &admission.CommandOptions{}}
	o.Limits.MaxPublishRequests = 3
	srv := start(t, o, level)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 3))
			for range 4 {
				if i%4 == 3 {
					socketComesAndGoes(t, srv, rnd)
				} else {
					pollerComesAndGoes(t, srv, rnd)
				}
			}
		})
	}
	wg.Wait()
	waitFor(t, func() bool {
		st := srv.AdmissionStatus()
		idle := st.HTTP.Node.Data.Count+st.HTTP.Node.Control.Count+st.Commands.Node.Data.Count+st.Commands.Node.Control.Count == 0
		return idle && srv.Stats().ParkedPublishes == 0 && srv.Stats().BudgetReserved == 0 && srv.Isolation().Used(isolation.ParkedRequest) == 0
	})
	newWebClient(t, srv).login()
}

func pollerComesAndGoes(t *testing.T, srv *stack.Server, rnd *rand.Rand) {
	c := browser(t)
	defer c.CloseIdleConnections()
	p := &peer{T: t}
	send := func(ctx context.Context, rq any) any {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+srv.Addrs()[0].String(), bytes.NewReader(p.encode(rq)))
		if err != nil {
			t.Error(err)
			return nil
		}
		r.Header.Set("Content-Type", "application/octet-stream")
		rs, err := c.Do(r)
		if err != nil {
			return nil // it was told to stop waiting
		}
		defer rs.Body.Close()
		b, err := io.ReadAll(rs.Body)
		if err != nil || rs.StatusCode != http.StatusOK {
			return nil
		}
		return decode(t, b)
	}
	created, ok := send(context.Background(), createOf(p)).(*ua.CreateSessionResponse)
	if !ok {
		t.Error("CreateSession failed")
		return
	}
	p.token = created.AuthenticationToken
	send(context.Background(), activateOf(p))
	send(context.Background(), &ua.CreateSubscriptionRequest{RequestHeader: p.header(), RequestedPublishingInterval: 50, RequestedLifetimeCount: 10000, RequestedMaxKeepAliveCount: 1000, PublishingEnabled: true})
	ctx, leave := context.WithCancel(context.Background())
	var polls sync.WaitGroup
	for range 5 { // more than may be parked
		rq := &ua.PublishRequest{RequestHeader: p.header()}
		body := p.encode(rq)
		polls.Go(func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+srv.Addrs()[0].String(), bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/octet-stream")
			if rs, err := c.Do(r); err == nil {
				_, _ = io.Copy(io.Discard, rs.Body)
				_ = rs.Body.Close()
			}
		})
	}
	for range rnd.IntN(5) {
		if rs := send(context.Background(), readOf(p, valueNode(srv))); rs == nil || codeOf(rs) != ua.StatusOK {
			t.Errorf("read: %v", rs)
		}
	}
	leave()
	polls.Wait()
	if rnd.IntN(2) == 0 {
		send(context.Background(), &ua.CloseSessionRequest{RequestHeader: p.header(), DeleteSubscriptions: true})
	}
}

func socketComesAndGoes(t *testing.T, srv *stack.Server, rnd *rand.Rand) {
	ws, err := wss.DialJSON(context.Background(), "opc.wss://"+srv.Addrs()[0].String(), insecure())
	if err != nil {
		t.Error(err)
		return
	}
	s, p := newSocketSpeaker(ws), &peer{T: t}
	created, err := s.ask(createOf(p))
	if err != nil {
		t.Error(err)
		return
	}
	p.token = created.(*ua.CreateSessionResponse).AuthenticationToken
	for _, rq := range []any{activateOf(p), &ua.CreateSubscriptionRequest{RequestHeader: p.header(), RequestedPublishingInterval: 50, RequestedLifetimeCount: 10000, RequestedMaxKeepAliveCount: 1000, PublishingEnabled: true}} {
		if _, err := s.ask(rq); err != nil {
			t.Error(err)
		}
	}
	rq := &ua.PublishRequest{RequestHeader: p.header()}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = s.ask(rq)
	}()
	for range rnd.IntN(5) {
		if _, err := s.ask(readOf(p, valueNode(srv))); err != nil {
			t.Error(err)
		}
	}
	_ = ws.CloseNow()
	<-s.ended
	<-ended
}

// facts notes what a classifier is shown.
type facts struct {
	mu   sync.Mutex
	seen []string
}

func (f *facts) ClassifyIngress(_, _ netip.AddrPort) (isolation.OwnerClaim, bool) {
	return isolation.OwnerClaim{}, false
}

func (f *facts) Classify(k isolation.ServiceKind, ch *isolation.ChannelFacts, b *isolation.BindingFacts) (isolation.OwnerClaim, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k == isolation.Other {
		user := "nobody"
		if b != nil {
			user = "user " + b.User
		}
		f.seen = append(f.seen, fmt.Sprint(ch.Remote, " ", ch.Local, " ", user))
	}
	return isolation.OwnerClaim{}, false
}

// overload.md §7: over HTTPS a request belongs to its session's user, else to the
// address that it comes from; the binding is the live token.
func TestOwnersOverHTTPS(t *testing.T) {
	f := &facts{}
	o := stack.Options{Classifier: f, Authenticator: admins{}, Security: stack.Security{Policies: stack.NoPolicies, AllowNone: true}}
	synctest.Test(t, func(t *testing.T) {
		bubble(t, o, func(s *site) {
			w := s.web("192.0.2.10:1").login()
			other := s.web("198.51.100.9:2")
			other.token = w.token
			other.must(readOf(other.peer, numeric(2258)))
			other.token = nil
			other.must(&ua.GetEndpointsRequest{RequestHeader: other.header()})
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, want := range []string{"192.0.2.10:1 192.0.2.2:4843 nobody", "192.0.2.10:1 192.0.2.2:4843 user ada", "198.51.100.9:2 192.0.2.2:4843 nobody"} {
				if !slices.Contains(f.seen, want) {
					t.Errorf("never asked about %q: %q", want, f.seen)
				}
			}
		})
	})
}
