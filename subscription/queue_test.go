package subscription

import (
	"fmt"
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
