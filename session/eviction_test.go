package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"
)

// A full table in which sessions are without a channel.
type fullTable struct {
	t  *testing.T
	st *Store
}

// join logs a user in on a new channel; name "" is anonymous.
func (f fullTable) join(name string) (*client, *fakeChannel) {
	f.t.Helper()
	ch := noneChannel()
	c := create(f.t, f.st, ch)
	want(f.t, "ActivateSession of "+name, c.activate(ch, identityOf(name)), ua.StatusOK)
	return c, ch
}

func identityOf(name string) login {
	if name == "" {
		return anonymous
	}
	return asUser(name, "x")
}

// newcomer creates a session on a new channel.
func (f fullTable) newcomer() (*client, *fakeChannel, ua.StatusCode) {
	f.t.Helper()
	ch := noneChannel()
	c, code := tryCreate(f.t, f.st, ch)
	return c, ch, code
}

func inFullTable(t *testing.T, o Options, run func(f fullTable)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		more := secureOptions(t)
		o.Key, o.Authenticator = more.Key, more.Authenticator
		st := newStore(t, o)
		run(fullTable{t, st})
		st.Shutdown()
		nothingLeft(t, st)
	})
}

// overload.md §5: activated sessions are not evicted, unless EvictDetached says
// so; then one whose channel has been gone for half its timeout (30 s here) goes,
// and only once the newcomer's ActivateSession has succeeded.
func TestDetachedSessionsAreEvicted(t *testing.T) {
	inFullTable(t, Options{MaxSessions: 2, EvictDetached: true}, func(f fullTable) {
		old, ch := f.join("anna")
		_, _ = f.join("bert") // keeps its channel
		ch.closeIn(f.st)
		time.Sleep(30*time.Second - 1)
		if _, _, code := f.newcomer(); code != ua.StatusBadTooManySessions {
			t.Errorf("before half the timeout: %v", code)
		}
		time.Sleep(1 * time.Nanosecond)
		c, to, code := f.newcomer()
		want(t, "CreateSession", code, ua.StatusOK)
		if old.session() == nil {
			t.Fatal("evicted by a CreateSession alone")
		}
		if _, _, code := f.newcomer(); code != ua.StatusBadTooManySessions {
			t.Errorf("one place was promised twice: %v", code)
		}
		s := old.session()
		want(t, "ActivateSession with a bad identity", c.send(to, &ua.ActivateSessionRequest{UserIdentityToken: ua.NewExtensionObject(
			&ua.UserNameIdentityToken{PolicyID: "nonsense"})}), ua.StatusBadIdentityTokenInvalid)
		if old.session() == nil {
			t.Fatal("evicted for a newcomer that was refused")
		}
		want(t, "ActivateSession", c.activate(to, identityOf("carl")), ua.StatusOK)
		if old.session() != nil || s.Reason() != ClosedAbandoned {
			t.Errorf("still there, or gone for %v", s.Reason())
		}
		if n := f.st.Len(); n != 2 {
			t.Errorf("%d sessions in a table of 2", n)
		}
		want(t, "the newcomer's request", c.lookup(to), ua.StatusOK)
	})
}

// Without the option nobody who was activated ever goes.
func TestDetachedSessionsStayByDefault(t *testing.T) {
	inFullTable(t, Options{MaxSessions: 1}, func(f fullTable) {
		old, ch := f.join("anna")
		ch.closeIn(f.st)
		time.Sleep(59 * time.Second)
		if _, _, code := f.newcomer(); code != ua.StatusBadTooManySessions {
			t.Errorf("%v", code)
		}
		f.st.EvictDetached(true) // while it runs
		if _, _, code := f.newcomer(); code != ua.StatusOK {
			t.Errorf("after the option was set: %v", code)
		}
		if old.session() == nil {
			t.Error("gone")
		}
	})
}

// The rest of §5: never less than 10 s; the same user's first, else the one
// whose channel went first; those that are attached, never.
func TestWhichDetachedSessionGoes(t *testing.T) {
	t.Run("10 s at least", func(t *testing.T) {
		inFullTable(t, Options{MaxSessions: 1, EvictDetached: true, MaxTimeout: 12 * time.Second}, func(f fullTable) {
			_, ch := f.join("anna")
			ch.closeIn(f.st)
			time.Sleep(10*time.Second - 1) // more than half of 12 s
			if _, _, code := f.newcomer(); code != ua.StatusBadTooManySessions {
				t.Errorf("%v", code)
			}
			time.Sleep(1 * time.Nanosecond)
			if _, _, code := f.newcomer(); code != ua.StatusOK {
				t.Errorf("%v", code)
			}
		})
	})
	for _, tc := range []struct{ newcomer, goes string }{{"bert", "bert"}, {"carl", "anna"}, {"", "anna"}} {
		t.Run(tc.newcomer+" comes", func(t *testing.T) {
			inFullTable(t, Options{MaxSessions: 3, EvictDetached: true}, func(f fullTable) {
				all := map[string]*client{}
				for _, name := range []string{"anna", "bert"} {
					c, ch := f.join(name)
					all[name] = c
					ch.closeIn(f.st)
					time.Sleep(time.Second)
				}
				stays, _ := f.join("bert") // has its channel
				time.Sleep(30 * time.Second)
				c, ch, code := f.newcomer()
				want(t, "CreateSession", code, ua.StatusOK)
				want(t, "ActivateSession", c.activate(ch, identityOf(tc.newcomer)), ua.StatusOK)
				for name, c := range all {
					if gone := c.session() == nil; gone != (name == tc.goes) {
						t.Errorf("%s gone: %v", name, gone)
					}
				}
				if stays.session() == nil {
					t.Error("one with a channel is gone")
				}
			})
		})
	}
}

// Who comes back in time keeps its session; the newcomer that was promised its
// place learns that there is none, and leaves nothing behind.
func TestDetachedSessionComesBack(t *testing.T) {
	inFullTable(t, Options{MaxSessions: 1, EvictDetached: true}, func(f fullTable) {
		old, ch := f.join("anna")
		ch.closeIn(f.st)
		time.Sleep(40 * time.Second)
		c, to, code := f.newcomer()
		want(t, "CreateSession", code, ua.StatusOK)
		again := noneChannel()
		want(t, "anna comes back", old.activate(again, identityOf("anna")), ua.StatusOK)
		want(t, "the newcomer", c.activate(to, identityOf("carl")), ua.StatusBadTooManySessions)
		if n := f.st.Len(); n != 1 || c.session() != nil {
			t.Errorf("%d sessions", n)
		}
		want(t, "anna's request", old.lookup(again), ua.StatusOK)
	})
}

// A promised place may be taken over by a later newcomer, as that of any session
// that is not activated; it stays a promise, and no table grows by it.
func TestPromisedPlaceIsHandedOn(t *testing.T) {
	inFullTable(t, Options{MaxSessions: 1, EvictDetached: true}, func(f fullTable) {
		old, ch := f.join("anna")
		ch.closeIn(f.st)
		time.Sleep(40 * time.Second)
		var last *client
		var to *fakeChannel
		for range 5 {
			var code ua.StatusCode
			last, to, code = f.newcomer()
			want(t, "CreateSession", code, ua.StatusOK)
			if n := f.st.Len(); n != 2 {
				t.Fatalf("%d sessions", n)
			}
			time.Sleep(time.Second) // old enough to be evicted
		}
		want(t, "ActivateSession", last.activate(to, identityOf("carl")), ua.StatusOK)
		if n := f.st.Len(); n != 1 || old.session() != nil {
			t.Errorf("%d sessions", n)
		}
	})
}

// overload.md §8b: a hint is a promise. A session whose first activation was put
// off is still there when the hint has passed, on the channel that was told;
// activated ones and other channels' are left alone.
func TestKeepUntil(t *testing.T) {
	inFullTable(t, Options{MaxSessions: 10}, func(f fullTable) {
		c, ch, _ := f.newcomer()
		plain, _, _ := f.newcomer()
		stranger, _, _ := f.newcomer()
		active, on := f.join("")
		until := time.Now().Add(50 * time.Second)
		f.st.KeepUntil(ch, c.token, until)
		f.st.KeepUntil(ch, stranger.token, until) // bound to another channel
		f.st.KeepUntil(on, active.token, time.Now().Add(time.Hour))
		f.st.KeepUntil(ch, c.token, time.Now().Add(time.Second)) // never earlier
		time.Sleep(31 * time.Second)                             // past ActivationTimeout
		synctest.Wait()
		if plain.session() != nil || stranger.session() != nil {
			t.Error("sessions of which nobody was told anything live on")
		}
		time.Sleep(18 * time.Second)
		synctest.Wait()
		if c.session() == nil {
			t.Fatal("ended before the hint had passed")
		}
		want(t, "ActivateSession after the hint", c.activate(ch, anonymous), ua.StatusOK)
		time.Sleep(12 * time.Second) // the activated one's 60 s have passed
		synctest.Wait()
		if active.session() != nil {
			t.Error("an activated session was kept by a hint")
		}
	})
}
