package uajson

import (
	"encoding/base64"
	"strconv"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// writer turns OPC UA Binary into JSON. It reads with a Decoder, whose errors are sticky, and has an error of its own for
// what a Decoder does not see.
type writer struct {
	d      uabinary.Decoder
	out    []byte
	err    error
	ctx    *Context
	form   Form // without what is around it
	limits uabinary.Limits

	base, maxOut    int
	depth, maxDepth int
	index           *index // for bodies that are JSON
}

// maxGrowth is how much larger than MaxMessageSize the JSON of a message may be. Escapes make six bytes of one, and a
// Verbose field has its name on top.
const maxGrowth = 8

func (w *writer) free() {
	if w.index != nil {
		w.index.trim()
	}
	*w = writer{index: w.index}
	writers.Put(w)
}

// run writes what is in body with what, and returns dst with the result.
func (w *writer) run(c *Context, dst, body []byte, form Form, l *uabinary.Limits, what func(*writer, Form)) ([]byte, error) {
	if l != nil {
		w.limits = *l
	}
	w.maxOut = maxGrowth * orDefault(w.limits.MaxMessageSize, uabinary.DefaultMaxMessageSize)
	w.maxDepth = min(orDefault(w.limits.MaxNestingLevel, uabinary.DefaultMaxNestingLevel), maxNestingLevel)
	w.d.Reset(body, &w.limits)
	w.out, w.base, w.ctx, w.form = dst, len(dst), c, form.encoding()
	what(w, form)
	if w.full() {
		w.limit("message size")
	}
	if err := w.failed(); err != nil {
		return dst, err
	}
	return w.out, nil
}

// failed returns the first error.
func (w *writer) failed() error {
	if w.err != nil {
		return w.err
	}
	return w.d.Err()
}

func (w *writer) fail(code ua.StatusCode, what string) {
	if w.failed() == nil {
		w.err = uastatus.New(code, "decode "+what, nil)
	}
}

func (w *writer) bad(what string)   { w.fail(ua.StatusBadDecodingError, what) }
func (w *writer) limit(what string) { w.fail(ua.StatusBadEncodingLimitsExceeded, what) }

func (w *writer) full() bool { return len(w.out)-w.base > w.maxOut }

// enter takes one level of the nesting budget; leave gives it back.
func (w *writer) enter() bool {
	if w.depth >= w.maxDepth {
		w.limit("nesting level")
		return false
	}
	w.depth++
	return true
}

func (w *writer) leave() { w.depth-- }

// name appends the name of a member of the object that is open, and the comma before it.
func (w *writer) name(s string) {
	if w.out[len(w.out)-1] != '{' {
		w.out = append(w.out, ',')
	}
	w.out = append(w.out, '"')
	w.out = append(w.out, s...)
	w.out = append(w.out, '"', ':')
}

// structure appends the object of a structure, and reports whether all its fields have their default values.
func (w *writer) structure(s *structure) (isDefault bool) {
	w.out = append(w.out, '{')
	isDefault = w.fields(s)
	w.out = append(w.out, '}')
	return isDefault
}

// fields appends the members of a structure to the object that is open.
func (w *writer) fields(s *structure) (isDefault bool) {
	isDefault = true
	for i := range s.fields {
		f := &s.fields[i]
		start := len(w.out)
		w.name(f.name)
		value := len(w.out)
		var unset bool
		if f.array {
			unset = w.list(f.kind, f.ref)
		} else {
			unset = w.value(f.kind, f.ref)
		}
		isDefault = isDefault && unset
		switch {
		case !unset:
		case w.form != Verbose:
			w.out = w.out[:start]
		case f.kind == kindExtensionObject && !f.array:
			// "Serialized as an empty JSON object" (OPC 10000-6 §5.4.2.16).
			w.out = append(w.out[:value], '{', '}')
		}
		if w.full() {
			w.limit("message size")
		}
		if w.failed() != nil {
			return false
		}
	}
	return isDefault
}

// list appends an array, and reports whether it is null.
func (w *writer) list(k kind, ref uint16) (isNull bool) {
	n := w.d.ArrayLen(k.min(ref))
	if n < 0 {
		w.out = append(w.out, "null"...)
		return true
	}
	w.elements(n, k, ref)
	return false
}

// elements appends an array of n values.
func (w *writer) elements(n int, k kind, ref uint16) {
	w.out = append(w.out, '[')
	for i := range n {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.value(k, ref)
		if w.full() {
			w.limit("message size")
		}
		if w.failed() != nil {
			return
		}
	}
	w.out = append(w.out, ']')
}

func (w *writer) null() (isDefault bool) {
	w.out = append(w.out, "null"...)
	return true
}

// value appends one value of kind k and reports whether it is the default: null for a type that has a null.
func (w *writer) value(k kind, ref uint16) (isDefault bool) {
	switch k {
	case kindBoolean:
		v := w.d.Bool()
		w.out = strconv.AppendBool(w.out, v)
		return !v
	case kindSByte:
		return w.int(int64(w.d.SByte()))
	case kindByte:
		return w.int(int64(w.d.Byte()))
	case kindInt16:
		return w.int(int64(w.d.Int16()))
	case kindUInt16:
		return w.int(int64(w.d.UInt16()))
	case kindInt32:
		return w.int(int64(w.d.Int32()))
	case kindUInt32:
		return w.int(int64(w.d.UInt32()))
	case kindInt64:
		v := w.d.Int64()
		w.out = append(strconv.AppendInt(append(w.out, '"'), v, 10), '"')
		return v == 0
	case kindUInt64:
		v := w.d.UInt64()
		w.out = append(strconv.AppendUint(append(w.out, '"'), v, 10), '"')
		return v == 0
	case kindFloat:
		v := w.d.Float()
		w.out = appendFloat(w.out, float64(v), 32)
		return v == 0 && 1/v > 0 // -0 is not the default
	case kindDouble:
		v := w.d.Double()
		w.out = appendFloat(w.out, v, 64)
		return v == 0 && 1/v > 0
	case kindEnumeration:
		return w.enumeration(ref)
	case kindStatusCode:
		return w.statusCode()
	case kindStructure:
		return w.structure(&structures[ref])
	case kindVariant:
		return w.variant()
	case kindDataValue:
		return w.dataValue()
	case kindExtensionObject:
		return w.extensionObject()
	case kindDiagnosticInfo:
		return w.diagnosticInfo()
	case kindLocalizedText:
		return w.localizedText()
	case kindNodeId:
		id := uabinary.ExpandedNodeID{NodeID: w.d.NodeID()}
		return w.nodeID(&id)
	case kindExpandedNodeId:
		id := w.d.ExpandedNodeID()
		return w.nodeID(&id)
	case kindQualifiedName:
		return w.qualifiedName()
	case kindString, kindXmlElement:
		return w.string(w.d.StringBytes())
	case kindDateTime:
		t := w.d.DateTime()
		if t <= 0 {
			return w.null()
		}
		w.out = append(appendDateTime(append(w.out, '"'), t), '"')
		return false
	case kindGuid:
		g := w.d.GUID()
		if g == ([16]byte{}) {
			return w.null()
		}
		w.out = append(appendGUID(append(w.out, '"'), g[:]), '"')
		return false
	}
	return w.byteString(w.d.ByteString()) // ByteString and the reserved types
}

func (w *writer) int(v int64) (isDefault bool) {
	w.out = strconv.AppendInt(w.out, v, 10)
	return v == 0
}

func (w *writer) string(s []byte) (isNull bool) {
	if s == nil {
		return w.null()
	}
	w.out = appendQuoted(w.out, s)
	return false
}

func (w *writer) byteString(s []byte) (isNull bool) {
	if s == nil {
		return w.null()
	}
	w.out = append(base64.StdEncoding.AppendEncode(append(w.out, '"'), s), '"')
	return false
}

// enumeration appends a number, or the name and the number (OPC 10000-6 §5.4.4, Enumerations).
func (w *writer) enumeration(ref uint16) (isDefault bool) {
	v := w.d.Int32()
	if w.form != Verbose {
		return w.int(int64(v))
	}
	w.out = append(w.out, '"')
	if name := literalOf(ref, v); name != "" {
		w.out = append(w.out, name...)
		w.out = append(w.out, '_')
	}
	w.out = append(strconv.AppendInt(w.out, int64(v), 10), '"')
	return v == 0
}

// statusCode appends an object with Code, and in Verbose with Symbol (OPC 10000-6 §5.4.2.12, StatusCode); in the older
// encoding a number (§H.4).
func (w *writer) statusCode() (isDefault bool) {
	code := uint32(w.d.StatusCode())
	if w.form == Reversible {
		return w.int(int64(code))
	}
	w.out = append(w.out, '{')
	if code != 0 {
		w.name("Code")
		w.int(int64(code))
		if w.form == Verbose {
			if s := symbolOf(code); s != "" {
				w.name("Symbol")
				w.out = append(w.out, '"')
				w.out = append(w.out, s...)
				w.out = append(w.out, '"')
			}
		}
	}
	w.out = append(w.out, '}')
	return code == 0
}

func (w *writer) nodeID(id *uabinary.ExpandedNodeID) (isNull bool) {
	if id.IsNull() || w.failed() != nil {
		return w.null() // after an error a Guid has no bytes
	}
	if w.form == Reversible {
		w.appendNodeIDObject(id)
		return false
	}
	w.out = append(w.out, '"')
	w.appendNodeID(id)
	w.out = append(w.out, '"')
	return false
}

// qualifiedName appends the text of OPC 10000-6 §5.1.12, or the object of the older encoding (§H.5). A name of namespace 0
// that could be taken for an id of another has its index.
func (w *writer) qualifiedName() (isNull bool) {
	q := w.d.QualifiedName()
	if q.Namespace == 0 && q.Name == nil {
		return w.null()
	}
	if w.form == Reversible {
		w.out = append(w.out, '{')
		if q.Name != nil {
			w.name("Name")
			w.out = appendQuoted(w.out, q.Name)
		}
		if q.Namespace != 0 {
			w.name("Uri")
			w.int(int64(q.Namespace))
		}
		w.out = append(w.out, '}')
		return false
	}
	w.out = append(w.out, '"')
	switch uri := w.ctx.namespaceURI(q.Namespace); {
	case len(uri) > 0:
		w.out = append(appendURI(append(w.out, "nsu="...), uri), ';')
	case q.Namespace != 0 || ambiguous(q.Name):
		w.int(int64(q.Namespace))
		w.out = append(w.out, ':')
	}
	w.out = append(appendEscaped(w.out, q.Name), '"')
	return false
}

// ambiguous reports whether a name looks like one with a namespace.
func ambiguous(name []byte) bool {
	_, _, index := cutNumber(name, ':', 16)
	return index || len(name) > 4 && string(name[:4]) == "nsu="
}

// localizedText appends an object with Locale and Text, neither of which is encoded "if it is null or empty" (OPC 10000-6
// §5.4.2.15, LocalizedText). The older encoding knows no such rule (§H.6).
func (w *writer) localizedText() (isNull bool) {
	t := w.d.LocalizedText()
	if w.form != Reversible {
		if len(t.Locale) == 0 {
			t.Locale = nil
		}
		if len(t.Text) == 0 {
			t.Text = nil
		}
	}
	if t.Locale == nil && t.Text == nil {
		return w.null()
	}
	w.out = append(w.out, '{')
	if t.Locale != nil {
		w.name("Locale")
		w.out = appendQuoted(w.out, t.Locale)
	}
	if t.Text != nil {
		w.name("Text")
		w.out = appendQuoted(w.out, t.Text)
	}
	w.out = append(w.out, '}')
	return false
}

// diagnosticInfo appends an object with the fields that are present (OPC 10000-6 §5.4.2.13, DiagnosticInfo).
func (w *writer) diagnosticInfo() (isNull bool) {
	if !w.enter() {
		return false
	}
	defer w.leave()
	mask := w.d.Byte()
	if mask > 0x7F {
		w.bad("DiagnosticInfo mask")
	}
	if mask == 0 {
		return w.null()
	}
	w.out = append(w.out, '{')
	w.index32(mask&ua.DiagnosticInfoSymbolicID, "SymbolicId")
	w.index32(mask&ua.DiagnosticInfoNamespaceURI, "NamespaceUri")
	w.index32(mask&ua.DiagnosticInfoLocale, "Locale")
	w.index32(mask&ua.DiagnosticInfoLocalizedText, "LocalizedText")
	if mask&ua.DiagnosticInfoAdditionalInfo != 0 {
		w.optional("AdditionalInfo", kindString)
	}
	if mask&ua.DiagnosticInfoInnerStatusCode != 0 {
		w.optional("InnerStatusCode", kindStatusCode)
	}
	if mask&ua.DiagnosticInfoInnerDiagnosticInfo != 0 && w.failed() == nil {
		w.optional("InnerDiagnosticInfo", kindDiagnosticInfo)
	}
	return w.closeOrNull()
}

// closeOrNull closes the object that is open; one without members becomes null. A type whose null is "all fields have their
// default values" (OPC 10000-6 §5.1.2, Table 1) has no other.
func (w *writer) closeOrNull() (isNull bool) {
	if end := len(w.out) - 1; w.out[end] == '{' {
		w.out = w.out[:end]
		return w.null()
	}
	w.out = append(w.out, '}')
	return false
}

// index32 appends an index into the string table of the response; -1 is none.
func (w *writer) index32(present byte, name string) {
	if present == 0 {
		return
	}
	if v := w.d.Int32(); v != -1 {
		w.name(name)
		w.int(int64(v))
	}
}

// optional appends a member unless its value is the default.
func (w *writer) optional(name string, k kind) {
	start := len(w.out)
	w.name(name)
	if w.value(k, 0) {
		w.out = w.out[:start]
	}
}
