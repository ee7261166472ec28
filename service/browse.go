package service

import (
	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

const (
	minBrowseDescription = 2 + 4 + 2 + 1 + 4 + 4
	minByteString        = 4

	// referenceSize is about what one ReferenceDescription takes; it sizes
	// buffers and tells when a result might not fit.
	referenceSize = 96
)

// browse is the Browse service, OPC 10000-4 §5.9.2.
func browse(s *Set, r *Request) ua.StatusCode {
	view := r.Body.NodeID()
	r.Body.DateTime() // the view's timestamp and version: we keep no old versions
	r.Body.UInt32()
	limit := int(min(r.Body.UInt32(), 1<<30))
	n, code := r.operations(minBrowseDescription, s.limits.Load().MaxNodesPerBrowse)
	if code != ua.StatusOK {
		return code
	}
	if !view.IsNull() {
		if v := s.Space.Lookup(view); v == nil || v.Class() != ua.NodeClassView {
			return ua.StatusBadViewIDUnknown
		}
	}
	if most := s.limits.Load().MaxReferencesPerNode; most > 0 && (limit == 0 || limit > most) {
		limit = most
	}
	r.putCount(n)
	for range n {
		node := r.Body.NodeID()
		direction := r.Body.UInt32()
		refType := r.Body.NodeID()
		subtypes := r.Body.Bool()
		classes := r.Body.UInt32()
		mask := r.Body.UInt32()
		if code := r.decoded(); code != ua.StatusOK {
			return code
		}
		b := browsing{limit: limit, direction: ua.BrowseDirection(direction), subtypes: subtypes, classes: classes, mask: mask}
		if code := b.start(s.Space, node, refType); code != ua.StatusOK {
			r.putBrowseFailure(code)
		} else {
			s.putBrowseResult(r, &b)
		}
		if r.Full() {
			return ua.StatusBadResponseTooLarge
		}
	}
	r.noDiagnostics()
	return ua.StatusOK
}

// browseNext is the BrowseNext service, OPC 10000-4 §5.9.3. A continuation
// point is used up by the call that names it; what is left gets a new one.
func browseNext(s *Set, r *Request) ua.StatusCode {
	release := r.Body.Bool()
	n, code := r.operations(minByteString, s.limits.Load().MaxNodesPerBrowse)
	if code != ua.StatusOK {
		return code
	}
	d := r.Body // the whole body is checked before a point is used up
	for range n {
		d.ByteString()
	}
	if d.Err() != nil {
		r.Body = d
		return r.decoded()
	}
	r.putCount(n)
	for range n {
		point := r.Body.ByteString()
		b := s.continuations.take(r.Session, point)
		switch {
		case b == nil:
			r.putBrowseFailure(ua.StatusBadContinuationPointInvalid)
		case release:
			r.putBrowseFailure(ua.StatusOK)
		case s.Space.Lookup(b.node.ID()) != b.node:
			r.putBrowseFailure(ua.StatusBadNodeIDUnknown)
		default:
			s.putBrowseResult(r, b)
		}
		if r.Full() {
			return ua.StatusBadResponseTooLarge
		}
	}
	r.noDiagnostics()
	return ua.StatusOK
}

// putBrowseFailure appends a BrowseResult without continuation point or references.
func (r *Request) putBrowseFailure(code ua.StatusCode) {
	r.putStatus(code)
	r.Out = append(r.Out, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
}

// putBrowseResult appends one BrowseResult, with a continuation point when
// references are left.
func (s *Set) putBrowseResult(r *Request, b *browsing) {
	at := len(r.Out)
	r.putStatus(ua.StatusOK)
	point := len(r.Out)
	mayContinue := b.mayContinue(r)
	if mayContinue { // room for the point, closed again when it is not needed
		r.Out = append(r.Out, make([]byte, 4+continuationSize)...)
	} else {
		r.Out = append(r.Out, 0xff, 0xff, 0xff, 0xff)
	}
	count := r.beginArray()
	n, more := b.putReferences(r)
	r.endArray(count, n)
	switch {
	case more:
		key, ok := s.continuations.keep(r, b, s.limits.Load().MaxBrowseContinuationPoints)
		if !ok {
			r.Out = r.Out[:at]
			r.putBrowseFailure(ua.StatusBadNoContinuationPoints)
			return
		}
		uabinary.AppendByteString(r.Out[:point], key[:])
	case mayContinue:
		copy(r.Out[point+4:], r.Out[point+4+continuationSize:])
		r.Out = r.Out[:len(r.Out)-continuationSize]
		copy(r.Out[point:], []byte{0xff, 0xff, 0xff, 0xff})
	}
}

// A browsing is one node being browsed: the snapshot of its references taken
// when the Browse began, the filters, and how far it came. It stays valid while
// the address space changes.
type browsing struct {
	node      *addressspace.Node
	refs      []addressspace.Reference
	next      int
	limit     int // references per result; 0 = all
	direction ua.BrowseDirection
	refType   *addressspace.Node // nil = any
	subtypes  bool
	classes   uint32 // NodeClassMask; 0 = any
	mask      uint32 // ResultMask

	lastType *addressspace.Node // whose match against refType is remembered
	lastOK   bool
}

func (b *browsing) start(space *addressspace.Space, node, refType uabinary.NodeID) ua.StatusCode {
	b.node = space.Lookup(node)
	if b.node == nil {
		return ua.StatusBadNodeIDUnknown
	}
	if b.direction > ua.BrowseDirectionBoth {
		return ua.StatusBadBrowseDirectionInvalid
	}
	if !refType.IsNull() {
		b.refType = space.Lookup(refType)
		if b.refType == nil || b.refType.Class() != ua.NodeClassReferenceType {
			return ua.StatusBadReferenceTypeIDInvalid
		}
	}
	b.refs = b.node.References()
	return ua.StatusOK
}

// mayContinue reports whether the next result could leave references over.
func (b *browsing) mayContinue(r *Request) bool {
	left := len(b.refs) - b.next
	return b.limit > 0 && left > b.limit || r.Limit > 0 && left*maxReferenceSize > r.Limit-len(r.Out)
}

// maxReferenceSize is what one ReferenceDescription with long names may take,
// for the question whether a result can outgrow the response.
const maxReferenceSize = 4 * referenceSize

// putReferences appends the references that match, from b.next on, until the
// limit or about the end of the response; more tells whether others match.
func (b *browsing) putReferences(r *Request) (n int, more bool) {
	for ; b.next < len(b.refs); b.next++ {
		ref := &b.refs[b.next]
		if !b.matches(ref) {
			continue
		}
		if b.limit > 0 && n >= b.limit {
			return n, true
		}
		if n > 0 && r.Limit > 0 && len(r.Out) > r.Limit-r.Limit/8 {
			return n, true
		}
		b.putReference(r, ref)
		n++
	}
	return n, false
}

func (b *browsing) matches(ref *addressspace.Reference) bool {
	switch b.direction {
	case ua.BrowseDirectionForward:
		if ref.Inverse {
			return false
		}
	case ua.BrowseDirectionInverse:
		if !ref.Inverse {
			return false
		}
	}
	if b.refType != nil && ref.Type != b.refType {
		if !b.subtypes {
			return false
		}
		if ref.Type != b.lastType {
			b.lastType, b.lastOK = ref.Type, addressspace.SubtypeOf(ref.Type, b.refType)
		}
		if !b.lastOK {
			return false
		}
	}
	// The class of a node on another server is not known: it passes (§5.9.2.2).
	return b.classes == 0 || ref.Target == nil || uint32(ref.Target.Class())&b.classes != 0
}

// putReference appends a ReferenceDescription, OPC 10000-4 §7.30; fields that
// the result mask leaves out are null.
func (b *browsing) putReference(r *Request, ref *addressspace.Reference) {
	out := r.Out
	if b.mask&uint32(ua.BrowseResultMaskReferenceTypeID) != 0 {
		out = uabinary.AppendNodeID(out, ref.Type.ID())
	} else {
		out = append(out, 0, 0)
	}
	if b.mask&uint32(ua.BrowseResultMaskIsForward) != 0 && !ref.Inverse {
		out = append(out, 1)
	} else {
		out = append(out, 0)
	}
	t := ref.Target
	if t == nil {
		out = uabinary.AppendExpandedNodeID(out, ref.TargetID())
		// browse name, display name, class and type of a remote node are unknown
		r.Out = append(out, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0)
		return
	}
	out = uabinary.AppendNodeID(out, t.ID()) // an ExpandedNodeId without URI and server index
	if b.mask&uint32(ua.BrowseResultMaskBrowseName) != 0 {
		out = uabinary.AppendQualifiedName(out, t.BrowseName())
	} else {
		out = append(out, 0, 0, 0xff, 0xff, 0xff, 0xff)
	}
	if b.mask&uint32(ua.BrowseResultMaskDisplayName) != 0 {
		out = uabinary.AppendLocalizedText(out, t.DisplayName())
	} else {
		out = append(out, 0)
	}
	class := uint32(0)
	if b.mask&uint32(ua.BrowseResultMaskNodeClass) != 0 {
		class = uint32(t.Class())
	}
	out = append(out, byte(class), byte(class>>8), byte(class>>16), byte(class>>24))
	var def *addressspace.Node
	if b.mask&uint32(ua.BrowseResultMaskTypeDefinition) != 0 {
		def = t.TypeDefinition()
	}
	if def != nil {
		out = uabinary.AppendNodeID(out, def.ID())
	} else {
		out = append(out, 0, 0)
	}
	r.Out = out
}
