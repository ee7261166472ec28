package session

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uastatus"
)

// Sessions are created, activated, used, moved, closed, evicted, timed out and
// lose their channels, all at once; afterwards every session has ended exactly
// once and nothing is left. Run with -race.
func TestStress(t *testing.T) {
	var ended sync.Map
	var created, closed atomic.Int64
	o := Options{
		MaxSessions:       40,
		MinTimeout:        5 * time.Millisecond,
		MaxTimeout:        20 * time.Millisecond,
		ActivationTimeout: 10 * time.Millisecond,
		EvictionAge:       time.Millisecond,
		Key:               serverKey(t),
		Authenticator:     allowAll{},
		OnClose: func(s *Session, _ bool) {
			if _, twice := ended.LoadOrStore(s, true); twice {
				t.Error("a session ended twice")
			}
			closed.Add(1)
		},
	}
	o.OnActivate = func(s *Session, _ Channel, _ bool) {
		if s.Identity() == nil || s.Caller() == nil {
			t.Error("OnActivate before the identity is in force")
		}
	}
	st := NewStore(o)
	rounds := 150
	if testing.Short() {
		rounds = 30
	}
	var wg sync.WaitGroup
	var channels sync.Map
	var tokens sync.Map // int → *client, shared so that goroutines meet
	for g := range 8 {
		wg.Go(func() {
			secured := g == 0 // a little cryptography among much of the rest
			channel := func() *fakeChannel {
				ch := noneChannel()
				if secured {
					ch = secureChannel()
				}
				channels.Store(ch, true)
				return ch
			}
			ch := channel()
			for i := range rounds {
				if secured && i > 10 {
					return
				}
				c, code := tryCreate(t, st, ch)
				if code != ua.StatusOK {
					if code != ua.StatusBadTooManySessions && code != ua.StatusBadSecureChannelClosed {
						t.Errorf("CreateSession: %s", uastatus.Name(code))
					}
				} else {
					created.Add(1)
					tokens.Store(rand.IntN(16), c)
					if rand.IntN(4) > 0 {
						switch code := c.activate(ch, anonymous); code {
						case ua.StatusOK, ua.StatusBadSessionIDInvalid, ua.StatusBadSecureChannelClosed, ua.StatusBadApplicationSignatureInvalid:
						default:
							t.Errorf("ActivateSession: %s", uastatus.Name(code))
						}
					}
				}
				if v, ok := tokens.Load(rand.IntN(16)); ok {
					// Somebody else's session: use it, move it or close it.
					o := v.(*client)
					switch rand.IntN(5) {
					case 0:
						st.Close(ch, o.token, true)
					case 1, 2:
						rq := &ua.ActivateSessionRequest{}
						if secured {
							asUser("bob", "x")(&client{t: t, nonce: make([]byte, 32)}, ch, rq)
						}
						st.Activate(context.Background(), ch, o.token, rq)
					default:
						if s, code := st.Lookup(ch, o.token, time.Now()); code == ua.StatusOK {
							s.Count(ServiceRead, false)
							s.Diagnostics()
						}
					}
				}
				switch rand.IntN(6) {
				case 0:
					ch.closeIn(st)
					ch = channel()
				case 1:
					time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
				case 2:
					st.Each(func(s *Session) bool { s.Channel(); s.LastContact(); s.Reason(); return true })
				}
				if n := st.Len(); n > o.MaxSessions {
					t.Errorf("%d sessions in a table of %d", n, o.MaxSessions)
				}
			}
			if rand.IntN(2) == 0 {
				ch.closeIn(st)
			}
		})
	}
	wg.Wait()
	st.Shutdown()
	nothingLeft(t, st)
	channels.Range(func(ch, _ any) bool {
		if n := ch.(*fakeChannel).attached.Load(); n != 0 {
			t.Errorf("a channel counts %d sessions", n)
		}
		return true
	})
	if created.Load() == 0 || closed.Load() < created.Load() {
		t.Errorf("%d created, %d ended", created.Load(), closed.Load())
	}
	if sum := st.Summary(); int64(sum.Cumulated) != created.Load() {
		t.Errorf("%+v after %d created", sum, created.Load())
	}
}

// Two ActivateSession with the same signature: the nonce is good for one.
func TestNonceIsUsedOnce(t *testing.T) {
	st := newStore(t, secureOptions(t))
	ch := secureChannel()
	c := create(t, st, ch)
	rq := c.request(ch, asUser("bob", "x"))
	var ok, refused atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, code := st.Activate(context.Background(), ch, c.token, rq)
			switch code {
			case ua.StatusOK:
				ok.Add(1)
			case ua.StatusBadApplicationSignatureInvalid:
				refused.Add(1)
			default:
				t.Errorf("ActivateSession: %s", uastatus.Name(code))
			}
		})
	}
	wg.Wait()
	if ok.Load() != 1 || refused.Load() != 7 {
		t.Errorf("%d accepted, %d refused", ok.Load(), refused.Load())
	}
}
