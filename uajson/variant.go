package uajson

import (
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

// The bits of a Variant's first byte (OPC 10000-6 §5.2.2.16, Variant).
const (
	variantArray = 0x80
	variantDims  = 0x40
	variantType  = 0x3F
)

// maxRank bounds the dimensions of a matrix, as in uabinary.
const maxRank = 32

// variantParts are the members of a Variant.
type variantParts struct{ kind, value, dims place }

// variant appends a Variant: an object with UaType, Value and Dimensions (OPC 10000-6 §5.4.2.17, Variant), or in the older
// encoding with Type, Body and Dimensions (§H.8).
func (r *reader) variant(v place) {
	if r.isNull(v) {
		r.out = append(r.out, 0)
		return
	}
	if r.char(v) != '{' {
		r.bad("Variant")
		return
	}
	var p, older variantParts
	for m := r.members(v); m.next(); {
		switch string(m.name()) {
		case "UaType":
			p.kind = m.val
		case "Value":
			p.value = m.val
		case "Dimensions":
			p.dims, older.dims = m.val, m.val
		case "Type":
			older.kind = m.val
		case "Body":
			older.value = m.val
		}
	}
	if p.kind.p == 0 && older.kind.p != 0 {
		r.older = true
		p = older
	}
	if p.kind.p == 0 && p.value.p != 0 && !r.isNull(p.value) {
		r.bad("Variant without UaType")
		return
	}
	r.variantValue(p)
}

// variantValue appends the encoding of a Variant.
func (r *reader) variantValue(p variantParts) {
	var t kind
	if p.kind.p != 0 {
		t = kind(r.uint(p.kind, 8))
	}
	if t == kindNull {
		r.out = append(r.out, 0)
		return
	}
	if t > maxBuiltin {
		r.bad("type of a Variant")
		return
	}
	if t.fixed() == 0 {
		if !r.enter() {
			return
		}
		defer r.leave()
	}
	dims := p.dims.p != 0 && !r.isNull(p.dims)
	if p.value.p == 0 || r.char(p.value) != '[' {
		if dims {
			r.bad("Dimensions of no array")
			return
		}
		r.out = append(r.out, byte(t))
		switch {
		case p.value.p == 0:
			r.zero(&field{kind: t})
		case t == kindDataValue:
			r.nested(p.value)
		default:
			r.value(p.value, t, 0)
		}
		return
	}
	at := len(r.out)
	r.out = append(r.out, byte(t)|variantArray)
	var n int
	if t == kindDataValue {
		if !r.enter() {
			return
		}
		n = r.list(p.value, t, 0)
		r.leave()
	} else {
		n = r.list(p.value, t, 0)
	}
	if dims && r.err == nil {
		r.dimensions(p.dims, at, n)
	}
}

// nested appends a DataValue in a Variant, which takes a level of its own.
func (r *reader) nested(v place) {
	if r.enter() {
		r.value(v, kindDataValue, 0)
		r.leave()
	}
}

// dimensions appends the dimensions of an array of n elements whose encoding begins at an offset of out. Their product must
// be n. One that is the length says nothing and is dropped.
func (r *reader) dimensions(v place, at, n int) {
	if r.char(v) != '[' {
		r.bad("Dimensions")
		return
	}
	length := len(r.out)
	r.out = uabinary.AppendInt32(r.out, 0)
	rank, product := 0, int64(1)
	for e := r.elements(v); e.next(); rank++ {
		if rank >= maxRank {
			r.limit("Dimensions")
			return
		}
		d := r.int(e.val, 32)
		if r.err != nil {
			return
		}
		if d <= 0 || d > int64(n) || product*d > int64(n) {
			r.bad("Dimensions")
			return
		}
		product *= d
		r.out = uabinary.AppendInt32(r.out, int32(d))
	}
	if rank > 0 && product != int64(n) {
		r.bad("Dimensions")
		return
	}
	if rank < 2 {
		r.out = r.out[:length]
		return
	}
	r.putLength(length, rank)
	r.out[at] |= variantDims
}

// dataValue appends a DataValue: an object with the members of a Variant and the rest (OPC 10000-6 §5.4.2.18, DataValue), or
// in the older encoding with a Variant as Value. Present is what is not the default.
func (r *reader) dataValue(v place) {
	if r.char(v) != '{' {
		r.bad("DataValue")
		return
	}
	var p variantParts
	var status, source, server, sourcePico, serverPico place
	for m := r.members(v); m.next(); {
		if r.isNull(m.val) {
			continue
		}
		switch string(m.name()) {
		case "UaType":
			p.kind = m.val
		case "Value":
			p.value = m.val
		case "Dimensions":
			p.dims = m.val
		case "Status", "StatusCode":
			status = m.val
		case "SourceTimestamp":
			source = m.val
		case "SourcePicoseconds", "SourcePicoSeconds":
			sourcePico = m.val
		case "ServerTimestamp":
			server = m.val
		case "ServerPicoseconds", "ServerPicoSeconds":
			serverPico = m.val
		}
	}
	at := len(r.out)
	r.out = append(r.out, 0)
	if p.kind.p != 0 {
		start := len(r.out)
		r.variantValue(p)
		r.present(at, start, ua.DataValueValue)
	} else if p.value.p != 0 {
		start := len(r.out)
		r.variant(p.value)
		r.present(at, start, ua.DataValueValue)
	}
	r.part(at, status, kindStatusCode, ua.DataValueStatusCode)
	r.part(at, source, kindDateTime, ua.DataValueSourceTimestamp)
	r.part(at, sourcePico, kindUInt16, ua.DataValueSourcePicoseconds)
	r.part(at, server, kindDateTime, ua.DataValueServerTimestamp)
	r.part(at, serverPico, kindUInt16, ua.DataValueServerPicoseconds)
}

// part appends a field of a DataValue.
func (r *reader) part(at int, v place, k kind, bit byte) {
	if v.p != 0 {
		start := len(r.out)
		r.value(v, k, 0)
		r.present(at, start, bit)
	}
}

// present sets a bit of the mask at an offset of out for the value from start on, or drops it when it is the default.
func (r *reader) present(at, start int, bit byte) {
	if isZero(r.out[start:]) {
		r.out = r.out[:start]
		return
	}
	r.out[at] |= bit
}

// variant appends a Variant, and reports whether it is null.
func (w *writer) variant() (isNull bool) {
	w.out = append(w.out, '{')
	if w.variantMembers() {
		w.out = w.out[:len(w.out)-1]
		return w.null()
	}
	w.out = append(w.out, '}')
	return false
}

// variantMembers appends the members of a Variant to the object that is open; nothing for a null one. A null array is
// written as an empty one, because an absent value is a scalar.
func (w *writer) variantMembers() (isNull bool) {
	typeName, valueName := "UaType", "Value"
	if w.form == Reversible {
		typeName, valueName = "Type", "Body"
	}
	mask := w.d.Byte()
	t := kind(mask & variantType)
	switch {
	case mask == 0:
		return true
	case t == kindNull || t > maxBuiltin:
		w.bad("Variant type")
		return false
	case mask&variantArray == 0 && mask&variantDims != 0:
		w.bad("Variant with dimensions that is no array")
		return false
	}
	if t.fixed() == 0 {
		if !w.enter() {
			return false
		}
		defer w.leave()
	}
	if t == kindDataValue {
		if !w.enter() {
			return false
		}
		defer w.leave()
	}
	w.name(typeName)
	w.int(int64(t))
	start := len(w.out)
	w.name(valueName)
	if mask&variantArray == 0 {
		if w.value(t, 0) && t.nullable() {
			w.out = w.out[:start]
		}
		return false
	}
	n := w.d.ArrayLen(t.min(0))
	w.elements(max(n, 0), t, 0)
	if mask&variantDims != 0 && w.failed() == nil {
		w.dimensions(n)
	}
	return false
}

// dimensions appends the dimensions of an array of n elements, unless there are less than two.
func (w *writer) dimensions(n int) {
	rank := w.d.ArrayLen(4)
	if rank > maxRank {
		w.limit("Variant dimensions")
		return
	}
	start := len(w.out)
	w.name("Dimensions")
	w.out = append(w.out, '[')
	product := int64(1)
	for i := range rank {
		d := int64(w.d.Int32())
		if d <= 0 || d > int64(n) || product*d > int64(n) {
			w.bad("Variant dimension")
			return
		}
		product *= d
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.int(d)
	}
	w.out = append(w.out, ']')
	if rank > 0 && product != int64(n) {
		w.bad("Variant dimensions do not match the array length")
	}
	if rank < 2 {
		w.out = w.out[:start]
	}
}

const dataValueMask = ua.DataValueValue | ua.DataValueStatusCode | ua.DataValueSourceTimestamp |
	ua.DataValueServerTimestamp | ua.DataValueSourcePicoseconds | ua.DataValueServerPicoseconds

// dataValue appends a DataValue, and reports whether it is null.
func (w *writer) dataValue() (isNull bool) {
	mask := w.d.Byte()
	if mask&^dataValueMask != 0 {
		w.bad("DataValue mask")
		return false
	}
	if mask == 0 {
		return w.null()
	}
	w.out = append(w.out, '{')
	if mask&ua.DataValueValue != 0 {
		if w.form == Reversible {
			w.optional("Value", kindVariant)
		} else {
			w.variantMembers()
		}
	}
	if mask&ua.DataValueStatusCode != 0 {
		w.optional("Status", kindStatusCode)
	}
	if mask&ua.DataValueSourceTimestamp != 0 {
		w.optional("SourceTimestamp", kindDateTime)
	}
	if mask&ua.DataValueSourcePicoseconds != 0 {
		w.optional("SourcePicoseconds", kindUInt16)
	}
	if mask&ua.DataValueServerTimestamp != 0 {
		w.optional("ServerTimestamp", kindDateTime)
	}
	if mask&ua.DataValueServerPicoseconds != 0 {
		w.optional("ServerPicoseconds", kindUInt16)
	}
	return w.closeOrNull()
}
