package uabinary

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"strings"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// IDType is the type of a NodeId's identifier (OPC 10000-3, IdType).
type IDType byte

// The types of identifiers.
const (
	IDNumeric IDType = iota
	IDString
	IDGUID
	IDOpaque
)

// NodeID is a view of a NodeId (OPC 10000-6 §5.2.2.9, NodeId). The zero value is the null NodeId. Bytes aliases the
// message it came from; Clone makes it independent.
type NodeID struct {
	Namespace uint16
	Type      IDType
	Numeric   uint32 // of IDNumeric
	Bytes     []byte // of IDString and IDOpaque; of IDGUID the 16 bytes on the wire
}

// NumericID returns a numeric NodeID.
func NumericID(ns uint16, n uint32) NodeID { return NodeID{Namespace: ns, Numeric: n} }

// StringID returns a String NodeID.
func StringID(ns uint16, s string) NodeID {
	return NodeID{Namespace: ns, Type: IDString, Bytes: []byte(s)}
}

// NodeIDOf returns id as a view with memory of its own; the null NodeID for nil and for an id of no known type.
func NodeIDOf(id *ua.NodeID) NodeID {
	if id == nil {
		return NodeID{}
	}
	switch id.Type() {
	case ua.NodeIDTypeTwoByte, ua.NodeIDTypeFourByte, ua.NodeIDTypeNumeric:
		return NodeID{Namespace: id.Namespace(), Numeric: id.IntID()}
	case ua.NodeIDTypeString:
		return NodeID{Namespace: id.Namespace(), Type: IDString, Bytes: []byte(id.StringID())}
	case ua.NodeIDTypeByteString:
		b, err := base64.StdEncoding.DecodeString(id.StringID())
		if err != nil {
			return NodeID{}
		}
		return NodeID{Namespace: id.Namespace(), Type: IDOpaque, Bytes: b}
	case ua.NodeIDTypeGUID:
		// gopcua gives a Guid only as text; NewGUIDNodeID of something that is none has no Guid at all.
		g, ok := parseGUID(id.StringID())
		if !ok {
			return NodeID{}
		}
		return NodeID{Namespace: id.Namespace(), Type: IDGUID, Bytes: g[:]}
	}
	return NodeID{}
}

// ParseNodeID parses the text form of OPC 10000-6 §5.3.1.10 (NodeId), "ns=2;s=Pump" or "i=85". As in gopcua, text without
// "i=", "s=", "g=" or "b=" is a String identifier. The error has BadNodeIdInvalid.
func ParseNodeID(s string) (NodeID, error) {
	fail := func() (NodeID, error) {
		return NodeID{}, uastatus.New(ua.StatusBadNodeIDInvalid, "parse NodeId "+strconv.Quote(s), nil)
	}
	id := NodeID{}
	rest := s
	if v, ok := strings.CutPrefix(rest, "ns="); ok {
		num, after, ok := strings.Cut(v, ";")
		ns, err := strconv.ParseUint(num, 10, 16)
		if !ok || err != nil {
			return fail()
		}
		id.Namespace, rest = uint16(ns), after
	} else if strings.HasPrefix(rest, "nsu=") || strings.HasPrefix(rest, "svr=") {
		return fail()
	}
	if rest == "" {
		if s == "" {
			return NodeID{}, nil
		}
		return fail()
	}
	var kind string
	if len(rest) >= 2 && rest[1] == '=' {
		kind = rest[:2]
	}
	switch kind {
	case "i=":
		n, err := strconv.ParseUint(rest[2:], 10, 32)
		if err != nil {
			return fail()
		}
		id.Numeric = uint32(n)
	case "g=":
		g, ok := parseGUID(rest[2:])
		if !ok {
			return fail()
		}
		id.Type, id.Bytes = IDGUID, g[:]
	case "b=":
		b, err := base64.StdEncoding.DecodeString(rest[2:])
		if err != nil {
			return fail()
		}
		id.Type, id.Bytes = IDOpaque, b
	case "s=":
		id.Type, id.Bytes = IDString, []byte(rest[2:])
	default:
		id.Type, id.Bytes = IDString, []byte(rest)
	}
	return id, nil
}

// UA returns the id as gopcua's type with memory of its own.
func (id NodeID) UA() *ua.NodeID {
	n := new(ua.NodeID)
	id.setUA(n)
	return n
}

// setUA fills the zero *n. Decode fills the unexported fields and aliases what it is given, hence the copy.
func (id NodeID) setUA(n *ua.NodeID) {
	switch {
	case id.Type != IDNumeric:
		_, _ = n.Decode(AppendNodeID(make([]byte, 0, 7+len(id.Bytes)), id))
	case id.Namespace == 0 && id.Numeric <= math.MaxUint8:
		*n = *ua.NewTwoByteNodeID(uint8(id.Numeric))
	case id.Namespace <= math.MaxUint8 && id.Numeric <= math.MaxUint16:
		*n = *ua.NewFourByteNodeID(uint8(id.Namespace), uint16(id.Numeric))
	default:
		*n = *ua.NewNumericNodeID(id.Namespace, id.Numeric)
	}
}

// Clone returns a copy that aliases nothing.
func (id NodeID) Clone() NodeID {
	id.Bytes = bytes.Clone(id.Bytes)
	return id
}

// Equal reports whether both are the same NodeId. Null and empty identifiers are the same.
func (id NodeID) Equal(o NodeID) bool {
	return id.Namespace == o.Namespace && id.Type == o.Type && id.Numeric == o.Numeric && bytes.Equal(id.Bytes, o.Bytes)
}

// IsNull reports whether id is a null NodeId (OPC 10000-3, NodeId): namespace 0 and the null identifier of its type.
func (id NodeID) IsNull() bool {
	if id.Namespace != 0 {
		return false
	}
	if id.Type == IDGUID {
		for _, c := range id.Bytes {
			if c != 0 {
				return false
			}
		}
		return true
	}
	return id.Numeric == 0 && len(id.Bytes) == 0
}

// String returns the text form, as [ParseNodeID] takes it.
func (id NodeID) String() string { return string(id.appendText(nil)) }

func (id NodeID) appendText(b []byte) []byte {
	if id.Namespace != 0 {
		b = append(b, "ns="...)
		b = strconv.AppendUint(b, uint64(id.Namespace), 10)
		b = append(b, ';')
	}
	switch id.Type {
	case IDString:
		b = append(append(b, "s="...), id.Bytes...)
	case IDGUID:
		b = append(b, "g="...)
		b = appendGUIDText(b, id.guid())
	case IDOpaque:
		b = append(b, "b="...)
		b = base64.StdEncoding.AppendEncode(b, id.Bytes)
	default:
		b = append(b, "i="...)
		b = strconv.AppendUint(b, uint64(id.Numeric), 10)
	}
	return b
}

func (id NodeID) guid() (g [16]byte) {
	copy(g[:], id.Bytes)
	return g
}

// AppendKey appends a key that two NodeIDs share exactly if they are Equal, for use in maps:
// m[string(id.AppendKey(buf[:0]))] does not allocate.
func (id NodeID) AppendKey(b []byte) []byte {
	b = append(b, byte(id.Type), byte(id.Namespace), byte(id.Namespace>>8))
	if id.Type == IDNumeric {
		return AppendUint32(b, id.Numeric)
	}
	return append(b, id.Bytes...)
}

// parseGUID parses 32 hexadecimal digits with or without dashes into the bytes on the wire, whose first three groups are
// little-endian.
func parseGUID(s string) (g [16]byte, ok bool) {
	h, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(h) != 16 {
		return g, false
	}
	swapGUID(&g, h)
	return g, true
}

func swapGUID(g *[16]byte, h []byte) {
	binary.LittleEndian.PutUint32(g[0:], binary.BigEndian.Uint32(h[0:]))
	binary.LittleEndian.PutUint16(g[4:], binary.BigEndian.Uint16(h[4:]))
	binary.LittleEndian.PutUint16(g[6:], binary.BigEndian.Uint16(h[6:]))
	copy(g[8:], h[8:16])
}

// appendGUIDText appends the text form of OPC 10000-6 §5.1.3 (Guid).
func appendGUIDText(b []byte, g [16]byte) []byte {
	var h [16]byte
	swapGUID(&h, g[:])
	const digits = "0123456789ABCDEF"
	for i, c := range h {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			b = append(b, '-')
		}
		b = append(b, digits[c>>4], digits[c&15])
	}
	return b
}

// The encoding byte of a NodeId and an ExpandedNodeId (OPC 10000-6 §5.2.2.9 and §5.2.2.10).
const (
	nodeIDTwoByte    = 0
	nodeIDFourByte   = 1
	nodeIDNumeric    = 2
	nodeIDString     = 3
	nodeIDGUID       = 4
	nodeIDByteString = 5
	flagServerIndex  = 0x40
	flagNamespaceURI = 0x80
)

// NodeID reads a NodeId. The flags of an ExpandedNodeId are an error.
func (d *Decoder) NodeID() NodeID { return d.nodeID(d.Byte()) }

func (d *Decoder) nodeID(encoding byte) (id NodeID) {
	switch encoding {
	case nodeIDTwoByte:
		id.Numeric = uint32(d.Byte())
	case nodeIDFourByte:
		id.Namespace = uint16(d.Byte())
		id.Numeric = uint32(d.UInt16())
	case nodeIDNumeric:
		id.Namespace = d.UInt16()
		id.Numeric = d.UInt32()
	case nodeIDString:
		id.Type = IDString
		id.Namespace = d.UInt16()
		id.Bytes = d.StringBytes()
	case nodeIDGUID:
		id.Type = IDGUID
		id.Namespace = d.UInt16()
		id.Bytes = d.take(16)
	case nodeIDByteString:
		id.Type = IDOpaque
		id.Namespace = d.UInt16()
		id.Bytes = d.ByteString()
	default:
		d.bad("NodeId")
	}
	return id
}

// ExpandedNodeID is a view of an ExpandedNodeId (OPC 10000-6 §5.2.2.10, ExpandedNodeId). A nil NamespaceURI is absent, and
// so is a ServerIndex of 0.
type ExpandedNodeID struct {
	NodeID
	NamespaceURI []byte
	ServerIndex  uint32
}

// ExpandedOf returns id as a view with memory of its own; the null id for nil.
func ExpandedOf(id *ua.ExpandedNodeID) ExpandedNodeID {
	if id == nil {
		return ExpandedNodeID{}
	}
	e := ExpandedNodeID{NodeID: NodeIDOf(id.NodeID), ServerIndex: id.ServerIndex}
	if id.NamespaceURI != "" {
		e.NamespaceURI = []byte(id.NamespaceURI)
	}
	return e
}

// UA returns the id as gopcua's type with memory of its own.
func (e ExpandedNodeID) UA() *ua.ExpandedNodeID {
	n := &struct {
		e ua.ExpandedNodeID
		n ua.NodeID
	}{}
	e.setUA(&n.e, &n.n)
	return &n.e
}

func (e ExpandedNodeID) setUA(x *ua.ExpandedNodeID, n *ua.NodeID) {
	e.NodeID.setUA(n)
	x.NodeID = n
	x.NamespaceURI = string(e.NamespaceURI)
	x.ServerIndex = e.ServerIndex
	if e.NamespaceURI != nil {
		n.SetURIFlag()
	}
	if e.ServerIndex != 0 {
		n.SetIndexFlag()
	}
}

// Clone returns a copy that aliases nothing.
func (e ExpandedNodeID) Clone() ExpandedNodeID {
	e.NodeID = e.NodeID.Clone()
	e.NamespaceURI = bytes.Clone(e.NamespaceURI)
	return e
}

// Equal reports whether both are the same ExpandedNodeId, without resolving namespace URIs.
func (e ExpandedNodeID) Equal(o ExpandedNodeID) bool {
	return e.NodeID.Equal(o.NodeID) && e.ServerIndex == o.ServerIndex && bytes.Equal(e.NamespaceURI, o.NamespaceURI)
}

// IsNull reports whether e is a null NodeId in this server without namespace URI.
func (e ExpandedNodeID) IsNull() bool {
	return e.NodeID.IsNull() && len(e.NamespaceURI) == 0 && e.ServerIndex == 0
}

// String returns the text form of OPC 10000-6 §5.3.1.11 (ExpandedNodeId).
func (e ExpandedNodeID) String() string {
	var b []byte
	if e.ServerIndex != 0 {
		b = append(b, "svr="...)
		b = strconv.AppendUint(b, uint64(e.ServerIndex), 10)
		b = append(b, ';')
	}
	id := e.NodeID
	if len(e.NamespaceURI) > 0 {
		b = append(b, "nsu="...)
		b = append(b, e.NamespaceURI...)
		b = append(b, ';')
		id.Namespace = 0
	}
	return string(id.appendText(b))
}

// ExpandedNodeID reads an ExpandedNodeId.
func (d *Decoder) ExpandedNodeID() (e ExpandedNodeID) {
	encoding := d.Byte()
	e.NodeID = d.nodeID(encoding &^ (flagNamespaceURI | flagServerIndex))
	if encoding&flagNamespaceURI != 0 {
		e.NamespaceURI = d.StringBytes()
	}
	if encoding&flagServerIndex != 0 {
		e.ServerIndex = d.UInt32()
	}
	return e
}

// AppendNodeID appends a NodeId in the shortest form.
func AppendNodeID(b []byte, id NodeID) []byte { return appendNodeID(b, id, 0) }

func appendNodeID(b []byte, id NodeID, flags byte) []byte {
	switch id.Type {
	case IDString:
		b = append(b, nodeIDString|flags, byte(id.Namespace), byte(id.Namespace>>8))
		return AppendByteString(b, id.Bytes)
	case IDOpaque:
		b = append(b, nodeIDByteString|flags, byte(id.Namespace), byte(id.Namespace>>8))
		return AppendByteString(b, id.Bytes)
	case IDGUID:
		b = append(b, nodeIDGUID|flags, byte(id.Namespace), byte(id.Namespace>>8))
		g := id.guid()
		return append(b, g[:]...)
	}
	switch {
	case id.Namespace == 0 && id.Numeric <= math.MaxUint8:
		return append(b, nodeIDTwoByte|flags, byte(id.Numeric))
	case id.Namespace <= math.MaxUint8 && id.Numeric <= math.MaxUint16:
		return append(b, nodeIDFourByte|flags, byte(id.Namespace), byte(id.Numeric), byte(id.Numeric>>8))
	}
	b = append(b, nodeIDNumeric|flags, byte(id.Namespace), byte(id.Namespace>>8))
	return AppendUint32(b, id.Numeric)
}

// AppendExpandedNodeID appends an ExpandedNodeId.
func AppendExpandedNodeID(b []byte, e ExpandedNodeID) []byte {
	var flags byte
	if e.NamespaceURI != nil {
		flags |= flagNamespaceURI
	}
	if e.ServerIndex != 0 {
		flags |= flagServerIndex
	}
	b = appendNodeID(b, e.NodeID, flags)
	if e.NamespaceURI != nil {
		b = AppendByteString(b, e.NamespaceURI)
	}
	if e.ServerIndex != 0 {
		b = AppendUint32(b, e.ServerIndex)
	}
	return b
}

// AppendTypeID appends the NodeId of a message's encoding in namespace 0; the FourByte form up to 65535.
func AppendTypeID(b []byte, id uint32) []byte {
	if id <= math.MaxUint16 {
		return append(b, nodeIDFourByte, 0, byte(id), byte(id>>8))
	}
	return AppendNodeID(b, NumericID(0, id))
}
