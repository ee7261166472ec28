package addressspace

import (
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// Write writes one attribute for a client (OPC 10000-4 §5.10.4 Write). dv may
// alias the request: what is stored is copied. c nil is the server itself.
//
// A write is atomic: concurrent writes of different parts of one array by
// IndexRange all take effect.
func (s *Space) Write(id uabinary.NodeID, attribute uint32, indexRange []byte, dv *uabinary.DataValue, c *Caller) ua.StatusCode {
	n := s.Lookup(id)
	if n == nil || n.deleted.Load() {
		return ua.StatusBadNodeIDUnknown
	}
	if ua.AttributeID(attribute) != ua.AttributeIDValue {
		return n.writeAttribute(ua.AttributeID(attribute), indexRange, dv, c)
	}
	a := n.attrs.Load()
	if code := n.mayWrite(a, c); code != ua.StatusOK {
		return code
	}
	var r uabinary.NumericRange
	partial := len(indexRange) > 0
	if partial {
		var code ua.StatusCode
		if r, code = uabinary.ParseNumericRange(indexRange); code != ua.StatusOK {
			return code
		}
		if a.accessLevel&uint32(ua.AccessLevelExTypeWriteFullArrayOnly) != 0 {
			return ua.StatusBadWriteNotSupported
		}
	}
	in, code := incoming(a, dv)
	if code != ua.StatusOK {
		return code
	}
	if !partial {
		if code := n.fit(&in); code != ua.StatusOK {
			return code
		}
		in.Value = in.Value.Clone()
	}
	var onWrite *func(*WriteCall) error
	if e := n.ext.Load(); e != nil {
		if onWrite = e.onWrite.Load(); onWrite != nil {
			e.writing.Lock()
			defer e.writing.Unlock()
		}
	}
	if onWrite != nil {
		if c == nil {
			c = &noCaller
		}
		w := WriteCall{Caller: c, Node: n, Value: in}
		before := n.value.Load()
		if partial {
			if w.Value.Value, code = n.combine(before, r, in.Value); code != ua.StatusOK {
				return code
			}
		}
		offered := w.Value.Value
		if err := (*onWrite)(&w); err != nil {
			return badOr(err)
		}
		if !w.Value.Value.Equal(offered) {
			if code := n.fit(&w.Value); code != ua.StatusOK {
				return ua.StatusBadInternalError // the callback's own value
			}
			w.Value.Value = w.Value.Value.Clone()
			partial = false
		}
		if partial && n.value.Load() != before {
			// Set meanwhile: the part goes into what is there now.
			w.Value.Value = in.Value
		} else {
			partial = false
		}
		in = w.Value
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if partial {
		if in.Value, code = n.combine(n.value.Load(), r, in.Value); code != ua.StatusOK {
			return code
		}
	}
	n.storeLocked(&in)
	return ua.StatusOK
}

// WriteBlocks reports whether writing the value calls a callback.
func (n *Node) WriteBlocks() bool {
	e := n.ext.Load()
	return e != nil && e.onWrite.Load() != nil
}

// mayWrite checks class and access for the Value attribute.
func (n *Node) mayWrite(a *attributes, c *Caller) ua.StatusCode {
	switch {
	case n.class == uint8(ua.NodeClassVariableType):
		return ua.StatusBadNotWritable
	case !n.isVariable():
		return ua.StatusBadAttributeIDInvalid
	case a.accessLevel&uint32(ua.AccessLevelTypeCurrentWrite) == 0:
		return ua.StatusBadNotWritable
	case n.UserAccessLevel(c)&ua.AccessLevelTypeCurrentWrite == 0:
		return ua.StatusBadUserAccessDenied
	}
	return ua.StatusOK
}

// incoming turns a written DataValue into the one to be stored: the status and
// timestamps that the AccessLevel lets a client write, else BadWriteNotSupported.
// Good and the null timestamp say the same as their absence.
func incoming(a *attributes, dv *uabinary.DataValue) (uabinary.DataValue, ua.StatusCode) {
	in := uabinary.DataValue{Mask: ua.DataValueValue | ua.DataValueSourceTimestamp, Value: dv.Value}
	if dv.Mask&ua.DataValueValue == 0 {
		in.Value = uabinary.Variant{}
	}
	if dv.Mask&ua.DataValueStatusCode != 0 && dv.Status != ua.StatusOK {
		if a.accessLevel&uint32(ua.AccessLevelTypeStatusWrite) == 0 {
			return in, ua.StatusBadWriteNotSupported
		}
		in.Mask |= ua.DataValueStatusCode
		in.Status = dv.Status
	}
	stamps := a.accessLevel&uint32(ua.AccessLevelTypeTimestampWrite) != 0
	source := dv.Mask&ua.DataValueSourceTimestamp != 0 && dv.SourceTimestamp != 0
	server := dv.Mask&ua.DataValueServerTimestamp != 0 && dv.ServerTimestamp != 0
	if (source || server) && !stamps {
		return in, ua.StatusBadWriteNotSupported
	}
	if source {
		in.SourceTimestamp = dv.SourceTimestamp
		if dv.Mask&ua.DataValueSourcePicoseconds != 0 {
			in.Mask |= ua.DataValueSourcePicoseconds
			in.SourcePicoseconds = dv.SourcePicoseconds
		}
	} else {
		in.SourceTimestamp = uabinary.Now()
	}
	return in, ua.StatusOK
}

// fit checks the whole value. A bad status needs no value.
func (n *Node) fit(in *uabinary.DataValue) ua.StatusCode {
	if in.Value.IsNull() && isBad(in.Status) {
		in.Mask &^= ua.DataValueValue
		return ua.StatusOK
	}
	v, code := n.checkValue(in.Value)
	in.Value = v
	return code
}

// combine puts part into the range r of the current value and checks the result.
func (n *Node) combine(current *uabinary.DataValue, r uabinary.NumericRange, part uabinary.Variant) (uabinary.Variant, ua.StatusCode) {
	if current == nil || current.Value.IsNull() {
		return part, ua.StatusBadIndexRangeNoData
	}
	whole := current.Value
	switch {
	case whole.Type() == ua.TypeIDByte && whole.IsArray() && part.Type() == ua.TypeIDByteString && !part.IsArray():
		part = byteArray(part)
	case whole.Type() == ua.TypeIDByteString && !whole.IsArray() && part.Type() == ua.TypeIDByte && part.IsArray():
		part = byteString(part)
	}
	v, code := whole.WithRange(r, part)
	if code != ua.StatusOK {
		return v, code
	}
	return n.checkValue(v)
}

// isBad reports whether the severity of a code is Bad (OPC 10000-4 §7.39).
func isBad(code ua.StatusCode) bool { return code&0x80000000 != 0 }
