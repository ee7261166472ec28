package hostile

import (
	"context"
	"strings"
	"testing"

	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/gopcua/opcua/ua"
)

// X9, X20, X34, F6: events, history and queries are not served, and whatever is
// sent for them costs no more than its decoding.
func TestX9X20X34F6WhatIsNotServed(t *testing.T) {
	each(t, all, nil, func(t *testing.T, s *site) {
		ses := s.session()
		where := &ua.ContentFilter{}
		for i := range 5000 { // LIKE with wildcards, and elements that refer to themselves and to each other
			where.Elements = append(where.Elements, &ua.ContentFilterElement{FilterOperator: ua.FilterOperatorLike, FilterOperands: []*ua.ExtensionObject{
				ua.NewExtensionObject(&ua.ElementOperand{Index: uint32(i)}),
				ua.NewExtensionObject(&ua.LiteralOperand{Value: ua.MustVariant(strings.Repeat("%_", 50))}),
			}})
		}
		event := item(ua.NewNumericNodeID(0, 2253), 1)
		event.ItemToMonitor.AttributeID = ua.AttributeIDEventNotifier
		event.RequestedParameters.QueueSize = 1<<32 - 1
		event.RequestedParameters.Filter = ua.NewExtensionObject(&ua.EventFilter{WhereClause: where})
		rs, err := probe.Call[*ua.CreateMonitoredItemsResponse](context.Background(), ses, &ua.CreateMonitoredItemsRequest{SubscriptionID: s.subscribe(ses, 100, 100),
			TimestampsToReturn: ua.TimestampsToReturnBoth, ItemsToCreate: []*ua.MonitoredItemCreateRequest{event}})
		if err != nil {
			t.Fatal(err)
		}
		s.status(rs.Results[0].StatusCode, "an event filter", ua.StatusBadMonitoredItemFilterUnsupported)
		refresh := &ua.CallRequest{}
		for range 10 {
			refresh.MethodsToCall = append(refresh.MethodsToCall, &ua.CallMethodRequest{ObjectID: ua.NewNumericNodeID(0, 2782), MethodID: ua.NewNumericNodeID(0, 3875)})
		}
		called, err := probe.Call[*ua.CallResponse](context.Background(), ses, refresh)
		if err != nil {
			t.Fatal(err)
		}
		s.status(called.Results[9].StatusCode, "ConditionRefresh", ua.StatusBadNotExecutable)
		s.refused(ses, &ua.QueryFirstRequest{View: &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)}, Filter: where}, ua.StatusBadServiceUnsupported)
		s.refused(ses, &ua.HistoryReadRequest{HistoryReadDetails: ua.NewExtensionObject(&ua.ReadRawModifiedDetails{}),
			NodesToRead: []*ua.HistoryReadValueID{{NodeID: s.node(), IndexRange: "1:2", DataEncoding: &ua.QualifiedName{}}}}, ua.StatusBadServiceUnsupported)
	})
}
