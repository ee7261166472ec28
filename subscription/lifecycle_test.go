package subscription

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uastatus"
)

func TestNoSubscription(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		if _, code := b.publishOn(b.s, b.ch, 0); code != ua.StatusBadNoSubscription {
			t.Errorf("Publish before any subscription: %s", uastatus.Name(code))
		}
		id := b.subscribe()
		b.publish()
		b.publish()
		rs, _ := b.e.DeleteSubscriptions(b.s, &ua.DeleteSubscriptionsRequest{SubscriptionIDs: []uint32{id, id}})
		if !slices.Equal(rs.Results, []ua.StatusCode{ua.StatusOK, ua.StatusBadSubscriptionIDInvalid}) {
			t.Errorf("results %v", rs.Results)
		}
		for range 2 {
			if code := b.fault(b.ch); code != ua.StatusBadNoSubscription {
				t.Errorf("parked request after the last subscription went: %s", uastatus.Name(code))
			}
		}
		if _, code := b.publishOn(b.s, b.ch, 0); code != ua.StatusBadNoSubscription {
			t.Errorf("Publish after the last subscription went: %s", uastatus.Name(code))
		}
	})
}

func TestLifetime(t *testing.T) { // hostile.md E8; §5.14.1.2 row 27
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", 1.0)
		id := b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.RequestedLifetimeCount, r.RequestedMaxKeepAliveCount = 15, 5 })
		b.monitor(id, v.Node().ID(), sampled(0))
		b.wait(1499 * ms)
		if c := b.e.Counts(); c.Subscriptions != 1 {
			t.Fatal("gone before its lifetime")
		}
		b.wait(2 * ms)
		if c := b.e.Counts(); c.Subscriptions != 0 || c.MonitoredItems != 0 || c.Expired != 1 {
			t.Fatalf("still there after its lifetime: %+v", c)
		}
		if v.Node().Watched() {
			t.Error("the node is still watched")
		}
		b.publish()
		p := b.response()
		if p.SubscriptionID != id || b.statusOf(p) != ua.StatusBadTimeout {
			t.Errorf("after the lifetime: %+v", p)
		}
		if _, code := b.publishOn(b.s, b.ch, 0); code != ua.StatusBadNoSubscription {
			t.Errorf("then: %s", uastatus.Name(code))
		}
	})
}

func TestOtherServicesKeepAlive(t *testing.T) { // rows 18 to 21
	inBubble(t, Limits{}, func(b *bench) {
		id := b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.RequestedLifetimeCount, r.RequestedMaxKeepAliveCount = 15, 5 })
		for i := range 10 {
			b.wait(time.Second)
			switch i % 3 {
			case 0:
				if _, code := b.e.Republish(b.s, nil, id, 1); code != ua.StatusBadMessageNotAvailable {
					t.Fatalf("Republish: %s", uastatus.Name(code))
				}
			case 1:
				rs, _ := b.e.SetPublishingMode(b.s, &ua.SetPublishingModeRequest{SubscriptionIDs: []uint32{id}, PublishingEnabled: true})
				if rs.Results[0] != ua.StatusOK {
					t.Fatal("SetPublishingMode")
				}
			case 2:
				if _, code := b.e.ModifySubscription(b.s, &ua.ModifySubscriptionRequest{SubscriptionID: id, RequestedPublishingInterval: 100, RequestedLifetimeCount: 15, RequestedMaxKeepAliveCount: 5}); code != ua.StatusOK {
					t.Fatal("ModifySubscription")
				}
			}
		}
		b.wait(2 * time.Second)
		if b.e.Counts().Subscriptions != 0 {
			t.Error("did not expire when nothing named it any more")
		}
	})
}

func TestSessionClosed(t *testing.T) {
	for _, deleteSubscriptions := range []bool{true, false} {
		inBubble(t, Limits{}, func(b *bench) {
			v := b.ns.Variable("A", int32(0))
			id := b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.RequestedLifetimeCount = 15 })
			b.monitor(id, v.Node().ID())
			b.publish()
			b.publish()
			b.close(b.s, deleteSubscriptions)
			for range 2 {
				if code := b.fault(b.ch); code != ua.StatusBadSessionClosed {
					t.Errorf("parked request: %s", uastatus.Name(code))
				}
			}
			want := 1
			if deleteSubscriptions {
				want = 0
			}
			if n := b.e.Counts().Subscriptions; n != want {
				t.Errorf("deleteSubscriptions %v leaves %d subscriptions", deleteSubscriptions, n)
			}
			if _, code := b.publishOn(b.s, b.ch, 0); code != ua.StatusBadSessionClosed {
				t.Errorf("Publish after close: %s", uastatus.Name(code))
			}
			if _, code := b.e.CreateSubscription(b.s, &ua.CreateSubscriptionRequest{}); code != ua.StatusBadSessionClosed {
				t.Errorf("CreateSubscription after close: %s", uastatus.Name(code))
			}
			b.wait(1600 * ms) // an orphan dies at its lifetime
			if n := b.e.Counts().Subscriptions; n != 0 {
				t.Errorf("%d orphans after their lifetime", n)
			}
			b.e.SessionClosed(b.s, true)
			b.silent()
		})
	}
}

// The channel breaks, the session comes back on another one: nothing is sent into the void, values resume (hostile.md C3, C10).
func TestChannelLost(t *testing.T) {
	for _, told := range []bool{true, false} {
		inBubble(t, Limits{}, func(b *bench) {
			v := b.ns.Variable("A", int32(0))
			id := b.subscribe()
			b.monitor(id, v.Node().ID(), queued(10, true))
			b.publish()
			b.wait(100 * ms)
			b.response()
			b.publish()
			b.publish()
			b.ch.gone.Store(true)
			b.s.bind(nil)
			if told {
				b.e.ChannelClosed(b.s, b.ch)
				if n := b.e.Counts().ParkedPublish; n != 0 {
					t.Errorf("%d requests still parked", n)
				}
			}
			v.Set(int32(1))
			b.wait(250 * ms)
			v.Set(int32(2))
			b.wait(250 * ms)
			if n := b.e.Counts().ParkedPublish; n != 0 {
				t.Errorf("%d requests parked for a channel that is gone", n)
			}
			next := newChannel()
			b.s.bind(next)
			b.publishOn(b.s, next, 0)
			synctest.Wait()
			if p := b.responseOn(next); fmt.Sprint(b.values(p)) != "[1 2]" || p.NotificationMessage.SequenceNumber != 2 {
				t.Errorf("after coming back: %v, sequence number %d", b.values(p), p.NotificationMessage.SequenceNumber)
			}
		})
	}
}

// The session was activated on another channel while the old one still lives: what is parked there is answered there.
func TestSessionMovedToAnotherChannel(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		b.subscribe()
		b.publish()
		next := newChannel()
		b.s.bind(next)
		b.publishOn(b.s, next, 0)
		if code := b.fault(b.ch); code != ua.StatusBadSecureChannelClosed {
			t.Errorf("on the old channel: %s", uastatus.Name(code))
		}
		b.wait(100 * ms)
		b.responseOn(next)
		b.silent()
	})
}

// A response that cannot be sent is not lost: the message stays for Republish.
func TestMessageSurvivesAFailedReply(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", int32(5))
		id := b.subscribe()
		b.monitor(id, v.Node().ID())
		b.publish()
		b.ch.gone.Store(true) // but the session has not noticed
		b.wait(100 * ms)
		m, code := b.e.Republish(b.s, nil, id, 1)
		if code != ua.StatusOK || decodeMessage(t, m).SequenceNumber != 1 {
			t.Errorf("Republish: %s", uastatus.Name(code))
		}
	})
}

func TestCloseAnswersEverythingOnce(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.RequestedPublishingInterval = 10_000 })
		for range 7 {
			b.publish()
		}
		b.e.Close()
		for range 7 {
			if code := b.fault(b.ch); code != ua.StatusBadServerHalted {
				t.Errorf("answer: %s", uastatus.Name(code))
			}
		}
		b.silent()
		for id, n := range b.ch.answers {
			if n != 1 {
				t.Errorf("request %d was answered %d times", id, n)
			}
		}
		if _, code := b.e.CreateSubscription(b.s, &ua.CreateSubscriptionRequest{}); code == ua.StatusOK {
			t.Error("a closed engine creates subscriptions")
		}
	})
}
