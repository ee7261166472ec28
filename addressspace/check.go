package addressspace

import (
	"encoding/binary"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// checkValue checks a value against DataType, ValueRank and ArrayDimensions of a
// variable and returns it in the form in which it is to be stored
// (OPC 10000-4 §5.10.4 Write): BadTypeMismatch otherwise.
func (n *Node) checkValue(v uabinary.Variant) (uabinary.Variant, ua.StatusCode) {
	a := n.attrs.Load()
	// The usual case first: a scalar of the very type.
	if a.builtin == v.Type() && a.builtin != ua.TypeIDExtensionObject && a.valueRank == -1 && !v.IsArray() && !v.IsNull() {
		return v, ua.StatusOK
	}
	return n.space.checkType(v, a.dataType, a.builtin, a.valueRank, a.dims)
}

// checkType is checkValue for a type given in pieces; arguments of methods use
// it too. dims holds 4 bytes for each dimension.
func (s *Space) checkType(v uabinary.Variant, t *Node, builtin ua.TypeID, rank int32, dims string) (uabinary.Variant, ua.StatusCode) {
	if v.IsNull() {
		// Null is a value of BaseDataType only.
		if t == nil || t == s.known.baseDataType {
			return v, ua.StatusOK
		}
		return v, ua.StatusBadTypeMismatch
	}
	// A ByteString may be given for an array of Byte and the other way round
	// (OPC 10000-4 §5.10.4.2): it is stored as what the DataType says.
	switch {
	case builtin == ua.TypeIDByte && v.Type() == ua.TypeIDByteString && !v.IsArray() && rank != -1:
		v = byteArray(v)
	case builtin == ua.TypeIDByteString && v.Type() == ua.TypeIDByte && v.IsArray() && len(v.Dims()) <= 1 && rank < 0:
		v = byteString(v)
	}
	switch {
	case v.Type() == ua.TypeIDExtensionObject && builtin == ua.TypeIDExtensionObject:
		if !s.structuresFit(v, t) {
			return v, ua.StatusBadTypeMismatch
		}
	case builtin != ua.TypeIDNull:
		if v.Type() != builtin {
			return v, ua.StatusBadTypeMismatch
		}
	case v.Type() == ua.TypeIDVariant:
		// An array of Variant holds anything; each element must fit.
		for _, e := range v.Elements() {
			if !s.admits(t, e.Type()) {
				return v, ua.StatusBadTypeMismatch
			}
		}
	case !s.admits(t, v.Type()):
		return v, ua.StatusBadTypeMismatch
	}
	if !rankFits(v, rank, dims) {
		return v, ua.StatusBadTypeMismatch
	}
	return v, ua.StatusOK
}

// rankFits checks ValueRank and, as maxima, ArrayDimensions (OPC 10000-3 §5.6.2).
func rankFits(v uabinary.Variant, rank int32, dims string) bool {
	if !v.IsArray() {
		return rank < 0
	}
	d := v.Dims()
	count := max(1, len(d))
	switch {
	case rank == -1:
		return false
	case rank == -3 && count > 1:
		return false
	case rank > 0 && count != int(rank):
		return false
	}
	for i := 0; i+4 <= len(dims); i += 4 {
		limit := binary.LittleEndian.Uint32([]byte(dims[i : i+4]))
		if limit == 0 {
			continue
		}
		length := uint32(0)
		switch {
		case i/4 < len(d):
			length = d[i/4]
		case i == 0:
			length = uint32(max(0, v.Len()))
		}
		if length > limit {
			return false
		}
	}
	return true
}

// structuresFit reports whether every ExtensionObject of v is of DataType t or a
// subtype. Encodings that no node of the space describes fit Structure only.
func (s *Space) structuresFit(v uabinary.Variant, t *Node) bool {
	if t == nil || t == s.known.structure {
		return true
	}
	fits := func(e uabinary.Variant) bool {
		x, ok := e.ExtensionObject()
		if !ok {
			return false
		}
		if x.TypeID.IsNull() { // a null structure: "no value" of any type
			return true
		}
		id := x.TypeID.NodeID
		if len(x.TypeID.NamespaceURI) > 0 {
			ns, ok := s.NamespaceIndex(string(x.TypeID.NamespaceURI))
			if !ok {
				return false
			}
			id.Namespace = ns
		}
		return SubtypeOf(s.dataTypeOf(id), t)
	}
	if !v.IsArray() {
		return fits(v)
	}
	for _, e := range v.Elements() {
		if !fits(e) {
			return false
		}
	}
	return true
}

func byteArray(v uabinary.Variant) uabinary.Variant {
	b, ok := v.Bytes()
	if !ok {
		return v
	}
	w, err := uabinary.NewVariant(ua.ByteArray(b))
	if err != nil {
		return v
	}
	return w
}

func byteString(v uabinary.Variant) uabinary.Variant {
	b := make([]byte, 0, v.Len())
	for _, e := range v.Elements() {
		x, _ := e.Uint64()
		b = append(b, byte(x))
	}
	w, err := uabinary.NewVariant(b)
	if err != nil {
		return v
	}
	return w
}
