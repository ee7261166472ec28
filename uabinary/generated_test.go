package uabinary

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
)

// maxTypeID is above every type id of namespace 0 that ua knows.
const maxTypeID = 40000

// filler makes random values that both codecs carry without loss.
type filler struct {
	*rand.Rand
	bodies []reflect.Type
	depth  int
}

func newFiller(seed uint64) *filler {
	f := &filler{Rand: rand.New(rand.NewPCG(seed, 1))}
	for _, v := range knownBodies() {
		// gopcua has these three for messages, not for bodies.
		switch v.(type) {
		case *ua.CallMethodRequest, *ua.MonitoredItemCreateRequest, *ua.MonitoredItemModifyRequest:
			continue
		}
		f.bodies = append(f.bodies, reflect.TypeOf(v).Elem())
	}
	return f
}

// knownBodies returns a zero value of each structure an ExtensionObject may hold.
func knownBodies() (list []any) {
	for id := uint32(1); id < maxTypeID; id++ {
		var d Decoder
		if v := d.decodeBody(id); v != nil {
			list = append(list, v)
		}
	}
	return list
}

// knownMessages returns a zero value of each message.
func knownMessages() (list []any) {
	for id := uint32(1); id < maxTypeID; id++ {
		// No message is longer than that with all lengths 0.
		d := NewDecoder(append(AppendTypeID(nil, id), make([]byte, 500)...), nil)
		if v, err := DecodeMessage(d); err == nil {
			list = append(list, reflect.New(reflect.TypeOf(v).Elem()).Interface())
		}
	}
	return list
}

func (f *filler) fill(v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		*p = time.Unix(f.Int64N(9e9), f.Int64N(1e7)*100).UTC()
		return
	case *ua.NodeID:
		*p = *f.nodeID()
		return
	case *ua.ExpandedNodeID:
		*p = *f.expandedNodeID()
		return
	case *ua.LocalizedText:
		*p = *f.localizedText()
		return
	case *ua.GUID:
		*p = *f.guid()
		return
	case *ua.ExtensionObject:
		*p = *f.extensionObject()
		return
	case *ua.Variant:
		if value := f.value(); value != nil {
			*p = *ua.MustVariant(value)
		}
		return
	case *ua.DataValue:
		*p = *f.dataValue()
		return
	case *ua.DiagnosticInfo:
		*p = *f.diagnosticInfo()
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	case reflect.Slice:
		if n := f.IntN(5) - 1; n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				f.fill(v.Index(i))
			}
		}
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 1)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.Uint64()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(f.Uint64())
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(float32(f.NormFloat64())))
	case reflect.String:
		v.SetString(f.text())
	default:
		panic(v.Type())
	}
}

func (f *filler) text() string { return "Größe-" + fmt.Sprint(f.IntN(1e6)) }

func (f *filler) nodeID() *ua.NodeID {
	switch f.IntN(6) {
	case 0:
		return ua.NewTwoByteNodeID(uint8(f.Uint32()))
	case 1:
		return ua.NewFourByteNodeID(uint8(f.Uint32()), uint16(f.Uint32())|256)
	case 2:
		return ua.NewNumericNodeID(uint16(f.Uint32()), f.Uint32()|1<<16)
	case 3:
		return ua.NewStringNodeID(uint16(f.Uint32()), f.text())
	case 4:
		return ua.NewGUIDNodeID(uint16(f.Uint32()), f.guid().String())
	}
	return ua.NewByteStringNodeID(uint16(f.Uint32()), []byte(f.text()))
}

func (f *filler) expandedNodeID() *ua.ExpandedNodeID {
	uri := ""
	if f.IntN(2) == 0 {
		uri = f.text()
	}
	return ua.NewExpandedNodeID(f.nodeID(), uri, uint32(f.IntN(3)))
}

func (f *filler) localizedText() *ua.LocalizedText {
	t := &ua.LocalizedText{}
	if f.IntN(2) == 0 {
		t.Locale = "de-DE"
	}
	if f.IntN(3) > 0 {
		t.Text = f.text()
	}
	t.UpdateMask()
	return t
}

func (f *filler) guid() *ua.GUID {
	return &ua.GUID{Data1: f.Uint32(), Data2: uint16(f.Uint32()), Data3: uint16(f.Uint32()), Data4: AppendUint64(nil, f.Uint64())}
}

func (f *filler) extensionObject() *ua.ExtensionObject {
	f.depth++
	defer func() { f.depth-- }()
	if f.depth > 3 || f.IntN(4) == 0 {
		return &ua.ExtensionObject{TypeID: ua.NewTwoByteExpandedNodeID(0)}
	}
	for {
		v := reflect.New(f.bodies[f.IntN(len(f.bodies))])
		f.fill(v.Elem())
		// gopcua drops a body of length 0.
		if v.Elem().NumField() > 0 {
			return ua.NewExtensionObject(v.Interface())
		}
	}
}

func (f *filler) dataValue() *ua.DataValue {
	v := &ua.DataValue{EncodingMask: byte(f.IntN(64)), Value: new(ua.Variant)}
	if v.Has(ua.DataValueValue) {
		f.fill(reflect.ValueOf(v.Value).Elem())
	}
	if v.Has(ua.DataValueStatusCode) {
		v.Status = ua.StatusCode(f.Uint32())
	}
	if v.Has(ua.DataValueSourceTimestamp) {
		f.fill(reflect.ValueOf(&v.SourceTimestamp).Elem())
	}
	if v.Has(ua.DataValueServerTimestamp) {
		f.fill(reflect.ValueOf(&v.ServerTimestamp).Elem())
	}
	if v.Has(ua.DataValueSourcePicoseconds) {
		v.SourcePicoseconds = uint16(f.Uint32())
	}
	if v.Has(ua.DataValueServerPicoseconds) {
		v.ServerPicoseconds = uint16(f.Uint32())
	}
	return v
}

func (f *filler) diagnosticInfo() *ua.DiagnosticInfo {
	v := &ua.DiagnosticInfo{EncodingMask: byte(f.IntN(64))}
	if v.Has(ua.DiagnosticInfoSymbolicID) {
		v.SymbolicID = int32(f.Uint32())
	}
	if v.Has(ua.DiagnosticInfoNamespaceURI) {
		v.NamespaceURI = int32(f.Uint32())
	}
	if v.Has(ua.DiagnosticInfoLocale) {
		v.Locale = int32(f.Uint32())
	}
	if v.Has(ua.DiagnosticInfoLocalizedText) {
		v.LocalizedText = int32(f.Uint32())
	}
	if v.Has(ua.DiagnosticInfoAdditionalInfo) {
		v.AdditionalInfo = f.text()
	}
	if v.Has(ua.DiagnosticInfoInnerStatusCode) {
		v.InnerStatusCode = ua.StatusCode(f.Uint32())
	}
	if f.IntN(3) == 0 {
		v.EncodingMask |= ua.DiagnosticInfoInnerDiagnosticInfo
		v.InnerDiagnosticInfo = f.diagnosticInfo()
	}
	return v
}

// builtinTypes are the Go types of the built-in types.
var builtinTypes = []reflect.Type{
	reflect.TypeFor[bool](), reflect.TypeFor[int8](), reflect.TypeFor[uint8](), reflect.TypeFor[int16](),
	reflect.TypeFor[uint16](), reflect.TypeFor[int32](), reflect.TypeFor[uint32](), reflect.TypeFor[int64](),
	reflect.TypeFor[uint64](), reflect.TypeFor[float32](), reflect.TypeFor[float64](), reflect.TypeFor[string](),
	reflect.TypeFor[time.Time](), reflect.TypeFor[*ua.GUID](), reflect.TypeFor[[]byte](), reflect.TypeFor[ua.XMLElement](),
	reflect.TypeFor[*ua.NodeID](), reflect.TypeFor[*ua.ExpandedNodeID](), reflect.TypeFor[ua.StatusCode](),
	reflect.TypeFor[*ua.QualifiedName](), reflect.TypeFor[*ua.LocalizedText](), reflect.TypeFor[*ua.ExtensionObject](),
	reflect.TypeFor[*ua.DataValue](), reflect.TypeFor[*ua.Variant](), reflect.TypeFor[*ua.DiagnosticInfo](),
}

// value returns a value for ua.NewVariant: nil, a scalar, an array or a matrix of any built-in type.
func (f *filler) value() any {
	f.depth++
	defer func() { f.depth-- }()
	if f.depth > 3 || f.IntN(10) == 0 {
		return nil
	}
	t := builtinTypes[f.IntN(len(builtinTypes))]
	rank := f.IntN(4)
	if t == reflect.TypeFor[[]byte]() {
		// Never empty, which gopcua takes for null, and no array, whose elements gopcua forgets.
		return []byte(f.text())
	}
	if t.Kind() == reflect.Uint8 && rank > 0 {
		t, rank = reflect.TypeFor[ua.ByteArray](), rank-1
	}
	return f.matrix(t, rank, 1+f.IntN(3)).Interface()
}

func (f *filler) matrix(t reflect.Type, rank, n int) reflect.Value {
	v := reflect.New(t).Elem()
	switch {
	case rank > 0:
		for range rank {
			t = reflect.SliceOf(t)
		}
		v = reflect.MakeSlice(t, n, n)
		for i := range n {
			v.Index(i).Set(f.matrix(t.Elem(), 0, n))
		}
	case t.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(t, n, n))
		for i := range n {
			v.Index(i).Set(f.matrix(t.Elem(), 0, n))
		}
	default:
		f.fill(v)
	}
	return v
}

// TestGeneratedRoundTrip checks for each structure and message of ua that the decoder brings back what was encoded, and
// that gopcua writes and reads the same bytes.
func TestGeneratedRoundTrip(t *testing.T) {
	f := newFiller(7)
	messages, bodies := knownMessages(), knownBodies()
	if len(messages) < 75 || len(bodies) < 225 {
		t.Fatalf("%d messages and %d bodies", len(messages), len(bodies))
	}
	for _, zero := range messages {
		for range 5 {
			v := reflect.New(reflect.TypeOf(zero).Elem())
			f.fill(v.Elem())
			var e Encoder
			EncodeMessage(&e, v.Interface())
			if e.Err() != nil {
				t.Fatalf("%T: %v", zero, e.Err())
			}
			d := NewDecoder(e.B, nil)
			got, err := DecodeMessage(d)
			if err != nil {
				t.Fatalf("%T: %v\n%x", zero, err, e.B)
			}
			if d.Remaining() != 0 {
				t.Errorf("%T: %d bytes left", zero, d.Remaining())
			}
			if !reflect.DeepEqual(got, v.Interface()) {
				t.Fatalf("%T: decoded\n%#v\nwant\n%#v", zero, got, v.Interface())
			}
			compareWithGopcua(t, e.B[4:], v.Interface(), EncodeMessage)
		}
	}
	for _, zero := range bodies {
		for range 5 {
			v := reflect.New(reflect.TypeOf(zero).Elem())
			f.fill(v.Elem())
			var e Encoder
			e.body(v.Interface())
			if e.Err() != nil {
				t.Fatalf("%T: %v", zero, e.Err())
			}
			d := NewDecoder(e.B, nil)
			got := d.decodeBody(bodyTypeID(zero))
			if d.Err() != nil || d.Remaining() != 0 {
				t.Fatalf("%T: %v, %d bytes left", zero, d.Err(), d.Remaining())
			}
			if !reflect.DeepEqual(got, v.Interface()) {
				t.Fatalf("%T: decoded\n%#v\nwant\n%#v", zero, got, v.Interface())
			}
			compareWithGopcua(t, e.B, v.Interface(), func(e *Encoder, v any) {
				e.B = append(e.B, 0, 0, 0, 0)
				e.body(v)
			})
		}
	}
}

// compareWithGopcua compares bytes, encoded without 4 bytes in front, with what gopcua makes of v, and v with what gopcua
// makes of the bytes.
func compareWithGopcua(t *testing.T, enc []byte, v any, encode func(*Encoder, any)) {
	t.Helper()
	theirs, err := ua.Encode(v)
	if err != nil {
		t.Fatalf("%T: gopcua: %v", v, err)
	}
	if !bytes.Equal(theirs, enc) {
		t.Fatalf("%T: encoded\n%x\ngopcua\n%x", v, enc, theirs)
	}
	got := reflect.New(reflect.TypeOf(v).Elem()).Interface()
	if _, err := ua.Decode(enc, got); err != nil {
		t.Fatalf("%T: gopcua decodes: %v", v, err)
	}
	var e Encoder
	encode(&e, got)
	if !bytes.Equal(e.B[4:], enc) {
		t.Fatalf("%T: after gopcua\n%x\nwant\n%x", v, e.B[4:], enc)
	}
}

// TestEncodeNil checks that nil pointers everywhere are encoded as defaults that can be decoded.
func TestEncodeNil(t *testing.T) {
	for _, zero := range knownMessages() {
		for _, v := range []any{zero, reflect.Zero(reflect.TypeOf(zero)).Interface()} {
			var e Encoder
			EncodeMessage(&e, v)
			d := NewDecoder(e.B, nil)
			if _, err := DecodeMessage(d); err != nil || d.Remaining() != 0 {
				t.Errorf("%T: %v, %d bytes left", zero, err, d.Remaining())
			}
		}
	}
}

// TestDecodeTruncated checks that each message cut anywhere is an error and nothing worse.
func TestDecodeTruncated(t *testing.T) {
	f := newFiller(3)
	for _, zero := range knownMessages() {
		v := reflect.New(reflect.TypeOf(zero).Elem())
		f.fill(v.Elem())
		var e Encoder
		EncodeMessage(&e, v.Interface())
		step := 1 + len(e.B)/200
		for n := 0; n < len(e.B); n += step {
			if _, err := DecodeMessage(NewDecoder(e.B[:n], nil)); err == nil {
				t.Fatalf("%T: no error for %d of %d bytes", zero, n, len(e.B))
			}
		}
	}
}
