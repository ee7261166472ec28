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
