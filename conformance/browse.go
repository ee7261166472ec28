package conformance

import (
	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

func browseOf(node *ua.NodeID) *ua.BrowseDescription {
	return &ua.BrowseDescription{NodeID: node, BrowseDirection: ua.BrowseDirectionForward,
		ReferenceTypeID: ns0(id.HierarchicalReferences), IncludeSubtypes: true, ResultMask: uint32(ua.BrowseResultMaskAll)}
}

func browseRequest(limit uint32, nodes ...*ua.BrowseDescription) *ua.BrowseRequest {
	return &ua.BrowseRequest{View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}, RequestedMaxReferencesPerNode: limit, NodesToBrowse: nodes}
}

func (t *T) browse(s *probe.Session, b *ua.BrowseDescription) *ua.BrowseResult {
	rs := call[*ua.BrowseResponse](t, s, browseRequest(0, b))
	if len(rs.Results) != 1 {
		t.Fatalf("%d results for one node", len(rs.Results))
	}
	return rs.Results[0]
}

// all follows continuation points to the end.
func (t *T) all(s *probe.Session, b *ua.BrowseDescription, limit uint32) []*ua.ReferenceDescription {
	r := call[*ua.BrowseResponse](t, s, browseRequest(limit, b)).Results[0]
	refs := r.References
	for len(r.ContinuationPoint) > 0 {
		if limit > 0 && len(r.References) > int(limit) {
			t.Fatalf("%d references in one answer, at most %d were asked for", len(r.References), limit)
		}
		r = call[*ua.BrowseNextResponse](t, s, &ua.BrowseNextRequest{ContinuationPoints: [][]byte{r.ContinuationPoint}}).Results[0]
		t.Code(r.StatusCode, "BrowseNext", ua.StatusOK)
		refs = append(refs, r.References...)
	}
	return refs
}

var browseCases = []Case{
	{"View Basic", "Root holds Objects, Types and Views", "OPC 10000-5 §8.2", func(t *T) {
		s := t.Session()
		r := t.browse(s, browseOf(ns0(id.RootFolder)))
		t.Code(r.StatusCode, "browse", ua.StatusOK)
		want := map[uint32]bool{id.ObjectsFolder: true, id.TypesFolder: true, id.ViewsFolder: true}
		for _, ref := range r.References {
			if ref.NodeID.NodeID.Namespace() == 0 {
				delete(want, ref.NodeID.NodeID.IntID())
			}
			if !ref.IsForward || ref.NodeClass == 0 || ref.BrowseName.Name == "" || ref.DisplayName.Text == "" || ref.ReferenceTypeID.IntID() == 0 || ref.TypeDefinition.NodeID.IntID() == 0 {
				t.Errorf("incomplete reference %+v", ref)
			}
		}
		if len(want) > 0 {
			t.Errorf("missing %v", want)
		}
	}},
	{"View Basic", "directions", "OPC 10000-4 §5.9.2", func(t *T) {
		s := t.Session()
		b := browseOf(ns0(id.ObjectsFolder))
		count := func(d ua.BrowseDirection) (n int) {
			b.BrowseDirection = d
			r := t.browse(s, b)
			t.Code(r.StatusCode, "browse", ua.StatusOK)
			for _, ref := range r.References {
				if (d == ua.BrowseDirectionForward && !ref.IsForward) || (d == ua.BrowseDirectionInverse && ref.IsForward) {
					t.Errorf("direction %v found IsForward %v", d, ref.IsForward)
				}
			}
			return len(r.References)
		}
		f, i, both := count(ua.BrowseDirectionForward), count(ua.BrowseDirectionInverse), count(ua.BrowseDirectionBoth)
		if i < 1 || f+i != both {
			t.Errorf("%d forward, %d inverse, %d both", f, i, both)
		}
		b.BrowseDirection = 3
		t.Code(t.browse(s, b).StatusCode, "direction 3", ua.StatusBadBrowseDirectionInvalid)
	}},
	{"View Basic", "reference types and their subtypes", "OPC 10000-4 §5.9.2", func(t *T) {
		s := t.Session()
		b := browseOf(ns0(id.RootFolder))
		b.ReferenceTypeID, b.IncludeSubtypes = ns0(id.HierarchicalReferences), false
		if r := t.browse(s, b); len(r.References) != 0 {
			t.Errorf("%d references of exactly HierarchicalReferences", len(r.References))
		}
		b.ReferenceTypeID = ns0(id.Organizes)
		if r := t.browse(s, b); len(r.References) < 3 {
			t.Errorf("%d references of exactly Organizes", len(r.References))
		}
		b.ReferenceTypeID = ua.NewTwoByteNodeID(0)
		if r := t.browse(s, b); len(r.References) < 4 {
			t.Errorf("%d references of any type; HasTypeDefinition must be among them", len(r.References))
		}
		b.ReferenceTypeID = ns0(id.ObjectsFolder)
		t.Code(t.browse(s, b).StatusCode, "an object as type", ua.StatusBadReferenceTypeIDInvalid)
		b.ReferenceTypeID = longNodeID
		t.Code(t.browse(s, b).StatusCode, "an unknown type", ua.StatusBadReferenceTypeIDInvalid)
	}},
	{"View Basic", "node classes and result masks", "OPC 10000-4 §5.9.2", func(t *T) {
		s := t.Session()
		b := browseOf(ns0(id.Server))
		b.NodeClassMask = uint32(ua.NodeClassMethod)
		r := t.browse(s, b)
		for _, ref := range r.References {
			if ref.NodeClass != ua.NodeClassMethod {
				t.Errorf("%v is a %v", ref.NodeID, ref.NodeClass)
			}
		}
		b.NodeClassMask, b.ResultMask = 0, uint32(ua.BrowseResultMaskBrowseName)
		r = t.browse(s, b)
		if len(r.References) == 0 {
			t.Fatalf("Server has no references")
		}
		for _, ref := range r.References {
			if ref.BrowseName == nil || ref.BrowseName.Name == "" {
				t.Errorf("%v: the BrowseName was asked for", ref.NodeID)
			}
			if ref.NodeClass != 0 || (ref.DisplayName != nil && ref.DisplayName.Text != "") || ref.ReferenceTypeID.IntID() != 0 {
				t.Errorf("%v: only the BrowseName was asked for: %+v", ref.NodeID, ref)
			}
		}
	}},
	{"View Basic", "unknown nodes and views", "OPC 10000-4 §5.9.2", func(t *T) {
		s := t.Session()
		t.Code(t.browse(s, browseOf(longNodeID)).StatusCode, "an unknown node", ua.StatusBadNodeIDUnknown)
		rq := browseRequest(0, browseOf(ns0(id.RootFolder)))
		rq.View.ViewID = ns0(id.ObjectsFolder)
		_, err := s.Call(t, rq)
		t.Status(err, "a view that is no view", ua.StatusBadViewIDUnknown)
		refuse(t, s, browseRequest(0), ua.StatusBadNothingToDo)
		if n := t.limit(operationLimitBrowse, 0); n > 0 && n <= 20_000 {
			rq := browseRequest(1)
			for range n + 1 {
				rq.NodesToBrowse = append(rq.NodesToBrowse, browseOf(longNodeID))
			}
			refuse(t, s, rq, ua.StatusBadTooManyOperations)
		}
	}},
	{"View Basic", "everything below Root is reached and readable", "OPC 10000-5", func(t *T) {
		s := t.Session()
		seen := map[string]bool{"i=84": true}
		level := []*ua.NodeID{ns0(id.RootFolder)}
		for len(level) > 0 {
			var next []*ua.NodeID
			for len(level) > 0 {
				n := min(50, len(level))
				rq := browseRequest(0)
				for _, node := range level[:n] {
					rq.NodesToBrowse = append(rq.NodesToBrowse, browseOf(node))
				}
				rs := call[*ua.BrowseResponse](t, s, rq)
				for i, r := range rs.Results {
					refs := r.References
					if r.StatusCode == ua.StatusBadNoContinuationPoints || len(r.ContinuationPoint) > 0 {
						if len(r.ContinuationPoint) > 0 {
							call[*ua.BrowseNextResponse](t, s, &ua.BrowseNextRequest{ReleaseContinuationPoints: true, ContinuationPoints: [][]byte{r.ContinuationPoint}})
						}
						refs = t.all(s, rq.NodesToBrowse[i], 0)
					} else if r.StatusCode != ua.StatusOK {
						t.Errorf("%v: %v", rq.NodesToBrowse[i].NodeID, r.StatusCode)
					}
					for _, ref := range refs {
						if k := ref.NodeID.NodeID.String(); !seen[k] && ref.NodeID.ServerIndex == 0 && len(seen) < 20_000 {
							seen[k] = true
							next = append(next, ref.NodeID.NodeID)
						}
					}
				}
				level = level[n:]
			}
			level = next
		}
		if len(seen) < 500 {
			t.Errorf("only %d nodes", len(seen))
		}
		t.Logf("%d nodes", len(seen))
	}},
	{"View Minimum Continuation Point 01", "BrowseNext finds the rest", "OPC 10000-4 §5.9.3", func(t *T) {
		s := t.Session()
		node := ns0(id.Server)
		if t.Target.Nodes.WideFolder != "" {
			node = t.Node(t.Target.Nodes.WideFolder, "a wide folder")
		}
		want := len(t.all(s, browseOf(node), 0))
		for _, limit := range []uint32{3, 50} {
			seen := map[string]bool{}
			for _, ref := range t.all(s, browseOf(node), limit) {
				seen[ref.NodeID.NodeID.String()+ref.ReferenceTypeID.String()] = true
			}
			if len(seen) != want {
				t.Errorf("%d at a time found %d references, all at once %d", limit, len(seen), want)
			}
		}
	}},
	{"View Minimum Continuation Point 01", "points are released, and not used twice", "OPC 10000-4 §5.9.3", func(t *T) {
		s := t.Session()
		r := call[*ua.BrowseResponse](t, s, browseRequest(1, browseOf(ns0(id.Server)))).Results[0]
		if len(r.ContinuationPoint) == 0 {
			t.Fatalf("no continuation point after one reference of Server")
		}
		call[*ua.BrowseNextResponse](t, s, &ua.BrowseNextRequest{ReleaseContinuationPoints: true, ContinuationPoints: [][]byte{r.ContinuationPoint}})
		next := call[*ua.BrowseNextResponse](t, s, &ua.BrowseNextRequest{ContinuationPoints: [][]byte{r.ContinuationPoint, []byte("nonsense"), nil}})
		for _, n := range next.Results {
			t.Code(n.StatusCode, "a point that is not", ua.StatusBadContinuationPointInvalid)
		}
		refuse(t, s, &ua.BrowseNextRequest{}, ua.StatusBadNothingToDo)
	}},
	{"View Minimum Continuation Point 01", "points that nobody continues do not run out", "OPC 10000-4 §7.9", func(t *T) {
		s := t.Session()
		for range 200 {
			r := call[*ua.BrowseResponse](t, s, browseRequest(1, browseOf(ns0(id.Server)))).Results[0]
			t.Code(r.StatusCode, "browse", ua.StatusOK)
			if len(r.ContinuationPoint) == 0 {
				t.Fatalf("no continuation point")
			}
		}
	}},
	{"View RegisterNodes", "registered nodes can be used and given back", "OPC 10000-4 §5.9.5", func(t *T) {
		s := t.Session()
		rs := call[*ua.RegisterNodesResponse](t, s, &ua.RegisterNodesRequest{NodesToRegister: []*ua.NodeID{serverStatus, namespaceArray}})
		if len(rs.RegisteredNodeIDs) != 2 {
			t.Fatalf("%d ids for two nodes", len(rs.RegisteredNodeIDs))
		}
		dv := call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, rs.RegisteredNodeIDs...)).Results
		t.Code(dv[0].Status, "read a registered node", ua.StatusOK)
		t.Code(dv[1].Status, "read a registered node", ua.StatusOK)
		call[*ua.UnregisterNodesResponse](t, s, &ua.UnregisterNodesRequest{NodesToUnregister: rs.RegisteredNodeIDs})
		refuse(t, s, &ua.RegisterNodesRequest{}, ua.StatusBadNothingToDo)
		refuse(t, s, &ua.UnregisterNodesRequest{}, ua.StatusBadNothingToDo)
	}},
}

func path(start uint32, names ...string) *ua.BrowsePath {
	p := &ua.BrowsePath{StartingNode: ns0(start), RelativePath: &ua.RelativePath{}}
	for _, n := range names {
		p.RelativePath.Elements = append(p.RelativePath.Elements, &ua.RelativePathElement{
			ReferenceTypeID: ns0(id.HierarchicalReferences), IncludeSubtypes: true, TargetName: &ua.QualifiedName{Name: n}})
	}
	return p
}

var translateCases = []Case{
	{"View TranslateBrowsePath", "paths lead to their nodes", "OPC 10000-4 §5.9.4", func(t *T) {
		s := t.Session()
		rs := call[*ua.TranslateBrowsePathsToNodeIDsResponse](t, s, &ua.TranslateBrowsePathsToNodeIDsRequest{BrowsePaths: []*ua.BrowsePath{
			path(id.RootFolder, "Objects", "Server", "ServerStatus", "State"), path(id.Server, "NamespaceArray"),
		}})
		for i, want := range []uint32{id.Server_ServerStatus_State, id.Server_NamespaceArray} {
			r := rs.Results[i]
			if r.StatusCode != ua.StatusOK || len(r.Targets) != 1 || r.Targets[0].TargetID.NodeID.IntID() != want || r.Targets[0].RemainingPathIndex != 0xFFFFFFFF {
				t.Errorf("path %d: %v %+v", i, r.StatusCode, r.Targets)
			}
		}
	}},
	{"View TranslateBrowsePath", "paths that lead nowhere", "OPC 10000-4 §5.9.4", func(t *T) {
		s := t.Session()
		nameless := path(id.RootFolder, "Objects", "Server") // only the last name may be left out
		nameless.RelativePath.Elements[0].TargetName = &ua.QualifiedName{}
		unknown := path(id.RootFolder, "Objects")
		unknown.StartingNode = longNodeID
		rs := call[*ua.TranslateBrowsePathsToNodeIDsResponse](t, s, &ua.TranslateBrowsePathsToNodeIDsRequest{BrowsePaths: []*ua.BrowsePath{
			path(id.RootFolder, "Objects", "No such thing"), path(id.RootFolder), nameless, unknown,
		}})
		t.Code(rs.Results[0].StatusCode, "no match", ua.StatusBadNoMatch)
		t.Code(rs.Results[1].StatusCode, "no elements", ua.StatusBadNothingToDo)
		t.Code(rs.Results[2].StatusCode, "no name in the middle", ua.StatusBadBrowseNameInvalid)
		t.Code(rs.Results[3].StatusCode, "an unknown start", ua.StatusBadNodeIDUnknown)
		refuse(t, s, &ua.TranslateBrowsePathsToNodeIDsRequest{}, ua.StatusBadNothingToDo)
	}},
	{"View TranslateBrowsePath", "a path of thousands of elements costs little", "OPC 10000-4 §5.9.4", func(t *T) {
		s := t.Session()
		p := path(id.Server)
		for i := range 8000 {
			p.RelativePath.Elements = append(p.RelativePath.Elements, &ua.RelativePathElement{
				ReferenceTypeID: ns0(id.HasComponent), IsInverse: i%2 == 1, IncludeSubtypes: true,
				TargetName: &ua.QualifiedName{Name: []string{"ServerStatus", "Server"}[i%2]}})
		}
		rs := call[*ua.TranslateBrowsePathsToNodeIDsResponse](t, s, &ua.TranslateBrowsePathsToNodeIDsRequest{BrowsePaths: []*ua.BrowsePath{p}})
		t.Logf("%v", rs.Results[0].StatusCode)
	}},
}
