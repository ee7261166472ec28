package uajson

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// namespace0 is the NamespaceUri of NamespaceIndex 0.
const namespace0 = "http://opcfoundation.org/UA/"

// Context has the tables that turn NamespaceUris and ServerUris into indexes and back (OPC 10000-6 §5.1.12, QualifiedName,
// NodeId and ExpandedNodeId String Encoding). A nil Context and one with empty tables know NamespaceIndex 0 only: ids are
// written with their indexes, "ns=2;s=Pump", and ids with a NamespaceUri are those of nodes that do not exist. The tables
// must not change while they are in use.
type Context struct {
	// NamespaceURIs is the NamespaceArray of the server; index 0 is not looked at. What is in it is written as "nsu=".
	NamespaceURIs []string
	// ServerURIs is the ServerArray of the server. What is in it is written as "svu=".
	ServerURIs []string
}

func indexOf(list []string, uri []byte) (int, bool) {
	if len(uri) == 0 {
		return 0, false
	}
	i := slices.IndexFunc(list, func(s string) bool { return s == string(uri) })
	return i, i >= 0
}

// namespace returns the index of a NamespaceUri.
func (c *Context) namespace(uri []byte) (uint16, bool) {
	if string(uri) == namespace0 {
		return 0, true
	}
	if c == nil {
		return 0, false
	}
	i, ok := indexOf(c.NamespaceURIs, uri)
	return uint16(i), ok && i > 0 && i <= 0xFFFF
}

// namespaceURI returns the NamespaceUri of an index; nothing when it is not known. It must not be changed.
func (c *Context) namespaceURI(index uint16) []byte {
	if c == nil || int(index) >= len(c.NamespaceURIs) || index == 0 {
		return nil
	}
	return bytesOf(c.NamespaceURIs[index])
}

func (c *Context) server(uri []byte) (uint32, bool) {
	if c == nil {
		return 0, false
	}
	i, ok := indexOf(c.ServerURIs, uri)
	return uint32(i), ok
}

func (c *Context) serverURI(index uint32) []byte {
	if c == nil || uint64(index) >= uint64(len(c.ServerURIs)) {
		return nil
	}
	return bytesOf(c.ServerURIs[index])
}

// bytesOf returns the bytes of s, which must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// AppendBinary is [AppendBinary] with the tables of c.
func (c *Context) AppendBinary(dst, json []byte, l *uabinary.Limits) ([]byte, Form, error) {
	r := readers.Get().(*reader)
	defer r.free()
	return r.run(c, dst, json, l, (*reader).message)
}

// AppendJSON is [AppendJSON] with the tables of c.
func (c *Context) AppendJSON(dst, body []byte, form Form, l *uabinary.Limits) ([]byte, error) {
	w := writers.Get().(*writer)
	defer w.free()
	return w.run(c, dst, body, form, l, (*writer).message)
}

// AppendBinary appends the OPC UA Binary encoding, type id first, of one message in JSON (OPC 10000-6 §5.4.9, Messages): an
// object with UaTypeId and the fields of the message, or one with TypeId or ServiceId and a Body. The type id may be that of
// the DataType or of any of its encodings. White space and a byte order mark around it do not count.
//
// The Form is that of the message, as far as it shows. A nil l means the default limits; MaxMessageSize bounds both sides.
// The error, an [*uastatus.Error], has BadDecodingError, BadEncodingLimitsExceeded, or BadServiceUnsupported when the type is
// none of a message; then dst is returned as it was.
func AppendBinary(dst, json []byte, l *uabinary.Limits) (out []byte, form Form, err error) {
	return (*Context)(nil).AppendBinary(dst, json, l)
}

// AppendJSON appends the JSON encoding of a message given in OPC UA Binary, type id first. What follows the message is
// ignored, as a decoder of uabinary does.
//
// A nil l means the default limits; MaxMessageSize bounds body, and eight times as much bounds what is appended. The error,
// an [*uastatus.Error], has BadDecodingError, BadEncodingLimitsExceeded or BadServiceUnsupported; then dst is returned as it
// was.
func AppendJSON(dst, body []byte, form Form, l *uabinary.Limits) ([]byte, error) {
	return (*Context)(nil).AppendJSON(dst, body, form, l)
}

// The scratch memory of readers and writers is kept for the next one, up to a bound for each.
var (
	readers = sync.Pool{New: func() any { return newReader() }}
	writers = sync.Pool{New: func() any { return new(writer) }}
)
