package demo

import (
	"math"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// builtin is one built-in type with values for a scalar, an array of three and
// a matrix of two rows and three columns.
type builtin struct {
	name                  string
	dataType              uint32 // of namespace 0
	scalar, array, matrix any
}

// of makes a builtin from four values.
func of[T any](name string, dataType uint32, v [4]T) builtin {
	return builtin{name, dataType, v[0], []T{v[0], v[1], v[2]}, [][]T{{v[0], v[1], v[2]}, {v[2], v[3], v[0]}}}
}

// builtins lists the built-in types (OPC 10000-6 §5.1.2, Built-in Types), the
// corners of their ranges among the values. A Variant is no scalar: it is only
// found in arrays.
func builtins(namespace uint16) []builtin {
	leap := time.Date(2024, time.February, 29, 12, 30, 15, 123_456_700, time.UTC)
	guid := [16]byte{0x91, 0x2b, 0x96, 0x72, 0x75, 0xfa, 0xe6, 0x4a, 0x8d, 0x28, 0xb4, 0x04, 0xdc, 0x7d, 0xaf, 0x63}
	other := guid
	other[0]++
	stringID := uabinary.StringID(namespace, "Demo.Scalar.NodeId")
	guidID := uabinary.NodeID{Namespace: namespace, Type: uabinary.IDGUID, Bytes: guid[:]}
	opaqueID := uabinary.NodeID{Namespace: namespace, Type: uabinary.IDOpaque, Bytes: []byte("opaque")}
	text := func(locale, s string) uabinary.LocalizedText {
		return uabinary.LocalizedText{Locale: []byte(locale), Text: []byte(s)}
	}
	name := func(s string) uabinary.QualifiedName {
		return uabinary.QualifiedName{Namespace: namespace, Name: []byte(s)}
	}
	value := func(v uabinary.Variant, code ua.StatusCode) uabinary.DataValue {
		return uabinary.DataValue{
			Mask:  ua.DataValueValue | ua.DataValueStatusCode | ua.DataValueSourceTimestamp,
			Value: v, Status: code, SourceTimestamp: uabinary.FromTime(leap),
		}
	}
	diagnostics := func(s string) *ua.DiagnosticInfo {
		return &ua.DiagnosticInfo{EncodingMask: ua.DiagnosticInfoAdditionalInfo, AdditionalInfo: s}
	}
	byteValues := of("Byte", id.Byte, [4]byte{0, 1, math.MaxUint8, 7})
	// A []byte would be a ByteString.
	byteValues.array = ua.ByteArray{0, 1, math.MaxUint8}
	byteValues.matrix = []ua.ByteArray{{0, 1, math.MaxUint8}, {math.MaxUint8, 7, 0}}
	// A DataValue by itself would be taken for the value with its timestamps.
	dataValues := of("DataValue", id.DataValue, [4]uabinary.DataValue{
		value(uabinary.Int32(1), ua.StatusOK), value(uabinary.Double(2.5), ua.StatusUncertain),
		value(uabinary.String("three"), ua.StatusOK), value(uabinary.Boolean(true), ua.StatusBadNoCommunication),
	})
	dataValues.scalar = uabinary.DataValueVariant(value(uabinary.Int32(1), ua.StatusOK))
	variants := of("Variant", id.BaseDataType, [4]any{int32(-1), "text", 2.5, true})
	variants.scalar = nil
	return []builtin{
		of("Boolean", id.Boolean, [4]bool{true, false, true, false}),
		of("SByte", id.SByte, [4]int8{math.MinInt8, 0, math.MaxInt8, 1}),
		byteValues,
		of("Int16", id.Int16, [4]int16{math.MinInt16, 0, math.MaxInt16, 1}),
		of("UInt16", id.UInt16, [4]uint16{0, 1, math.MaxUint16, 7}),
		of("Int32", id.Int32, [4]int32{math.MinInt32, 0, math.MaxInt32, 1}),
		of("UInt32", id.UInt32, [4]uint32{0, 1, math.MaxUint32, 7}),
		of("Int64", id.Int64, [4]int64{math.MinInt64, 0, math.MaxInt64, 1}),
		of("UInt64", id.UInt64, [4]uint64{0, 1, math.MaxUint64, 7}),
		of("Float", id.Float, [4]float32{-1.5, 0, math.MaxFloat32, math.SmallestNonzeroFloat32}),
		of("Double", id.Double, [4]float64{-1.5, 0, math.MaxFloat64, math.Pi}),
		of("String", id.String, [4]string{"Breakwater", "Grüße, 水 🌊", "line one\nline two", ""}),
		of("DateTime", id.DateTime, [4]time.Time{
			leap, leap.Add(100 * time.Nanosecond), time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC),
		}),
		of("Guid", id.GUID, [4][16]byte{guid, other, {}, {15: 1}}),
		of("ByteString", id.ByteString, [4][]byte{{0, 1, 2, 0xff}, []byte("breakwater"), {0x80}, {}}),
		of("XmlElement", id.XMLElement, [4]ua.XMLElement{"<buoy id=\"1\"/>", "<a>1</a>", "<b/>", "<c>ü</c>"}),
		of("NodeId", id.NodeID, [4]uabinary.NodeID{uabinary.NumericID(0, id.Server), stringID, guidID, opaqueID}),
		of("ExpandedNodeId", id.ExpandedNodeID, [4]uabinary.ExpandedNodeID{
			{NodeID: uabinary.NumericID(0, id.Server)}, {NodeID: stringID}, {NodeID: guidID}, {NodeID: opaqueID},
		}),
		of("StatusCode", id.StatusCode, [4]ua.StatusCode{ua.StatusOK, ua.StatusBadNodeIDUnknown, ua.StatusUncertainInitialValue, ua.StatusBad}),
		of("QualifiedName", id.QualifiedName, [4]uabinary.QualifiedName{name("harbour"), name("mole"), name("quay"), name("pier")}),
		of("LocalizedText", id.LocalizedText, [4]uabinary.LocalizedText{
			text("en", "harbour"), text("de", "Hafen"), text("fr", "port"), text("", "neutral"),
		}),
		of("Structure", id.Range, [4]*ua.Range{{Low: 0, High: 10}, {Low: -1, High: 1}, {Low: 2.5, High: 3.5}, {High: 100}}),
		dataValues,
		of("DiagnosticInfo", id.DiagnosticInfo, [4]*ua.DiagnosticInfo{
			diagnostics("one"), diagnostics("two"), diagnostics("three"), diagnostics("four"),
		}),
		variants,
	}
}

// addTypes adds every built-in type as scalar, array and matrix, all writable.
func addTypes(ns *addressspace.Namespace) {
	ns.Folder("Demo.Scalar", addressspace.Description("One variable of each built-in type"))
	ns.Folder("Demo.Array", addressspace.Description("Arrays of each built-in type"))
	ns.Folder("Demo.Matrix", addressspace.Description("Two rows of three of each built-in type"))
	for _, b := range builtins(ns.Index()) {
		typ := addressspace.DataType(uabinary.NumericID(0, b.dataType))
		if b.scalar != nil {
			ns.Variable("Demo.Scalar."+b.name, b.scalar, typ, addressspace.Writable())
		}
		ns.Variable("Demo.Array."+b.name, b.array, typ, addressspace.ValueRank(1), addressspace.Writable())
		ns.Variable("Demo.Matrix."+b.name, b.matrix, typ, addressspace.ValueRank(2), addressspace.Writable())
	}
}
