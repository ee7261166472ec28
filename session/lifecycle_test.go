package session

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// closings collects what OnClose was told.
type closings struct {
	mu  sync.Mutex
	all []string
}

func (c *closings) note(s *Session, deleteSubscriptions bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, fmt.Sprintf("%s %s %t", s.Name(), s.Reason(), deleteSubscriptions))
}

func (c *closings) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := strings.Join(c.all, "; ")
	c.all = nil
	return out
}

// named creates a session with a name, activated when l is not nil.
func named(t testing.TB, st *Store, ch *fakeChannel, name string, timeout time.Duration) *client {
	t.Helper()
	rq := createRequest(ch)
	rq.SessionName, rq.RequestedSessionTimeout = name, milliseconds(timeout)
	rs, code := st.Create(context.Background(), ch, rq)
	want(t, "CreateSession "+name, code, ua.StatusOK)
	if rs == nil {
		t.FailNow()
	}
	return &client{t: t, st: st, token: uabinary.NodeIDOf(rs.AuthenticationToken), id: uabinary.NodeIDOf(rs.SessionID), nonce: rs.ServerNonce}
}

// OPC 10000-4 §5.7.2: a session without requests ends after its timeout, not
// before; each request starts the time anew (hostile.md I6, B18, B19).
func TestI6SessionsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed closings
		st := NewStore(Options{OnClose: closed.note})
		defer st.Shutdown()
		ch := noneChannel()
		short, long := named(t, st, ch, "short", 10*time.Second), named(t, st, ch, "long", time.Minute)
		want(t, "activate", short.activate(ch, anonymous), ua.StatusOK)
		want(t, "activate", long.activate(ch, anonymous), ua.StatusOK)
		s := short.session()
		for range 5 {
			time.Sleep(9 * time.Second)
			want(t, "busy", short.lookup(ch), ua.StatusOK)
		}
		synctest.Wait()
		if got := closed.take(); got != "" {
			t.Fatal("closed early:", got)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := closed.take(); got != "short timeout false" {
			t.Errorf("after 10 s: %q", got)
		}
		select {
		case <-s.Done():
		default:
			t.Error("Done is open")
		}
		want(t, "short", short.lookup(ch), ua.StatusBadSessionIDInvalid)
		want(t, "long", long.lookup(ch), ua.StatusOK)
		ch.closeIn(st) // the client crashes; its session waits for it
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if st.Len() != 1 {
			t.Error("a detached session ended before its timeout")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := closed.take(); got != "long timeout false" {
			t.Errorf("at the end: %q", got)
		}
		nothingLeft(t, st)
		if sum := st.Summary(); sum.Timeouts != 2 || sum.Cumulated != 2 || sum.Current != 0 {
			t.Errorf("%+v", sum)
		}
	})
}

// hostile.md I6: five thousand sessions, then silence: caps hold, and all expire
// on one timer.
func TestI6FiveThousandSessionsThenSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := NewStore(Options{MaxSessions: 4000})
		defer st.Shutdown()
		refused := 0
		for range 5000 {
			ch := noneChannel()
			c, code := tryCreate(t, st, ch)
			if code == ua.StatusBadTooManySessions {
				refused++
				continue
			}
			want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
		}
		if refused != 1000 || st.Len() != 4000 || st.Activated() != 4000 {
			t.Errorf("refused %d of 5000, %d sessions", refused, st.Len())
		}
		time.Sleep(61 * time.Second)
		synctest.Wait()
		nothingLeft(t, st)
		st.Each(func(*Session) bool { t.Error("a session is still found"); return false })
	})
}

// Lookup does not wait for the reaper.
func TestLookupAfterTheTimeout(t *testing.T) {
	st := newStore(t, Options{})
	ch := noneChannel()
	c := create(t, st, ch)
	want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
	_, code := st.Lookup(ch, c.token, time.Now().Add(59*time.Second))
	want(t, "in time", code, ua.StatusOK)
	_, code = st.Lookup(ch, c.token, time.Now().Add(120*time.Second))
	want(t, "too late", code, ua.StatusBadSessionIDInvalid)
	nothingLeft(t, st)
}

// A token move after the timeout finds no session.
func TestActivateAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := NewStore(Options{})
		ch := noneChannel()
		c := create(t, st, ch)
		want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
		st.mu.Lock()
		st.setDueLocked(c.session(), st.since(time.Now().Add(time.Hour))) // the reaper sleeps
		st.mu.Unlock()
		time.Sleep(time.Minute)
		want(t, "too late", c.activate(ch, anonymous), ua.StatusBadSessionIDInvalid)
		nothingLeft(t, st)
		st.Shutdown()
	})
}

// hostile.md X28, B6: a session that is never activated ends after 30 s, and
// with its channel.
func TestB6NeverActivatedSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed closings
		st := NewStore(Options{OnClose: closed.note})
		defer st.Shutdown()
		ch := noneChannel()
		named(t, st, ch, "idle", time.Hour)
		busy := named(t, st, ch, "busy", time.Hour)
		want(t, "activate", busy.activate(ch, anonymous), ua.StatusOK)
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if st.Len() != 2 {
			t.Error("ended before 30 s")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := closed.take(); got != "idle not-activated false" {
			t.Errorf("after 30 s: %q", got)
		}
		for i := range 200 {
			ch := noneChannel()
			named(t, st, ch, fmt.Sprint(i), time.Hour)
			ch.closeIn(st)
			if got := closed.take(); got != fmt.Sprintf("%d channel-gone false", i) {
				t.Errorf("after the channel closed: %q", got)
			}
			if ch.attached.Load() != 0 {
				t.Error("the channel still counts a session")
			}
		}
		if st.Len() != 1 {
			t.Errorf("%d sessions left", st.Len())
		}
	})
}

// hostile.md B6: an identity that was refused leaves a session that was never
// activated, with the same deadline.
func TestB6RefusedIdentityLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := NewStore(Options{Authenticator: failing{ua.StatusBadUserAccessDenied}})
		defer st.Shutdown()
		ch := noneChannel()
		c := create(t, st, ch)
		for range 3 {
			want(t, "refused", c.activate(ch, anonymous), ua.StatusBadUserAccessDenied)
			time.Sleep(9 * time.Second)
		}
		time.Sleep(3 * time.Second) // the failures did not extend the 30 s
		synctest.Wait()
		nothingLeft(t, st)
	})
}

// hostile.md B7, B8, X28: in a table full of never-activated sessions the oldest
// goes for a new one; activated ones never do.
func TestB7B8OldestNeverActivatedGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed closings
		st := NewStore(Options{MaxSessions: 10, OnClose: closed.note})
		defer st.Shutdown()
		active := noneChannel().from("198.51.100.1:1")
		for i := range 2 {
			c := named(t, st, active, fmt.Sprintf("active %d", i), time.Hour)
			want(t, "activate", c.activate(active, anonymous), ua.StatusOK)
		}
		time.Sleep(time.Second)
		ch := noneChannel()
		for i := range 8 {
			named(t, st, ch, fmt.Sprintf("idle %d", i), time.Hour)
			time.Sleep(100 * time.Millisecond)
		}
		// idle 0 is 800 ms old: nobody is old enough.
		_, code := tryCreate(t, st, noneChannel())
		want(t, "all are younger than 1 s", code, ua.StatusBadTooManySessions)
		time.Sleep(200 * time.Millisecond)
		c := named(t, st, noneChannel(), "new", time.Hour)
		if got := closed.take(); got != "idle 0 evicted false" {
			t.Errorf("evicted %q", got)
		}
		want(t, "the new one works", c.activate(c.session().Channel().(*fakeChannel), anonymous), ua.StatusOK)
		_, code = tryCreate(t, st, noneChannel())
		want(t, "idle 1 is 900 ms old", code, ua.StatusBadTooManySessions)
		time.Sleep(5 * time.Second)
		for i := 1; i < 8; i++ {
			fresh := noneChannel()
			c := named(t, st, fresh, "fresh", time.Hour)
			want(t, "activate", c.activate(fresh, anonymous), ua.StatusOK)
			if got := closed.take(); got != fmt.Sprintf("idle %d evicted false", i) {
				t.Errorf("evicted %q", got)
			}
		}
		_, code = tryCreate(t, st, noneChannel())
		want(t, "only activated ones are left", code, ua.StatusBadTooManySessions)
		if st.Activated() != 10 {
			t.Errorf("%d activated", st.Activated())
		}
	})
}

// overload.md §5: the owner that holds most never-activated sessions pays.
func TestX28OwnerWithMostPays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed closings
		st := NewStore(Options{MaxSessions: 9, OnClose: closed.note})
		defer st.Shutdown()
		named(t, st, noneChannel().from("192.0.2.1:1"), "modest, oldest", time.Hour)
		time.Sleep(time.Second)
		for i := range 4 {
			// One attacker, many ports, many channels: IPv6 counts by /64.
			named(t, st, noneChannel().from(fmt.Sprintf("[2001:db8::%d]:%d", i+1, i+1)), fmt.Sprintf("greedy %d", i), time.Hour)
			named(t, st, noneChannel().from(fmt.Sprintf("[2001:db8:1:%d::1]:1", i)), fmt.Sprintf("many %d", i), time.Hour)
		}
		time.Sleep(time.Second)
		for i := range 3 {
			named(t, st, noneChannel().from("192.0.2.9:1"), "new", time.Hour)
			if got := closed.take(); got != fmt.Sprintf("greedy %d evicted false", i) {
				t.Errorf("evicted %q", got)
			}
		}
		// All hold one, except the new owner, whose three are too young.
		named(t, st, noneChannel().from("192.0.2.10:1"), "newer", time.Hour)
		if got := closed.take(); got != "modest, oldest evicted false" {
			t.Errorf("evicted %q", got)
		}
	})
}

// overload.md §5: at most 10 never-activated sessions per channel.
func TestInactiveSessionsPerChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed closings
		st := NewStore(Options{OnClose: closed.note})
		defer st.Shutdown()
		ch := noneChannel()
		for i := range 10 {
			named(t, st, ch, fmt.Sprint(i), time.Hour)
		}
		_, code := tryCreate(t, st, ch)
		want(t, "eleventh", code, ua.StatusBadTooManySessions)
		_, code = tryCreate(t, st, noneChannel())
		want(t, "another channel", code, ua.StatusOK)
		time.Sleep(time.Second)
		named(t, st, ch, "later", time.Hour)
		if got := closed.take(); got != "0 evicted false" {
			t.Errorf("evicted %q", got)
		}
		if at := st.channels[ch]; at.inactive != 10 || len(at.sessions) != 10 {
			t.Errorf("channel has %d, never activated %d", len(at.sessions), at.inactive)
		}
	})
}

// hostile.md B18: a client that crashes again and again takes its session over;
// one that does not finds room once the dead ones timed out.
func TestB18CrashingClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := NewStore(Options{MaxSessions: 5, Key: serverKey(t), Authenticator: allowAll{}})
		defer st.Shutdown()
		ch := secureChannel()
		c := create(t, st, ch)
		want(t, "first", c.activate(ch, asUser("bob", "x")), ua.StatusOK)
		for i := range 20 {
			if i%2 == 0 { // every other crash is one the server does not notice
				ch.closeIn(st)
			}
			ch = secureChannel()
			want(t, "takes its session over", c.activate(ch, asUser("bob", "x")), ua.StatusOK)
		}
		if st.Len() != 1 {
			t.Errorf("%d sessions", st.Len())
		}
		for range 4 {
			ch := secureChannel()
			c := create(t, st, ch)
			want(t, "activate", c.activate(ch, asUser("bob", "x")), ua.StatusOK)
			ch.closeIn(st)
		}
		_, code := tryCreate(t, st, secureChannel())
		want(t, "table full of dead sessions", code, ua.StatusBadTooManySessions)
		time.Sleep(time.Minute)
		synctest.Wait()
		_, code = tryCreate(t, st, secureChannel())
		want(t, "after their timeout", code, ua.StatusOK)
	})
}

// hostile.md B19: 101 sessions are no more than 100 that time out.
func TestB19SessionsNeverClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := NewStore(Options{MaxSessions: 100})
		defer st.Shutdown()
		for range 10 {
			for range 100 {
				ch := noneChannel()
				c := create(t, st, ch)
				want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
				ch.closeIn(st)
			}
			_, code := tryCreate(t, st, noneChannel())
			want(t, "the 101st", code, ua.StatusBadTooManySessions)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		nothingLeft(t, st)
	})
}

// hostile.md I14, OPC 10000-4 §5.7.4 CloseSession: an unknown or foreign token
// is BadSessionIdInvalid, the flag is passed on, twice is an error.
func TestI14CloseSession(t *testing.T) {
	var closed closings
	st := newStore(t, Options{OnClose: closed.note})
	ch, other := noneChannel(), noneChannel()
	want(t, "null token", st.Close(ch, uabinary.NodeID{}, true), ua.StatusBadSessionIDInvalid)
	for _, flag := range []bool{true, false} {
		c := named(t, st, ch, "s", time.Hour)
		want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
		s := c.session()
		want(t, "foreign channel", st.Close(other, c.token, flag), ua.StatusBadSessionIDInvalid)
		want(t, "still there", c.lookup(ch), ua.StatusOK)
		want(t, "close", st.Close(ch, c.token, flag), ua.StatusOK)
		if got := closed.take(); got != fmt.Sprintf("s client %t", flag) {
			t.Errorf("OnClose: %q", got)
		}
		want(t, "again", st.Close(ch, c.token, flag), ua.StatusBadSessionIDInvalid)
		want(t, "lookup", c.lookup(ch), ua.StatusBadSessionIDInvalid)
		want(t, "activate", c.activate(ch, anonymous), ua.StatusBadSessionIDInvalid)
		if <-s.Done(); s.Channel() != nil || s.Activated() {
			t.Error("a closed session is bound")
		}
	}
	c := create(t, st, ch)
	want(t, "never activated, its own channel", st.Close(ch, c.token, true), ua.StatusOK)
	nothingLeft(t, st)
}

// OPC 10000-4 §5.7.3: a request on a session that was not activated closes it.
func TestRequestBeforeActivation(t *testing.T) {
	var closed closings
	st := newStore(t, Options{OnClose: closed.note})
	ch := noneChannel()
	c := named(t, st, ch, "s", time.Hour)
	want(t, "foreign channel", c.lookup(noneChannel()), ua.StatusBadSessionIDInvalid)
	if st.Peek(ch, c.token) != nil {
		t.Error("Peek shows a session that is not activated")
	}
	want(t, "request", c.lookup(ch), ua.StatusBadSessionNotActivated)
	if got := closed.take(); got != "s used-before-activation false" {
		t.Errorf("OnClose: %q", got)
	}
	want(t, "activate", c.activate(ch, anonymous), ua.StatusBadSessionIDInvalid)
	nothingLeft(t, st)
	if st.Summary().Aborts != 1 {
		t.Error("not counted as aborted")
	}
}

// hostile.md I12, X40: tokens are 32 random bytes, worth nothing on another
// channel, and guessing near one finds nothing.
func TestI12X40Tokens(t *testing.T) {
	st := newStore(t, Options{})
	ch, other := noneChannel(), noneChannel()
	seen := map[string]bool{}
	var bits [tokenLength * 8]int
	const n = 256
	for range n {
		c := create(t, st, ch)
		want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
		if c.token.Type != uabinary.IDOpaque || len(c.token.Bytes) < 32 || seen[string(c.token.Bytes)] {
			t.Fatalf("token %v", c.token)
		}
		if strings.Contains(c.id.String(), c.token.String()) {
			t.Error("SessionId shows the token")
		}
		seen[string(c.token.Bytes)] = true
		for i := range bits {
			bits[i] += int(c.token.Bytes[i/8] >> (i % 8) & 1)
		}
		want(t, "another channel", c.lookup(other), ua.StatusBadSessionIDInvalid)
		if st.Peek(other, c.token) != nil || st.Peek(ch, c.token) == nil {
			t.Error("Peek")
		}
	}
	for i, ones := range bits[placeLength*8:] {
		if ones < n/4 || ones > n*3/4 {
			t.Errorf("bit %d of the secret is set in %d of %d tokens", i, ones, n)
		}
	}
	c := create(t, st, ch)
	want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
	for i := range c.token.Bytes {
		guess := c.token.Clone()
		guess.Bytes[i] ^= 1
		_, code := st.Lookup(ch, guess, time.Now())
		want(t, "one bit off", code, ua.StatusBadSessionIDInvalid)
	}
	for _, guess := range []uabinary.NodeID{
		{Type: uabinary.IDOpaque, Bytes: c.token.Bytes[:tokenLength-1]},
		{Type: uabinary.IDOpaque, Bytes: append(c.token.Clone().Bytes, 0)},
		{Type: uabinary.IDOpaque, Namespace: 1, Bytes: c.token.Bytes},
		{Type: uabinary.IDString, Bytes: c.token.Bytes},
		c.id, {}, uabinary.NumericID(0, 7),
	} {
		_, code := st.Lookup(ch, guess, time.Now())
		want(t, guess.String(), code, ua.StatusBadSessionIDInvalid)
	}
}

// hostile.md I14: ActivateSession looks at the token, and without a session
// there is no service.
func TestI14ActivateLooksAtTheToken(t *testing.T) {
	st := newStore(t, Options{Key: serverKey(t), Authenticator: &Identities{Certificates: true}, ValidateUserCertificate: trustAll})
	ch := secureChannel()
	c := create(t, st, ch)
	want(t, "no identity", c.activate(ch, anonymous), ua.StatusBadIdentityTokenRejected)
	_, code := st.Lookup(ch, uabinary.NodeID{}, time.Now())
	want(t, "no session", code, ua.StatusBadSessionIDInvalid)
	want(t, "certificate", c.activate(ch, asCertificate(userParty())), ua.StatusOK)
}

// hostile.md X24, D11: a user token without its signature.
func TestX24D11UserTokenWithoutSignature(t *testing.T) {
	st := newStore(t, secureOptions(t))
	for _, ch := range []*fakeChannel{noneChannel(), secureChannel()} {
		c := create(t, st, ch)
		for name, sig := range map[string]*ua.SignatureData{"none": nil, "empty": {}, "algorithm only": {Algorithm: tokenSecurity(ch).SignatureURI()},
			"zeros": {Algorithm: tokenSecurity(ch).SignatureURI(), Signature: make([]byte, 256)}} {
			rq := c.request(ch, asCertificate(userParty()))
			rq.UserTokenSignature = sig
			want(t, name, c.send(ch, rq), ua.StatusBadUserSignatureInvalid)
		}
		if c.session().Activated() {
			t.Error("activated")
		}
	}
}

// hostile.md C16: the revised timeout is what is enforced, and the client is
// told it.
func TestC16ShortRevisedTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := NewStore(Options{MinTimeout: time.Second, MaxTimeout: 2 * time.Second})
		defer st.Shutdown()
		ch := noneChannel()
		rs, _ := st.Create(context.Background(), ch, createRequest(ch))
		if rs.RevisedSessionTimeout != 2000 {
			t.Errorf("revised %v", rs.RevisedSessionTimeout)
		}
		c := &client{t: t, st: st, token: uabinary.NodeIDOf(rs.AuthenticationToken), id: uabinary.NodeIDOf(rs.SessionID)}
		want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
		for range 10 {
			time.Sleep(time.Second) // half the revised timeout keeps it alive
			want(t, "keep-alive", c.lookup(ch), ua.StatusOK)
		}
		time.Sleep(5 * time.Second)
		want(t, "5 s", c.lookup(ch), ua.StatusBadSessionIDInvalid)
	})
}

// hostile.md D12: what a careful client verifies is there to be verified.
func TestD12ServerProof(t *testing.T) {
	o := secureOptions(t)
	o.Endpoints = func(ch Channel, _ string) []*ua.EndpointDescription {
		return []*ua.EndpointDescription{{SecurityMode: ch.SecurityMode(), SecurityPolicyURI: ch.SecurityPolicy().URI,
			UserIdentityTokens: TokenPolicies(ch.SecurityPolicy(), ch.SecurityMode(), allowAll{}.TokenTypes())}}
	}
	st := newStore(t, o)
	a, b := secureChannel(), secureChannel()
	first, _ := st.Create(context.Background(), a, createRequest(a))
	second, _ := st.Create(context.Background(), b, createRequest(b))
	if string(first.ServerNonce) == string(second.ServerNonce) || string(first.ServerSignature.Signature) == string(second.ServerSignature.Signature) {
		t.Error("nonce or signature repeats")
	}
	if len(first.ServerEndpoints) != 1 || len(first.ServerEndpoints[0].UserIdentityTokens) != 3 {
		t.Error("endpoint list is not echoed")
	}
	if string(first.ServerCertificate) != string(serverParty().cert) {
		t.Error("certificate")
	}
	ch := newChannel(security.Aes256Sha256RsaPss, ua.MessageSecurityModeSign, clientParty())
	o.Endpoints = func(Channel, string) []*ua.EndpointDescription { return nil }
	st = newStore(t, o)
	_, code := tryCreate(t, st, ch)
	want(t, "no endpoint for the channel", code, ua.StatusBadSecurityPolicyRejected)
}

func TestShutdownClosesEverySession(t *testing.T) {
	var closed closings
	st := NewStore(Options{OnClose: closed.note})
	ch := noneChannel()
	c := named(t, st, ch, "s", time.Hour)
	want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
	st.Shutdown()
	st.Shutdown()
	if got := closed.take(); got != "s shutdown true" {
		t.Errorf("OnClose: %q", got)
	}
	nothingLeft(t, st)
}

func TestTerminate(t *testing.T) {
	var closed closings
	st := newStore(t, Options{OnClose: closed.note})
	ch := noneChannel()
	c := named(t, st, ch, "s", time.Hour)
	s := c.session()
	if !st.Terminate(s, true) || st.Terminate(s, true) {
		t.Error("Terminate closes once")
	}
	if got := closed.take(); got != "s administrator true" {
		t.Errorf("OnClose: %q", got)
	}
}

func TestDiagnostics(t *testing.T) {
	st := newStore(t, Options{})
	ch := noneChannel()
	c := create(t, st, ch)
	want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
	s := c.session()
	s.Count(ServiceRead, false)
	s.Count(ServiceRead, true)
	s.Count(ServiceUnregisterNodes, false)
	s.Count(200, true)
	d := s.Diagnostics()
	if d.TotalRequestCount.TotalCount != 4 || d.TotalRequestCount.ErrorCount != 2 || d.ReadCount.TotalCount != 2 ||
		d.ReadCount.ErrorCount != 1 || d.UnregisterNodesCount.TotalCount != 1 {
		t.Errorf("%+v", d)
	}
	if d.ClientDescription.ApplicationURI != clientURI || d.SessionName != "a session" || d.ActualSessionTimeout != 60_000 {
		t.Errorf("%+v", d)
	}
	c2 := create(t, st, ch)
	want(t, "refused", c2.activate(ch, asUser("x", "y")), ua.StatusBadIdentityTokenInvalid)
	if sum := st.Summary(); sum.Current != 2 || sum.Cumulated != 2 || sum.Rejected != 1 || sum.SecurityRejected != 1 {
		t.Errorf("%+v", sum)
	}
}

// The audit lines name what happened with its precise code, and neither secrets
// nor, at info level, users.
func TestAuditLines(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelInfo, slog.LevelDebug} {
		var out logBuffer
		o := secureOptions(t)
		o.Logger = out.logger(level)
		o.Authenticator = allowAll{password: "s3cret-password"}
		st := newStore(t, o)
		ch := secureChannel()
		c := create(t, st, ch)
		want(t, "wrong", c.activate(ch, asUser("alice-the-user", "wrong-password")), ua.StatusBadUserAccessDenied)
		want(t, "broken", func() ua.StatusCode {
			rq := c.request(ch, anonymous)
			rq.ClientSignature = nil
			return c.send(ch, rq)
		}(), ua.StatusBadApplicationSignatureInvalid)
		want(t, "right", c.activate(ch, asUser("alice-the-user", "s3cret-password")), ua.StatusOK)
		want(t, "close", st.Close(ch, c.token, true), ua.StatusOK)
		log := out.String()
		for _, line := range []string{"session created", "session activated", "session closed", "reason=client", "identity=username",
			"code=BadUserAccessDenied", "code=BadApplicationSignatureInvalid", "signature is missing", c.id.String(), "Basic256Sha256", "192.0.2.7"} {
			if !strings.Contains(log, line) {
				t.Errorf("%q is missing in\n%s", line, log)
			}
		}
		for _, secret := range []string{"s3cret-password", "wrong-password", c.token.String(), string(c.token.Bytes)} {
			if strings.Contains(log, secret) {
				t.Errorf("log shows %q", secret)
			}
		}
		if strings.Contains(log, "alice-the-user") != (level == slog.LevelDebug) {
			t.Errorf("at level %s the log says about the user:\n%s", level, log)
		}
	}
	var out logBuffer
	st := newStore(t, Options{Logger: out.logger(slog.LevelInfo), Gate: func(context.Context, Channel) (func(), ua.StatusCode) {
		return nil, uastatus.BadServerTooBusy
	}})
	tryCreate(t, st, noneChannel())
	if out.String() != "" {
		t.Error("overload is logged line by line:", out.String())
	}
}

// hostile.md D11: what was trusted once is asked again; a user certificate taken
// off the trust list does not move a session, nor renew its activation.
func TestD11TrustIsAskedAgain(t *testing.T) {
	o := secureOptions(t)
	trusted := true
	o.ValidateUserCertificate = func(context.Context, []byte, *security.Policy) error {
		if trusted {
			return nil
		}
		return ua.StatusBadCertificateUntrusted
	}
	st := newStore(t, o)
	a, b := secureChannel(), secureChannel()
	c := create(t, st, a)
	want(t, "trusted", c.activate(a, asCertificate(userParty())), ua.StatusOK)
	trusted = false
	want(t, "same channel", c.activate(a, asCertificate(userParty())), ua.StatusBadIdentityTokenRejected)
	want(t, "another channel", c.activate(b, asCertificate(userParty())), ua.StatusBadIdentityTokenRejected)
}
