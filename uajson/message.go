package uajson

import (
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

// message appends a whole message, type id first.
func (r *reader) message(v place) Form {
	if r.char(v) != '{' {
		r.bad("message")
		return Compact
	}
	var typeID, olderID, service, body, uaBody place
	for m := r.members(v); m.next(); {
		switch string(m.name()) {
		case "UaTypeId":
			typeID = m.val
		case "TypeId":
			olderID = m.val
		case "ServiceId":
			service = m.val
		case "Body":
			body = m.val
		case "UaBody":
			uaBody = m.val
		}
	}
	form := Compact
	switch {
	case typeID.p != 0:
		// The fields are those of the object itself. Some stacks put them into UaBody.
		if body = v; uaBody.p != 0 {
			body = uaBody
		}
	case service.p != 0:
		typeID, form = service, InEnvelope
	case olderID.p != 0:
		typeID, form = olderID, InBody
	default:
		r.bad("message without UaTypeId")
		return form
	}
	s := r.messageType(typeID)
	if s == nil {
		return form
	}
	if body.p == 0 && form != Compact {
		r.bad("message without Body")
		return form
	}
	r.out = uabinary.AppendTypeID(r.out, s.binary)
	r.structure(body, s)
	return form
}

// messageType returns the message that a NodeId, or a number, stands for.
func (r *reader) messageType(v place) *structure {
	var id uint32
	if c := r.char(v); c == '"' || c == '{' {
		x := r.parseNodeID(v, true)
		if known(&x) == nil {
			r.fail(ua.StatusBadServiceUnsupported, "message type")
		}
		id = x.Numeric
	} else {
		id = uint32(r.uint(v, 32))
	}
	if r.err != nil {
		return nil
	}
	s := lookup(id)
	if s == nil || !s.message {
		r.fail(ua.StatusBadServiceUnsupported, "message type")
		return nil
	}
	return s
}

// message appends a message whose type id comes first in OPC UA Binary.
func (w *writer) message(form Form) {
	id := w.d.TypeID()
	if w.failed() != nil {
		return
	}
	s := lookup(id)
	if s == nil || !s.message || s.binary != id {
		w.fail(ua.StatusBadServiceUnsupported, "message type")
		return
	}
	w.out = append(w.out, '{')
	switch {
	case form&InEnvelope != 0:
		w.name("ServiceId")
	case form&InBody != 0 || w.form == Reversible:
		w.name("TypeId")
	default:
		w.name("UaTypeId")
		w.typeID(s.dataType)
		w.fields(s)
		w.out = append(w.out, '}')
		return
	}
	w.typeID(s.dataType)
	w.name("Body")
	w.structure(s)
	w.out = append(w.out, '}')
}

// RequestHandle finds the RequestHandle in the RequestHeader of a message that need not be one, or JSON at all: a server
// answers what it cannot decode with a ServiceFault, and the client knows its request by the handle. It reads the text once
// at most, and allocates nothing.
func RequestHandle(json []byte) (handle uint32, ok bool) {
	// The depth, and that inside the RequestHeader of the message or of its Body, or 0.
	depth, header := 0, 0
	for p := 0; p < len(json); {
		switch json[p] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < header {
				return 0, false // there is one header, and it has no handle
			}
		case '"':
			end, ok := scanString(json, p)
			if !ok {
				return 0, false
			}
			name := json[p+1 : end-1]
			p = skipSpace(json, end)
			if p >= len(json) || json[p] != ':' {
				continue
			}
			p = skipSpace(json, p+1)
			switch {
			case header == 0 && depth <= 2 && string(name) == "RequestHeader" && p < len(json) && json[p] == '{':
				header = depth + 1
			case header != 0 && depth == header && string(name) == "RequestHandle":
				end, ok := scanNumber(json, p)
				if !ok {
					return 0, false
				}
				neg, n, ok := integer(json[p:end])
				if !ok || neg || n > 0xFFFFFFFF {
					return 0, false
				}
				return uint32(n), true
			}
			continue
		}
		p++
	}
	return 0, false
}
