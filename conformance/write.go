package conformance

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

func writeValue(node *ua.NodeID, v any) *ua.WriteValue {
	return &ua.WriteValue{NodeID: node, AttributeID: ua.AttributeIDValue,
		Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(v)}}
}

// write writes a value that must be taken.
func (t *T) write(s *probe.Session, node *ua.NodeID, v any) {
	rs := call[*ua.WriteResponse](t, s, &ua.WriteRequest{NodesToWrite: []*ua.WriteValue{writeValue(node, v)}})
	t.Code(rs.Results[0], "write "+node.String(), ua.StatusOK)
}

// writeOne writes and returns the result.
func (t *T) writeOne(s *probe.Session, w *ua.WriteValue) ua.StatusCode {
	return call[*ua.WriteResponse](t, s, &ua.WriteRequest{NodesToWrite: []*ua.WriteValue{w}}).Results[0]
}

var writeCases = []Case{
	{"Attribute Write Values", "what is written is read back, scalars", "OPC 10000-4 §5.11.4", func(t *T) { t.writeAll(t.Target.Nodes.Scalars, "scalars") }},
	{"Attribute Write Values", "what is written is read back, arrays", "OPC 10000-4 §5.11.4", func(t *T) { t.writeAll(t.Target.Nodes.Arrays, "arrays") }},
	{"Attribute Write Values", "what is written is read back, matrices", "OPC 10000-4 §5.11.4", func(t *T) { t.writeAll(t.Target.Nodes.Matrices, "matrices") }},
	{"Attribute Write Values", "the largest and smallest numbers", "OPC 10000-6 §5.2.2", func(t *T) {
		s := t.Session()
		for name, values := range map[string][]any{
			"SByte": {int8(-128), int8(127)}, "Byte": {byte(0), byte(255)}, "Int16": {int16(-32768), int16(32767)}, "UInt16": {uint16(65535)},
			"Int32": {int32(-2147483648), int32(2147483647)}, "UInt32": {uint32(4294967295)}, "Int64": {int64(-9223372036854775808), int64(9223372036854775807)},
			"UInt64": {uint64(18446744073709551615)}, "Double": {1.7976931348623157e308, 5e-324, math.Copysign(0, -1)}, "Float": {float32(3.4028235e38)},
			"String": {"", "Grüße, 世界 \U0001F30A", "a\x00b"}, "ByteString": {[]byte{}, []byte{0, 255}},
		} {
			if t.Target.Nodes.Scalars[name] == "" {
				continue
			}
			node := t.Node(t.Target.Nodes.Scalars[name], name)
			for _, v := range values {
				t.write(s, node, v)
				if got := value(call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, node)).Results[0]); !reflect.DeepEqual(got, v) {
					t.Errorf("%s: wrote %v (%T), read %v (%T)", name, v, v, got, got)
				}
			}
		}
	}},
	{"Attribute Write Values", "a value of another type is refused", "OPC 10000-4 §5.11.4", func(t *T) {
		s := t.Session()
		node := t.Node(t.Target.Nodes.Scalars["Double"], "a Double")
		for _, v := range []any{"text", int32(1), []float64{1, 2}, float32(1)} {
			t.Code(t.writeOne(s, writeValue(node, v)), reflect.TypeOf(v).String()+" into Double", ua.StatusBadTypeMismatch)
		}
		arr := t.Node(t.Target.Nodes.Arrays["Int32"], "an Int32 array")
		t.Code(t.writeOne(s, writeValue(arr, int32(1))), "a scalar into an array", ua.StatusBadTypeMismatch)
	}},
	{"Attribute Write Values", "what may not be written", "OPC 10000-3 §8.57", func(t *T) {
		s := t.Session()
		t.Code(t.writeOne(s, writeValue(t.Node(t.Target.Nodes.ReadOnly, "a read-only variable"), 1.0)), "read-only", ua.StatusBadNotWritable, ua.StatusBadUserAccessDenied)
		t.Code(t.writeOne(s, writeValue(namespaceArray, []string{"x"})), "NamespaceArray", ua.StatusBadNotWritable, ua.StatusBadUserAccessDenied)
		w := writeValue(t.Node(t.Target.Nodes.Scalars["Double"], "a Double"), ua.NewLocalizedText("x"))
		w.AttributeID = ua.AttributeIDDisplayName
		t.Code(t.writeOne(s, w), "DisplayName", ua.StatusBadNotWritable, ua.StatusBadUserAccessDenied)
		w.AttributeID = 77
		t.Code(t.writeOne(s, w), "an attribute nobody has", ua.StatusBadAttributeIDInvalid)
		t.Code(t.writeOne(s, writeValue(longNodeID, 1.0)), "an unknown node", ua.StatusBadNodeIDUnknown)
	}},
	{"Attribute Write Values", "a write-only variable takes a value", "OPC 10000-3 §8.57", func(t *T) {
		s := t.Session()
		node := t.Node(t.Target.Nodes.WriteOnly, "a write-only variable")
		rs := call[*ua.WriteResponse](t, s, &ua.WriteRequest{NodesToWrite: []*ua.WriteValue{writeValue(node, 4.5), writeValue(node, "x"), writeValue(node, int32(1))}})
		good := 0
		for _, r := range rs.Results {
			if r == ua.StatusOK {
				good++
			}
		}
		if good != 1 {
			t.Errorf("results %v: just one of the three types fits", rs.Results)
		}
	}},
	{"Attribute Write StatusCode & TimeStamp", "status and timestamp are kept, or refused as such", "OPC 10000-4 §5.11.4", func(t *T) {
		s := t.Session()
		node := t.Node(t.Target.Nodes.Scalars["Double"], "a Double")
		w := writeValue(node, 17.5)
		at := time.Date(2020, 2, 29, 12, 0, 0, 0, time.UTC)
		w.Value.EncodingMask |= ua.DataValueStatusCode | ua.DataValueSourceTimestamp
		w.Value.Status, w.Value.SourceTimestamp = ua.StatusUncertainLastUsableValue, at
		code := t.writeOne(s, w)
		if code == ua.StatusBadWriteNotSupported {
			return
		}
		t.Code(code, "write", ua.StatusOK)
		dv := call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, node)).Results[0]
		t.Code(dv.Status, "status read back", ua.StatusUncertainLastUsableValue)
		if !dv.SourceTimestamp.Equal(at) {
			t.Errorf("timestamp %v, wrote %v", dv.SourceTimestamp, at)
		}
		t.write(s, node, 1.0)
		dv = call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, node)).Results[0]
		t.Code(dv.Status, "after a plain write", ua.StatusOK)
		if time.Since(dv.SourceTimestamp) > time.Minute {
			t.Errorf("the old timestamp %v stayed", dv.SourceTimestamp)
		}
	}},
	{"Attribute Write Index", "part of an array is written", "OPC 10000-4 §5.11.4", func(t *T) {
		s := t.Session()
		node := t.Node(t.Target.Nodes.Arrays["Int32"], "an Int32 array")
		t.write(s, node, []int32{1, 2, 3, 4})
		w := writeValue(node, []int32{20, 30})
		w.IndexRange = "1:2"
		t.Code(t.writeOne(s, w), "1:2", ua.StatusOK)
		got := value(call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, node)).Results[0])
		if !reflect.DeepEqual(got, []int32{1, 20, 30, 4}) {
			t.Errorf("array is %v", got)
		}
		w.IndexRange = "3:4"
		t.Code(t.writeOne(s, w), "past the end", ua.StatusBadIndexRangeNoData, ua.StatusBadIndexRangeInvalid, ua.StatusBadOutOfRange)
		w.IndexRange = "1:3"
		t.Code(t.writeOne(s, w), "another length", ua.StatusBadIndexRangeInvalid, ua.StatusBadIndexRangeNoData, uastatus.BadIndexRangeDataMismatch, ua.StatusBadTypeMismatch)
		w.IndexRange = "x"
		t.Code(t.writeOne(s, w), "no range", ua.StatusBadIndexRangeInvalid)
	}},
	{"Attribute Write Values", "nothing to do and too much to do", "OPC 10000-4 §5.11.4", func(t *T) {
		s := t.Session()
		refuse(t, s, &ua.WriteRequest{}, ua.StatusBadNothingToDo)
		if n := t.limit(operationLimitWrite, 0); n > 0 && n <= 20_000 {
			rq := &ua.WriteRequest{}
			for range n + 1 {
				rq.NodesToWrite = append(rq.NodesToWrite, writeValue(ns0(84), true))
			}
			refuse(t, s, rq, ua.StatusBadTooManyOperations)
		}
	}},
}

// writeAll reads each node, writes the same value back and reads it again.
func (t *T) writeAll(nodes map[string]string, what string) {
	if len(nodes) == 0 {
		t.NotApplicable("the target names no %s", what)
	}
	s := t.Session()
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		node := t.Node(nodes[name], name)
		before := call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, node)).Results[0]
		if before.Value == nil {
			t.Errorf("%s: nothing to write back", name)
			continue
		}
		code := t.writeOne(s, &ua.WriteValue{NodeID: node, AttributeID: ua.AttributeIDValue,
			Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: before.Value}})
		t.Code(code, name, ua.StatusOK)
		after := call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, node)).Results[0]
		if !reflect.DeepEqual(value(before), value(after)) {
			t.Errorf("%s: wrote %v, read %v", name, value(before), value(after))
		}
	}
}
