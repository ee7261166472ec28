package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/securechannel"
)

// The rows of hostile.md that a client can meet, and their tests:
//
//	C1   TestC1HintsAreHonoured, TestWebRetryAfter, TestERRHintWhileOnline
//	C3   TestC3CutResumesTheOldSession
//	C5   TestC5ServerRestartRecreates, TestServerRestarts, TestListeners (restart)
//	C7   TestC7BackoffGrows
//	C8   TestC8EachStepRecovers, TestC8HelloAndOpen, TestC8CutAtEveryPlace, TestCutHandshake
//	C10  TestC10ForgottenSession, TestC10SessionsThatDieAtOnce, TestC10ForgottenChannel
//	C11  TestC11SingleFlight, TestC10SessionsThatDieAtOnce
//	C12  TestC12ParkedRequests, TestC12ParkedRequestsOverHTTPS
//	C14  TestC14Renewal
//	C16  TestC16KeepAlive
//	C18  TestC18PublishRequestsAreBounded, TestC18TooManyPublishRequests
//	C19  TestC19FaultsReachEachWaiter
//	D1   TestC14RenewalUnderTraffic
//	D12  TestD12Handshake, TestNonces
//	E11  TestTransferFetchesWhatIsMissing, TestHTTPSSessionNotTakenBack
//	F7   TestF7BrowseNext
//	F8   TestF8EmptyResults
//	G3   TestWebSocketTroubles
//	I3   TestI3UnexpectedResponses
//	X15b TestX15bRogueAddressSpace
//	X17  TestX17OperationLimits
//	X23  TestServerCertificateIsChecked
//	B23  TestThousandReconnects

// C1: a busy server's hint decides when the client comes back, at whichever step
// of the handshake it is given.
func TestC1HintsAreHonoured(t *testing.T) {
	for _, step := range []string{"GetEndpoints", "CreateSession", "ActivateSession"} {
		t.Run(step, func(t *testing.T) {
			inRogue(t, func(r *rogue) {
				r.on(step, func(n int, _ ua.Request) any {
					if n == 1 {
						return busy(7 * time.Second)
					}
					return behaved{}
				})
				begun := time.Now()
				s, err := Connect(r.ctx, plantURL, r.opts())
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took != 7*time.Second {
					t.Errorf("online after %v, the server said 7 s", took)
				}
				s.Close(r.ctx)
			})
		})
	}
}

// C7: attempts at a target that is down grow apart.
func TestC7BackoffGrows(t *testing.T) {
	inRogue(t, func(r *rogue) {
		r.network.set(true)
		o := r.opts()
		o.Reconnect = reconnect.Policy{JitterFactor: -1, MaxRetries: 6}
		begun := time.Now()
		_, err := Connect(r.ctx, plantURL, o)
		if took := time.Since(begun); !errors.Is(err, reconnect.ErrGaveUp) || took != (1+2+4+8+16+30)*time.Second || r.count() != 7 {
			t.Errorf("%v after %v and %d attempts", err, took, r.count())
		}
	})
}

// C8: the connection dies, or the server falls silent, at each step of the
// handshake, on the way up and on the way back; each state recovers.
func TestC8EachStepRecovers(t *testing.T) {
	for _, step := range []string{"GetEndpoints", "CreateSession", "ActivateSession"} {
		for _, how := range []any{hangUp{}, silent{}, ua.StatusBadInternalError, raw{1, 2}, &ua.WriteResponse{}} {
			t.Run(fmt.Sprintf("%s/%T", step, how), func(t *testing.T) {
				inRogue(t, func(r *rogue) {
					once := func(n int, _ ua.Request) any {
						if n == 1 {
							return how
						}
						return behaved{}
					}
					r.on(step, once)
					s, err := Connect(r.ctx, plantURL, r.opts())
					if err != nil {
						t.Fatal(err)
					}
					if step != "GetEndpoints" {
						time.Sleep(time.Minute)
						r.on(step, once)
						r.on("ActivateSession", func(n int, rq ua.Request) any {
							if step == "ActivateSession" {
								return once(n, rq)
							}
							if n == 1 {
								return ua.StatusBadSessionIDInvalid // a new session is needed
							}
							return behaved{}
						})
						r.cut()
						time.Sleep(2 * time.Minute)
						until(t, s, Online)
					}
					if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err != nil {
						t.Error(err)
					}
					s.Close(r.ctx)
				})
			})
		}
	}
}

// C10: the server forgets the session while publishes are in flight: one
// recovery, and no Publish until it is done.
func TestC10ForgottenSession(t *testing.T) {
	inRogue(t, func(r *rogue) {
		r.on("ActivateSession", nil)
		s, sub := subscribed(t, r, 3)
		time.Sleep(time.Minute)
		r.on("CreateSession", func(_ int, rq ua.Request) any {
			time.Sleep(0)
			return behaved{}
		})
		r.on("Publish", nil)
		r.on("TransferSubscriptions", func(int, ua.Request) any {
			if n := r.asked("Publish"); n != 0 {
				t.Errorf("%d Publish requests during the recovery", n)
			}
			return &ua.TransferSubscriptionsResponse{Results: []*ua.TransferResult{{}, {}, {}}}
		})
		r.mu.Lock()
		parked := r.parked
		r.parked = nil
		r.mu.Unlock()
		for _, p := range parked {
			r.reply(p.ch, p.id, p.rq, ua.StatusBadSessionIDInvalid)
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		if n := r.asked("CreateSession"); n != 1 {
			t.Errorf("%d sessions were created, want 1", n)
		}
		if n := r.waiting(); n != 4 {
			t.Errorf("%d Publish requests, want 4", n)
		}
		_ = sub
		s.Close(r.ctx)
	})
}

// subscribed connects and makes subscriptions with an item each.
func subscribed(t *testing.T, r *rogue, n int) (*Session, []*Subscription) {
	t.Helper()
	s, err := Connect(r.ctx, plantURL, r.opts())
	if err != nil {
		t.Fatal(err)
	}
	var subs []*Subscription
	for range n {
		sub, err := s.Subscribe(r.ctx, SubscriptionOptions{}, Monitor{NodeID: ua.NewTwoByteNodeID(9)})
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
	}
	synctest.Wait()
	return s, subs
}

// C10, the other end of it: a server that forgets every session at once. The
// backoff is not reset by a session that dies.
func TestC10SessionsThatDieAtOnce(t *testing.T) {
	inRogue(t, func(r *rogue) {
		r.on("CreateSession", nil)
		r.on("Publish", func(int, ua.Request) any { return ua.StatusBadSessionIDInvalid })
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.Subscribe(r.ctx, SubscriptionOptions{})
		time.Sleep(10 * time.Minute)
		if n := r.asked("CreateSession"); n < 10 || n > 26 {
			t.Errorf("%d sessions in 10 minutes", n)
		}
		s.Close(r.ctx)
	})
}

// C10, for channels: a server that answers on a channel that it does not know any
// more is left at once, by a call, a keep-alive or a Publish request.
func TestC10ForgottenChannel(t *testing.T) {
	for _, name := range []string{"Read", "Publish"} {
		t.Run(name, func(t *testing.T) {
			inRogue(t, func(r *rogue) {
				s, _ := subscribed(t, r, 1)
				time.Sleep(time.Minute)
				dials := r.count()
				r.on(name, func(n int, _ ua.Request) any {
					if n == 1 {
						return ua.StatusBadSecureChannelIDInvalid
					}
					return behaved{}
				})
				r.push(1, 1, nil, int64(1))
				time.Sleep(2 * time.Minute)
				if n := r.count() - dials; n != 1 || s.State().State != Online {
					t.Errorf("%d new connections, %+v", n, s.State())
				}
				s.Close(r.ctx)
			})
		})
	}
}

// C11: many notice the loss at once; one recovery, with growing delays, reset only
// after a session that lived.
func TestC11SingleFlight(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		s.mu.Lock()
		old := s.link.server.token.StringID()
		s.mu.Unlock()
		r.on("Read", func(_ int, rq ua.Request) any {
			if rq.Header().AuthenticationToken.StringID() == old {
				return ua.StatusBadSessionIDInvalid
			}
			return behaved{}
		})
		r.on("CreateSession", nil)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err != nil && !errors.Is(err, ua.StatusBadSessionIDInvalid) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		r.on("Read", nil)
		until(t, s, Online)
		time.Sleep(time.Second)
		if n := r.asked("CreateSession"); n != 1 {
			t.Errorf("%d recoveries", n)
		}
		s.Close(r.ctx)
	})
}

// C14: renewals carry the channel's id; the channel lives on for hours with
// tokens of a minute. The server half refuses anything else.
func TestC14Renewal(t *testing.T) {
	inRogueWith(t, func(r *rogue) { r.lifetime = time.Minute }, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		dials := r.count()
		for range 180 {
			time.Sleep(time.Minute)
			if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err != nil {
				t.Fatal(err)
			}
		}
		if n := r.count() - dials; n != 0 {
			t.Errorf("%d reconnects", n)
		}
		s.Close(r.ctx)
	})
}

// C14, D1: eight callers while tokens of two seconds are renewed under them.
func TestC14RenewalUnderTraffic(t *testing.T) {
	inRogueWith(t, func(r *rogue) { r.lifetime = 2 * time.Second }, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		dials := r.count()
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for range 200 {
					if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Duration(97+i) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if n := r.count() - dials; n != 0 {
			t.Errorf("%d reconnects", n)
		}
		s.Close(r.ctx)
	})
}

// C16: the revised timeout decides the keep-alive, half of it and at least 1 s.
func TestC16KeepAlive(t *testing.T) {
	for _, c := range []struct {
		revised float64
		want    int // keep-alives in a minute
	}{{2000, 60}, {60_000, 2}, {1, 60}, {0, 2}, {-5, 2}, {20_000, 6}} {
		t.Run(fmt.Sprint(c.revised), func(t *testing.T) {
			inRogue(t, func(r *rogue) {
				r.on("CreateSession", func(_ int, rq ua.Request) any {
					rs := r.created(r.last(), rq.(*ua.CreateSessionRequest))
					rs.RevisedSessionTimeout = c.revised
					return rs
				})
				s, err := Connect(r.ctx, plantURL, r.opts())
				if err != nil {
					t.Fatal(err)
				}
				r.on("Read", nil)
				time.Sleep(time.Minute + time.Millisecond)
				if n := r.asked("Read"); n != c.want {
					t.Errorf("%d keep-alives in a minute, want %d", n, c.want)
				}
				s.Close(r.ctx)
			})
		})
	}
}

func (r *rogue) last() *securechannel.Channel {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ch
}

// C18: Publish requests at a server that answers none are bounded; one for each
// subscription and one more.
func TestC18PublishRequestsAreBounded(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 1)
		if n := r.waiting(); n != 2 {
			t.Errorf("1 subscription: %d Publish requests", n)
		}
		for range 30 {
			if _, err := s.Subscribe(r.ctx, SubscriptionOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		if n := r.waiting(); n != 10 {
			t.Errorf("31 subscriptions: %d Publish requests, want 10", n)
		}
		_ = subs
		s.Close(r.ctx)
	})
}

// C18: a server that takes fewer is given fewer, and refused ones do not come in
// a tight loop.
func TestC18TooManyPublishRequests(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, _ := subscribed(t, r, 1)
		r.on("Publish", func(int, ua.Request) any {
			if r.waiting() >= 3 {
				return ua.StatusBadTooManyPublishRequests
			}
			return behaved{}
		})
		for range 8 {
			if _, err := s.Subscribe(r.ctx, SubscriptionOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		if n, asked := r.waiting(), r.asked("Publish"); n != 3 || asked > 20 {
			t.Errorf("%d at the server, %d asked", n, asked)
		}
		r.on("Publish", func(int, ua.Request) any { return ua.StatusBadInternalError })
		r.push(1, 1, nil, int64(1))
		time.Sleep(10 * time.Minute)
		if n := r.asked("Publish"); n > 50 {
			t.Errorf("%d Publish requests in 10 minutes to a server that refuses them", n)
		}
		s.Close(r.ctx)
	})
}

// C19: the connection goes dead without a word; every waiter gets an error, and
// the session comes back.
func TestC19FaultsReachEachWaiter(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		r.on("Read", func(int, ua.Request) any { return silent{} })
		ctx, cancel := context.WithTimeout(r.ctx, time.Hour)
		defer cancel()
		begun := time.Now()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				_, err := s.ReadValue(ctx, ua.NewTwoByteNodeID(1))
				if !errors.Is(err, ua.StatusBadConnectionClosed) || time.Since(begun) > time.Minute {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
			})
		}
		wg.Wait()
		r.on("Read", nil)
		if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err != nil {
			t.Error(err)
		}
		s.Close(r.ctx)
	})
}

// A server that cuts the line with an ERR and a hint is given its time, also
// when the session was a good one.
func TestERRHintWhileOnline(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + time.Second) // between two keep-alives, which read, too
		r.on("Read", func(n int, _ ua.Request) any {
			if n == 1 {
				return hangUp{}
			}
			return behaved{}
		})
		if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err == nil || errors.Is(err, io.EOF) && !errors.Is(err, ua.StatusBadConnectionClosed) {
			t.Error(err)
		}
		until(t, s, Online)
		s.Close(r.ctx)
	})
}
