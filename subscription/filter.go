package subscription

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// filter is a DataChangeFilter (OPC 10000-4 §7.22.2). The zero value is what holds without one: report changes of status
// or value.
type filter struct {
	trigger  ua.DataChangeTrigger
	deadband uint32 // ua.DeadbandType
	value    float64
	euRange  *addressspace.Node // of a percent deadband; its value is looked up each time, it may change
}

var defaultFilter = filter{trigger: ua.DataChangeTriggerStatusValue}

// parseFilter checks the filter of a request for one attribute of a node. sample is the current value, whose type counts
// where the node's DataType says nothing.
func parseFilter(x *ua.ExtensionObject, attribute ua.AttributeID, node *addressspace.Node, sample *uabinary.DataValue) (filter, ua.StatusCode) {
	if noFilter(x) {
		return defaultFilter, ua.StatusOK
	}
	switch f := x.Value.(type) {
	case *ua.DataChangeFilter:
		return dataChangeFilter(f, attribute, node, sample)
	case ua.DataChangeFilter:
		return dataChangeFilter(&f, attribute, node, sample)
	case *ua.EventFilter: // for events only, see CreateMonitoredItems
		return filter{}, ua.StatusBadFilterNotAllowed
	case *ua.AggregateFilter:
		return filter{}, ua.StatusBadMonitoredItemFilterUnsupported
	}
	return filter{}, ua.StatusBadMonitoredItemFilterInvalid
}

func noFilter(x *ua.ExtensionObject) bool {
	if x == nil {
		return true
	}
	if x.Value != nil || x.TypeID == nil || x.TypeID.NodeID == nil {
		return x.Value == nil
	}
	return uabinary.NodeIDOf(x.TypeID.NodeID).IsNull()
}

func dataChangeFilter(f *ua.DataChangeFilter, attribute ua.AttributeID, node *addressspace.Node, sample *uabinary.DataValue) (filter, ua.StatusCode) {
	if f.Trigger > ua.DataChangeTriggerStatusValueTimestamp {
		return filter{}, ua.StatusBadMonitoredItemFilterInvalid
	}
	out := filter{trigger: f.Trigger, deadband: f.DeadbandType, value: f.DeadbandValue}
	if attribute != ua.AttributeIDValue {
		return filter{}, ua.StatusBadFilterNotAllowed
	}
	switch ua.DeadbandType(f.DeadbandType) {
	case ua.DeadbandTypeNone:
		out.value = 0
		return out, ua.StatusOK
	case ua.DeadbandTypeAbsolute, ua.DeadbandTypePercent:
	default:
		return filter{}, ua.StatusBadDeadbandFilterInvalid
	}
	if !(f.DeadbandValue >= 0) || math.IsInf(f.DeadbandValue, 0) { // also NaN
		return filter{}, ua.StatusBadDeadbandFilterInvalid
	}
	if !numericNode(node, sample) {
		return filter{}, ua.StatusBadFilterNotAllowed
	}
	if ua.DeadbandType(f.DeadbandType) == ua.DeadbandTypePercent {
		// OPC 10000-8 §6.2 (PercentDeadband): 0 to 100 % of an EURange that must be there.
		out.euRange = node.Property("EURange")
		if f.DeadbandValue > 100 || out.euRange == nil {
			return filter{}, ua.StatusBadDeadbandFilterInvalid
		}
		if _, ok := rangeWidth(out.euRange); !ok {
			return filter{}, ua.StatusBadDeadbandFilterInvalid
		}
	}
	return out, ua.StatusOK
}

// numericNode reports whether a deadband makes sense: the value is numeric, or there is none and the DataType is.
func numericNode(node *addressspace.Node, sample *uabinary.DataValue) bool {
	if sample != nil && sample.Mask&ua.DataValueValue != 0 && !sample.Value.IsNull() {
		_, size := numericType(sample.Value.Type())
		return size != 0
	}
	number := node.Space().Lookup(uabinary.NumericID(0, id.Number))
	return number != nil && addressspace.SubtypeOf(node.DataType(), number)
}

// rangeWidth reads a Range (OPC 10000-8 §5.6.2): two Doubles, low and high.
func rangeWidth(n *addressspace.Node) (float64, bool) {
	dv := n.Value()
	if dv == nil {
		return 0, false
	}
	x, ok := dv.Value.ExtensionObject()
	if !ok || len(x.Body) != 16 {
		return 0, false
	}
	low := math.Float64frombits(binary.LittleEndian.Uint64(x.Body))
	high := math.Float64frombits(binary.LittleEndian.Uint64(x.Body[8:]))
	w := high - low
	return w, w >= 0 && !math.IsInf(w, 0)
}

// passes reports whether v is to be reported after old, the last reported value.
func (f *filter) passes(old, v *uabinary.DataValue) bool {
	if status(old) != status(v) {
		return true
	}
	if f.trigger == ua.DataChangeTriggerStatus {
		return false
	}
	if f.deadband == uint32(ua.DeadbandTypeNone) {
		if f.trigger == ua.DataChangeTriggerStatusValueTimestamp && sourceTime(old) != sourceTime(v) {
			return true
		}
		return !bytes.Equal(encoded(old), encoded(v)) && !(isNaN(old.Value) && isNaN(v.Value))
	}
	// With a deadband, the trigger on timestamps is as the one on values.
	width := f.value
	if f.deadband == uint32(ua.DeadbandTypePercent) {
		w, ok := rangeWidth(f.euRange)
		if !ok { // the range became unusable: no value is hidden
			return !bytes.Equal(encoded(old), encoded(v))
		}
		width = w * f.value / 100
	}
	return outside(old.Value, v.Value, width)
}

func status(v *uabinary.DataValue) ua.StatusCode {
	if v.Mask&ua.DataValueStatusCode == 0 {
		return ua.StatusOK
	}
	return v.Status
}

func sourceTime(v *uabinary.DataValue) uabinary.DateTime {
	if v.Mask&ua.DataValueSourceTimestamp == 0 {
		return 0
	}
	return v.SourceTimestamp
}

func encoded(v *uabinary.DataValue) []byte {
	if v.Mask&ua.DataValueValue == 0 {
		return nil
	}
	return v.Value.Encoded()
}

type numericKind uint8

const (
	kindSigned numericKind = iota
	kindUnsigned
	kindFloat
)

// numericType returns the kind and the encoded size of a numeric built-in type, size 0 for the others.
func numericType(t ua.TypeID) (kind numericKind, size int) {
	switch t {
	case ua.TypeIDSByte:
		return kindSigned, 1
	case ua.TypeIDByte:
		return kindUnsigned, 1
	case ua.TypeIDInt16:
		return kindSigned, 2
	case ua.TypeIDUint16:
		return kindUnsigned, 2
	case ua.TypeIDInt32:
		return kindSigned, 4
	case ua.TypeIDUint32:
		return kindUnsigned, 4
	case ua.TypeIDInt64:
		return kindSigned, 8
	case ua.TypeIDUint64:
		return kindUnsigned, 8
	case ua.TypeIDFloat:
		return kindFloat, 4
	case ua.TypeIDDouble:
		return kindFloat, 8
	}
	return 0, 0
}

// numbers returns the encoded elements of a numeric variant: one for a scalar.
func numbers(v uabinary.Variant) (kind numericKind, size int, data []byte) {
	kind, size = numericType(v.Type())
	if size == 0 {
		return kind, 0, nil
	}
	b, n := v.Encoded(), v.Len()
	skip := 1
	if n < 0 {
		n = 1
	} else {
		skip = 5
	}
	if len(b) < skip+n*size {
		return kind, 0, nil
	}
	return kind, size, b[skip : skip+n*size]
}

// outside reports whether v leaves the deadband around old. For arrays one element that does is enough; values of another
// type or length do.
func outside(old, v uabinary.Variant, width float64) bool {
	if old.Type() != v.Type() || old.Len() != v.Len() {
		return true
	}
	kind, size, a := numbers(old)
	_, _, b := numbers(v)
	if size == 0 || len(a) != len(b) {
		return !bytes.Equal(old.Encoded(), v.Encoded())
	}
	for ; len(a) >= size; a, b = a[size:], b[size:] {
		var d float64
		switch kind {
		case kindFloat:
			x, y := float(a, size), float(b, size)
			if x == y || math.IsNaN(x) && math.IsNaN(y) {
				continue
			}
			if d = math.Abs(x - y); math.IsNaN(d) { // one of them is NaN, or both are the same infinity
				return true
			}
		case kindSigned:
			x, y := signed(a, size), signed(b, size)
			d = float64(uint64(max(x, y)) - uint64(min(x, y)))
		case kindUnsigned:
			x, y := unsigned(a, size), unsigned(b, size)
			d = float64(max(x, y) - min(x, y))
		}
		if d > width {
			return true
		}
	}
	return false
}

func unsigned(b []byte, size int) uint64 {
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

func signed(b []byte, size int) int64 {
	shift := 64 - 8*size
	return int64(unsigned(b, size)<<shift) >> shift
}

func float(b []byte, size int) float64 {
	if size == 4 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

func isNaN(v uabinary.Variant) bool {
	b := v.Encoded()
	switch {
	case len(b) == 9 && ua.TypeID(b[0]) == ua.TypeIDDouble:
		return math.IsNaN(float(b[1:], 8))
	case len(b) == 5 && ua.TypeID(b[0]) == ua.TypeIDFloat:
		return math.IsNaN(float(b[1:], 4))
	}
	return false
}
