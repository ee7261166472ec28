package service

import (
	"math"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

// Smallest encodings of the operands, for the check of array lengths.
const (
	minReadValueID = 2 + 4 + 4 + 6 // NodeId, attribute, null index range, empty data encoding
	minWriteValue  = 2 + 4 + 4 + 1 // NodeId, attribute, null index range, empty DataValue
)

// read is the Read service, OPC 10000-4 §5.11.2. Operands are decoded one by
// one and each result is appended at once: nothing is allocated per node.
func read(s *Set, r *Request) ua.StatusCode {
	maxAge := r.Body.Double()
	timestamps := r.Body.UInt32()
	n, code := r.operations(minReadValueID, s.limits.Load().MaxNodesPerRead)
	if code != ua.StatusOK {
		return code
	}
	if maxAge < 0 || math.IsNaN(maxAge) {
		return ua.StatusBadMaxAgeInvalid
	}
	if timestamps > uint32(ua.TimestampsToReturnNeither) {
		return ua.StatusBadTimestampsToReturnInvalid
	}
	r.Reserve(8 + n*32)
	r.putCount(n)
	rd := &r.read
	*rd = addressspace.Read{Timestamps: ua.TimestampsToReturn(timestamps), MaxAge: maxAge, Now: r.Now, Caller: r.Caller}
	special := false // rd has an IndexRange or a DataEncoding
	for range n {
		id := r.Body.NodeID()
		if attribute, ok := r.Body.PlainReadValueID(); ok {
			rd.Attribute = attribute
			if special {
				rd.IndexRange, rd.DataEncoding, special = nil, uabinary.QualifiedName{}, false
			}
		} else {
			rd.Attribute = r.Body.UInt32()
			rd.IndexRange = r.Body.StringBytes()
			rd.DataEncoding = r.Body.QualifiedName()
			special = true
			if code := r.decoded(); code != ua.StatusOK {
				return code
			}
		}
		rd.Node = s.Space.Lookup(id)
		switch {
		case rd.Node == nil:
			rd.ID = id
			r.Out = s.Space.AppendRead(r.Out, rd)
		case rd.Attribute == uint32(ua.AttributeIDValue) && rd.Node.Dynamic():
			if foreign(rd.Node) && r.Defer() {
				return ua.StatusOK
			}
			r.Out = s.readGuarded(r.Out, rd)
		default:
			r.Out = s.Space.AppendRead(r.Out, rd)
		}
		if r.Full() {
			return ua.StatusBadResponseTooLarge
		}
	}
	if code := r.decoded(); code != ua.StatusOK {
		return code
	}
	r.noDiagnostics()
	return ua.StatusOK
}

// foreign tells whether the callbacks of a node are a host's, which may block.
// Those of namespace 0 are the server's own and read memory only.
func foreign(n *addressspace.Node) bool { return n.ID().Namespace != 0 }

// readGuarded reads through a callback of the host that may panic.
func (s *Set) readGuarded(out []byte, rd *addressspace.Read) (b []byte) {
	code := ua.StatusOK
	defer func() {
		if code != ua.StatusOK {
			b = uabinary.AppendDataValue(out, &uabinary.DataValue{Mask: ua.DataValueStatusCode, Status: code})
		}
	}()
	defer s.caught("Read", &code)
	return s.Space.AppendRead(out, rd)
}

// write is the Write service, OPC 10000-4 §5.11.4. The whole body is decoded
// before the first value is set: a request that is cut short changes nothing.
func write(s *Set, r *Request) ua.StatusCode {
	n, code := r.operations(minWriteValue, s.limits.Load().MaxNodesPerWrite)
	if code != ua.StatusOK {
		return code
	}
	d := r.Body
	for range n {
		node := s.Space.Lookup(r.Body.NodeID())
		r.Body.UInt32()
		r.Body.StringBytes()
		r.Body.DataValue()
		if code := r.decoded(); code != ua.StatusOK {
			return code
		}
		if node != nil && node.WriteBlocks() && r.Defer() {
			return ua.StatusOK
		}
	}
	r.Reserve(8 + n*4)
	r.putCount(n)
	for range n {
		id := d.NodeID()
		attribute := d.UInt32()
		indexRange := d.StringBytes()
		r.value = d.DataValue()
		r.putStatus(s.writeGuarded(r, id, attribute, indexRange))
	}
	r.noDiagnostics()
	return ua.StatusOK
}

func (s *Set) writeGuarded(r *Request, id uabinary.NodeID, attribute uint32, indexRange []byte) (code ua.StatusCode) {
	defer s.caught("Write", &code)
	return s.Space.Write(id, attribute, indexRange, &r.value, r.Caller)
}
