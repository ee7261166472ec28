package subscription

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// cycle publishes, waits for one publishing interval and returns the values that came, nil for no response.
func (b *bench) cycle() []any {
	b.Helper()
	if b.e.Counts().ParkedPublish == 0 {
		b.publish()
	}
	b.wait(100 * ms)
	r := b.ch.take(b.T)
	if r == nil {
		return nil
	}
	p, ok := r.body.(*ua.PublishResponse)
	if !ok {
		b.Fatalf("response is %T %+v", r.body, r.body)
	}
	return b.values(p)
}

func (b *bench) want(what string, got []any, want ...any) {
	b.Helper()
	if g, w := fmt.Sprint(got...), fmt.Sprint(want...); g != w || len(got) != len(want) {
		b.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestCreateMonitoredItemErrors(t *testing.T) { // OPC 10000-4 §5.13.2.4, operation level result codes
	inBubble(t, Limits{}, func(b *bench) {
		number := b.ns.Variable("Number", 1.0, addressspace.EURange(0, 100)).Node().ID()
		plain := b.ns.Variable("Plain", 1.0).Node().ID()
		integer := b.ns.Variable("Integer", int32(5)).Node().ID()
		text := b.ns.Variable("Text", "abc").Node().ID()
		folder := b.ns.Folder("Folder").ID()
		status := uabinary.NumericID(0, 2256) // ServerStatus
		hidden := b.ns.Variable("Hidden", 1.0, addressspace.AccessLevel(ua.AccessLevelTypeCurrentWrite)).Node().ID()
		id := b.subscribe()
		attribute := func(a ua.AttributeID) func(*ua.MonitoredItemCreateRequest) {
			return func(r *ua.MonitoredItemCreateRequest) { r.ItemToMonitor.AttributeID = a }
		}
		indexes := func(s string) func(*ua.MonitoredItemCreateRequest) {
			return func(r *ua.MonitoredItemCreateRequest) { r.ItemToMonitor.IndexRange = s }
		}
		encoding := func(ns uint16, s string) func(*ua.MonitoredItemCreateRequest) {
			return func(r *ua.MonitoredItemCreateRequest) {
				r.ItemToMonitor.DataEncoding = &ua.QualifiedName{NamespaceIndex: ns, Name: s}
			}
		}
		deadband := func(k ua.DeadbandType, v float64) func(*ua.MonitoredItemCreateRequest) {
			return filtered(&ua.DataChangeFilter{Trigger: ua.DataChangeTriggerStatusValue, DeadbandType: uint32(k), DeadbandValue: v})
		}
		type change = func(*ua.MonitoredItemCreateRequest)
		for _, c := range []struct {
			name string
			node uabinary.NodeID
			do   []change
			want ua.StatusCode
		}{
			{"value", number, nil, ua.StatusOK},
			{"unknown node", uabinary.StringID(1, "nothing"), nil, ua.StatusBadNodeIDUnknown},
			{"unknown namespace", uabinary.NumericID(999, 1), nil, ua.StatusBadNodeIDUnknown},
			{"attribute of another class", folder, nil, ua.StatusBadAttributeIDInvalid},
			{"attribute that does not exist", number, []change{attribute(99)}, ua.StatusBadAttributeIDInvalid},
			{"another attribute", number, []change{attribute(ua.AttributeIDDisplayName)}, ua.StatusOK},
			{"mode out of range", number, []change{moded(3)}, ua.StatusBadMonitoringModeInvalid},
			{"index range syntax", number, []change{indexes("3:1")}, ua.StatusBadIndexRangeInvalid},
			{"index range syntax on a bad node", uabinary.StringID(1, "nothing"), []change{indexes("x")}, ua.StatusBadNodeIDUnknown},
			{"index range without data is a value", number, []change{indexes("1:2")}, ua.StatusOK},
			{"encoding of a number", number, []change{encoding(0, "Default Binary")}, ua.StatusBadDataEncodingInvalid},
			{"default encoding of a structure", status, []change{encoding(0, "Default Binary")}, ua.StatusOK},
			{"XML encoding of a structure", status, []change{encoding(0, "Default XML")}, ua.StatusBadDataEncodingUnsupported},
			{"encoding of another attribute", status, []change{attribute(ua.AttributeIDDisplayName), encoding(0, "Default Binary")}, ua.StatusBadDataEncodingInvalid},
			{"not readable is a value", hidden, nil, ua.StatusOK},
			{"event notifier", uabinary.NumericID(0, 2253), []change{attribute(ua.AttributeIDEventNotifier)}, ua.StatusBadMonitoredItemFilterUnsupported},
			{"event filter on an object", uabinary.NumericID(0, 2253), []change{attribute(ua.AttributeIDEventNotifier), filtered(&ua.EventFilter{})}, ua.StatusBadMonitoredItemFilterUnsupported},
			{"event notifier of a variable", number, []change{attribute(ua.AttributeIDEventNotifier)}, ua.StatusBadAttributeIDInvalid},
			{"event filter on a value", number, []change{filtered(&ua.EventFilter{})}, ua.StatusBadFilterNotAllowed},
			{"aggregate filter", number, []change{filtered(&ua.AggregateFilter{AggregateType: ua.NewTwoByteNodeID(1), AggregateConfiguration: &ua.AggregateConfiguration{}})}, ua.StatusBadMonitoredItemFilterUnsupported},
			{"something that is no filter", number, []change{filtered(&ua.Range{})}, ua.StatusBadMonitoredItemFilterInvalid},
			{"null filter", number, []change{func(r *ua.MonitoredItemCreateRequest) {
				r.RequestedParameters.Filter = &ua.ExtensionObject{TypeID: &ua.ExpandedNodeID{NodeID: ua.NewTwoByteNodeID(0)}}
			}}, ua.StatusOK},
			{"trigger out of range", number, []change{filtered(&ua.DataChangeFilter{Trigger: 3})}, ua.StatusBadMonitoredItemFilterInvalid},
			{"filter on another attribute", number, []change{attribute(ua.AttributeIDDisplayName), filtered(&ua.DataChangeFilter{})}, ua.StatusBadFilterNotAllowed},
			{"absolute deadband", number, []change{deadband(ua.DeadbandTypeAbsolute, 1)}, ua.StatusOK},
			{"absolute deadband on an integer", integer, []change{deadband(ua.DeadbandTypeAbsolute, 1)}, ua.StatusOK},
			{"negative deadband", number, []change{deadband(ua.DeadbandTypeAbsolute, -1)}, ua.StatusBadDeadbandFilterInvalid},
			{"deadband on text", text, []change{deadband(ua.DeadbandTypeAbsolute, 1)}, ua.StatusBadFilterNotAllowed},
			{"deadband type out of range", number, []change{deadband(7, 1)}, ua.StatusBadDeadbandFilterInvalid},
			{"percent deadband", number, []change{deadband(ua.DeadbandTypePercent, 10)}, ua.StatusOK},
			{"percent deadband of 100", number, []change{deadband(ua.DeadbandTypePercent, 100)}, ua.StatusOK},
			{"percent deadband beyond 100", number, []change{deadband(ua.DeadbandTypePercent, 100.1)}, ua.StatusBadDeadbandFilterInvalid},
			{"OPC 10000-8 §6.2 percent deadband without EURange", plain, []change{deadband(ua.DeadbandTypePercent, 10)}, ua.StatusBadDeadbandFilterInvalid},
		} {
			if r := b.monitor(id, c.node, c.do...); r.StatusCode != c.want {
				t.Errorf("%s: %s, want %s", c.name, uastatus.Name(r.StatusCode), uastatus.Name(c.want))
			} else if (c.want == ua.StatusOK) != (r.MonitoredItemID != 0) {
				t.Errorf("%s: item id %d", c.name, r.MonitoredItemID)
			}
		}
		for name, rq := range map[string]*ua.CreateMonitoredItemsRequest{
			"BadNothingToDo":               {SubscriptionID: id},
			"BadTimestampsToReturnInvalid": {SubscriptionID: id, TimestampsToReturn: 4, ItemsToCreate: []*ua.MonitoredItemCreateRequest{{}}},
			"BadSubscriptionIdInvalid":     {SubscriptionID: id + 1, ItemsToCreate: []*ua.MonitoredItemCreateRequest{{}}},
			"BadTooManyOperations":         {SubscriptionID: id, ItemsToCreate: make([]*ua.MonitoredItemCreateRequest, 10_001)},
		} {
			if _, code := b.e.CreateMonitoredItems(b.s, rq); uastatus.Name(code) != name {
				t.Errorf("%s, want %s", uastatus.Name(code), name)
			}
		}
		rs, code := b.e.CreateMonitoredItems(b.s, &ua.CreateMonitoredItemsRequest{SubscriptionID: id, ItemsToCreate: []*ua.MonitoredItemCreateRequest{nil, {}}})
		if code != ua.StatusOK || rs.Results[0].StatusCode == ua.StatusOK || rs.Results[1].StatusCode == ua.StatusOK {
			t.Error("operands with holes are accepted")
		}
	})
}

func TestQueueOverflowOnTheWire(t *testing.T) {
	inBubble(t, Limits{MaxQueueSize: 4}, func(b *bench) {
		v := b.ns.Variable("A", int32(0))
		id := b.subscribe()
		if r := b.monitor(id, v.Node().ID(), sampled(0), queued(100, true)); r.RevisedQueueSize != 4 {
			t.Errorf("queue size revised to %d", r.RevisedQueueSize)
		}
		if r := b.monitor(id, v.Node().ID(), queued(0, true), moded(ua.MonitoringModeDisabled)); r.RevisedQueueSize != 1 {
			t.Errorf("queue size 0 revised to %d", r.RevisedQueueSize)
		}
		for i := range int32(6) {
			v.Set(i + 1)
		}
		b.publish()
		b.wait(100 * ms)
		n := b.notifications(b.response())
		if len(n) != 4 || n[0].Value.Status != 0x480 || n[1].Value.Status != 0 || n[0].Value.Value.Value() != int32(3) {
			t.Errorf("overflow: %d notifications, first %+v", len(n), n[0].Value)
		}
	})
}

func TestDeadbands(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", 50.0, addressspace.EURange(0, 200))
		id := b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.RequestedMaxKeepAliveCount = 100 })
		r := b.monitor(id, v.Node().ID(), filtered(&ua.DataChangeFilter{Trigger: ua.DataChangeTriggerStatusValue, DeadbandType: uint32(ua.DeadbandTypePercent), DeadbandValue: 5}))
		if r.StatusCode != ua.StatusOK {
			t.Fatal(uastatus.Name(r.StatusCode))
		}
		b.want("first", b.cycle(), 50.0)
		v.Set(59.0) // 5 % of 200 is 10
		b.want("inside", b.cycle())
		v.Set(60.5) // against the last reported value, not the last sample
		b.want("outside", b.cycle(), 60.5)
		rs, _ := b.e.ModifyMonitoredItems(b.s, &ua.ModifyMonitoredItemsRequest{SubscriptionID: id, ItemsToModify: []*ua.MonitoredItemModifyRequest{{
			MonitoredItemID: r.MonitoredItemID,
			RequestedParameters: &ua.MonitoringParameters{ClientHandle: 1, SamplingInterval: -1, QueueSize: 1,
				Filter: ua.NewExtensionObject(&ua.DataChangeFilter{Trigger: ua.DataChangeTriggerStatusValue, DeadbandType: uint32(ua.DeadbandTypeAbsolute), DeadbandValue: 0.5})},
		}}})
		if rs.Results[0].StatusCode != ua.StatusOK {
			t.Fatal(uastatus.Name(rs.Results[0].StatusCode))
		}
		v.Set(61.5)
		b.want("absolute", b.cycle(), 61.5)
		v.SetStatus(ua.StatusBadSensorFailure)
		if p := b.cycle(); len(p) != 1 {
			t.Errorf("status change: %v", p)
		}
	})
}

func TestModifyMonitoredItems(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", int32(0))
		id := b.subscribe()
		r := b.monitor(id, v.Node().ID(), sampled(0), queued(5, true))
		for i := range int32(4) {
			v.Set(i + 1)
		}
		modify := func(item uint32, p *ua.MonitoringParameters) *ua.MonitoredItemModifyResult {
			rs, code := b.e.ModifyMonitoredItems(b.s, &ua.ModifyMonitoredItemsRequest{
				SubscriptionID: id, TimestampsToReturn: ua.TimestampsToReturnNeither,
				ItemsToModify: []*ua.MonitoredItemModifyRequest{{MonitoredItemID: item, RequestedParameters: p}},
			})
			if code != ua.StatusOK {
				t.Fatal(uastatus.Name(code))
			}
			return rs.Results[0]
		}
		m := modify(r.MonitoredItemID, &ua.MonitoringParameters{ClientHandle: 9, SamplingInterval: -1, QueueSize: 2, DiscardOldest: true})
		if m.StatusCode != ua.StatusOK || m.RevisedQueueSize != 2 || m.RevisedSamplingInterval != 100 {
			t.Errorf("modified: %+v", m)
		}
		if v.Node().Watched() {
			t.Error("still watched although sampled now")
		}
		b.publish()
		b.wait(100 * ms)
		n := b.notifications(b.response())
		if len(n) != 2 || n[0].ClientHandle != 9 || n[0].Value.Status != 0x480 || n[0].Value.Has(ua.DataValueServerTimestamp) || n[1].Value.Value.Value() != int32(4) {
			t.Errorf("after modifying: %d, %+v", len(n), n[0])
		}
		if m := modify(999, &ua.MonitoringParameters{}); m.StatusCode != ua.StatusBadMonitoredItemIDInvalid {
			t.Errorf("unknown item: %s", uastatus.Name(m.StatusCode))
		}
		if m := modify(r.MonitoredItemID, &ua.MonitoringParameters{Filter: ua.NewExtensionObject(&ua.EventFilter{})}); m.StatusCode != ua.StatusBadFilterNotAllowed {
			t.Errorf("wrong filter: %s", uastatus.Name(m.StatusCode))
		}
	})
}

func TestMonitoringMode(t *testing.T) { // §5.13.1.3
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", int32(0))
		id := b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.RequestedMaxKeepAliveCount = 100 })
		item := b.monitor(id, v.Node().ID(), sampled(0), queued(5, true), moded(ua.MonitoringModeDisabled)).MonitoredItemID
		set := func(m ua.MonitoringMode) {
			rs, code := b.e.SetMonitoringMode(b.s, &ua.SetMonitoringModeRequest{SubscriptionID: id, MonitoringMode: m, MonitoredItemIDs: []uint32{item, 999}})
			if code != ua.StatusOK || !slices.Equal(rs.Results, []ua.StatusCode{ua.StatusOK, ua.StatusBadMonitoredItemIDInvalid}) {
				t.Fatalf("SetMonitoringMode: %s %v", uastatus.Name(code), rs)
			}
		}
		b.want("disabled", b.cycle()) // the first keep-alive
		v.Set(int32(1))
		set(ua.MonitoringModeSampling)
		v.Set(int32(2))
		b.want("sampling", b.cycle())
		set(ua.MonitoringModeReporting)
		b.want("reporting gives what was sampled", b.cycle(), int32(1), int32(2))
		v.Set(int32(3))
		set(ua.MonitoringModeDisabled)
		if v.Node().Watched() {
			t.Error("a disabled item watches")
		}
		b.want("disabling drops the queue", b.cycle())
		set(ua.MonitoringModeReporting)
		b.want("enabling reports the current value", b.cycle(), int32(3))
		if _, code := b.e.SetMonitoringMode(b.s, &ua.SetMonitoringModeRequest{SubscriptionID: id, MonitoringMode: 3, MonitoredItemIDs: []uint32{item}}); code != ua.StatusBadMonitoringModeInvalid {
			t.Errorf("mode 3: %s", uastatus.Name(code))
		}
	})
}

func TestTriggering(t *testing.T) { // §5.13.1.6, Triggering model
	inBubble(t, Limits{}, func(b *bench) {
		a, c, d := b.ns.Variable("A", int32(0)), b.ns.Variable("C", int32(100)), b.ns.Variable("D", int32(200))
		id := b.subscribe(func(r *ua.CreateSubscriptionRequest) { r.RequestedMaxKeepAliveCount = 100 })
		trigger := b.monitor(id, a.Node().ID(), sampled(0)).MonitoredItemID
		linked := b.monitor(id, c.Node().ID(), sampled(0), moded(ua.MonitoringModeSampling)).MonitoredItemID
		second := b.monitor(id, d.Node().ID(), sampled(0), moded(ua.MonitoringModeSampling)).MonitoredItemID
		b.want("before", b.cycle(), int32(0))
		set := func(add, remove []uint32) *ua.SetTriggeringResponse {
			rs, code := b.e.SetTriggering(b.s, &ua.SetTriggeringRequest{SubscriptionID: id, TriggeringItemID: trigger, LinksToAdd: add, LinksToRemove: remove})
			if code != ua.StatusOK {
				t.Fatal(uastatus.Name(code))
			}
			return rs
		}
		rs := set([]uint32{linked, 999}, []uint32{linked})
		if !slices.Equal(rs.AddResults, []ua.StatusCode{ua.StatusOK, ua.StatusBadMonitoredItemIDInvalid}) ||
			!slices.Equal(rs.RemoveResults, []ua.StatusCode{ua.StatusBadMonitoredItemIDInvalid}) {
			t.Errorf("results %+v", rs)
		}
		c.Set(int32(101))
		b.want("nothing triggered", b.cycle())
		a.Set(int32(1))
		b.want("triggered", b.cycle(), int32(1), int32(101))
		a.Set(int32(2))
		b.want("the linked item has nothing new", b.cycle(), int32(2))
		c.Set(int32(102))
		b.want("not triggered again", b.cycle())
		set([]uint32{second}, []uint32{linked})
		a.Set(int32(3))
		b.want("the other link", b.cycle(), int32(3), int32(200))

		// A triggering item that is only sampled triggers without reporting itself.
		b.e.SetMonitoringMode(b.s, &ua.SetMonitoringModeRequest{SubscriptionID: id, MonitoringMode: ua.MonitoringModeSampling, MonitoredItemIDs: []uint32{trigger}})
		d.Set(int32(201))
		a.Set(int32(4))
		b.want("sampling trigger", b.cycle(), int32(201))

		// Deleting the linked item removes the link.
		b.e.DeleteMonitoredItems(b.s, &ua.DeleteMonitoredItemsRequest{SubscriptionID: id, MonitoredItemIDs: []uint32{second}})
		if rs := set(nil, []uint32{second}); rs.RemoveResults[0] != ua.StatusBadMonitoredItemIDInvalid {
			t.Error("a link to a deleted item is left")
		}
		for name, rq := range map[string]*ua.SetTriggeringRequest{
			"BadMonitoredItemIdInvalid": {SubscriptionID: id, TriggeringItemID: 999, LinksToAdd: []uint32{linked}},
			"BadNothingToDo":            {SubscriptionID: id, TriggeringItemID: trigger},
			"BadSubscriptionIdInvalid":  {SubscriptionID: id + 1, TriggeringItemID: trigger, LinksToAdd: []uint32{linked}},
		} {
			if _, code := b.e.SetTriggering(b.s, rq); uastatus.Name(code) != name {
				t.Errorf("%s, want %s", uastatus.Name(code), name)
			}
		}
	})
}

func TestDeleteMonitoredItems(t *testing.T) {
	inBubble(t, Limits{}, func(b *bench) {
		v := b.ns.Variable("A", int32(0))
		id := b.subscribe()
		var ids []uint32
		for i := range 100 {
			ids = append(ids, b.monitor(id, v.Node().ID(), sampled([]float64{-1, 0, 100, 250}[i%4])).MonitoredItemID)
		}
		if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != 100 {
			t.Error("item ids are not unique")
		}
		rs, code := b.e.DeleteMonitoredItems(b.s, &ua.DeleteMonitoredItemsRequest{SubscriptionID: id, MonitoredItemIDs: append(ids[:50:50], ids[0])})
		if code != ua.StatusOK || rs.Results[0] != ua.StatusOK || rs.Results[50] != ua.StatusBadMonitoredItemIDInvalid {
			t.Fatalf("%s %v", uastatus.Name(code), rs)
		}
		if got := b.cycle(); len(got) != 50 {
			t.Errorf("%d notifications of 50 items left", len(got))
		}
		b.e.DeleteMonitoredItems(b.s, &ua.DeleteMonitoredItemsRequest{SubscriptionID: id, MonitoredItemIDs: ids[50:]})
		v.Set(int32(1))
		b.want("all deleted", b.cycle())
		if v.Node().Watched() || b.e.Counts().MonitoredItems != 0 {
			t.Error("something is left of deleted items")
		}
		sub := b.e.find(id)
		sub.mu.Lock()
		if len(sub.groups) != 0 || sub.listHead != nil || sub.ready != 0 {
			t.Errorf("groups %d, ready %d", len(sub.groups), sub.ready)
		}
		sub.mu.Unlock()
	})
}

// Callbacks that delete their own item, subscription or session, from every place where callbacks run (hostile.md E10).
func TestCallbacksMayDeleteThemselves(t *testing.T) {
	for _, what := range []string{"item", "subscription", "session"} {
		inBubble(t, Limits{}, func(b *bench) {
			var id uint32
			var item atomic.Uint32
			var armed atomic.Bool
			kill := func() {
				if !armed.Swap(false) {
					return
				}
				switch what {
				case "item":
					b.e.DeleteMonitoredItems(b.s, &ua.DeleteMonitoredItemsRequest{SubscriptionID: id, MonitoredItemIDs: []uint32{item.Load()}})
				case "session":
					b.close(b.s, true)
				default:
					b.e.DeleteSubscriptions(b.s, &ua.DeleteSubscriptionsRequest{SubscriptionIDs: []uint32{id}})
				}
			}
			v := b.ns.Variable("A", int32(0)).OnRead(func(*addressspace.Caller) (any, error) {
				kill()
				return nil, errors.New("gone")
			})
			id = b.subscribe()
			r := b.monitor(id, v.Node().ID(), sampled(50))
			synctest.Wait()
			item.Store(r.MonitoredItemID)
			b.publish()
			armed.Store(true)
			b.wait(time.Second)
			if armed.Load() || b.e.Counts().MonitoredItems != 0 {
				t.Errorf("%s: not deleted", what)
			}
		})
	}
}
