package addressspace

import (
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// maxPathElements bounds the elements of a path for [Space.ResolvePath].
const maxPathElements = 100

// ResolvePath follows forward hierarchical references from a node by their
// BrowseNames and returns the first node that the whole path leads to. Errors:
// BadNodeIdUnknown, BadQueryTooComplex (more than 100 names), BadNoMatch.
func (s *Space) ResolvePath(start uabinary.NodeID, names ...uabinary.QualifiedName) (*Node, error) {
	n := s.Lookup(start)
	if n == nil {
		return nil, uastatus.New(ua.StatusBadNodeIDUnknown, "addressspace.ResolvePath", nil)
	}
	if len(names) > maxPathElements {
		return nil, uastatus.New(ua.StatusBadQueryTooComplex, "addressspace.ResolvePath", nil)
	}
	for _, name := range names {
		if n = n.Child(name); n == nil {
			return nil, uastatus.New(ua.StatusBadNoMatch, "addressspace.ResolvePath", nil)
		}
	}
	return n, nil
}
