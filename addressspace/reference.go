package addressspace

import (
	"slices"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// Reference is one direction of a reference, as seen from the node that lists it.
type Reference struct {
	Type    *Node // the ReferenceType
	Target  *Node // nil when the target is not a node of this space
	Inverse bool
	remote  *uabinary.ExpandedNodeID // the target when Target is nil
}

// TargetID returns the id of the target.
func (r *Reference) TargetID() uabinary.ExpandedNodeID {
	if r.Target != nil {
		return uabinary.ExpandedNodeID{NodeID: r.Target.id}
	}
	return *r.remote
}

func (r *Reference) same(o *Reference) bool {
	if r.Type != o.Type || r.Inverse != o.Inverse || r.Target != o.Target {
		return false
	}
	if r.Target != nil {
		return true
	}
	return r.remote.ServerIndex == o.remote.ServerIndex && r.remote.NodeID.Equal(o.remote.NodeID) &&
		string(r.remote.NamespaceURI) == string(o.remote.NamespaceURI)
}

// append adds references to the node's list. Snapshots that readers hold stay
// valid: their length ends before what is written here. The caller holds
// Space.mu.
func (n *Node) appendRefs(refs ...Reference) {
	list := append(n.References(), refs...)
	n.refs.Store(&list)
}

func (n *Node) hasRef(r *Reference) bool {
	refs := n.References()
	for i := range refs {
		if refs[i].same(r) {
			return true
		}
	}
	return false
}

// link adds a reference in both directions without looking for a duplicate.
// The caller holds Space.mu.
func (s *Space) link(source, typ, target *Node) {
	source.appendRefs(Reference{Type: typ, Target: target})
	target.appendRefs(Reference{Type: typ, Target: source, Inverse: true})
	s.adopt(source, typ, target)
}

// linkOnce is link, but a reference that is there is left alone. It looks at the
// shorter list.
func (s *Space) linkOnce(source, typ, target *Node) {
	if s.linked(source, typ, target) {
		return
	}
	s.link(source, typ, target)
}

func (s *Space) linked(source, typ, target *Node) bool {
	if len(source.References()) <= len(target.References()) {
		return source.hasRef(&Reference{Type: typ, Target: target})
	}
	return target.hasRef(&Reference{Type: typ, Target: source, Inverse: true})
}

// adopt keeps Node.above in step with HasTypeDefinition and HasSubtype.
func (s *Space) adopt(source, typ, target *Node) {
	switch typ {
	case s.known.hasTypeDefinition:
		source.above.CompareAndSwap(nil, target)
	case s.known.hasSubtype:
		if source != target && !SubtypeOf(source, target) { // no cycle
			target.above.CompareAndSwap(nil, source)
		}
	}
}

// AddReference adds a reference of the given type in both directions; one that
// exists already is left alone. It returns false when a node has been deleted or
// typ is not a ReferenceType.
func (s *Space) AddReference(source, typ, target *Node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if source.Deleted() || target.Deleted() || typ.Deleted() || !SubtypeOf(typ, s.known.references) {
		return false
	}
	s.linkOnce(source, typ, target)
	return true
}

// DeleteReference removes a reference in both directions and reports whether it
// was there.
func (s *Space) DeleteReference(source, typ, target *Node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.linked(source, typ, target) {
		return false
	}
	drop := func(n *Node, gone Reference) {
		n.filterRefs(func(r *Reference) bool { return !r.same(&gone) })
	}
	drop(source, Reference{Type: typ, Target: target})
	drop(target, Reference{Type: typ, Target: source, Inverse: true})
	switch typ {
	case s.known.hasTypeDefinition:
		source.above.CompareAndSwap(target, nil)
	case s.known.hasSubtype:
		target.above.CompareAndSwap(source, nil)
	}
	return true
}

// filterRefs publishes a new list with the references that keep says yes to.
func (n *Node) filterRefs(keep func(*Reference) bool) {
	old := n.References()
	list := make([]Reference, 0, len(old))
	for i := range old {
		if keep(&old[i]) {
			list = append(list, old[i])
		}
	}
	n.refs.Store(&list)
}

// maxTypeDepth bounds walks up a type tree, should a loop ever get into one.
const maxTypeDepth = 128

// SubtypeOf reports whether type node t is base or one of its subtypes. Nil is
// a subtype of nothing.
func SubtypeOf(t, base *Node) bool {
	if base == nil {
		return false
	}
	for i := 0; t != nil && i < maxTypeDepth; i++ {
		if t == base {
			return true
		}
		if !t.isType() {
			return false
		}
		t = t.above.Load()
	}
	return false
}

// Delete removes nodes with all references from and to them. What they hold goes
// too, as long as nothing else refers to it hierarchically (OPC 10000-4
// DeleteNodes leaves this to the server); subtypes stay. Watchers
// of a deleted value are told BadNodeIdUnknown. With a ReferenceType go the
// references of that type. It returns the number of nodes deleted. Types of
// namespace 0 cannot be deleted.
func (s *Space) Delete(ids ...uabinary.NodeID) int {
	s.mu.Lock()
	var gone []*Node
	for _, id := range ids {
		if n := s.Lookup(id); n != nil && s.deletable(n) && !n.deleted.Load() {
			gone = s.collect(n, gone)
		}
	}
	s.unlinkAll(gone)
	s.mu.Unlock()
	for _, n := range gone {
		n.tellDeleted()
	}
	return len(gone)
}

func (s *Space) deletable(n *Node) bool {
	return n.id.Namespace != 0 || !n.isType()
}

// collect marks n and what only n holds as deleted, iteratively: nodesets may
// nest as deep as they like.
func (s *Space) collect(n *Node, gone []*Node) []*Node {
	start := len(gone)
	n.deleted.Store(true)
	gone = append(gone, n)
	for i := start; i < len(gone); i++ {
		refs := gone[i].References()
		for k := range refs {
			r := &refs[k]
			if r.Inverse || r.Target == nil || r.Target.deleted.Load() || !s.deletable(r.Target) ||
				r.Type == s.known.hasSubtype || !SubtypeOf(r.Type, s.known.hierarchical) || s.heldElsewhere(r.Target) {
				continue
			}
			r.Target.deleted.Store(true)
			gone = append(gone, r.Target)
		}
	}
	return gone
}

// heldElsewhere reports whether a node that still exists refers to n
// hierarchically.
func (s *Space) heldElsewhere(n *Node) bool {
	refs := n.References()
	for i := range refs {
		r := &refs[i]
		if r.Inverse && (r.Target == nil || !r.Target.deleted.Load()) && SubtypeOf(r.Type, s.known.hierarchical) {
			return true
		}
	}
	return false
}

// unlinkAll takes deleted nodes out of the tables and out of the lists of their
// neighbours, each of which is rewritten once.
func (s *Space) unlinkAll(gone []*Node) {
	neighbours := make(map[*Node]struct{})
	types := false
	tables := *s.tables.Load()
	for _, n := range gone {
		refs := n.References()
		for i := range refs {
			if t := refs[i].Target; t != nil && !t.deleted.Load() {
				neighbours[t] = struct{}{}
			}
		}
		tables[n.id.Namespace].remove(n)
		types = types || n.class == uint8(ua.NodeClassReferenceType)
	}
	s.count.Add(-int64(len(gone)))
	if types { // rare, and their users are not listed anywhere
		s.All(func(n *Node) bool {
			if slices.ContainsFunc(n.References(), func(r Reference) bool { return r.Type.deleted.Load() }) {
				neighbours[n] = struct{}{}
			}
			return true
		})
	}
	for n := range neighbours {
		n.filterRefs(func(r *Reference) bool {
			return (r.Target == nil || !r.Target.deleted.Load()) && !r.Type.deleted.Load()
		})
		if up := n.above.Load(); up != nil && up.deleted.Load() {
			n.above.Store(nil)
		}
	}
}
