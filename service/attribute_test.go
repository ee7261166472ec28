package service

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

func readOf(h *harness, ids ...uabinary.NodeID) *ua.ReadRequest {
	rq := &ua.ReadRequest{RequestHeader: h.header(), TimestampsToReturn: ua.TimestampsToReturnBoth}
	for _, id := range ids {
		rq.NodesToRead = append(rq.NodesToRead, &ua.ReadValueID{NodeID: id.UA(), AttributeID: ua.AttributeIDValue})
	}
	return rq
}

func TestReadReturnsValuesInOrder(t *testing.T) {
	h := newHarness(t, Limits{})
	a := h.ns.Variable("a", 1.5).Node().ID()
	b := h.ns.Variable("b", "text").Node().ID()
	rs := h.must(readOf(h, a, uabinary.StringID(99, "missing"), b)).(*ua.ReadResponse)
	if len(rs.Results) != 3 {
		t.Fatalf("%d results", len(rs.Results))
	}
	if v := rs.Results[0].Value.Value(); v != 1.5 {
		t.Errorf("a = %v", v)
	}
	if rs.Results[1].Status != ua.StatusBadNodeIDUnknown {
		t.Errorf("missing node: %v", rs.Results[1].Status)
	}
	if v := rs.Results[2].Value.Value(); v != "text" {
		t.Errorf("b = %v", v)
	}
}

func TestReadRefusals(t *testing.T) {
	h := newHarness(t, Limits{MaxNodesPerRead: 2})
	id := h.ns.Variable("a", 1.5).Node().ID()
	for _, tc := range []struct {
		clause string
		edit   func(*ua.ReadRequest)
		want   ua.StatusCode
	}{
		{"§5.11.2.3 nothing to do", func(r *ua.ReadRequest) { r.NodesToRead = nil }, ua.StatusBadNothingToDo},
		{"§5.11.2.3 too many operations", func(r *ua.ReadRequest) { r.NodesToRead = append(r.NodesToRead, r.NodesToRead...) }, ua.StatusBadTooManyOperations},
		{"§5.11.2.3 negative maxAge", func(r *ua.ReadRequest) { r.MaxAge = -1 }, ua.StatusBadMaxAgeInvalid},
		{"§5.11.2.3 maxAge is no number", func(r *ua.ReadRequest) { r.MaxAge = math.NaN() }, ua.StatusBadMaxAgeInvalid},
		{"§5.11.2.3 timestampsToReturn", func(r *ua.ReadRequest) { r.TimestampsToReturn = 4 }, ua.StatusBadTimestampsToReturnInvalid},
	} {
		rq := readOf(h, id, id)
		tc.edit(rq)
		t.Log(tc.clause)
		h.refused(rq, tc.want)
	}
}

// X7: a request that ends early is refused at once and touches nothing.
func TestShortBodies(t *testing.T) {
	h := newHarness(t, Limits{})
	v := h.ns.Variable("a", 1.5, addressspace.Writable())
	dv := &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(2.5)}
	wv := &ua.WriteValue{NodeID: v.Node().ID().UA(), AttributeID: ua.AttributeIDValue, Value: dv}
	for _, rq := range []any{
		&ua.WriteRequest{RequestHeader: h.header(), NodesToWrite: []*ua.WriteValue{wv, wv}},
		readOf(h, v.Node().ID(), v.Node().ID()),
		&ua.BrowseRequest{RequestHeader: h.header(), View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}, NodesToBrowse: []*ua.BrowseDescription{{NodeID: ua.NewTwoByteNodeID(85), ReferenceTypeID: ua.NewTwoByteNodeID(0)}}},
	} {
		body := h.encode(rq)
		var d uabinary.Decoder
		d.Reset(body, nil)
		d.TypeID()
		d.RequestHeader()
		for n := d.Pos(); n < len(body); n++ {
			rs, code := h.send(body[:n:n], true)
			if f, ok := rs.(*ua.ServiceFault); code != ua.StatusBadDecodingError || !ok || f.ResponseHeader.RequestHandle == 0 {
				t.Fatalf("%T cut to %d of %d bytes: %v", rq, n, len(body), code)
			}
		}
	}
	if got := v.Value(); got != 1.5 {
		t.Errorf("a Write that was cut short set the value to %v", got)
	}
}

func TestWrite(t *testing.T) {
	h := newHarness(t, Limits{MaxNodesPerWrite: 3})
	v := h.ns.Variable("a", 1.5, addressspace.Writable())
	ro := h.ns.Variable("ro", 1.5)
	refuse := h.ns.Variable("refuse", 1.5, addressspace.Writable()).OnWrite(func(*addressspace.WriteCall) error { return ua.StatusBadOutOfRange })
	one := func(n *addressspace.Variable) *ua.WriteValue {
		return &ua.WriteValue{NodeID: n.Node().ID().UA(), AttributeID: ua.AttributeIDValue, Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(2.5)}}
	}
	rs := h.must(&ua.WriteRequest{RequestHeader: h.header(), NodesToWrite: []*ua.WriteValue{one(v), one(ro), one(refuse)}}).(*ua.WriteResponse)
	want := []ua.StatusCode{ua.StatusOK, ua.StatusBadNotWritable, ua.StatusBadOutOfRange}
	for i := range want {
		if rs.Results[i] != want[i] {
			t.Errorf("result %d: %v, want %v", i, rs.Results[i], want[i])
		}
	}
	if v.Value() != 2.5 || ro.Value() != 1.5 {
		t.Errorf("values %v, %v", v.Value(), ro.Value())
	}
	h.refused(&ua.WriteRequest{RequestHeader: h.header()}, ua.StatusBadNothingToDo)
	h.refused(&ua.WriteRequest{RequestHeader: h.header(), NodesToWrite: []*ua.WriteValue{one(v), one(v), one(v), one(v)}}, ua.StatusBadTooManyOperations)
}

// Callbacks of the host run on a goroutine of the request's own, and their
// panics end the operation, not the request.
func TestCallbacksDeferAndPanic(t *testing.T) {
	h := newHarness(t, Limits{})
	dyn := h.ns.Variable("dyn", 1.0).OnRead(func(*addressspace.Caller) (any, error) { return 3.0, nil })
	boom := h.ns.Variable("boom", 1.0, addressspace.Writable()).OnRead(func(*addressspace.Caller) (any, error) { panic("read") }).
		OnWrite(func(*addressspace.WriteCall) error { panic("write") })
	sick := h.ns.Variable("sick", 1.0).OnRead(func(*addressspace.Caller) (any, error) { return nil, errors.New("no") })

	if rs, _ := h.send(h.encode(readOf(h, dyn.Node().ID())), false); rs != "deferred" {
		t.Errorf("inline Read of a callback: %v", rs)
	}
	rs := h.must(readOf(h, dyn.Node().ID(), boom.Node().ID(), sick.Node().ID())).(*ua.ReadResponse)
	if rs.Results[0].Value.Value() != 3.0 || rs.Results[1].Status != ua.StatusBadInternalError || rs.Results[2].Status != ua.StatusBadInternalError {
		t.Errorf("results %+v %+v %+v", rs.Results[0], rs.Results[1], rs.Results[2])
	}
	w := &ua.WriteRequest{RequestHeader: h.header(), NodesToWrite: []*ua.WriteValue{{NodeID: boom.Node().ID().UA(), AttributeID: ua.AttributeIDValue,
		Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(2.5)}}}}
	if rs, _ := h.send(h.encode(w), false); rs != "deferred" {
		t.Errorf("inline Write of a callback: %v", rs)
	}
	if rs := h.must(w).(*ua.WriteResponse); rs.Results[0] != ua.StatusBadInternalError {
		t.Errorf("write result %v", rs.Results[0])
	}
}

// A response that the client does not take is given up while it is built.
func TestReadResponseTooLarge(t *testing.T) {
	h := newHarness(t, Limits{})
	id := h.ns.Variable("big", make([]float64, 1000)).Node().ID()
	h.limit = 20_000
	if _, code := h.call(readOf(h, id, id)); code != ua.StatusOK {
		t.Fatalf("two arrays: %v", code)
	}
	h.refused(readOf(h, id, id, id, id, id, id), ua.StatusBadResponseTooLarge)
}

func TestReadAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	h := newHarness(t, Limits{})
	var ids []uabinary.NodeID
	for i := range 100 {
		ids = append(ids, h.ns.Variable(string(rune('a'+i%26))+string(rune('a'+i/26)), float64(i), addressspace.NumericNodeID(uint32(5000+i))).Node().ID())
	}
	body := h.encode(readOf(h, ids...))
	token := uabinary.NodeIDOf(h.token)
	sess, _ := h.set.Sessions.Lookup(h.ch, token, time.Now())
	r := new(Request)
	run := func() {
		r.Channel, r.Session, r.Caller, r.Entry = h.ch, sess, sess.Caller(), h.table.Lookup(631)
		r.Body.Reset(body, nil)
		r.Body.TypeID()
		r.Header = r.Body.RequestHeader()
		r.Begin(0)
		if code := read(h.set, r); code != ua.StatusOK {
			t.Fatal(code)
		}
		r.Reset()
	}
	run()
	if n := testing.AllocsPerRun(100, run); n > 3 {
		t.Errorf("Read of 100 nodes: %v allocations, want at most 3", n)
	}
}
