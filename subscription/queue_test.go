package subscription

import (
	"fmt"
	"math"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

func numbered(n int) entry {
	return entry{value: &uabinary.DataValue{Mask: ua.DataValueValue, Value: uabinary.Int32(int32(n))}}
}

// contents writes a queue as "1 2* 3": * marks the overflow bit.
func contents(q *queue) string {
	s := ""
	for i := range q.n {
		n, _ := q.at(i).value.Value.Int64()
		s += fmt.Sprint(n)
		if q.at(i).overflow {
			s += "*"
		}
		s += " "
	}
	return s
}

// OPC 10000-4 §5.13.1.5, Queue parameters.
func TestQueueOverflow(t *testing.T) {
	for _, c := range []struct {
		name          string
		size          uint32
		discardOldest bool
		pushes        int
		want          string
	}{
		{"§5.13.1.5 size 1 keeps the newest without overflow bit", 1, true, 5, "5 "},
		{"§5.13.1.5 size 1 ignores discardOldest", 1, false, 5, "5 "},
		{"§5.13.1.5 full but not over", 3, true, 3, "1 2 3 "},
		{"§5.13.1.5 discardOldest marks the oldest left", 3, true, 5, "3* 4 5 "},
		{"§5.13.1.5 keeping the oldest marks the newest", 3, false, 5, "1 2 5* "},
		{"a larger ring", 10, true, 25, "16* 17 18 19 20 21 22 23 24 25 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			var q queue
			for i := range c.pushes {
				q.push(numbered(i+1), c.size, c.discardOldest)
			}
			if got := contents(&q); got != c.want {
				t.Errorf("queue holds %q, want %q", got, c.want)
			}
		})
	}
}

func TestQueueResize(t *testing.T) {
	for _, c := range []struct {
		name          string
		to            uint32
		discardOldest bool
		want          string
	}{
		{"larger", 8, true, "1 2 3 4 5 "},
		{"smaller, oldest go", 3, true, "3* 4 5 "},
		{"smaller, newest stays", 3, false, "1 2 5* "},
		{"to one", 1, true, "5 "},
		{"to one, discardOldest is ignored", 1, false, "5 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			var q queue
			for i := range 5 {
				q.push(numbered(i+1), 5, true)
			}
			q.resize(c.to, c.discardOldest)
			if got := contents(&q); got != c.want {
				t.Errorf("queue holds %q, want %q", got, c.want)
			}
			if c.to < 5 && len(q.ring) > int(c.to) {
				t.Errorf("ring of %d for a queue of %d", len(q.ring), c.to)
			}
			for i := range 3 {
				q.push(numbered(6+i), c.to, true)
			}
			if q.n > c.to {
				t.Errorf("%d entries in a queue of %d", q.n, c.to)
			}
		})
	}
}

// Against a plain slice, through every order of pushes and drops.
func TestQueueModel(t *testing.T) {
	for size := uint32(1); size <= 20; size++ {
		var q queue
		var model []int
		n := 0
		for step := range 500 {
			if step%7 < 4 || len(model) == 0 {
				n++
				q.push(numbered(n), size, true)
				if model = append(model, n); len(model) > int(size) {
					model = model[1:]
				}
			} else {
				q.drop()
				model = model[1:]
			}
			if int(q.n) != len(model) {
				t.Fatalf("size %d: %d entries, want %d", size, q.n, len(model))
			}
			for i, want := range model {
				if got, _ := q.at(uint32(i)).value.Value.Int64(); int(got) != want {
					t.Fatalf("size %d: entry %d is %d, want %d", size, i, got, want)
				}
			}
		}
	}
}

func TestNotificationTimestamps(t *testing.T) {
	e := entry{at: 42, value: &uabinary.DataValue{
		Mask:  ua.DataValueValue | ua.DataValueSourceTimestamp | ua.DataValueSourcePicoseconds | ua.DataValueServerTimestamp,
		Value: uabinary.Double(1), SourceTimestamp: 7, SourcePicoseconds: 3, ServerTimestamp: 9,
	}}
	for _, c := range []struct {
		timestamps ua.TimestampsToReturn
		mask       byte
	}{
		{ua.TimestampsToReturnSource, ua.DataValueValue | ua.DataValueSourceTimestamp | ua.DataValueSourcePicoseconds},
		{ua.TimestampsToReturnServer, ua.DataValueValue | ua.DataValueServerTimestamp},
		{ua.TimestampsToReturnBoth, ua.DataValueValue | ua.DataValueSourceTimestamp | ua.DataValueSourcePicoseconds | ua.DataValueServerTimestamp},
		{ua.TimestampsToReturnNeither, ua.DataValueValue},
	} {
		for _, overflow := range []bool{false, true} {
			e.overflow = overflow
			d := uabinary.NewDecoder(appendNotification(nil, 5, &e, c.timestamps), nil)
			if d.UInt32() != 5 {
				t.Error("client handle")
			}
			v := d.DataValue()
			mask, status := c.mask, ua.StatusOK
			if overflow {
				mask, status = mask|ua.DataValueStatusCode, 0x480
			}
			if d.Err() != nil || d.Remaining() != 0 || v.Mask != mask || v.Status != status {
				t.Errorf("%v: mask %#x, status %#x, want %#x, %#x", c.timestamps, v.Mask, uint32(v.Status), mask, uint32(status))
			}
			if mask&ua.DataValueServerTimestamp != 0 && v.ServerTimestamp != 42 {
				t.Errorf("server timestamp %d, want the time of the sample", v.ServerTimestamp)
			}
		}
	}
}

func value(v any) *uabinary.DataValue {
	vt, err := uabinary.NewVariant(v)
	if err != nil {
		panic(err)
	}
	return &uabinary.DataValue{Mask: ua.DataValueValue, Value: vt}
}

// OPC 10000-4 §7.22.2, DataChangeFilter.
func TestFilterPasses(t *testing.T) {
	withStatus := func(v *uabinary.DataValue, c ua.StatusCode) *uabinary.DataValue {
		w := *v
		w.Mask |= ua.DataValueStatusCode
		w.Status = c
		return &w
	}
	withTime := func(v *uabinary.DataValue, at uabinary.DateTime) *uabinary.DataValue {
		w := *v
		w.Mask |= ua.DataValueSourceTimestamp
		w.SourceTimestamp = at
		return &w
	}
	absolute := func(w float64) filter {
		return filter{trigger: ua.DataChangeTriggerStatusValue, deadband: uint32(ua.DeadbandTypeAbsolute), value: w}
	}
	status := filter{trigger: ua.DataChangeTriggerStatus}
	both := filter{trigger: ua.DataChangeTriggerStatusValueTimestamp}
	nan := math.NaN()
	for _, c := range []struct {
		name     string
		f        filter
		old, new *uabinary.DataValue
		want     bool
	}{
		{"default: same value", defaultFilter, value(1.5), value(1.5), false},
		{"default: other value", defaultFilter, value(1.5), value(1.6), true},
		{"default: other type", defaultFilter, value(int32(1)), value(uint32(1)), true},
		{"default: status", defaultFilter, value(1.5), withStatus(value(1.5), ua.StatusUncertainInitialValue), true},
		{"default: explicit Good is no change", defaultFilter, value(1.5), withStatus(value(1.5), ua.StatusOK), false},
		{"default: timestamp only", defaultFilter, withTime(value(1.5), 1), withTime(value(1.5), 2), false},
		{"default: NaN stays NaN", defaultFilter, value(nan), value(math.Float64frombits(0x7ff8000000000123)), false},
		{"STATUS: value", status, value(1.5), value(2.5), false},
		{"STATUS: status", status, value(1.5), withStatus(value(1.5), ua.StatusBadSensorFailure), true},
		{"STATUS_VALUE_TIMESTAMP: timestamp", both, withTime(value(1.5), 1), withTime(value(1.5), 2), true},
		{"STATUS_VALUE_TIMESTAMP: nothing", both, withTime(value(1.5), 1), withTime(value(1.5), 1), false},
		{"absolute: on the band", absolute(0.5), value(1.0), value(1.5), false},
		{"absolute: beyond", absolute(0.5), value(1.0), value(1.51), true},
		{"absolute: downwards", absolute(0.5), value(1.0), value(0.4), true},
		{"absolute: zero band, same value", absolute(0), value(1.0), value(1.0), false},
		{"absolute: zero band, any change", absolute(0), value(1.0), value(1.0000001), true},
		{"absolute: status wins", absolute(100), value(1.0), withStatus(value(1.0), ua.StatusBadSensorFailure), true},
		{"absolute: float", absolute(1), value(float32(1)), value(float32(2.5)), true},
		{"absolute: signed", absolute(10), value(int16(-5)), value(int16(6)), true},
		{"absolute: signed inside", absolute(11), value(int16(-5)), value(int16(6)), false},
		{"absolute: whole range of Int64", absolute(1), value(int64(math.MinInt64)), value(int64(math.MaxInt64)), true},
		{"absolute: large UInt64 keep their last digit", absolute(0), value(uint64(1 << 60)), value(uint64(1<<60 + 1)), true},
		{"absolute: unsigned downwards", absolute(1), value(uint8(5)), value(uint8(3)), true},
		{"absolute: to NaN", absolute(1), value(1.0), value(nan), true},
		{"absolute: from NaN", absolute(1), value(nan), value(1.0), true},
		{"absolute: NaN stays", absolute(1), value(nan), value(nan), false},
		{"absolute: to infinity", absolute(1), value(1.0), value(math.Inf(1)), true},
		{"absolute: infinity stays", absolute(1), value(math.Inf(1)), value(math.Inf(1)), false},
		{"absolute: array, all inside", absolute(1), value([]float64{1, 2, 3}), value([]float64{1.5, 2.5, 3.5}), false},
		{"absolute: array, one element beyond", absolute(1), value([]float64{1, 2, 3}), value([]float64{1, 2, 5}), true},
		{"absolute: array, other length", absolute(10), value([]int32{1, 2}), value([]int32{1, 2, 3}), true},
		{"absolute: value becomes text", absolute(10), value(1.0), value("x"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.f.passes(c.old, c.new); got != c.want {
				t.Errorf("passes = %v, want %v", got, c.want)
			}
		})
	}
}

func TestRetransmissionQueueIsBounded(t *testing.T) { // hostile.md A26
	l := Limits{MaxRetransmissionMessages: 3, MaxRetransmissionBytes: 100}.resolved()
	var r retransmission
	for i := range uint32(10) {
		r.add(message{i + 1, make([]byte, 10)}, &l, 0)
	}
	if got := fmt.Sprint(r.sequences()); got != "[8 9 10]" || r.bytes != 30 {
		t.Errorf("holds %s, %d bytes", got, r.bytes)
	}
	r.add(message{11, make([]byte, 85)}, &l, 0)
	if got := fmt.Sprint(r.sequences()); got != "[10 11]" {
		t.Errorf("after a large message it holds %s", got)
	}
	r.add(message{12, make([]byte, 500)}, &l, 0)
	if got := fmt.Sprint(r.sequences()); got != "[12]" {
		t.Errorf("the newest is not kept: %s", got)
	}
	if r.acknowledge(11) || !r.acknowledge(12) || r.acknowledge(12) || r.bytes != 0 {
		t.Errorf("acknowledging: %d bytes left", r.bytes)
	}
}

// Memory of all subscriptions together: who comes last gives up what is its own.
func TestRetransmissionTotalIsBounded(t *testing.T) {
	l := Limits{MaxTotalRetransmissionBytes: 1 << 20}.resolved()
	var r retransmission
	for i := range uint32(5) {
		r.add(message{i + 1, make([]byte, 100<<10)}, &l, 700<<10)
	}
	if got := fmt.Sprint(r.sequences()); got != "[3 4 5]" {
		t.Errorf("holds %s beside 700 KiB of others", got)
	}
	r.add(message{6, make([]byte, 100<<10)}, &l, 1<<20)
	if len(r.messages) != 0 {
		t.Errorf("keeps a large message although the total is used up: %v", r.sequences())
	}
	r.add(message{7, make([]byte, 100)}, &l, 1<<20)
	if got := fmt.Sprint(r.sequences()); got != "[7]" {
		t.Errorf("does not keep a small one: %s", got)
	}
}

func TestSequenceNumbersSkipZero(t *testing.T) { // OPC 10000-4 §7.26 NotificationMessage
	if n := nextSequence(math.MaxUint32); n != 1 {
		t.Errorf("after the largest comes %d", n)
	}
	if n := nextSequence(0); n != 1 {
		t.Errorf("the first is %d", n)
	}
}
