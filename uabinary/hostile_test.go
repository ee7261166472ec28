package uabinary

import (
	"bytes"
	"reflect"
	"runtime"
	"testing"

	"github.com/gopcua/opcua/ua"
)

// Rows of the catalogue of hostile input that concern decoding. Each input goes to the views and to the structures.

// nestedVariants is n Variants: n-1 arrays of one Variant around a Boolean array, which is no level of its own.
func nestedVariants(n int) []byte {
	return append(bytes.Repeat([]byte{0x98, 1, 0, 0, 0}, n), 1, 1)
}

func decodeBoth(b []byte, view func(*Decoder), structure func(*Decoder)) []error {
	d1, d2 := NewDecoder(b, nil), NewDecoder(b, nil)
	view(d1)
	structure(d2)
	return []error{d1.Err(), d2.Err()}
}

func bothVariant(b []byte) []error {
	return decodeBoth(b, func(d *Decoder) { d.Variant() }, func(d *Decoder) { d.uaVariant(new(ua.Variant)) })
}

func TestX5NestedVariantArrays(t *testing.T) {
	for _, c := range []struct {
		n    int
		want ua.StatusCode
	}{
		{99, ua.StatusGood},
		{100, ua.StatusGood},
		{101, ua.StatusBadEncodingLimitsExceeded},
		{1000, ua.StatusBadEncodingLimitsExceeded},
		{800_000, ua.StatusBadEncodingLimitsExceeded},
	} {
		for _, err := range bothVariant(nestedVariants(c.n)) {
			wantCode(t, err, c.want)
		}
		// In a Write it is the same: the DataValue of the operand is no level.
		write := append([]byte{ua.DataValueValue}, nestedVariants(c.n)...)
		for _, err := range decodeBoth(write, func(d *Decoder) { d.DataValue() }, func(d *Decoder) { d.uaDataValue(new(ua.DataValue), new(dataValueParts)) }) {
			wantCode(t, err, c.want)
		}
	}
}

func TestA19RecursionLimit(t *testing.T) {
	scalar := func(n int) []byte { return append(bytes.Repeat([]byte{byte(ua.TypeIDVariant)}, n), 1, 1) }
	values := func(n int) []byte {
		return append(bytes.Repeat([]byte{byte(ua.TypeIDDataValue), ua.DataValueValue}, n), 1, 1)
	}
	for _, c := range []struct {
		name string
		in   []byte
		want ua.StatusCode
	}{
		{"100 Variants", scalar(100), ua.StatusGood},
		{"101 Variants", scalar(101), ua.StatusBadEncodingLimitsExceeded},
		{"1000 Variants", scalar(1000), ua.StatusBadEncodingLimitsExceeded},
		{"50 DataValues in Variants", values(50), ua.StatusGood},
		{"51 DataValues in Variants", values(51), ua.StatusBadEncodingLimitsExceeded},
		{"10000 DataValues in Variants", values(10000), ua.StatusBadEncodingLimitsExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, err := range bothVariant(c.in) {
				wantCode(t, err, c.want)
			}
		})
	}
}

// nestedBodies is n ExtensionObjects in each other, each with a KeyValuePair whose value is the next one.
func nestedBodies(n int, typeID NodeID) ExtensionObject {
	x := ExtensionObject{}
	for range n {
		body := AppendQualifiedName(nil, QualifiedName{})
		body = AppendVariant(body, ExtensionObjectVariant(x))
		x = ExtensionObject{TypeID: ExpandedNodeID{NodeID: typeID}, Encoding: ua.ExtensionObjectBinary, Body: body}
	}
	return x
}

func TestA20X33NestedExtensionObjects(t *testing.T) {
	known, unknown := NumericID(0, bodyTypeID(new(ua.KeyValuePair))), NumericID(3, 5)
	for _, c := range []struct {
		name   string
		n      int
		typeID NodeID
		want   ua.StatusCode
	}{
		// Each takes two levels: body and Variant.
		{"49 known", 49, known, ua.StatusGood},
		{"50 known", 50, known, ua.StatusGood},
		{"51 known", 51, known, ua.StatusBadEncodingLimitsExceeded},
		{"500 known", 500, known, ua.StatusBadEncodingLimitsExceeded},
		{"20000 known", 20000, known, ua.StatusBadEncodingLimitsExceeded},
		// The body of an unknown type is bytes.
		{"500 unknown", 500, unknown, ua.StatusGood},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.n > 5000 {
				c.n = 5000 // the encoding is quadratic work
			}
			b := AppendExtensionObject(nil, nestedBodies(c.n, c.typeID))
			for _, err := range decodeBoth(b, func(d *Decoder) { d.ExtensionObject() }, func(d *Decoder) {
				d.uaExtensionObject(new(ua.ExtensionObject), new(extensionObjectParts))
			}) {
				wantCode(t, err, c.want)
			}
		})
	}
	t.Run("one budget for a message", func(t *testing.T) {
		// 30 bodies, then 60 Variants: each is allowed by itself.
		body := append(AppendQualifiedName(nil, QualifiedName{}), nestedVariants(60)...)
		x := ExtensionObject{TypeID: ExpandedNodeID{NodeID: known}, Encoding: ua.ExtensionObjectBinary, Body: body}
		for range 29 {
			body := AppendQualifiedName(nil, QualifiedName{})
			body = AppendVariant(body, ExtensionObjectVariant(x))
			x = ExtensionObject{TypeID: x.TypeID, Encoding: x.Encoding, Body: body}
		}
		w := &ua.WriteRequest{NodesToWrite: []*ua.WriteValue{{Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(true)}}}}
		var e Encoder
		EncodeMessage(&e, w)
		// Put the value in place of the Boolean at the end.
		b := append(bytes.TrimSuffix(e.B, []byte{1, 1}), ExtensionObjectVariant(x).Encoded()...)
		_, err := DecodeMessage(NewDecoder(b, nil))
		wantCode(t, err, ua.StatusBadEncodingLimitsExceeded)
	})
	t.Run("UA has a budget too", func(t *testing.T) {
		_, err := nestedBodies(500, known).UA()
		wantCode(t, err, ua.StatusBadEncodingLimitsExceeded)
		if _, err := nestedBodies(40, known).UA(); err != nil {
			t.Error(err)
		}
	})
}

func TestA18NestedDiagnosticInfo(t *testing.T) {
	for _, c := range []struct {
		n    int
		want ua.StatusCode
	}{{99, ua.StatusGood}, {100, ua.StatusBadEncodingLimitsExceeded}, {10_000, ua.StatusBadEncodingLimitsExceeded}, {3_000_000, ua.StatusBadEncodingLimitsExceeded}} {
		b := append(bytes.Repeat([]byte{ua.DiagnosticInfoInnerDiagnosticInfo}, c.n), 0)
		for _, err := range decodeBoth(b, (*Decoder).SkipDiagnosticInfo, func(d *Decoder) { d.uaDiagnosticInfo(new(ua.DiagnosticInfo)) }) {
			wantCode(t, err, c.want)
		}
	}
}

func TestA17DiagnosticInfoWithoutInner(t *testing.T) {
	for _, err := range decodeBoth([]byte{ua.DiagnosticInfoInnerDiagnosticInfo}, (*Decoder).SkipDiagnosticInfo, func(d *Decoder) { d.uaDiagnosticInfo(new(ua.DiagnosticInfo)) }) {
		wantCode(t, err, ua.StatusBadDecodingError)
	}
	// Encoding one whose inner info is missing does not panic.
	var e Encoder
	e.uaDiagnosticInfo(&ua.DiagnosticInfo{EncodingMask: ua.DiagnosticInfoInnerDiagnosticInfo})
	if !bytes.Equal(e.B, []byte{ua.DiagnosticInfoInnerDiagnosticInfo, 0}) {
		t.Errorf("encoded %x", e.B)
	}
}

// X13 and A14: a length that the message cannot hold is refused before anything is allocated for it.
func TestX13HugeLengths(t *testing.T) {
	if raceEnabled {
		t.Skip("counts allocated bytes")
	}
	var e Encoder
	EncodeMessage(&e, &ua.ReadRequest{RequestHeader: &ua.RequestHeader{}, NodesToRead: []*ua.ReadValueID{}})
	read := e.B[: len(e.B)-4 : len(e.B)-4] // without the length of the array
	limits := &Limits{MaxArrayLength: 1<<31 - 1, MaxStringLength: 1<<31 - 1, MaxByteStringLength: 1<<31 - 1}
	for _, length := range []uint32{1000, 100_000, 1 << 30, 1<<31 - 1} {
		for _, front := range [][]byte{{0x86}, {0x98}, {0x8C}, {0x96}, {0x0C}, {0x0F}, read} {
			b := AppendUint32(bytes.Clone(front), length)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			d := NewDecoder(b, limits)
			if len(front) > 1 {
				_, _ = DecodeMessage(d)
			} else {
				d.uaVariant(new(ua.Variant))
			}
			runtime.ReadMemStats(&after)
			if d.Err() == nil {
				t.Errorf("%x: no error", b)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 8192 {
				t.Errorf("%x: allocated %d bytes", b, n)
			}
		}
	}
}

func TestA22LongBrowseName(t *testing.T) {
	for _, n := range []int{127, 128, 200, 64 << 10} {
		m := &ua.TranslateBrowsePathsToNodeIDsRequest{BrowsePaths: []*ua.BrowsePath{{RelativePath: &ua.RelativePath{
			Elements: []*ua.RelativePathElement{{TargetName: &ua.QualifiedName{Name: string(bytes.Repeat([]byte{'x'}, n))}}}}}}}
		var e Encoder
		EncodeMessage(&e, m)
		got, err := DecodeMessage(NewDecoder(e.B, nil))
		if err != nil {
			t.Fatal(err)
		}
		if name := got.(*ua.TranslateBrowsePathsToNodeIDsRequest).BrowsePaths[0].RelativePath.Elements[0].TargetName.Name; len(name) != n {
			t.Errorf("%d characters of %d", len(name), n)
		}
		_, err = DecodeMessage(NewDecoder(e.B, &Limits{MaxStringLength: 100}))
		wantCode(t, err, ua.StatusBadEncodingLimitsExceeded)
	}
}

// An unknown message is not a decoding error.
func TestUnknownMessage(t *testing.T) {
	_, err := DecodeMessage(NewDecoder(AppendTypeID(nil, 9999), nil))
	wantCode(t, err, ua.StatusBadServiceUnsupported)
	var e Encoder
	EncodeMessage(&e, &ua.Range{})
	wantCode(t, e.Err(), ua.StatusBadServiceUnsupported)
	e.Reset(nil)
	EncodeMessage(&e, nil)
	wantCode(t, e.Err(), ua.StatusBadServiceUnsupported)
}

// A23: whatever a fuzzer makes of a message is an error or a message, never a panic. The fuzz targets go on from here.
func TestA23MutatedMessages(t *testing.T) {
	f := newFiller(23)
	for _, zero := range knownMessages() {
		v := reflect.New(reflect.TypeOf(zero).Elem())
		f.fill(v.Elem())
		b := encoded(t, v.Interface())
		for range 100 {
			m := bytes.Clone(b)
			for range 1 + f.IntN(4) {
				switch i := f.IntN(len(m)); f.IntN(3) {
				case 0:
					m[i] = byte(f.Uint32())
				case 1:
					m[i] ^= 1 << f.IntN(8)
				case 2:
					copy(m[i:], []byte{0xFF, 0xFF, 0xFF, 0x7F})
				}
			}
			got, err := DecodeMessage(NewDecoder(m, nil))
			if err != nil {
				continue
			}
			var e Encoder
			EncodeMessage(&e, got)
			if e.Err() != nil {
				t.Errorf("%T is decoded and not encoded: %v", got, e.Err())
			}
		}
	}
}
