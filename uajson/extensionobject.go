package uajson

import (
	"hash/maphash"
	"strconv"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// extensionParts are the members of an ExtensionObject.
type extensionParts struct{ typeID, encoding, body place }

// known returns the structure in OPC UA Binary that id stands for; nil when there is none.
func known(id *uabinary.ExpandedNodeID) *structure {
	if id.Type != uabinary.IDNumeric || id.Namespace != 0 || id.NamespaceURI != nil || id.ServerIndex != 0 {
		return nil
	}
	if s := lookup(id.Numeric); s != nil && s.binary != 0 {
		return s
	}
	return nil
}

// extensionObject appends an ExtensionObject (OPC 10000-6 §5.4.2.16, ExtensionObject): an object with UaTypeId and the fields
// of the structure, or UaEncoding and UaBody; or in the older encoding with TypeId, Encoding and Body (§H.7).
//
// The fields of a structure that is not in the tables cannot be written as OPC UA Binary. The object stays JSON: it becomes
// the body without its UaTypeId, under the id it had, which is not that of a binary encoding. extensionObject of the writer
// turns it back.
func (r *reader) extensionObject(v place) {
	if r.char(v) != '{' {
		r.bad("ExtensionObject")
		return
	}
	var p, older extensionParts
	others := 0 // members that may be fields
	for m := r.members(v); m.next(); {
		switch string(m.name()) {
		case "UaTypeId":
			p.typeID = m.val
		case "UaEncoding":
			p.encoding = m.val
		case "UaBody":
			p.body = m.val
		case "TypeId":
			older.typeID = m.val
			others++
		case "Encoding":
			older.encoding = m.val
			others++
		case "Body":
			older.body = m.val
			others++
		default:
			others++
		}
	}
	inline := p.typeID.p != 0
	if !inline && older.typeID.p != 0 {
		r.older = true
		p = older
	}
	if p.typeID.p == 0 {
		if others != 0 {
			r.bad("ExtensionObject without UaTypeId")
			return
		}
		r.zero(&field{kind: kindExtensionObject}) // {} is null
		return
	}
	id := r.parseNodeID(p.typeID, true)
	var encoding uint64
	if p.encoding.p != 0 && !r.isNull(p.encoding) {
		encoding = r.uint(p.encoding, 8)
	}
	if r.err != nil {
		return
	}
	s := known(&id)
	hasBody := p.body.p != 0 && !r.isNull(p.body)
	switch {
	case encoding == 1 || encoding == 2:
		r.encodedBody(p.body, id, s, byte(encoding), inline)
	case encoding != 0:
		r.bad("encoding of an ExtensionObject")
	case hasBody:
		r.jsonBody(p.body, id, s, false)
	case id.IsNull() && others == 0:
		r.zero(&field{kind: kindExtensionObject})
	case !inline || p.encoding.p != 0 && others == 0:
		// No body. The older encoding says so by leaving it out, ours by an encoding without anything.
		r.out = uabinary.AppendExpandedNodeID(r.out, id)
		r.out = append(r.out, ua.ExtensionObjectEmpty)
	default:
		r.jsonBody(v, id, s, true)
	}
}

// encodedBody appends an ExtensionObject whose body is OPC UA Binary or XML. OPC UA Binary is Base64; so is XML, but a String
// in the older encoding.
func (r *reader) encodedBody(body place, id uabinary.ExpandedNodeID, s *structure, encoding byte, inline bool) {
	if s != nil {
		switch {
		case encoding == ua.ExtensionObjectBinary:
			id.NodeID = uabinary.NumericID(0, s.binary)
		case encoding == ua.ExtensionObjectXML && s.xml != 0:
			id.NodeID = uabinary.NumericID(0, s.xml)
		}
	}
	r.out = uabinary.AppendExpandedNodeID(r.out, id)
	r.out = append(r.out, encoding)
	switch {
	case body.p == 0:
		r.out = uabinary.AppendInt32(r.out, -1)
	case encoding == ua.ExtensionObjectXML && !inline:
		r.value(body, kindXmlElement, 0)
	default:
		r.value(body, kindByteString, 0)
	}
}

// jsonBody appends an ExtensionObject whose body is JSON: the structure s, or when that is nil the text. inline says that the
// object at v has the UaTypeId in it.
func (r *reader) jsonBody(v place, id uabinary.ExpandedNodeID, s *structure, inline bool) {
	if r.char(v) != '{' {
		r.bad("body of an ExtensionObject")
		return
	}
	if s != nil {
		id = uabinary.ExpandedNodeID{NodeID: uabinary.NumericID(0, s.binary)}
	}
	r.out = uabinary.AppendExpandedNodeID(r.out, id)
	r.out = append(r.out, ua.ExtensionObjectBinary)
	at := len(r.out)
	r.out = uabinary.AppendInt32(r.out, 0)
	if s == nil {
		r.out = r.appendBody(append(r.out, '{'), v)
		r.out = append(r.out, '}')
	} else if r.enter() {
		r.structure(v, s)
		r.leave()
	}
	n := len(r.out) - at - 4
	if n > r.maxByteString {
		r.limit("ByteString length")
	}
	r.putLength(at, n)
}

// reserved reports whether an object has a member that means something in an ExtensionObject.
func (r *reader) reserved(v place) bool {
	for m := r.members(v); m.next(); {
		if isReserved(m.name()) {
			return true
		}
	}
	return false
}

func isReserved(name []byte) bool {
	switch string(name) {
	case "UaTypeId", "UaEncoding", "UaBody":
		return true
	}
	return false
}

// appendBody appends the members of an object, without those that belong to the ExtensionObject, to one that is open.
func (r *reader) appendBody(dst []byte, v place) []byte {
	for m := r.members(v); m.next(); {
		if isReserved(m.name()) {
			continue
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(append(dst, '"'), m.key...)
		dst = append(dst, '"', ':')
		dst = append(dst, r.raw(m.val)...)
	}
	return dst
}

// extensionObject appends an ExtensionObject, and reports whether it is null. A body whose structure is in the tables and
// that is one is written as JSON; so is a text that is a JSON object, under an id that is in none. Everything else is Base64.
func (w *writer) extensionObject() (isNull bool) {
	id := w.d.ExpandedNodeID()
	encoding := w.d.Byte()
	switch encoding {
	case ua.ExtensionObjectEmpty:
		if id.IsNull() {
			return w.null()
		}
		w.typeIDMember(&id)
		if w.form != Reversible {
			w.name("UaEncoding")
			w.int(0)
		}
	case ua.ExtensionObjectBinary:
		body := w.d.ByteString()
		if w.failed() != nil {
			return false
		}
		s := known(&id)
		if s != nil && body != nil && w.structureBody(s, body) {
			return false
		}
		if s == nil && len(body) > 1 && body[0] == '{' && w.textBody(&id, body) {
			return false
		}
		if w.failed() != nil {
			return false
		}
		w.encodedBody(&id, encoding, body)
	case ua.ExtensionObjectXML:
		w.encodedBody(&id, encoding, w.d.ByteString())
	default:
		w.bad("ExtensionObject encoding")
		return false
	}
	w.out = append(w.out, '}')
	return false
}

// typeIDMember opens the object with the type id in it: that of the DataType when it is known.
func (w *writer) typeIDMember(id *uabinary.ExpandedNodeID) {
	if s := known(id); s != nil && s.dataType != 0 {
		id = &uabinary.ExpandedNodeID{NodeID: uabinary.NumericID(0, s.dataType)}
	}
	w.out = append(w.out, '{')
	if w.form == Reversible {
		w.name("TypeId")
	} else {
		w.name("UaTypeId")
	}
	w.nodeID(id)
}

// encodedBody opens the object of a body in an encoding of its own.
func (w *writer) encodedBody(id *uabinary.ExpandedNodeID, encoding byte, body []byte) {
	w.typeIDMember(id)
	if w.form != Reversible {
		w.name("UaEncoding")
		w.int(int64(encoding))
		if body != nil {
			w.name("UaBody")
			w.byteString(body)
		}
		return
	}
	w.name("Encoding")
	w.int(int64(encoding))
	switch {
	case body == nil:
	case encoding == ua.ExtensionObjectXML:
		w.name("Body")
		w.string(body)
	default:
		w.name("Body")
		w.byteString(body)
	}
}

// structureBody appends the whole object of a structure in OPC UA Binary. When body is not exactly that structure it appends
// nothing and reports false.
func (w *writer) structureBody(s *structure, body []byte) bool {
	if !w.enter() {
		return false
	}
	start, outer := len(w.out), w.d
	w.d.Reset(body, &w.limits)
	w.typeIDMember(&uabinary.ExpandedNodeID{NodeID: uabinary.NumericID(0, s.binary)})
	if w.form == Reversible {
		w.name("Body")
		w.structure(s)
	} else {
		w.fields(s)
	}
	w.out = append(w.out, '}')
	w.leave()
	ok := w.failed() == nil && w.d.Remaining() == 0
	w.d = outer
	if ok {
		return true
	}
	w.out = w.out[:start]
	// A length in what is no such structure may be anything. The budgets of the message are another matter.
	if uastatus.Code(w.err) != ua.StatusBadEncodingLimitsExceeded {
		w.err = nil
	}
	return false
}

// textBody appends the whole object of a body that is JSON itself. When it is no JSON object, or has members that an
// ExtensionObject has, it appends nothing and reports false.
func (w *writer) textBody(id *uabinary.ExpandedNodeID, body []byte) bool {
	if w.index == nil {
		w.index = &index{seed: maphash.MakeSeed()}
	}
	if w.index.scan(body, jsonDepth(w.maxDepth)) != nil {
		return false
	}
	// A reader to walk with; it reads nothing.
	r := reader{index: *w.index, in: body}
	ok := !r.reserved(place{})
	if ok {
		w.typeIDMember(id)
		if w.form == Reversible {
			w.name("Body")
			w.out = append(r.appendBody(append(w.out, '{'), place{}), '}')
		} else {
			w.out = r.appendBody(w.out, place{})
		}
		w.out = append(w.out, '}')
	}
	*w.index = r.index
	return ok
}

// typeID appends a type id of namespace 0.
func (w *writer) typeID(id uint32) {
	if w.form == Reversible {
		w.appendNodeIDObject(&uabinary.ExpandedNodeID{NodeID: uabinary.NumericID(0, id)})
		return
	}
	w.out = append(strconv.AppendUint(append(w.out, `"i=`...), uint64(id), 10), '"')
}
