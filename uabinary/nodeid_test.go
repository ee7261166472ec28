package uabinary

import (
	"bytes"
	"testing"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

var guidExample = [16]byte{0x91, 0x2B, 0x96, 0x72, 0x75, 0xFA, 0xE6, 0x4A, 0x8D, 0x28, 0xB4, 0x04, 0xDC, 0x7D, 0xAF, 0x63}

// The examples are those of OPC 10000-6 §5.2.2.9 (NodeId) and of §5.2.2.6 (Guid) where it has one.
func TestNodeID(t *testing.T) {
	for _, c := range []struct {
		name, wire, text string
		id               NodeID
	}{
		{"TwoByte", "00 48", "i=72", NumericID(0, 72)},
		{"FourByte", "01 05 0104", "ns=5;i=1025", NumericID(5, 1025)},
		{"FourByte at its end", "01 FF FFFF", "ns=255;i=65535", NumericID(255, 65535)},
		{"Numeric for the id", "02 0500 00000100", "ns=5;i=65536", NumericID(5, 65536)},
		{"Numeric for the namespace", "02 0001 01000000", "ns=256;i=1", NumericID(256, 1)},
		{"String", "03 0100 06000000 486F74E6B0B4", "ns=1;s=Hot水", StringID(1, "Hot水")},
		{"null String", "03 0000 FFFFFFFF", "s=", NodeID{Type: IDString}},
		{"Guid", "04 0200 912B967275FAE64A8D28B404DC7DAF63", "ns=2;g=72962B91-FA75-4AE6-8D28-B404DC7DAF63", NodeID{Namespace: 2, Type: IDGUID, Bytes: guidExample[:]}},
		{"Opaque", "05 0300 04000000 DEADBEEF", "ns=3;b=3q2+7w==", NodeID{Namespace: 3, Type: IDOpaque, Bytes: []byte{0xDE, 0xAD, 0xBE, 0xEF}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wire := unhex(t, c.wire)
			if got := AppendNodeID(nil, c.id); !bytes.Equal(got, wire) {
				t.Errorf("encoded %x, want %x", got, wire)
			}
			d := NewDecoder(wire, nil)
			got := d.NodeID()
			if d.Err() != nil || d.Remaining() != 0 || !got.Equal(c.id) {
				t.Errorf("decoded %+v, %v", got, d.Err())
			}
			if got.String() != c.text {
				t.Errorf("String() = %q, want %q", got.String(), c.text)
			}
			if p, err := ParseNodeID(c.text); err != nil || !p.Equal(c.id) {
				t.Errorf("ParseNodeID = %+v, %v", p, err)
			}
			u := got.UA()
			if back := NodeIDOf(u); !back.Equal(c.id) || u.String() != c.text {
				t.Errorf("through ua it is %+v, %q", back, u.String())
			}
			clone := got.Clone()
			clear(wire)
			if !clone.Equal(c.id) || !NodeIDOf(u).Equal(c.id) {
				t.Error("a copy aliases the message")
			}
			// Every cut is an error.
			for n := range wire {
				if d := NewDecoder(unhex(t, c.wire)[:n], nil); true {
					if d.NodeID(); d.Err() == nil {
						t.Errorf("no error for %d bytes", n)
					}
				}
			}
		})
	}
}

func TestNodeIDInvalid(t *testing.T) {
	for _, in := range []string{"06 00", "0F 00", "3F", "40 01 00000000", "80 01 FFFFFFFF", "10 01"} {
		d := NewDecoder(unhex(t, in), nil)
		d.NodeID()
		wantCode(t, d.Err(), ua.StatusBadDecodingError)
		d = NewDecoder(unhex(t, in), nil)
		d.uaNodeID(new(ua.NodeID))
		wantCode(t, d.Err(), ua.StatusBadDecodingError)
	}
	for _, text := range []string{"ns=2", "ns=;i=1", "ns=65536;i=1", "i=4294967296", "i=-1", "i=", "g=1234", "b=?", "nsu=urn:x;i=1", "ns=1;"} {
		if id, err := ParseNodeID(text); uastatus.Code(err) != ua.StatusBadNodeIDInvalid {
			t.Errorf("ParseNodeID(%q) = %v, %v", text, id, err)
		}
	}
	for _, id := range []*ua.NodeID{nil, new(ua.NodeID), ua.NewGUIDNodeID(1, "nonsense")} {
		if got := NodeIDOf(id); !got.IsNull() {
			t.Errorf("NodeIDOf = %v", got)
		}
	}
}

func TestNodeIDIsNull(t *testing.T) {
	zero := make([]byte, 16)
	for _, c := range []struct {
		id   NodeID
		want bool
	}{
		{NodeID{}, true},
		{NodeID{Type: IDString}, true},
		{StringID(0, ""), true},
		{NodeID{Type: IDOpaque, Bytes: []byte{}}, true},
		{NodeID{Type: IDGUID, Bytes: zero}, true},
		{NodeID{Type: IDGUID, Bytes: guidExample[:]}, false},
		{NumericID(1, 0), false},
		{NumericID(0, 1), false},
		{StringID(0, "a"), false},
	} {
		if got := c.id.IsNull(); got != c.want {
			t.Errorf("%v.IsNull() = %v", c.id, got)
		}
	}
}

func TestNodeIDKey(t *testing.T) {
	ids := []NodeID{{}, NumericID(0, 1), NumericID(1, 0), NumericID(256, 0), StringID(0, ""), StringID(0, "\x00\x00\x00\x01"),
		{Type: IDOpaque, Bytes: []byte("a")}, StringID(0, "a"), StringID(97, ""), {Type: IDGUID, Bytes: guidExample[:]}}
	seen := map[string]NodeID{}
	for _, id := range ids {
		key := string(id.AppendKey(nil))
		if o, ok := seen[key]; ok {
			t.Errorf("%v and %v share a key", o, id)
		}
		seen[key] = id
	}
}

// OPC 10000-6 §5.2.2.10, ExpandedNodeId.
func TestExpandedNodeID(t *testing.T) {
	for _, c := range []struct {
		name, wire, text string
		id               ExpandedNodeID
	}{
		{"plain", "00 48", "i=72", ExpandedNodeID{NodeID: NumericID(0, 72)}},
		{"namespace URI", "81 00 0104 05000000 75726E3A78", "nsu=urn:x;i=1025", ExpandedNodeID{NodeID: NumericID(0, 1025), NamespaceURI: []byte("urn:x")}},
		{"server index", "41 05 0104 07000000", "svr=7;ns=5;i=1025", ExpandedNodeID{NodeID: NumericID(5, 1025), ServerIndex: 7}},
		{"both, String", "C3 0000 01000000 61 05000000 75726E3A78 07000000", "svr=7;nsu=urn:x;s=a", ExpandedNodeID{NodeID: StringID(0, "a"), NamespaceURI: []byte("urn:x"), ServerIndex: 7}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wire := unhex(t, c.wire)
			if got := AppendExpandedNodeID(nil, c.id); !bytes.Equal(got, wire) {
				t.Errorf("encoded %x, want %x", got, wire)
			}
			d := NewDecoder(wire, nil)
			got := d.ExpandedNodeID()
			if d.Err() != nil || d.Remaining() != 0 || !got.Equal(c.id) || got.String() != c.text {
				t.Errorf("decoded %v, %v", got, d.Err())
			}
			u := got.UA()
			if back := ExpandedOf(u); !back.Equal(c.id) {
				t.Errorf("through ua it is %v", back)
			}
			if enc, err := u.Encode(); err != nil || !bytes.Equal(enc, wire) {
				t.Errorf("gopcua encodes %x, %v", enc, err)
			}
			if got.Equal(ExpandedNodeID{NodeID: c.id.NodeID, ServerIndex: 1}) || got.IsNull() {
				t.Error("Equal or IsNull")
			}
		})
	}
}

// OPC 10000-6 §5.2.2.13 and §5.2.2.14.
func TestTexts(t *testing.T) {
	q := QualifiedName{Namespace: 2, Name: []byte("Pump")}
	wire := unhex(t, "0200 04000000 50756D70")
	if got := AppendQualifiedName(nil, q); !bytes.Equal(got, wire) {
		t.Errorf("QualifiedName is %x", got)
	}
	if got := NewDecoder(wire, nil).QualifiedName(); !got.Equal(q) || !QualifiedNameOf(got.UA()).Equal(q) || got.IsNull() {
		t.Errorf("QualifiedName comes back as %v", got)
	}
	for _, c := range []struct {
		name, wire string
		want       LocalizedText
	}{
		{"null", "00", LocalizedText{}},
		{"text", "02 02000000 4F4B", LocalizedText{Text: []byte("OK")}},
		{"both", "03 02000000 656E 02000000 4F4B", LocalizedText{Locale: []byte("en"), Text: []byte("OK")}},
		{"empty text is not null text", "02 00000000", LocalizedText{Text: []byte{}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wire := unhex(t, c.wire)
			if got := AppendLocalizedText(nil, c.want); !bytes.Equal(got, wire) {
				t.Errorf("encoded %x, want %x", got, wire)
			}
			d := NewDecoder(wire, nil)
			got := d.LocalizedText()
			if d.Err() != nil || !bytes.Equal(AppendLocalizedText(nil, got), wire) {
				t.Errorf("decoded %q %q, %v", got.Locale, got.Text, d.Err())
			}
			if back := LocalizedTextOf(got.UA()); !bytes.Equal(AppendLocalizedText(nil, back), wire) {
				t.Errorf("through ua it is %q %q", back.Locale, back.Text)
			}
		})
	}
	d := NewDecoder([]byte{4}, nil)
	d.LocalizedText()
	wantCode(t, d.Err(), ua.StatusBadDecodingError)
	// The mask is often forgotten in ua structures.
	if got := LocalizedTextOf(&ua.LocalizedText{Text: "x"}); string(got.Text) != "x" || got.Locale != nil {
		t.Errorf("without mask it is %v", got)
	}
}
