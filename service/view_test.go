package service

import (
	"fmt"
	"slices"
	"testing"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

func browseOf(h *harness, limit uint32, nodes ...*ua.BrowseDescription) *ua.BrowseRequest {
	return &ua.BrowseRequest{RequestHeader: h.header(), View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}, RequestedMaxReferencesPerNode: limit, NodesToBrowse: nodes}
}

func children(n uabinary.NodeID) *ua.BrowseDescription {
	return &ua.BrowseDescription{NodeID: n.UA(), BrowseDirection: ua.BrowseDirectionForward, ReferenceTypeID: ua.NewNumericNodeID(0, id.HierarchicalReferences),
		IncludeSubtypes: true, ResultMask: uint32(ua.BrowseResultMaskAll)}
}

// wide makes a folder with n variables and returns its id.
func wide(h *harness, n int) uabinary.NodeID {
	f := h.ns.Folder("wide")
	for i := range n {
		h.ns.Variable(fmt.Sprintf("wide.v%04d", i), int32(i))
	}
	return f.ID()
}

func TestBrowse(t *testing.T) {
	h := newHarness(t, Limits{})
	folder := wide(h, 3)
	rs := h.must(browseOf(h, 0, children(folder))).(*ua.BrowseResponse)
	r := rs.Results[0]
	if r.StatusCode != ua.StatusOK || len(r.References) != 3 || r.ContinuationPoint != nil {
		t.Fatalf("%+v", r)
	}
	ref := r.References[0]
	if ref.BrowseName.Name != "v0000" || ref.DisplayName.Text != "v0000" || !ref.IsForward || ref.NodeClass != ua.NodeClassVariable ||
		ref.TypeDefinition.NodeID.IntID() != id.BaseDataVariableType || ref.NodeID.NodeID.StringID() != "wide.v0000" {
		t.Errorf("reference %+v %+v %+v", ref, ref.NodeID.NodeID, ref.TypeDefinition.NodeID)
	}
}

func TestBrowseFilters(t *testing.T) {
	h := newHarness(t, Limits{})
	v := h.ns.Variable("wide.v", 1.0, addressspace.Property("Unit", "K"))
	folder := h.ns.Node("wide").ID()
	for _, tc := range []struct {
		clause string
		edit   func(*ua.BrowseDescription)
		want   int
	}{
		{"§5.9.2.2 inverse: the folder", func(d *ua.BrowseDescription) { d.BrowseDirection = ua.BrowseDirectionInverse }, 1},
		{"§5.9.2.2 forward: the property", func(d *ua.BrowseDescription) {}, 1},
		{"§5.9.2.2 both", func(d *ua.BrowseDescription) { d.BrowseDirection = ua.BrowseDirectionBoth }, 2},
		{"§5.9.2.2 every type of reference", func(d *ua.BrowseDescription) { d.ReferenceTypeID = ua.NewTwoByteNodeID(0) }, 2},
		{"§5.9.2.2 without subtypes", func(d *ua.BrowseDescription) { d.IncludeSubtypes = false }, 0},
		{"§5.9.2.2 exact type", func(d *ua.BrowseDescription) {
			d.IncludeSubtypes, d.ReferenceTypeID = false, ua.NewNumericNodeID(0, id.HasProperty)
		}, 1},
		{"§5.9.2.2 node class that is not there", func(d *ua.BrowseDescription) { d.NodeClassMask = uint32(ua.NodeClassObject) }, 0},
		{"§5.9.2.2 node class that is", func(d *ua.BrowseDescription) {
			d.NodeClassMask = uint32(ua.NodeClassVariable | ua.NodeClassMethod)
		}, 1},
	} {
		d := children(v.Node().ID())
		tc.edit(d)
		rs := h.must(browseOf(h, 0, d)).(*ua.BrowseResponse)
		if n := len(rs.Results[0].References); n != tc.want {
			t.Errorf("%s: %d references, want %d", tc.clause, n, tc.want)
		}
	}
	d := children(folder)
	d.ResultMask = uint32(ua.BrowseResultMaskBrowseName)
	ref := h.must(browseOf(h, 0, d)).(*ua.BrowseResponse).Results[0].References[0]
	if ref.BrowseName.Name != "v" || ref.DisplayName.Text != "" || ref.IsForward || ref.NodeClass != 0 || ref.ReferenceTypeID.IntID() != 0 || ref.TypeDefinition.NodeID.IntID() != 0 {
		t.Errorf("§5.9.2.2 resultMask BrowseName: %+v", ref)
	}
}

func TestBrowseRefusals(t *testing.T) {
	h := newHarness(t, Limits{MaxNodesPerBrowse: 2})
	folder := wide(h, 1)
	h.refused(browseOf(h, 0), ua.StatusBadNothingToDo)
	h.refused(browseOf(h, 0, children(folder), children(folder), children(folder)), ua.StatusBadTooManyOperations)
	view := browseOf(h, 0, children(folder))
	view.View.ViewID = ua.NewStringNodeID(9, "no view")
	h.refused(view, ua.StatusBadViewIDUnknown)
	for _, tc := range []struct {
		clause string
		edit   func(*ua.BrowseDescription)
		want   ua.StatusCode
	}{
		{"§5.9.2.4 node", func(d *ua.BrowseDescription) { d.NodeID = ua.NewStringNodeID(9, "x") }, ua.StatusBadNodeIDUnknown},
		{"§5.9.2.4 direction", func(d *ua.BrowseDescription) { d.BrowseDirection = 3 }, ua.StatusBadBrowseDirectionInvalid},
		{"§5.9.2.4 unknown reference type", func(d *ua.BrowseDescription) { d.ReferenceTypeID = ua.NewStringNodeID(9, "x") }, ua.StatusBadReferenceTypeIDInvalid},
		{"§5.9.2.4 no reference type", func(d *ua.BrowseDescription) { d.ReferenceTypeID = ua.NewNumericNodeID(0, id.ObjectsFolder) }, ua.StatusBadReferenceTypeIDInvalid},
	} {
		d := children(folder)
		tc.edit(d)
		rs := h.must(browseOf(h, 0, d)).(*ua.BrowseResponse)
		if code := rs.Results[0].StatusCode; code != tc.want {
			t.Errorf("%s: %v, want %v", tc.clause, code, tc.want)
		}
	}
}

// F7: all children come, whatever the number of calls.
func TestBrowseNext(t *testing.T) {
	h := newHarness(t, Limits{})
	folder := wide(h, 1000)
	r := h.must(browseOf(h, 100, children(folder))).(*ua.BrowseResponse).Results[0]
	var names []string
	rounds := 0
	for {
		for _, ref := range r.References {
			names = append(names, ref.BrowseName.Name)
		}
		rounds++
		if r.ContinuationPoint == nil {
			break
		}
		used := r.ContinuationPoint
		next := func() *ua.BrowseResult {
			return h.must(&ua.BrowseNextRequest{RequestHeader: h.header(), ContinuationPoints: [][]byte{used}}).(*ua.BrowseNextResponse).Results[0]
		}
		r = next()
		if again := next(); again.StatusCode != ua.StatusBadContinuationPointInvalid {
			t.Fatalf("a continuation point used twice: %v", again.StatusCode)
		}
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != 1000 || rounds != 10 {
		t.Errorf("%d names in %d rounds", len(names), rounds)
	}
}

func TestBrowseNextReleases(t *testing.T) {
	h := newHarness(t, Limits{})
	folder := wide(h, 3)
	cp := h.must(browseOf(h, 1, children(folder))).(*ua.BrowseResponse).Results[0].ContinuationPoint
	rq := &ua.BrowseNextRequest{RequestHeader: h.header(), ReleaseContinuationPoints: true, ContinuationPoints: [][]byte{cp, []byte("foreign")}}
	rs := h.must(rq).(*ua.BrowseNextResponse).Results
	if rs[0].StatusCode != ua.StatusOK || len(rs[0].References) != 0 || rs[1].StatusCode != ua.StatusBadContinuationPointInvalid {
		t.Errorf("%+v %+v", rs[0], rs[1])
	}
	rs = h.must(&ua.BrowseNextRequest{RequestHeader: h.header(), ContinuationPoints: [][]byte{cp}}).(*ua.BrowseNextResponse).Results
	if rs[0].StatusCode != ua.StatusBadContinuationPointInvalid {
		t.Errorf("released point: %v", rs[0].StatusCode)
	}
	h.refused(&ua.BrowseNextRequest{RequestHeader: h.header()}, ua.StatusBadNothingToDo)
}

// X25, F1: points that are never continued are freed, the oldest first; points
// of one request never push out each other; all die with the session.
func TestContinuationPointExhaustion(t *testing.T) {
	h := newHarness(t, Limits{MaxBrowseContinuationPoints: 5})
	folder := wide(h, 3)
	var points [][]byte
	for range 100 {
		r := h.must(browseOf(h, 1, children(folder))).(*ua.BrowseResponse).Results[0]
		if r.StatusCode != ua.StatusOK || r.ContinuationPoint == nil {
			t.Fatalf("%+v", r)
		}
		points = append(points, r.ContinuationPoint)
	}
	if n := len(h.set.continuations.of[h.sess]); n != 5 {
		t.Errorf("%d points kept", n)
	}
	rs := h.must(&ua.BrowseNextRequest{RequestHeader: h.header(), ContinuationPoints: [][]byte{points[0], points[99]}}).(*ua.BrowseNextResponse).Results
	if rs[0].StatusCode != ua.StatusBadContinuationPointInvalid || rs[1].StatusCode != ua.StatusOK {
		t.Errorf("oldest %v, newest %v", rs[0].StatusCode, rs[1].StatusCode)
	}
	var many []*ua.BrowseDescription
	for range 7 {
		many = append(many, children(folder))
	}
	refused := 0
	for _, r := range h.must(browseOf(h, 1, many...)).(*ua.BrowseResponse).Results {
		if r.StatusCode == ua.StatusBadNoContinuationPoints {
			refused++
		}
	}
	if refused != 2 {
		t.Errorf("%d of 7 results without a point, want 2", refused)
	}
	h.must(&ua.CloseSessionRequest{RequestHeader: h.header()})
	if n := len(h.set.continuations.of); n != 0 {
		t.Errorf("%d sessions with points after CloseSession", n)
	}
}

// X12: a node that is deleted while it is browsed.
func TestBrowseNextOfDeletedNode(t *testing.T) {
	h := newHarness(t, Limits{})
	folder := wide(h, 3)
	cp := h.must(browseOf(h, 1, children(folder))).(*ua.BrowseResponse).Results[0].ContinuationPoint
	h.ns.Delete("wide")
	rs := h.must(&ua.BrowseNextRequest{RequestHeader: h.header(), ContinuationPoints: [][]byte{cp}}).(*ua.BrowseNextResponse).Results
	if rs[0].StatusCode != ua.StatusBadNodeIDUnknown {
		t.Errorf("%v", rs[0].StatusCode)
	}
}

// A response that would be too large is cut by a continuation point instead.
func TestBrowseFitsTheResponse(t *testing.T) {
	h := newHarness(t, Limits{})
	folder := wide(h, 1000)
	h.limit = 16_384
	r := h.must(browseOf(h, 0, children(folder))).(*ua.BrowseResponse).Results[0]
	n := len(r.References)
	for r.ContinuationPoint != nil {
		r = h.must(&ua.BrowseNextRequest{RequestHeader: h.header(), ContinuationPoints: [][]byte{r.ContinuationPoint}}).(*ua.BrowseNextResponse).Results[0]
		n += len(r.References)
	}
	if n != 1000 {
		t.Errorf("%d references", n)
	}
}

func translateOf(h *harness, start *ua.NodeID, elements ...*ua.RelativePathElement) *ua.TranslateBrowsePathsToNodeIDsRequest {
	return &ua.TranslateBrowsePathsToNodeIDsRequest{RequestHeader: h.header(),
		BrowsePaths: []*ua.BrowsePath{{StartingNode: start, RelativePath: &ua.RelativePath{Elements: elements}}}}
}

func down(ns uint16, name string) *ua.RelativePathElement {
	return &ua.RelativePathElement{ReferenceTypeID: ua.NewNumericNodeID(0, id.HierarchicalReferences), IncludeSubtypes: true, TargetName: &ua.QualifiedName{NamespaceIndex: ns, Name: name}}
}

func TestTranslateBrowsePaths(t *testing.T) {
	h := newHarness(t, Limits{MaxRelativePathElements: 10, MaxPathTargets: 5})
	wide(h, 10)
	ns := h.ns.Index()
	objects := ua.NewNumericNodeID(0, id.ObjectsFolder)
	up := &ua.RelativePathElement{ReferenceTypeID: ua.NewNumericNodeID(0, id.HierarchicalReferences), IncludeSubtypes: true, IsInverse: true, TargetName: &ua.QualifiedName{Name: "Objects"}}
	var zigzag []*ua.RelativePathElement // X6
	for range 5 {
		zigzag = append(zigzag, down(ns, "wide"), up)
	}
	for _, tc := range []struct {
		clause   string
		start    *ua.NodeID
		elements []*ua.RelativePathElement
		want     ua.StatusCode
		targets  int
	}{
		{"§5.9.4 found", objects, []*ua.RelativePathElement{down(ns, "wide"), down(ns, "v0003")}, ua.StatusOK, 1},
		{"§5.9.4 no match", objects, []*ua.RelativePathElement{down(ns, "wide"), down(ns, "v9")}, ua.StatusBadNoMatch, 0},
		{"§5.9.4 start unknown", ua.NewStringNodeID(9, "x"), []*ua.RelativePathElement{down(ns, "wide")}, ua.StatusBadNodeIDUnknown, 0},
		{"§5.9.4 nothing to do", objects, nil, ua.StatusBadNothingToDo, 0},
		{"§5.9.4 empty name inside", objects, []*ua.RelativePathElement{down(0, ""), down(ns, "v0003")}, ua.StatusBadBrowseNameInvalid, 0},
		{"§5.9.4 empty name at the end", ua.NewNumericNodeID(0, id.RootFolder), []*ua.RelativePathElement{down(0, "")}, ua.StatusOK, 3},
		{"§5.9.4 too many matches", objects, []*ua.RelativePathElement{down(ns, "wide"), down(0, "")}, ua.StatusBadTooManyMatches, 0},
		{"X6 up and down again", objects, zigzag, ua.StatusOK, 1},
		{"X6 too long", objects, append(zigzag, down(ns, "wide")), ua.StatusBadQueryTooComplex, 0},
	} {
		r := h.must(translateOf(h, tc.start, tc.elements...)).(*ua.TranslateBrowsePathsToNodeIDsResponse).Results[0]
		if r.StatusCode != tc.want || len(r.Targets) != tc.targets {
			t.Errorf("%s: %v and %d targets, want %v and %d", tc.clause, r.StatusCode, len(r.Targets), tc.want, tc.targets)
		}
	}
	h.refused(&ua.TranslateBrowsePathsToNodeIDsRequest{RequestHeader: h.header()}, ua.StatusBadNothingToDo)
}

// X6: the work of one request is bounded over all its paths.
func TestTranslateStepsAreBounded(t *testing.T) {
	h := newHarness(t, Limits{MaxPathSteps: 1000})
	wide(h, 100)
	rq := translateOf(h, ua.NewNumericNodeID(0, id.ObjectsFolder), down(h.ns.Index(), "wide"), down(h.ns.Index(), "v0001"))
	for range 50 {
		rq.BrowsePaths = append(rq.BrowsePaths, rq.BrowsePaths[0])
	}
	rs := h.must(rq).(*ua.TranslateBrowsePathsToNodeIDsResponse).Results
	if rs[0].StatusCode != ua.StatusOK || rs[50].StatusCode != ua.StatusBadQueryTooComplex {
		t.Errorf("first %v, last %v", rs[0].StatusCode, rs[50].StatusCode)
	}
}

func TestRegisterNodes(t *testing.T) {
	h := newHarness(t, Limits{MaxNodesPerRegisterNodes: 2})
	ids := []*ua.NodeID{ua.NewStringNodeID(3, "anything"), ua.NewNumericNodeID(0, 2258)}
	rs := h.must(&ua.RegisterNodesRequest{RequestHeader: h.header(), NodesToRegister: ids}).(*ua.RegisterNodesResponse)
	if len(rs.RegisteredNodeIDs) != 2 || rs.RegisteredNodeIDs[0].StringID() != "anything" {
		t.Errorf("%v", rs.RegisteredNodeIDs)
	}
	h.must(&ua.UnregisterNodesRequest{RequestHeader: h.header(), NodesToUnregister: ids})
	h.refused(&ua.RegisterNodesRequest{RequestHeader: h.header()}, ua.StatusBadNothingToDo)
	h.refused(&ua.UnregisterNodesRequest{RequestHeader: h.header(), NodesToUnregister: append(ids, ids...)}, ua.StatusBadTooManyOperations)
}
