package client

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/stack"
)

// small is a server whose messages hold far fewer items than a subscription.
func small() stack.Options {
	var o stack.Options
	o.Limits.MaxMessageSize = 64 << 10
	return o
}

// A subscription with more items than one message holds comes back after the
// server has lost it, whether they were added little by little or at once.
func TestBigSubscriptionIsRecreated(t *testing.T) {
	inPlant(t, small(), func(p *plant) {
		const items, step = 5000, 500
		s := p.connect(p.opts())
		part := make([]Monitor, step)
		all := make([]Monitor, items)
		for i := range all {
			all[i].NodeID = p.id()
			part[i%step].NodeID = p.id()
		}
		grown, err := s.Subscribe(p.ctx, SubscriptionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for range items / step {
			if _, err := grown.Monitor(p.ctx, part...); err != nil {
				t.Fatal(err)
			}
		}
		whole, err := s.Subscribe(p.ctx, SubscriptionOptions{}, all...)
		if err != nil {
			t.Fatal(err)
		}
		p.stop()
		p.start()
		time.Sleep(time.Minute)
		if st := s.State(); st.State != Online {
			t.Fatalf("%+v", st)
		}
		if st := p.stats(); st.Subscriptions != 2 || st.MonitoredItems != 2*items {
			t.Errorf("%d subscriptions with %d items at the server", st.Subscriptions, st.MonitoredItems)
		}
		if err := whole.Unmonitor(p.ctx, whole.Items()...); err != nil {
			t.Error(err)
		}
		if st := p.stats(); st.MonitoredItems != items || len(whole.Items()) != 0 || len(grown.Items()) != items {
			t.Errorf("%d items at the server, %d and %d here", st.MonitoredItems, len(whole.Items()), len(grown.Items()))
		}
		p.close(s)
	})
}

// An item that fits in no message is refused by itself; the rest is monitored.
func TestItemThatFitsNoMessage(t *testing.T) {
	inPlant(t, small(), func(p *plant) {
		s := p.connect(p.opts())
		huge := Monitor{NodeID: ua.NewStringNodeID(1, strings.Repeat("x", 100_000))}
		sub, err := s.Subscribe(p.ctx, SubscriptionOptions{}, Monitor{NodeID: p.id()}, huge, Monitor{NodeID: p.id()})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(sub.Items()); n != 2 {
			t.Errorf("%d items, want the two that fit", n)
		}
		items, err := sub.Monitor(p.ctx, huge)
		if err != nil || !errors.Is(items[0].Err(), ua.StatusBadRequestTooLarge) {
			t.Errorf("%v, %v", items, err)
		}
		p.close(s)
	})
}

// Items that the server may have made, since only its answer was too large, get
// other handles when they are made in smaller pieces: no value comes twice.
func TestItemsWhoseAnswerIsTooLarge(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 1)
		var mu sync.Mutex
		times := make(map[uint32]int)
		r.on("CreateMonitoredItems", func(_ int, rq ua.Request) any {
			q := rq.(*ua.CreateMonitoredItemsRequest)
			mu.Lock()
			defer mu.Unlock()
			for _, i := range q.ItemsToCreate {
				times[i.RequestedParameters.ClientHandle]++
			}
			if len(q.ItemsToCreate) > 2 {
				return ua.StatusBadResponseTooLarge
			}
			return behaved{}
		})
		items, err := subs[0].Monitor(r.ctx, make([]Monitor, 7)...)
		if err != nil || len(items) != 7 || len(subs[0].Items()) != 8 {
			t.Errorf("%d items of %d, %v", len(items), len(subs[0].Items()), err)
		}
		mu.Lock()
		for h, n := range times {
			if n != 1 {
				t.Errorf("handle %d came %d times", h, n)
			}
		}
		mu.Unlock()
		for _, it := range items {
			if subs[0].items[it.handle] != it || it.id != it.handle {
				t.Errorf("handle %d, id %d", it.handle, it.id)
			}
		}
		s.Close(r.ctx)
	})
}

// Methods are called in as many messages as it takes, and each of them once.
func TestCallMethodsInPieces(t *testing.T) {
	const methods = 100
	all := make([]*ua.CallMethodRequest, methods)
	for i := range all {
		all[i] = &ua.CallMethodRequest{ObjectID: ua.NewTwoByteNodeID(1), MethodID: ua.NewNumericNodeID(1, uint32(i)),
			InputArguments: []*ua.Variant{ua.MustVariant(strings.Repeat("x", 2000))}}
	}
	t.Run("not sent", func(t *testing.T) {
		inPlant(t, small(), func(p *plant) {
			s := p.connect(p.opts())
			rs, err := s.CallMethods(p.ctx, all...)
			if err != nil || len(rs) != methods {
				t.Errorf("%d results, %v", len(rs), err)
			}
			p.close(s)
		})
	})
	for _, c := range []struct {
		refusal ua.StatusCode
		pieces  bool
	}{
		{ua.StatusBadTooManyOperations, true},
		{ua.StatusBadRequestTooLarge, true},
		{ua.StatusBadResponseTooLarge, false}, // they have run
		{ua.StatusBadEncodingLimitsExceeded, false},
	} {
		t.Run(c.refusal.Error(), func(t *testing.T) {
			inRogue(t, func(r *rogue) {
				s, err := Connect(r.ctx, plantURL, r.opts())
				if err != nil {
					t.Fatal(err)
				}
				r.on("Call", func(_ int, rq ua.Request) any {
					q := rq.(*ua.CallRequest)
					if len(q.MethodsToCall) > 30 {
						return c.refusal
					}
					rs := &ua.CallResponse{}
					for _, m := range q.MethodsToCall {
						rs.Results = append(rs.Results, &ua.CallMethodResult{OutputArguments: []*ua.Variant{ua.MustVariant(m.MethodID.IntID())}})
					}
					return rs
				})
				rs, err := s.CallMethods(r.ctx, all...)
				switch {
				case !c.pieces:
					if !errors.Is(err, c.refusal) || len(rs) != 0 || r.asked("Call") != 1 {
						t.Errorf("%d results, %v, after %d requests", len(rs), err, r.asked("Call"))
					}
				case err != nil || len(rs) != methods:
					t.Errorf("%d results, %v", len(rs), err)
				default:
					for i, m := range rs {
						if m.OutputArguments[0].Value() != uint32(i) {
							t.Fatalf("result %d is of method %v", i, m.OutputArguments[0].Value())
						}
					}
				}
				s.Close(r.ctx)
			})
		})
	}
}

// forget makes the rogue forget its session once, with the subscriptions in it.
func (r *rogue) forget() {
	r.on("ActivateSession", func(n int, _ ua.Request) any {
		if n == 1 {
			return ua.StatusBadSessionIDInvalid
		}
		return behaved{}
	})
	r.mu.Lock()
	r.parked = nil
	r.mu.Unlock()
	r.cut()
}

// A subscription that cannot be asked for ends with the reason; the session and
// the other subscription go on.
func TestSubscriptionThatCannotBeSent(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 2)
		subs[0].Items()[0].Filter = 3 // no structure
		r.on("DeleteSubscriptions", nil)
		r.forget()
		time.Sleep(time.Minute)
		if st := s.State(); st.State != Online || st.Err != nil {
			t.Errorf("%+v", st)
		}
		select {
		case <-subs[0].Done():
		default:
			t.Error("it has not ended")
		}
		if err := subs[0].Err(); !errors.Is(err, ua.StatusBadEncodingError) {
			t.Errorf("ended by %v", err)
		}
		if n := r.asked("DeleteSubscriptions"); n != 1 {
			t.Errorf("%d subscriptions deleted, want the one without its item", n)
		}
		want(t, subs[1], "new")
		s.Close(r.ctx)
	})
}

// A subscription that is answered with nonsense when it is recreated keeps nobody
// offline, and is there when the server has come to its senses.
func TestRecreationAnsweredWithNonsense(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 1)
		r.on("CreateMonitoredItems", func(n int, _ ua.Request) any {
			if n < 5 {
				return &ua.CreateMonitoredItemsResponse{} // no results
			}
			return behaved{}
		})
		r.forget()
		time.Sleep(5 * time.Second)
		if st := s.State(); st.State != Online {
			t.Errorf("%+v", st)
		}
		time.Sleep(10 * time.Minute)
		want(t, subs[0], "new")
		if n := r.asked("CreateMonitoredItems"); n != 5 {
			t.Errorf("%d requests, want 5", n)
		}
		s.Close(r.ctx)
	})
}

// A refused subscription is asked for again after the policy's last attempt too,
// at its longest delay; it never dies in silence.
func TestRefusedSubscriptionOutlivesThePolicy(t *testing.T) {
	inRogue(t, func(r *rogue) {
		o := r.opts()
		o.Reconnect = reconnect.Policy{JitterFactor: -1, MaxRetries: 3}
		s, err := Connect(r.ctx, plantURL, o)
		if err != nil {
			t.Fatal(err)
		}
		var subs [2]*Subscription
		for i := range subs {
			if subs[i], err = s.Subscribe(r.ctx, SubscriptionOptions{}, Monitor{NodeID: ua.NewTwoByteNodeID(9)}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		r.on("CreateSubscription", func(n int, _ ua.Request) any {
			if n > 1 {
				return ua.StatusBadTooManySubscriptions
			}
			return behaved{}
		})
		r.forget()
		time.Sleep(time.Hour)
		if n := r.asked("CreateSubscription"); n < 100 || n > 130 {
			t.Errorf("asked %d times in an hour, want every 30 s", n)
		}
		r.on("CreateSubscription", nil)
		time.Sleep(31 * time.Second)
		for i, sub := range subs {
			if got := drain(sub); len(got) != 1 || got[0] != "new" || sub.Err() != nil {
				t.Errorf("subscription %d: %q, %v", i, got, sub.Err())
			}
		}
		if st := s.State(); st.State != Online {
			t.Errorf("%+v", st)
		}
		s.Close(r.ctx)
	})
}
