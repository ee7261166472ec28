package uabinary

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Encoder appends `ua` structures and messages to B. The error is sticky; what has been appended after it is of no use.
//
// Nil pointers are encoded as the default value of their type, nil slices as null arrays, "" as null String. NodeIds take
// the shortest form.
type Encoder struct {
	B     []byte
	err   error
	depth int
}

// Err returns the first error: BadEncodingError for a value that has no encoding, BadEncodingLimitsExceeded for one that
// is nested deeper than 100 or longer than 2^31-1.
func (e *Encoder) Err() error { return e.err }

// Reset makes e append to b.
func (e *Encoder) Reset(b []byte) { *e = Encoder{B: b} }

func (e *Encoder) fail(code ua.StatusCode, what string) {
	if e.err == nil {
		e.err = uastatus.New(code, "encode "+what, nil)
	}
}

func (e *Encoder) enter() bool {
	if e.depth >= DefaultMaxNestingLevel {
		e.fail(ua.StatusBadEncodingLimitsExceeded, "nesting level")
		return false
	}
	e.depth++
	return true
}

func (e *Encoder) leave() { e.depth-- }

func (e *Encoder) bool(v bool)      { e.B = AppendBool(e.B, v) }
func (e *Encoder) byte(v byte)      { e.B = append(e.B, v) }
func (e *Encoder) uint16(v uint16)  { e.B = AppendUint16(e.B, v) }
func (e *Encoder) uint32(v uint32)  { e.B = AppendUint32(e.B, v) }
func (e *Encoder) uint64(v uint64)  { e.B = AppendUint64(e.B, v) }
func (e *Encoder) float(v float32)  { e.B = AppendFloat(e.B, v) }
func (e *Encoder) double(v float64) { e.B = AppendDouble(e.B, v) }
func (e *Encoder) time(v time.Time) { e.B = AppendDateTime(e.B, FromTime(v)) }

// string appends a String of a structure: `ua` cannot tell null from empty, and null is what gopcua sends.
func (e *Encoder) string(s string) {
	if s == "" {
		e.uint32(null)
		return
	}
	e.text(s)
}

// text appends a String that is a value of its own: "" is the empty one.
func (e *Encoder) text(s string) {
	if e.len(len(s), false) {
		e.B = append(e.B, s...)
	}
}

func (e *Encoder) bytes(s []byte) {
	if e.len(len(s), s == nil) {
		e.B = append(e.B, s...)
	}
}

// len appends a length, -1 when isNull, and reports whether elements follow.
func (e *Encoder) len(n int, isNull bool) bool {
	if isNull {
		e.uint32(null)
		return false
	}
	if n > math.MaxInt32 {
		e.fail(ua.StatusBadEncodingLimitsExceeded, "length")
		return false
	}
	e.uint32(uint32(n))
	return true
}

func (e *Encoder) uaNodeID(n *ua.NodeID) {
	if n == nil {
		e.B = append(e.B, 0, 0)
		return
	}
	e.B = AppendNodeID(e.B, NodeIDOf(n))
}

func (e *Encoder) uaExpandedNodeID(x *ua.ExpandedNodeID) {
	if x == nil {
		e.B = append(e.B, 0, 0)
		return
	}
	e.B = AppendExpandedNodeID(e.B, ExpandedOf(x))
}

func (e *Encoder) uaQualifiedName(q *ua.QualifiedName) {
	if q == nil {
		e.B = append(e.B, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF)
		return
	}
	e.uint16(q.NamespaceIndex)
	e.string(q.Name)
}

func (e *Encoder) uaLocalizedText(t *ua.LocalizedText) {
	if t == nil {
		e.byte(0)
		return
	}
	mask := t.EncodingMask & (ua.LocalizedTextLocale | ua.LocalizedTextText)
	if t.Locale != "" {
		mask |= ua.LocalizedTextLocale
	}
	if t.Text != "" {
		mask |= ua.LocalizedTextText
	}
	e.byte(mask)
	if mask&ua.LocalizedTextLocale != 0 {
		e.text(t.Locale)
	}
	if mask&ua.LocalizedTextText != 0 {
		e.text(t.Text)
	}
}

func (e *Encoder) uaGUID(g *ua.GUID) {
	var b [16]byte
	if g != nil {
		b = guidOf(g)
	}
	e.B = append(e.B, b[:]...)
}

func guidOf(g *ua.GUID) (b [16]byte) {
	binary.LittleEndian.PutUint32(b[0:], g.Data1)
	binary.LittleEndian.PutUint16(b[4:], g.Data2)
	binary.LittleEndian.PutUint16(b[6:], g.Data3)
	copy(b[8:], g.Data4)
	return b
}

func (e *Encoder) uaExtensionObject(x *ua.ExtensionObject) {
	if x == nil {
		e.B = append(e.B, 0, 0, ua.ExtensionObjectEmpty)
		return
	}
	switch v := x.Value.(type) {
	case nil:
		e.uaExpandedNodeID(x.TypeID)
		if x.EncodingMask != ua.ExtensionObjectBinary && x.EncodingMask != ua.ExtensionObjectXML {
			e.byte(ua.ExtensionObjectEmpty)
			return
		}
		e.byte(x.EncodingMask)
		e.uint32(null)
	case *RawBody:
		e.uaExpandedNodeID(x.TypeID)
		if x.EncodingMask == ua.ExtensionObjectXML {
			e.byte(ua.ExtensionObjectXML)
		} else {
			e.byte(ua.ExtensionObjectBinary)
		}
		if v == nil {
			v = &RawBody{}
		}
		e.bytes(v.Bytes)
	case *ua.XMLElement:
		e.uaExpandedNodeID(x.TypeID)
		e.byte(ua.ExtensionObjectXML)
		if v == nil {
			e.uint32(null)
		} else {
			e.text(string(*v))
		}
	default:
		if e.enter() {
			e.structure(x.TypeID, v)
			e.leave()
		}
	}
}

// structure appends an ExtensionObject with v as binary body. Without a type id it is the one `ua` has for v.
func (e *Encoder) structure(typeID *ua.ExpandedNodeID, v any) {
	known := bodyTypeID(v)
	switch {
	case typeID != nil && !ExpandedOf(typeID).IsNull():
		e.uaExpandedNodeID(typeID)
	case known != 0:
		e.B = AppendNodeID(e.B, NumericID(0, known))
	default:
		typeID = ua.ExtensionObjectTypeID(v)
		if ExpandedOf(typeID).IsNull() {
			e.fail(ua.StatusBadEncodingError, fmt.Sprintf("ExtensionObject: %T is not registered", v))
			return
		}
		e.uaExpandedNodeID(typeID)
	}
	e.byte(ua.ExtensionObjectBinary)
	start := len(e.B)
	e.uint32(0)
	if known != 0 {
		e.body(v)
	} else {
		e.foreignBody(v)
	}
	n := len(e.B) - start - 4
	if n > math.MaxInt32 {
		e.fail(ua.StatusBadEncodingLimitsExceeded, "length")
		return
	}
	binary.LittleEndian.PutUint32(e.B[start:], uint32(n))
}

// foreignBody appends a structure of the application's own, by its BinaryEncoder or by gopcua's reflection.
func (e *Encoder) foreignBody(v any) {
	var b []byte
	var err error
	if enc, ok := v.(ua.BinaryEncoder); ok {
		b, err = enc.Encode()
	} else {
		b, err = ua.Encode(v)
	}
	if err != nil && e.err == nil {
		e.err = uastatus.New(ua.StatusBadEncodingError, fmt.Sprintf("encode %T", v), err)
	}
	e.B = append(e.B, b...)
}

func (e *Encoder) uaDataValue(v *ua.DataValue) {
	if v == nil {
		e.byte(0)
		return
	}
	mask := dataValueMaskOf(v)
	e.byte(mask)
	if mask&ua.DataValueValue != 0 {
		e.uaVariant(v.Value)
	}
	if mask&ua.DataValueStatusCode != 0 {
		e.uint32(uint32(v.Status))
	}
	if mask&ua.DataValueSourceTimestamp != 0 {
		e.time(v.SourceTimestamp)
	}
	if mask&ua.DataValueSourcePicoseconds != 0 {
		e.uint16(v.SourcePicoseconds)
	}
	if mask&ua.DataValueServerTimestamp != 0 {
		e.time(v.ServerTimestamp)
	}
	if mask&ua.DataValueServerPicoseconds != 0 {
		e.uint16(v.ServerPicoseconds)
	}
}

// dataValueMaskOf returns EncodingMask, or when that is 0 the mask of the fields that are set.
func dataValueMaskOf(v *ua.DataValue) byte {
	if v.EncodingMask != 0 {
		return v.EncodingMask & dataValueMask
	}
	set := *v
	if set.Value != nil && set.Value.Type() == ua.TypeIDNull {
		set.Value = nil
	}
	set.UpdateMask()
	return set.EncodingMask
}

func (e *Encoder) uaDiagnosticInfo(v *ua.DiagnosticInfo) {
	depth := e.depth
	for e.enter() {
		if v == nil {
			e.byte(0)
			break
		}
		mask := v.EncodingMask & diagnosticInfoMask
		if mask == 0 {
			set := *v
			set.UpdateMask()
			mask = set.EncodingMask
		}
		e.byte(mask)
		if mask&ua.DiagnosticInfoSymbolicID != 0 {
			e.uint32(uint32(v.SymbolicID))
		}
		if mask&ua.DiagnosticInfoNamespaceURI != 0 {
			e.uint32(uint32(v.NamespaceURI))
		}
		if mask&ua.DiagnosticInfoLocale != 0 {
			e.uint32(uint32(v.Locale))
		}
		if mask&ua.DiagnosticInfoLocalizedText != 0 {
			e.uint32(uint32(v.LocalizedText))
		}
		if mask&ua.DiagnosticInfoAdditionalInfo != 0 {
			e.string(v.AdditionalInfo)
		}
		if mask&ua.DiagnosticInfoInnerStatusCode != 0 {
			e.uint32(uint32(v.InnerStatusCode))
		}
		if mask&ua.DiagnosticInfoInnerDiagnosticInfo == 0 {
			break
		}
		v = v.InnerDiagnosticInfo
	}
	e.depth = depth
}

// appendSlice appends an array.
func appendSlice[T any](e *Encoder, s []T, write func(*Encoder, T)) {
	if e.len(len(s), s == nil) {
		for _, v := range s {
			write(e, v)
		}
	}
}

func (e *Encoder) statusCode(v ua.StatusCode) { e.uint32(uint32(v)) }

func (e *Encoder) uaNodeIDs(s []*ua.NodeID)       { appendSlice(e, s, (*Encoder).uaNodeID) }
func (e *Encoder) uaVariants(s []*ua.Variant)     { appendSlice(e, s, (*Encoder).uaVariant) }
func (e *Encoder) uaDataValues(s []*ua.DataValue) { appendSlice(e, s, (*Encoder).uaDataValue) }
func (e *Encoder) uaExpandedNodeIDs(s []*ua.ExpandedNodeID) {
	appendSlice(e, s, (*Encoder).uaExpandedNodeID)
}
func (e *Encoder) uaQualifiedNames(s []*ua.QualifiedName) {
	appendSlice(e, s, (*Encoder).uaQualifiedName)
}
func (e *Encoder) uaLocalizedTexts(s []*ua.LocalizedText) {
	appendSlice(e, s, (*Encoder).uaLocalizedText)
}
func (e *Encoder) uaExtensionObjects(s []*ua.ExtensionObject) {
	appendSlice(e, s, (*Encoder).uaExtensionObject)
}
func (e *Encoder) uaDiagnosticInfos(s []*ua.DiagnosticInfo) {
	appendSlice(e, s, (*Encoder).uaDiagnosticInfo)
}
