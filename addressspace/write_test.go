package addressspace

import (
	"fmt"
	"sync"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

func variant(t testing.TB, v any) uabinary.Variant {
	t.Helper()
	if v == nil {
		return uabinary.Variant{}
	}
	x, err := toVariant(v)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func writeValue(s *Space, id uabinary.NodeID, r string, v uabinary.Variant) ua.StatusCode {
	return s.Write(id, uint32(ua.AttributeIDValue), []byte(r), &uabinary.DataValue{Mask: ua.DataValueValue, Value: v}, &Caller{})
}

// OPC 10000-4 §5.10.4 Write: BadTypeMismatch.
func TestWriteTypes(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	eo := func(encoding uint32) uabinary.Variant {
		return uabinary.ExtensionObjectVariant(structure(encoding, make([]byte, 16)))
	}
	ok, bad := ua.StatusOK, ua.StatusBadTypeMismatch
	for i, tt := range []struct {
		dataType uint32
		rank     int32
		value    any
		want     ua.StatusCode
	}{
		{11, -1, 1.5, ok}, {11, -1, float32(1), bad}, {11, -1, int32(1), bad}, {11, -1, nil, bad}, {11, -1, "1", bad},
		{290, -1, 1.5, ok}, {290, -1, int64(1), bad}, // Duration: a subtype of Double
		{6, -1, int32(1), ok}, {6, -1, uint32(1), bad},
		{257, -1, int32(2), ok}, {257, -1, uint32(2), bad}, // NodeClass: an enumeration is an Int32
		{29, -1, int32(2), ok},                                                                                    // Enumeration
		{26, -1, 1.5, ok}, {26, -1, int16(1), ok}, {26, -1, byte(1), ok}, {26, -1, "x", bad}, {26, -1, true, bad}, // Number
		{27, -1, int16(1), ok}, {27, -1, uint16(1), bad}, {27, -1, 1.5, bad}, {28, -1, uint64(1), ok}, {28, -1, int8(1), bad}, // Integer, UInteger
		{24, -1, "x", ok}, {24, -1, nil, ok}, {24, -1, 1.5, ok}, {24, -2, []string{"x"}, ok}, {24, -1, []string{"x"}, bad}, // BaseDataType
		{12, -1, "x", ok}, {295, -1, "x", ok}, {12, -1, []byte("x"), bad}, // LocaleId is a String
		{22, -1, eo(886), ok}, {22, -1, eo(99999), ok}, {884, -1, eo(886), ok}, {884, -1, eo(889), bad}, {884, -1, eo(99999), bad}, // Structure, Range
		{12755, -1, eo(12765), ok}, {316, -1, eo(324), ok}, {316, -1, eo(886), bad}, // UserIdentityToken: a subtype
		{11, 1, []float64{1}, ok}, {11, 1, 1.5, bad}, {11, 1, [][]float64{{1}}, bad}, {11, 2, [][]float64{{1}}, ok}, {11, -1, []float64{1}, bad},
		{11, -2, []float64{1}, ok}, {11, -2, 1.5, ok}, {11, -2, [][]float64{{1}}, ok},
		{11, -3, []float64{1}, ok}, {11, -3, 1.5, ok}, {11, -3, [][]float64{{1}}, bad},
		{11, 0, []float64{1}, ok}, {11, 0, [][]float64{{1}}, ok}, {11, 0, 1.5, bad},
		{3, 1, []byte{1, 2}, ok}, {15, -1, ua.ByteArray{1, 2}, ok}, {15, -1, []byte{1}, ok}, {3, 1, ua.ByteArray{1}, ok}, {3, -1, []byte{1}, bad},
		{26, 1, []*ua.Variant{ua.MustVariant(int32(1)), ua.MustVariant(1.5)}, ok}, {26, 1, []*ua.Variant{ua.MustVariant("x")}, bad},
	} {
		path := fmt.Sprint("V", i)
		ns.Variable(path, nil, DataType(i0(tt.dataType)), ValueRank(tt.rank), Writable())
		v := variant(t, tt.value)
		if got := writeValue(s, ns.NodeID(path), "", v); got != tt.want {
			t.Errorf("DataType %d, ValueRank %d, %T %v: %v, want %v", tt.dataType, tt.rank, tt.value, tt.value, uastatus.Name(got), uastatus.Name(tt.want))
		}
		if stored := ns.Node(path).Value(); (stored != nil) != (tt.want == ok) {
			t.Errorf("DataType %d, %T: stored is %v after %v", tt.dataType, tt.value, stored, uastatus.Name(tt.want))
		}
	}
}

// OPC 10000-4 §5.10.4.2: a ByteString and an array of Byte stand for each other
// and are read back as the DataType says.
func TestWriteByteStringForByteArray(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	ns.Variable("Bytes", ua.ByteArray{1, 2, 3}, Writable())
	ns.Variable("String", []byte{1, 2, 3}, Writable())
	write := func(path, r string, v any) {
		t.Helper()
		if code := writeValue(s, ns.NodeID(path), r, variant(t, v)); code != ua.StatusOK {
			t.Errorf("%s[%s]: %v", path, r, uastatus.Name(code))
		}
	}
	is := func(path string, want any) {
		t.Helper()
		if got := ns.Node(path).Value().Value; !got.Equal(variant(t, want)) {
			t.Errorf("%s is %x", path, got.Encoded())
		}
	}
	write("Bytes", "", []byte{4, 5})
	is("Bytes", ua.ByteArray{4, 5})
	write("String", "", ua.ByteArray{4, 5})
	is("String", []byte{4, 5})
	write("Bytes", "1", []byte{9})
	is("Bytes", ua.ByteArray{4, 9})
	write("String", "0", ua.ByteArray{8})
	is("String", []byte{8, 5})
}

func TestWriteArrayDimensionsAreMaxima(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	ns.Variable("A", nil, DataType(i0(6)), ValueRank(1), ArrayDimensions(2), Writable())
	ns.Variable("M", nil, DataType(i0(6)), ValueRank(2), ArrayDimensions(0, 2), Writable())
	for _, tt := range []struct {
		path string
		v    any
		want ua.StatusCode
	}{
		{"A", []int32{1, 2}, ua.StatusOK}, {"A", []int32{}, ua.StatusOK}, {"A", []int32{1, 2, 3}, ua.StatusBadTypeMismatch},
		{"M", [][]int32{{1, 2}, {1, 2}, {1, 2}}, ua.StatusOK}, {"M", [][]int32{{1, 2, 3}}, ua.StatusBadTypeMismatch},
	} {
		if got := writeValue(s, ns.NodeID(tt.path), "", variant(t, tt.v)); got != tt.want {
			t.Errorf("%s = %v: %v", tt.path, tt.v, uastatus.Name(got))
		}
	}
}

// OPC 10000-4 §5.10.4.3: BadWriteNotSupported for status and timestamps that the
// AccessLevel does not let be written.
func TestWriteStatusAndTimestamps(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	ns.Variable("Plain", 1.5, AccessLevel(ua.AccessLevelTypeCurrentRead|ua.AccessLevelTypeCurrentWrite))
	ns.Variable("Full", 1.5, Writable())
	value := uabinary.Double(2)
	no := ua.StatusBadWriteNotSupported
	for _, tt := range []struct {
		name        string
		dv          uabinary.DataValue
		plain, full ua.StatusCode
	}{
		{"value", uabinary.DataValue{Mask: 1, Value: value}, 0, 0},
		{"Good", uabinary.DataValue{Mask: 3, Value: value}, 0, 0},
		{"null times", uabinary.DataValue{Mask: 0xD, Value: value}, 0, 0},
		{"Uncertain", uabinary.DataValue{Mask: 3, Value: value, Status: ua.StatusUncertain}, no, 0},
		{"source time", uabinary.DataValue{Mask: 5, Value: value, SourceTimestamp: 99}, no, 0},
		{"server time", uabinary.DataValue{Mask: 9, Value: value, ServerTimestamp: 99}, no, 0},
		{"Bad without value", uabinary.DataValue{Mask: 2, Status: ua.StatusBadSensorFailure}, no, 0},
		{"nothing", uabinary.DataValue{}, ua.StatusBadTypeMismatch, ua.StatusBadTypeMismatch},
	} {
		if got := s.Write(ns.NodeID("Plain"), 13, nil, &tt.dv, nil); got != tt.plain {
			t.Errorf("%s on plain: %v", tt.name, uastatus.Name(got))
		}
		if got := s.Write(ns.NodeID("Full"), 13, nil, &tt.dv, nil); got != tt.full {
			t.Errorf("%s on full: %v", tt.name, uastatus.Name(got))
		}
		dv := ns.Node("Full").Value()
		if dv.SourceTimestamp == 0 || tt.dv.SourceTimestamp != 0 && dv.SourceTimestamp != tt.dv.SourceTimestamp {
			t.Errorf("%s: stored source timestamp %v", tt.name, dv.SourceTimestamp)
		}
		if tt.dv.Status != 0 && dv.Status != tt.dv.Status {
			t.Errorf("%s: stored status %v", tt.name, dv.Status)
		}
	}
}

func TestWriteAccess(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	ns.Variable("R", 1.5)
	ns.Variable("U", 1.5, Writable(), UserAccess(func(c *Caller) ua.AccessLevelType {
		if c.User == "alice" {
			return 0xFF
		}
		return ua.AccessLevelTypeCurrentRead
	}))
	dv := uabinary.DataValue{Mask: 1, Value: uabinary.Double(2)}
	for _, tt := range []struct {
		id     uabinary.NodeID
		attr   ua.AttributeID
		caller *Caller
		want   ua.StatusCode
	}{
		{ns.NodeID("R"), ua.AttributeIDValue, nil, ua.StatusBadNotWritable},
		{ns.NodeID("U"), ua.AttributeIDValue, &Caller{User: "bob"}, ua.StatusBadUserAccessDenied},
		{ns.NodeID("U"), ua.AttributeIDValue, &Caller{User: "alice"}, ua.StatusOK},
		{ns.NodeID("nothing"), ua.AttributeIDValue, nil, ua.StatusBadNodeIDUnknown},
		{i0(2253), ua.AttributeIDValue, nil, ua.StatusBadAttributeIDInvalid},
		{i0(62), ua.AttributeIDValue, nil, ua.StatusBadNotWritable},
		{i0(2258), ua.AttributeIDValue, nil, ua.StatusBadNotWritable},
		{ns.NodeID("U"), ua.AttributeIDNodeID, nil, ua.StatusBadNotWritable},
		{ns.NodeID("U"), ua.AttributeIDDisplayName, nil, ua.StatusBadNotWritable},
		{ns.NodeID("U"), ua.AttributeIDExecutable, nil, ua.StatusBadAttributeIDInvalid},
		{ns.NodeID("U"), 77, nil, ua.StatusBadAttributeIDInvalid},
	} {
		if got := s.Write(tt.id, uint32(tt.attr), nil, &dv, tt.caller); got != tt.want {
			t.Errorf("%s attribute %d: %v, want %v", tt.id, tt.attr, uastatus.Name(got), uastatus.Name(tt.want))
		}
	}
}

// What is stored must not alias the request, whose buffer is used again.
func TestWriteCopies(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	ns.Variable("S", "", Writable())
	wire := append([]byte(nil), uabinary.String("hello").Encoded()...)
	v, err := variantFrom(wire)
	if err != nil {
		t.Fatal(err)
	}
	if code := writeValue(s, ns.NodeID("S"), "", v); code != ua.StatusOK {
		t.Fatal(code)
	}
	clear(wire)
	if got := s.Variable(ns.NodeID("S")).Value(); got != "hello" {
		t.Errorf("stored value is %q after the request's buffer was cleared", got)
	}
}

func TestWriteIndexRange(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	ns.Variable("A", []int32{1, 2, 3, 4}, Writable())
	ns.Variable("W", []int32{1, 2}, AccessLevelEx(ua.AccessLevelExType(AccessReadWrite)|ua.AccessLevelExTypeWriteFullArrayOnly))
	ns.Variable("Null", nil, DataType(i0(6)), ValueRank(1), Writable())
	for _, tt := range []struct {
		path, r string
		v       any
		want    ua.StatusCode
	}{
		{"A", "1:2", []int32{8, 9}, ua.StatusOK},
		{"A", "1:2", []int32{8}, uastatus.BadIndexRangeDataMismatch},
		{"A", "9", []int32{8}, ua.StatusBadIndexRangeNoData},
		{"A", "1", []float64{8}, ua.StatusBadTypeMismatch},
		{"A", "2:1", []int32{8}, ua.StatusBadIndexRangeInvalid},
		{"W", "1", []int32{8}, ua.StatusBadWriteNotSupported},
		{"Null", "1", []int32{8}, ua.StatusBadIndexRangeNoData},
	} {
		if got := writeValue(s, ns.NodeID(tt.path), tt.r, variant(t, tt.v)); got != tt.want {
			t.Errorf("%s[%s] = %v: %v, want %v", tt.path, tt.r, tt.v, uastatus.Name(got), uastatus.Name(tt.want))
		}
	}
	if got := fmt.Sprint(s.Variable(ns.NodeID("A")).Value()); got != "[1 8 9 4]" {
		t.Errorf("A is %v", got)
	}
}

// Concurrent writers of different elements of one array lose nothing.
func TestWriteIndexRangeIsAtomic(t *testing.T) {
	for _, callback := range []bool{false, true} {
		s := newSpace(t)
		ns := s.Namespace("urn:t")
		const writers, rounds = 8, 200
		v := ns.Variable("A", make([]int32, writers), Writable())
		if callback {
			v.OnWrite(func(*WriteCall) error { return nil })
		}
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for k := range rounds {
					if code := writeValue(s, ns.NodeID("A"), fmt.Sprint(w), variant(t, []int32{int32(k + 1)})); code != ua.StatusOK {
						t.Error(code)
					}
				}
			})
		}
		wg.Wait()
		for i, x := range v.Value().([]int32) {
			if x != rounds {
				t.Errorf("callback %v: element %d is %d", callback, i, x)
			}
		}
	}
}

func TestWriteCallback(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	v := ns.Variable("V", 1.0, Writable())
	var seen []any
	v.OnWrite(func(w *WriteCall) error {
		seen = append(seen, w.Any())
		x := w.Any().(float64)
		switch {
		case x < 0:
			return uastatus.New(ua.StatusBadOutOfRange, "limit", nil)
		case x > 100: // clamp, and Set of the same node must not deadlock
			w.Value.Value = uabinary.Double(100)
			return v.Set(50.0)
		}
		return nil
	})
	if !v.Node().WriteBlocks() {
		t.Error("WriteBlocks is false with a callback")
	}
	for _, tt := range []struct {
		x, after float64
		want     ua.StatusCode
	}{{5, 5, 0}, {-1, 5, ua.StatusBadOutOfRange}, {500, 100, 0}} {
		if got := writeValue(s, ns.NodeID("V"), "", uabinary.Double(tt.x)); got != tt.want {
			t.Errorf("%v: %v", tt.x, got)
		}
		if got := v.Value(); got != tt.after {
			t.Errorf("after %v the value is %v, want %v", tt.x, got, tt.after)
		}
	}
	if code := writeValue(s, ns.NodeID("V"), "", uabinary.String("x")); code != ua.StatusBadTypeMismatch || len(seen) != 3 {
		t.Errorf("a mismatch is %v and the callback saw %v", code, seen)
	}

	a := ns.Variable("A", []int32{1, 2, 3}, Writable())
	a.OnWrite(func(w *WriteCall) error {
		if w.Value.Value.Len() != 3 {
			t.Errorf("the callback of an IndexRange write sees %d elements", w.Value.Value.Len())
		}
		return a.Set([]int32{7, 7, 7}) // another change in between
	})
	if code := writeValue(s, ns.NodeID("A"), "1", variant(t, []int32{9})); code != ua.StatusOK {
		t.Fatal(code)
	}
	if got := fmt.Sprint(a.Value()); got != "[7 9 7]" {
		t.Errorf("A is %v, want the part in what was set meanwhile", got)
	}
}

// OPC 10000-3 §8.60 AttributeWriteMask.
func TestWriteOtherAttributes(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	ns.Variable("V", 1.0, WriteMask(ua.AttributeWriteMask(supportedWriteMask)))
	ns.Object("O", WriteMask(ua.AttributeWriteMask(supportedWriteMask)))
	text := uabinary.LocalizedTextVariant(uabinary.Text("new"))
	long := make([]byte, 600)
	for i := range long {
		long[i] = 'x'
	}
	name := func(b []byte) uabinary.Variant {
		return uabinary.QualifiedNameVariant(uabinary.QualifiedName{Namespace: 1, Name: b})
	}
	for _, tt := range []struct {
		path string
		attr ua.AttributeID
		v    uabinary.Variant
		want ua.StatusCode
	}{
		{"V", ua.AttributeIDDescription, text, 0},
		{"V", ua.AttributeIDDescription, uabinary.String("x"), ua.StatusBadTypeMismatch},
		{"V", ua.AttributeIDBrowseName, name([]byte("Renamed")), 0},
		{"V", ua.AttributeIDBrowseName, name(long), ua.StatusBadBrowseNameInvalid},
		{"V", ua.AttributeIDBrowseName, name(nil), ua.StatusBadBrowseNameInvalid},
		{"V", ua.AttributeIDAccessLevel, uabinary.Byte(3), 0},
		{"V", ua.AttributeIDAccessLevel, uabinary.Int32(3), ua.StatusBadTypeMismatch},
		{"V", ua.AttributeIDMinimumSamplingInterval, uabinary.Double(9), 0},
		{"V", ua.AttributeIDHistorizing, uabinary.Boolean(true), 0},
		{"V", ua.AttributeIDHistorizing, uabinary.Double(1), ua.StatusBadTypeMismatch},
		{"O", ua.AttributeIDEventNotifier, uabinary.Byte(1), 0},
		{"O", ua.AttributeIDDisplayName, text, 0},
		{"O", ua.AttributeIDNodeClass, uabinary.Int32(1), ua.StatusBadNotWritable},
	} {
		dv := uabinary.DataValue{Mask: 1, Value: tt.v}
		if got := s.Write(ns.NodeID(tt.path), uint32(tt.attr), nil, &dv, nil); got != tt.want {
			t.Errorf("%s attribute %d: %v, want %v", tt.path, tt.attr, uastatus.Name(got), uastatus.Name(tt.want))
		}
		if tt.want == 0 {
			if got := readAttr(s, ns.NodeID(tt.path), tt.attr); !got.Value.Equal(tt.v) {
				t.Errorf("%s attribute %d reads %x", tt.path, tt.attr, got.Value.Encoded())
			}
		}
	}
	// The DisplayName, which was the BrowseName, did not change with it.
	if d := string(ns.Node("V").DisplayName().Text); d != "V" {
		t.Errorf("DisplayName is %q", d)
	}
	dv := uabinary.DataValue{Mask: 1, Value: text}
	if got := s.Write(ns.NodeID("O"), uint32(ua.AttributeIDDisplayName), []byte("0"), &dv, nil); got != ua.StatusBadIndexRangeInvalid {
		t.Errorf("IndexRange on DisplayName: %v", got)
	}
}
