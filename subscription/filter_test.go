package subscription

import (
	"math"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

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
