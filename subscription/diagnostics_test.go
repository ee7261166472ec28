package subscription

import (
	"reflect"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uastatus"
)

// A row of SubscriptionDiagnosticsArray follows the life of its subscription (OPC 10000-5 §12.15).
func TestDiagnostics(t *testing.T) {
	inBubble(t, Limits{MaxRetransmissionMessages: 2}, func(b *bench) {
		b.s = newSession(b.ch, "anna")
		v := b.ns.Variable("A", int32(1))
		id := b.subscribe(func(rq *ua.CreateSubscriptionRequest) { rq.Priority, rq.MaxNotificationsPerPublish = 7, 50 })
		want := ua.SubscriptionDiagnosticsDataType{
			SessionID: b.s.ID().UA(), SubscriptionID: id, Priority: 7, PublishingInterval: 100, MaxKeepAliveCount: 5,
			MaxLifetimeCount: 1000, MaxNotificationsPerPublish: 50, PublishingEnabled: true, CurrentLifetimeCount: 1000, NextSequenceNumber: 1,
		}
		check := func(when string, change func(d *ua.SubscriptionDiagnosticsDataType)) {
			t.Helper()
			change(&want)
			rows := b.e.Diagnostics()
			if len(rows) != 1 || !reflect.DeepEqual(*rows[0], want) {
				t.Errorf("%s:\n%+v, want\n%+v", when, rows[0], want)
			}
		}
		check("made", func(*ua.SubscriptionDiagnosticsDataType) {})

		b.monitor(id, v.Node().ID(), queued(2, true))
		b.monitor(id, v.Node().ID(), moded(ua.MonitoringModeDisabled))
		b.wait(200 * ms)
		check("late", func(d *ua.SubscriptionDiagnosticsDataType) {
			d.MonitoredItemCount, d.DisabledMonitoredItemCount = 2, 1
			d.LatePublishRequestCount, d.CurrentLifetimeCount = 1, 998
		})
		for i := range 3 {
			v.Set(int32(10 + i))
			b.wait(100 * ms)
		}
		check("overflown", func(d *ua.SubscriptionDiagnosticsDataType) {
			d.MonitoringQueueOverflowCount, d.CurrentLifetimeCount = 2, 995
		})
		b.publish()
		b.response()
		check("published", func(d *ua.SubscriptionDiagnosticsDataType) {
			d.PublishRequestCount, d.DataChangeNotificationsCount, d.NotificationsCount, d.CurrentLifetimeCount = 1, 2, 2, 1000
			d.UnacknowledgedMessageCount, d.NextSequenceNumber = 1, 2
		})
		for i := range 2 {
			v.Set(int32(20 + i))
			b.publish()
			b.wait(100 * ms)
			b.response()
		}
		check("more than is kept", func(d *ua.SubscriptionDiagnosticsDataType) {
			d.PublishRequestCount, d.DataChangeNotificationsCount, d.NotificationsCount = 3, 4, 4
			d.UnacknowledgedMessageCount, d.DiscardedMessageCount, d.NextSequenceNumber = 2, 1, 4
		})
		b.publish(ack{id, 2})
		b.wait(500 * ms)
		b.response()
		check("kept alive", func(d *ua.SubscriptionDiagnosticsDataType) {
			d.PublishRequestCount, d.UnacknowledgedMessageCount, d.CurrentKeepAliveCount = 4, 1, 1
		})

		for sequence, code := range map[uint32]ua.StatusCode{3: ua.StatusOK, 1: ua.StatusBadMessageNotAvailable} {
			if _, got := b.e.Republish(b.s, nil, id, sequence); got != code {
				t.Errorf("Republish of %d: %s", sequence, uastatus.Name(got))
			}
		}
		for _, on := range []bool{false, false, true} {
			b.e.SetPublishingMode(b.s, &ua.SetPublishingModeRequest{SubscriptionIDs: []uint32{id}, PublishingEnabled: on})
		}
		b.e.ModifySubscription(b.s, &ua.ModifySubscriptionRequest{SubscriptionID: id, RequestedPublishingInterval: 200, RequestedLifetimeCount: 500, RequestedMaxKeepAliveCount: 4, Priority: 9})
		check("modified", func(d *ua.SubscriptionDiagnosticsDataType) {
			d.RepublishRequestCount, d.RepublishMessageRequestCount, d.RepublishMessageCount = 2, 2, 1
			d.DisableCount, d.EnableCount, d.ModifyCount = 1, 1, 1
			d.PublishingInterval, d.MaxLifetimeCount, d.MaxKeepAliveCount, d.Priority = 200, 500, 4, 9
			d.MaxNotificationsPerPublish, d.CurrentLifetimeCount = uint32(b.e.Limits().MaxNotificationsPerPublish), 500
		})

		again := newSession(newChannel(), "anna")
		b.transfer(again, false, id)
		other := newChannel()
		other.cert = []byte("another client's")
		next := newSession(other, "anna")
		b.transfer(next, false, id)
		b.transfer(newSession(newChannel(), "bob"), false, id)
		check("transferred", func(d *ua.SubscriptionDiagnosticsDataType) {
			d.SessionID = next.ID().UA()
			d.TransferRequestCount, d.TransferredToSameClientCount, d.TransferredToAltClientCount = 3, 1, 1
		})
		if subs, items, parked := b.e.SessionCounts(next); subs != 1 || items != 2 || parked != 0 {
			t.Errorf("the session has %d subscriptions, %d items, %d requests", subs, items, parked)
		}
		b.publishOn(next, other, 0)
		b.publishOn(next, other, 0)
		if _, _, parked := b.e.SessionCounts(next); parked != 2 {
			t.Errorf("%d requests parked", parked)
		}
		b.close(next, false)
		check("orphaned", func(d *ua.SubscriptionDiagnosticsDataType) { d.SessionID = ua.NewTwoByteNodeID(0) })
		if subs, _, _ := b.e.SessionCounts(next); subs != 0 {
			t.Errorf("an ended session has %d subscriptions", subs)
		}
	})
}
