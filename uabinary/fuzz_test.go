package uabinary

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/gopcua/opcua/ua"
)

// Seeds besides those in testdata/fuzz are the hand-made encodings of the other tests.

func fuzzSeeds(f *testing.F) {
	fill := newFiller(11)
	for _, zero := range knownMessages() {
		v := reflect.New(reflect.TypeOf(zero).Elem())
		fill.fill(v.Elem())
		var e Encoder
		EncodeMessage(&e, v.Interface())
		if len(e.B) < 4096 {
			f.Add(e.B)
		}
	}
}

// FuzzDecodeMessage decodes a message, encodes it, and decodes it again: the bytes must be the same, and gopcua must agree
// where it accepts the input.
func FuzzDecodeMessage(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		keep := bytes.Clone(in)
		v, err := DecodeMessage(NewDecoder(in, nil))
		if err != nil {
			return
		}
		clear(in) // nothing may alias it
		var e Encoder
		EncodeMessage(&e, v)
		if e.Err() != nil {
			t.Fatalf("%x: %v", keep, e.Err())
		}
		again, err := DecodeMessage(NewDecoder(e.B, nil))
		if err != nil {
			t.Fatalf("%x\nencoded %x\n%v", keep, e.B, err)
		}
		first := bytes.Clone(e.B)
		e.Reset(nil)
		EncodeMessage(&e, again)
		if !bytes.Equal(first, e.B) {
			t.Fatalf("encoded\n%x\nand then\n%x", first, e.B)
		}
		compareDecoded(t, keep, v, func() (any, error) {
			_, v, err := ua.DecodeService(keep)
			return v, err
		})
	})
}

// useVariant calls everything a view has; nothing may panic, and what is a Variant must stay one.
func useVariant(t *testing.T, v Variant) {
	t.Helper()
	v.Bool()
	v.Int64()
	v.Uint64()
	v.Float64()
	v.Bytes()
	v.DateTime()
	v.GUID()
	v.StatusCode()
	v.NodeID()
	v.ExpandedNodeID()
	v.QualifiedName()
	v.LocalizedText()
	v.ExtensionObject()
	v.DataValue()
	v.Nested()
	n := v.Len()
	product := 1
	for _, d := range v.Dims() {
		product *= int(d)
	}
	if n > 0 && product != n || v.Rank() != max(len(v.Dims()), v.Rank()) {
		t.Fatalf("%x: %d elements, dimensions %v, rank %d", v.Encoded(), n, v.Dims(), v.Rank())
	}
	check := func(what string, v Variant) {
		d := NewDecoder(v.Encoded(), nil)
		if got := d.Variant(); d.Err() != nil || d.Remaining() != 0 || !got.Equal(v) {
			t.Fatalf("%s is no Variant: %x, %v", what, v.Encoded(), d.Err())
		}
	}
	for _, i := range []int{0, 1, n - 1} {
		check("an element", v.Element(i))
	}
	for _, s := range []string{"0", "1:2", "0:1,0", "0,0:1", "0,0,0:3", "1,1:2,0,0"} {
		r, _ := ParseNumericRange([]byte(s))
		part, status := v.Range(r)
		check("a part", part)
		if status != ua.StatusGood {
			continue
		}
		back, status := v.WithRange(r, part)
		check("a whole with part", back)
		if status == ua.StatusGood && !back.Equal(v) {
			t.Fatalf("%x with its own part %s is %x", v.Encoded(), s, back.Encoded())
		}
	}
	check("the clone", v.Clone())
}

func FuzzVariant(f *testing.F) {
	for _, c := range variantCases {
		f.Add(unhex(f, c.wire))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		d := NewDecoder(in, nil)
		v := d.Variant()
		var u ua.Variant
		direct := NewDecoder(in, nil)
		direct.uaVariant(&u)
		if d.Err() != nil {
			if direct.Err() == nil {
				t.Fatalf("%x: the view is refused (%v), the structure is not", in, d.Err())
			}
			return
		}
		if !bytes.Equal(AppendVariant(nil, v), in[:d.Pos()]) {
			t.Fatalf("%x is changed to %x", in, v.Encoded())
		}
		useVariant(t, v)
		if direct.Err() != nil {
			return // a body that is not what its type says, or gopcua's limit for arrays
		}
		if direct.Pos() != d.Pos() {
			t.Fatalf("%x: %d bytes as a view, %d as a structure", in, d.Pos(), direct.Pos())
		}
		again, err := v.UA()
		if err != nil {
			t.Fatalf("%x: %v", in, err)
		}
		if diff := difference(&u, again); diff != "" {
			t.Fatalf("%x: view and structure: %s", in, diff)
		}
		// Through gopcua's type and back it is stable.
		back, err := VariantOf(again)
		if err != nil {
			t.Fatalf("%x: %v", in, err)
		}
		third, err := back.UA()
		if err != nil {
			t.Fatalf("%x: %v", in, err)
		}
		if fourth, err := VariantOf(third); err != nil || !fourth.Equal(back) {
			t.Fatalf("%x: %x and then %x, %v", in, back.Encoded(), fourth.Encoded(), err)
		}
		compareDecoded(t, in, &u, func() (any, error) {
			v := new(ua.Variant)
			_, err := v.Decode(bytes.Clone(in))
			return v, err
		})
	})
}

func FuzzDataValue(f *testing.F) {
	f.Add(unhex(f, "3F 06 05000000 00000040 0100000000000000 0300 0200000000000000 0400"))
	f.Add(unhex(f, "01 8C 02000000 01000000 61 00000000"))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, in []byte) {
		d := NewDecoder(in, nil)
		v := d.DataValue()
		if d.Err() != nil {
			return
		}
		if got := AppendDataValue(nil, &v); !bytes.Equal(got, in[:d.Pos()]) {
			t.Fatalf("%x is changed to %x", in, got)
		}
		var u ua.DataValue
		direct := NewDecoder(in, nil)
		direct.uaDataValue(&u, new(dataValueParts))
		if direct.Err() != nil {
			return
		}
		again, err := v.UA()
		if err != nil {
			t.Fatalf("%x: %v", in, err)
		}
		if diff := difference(&u, again); diff != "" {
			t.Fatalf("%x: view and structure: %s", in, diff)
		}
		if _, err := DataValueOf(again); err != nil {
			t.Fatalf("%x: %v", in, err)
		}
		compareDecoded(t, in, &u, func() (any, error) {
			v := new(ua.DataValue)
			_, err := v.Decode(bytes.Clone(in))
			return v, err
		})
	})
}

func FuzzExtensionObject(f *testing.F) {
	f.Add(unhex(f, "01007603 01 10000000 0000000000000000 000000000000F03F"))
	f.Add(unhex(f, "01020500 01 03000000 010203"))
	f.Add(unhex(f, "01007503 02 04000000 3C612F3E"))
	f.Add(unhex(f, "0100FE39 01 20000000 3030FFFFFFFF8D"+strings.Repeat("30", 25)))
	f.Add(AppendExtensionObject(nil, nestedBodies(5, NumericID(0, bodyTypeID(new(ua.KeyValuePair))))))
	f.Fuzz(func(t *testing.T, in []byte) {
		d := NewDecoder(in, nil)
		x := d.ExtensionObject()
		direct := NewDecoder(in, nil)
		u := new(ua.ExtensionObject)
		direct.uaExtensionObject(u, new(extensionObjectParts))
		if d.Err() != nil {
			if direct.Err() == nil {
				t.Fatalf("%x: the view is refused (%v), the structure is not", in, d.Err())
			}
			return
		}
		if direct.Err() != nil {
			return
		}
		again, err := x.UA()
		if err != nil {
			t.Fatalf("%x: %v", in, err)
		}
		if diff := difference(u, again); diff != "" {
			t.Fatalf("%x: view and structure: %s", in, diff)
		}
		back, err := ExtensionObjectOf(again)
		if err != nil {
			t.Fatalf("%x: %v", in, err)
		}
		// An unknown body is the same bytes again.
		if _, raw := again.Value.(*RawBody); raw && !bytes.Equal(AppendExtensionObject(nil, back), AppendExtensionObject(nil, x)) {
			t.Fatalf("%x is changed to %x", in, AppendExtensionObject(nil, back))
		}
		compareDecoded(t, in, u, func() (any, error) {
			v := new(ua.ExtensionObject)
			_, err := v.Decode(bytes.Clone(in))
			return v, err
		})
	})
}

// FuzzBuiltin decodes the other built-in types: the first byte says which.
func FuzzBuiltin(f *testing.F) {
	f.Add(unhex(f, "00 03 0100 06000000 486F74E6B0B4"))
	f.Add(unhex(f, "01 C3 0000 01000000 61 05000000 75726E3A78 07000000"))
	f.Add(unhex(f, "02 0200 04000000 50756D70"))
	f.Add(unhex(f, "03 03 02000000 656E 02000000 4F4B"))
	f.Add(unhex(f, "04 7F 01000000 02000000 03000000 04000000 01000000 61 00000080 00"))
	f.Add(unhex(f, "05 00 00 0000000000000000 00000000 00000000 FFFFFFFF 00000000 000000"))
	f.Add(unhex(f, "06 0000000000000000 00000000 00000000 00 FFFFFFFF 000000"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 {
			return
		}
		kind, in := in[0], in[1:]
		d, direct := NewDecoder(in, nil), NewDecoder(in, nil)
		var view []byte
		var e Encoder
		var u, theirs any
		switch kind {
		case 0:
			id := d.NodeID()
			view = AppendNodeID(nil, id)
			n := new(ua.NodeID)
			direct.uaNodeID(n)
			e.uaNodeID(n)
			u, theirs = n, new(ua.NodeID)
			if p, err := ParseNodeID(id.String()); d.Err() == nil && (err != nil || !p.Equal(id)) {
				t.Fatalf("%x: %q is parsed as %v, %v", in, id.String(), p, err)
			}
		case 1:
			view = AppendExpandedNodeID(nil, d.ExpandedNodeID())
			n := new(ua.ExpandedNodeID)
			direct.uaExpandedNodeID(n, new(expandedParts))
			e.uaExpandedNodeID(n)
			u, theirs = n, new(ua.ExpandedNodeID)
		case 2:
			view = AppendQualifiedName(nil, d.QualifiedName())
			n := new(ua.QualifiedName)
			direct.uaQualifiedName(n)
			e.uaQualifiedName(n)
			u, theirs = n, new(ua.QualifiedName)
		case 3:
			view = AppendLocalizedText(nil, d.LocalizedText())
			n := new(ua.LocalizedText)
			direct.uaLocalizedText(n)
			e.uaLocalizedText(n)
			u, theirs = n, new(ua.LocalizedText)
		case 4:
			d.SkipDiagnosticInfo()
			n := new(ua.DiagnosticInfo)
			direct.uaDiagnosticInfo(n)
			e.uaDiagnosticInfo(n)
			u, theirs = n, new(ua.DiagnosticInfo)
		case 5:
			h := d.RequestHeader()
			view = AppendRequestHeader(nil, &h)
			n := new(ua.RequestHeader)
			DecodeRequestHeader(direct, n)
			EncodeRequestHeader(&e, n)
			u, theirs = n, new(ua.RequestHeader)
		case 6:
			h := d.ResponseHeader()
			view = AppendResponseHeader(nil, &h)
			n := new(ua.ResponseHeader)
			DecodeResponseHeader(direct, n)
			EncodeResponseHeader(&e, n)
			u, theirs = n, new(ua.ResponseHeader)
		default:
			return
		}
		if d.Err() != nil {
			if direct.Err() == nil {
				t.Fatalf("%d %x: the view is refused (%v), the structure is not", kind, in, d.Err())
			}
			return
		}
		if direct.Err() != nil {
			return
		}
		if direct.Pos() != d.Pos() {
			t.Fatalf("%d %x: %d bytes as a view, %d as a structure", kind, in, d.Pos(), direct.Pos())
		}
		if e.Err() != nil {
			t.Fatalf("%d %x: %v", kind, in, e.Err())
		}
		// A view is stable: what it is written as is read as itself.
		if kind != 4 {
			again := NewDecoder(view, nil)
			var second []byte
			switch kind {
			case 0:
				second = AppendNodeID(nil, again.NodeID())
			case 1:
				second = AppendExpandedNodeID(nil, again.ExpandedNodeID())
			case 2:
				second = AppendQualifiedName(nil, again.QualifiedName())
			case 3:
				second = AppendLocalizedText(nil, again.LocalizedText())
			case 5:
				h := again.RequestHeader()
				second = AppendRequestHeader(nil, &h)
			case 6:
				h := again.ResponseHeader()
				second = AppendResponseHeader(nil, &h)
			}
			if again.Err() != nil || !bytes.Equal(second, view) {
				t.Fatalf("%d %x: %x and then %x, %v", kind, in, view, second, again.Err())
			}
		}
		compareDecoded(t, in, u, func() (any, error) {
			_, err := ua.Decode(bytes.Clone(in), theirs)
			return theirs, err
		})
	})
}

func FuzzNumericRange(f *testing.F) {
	f.Add([]byte("1:2,0"))
	f.Add([]byte("2147483647"))
	values := []Variant{{}, Int32(1), String("Größe"), ByteString([]byte{1, 2, 3})}
	for _, v := range []any{[]int32{1, 2, 3}, []string{"a", "bb", ""}, cube, [][]string{{"a", "b"}, {"c", "d"}}, []int32(nil)} {
		values = append(values, must(NewVariant(v)))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r, status := ParseNumericRange(in)
		if status != ua.StatusGood {
			return
		}
		for _, v := range values {
			part, status := v.Range(r)
			if status == ua.StatusGood && !r.IsZero() && len(part.Encoded()) > len(v.Encoded())+5*maxRank {
				t.Fatalf("%s of %x is %x", in, v.Encoded(), part.Encoded())
			}
			v.WithRange(r, part)
		}
	})
}

func FuzzParseNodeID(f *testing.F) {
	for _, s := range []string{"i=1", "ns=2;s=a", "g=72962B91-FA75-4AE6-8D28-B404DC7DAF63", "b=3q2+7w==", "plain", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseNodeID(s)
		if err != nil {
			return
		}
		if again, err := ParseNodeID(id.String()); err != nil || !again.Equal(id) {
			t.Fatalf("%q is %q is %v, %v", s, id.String(), again, err)
		}
	})
}

// FuzzDateTime checks that going through time.Time is stable.
func FuzzDateTime(f *testing.F) {
	f.Add(int64(0))
	f.Add(int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, ticks int64) {
		once := FromTime(DateTime(ticks).Time())
		if twice := FromTime(once.Time()); twice != once {
			t.Fatalf("%d is %d is %d", ticks, once, twice)
		}
		if ticks > 0 && DateTime(ticks).Time().Year() < 9999 && once != DateTime(ticks) {
			t.Fatalf("%d is %d", ticks, once)
		}
	})
}
