package subscription

import (
	"bytes"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// item is a MonitoredItem. Its fields are guarded by sub.mu, except those that never change.
type item struct {
	sub  *subscription      // never changes
	node *addressspace.Node // changes only when the node was deleted and added again
	ask  *ask               // nil for what nearly all ask for: the whole Value

	group    *group  // where it is sampled; nil while disabled
	links    []*item // SetTriggering: the items this one triggers
	readNext *item   // list of items with something to report

	last     *uabinary.DataValue // last sample: the same pointer means no change
	reported *uabinary.DataValue // last sample that passed the filter
	queue    queue
	filter   *filter // nil: the default

	id, clientHandle uint32 // id never changes
	size             uint32 // revised queue size
	place            int32  // index in group.items
	cost             int32  // of sampling, as charged
	interval         int64  // revised sampling interval in ns; 0 on each change, follow with the publishing interval
	mode             ua.MonitoringMode
	timestamps       ua.TimestampsToReturn
	flags            itemFlags
}

type itemFlags uint16

const (
	flagDiscardOldest itemFlags = 1 << iota
	flagReady                   // counted in sub.ready: something to report
	flagListed                  // in the list of ready items, perhaps not ready any more
	flagTriggered               // a triggering item has asked for its queue
	flagDenied                  // the caller may not read; audit says when that changes
	flagDead                    // deleted
)

func (it *item) is(f itemFlags) bool { return it.flags&f != 0 }

func (it *item) set(f itemFlags, on bool) {
	if on {
		it.flags |= f
	} else {
		it.flags &^= f
	}
}

// follow is the interval of items that are sampled with each publishing cycle.
const follow int64 = -1

// ask is what an item asks for beyond the whole Value of its node. It never changes.
type ask struct {
	attribute ua.AttributeID
	rangeText []byte
	indexes   uabinary.NumericRange
	encoding  uabinary.QualifiedName
}

func (it *item) attribute() ua.AttributeID {
	if it.ask == nil {
		return ua.AttributeIDValue
	}
	return it.ask.attribute
}

// stored reports whether samples can be taken from node.Value, without a call that may run code of the host or take locks.
func stored(n *addressspace.Node, a ua.AttributeID) bool {
	return a == ua.AttributeIDValue && !n.Dynamic()
}

// read is the operand with which the address space is asked for the item's value.
func (it *item) read(now uabinary.DateTime, c *addressspace.Caller) addressspace.Read {
	rd := addressspace.Read{
		Node: it.node, Attribute: uint32(it.attribute()), Timestamps: ua.TimestampsToReturnBoth, Now: now, Caller: c,
	}
	if it.ask != nil {
		rd.IndexRange, rd.DataEncoding = it.ask.rangeText, it.ask.encoding
	}
	return rd
}

var nullValue = uabinary.DataValue{Mask: ua.DataValueValue}

// observe takes v, the node's stored value, as a sample. sub.mu is held.
func (s *subscription) observe(it *item, v *uabinary.DataValue, now uabinary.DateTime) {
	if v == nil {
		v = &nullValue
	}
	if v == it.last {
		return
	}
	it.last = v
	if it.ask != nil && !it.ask.indexes.IsZero() && v.Mask&ua.DataValueValue != 0 {
		part, code := v.Value.Range(it.ask.indexes)
		ranged := *v
		ranged.Value = part
		if code != ua.StatusOK {
			ranged = uabinary.DataValue{Mask: ua.DataValueStatusCode, Status: code}
		}
		v = &ranged
	}
	s.sample(it, v, now)
}

// sample runs a sample through the filter into the queue. sub.mu is held; v does not change any more.
func (s *subscription) sample(it *item, v *uabinary.DataValue, now uabinary.DateTime) {
	if it.reported != nil {
		f := it.filter
		if f == nil {
			f = &defaultFilter
		}
		if !f.passes(it.reported, v) {
			return
		}
	}
	it.reported = v
	s.enqueue(it, entry{value: v, at: now})
	for _, linked := range it.links {
		// §5.13.1.6 (Triggering model): only items that are sampled but not reported are triggered.
		if linked.mode == ua.MonitoringModeSampling && linked.queue.n > 0 {
			linked.set(flagTriggered, true)
			s.refresh(linked)
		}
	}
}

// enqueue queues e for it. Where the bytes of large values have used up their share, the queue is full as it is. sub.mu is
// held.
func (s *subscription) enqueue(it *item, e entry) {
	before, size := it.queue.bytes, it.size
	w := e.weight()
	if w > 0 && it.queue.n > 0 && it.queue.n < size && !s.roomFor(w) {
		size = it.queue.n
	}
	if it.queue.push(e, size, it.is(flagDiscardOldest)) {
		s.overflows++
	}
	if size < it.size {
		it.queue.at(0).overflow = it.queue.at(0).overflow || size == 1
	}
	s.settle(it.queue.bytes - before)
	s.refresh(it)
}

func (s *subscription) roomFor(bytes int) bool {
	l := s.engine.limits.Load()
	return s.queuedBytes+bytes <= l.MaxQueuedBytesPerSubscription && s.engine.queuedBytes.Load()+int64(bytes) <= int64(l.MaxQueuedBytes)
}

// settle charges a change of the bytes in queues. sub.mu is held.
func (s *subscription) settle(bytes int) {
	if bytes != 0 {
		s.queuedBytes += bytes
		s.engine.queuedBytes.Add(int64(bytes))
	}
}

// empty drops what is queued. sub.mu is held.
func (s *subscription) empty(it *item) {
	s.settle(-it.queue.bytes)
	it.queue.clear()
}

// same reports whether a sample that had to be read equals the one before, so that no copy needs to be kept.
func same(a, b *uabinary.DataValue) bool {
	return a != nil && status(a) == status(b) && sourceTime(a) == sourceTime(b) && bytes.Equal(encoded(a), encoded(b))
}

// refresh keeps the count and list of ready items in step with one item. sub.mu is held.
func (s *subscription) refresh(it *item) {
	ready := !it.is(flagDead) && it.queue.n > 0 &&
		(it.mode == ua.MonitoringModeReporting || it.mode == ua.MonitoringModeSampling && it.is(flagTriggered))
	if ready == it.is(flagReady) {
		return
	}
	it.set(flagReady, ready)
	if !ready {
		if s.ready--; s.ready == 0 {
			s.clearList()
		}
		return
	}
	s.ready++
	if it.is(flagListed) {
		return
	}
	it.set(flagListed, true)
	if s.listTail == nil {
		s.listHead = it
	} else {
		s.listTail.readNext = it
	}
	s.listTail = it
}

// clearList forgets the items that are listed but no longer ready.
func (s *subscription) clearList() {
	for s.listHead != nil {
		s.unlist()
	}
}

// unlist takes the first item off the list.
func (s *subscription) unlist() {
	it := s.listHead
	s.listHead, it.readNext = it.readNext, nil
	if s.listHead == nil {
		s.listTail = nil
	}
	it.set(flagListed, false)
}

// resend queues the last value of every reporting item whose queue is empty once more (SendInitialValues of
// TransferSubscriptions, the method ResendData). sub.mu is held.
func (s *subscription) resend(now uabinary.DateTime) {
	for _, it := range s.items {
		if it.mode == ua.MonitoringModeReporting && it.queue.n == 0 && it.reported != nil {
			s.enqueue(it, entry{value: it.reported, at: now})
		}
	}
}
