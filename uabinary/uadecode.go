package uabinary

import (
	"bytes"
	"time"
	"unsafe"

	"github.com/gopcua/opcua/ua"
)

// The methods of this file fill gopcua's types, with memory of their own. Each takes the zero values it has to fill, so
// that a caller can allocate them together.

func (d *Decoder) uaTime() time.Time { return d.DateTime().Time() }

func (d *Decoder) uaBytes() []byte { return bytes.Clone(d.ByteString()) }

// uaNodeID keeps the form the id has on the wire.
func (d *Decoder) uaNodeID(n *ua.NodeID) {
	start := d.pos
	encoding := d.Byte()
	if encoding&(flagNamespaceURI|flagServerIndex) != 0 {
		d.bad("NodeId")
		return
	}
	d.decodeNodeID(n, start, encoding)
}

// decodeNodeID reads what follows the encoding byte at start, which may have the flags of an ExpandedNodeId.
func (d *Decoder) decodeNodeID(n *ua.NodeID, start int, encoding byte) {
	switch encoding {
	case nodeIDTwoByte:
		*n = *ua.NewTwoByteNodeID(d.Byte())
	case nodeIDFourByte:
		ns := d.Byte()
		*n = *ua.NewFourByteNodeID(ns, d.UInt16())
	case nodeIDNumeric:
		ns := d.UInt16()
		*n = *ua.NewNumericNodeID(ns, d.UInt32())
	default:
		d.nodeID(encoding &^ (flagNamespaceURI | flagServerIndex))
		if d.err != nil {
			return
		}
		// Decode is the only way to the flags, and aliases what it is given.
		_, _ = n.Decode(bytes.Clone(d.b[start:d.pos]))
	}
}

type expandedParts struct{ nodeID ua.NodeID }

func (d *Decoder) uaExpandedNodeID(e *ua.ExpandedNodeID, p *expandedParts) {
	e.NodeID = &p.nodeID
	start := d.pos
	encoding := d.Byte()
	d.decodeNodeID(&p.nodeID, start, encoding)
	if encoding&flagNamespaceURI != 0 {
		e.NamespaceURI = d.String()
	}
	if encoding&flagServerIndex != 0 {
		e.ServerIndex = d.UInt32()
	}
}

func (d *Decoder) uaQualifiedName(q *ua.QualifiedName) {
	q.NamespaceIndex = d.UInt16()
	q.Name = d.String()
}

func (d *Decoder) uaLocalizedText(t *ua.LocalizedText) { d.LocalizedText().setUA(t) }

type guidParts struct{ data4 [8]byte }

func (d *Decoder) uaGUID(g *ua.GUID, p *guidParts) {
	g.Data1 = d.UInt32()
	g.Data2 = d.UInt16()
	g.Data3 = d.UInt16()
	copy(p.data4[:], d.take(8))
	g.Data4 = p.data4[:]
}

type extensionObjectParts struct {
	typeID ua.ExpandedNodeID
	p      expandedParts
}

func (d *Decoder) uaExtensionObject(x *ua.ExtensionObject, p *extensionObjectParts) {
	d.uaExpandedNodeID(&p.typeID, &p.p)
	x.TypeID = &p.typeID
	x.EncodingMask = d.Byte()
	switch x.EncodingMask {
	case ua.ExtensionObjectEmpty:
	case ua.ExtensionObjectBinary:
		x.Value = d.uaBody(&p.typeID, d.ByteString())
	case ua.ExtensionObjectXML:
		if s := d.ByteString(); s != nil {
			e := ua.XMLElement(s)
			x.Value = &e
		}
	default:
		d.bad("ExtensionObject encoding")
	}
	if d.err != nil {
		x.Value = nil
	}
}

// uaBody returns the structure in a binary body that has just been read. What is not known, null, or longer than the
// structure is stays as bytes.
func (d *Decoder) uaBody(typeID *ua.ExpandedNodeID, body []byte) any {
	if d.err != nil {
		return nil
	}
	id := typeID.NodeID // with the flags of an ExpandedNodeId in its mask
	if body == nil || id.Namespace() != 0 || id.EncodingMask() > ua.NodeIDTypeNumeric || !d.enter() {
		return &RawBody{bytes.Clone(body)}
	}
	message, end := d.b, d.pos
	d.b, d.pos = message[:end], end-len(body)
	v := d.decodeBody(id.IntID())
	d.leave()
	rest := end - d.pos
	d.b = message
	switch {
	case d.err != nil && len(body) == 0:
		// Some peers send an empty body for "nothing" where the structure has fields.
		d.err = nil
	case d.err != nil:
		d.pos = len(d.b)
		return nil
	case v != nil && rest == 0:
		return v
	}
	d.pos = end
	return &RawBody{bytes.Clone(body)}
}

type dataValueParts struct{ value ua.Variant }

func (d *Decoder) uaDataValue(v *ua.DataValue, p *dataValueParts) {
	v.EncodingMask = d.Byte()
	if v.EncodingMask&^dataValueMask != 0 {
		d.bad("DataValue mask")
	}
	v.Value = &p.value
	if v.EncodingMask&ua.DataValueValue != 0 {
		d.uaVariant(&p.value)
	}
	if v.EncodingMask&ua.DataValueStatusCode != 0 {
		v.Status = d.StatusCode()
	}
	if v.EncodingMask&ua.DataValueSourceTimestamp != 0 {
		v.SourceTimestamp = d.uaTime()
	}
	if v.EncodingMask&ua.DataValueSourcePicoseconds != 0 {
		v.SourcePicoseconds = d.UInt16()
	}
	if v.EncodingMask&ua.DataValueServerTimestamp != 0 {
		v.ServerTimestamp = d.uaTime()
	}
	if v.EncodingMask&ua.DataValueServerPicoseconds != 0 {
		v.ServerPicoseconds = d.UInt16()
	}
}

func (d *Decoder) uaDiagnosticInfo(v *ua.DiagnosticInfo) {
	depth := d.depth
	for d.enter() {
		v.EncodingMask = d.Byte()
		if v.EncodingMask&^diagnosticInfoMask != 0 {
			d.bad("DiagnosticInfo mask")
			break
		}
		if v.EncodingMask&ua.DiagnosticInfoSymbolicID != 0 {
			v.SymbolicID = d.Int32()
		}
		if v.EncodingMask&ua.DiagnosticInfoNamespaceURI != 0 {
			v.NamespaceURI = d.Int32()
		}
		if v.EncodingMask&ua.DiagnosticInfoLocale != 0 {
			v.Locale = d.Int32()
		}
		if v.EncodingMask&ua.DiagnosticInfoLocalizedText != 0 {
			v.LocalizedText = d.Int32()
		}
		if v.EncodingMask&ua.DiagnosticInfoAdditionalInfo != 0 {
			v.AdditionalInfo = d.String()
		}
		if v.EncodingMask&ua.DiagnosticInfoInnerStatusCode != 0 {
			v.InnerStatusCode = d.StatusCode()
		}
		if v.EncodingMask&ua.DiagnosticInfoInnerDiagnosticInfo == 0 || d.err != nil {
			break
		}
		v.InnerDiagnosticInfo = new(ua.DiagnosticInfo)
		v = v.InnerDiagnosticInfo
	}
	d.depth = depth
}

// scalars reads an array of numbers and the like.
func scalars[T any](d *Decoder, size int, read func(*Decoder) T) []T {
	var zero T
	n := d.slabLen(size, unsafe.Sizeof(zero))
	if n < 0 {
		return nil
	}
	s := make([]T, n)
	for i := range s {
		s[i] = read(d)
	}
	if d.err != nil {
		return nil
	}
	return s
}

func (d *Decoder) uaByteStrings() [][]byte        { return scalars(d, 4, (*Decoder).uaBytes) }
func (d *Decoder) uaTimes() []time.Time           { return scalars(d, 8, (*Decoder).uaTime) }
func (d *Decoder) uaStatusCodes() []ua.StatusCode { return scalars(d, 4, (*Decoder).StatusCode) }

// leaves reads an array of pointers to structures that point to nothing themselves, in two allocations.
func leaves[T any](d *Decoder, size int, read func(*Decoder, *T)) []*T {
	var zero T
	n := d.slabLen(size, unsafe.Sizeof(zero)+8)
	if n < 0 {
		return nil
	}
	slab, s := make([]T, n), make([]*T, n)
	for i := range slab {
		read(d, &slab[i])
		if d.err != nil {
			return nil
		}
		s[i] = &slab[i]
	}
	return s
}

// slab is a structure with what it points to.
type slab[T, P any] struct {
	v T
	p P
}

// trees reads an array of pointers to structures that point to others, in two allocations besides those of strings.
func trees[T, P any](d *Decoder, size int, read func(*Decoder, *T, *P)) []*T {
	var zero slab[T, P]
	n := d.slabLen(size, unsafe.Sizeof(zero)+8)
	if n < 0 {
		return nil
	}
	items, s := make([]slab[T, P], n), make([]*T, n)
	for i := range items {
		read(d, &items[i].v, &items[i].p)
		if d.err != nil {
			return nil
		}
		s[i] = &items[i].v
	}
	return s
}

func (d *Decoder) uaNodeIDs() []*ua.NodeID { return leaves(d, minNodeID, (*Decoder).uaNodeID) }
func (d *Decoder) uaQualifiedNames() []*ua.QualifiedName {
	return leaves(d, minQualifiedName, (*Decoder).uaQualifiedName)
}
func (d *Decoder) uaLocalizedTexts() []*ua.LocalizedText {
	return leaves(d, 1, (*Decoder).uaLocalizedText)
}
func (d *Decoder) uaDiagnosticInfos() []*ua.DiagnosticInfo {
	return leaves(d, 1, (*Decoder).uaDiagnosticInfo)
}
func (d *Decoder) uaVariants() []*ua.Variant { return leaves(d, 1, (*Decoder).uaVariant) }
func (d *Decoder) uaExpandedNodeIDs() []*ua.ExpandedNodeID {
	return trees(d, minNodeID, (*Decoder).uaExpandedNodeID)
}
func (d *Decoder) uaGUIDs() []*ua.GUID { return trees(d, 16, (*Decoder).uaGUID) }
func (d *Decoder) uaExtensionObjects() []*ua.ExtensionObject {
	return trees(d, minExtensionObject, (*Decoder).uaExtensionObject)
}
func (d *Decoder) uaDataValues() []*ua.DataValue { return trees(d, 1, (*Decoder).uaDataValue) }
