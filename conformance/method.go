package conformance

import (
	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

func (t *T) callMethod(s *probe.Session, m *ua.CallMethodRequest) *ua.CallMethodResult {
	rs := call[*ua.CallResponse](t, s, &ua.CallRequest{MethodsToCall: []*ua.CallMethodRequest{m}})
	if len(rs.Results) != 1 {
		t.Fatalf("%d results for one method", len(rs.Results))
	}
	return rs.Results[0]
}

var methodCases = []Case{
	{"Method Call", "a method without arguments", "OPC 10000-4 §5.12.2", func(t *T) {
		s := t.Session()
		o, m := t.Node(t.Target.Nodes.MethodObject, "the object of methods"), t.Node(t.Target.Nodes.MethodNone, "a method without arguments")
		t.Code(t.callMethod(s, &ua.CallMethodRequest{ObjectID: o, MethodID: m}).StatusCode, "call", ua.StatusOK)
		r := t.callMethod(s, &ua.CallMethodRequest{ObjectID: o, MethodID: m, InputArguments: []*ua.Variant{ua.MustVariant(int32(1))}})
		t.Code(r.StatusCode, "one argument too many", ua.StatusBadTooManyArguments)
	}},
	{"Method Call", "missing and mistyped arguments", "OPC 10000-4 §5.12.2", func(t *T) {
		s := t.Session()
		o, m := t.Node(t.Target.Nodes.MethodObject, "the object of methods"), t.Node(t.Target.Nodes.MethodArgs, "a method with arguments")
		t.Code(t.callMethod(s, &ua.CallMethodRequest{ObjectID: o, MethodID: m}).StatusCode, "no arguments", ua.StatusBadArgumentsMissing)
		var wrong []*ua.Variant
		for range t.Target.Nodes.MethodArgsCount {
			wrong = append(wrong, ua.MustVariant([]*ua.LocalizedText{ua.NewLocalizedText("wrong")}))
		}
		r := t.callMethod(s, &ua.CallMethodRequest{ObjectID: o, MethodID: m, InputArguments: wrong})
		t.Code(r.StatusCode, "wrong types", ua.StatusBadInvalidArgument)
		if len(r.InputArgumentResults) != len(wrong) {
			t.Fatalf("%d argument results for %d arguments", len(r.InputArgumentResults), len(wrong))
		}
		for i, c := range r.InputArgumentResults {
			t.Code(c, "argument "+string(rune('0'+i%10)), ua.StatusBadTypeMismatch, ua.StatusOK)
		}
	}},
	{"Method Call", "wrong methods and objects", "OPC 10000-4 §5.12.2", func(t *T) {
		s := t.Session()
		o := t.Node(t.Target.Nodes.MethodObject, "the object of methods")
		m := t.Node(t.Target.Nodes.MethodNone, "a method without arguments")
		t.Code(t.callMethod(s, &ua.CallMethodRequest{ObjectID: o, MethodID: longNodeID}).StatusCode, "an unknown method", ua.StatusBadMethodInvalid, ua.StatusBadNodeIDUnknown)
		t.Code(t.callMethod(s, &ua.CallMethodRequest{ObjectID: longNodeID, MethodID: m}).StatusCode, "an unknown object", ua.StatusBadNodeIDUnknown)
		t.Code(t.callMethod(s, &ua.CallMethodRequest{ObjectID: ns0(id.Server), MethodID: m}).StatusCode, "another object's method", ua.StatusBadMethodInvalid)
		t.Code(t.callMethod(s, &ua.CallMethodRequest{ObjectID: o, MethodID: serverStatus}).StatusCode, "a variable as method", ua.StatusBadMethodInvalid)
		refuse(t, s, &ua.CallRequest{}, ua.StatusBadNothingToDo)
	}},
	{"Method Call", "a method's own failure reaches the caller", "OPC 10000-4 §5.12.2", func(t *T) {
		s := t.Session()
		o, m := t.Node(t.Target.Nodes.MethodObject, "the object of methods"), t.Node(t.Target.Nodes.MethodFailing, "a failing method")
		if r := t.callMethod(s, &ua.CallMethodRequest{ObjectID: o, MethodID: m}); r.StatusCode>>30 != 2 {
			t.Errorf("got %v", r.StatusCode)
		}
	}},
	{"Method Call", "more methods than allowed are refused before any runs", "OPC 10000-4 §5.12.2", func(t *T) {
		n := t.limit(operationLimitCall, 0)
		if n == 0 || n > 20_000 {
			t.NotApplicable("MaxNodesPerMethodCall is %d", n)
		}
		rq := &ua.CallRequest{}
		for range n + 1 {
			rq.MethodsToCall = append(rq.MethodsToCall, &ua.CallMethodRequest{ObjectID: ns0(id.Server), MethodID: ns0(id.Server_GetMonitoredItems),
				InputArguments: []*ua.Variant{ua.MustVariant(uint32(1))}})
		}
		refuse(t, t.Session(), rq, ua.StatusBadTooManyOperations)
	}},
}
