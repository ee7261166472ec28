package uajson

import (
	"slices"

	"github.com/gopcua/opcua/ua"
)

// kind is the type of a value: a built-in type by its number (OPC 10000-6 §5.1.2, Built-in Types), or one of the two below.
type kind uint8

const (
	kindNull            = kind(ua.TypeIDNull)
	kindBoolean         = kind(ua.TypeIDBoolean)
	kindSByte           = kind(ua.TypeIDSByte)
	kindByte            = kind(ua.TypeIDByte)
	kindInt16           = kind(ua.TypeIDInt16)
	kindUInt16          = kind(ua.TypeIDUint16)
	kindInt32           = kind(ua.TypeIDInt32)
	kindUInt32          = kind(ua.TypeIDUint32)
	kindInt64           = kind(ua.TypeIDInt64)
	kindUInt64          = kind(ua.TypeIDUint64)
	kindFloat           = kind(ua.TypeIDFloat)
	kindDouble          = kind(ua.TypeIDDouble)
	kindString          = kind(ua.TypeIDString)
	kindDateTime        = kind(ua.TypeIDDateTime)
	kindGuid            = kind(ua.TypeIDGUID)
	kindByteString      = kind(ua.TypeIDByteString)
	kindXmlElement      = kind(ua.TypeIDXMLElement)
	kindNodeId          = kind(ua.TypeIDNodeID)
	kindExpandedNodeId  = kind(ua.TypeIDExpandedNodeID)
	kindStatusCode      = kind(ua.TypeIDStatusCode)
	kindQualifiedName   = kind(ua.TypeIDQualifiedName)
	kindLocalizedText   = kind(ua.TypeIDLocalizedText)
	kindExtensionObject = kind(ua.TypeIDExtensionObject)
	kindDataValue       = kind(ua.TypeIDDataValue)
	kindVariant         = kind(ua.TypeIDVariant)
	kindDiagnosticInfo  = kind(ua.TypeIDDiagnosticInfo)

	// maxBuiltin is the largest type of a Variant. 26 to 31 are reserved and hold ByteStrings (OPC 10000-6 §5.2.2.16).
	maxBuiltin kind = 31

	kindEnumeration kind = 40 // Int32 in OPC UA Binary
	kindStructure   kind = 41
)

// structure is a row of the table of structures and messages.
type structure struct {
	name                        string
	dataType, binary, xml, json uint32 // node ids in namespace 0, 0 for none
	min                         int    // smallest OPC UA Binary encoding in bytes
	message                     bool
	fields                      []field
}

type field struct {
	name  string
	kind  kind
	array bool
	ref   uint16 // index in structures or enumerations
}

type literal struct {
	value int32
	name  string
}

type typeID struct {
	id  uint32
	ref uint16
}

type symbol struct {
	code uint32
	name string
}

// lookup returns the structure that id stands for: its DataType or one of its encodings, in namespace 0. nil when there is
// none.
func lookup(id uint32) *structure {
	i, ok := slices.BinarySearchFunc(typeIDs[:], id, func(t typeID, id uint32) int { return int(t.id) - int(id) })
	if !ok {
		return nil
	}
	return &structures[typeIDs[i].ref]
}

// symbolOf returns the name of a StatusCode without its info bits; "" when it has none.
func symbolOf(code uint32) string {
	code &= 0xFFFF0000
	i, ok := slices.BinarySearchFunc(symbols[:], code, func(s symbol, code uint32) int {
		switch {
		case s.code < code:
			return -1
		case s.code > code:
			return 1
		}
		return 0
	})
	if !ok {
		return ""
	}
	return symbols[i].name
}

// literalOf returns the name of an enumeration's value; "" when it has none.
func literalOf(ref uint16, value int32) string {
	list := enumerations[ref]
	i, ok := slices.BinarySearchFunc(list, value, func(l literal, v int32) int { return int(l.value) - int(v) })
	if !ok {
		return ""
	}
	return list[i].name
}

// fixed is the encoded size of the built-in types that have one, else 0.
func (k kind) fixed() int {
	switch k {
	case kindBoolean, kindSByte, kindByte:
		return 1
	case kindInt16, kindUInt16:
		return 2
	case kindInt32, kindUInt32, kindFloat, kindStatusCode, kindEnumeration:
		return 4
	case kindInt64, kindUInt64, kindDouble, kindDateTime:
		return 8
	case kindGuid:
		return 16
	}
	return 0
}

// min is the smallest encoded size of a value.
func (k kind) min(ref uint16) int {
	switch k {
	case kindNodeId, kindExpandedNodeId:
		return 2
	case kindQualifiedName:
		return 6
	case kindLocalizedText, kindDataValue, kindVariant, kindDiagnosticInfo:
		return 1
	case kindExtensionObject:
		return 3
	case kindStructure:
		return structures[ref].min
	}
	if n := k.fixed(); n != 0 {
		return n
	}
	return 4 // String, ByteString, XmlElement and the reserved types
}

// nullable reports whether the built-in type has a null value (OPC 10000-6 §5.1.2, Built-in Types, Table 1).
func (k kind) nullable() bool {
	switch k {
	case kindBoolean, kindSByte, kindByte, kindInt16, kindUInt16, kindInt32, kindUInt32, kindInt64, kindUInt64, kindFloat,
		kindDouble, kindStatusCode, kindEnumeration, kindStructure:
		return false
	}
	return true
}
