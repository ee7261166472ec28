package uabinary

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/gopcua/opcua/ua"
)

// OPC 10000-6 §5.2.2.15, ExtensionObject. Every form comes back with the same bytes, as a view and through ua.
func TestExtensionObject(t *testing.T) {
	xml := ua.XMLElement("<a/>")
	for _, c := range []struct {
		name, wire string
		value      any
	}{
		{"null", "0000 00", nil},
		{"type without body", "01007603 00", nil},
		{"known", "01007603 01 10000000 0000000000000000 000000000000F03F", &ua.Range{High: 1}},
		{"unknown type", "01020500 01 03000000 010203", &RawBody{[]byte{1, 2, 3}}},
		{"unknown type in namespace 0", "01000F27 01 03000000 010203", &RawBody{[]byte{1, 2, 3}}},
		{"String type id", "03 0200 01000000 61 01 01000000 09", &RawBody{[]byte{9}}},
		{"type id with namespace URI", "81 007603 01000000 75 01 01000000 09", &RawBody{[]byte{9}}},
		{"empty body", "01020500 01 00000000", &RawBody{[]byte{}}},
		{"null body", "01020500 01 FFFFFFFF", &RawBody{}},
		{"known type, null body", "01007603 01 FFFFFFFF", &RawBody{}},
		{"known type, empty body", "01007603 01 00000000", &RawBody{[]byte{}}},
		{"known type without fields", "0100D102 01 00000000", new(ua.MonitoringFilter)},
		{"known type with bytes after it", "01007603 01 11000000 0000000000000000 000000000000F03F 07",
			&RawBody{[]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xF0, 0x3F, 7}}},
		{"XML", "01007503 02 04000000 3C612F3E", &xml},
		{"null XML", "01007503 02 FFFFFFFF", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			wire := unhex(t, c.wire)
			d := NewDecoder(wire, nil)
			x := d.ExtensionObject()
			if d.Err() != nil || d.Remaining() != 0 || !bytes.Equal(AppendExtensionObject(nil, x), wire) {
				t.Fatalf("view is %+v, %v", x, d.Err())
			}
			u, err := x.UA()
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(u.Value, c.value) {
				t.Errorf("Value = %#v, want %#v", u.Value, c.value)
			}
			back, err := ExtensionObjectOf(u)
			if err != nil || !bytes.Equal(AppendExtensionObject(nil, back), wire) {
				t.Errorf("through ua it is %x, %v", AppendExtensionObject(nil, back), err)
			}
			// The structure's own decoder makes the same of it.
			direct := new(ua.ExtensionObject)
			d = NewDecoder(wire, nil)
			d.uaExtensionObject(direct, new(extensionObjectParts))
			var e Encoder
			e.uaExtensionObject(direct)
			if d.Err() != nil || !reflect.DeepEqual(direct.Value, c.value) || !bytes.Equal(e.B, wire) {
				t.Errorf("decoded %#v, encoded %x, %v", direct.Value, e.B, d.Err())
			}
			clone := x.Clone()
			before := AppendExtensionObject(nil, clone)
			clear(wire)
			if !bytes.Equal(before, AppendExtensionObject(nil, clone)) {
				t.Error("Clone aliases")
			}
		})
	}
}

// A body that is not what its type says is an error where it is needed, and let pass where it is only carried.
func TestExtensionObjectMalformed(t *testing.T) {
	wire := unhex(t, "01007603 01 04000000 00000000")
	d := NewDecoder(wire, nil)
	x := d.ExtensionObject()
	if d.Err() != nil {
		t.Fatal(d.Err())
	}
	_, err := x.UA()
	wantCode(t, err, ua.StatusBadDecodingError)
	d = NewDecoder(append(wire, 1), nil)
	d.uaExtensionObject(new(ua.ExtensionObject), new(extensionObjectParts))
	wantCode(t, d.Err(), ua.StatusBadDecodingError)
	// The body's end is a wall: a structure may not read on in what follows.
	d = NewDecoder(append(wire, make([]byte, 100)...), nil)
	d.uaExtensionObject(new(ua.ExtensionObject), new(extensionObjectParts))
	wantCode(t, d.Err(), ua.StatusBadDecodingError)
}

// custom is a structure of an application, encoded by itself.
type custom struct{ b byte }

func (c *custom) Encode() ([]byte, error)      { return []byte{c.b}, nil }
func (c *custom) Decode(b []byte) (int, error) { c.b = b[0]; return 1, nil }

// reflected is a structure of an application, encoded by gopcua.
type reflected struct{ A, B uint16 }

func TestExtensionObjectOfApplication(t *testing.T) {
	ua.RegisterExtensionObject(ua.NewNumericNodeID(5, 5001), new(custom))
	ua.RegisterExtensionObject(ua.NewNumericNodeID(5, 5002), new(reflected))
	for _, c := range []struct {
		value any
		wire  string
	}{
		{&custom{7}, "01058913 01 01000000 07"},
		{&reflected{1, 2}, "01058A13 01 04000000 01000200"},
	} {
		x, err := NewExtensionObject(c.value)
		if got := AppendExtensionObject(nil, x); err != nil || !bytes.Equal(got, unhex(t, c.wire)) {
			t.Errorf("encoded %x, %v", got, err)
		}
		v, err := NewVariant(c.value)
		if got := v.Encoded(); err != nil || !bytes.Equal(got[1:], unhex(t, c.wire)) {
			t.Errorf("Variant %x, %v", got, err)
		}
	}
	v, err := NewVariant([]*reflected{{1, 2}})
	if err != nil || v.Type() != ua.TypeIDExtensionObject || v.Len() != 1 {
		t.Errorf("array is %x, %v", v.Encoded(), err)
	}
	// What comes back is bytes, which the application decodes.
	u, err := must(NewVariant(&reflected{1, 2})).UA()
	if err != nil {
		t.Fatal(err)
	}
	got := new(reflected)
	if _, err := ua.Decode(u.ExtensionObject().Value.(*RawBody).Bytes, got); err != nil || *got != (reflected{1, 2}) {
		t.Errorf("decoded %+v, %v", got, err)
	}
}
