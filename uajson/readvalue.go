package uajson

import (
	"bytes"
	"math"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

// structure appends the structure s from the object at v. Its fields may be in any order; the members of other names are
// ignored, because a later version of the specification may have more of them.
func (r *reader) structure(v place, s *structure) {
	if r.char(v) != '{' {
		r.bad(s.name)
		return
	}
	base := len(r.places)
	for range s.fields {
		r.places = append(r.places, place{})
	}
	guess := 0
	for m := r.members(v); m.next(); {
		if i := match(s, m.name(), guess); i >= 0 {
			r.places[base+i] = m.val
			guess = i + 1
		}
	}
	for i := range s.fields {
		if r.err != nil {
			break
		}
		r.field(r.places[base+i], &s.fields[i])
	}
	r.places = r.places[:base]
}

// match returns the index of the field with that name, -1 when there is none. It tries guess first: most objects have the
// order of the definition.
func match(s *structure, name []byte, guess int) int {
	for i := guess; i < len(s.fields); i++ {
		if s.fields[i].name == string(name) {
			return i
		}
	}
	for i := range min(guess, len(s.fields)) {
		if s.fields[i].name == string(name) {
			return i
		}
	}
	return -1
}

// field appends the field f from the value at v; no value is the default.
func (r *reader) field(v place, f *field) {
	switch {
	case v.p == 0:
		r.zero(f)
	case f.array:
		if r.isNull(v) {
			r.verbose = true
			r.out = uabinary.AppendInt32(r.out, -1)
			return
		}
		r.list(v, f.kind, f.ref)
	default:
		if r.isNull(v) {
			r.verbose = true
		}
		r.value(v, f.kind, f.ref)
	}
	if r.full() {
		r.limit("message size")
	}
}

// list appends an array with its length.
func (r *reader) list(v place, k kind, ref uint16) (n int) {
	if r.char(v) != '[' {
		r.bad("array")
		return 0
	}
	at := len(r.out)
	r.out = uabinary.AppendInt32(r.out, 0)
	for e := r.elements(v); e.next() && r.err == nil; n++ {
		if n >= r.maxList {
			r.limit("array length")
			return 0
		}
		if k == kindStructure && r.isNull(e.val) {
			r.zero(&field{kind: k, ref: ref})
		} else {
			r.value(e.val, k, ref)
		}
		if r.full() {
			r.limit("message size")
		}
	}
	r.putLength(at, n)
	return n
}

// putLength sets the length that was left open at an offset of out.
func (r *reader) putLength(at, n int) {
	uabinary.AppendInt32(r.out[:at:len(r.out)], int32(n))
}

// zero appends the default value of a field.
func (r *reader) zero(f *field) {
	if f.array {
		r.out = uabinary.AppendInt32(r.out, -1)
		return
	}
	switch f.kind {
	case kindString, kindByteString, kindXmlElement, 26, 27, 28, 29, 30, maxBuiltin:
		r.out = uabinary.AppendInt32(r.out, -1)
	case kindQualifiedName:
		r.out = uabinary.AppendQualifiedName(r.out, uabinary.QualifiedName{})
	case kindStructure:
		s := &structures[f.ref]
		for i := range s.fields {
			r.zero(&s.fields[i])
		}
	default:
		// Zero bytes, as many as the smallest encoding has.
		for range f.kind.min(f.ref) {
			r.out = append(r.out, 0)
		}
	}
}

// number returns the text of the number at v.
func (r *reader) number(v place) ([]byte, bool) {
	if c := r.char(v); c != '-' && (c < '0' || c > '9') {
		return nil, false
	}
	return r.raw(v), true
}

// int returns the integer at v, of that many bits.
func (r *reader) int(v place, bits uint) int64 {
	if tok, ok := r.number(v); ok {
		if neg, u, ok := integer(tok); ok {
			if i, ok := signed(neg, u, bits); ok {
				return i
			}
		}
	}
	r.bad("integer")
	return 0
}

// uint returns the unsigned integer at v, of that many bits.
func (r *reader) uint(v place, bits uint) uint64 {
	if tok, ok := r.number(v); ok {
		if neg, u, ok := integer(tok); ok && (!neg || u == 0) && (bits == 64 || u < 1<<bits) {
			return u
		}
	}
	r.bad("unsigned integer")
	return 0
}

// decimal returns the text of a 64-bit integer: that of a string, or of a number, which JavaScript likes to write.
func (r *reader) decimal(v place) []byte {
	if r.char(v) != '"' {
		tok, _ := r.number(v)
		return tok
	}
	s := r.chars(v)
	if end, ok := scanNumber(s, 0); !ok || end != len(s) || len(s) > maxNumber {
		return nil
	}
	return s
}

// value appends one value of kind k.
func (r *reader) value(v place, k kind, ref uint16) {
	if r.err != nil {
		return
	}
	c := r.char(v)
	if c == 'n' && (k.nullable() || k == kindStatusCode || k == kindStructure) {
		r.zero(&field{kind: k, ref: ref})
		return
	}
	switch k {
	case kindBoolean:
		if c != 't' && c != 'f' {
			r.bad("Boolean")
		}
		r.out = uabinary.AppendBool(r.out, c == 't')
	case kindSByte:
		r.out = append(r.out, byte(r.int(v, 8)))
	case kindByte:
		r.out = append(r.out, byte(r.uint(v, 8)))
	case kindInt16:
		r.out = uabinary.AppendInt16(r.out, int16(r.int(v, 16)))
	case kindUInt16:
		r.out = uabinary.AppendUint16(r.out, uint16(r.uint(v, 16)))
	case kindInt32:
		r.out = uabinary.AppendInt32(r.out, int32(r.int(v, 32)))
	case kindUInt32:
		r.out = uabinary.AppendUint32(r.out, uint32(r.uint(v, 32)))
	case kindInt64:
		neg, u, ok := integer(r.decimal(v))
		i, fits := signed(neg, u, 64)
		if !ok || !fits {
			r.bad("Int64")
		}
		r.out = uabinary.AppendInt64(r.out, i)
	case kindUInt64:
		neg, u, ok := integer(r.decimal(v))
		if !ok || neg && u != 0 {
			r.bad("UInt64")
		}
		r.out = uabinary.AppendUint64(r.out, u)
	case kindFloat:
		r.out = uabinary.AppendFloat(r.out, r.float(v))
	case kindDouble:
		r.out = uabinary.AppendDouble(r.out, r.double(v))
	case kindEnumeration:
		r.enumeration(v)
	case kindStatusCode:
		r.statusCode(v)
	case kindStructure:
		r.structure(v, &structures[ref])
	case kindVariant:
		r.variant(v)
	case kindDataValue:
		r.dataValue(v)
	case kindExtensionObject:
		r.extensionObject(v)
	case kindDiagnosticInfo:
		r.diagnosticInfo(v)
	case kindLocalizedText:
		r.localizedText(v)
	case kindNodeId, kindExpandedNodeId:
		r.nodeID(v, k == kindExpandedNodeId)
	case kindQualifiedName:
		r.qualifiedName(v)
	case kindString, kindXmlElement:
		r.string(v)
	case kindDateTime:
		r.dateTime(v)
	case kindGuid:
		r.appendGUID(v)
	default: // ByteString and the reserved types
		r.byteString(v)
	}
}

// double returns the Double at v.
func (r *reader) double(v place) float64 {
	if tok, ok := r.number(v); ok {
		if f, ok := double(tok); ok {
			return f
		}
	} else if f, ok := r.special(v); ok {
		return f
	}
	r.bad("Double")
	return 0
}

func (r *reader) float(v place) float32 {
	if tok, ok := r.number(v); ok {
		if f, ok := float(tok); ok {
			return f
		}
	} else if f, ok := r.special(v); ok {
		return float32(f)
	}
	r.bad("Float")
	return 0
}

// special returns a number that JSON has none for (OPC 10000-6 §5.4.2.4, Floating-point).
func (r *reader) special(v place) (float64, bool) {
	if r.char(v) == '"' {
		switch string(r.chars(v)) {
		case "NaN":
			return math.NaN(), true
		case "Infinity":
			return math.Inf(1), true
		case "-Infinity":
			return math.Inf(-1), true
		}
	}
	return 0, false
}

// enumeration appends an enumeration: a number, or the text <name>_<value> (OPC 10000-6 §5.4.4, Enumerations), of which the
// value counts.
func (r *reader) enumeration(v place) {
	if r.char(v) != '"' {
		r.out = uabinary.AppendInt32(r.out, int32(r.int(v, 32)))
		return
	}
	r.verbose = true
	s := r.chars(v)
	if i := bytes.LastIndexByte(s, '_'); i >= 0 {
		s = s[i+1:]
	}
	end, ok := scanNumber(s, 0)
	if ok && end == len(s) && end <= maxNumber {
		if neg, u, ok := integer(s); ok {
			if i, ok := signed(neg, u, 32); ok {
				r.out = uabinary.AppendInt32(r.out, int32(i))
				return
			}
		}
	}
	r.bad("enumeration")
}

// statusCode appends a StatusCode: an object with its Code, or a number in the older encoding (OPC 10000-6 §5.4.2.12, §H.4).
func (r *reader) statusCode(v place) {
	var code uint64
	if r.char(v) != '{' {
		code = r.uint(v, 32)
	} else {
		for m := r.members(v); m.next(); {
			switch string(m.name()) {
			case "Code":
				code = r.uint(m.val, 32)
			case "Symbol":
				r.verbose = true
			}
		}
	}
	r.out = uabinary.AppendUint32(r.out, uint32(code))
}

// string appends a String or XmlElement.
func (r *reader) string(v place) {
	if r.char(v) != '"' {
		r.bad("String")
		return
	}
	raw := r.in[v.p+1 : r.stringEnd(v)-1]
	at := len(r.out)
	r.out = uabinary.AppendInt32(r.out, 0)
	r.out = appendUnescaped(r.out, raw)
	r.stringLength(at)
}

// stringLength sets the length of the string that began at an offset of out.
func (r *reader) stringLength(at int) {
	n := len(r.out) - at - 4
	if n > r.maxString {
		r.limit("String length")
	}
	r.putLength(at, n)
}

// byteString appends a ByteString (OPC 10000-6 §5.4.2.8, ByteString).
func (r *reader) byteString(v place) {
	if r.char(v) != '"' {
		r.bad("ByteString")
		return
	}
	at := len(r.out)
	r.out = uabinary.AppendInt32(r.out, 0)
	r.out = r.appendBase64(r.out, r.chars(v))
	n := len(r.out) - at - 4
	if n > r.maxByteString {
		r.limit("ByteString length")
	}
	r.putLength(at, n)
}

func (r *reader) appendBase64(dst, s []byte) []byte {
	out, ok := appendBase64Decoded(dst, s)
	if !ok {
		r.bad("Base64")
		return dst
	}
	return out
}

func (r *reader) dateTime(v place) {
	var t uabinary.DateTime
	ok := r.char(v) == '"'
	if ok {
		t, ok = parseDateTime(r.chars(v))
	}
	if !ok {
		r.bad("DateTime")
	}
	r.out = uabinary.AppendDateTime(r.out, t)
}

func (r *reader) appendGUID(v place) {
	if r.char(v) != '"' || !parseGUID(&r.guid, r.chars(v)) {
		r.bad("Guid")
	}
	r.out = append(r.out, r.guid[:]...)
}

// localizedText appends a LocalizedText (OPC 10000-6 §5.4.2.15, LocalizedText).
func (r *reader) localizedText(v place) {
	if r.char(v) != '{' {
		r.bad("LocalizedText")
		return
	}
	var locale, text place
	for m := r.members(v); m.next(); {
		if r.isNull(m.val) {
			continue
		}
		switch string(m.name()) {
		case "Locale":
			locale = m.val
		case "Text":
			text = m.val
		}
	}
	at := len(r.out)
	r.out = append(r.out, 0)
	if locale.p != 0 {
		r.out[at] |= ua.LocalizedTextLocale
		r.string(locale)
	}
	if text.p != 0 {
		r.out[at] |= ua.LocalizedTextText
		r.string(text)
	}
}

// diagnosticInfo appends a DiagnosticInfo (OPC 10000-6 §5.4.2.13, DiagnosticInfo). Indexes of -1 are absent.
func (r *reader) diagnosticInfo(v place) {
	if !r.enter() {
		return
	}
	defer r.leave()
	if r.char(v) != '{' {
		r.bad("DiagnosticInfo")
		return
	}
	indexes := [4]int32{-1, -1, -1, -1} // in the order of OPC UA Binary
	var info, status, inner place
	for m := r.members(v); m.next(); {
		if r.isNull(m.val) {
			continue
		}
		switch string(m.name()) {
		case "SymbolicId":
			indexes[0] = int32(r.int(m.val, 32))
		case "NamespaceUri":
			indexes[1] = int32(r.int(m.val, 32))
		case "Locale":
			indexes[2] = int32(r.int(m.val, 32))
		case "LocalizedText":
			indexes[3] = int32(r.int(m.val, 32))
		case "AdditionalInfo":
			info = m.val
		case "InnerStatusCode":
			status = m.val
		case "InnerDiagnosticInfo":
			inner = m.val
		}
	}
	at := len(r.out)
	r.out = append(r.out, 0)
	for i, bit := range [4]byte{ua.DiagnosticInfoSymbolicID, ua.DiagnosticInfoNamespaceURI, ua.DiagnosticInfoLocale, ua.DiagnosticInfoLocalizedText} {
		if indexes[i] != -1 {
			r.out[at] |= bit
			r.out = uabinary.AppendInt32(r.out, indexes[i])
		}
	}
	if info.p != 0 {
		r.out[at] |= ua.DiagnosticInfoAdditionalInfo
		r.string(info)
	}
	if status.p != 0 {
		start := len(r.out)
		r.statusCode(status)
		if isZero(r.out[start:]) {
			r.out = r.out[:start]
		} else {
			r.out[at] |= ua.DiagnosticInfoInnerStatusCode
		}
	}
	if inner.p != 0 && r.err == nil {
		r.out[at] |= ua.DiagnosticInfoInnerDiagnosticInfo
		r.diagnosticInfo(inner)
	}
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
