package uabinary

import (
	"math"
	"testing"
	"time"
)

// OPC 10000-6 §5.2.2.5, DateTime: what is out of range is cut to the smallest and the largest value.
func TestDateTime(t *testing.T) {
	date := func(y int, m time.Month, d, h, min, s, ns int) time.Time {
		return time.Date(y, m, d, h, min, s, ns, time.UTC)
	}
	last := date(9999, 12, 31, 23, 59, 59, 0)
	for _, c := range []struct {
		name string
		t    time.Time
		want DateTime
		back time.Time
	}{
		{"zero time.Time", time.Time{}, 0, time.Time{}},
		{"before 1601", date(1066, 10, 14, 9, 0, 0, 0), 0, time.Time{}},
		{"1601-01-01", date(1601, 1, 1, 0, 0, 0, 0), 0, time.Time{}},
		{"first tick", date(1601, 1, 1, 0, 0, 0, 100), 1, date(1601, 1, 1, 0, 0, 0, 100)},
		{"before 1970", date(1969, 12, 31, 23, 59, 59, 999999900), 116444735999999999, date(1969, 12, 31, 23, 59, 59, 999999900)},
		{"1970", time.Unix(0, 0), 116444736000000000, date(1970, 1, 1, 0, 0, 0, 0)},
		{"digits below 100 ns are cut", time.Unix(0, 199), 116444736000000001, time.Unix(0, 100).UTC()},
		{"other time zone", time.Unix(0, 0).In(time.FixedZone("", 3600)), 116444736000000000, date(1970, 1, 1, 0, 0, 0, 0)},
		{"after 2262, where gopcua ends", date(2300, 1, 1, 0, 0, 0, 0), 220582656000000000, date(2300, 1, 1, 0, 0, 0, 0)},
		{"last but one", last.Add(-time.Second), 2650467743980000000, last.Add(-time.Second)},
		{"last", last, math.MaxInt64, last},
		{"after the last", date(12000, 1, 1, 0, 0, 0, 0), math.MaxInt64, last},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := FromTime(c.t)
			if got != c.want {
				t.Errorf("FromTime = %d, want %d", got, c.want)
			}
			if back := got.Time(); !back.Equal(c.back) {
				t.Errorf("Time = %v, want %v", back, c.back)
			}
		})
	}
	for _, ticks := range []DateTime{-1, math.MinInt64} {
		if got := ticks.Time(); !got.IsZero() {
			t.Errorf("%d is %v", ticks, got)
		}
	}
	if got := DateTime(2650467743990000001).Time(); !got.Equal(last) {
		t.Errorf("later than the last is %v", got)
	}
	if d := time.Since(Now().Time()); d < 0 || d > time.Minute {
		t.Errorf("Now is %v off", d)
	}
}
