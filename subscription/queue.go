package subscription

import (
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// overflowBits mark the DataValue next to a discarded one: InfoType DataValue and Overflow (OPC 10000-4 §7.39, StatusCode).
const overflowBits ua.StatusCode = 0x480

// entry is one queued notification. The value is shared with the node and with other items.
type entry struct {
	value    *uabinary.DataValue
	at       uabinary.DateTime // when the server obtained it: the ServerTimestamp
	overflow bool
}

// queue is the queue of a MonitoredItem (OPC 10000-4 §5.13.1.5, Queue parameters): a ring that grows on demand up to the
// size the item has, and needs no memory of its own for one entry.
type queue struct {
	one     [1]entry
	ring    []entry // nil: one is used
	head, n uint32
	bytes   int // weight of all entries
}

// weight is what a queued value counts: small ones are bounded by their number.
func (e *entry) weight() int {
	if e.value == nil || e.value.Mask&ua.DataValueValue == 0 {
		return 0
	}
	if n := len(e.value.Value.Encoded()); n > 256 {
		return n
	}
	return 0
}

func (q *queue) at(i uint32) *entry {
	if q.ring == nil {
		return &q.one[0]
	}
	if i += q.head; i >= uint32(len(q.ring)) {
		i -= uint32(len(q.ring))
	}
	return &q.ring[i]
}

// push appends e to a queue of the given size (at least 1) and reports whether that made it overflow.
func (q *queue) push(e entry, size uint32, discardOldest bool) (overflow bool) {
	switch {
	case size == 1: // a buffer for the newest value; neither discardOldest nor the overflow bit apply
		q.n, q.bytes = 0, 0
	case q.n < size:
		q.grow(size)
	case discardOldest:
		q.drop()
		q.at(0).overflow, overflow = true, true
	default: // the newest makes room
		q.n--
		q.bytes -= q.at(q.n).weight()
		e.overflow, overflow = true, true
	}
	q.n++
	q.bytes += e.weight()
	*q.at(q.n - 1) = e
	return overflow
}

// grow makes room for one more entry.
func (q *queue) grow(size uint32) {
	have := max(uint32(len(q.ring)), 1)
	if q.n < have {
		return
	}
	ring := make([]entry, min(max(2*have, 4), size))
	for i := range q.n {
		ring[i] = *q.at(i)
	}
	q.one[0] = entry{}
	q.ring, q.head = ring, 0
}

// drop removes the oldest entry. A ring that was large is given back when it has run empty.
func (q *queue) drop() {
	q.bytes -= q.at(0).weight()
	*q.at(0) = entry{}
	q.n--
	if q.n == 0 {
		q.head = 0
		if len(q.ring) > 16 {
			q.ring = nil
		}
		return
	}
	if q.head++; q.head == uint32(len(q.ring)) {
		q.head = 0
	}
}

func (q *queue) clear() { *q = queue{} }

// resize adapts to a new size, discarding what does not fit any more.
func (q *queue) resize(size uint32, discardOldest bool) {
	lost := q.n > size
	if lost {
		newest := *q.at(q.n - 1)
		for q.n > size {
			if discardOldest || size == 1 {
				q.drop()
				continue
			}
			q.bytes -= q.at(q.n - 1).weight()
			*q.at(q.n - 1) = entry{}
			q.n--
		}
		q.bytes += newest.weight() - q.at(q.n-1).weight()
		*q.at(q.n - 1) = newest
	}
	if lost && size > 1 {
		if discardOldest {
			q.at(0).overflow = true
		} else {
			q.at(q.n - 1).overflow = true
		}
	}
	if q.ring != nil && len(q.ring) > int(size) {
		ring := make([]entry, size)
		for i := range q.n {
			ring[i] = *q.at(i)
		}
		q.ring, q.head = ring, 0
	}
}

// appendNotification appends a MonitoredItemNotification (OPC 10000-4 §7.25.2, DataChangeNotification).
func appendNotification(b []byte, clientHandle uint32, e *entry, timestamps ua.TimestampsToReturn) []byte {
	dv := *e.value
	dv.Mask &^= ua.DataValueServerTimestamp | ua.DataValueServerPicoseconds
	if timestamps == ua.TimestampsToReturnServer || timestamps == ua.TimestampsToReturnNeither {
		dv.Mask &^= ua.DataValueSourceTimestamp | ua.DataValueSourcePicoseconds
	}
	if timestamps == ua.TimestampsToReturnServer || timestamps == ua.TimestampsToReturnBoth {
		dv.Mask |= ua.DataValueServerTimestamp
		dv.ServerTimestamp = e.at
	}
	if dv.Mask&ua.DataValueStatusCode == 0 {
		dv.Status = ua.StatusOK
	}
	if e.overflow {
		dv.Mask |= ua.DataValueStatusCode
		dv.Status |= overflowBits
	}
	return uabinary.AppendDataValue(uabinary.AppendUint32(b, clientHandle), &dv)
}
