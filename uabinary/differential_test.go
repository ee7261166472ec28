package uabinary

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/gopcua/opcua/ua"
)

// The comparison with gopcua v0.8.0, for input that both decoders accept, and the list of known deviations. The first group
// is gopcua's loss or mistake and ours is what the specification says; the second is free.
//
//   - String and ByteString values of length 0: gopcua makes null ones of them.
//   - DateTimes outside 1678 to 2262: gopcua's wrap around.
//   - ExtensionObjects with an unknown type, or with a null or empty body: gopcua drops the body (and its encoder panics).
//   - XML bodies: gopcua looks for a second length inside the body.
//   - Bodies that are longer than their structure: gopcua drops the rest, here the whole body stays as bytes.
//   - Arrays of ByteString: gopcua encodes no elements, and ua.NewVariant takes elements of unequal length for rows.
//   - CallMethodRequest, MonitoredItemCreateRequest, MonitoredItemModifyRequest: gopcua knows them as messages, not as bodies.
//   - Variant arrays of more than 65535 elements, reserved types 26 to 31, a null array of dimensions: gopcua refuses them.
//   - Nesting deeper than 100, counts that the message cannot hold, reserved bits in masks, Variants of type 0 with other bits,
//     dimensions on a scalar: gopcua takes them.
//
//   - NodeIds are encoded in the shortest form; gopcua keeps the form.
//   - A LocalizedText field that is present but null is taken for absent; gopcua keeps the bit.
//   - One dimension, or none, with the bit for dimensions: the bit is gone in the ua.Variant made here.

// difference returns where ours and theirs differ beyond the known deviations, or "".
func difference(ours, theirs any) string {
	return differ("", reflect.ValueOf(ours), reflect.ValueOf(theirs))
}

func differ(path string, a, b reflect.Value) string {
	if !a.IsValid() || !b.IsValid() {
		if a.IsValid() != b.IsValid() {
			return fmt.Sprintf("%s: %v and %v", path, a, b)
		}
		return ""
	}
	if a.Type() != b.Type() {
		return fmt.Sprintf("%s: %v and %v", path, a.Type(), b.Type())
	}
	if a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil() {
		switch x := a.Interface().(type) {
		case *ua.NodeID:
			if y := b.Interface().(*ua.NodeID); !NodeIDOf(x).Equal(NodeIDOf(y)) {
				return fmt.Sprintf("%s: %s and %s", path, NodeIDOf(x), NodeIDOf(y))
			}
			return ""
		case *ua.Variant:
			y := b.Interface().(*ua.Variant)
			return differ(path+"."+fmt.Sprint(x.Type()), reflect.ValueOf(x.Value()), reflect.ValueOf(y.Value()))
		case *ua.LocalizedText:
			if y := b.Interface().(*ua.LocalizedText); x.Text != y.Text || x.Locale != y.Locale {
				return fmt.Sprintf("%s: %v and %v", path, x, y)
			}
			return ""
		case *ua.ExtensionObject:
			y := b.Interface().(*ua.ExtensionObject)
			if d := differ(path+".TypeID", reflect.ValueOf(x.TypeID), reflect.ValueOf(y.TypeID)); d != "" {
				return d
			}
			switch x.Value.(type) {
			case *RawBody, *ua.XMLElement, *ua.CallMethodRequest, *ua.MonitoredItemCreateRequest, *ua.MonitoredItemModifyRequest:
				return ""
			}
			if v := reflect.ValueOf(x.Value); v.IsValid() && v.Elem().NumField() == 0 {
				return ""
			}
			return differ(path+".Value", reflect.ValueOf(x.Value), reflect.ValueOf(y.Value))
		}
	}
	if x, ok := a.Interface().(time.Time); ok {
		y := b.Interface().(time.Time)
		if x.Year() > 1678 && x.Year() < 2262 && !x.Equal(y) {
			return fmt.Sprintf("%s: %v and %v", path, x, y)
		}
		return ""
	}
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() != b.IsNil() {
			return fmt.Sprintf("%s: %v and %v", path, a, b)
		}
		return differ(path, a.Elem(), b.Elem())
	case reflect.Struct:
		for i := range a.NumField() {
			if d := differ(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i)); d != "" {
				return d
			}
		}
	case reflect.Slice:
		if a.Len() != b.Len() {
			return fmt.Sprintf("%s: %d and %d elements", path, a.Len(), b.Len())
		}
		for i := range a.Len() {
			if d := differ(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i)); d != "" {
				return d
			}
		}
	case reflect.Float32, reflect.Float64:
		if x, y := a.Float(), b.Float(); x != y && !(math.IsNaN(x) && math.IsNaN(y)) {
			return fmt.Sprintf("%s: %v and %v", path, x, y)
		}
	default:
		if !a.Equal(b) {
			return fmt.Sprintf("%s: %v and %v", path, a, b)
		}
	}
	return ""
}

// readApart reports whether v holds an ExtensionObject whose body gopcua reads as something else than bytes of that length.
// gopcua goes on inside such a body, takes a count out of what is none, and allocates by it: the process ends there, and no
// recover helps.
func readApart(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return false
		}
		switch x := v.Interface().(type) {
		case *ua.ExtensionObject:
			switch x.Value.(type) {
			case *RawBody, *ua.XMLElement, *ua.CallMethodRequest, *ua.MonitoredItemCreateRequest, *ua.MonitoredItemModifyRequest:
				return true
			}
			return readApart(reflect.ValueOf(x.Value))
		case *ua.Variant:
			return readApart(reflect.ValueOf(x.Value()))
		}
		return readApart(v.Elem())
	case reflect.Struct:
		if _, ok := v.Interface().(time.Time); ok {
			return false
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && readApart(v.Field(i)) {
				return true
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return false
		}
		for i := range v.Len() {
			if readApart(v.Index(i)) {
				return true
			}
		}
	}
	return false
}

// gopcua runs a decoder of gopcua, whose panics count as errors.
func gopcua(decode func() (any, error)) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return decode()
}

// compareDecoded fails t when gopcua accepts in and makes something else of it than ours. It compares the structures, and
// the bytes that either codec makes of both when no known deviation is in the way.
func compareDecoded(t interface {
	Helper()
	Fatalf(string, ...any)
}, in []byte, ours any, decode func() (any, error)) {
	t.Helper()
	if readApart(reflect.ValueOf(ours)) {
		return
	}
	theirs, err := gopcua(decode)
	if err != nil {
		return
	}
	if d := difference(ours, theirs); d != "" {
		t.Fatalf("%x\ndiffers from gopcua: %s", in, d)
	}
	if !reflect.DeepEqual(ours, theirs) {
		return
	}
	a, err := gopcua(func() (any, error) { return ua.Encode(ours) })
	if err != nil {
		return
	}
	b, err := gopcua(func() (any, error) { return ua.Encode(theirs) })
	if err != nil || !bytes.Equal(a.([]byte), b.([]byte)) {
		t.Fatalf("%x\nencoded again it is %x and %x, %v", in, a, b, err)
	}
}
