package uabinary

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// unhex turns "0A 0B" into bytes.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func wantCode(t *testing.T, err error, want ua.StatusCode) {
	t.Helper()
	if got := uastatus.Code(err); got != want {
		t.Errorf("%v is %s, want %s", err, uastatus.Name(got), uastatus.Name(want))
	}
}

func TestPrimitives(t *testing.T) {
	var b []byte
	b = AppendBool(b, true)
	b = AppendByte(b, 0xFE)
	b = AppendInt16(b, -2)
	b = AppendUint16(b, 0x1234)
	b = AppendInt32(b, -1000000000)
	b = AppendUint32(b, 1000000000)
	b = AppendInt64(b, math.MinInt64)
	b = AppendUint64(b, math.MaxUint64)
	b = AppendFloat(b, -6.5)
	b = AppendDouble(b, math.Pi)
	b = AppendDateTime(b, 42)
	b = AppendStatusCode(b, ua.StatusBadDecodingError)
	b = AppendGUID(b, [16]byte{1, 15: 16})
	b = AppendString(b, "水Boy")
	b = AppendStringBytes(b, nil)
	b = AppendByteString(b, []byte{})
	// Int32 and Float: the examples of OPC 10000-6 §5.2.2.2 and §5.2.2.3; the String is that of §5.2.2.4.
	want := unhex(t, "01 FE FEFF 3412 003665C4 00CA9A3B 0000000000000080 FFFFFFFFFFFFFFFF 0000D0C0 182D4454FB210940"+
		"2A00000000000000 00000780 01000000000000000000000000000010 06000000E6B0B4426F79 FFFFFFFF 00000000")
	if !bytes.Equal(b, want) {
		t.Fatalf("encoded\n%x\nwant\n%x", b, want)
	}
	d := NewDecoder(b, nil)
	if !d.Bool() || d.SByte() != -2 || d.Int16() != -2 || d.UInt16() != 0x1234 || d.Int32() != -1000000000 ||
		d.UInt32() != 1000000000 || d.Int64() != math.MinInt64 || d.UInt64() != math.MaxUint64 || d.Float() != -6.5 ||
		d.Double() != math.Pi || d.DateTime() != 42 || d.StatusCode() != ua.StatusBadDecodingError ||
		d.GUID() != [16]byte{1, 15: 16} || d.String() != "水Boy" {
		t.Error("a primitive does not come back")
	}
	if s := d.StringBytes(); s != nil {
		t.Errorf("null String is %q", s)
	}
	if s := d.ByteString(); s == nil || len(s) != 0 {
		t.Errorf("empty ByteString is %#v", s)
	}
	if d.Err() != nil || d.Remaining() != 0 || d.Pos() != len(b) {
		t.Errorf("%v, %d bytes left at %d", d.Err(), d.Remaining(), d.Pos())
	}
}

func TestDecoderStickyError(t *testing.T) {
	d := NewDecoder([]byte{1, 2, 3, 4, 5, 6}, nil)
	d.UInt32()
	d.UInt32()
	first := d.Err()
	wantCode(t, first, ua.StatusBadDecodingError)
	d.Fail(ua.StatusBadInternalError, "later")
	if d.Byte() != 0 || d.UInt64() != 0 || d.String() != "" || d.ByteString() != nil || d.ArrayLen(1) != -1 ||
		!d.Variant().IsNull() || d.Err() != first || len(d.Rest()) != 0 {
		t.Error("a failed Decoder goes on")
	}
	d.Reset([]byte{7}, nil)
	if d.Byte() != 7 || d.Err() != nil {
		t.Error("Reset keeps the error")
	}
}

// The lengths are those of a null value, of more than there is, of more than the limit, and negative ones.
func TestDecoderLengths(t *testing.T) {
	limits := &Limits{MaxStringLength: 4, MaxByteStringLength: 5, MaxArrayLength: 3}
	for _, c := range []struct {
		name string
		in   string
		read func(d *Decoder)
		want ua.StatusCode
	}{
		{"String as long as the limit", "04000000 61626364", func(d *Decoder) { d.StringBytes() }, ua.StatusGood},
		{"String over the limit", "05000000 6162636465", func(d *Decoder) { d.StringBytes() }, ua.StatusBadEncodingLimitsExceeded},
		{"String longer than the message", "04000000 616263", func(d *Decoder) { d.StringBytes() }, ua.StatusBadDecodingError},
		{"String of negative length", "FEFFFFFF", func(d *Decoder) { d.StringBytes() }, ua.StatusBadDecodingError},
		{"String of 2^31-1 bytes", "FFFFFF7F", func(d *Decoder) { d.StringBytes() }, ua.StatusBadEncodingLimitsExceeded},
		{"null String", "FFFFFFFF", func(d *Decoder) { d.StringBytes() }, ua.StatusGood},
		{"ByteString over the limit", "06000000 616263646566", func(d *Decoder) { d.ByteString() }, ua.StatusBadEncodingLimitsExceeded},
		{"array over the limit", "04000000 01020304", func(d *Decoder) { d.ArrayLen(1) }, ua.StatusBadEncodingLimitsExceeded},
		{"array longer than the message", "03000000 0102", func(d *Decoder) { d.ArrayLen(1) }, ua.StatusBadDecodingError},
		{"array whose smallest elements do not fit", "03000000 0102030405", func(d *Decoder) { d.ArrayLen(2) }, ua.StatusBadDecodingError},
		{"array of 2^31-1", "FFFFFF7F", func(d *Decoder) { d.ArrayLen(1) }, ua.StatusBadEncodingLimitsExceeded},
		{"null array", "FFFFFFFF", func(d *Decoder) { d.ArrayLen(1) }, ua.StatusGood},
		{"length cut short", "FFFFFF", func(d *Decoder) { d.ArrayLen(1) }, ua.StatusBadDecodingError},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := NewDecoder(unhex(t, c.in), limits)
			c.read(d)
			wantCode(t, d.Err(), c.want)
		})
	}
	d := NewDecoder(make([]byte, 9), &Limits{MaxMessageSize: 8})
	wantCode(t, d.Err(), ua.StatusBadEncodingLimitsExceeded)
	if d.Remaining() != 0 {
		t.Error("a message over the limit can be read")
	}
}

// A message may not make the decoder use memory out of proportion: a null Variant is 1 byte against 72.
func TestDecoderMemoryLimit(t *testing.T) {
	var e Encoder
	e.value(make([]*ua.Variant, 10000))
	d := NewDecoder(e.B, &Limits{MaxDecodedBytes: 500_000})
	d.uaVariant(new(ua.Variant))
	wantCode(t, d.Err(), ua.StatusBadEncodingLimitsExceeded)
	d = NewDecoder(e.B, nil)
	d.uaVariant(new(ua.Variant))
	wantCode(t, d.Err(), ua.StatusGood)
}

func TestTypeID(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     uint32
		code     ua.StatusCode
	}{
		{"TwoByte", "00 7F", 127, ua.StatusGood},
		{"FourByte", "01 00 7702", 631, ua.StatusGood},
		{"Numeric", "02 0000 77020000", 631, ua.StatusGood},
		{"namespace 1", "01 01 7702", 0, ua.StatusBadDecodingError},
		{"String", "03 0000 01000000 61", 0, ua.StatusBadDecodingError},
		{"with namespace URI", "81 00 7702 FFFFFFFF", 0, ua.StatusBadDecodingError},
		{"empty", "", 0, ua.StatusBadDecodingError},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := NewDecoder(unhex(t, c.in), nil)
			if got := d.TypeID(); got != c.want {
				t.Errorf("TypeID() = %d, want %d", got, c.want)
			}
			wantCode(t, d.Err(), c.code)
		})
	}
	if got, want := AppendTypeID(nil, 631), unhex(t, "01 00 7702"); !bytes.Equal(got, want) {
		t.Errorf("AppendTypeID = %x, want %x", got, want)
	}
	if got, want := AppendTypeID(nil, 70000), unhex(t, "02 0000 70110100"); !bytes.Equal(got, want) {
		t.Errorf("AppendTypeID = %x, want %x", got, want)
	}
}

func TestHeaders(t *testing.T) {
	h := RequestHeader{
		AuthenticationToken: NodeID{Type: IDOpaque, Bytes: []byte{1, 2, 3}},
		Timestamp:           12345, RequestHandle: 7, ReturnDiagnostics: 0x3FF, AuditEntryID: []byte("audit"), TimeoutHint: 5000,
		AdditionalHeader: ExtensionObject{TypeID: ExpandedNodeID{NodeID: NumericID(2, 9)}, Encoding: 1, Body: []byte{9}},
	}
	b := AppendRequestHeader(nil, &h)
	d := NewDecoder(b, nil)
	got := d.RequestHeader()
	if !bytes.Equal(AppendRequestHeader(nil, &got), b) || d.Err() != nil || d.Remaining() != 0 {
		t.Errorf("RequestHeader comes back as %+v, %v", got, d.Err())
	}
	// The view and the structure of ua are the same bytes.
	var u ua.RequestHeader
	DecodeRequestHeader(NewDecoder(b, nil), &u)
	var e Encoder
	EncodeRequestHeader(&e, &u)
	if !bytes.Equal(e.B, b) {
		t.Errorf("ua.RequestHeader is\n%x\nwant\n%x", e.B, b)
	}
	r := ResponseHeader{Timestamp: 1, RequestHandle: 2, ServiceResult: ua.StatusBadNothingToDo, Diagnostics: []byte{1, 5, 0, 0, 0}, StringTable: []string{"a", ""}}
	b = AppendResponseHeader(nil, &r)
	d = NewDecoder(b, nil)
	back := d.ResponseHeader()
	if !bytes.Equal(AppendResponseHeader(nil, &back), b) || d.Err() != nil || d.Remaining() != 0 {
		t.Errorf("ResponseHeader comes back as %+v, %v", back, d.Err())
	}
	// 24 bytes: time, handle, result, no diagnostics, null table, null header.
	empty := AppendResponseHeader(nil, &ResponseHeader{})
	if want := unhex(t, "0000000000000000 00000000 00000000 00 FFFFFFFF 000000"); !bytes.Equal(empty, want) {
		t.Errorf("empty ResponseHeader is %x, want %x", empty, want)
	}
}
