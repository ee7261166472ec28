package subscription

import (
	"math"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// CreateMonitoredItems is the CreateMonitoredItems service (OPC 10000-4 §5.13.2). What the first read says about the operand
// (unknown node or attribute, bad index range or encoding) refuses the item; that a value is not readable now, or has no
// data in the index range, is a value like any other and is reported. It does not wait for read callbacks: values behind
// them are read by a worker right afterwards.
func (e *Engine) CreateMonitoredItems(s Session, rq *ua.CreateMonitoredItemsRequest) (*ua.CreateMonitoredItemsResponse, ua.StatusCode) {
	n := len(rq.ItemsToCreate)
	if code := e.operations(n); code != ua.StatusOK {
		return nil, code
	}
	if rq.TimestampsToReturn > ua.TimestampsToReturnNeither {
		return nil, ua.StatusBadTimestampsToReturnInvalid
	}
	sub := e.own(s, rq.SubscriptionID)
	if sub == nil {
		return nil, ua.StatusBadSubscriptionIDInvalid
	}
	slab := make([]ua.MonitoredItemCreateResult, n)
	results := make([]*ua.MonitoredItemCreateResult, n)
	now := time.Now()
	var unread []*item
	for i, rq1 := range rq.ItemsToCreate {
		results[i] = &slab[i]
		it, code := sub.create(rq1, rq.TimestampsToReturn, s.Caller(), now, &slab[i])
		if slab[i].StatusCode = code; it != nil {
			unread = append(unread, it)
		}
	}
	if unread != nil {
		e.workers.push(firstRead{sub, unread})
	}
	return &ua.CreateMonitoredItemsResponse{Results: results}, ua.StatusOK
}

// create makes one item. It returns the item when its first value has yet to be read.
func (s *subscription) create(rq *ua.MonitoredItemCreateRequest, timestamps ua.TimestampsToReturn, caller *addressspace.Caller, now time.Time, out *ua.MonitoredItemCreateResult) (*item, ua.StatusCode) {
	e := s.engine
	if rq == nil || rq.ItemToMonitor == nil || rq.RequestedParameters == nil {
		return nil, ua.StatusBadNodeIDInvalid
	}
	if rq.MonitoringMode > ua.MonitoringModeReporting {
		return nil, ua.StatusBadMonitoringModeInvalid
	}
	operand, params := rq.ItemToMonitor, rq.RequestedParameters
	node := e.space.Lookup(uabinary.NodeIDOf(operand.NodeID))
	if node == nil {
		return nil, ua.StatusBadNodeIDUnknown
	}
	it := &item{
		sub: s, node: node, clientHandle: params.ClientHandle, mode: rq.MonitoringMode, timestamps: timestamps,
	}
	it.set(flagDiscardOldest, params.DiscardOldest)
	var code ua.StatusCode
	if it.ask, code = askOf(operand); code != ua.StatusOK {
		return nil, code
	}
	if it.attribute() == ua.AttributeIDEventNotifier {
		return nil, eventItem(node)
	}
	at := uabinary.FromTime(now)
	fromStore := stored(node, it.attribute())
	dynamic := !fromStore && it.attribute() == ua.AttributeIDValue
	var value uabinary.DataValue
	if dynamic {
		// Only what does not depend on the value: the index range was parsed, a node with a callback is a Variable.
		if code = encodingOf(node, it.ask); code != ua.StatusOK {
			return nil, code
		}
	} else {
		rd := it.read(at, caller)
		value = e.readValue(&rd)
		if code = status(&value); refuses(code) {
			return nil, code
		}
	}
	f, code := parseFilter(params.Filter, it.attribute(), node, &value)
	if code != ua.StatusOK {
		return nil, code
	}
	it.setFilter(f)
	denied := fromStore && !e.mayRead(node, caller)

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deleted {
		return nil, ua.StatusBadSubscriptionIDInvalid
	}
	if len(s.items) >= e.limits.Load().MaxMonitoredItemsPerSubscription {
		return nil, ua.StatusBadTooManyMonitoredItems
	}
	size, ok := e.quota.takeItem(s.account, e.limits.Load().queueSize(params.QueueSize))
	if !ok {
		return nil, ua.StatusBadTooManyMonitoredItems
	}
	it.size = size
	it.interval = s.reviseSampling(params.SamplingInterval, node, fromStore)
	it.set(flagDenied, denied)
	s.add(it)
	if it.mode != ua.MonitoringModeDisabled {
		s.attach(it, e.clock(now))
	}
	out.MonitoredItemID = it.id
	out.RevisedQueueSize = it.size
	out.RevisedSamplingInterval = s.samplingInterval(it)
	switch {
	case it.mode == ua.MonitoringModeDisabled:
	case dynamic:
		return it, ua.StatusOK
	case fromStore && !denied:
		s.observe(it, node.Value(), at) // not value: later samples are compared with the node's own pointer
	default:
		first := value
		it.last = &first
		s.sample(it, &first, at)
	}
	return nil, ua.StatusOK
}

// encodingOf checks the DataEncoding for a Variable whose value cannot be read now, as Read does (OPC 10000-4 §5.11.2).
func encodingOf(node *addressspace.Node, a *ask) ua.StatusCode {
	if a == nil || len(a.encoding.Name) == 0 {
		return ua.StatusOK
	}
	structure := node.Space().Lookup(uabinary.NumericID(0, id.Structure))
	if t := node.DataType(); !t.IsAbstract() && (structure == nil || !addressspace.SubtypeOf(t, structure)) {
		return ua.StatusBadDataEncodingInvalid
	}
	if a.encoding.Namespace == 0 && string(a.encoding.Name) == "Default Binary" {
		return ua.StatusOK
	}
	return ua.StatusBadDataEncodingUnsupported
}

// askOf checks the parts of a ReadValueId that do not depend on the node.
func askOf(rv *ua.ReadValueID) (*ask, ua.StatusCode) {
	plain := rv.DataEncoding == nil || rv.DataEncoding.NamespaceIndex == 0 && rv.DataEncoding.Name == ""
	if rv.AttributeID == ua.AttributeIDValue && rv.IndexRange == "" && plain {
		return nil, ua.StatusOK
	}
	a := &ask{attribute: rv.AttributeID, encoding: uabinary.QualifiedNameOf(rv.DataEncoding)}
	if rv.IndexRange != "" {
		a.rangeText = []byte(rv.IndexRange)
		var code ua.StatusCode
		if a.indexes, code = uabinary.ParseNumericRange(a.rangeText); code != ua.StatusOK {
			return nil, code
		}
	}
	return a, ua.StatusOK
}

// eventItem answers items on EventNotifier: nodes without it have no such attribute, and event monitoring is not built yet,
// which is what the code says about the filter such an item must have.
func eventItem(node *addressspace.Node) ua.StatusCode {
	switch node.Class() {
	case ua.NodeClassObject, ua.NodeClassView:
		return ua.StatusBadMonitoredItemFilterUnsupported
	}
	return ua.StatusBadAttributeIDInvalid
}

// refuses tells the results of the first read that mean the operand is wrong, not the value.
func refuses(code ua.StatusCode) bool {
	switch code {
	case ua.StatusBadNodeIDInvalid, ua.StatusBadNodeIDUnknown, ua.StatusBadAttributeIDInvalid,
		ua.StatusBadIndexRangeInvalid, ua.StatusBadDataEncodingInvalid, ua.StatusBadDataEncodingUnsupported:
		return true
	}
	return false
}

func (it *item) setFilter(f filter) {
	if it.filter = nil; f != defaultFilter {
		it.filter = &f
	}
}

func (l *Limits) queueSize(requested uint32) uint32 {
	return max(min(requested, uint32(l.MaxQueueSize)), 1)
}

// reviseSampling negotiates a sampling interval (OPC 10000-4 §7.21, MonitoringParameters: -1 the publishing interval, 0 the
// fastest rate). A node's MinimumSamplingInterval is not undercut. s.mu is held.
func (s *subscription) reviseSampling(requested float64, node *addressspace.Node, exceptionBased bool) int64 {
	l := s.engine.limits.Load()
	slowest := time.Duration(0)
	if m := node.MinimumSamplingInterval(); m > 0 {
		slowest = duration(m, l.MinSamplingInterval, l.MaxSamplingInterval)
	}
	switch {
	case requested < 0:
		if int64(slowest) <= s.interval {
			return follow
		}
		return int64(quantize(slowest))
	case (requested == 0 || math.IsNaN(requested)) && slowest == 0 && exceptionBased:
		return 0
	}
	return int64(quantize(max(duration(requested, l.MinSamplingInterval, l.MaxSamplingInterval), slowest)))
}

// samplingInterval is the revised interval in milliseconds: what holds now, which is more than what was asked for when
// there was no share of it left.
func (s *subscription) samplingInterval(it *item) float64 {
	if g := it.group; g != nil && g.node == nil {
		return milliseconds(time.Duration(g.period()))
	}
	if it.interval == follow {
		return milliseconds(time.Duration(s.interval))
	}
	return milliseconds(time.Duration(it.interval))
}

// ModifyMonitoredItems is the ModifyMonitoredItems service (OPC 10000-4 §5.13.3). Queued values stay as far as the new
// queue size allows.
func (e *Engine) ModifyMonitoredItems(s Session, rq *ua.ModifyMonitoredItemsRequest) (*ua.ModifyMonitoredItemsResponse, ua.StatusCode) {
	n := len(rq.ItemsToModify)
	if code := e.operations(n); code != ua.StatusOK {
		return nil, code
	}
	if rq.TimestampsToReturn > ua.TimestampsToReturnNeither {
		return nil, ua.StatusBadTimestampsToReturnInvalid
	}
	sub := e.own(s, rq.SubscriptionID)
	if sub == nil {
		return nil, ua.StatusBadSubscriptionIDInvalid
	}
	slab := make([]ua.MonitoredItemModifyResult, n)
	results := make([]*ua.MonitoredItemModifyResult, n)
	now := e.clock(time.Now())
	sub.mu.Lock()
	defer sub.mu.Unlock()
	for i, m := range rq.ItemsToModify {
		results[i] = &slab[i]
		slab[i].StatusCode = sub.modify(m, rq.TimestampsToReturn, now, &slab[i])
	}
	return &ua.ModifyMonitoredItemsResponse{Results: results}, ua.StatusOK
}

func (s *subscription) modify(rq *ua.MonitoredItemModifyRequest, timestamps ua.TimestampsToReturn, now int64, out *ua.MonitoredItemModifyResult) ua.StatusCode {
	e := s.engine
	it := (*item)(nil)
	if rq != nil && rq.RequestedParameters != nil {
		it = s.find(rq.MonitoredItemID)
	}
	if it == nil {
		return ua.StatusBadMonitoredItemIDInvalid
	}
	params := rq.RequestedParameters
	f, code := parseFilter(params.Filter, it.attribute(), it.node, it.last)
	if code != ua.StatusOK {
		return code
	}
	it.setFilter(f)
	it.clientHandle, it.timestamps = params.ClientHandle, timestamps
	it.set(flagDiscardOldest, params.DiscardOldest)
	it.size = e.quota.resize(s.account, it.size, e.limits.Load().queueSize(params.QueueSize))
	before := it.queue.bytes
	it.queue.resize(it.size, params.DiscardOldest)
	s.settle(it.queue.bytes - before)
	interval := s.reviseSampling(params.SamplingInterval, it.node, stored(it.node, it.attribute()))
	if interval != it.interval {
		it.interval = interval
		if it.mode != ua.MonitoringModeDisabled {
			s.detach(it)
			s.attach(it, now)
		}
	}
	out.RevisedQueueSize = it.size
	out.RevisedSamplingInterval = s.samplingInterval(it)
	return ua.StatusOK
}

// SetMonitoringMode is the SetMonitoringMode service (OPC 10000-4 §5.13.4). Disabling drops what is queued; enabling
// reports the current value.
func (e *Engine) SetMonitoringMode(s Session, rq *ua.SetMonitoringModeRequest) (*ua.SetMonitoringModeResponse, ua.StatusCode) {
	if code := e.operations(len(rq.MonitoredItemIDs)); code != ua.StatusOK {
		return nil, code
	}
	sub := e.own(s, rq.SubscriptionID)
	if sub == nil {
		return nil, ua.StatusBadSubscriptionIDInvalid
	}
	if rq.MonitoringMode > ua.MonitoringModeReporting {
		return nil, ua.StatusBadMonitoringModeInvalid
	}
	results := make([]ua.StatusCode, len(rq.MonitoredItemIDs))
	now := time.Now()
	sub.mu.Lock()
	defer sub.mu.Unlock()
	for i, itemID := range rq.MonitoredItemIDs {
		if it := sub.find(itemID); it != nil {
			sub.setMode(it, rq.MonitoringMode, now)
		} else {
			results[i] = ua.StatusBadMonitoredItemIDInvalid
		}
	}
	return &ua.SetMonitoringModeResponse{Results: results}, ua.StatusOK
}

func (s *subscription) setMode(it *item, mode ua.MonitoringMode, now time.Time) {
	old := it.mode
	it.mode = mode
	if mode == old {
		return
	}
	switch {
	case mode == ua.MonitoringModeDisabled:
		s.detach(it)
		s.empty(it)
		it.last, it.reported = nil, nil
	case old == ua.MonitoringModeDisabled:
		s.attach(it, s.engine.clock(now))
		switch g := it.group; {
		case g != nil && g.read:
			s.engine.workers.push(firstRead{s, []*item{it}})
		case it.node.Deleted():
			s.gone(it, uabinary.FromTime(now))
		case it.is(flagDenied):
			s.engine.workers.addAudit(s)
		default:
			s.observe(it, it.node.Value(), uabinary.FromTime(now))
		}
	}
	it.set(flagTriggered, false)
	s.refresh(it)
}

// DeleteMonitoredItems is the DeleteMonitoredItems service (OPC 10000-4 §5.13.6). Links from and to the items go too.
func (e *Engine) DeleteMonitoredItems(s Session, rq *ua.DeleteMonitoredItemsRequest) (*ua.DeleteMonitoredItemsResponse, ua.StatusCode) {
	if code := e.operations(len(rq.MonitoredItemIDs)); code != ua.StatusOK {
		return nil, code
	}
	sub := e.own(s, rq.SubscriptionID)
	if sub == nil {
		return nil, ua.StatusBadSubscriptionIDInvalid
	}
	results := make([]ua.StatusCode, len(rq.MonitoredItemIDs))
	sub.mu.Lock()
	defer sub.mu.Unlock()
	for i, itemID := range rq.MonitoredItemIDs {
		if it := sub.find(itemID); it != nil && !it.is(flagDead) {
			sub.kill(it)
		} else {
			results[i] = ua.StatusBadMonitoredItemIDInvalid
		}
	}
	sub.sweep()
	return &ua.DeleteMonitoredItemsResponse{Results: results}, ua.StatusOK
}
