package subscription

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

func (b *bench) transfer(to *fakeSession, initial bool, ids ...uint32) []*ua.TransferResult {
	b.Helper()
	rs, code := b.e.TransferSubscriptions(to, &ua.TransferSubscriptionsRequest{SubscriptionIDs: ids, SendInitialValues: initial})
	if code != ua.StatusOK {
		b.Fatal(uastatus.Name(code))
	}
	return rs.Results
}

func TestTransfer(t *testing.T) { // OPC 10000-4 §5.14.7; hostile.md E11
	for _, initial := range []bool{true, false} {
		inBubble(t, Limits{}, func(b *bench) {
			v := b.ns.Variable("A", int32(1))
			w := b.ns.Variable("B", int32(10))
			old := newSession(b.ch, "anna")
			b.s = old
			id, rest := b.subscribe(), b.subscribe()
			b.monitor(id, v.Node().ID())
			b.monitor(id, w.Node().ID(), handle(2), queued(5, true))
			b.publish()
			b.publish()
			b.wait(100 * ms)
			b.response()
			b.response()
			b.publish()
			b.publish()

			next := newChannel()
			s := newSession(next, "anna")
			r := b.transfer(s, initial, id, 12345)
			if r[0].StatusCode != ua.StatusOK || !slices.Equal(r[0].AvailableSequenceNumbers, []uint32{1}) || r[1].StatusCode != ua.StatusBadSubscriptionIDInvalid {
				t.Errorf("results: %+v %+v", r[0], r[1])
			}
			if p := b.response(); b.statusOf(p) != ua.StatusGoodSubscriptionTransferred || p.SubscriptionID != id {
				t.Errorf("the old session got %+v", p)
			}
			b.silent() // the other subscription keeps the second request
			w.Set(int32(11))
			b.publishOn(s, next, 0, ack{id, 1})
			b.wait(100 * ms)
			p := b.responseOn(next)
			want := "[11]"
			if initial {
				want = "[1 10 11]"
			}
			if got := fmt.Sprint(b.values(p)); got != want || p.NotificationMessage.SequenceNumber != 2 || p.Results[0] != ua.StatusOK {
				t.Errorf("initial %v: %s, %+v", initial, got, p)
			}
			// The old session has nothing to do with it any more.
			if _, code := b.e.ModifySubscription(old, &ua.ModifySubscriptionRequest{SubscriptionID: id}); code != ua.StatusBadSubscriptionIDInvalid {
				t.Errorf("old session: %s", uastatus.Name(code))
			}
			b.close(old, true)
			if n := b.e.Counts().Subscriptions; n != 1 {
				t.Errorf("%d subscriptions after the old session closed", n)
			}
			_ = rest
			// To itself: nothing to do.
			if r := b.transfer(s, false, id); r[0].StatusCode != ua.StatusBadNothingToDo {
				t.Errorf("to itself: %s", uastatus.Name(r[0].StatusCode))
			}
		})
	}
}

// The last subscription goes: one parked request tells of it, the others are answered, the next Publish is told so.
func TestTransferOfTheLastSubscription(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		b.s = newSession(b.ch, "anna")
		id := b.subscribe()
		b.publish()
		b.publish()
		b.transfer(newSession(newChannel(), "anna"), false, id)
		if b.statusOf(b.response()) != ua.StatusGoodSubscriptionTransferred || b.fault(b.ch) != ua.StatusBadNoSubscription {
			t.Error("wrong answers")
		}
		b.silent()
	})
	inBubble(t, Limits{}, func(b *bench) { // no request is parked: the status waits for one
		b.s = newSession(b.ch, "anna")
		id := b.subscribe()
		b.transfer(newSession(newChannel(), "anna"), false, id)
		b.publish()
		if b.statusOf(b.response()) != ua.StatusGoodSubscriptionTransferred {
			t.Error("the status is lost")
		}
		if _, code := b.publishOn(b.s, b.ch, 0); code != ua.StatusBadNoSubscription {
			t.Error(uastatus.Name(code))
		}
	})
}

func TestTransferOfAnOrphan(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", int32(1))
		b.s = newSession(b.ch, "anna")
		id := b.subscribe()
		b.monitor(id, v.Node().ID(), queued(10, true), sampled(0))
		b.wait(200 * ms)
		b.close(b.s, false)
		v.Set(int32(2))
		b.wait(200 * ms)
		next := newChannel()
		b.s, b.ch = newSession(next, "anna"), next
		if r := b.transfer(b.s, false, id); r[0].StatusCode != ua.StatusOK {
			t.Fatal(uastatus.Name(r[0].StatusCode))
		}
		b.publish() // it was late: the answer comes at once
		b.want("queued meanwhile", b.values(b.response()), int32(1), int32(2))
	})
}

// A late subscription is served at once when its new session has a request parked.
func TestTransferToASessionWithParkedRequests(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", int32(1))
		old := newSession(newChannel(), "anna")
		b.s = old
		id := b.subscribe()
		b.monitor(id, v.Node().ID())
		b.wait(200 * ms)
		b.s = newSession(b.ch, "anna")
		b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.RequestedPublishingInterval = 10_000 })
		b.publish()
		b.silent()
		b.transfer(b.s, false, id)
		if p := b.response(); p.SubscriptionID != id || fmt.Sprint(b.values(p)) != "[1]" {
			t.Errorf("got %+v", p)
		}
	})
}

func TestTransferNeedsTheSameUser(t *testing.T) {
	secured := func(cert string) *fakeChannel {
		c := newChannel()
		c.mode, c.cert = ua.MessageSecurityModeSignAndEncrypt, []byte(cert)
		return c
	}
	elsewhere := func() *fakeChannel {
		c := newChannel()
		c.remote = netip.MustParseAddrPort("192.0.2.2:5000")
		return c
	}
	for _, c := range []struct {
		name     string
		from, to *fakeChannel
		users    [2]string
		app      string
		gone     bool
		want     ua.StatusCode
	}{
		{"same user", newChannel(), elsewhere(), [2]string{"anna", "anna"}, "", false, ua.StatusOK},
		{"another user", newChannel(), newChannel(), [2]string{"anna", "ben"}, "", true, ua.StatusBadUserAccessDenied},
		{"anonymous takes a user's", newChannel(), newChannel(), [2]string{"anna", ""}, "", true, ua.StatusBadUserAccessDenied},
		{"a user takes an anonymous one's", newChannel(), newChannel(), [2]string{"", "anna"}, "", true, ua.StatusBadUserAccessDenied},
		{"anonymous, secured, same certificate", secured("a"), secured("a"), [2]string{}, "", false, ua.StatusOK},
		{"anonymous, secured, another certificate", secured("a"), secured("b"), [2]string{}, "", false, ua.StatusBadUserAccessDenied},
		{"anonymous, secured, another application", secured("a"), secured("a"), [2]string{}, "urn:other", false, ua.StatusBadUserAccessDenied},
		{"anonymous, from secured to None", secured("a"), newChannel(), [2]string{}, "", true, ua.StatusBadUserAccessDenied},
		{"anonymous on None, old channel lives", newChannel(), newChannel(), [2]string{}, "", false, ua.StatusBadUserAccessDenied},
		{"anonymous on None, old channel gone", newChannel(), newChannel(), [2]string{}, "", true, ua.StatusBadUserAccessDenied},
		{"anonymous, from None to secured", newChannel(), secured("a"), [2]string{}, "", true, ua.StatusBadUserAccessDenied},
		{"anonymous, secured, old channel gone", secured("a"), secured("a"), [2]string{}, "", true, ua.StatusOK},
		{"same user, from None to secured", newChannel(), secured("a"), [2]string{"anna", "anna"}, "", true, ua.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, Limits{}, func(b *bench) {
				b.s = newSession(c.from, c.users[0])
				id := b.subscribe()
				to := newSession(c.to, c.users[1])
				if c.app != "" {
					to.app = c.app
				}
				if c.gone {
					b.s.bind(nil)
				}
				if r := b.transfer(to, false, id); r[0].StatusCode != c.want {
					t.Errorf("%s, want %s", uastatus.Name(r[0].StatusCode), uastatus.Name(c.want))
				}
			})
		})
	}
}

func TestServerMethods(t *testing.T) { // OPC 10000-5 §9.1 GetMonitoredItems, §9.2 ResendData
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", int32(1))
		id := b.subscribe()
		first := b.monitor(id, v.Node().ID(), handle(7))
		second := b.monitor(id, v.Node().ID(), handle(8), moded(ua.MonitoringModeSampling))
		server, client, code := b.e.GetMonitoredItems(b.s.ID(), id)
		if code != ua.StatusOK || !slices.Equal(server, []uint32{first.MonitoredItemID, second.MonitoredItemID}) || !slices.Equal(client, []uint32{7, 8}) {
			t.Errorf("GetMonitoredItems: %v %v %s", server, client, uastatus.Name(code))
		}
		b.want("first", b.cycle(), int32(1))
		if code := b.e.ResendData(b.s.ID(), id); code != ua.StatusOK {
			t.Error(uastatus.Name(code))
		}
		b.want("again", b.cycle(), int32(1))
		for want, call := range map[ua.StatusCode]func() ua.StatusCode{
			ua.StatusBadSubscriptionIDInvalid: func() ua.StatusCode { return b.e.ResendData(b.s.ID(), id+1) },
			ua.StatusBadUserAccessDenied:      func() ua.StatusCode { return b.e.ResendData(uabinary.NumericID(1, 0), id) },
		} {
			if code := call(); code != want {
				t.Errorf("%s, want %s", uastatus.Name(code), uastatus.Name(want))
			}
		}
	})
}

// Any value is shared: a change is encoded once and every queue points to the node's own bytes.
func TestValuesAreShared(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", make([]byte, 1000))
		id := b.subscribe()
		for i := range 10 {
			b.monitor(id, v.Node().ID(), sampled(float64(i%2)-1), queued(5, true))
		}
		v.Set(make([]byte, 2000))
		time.Sleep(50 * ms)
		sub := b.e.find(id)
		sub.mu.Lock()
		defer sub.mu.Unlock()
		now := v.Node().Value()
		shared := 0
		for _, it := range sub.items {
			if it.queue.n > 0 && it.queue.at(it.queue.n-1).value == now {
				shared++
			}
		}
		if shared != 5 { // those told of each change; the others sample with the cycle
			t.Errorf("%d of 5 queues share the value", shared)
		}
	})
}
