package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// browsePage is how many references one answer is asked for.
const browsePage = 1000

// maxEmptyPages ends the browsing of a server that goes on without ever
// returning anything.
const maxEmptyPages = 10

// Browse yields the references of a node (OPC 10000-4 §5.9.2, Browse, and §5.9.3,
// BrowseNext), page by page as they are consumed; leaving the loop early frees
// the continuation point. An error ends it. What a server sends is bounded
// by Options.MaxReferences and MaxNameLength. Names are as the server sent them:
// whoever shows them must escape them.
func (s *Session) Browse(ctx context.Context, d *ua.BrowseDescription) iter.Seq2[*ua.ReferenceDescription, error] {
	return func(yield func(*ua.ReferenceDescription, error) bool) {
		if d == nil {
			yield(nil, broken(ua.StatusBadInvalidArgument, "browse without a description"))
			return
		}
		r, err := s.browse(ctx, d)
		total, empty := 0, 0
		for {
			if err != nil {
				yield(nil, fmt.Errorf("client: browse %v: %w", d.NodeID, err))
				return
			}
			if isBad(r.StatusCode) {
				yield(nil, fmt.Errorf("client: browse %v: %w", d.NodeID, r.StatusCode))
				return
			}
			more := len(r.ContinuationPoint) > 0
			for _, ref := range r.References {
				total++
				if err := s.checkReference(ref, total); err != nil {
					s.releasePoint(ctx, r.ContinuationPoint)
					yield(nil, fmt.Errorf("client: browse %v: %w", d.NodeID, err))
					return
				}
				if !yield(ref, nil) {
					s.releasePoint(ctx, r.ContinuationPoint)
					return
				}
			}
			if !more {
				return
			}
			if empty++; len(r.References) > 0 {
				empty = 0
			}
			if empty > maxEmptyPages {
				s.releasePoint(ctx, r.ContinuationPoint)
				err = broken(ua.StatusBadUnexpectedError, "%d pages without references", empty)
				continue
			}
			r, err = s.browseNext(ctx, r.ContinuationPoint, false)
		}
	}
}

func (s *Session) checkReference(ref *ua.ReferenceDescription, total int) error {
	switch most := s.opts.MaxNameLength; {
	case ref == nil || ref.NodeID == nil || ref.NodeID.NodeID == nil:
		return unknownResponse("a reference without a node")
	case total > s.opts.MaxReferences:
		return broken(ua.StatusBadEncodingLimitsExceeded, "more than %d references", s.opts.MaxReferences)
	case ref.BrowseName != nil && len(ref.BrowseName.Name) > most, ref.DisplayName != nil && len(ref.DisplayName.Text) > most:
		return broken(ua.StatusBadEncodingLimitsExceeded, "a name of more than %d bytes", most)
	}
	return nil
}

func (s *Session) browse(ctx context.Context, d *ua.BrowseDescription) (*ua.BrowseResult, error) {
	rq := &ua.BrowseRequest{View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}, RequestedMaxReferencesPerNode: browsePage, NodesToBrowse: []*ua.BrowseDescription{d}}
	rs, err := call[*ua.BrowseResponse](ctx, s, rq)
	if err != nil {
		return nil, err
	}
	return oneResult(rq, rs.Results)
}

func (s *Session) browseNext(ctx context.Context, point []byte, release bool) (*ua.BrowseResult, error) {
	rq := &ua.BrowseNextRequest{ReleaseContinuationPoints: release, ContinuationPoints: [][]byte{point}}
	rs, err := call[*ua.BrowseNextResponse](ctx, s, rq)
	if err != nil || release {
		return nil, err
	}
	return oneResult(rq, rs.Results)
}

func oneResult(rq any, rs []*ua.BrowseResult) (*ua.BrowseResult, error) {
	if err := results(rq, rs, 1); err != nil {
		return nil, err
	}
	if rs[0] == nil {
		return nil, unknownResponse("no result")
	}
	return rs[0], nil
}

// releasePoint frees a continuation point, also when the loop was left because
// ctx has ended.
func (s *Session) releasePoint(ctx context.Context, point []byte) {
	if len(point) == 0 {
		return
	}
	ctx, cancel := s.deadline(context.WithoutCancel(ctx))
	defer cancel()
	if _, err := s.browseNext(ctx, point, true); err != nil {
		s.log.Debug("session: continuation point not released", "error", err)
	}
}

// Children describes how to browse the hierarchy below a node.
func Children(node *ua.NodeID) *ua.BrowseDescription {
	return &ua.BrowseDescription{NodeID: node, BrowseDirection: ua.BrowseDirectionForward,
		ReferenceTypeID: ua.NewNumericNodeID(0, id.HierarchicalReferences), IncludeSubtypes: true, ResultMask: uint32(ua.BrowseResultMaskAll)}
}

// Visit is a node that Walk has come to.
type Visit struct {
	*ua.ReferenceDescription
	// Parent whose reference led here first.
	Parent *ua.NodeID
	// Depth below the start, from 1.
	Depth int
}

// Walk yields the nodes below a node, each one once however many ways, or
// loops, lead to it, nearest first. maxDepth 0 is no bound; the number of nodes is
// bounded by Options.MaxReferences.
func (s *Session) Walk(ctx context.Context, start *ua.NodeID, maxDepth int) iter.Seq2[Visit, error] {
	return func(yield func(Visit, error) bool) {
		type place struct {
			id    *ua.NodeID
			depth int
		}
		seen := map[string]bool{start.String(): true}
		for todo := []place{{start, 0}}; len(todo) > 0; todo = todo[1:] {
			at := todo[0]
			if maxDepth > 0 && at.depth >= maxDepth {
				return
			}
			for ref, err := range s.Browse(ctx, Children(at.id)) {
				if err != nil {
					yield(Visit{}, err)
					return
				}
				if ref.NodeID.ServerIndex != 0 { // of another server
					continue
				}
				node := ref.NodeID.NodeID
				if key := node.String(); seen[key] {
					continue
				} else if seen[key] = true; len(seen) > s.opts.MaxReferences {
					yield(Visit{}, broken(ua.StatusBadEncodingLimitsExceeded, "more than %d nodes", s.opts.MaxReferences))
					return
				}
				if !yield(Visit{ReferenceDescription: ref, Parent: at.id, Depth: at.depth + 1}, nil) {
					return
				}
				todo = append(todo, place{node, at.depth + 1})
			}
		}
	}
}
