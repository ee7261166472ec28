package uabinary

import (
	"bytes"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// ExtensionObject is a view of an ExtensionObject (OPC 10000-6 §5.2.2.15, ExtensionObject). The zero value is the null
// ExtensionObject. The body is not looked into until UA is called.
type ExtensionObject struct {
	TypeID   ExpandedNodeID // NodeId of the body's encoding
	Encoding byte           // 0 no body, 1 binary, 2 XML (ua.ExtensionObjectEmpty, …Binary, …XML)
	Body     []byte         // nil is a null body, which is not the same as Encoding 0
}

// IsNull reports whether there is neither a type nor a body.
func (x ExtensionObject) IsNull() bool {
	return x.Encoding == ua.ExtensionObjectEmpty && x.TypeID.IsNull()
}

// Clone returns a copy that aliases nothing.
func (x ExtensionObject) Clone() ExtensionObject {
	x.TypeID = x.TypeID.Clone()
	x.Body = bytes.Clone(x.Body)
	return x
}

// ExtensionObject reads an ExtensionObject. Its body stays as it is and is only looked into to find that structures of `ua`
// are not nested deeper than the budget of the message allows; one that is not what its type says is let pass, as one of an
// unknown type is.
func (d *Decoder) ExtensionObject() (x ExtensionObject) {
	x.TypeID = d.ExpandedNodeID()
	x.Encoding = d.Byte()
	switch x.Encoding {
	case ua.ExtensionObjectEmpty:
	case ua.ExtensionObjectBinary:
		x.Body = d.ByteString()
		if !d.checked && len(x.Body) != 0 && x.TypeID.inNamespace0() {
			d.checkBody(x.TypeID.Numeric, len(x.Body))
		}
	case ua.ExtensionObjectXML:
		x.Body = d.ByteString()
	default:
		d.bad("ExtensionObject encoding")
	}
	return x
}

// checkBody walks over the body of n bytes that has just been read.
func (d *Decoder) checkBody(typeID uint32, n int) {
	if d.err != nil || !d.enter() {
		return
	}
	message, end := d.b, d.pos
	d.b, d.pos = message[:end], end-n
	d.skipBody(typeID)
	d.leave()
	d.b = message
	if d.err != nil && uastatus.Code(d.err) == ua.StatusBadEncodingLimitsExceeded {
		d.pos = len(d.b)
		return
	}
	d.err, d.pos = nil, end
}

// inNamespace0 reports whether e is a numeric id of namespace 0 in this server.
func (e *ExpandedNodeID) inNamespace0() bool {
	return e.Type == IDNumeric && e.Namespace == 0 && e.NamespaceURI == nil && e.ServerIndex == 0
}

// AppendExtensionObject appends an ExtensionObject.
func AppendExtensionObject(b []byte, x ExtensionObject) []byte {
	b = AppendExpandedNodeID(b, x.TypeID)
	b = append(b, x.Encoding)
	if x.Encoding != ua.ExtensionObjectEmpty {
		b = AppendByteString(b, x.Body)
	}
	return b
}

// RawBody is the Value of a ua.ExtensionObject whose body this package has no type for: the bytes as they were on the
// wire. nil Bytes are a null body. It implements gopcua's BinaryEncoder and BinaryDecoder.
type RawBody struct{ Bytes []byte }

// Encode returns the bytes.
func (r *RawBody) Encode() ([]byte, error) { return r.Bytes, nil }

// Decode takes all of b.
func (r *RawBody) Decode(b []byte) (int, error) {
	r.Bytes = bytes.Clone(b)
	return len(b), nil
}
