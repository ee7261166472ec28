package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/securechannel"
)

// deleted notes the subscriptions that a rogue is told to delete.
type deleted struct {
	mu  sync.Mutex
	ids []uint32
}

func (d *deleted) by(r *rogue) {
	r.on("DeleteSubscriptions", func(_ int, rq ua.Request) any {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ids = append(d.ids, rq.(*ua.DeleteSubscriptionsRequest).SubscriptionIDs...)
		return behaved{}
	})
}

func (d *deleted) only(t *testing.T, id uint32) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.ids) != 1 || d.ids[0] != id {
		t.Errorf("deleted %v, want %d", d.ids, id)
	}
}

// held is a request whose answer the test sends when it likes; it is there after
// synctest.Wait.
type held struct {
	ch *securechannel.Channel
	id uint32
	rq ua.Request
}

func (r *rogue) hold(service string) *held {
	h := &held{}
	r.on(service, func(_ int, rq ua.Request) any {
		r.mu.Lock()
		defer r.mu.Unlock()
		h.ch, h.id, h.rq = r.ch, r.id, rq
		return silent{}
	})
	return h
}

// What Subscribe has made when its time is over is deleted: at once when it is
// known, else when the answer comes.
func TestSubscribeTimesOut(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		subscribe := func() {
			ctx, cancel := context.WithTimeout(r.ctx, time.Second)
			defer cancel()
			begun := time.Now()
			_, err := s.Subscribe(ctx, SubscriptionOptions{}, Monitor{NodeID: ua.NewTwoByteNodeID(9)})
			if !errors.Is(err, ua.StatusBadTimeout) || time.Since(begun) != time.Second {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
		}
		h := r.hold("CreateSubscription")
		var late deleted
		late.by(r)
		subscribe()
		time.Sleep(time.Minute)
		synctest.Wait()
		if hint := h.rq.Header().TimeoutHint; hint != 1000 {
			t.Errorf("timeout hint %d", hint)
		}
		r.reply(h.ch, h.id, h.rq, &ua.CreateSubscriptionResponse{SubscriptionID: 77})
		late.only(t, 77)

		r.on("CreateSubscription", nil)
		r.on("CreateMonitoredItems", func(int, ua.Request) any { return silent{} })
		var known deleted
		known.by(r)
		subscribe()
		known.only(t, 1)

		r.hold("CreateSubscription") // never answered: Close does not wait for it
		subscribe()
		begun := time.Now()
		if err := s.Close(r.ctx); err != nil || time.Since(begun) != 0 {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// The answer to CreateSubscription is waited for as long as lateAnswer, no longer.
func TestLateAnswerIsNotAwaitedForEver(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		r.hold("CreateSubscription")
		if _, err := s.Subscribe(r.ctx, SubscriptionOptions{}); !errors.Is(err, ua.StatusBadTimeout) {
			t.Error(err)
		}
		pending := func() int {
			s.conn.mu.Lock()
			defer s.conn.mu.Unlock()
			return len(s.conn.pending)
		}
		synctest.Wait()
		if n := pending(); n != 1 {
			t.Errorf("%d requests under way, want the one", n)
		}
		time.Sleep(lateAnswer + time.Second)
		synctest.Wait()
		if n := pending(); n != 0 {
			t.Errorf("%d requests under way", n)
		}
		s.Close(r.ctx)
	})
}

// Monitor that fails leaves no items at the server: what its first requests have
// made is deleted at once, what its last has made when the answer comes.
func TestMonitorThatFailsLeavesNoItems(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 1)
		sub := subs[0]
		var mu sync.Mutex
		var made, gone []uint32
		result := func(id uint32) *ua.MonitoredItemCreateResult {
			mu.Lock()
			defer mu.Unlock()
			made = append(made, id)
			return &ua.MonitoredItemCreateResult{MonitoredItemID: id}
		}
		r.on("DeleteMonitoredItems", func(_ int, rq ua.Request) any {
			mu.Lock()
			defer mu.Unlock()
			if d := rq.(*ua.DeleteMonitoredItemsRequest); d.SubscriptionID != sub.id {
				t.Errorf("items of subscription %d", d.SubscriptionID)
			} else {
				gone = append(gone, d.MonitoredItemIDs...)
			}
			return behaved{}
		})
		same := func(want int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(made) != want || !slices.Equal(made, gone) {
				t.Errorf("made %v, deleted %v; want %d", made, gone, want)
			}
			if n := len(sub.Items()); n != 1 {
				t.Errorf("%d items left, want the first one", n)
			}
		}
		r.on("CreateMonitoredItems", func(n int, rq ua.Request) any {
			items := rq.(*ua.CreateMonitoredItemsRequest).ItemsToCreate
			switch {
			case len(items) > 2:
				return ua.StatusBadTooManyOperations
			case n > 2:
				return ua.StatusBadOutOfMemory
			}
			return &ua.CreateMonitoredItemsResponse{Results: []*ua.MonitoredItemCreateResult{
				result(70), {StatusCode: ua.StatusBadNodeIDUnknown}}}
		})
		if _, err := sub.Monitor(r.ctx, make([]Monitor, 4)...); !errors.Is(err, ua.StatusBadOutOfMemory) {
			t.Errorf("got %v, want BadOutOfMemory", err)
		}
		same(1)

		h := r.hold("CreateMonitoredItems")
		ctx, cancel := context.WithTimeout(r.ctx, time.Second)
		defer cancel()
		if _, err := sub.Monitor(ctx, make([]Monitor, 2)...); !errors.Is(err, ua.StatusBadTimeout) {
			t.Errorf("got %v, want BadTimeout", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		r.reply(h.ch, h.id, h.rq, &ua.CreateMonitoredItemsResponse{Results: []*ua.MonitoredItemCreateResult{result(71), result(72)}})
		same(3)
		s.Close(r.ctx)
	})
}

// A subscription made through Do would be nobody's, and the publisher would delete
// it: it is not asked for. And no nil is worth a panic.
func TestWhatIsNotAsked(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 1)
		sub := subs[0]
		r.on("CreateSubscription", nil)
		if _, err := s.Do(r.ctx, &ua.CreateSubscriptionRequest{}); !errors.Is(err, ua.StatusBadServiceUnsupported) || r.asked("CreateSubscription") != 0 {
			t.Errorf("CreateSubscription: %v", err)
		}
		for _, rq := range []ua.Request{nil, (*ua.ReadRequest)(nil), (*ua.CreateSubscriptionRequest)(nil)} {
			if _, err := s.Do(r.ctx, rq); !errors.Is(err, ua.StatusBadInvalidArgument) {
				t.Errorf("Do(%T): %v", rq, err)
			}
		}
		n := 0
		for ref, err := range s.Browse(r.ctx, nil) {
			if n++; ref != nil || !errors.Is(err, ua.StatusBadInvalidArgument) {
				t.Errorf("Browse(nil): %v, %v", ref, err)
			}
		}
		if n != 1 {
			t.Errorf("Browse(nil) yields %d times", n)
		}
		for _, err := range s.Walk(r.ctx, nil, 0) {
			if err == nil {
				t.Error("Walk(nil) finds something")
			}
		}
		if err := sub.Unmonitor(r.ctx, nil, &Item{}, nil); err != nil || r.asked("DeleteMonitoredItems") != 0 {
			t.Errorf("Unmonitor(nil): %v", err)
		}
		if items, err := sub.Monitor(r.ctx); err != nil || len(items) != 0 {
			t.Errorf("Monitor of nothing: %v, %v", items, err)
		}
		if _, err := sub.Monitor(r.ctx, Monitor{}, Monitor{Filter: (*ua.EventFilter)(nil)}); err != nil {
			t.Errorf("Monitor of nil: %v", err)
		}
		for _, rq := range []func() error{
			func() error { _, err := s.Read(r.ctx, nil); return err },
			func() error { _, err := s.ReadValue(r.ctx, nil); return err },
			func() error { _, err := s.Write(r.ctx, nil); return err },
			func() error { return s.WriteValue(r.ctx, nil, (*ua.DataValue)(nil)) },
			func() error { _, err := s.CallMethods(r.ctx, nil); return err },
			func() error { _, err := s.Call(r.ctx, nil, nil, nil); return err },
		} {
			_ = rq() // the server's business
		}
		s.Close(r.ctx)
	})
}
