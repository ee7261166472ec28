package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"
)

// drain takes what is queued, as text: values, -n for n missed messages, "new"
// for a recreated subscription, status codes.
func drain(sub *Subscription) []string {
	var out []string
	for {
		n, ok := sub.take()
		if !ok {
			return out
		}
		switch {
		case n.Missed > 0:
			out = append(out, fmt.Sprint(-n.Missed))
		case n.Recreated:
			out = append(out, "new")
		case n.Value != nil:
			out = append(out, fmt.Sprint(n.Value.Value.Value()))
		default:
			out = append(out, fmt.Sprintf("%#x", uint32(n.Status)))
		}
	}
}

func want(t *testing.T, sub *Subscription, values ...string) {
	t.Helper()
	if got := drain(sub); !slices.Equal(got, values) {
		t.Errorf("got %q, want %q", got, values)
	}
}

// OPC 10000-4 §5.14.1 and §7.26: sequence numbers order the messages, show the
// gaps, and a keep-alive tells the next one.
func TestSequenceNumbers(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 1)
		sub := subs[0]
		held := map[uint32]int64{}
		r.on("Republish", func(_ int, rq ua.Request) any {
			n := rq.(*ua.RepublishRequest).RetransmitSequenceNumber
			v, ok := held[n]
			if !ok {
				return ua.StatusBadMessageNotAvailable
			}
			return &ua.RepublishResponse{NotificationMessage: message(n, v)}
		})
		push := func(sequence uint32, available []uint32, data ...any) {
			t.Helper()
			r.push(1, sequence, available, data...)
			synctest.Wait()
		}
		push(1, nil, int64(1))
		push(2, nil, int64(2))
		want(t, sub, "1", "2")
		push(2, nil, int64(2)) // a duplicate
		push(1, nil, int64(1))
		want(t, sub)
		held[3], held[5] = 3, 5
		push(6, []uint32{1, 2, 3, 5, 6}, int64(6)) // 4 is lost
		want(t, sub, "3", "-1", "5", "6")
		push(7, []uint32{6}) // keep-alive
		want(t, sub)
		held[7] = 7
		push(8, []uint32{7}) // keep-alive that shows a gap
		want(t, sub, "7")
		push(8, nil, int64(8))
		want(t, sub, "8")
		push(2_000_000_000, []uint32{9, 1_000}, int64(20)) // nonsense costs nothing
		got := drain(sub)
		if len(got) != 2 || got[1] != "20" || r.asked("Republish") > 10 {
			t.Errorf("%q, %d Republish", got, r.asked("Republish"))
		}
		if n := r.waiting(); n != 2 {
			t.Errorf("%d Publish requests", n)
		}
		s.Close(r.ctx)
	})
}

// Each message is acknowledged once it is in our hands, and not before.
func TestAcknowledgements(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, _ := subscribed(t, r, 1)
		var acks []uint32
		r.on("Publish", func(_ int, rq ua.Request) any {
			for _, a := range rq.(*ua.PublishRequest).SubscriptionAcknowledgements {
				acks = append(acks, a.SequenceNumber)
			}
			return behaved{}
		})
		r.on("Republish", func(int, ua.Request) any { return silent{} })
		for _, n := range []uint32{1, 2, 3} {
			r.push(1, n, nil, int64(n))
			synctest.Wait()
		}
		if !slices.Equal(acks, []uint32{1, 2, 3}) {
			t.Errorf("acknowledged %v", acks)
		}
		r.push(1, 5, []uint32{4, 5}, int64(5)) // 4 does not come: 5 stays with the server
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if !slices.Equal(acks, []uint32{1, 2, 3}) {
			t.Errorf("acknowledged %v", acks)
		}
		r.on("Republish", func(_ int, rq ua.Request) any {
			if n := rq.(*ua.RepublishRequest).RetransmitSequenceNumber; n == 4 || n == 5 {
				return &ua.RepublishResponse{NotificationMessage: message(n, int64(n))}
			}
			return ua.StatusBadMessageNotAvailable
		})
		r.push(1, 6, []uint32{4, 5, 6}, int64(6)) // with all that was missing
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if !slices.Equal(acks, []uint32{1, 2, 3, 4, 5, 6}) {
			t.Errorf("acknowledged %v", acks)
		}
		s.Close(r.ctx)
	})
}

// The server's sequence numbers begin again at 1, not 0.
func TestDistance(t *testing.T) {
	for _, c := range []struct {
		from, to uint32
		want     int64
	}{{1, 1, 0}, {1, 2, 1}, {2, 1, -1}, {math.MaxUint32, 1, 1}, {1, math.MaxUint32, -1}, {math.MaxUint32 - 2, 3, 5}, {3, math.MaxUint32 - 2, -5}} {
		if got := distance(c.from, c.to); got != c.want {
			t.Errorf("from %d to %d: %d, want %d", c.from, c.to, got, c.want)
		}
	}
	if n := nextSequence(math.MaxUint32); n != 1 {
		t.Error(n)
	}
}

// A reader that does not read holds the publishing up, and nothing grows.
func TestFullQueuePausesPublishing(t *testing.T) {
	inRogue(t, func(r *rogue) {
		o := r.opts()
		o.MaxQueuedNotifications = 4
		s, err := Connect(r.ctx, plantURL, o)
		if err != nil {
			t.Fatal(err)
		}
		sub, err := s.Subscribe(r.ctx, SubscriptionOptions{}, Monitor{NodeID: ua.NewTwoByteNodeID(9)})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		n := uint32(0)
		for r.waiting() > 0 && n < 100 {
			n++
			r.push(1, n, nil, int64(n))
			synctest.Wait()
		}
		if n > 4+2+1 || sub.Queued() != int(n) {
			t.Errorf("%d messages taken, %d queued", n, sub.Queued())
		}
		time.Sleep(time.Hour)
		if r.waiting() != 0 || s.State().State != Online {
			t.Errorf("%d Publish requests, %+v", r.waiting(), s.State())
		}
		for range sub.Notifications(r.ctx) {
			if sub.Queued() <= 2 {
				break
			}
		}
		synctest.Wait()
		if r.waiting() != 2 {
			t.Errorf("%d Publish requests after half was taken", r.waiting())
		}
		s.Close(r.ctx)
	})
}

// StatusChangeNotification (OPC 10000-4 §7.25.4): an expired subscription is made
// anew, one that another client has taken over ends.
func TestStatusChanges(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 2)
		time.Sleep(time.Minute)
		r.push(1, 1, nil, &ua.StatusChangeNotification{Status: ua.StatusGoodSubscriptionTransferred})
		synctest.Wait()
		want(t, subs[0], fmt.Sprintf("%#x", uint32(ua.StatusGoodSubscriptionTransferred)))
		if err := subs[0].Err(); !errors.Is(err, ua.StatusGoodSubscriptionTransferred) {
			t.Error(err)
		}
		for range subs[0].Notifications(context.Background()) {
			t.Error("a notification after the end")
		}
		r.push(2, 1, nil, &ua.StatusChangeNotification{Status: ua.StatusBadTimeout})
		time.Sleep(time.Second)
		want(t, subs[1], fmt.Sprintf("%#x", uint32(ua.StatusBadTimeout)), "new")
		if n := r.asked("CreateSubscription"); n != 3 {
			t.Errorf("%d subscriptions were made", n)
		}
		r.mu.Lock()
		item := subs[1].Items()[0].handle
		r.mu.Unlock()
		r.push(3, 1, nil, &ua.DataChangeNotification{MonitoredItems: []*ua.MonitoredItemNotification{{ClientHandle: item,
			Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant("back")}}}})
		synctest.Wait()
		want(t, subs[1], "back")
		s.Close(r.ctx)
	})
}

// A subscription that the server refuses to make again stays lost, the session is
// online meanwhile, and it is tried again.
func TestRefusedRecreation(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 1)
		time.Sleep(time.Minute)
		r.on("CreateSubscription", func(n int, _ ua.Request) any {
			if n <= 3 {
				return ua.StatusBadTooManySubscriptions
			}
			return behaved{}
		})
		r.push(1, 1, nil, &ua.StatusChangeNotification{Status: ua.StatusBadTimeout})
		time.Sleep(500 * time.Millisecond)
		if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if n := r.asked("CreateSubscription"); n != 4 {
			t.Errorf("%d attempts in a minute", n)
		}
		want(t, subs[0], fmt.Sprintf("%#x", uint32(ua.StatusBadTimeout)), "new")
		if n := r.count(); n != 2 { // discovery and the session
			t.Errorf("%d connections", n)
		}
		s.Close(r.ctx)
	})
}

// The server lost a subscription and says so with BadNoSubscription, or says
// nothing at all and never answers again (hostile.md C5, C3).
func TestSilentlyLostSubscription(t *testing.T) {
	for _, how := range []string{"BadNoSubscription", "silence"} {
		t.Run(how, func(t *testing.T) {
			inRogue(t, func(r *rogue) {
				r.on("CreateSubscription", func(n int, rq ua.Request) any {
					return &ua.CreateSubscriptionResponse{SubscriptionID: uint32(n), RevisedPublishingInterval: 1000, RevisedLifetimeCount: 300, RevisedMaxKeepAliveCount: 10}
				})
				r.on("Republish", func(int, ua.Request) any { return ua.StatusBadSubscriptionIDInvalid })
				s, subs := subscribed(t, r, 1)
				time.Sleep(time.Minute)
				wait := 6 * time.Minute // longer than the lifetime
				if how != "silence" {
					wait = time.Minute
					r.mu.Lock()
					parked := r.parked
					r.parked = nil
					r.mu.Unlock()
					for _, p := range parked {
						r.reply(p.ch, p.id, p.rq, ua.StatusBadNoSubscription)
					}
				}
				time.Sleep(wait)
				want(t, subs[0], "new")
				s.Close(r.ctx)
			})
		})
	}
}

// A new item's first value that is the old one's last is not a new value.
func TestRecreatedItemsDoNotRepeat(t *testing.T) {
	now := time.Now()
	value := func(v any, at time.Time, status ua.StatusCode) *ua.DataValue {
		return &ua.DataValue{EncodingMask: ua.DataValueValue | ua.DataValueSourceTimestamp | ua.DataValueStatusCode, Value: ua.MustVariant(v), SourceTimestamp: at, Status: status}
	}
	last := value(int32(1), now, ua.StatusOK)
	for _, c := range []struct {
		name string
		v    *ua.DataValue
		same bool
	}{
		{"the same", value(int32(1), now, ua.StatusOK), true},
		{"another time", value(int32(1), now.Add(time.Second), ua.StatusOK), false},
		{"another value", value(int32(2), now, ua.StatusOK), false},
		{"another type", value(uint32(1), now, ua.StatusOK), false},
		{"another status", value(int32(1), now, ua.StatusBadOutOfService), false},
		{"no time", &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(int32(1))}, false},
	} {
		it := &Item{last: last, again: true}
		if got := it.same(c.v); got != c.same {
			t.Errorf("%s: %v", c.name, got)
		}
		if it.same(last) {
			t.Errorf("%s: the second value is compared", c.name)
		}
	}
}
