package conformance

import (
	"time"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/gopcua/opcua/ua"
)

// monitored describes an item that reports every change of a Value at once.
func monitored(node *ua.NodeID, handle uint32) *ua.MonitoredItemCreateRequest {
	return &ua.MonitoredItemCreateRequest{ItemToMonitor: item(ua.AttributeIDValue, node), MonitoringMode: ua.MonitoringModeReporting,
		RequestedParameters: &ua.MonitoringParameters{ClientHandle: handle, SamplingInterval: 0, QueueSize: 1, DiscardOldest: true, Filter: ua.NewExtensionObject(nil)}}
}

func filtered(node *ua.NodeID, handle uint32, f *ua.DataChangeFilter) *ua.MonitoredItemCreateRequest {
	m := monitored(node, handle)
	m.RequestedParameters.Filter = ua.NewExtensionObject(f)
	return m
}

func (t *T) create(s *probe.Session, sub uint32, items ...*ua.MonitoredItemCreateRequest) []*ua.MonitoredItemCreateResult {
	rs := call[*ua.CreateMonitoredItemsResponse](t, s, &ua.CreateMonitoredItemsRequest{SubscriptionID: sub, TimestampsToReturn: ua.TimestampsToReturnBoth, ItemsToCreate: items})
	if len(rs.Results) != len(items) {
		t.Fatalf("%d results for %d items", len(rs.Results), len(items))
	}
	return rs.Results
}

// monitor creates one item that must be taken.
func (t *T) monitor(s *probe.Session, sub uint32, m *ua.MonitoredItemCreateRequest) *ua.MonitoredItemCreateResult {
	r := t.create(s, sub, m)[0]
	if r.StatusCode != ua.StatusOK {
		t.Fatalf("create an item for %v: %v", m.ItemToMonitor.NodeID, r.StatusCode)
	}
	return r
}

// double returns the test variable and a subscription on it.
func (t *T) double() (s *probe.Session, sub uint32, node *ua.NodeID) {
	s = t.Session()
	node = t.Node(t.Target.Nodes.Scalars["Double"], "a Double")
	t.write(s, node, 100.0)
	return s, t.subscription(s, 100, 3), node
}

var monitoredItemCases = []Case{
	{"Monitor Basic", "the first value and each change arrive", "OPC 10000-4 §5.13.1", func(t *T) {
		s, sub, node := t.double()
		t.monitor(s, sub, monitored(node, 7))
		if v := value(t.notified(s, sub, 7)); v != 100.0 {
			t.Errorf("first value %v", v)
		}
		for _, want := range []float64{1, 2, 3} {
			t.write(s, node, want)
			if v := value(t.notified(s, sub, 7)); v != want {
				t.Errorf("got %v, wrote %v", v, want)
			}
		}
		t.quiet(s, "nothing changed")
	}},
	{"Monitor Basic", "items are deleted", "OPC 10000-4 §5.13.6", func(t *T) {
		s, sub, node := t.double()
		m := t.monitor(s, sub, monitored(node, 7))
		t.notified(s, sub, 7)
		rs := call[*ua.DeleteMonitoredItemsResponse](t, s, &ua.DeleteMonitoredItemsRequest{SubscriptionID: sub, MonitoredItemIDs: []uint32{m.MonitoredItemID, m.MonitoredItemID}})
		t.Code(rs.Results[0], "delete", ua.StatusOK)
		t.Code(rs.Results[1], "delete again", ua.StatusBadMonitoredItemIDInvalid)
		t.write(s, node, 5.0)
		t.quiet(s, "the item is deleted")
		refuse(t, s, &ua.DeleteMonitoredItemsRequest{SubscriptionID: sub}, ua.StatusBadNothingToDo)
		refuse(t, s, &ua.DeleteMonitoredItemsRequest{SubscriptionID: sub + 1000, MonitoredItemIDs: []uint32{1}}, ua.StatusBadSubscriptionIDInvalid)
	}},
	{"Monitor Basic", "what cannot be monitored", "OPC 10000-4 §5.13.2", func(t *T) {
		s, sub, node := t.double()
		unknown, attr, rng, enc, none := monitored(longNodeID, 1), monitored(node, 2), monitored(node, 3), monitored(node, 4), monitored(node, 5)
		attr.ItemToMonitor.AttributeID = 99
		rng.ItemToMonitor.IndexRange = "x:y"
		enc.ItemToMonitor.DataEncoding = &ua.QualifiedName{Name: "Default Smoke Signals"}
		none.MonitoringMode = 9
		rs := t.create(s, sub, unknown, attr, rng, enc, none)
		t.Code(rs[0].StatusCode, "an unknown node", ua.StatusBadNodeIDUnknown)
		t.Code(rs[1].StatusCode, "an unknown attribute", ua.StatusBadAttributeIDInvalid)
		t.Code(rs[2].StatusCode, "no range", ua.StatusBadIndexRangeInvalid)
		t.Code(rs[3].StatusCode, "an unknown encoding", ua.StatusBadDataEncodingInvalid, ua.StatusBadDataEncodingUnsupported)
		t.Code(rs[4].StatusCode, "an unknown mode", ua.StatusBadMonitoringModeInvalid)
		refuse(t, s, &ua.CreateMonitoredItemsRequest{SubscriptionID: sub, TimestampsToReturn: ua.TimestampsToReturnBoth}, ua.StatusBadNothingToDo)
		refuse(t, s, &ua.CreateMonitoredItemsRequest{SubscriptionID: sub, TimestampsToReturn: 9, ItemsToCreate: []*ua.MonitoredItemCreateRequest{monitored(node, 1)}}, ua.StatusBadTimestampsToReturnInvalid)
		refuse(t, s, &ua.CreateMonitoredItemsRequest{SubscriptionID: sub + 1000, TimestampsToReturn: ua.TimestampsToReturnBoth, ItemsToCreate: []*ua.MonitoredItemCreateRequest{monitored(node, 1)}}, ua.StatusBadSubscriptionIDInvalid)
	}},
	{"Monitor Basic", "attributes other than Value are monitored", "OPC 10000-4 §5.13.1", func(t *T) {
		s, sub, node := t.double()
		m := monitored(node, 3)
		m.ItemToMonitor.AttributeID = ua.AttributeIDBrowseName
		t.monitor(s, sub, m)
		if v, ok := value(t.notified(s, sub, 3)).(*ua.QualifiedName); !ok || v.Name == "" {
			t.Errorf("BrowseName %v", v)
		}
	}},
	{"Monitor Basic", "modes are set", "OPC 10000-4 §5.13.4", func(t *T) {
		s, sub, node := t.double()
		m := monitored(node, 3)
		m.MonitoringMode = ua.MonitoringModeDisabled
		id := t.monitor(s, sub, m).MonitoredItemID
		t.quiet(s, "the item is disabled")
		set := func(mode ua.MonitoringMode) {
			rs := call[*ua.SetMonitoringModeResponse](t, s, &ua.SetMonitoringModeRequest{SubscriptionID: sub, MonitoringMode: mode, MonitoredItemIDs: []uint32{id, id + 1000}})
			t.Code(rs.Results[0], "set mode", ua.StatusOK)
			t.Code(rs.Results[1], "set a stranger's mode", ua.StatusBadMonitoredItemIDInvalid)
		}
		set(ua.MonitoringModeSampling)
		t.quiet(s, "the item only samples")
		set(ua.MonitoringModeReporting)
		t.notified(s, sub, 3)
		refuse(t, s, &ua.SetMonitoringModeRequest{SubscriptionID: sub, MonitoringMode: 9, MonitoredItemIDs: []uint32{id}}, ua.StatusBadMonitoringModeInvalid)
		refuse(t, s, &ua.SetMonitoringModeRequest{SubscriptionID: sub, MonitoringMode: ua.MonitoringModeReporting}, ua.StatusBadNothingToDo)
	}},
	{"Monitor Basic", "items are modified", "OPC 10000-4 §5.13.3", func(t *T) {
		s, sub, node := t.double()
		id := t.monitor(s, sub, monitored(node, 3)).MonitoredItemID
		t.notified(s, sub, 3)
		rs := call[*ua.ModifyMonitoredItemsResponse](t, s, &ua.ModifyMonitoredItemsRequest{SubscriptionID: sub, TimestampsToReturn: ua.TimestampsToReturnSource, ItemsToModify: []*ua.MonitoredItemModifyRequest{
			{MonitoredItemID: id, RequestedParameters: &ua.MonitoringParameters{ClientHandle: 33, SamplingInterval: 100, QueueSize: 5, DiscardOldest: true, Filter: ua.NewExtensionObject(nil)}},
			{MonitoredItemID: id + 1000, RequestedParameters: &ua.MonitoringParameters{Filter: ua.NewExtensionObject(nil)}},
		}})
		t.Code(rs.Results[0].StatusCode, "modify", ua.StatusOK)
		t.Code(rs.Results[1].StatusCode, "modify a stranger's", ua.StatusBadMonitoredItemIDInvalid)
		if rs.Results[0].RevisedQueueSize != 5 {
			t.Errorf("queue size %d", rs.Results[0].RevisedQueueSize)
		}
		t.write(s, node, 77.0)
		dv := t.notified(s, sub, 33)
		if value(dv) != 77.0 || !dv.ServerTimestamp.IsZero() || dv.SourceTimestamp.IsZero() {
			t.Errorf("%v, source %v, server %v", value(dv), dv.SourceTimestamp, dv.ServerTimestamp)
		}
	}},
	{"Monitor Value Change", "the trigger decides", "OPC 10000-4 §7.22.2", func(t *T) {
		s, sub, node := t.double()
		t.monitor(s, sub, filtered(node, 1, &ua.DataChangeFilter{Trigger: ua.DataChangeTriggerStatus}))
		t.monitor(s, sub, filtered(node, 2, &ua.DataChangeFilter{Trigger: ua.DataChangeTriggerStatusValueTimestamp}))
		t.notified(s, sub, 1)
		t.write(s, node, 200.0)
		count := func(handle uint32) (n int) {
			for range 3 {
				for _, c := range changes(t.publish(s)) {
					if c.ClientHandle == handle {
						n++
					}
				}
			}
			return n
		}
		if n := count(1); n != 0 {
			t.Errorf("trigger Status reported %d value changes", n)
		}
		t.write(s, node, 200.0) // the same value with a new timestamp
		if n := count(2); n == 0 {
			t.Errorf("trigger StatusValueTimestamp reported no new timestamp")
		}
	}},
	{"Monitored Items Deadband Filter", "absolute deadband", "OPC 10000-4 §7.22.2", func(t *T) {
		s, sub, node := t.double()
		t.monitor(s, sub, filtered(node, 1, &ua.DataChangeFilter{Trigger: ua.DataChangeTriggerStatusValue, DeadbandType: uint32(ua.DeadbandTypeAbsolute), DeadbandValue: 10}))
		t.notified(s, sub, 1)
		t.write(s, node, 105.0)
		t.quiet(s, "5 is within a deadband of 10")
		t.write(s, node, 95.0)
		t.quiet(s, "-5 is within a deadband of 10")
		t.write(s, node, 111.0)
		if v := value(t.notified(s, sub, 1)); v != 111.0 {
			t.Errorf("got %v", v)
		}
	}},
	{"Monitored Items Deadband Filter", "deadbands that cannot be", "OPC 10000-4 §7.22.2", func(t *T) {
		s, sub, node := t.double()
		text := t.Node(t.Target.Nodes.Scalars["String"], "a String")
		band := func(kind uint32, v float64) *ua.DataChangeFilter {
			return &ua.DataChangeFilter{Trigger: ua.DataChangeTriggerStatusValue, DeadbandType: kind, DeadbandValue: v}
		}
		name := filtered(node, 9, band(0, 0))
		name.ItemToMonitor.AttributeID = ua.AttributeIDBrowseName
		rs := t.create(s, sub, filtered(text, 1, band(1, 5)), filtered(node, 2, band(1, -5)), filtered(node, 3, band(9, 5)), filtered(node, 4, band(2, 5)), name)
		t.Code(rs[0].StatusCode, "deadband of a String", ua.StatusBadFilterNotAllowed, ua.StatusBadMonitoredItemFilterUnsupported)
		t.Code(rs[1].StatusCode, "negative deadband", ua.StatusBadDeadbandFilterInvalid)
		t.Code(rs[2].StatusCode, "unknown deadband type", ua.StatusBadDeadbandFilterInvalid, ua.StatusBadMonitoredItemFilterUnsupported)
		t.Code(rs[3].StatusCode, "percent without EURange", ua.StatusBadMonitoredItemFilterUnsupported, ua.StatusBadDeadbandFilterInvalid, ua.StatusBadFilterNotAllowed)
		t.Code(rs[4].StatusCode, "a filter on BrowseName", ua.StatusBadFilterNotAllowed)
	}},
	{"Monitored Items Deadband Filter", "percent deadband of an analog item", "OPC 10000-8 §7.2", func(t *T) {
		s := t.Session()
		node := t.Node(t.Target.Nodes.Analog, "an analog item")
		rs := call[*ua.TranslateBrowsePathsToNodeIDsResponse](t, s, &ua.TranslateBrowsePathsToNodeIDsRequest{BrowsePaths: []*ua.BrowsePath{{StartingNode: node,
			RelativePath: &ua.RelativePath{Elements: []*ua.RelativePathElement{{ReferenceTypeID: ns0(46), IncludeSubtypes: true, TargetName: &ua.QualifiedName{Name: "EURange"}}}}}}})
		if len(rs.Results[0].Targets) != 1 {
			t.Fatalf("no EURange: %v", rs.Results[0].StatusCode)
		}
		dv := call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, rs.Results[0].Targets[0].TargetID.NodeID)).Results[0]
		eo, _ := value(dv).(*ua.ExtensionObject)
		if eo == nil {
			t.Fatalf("EURange is %v", value(dv))
		}
		r, ok := eo.Value.(*ua.Range)
		if !ok || r.High <= r.Low {
			t.Fatalf("EURange is %v", eo.Value)
		}
		at := func(percent float64) any {
			v := r.Low + (r.High-r.Low)*percent/100
			if _, single := value(call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, node)).Results[0]).(float32); single {
				return float32(v)
			}
			return v
		}
		t.write(s, node, at(50))
		sub := t.subscription(s, 100, 3)
		t.monitor(s, sub, filtered(node, 1, &ua.DataChangeFilter{Trigger: ua.DataChangeTriggerStatusValue, DeadbandType: uint32(ua.DeadbandTypePercent), DeadbandValue: 10}))
		t.notified(s, sub, 1)
		t.write(s, node, at(55))
		t.quiet(s, "5 % is within a deadband of 10 %")
		t.write(s, node, at(65))
		t.notified(s, sub, 1)
	}},
	{"Monitor QueueSize_1", "the newest value wins", "OPC 10000-4 §5.13.1.5", func(t *T) {
		s, sub, node := t.double()
		t.monitor(s, sub, monitored(node, 1))
		t.notified(s, sub, 1)
		for _, v := range []float64{1, 2, 3} {
			t.write(s, node, v)
		}
		dv := t.notified(s, sub, 1)
		for value(dv) != 3.0 { // a publishing cycle may have come between the writes
			dv = t.notified(s, sub, 1)
		}
		if dv.Status&0x480 == 0x480 {
			t.Errorf("a queue of one sets no overflow bit, got %v", dv.Status)
		}
	}},
	{"Monitor MinQueueSize_02", "an overflow shows, on the side that lost", "OPC 10000-4 §7.39.1", func(t *T) {
		for _, oldest := range []bool{true, false} {
			s := t.Session()
			node := t.Node(t.Target.Nodes.Scalars["Double"], "a Double")
			t.write(s, node, 100.0)
			sub := t.subscription(s, 500, 10)
			m := monitored(node, 1)
			m.RequestedParameters.QueueSize, m.RequestedParameters.DiscardOldest = 3, oldest
			if r := t.monitor(s, sub, m); r.RevisedQueueSize != 3 {
				t.Fatalf("queue size %d", r.RevisedQueueSize)
			}
			t.notified(s, sub, 1)
			rq := &ua.WriteRequest{}
			for _, v := range []float64{1, 2, 3, 4, 5} {
				rq.NodesToWrite = append(rq.NodesToWrite, writeValue(node, v))
			}
			call[*ua.WriteResponse](t, s, rq)
			got := changes(t.publish(s))
			if len(got) != 3 {
				t.Fatalf("%d values from a queue of three", len(got))
			}
			want, lost := []float64{3, 4, 5}, 0
			if !oldest {
				want, lost = []float64{1, 2, 5}, 2
			}
			for i, c := range got {
				if value(c.Value) != want[i] {
					t.Errorf("discardOldest %v: value %d is %v, want %v", oldest, i, value(c.Value), want[i])
				}
				if overflow := c.Value.Status&0x480 == 0x480; overflow != (i == lost) {
					t.Errorf("discardOldest %v: overflow at value %d is %v", oldest, i, overflow)
				}
			}
		}
	}},
	{"Monitor Triggering", "a trigger reports what only samples", "OPC 10000-4 §5.13.5", func(t *T) {
		s, sub, node := t.double()
		linkedNode := t.Node(t.Target.Nodes.Scalars["Int32"], "an Int32")
		trigger := t.monitor(s, sub, monitored(node, 1)).MonitoredItemID
		m := monitored(linkedNode, 2)
		m.MonitoringMode = ua.MonitoringModeSampling
		linked := t.monitor(s, sub, m).MonitoredItemID
		rs := call[*ua.SetTriggeringResponse](t, s, &ua.SetTriggeringRequest{SubscriptionID: sub, TriggeringItemID: trigger, LinksToAdd: []uint32{linked, linked + 1000}})
		t.Code(rs.AddResults[0], "add a link", ua.StatusOK)
		t.Code(rs.AddResults[1], "add a link to nothing", ua.StatusBadMonitoredItemIDInvalid)
		for range 3 { // what the first values bring
			t.publish(s)
		}
		t.write(s, linkedNode, int32(time.Now().Nanosecond()))
		t.quiet(s, "the linked item only samples")
		t.write(s, node, float64(time.Now().UnixNano()))
		t.notified(s, sub, 2)
		rs = call[*ua.SetTriggeringResponse](t, s, &ua.SetTriggeringRequest{SubscriptionID: sub, TriggeringItemID: trigger, LinksToRemove: []uint32{linked, linked}})
		t.Code(rs.RemoveResults[0], "remove a link", ua.StatusOK)
		t.Code(rs.RemoveResults[1], "remove it again", ua.StatusBadMonitoredItemIDInvalid)
		refuse(t, s, &ua.SetTriggeringRequest{SubscriptionID: sub, TriggeringItemID: trigger}, ua.StatusBadNothingToDo)
		refuse(t, s, &ua.SetTriggeringRequest{SubscriptionID: sub, TriggeringItemID: trigger + 1000, LinksToAdd: []uint32{linked}}, ua.StatusBadMonitoredItemIDInvalid)
	}},
	{"Monitor Items 100", "a hundred items in one subscription", "OPC 10000-7", func(t *T) {
		s := t.Session()
		sub := t.subscription(s, 100, 10)
		var items []*ua.MonitoredItemCreateRequest
		for i := range 100 {
			items = append(items, monitored(namespaceArray, uint32(i)))
		}
		ids := map[uint32]bool{}
		for _, r := range t.create(s, sub, items...) {
			t.Code(r.StatusCode, "create", ua.StatusOK)
			ids[r.MonitoredItemID] = true
		}
		if len(ids) != 100 {
			t.Errorf("%d different ids", len(ids))
		}
		got := map[uint32]bool{}
		for range 5 {
			if len(got) == 100 {
				return
			}
			for _, c := range changes(t.publish(s)) {
				got[c.ClientHandle] = true
			}
		}
		t.Errorf("%d of 100 items reported", len(got))
	}},
	{"Monitor Basic", "an index range is monitored", "OPC 10000-4 §5.13.1", func(t *T) {
		s := t.Session()
		node := t.Node(t.Target.Nodes.Arrays["Int32"], "an Int32 array")
		t.write(s, node, []int32{1, 2, 3})
		sub := t.subscription(s, 100, 3)
		m := monitored(node, 1)
		m.ItemToMonitor.IndexRange = "1"
		t.monitor(s, sub, m)
		if v, ok := value(t.notified(s, sub, 1)).([]int32); !ok || len(v) != 1 || v[0] != 2 {
			t.Errorf("got %v", v)
		}
		t.write(s, node, []int32{9, 2, 9})
		t.quiet(s, "element 1 did not change")
		t.write(s, node, []int32{9, 8, 9})
		t.notified(s, sub, 1)
	}},
}
