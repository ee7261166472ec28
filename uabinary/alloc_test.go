package uabinary

import (
	"fmt"
	"testing"

	"github.com/gopcua/opcua/ua"
)

func readRequest(n int, id func(i int) *ua.NodeID) *ua.ReadRequest {
	r := &ua.ReadRequest{
		RequestHeader:      &ua.RequestHeader{AuthenticationToken: ua.NewByteStringNodeID(0, make([]byte, 32))},
		TimestampsToReturn: ua.TimestampsToReturnBoth,
	}
	for i := range n {
		r.NodesToRead = append(r.NodesToRead, &ua.ReadValueID{NodeID: id(i), AttributeID: ua.AttributeIDValue})
	}
	return r
}

func numericID(i int) *ua.NodeID { return ua.NewNumericNodeID(2, uint32(i)+70000) }
func stringID(i int) *ua.NodeID {
	return ua.NewStringNodeID(2, fmt.Sprintf("Plant.Line.%d.Temperature", i))
}
func opaqueID(i int) *ua.NodeID {
	return ua.NewByteStringNodeID(2, []byte{byte(i), byte(i >> 8), 3, 4})
}

func encoded(t testing.TB, msg any) []byte {
	t.Helper()
	var e Encoder
	EncodeMessage(&e, msg)
	if e.Err() != nil {
		t.Fatal(e.Err())
	}
	return e.B
}

func wantAllocs(t *testing.T, want float64, f func()) {
	t.Helper()
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	if got := testing.AllocsPerRun(50, f); got != want {
		t.Errorf("%v allocations, want %v", got, want)
	}
}

// Decoding a Read of 1,000 nodes: message, token, slab, pointers, and one for each String or Opaque id.
func TestDecodeReadAllocations(t *testing.T) {
	for _, c := range []struct {
		name string
		id   func(int) *ua.NodeID
		want float64
	}{{"numeric", numericID, 4}, {"String", stringID, 1004}, {"Opaque", opaqueID, 1004}} {
		t.Run(c.name, func(t *testing.T) {
			b := encoded(t, readRequest(1000, c.id))
			var d Decoder
			wantAllocs(t, c.want, func() {
				d.Reset(b, nil)
				if _, err := DecodeMessage(&d); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
	t.Run("CreateMonitoredItems", func(t *testing.T) {
		m := &ua.CreateMonitoredItemsRequest{RequestHeader: &ua.RequestHeader{}}
		for i := range 1000 {
			m.ItemsToCreate = append(m.ItemsToCreate, &ua.MonitoredItemCreateRequest{
				ItemToMonitor:       &ua.ReadValueID{NodeID: numericID(i)},
				RequestedParameters: &ua.MonitoringParameters{ClientHandle: uint32(i)},
			})
		}
		b := encoded(t, m)
		var d Decoder
		wantAllocs(t, 3, func() {
			d.Reset(b, nil)
			if _, err := DecodeMessage(&d); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// The way of a streamed Read: nothing is allocated.
func TestStreamAllocations(t *testing.T) {
	b := encoded(t, readRequest(100, stringID))
	value := DataValue{Mask: ua.DataValueValue | ua.DataValueSourceTimestamp, Value: Double(1.5), SourceTimestamp: Now()}
	out := make([]byte, 0, 64<<10)
	var d Decoder
	key := make([]byte, 0, 256)
	nodes := map[string]int{}
	wantAllocs(t, 0, func() {
		d.Reset(b, nil)
		d.TypeID()
		h := d.RequestHeader()
		out = AppendTypeID(out[:0], 634)
		out = AppendResponseHeader(out, &ResponseHeader{Timestamp: h.Timestamp, RequestHandle: h.RequestHandle})
		d.Double()
		d.UInt32()
		n := d.ArrayLen(minReadValueID)
		out = AppendInt32(out, int32(n))
		for range n {
			id := d.NodeID()
			d.UInt32()
			d.StringBytes()
			d.QualifiedName()
			_ = nodes[string(id.AppendKey(key[:0]))]
			out = AppendDataValue(out, &value)
		}
		out = AppendInt32(out, -1)
		if d.Err() != nil || n != 100 || d.Remaining() != 0 {
			t.Fatal(d.Err(), n)
		}
	})
}

func TestVariantAllocations(t *testing.T) {
	v := must(NewVariant([]any{1.5, "text", []int32{1, 2}}))
	wire := AppendVariant(nil, v)
	dv := AppendDataValue(nil, &DataValue{Mask: 1, Value: v})
	var sink Variant
	var d Decoder
	for _, c := range []struct {
		name string
		want float64
		f    func()
	}{
		{"Double", 1, func() { sink = Double(1.5) }},
		{"Int32", 1, func() { sink = Int32(1) }},
		{"Boolean", 1, func() { sink = Boolean(true) }},
		{"String", 1, func() { sink = String("a longer text than fits into some buffer") }},
		{"NodeIDVariant", 1, func() { sink = NodeIDVariant(NumericID(5, 70000)) }},
		{"LocalizedTextVariant", 1, func() { sink = LocalizedTextVariant(LocalizedText{Text: wire}) }},
		{"NewVariant of a float64", 1, func() { sink, _ = NewVariant(1.5) }},
		{"view", 0, func() { d.Reset(wire, nil); sink = d.Variant() }},
		{"DataValue view", 0, func() { d.Reset(dv, nil); sink = d.DataValue().Value }},
		{"accessors", 0, func() { v.Float64(); v.Bytes(); v.Len(); v.Type(); v.NodeID() }},
		{"Element", 1, func() { sink = must(NewVariant(nil)); sink = Variant{wire}.Element(0).Clone() }},
	} {
		t.Run(c.name, func(t *testing.T) { wantAllocs(t, c.want, c.f) })
	}
	_ = sink
}

func TestNewVariantArrayAllocations(t *testing.T) {
	s := make([]float64, 1000)
	var boxed any = s
	wantAllocs(t, 2, func() { _, _ = NewVariant(boxed) }) // the Encoder and the encoding
}

func BenchmarkDecodeReadRequest(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in := encoded(b, readRequest(n, numericID))
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			var d Decoder
			for b.Loop() {
				d.Reset(in, nil)
				if _, err := DecodeMessage(&d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkGopcuaDecodeReadRequest is what it is to be compared with.
func BenchmarkGopcuaDecodeReadRequest(b *testing.B) {
	in := encoded(b, readRequest(100, numericID))
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := ua.DecodeService(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWalkReadRequest(b *testing.B) {
	in := encoded(b, readRequest(100, numericID))
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	var d Decoder
	for b.Loop() {
		d.Reset(in, nil)
		d.TypeID()
		d.RequestHeader()
		d.Double()
		d.UInt32()
		for range d.ArrayLen(minReadValueID) {
			d.NodeID()
			d.UInt32()
			d.StringBytes()
			d.QualifiedName()
		}
		if d.Err() != nil {
			b.Fatal(d.Err())
		}
	}
}

func BenchmarkAppendDataValue(b *testing.B) {
	v := DataValue{Mask: ua.DataValueValue | ua.DataValueSourceTimestamp | ua.DataValueServerTimestamp, Value: Double(1.5), SourceTimestamp: Now(), ServerTimestamp: Now()}
	out := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		out = AppendDataValue(out[:0], &v)
	}
}

func BenchmarkVariantView(b *testing.B) {
	in := must(NewVariant(make([]float64, 1000))).Encoded()
	b.ReportAllocs()
	var d Decoder
	for b.Loop() {
		d.Reset(in, nil)
		if d.Variant().IsNull() {
			b.Fatal(d.Err())
		}
	}
}

func BenchmarkNewVariantDouble(b *testing.B) {
	b.ReportAllocs()
	var v any = 1.5
	for b.Loop() {
		if _, err := NewVariant(v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeReadResponse(b *testing.B) {
	m := &ua.ReadResponse{ResponseHeader: &ua.ResponseHeader{}}
	for i := range 100 {
		m.Results = append(m.Results, &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(float64(i))})
	}
	e := Encoder{B: make([]byte, 0, 64<<10)}
	b.ReportAllocs()
	for b.Loop() {
		e.Reset(e.B[:0])
		EncodeMessage(&e, m)
	}
}
