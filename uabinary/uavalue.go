package uabinary

import (
	"bytes"
	"math"
	"reflect"
	"unsafe"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// maxRank bounds the dimensions of a matrix: every rank is another Go type, and Go keeps types for ever.
const maxRank = 32

// uaVariant reads a Variant into the zero *v.
func (d *Decoder) uaVariant(v *ua.Variant) {
	start := d.pos
	value := d.value()
	if d.err != nil || value == nil {
		return
	}
	if err := newUAVariant(v, value, d.b[start:d.pos]); err != nil {
		d.Fail(uastatus.Code(err), "Variant")
	}
}

// newUAVariant sets the zero *v to a value whose encoding is raw.
func newUAVariant(v *ua.Variant, value any, raw []byte) error {
	u, err := ua.NewVariant(value)
	if err == nil {
		*v = *u
		return nil
	}
	// NewVariant takes ByteStrings of unequal length for the rows of a matrix. Decode does not, but knows no reserved
	// types, has a limit of its own, and aliases what it is given.
	raw = bytes.Clone(raw)
	raw[0] = raw[0]&^variantType | byte(ua.TypeIDByteString)
	if _, err := v.Decode(raw); err != nil {
		return uastatus.New(uastatus.Code(err), "ua.Variant", err)
	}
	return nil
}

// value reads a Variant into the Go value ua.NewVariant makes that Variant of: nil for the null one, nested slices for a
// matrix.
func (d *Decoder) value() any {
	mask := d.Byte()
	t := mask & variantType
	switch {
	case mask == 0:
		return nil
	case t == 0 || t > maxBuiltinType:
		d.bad("Variant type")
		return nil
	case mask&variantArray == 0 && mask&variantDims != 0:
		d.bad("Variant with dimensions that is no array")
		return nil
	}
	if fixedSize[t] == 0 {
		if !d.enter() {
			return nil
		}
		defer d.leave()
	}
	if mask&variantArray == 0 {
		return d.scalarValue(ua.TypeID(t))
	}
	var n int
	v := d.arrayValue(ua.TypeID(t), &n)
	if mask&variantDims != 0 {
		count, pos := d.dims(n)
		if count > 1 && d.err == nil {
			return split(v, d.b[pos:d.pos])
		}
	}
	return v
}

func (d *Decoder) scalarValue(t ua.TypeID) any {
	switch t {
	case ua.TypeIDBoolean:
		return d.Bool()
	case ua.TypeIDSByte:
		return d.SByte()
	case ua.TypeIDByte:
		return d.Byte()
	case ua.TypeIDInt16:
		return d.Int16()
	case ua.TypeIDUint16:
		return d.UInt16()
	case ua.TypeIDInt32:
		return d.Int32()
	case ua.TypeIDUint32:
		return d.UInt32()
	case ua.TypeIDInt64:
		return d.Int64()
	case ua.TypeIDUint64:
		return d.UInt64()
	case ua.TypeIDFloat:
		return d.Float()
	case ua.TypeIDDouble:
		return d.Double()
	case ua.TypeIDString:
		return d.String()
	case ua.TypeIDDateTime:
		return d.uaTime()
	case ua.TypeIDGUID:
		s := new(slab[ua.GUID, guidParts])
		d.uaGUID(&s.v, &s.p)
		return &s.v
	case ua.TypeIDXMLElement:
		return ua.XMLElement(d.StringBytes())
	case ua.TypeIDNodeID:
		v := new(ua.NodeID)
		d.uaNodeID(v)
		return v
	case ua.TypeIDExpandedNodeID:
		s := new(slab[ua.ExpandedNodeID, expandedParts])
		d.uaExpandedNodeID(&s.v, &s.p)
		return &s.v
	case ua.TypeIDStatusCode:
		return d.StatusCode()
	case ua.TypeIDQualifiedName:
		v := new(ua.QualifiedName)
		d.uaQualifiedName(v)
		return v
	case ua.TypeIDLocalizedText:
		v := new(ua.LocalizedText)
		d.uaLocalizedText(v)
		return v
	case ua.TypeIDExtensionObject:
		s := new(slab[ua.ExtensionObject, extensionObjectParts])
		d.uaExtensionObject(&s.v, &s.p)
		return &s.v
	case ua.TypeIDDataValue:
		s := new(slab[ua.DataValue, dataValueParts])
		if d.enter() {
			d.uaDataValue(&s.v, &s.p)
			d.leave()
		}
		return &s.v
	case ua.TypeIDVariant:
		v := new(ua.Variant)
		d.uaVariant(v)
		return v
	case ua.TypeIDDiagnosticInfo:
		v := new(ua.DiagnosticInfo)
		d.uaDiagnosticInfo(v)
		return v
	}
	return d.uaBytes() // ByteString and the reserved types
}

// arrayValue reads an array as flat slice and sets *n to its length, -1 for a null one.
func (d *Decoder) arrayValue(t ua.TypeID, n *int) any {
	*n = -1
	switch t {
	case ua.TypeIDBoolean:
		return counted(scalars(d, 1, (*Decoder).Bool), n)
	case ua.TypeIDSByte:
		return counted(scalars(d, 1, (*Decoder).SByte), n)
	case ua.TypeIDByte:
		if *n = d.slabLen(1, 1); *n < 0 {
			return ua.ByteArray(nil)
		}
		return append(make(ua.ByteArray, 0, *n), d.take(*n)...)
	case ua.TypeIDInt16:
		return counted(scalars(d, 2, (*Decoder).Int16), n)
	case ua.TypeIDUint16:
		return counted(scalars(d, 2, (*Decoder).UInt16), n)
	case ua.TypeIDInt32:
		return counted(scalars(d, 4, (*Decoder).Int32), n)
	case ua.TypeIDUint32:
		return counted(scalars(d, 4, (*Decoder).UInt32), n)
	case ua.TypeIDInt64:
		return counted(scalars(d, 8, (*Decoder).Int64), n)
	case ua.TypeIDUint64:
		return counted(scalars(d, 8, (*Decoder).UInt64), n)
	case ua.TypeIDFloat:
		return counted(scalars(d, 4, (*Decoder).Float), n)
	case ua.TypeIDDouble:
		return counted(d.doubles(), n)
	case ua.TypeIDString:
		return counted(d.strings(), n)
	case ua.TypeIDDateTime:
		return counted(d.uaTimes(), n)
	case ua.TypeIDGUID:
		return counted(d.uaGUIDs(), n)
	case ua.TypeIDXMLElement:
		return counted(scalars(d, 4, func(d *Decoder) ua.XMLElement { return ua.XMLElement(d.StringBytes()) }), n)
	case ua.TypeIDNodeID:
		return counted(d.uaNodeIDs(), n)
	case ua.TypeIDExpandedNodeID:
		return counted(d.uaExpandedNodeIDs(), n)
	case ua.TypeIDStatusCode:
		return counted(d.uaStatusCodes(), n)
	case ua.TypeIDQualifiedName:
		return counted(d.uaQualifiedNames(), n)
	case ua.TypeIDLocalizedText:
		return counted(d.uaLocalizedTexts(), n)
	case ua.TypeIDExtensionObject:
		return counted(d.uaExtensionObjects(), n)
	case ua.TypeIDDataValue:
		if !d.enter() {
			return nil
		}
		defer d.leave()
		return counted(d.uaDataValues(), n)
	case ua.TypeIDVariant:
		return counted(d.uaVariants(), n)
	case ua.TypeIDDiagnosticInfo:
		return counted(d.uaDiagnosticInfos(), n)
	}
	return counted(d.uaByteStrings(), n)
}

func counted[T any](s []T, n *int) any {
	if s != nil {
		*n = len(s)
	}
	return s
}

// doubles reads an array of Double without a call for each element.
func (d *Decoder) doubles() []float64 {
	n := d.slabLen(8, unsafe.Sizeof(float64(0)))
	if n < 0 {
		return nil
	}
	s, raw := make([]float64, n), Decoder{b: d.take(8 * n)}
	for i := range s {
		s[i] = math.Float64frombits(raw.UInt64())
	}
	return s
}

// split cuts a flat slice into nested ones by the encoded dimensions, of which there are at least two.
func split(flat any, dims []byte) any {
	v := reflect.ValueOf(flat)
	d := Decoder{b: dims}
	sizes := make([]int, len(dims)/4)
	for i := range sizes {
		sizes[i] = int(d.UInt32())
	}
	for i := len(sizes) - 1; i > 0; i-- {
		size := sizes[i]
		rows := v.Len() / size
		outer := reflect.MakeSlice(reflect.SliceOf(v.Type()), rows, rows)
		for r := range rows {
			outer.Index(r).Set(v.Slice3(r*size, (r+1)*size, (r+1)*size))
		}
		v = outer
	}
	return v.Interface()
}

// Value returns the Go value ua.NewVariant makes v of, with memory of its own: nil for the null Variant, nested slices for
// a matrix, ua.ByteArray for an array of Byte.
func (v Variant) Value() (any, error) {
	if v.IsNull() {
		return nil, nil
	}
	var d Decoder
	d.resetView(v.b)
	value := d.value()
	if d.err != nil {
		return nil, d.err
	}
	return value, nil
}

// UA returns v as gopcua's type with memory of its own. See the package documentation for what that loses.
func (v Variant) UA() (*ua.Variant, error) {
	value, err := v.Value()
	if err != nil {
		return nil, err
	}
	u := new(ua.Variant)
	if value == nil {
		return u, nil
	}
	if err := newUAVariant(u, value, v.b); err != nil {
		return nil, err
	}
	return u, nil
}

// UA returns v as gopcua's type with memory of its own.
func (v DataValue) UA() (*ua.DataValue, error) {
	u := &ua.DataValue{
		EncodingMask:      v.Mask & dataValueMask,
		Value:             new(ua.Variant),
		Status:            v.Status,
		SourceTimestamp:   v.SourceTimestamp.Time(),
		SourcePicoseconds: v.SourcePicoseconds,
		ServerTimestamp:   v.ServerTimestamp.Time(),
		ServerPicoseconds: v.ServerPicoseconds,
	}
	if v.Mask&ua.DataValueValue != 0 {
		var err error
		if u.Value, err = v.Value.UA(); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// UA returns x as gopcua's type with memory of its own. A body of a type that `ua` has becomes its structure; every other
// one becomes a *RawBody. A body that is not what its type says is BadDecodingError, and one nested deeper than 100
// BadEncodingLimitsExceeded.
func (x ExtensionObject) UA() (*ua.ExtensionObject, error) {
	s := new(slab[ua.ExtensionObject, extensionObjectParts])
	s.v.EncodingMask = x.Encoding
	s.v.TypeID = &s.p.typeID
	x.TypeID.setUA(&s.p.typeID, &s.p.p.nodeID)
	switch {
	case x.Encoding == ua.ExtensionObjectBinary:
		var d Decoder
		d.Reset(x.Body, &Limits{MaxMessageSize: math.MaxInt})
		d.pos = len(x.Body)
		s.v.Value = d.uaBody(s.v.TypeID, x.Body)
		if d.err != nil {
			return nil, d.err
		}
	case x.Encoding == ua.ExtensionObjectXML && x.Body != nil:
		e := ua.XMLElement(x.Body)
		s.v.Value = &e
	}
	return &s.v, nil
}
