package conformance

import (
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

var informationCases = []Case{
	{"Base Info Core Structure", "ServerStatus says the server runs", "OPC 10000-5 §12.10", func(t *T) {
		s := t.Session()
		dv := call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, serverStatus)).Results[0]
		eo, ok := value(dv).(*ua.ExtensionObject)
		if !ok {
			t.Fatalf("value is %T", value(dv))
		}
		st, ok := eo.Value.(*ua.ServerStatusDataType)
		if !ok {
			t.Fatalf("structure is %T", eo.Value)
		}
		if st.State != ua.ServerStateRunning || st.StartTime.IsZero() || time.Since(st.CurrentTime).Abs() > 24*time.Hour || st.BuildInfo == nil || st.BuildInfo.ProductName == "" {
			t.Errorf("%+v %+v", st, st.BuildInfo)
		}
	}},
	{"Base Info Core Structure", "the parts of ServerStatus agree with it", "OPC 10000-5 §12.10", func(t *T) {
		s := t.Session()
		rs := call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, ns0(id.Server_ServerStatus_State), ns0(id.Server_ServerStatus_CurrentTime), ns0(id.Server_ServerStatus_StartTime),
			ns0(id.Server_ServerStatus_BuildInfo_ProductName), ns0(id.Server_ServiceLevel), ns0(id.Server_ServerStatus_SecondsTillShutdown)))
		if v, ok := value(rs.Results[0]).(int32); !ok || v != 0 {
			t.Errorf("State is %v", value(rs.Results[0]))
		}
		for i, r := range rs.Results {
			if r.Status != ua.StatusOK || value(r) == nil {
				t.Errorf("value %d: %v %v", i, r.Status, value(r))
			}
		}
		if v, ok := value(rs.Results[4]).(byte); !ok || v < 200 {
			t.Errorf("ServiceLevel of an idle server is %v", value(rs.Results[4]))
		}
		first, _ := value(rs.Results[1]).(time.Time)
		time.Sleep(20 * time.Millisecond)
		second, _ := value(call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, ns0(id.Server_ServerStatus_CurrentTime))).Results[0]).(time.Time)
		if !second.After(first) {
			t.Errorf("CurrentTime stood still: %v, %v", first, second)
		}
	}},
	{"Base Info Core Structure", "NamespaceArray and ServerArray", "OPC 10000-5 §6.3.1", func(t *T) {
		s := t.Session()
		rs := call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, namespaceArray, ns0(id.Server_ServerArray)))
		ns, _ := value(rs.Results[0]).([]string)
		servers, _ := value(rs.Results[1]).([]string)
		if len(ns) < 2 || ns[0] != "http://opcfoundation.org/UA/" {
			t.Errorf("NamespaceArray %q", ns)
		}
		if len(servers) < 1 || len(ns) < 2 || servers[0] == "" || servers[0] != ns[1] {
			t.Errorf("ServerArray %q: the first must be namespace 1", servers)
		}
	}},
	{"Base Info Server Capabilities", "every capability has a value", "OPC 10000-5 §6.3.2", func(t *T) {
		s := t.Session()
		ids := []uint32{id.Server_ServerCapabilities_MaxBrowseContinuationPoints, id.Server_ServerCapabilities_MaxQueryContinuationPoints,
			id.Server_ServerCapabilities_MaxHistoryContinuationPoints, id.Server_ServerCapabilities_MinSupportedSampleRate, id.Server_ServerCapabilities_ServerProfileArray,
			id.Server_ServerCapabilities_LocaleIDArray, id.Server_ServerCapabilities_MaxArrayLength, id.Server_ServerCapabilities_MaxStringLength,
			operationLimitRead, operationLimitWrite, operationLimitBrowse, operationLimitCall, operationLimitRegister, operationLimitTranslate, operationLimitItems}
		rq := readOf(ua.AttributeIDValue)
		for _, i := range ids {
			rq.NodesToRead = append(rq.NodesToRead, item(ua.AttributeIDValue, ns0(i)))
		}
		for i, r := range call[*ua.ReadResponse](t, s, rq).Results {
			if r.Status != ua.StatusOK || value(r) == nil {
				t.Errorf("i=%d: %v %v", ids[i], r.Status, value(r))
			}
		}
	}},
	{"Base Info Diagnostics", "the summary counts sessions and subscriptions", "OPC 10000-5 §6.3.4", func(t *T) {
		s := t.Session()
		current := func() (uint32, uint32) {
			rs := call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, ns0(id.Server_ServerDiagnostics_ServerDiagnosticsSummary_CurrentSessionCount),
				ns0(id.Server_ServerDiagnostics_ServerDiagnosticsSummary_CurrentSubscriptionCount)))
			a, ok1 := value(rs.Results[0]).(uint32)
			b, ok2 := value(rs.Results[1]).(uint32)
			if !ok1 || !ok2 {
				t.NotApplicable("no diagnostics summary: %v %v", rs.Results[0].Status, rs.Results[1].Status)
			}
			return a, b
		}
		sessions, subs := current()
		t.subscription(s, 500, 10)
		t.Session()
		moreSessions, moreSubs := current()
		if moreSessions != sessions+1 || moreSubs != subs+1 {
			t.Errorf("sessions %d then %d, subscriptions %d then %d", sessions, moreSessions, subs, moreSubs)
		}
	}},
	{"Base Info GetMonitoredItems Method", "lists the items of a subscription", "OPC 10000-5 §9.1", func(t *T) {
		s := t.Session()
		sub := t.subscription(s, 500, 10)
		one := t.monitor(s, sub, monitored(serverStatus, 11))
		two := t.monitor(s, sub, monitored(namespaceArray, 12))
		r := t.callMethod(s, &ua.CallMethodRequest{ObjectID: ns0(id.Server), MethodID: ns0(id.Server_GetMonitoredItems), InputArguments: []*ua.Variant{ua.MustVariant(sub)}})
		t.Code(r.StatusCode, "call", ua.StatusOK)
		if len(r.OutputArguments) != 2 {
			t.Fatalf("%d outputs", len(r.OutputArguments))
		}
		server, _ := r.OutputArguments[0].Value().([]uint32)
		client, _ := r.OutputArguments[1].Value().([]uint32)
		if len(server) != 2 || len(client) != 2 || server[0] == server[1] || client[0]+client[1] != 23 || server[0]+server[1] != one.MonitoredItemID+two.MonitoredItemID {
			t.Errorf("server handles %v, client handles %v", server, client)
		}
		other := t.Session()
		r = t.callMethod(other, &ua.CallMethodRequest{ObjectID: ns0(id.Server), MethodID: ns0(id.Server_GetMonitoredItems), InputArguments: []*ua.Variant{ua.MustVariant(sub)}})
		t.Code(r.StatusCode, "another session's subscription", ua.StatusBadUserAccessDenied, ua.StatusBadSubscriptionIDInvalid)
		r = t.callMethod(s, &ua.CallMethodRequest{ObjectID: ns0(id.Server), MethodID: ns0(id.Server_GetMonitoredItems), InputArguments: []*ua.Variant{ua.MustVariant(uint32(0xfffffff0))}})
		t.Code(r.StatusCode, "an unknown subscription", ua.StatusBadSubscriptionIDInvalid)
	}},
	{"Base Info ResendData Method", "current values are sent again", "OPC 10000-5 §9.2", func(t *T) {
		s := t.Session()
		sub := t.subscription(s, 50, 10)
		t.monitor(s, sub, monitored(namespaceArray, 5))
		t.notified(s, sub, 5)
		r := t.callMethod(s, &ua.CallMethodRequest{ObjectID: ns0(id.Server), MethodID: ns0(id.Server_ResendData), InputArguments: []*ua.Variant{ua.MustVariant(sub)}})
		t.Code(r.StatusCode, "call", ua.StatusOK)
		t.notified(s, sub, 5)
	}},
}
