package addressspace

import (
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// Read is one operand of the Read service, together with what the whole request
// says. The caller checks TimestampsToReturn and MaxAge (BadTimestampsToReturnInvalid,
// BadMaxAgeInvalid are results of the service).
type Read struct {
	ID   uabinary.NodeID
	Node *Node // when set, ID is not looked up

	Attribute    uint32
	IndexRange   []byte // the string of the request; empty: the whole value
	DataEncoding uabinary.QualifiedName
	Timestamps   ua.TimestampsToReturn

	// MaxAge in milliseconds. Stored values are always current and callbacks
	// are always called, so every MaxAge is met.
	MaxAge float64

	Now    uabinary.DateTime // the server timestamp; zero: the time of the call
	Caller *Caller           // nil: the server itself
}

// AppendRead appends the complete encoding of the DataValue that answers rd.
// Reading a stored value allocates nothing.
func (s *Space) AppendRead(b []byte, rd *Read) []byte {
	n := rd.Node
	if n == nil {
		if n = s.Lookup(rd.ID); n == nil {
			return rd.appendStatus(b, ua.StatusBadNodeIDUnknown)
		}
	}
	if n.deleted.Load() {
		return rd.appendStatus(b, ua.StatusBadNodeIDUnknown)
	}
	if ua.AttributeID(rd.Attribute) != ua.AttributeIDValue {
		return rd.appendAttribute(b, n)
	}
	// The usual case without a copy of the value: a stored one, whole.
	if v := n.value.Load(); v != nil && len(rd.IndexRange)|len(rd.DataEncoding.Name) == 0 && n.plain() &&
		n.class == uint8(ua.NodeClassVariable) && n.attrs.Load().accessLevel&uint32(ua.AccessLevelTypeCurrentRead) != 0 {
		return rd.appendStored(b, v)
	}
	var dv uabinary.DataValue
	if code := n.readValue(rd, &dv); code != ua.StatusOK {
		return rd.appendStatus(b, code)
	}
	return uabinary.AppendDataValue(b, &dv)
}

// plain reports whether no callback has a say in reading n.
func (n *Node) plain() bool {
	e := n.ext.Load()
	return e == nil || e.onRead.Load() == nil && e.userAccess.Load() == nil
}

// appendStored appends a stored value with the timestamps that rd asks for; see
// finish and stamp for the same in steps.
func (rd *Read) appendStored(b []byte, v *uabinary.DataValue) []byte {
	mask := v.Mask &^ serverBits
	if v.Status == ua.StatusOK {
		mask &^= ua.DataValueStatusCode
	}
	if rd.Timestamps != ua.TimestampsToReturnSource && rd.Timestamps != ua.TimestampsToReturnBoth {
		mask &^= sourceBits
	}
	server := rd.Timestamps == ua.TimestampsToReturnServer || rd.Timestamps == ua.TimestampsToReturnBoth
	if server {
		mask |= ua.DataValueServerTimestamp
	}
	b = append(b, mask)
	if mask&ua.DataValueValue != 0 {
		b = append(b, v.Value.Encoded()...)
	}
	if mask&ua.DataValueStatusCode != 0 {
		b = uabinary.AppendStatusCode(b, v.Status)
	}
	if mask&ua.DataValueSourceTimestamp != 0 {
		b = uabinary.AppendDateTime(b, v.SourceTimestamp)
	}
	if mask&ua.DataValueSourcePicoseconds != 0 {
		b = uabinary.AppendUint16(b, v.SourcePicoseconds)
	}
	if server {
		now := rd.Now
		if now == 0 {
			now = uabinary.Now()
		}
		b = uabinary.AppendDateTime(b, now)
	}
	return b
}

// ReadValue answers rd as a view that stays valid: values are immutable.
func (s *Space) ReadValue(rd *Read) uabinary.DataValue {
	n := rd.Node
	if n == nil {
		n = s.Lookup(rd.ID)
	}
	var dv uabinary.DataValue
	code := ua.StatusBadNodeIDUnknown
	switch {
	case n == nil || n.deleted.Load():
	case ua.AttributeID(rd.Attribute) == ua.AttributeIDValue:
		code = n.readValue(rd, &dv)
	default:
		b := rd.appendAttribute(nil, n)
		var d uabinary.Decoder
		d.Reset(b, nil)
		if dv = d.DataValue(); d.Err() == nil {
			return dv
		}
		code = ua.StatusBadInternalError
	}
	if code != ua.StatusOK {
		dv = uabinary.DataValue{}
		rd.bad(&dv, code)
	}
	return dv
}

// bad makes dv the answer of a read that failed: the status, and the server's
// time when it is asked for.
func (rd *Read) bad(dv *uabinary.DataValue, code ua.StatusCode) {
	dv.Mask, dv.Status = ua.DataValueStatusCode, code
	rd.stamp(dv)
}

func (rd *Read) appendStatus(b []byte, code ua.StatusCode) []byte {
	var dv uabinary.DataValue
	rd.bad(&dv, code)
	return uabinary.AppendDataValue(b, &dv)
}

const (
	sourceBits = ua.DataValueSourceTimestamp | ua.DataValueSourcePicoseconds
	serverBits = ua.DataValueServerTimestamp | ua.DataValueServerPicoseconds
)

// stamp leaves the timestamps in dv that rd asks for.
func (rd *Read) stamp(dv *uabinary.DataValue) {
	dv.Mask &^= serverBits
	switch rd.Timestamps {
	case ua.TimestampsToReturnSource:
		return
	case ua.TimestampsToReturnServer:
		dv.Mask &^= sourceBits
	case ua.TimestampsToReturnBoth:
	default:
		dv.Mask &^= sourceBits
		return
	}
	dv.Mask |= ua.DataValueServerTimestamp
	dv.ServerTimestamp, dv.ServerPicoseconds = rd.Now, 0
	if rd.Now == 0 {
		dv.ServerTimestamp = uabinary.Now()
	}
}

// readValue reads the Value attribute (OPC 10000-4 §5.10.2 Read).
func (n *Node) readValue(rd *Read, dv *uabinary.DataValue) ua.StatusCode {
	a := n.attrs.Load()
	e := n.ext.Load()
	switch n.class {
	case uint8(ua.NodeClassVariable):
		if a.accessLevel&uint32(ua.AccessLevelTypeCurrentRead) == 0 {
			return ua.StatusBadNotReadable
		}
		if e != nil && n.UserAccessLevel(rd.Caller)&ua.AccessLevelTypeCurrentRead == 0 {
			return ua.StatusBadUserAccessDenied
		}
	case uint8(ua.NodeClassVariableType):
		if n.value.Load() == nil {
			return ua.StatusBadAttributeIDInvalid
		}
	default:
		return ua.StatusBadAttributeIDInvalid
	}
	if len(rd.DataEncoding.Name) > 0 {
		if code := rd.encoding(a.builtin); code != ua.StatusOK {
			return code
		}
	}
	if e != nil {
		if cb := e.onRead.Load(); cb != nil {
			*dv = cb.call(rd.Caller)
			return rd.finish(dv)
		}
	}
	if v := n.value.Load(); v != nil {
		*dv = *v
	} else {
		dv.Mask = ua.DataValueValue // no value yet: a null Variant
	}
	return rd.finish(dv)
}

func (rd *Read) finish(dv *uabinary.DataValue) ua.StatusCode {
	if dv.Status == ua.StatusOK {
		dv.Mask &^= ua.DataValueStatusCode
	}
	if len(rd.IndexRange) > 0 && dv.Mask&ua.DataValueValue != 0 {
		r, code := uabinary.ParseNumericRange(rd.IndexRange)
		if code != ua.StatusOK {
			return code
		}
		if dv.Value, code = dv.Value.Range(r); code != ua.StatusOK {
			return code
		}
	}
	rd.stamp(dv)
	return ua.StatusOK
}

// encoding checks DataEncoding for the Value attribute (OPC 10000-4 §5.11.2,
// Read): only structures have encodings to choose from, and theirs here is
// "Default Binary". An abstract DataType (builtin Null) may hold a structure.
func (rd *Read) encoding(builtin ua.TypeID) ua.StatusCode {
	if builtin != ua.TypeIDExtensionObject && builtin != ua.TypeIDNull {
		return ua.StatusBadDataEncodingInvalid
	}
	if rd.DataEncoding.Namespace == 0 && string(rd.DataEncoding.Name) == "Default Binary" {
		return ua.StatusOK
	}
	return ua.StatusBadDataEncodingUnsupported
}
