package uabinary

import (
	"encoding/binary"
	"math"

	"github.com/gopcua/opcua/ua"
)

// Each of these constructors allocates once: the encoding.

// Boolean returns a Boolean.
func Boolean(v bool) Variant {
	b := make([]byte, 2)
	b[0] = byte(ua.TypeIDBoolean)
	if v {
		b[1] = 1
	}
	return Variant{b}
}

// SByte returns an SByte.
func SByte(v int8) Variant { return Variant{[]byte{byte(ua.TypeIDSByte), byte(v)}} }

// Byte returns a Byte.
func Byte(v byte) Variant { return Variant{[]byte{byte(ua.TypeIDByte), v}} }

// Int16 returns an Int16.
func Int16(v int16) Variant { return number16(ua.TypeIDInt16, uint16(v)) }

// UInt16 returns a UInt16.
func UInt16(v uint16) Variant { return number16(ua.TypeIDUint16, v) }

// Int32 returns an Int32.
func Int32(v int32) Variant { return number32(ua.TypeIDInt32, uint32(v)) }

// UInt32 returns a UInt32.
func UInt32(v uint32) Variant { return number32(ua.TypeIDUint32, v) }

// Int64 returns an Int64.
func Int64(v int64) Variant { return number64(ua.TypeIDInt64, uint64(v)) }

// UInt64 returns a UInt64.
func UInt64(v uint64) Variant { return number64(ua.TypeIDUint64, v) }

// Float returns a Float.
func Float(v float32) Variant { return number32(ua.TypeIDFloat, math.Float32bits(v)) }

// Double returns a Double.
func Double(v float64) Variant { return number64(ua.TypeIDDouble, math.Float64bits(v)) }

// DateTimeVariant returns a DateTime.
func DateTimeVariant(v DateTime) Variant { return number64(ua.TypeIDDateTime, uint64(v)) }

// StatusCodeVariant returns a StatusCode.
func StatusCodeVariant(v ua.StatusCode) Variant { return number32(ua.TypeIDStatusCode, uint32(v)) }

// String returns a String; "" is the empty String, not the null one.
func String(s string) Variant {
	b := make([]byte, 5+len(s))
	b[0] = byte(ua.TypeIDString)
	binary.LittleEndian.PutUint32(b[1:], uint32(len(s)))
	copy(b[5:], s)
	return Variant{b}
}

// StringBytes returns a String: a null one for nil.
func StringBytes(s []byte) Variant { return sizedVariant(ua.TypeIDString, s) }

// ByteString returns a ByteString: a null one for nil.
func ByteString(s []byte) Variant { return sizedVariant(ua.TypeIDByteString, s) }

// XMLElement returns an XmlElement: a null one for nil.
func XMLElement(s []byte) Variant { return sizedVariant(ua.TypeIDXMLElement, s) }

// GUIDVariant returns a Guid given as its 16 bytes on the wire.
func GUIDVariant(g [16]byte) Variant {
	b := make([]byte, 17)
	b[0] = byte(ua.TypeIDGUID)
	copy(b[1:], g[:])
	return Variant{b}
}

// NodeIDVariant returns a NodeId.
func NodeIDVariant(id NodeID) Variant {
	return Variant{AppendNodeID(typed(ua.TypeIDNodeID, 16+len(id.Bytes)), id)}
}

// ExpandedNodeIDVariant returns an ExpandedNodeId.
func ExpandedNodeIDVariant(id ExpandedNodeID) Variant {
	return Variant{AppendExpandedNodeID(typed(ua.TypeIDExpandedNodeID, 24+len(id.Bytes)+len(id.NamespaceURI)), id)}
}

// QualifiedNameVariant returns a QualifiedName.
func QualifiedNameVariant(n QualifiedName) Variant {
	return Variant{AppendQualifiedName(typed(ua.TypeIDQualifiedName, 6+len(n.Name)), n)}
}

// LocalizedTextVariant returns a LocalizedText.
func LocalizedTextVariant(t LocalizedText) Variant {
	return Variant{AppendLocalizedText(typed(ua.TypeIDLocalizedText, 9+len(t.Locale)+len(t.Text)), t)}
}

// ExtensionObjectVariant returns an ExtensionObject.
func ExtensionObjectVariant(x ExtensionObject) Variant {
	n := 32 + len(x.TypeID.Bytes) + len(x.TypeID.NamespaceURI) + len(x.Body)
	return Variant{AppendExtensionObject(typed(ua.TypeIDExtensionObject, n), x)}
}

// DataValueVariant returns a DataValue.
func DataValueVariant(v DataValue) Variant {
	return Variant{AppendDataValue(typed(ua.TypeIDDataValue, 32+len(v.Value.b)), &v)}
}

func typed(t ua.TypeID, size int) []byte {
	return append(make([]byte, 0, 1+size), byte(t))
}

func number16(t ua.TypeID, v uint16) Variant {
	return Variant{[]byte{byte(t), byte(v), byte(v >> 8)}}
}

func number32(t ua.TypeID, v uint32) Variant {
	b := make([]byte, 5)
	b[0] = byte(t)
	binary.LittleEndian.PutUint32(b[1:], v)
	return Variant{b}
}

func number64(t ua.TypeID, v uint64) Variant {
	b := make([]byte, 9)
	b[0] = byte(t)
	binary.LittleEndian.PutUint64(b[1:], v)
	return Variant{b}
}

func sizedVariant(t ua.TypeID, s []byte) Variant {
	return Variant{AppendByteString(typed(t, 4+len(s)), s)}
}
