package conformance

import (
	"reflect"
	"time"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// subscription creates a subscription, which outlives any pause of the case, and
// returns its id.
func (t *T) subscription(s *probe.Session, interval float64, keepAlive uint32) uint32 {
	rs := call[*ua.CreateSubscriptionResponse](t, s, &ua.CreateSubscriptionRequest{RequestedPublishingInterval: interval,
		RequestedLifetimeCount: max(3*keepAlive, 1000), RequestedMaxKeepAliveCount: keepAlive, PublishingEnabled: true})
	return rs.SubscriptionID
}

// publish sends one Publish and waits for its answer.
func (t *T) publish(s *probe.Session, acks ...*ua.SubscriptionAcknowledgement) *ua.PublishResponse {
	return call[*ua.PublishResponse](t, s, &ua.PublishRequest{SubscriptionAcknowledgements: acks})
}

// changes returns the data changes in an answer by client handle, in order.
func changes(rs *ua.PublishResponse) (out []*ua.MonitoredItemNotification) {
	for _, d := range rs.NotificationMessage.NotificationData {
		if n, ok := d.Value.(*ua.DataChangeNotification); ok {
			out = append(out, n.MonitoredItems...)
		}
	}
	return out
}

// notified publishes until a change for the handle arrives and returns it.
func (t *T) notified(s *probe.Session, sub, handle uint32) *ua.DataValue {
	for range 20 {
		for _, c := range changes(t.publish(s)) {
			if c.ClientHandle == handle {
				return c.Value
			}
		}
	}
	t.Fatalf("no change for handle %d in 20 answers of subscription %d", handle, sub)
	return nil
}

// quiet publishes and fails when anything but a keep-alive comes.
func (t *T) quiet(s *probe.Session, why string) {
	if rs := t.publish(s); len(rs.NotificationMessage.NotificationData) != 0 {
		t.Errorf("%s, but a notification came", why)
	}
}

var subscriptionCases = []Case{
	{"Subscription Basic", "parameters are revised", "OPC 10000-4 §5.14.2", func(t *T) {
		s := t.Session()
		for _, c := range []struct {
			interval   float64
			life, keep uint32
		}{{0, 0, 0}, {-1, 10, 10}, {1, 1, 1000}, {1e12, 0xffffffff, 0xffffffff}, {500, 30, 10}} {
			rs := call[*ua.CreateSubscriptionResponse](t, s, &ua.CreateSubscriptionRequest{RequestedPublishingInterval: c.interval, RequestedLifetimeCount: c.life, RequestedMaxKeepAliveCount: c.keep})
			if rs.RevisedPublishingInterval <= 0 || rs.RevisedPublishingInterval > 24*3600e3 || rs.RevisedMaxKeepAliveCount == 0 || uint64(rs.RevisedLifetimeCount) < 3*uint64(rs.RevisedMaxKeepAliveCount) {
				t.Errorf("%+v revised to %v ms, lifetime %d, keep-alive %d", c, rs.RevisedPublishingInterval, rs.RevisedLifetimeCount, rs.RevisedMaxKeepAliveCount)
			}
			d := call[*ua.DeleteSubscriptionsResponse](t, s, &ua.DeleteSubscriptionsRequest{SubscriptionIDs: []uint32{rs.SubscriptionID, rs.SubscriptionID}})
			t.Code(d.Results[0], "delete", ua.StatusOK)
			t.Code(d.Results[1], "delete again", ua.StatusBadSubscriptionIDInvalid)
		}
		refuse(t, s, &ua.DeleteSubscriptionsRequest{}, ua.StatusBadNothingToDo)
	}},
	{"Subscription Basic", "an empty subscription keeps alive", "OPC 10000-4 §5.14.1", func(t *T) {
		s := t.Session()
		sub := t.subscription(s, 50, 2)
		for i := range 3 {
			rs := t.publish(s)
			if rs.SubscriptionID != sub || len(rs.NotificationMessage.NotificationData) != 0 || rs.NotificationMessage.SequenceNumber != 1 {
				t.Errorf("answer %d: %+v", i, rs.NotificationMessage)
			}
		}
	}},
	{"Subscription Basic", "Publish without a subscription is refused", "OPC 10000-4 §5.14.5", func(t *T) {
		refuse(t, t.Session(), &ua.PublishRequest{}, ua.StatusBadNoSubscription)
	}},
	{"Subscription Basic", "notifications are numbered, acknowledged and sent again", "OPC 10000-4 §5.14.5", func(t *T) {
		s := t.Session()
		sub := t.subscription(s, 50, 5)
		node := t.Node(t.Target.Nodes.Scalars["Double"], "a Double")
		t.monitor(s, sub, monitored(node, 1))
		first := t.publish(s)
		if first.NotificationMessage.SequenceNumber != 1 || len(changes(first)) != 1 {
			t.Fatalf("first answer %+v", first.NotificationMessage)
		}
		again := call[*ua.RepublishResponse](t, s, &ua.RepublishRequest{SubscriptionID: sub, RetransmitSequenceNumber: 1})
		if !reflect.DeepEqual(again.NotificationMessage, first.NotificationMessage) {
			t.Errorf("Republish answered %+v, Publish %+v", again.NotificationMessage, first.NotificationMessage)
		}
		t.write(s, node, float64(time.Now().UnixNano()))
		second := t.publish(s, &ua.SubscriptionAcknowledgement{SubscriptionID: sub, SequenceNumber: 1}, &ua.SubscriptionAcknowledgement{SubscriptionID: sub, SequenceNumber: 99},
			&ua.SubscriptionAcknowledgement{SubscriptionID: sub + 1000, SequenceNumber: 1})
		if second.NotificationMessage.SequenceNumber != 2 || len(second.Results) != 3 {
			t.Fatalf("second answer %+v, results %v", second.NotificationMessage, second.Results)
		}
		t.Code(second.Results[0], "acknowledge", ua.StatusOK)
		t.Code(second.Results[1], "acknowledge a number never sent", ua.StatusBadSequenceNumberUnknown)
		t.Code(second.Results[2], "acknowledge for a stranger's subscription", ua.StatusBadSubscriptionIDInvalid)
		refuse(t, s, &ua.RepublishRequest{SubscriptionID: sub, RetransmitSequenceNumber: 1}, ua.StatusBadMessageNotAvailable)
		refuse(t, s, &ua.RepublishRequest{SubscriptionID: sub + 1000, RetransmitSequenceNumber: 1}, ua.StatusBadSubscriptionIDInvalid)
	}},
	{"Subscription Basic", "a disabled subscription only keeps alive", "OPC 10000-4 §5.14.4", func(t *T) {
		s := t.Session()
		sub := t.subscription(s, 50, 2)
		node := t.Node(t.Target.Nodes.Scalars["Double"], "a Double")
		t.monitor(s, sub, monitored(node, 1))
		t.notified(s, sub, 1)
		rs := call[*ua.SetPublishingModeResponse](t, s, &ua.SetPublishingModeRequest{SubscriptionIDs: []uint32{sub, sub + 1000}})
		t.Code(rs.Results[0], "disable", ua.StatusOK)
		t.Code(rs.Results[1], "disable a stranger's", ua.StatusBadSubscriptionIDInvalid)
		t.write(s, node, float64(time.Now().UnixNano()))
		t.quiet(s, "publishing is disabled")
		call[*ua.SetPublishingModeResponse](t, s, &ua.SetPublishingModeRequest{PublishingEnabled: true, SubscriptionIDs: []uint32{sub}})
		t.notified(s, sub, 1)
		refuse(t, s, &ua.SetPublishingModeRequest{}, ua.StatusBadNothingToDo)
	}},
	{"Subscription Basic", "a subscription is modified", "OPC 10000-4 §5.14.3", func(t *T) {
		s := t.Session()
		sub := t.subscription(s, 1000, 10)
		rs := call[*ua.ModifySubscriptionResponse](t, s, &ua.ModifySubscriptionRequest{SubscriptionID: sub, RequestedPublishingInterval: 100, RequestedLifetimeCount: 60, RequestedMaxKeepAliveCount: 2})
		if rs.RevisedPublishingInterval != 100 || rs.RevisedMaxKeepAliveCount != 2 {
			t.Errorf("revised to %v ms, keep-alive %d", rs.RevisedPublishingInterval, rs.RevisedMaxKeepAliveCount)
		}
		from := time.Now()
		t.publish(s)
		t.publish(s)
		if d := time.Since(from); d > 3*time.Second {
			t.Errorf("two keep-alives took %v", d)
		}
		refuse(t, s, &ua.ModifySubscriptionRequest{SubscriptionID: sub + 1000, RequestedPublishingInterval: 100}, ua.StatusBadSubscriptionIDInvalid)
	}},
	{"Subscription Publish Min 05", "the oldest of too many waiting Publishes is answered", "OPC 10000-4 §5.14.5", func(t *T) {
		s := t.Session()
		t.subscription(s, 1000, 100)
		t.publish(s) // the first keep-alive
		var waiting []*probe.Pending
		for range 400 {
			p, err := s.Send(&ua.PublishRequest{})
			t.OK(err, "Publish")
			waiting = append(waiting, p)
		}
		if t.ordered() {
			_, err := waiting[0].Wait(t)
			t.Status(err, "the oldest of 400", ua.StatusBadTooManyPublishRequests)
			call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, serverStatus))
			return
		}
		// Any may be the oldest, and a connection may be too busy for some.
		codes := make(chan ua.StatusCode, len(waiting))
		for _, p := range waiting {
			go func() {
				_, err := p.Wait(t)
				codes <- uastatus.Code(err)
			}()
		}
		for code := range codes {
			if code == ua.StatusBadTooManyPublishRequests {
				break
			}
			t.Code(code, "one of 400", ua.StatusOK, uastatus.BadServerTooBusy)
		}
		call[*ua.ReadResponse](t, s.On(t.Open()), readOf(ua.AttributeIDValue, serverStatus))
	}},
	{"Subscription Publish Min 02", "one message holds no more than was asked for", "OPC 10000-4 §5.14.2", func(t *T) {
		s := t.Session()
		rs := call[*ua.CreateSubscriptionResponse](t, s, &ua.CreateSubscriptionRequest{RequestedPublishingInterval: 50, RequestedLifetimeCount: 300, RequestedMaxKeepAliveCount: 10, MaxNotificationsPerPublish: 3, PublishingEnabled: true})
		for i := range 10 {
			t.monitor(s, rs.SubscriptionID, monitored(namespaceArray, uint32(i)))
		}
		total, more := 0, 0
		for total < 10 {
			p := t.publish(s)
			n := len(changes(p))
			if n > 3 || n == 0 {
				t.Fatalf("%d notifications in one message", n)
			}
			total += n
			if p.MoreNotifications {
				more++
			}
		}
		if total != 10 || more < 3 {
			t.Errorf("%d notifications, MoreNotifications %d times", total, more)
		}
	}},
	{"Subscription Basic", "a subscription nobody publishes for ends", "OPC 10000-4 §5.14.1", func(t *T) {
		s := t.Session()
		rs := call[*ua.CreateSubscriptionResponse](t, s, &ua.CreateSubscriptionRequest{RequestedPublishingInterval: 50, RequestedLifetimeCount: 3, RequestedMaxKeepAliveCount: 1, PublishingEnabled: true})
		life := time.Duration(rs.RevisedPublishingInterval*float64(rs.RevisedLifetimeCount)) * time.Millisecond
		if life > 20*time.Second {
			t.NotApplicable("the shortest lifetime is %v", life)
		}
		keep := t.subscription(s, 1000, 100)
		time.Sleep(life + 500*time.Millisecond)
		for range 4 {
			p := t.publish(s)
			if p.SubscriptionID == keep {
				continue
			}
			for _, d := range p.NotificationMessage.NotificationData {
				if n, ok := d.Value.(*ua.StatusChangeNotification); ok {
					t.Code(n.Status, "status change", ua.StatusBadTimeout)
					refuse(t, s, &ua.ModifySubscriptionRequest{SubscriptionID: rs.SubscriptionID, RequestedPublishingInterval: 100}, ua.StatusBadSubscriptionIDInvalid)
					return
				}
			}
		}
		t.Errorf("no status change")
	}},
}
