package client

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/stack"
)

// Twenty restarts of the server, some long, some short: every time the
// subscriptions are there again with the present values, and none of them twice.
func TestServerRestarts(t *testing.T) {
	inPlant(t, stack.Options{}, func(p *plant) {
		s := p.connect(p.opts())
		var subs []*Subscription
		var tallies []*tally
		for range 3 {
			sub, err := s.Subscribe(p.ctx, SubscriptionOptions{Interval: 100 * time.Millisecond}, Monitor{NodeID: p.id()}, Monitor{NodeID: ua.NewTwoByteNodeID(255)})
			if err != nil {
				t.Fatal(err)
			}
			if items := sub.Items(); len(items) != 1 {
				t.Fatalf("%d items, want the one that exists", len(items))
			}
			subs, tallies = append(subs, sub), append(tallies, gather(sub))
		}
		for i := range int64(20) {
			time.Sleep(time.Minute)
			p.stop()
			time.Sleep(time.Duration(i) * 5 * time.Second)
			p.start()
			p.set(i + 1)
			time.Sleep(2 * time.Minute)
		}
		for i, g := range tallies {
			g.end()
			if err := g.exactly(0, 20); err != nil || g.recreated != 20 || g.missed != 0 {
				t.Errorf("subscription %d: %v, recreated %d, missed %d", i, err, g.recreated, g.missed)
			}
		}
		if st := p.stats(); st.Sessions != 1 || st.Subscriptions != 3 || st.MonitoredItems != 3 || st.ParkedPublishes != 4 {
			t.Errorf("%+v", st)
		}
		_ = subs
		p.close(s)
	})
}

// hostile.md B23, from the client: a thousand reconnects leave nothing behind.
func TestThousandReconnects(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, _ := subscribed(t, r, 2)
		heap := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		var before uint64
		for i := range 1000 {
			if i == 200 {
				before = heap()
			}
			time.Sleep(40 * time.Second)
			r.mu.Lock()
			r.parked = nil
			r.mu.Unlock()
			r.cut()
			time.Sleep(time.Second)
			if st := s.State(); st.State != Online {
				t.Fatalf("%d: %+v", i, st)
			}
		}
		if after := heap(); after > before+4<<20 {
			t.Errorf("heap went from %d to %d KiB", before>>10, after>>10)
		}
		if n := r.waiting(); n != 3 {
			t.Errorf("%d Publish requests", n)
		}
		if n := r.asked("CreateSession"); n != 1 {
			t.Errorf("%d sessions", n)
		}
		s.Close(r.ctx)
	})
}

// A creation whose answer was lost leaves a subscription that nobody knows: it is
// deleted when it shows.
func TestUnknownSubscriptionIsDeleted(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 1)
		var deleted []uint32
		r.on("DeleteSubscriptions", func(_ int, rq ua.Request) any {
			r.mu.Lock()
			deleted = append(deleted, rq.(*ua.DeleteSubscriptionsRequest).SubscriptionIDs...)
			r.mu.Unlock()
			return behaved{}
		})
		r.push(77, 1, nil, int64(1))
		time.Sleep(time.Second)
		r.push(77, 2, nil, int64(2))
		time.Sleep(time.Second)
		r.mu.Lock()
		if len(deleted) != 1 || deleted[0] != 77 {
			t.Errorf("deleted %v", deleted)
		}
		r.mu.Unlock()
		want(t, subs[0])
		s.Close(r.ctx)
	})
}

// A value that comes before the answer to CreateSubscription has been looked at
// is not lost.
func TestEarlyNotification(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, _ := subscribed(t, r, 1)
		r.on("CreateSubscription", func(_ int, rq ua.Request) any {
			r.mu.Lock()
			ch, id := r.ch, r.id
			r.mu.Unlock()
			go func() { // after this batch, so that the one is written before the other
				time.Sleep(time.Second)
				r.push(2, 1, nil, &ua.StatusChangeNotification{Status: ua.StatusUncertain})
				time.Sleep(time.Second)
				r.reply(ch, id, rq, &ua.CreateSubscriptionResponse{SubscriptionID: 2, RevisedPublishingInterval: 1000, RevisedLifetimeCount: 1000, RevisedMaxKeepAliveCount: 10})
			}()
			return silent{}
		})
		r.on("DeleteSubscriptions", nil)
		sub, err := s.Subscribe(r.ctx, SubscriptionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := r.asked("DeleteSubscriptions"); n != 0 {
			t.Error("the new subscription was deleted")
		}
		if got := drain(sub); len(got) != 1 {
			t.Errorf("%q", got)
		}
		s.Close(r.ctx)
	})
}

// A recovery that breaks while a subscription is half made starts it again, and
// takes the half away.
func TestHalfMadeSubscription(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 1)
		time.Sleep(time.Minute)
		var deleted []uint32
		r.on("DeleteSubscriptions", func(_ int, rq ua.Request) any {
			r.mu.Lock()
			deleted = append(deleted, rq.(*ua.DeleteSubscriptionsRequest).SubscriptionIDs...)
			r.mu.Unlock()
			return behaved{}
		})
		r.on("CreateMonitoredItems", func(n int, _ ua.Request) any {
			if n == 1 {
				return hangUp{}
			}
			return behaved{}
		})
		r.push(1, 1, nil, &ua.StatusChangeNotification{Status: ua.StatusBadTimeout})
		time.Sleep(time.Minute)
		r.mu.Lock()
		if len(deleted) != 1 || deleted[0] != 2 {
			t.Errorf("deleted %v, want the half that was made", deleted)
		}
		r.mu.Unlock()
		if got := drain(subs[0]); len(got) != 2 || got[1] != "new" {
			t.Errorf("%q", got)
		}
		s.Close(r.ctx)
	})
}

// A server that takes no bytes does not hold a session: the write ends with its
// deadline, and Close does not wait for it.
func TestServerThatDoesNotRead(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		stuck := make(chan struct{})
		r.on("Write", func(int, ua.Request) any { <-stuck; return behaved{} })
		big := make([]byte, 3<<20)
		node := ua.NewTwoByteNodeID(1)
		ctx, cancel := context.WithTimeout(r.ctx, time.Hour)
		defer cancel()
		begun := time.Now()
		errs := make(chan error, 3)
		for range cap(errs) {
			go func() { errs <- s.WriteValue(ctx, node, big) }()
		}
		for range cap(errs) {
			if err := <-errs; err == nil || time.Since(begun) > time.Minute {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
		}
		gone, end := context.WithCancelCause(r.ctx)
		why := errors.New("enough")
		end(why)
		if _, err := s.ReadValue(gone, node); !errors.Is(err, why) {
			t.Error(err)
		}
		close(stuck)
		s.Close(r.ctx)
	})
}

// OPC 10000-4 §5.14.7: what the transferred subscription has available is fetched,
// what is missing from the list is told, and a transfer whose answer was lost
// (BadNothingToDo: it is ours already) fetches what there is.
func TestTransferFetchesWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		name    string
		results []any // of TransferSubscriptions, one after the other
		want    []string
		named   bool          // the user has a name
		within  time.Duration // 0: when the old session has timed out
	}{
		{"a list", []any{&ua.TransferResult{AvailableSequenceNumbers: []uint32{1, 3, 4}}}, []string{"-1", "3", "4"}, false, 0},
		{"an empty list", []any{&ua.TransferResult{}}, nil, false, 0},
		{"interrupted", []any{hangUp{}, &ua.TransferResult{StatusCode: ua.StatusBadNothingToDo}}, []string{"2", "3", "4"}, false, 0},
		{"denied at first", []any{&ua.TransferResult{StatusCode: ua.StatusBadUserAccessDenied}, &ua.TransferResult{AvailableSequenceNumbers: []uint32{2, 3, 4}}}, []string{"2", "3", "4"}, true, 0},
		{"denied", []any{&ua.TransferResult{StatusCode: ua.StatusBadUserAccessDenied}}, []string{"new"}, true, 0},
		{"denied to nobody", []any{&ua.TransferResult{StatusCode: ua.StatusBadUserAccessDenied}}, []string{"new"}, false, 5 * time.Second},
		{"unknown", []any{&ua.TransferResult{StatusCode: ua.StatusBadSubscriptionIDInvalid}}, []string{"new"}, false, 0},
		{"unsupported", []any{ua.StatusBadServiceUnsupported}, []string{"new"}, false, 0},
		{"busy", []any{busy(3 * time.Second), &ua.TransferResult{AvailableSequenceNumbers: []uint32{2, 3, 4}}}, []string{"2", "3", "4"}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inRogue(t, func(r *rogue) {
				r.named = c.named
				s, subs := subscribed(t, r, 1)
				r.push(1, 1, nil, int64(1))
				time.Sleep(time.Minute)
				want(t, subs[0], "1")
				r.on("ActivateSession", func(n int, _ ua.Request) any {
					if n == 1 {
						return ua.StatusBadSessionIDInvalid
					}
					return behaved{}
				})
				r.on("TransferSubscriptions", func(n int, rq ua.Request) any {
					if rq.(*ua.TransferSubscriptionsRequest).SendInitialValues {
						t.Error("initial values are values for the second time")
					}
					a := c.results[min(n, len(c.results))-1]
					if res, ok := a.(*ua.TransferResult); ok {
						return &ua.TransferSubscriptionsResponse{Results: []*ua.TransferResult{res}}
					}
					return a
				})
				r.on("Republish", func(_ int, rq ua.Request) any {
					n := rq.(*ua.RepublishRequest).RetransmitSequenceNumber
					if n < 2 || n > 4 || c.name == "a list" && n == 2 {
						return ua.StatusBadMessageNotAvailable
					}
					return &ua.RepublishResponse{NotificationMessage: message(n, int64(n))}
				})
				r.cut()
				if c.within == 0 {
					c.within = 2 * time.Minute
				}
				time.Sleep(c.within)
				want(t, subs[0], c.want...)
				if s.State().State != Online {
					t.Errorf("%+v", s.State())
				}
				s.Close(r.ctx)
			})
		})
	}
}
