package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// Monitor says what to monitor (OPC 10000-4 §5.13.2, CreateMonitoredItems). Only
// NodeID is needed.
type Monitor struct {
	NodeID *ua.NodeID
	// Attribute. 0: Value, or EventNotifier when Filter is an *ua.EventFilter.
	Attribute ua.AttributeID
	// IndexRange of an array, "" for all of it.
	IndexRange string
	// Sampling interval; 0: as often as the server can, negative: the publishing interval.
	Sampling time.Duration
	// QueueSize at the server: what a broken connection can hold back. 0: 10.
	QueueSize uint32
	// DiscardNewest drops the newest instead of the oldest value of a full queue.
	DiscardNewest bool
	// Filter: *ua.DataChangeFilter, *ua.EventFilter, *ua.AggregateFilter. nil: none.
	Filter any
	// User is kept for the caller.
	User any
}

// Item is a monitored item.
type Item struct {
	Monitor

	sub *Subscription // whose mutex guards the rest

	handle  uint32
	id      uint32 // at the server
	pending bool   // its first creation is under way
	err     error
	last    *ua.DataValue // that was delivered
	again   bool          // the next value may be the last one once more
}

func (m *Monitor) request(handle uint32) *ua.MonitoredItemCreateRequest {
	attribute := m.Attribute
	if attribute == 0 {
		attribute = ua.AttributeIDValue
		if _, ok := m.Filter.(*ua.EventFilter); ok {
			attribute = ua.AttributeIDEventNotifier
		}
	}
	sampling := float64(m.Sampling) / float64(time.Millisecond)
	if m.Sampling < 0 {
		sampling = -1
	}
	p := &ua.MonitoringParameters{ClientHandle: handle, SamplingInterval: sampling, QueueSize: m.QueueSize, DiscardOldest: !m.DiscardNewest}
	if m.QueueSize == 0 {
		p.QueueSize = 10
	}
	if m.Filter != nil {
		p.Filter = ua.NewExtensionObject(m.Filter)
	}
	return &ua.MonitoredItemCreateRequest{
		ItemToMonitor:  &ua.ReadValueID{NodeID: m.NodeID, AttributeID: attribute, IndexRange: m.IndexRange, DataEncoding: &ua.QualifiedName{}},
		MonitoringMode: ua.MonitoringModeReporting, RequestedParameters: p,
	}
}

// Monitor adds items to the subscription. The error is about the call; one about
// a single item is in Item.Err, and such an item is not monitored. After an error
// of the call none is: what the server has made of them is deleted, also when its
// answer comes only after ctx has ended (up to 5 min).
func (sub *Subscription) Monitor(ctx context.Context, monitors ...Monitor) ([]*Item, error) {
	s := sub.session
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	l, err := s.online(ctx)
	if err != nil {
		return nil, err
	}
	items := make([]*Item, len(monitors))
	sub.mu.Lock()
	if sub.ended {
		sub.mu.Unlock()
		return nil, fmt.Errorf("client: Monitor: %w", errors.Join(ua.StatusBadSubscriptionIDInvalid, ErrClosed))
	}
	id, generation := sub.id, sub.generation
	for i, m := range monitors {
		items[i] = &Item{Monitor: m, sub: sub, handle: s.handles.Add(1), pending: true}
		sub.items[items[i].handle] = items[i] // its values may come before the answer
	}
	sub.mu.Unlock()
	do := s.creator(l, func(rs ua.Response) {
		if rs, ok := rs.(*ua.CreateMonitoredItemsResponse); ok {
			s.discardItems(l, id, madeBy(rs))
		}
	})
	made, err := s.createItems(ctx, do, sub, id, items, s.operations(ctx, l))
	sub.mu.Lock()
	made.apply()
	if err == nil && (sub.generation != generation || sub.lost) {
		err = fmt.Errorf("client: CreateMonitoredItems: %w", errors.Join(ua.StatusBadConnectionClosed, errors.New("the subscription was lost")))
	}
	var left []leavingItem // at the server, of a call that has failed
	for _, it := range items {
		it.pending = false
		if err != nil || it.err != nil {
			delete(sub.items, it.handle)
		}
		if err != nil && it.err == nil && it.id != 0 && sub.generation == generation {
			left = append(left, leavingItem{it, it.id})
		}
	}
	sub.mu.Unlock()
	if err != nil {
		if len(left) > 0 {
			s.background(func() { s.discardItems(l, id, left) })
		}
		return nil, err
	}
	return items, nil
}

// madeBy lists the items that an answer brings.
func madeBy(rs *ua.CreateMonitoredItemsResponse) (items []leavingItem) {
	for _, r := range rs.Results {
		if r != nil && !isBad(r.StatusCode) {
			items = append(items, leavingItem{id: r.MonitoredItemID})
		}
	}
	return items
}

// created is what the server said of items; apply notes it in them, under the
// subscription's mutex.
type created []createdItem

type createdItem struct {
	item *Item
	id   uint32
	err  error
}

func (c created) apply() {
	for _, r := range c {
		r.item.id, r.item.err = r.id, r.err
	}
}

// createItems makes items at the server, in as many requests as its limits and its
// message size want. An item that fits in no message gets the error, not the call.
func (s *Session) createItems(ctx context.Context, do caller, sub *Subscription, id uint32, items []*Item, limits *operationLimits) (created, error) {
	return split(items, limits.monitored, func(part []*Item) ([]createdItem, error) {
		made, err := createSome(ctx, do, id, sub.opts.Timestamps, part)
		switch {
		case err == nil || !tooMuch(err):
		case len(part) == 1 && !errors.Is(err, ua.StatusBadTooManyOperations):
			return created{{item: part[0], err: fmt.Errorf("client: monitor %v: %w", part[0].NodeID, err)}}, nil
		case !unexecuted(err): // the server may have made them, and only its answer was too large
			sub.mu.Lock()
			sub.rename(part)
			sub.mu.Unlock()
		}
		return made, err
	})
}

// createSome makes the items of one request.
func createSome(ctx context.Context, do caller, id uint32, ts ua.TimestampsToReturn, items []*Item) (created, error) {
	rq := &ua.CreateMonitoredItemsRequest{SubscriptionID: id, TimestampsToReturn: ts}
	for _, it := range items {
		rq.ItemsToCreate = append(rq.ItemsToCreate, it.request(it.handle))
	}
	msg, err := do(ctx, rq)
	if err != nil {
		return nil, err
	}
	rs, err := as[*ua.CreateMonitoredItemsResponse](msg)
	if err != nil {
		return nil, err
	}
	if err := results(rq, rs.Results, len(items)); err != nil {
		return nil, err
	}
	made := make(created, len(items))
	for i, r := range rs.Results {
		c := &made[i]
		c.item = items[i]
		switch {
		case r == nil:
			c.err = unknownResponse("no result for an item")
		case isBad(r.StatusCode):
			c.err = fmt.Errorf("client: monitor %v: %w", c.item.NodeID, r.StatusCode)
		default:
			c.id = r.MonitoredItemID
		}
	}
	return made, nil
}

// rename gives items new client handles before they are made once more: what comes
// of the first ones is not theirs any more, so no value comes twice. sub.mu is held.
func (sub *Subscription) rename(items []*Item) {
	for _, it := range items {
		if sub.items[it.handle] == it {
			delete(sub.items, it.handle)
			it.handle, it.again = sub.session.handles.Add(1), true
			sub.items[it.handle] = it
		}
	}
}

// Err is why the server does not monitor the item; nil when it does.
func (it *Item) Err() error {
	it.sub.mu.Lock()
	defer it.sub.mu.Unlock()
	return it.err
}

// Items returns the subscription's items.
func (sub *Subscription) Items() []*Item {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	all := make([]*Item, 0, len(sub.items))
	for _, it := range sub.items {
		if !it.pending {
			all = append(all, it)
		}
	}
	return all
}

// same says whether a value is the last one that was delivered, sent once more
// because the item was made anew. Without a source timestamp nobody can tell.
func (it *Item) same(v *ua.DataValue) bool {
	if !it.again {
		return false
	}
	it.again = false
	l := it.last
	if l == nil || v.SourceTimestamp.IsZero() || !v.SourceTimestamp.Equal(l.SourceTimestamp) || v.Status != l.Status {
		return false
	}
	a, errA := uabinary.DataValueOf(l)
	b, errB := uabinary.DataValueOf(v)
	return errA == nil && errB == nil && a.Value.Equal(b.Value)
}
