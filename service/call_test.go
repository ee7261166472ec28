package service

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

func callOf(h *harness, n int, method uabinary.NodeID, args ...any) *ua.CallRequest {
	rq := &ua.CallRequest{RequestHeader: h.header()}
	m := &ua.CallMethodRequest{ObjectID: ua.NewNumericNodeID(0, id.ObjectsFolder), MethodID: method.UA()}
	for _, a := range args {
		m.InputArguments = append(m.InputArguments, ua.MustVariant(a))
	}
	for range n {
		rq.MethodsToCall = append(rq.MethodsToCall, m)
	}
	return rq
}

func argument(name string, dataType uint32) ua.Argument {
	return ua.Argument{Name: name, DataType: ua.NewNumericNodeID(0, dataType), ValueRank: -1, Description: ua.NewLocalizedText("")}
}

func TestCall(t *testing.T) {
	h := newHarness(t, Limits{MaxNodesPerMethodCall: 3})
	calls := 0
	add := h.ns.Method("Add", []ua.Argument{argument("a", id.Double), argument("b", id.Double)}, []ua.Argument{argument("sum", id.Double)},
		func(_ context.Context, c *addressspace.Call) ([]any, error) {
			calls++
			return []any{c.Arg(0).(float64) + c.Arg(1).(float64)}, nil
		}).ID()
	boom := h.ns.Method("Boom", nil, nil, func(context.Context, *addressspace.Call) ([]any, error) { panic("method") }).ID()

	r := h.must(callOf(h, 1, add, 1.0, 2.0)).(*ua.CallResponse).Results[0]
	if r.StatusCode != ua.StatusOK || len(r.OutputArguments) != 1 || r.OutputArguments[0].Value() != 3.0 {
		t.Errorf("Add: %+v", r)
	}
	for _, tc := range []struct {
		clause string
		rq     *ua.CallRequest
		want   ua.StatusCode
	}{
		{"§5.12.2.4 too few arguments", callOf(h, 1, add, 1.0), ua.StatusBadArgumentsMissing},
		{"§5.12.2.4 too many arguments", callOf(h, 1, add, 1.0, 2.0, 3.0), ua.StatusBadTooManyArguments},
		{"§5.12.2.4 wrong type", callOf(h, 1, add, 1.0, "x"), ua.StatusBadInvalidArgument},
		{"§5.12.2.4 no such method", callOf(h, 1, uabinary.StringID(9, "x")), ua.StatusBadMethodInvalid},
		{"a method that panics", callOf(h, 1, boom), ua.StatusBadInternalError},
	} {
		if r := h.must(tc.rq).(*ua.CallResponse).Results[0]; r.StatusCode != tc.want {
			t.Errorf("%s: %v, want %v", tc.clause, r.StatusCode, tc.want)
		}
	}
	// X10: an operation limit holds before anything runs.
	calls = 0
	h.refused(callOf(h, 4, add, 1.0, 2.0), ua.StatusBadTooManyOperations)
	h.refused(callOf(h, 0, add), ua.StatusBadNothingToDo)
	body := h.encode(callOf(h, 3, add, 1.0, 2.0))
	if _, code := h.send(body[:len(body)-1], true); code != ua.StatusBadDecodingError {
		t.Errorf("a Call that was cut short: %v", code)
	}
	if calls != 0 {
		t.Errorf("%d calls of refused requests", calls)
	}
}

// X10: what is left of a Call is not run once the session has closed.
func TestCallStopsWhenCancelled(t *testing.T) {
	h := newHarness(t, Limits{})
	ctx, cancel := context.WithCancelCause(context.Background())
	calls := 0
	m := h.ns.Method("M", nil, nil, func(context.Context, *addressspace.Call) ([]any, error) {
		if calls++; calls == 2 {
			cancel(uastatus.New(ua.StatusBadSessionClosed, "", nil))
		}
		return nil, nil
	}).ID()
	h.ctx = ctx
	h.refused(callOf(h, 5, m), ua.StatusBadSessionClosed)
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

type owner chan struct{}

func (o owner) Done() <-chan struct{} { return o }

func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		a, b := owner(make(chan struct{})), owner(make(chan struct{}))
		ctxA1, a1 := c.Start(context.Background(), a, 1)
		ctxA2, a2 := c.Start(context.Background(), a, 2)
		ctxB, b1 := c.Start(context.Background(), b, 1)
		if n := c.Cancel(a, 1); n != 1 || ctxA1.Err() == nil || ctxA2.Err() != nil || ctxB.Err() != nil {
			t.Fatalf("Cancel ended %d requests", n)
		}
		if code := uastatus.Code(context.Cause(ctxA1)); code != ua.StatusBadRequestCancelledByClient {
			t.Errorf("cause %v", code)
		}
		c.CancelOwner(a, ua.StatusBadSessionClosed)
		if code := uastatus.Code(context.Cause(ctxA2)); code != ua.StatusBadSessionClosed || ctxB.Err() != nil {
			t.Errorf("cause %v", code)
		}
		close(b)
		ctx, late := c.Start(context.Background(), b, 3)
		if ctx.Err() == nil {
			t.Error("a request started for an owner that had ended")
		}
		for _, r := range []*Running{a1, a2, b1, late} {
			r.End()
		}
		if c.Len() != 0 || len(c.running) != 0 {
			t.Errorf("%d requests left", c.Len())
		}
		time.Sleep(time.Second) // nothing of the contexts is left running in the bubble
	})
}
