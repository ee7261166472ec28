package uabinary

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

var testTime = time.Date(2024, 2, 29, 12, 30, 0, 100, time.UTC)

// variantCases hold a Go value, its encoding by hand (OPC 10000-6 §5.2.2.16, Variant) and what Value gives back for it.
var variantCases = []struct {
	name  string
	value any
	wire  string
	back  any // nil: the same
}{
	{"null", nil, "00", nil},
	{"Boolean", true, "01 01", nil},
	{"SByte", int8(-1), "02 FF", nil},
	{"Byte", uint8(255), "03 FF", nil},
	{"Int16", int16(-2), "04 FEFF", nil},
	{"UInt16", uint16(0x1234), "05 3412", nil},
	{"Int32", int32(-2), "06 FEFFFFFF", nil},
	{"UInt32", uint32(1), "07 01000000", nil},
	{"Int64", int64(-2), "08 FEFFFFFFFFFFFFFF", nil},
	{"UInt64", uint64(math.MaxUint64), "09 FFFFFFFFFFFFFFFF", nil},
	{"Float", float32(-6.5), "0A 0000D0C0", nil},
	{"Double", 1.0, "0B 000000000000F03F", nil},
	{"String", "OK", "0C 02000000 4F4B", nil},
	{"empty String", "", "0C 00000000", nil},
	{"DateTime", testTime, "0D 011400030B6BDA01", nil},
	{"DateTime view", FromTime(testTime), "0D 011400030B6BDA01", testTime},
	{"Guid", [16]byte{1, 15: 2}, "0E 01000000 0000 0000 0000000000000002", &ua.GUID{Data1: 1, Data4: []byte{7: 2}}},
	{"ByteString", []byte{1, 2}, "0F 02000000 0102", nil},
	{"null ByteString", []byte(nil), "0F FFFFFFFF", nil},
	{"empty ByteString", []byte{}, "0F 00000000", nil},
	{"XmlElement", ua.XMLElement("<a/>"), "10 04000000 3C612F3E", nil},
	{"NodeId", ua.NewTwoByteNodeID(72), "11 00 48", nil},
	{"NodeId view", NumericID(5, 1025), "11 01 05 0104", ua.NewFourByteNodeID(5, 1025)},
	{"nil NodeId", (*ua.NodeID)(nil), "11 00 00", ua.NewTwoByteNodeID(0)},
	{"ExpandedNodeId", ua.NewExpandedNodeID(ua.NewTwoByteNodeID(72), "u", 1), "12 C0 48 01000000 75 01000000", nil},
	{"StatusCode", ua.StatusBadDecodingError, "13 00000780", nil},
	{"QualifiedName", &ua.QualifiedName{NamespaceIndex: 1, Name: "a"}, "14 0100 01000000 61", nil},
	{"LocalizedText", ua.NewLocalizedText("a"), "15 02 01000000 61", nil},
	{"LocalizedText view", Text("a"), "15 02 01000000 61", ua.NewLocalizedText("a")},
	{"ExtensionObject", ua.NewExtensionObject(&ua.Range{Low: 0, High: 1}), "16 01007603 01 10000000 0000000000000000 000000000000F03F", nil},
	{"structure", &ua.Range{Low: 0, High: 1}, "16 01007603 01 10000000 0000000000000000 000000000000F03F", ua.NewExtensionObject(&ua.Range{Low: 0, High: 1})},
	{"structure by value", ua.Range{Low: 0, High: 1}, "16 01007603 01 10000000 0000000000000000 000000000000F03F", ua.NewExtensionObject(&ua.Range{Low: 0, High: 1})},
	{"DataValue", &ua.DataValue{EncodingMask: 3, Value: ua.MustVariant(uint8(1)), Status: ua.StatusBad}, "17 03 03 01 00000080", nil},
	{"Variant in Variant", ua.MustVariant(true), "18 01 01", nil},
	{"DiagnosticInfo", &ua.DiagnosticInfo{EncodingMask: 0x41, SymbolicID: 5, InnerDiagnosticInfo: &ua.DiagnosticInfo{}}, "19 41 05000000 00", nil},
	{"int", 5, "08 0500000000000000", int64(5)},
	{"uint", uint(5), "09 0500000000000000", uint64(5)},

	{"array of Boolean", []bool{true, false}, "81 02000000 01 00", nil},
	{"array of SByte", []int8{-1}, "82 01000000 FF", nil},
	{"array of Byte", ua.ByteArray{1, 2}, "83 02000000 0102", nil},
	{"array of Int16", []int16{-2}, "84 01000000 FEFF", nil},
	{"array of Int32", []int32{1, 2}, "86 02000000 01000000 02000000", nil},
	{"array of Double", []float64{1}, "8B 01000000 000000000000F03F", nil},
	{"array of String", []string{"a", ""}, "8C 02000000 01000000 61 00000000", nil},
	{"array of ByteString", [][]byte{{1}, {1, 2}, nil}, "8F 03000000 01000000 01 02000000 0102 FFFFFFFF", nil},
	{"matrix of ByteString", [][][]byte{{{1}}, {{1, 2}}}, "CF 02000000 01000000 01 02000000 0102 02000000 02000000 01000000", nil},
	{"null array", []int32(nil), "86 FFFFFFFF", nil},
	{"null array of Byte", ua.ByteArray(nil), "83 FFFFFFFF", nil},
	{"empty array", []int32{}, "86 00000000", nil},
	{"array of Variant", []*ua.Variant{ua.MustVariant(true), nil}, "98 02000000 01 01 00", []*ua.Variant{ua.MustVariant(true), {}}},
	{"array of any", []any{true, nil, "a", Byte(1), ua.MustVariant(uint8(2))}, "98 05000000 01 01 00 0C 01000000 61 03 01 03 02",
		[]*ua.Variant{ua.MustVariant(true), {}, ua.MustVariant("a"), ua.MustVariant(uint8(1)), ua.MustVariant(uint8(2))}},
	{"array of structures", []*ua.Range{{}, nil}, "96 02000000 01007603 01 10000000 0000000000000000 0000000000000000 0000 00", nil},
	{"array of structures by value", []ua.Range{{}}, "96 01000000 01007603 01 10000000 0000000000000000 0000000000000000", []*ua.ExtensionObject{ua.NewExtensionObject(&ua.Range{})}},
	{"array of views", []LocalizedText{Text("a")}, "95 01000000 02 01000000 61", []*ua.LocalizedText{ua.NewLocalizedText("a")}},
	{"Go array", [2]int32{1, 2}, "86 02000000 01000000 02000000", []int32{1, 2}},
	{"matrix", [][]int32{{1, 2}, {3, 4}, {5, 6}}, "C6 06000000 01000000 02000000 03000000 04000000 05000000 06000000 02000000 03000000 02000000", nil},
	{"matrix of Byte", []ua.ByteArray{{1, 2}, {3, 4}}, "C3 04000000 01020304 02000000 02000000 02000000", nil},
	{"matrix of String", [][]string{{"a"}, {"b"}}, "CC 02000000 01000000 61 01000000 62 02000000 02000000 01000000", nil},
	{"three dimensions", [][][]uint8{{{1}, {2}}}, "CF 02000000 01000000 01 01000000 02 02000000 01000000 02000000", nil},
	{"matrix of Variant", [][]*ua.Variant{{ua.MustVariant(true)}}, "D8 01000000 01 01 02000000 01000000 01000000", nil},
	{"matrix with a dimension of 0", [][]int32{{}, {}}, "86 00000000", []int32{}},
	{"empty matrix", [][]int32{}, "86 00000000", []int32{}},
}

func TestVariantGolden(t *testing.T) {
	for _, c := range variantCases {
		t.Run(c.name, func(t *testing.T) {
			wire := unhex(t, c.wire)
			v, err := NewVariant(c.value)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(v.Encoded(), wire) {
				t.Fatalf("encoded\n%x\nwant\n%x", v.Encoded(), wire)
			}
			d := NewDecoder(wire, nil)
			view := d.Variant()
			if d.Err() != nil || d.Remaining() != 0 || !view.Equal(v) || !bytes.Equal(AppendVariant(nil, view), wire) {
				t.Fatalf("view is %x, %v", view.Encoded(), d.Err())
			}
			if want := c.value == nil; view.IsNull() != want {
				t.Errorf("IsNull = %v", view.IsNull())
			}
			got, err := view.Value()
			if err != nil {
				t.Fatal(err)
			}
			want := c.back
			if want == nil {
				want = c.value
			}
			if c.name != "array of structures" && !reflect.DeepEqual(got, want) {
				t.Errorf("Value() = %#v, want %#v", got, want)
			}
			// Through gopcua's type and back it is the same again.
			u, err := view.UA()
			if err != nil {
				t.Fatal(err)
			}
			if back, err := VariantOf(u); err != nil || !back.Equal(v) {
				t.Errorf("through ua it is %x, %v", back.Encoded(), err)
			}
			clone := view.Clone()
			clear(wire)
			if !clone.Equal(v) {
				t.Error("Clone aliases")
			}
			if got2, _ := v.Value(); !reflect.DeepEqual(got, got2) {
				t.Error("Value aliases")
			}
		})
	}
}

func TestVariantAccessors(t *testing.T) {
	if got, ok := Int64(-5).Int64(); got != -5 || !ok {
		t.Error("Int64", got, ok)
	}
	for _, c := range []struct {
		v      Variant
		i      int64
		iok    bool
		u      uint64
		uok    bool
		f      float64
		fok    bool
		isBool bool
	}{
		{SByte(-1), -1, true, 0, false, -1, true, false},
		{Byte(200), 200, true, 200, true, 200, true, false},
		{Int16(-300), -300, true, 0, false, -300, true, false},
		{UInt16(65535), 65535, true, 65535, true, 65535, true, false},
		{Int32(math.MinInt32), math.MinInt32, true, 0, false, math.MinInt32, true, false},
		{UInt32(math.MaxUint32), math.MaxUint32, true, math.MaxUint32, true, math.MaxUint32, true, false},
		{Int64(7), 7, true, 7, true, 7, true, false},
		{UInt64(math.MaxUint64), 0, false, math.MaxUint64, true, math.MaxUint64, true, false},
		{Float(0.5), 0, false, 0, false, 0.5, true, false},
		{Double(0.1), 0, false, 0, false, 0.1, true, false},
		{Boolean(true), 0, false, 0, false, 0, false, true},
		{String("1"), 0, false, 0, false, 0, false, false},
		{Variant{}, 0, false, 0, false, 0, false, false},
		{must(NewVariant([]int32{1})), 0, false, 0, false, 0, false, false},
	} {
		t.Run(fmt.Sprintf("%x", c.v.Encoded()), func(t *testing.T) {
			if i, ok := c.v.Int64(); ok != c.iok || ok && i != c.i {
				t.Error("Int64", i, ok)
			}
			if u, ok := c.v.Uint64(); ok != c.uok || ok && u != c.u {
				t.Error("Uint64", u, ok)
			}
			if f, ok := c.v.Float64(); ok != c.fok || ok && f != c.f {
				t.Error("Float64", f, ok)
			}
			if _, ok := c.v.Bool(); ok != c.isBool {
				t.Error("Bool", ok)
			}
		})
	}
	if b, ok := String("ab").Bytes(); !ok || string(b) != "ab" {
		t.Error("Bytes of a String")
	}
	if b, ok := ByteString(nil).Bytes(); !ok || b != nil {
		t.Error("Bytes of a null ByteString")
	}
	if b, ok := XMLElement([]byte{}).Bytes(); !ok || b == nil {
		t.Error("Bytes of an empty XmlElement")
	}
	if _, ok := Int32(1).Bytes(); ok {
		t.Error("Bytes of an Int32")
	}
	if id, ok := NodeIDVariant(StringID(1, "a")).NodeID(); !ok || !id.Equal(StringID(1, "a")) {
		t.Error("NodeID")
	}
	if id, ok := ExpandedNodeIDVariant(ExpandedNodeID{NodeID: NumericID(1, 2), ServerIndex: 3}).ExpandedNodeID(); !ok || id.ServerIndex != 3 {
		t.Error("ExpandedNodeID")
	}
	if q, ok := QualifiedNameVariant(QualifiedName{1, []byte("q")}).QualifiedName(); !ok || string(q.Name) != "q" {
		t.Error("QualifiedName")
	}
	if l, ok := LocalizedTextVariant(Text("l")).LocalizedText(); !ok || string(l.Text) != "l" {
		t.Error("LocalizedText")
	}
	if x, ok := ExtensionObjectVariant(ExtensionObject{Encoding: 1, Body: []byte{1}}).ExtensionObject(); !ok || len(x.Body) != 1 {
		t.Error("ExtensionObject")
	}
	if dv, ok := DataValueVariant(DataValue{Mask: 1, Value: Int32(5)}).DataValue(); !ok || !dv.Value.Equal(Int32(5)) {
		t.Error("DataValue")
	}
	if g, ok := GUIDVariant(guidExample).GUID(); !ok || g != guidExample {
		t.Error("GUID")
	}
	if c, ok := StatusCodeVariant(ua.StatusBad).StatusCode(); !ok || c != ua.StatusBad {
		t.Error("StatusCode")
	}
	if d, ok := DateTimeVariant(7).DateTime(); !ok || d != 7 {
		t.Error("DateTime")
	}
	if n, ok := must(NewVariant(ua.MustVariant(true))).Nested(); !ok || !n.Equal(Boolean(true)) {
		t.Error("Nested")
	}
	if _, ok := Boolean(true).NodeID(); ok {
		t.Error("NodeID of a Boolean")
	}
}

func must(v Variant, err error) Variant {
	if err != nil {
		panic(err)
	}
	return v
}

func TestVariantElements(t *testing.T) {
	for _, c := range []struct {
		name  string
		value any
		dims  []uint32
		elems []Variant
	}{
		{"Int32", []int32{7, 8}, []uint32{2}, []Variant{Int32(7), Int32(8)}},
		{"String", []string{"", "abc"}, []uint32{2}, []Variant{String(""), String("abc")}},
		{"Variant", []any{nil, int32(1), []bool{true}}, []uint32{3}, []Variant{{}, Int32(1), must(NewVariant([]bool{true}))}},
		{"matrix", [][]string{{"a", "b"}, {"c", "d"}}, []uint32{2, 2}, []Variant{String("a"), String("b"), String("c"), String("d")}},
		{"DataValue", []DataValue{{Mask: 1, Value: Int32(1)}}, []uint32{1}, []Variant{DataValueVariant(DataValue{Mask: 1, Value: Int32(1)})}},
		{"empty", []int32{}, []uint32{0}, nil},
		{"null", []int32(nil), nil, nil},
		{"scalar", int32(1), nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := must(NewVariant(c.value))
			if !reflect.DeepEqual(v.Dims(), c.dims) {
				t.Errorf("Dims = %v", v.Dims())
			}
			for i, want := range c.elems {
				if got := v.Element(i); !got.Equal(want) {
					t.Errorf("Element(%d) = %x, want %x", i, got.Encoded(), want.Encoded())
				}
			}
			n := 0
			for i, e := range v.Elements() {
				if i != n || !e.Equal(c.elems[i]) {
					t.Errorf("Elements gives %x for %d", e.Encoded(), i)
				}
				n++
			}
			if n != len(c.elems) {
				t.Errorf("Elements gives %d", n)
			}
			for range v.Elements() {
				break
			}
			for _, i := range []int{-1, len(c.elems), math.MaxInt} {
				if !v.Element(i).IsNull() {
					t.Errorf("Element(%d) is not null", i)
				}
			}
		})
	}
	if r := must(NewVariant([][]int32{{1}})).Rank(); r != 2 {
		t.Errorf("Rank of a matrix = %d", r)
	}
	if r := must(NewVariant([]int32{1})).Rank(); r != 1 {
		t.Errorf("Rank of an array = %d", r)
	}
	if r := Int32(1).Rank(); r != 0 {
		t.Errorf("Rank of a scalar = %d", r)
	}
}

// A walk over many Variants takes linear time: with Element it would take minutes.
func TestVariantElementsLinear(t *testing.T) {
	v := must(NewVariant(make([]Variant, 200_000)))
	n := 0
	for _, e := range v.Elements() {
		if e.IsNull() {
			n++
		}
	}
	if n != 200_000 {
		t.Errorf("%d elements", n)
	}
}

func TestVariantInvalid(t *testing.T) {
	for _, c := range []struct {
		name, wire string
		want       ua.StatusCode
	}{
		{"empty", "", ua.StatusBadDecodingError},
		{"type 32", "20 01", ua.StatusBadDecodingError},
		{"null with array bit", "80 00000000", ua.StatusBadDecodingError},
		{"dimensions without array", "46 01000000 00000000", ua.StatusBadDecodingError},
		{"array cut short", "86 02000000 01000000", ua.StatusBadDecodingError},
		{"A14: array of 2^31-1", "86 FFFFFF7F", ua.StatusBadEncodingLimitsExceeded},
		{"array of negative length", "86 FEFFFFFF", ua.StatusBadDecodingError},
		{"A21: zero dimensions", "C6 00000000 02000000 00000000 00000000", ua.StatusBadDecodingError},
		{"A21: one zero dimension", "C6 01000000 01000000 02000000 00000000 01000000", ua.StatusBadDecodingError},
		{"A21: product overflows to 0", "C6 00000000 02000000 00000080 02000000", ua.StatusBadDecodingError},
		{"X26: product overflows 2^32 to the length", "C6 01000000 01000000 02000000 01000100 01000100", ua.StatusBadDecodingError},
		{"X26: product overflows 2^64", "C6 01000000 01000000 04000000 00000140 00000140 00000140 00000140", ua.StatusBadDecodingError},
		{"X26: mismatch", "C6 02000000 01000000 02000000 02000000 03000000 01000000", ua.StatusBadDecodingError},
		{"X26: negative dimension", "C6 01000000 01000000 02000000 FFFFFFFF FFFFFFFF", ua.StatusBadDecodingError},
		{"X26: dimensions of a null array", "C6 FFFFFFFF 01000000 01000000", ua.StatusBadDecodingError},
		{"33 dimensions", "C6 01000000 01000000 21000000" + string(bytes.Repeat([]byte("01000000"), 33)), ua.StatusBadEncodingLimitsExceeded},
		{"dimensions claimed but absent", "C6 01000000 01000000 FFFFFF7F", ua.StatusBadEncodingLimitsExceeded},
		{"DataValue with reserved bits", "17 40", ua.StatusBadDecodingError},
		{"DiagnosticInfo with reserved bit", "19 80", ua.StatusBadDecodingError},
		{"ExtensionObject encoding 3", "16 0000 03", ua.StatusBadDecodingError},
		{"A17: DiagnosticInfo without the inner one it announces", "19 40", ua.StatusBadDecodingError},
	} {
		t.Run(c.name, func(t *testing.T) {
			wire := unhex(t, c.wire)
			d := NewDecoder(wire, nil)
			d.Variant()
			wantCode(t, d.Err(), c.want)
			d = NewDecoder(wire, nil)
			d.uaVariant(new(ua.Variant))
			wantCode(t, d.Err(), c.want)
		})
	}
}

// What is odd but has a meaning is taken.
func TestVariantLenient(t *testing.T) {
	for _, c := range []struct {
		name, wire string
		want       any
	}{
		{"one dimension", "C6 02000000 01000000 02000000 01000000 02000000", []int32{1, 2}},
		{"no dimensions", "C6 01000000 01000000 00000000", []int32{1}},
		{"null dimensions", "C6 01000000 01000000 FFFFFFFF", []int32{1}},
		{"reserved type is a ByteString", "1A 01000000 05", []byte{5}},
		{"array of reserved type", "9F 01000000 01000000 05", [][]byte{{5}}},
		{"Boolean 2", "01 02", true},
		{"Bad UTF-8 stays", "0C 02000000 FFFE", "\xff\xfe"},
		{"null String", "0C FFFFFFFF", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			wire := unhex(t, c.wire)
			d := NewDecoder(wire, nil)
			v := d.Variant()
			if d.Err() != nil || !bytes.Equal(v.Encoded(), wire) {
				t.Fatalf("%x, %v", v.Encoded(), d.Err())
			}
			if got, err := v.Value(); err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("Value() = %#v, %v", got, err)
			}
		})
	}
}

func TestNewVariantErrors(t *testing.T) {
	deep := any(ua.MustVariant(true))
	for range 150 {
		deep = []any{deep}
	}
	for _, c := range []struct {
		name  string
		value any
		want  ua.StatusCode
	}{
		{"channel", make(chan int), ua.StatusBadTypeMismatch},
		{"unknown structure", &struct{ A int }{}, ua.StatusBadTypeMismatch},
		{"slice of functions", []func(){}, ua.StatusBadTypeMismatch},
		{"rows of unequal length", [][]int32{{1, 2}, {3}}, ua.StatusBadEncodingError},
		{"rows of unequal length below", [][][]int32{{{1}, {2}}, {{1}}}, ua.StatusBadEncodingError},
		{"unregistered body", &ua.ExtensionObject{EncodingMask: 1, Value: &struct{ A int }{}}, ua.StatusBadEncodingError},
		{"too deep", deep, ua.StatusBadEncodingLimitsExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewVariant(c.value)
			if got := uastatus.Code(err); got != c.want {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestDataValue(t *testing.T) {
	dv := DataValue{Mask: 0x3F, Value: Int32(5), Status: ua.StatusUncertain, SourceTimestamp: 1, ServerTimestamp: 2, SourcePicoseconds: 3, ServerPicoseconds: 4}
	// OPC 10000-6 §5.2.2.17: picoseconds follow their timestamp.
	wire := unhex(t, "3F 06 05000000 00000040 0100000000000000 0300 0200000000000000 0400")
	if got := AppendDataValue(nil, &dv); !bytes.Equal(got, wire) {
		t.Fatalf("encoded %x", got)
	}
	d := NewDecoder(wire, nil)
	got := d.DataValue()
	if d.Err() != nil || !reflect.DeepEqual(got, dv) {
		t.Errorf("decoded %+v, %v", got, d.Err())
	}
	u, err := got.UA()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := DataValueOf(u); err != nil || !reflect.DeepEqual(back, dv) {
		t.Errorf("through ua it is %+v, %v", back, err)
	}
	// Fields without their bit are not written.
	dv.Mask = ua.DataValueStatusCode
	if got := AppendDataValue(nil, &dv); !bytes.Equal(got, unhex(t, "02 00000040")) {
		t.Errorf("encoded %x", got)
	}
	// A forgotten mask is made up for.
	if back, err := DataValueOf(&ua.DataValue{Value: ua.MustVariant(true), Status: ua.StatusBad}); err != nil || back.Mask != 3 {
		t.Errorf("mask is %x, %v", back.Mask, err)
	}
	if back, err := DataValueOf(&ua.DataValue{Value: new(ua.Variant)}); err != nil || back.Mask != 0 {
		t.Errorf("mask of an empty one is %x, %v", back.Mask, err)
	}
	clone := got.Clone()
	clear(wire)
	if !clone.Value.Equal(Int32(5)) {
		t.Error("Clone aliases")
	}
}
