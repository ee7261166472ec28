package addressspace

import (
	"fmt"
	"slices"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace/internal/nodeset"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// NodeSetFile is a NodeSet2 file to import.
type NodeSetFile struct {
	Name string // for errors
	Data []byte
}

// ImportResult says what an import did.
type ImportResult struct {
	Nodes  int
	Models []string // URIs, in the order in which they were loaded

	// Dangling counts references to nodes that are neither in the files nor in
	// the space. Clients see them; the targets do not exist.
	Dangling int

	// Unreachable counts new nodes that no reference leads to: browsing does not
	// find them.
	Unreachable int

	// Skipped counts RolePermissions and AccessRestrictions, which are not
	// enforced and therefore not shown: such nodes are open to every session.
	Skipped int
}

// Import imports UANodeSet files (OPC 10000-6 Annex F), given in any order: they are loaded in the
// order of their RequiredModels, and a model that is missing is named in the
// error. Errors carry file and line; after one the space is as it was. Files are
// not kept. Existing nodes are never replaced: a NodeId that exists is an error.
func (s *Space) Import(files ...NodeSetFile) (*ImportResult, error) {
	docs := make([]*nodeset.Document, len(files))
	for i, f := range files {
		var err error
		if docs[i], err = nodeset.Parse(f.Name, f.Data); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	docs, err := nodeset.Order(docs, s.hasModel)
	if err != nil {
		return nil, err
	}
	im := &importer{space: s, uris: slices.Clone(s.namespaces()), result: new(ImportResult)}
	im.types = nodeset.NewTypeTable(spaceTypes{s})
	if err := im.prepare(docs); err != nil {
		return nil, err
	}
	im.commit(docs)
	return im.result, nil
}

// hasModel reports whether a model is loaded, or made by the program.
func (s *Space) hasModel(uri string) bool {
	if _, ok := s.models[uri]; ok {
		return true
	}
	i := slices.Index(s.namespaces(), uri)
	return i >= 0 && (*s.tables.Load())[i].count.Load() > 0
}

// importer is one import: prepare checks everything and builds the nodes aside,
// commit publishes them and cannot fail.
type importer struct {
	space  *Space
	uris   []string // the NamespaceArray after the import
	types  *nodeset.TypeTable
	result *ImportResult

	nodes map[string]*Node // new ones by id key
	order []*Node
	refs  map[*Node][]Reference // new references by the node that lists them
}

type edge struct{ source, typ, target *Node }

func (im *importer) prepare(docs []*nodeset.Document) error {
	total := 0
	for _, doc := range docs {
		for _, m := range doc.Models {
			if _, loaded := im.space.models[m.URI]; loaded {
				return &nodeset.Error{File: doc.File, Line: m.Line, Err: fmt.Errorf("model %s is loaded already", m.URI)}
			}
		}
		indexes := make([]uint16, len(doc.URIs))
		for i, uri := range doc.URIs {
			at := slices.Index(im.uris, uri)
			if at < 0 {
				if at = len(im.uris); at > 0xFFFF {
					return fmt.Errorf("%s: too many namespaces", doc.File)
				}
				im.uris = append(im.uris, uri)
			}
			indexes[i] = uint16(at)
		}
		doc.Remap(indexes)
		im.types.Add(doc)
		im.result.Skipped += doc.Skipped
		total += len(doc.Nodes)
	}
	im.nodes = make(map[string]*Node, total)
	im.order = make([]*Node, 0, total)
	im.refs = make(map[*Node][]Reference, total)
	var slab []Node
	for _, doc := range docs {
		for _, x := range doc.Nodes {
			if err := im.checkNode(x); err != nil {
				return &nodeset.Error{File: doc.File, Line: x.Line, Err: err}
			}
			if len(slab) == 0 {
				slab = make([]Node, min(256, total-len(im.order)))
			}
			n := &slab[0]
			slab = slab[1:]
			n.space, n.id, n.class = im.space, x.ID.Clone(), uint8(x.Class)
			name := x.BrowseName // not a pointer into x, which holds on to the file
			n.browse.Store(&name)
			im.nodes[string(n.id.AppendKey(nil))] = n
			im.order = append(im.order, n)
		}
	}
	seen := make(map[edge]bool)
	for _, doc := range docs {
		for _, x := range doc.Nodes {
			for i := range x.References {
				if err := im.reference(im.find(x.ID), &x.References[i], seen); err != nil {
					return &nodeset.Error{File: doc.File, Line: x.References[i].Line, Err: err}
				}
			}
		}
	}
	i := 0
	for _, doc := range docs {
		for _, x := range doc.Nodes {
			if err := im.content(doc, x, im.order[i]); err != nil {
				return err
			}
			i++
		}
	}
	return nil
}

func (im *importer) find(id uabinary.NodeID) *Node {
	if n := im.nodes[string(id.AppendKey(nil))]; n != nil {
		return n
	}
	return im.space.Lookup(id)
}

func (im *importer) checkNode(x *nodeset.Node) error {
	if im.find(x.ID) != nil {
		return fmt.Errorf("NodeId %s exists already", x.ID)
	}
	if !im.space.browseNameValid(x.BrowseName.Name) {
		return fmt.Errorf("BrowseName of %d bytes is empty, no UTF-8 or longer than %d", len(x.BrowseName.Name), im.space.maxBrowseName)
	}
	return nil
}

func (im *importer) reference(n *Node, x *nodeset.Reference, seen map[edge]bool) error {
	s := im.space
	typ := im.find(x.Type)
	if typ == nil || typ.class != uint8(ua.NodeClassReferenceType) {
		return fmt.Errorf("%s is not a ReferenceType", x.Type)
	}
	other := im.find(x.Target)
	if other == nil {
		im.result.Dangling++
		im.refs[n] = append(im.refs[n], Reference{Type: typ, Inverse: x.Inverse, remote: &uabinary.ExpandedNodeID{NodeID: x.Target.Clone()}})
		return nil
	}
	e := edge{n, typ, other}
	if x.Inverse {
		e.source, e.target = other, n
	}
	if seen[e] {
		return nil
	}
	seen[e] = true
	im.refs[e.source] = append(im.refs[e.source], Reference{Type: typ, Target: e.target})
	im.refs[e.target] = append(im.refs[e.target], Reference{Type: typ, Target: e.source, Inverse: true})
	// Existing nodes get their supertypes from no import.
	if typ == s.known.hasTypeDefinition && im.isNew(e.source) || typ == s.known.hasSubtype && im.isNew(e.target) {
		s.adopt(e.source, typ, e.target)
	}
	return nil
}

func (im *importer) isNew(n *Node) bool { return im.nodes[string(n.id.AppendKey(nil))] == n }

// content gives a new node its attributes and value.
func (im *importer) content(doc *nodeset.Document, x *nodeset.Node, n *Node) error {
	s := im.space
	a := attributes{
		description: x.Description,
		writeMask:   x.WriteMask & supportedWriteMask,
		valueRank:   -1,
		isAbstract:  x.IsAbstract,
	}
	if string(x.DisplayName.Text) != string(x.BrowseName.Name) || x.DisplayName.Locale != nil {
		display := x.DisplayName
		a.display = &display
	}
	switch x.Class {
	case ua.NodeClassObject:
		a.eventNotifier = x.EventNotifier
	case ua.NodeClassView:
		a.eventNotifier = x.EventNotifier
		a.containsNoLoop = !x.ContainsLoops
	case ua.NodeClassMethod:
		a.executable = x.Executable
	case ua.NodeClassReferenceType:
		a.symmetric = x.Symmetric
		a.inverseName = x.InverseName
	case ua.NodeClassDataType:
		if b := im.types.DefinitionValue(x.ID); b != nil {
			v, err := variantFrom(b)
			if err != nil {
				return &nodeset.Error{File: doc.File, Line: x.Line, Err: fmt.Errorf("Definition: %w", err)}
			}
			a.definition = &v
		}
	case ua.NodeClassVariable, ua.NodeClassVariableType:
		a.dataType = im.find(x.DataType)
		if a.dataType == nil || a.dataType.class != uint8(ua.NodeClassDataType) {
			return &nodeset.Error{File: doc.File, Line: x.Line, Err: fmt.Errorf("%s is not a DataType", x.DataType)}
		}
		a.builtin = s.builtinOf(a.dataType)
		a.valueRank = x.ValueRank
		a.hasDims = x.Dims != nil
		a.dims = dimsString(x.Dims)
		if x.Class == ua.NodeClassVariable {
			a.accessLevel = x.AccessLevel
			a.minSampling, a.hasSampling = x.Sampling, x.HasSampling
			a.historizing = x.Historizing
		}
		if x.Value != nil {
			if err := im.value(doc, x, n, a.builtin); err != nil {
				return err
			}
		}
	}
	n.attrs.Store(s.shared(a))
	return nil
}

// value sets a node's value; builtin is the type that its DataType is encoded
// as, Null when that is abstract.
func (im *importer) value(doc *nodeset.Document, x *nodeset.Node, n *Node, builtin ua.TypeID) error {
	b, err := doc.AppendValue(nil, x.Value, im.types)
	if err != nil {
		return err
	}
	v, err := variantFrom(b)
	if err != nil {
		return &nodeset.Error{File: doc.File, Line: x.Value.Line, Err: err}
	}
	if t := v.Type(); builtin != ua.TypeIDNull && !v.IsNull() && t != builtin && !bytesAlike(t, builtin) {
		return &nodeset.Error{File: doc.File, Line: x.Value.Line, Err: fmt.Errorf("the value is of built-in type %d, DataType %s is of type %d", t, x.DataType, builtin)}
	}
	n.value.Store(&uabinary.DataValue{
		Mask:            ua.DataValueValue | ua.DataValueSourceTimestamp,
		Value:           v,
		SourceTimestamp: uabinary.Now(),
	})
	return nil
}

// bytesAlike reports whether one type is Byte and the other ByteString, which
// stand for each other (OPC 10000-4 §5.11.4, Write).
func bytesAlike(a, b ua.TypeID) bool {
	return a == ua.TypeIDByte && b == ua.TypeIDByteString || a == ua.TypeIDByteString && b == ua.TypeIDByte
}

// commit publishes what prepare built: namespaces, the new nodes with their
// references, then the references of existing nodes to them.
func (im *importer) commit(docs []*nodeset.Document) {
	s := im.space
	for _, uri := range im.uris[len(s.namespaces()):] {
		s.addNamespace(uri)
	}
	for _, n := range im.order {
		refs := slices.Clip(im.refs[n])
		if !slices.ContainsFunc(refs, func(r Reference) bool { return r.Inverse }) {
			im.result.Unreachable++
		}
		n.refs.Store(&refs)
	}
	for _, n := range im.order {
		s.insert(n)
	}
	for n, refs := range im.refs {
		if im.isNew(n) {
			continue
		}
		// What both ends had before the import may be there already.
		refs = slices.DeleteFunc(refs, func(r Reference) bool {
			return r.Target != nil && !im.isNew(r.Target) && n.hasRef(&r)
		})
		n.appendRefs(refs...)
	}
	for _, t := range *s.tables.Load() {
		t.settle()
	}
	for _, doc := range docs {
		for _, m := range doc.Models {
			s.models[m.URI] = m
			im.result.Models = append(im.result.Models, m.URI)
		}
	}
	im.result.Nodes = len(im.order)
	s.publishNamespaceArray()
}

// spaceTypes answers for the DataTypes of the space.
type spaceTypes struct{ space *Space }

// DataType implements nodeset.Types.
func (t spaceTypes) DataType(id uabinary.NodeID) (nodeset.Info, bool) {
	s := t.space
	n := s.Lookup(id)
	if n == nil || n.class != uint8(ua.NodeClassDataType) {
		return nodeset.Info{}, false
	}
	info := nodeset.Info{Builtin: s.builtinOf(n)}
	refs := n.References()
	for i := range refs {
		if r := &refs[i]; !r.Inverse && r.Type == s.known.hasEncoding && r.Target != nil && string(r.Target.browse.Load().Name) == "Default Binary" {
			info.Binary = r.Target.id
		}
	}
	// A subtype without a definition of its own has the fields of its supertype.
	for depth := 0; n != nil && depth < maxTypeDepth; n, depth = n.above.Load(), depth+1 {
		if d := n.attrs.Load().definition; d != nil {
			info.Definition = nodeset.ReadDefinition(*d)
			if info.Definition != nil && info.Definition.Enumeration() && info.Builtin == ua.TypeIDExtensionObject {
				info.Definition = nil // the bits of an option set
				continue
			}
			break
		}
	}
	return info, true
}

// OfEncoding implements nodeset.Types.
func (t spaceTypes) OfEncoding(id uabinary.NodeID) (uabinary.NodeID, bool) {
	if n := t.space.dataTypeOf(id); n != nil {
		return n.id, true
	}
	return uabinary.NodeID{}, false
}
