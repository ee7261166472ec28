package addressspace

import (
	"slices"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// create fills n as spec says, links it and publishes it. The caller holds
// Space.mu. Nothing is changed when an error is returned.
func (s *Space) create(n *Node, spec *nodeSpec, fail func(ua.StatusCode, string, ...any) error) error {
	if !s.browseNameValid(spec.name.Name) {
		return fail(ua.StatusBadBrowseNameInvalid, "BrowseName of %d bytes is empty, no UTF-8 or longer than %d", len(spec.name.Name), s.maxBrowseName)
	}
	if int(spec.name.Namespace) >= len(s.namespaces()) || int(spec.id.Namespace) >= len(s.namespaces()) {
		return fail(ua.StatusBadNodeIDInvalid, "namespace index out of range")
	}
	if spec.id.IsNull() {
		return fail(ua.StatusBadNodeIDInvalid, "null NodeId")
	}
	if s.Lookup(spec.id) != nil {
		return fail(ua.StatusBadNodeIDExists, "NodeId %s exists", spec.id)
	}
	if spec.parent.Deleted() {
		return fail(ua.StatusBadParentNodeIDInvalid, "parent has been deleted")
	}
	a, err := s.attributesOf(spec, fail)
	if err != nil {
		return err
	}
	definition, err := s.definitionOf(spec, fail)
	if err != nil {
		return err
	}
	reference := s.parentReference(spec)
	if spec.reference != nil {
		reference = s.Lookup(*spec.reference)
		if !SubtypeOf(reference, s.known.hierarchical) {
			return fail(ua.StatusBadReferenceTypeIDInvalid, "%s is not a hierarchical ReferenceType", spec.reference)
		}
	}
	type link struct {
		typ, node *Node
		inverse   bool
	}
	var links []link
	for _, r := range spec.refs {
		typ, target := s.Lookup(r.typ), s.Lookup(r.target)
		if !SubtypeOf(typ, s.known.references) {
			return fail(ua.StatusBadReferenceTypeIDInvalid, "%s is not a ReferenceType", r.typ)
		}
		if target == nil {
			return fail(ua.StatusBadTargetNodeIDInvalid, "no node %s", r.target)
		}
		links = append(links, link{typ, target, r.inverse})
	}
	if spec.modelling != 0 {
		links = append(links, link{typ: s.known.hasModellingRule, node: s.Lookup(uabinary.NumericID(0, spec.modelling))})
	}

	n.space, n.id, n.class = s, spec.id, uint8(spec.class)
	name := spec.name
	n.browse.Store(&name)
	n.attrs.Store(a)
	if spec.value != nil {
		if !spec.value.Value.IsNull() {
			v, code := n.checkValue(spec.value.Value)
			if code != ua.StatusOK {
				return fail(code, "the initial value does not fit DataType %s, ValueRank %d", n.DataType().id, a.valueRank)
			}
			spec.value.Value = v
		}
		n.value.Store(spec.value)
	}
	if spec.userAccess != nil {
		n.extend().userAccess.Store(&spec.userAccess)
	}
	if spec.userCall != nil {
		n.extend().userCall.Store(&spec.userCall)
	}
	properties, err := s.propertyNodes(n, spec, fail)
	if err != nil {
		return err
	}

	// Published first, linked then: whoever finds it by a reference can look it
	// up.
	s.insert(n)
	if definition != nil {
		refs := make([]Reference, 1, 2)
		refs[0] = Reference{Type: s.known.hasTypeDefinition, Target: definition}
		n.refs.Store(&refs)
		n.above.Store(definition)
		definition.appendRefs(Reference{Type: s.known.hasTypeDefinition, Target: n, Inverse: true})
	}
	s.link(spec.parent, reference, n)
	for _, l := range links {
		if l.inverse {
			s.linkOnce(l.node, l.typ, n)
		} else {
			s.linkOnce(n, l.typ, l.node)
		}
	}
	for _, p := range properties {
		s.insert(p)
		s.link(p, s.known.hasTypeDefinition, s.known.propertyType)
		s.link(n, s.known.hasProperty, p)
		if spec.modelling != 0 { // what declares a type's component belongs to it
			s.link(p, s.known.hasModellingRule, s.Lookup(uabinary.NumericID(0, idMandatory)))
		}
	}
	if definition != nil && spec.definedBy != nil {
		s.instantiate(n, definition)
	}
	return nil
}

func (s *Space) insert(n *Node) {
	(*s.tables.Load())[n.id.Namespace].put(n)
	s.count.Add(1)
}

func (s *Space) attributesOf(spec *nodeSpec, fail func(ua.StatusCode, string, ...any) error) (*attributes, error) {
	a := attributes{
		display:     spec.display,
		description: spec.description,
		valueRank:   -1,
		writeMask:   spec.writeMask,
	}
	switch spec.class {
	case ua.NodeClassVariable, ua.NodeClassVariableType:
		a.dataType = s.known.baseDataType
		if spec.dataType != nil {
			a.dataType = s.Lookup(*spec.dataType)
			if a.dataType == nil || a.dataType.class != uint8(ua.NodeClassDataType) {
				return nil, fail(ua.StatusBadNodeAttributesInvalid, "no DataType %s", spec.dataType)
			}
		}
		a.builtin = s.builtinOf(a.dataType)
		a.valueRank = spec.rank
		a.isAbstract = spec.abstract
		if spec.dims != nil {
			if spec.rank > 0 && len(spec.dims) != int(spec.rank) {
				return nil, fail(ua.StatusBadNodeAttributesInvalid, "%d ArrayDimensions for ValueRank %d", len(spec.dims), spec.rank)
			}
			a.hasDims = true
			a.dims = dimsString(spec.dims)
		}
		if spec.class == ua.NodeClassVariable {
			a.accessLevel = spec.access
			a.minSampling, a.hasSampling = spec.sampling, true
			a.historizing = spec.historize
		}
	case ua.NodeClassMethod:
		a.executable = true
	case ua.NodeClassObject, ua.NodeClassView:
		a.eventNotifier = spec.notifier
	case ua.NodeClassReferenceType:
		a.isAbstract = spec.abstract
		a.inverseName = spec.inverse
		a.symmetric = spec.inverse == nil
	default:
		a.isAbstract = spec.abstract
		a.definition = spec.definition
	}
	return s.shared(a), nil
}

// shared returns one copy of attributes that many nodes have in common.
func (s *Space) shared(a attributes) *attributes {
	if a.display != nil || a.description != nil || a.inverseName != nil || a.definition != nil {
		return &a
	}
	if p := s.intern[a]; p != nil {
		return p
	}
	p := &a
	s.intern[a] = p
	return p
}

func dimsString(dims []uint32) string {
	b := make([]byte, 0, 4*len(dims))
	for _, d := range dims {
		b = uabinary.AppendUint32(b, d)
	}
	return string(b)
}

// definitionOf returns the type definition of an Object or Variable to be made.
func (s *Space) definitionOf(spec *nodeSpec, fail func(ua.StatusCode, string, ...any) error) (*Node, error) {
	var want ua.NodeClass
	var fallback *Node
	switch spec.class {
	case ua.NodeClassObject:
		want, fallback = ua.NodeClassObjectType, s.known.baseObjectType
	case ua.NodeClassVariable:
		want, fallback = ua.NodeClassVariableType, s.known.baseDataVariableType
		if spec.property {
			fallback = s.known.propertyType
		}
	default:
		return nil, nil
	}
	if spec.definedBy == nil {
		return fallback, nil
	}
	t := s.Lookup(*spec.definedBy)
	if t == nil || t.class != uint8(want) {
		return nil, fail(ua.StatusBadTypeDefinitionInvalid, "no type %s", spec.definedBy)
	}
	return t, nil
}

// parentReference is the usual reference from the parent.
func (s *Space) parentReference(spec *nodeSpec) *Node {
	switch {
	case spec.property:
		return s.known.hasProperty
	case spec.parent.isType() && spec.parent.class == uint8(spec.class):
		return s.known.hasSubtype
	case spec.class == ua.NodeClassMethod:
		return s.known.hasComponent // Call looks for it
	case spec.class == ua.NodeClassView,
		spec.parent.class == uint8(ua.NodeClassObject) && SubtypeOf(spec.parent.above.Load(), s.known.folderType):
		return s.known.organizes
	}
	return s.known.hasComponent
}

// propertyNodes makes the nodes of the properties that options asked for.
func (s *Space) propertyNodes(n *Node, spec *nodeSpec, fail func(ua.StatusCode, string, ...any) error) ([]*Node, error) {
	var nodes []*Node
	for _, p := range spec.properties {
		ps := nodeSpec{class: ua.NodeClassVariable, access: uint32(AccessRead), property: true}
		if p.typ != 0 {
			id := uabinary.NumericID(0, p.typ)
			ps.dataType = &id
		}
		if err := ps.setValue(s, p.value); err != nil {
			return nil, fail(ua.StatusBadTypeMismatch, "property %s: %v", p.name, err)
		}
		a, err := s.attributesOf(&ps, fail)
		if err != nil {
			return nil, err
		}
		id := childID(n.id, p.name)
		if s.Lookup(id) != nil || slices.ContainsFunc(nodes, func(n *Node) bool { return n.id.Equal(id) }) {
			return nil, fail(ua.StatusBadNodeIDExists, "NodeId %s exists", id)
		}
		child := &Node{space: s, id: id, class: uint8(ua.NodeClassVariable)}
		child.browse.Store(&uabinary.QualifiedName{Name: []byte(p.name)})
		child.attrs.Store(a)
		child.value.Store(ps.value)
		nodes = append(nodes, child)
	}
	return nodes, nil
}

// childID derives the id of a child that has none of its own: the parent's id as
// a path, a dot and the name. A parent with the string id "i=7" and one with the
// numeric id 7 would collide; creation then fails with BadNodeIdExists.
func childID(parent uabinary.NodeID, name string) uabinary.NodeID {
	prefix := string(parent.Bytes)
	if parent.Type != uabinary.IDString {
		bare := parent
		bare.Namespace = 0
		prefix = bare.String()
	}
	return uabinary.StringID(parent.Namespace, prefix+"."+name)
}

// Bounds on what one instantiation may make, in case a type contains itself.
const (
	maxInstance      = 10_000
	maxInstanceDepth = 20
)

const idMandatory = 78 // ModellingRule_Mandatory

// instantiate gives an instance the components and properties that its type and
// supertypes declare Mandatory (OPC 10000-3 §6.2.6), and those theirs. What is
// there under the same BrowseName stays.
func (s *Space) instantiate(instance, definition *Node) {
	type work struct {
		node, model *Node
		level       int
	}
	todo := []work{{instance, definition, 0}}
	for made := 0; len(todo) > 0 && made < maxInstance; {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for t, depth := w.model, 0; t != nil && depth < maxTypeDepth; t, depth = s.modelAbove(t), depth+1 {
			refs := t.References()
			for i := range refs {
				r := &refs[i]
				if r.Inverse || r.Target == nil || !SubtypeOf(r.Type, s.known.aggregates) || !s.mandatory(r.Target) ||
					w.node.Child(r.Target.BrowseName()) != nil {
					continue
				}
				c := s.copyDeclaration(w.node, r.Target)
				if c == nil {
					continue
				}
				made++
				s.link(w.node, r.Type, c)
				if w.level < maxInstanceDepth {
					todo = append(todo, work{c, r.Target, w.level + 1})
				}
			}
		}
	}
}

// modelAbove is the next place with declarations: the supertype of a type, the
// type of an instance declaration.
func (s *Space) modelAbove(n *Node) *Node {
	if n.class == uint8(ua.NodeClassMethod) {
		return nil
	}
	return n.above.Load()
}

func (s *Space) mandatory(n *Node) bool {
	refs := n.References()
	for i := range refs {
		r := &refs[i]
		if !r.Inverse && r.Type == s.known.hasModellingRule && r.Target != nil {
			return r.Target.id.Equal(uabinary.NumericID(0, idMandatory))
		}
	}
	return false
}

// copyDeclaration makes the instance's own node for an instance declaration, nil
// when its id is taken.
func (s *Space) copyDeclaration(parent, model *Node) *Node {
	name := model.BrowseName()
	id := childID(parent.id, string(name.Name))
	if s.Lookup(id) != nil {
		return nil
	}
	c := &Node{space: s, id: id, class: model.class}
	c.browse.Store(&name)
	c.attrs.Store(model.attrs.Load())
	if v := model.value.Load(); v != nil {
		c.value.Store(v)
	}
	s.insert(c)
	if t := model.above.Load(); t != nil {
		s.link(c, s.known.hasTypeDefinition, t)
	}
	return c
}
