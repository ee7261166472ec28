package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
)

// F8: fewer results than operations, none at all, or nothing in them.
func TestF8EmptyResults(t *testing.T) {
	node := ua.NewTwoByteNodeID(1)
	inRogue(t, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		r.on("Read", func(int, ua.Request) any { return &ua.ReadResponse{} })
		r.on("Write", func(int, ua.Request) any { return &ua.WriteResponse{Results: make([]ua.StatusCode, 3)} })
		r.on("Call", func(int, ua.Request) any { return &ua.CallResponse{} })
		r.on("Browse", func(int, ua.Request) any { return &ua.BrowseResponse{} })
		r.on("CreateMonitoredItems", func(int, ua.Request) any { return &ua.CreateMonitoredItemsResponse{} })
		r.on("DeleteSubscriptions", func(int, ua.Request) any { return &ua.DeleteSubscriptionsResponse{} })
		want := func(err error) {
			t.Helper()
			if !errors.Is(err, ua.StatusBadUnknownResponse) {
				t.Errorf("%v", err)
			}
		}
		_, err = s.ReadValue(r.ctx, node)
		want(err)
		_, err = s.ReadValues(r.ctx, node, node)
		want(err)
		want(s.WriteValue(r.ctx, node, 1.5))
		_, err = s.Call(r.ctx, node, node)
		want(err)
		for _, err := range s.Browse(r.ctx, Children(node)) {
			want(err)
		}
		_, err = s.Subscribe(r.ctx, SubscriptionOptions{}, Monitor{NodeID: node})
		want(err)
		sub, err := s.Subscribe(r.ctx, SubscriptionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want(sub.Close(r.ctx))
		r.on("Browse", func(int, ua.Request) any {
			return &ua.BrowseResponse{Results: []*ua.BrowseResult{{References: []*ua.ReferenceDescription{{}}}}}
		})
		for ref, err := range s.Browse(r.ctx, Children(node)) {
			if err == nil && ref.NodeID.NodeID == nil {
				t.Error("a reference to nothing")
			}
		}
		s.Close(r.ctx)
	})
}

// I3: answers of another type, empty ones, garbage; to each service.
func TestI3UnexpectedResponses(t *testing.T) {
	node := ua.NewTwoByteNodeID(1)
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 1)
		for name, answer := range map[string]any{
			"another type": &ua.CancelResponse{}, "nothing": raw{}, "half a type id": raw{1, 0}, "unknown type id": raw{1, 0, 0xff, 0xff, 0, 0},
			"a request": raw(encoded(t, &ua.ReadRequest{RequestHeader: &ua.RequestHeader{}})), "cut short": raw(encoded(t, &ua.ReadResponse{ResponseHeader: &ua.ResponseHeader{}}))[:10],
			"a good fault": &ua.ServiceFault{},
		} {
			for _, service := range []string{"Read", "Write", "Call", "Browse", "CreateSubscription", "CreateMonitoredItems", "DeleteSubscriptions", "TranslateBrowsePathsToNodeIDs"} {
				r.on(service, func(int, ua.Request) any { return answer })
			}
			check := func(what string, err error) {
				t.Helper()
				if err == nil || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, %s: %v", name, what, err)
				}
			}
			_, err := s.ReadValue(r.ctx, node)
			check("read", err)
			check("write", s.WriteValue(r.ctx, node, 1.5))
			_, err = s.Call(r.ctx, node, node)
			check("call", err)
			for _, err := range s.Browse(r.ctx, Children(node)) {
				check("browse", err)
			}
			_, err = s.Subscribe(r.ctx, SubscriptionOptions{})
			check("subscribe", err)
			_, err = subs[0].Monitor(r.ctx, Monitor{NodeID: node})
			check("monitor", err)
			_, err = s.Do(r.ctx, &ua.TranslateBrowsePathsToNodeIDsRequest{})
			check("do", err)
		}
		// Publish: the same, and messages without content.
		r.on("Publish", func(n int, rq ua.Request) any {
			switch n {
			case 1:
				return &ua.CancelResponse{}
			case 2:
				return raw{}
			case 3:
				return &ua.PublishResponse{}
			case 4:
				return &ua.PublishResponse{SubscriptionID: 1, NotificationMessage: &ua.NotificationMessage{SequenceNumber: 1, NotificationData: []*ua.ExtensionObject{
					nil, ua.NewExtensionObject(nil), ua.NewExtensionObject(&ua.DataChangeNotification{MonitoredItems: []*ua.MonitoredItemNotification{{ClientHandle: 77}, {ClientHandle: 1}}})}}}
			}
			return behaved{}
		})
		r.push(1, 1, nil)
		r.push(1, 1, nil)
		time.Sleep(5 * time.Minute)
		if n := r.asked("Publish"); n < 6 {
			t.Errorf("publishing stopped after %d requests", n)
		}
		if n := subs[0].Queued(); n != 1 { // the null value of item 1
			t.Errorf("%d notifications", n)
		}
		if st := s.State(); st.State != Online {
			t.Errorf("%+v", st)
		}
		s.Close(r.ctx)
	})
}

// X15b: a server that is hostile to those who look at it: endless pages, endless
// references, names that never end, loops in the hierarchy. Markup comes through
// as it is, for the user interface to escape.
func TestX15bRogueAddressSpace(t *testing.T) {
	root := ua.NewNumericNodeID(0, 85)
	page := func(next bool, refs ...*ua.ReferenceDescription) *ua.BrowseResult {
		b := &ua.BrowseResult{References: refs}
		if next {
			b.ContinuationPoint = []byte{1}
		}
		return b
	}
	ref := func(id uint32, name string) *ua.ReferenceDescription {
		return &ua.ReferenceDescription{NodeID: ua.NewExpandedNodeID(ua.NewNumericNodeID(1, id), "", 0), BrowseName: &ua.QualifiedName{Name: name},
			DisplayName: ua.NewLocalizedText(name), TypeDefinition: ua.NewExpandedNodeID(ua.NewTwoByteNodeID(0), "", 0), ReferenceTypeID: ua.NewTwoByteNodeID(35)}
	}
	inRogue(t, func(r *rogue) {
		o := r.opts()
		o.MaxReferences = 500
		s, err := Connect(r.ctx, plantURL, o)
		if err != nil {
			t.Fatal(err)
		}
		browse := func(first, next *ua.BrowseResult) (n int, err error) {
			r.on("Browse", func(int, ua.Request) any { return &ua.BrowseResponse{Results: []*ua.BrowseResult{first}} })
			r.on("BrowseNext", func(int, ua.Request) any { return &ua.BrowseNextResponse{Results: []*ua.BrowseResult{next}} })
			for _, e := range s.Browse(r.ctx, Children(root)) {
				if e != nil {
					return n, e
				}
				n++
			}
			return n, nil
		}
		if n, err := browse(page(true, ref(1, "a")), page(true)); n != 1 || err == nil || r.asked("BrowseNext") > 20 {
			t.Errorf("endless empty pages: %d, %v, %d", n, err, r.asked("BrowseNext"))
		}
		if n, err := browse(page(true, ref(1, "a")), page(true, ref(2, "b"))); n != 500 || !errors.Is(err, ua.StatusBadEncodingLimitsExceeded) {
			t.Errorf("endless references: %d, %v", n, err)
		}
		if n, err := browse(page(false, ref(1, strings.Repeat("x", 5000))), page(false)); n != 0 || !errors.Is(err, ua.StatusBadEncodingLimitsExceeded) {
			t.Errorf("long name: %d, %v", n, err)
		}
		r.on("Browse", func(int, ua.Request) any {
			return &ua.BrowseResponse{Results: []*ua.BrowseResult{page(false, ref(1, "<script>"), ref(2, "b"), &ua.ReferenceDescription{NodeID: ua.NewExpandedNodeID(root, "", 0), BrowseName: &ua.QualifiedName{}, DisplayName: &ua.LocalizedText{}, TypeDefinition: ua.NewExpandedNodeID(ua.NewTwoByteNodeID(0), "", 0), ReferenceTypeID: ua.NewTwoByteNodeID(35)})}}
		})
		n := 0
		for v, err := range s.Walk(r.ctx, root, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 && v.BrowseName.Name != "<script>" {
				t.Errorf("%+v", v.BrowseName)
			}
			n++
		}
		if n != 2 {
			t.Errorf("a hierarchy of loops: %d nodes", n)
		}
		id := uint32(10)
		r.on("Browse", func(int, ua.Request) any {
			id += 2
			return &ua.BrowseResponse{Results: []*ua.BrowseResult{page(false, ref(id, "a"), ref(id+1, "b"))}}
		})
		for _, e := range s.Walk(r.ctx, root, 0) {
			err = e
		}
		if !errors.Is(err, ua.StatusBadEncodingLimitsExceeded) {
			t.Errorf("an endless hierarchy: %v", err)
		}
		// Leaving early frees the continuation point.
		released := false
		r.on("Browse", func(int, ua.Request) any {
			return &ua.BrowseResponse{Results: []*ua.BrowseResult{page(true, ref(1, "a"), ref(2, "b"))}}
		})
		r.on("BrowseNext", func(_ int, rq ua.Request) any {
			released = rq.(*ua.BrowseNextRequest).ReleaseContinuationPoints
			return &ua.BrowseNextResponse{Results: []*ua.BrowseResult{{}}}
		})
		for range s.Browse(r.ctx, Children(root)) {
			break
		}
		if !released {
			t.Error("the continuation point was not released")
		}
		s.Close(r.ctx)
	})
}

// X17: limits are the client's own. A server that announces none, or more than
// sensible, gets requests of our size; one that lies about them gets halves.
func TestX17OperationLimits(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, err := Connect(r.ctx, plantURL, r.opts())
		if err != nil {
			t.Fatal(err)
		}
		most, asked := 0, 0
		r.on("Read", func(n int, rq ua.Request) any {
			q := rq.(*ua.ReadRequest)
			rs := &ua.ReadResponse{}
			if n == 1 { // the limits
				for range q.NodesToRead {
					rs.Results = append(rs.Results, &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(uint32(1<<32 - 1))})
				}
				return rs
			}
			asked = max(asked, len(q.NodesToRead))
			if len(q.NodesToRead) > 300 {
				return ua.StatusBadTooManyOperations
			}
			most = max(most, len(q.NodesToRead))
			for _, node := range q.NodesToRead {
				rs.Results = append(rs.Results, &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(node.NodeID.IntID())})
			}
			return rs
		})
		ids := make([]*ua.NodeID, 25_000)
		for i := range ids {
			ids[i] = ua.NewNumericNodeID(1, uint32(i))
		}
		vs, err := s.ReadValues(r.ctx, ids...)
		if err != nil || len(vs) != len(ids) {
			t.Fatal(len(vs), err)
		}
		for i, v := range vs {
			if v.Value.Value() != uint32(i) {
				t.Fatalf("%d is %v", i, v.Value.Value())
			}
		}
		if most < 100 || asked != maxOperations {
			t.Errorf("at most %d nodes in an accepted request, %d in any", most, asked)
		}
		s.Close(r.ctx)
	})
}
