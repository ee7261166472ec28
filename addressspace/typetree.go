package addressspace

import (
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// Numeric ids of namespace 0 that the code asks for.
const (
	idNumber     = 26
	idInteger    = 27
	idUInteger   = 28
	idEnum       = 29
	idStructure  = 22
	idBaseData   = 24
	idByteString = 15

	idServerNamespaceArray = 2255
)

// builtinOf returns the built-in type that values of a DataType have on the
// wire: the first built-in type up the tree, Int32 for enumerations,
// ExtensionObject for structures (OPC 10000-6 §5.1.2, OPC 10000-3 §8). Abstract
// ones (BaseDataType, Number, Integer, UInteger) give TypeIDNull.
func (s *Space) builtinOf(t *Node) ua.TypeID {
	for i := 0; t != nil && i < maxTypeDepth; i++ {
		if t.id.Namespace == 0 && t.id.Type == uabinary.IDNumeric {
			switch id := t.id.Numeric; {
			case id == idBaseData, id == idNumber, id == idInteger, id == idUInteger:
				return ua.TypeIDNull
			case id == idEnum:
				return ua.TypeIDInt32
			case id >= 1 && id <= 25:
				return ua.TypeID(id)
			}
		}
		t = t.above.Load()
	}
	return ua.TypeIDNull
}

// admits reports whether a value of built-in type b may stand where the abstract
// DataType t is asked for.
func (s *Space) admits(t *Node, b ua.TypeID) bool {
	if t == nil || t == s.known.baseDataType {
		return true
	}
	if int(b) >= len(s.known.builtin) || s.known.builtin[b] == nil {
		return false
	}
	return SubtypeOf(s.known.builtin[b], t)
}

// dataTypeOf returns the DataType node that a DataTypeEncoding object (or the
// DataType itself) stands for, nil when it is unknown.
func (s *Space) dataTypeOf(encoding uabinary.NodeID) *Node {
	n := s.Lookup(encoding)
	if n == nil {
		return nil
	}
	if n.class == uint8(ua.NodeClassDataType) {
		return n
	}
	refs := n.References()
	for i := range refs {
		if r := &refs[i]; r.Inverse && r.Type == s.known.hasEncoding {
			return r.Target
		}
	}
	return nil
}

// DataTypeOfEncoding returns the DataType node of a DataTypeEncoding id, as it
// stands in an ExtensionObject; nil when it is unknown.
func (s *Space) DataTypeOfEncoding(encoding uabinary.NodeID) *Node { return s.dataTypeOf(encoding) }
