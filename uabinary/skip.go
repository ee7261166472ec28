package uabinary

import "github.com/gopcua/opcua/ua"

// The bits of a Variant's first byte (OPC 10000-6 §5.2.2.16, Variant).
const (
	variantArray = 0x80
	variantDims  = 0x40
	variantType  = 0x3F
)

// maxBuiltinType is the largest type id a Variant may have. 26 to 31 are reserved: a decoder takes them for ByteStrings.
const maxBuiltinType = 31

// fixedSize is the encoded size of the built-in types that have one, else 0.
var fixedSize = [maxBuiltinType + 1]uint8{
	ua.TypeIDBoolean: 1, ua.TypeIDSByte: 1, ua.TypeIDByte: 1,
	ua.TypeIDInt16: 2, ua.TypeIDUint16: 2,
	ua.TypeIDInt32: 4, ua.TypeIDUint32: 4, ua.TypeIDFloat: 4, ua.TypeIDStatusCode: 4,
	ua.TypeIDInt64: 8, ua.TypeIDUint64: 8, ua.TypeIDDouble: 8, ua.TypeIDDateTime: 8,
	ua.TypeIDGUID: 16,
}

// minSize is the smallest encoded size of a value of each built-in type.
var minSize = [maxBuiltinType + 1]uint8{
	ua.TypeIDBoolean: 1, ua.TypeIDSByte: 1, ua.TypeIDByte: 1,
	ua.TypeIDInt16: 2, ua.TypeIDUint16: 2,
	ua.TypeIDInt32: 4, ua.TypeIDUint32: 4, ua.TypeIDFloat: 4, ua.TypeIDStatusCode: 4,
	ua.TypeIDInt64: 8, ua.TypeIDUint64: 8, ua.TypeIDDouble: 8, ua.TypeIDDateTime: 8,
	ua.TypeIDGUID:   16,
	ua.TypeIDString: 4, ua.TypeIDByteString: 4, ua.TypeIDXMLElement: 4,
	ua.TypeIDNodeID: minNodeID, ua.TypeIDExpandedNodeID: minNodeID,
	ua.TypeIDQualifiedName: minQualifiedName, ua.TypeIDLocalizedText: 1, ua.TypeIDExtensionObject: minExtensionObject,
	ua.TypeIDDataValue: 1, ua.TypeIDVariant: 1, ua.TypeIDDiagnosticInfo: 1,
	26: 4, 27: 4, 28: 4, 29: 4, 30: 4, 31: 4,
}

// Smallest encodings.
const (
	minNodeID          = 2
	minQualifiedName   = 6
	minExtensionObject = minNodeID + 1
)

// Variant reads a Variant and checks its whole encoding, nested values included. The bodies of ExtensionObjects are not
// looked into.
func (d *Decoder) Variant() Variant {
	start := d.pos
	d.skipVariant()
	if d.err != nil {
		return Variant{}
	}
	if d.pos == start+1 {
		return Variant{} // a null Variant is the zero value
	}
	return Variant{d.b[start:d.pos:d.pos]}
}

func (d *Decoder) skipVariant() {
	mask := d.Byte()
	t := mask & variantType
	switch {
	case mask == 0:
		return
	case t == 0 || t > maxBuiltinType:
		d.bad("Variant type")
		return
	case mask&variantArray == 0:
		if mask&variantDims != 0 {
			d.bad("Variant with dimensions that is no array")
			return
		}
		if size := int(fixedSize[t]); size != 0 {
			d.take(size)
			return
		}
		if !d.enter() {
			return
		}
		d.skipValue(t)
		d.leave()
		return
	}
	n := d.ArrayLen(int(minSize[t]))
	if n > 0 {
		if size := int(fixedSize[t]); size != 0 {
			d.take(n * size)
		} else {
			if !d.enter() {
				return
			}
			for i := 0; i < n && d.err == nil; i++ {
				d.skipValue(t)
			}
			d.leave()
		}
	}
	if mask&variantDims != 0 {
		d.dims(n)
	}
}

// dims reads the dimensions of an array of n elements (-1: null) and returns their number and position. Every dimension
// must be greater than 0 and their product must be n (OPC 10000-6 §5.2.2.16). No dimensions at all are let pass.
func (d *Decoder) dims(n int) (count, pos int) {
	count = d.ArrayLen(4)
	pos = d.pos
	if count <= 0 {
		return 0, pos
	}
	if count > maxRank {
		d.limit("Variant dimensions")
		return 0, pos
	}
	product := int64(1)
	for range count {
		v := int64(d.Int32())
		if v <= 0 || v > int64(n) {
			d.bad("Variant dimension")
			return 0, pos
		}
		// Both factors are below 2^31, so the product fits before it is compared.
		product *= v
		if product > int64(n) {
			break
		}
	}
	if product != int64(n) {
		d.bad("Variant dimensions do not match the array length")
		return 0, pos
	}
	return count, pos
}

// skipValue skips one value of built-in type t.
func (d *Decoder) skipValue(t byte) {
	switch ua.TypeID(t) {
	case ua.TypeIDString, ua.TypeIDXMLElement:
		d.StringBytes()
	case ua.TypeIDNodeID:
		d.NodeID()
	case ua.TypeIDExpandedNodeID:
		d.ExpandedNodeID()
	case ua.TypeIDQualifiedName:
		d.UInt16()
		d.StringBytes()
	case ua.TypeIDLocalizedText:
		d.LocalizedText()
	case ua.TypeIDExtensionObject:
		d.ExtensionObject()
	case ua.TypeIDDataValue:
		if d.enter() {
			d.DataValue()
			d.leave()
		}
	case ua.TypeIDVariant:
		d.skipVariant()
	case ua.TypeIDDiagnosticInfo:
		d.SkipDiagnosticInfo()
	default:
		if size := int(fixedSize[t]); size != 0 {
			d.take(size)
		} else {
			d.ByteString() // ByteString and the reserved types
		}
	}
}

const diagnosticInfoMask = ua.DiagnosticInfoSymbolicID | ua.DiagnosticInfoNamespaceURI | ua.DiagnosticInfoLocalizedText |
	ua.DiagnosticInfoLocale | ua.DiagnosticInfoAdditionalInfo | ua.DiagnosticInfoInnerStatusCode |
	ua.DiagnosticInfoInnerDiagnosticInfo

// SkipDiagnosticInfo skips a DiagnosticInfo (OPC 10000-6 §5.2.2.12, DiagnosticInfo) with those inside it, iteratively.
func (d *Decoder) SkipDiagnosticInfo() {
	depth := d.depth
	for d.enter() {
		mask := d.Byte()
		if mask&^diagnosticInfoMask != 0 {
			d.bad("DiagnosticInfo mask")
			break
		}
		if mask&ua.DiagnosticInfoSymbolicID != 0 {
			d.UInt32()
		}
		if mask&ua.DiagnosticInfoNamespaceURI != 0 {
			d.UInt32()
		}
		if mask&ua.DiagnosticInfoLocale != 0 {
			d.UInt32()
		}
		if mask&ua.DiagnosticInfoLocalizedText != 0 {
			d.UInt32()
		}
		if mask&ua.DiagnosticInfoAdditionalInfo != 0 {
			d.StringBytes()
		}
		if mask&ua.DiagnosticInfoInnerStatusCode != 0 {
			d.UInt32()
		}
		if mask&ua.DiagnosticInfoInnerDiagnosticInfo == 0 {
			break
		}
	}
	d.depth = depth
}

// strings reads an array of String into strings of its own.
func (d *Decoder) strings() []string {
	n := d.slabLen(4, 16)
	if n < 0 {
		return nil
	}
	s := make([]string, n)
	for i := range s {
		s[i] = d.String()
	}
	if d.err != nil {
		return nil
	}
	return s
}
