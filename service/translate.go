package service

import (
	"bytes"
	"math"
	"slices"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

const (
	minBrowsePath          = 2 + 4
	minRelativePathElement = 2 + 1 + 1 + 6
)

// pathElement is one RelativePathElement, OPC 10000-4 §7.31.
type pathElement struct {
	refType  uabinary.NodeID
	inverse  bool
	subtypes bool
	name     uabinary.QualifiedName
}

// translateBrowsePaths is the TranslateBrowsePathsToNodeIds service, OPC
// 10000-4 §5.9.4. A path is walked breadth first over sets of nodes, so that a
// path that runs up and down between two nodes costs its length and not a power
// of it; the references looked at are counted over the whole request.
func translateBrowsePaths(s *Set, r *Request) ua.StatusCode {
	n, code := r.operations(minBrowsePath, s.limits.Load().MaxNodesPerTranslateBrowsePathsToNodeIDs)
	if code != ua.StatusOK {
		return code
	}
	w := walk{space: s.Space, limits: s.limits.Load()}
	var elements []pathElement
	r.putCount(n)
	for range n {
		start := r.Body.NodeID()
		count := r.Body.ArrayLen(minRelativePathElement)
		elements = elements[:0]
		for range count {
			e := pathElement{refType: r.Body.NodeID(), inverse: r.Body.Bool(), subtypes: r.Body.Bool(), name: r.Body.QualifiedName()}
			if r.Body.Err() != nil {
				break
			}
			// one more than allowed is enough to know; the rest is only skipped
			if most := s.limits.Load().MaxRelativePathElements; most == 0 || len(elements) <= most {
				elements = append(elements, e)
			}
		}
		if code := r.decoded(); code != ua.StatusOK {
			return code
		}
		code := w.path(start, elements)
		r.putStatus(code)
		if Failed(code) || len(w.found) == 0 {
			r.putCount(0)
		} else {
			r.putCount(len(w.found))
			for _, node := range w.found {
				r.Out = uabinary.AppendNodeID(r.Out, node.ID())
				r.putCount(math.MaxUint32) // the whole path was followed
			}
		}
		if r.Full() {
			return ua.StatusBadResponseTooLarge
		}
	}
	r.noDiagnostics()
	return ua.StatusOK
}

// A walk follows relative paths and bounds the work.
type walk struct {
	space  *addressspace.Space
	limits *Limits
	steps  int // references looked at so far
	found  []*addressspace.Node
	next   []*addressspace.Node
}

// path leaves the targets of one path in w.found.
func (w *walk) path(start uabinary.NodeID, elements []pathElement) ua.StatusCode {
	w.found = w.found[:0]
	first := w.space.Lookup(start)
	switch {
	case first == nil && start.IsNull():
		return ua.StatusBadNodeIDInvalid
	case first == nil:
		return ua.StatusBadNodeIDUnknown
	case len(elements) == 0:
		return ua.StatusBadNothingToDo
	case w.limits.MaxRelativePathElements > 0 && len(elements) > w.limits.MaxRelativePathElements:
		return ua.StatusBadQueryTooComplex
	}
	for i := range elements[:len(elements)-1] {
		if len(elements[i].name.Name) == 0 { // only the last may be empty
			return ua.StatusBadBrowseNameInvalid
		}
	}
	w.found = append(w.found, first)
	for i := range elements {
		if code := w.follow(&elements[i]); code != ua.StatusOK {
			w.found = w.found[:0]
			return code
		}
		if len(w.found) == 0 {
			return ua.StatusBadNoMatch
		}
	}
	return ua.StatusOK
}

// follow replaces the nodes in w.found by those one element leads to.
func (w *walk) follow(e *pathElement) ua.StatusCode {
	var refType *addressspace.Node
	if !e.refType.IsNull() {
		refType = w.space.Lookup(e.refType)
		if refType == nil || refType.Class() != ua.NodeClassReferenceType {
			w.found = w.found[:0]
			return ua.StatusOK // nothing can match
		}
	}
	w.next = w.next[:0]
	for _, node := range w.found {
		refs := node.References()
		w.steps += len(refs) + 1
		if w.limits.MaxPathSteps > 0 && w.steps > w.limits.MaxPathSteps {
			return ua.StatusBadQueryTooComplex
		}
		for i := range refs {
			ref := &refs[i]
			if ref.Inverse != e.inverse || ref.Target == nil {
				continue
			}
			if len(e.name.Name) != 0 {
				if name := ref.Target.BrowseName(); name.Namespace != e.name.Namespace || !bytes.Equal(name.Name, e.name.Name) {
					continue
				}
			}
			if refType != nil && ref.Type != refType && !(e.subtypes && addressspace.SubtypeOf(ref.Type, refType)) {
				continue
			}
			w.next = append(w.next, ref.Target)
		}
	}
	w.found, w.next = w.next, w.found
	w.unique()
	if w.limits.MaxPathTargets > 0 && len(w.found) > w.limits.MaxPathTargets {
		return ua.StatusBadTooManyMatches
	}
	return ua.StatusOK
}

// unique drops nodes reached twice, keeping the order.
func (w *walk) unique() {
	if len(w.found) <= 8 {
		out := w.found[:0]
		for _, n := range w.found {
			if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
		w.found = out
		return
	}
	seen := make(map[*addressspace.Node]struct{}, len(w.found))
	out := w.found[:0]
	for _, n := range w.found {
		if _, ok := seen[n]; !ok {
			seen[n] = struct{}{}
			out = append(out, n)
		}
	}
	w.found = out
}
