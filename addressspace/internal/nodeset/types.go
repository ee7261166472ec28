package nodeset

import (
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// Ids of namespace 0 that files refer to.
const (
	hasSubtype  = 45
	hasEncoding = 38
)

// TypeTable is a [Types] made of the DataTypes in documents, with another one
// behind it for what they do not define.
type TypeTable struct {
	behind    Types // nil: none
	types     map[string]*typeNode
	encodings map[string]uabinary.NodeID // encoding → DataType
}

type typeNode struct {
	super  uabinary.NodeID
	own    *Definition
	binary uabinary.NodeID
	info   *Info
}

// NewTypeTable returns an empty table in front of another one, which may be nil.
func NewTypeTable(behind Types) *TypeTable {
	return &TypeTable{behind: behind, types: make(map[string]*typeNode), encodings: make(map[string]uabinary.NodeID)}
}

func key(id uabinary.NodeID) string { return string(id.AppendKey(nil)) }

// Add takes the DataTypes and encodings of a remapped document.
func (t *TypeTable) Add(doc *Document) {
	names := make(map[string]string) // encoding objects by id
	for _, n := range doc.Nodes {
		switch n.Class {
		case ua.NodeClassDataType:
			t.types[key(n.ID)] = &typeNode{own: n.Definition}
		case ua.NodeClassObject:
			if n.BrowseName.Namespace == 0 {
				names[key(n.ID)] = string(n.BrowseName.Name)
			}
		}
	}
	link := func(source, typ, target uabinary.NodeID) {
		if typ.Namespace != 0 || typ.Type != uabinary.IDNumeric {
			return
		}
		switch typ.Numeric {
		case hasSubtype:
			if n := t.types[key(target)]; n != nil {
				n.super = source
			}
		case hasEncoding:
			t.encodings[key(target)] = source
			if n := t.types[key(source)]; n != nil && names[key(target)] == "Default Binary" {
				n.binary = target
			}
		}
	}
	for _, n := range doc.Nodes {
		for i := range n.References {
			r := &n.References[i]
			if r.Inverse {
				link(r.Target, r.Type, n.ID)
			} else {
				link(n.ID, r.Type, r.Target)
			}
		}
	}
}

// OfEncoding implements [Types]. A DataType is its own encoding: some files put
// it there.
func (t *TypeTable) OfEncoding(id uabinary.NodeID) (uabinary.NodeID, bool) {
	if d, ok := t.encodings[key(id)]; ok {
		return d, true
	}
	if t.types[key(id)] != nil {
		return id, true
	}
	if t.behind != nil {
		return t.behind.OfEncoding(id)
	}
	return uabinary.NodeID{}, false
}

// maxSupertypes bounds the walk up the type tree; a file may contain a loop.
const maxSupertypes = 128

// DataType implements [Types].
func (t *TypeTable) DataType(id uabinary.NodeID) (Info, bool) {
	var chain []*typeNode
	var top Info
	for {
		n := t.types[key(id)]
		if n != nil && n.info != nil {
			top = *n.info
			break
		}
		if b, ok := BuiltinOf(id); ok {
			top = Info{Builtin: b}
			if n != nil && len(chain) == 0 {
				top.Binary = n.binary
			}
			break
		}
		if n == nil {
			ok := false
			if t.behind != nil {
				top, ok = t.behind.DataType(id)
			}
			if !ok {
				return Info{}, false
			}
			break
		}
		if chain = append(chain, n); len(chain) > maxSupertypes {
			return Info{}, false
		}
		id = n.super
	}
	for i := len(chain) - 1; i >= 0; i-- {
		n := chain[i]
		info := &Info{Builtin: top.Builtin, Definition: top.Definition, Binary: n.binary}
		// The bits of an option set are not fields of its structure.
		if n.own != nil && !(n.own.OptionSet && info.Builtin == ua.TypeIDExtensionObject) {
			d := &Definition{Union: n.own.Union, OptionSet: n.own.OptionSet}
			if top.Definition != nil && !n.own.Enumeration() {
				d.Fields = append(d.Fields, top.Definition.Fields...)
			}
			d.Fields = append(d.Fields, n.own.Fields...)
			info.Definition = d
		}
		n.info = info
		top = *info
	}
	return top, true
}

// BuiltinOf returns the wire type of the DataTypes of namespace 0 that stand for
// one: built-in types, Enumeration, and the abstract ones, which have none.
func BuiltinOf(id uabinary.NodeID) (ua.TypeID, bool) {
	if id.Namespace != 0 || id.Type != uabinary.IDNumeric {
		return 0, false
	}
	switch n := id.Numeric; {
	case n == 24, n == 26, n == 27, n == 28:
		return ua.TypeIDNull, true
	case n == 29:
		return ua.TypeIDInt32, true
	case n >= 1 && n <= 25:
		return ua.TypeID(n), true
	}
	return 0, false
}

// Own returns the definition that a DataType of the documents brings itself.
func (t *TypeTable) Own(id uabinary.NodeID) *Definition {
	if n := t.types[key(id)]; n != nil {
		return n.own
	}
	return nil
}

// Super returns the supertype of a DataType of the documents.
func (t *TypeTable) Super(id uabinary.NodeID) uabinary.NodeID {
	if n := t.types[key(id)]; n != nil {
		return n.super
	}
	return uabinary.NodeID{}
}

// DefinitionValue returns the Variant of the DataTypeDefinition attribute of a
// DataType of the documents, nil when it has none.
func (t *TypeTable) DefinitionValue(id uabinary.NodeID) []byte {
	own := t.Own(id)
	if own == nil || len(own.Fields) == 0 {
		return nil
	}
	info, ok := t.DataType(id)
	if !ok {
		return nil
	}
	d := info.Definition
	if own.OptionSet {
		d = own
	}
	if d == nil {
		return nil
	}
	return AppendDefinition(nil, d, t.Super(id), info.Binary)
}
