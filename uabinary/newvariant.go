package uabinary

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/gopcua/opcua/ua"
)

// NewVariant returns the Variant of a Go value. It takes what ua.NewVariant takes — nil, the built-in types of `ua`,
// slices of them, nested slices for matrices, []byte as ByteString, ua.ByteArray as array of Byte — and
//   - the value views of this package and slices of them,
//   - int and uint as Int64 and UInt64, [16]byte as Guid,
//   - []any as array of Variant,
//   - pointers to structures of `ua` and to ones registered with ua.RegisterExtensionObject, the structures themselves,
//     and slices of either, as ExtensionObjects.
//
// Nil pointers become the default value of their type, nil slices null arrays. The matrix with a dimension of 0 has no
// encoding and becomes an empty array. The error has BadTypeMismatch for any other type, BadEncodingError for nested
// slices of unequal length, BadEncodingLimitsExceeded for values nested deeper than 100.
func NewVariant(v any) (Variant, error) {
	switch v := v.(type) { // the frequent ones, exact in size
	case nil:
		return Variant{}, nil
	case float64:
		return Double(v), nil
	case int32:
		return Int32(v), nil
	case bool:
		return Boolean(v), nil
	case string:
		return String(v), nil
	case uint32:
		return UInt32(v), nil
	case int64:
		return Int64(v), nil
	case float32:
		return Float(v), nil
	case []byte:
		return ByteString(v), nil
	case Variant:
		return v, nil
	}
	var e Encoder
	e.value(v)
	if e.err != nil {
		return Variant{}, e.err
	}
	if len(e.B) == 1 {
		return Variant{}, nil
	}
	return Variant{slices.Clip(e.B)}, nil
}

// VariantOf returns v as a view; the null Variant for nil.
func VariantOf(v *ua.Variant) (Variant, error) {
	if v == nil {
		return Variant{}, nil
	}
	return NewVariant(v.Value())
}

// DataValueOf returns v as a view; the empty DataValue for nil. With an EncodingMask of 0 the fields that are set count.
func DataValueOf(v *ua.DataValue) (DataValue, error) {
	if v == nil {
		return DataValue{}, nil
	}
	dv := DataValue{
		Mask:              dataValueMaskOf(v),
		Status:            v.Status,
		SourceTimestamp:   FromTime(v.SourceTimestamp),
		ServerTimestamp:   FromTime(v.ServerTimestamp),
		SourcePicoseconds: v.SourcePicoseconds,
		ServerPicoseconds: v.ServerPicoseconds,
	}
	var err error
	if dv.Mask&ua.DataValueValue != 0 {
		dv.Value, err = VariantOf(v.Value)
	}
	return dv, err
}

// ExtensionObjectOf returns x as a view; the null one for nil.
func ExtensionObjectOf(x *ua.ExtensionObject) (ExtensionObject, error) {
	var e Encoder
	e.uaExtensionObject(x)
	if e.err != nil {
		return ExtensionObject{}, e.err
	}
	var d Decoder
	d.resetView(e.B)
	return d.ExtensionObject(), nil
}

// NewExtensionObject returns an ExtensionObject with v as binary body: a pointer to a structure of `ua` or to one that is
// registered with ua.RegisterExtensionObject.
func NewExtensionObject(v any) (ExtensionObject, error) {
	return ExtensionObjectOf(&ua.ExtensionObject{Value: v})
}

func (e *Encoder) uaVariant(v *ua.Variant) {
	if v == nil || v.Value() == nil {
		e.byte(0)
		return
	}
	e.value(v.Value())
}

// value appends the Variant of v.
func (e *Encoder) value(v any) {
	if v == nil {
		e.byte(0)
		return
	}
	if !e.enter() {
		return
	}
	defer e.leave()
	t := e.scalarType(v)
	if t != ua.TypeIDNull {
		e.byte(byte(t))
		e.scalar(v)
		return
	}
	if w, ok := v.(Variant); ok { // only as element of an array a Variant stays one
		e.B = AppendVariant(e.B, w)
		return
	}
	if w, ok := v.(*ua.Variant); ok {
		e.byte(byte(ua.TypeIDVariant))
		e.uaVariant(w)
		return
	}
	if !e.array(v) {
		e.nested(reflect.ValueOf(v))
	}
}

// scalarType returns the built-in type of a scalar that is no Variant; Null for everything else.
func (e *Encoder) scalarType(v any) ua.TypeID {
	switch v.(type) {
	case bool:
		return ua.TypeIDBoolean
	case int8:
		return ua.TypeIDSByte
	case uint8:
		return ua.TypeIDByte
	case int16:
		return ua.TypeIDInt16
	case uint16:
		return ua.TypeIDUint16
	case int32:
		return ua.TypeIDInt32
	case uint32:
		return ua.TypeIDUint32
	case int64, int:
		return ua.TypeIDInt64
	case uint64, uint:
		return ua.TypeIDUint64
	case float32:
		return ua.TypeIDFloat
	case float64:
		return ua.TypeIDDouble
	case string:
		return ua.TypeIDString
	case time.Time, DateTime:
		return ua.TypeIDDateTime
	case *ua.GUID, [16]byte:
		return ua.TypeIDGUID
	case []byte:
		return ua.TypeIDByteString
	case ua.XMLElement:
		return ua.TypeIDXMLElement
	case *ua.NodeID, NodeID:
		return ua.TypeIDNodeID
	case *ua.ExpandedNodeID, ExpandedNodeID:
		return ua.TypeIDExpandedNodeID
	case ua.StatusCode:
		return ua.TypeIDStatusCode
	case *ua.QualifiedName, QualifiedName:
		return ua.TypeIDQualifiedName
	case *ua.LocalizedText, LocalizedText:
		return ua.TypeIDLocalizedText
	case *ua.ExtensionObject, ExtensionObject:
		return ua.TypeIDExtensionObject
	case *ua.DataValue, DataValue:
		return ua.TypeIDDataValue
	case *ua.DiagnosticInfo:
		return ua.TypeIDDiagnosticInfo
	}
	return ua.TypeIDNull
}

// scalar appends what scalarType has recognised.
func (e *Encoder) scalar(v any) {
	switch v := v.(type) {
	case bool:
		e.bool(v)
	case int8:
		e.byte(byte(v))
	case uint8:
		e.byte(v)
	case int16:
		e.uint16(uint16(v))
	case uint16:
		e.uint16(v)
	case int32:
		e.uint32(uint32(v))
	case uint32:
		e.uint32(v)
	case int64:
		e.uint64(uint64(v))
	case int:
		e.uint64(uint64(v))
	case uint64:
		e.uint64(v)
	case uint:
		e.uint64(uint64(v))
	case float32:
		e.float(v)
	case float64:
		e.double(v)
	case string:
		e.text(v)
	case time.Time:
		e.time(v)
	case DateTime:
		e.uint64(uint64(v))
	case *ua.GUID:
		e.uaGUID(v)
	case [16]byte:
		e.B = append(e.B, v[:]...)
	case []byte:
		e.bytes(v)
	case ua.XMLElement:
		e.text(string(v))
	case *ua.NodeID:
		e.uaNodeID(v)
	case NodeID:
		e.B = AppendNodeID(e.B, v)
	case *ua.ExpandedNodeID:
		e.uaExpandedNodeID(v)
	case ExpandedNodeID:
		e.B = AppendExpandedNodeID(e.B, v)
	case ua.StatusCode:
		e.uint32(uint32(v))
	case *ua.QualifiedName:
		e.uaQualifiedName(v)
	case QualifiedName:
		e.B = AppendQualifiedName(e.B, v)
	case *ua.LocalizedText:
		e.uaLocalizedText(v)
	case LocalizedText:
		e.B = AppendLocalizedText(e.B, v)
	case *ua.ExtensionObject:
		e.uaExtensionObject(v)
	case ExtensionObject:
		e.B = AppendExtensionObject(e.B, v)
	case *ua.DataValue:
		e.uaDataValue(v)
	case DataValue:
		e.B = AppendDataValue(e.B, &v)
	case *ua.DiagnosticInfo:
		e.uaDiagnosticInfo(v)
	}
}

// array appends the Variant of a slice of a frequent type and reports whether v is one.
func (e *Encoder) array(v any) bool {
	switch v := v.(type) {
	case []bool:
		arrayOf(e, ua.TypeIDBoolean, v, 1, (*Encoder).bool)
	case ua.ByteArray:
		e.byte(byte(ua.TypeIDByte) | variantArray)
		e.bytes(v)
	case []int16:
		arrayOf(e, ua.TypeIDInt16, v, 2, func(e *Encoder, x int16) { e.uint16(uint16(x)) })
	case []uint16:
		arrayOf(e, ua.TypeIDUint16, v, 2, (*Encoder).uint16)
	case []int32:
		arrayOf(e, ua.TypeIDInt32, v, 4, func(e *Encoder, x int32) { e.uint32(uint32(x)) })
	case []uint32:
		arrayOf(e, ua.TypeIDUint32, v, 4, (*Encoder).uint32)
	case []int64:
		arrayOf(e, ua.TypeIDInt64, v, 8, func(e *Encoder, x int64) { e.uint64(uint64(x)) })
	case []uint64:
		arrayOf(e, ua.TypeIDUint64, v, 8, (*Encoder).uint64)
	case []float32:
		arrayOf(e, ua.TypeIDFloat, v, 4, (*Encoder).float)
	case []float64:
		arrayOf(e, ua.TypeIDDouble, v, 8, (*Encoder).double)
	case []string:
		arrayOf(e, ua.TypeIDString, v, 16, (*Encoder).text)
	case []time.Time:
		arrayOf(e, ua.TypeIDDateTime, v, 8, (*Encoder).time)
	case []*ua.NodeID:
		arrayOf(e, ua.TypeIDNodeID, v, 4, (*Encoder).uaNodeID)
	case []*ua.LocalizedText:
		arrayOf(e, ua.TypeIDLocalizedText, v, 16, (*Encoder).uaLocalizedText)
	case []ua.StatusCode:
		arrayOf(e, ua.TypeIDStatusCode, v, 4, (*Encoder).statusCode)
	case []*ua.ExtensionObject:
		arrayOf(e, ua.TypeIDExtensionObject, v, 32, (*Encoder).uaExtensionObject)
	case []*ua.Variant:
		arrayOf(e, ua.TypeIDVariant, v, 8, (*Encoder).uaVariant)
	case []Variant:
		arrayOf(e, ua.TypeIDVariant, v, 8, func(e *Encoder, x Variant) { e.B = AppendVariant(e.B, x) })
	case []any:
		arrayOf(e, ua.TypeIDVariant, v, 8, (*Encoder).variantElement)
	default:
		return false
	}
	return true
}

// arrayOf appends the Variant of a slice whose elements take about size bytes each.
func arrayOf[T any](e *Encoder, t ua.TypeID, s []T, size int, write func(*Encoder, T)) {
	e.B = append(slices.Grow(e.B, 5+len(s)*size), byte(t)|variantArray)
	appendSlice(e, s, write)
}

var (
	bytesType      = reflect.TypeFor[[]byte]()
	byteArrayType  = reflect.TypeFor[ua.ByteArray]()
	guidBytesType  = reflect.TypeFor[[16]byte]()
	variantPtrType = reflect.TypeFor[*ua.Variant]()
	variantTyp     = reflect.TypeFor[Variant]()
	anyType        = reflect.TypeFor[any]()
)

// nested appends the Variant of a structure, of a slice of any type, or of nested slices.
func (e *Encoder) nested(v reflect.Value) {
	if isStructure(v.Type()) {
		e.byte(byte(ua.TypeIDExtensionObject))
		e.structureValue(v)
		return
	}
	elem := v.Type()
	var dims []int
	level := v
	total := 1
	for (elem.Kind() == reflect.Slice || elem.Kind() == reflect.Array) && elem != bytesType && elem != guidBytesType {
		n := 0
		if level.IsValid() {
			n = level.Len()
		}
		if n > 0 {
			level = level.Index(0)
		} else {
			level = reflect.Value{}
		}
		dims = append(dims, n)
		total *= n
		elem = elem.Elem()
	}
	t := elementType(elem)
	if t == ua.TypeIDNull || len(dims) == 0 || len(dims) > maxRank {
		e.fail(ua.StatusBadTypeMismatch, fmt.Sprintf("Variant of %s", v.Type()))
		return
	}
	switch {
	case len(dims) == 1 && v.Kind() == reflect.Slice && v.IsNil():
		e.byte(byte(t) | variantArray)
		e.uint32(null)
		return
	case len(dims) == 1 || total == 0:
		e.byte(byte(t) | variantArray)
		e.len(total, false)
		if total > 0 {
			e.rows(v, dims, t)
		}
		return
	}
	e.byte(byte(t) | variantArray | variantDims)
	e.len(total, false)
	e.rows(v, dims, t)
	e.len(len(dims), false)
	for _, n := range dims {
		e.len(n, false)
	}
}

// rows appends the elements of nested slices.
func (e *Encoder) rows(v reflect.Value, dims []int, t ua.TypeID) {
	if v.Len() != dims[0] {
		e.fail(ua.StatusBadEncodingError, "matrix with rows of unequal length")
		return
	}
	for i := range v.Len() {
		if e.err != nil {
			return
		}
		if len(dims) > 1 {
			e.rows(v.Index(i), dims[1:], t)
			continue
		}
		x := v.Index(i)
		switch {
		case isStructure(x.Type()):
			e.structureValue(x)
		case t == ua.TypeIDVariant:
			e.variantElement(x.Interface())
		default:
			e.scalar(x.Interface())
		}
	}
}

// variantElement appends an element of an array of Variant: a Variant of either kind is not wrapped once more.
func (e *Encoder) variantElement(v any) {
	if u, ok := v.(*ua.Variant); ok {
		e.uaVariant(u)
		return
	}
	e.value(v)
}

// elementType returns the built-in type of the elements of a slice; Null when there is none.
func elementType(t reflect.Type) ua.TypeID {
	switch t {
	case anyType, variantPtrType, variantTyp:
		return ua.TypeIDVariant
	case byteArrayType:
		return ua.TypeIDByte
	}
	var e Encoder
	if id := e.scalarType(reflect.Zero(t).Interface()); id != ua.TypeIDNull {
		return id
	}
	if isStructure(t) {
		return ua.TypeIDExtensionObject
	}
	return ua.TypeIDNull
}

// isStructure reports whether t is a structure, or a pointer to one, that goes into an ExtensionObject.
func isStructure(t reflect.Type) bool {
	if t.Kind() != reflect.Pointer {
		t = reflect.PointerTo(t)
	}
	if t.Elem().Kind() != reflect.Struct {
		return false
	}
	v := reflect.Zero(t).Interface()
	return bodyTypeID(v) != 0 || !ExpandedOf(ua.ExtensionObjectTypeID(v)).IsNull()
}

func (e *Encoder) structureValue(v reflect.Value) {
	if v.Kind() != reflect.Pointer {
		p := reflect.New(v.Type())
		p.Elem().Set(v)
		v = p
	}
	if v.IsNil() {
		e.uaExtensionObject(nil)
		return
	}
	if e.enter() {
		e.structure(nil, v.Interface())
		e.leave()
	}
}
