package subscription

import (
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uastatus"
)

// A long queue of large values is bounded by bytes; the newest value is always there and the loss is marked.
func TestQueuesAreBoundedByBytes(t *testing.T) {
	for _, discardOldest := range []bool{true, false} {
		inBubble(t, Limits{MaxQueuedBytesPerSubscription: 50_000}, func(b *bench) {
			v := b.ns.Variable("A", make([]byte, 10_000))
			id := b.subscribe()
			b.monitor(id, v.Node().ID(), sampled(0), queued(100, discardOldest))
			b.monitor(id, v.Node().ID(), sampled(0), queued(100, discardOldest), handle(2))
			for i := range 100 {
				x := make([]byte, 10_000)
				x[0] = byte(i)
				v.Set(x)
			}
			sub := b.e.find(id)
			if n := b.e.queuedBytes.Load(); n > 50_000 || n != int64(sub.queuedBytes) {
				t.Errorf("%d bytes in queues, the subscription counts %d", n, sub.queuedBytes)
			}
			b.publish()
			b.wait(100 * ms)
			lastOf, lost := map[uint32]byte{}, map[uint32]bool{}
			for _, n := range b.notifications(b.response()) {
				lastOf[n.ClientHandle] = n.Value.Value.Value().([]byte)[0]
				lost[n.ClientHandle] = lost[n.ClientHandle] || n.Value.Status == 0x480
			}
			for h := uint32(1); h <= 2; h++ {
				if lastOf[h] != 99 || !lost[h] {
					t.Errorf("item %d: newest value %d, overflow marked %v", h, lastOf[h], lost[h])
				}
			}
		})
	}
}

func TestLimits(t *testing.T) { // hostile.md X8, E9
	l := Limits{
		MaxSubscriptionsPerSession: 3, MaxSubscriptions: 8, MaxSubscriptionsPerOwner: 5,
		MaxMonitoredItemsPerSubscription: 4, MaxMonitoredItems: 9, MaxMonitoredItemsPerOwner: 7, MaxQueueSize: 100, MaxQueuedValues: 40,
	}
	inBubble(t, l, func(b *bench) {
		v := b.ns.Variable("A", int32(0))
		rq := &ua.CreateSubscriptionRequest{RequestedPublishingInterval: 1000, RequestedLifetimeCount: 3, RequestedMaxKeepAliveCount: 1}
		create := func(s *fakeSession, want ua.StatusCode) uint32 {
			t.Helper()
			rs, code := b.e.CreateSubscription(s, rq)
			if code != want {
				t.Errorf("CreateSubscription: %s, want %s", uastatus.Name(code), uastatus.Name(want))
			}
			if rs == nil {
				return 0
			}
			return rs.SubscriptionID
		}
		var first uint32
		for range 3 {
			first = create(b.s, ua.StatusOK)
		}
		create(b.s, ua.StatusBadTooManySubscriptions) // of the session
		// Orphans go on counting against their creator.
		b.close(b.s, false)
		b.s = newSession(b.ch, "")
		mine := create(b.s, ua.StatusOK)
		last := create(b.s, ua.StatusOK)
		create(b.s, ua.StatusBadTooManySubscriptions) // of the owner
		other := newSession(newChannel(), "somebody")
		var others uint32
		for range 3 {
			others = create(other, ua.StatusOK)
		}
		third := newSession(newChannel(), "else")
		create(third, ua.StatusBadTooManySubscriptions) // of the server

		n := 0
		for _, sub := range []uint32{mine, last} {
			for range 5 {
				switch r := b.monitor(sub, v.Node().ID(), queued(20, true)); r.StatusCode {
				case ua.StatusOK:
					n++
					if n == 1 && r.RevisedQueueSize != 20 || n == 2 && r.RevisedQueueSize != 12 || n == 3 && r.RevisedQueueSize != 1 {
						t.Errorf("queue of item %d revised to %d", n, r.RevisedQueueSize)
					}
				case ua.StatusBadTooManyMonitoredItems:
				default:
					t.Errorf("item: %s", uastatus.Name(r.StatusCode))
				}
			}
		}
		if n != 7 {
			t.Errorf("%d items in two subscriptions of four each, seven for the owner", n)
		}
		b.s = other
		for i := range 3 {
			want := ua.StatusOK
			if i == 2 {
				want = ua.StatusBadTooManyMonitoredItems // of the server
			}
			if r := b.monitor(others, v.Node().ID()); r.StatusCode != want {
				t.Errorf("item %d of another owner: %s", i, uastatus.Name(r.StatusCode))
			}
		}
		_ = first
		b.wait(3500 * ms) // every lifetime is over: nothing counts any more
		for range 3 {
			create(b.s, ua.StatusOK)
		}
		if u := b.e.quota.used(); u != (usage{subscriptions: 3}) {
			t.Errorf("still counted: %+v", u)
		}
	})
}

func TestIdsComeFromARandomStart(t *testing.T) {
	seen := map[uint32]bool{}
	for range 4 {
		e := NewEngine(Options{Space: space()})
		s := newSession(newChannel(), "")
		a, _ := e.CreateSubscription(s, &ua.CreateSubscriptionRequest{})
		e.DeleteSubscriptions(s, &ua.DeleteSubscriptionsRequest{SubscriptionIDs: []uint32{a.SubscriptionID}})
		c, _ := e.CreateSubscription(s, &ua.CreateSubscriptionRequest{})
		if a.SubscriptionID == c.SubscriptionID {
			t.Error("the id of a deleted subscription is used again")
		}
		seen[a.SubscriptionID] = true
		// After the largest comes 1, never 0, and never one that is in use.
		e.mu.Lock()
		e.lastID = 1<<32 - 1
		e.subscriptions[1] = &subscription{}
		e.mu.Unlock()
		if d, _ := e.CreateSubscription(s, &ua.CreateSubscriptionRequest{}); d.SubscriptionID != 2 {
			t.Errorf("after the wrap: %d", d.SubscriptionID)
		}
		e.mu.Lock()
		delete(e.subscriptions, 1)
		e.mu.Unlock()
		e.Close()
	}
	if len(seen) < 4 {
		t.Errorf("four engines start at %v", seen)
	}
}
