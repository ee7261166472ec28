package addressspace

import (
	"encoding/binary"
	"math"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// appendAttribute appends the DataValue of an attribute other than Value. Such
// attributes have no source timestamp (OPC 10000-4 §7.11 DataValue).
func (rd *Read) appendAttribute(b []byte, n *Node) []byte {
	if len(rd.DataEncoding.Name) > 0 {
		return rd.appendStatus(b, ua.StatusBadDataEncodingInvalid)
	}
	var head uabinary.DataValue
	rd.stamp(&head)
	start := len(b)
	b = append(b, head.Mask|ua.DataValueValue)
	b, code := n.appendAttribute(b, ua.AttributeID(rd.Attribute), rd.Caller)
	if code != ua.StatusOK {
		return rd.appendStatus(b[:start], code)
	}
	if len(rd.IndexRange) > 0 {
		return rd.appendRange(b[:start], b[start+1:])
	}
	if head.Mask&ua.DataValueServerTimestamp != 0 {
		b = uabinary.AppendDateTime(b, head.ServerTimestamp)
	}
	return b
}

// appendRange answers an IndexRange on an attribute other than Value; encoded is
// the whole attribute and may lie where the answer goes.
func (rd *Read) appendRange(b, encoded []byte) []byte {
	var d uabinary.Decoder
	d.Reset(append([]byte(nil), encoded...), nil)
	dv := uabinary.DataValue{Mask: ua.DataValueValue, Value: d.Variant()}
	code := ua.StatusBadInternalError
	if d.Err() == nil {
		code = rd.finish(&dv)
	}
	if code != ua.StatusOK {
		return rd.appendStatus(b, code)
	}
	return uabinary.AppendDataValue(b, &dv)
}

// appendAttribute appends the Variant of an attribute other than Value
// (OPC 10000-3 §5; BadAttributeIdInvalid for what the class, or this node, does
// not have).
func (n *Node) appendAttribute(b []byte, id ua.AttributeID, c *Caller) ([]byte, ua.StatusCode) {
	const (
		objects   = uint8(ua.NodeClassObject | ua.NodeClassView)
		values    = uint8(ua.NodeClassVariable | ua.NodeClassVariableType)
		variables = uint8(ua.NodeClassVariable)
		methods   = uint8(ua.NodeClassMethod)
		relations = uint8(ua.NodeClassReferenceType)
	)
	a := n.attrs.Load()
	is := func(classes uint8) bool { return n.class&classes != 0 }
	switch id {
	case ua.AttributeIDNodeID:
		return uabinary.AppendNodeID(append(b, byte(ua.TypeIDNodeID)), n.id), ua.StatusOK
	case ua.AttributeIDNodeClass:
		return uabinary.AppendUint32(append(b, byte(ua.TypeIDInt32)), uint32(n.class)), ua.StatusOK
	case ua.AttributeIDBrowseName:
		return uabinary.AppendQualifiedName(append(b, byte(ua.TypeIDQualifiedName)), *n.browse.Load()), ua.StatusOK
	case ua.AttributeIDDisplayName:
		return uabinary.AppendLocalizedText(append(b, byte(ua.TypeIDLocalizedText)), n.DisplayName()), ua.StatusOK
	case ua.AttributeIDDescription:
		// Optional; many clients ask for it everywhere, so none is a null text.
		return appendText(b, a.description), ua.StatusOK
	case ua.AttributeIDWriteMask, ua.AttributeIDUserWriteMask:
		return uabinary.AppendUint32(append(b, byte(ua.TypeIDUint32)), a.writeMask), ua.StatusOK
	case ua.AttributeIDIsAbstract:
		if n.isType() {
			return appendBoolean(b, a.isAbstract), ua.StatusOK
		}
	case ua.AttributeIDSymmetric:
		if is(relations) {
			return appendBoolean(b, a.symmetric), ua.StatusOK
		}
	case ua.AttributeIDInverseName:
		if is(relations) && a.inverseName != nil {
			return appendText(b, a.inverseName), ua.StatusOK
		}
	case ua.AttributeIDContainsNoLoops:
		if is(uint8(ua.NodeClassView)) {
			return appendBoolean(b, a.containsNoLoop), ua.StatusOK
		}
	case ua.AttributeIDEventNotifier:
		if is(objects) {
			return append(b, byte(ua.TypeIDByte), a.eventNotifier), ua.StatusOK
		}
	case ua.AttributeIDDataType:
		if is(values) {
			return uabinary.AppendNodeID(append(b, byte(ua.TypeIDNodeID)), n.DataType().id), ua.StatusOK
		}
	case ua.AttributeIDValueRank:
		if is(values) {
			return uabinary.AppendUint32(append(b, byte(ua.TypeIDInt32)), uint32(a.valueRank)), ua.StatusOK
		}
	case ua.AttributeIDArrayDimensions:
		if is(values) && a.hasDims {
			b = append(b, byte(ua.TypeIDUint32)|variantArray)
			b = uabinary.AppendUint32(b, uint32(len(a.dims)/4))
			return append(b, a.dims...), ua.StatusOK
		}
	case ua.AttributeIDAccessLevel:
		if is(variables) {
			return append(b, byte(ua.TypeIDByte), byte(a.accessLevel)), ua.StatusOK
		}
	case ua.AttributeIDUserAccessLevel:
		if is(variables) {
			return append(b, byte(ua.TypeIDByte), byte(n.UserAccessLevel(c))), ua.StatusOK
		}
	case ua.AttributeIDMinimumSamplingInterval:
		if is(variables) && a.hasSampling {
			b = append(b, byte(ua.TypeIDDouble))
			return binary.LittleEndian.AppendUint64(b, math.Float64bits(a.minSampling)), ua.StatusOK
		}
	case ua.AttributeIDHistorizing:
		if is(variables) {
			return appendBoolean(b, a.historizing), ua.StatusOK
		}
	case ua.AttributeIDExecutable:
		if is(methods) {
			return appendBoolean(b, n.Executable()), ua.StatusOK
		}
	case ua.AttributeIDUserExecutable:
		if is(methods) {
			return appendBoolean(b, n.Executable() && n.userExecutable(c)), ua.StatusOK
		}
	case ua.AttributeIDDataTypeDefinition:
		if is(uint8(ua.NodeClassDataType)) && a.definition != nil {
			return uabinary.AppendVariant(b, *a.definition), ua.StatusOK
		}
	case ua.AttributeIDAccessLevelEx:
		if is(variables) {
			return uabinary.AppendUint32(append(b, byte(ua.TypeIDUint32)), a.accessLevel), ua.StatusOK
		}
	}
	// RolePermissions, UserRolePermissions and AccessRestrictions are optional
	// and there are no roles: they are not there.
	return b, ua.StatusBadAttributeIDInvalid
}

// variantArray is the bit of a Variant's encoding byte that says "array"
// (OPC 10000-6 §5.2.2.16 Variant).
const variantArray = 0x80

func appendText(b []byte, t *uabinary.LocalizedText) []byte {
	b = append(b, byte(ua.TypeIDLocalizedText))
	if t == nil {
		return uabinary.AppendLocalizedText(b, uabinary.LocalizedText{})
	}
	return uabinary.AppendLocalizedText(b, *t)
}

func appendBoolean(b []byte, v bool) []byte {
	x := byte(0)
	if v {
		x = 1
	}
	return append(b, byte(ua.TypeIDBoolean), x)
}
