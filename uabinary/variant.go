package uabinary

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math"

	"github.com/gopcua/opcua/ua"
)

// Variant is a view of a Variant (OPC 10000-6 §5.2.2.16, Variant): its own encoding, checked when it was made. The zero
// value is the null Variant. A Variant is immutable. One that comes from a Decoder aliases the message; Clone makes it
// independent. No method panics.
type Variant struct{ b []byte }

var nullVariant = [1]byte{0}

// Encoded returns the encoding, which must not be changed.
func (v Variant) Encoded() []byte {
	if len(v.b) == 0 {
		return nullVariant[:1:1]
	}
	return v.b
}

// AppendVariant appends a Variant.
func AppendVariant(b []byte, v Variant) []byte {
	if len(v.b) == 0 {
		return append(b, 0)
	}
	return append(b, v.b...)
}

// Clone returns a copy that aliases nothing.
func (v Variant) Clone() Variant { return Variant{bytes.Clone(v.b)} }

// Equal reports whether both have the same encoding.
func (v Variant) Equal(o Variant) bool { return bytes.Equal(v.b, o.b) }

// Type returns the built-in type of the value or of the array's elements; ua.TypeIDNull for the null Variant. The
// reserved types 26 to 31 hold ByteStrings.
func (v Variant) Type() ua.TypeID {
	if len(v.b) == 0 {
		return ua.TypeIDNull
	}
	return ua.TypeID(v.b[0] & variantType)
}

// IsNull reports whether v is the null Variant. A null array or a null String is none.
func (v Variant) IsNull() bool { return len(v.b) == 0 }

// IsArray reports whether v is an array or matrix, be it null.
func (v Variant) IsArray() bool { return len(v.b) != 0 && v.b[0]&variantArray != 0 }

// Len returns the number of elements of an array or matrix: -1 for a null array, a scalar and the null Variant.
func (v Variant) Len() int {
	if !v.IsArray() {
		return -1
	}
	return max(-1, int(int32(binary.LittleEndian.Uint32(v.b[1:]))))
}

// scalar returns the bytes of the value when v is a scalar of type t.
func (v Variant) scalar(t ua.TypeID) ([]byte, bool) {
	if len(v.b) == 0 || v.b[0] != byte(t) {
		return nil, false
	}
	return v.b[1:], true
}

// Dims returns the dimensions: nil for a scalar, one for an array, more for a matrix. It allocates.
func (v Variant) Dims() []uint32 {
	n := v.Len()
	if n < 0 {
		return nil
	}
	enc := v.dimBytes()
	if len(enc) == 0 {
		return []uint32{uint32(n)}
	}
	dims := make([]uint32, len(enc)/4)
	for i := range dims {
		dims[i] = binary.LittleEndian.Uint32(enc[4*i:])
	}
	return dims
}

// Rank returns the number of dimensions: 0 for a scalar and the null Variant, 1 for an array, more for a matrix.
func (v Variant) Rank() int {
	if !v.IsArray() {
		return 0
	}
	return max(1, len(v.dimBytes())/4)
}

// dimBytes returns the encoded dimensions, empty when there are none.
func (v Variant) dimBytes() []byte {
	if !v.IsArray() || v.b[0]&variantDims == 0 {
		return nil
	}
	var d Decoder
	d.resetView(v.b)
	d.pos = 5
	d.skipElements(v.b[0]&variantType, v.Len())
	n := d.Int32()
	if n <= 0 {
		return nil
	}
	return d.Rest()
}

func (d *Decoder) skipElements(t byte, n int) {
	if n <= 0 {
		return
	}
	if size := int(fixedSize[t]); size != 0 {
		d.take(n * size)
		return
	}
	for i := 0; i < n && d.err == nil; i++ {
		d.skipValue(t)
	}
}

// Element returns the i-th element of an array, counted through all dimensions, as a scalar. The element of an array of
// Variants is that Variant. Out of range, and for anything but an array, it is the null Variant. It allocates unless the
// elements are Variants, and takes time in proportion to i unless the elements have a fixed size.
func (v Variant) Element(i int) Variant {
	if i < 0 || i >= v.Len() {
		return Variant{}
	}
	t := v.b[0] & variantType
	if size := int(fixedSize[t]); size != 0 {
		return scalarOf(t, v.b[5+i*size:5+(i+1)*size])
	}
	var d Decoder
	d.resetView(v.b)
	d.pos = 5
	d.skipElements(t, i)
	return d.element(t)
}

// Elements walks the elements of an array as Element gives them, in linear time. Over anything but an array it does
// nothing.
func (v Variant) Elements() iter.Seq2[int, Variant] {
	return func(yield func(int, Variant) bool) {
		n := v.Len()
		if n <= 0 {
			return
		}
		var d Decoder
		d.resetView(v.b)
		d.pos = 5
		for i := range n {
			if !yield(i, d.element(v.b[0]&variantType)) {
				return
			}
		}
	}
}

// element reads one value of type t as a Variant of its own.
func (d *Decoder) element(t byte) Variant {
	if ua.TypeID(t) == ua.TypeIDVariant {
		return d.Variant()
	}
	start := d.pos
	d.skipValue(t)
	if d.err != nil {
		return Variant{}
	}
	return scalarOf(t, d.b[start:d.pos])
}

func scalarOf(t byte, value []byte) Variant {
	b := make([]byte, 1+len(value))
	b[0] = t
	copy(b[1:], value)
	return Variant{b}
}

// Bool returns the value of a Boolean.
func (v Variant) Bool() (value, ok bool) {
	b, ok := v.scalar(ua.TypeIDBoolean)
	return ok && b[0] != 0, ok
}

// Int64 returns the value of an integer of any type that fits.
func (v Variant) Int64() (int64, bool) {
	if len(v.b) == 0 {
		return 0, false
	}
	b := v.b[1:]
	switch ua.TypeID(v.b[0]) { // the array bits make it another number
	case ua.TypeIDSByte:
		return int64(int8(b[0])), true
	case ua.TypeIDByte:
		return int64(b[0]), true
	case ua.TypeIDInt16:
		return int64(int16(binary.LittleEndian.Uint16(b))), true
	case ua.TypeIDUint16:
		return int64(binary.LittleEndian.Uint16(b)), true
	case ua.TypeIDInt32:
		return int64(int32(binary.LittleEndian.Uint32(b))), true
	case ua.TypeIDUint32:
		return int64(binary.LittleEndian.Uint32(b)), true
	case ua.TypeIDInt64:
		return int64(binary.LittleEndian.Uint64(b)), true
	case ua.TypeIDUint64:
		u := binary.LittleEndian.Uint64(b)
		return int64(u), u <= math.MaxInt64
	}
	return 0, false
}

// Uint64 returns the value of an integer of any type that is not negative.
func (v Variant) Uint64() (uint64, bool) {
	if b, ok := v.scalar(ua.TypeIDUint64); ok {
		return binary.LittleEndian.Uint64(b), true
	}
	i, ok := v.Int64()
	return uint64(i), ok && i >= 0
}

// Float64 returns the value of a number of any type. An integer beyond 2^53 is rounded.
func (v Variant) Float64() (float64, bool) {
	if b, ok := v.scalar(ua.TypeIDDouble); ok {
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), true
	}
	if b, ok := v.scalar(ua.TypeIDFloat); ok {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), true
	}
	if b, ok := v.scalar(ua.TypeIDUint64); ok {
		return float64(binary.LittleEndian.Uint64(b)), true
	}
	i, ok := v.Int64()
	return float64(i), ok
}

// Bytes returns the value of a String, ByteString or XmlElement without copying: nil for a null one.
func (v Variant) Bytes() ([]byte, bool) {
	if len(v.b) == 0 {
		return nil, false
	}
	switch ua.TypeID(v.b[0]) {
	case ua.TypeIDString, ua.TypeIDByteString, ua.TypeIDXMLElement:
		if int32(binary.LittleEndian.Uint32(v.b[1:])) < 0 {
			return nil, true
		}
		return v.b[5:len(v.b):len(v.b)], true
	}
	return nil, false
}

// DateTime returns the value of a DateTime.
func (v Variant) DateTime() (DateTime, bool) {
	b, ok := v.scalar(ua.TypeIDDateTime)
	if !ok {
		return 0, false
	}
	return DateTime(binary.LittleEndian.Uint64(b)), true
}

// GUID returns the value of a Guid as its 16 bytes on the wire.
func (v Variant) GUID() (g [16]byte, ok bool) {
	b, ok := v.scalar(ua.TypeIDGUID)
	copy(g[:], b)
	return g, ok
}

// StatusCode returns the value of a StatusCode.
func (v Variant) StatusCode() (ua.StatusCode, bool) {
	b, ok := v.scalar(ua.TypeIDStatusCode)
	if !ok {
		return 0, false
	}
	return ua.StatusCode(binary.LittleEndian.Uint32(b)), true
}

// view returns a Decoder on the value when v is a scalar of type t.
func (v Variant) view(d *Decoder, t ua.TypeID) bool {
	b, ok := v.scalar(t)
	if ok {
		d.resetView(b)
	}
	return ok
}

// NodeID returns the value of a NodeId.
func (v Variant) NodeID() (NodeID, bool) {
	var d Decoder
	if !v.view(&d, ua.TypeIDNodeID) {
		return NodeID{}, false
	}
	return d.NodeID(), true
}

// ExpandedNodeID returns the value of an ExpandedNodeId.
func (v Variant) ExpandedNodeID() (ExpandedNodeID, bool) {
	var d Decoder
	if !v.view(&d, ua.TypeIDExpandedNodeID) {
		return ExpandedNodeID{}, false
	}
	return d.ExpandedNodeID(), true
}

// QualifiedName returns the value of a QualifiedName.
func (v Variant) QualifiedName() (QualifiedName, bool) {
	var d Decoder
	if !v.view(&d, ua.TypeIDQualifiedName) {
		return QualifiedName{}, false
	}
	return d.QualifiedName(), true
}

// LocalizedText returns the value of a LocalizedText.
func (v Variant) LocalizedText() (LocalizedText, bool) {
	var d Decoder
	if !v.view(&d, ua.TypeIDLocalizedText) {
		return LocalizedText{}, false
	}
	return d.LocalizedText(), true
}

// ExtensionObject returns the value of an ExtensionObject.
func (v Variant) ExtensionObject() (ExtensionObject, bool) {
	var d Decoder
	if !v.view(&d, ua.TypeIDExtensionObject) {
		return ExtensionObject{}, false
	}
	return d.ExtensionObject(), true
}

// DataValue returns the value of a DataValue.
func (v Variant) DataValue() (DataValue, bool) {
	var d Decoder
	if !v.view(&d, ua.TypeIDDataValue) {
		return DataValue{}, false
	}
	return d.DataValue(), true
}

// Nested returns the Variant in a scalar Variant of type Variant.
func (v Variant) Nested() (Variant, bool) {
	var d Decoder
	if !v.view(&d, ua.TypeIDVariant) {
		return Variant{}, false
	}
	return d.Variant(), true
}
