package nodeset

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// Info describes a DataType as far as values need it.
type Info struct {
	Builtin    ua.TypeID       // the wire type; TypeIDNull for abstract ones
	Definition *Definition     // all fields; nil when it is not known
	Binary     uabinary.NodeID // the Default Binary encoding
}

// Types answers questions about DataTypes; ids are those of the server.
type Types interface {
	DataType(id uabinary.NodeID) (Info, bool)
	// OfEncoding returns the DataType that a DataTypeEncoding belongs to.
	OfEncoding(id uabinary.NodeID) (uabinary.NodeID, bool)
}

var builtinNames = map[string]ua.TypeID{
	"Boolean": ua.TypeIDBoolean, "SByte": ua.TypeIDSByte, "Byte": ua.TypeIDByte, "Int16": ua.TypeIDInt16,
	"UInt16": ua.TypeIDUint16, "Int32": ua.TypeIDInt32, "UInt32": ua.TypeIDUint32, "Int64": ua.TypeIDInt64,
	"UInt64": ua.TypeIDUint64, "Float": ua.TypeIDFloat, "Double": ua.TypeIDDouble, "String": ua.TypeIDString,
	"DateTime": ua.TypeIDDateTime, "Guid": ua.TypeIDGUID, "ByteString": ua.TypeIDByteString,
	"XmlElement": ua.TypeIDXMLElement, "NodeId": ua.TypeIDNodeID, "ExpandedNodeId": ua.TypeIDExpandedNodeID,
	"StatusCode": ua.TypeIDStatusCode, "QualifiedName": ua.TypeIDQualifiedName,
	"LocalizedText": ua.TypeIDLocalizedText, "ExtensionObject": ua.TypeIDExtensionObject,
	"DataValue": ua.TypeIDDataValue, "Variant": ua.TypeIDVariant,
}

// Bits of a Variant's encoding byte.
const (
	arrayBit  = 0x80
	matrixBit = 0x40
)

// AppendValue appends the Variant that a Value element holds (OPC 10000-6 §5.3
// OPC UA XML). The document must have been remapped: ids come out in the server's
// indexes. Structures that types knows are turned into binary, others keep their
// XML.
func (doc *Document) AppendValue(b []byte, e *Element, types Types) ([]byte, error) {
	w := &valueWriter{doc: doc, types: types}
	return w.variant(b, e)
}

type valueWriter struct {
	doc   *Document
	types Types
	depth int
}

func (w *valueWriter) fail(e *Element, format string, args ...any) error {
	return &Error{w.doc.File, e.Line, fmt.Errorf(format, args...)}
}

func (w *valueWriter) variant(b []byte, e *Element) ([]byte, error) {
	if e == nil || e.isNil() {
		return append(b, 0), nil
	}
	if list, ok := strings.CutPrefix(e.Name, "ListOf"); ok {
		t, ok := builtinNames[list]
		if !ok {
			return b, w.fail(e, "unknown type %s", e.Name)
		}
		b = append(b, byte(t)|arrayBit)
		return w.elements(b, t, e)
	}
	if e.Name == "Matrix" {
		return w.matrix(b, e)
	}
	t, ok := builtinNames[e.Name]
	switch {
	case !ok:
		return b, w.fail(e, "unknown type %s", e.Name)
	case t == ua.TypeIDVariant: // a Variant holds no scalar Variant: it is the value itself
		return w.variant(b, inner(e))
	}
	return w.scalar(append(b, byte(t)), t, e)
}

// inner returns what the Value element of a Variant holds.
func inner(e *Element) *Element {
	if v := e.Child("Value"); v != nil && len(v.Children) > 0 {
		return v.Children[0]
	}
	return nil
}

func (w *valueWriter) elements(b []byte, t ua.TypeID, e *Element) ([]byte, error) {
	b = uabinary.AppendInt32(b, int32(len(e.Children)))
	var err error
	for _, c := range e.Children {
		if b, err = w.scalar(b, t, c); err != nil {
			return b, err
		}
	}
	return b, nil
}

func (w *valueWriter) matrix(b []byte, e *Element) ([]byte, error) {
	elements := e.Child("Elements")
	dims := e.Child("Dimensions")
	if elements == nil || dims == nil || len(elements.Children) == 0 {
		return b, w.fail(e, "Matrix without Dimensions or Elements")
	}
	t, ok := builtinNames[elements.Children[0].Name]
	if !ok {
		return b, w.fail(e, "unknown type %s", elements.Children[0].Name)
	}
	b, err := w.elements(append(b, byte(t)|arrayBit|matrixBit), t, elements)
	if err != nil {
		return b, err
	}
	b = uabinary.AppendInt32(b, int32(len(dims.Children)))
	product := uint64(1)
	for _, c := range dims.Children {
		n, err := strconv.ParseUint(strings.TrimSpace(c.Text), 10, 31)
		if err != nil {
			return b, w.fail(c, "dimension %q", c.Text)
		}
		if product *= n; product > math.MaxInt32 {
			return b, w.fail(c, "dimensions too large")
		}
		b = uabinary.AppendUint32(b, uint32(n))
	}
	if product != uint64(len(elements.Children)) {
		return b, w.fail(e, "%d elements for dimensions of %d", len(elements.Children), product)
	}
	return b, nil
}

// scalar appends one value of a built-in type; e nil or nil="true" is its default.
func (w *valueWriter) scalar(b []byte, t ua.TypeID, e *Element) ([]byte, error) {
	if e == nil || e.isNil() {
		return appendDefault(b, t), nil
	}
	s := strings.TrimSpace(e.Text)
	bad := func(err error) error {
		if u := errors.Unwrap(err); u != nil {
			err = u
		}
		return w.fail(e, "%q is no %s: %w", s, e.Name, err)
	}
	switch t {
	case ua.TypeIDBoolean:
		v, err := strconv.ParseBool(orZero(s, "false"))
		if err != nil {
			return b, bad(err)
		}
		return uabinary.AppendBool(b, v), nil
	case ua.TypeIDSByte, ua.TypeIDInt16, ua.TypeIDInt32, ua.TypeIDInt64:
		size := integerSize[t]
		v, err := strconv.ParseInt(enumNumber(orZero(s, "0")), 10, 8*size)
		if err != nil {
			return b, bad(err)
		}
		return appendInteger(b, uint64(v), size), nil
	case ua.TypeIDByte, ua.TypeIDUint16, ua.TypeIDUint32, ua.TypeIDUint64:
		size := integerSize[t]
		v, err := strconv.ParseUint(enumNumber(orZero(s, "0")), 10, 8*size)
		if err != nil {
			return b, bad(err)
		}
		return appendInteger(b, v, size), nil
	case ua.TypeIDFloat, ua.TypeIDDouble:
		bits := 64
		if t == ua.TypeIDFloat {
			bits = 32
		}
		v, err := strconv.ParseFloat(orZero(s, "0"), bits)
		if err != nil {
			return b, bad(err)
		}
		if bits == 32 {
			return uabinary.AppendFloat(b, float32(v)), nil
		}
		return uabinary.AppendDouble(b, v), nil
	case ua.TypeIDString:
		return uabinary.AppendString(b, e.Text), nil
	case ua.TypeIDDateTime:
		v, err := parseTime(s)
		if err != nil {
			return b, bad(err)
		}
		return uabinary.AppendDateTime(b, v), nil
	case ua.TypeIDGUID:
		if c := e.Child("String"); c != nil {
			s = strings.TrimSpace(c.Text)
		}
		id, err := uabinary.ParseNodeID("g=" + orZero(s, "00000000-0000-0000-0000-000000000000"))
		if err != nil || len(id.Bytes) != 16 {
			return b, w.fail(e, "%q is no Guid", s)
		}
		return append(b, id.Bytes...), nil
	case ua.TypeIDByteString:
		v, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(s), ""))
		if err != nil {
			return b, w.fail(e, "ByteString: %w", err)
		}
		return uabinary.AppendByteString(b, v), nil
	case ua.TypeIDXMLElement:
		raw := []byte(e.Text)
		if len(e.Children) > 0 {
			raw = e.Children[0].Raw
		}
		return uabinary.AppendByteString(b, raw), nil
	case ua.TypeIDNodeID, ua.TypeIDExpandedNodeID:
		id, err := w.expanded(e)
		if err != nil {
			return b, err
		}
		if t == ua.TypeIDNodeID {
			return uabinary.AppendNodeID(b, id.NodeID), nil
		}
		return uabinary.AppendExpandedNodeID(b, id), nil
	case ua.TypeIDStatusCode:
		if c := e.Child("Code"); c != nil {
			s = strings.TrimSpace(c.Text)
		}
		v, err := strconv.ParseUint(orZero(s, "0"), 10, 32)
		if err != nil {
			return b, bad(err)
		}
		return uabinary.AppendUint32(b, uint32(v)), nil
	case ua.TypeIDQualifiedName:
		var q uabinary.QualifiedName
		if c := e.Child("Name"); c != nil {
			q.Name = []byte(c.Text)
		}
		ns, err := strconv.ParseUint(orZero(e.ChildText("NamespaceIndex"), "0"), 10, 16)
		if err == nil {
			q.Namespace, err = w.doc.index(uint16(ns))
		}
		if err != nil {
			return b, w.fail(e, "NamespaceIndex: %w", err)
		}
		return uabinary.AppendQualifiedName(b, q), nil
	case ua.TypeIDLocalizedText:
		var l uabinary.LocalizedText
		if c := e.Child("Locale"); c != nil && c.Text != "" {
			l.Locale = []byte(c.Text)
		}
		if c := e.Child("Text"); c != nil {
			l.Text = []byte(c.Text)
		}
		return uabinary.AppendLocalizedText(b, l), nil
	case ua.TypeIDExtensionObject:
		return w.extensionObject(b, e)
	case ua.TypeIDDataValue:
		return w.dataValue(b, e)
	case ua.TypeIDVariant:
		return w.variant(b, inner(e))
	}
	return b, w.fail(e, "values of type %s are not supported", e.Name)
}

var integerSize = map[ua.TypeID]int{
	ua.TypeIDSByte: 1, ua.TypeIDByte: 1, ua.TypeIDInt16: 2, ua.TypeIDUint16: 2,
	ua.TypeIDInt32: 4, ua.TypeIDUint32: 4, ua.TypeIDInt64: 8, ua.TypeIDUint64: 8,
}

func appendInteger(b []byte, v uint64, size int) []byte {
	for range size {
		b = append(b, byte(v))
		v >>= 8
	}
	return b
}

// enumNumber takes the number out of Name_Number, the XML form of enumerations.
func enumNumber(s string) string {
	if i := strings.LastIndexByte(s, '_'); i >= 0 {
		return s[i+1:]
	}
	return s
}

func orZero(s, zero string) string {
	if s == "" {
		return zero
	}
	return s
}

func parseTime(s string) (uabinary.DateTime, error) {
	if s == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		for _, layout := range []string{"2006-01-02T15:04:05.999999999", "2006-01-02", "2006-01-02Z07:00"} {
			if t, err = time.Parse(layout, s); err == nil {
				break
			}
		}
	}
	if err != nil {
		return 0, errors.New("not a date and time")
	}
	return uabinary.FromTime(t), nil
}

// appendDefault appends the default of a built-in type.
func appendDefault(b []byte, t ua.TypeID) []byte {
	size := 0
	switch t {
	case ua.TypeIDBoolean, ua.TypeIDLocalizedText, ua.TypeIDDataValue, ua.TypeIDVariant, ua.TypeIDDiagnosticInfo:
		size = 1
	case ua.TypeIDFloat, ua.TypeIDStatusCode:
		size = 4
	case ua.TypeIDDouble, ua.TypeIDDateTime:
		size = 8
	case ua.TypeIDGUID:
		size = 16
	case ua.TypeIDString, ua.TypeIDByteString, ua.TypeIDXMLElement:
		return uabinary.AppendInt32(b, -1)
	case ua.TypeIDNodeID, ua.TypeIDExpandedNodeID:
		size = 2
	case ua.TypeIDQualifiedName:
		return uabinary.AppendInt32(append(b, 0, 0), -1)
	case ua.TypeIDExtensionObject:
		size = 3
	default:
		size = integerSize[t]
	}
	return append(b, make([]byte, size)...)
}

// expanded reads the Identifier of a NodeId or ExpandedNodeId.
func (w *valueWriter) expanded(e *Element) (uabinary.ExpandedNodeID, error) {
	var x uabinary.ExpandedNodeID
	s := e.ChildText("Identifier")
	if s == "" {
		return x, nil
	}
	if rest, ok := strings.CutPrefix(s, "svr="); ok {
		number, id, _ := strings.Cut(rest, ";")
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return x, w.fail(e, "ExpandedNodeId %q", s)
		}
		x.ServerIndex, s = uint32(n), id
	}
	if rest, ok := strings.CutPrefix(s, "nsu="); ok {
		uri, id, _ := strings.Cut(rest, ";")
		x.NamespaceURI, s = []byte(uri), id
	}
	id, err := uabinary.ParseNodeID(s)
	if err == nil {
		id.Namespace, err = w.doc.index(id.Namespace)
	}
	if err != nil {
		return x, w.fail(e, "NodeId %q: %w", s, err)
	}
	x.NodeID = id
	return x, nil
}

func (w *valueWriter) dataValue(b []byte, e *Element) ([]byte, error) {
	at := len(b)
	b = append(b, 0)
	var err error
	if v := e.Child("Value"); v != nil && len(v.Children) > 0 {
		b[at] |= ua.DataValueValue
		if b, err = w.variant(b, v.Children[0]); err != nil {
			return b, err
		}
	}
	for _, f := range []struct {
		name string
		bit  byte
		t    ua.TypeID
	}{
		{"StatusCode", ua.DataValueStatusCode, ua.TypeIDStatusCode},
		{"SourceTimestamp", ua.DataValueSourceTimestamp, ua.TypeIDDateTime},
		{"SourcePicoseconds", ua.DataValueSourcePicoseconds, ua.TypeIDUint16},
		{"ServerTimestamp", ua.DataValueServerTimestamp, ua.TypeIDDateTime},
		{"ServerPicoseconds", ua.DataValueServerPicoseconds, ua.TypeIDUint16},
	} {
		if c := e.Child(f.name); c != nil {
			b[at] |= f.bit
			if b, err = w.scalar(b, f.t, c); err != nil {
				return b, err
			}
		}
	}
	return b, nil
}

// extensionObject appends an ExtensionObject: a structure that is known in
// binary, a ByteString body as it is, any other body as XML.
func (w *valueWriter) extensionObject(b []byte, e *Element) ([]byte, error) {
	var x uabinary.ExtensionObject
	if c := e.Child("TypeId"); c != nil {
		var err error
		if x.TypeID, err = w.expanded(c); err != nil {
			return b, err
		}
	}
	body := e.Child("Body")
	if body == nil || len(body.Children) == 0 {
		return uabinary.AppendExtensionObject(b, x), nil
	}
	content := body.Children[0]
	if content.Name == "ByteString" {
		raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(content.Text), ""))
		if err != nil {
			return b, w.fail(content, "ByteString: %w", err)
		}
		x.Encoding, x.Body = ua.ExtensionObjectBinary, raw
		return uabinary.AppendExtensionObject(b, x), nil
	}
	if dataType, ok := w.types.OfEncoding(x.TypeID.NodeID); ok {
		info, ok := w.types.DataType(dataType)
		if ok && info.Definition != nil && !info.Binary.IsNull() {
			raw, err := w.structure(nil, info.Definition, content)
			if err != nil {
				return b, err
			}
			x.TypeID = uabinary.ExpandedNodeID{NodeID: info.Binary}
			x.Encoding, x.Body = ua.ExtensionObjectBinary, raw
			return uabinary.AppendExtensionObject(b, x), nil
		}
	}
	x.Encoding, x.Body = ua.ExtensionObjectXML, content.Raw
	return uabinary.AppendExtensionObject(b, x), nil
}

// maxStructureDepth bounds structures in structures: definitions of a file may
// contain each other, and a missing field is encoded by its definition.
const maxStructureDepth = 32

// structure appends the fields of a structure in order (OPC 10000-6 §5.2.6 to
// §5.2.8); e nil gives them their defaults.
func (w *valueWriter) structure(b []byte, d *Definition, e *Element) ([]byte, error) {
	if w.depth++; w.depth > maxStructureDepth {
		if e == nil {
			return b, errors.New("structures nested too deep")
		}
		return b, w.fail(e, "structures nested more than %d deep", maxStructureDepth)
	}
	defer func() { w.depth-- }()
	var err error
	if d.Union {
		for i := range d.Fields {
			if c := e.Child(d.Fields[i].Name); c != nil {
				b = uabinary.AppendUint32(b, uint32(i+1))
				return w.field(b, &d.Fields[i], c)
			}
		}
		return uabinary.AppendUint32(b, 0), nil
	}
	if d.Optional() {
		mask, bit := uint32(0), 0
		for i := range d.Fields {
			if d.Fields[i].Optional {
				if e.Child(d.Fields[i].Name) != nil {
					mask |= 1 << bit
				}
				bit++
			}
		}
		b = uabinary.AppendUint32(b, mask)
	}
	for i := range d.Fields {
		f := &d.Fields[i]
		c := e.Child(f.Name)
		if f.Optional && c == nil {
			continue
		}
		if b, err = w.field(b, f, c); err != nil {
			return b, err
		}
	}
	return b, nil
}

func (w *valueWriter) field(b []byte, f *Field, e *Element) ([]byte, error) {
	info, ok := w.types.DataType(f.DataType)
	if !ok {
		return b, &Error{w.doc.File, lineOf(e), fmt.Errorf("field %s: unknown DataType %s", f.Name, f.DataType)}
	}
	if f.ValueRank < 0 {
		return w.fieldValue(b, f, &info, e)
	}
	if f.ValueRank > 1 && e != nil && !e.isNil() {
		return b, w.fail(e, "field %s: matrices in structures are not supported", f.Name)
	}
	if f.ValueRank > 1 { // the dimensions, then the elements: none of either
		return uabinary.AppendInt32(b, -1), nil
	}
	if e == nil || e.isNil() {
		return uabinary.AppendInt32(b, -1), nil
	}
	b = uabinary.AppendInt32(b, int32(len(e.Children)))
	var err error
	for _, c := range e.Children {
		if b, err = w.fieldValue(b, f, &info, c); err != nil {
			return b, err
		}
	}
	return b, nil
}

func lineOf(e *Element) int {
	if e == nil {
		return 0
	}
	return e.Line
}

func (w *valueWriter) fieldValue(b []byte, f *Field, info *Info, e *Element) ([]byte, error) {
	switch info.Builtin {
	case ua.TypeIDNull: // abstract: a Variant
		return w.scalar(b, ua.TypeIDVariant, e)
	case ua.TypeIDExtensionObject:
		if info.Definition != nil && !f.SubTypes {
			return w.structure(b, info.Definition, e)
		}
	}
	return w.scalar(b, info.Builtin, e)
}
