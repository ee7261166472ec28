package uabinary

import (
	"testing"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

func wantStatus(t *testing.T, got, want ua.StatusCode) {
	t.Helper()
	if got != want {
		t.Errorf("%s, want %s", uastatus.Name(got), uastatus.Name(want))
	}
}

func rangeOf(t testing.TB, s string) NumericRange {
	t.Helper()
	r, status := ParseNumericRange([]byte(s))
	if status != ua.StatusGood {
		t.Fatalf("ParseNumericRange(%q): %s", s, uastatus.Name(status))
	}
	return r
}

// OPC 10000-4 §7.27, NumericRange: the syntax.
func TestParseNumericRange(t *testing.T) {
	for _, s := range []string{"0", "1:2", "0:1,2", "1,2:3,4", "2147483647", "007"} {
		if r := rangeOf(t, s); r.IsZero() {
			t.Errorf("%q is the whole value", s)
		}
	}
	for _, b := range [][]byte{nil, {}} {
		if r, status := ParseNumericRange(b); !r.IsZero() || status != ua.StatusGood {
			t.Error("empty text is not the whole value")
		}
	}
	for _, s := range []string{"a", "-1", "1:", ":1", "1:1", "2:1", "1:2:3", "1,", ",1", "1,,2", " 1", "1 ", "+1", "1.5", "0x1",
		"2147483648", "4294967296", "99999999999999999999", "1:4294967297",
		"0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0"} {
		if _, status := ParseNumericRange([]byte(s)); status != ua.StatusBadIndexRangeInvalid {
			t.Errorf("ParseNumericRange(%q): %s", s, uastatus.Name(status))
		}
	}
}

var cube = [][][]int32{
	{{0, 1, 2}, {3, 4, 5}},
	{{6, 7, 8}, {9, 10, 11}},
}

// OPC 10000-4 §7.27, NumericRange: reading.
func TestVariantRange(t *testing.T) {
	for _, c := range []struct {
		name  string
		value any
		r     string
		want  any
		code  ua.StatusCode
	}{
		{"whole value", []int32{1, 2}, "", []int32{1, 2}, ua.StatusGood},
		{"one element is an array of one", []int32{1, 2, 3}, "1", []int32{2}, ua.StatusGood},
		{"some", []int32{1, 2, 3}, "1:2", []int32{2, 3}, ua.StatusGood},
		{"upper bound is cut", []int32{1, 2, 3}, "1:9", []int32{2, 3}, ua.StatusGood},
		{"beyond the end", []int32{1, 2, 3}, "3", nil, ua.StatusBadIndexRangeNoData},
		{"beyond the end, range", []int32{1, 2, 3}, "3:2147483647", nil, ua.StatusBadIndexRangeNoData},
		{"empty array", []int32{}, "0", nil, ua.StatusBadIndexRangeNoData},
		{"null array", []int32(nil), "0", nil, ua.StatusBadIndexRangeNoData},
		{"null array of String", []string(nil), "0", nil, ua.StatusBadIndexRangeNoData},
		{"null", nil, "0", nil, ua.StatusBadIndexRangeNoData},
		{"scalar", int32(1), "0", nil, ua.StatusBadIndexRangeNoData},
		{"too many dimensions", []int32{1}, "0,0", nil, ua.StatusBadIndexRangeNoData},
		{"too few dimensions", cube, "0,0", nil, ua.StatusBadIndexRangeNoData},
		{"variable size", []string{"a", "bb", "ccc"}, "1:2", []string{"bb", "ccc"}, ua.StatusGood},
		{"Variants", []any{int32(1), "a", nil}, "1:2", []any{"a", nil}, ua.StatusGood},
		{"matrix", [][]int32{{1, 2}, {3, 4}, {5, 6}}, "1:2,0", [][]int32{{3}, {5}}, ua.StatusGood},
		{"matrix, one element", [][]int32{{1, 2}, {3, 4}}, "1,1", [][]int32{{4}}, ua.StatusGood},
		{"matrix, cut", [][]int32{{1, 2}, {3, 4}}, "1:5,0:5", [][]int32{{3, 4}}, ua.StatusGood},
		{"matrix, beyond", [][]int32{{1, 2}, {3, 4}}, "0,2", nil, ua.StatusBadIndexRangeNoData},
		{"three dimensions", cube, "0:1,1,1:2", [][][]int32{{{4, 5}}, {{10, 11}}}, ua.StatusGood},
		{"matrix of variable size", [][]string{{"a", "b"}, {"c", "dd"}}, "0:1,1", [][]string{{"b"}, {"dd"}}, ua.StatusGood},
		{"String", "Hello", "1:3", "ell", ua.StatusGood},
		{"String, one character", "Hello", "4", "o", ua.StatusGood},
		{"String, cut", "Hello", "3:99", "lo", ua.StatusGood},
		{"String counts characters", "Größe水", "2:3", "öß", ua.StatusGood},
		{"String, beyond", "Größe", "5", nil, ua.StatusBadIndexRangeNoData},
		{"String, bad UTF-8", "\xff\xfeab", "1:2", "\xfea", ua.StatusGood},
		{"String, two dimensions", "Hello", "0,0", nil, ua.StatusBadIndexRangeNoData},
		{"null ByteString", []byte(nil), "0", nil, ua.StatusBadIndexRangeNoData},
		{"ByteString", []byte{1, 2, 3}, "1:2", []byte{2, 3}, ua.StatusGood},
		{"ByteString, beyond", []byte{1, 2, 3}, "3", nil, ua.StatusBadIndexRangeNoData},
		{"XmlElement", ua.XMLElement("<a/>"), "0", nil, ua.StatusBadIndexRangeNoData},
		{"within Strings", []string{"abc", "", "def"}, "0:2,1:2", [][]byte{[]byte("bc"), nil, []byte("ef")}, ua.StatusGood},
		{"within Strings, nothing", []string{"abc", ""}, "0:1,5", nil, ua.StatusBadIndexRangeNoData},
		{"within ByteStrings of a matrix", [][][]byte{{{1, 2}}, {{3, 4}}}, "1,0,1", [][][]byte{{{4}}}, ua.StatusGood},
		{"within Int32", []int32{1}, "0,0", nil, ua.StatusBadIndexRangeNoData},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := must(NewVariant(c.value))
			got, status := v.Range(rangeOf(t, c.r))
			wantStatus(t, status, c.code)
			want := must(NewVariant(c.want))
			if c.name == "within Strings" {
				want.b[0] = want.b[0]&^variantType | byte(ua.TypeIDString) // null Strings have no Go value
			}
			if !got.Equal(want) {
				t.Errorf("%x, want %x", got.Encoded(), want.Encoded())
			}
			d := NewDecoder(got.Encoded(), nil)
			if d.Variant(); d.Err() != nil || d.Remaining() != 0 {
				t.Errorf("the result is no Variant: %v", d.Err())
			}
		})
	}
}

// OPC 10000-4 §7.27, NumericRange: writing.
func TestVariantWithRange(t *testing.T) {
	for _, c := range []struct {
		name        string
		value, part any
		r           string
		want        any
		code        ua.StatusCode
	}{
		{"whole value", []int32{1}, []int32{2, 3}, "", []int32{2, 3}, ua.StatusGood},
		{"one", []int32{1, 2, 3}, []int32{9}, "1", []int32{1, 9, 3}, ua.StatusGood},
		{"some", []int32{1, 2, 3}, []int32{8, 9}, "1:2", []int32{1, 8, 9}, ua.StatusGood},
		{"beyond the end", []int32{1, 2, 3}, []int32{8, 9}, "2:3", nil, ua.StatusBadIndexRangeNoData},
		{"too few elements", []int32{1, 2, 3}, []int32{8}, "1:2", nil, uastatus.BadIndexRangeDataMismatch},
		{"too many elements", []int32{1, 2, 3}, []int32{8, 9, 10}, "1:2", nil, uastatus.BadIndexRangeDataMismatch},
		{"scalar part", []int32{1, 2, 3}, int32(8), "1", nil, uastatus.BadIndexRangeDataMismatch},
		{"null part", []int32{1, 2, 3}, nil, "1", nil, ua.StatusBadTypeMismatch},
		{"null array part", []int32{1, 2, 3}, []int32(nil), "1", nil, uastatus.BadIndexRangeDataMismatch},
		{"other type", []int32{1, 2, 3}, []uint32{8}, "1", nil, ua.StatusBadTypeMismatch},
		{"into null", nil, []int32{8}, "1", nil, ua.StatusBadIndexRangeNoData},
		{"into null array", []int32(nil), []int32{8}, "0", nil, ua.StatusBadIndexRangeNoData},
		{"into null array of String", []string(nil), []string{"a"}, "0", nil, ua.StatusBadIndexRangeNoData},
		{"into scalar", int32(1), int32(2), "0", nil, ua.StatusBadIndexRangeNoData},
		{"too many dimensions", []int32{1}, []int32{2}, "0,0", nil, ua.StatusBadIndexRangeNoData},
		{"variable size grows", []string{"a", "b", "c"}, []string{"long one", ""}, "1:2", []string{"a", "long one", ""}, ua.StatusGood},
		{"variable size shrinks", []string{"long one", "b"}, []string{""}, "0", []string{"", "b"}, ua.StatusGood},
		{"Variants", []any{int32(1), "a"}, []any{[]bool{true}}, "0", []any{[]bool{true}, "a"}, ua.StatusGood},
		{"matrix", [][]int32{{1, 2}, {3, 4}, {5, 6}}, [][]int32{{8}, {9}}, "1:2,0", [][]int32{{1, 2}, {8, 4}, {9, 6}}, ua.StatusGood},
		{"matrix, part of wrong shape", [][]int32{{1, 2}, {3, 4}}, [][]int32{{8}, {9}}, "0,0:1", nil, uastatus.BadIndexRangeDataMismatch},
		{"matrix, flat part", [][]int32{{1, 2}, {3, 4}}, []int32{8, 9}, "0,0:1", nil, uastatus.BadIndexRangeDataMismatch},
		{"three dimensions", cube, [][][]int32{{{-4, -5}}, {{-10, -11}}}, "0:1,1,1:2", [][][]int32{
			{{0, 1, 2}, {3, -4, -5}}, {{6, 7, 8}, {9, -10, -11}}}, ua.StatusGood},
		{"matrix of variable size", [][]string{{"a", "b"}, {"c", "d"}}, [][]string{{"B"}, {"DDD"}}, "0:1,1", [][]string{{"a", "B"}, {"c", "DDD"}}, ua.StatusGood},
		{"String", "Hello", "EL", "1:2", "HELlo", ua.StatusGood},
		{"String counts characters", "Größe", "oss", "2:4", "Gross", ua.StatusGood},
		{"String, part too short", "Hello", "E", "1:2", nil, uastatus.BadIndexRangeDataMismatch},
		{"String, beyond", "Hello", "xy", "4:5", nil, ua.StatusBadIndexRangeNoData},
		{"String, array part", "Hello", []string{"E"}, "1", nil, uastatus.BadIndexRangeDataMismatch},
		{"ByteString", []byte{1, 2, 3}, []byte{9}, "2", []byte{1, 2, 9}, ua.StatusGood},
		{"null ByteString part", []byte{1, 2, 3}, []byte(nil), "2", nil, uastatus.BadIndexRangeDataMismatch},
		{"within Strings", []string{"abc", "x", "def"}, []string{"B"}, "0,1", []string{"aBc", "x", "def"}, ua.StatusGood},
		{"within Strings, beyond one", []string{"abc", "x"}, []string{"B", "C"}, "0:1,1", nil, ua.StatusBadIndexRangeNoData},
		{"within Strings, wrong length", []string{"abc"}, []string{"BB"}, "0,1", nil, uastatus.BadIndexRangeDataMismatch},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, part := must(NewVariant(c.value)), must(NewVariant(c.part))
			before := v.Clone()
			got, status := v.WithRange(rangeOf(t, c.r), part)
			wantStatus(t, status, c.code)
			if want := must(NewVariant(c.want)); !got.Equal(want) {
				t.Errorf("%x, want %x", got.Encoded(), want.Encoded())
			}
			if !v.Equal(before) {
				t.Error("the value itself has changed")
			}
		})
	}
}
