package stack_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
)

// strict are the options of a server that trusts nobody yet and offers no
// endpoint without security.
func strict(t *testing.T) stack.Options {
	o := options()
	o.Security = stack.Security{AllowAnonymous: true, PKI: filepath.Join(t.TempDir(), "pki")}
	o.Limits.MinTokenLifetime = time.Second
	// the key of the other tests saves making one
	if err := os.CopyFS(filepath.Join(o.Security.PKI, "own"), os.DirFS(filepath.Join(pkiDir, "own"))); err != nil {
		t.Fatal(err)
	}
	return o
}

func secured(t *testing.T, srv *stack.Server, identity ua.UserTokenType, more ...opcua.Option) (*opcua.Client, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	eps, err := opcua.GetEndpoints(ctx, endpoint(srv))
	if err != nil {
		t.Fatal(err)
	}
	ep, err := opcua.SelectEndpoint(eps, "Basic256Sha256", ua.MessageSecurityModeSignAndEncrypt)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := clientKey()
	c, err := opcua.NewClient(endpoint(srv), append([]opcua.Option{opcua.AutoReconnect(false), opcua.Certificate(certificate), opcua.PrivateKey(key),
		opcua.ApplicationURI("urn:test:client"), opcua.SecurityFromEndpoint(ep, identity)}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Connect(ctx); err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c, nil
}

// X23: trust decides, at once for newcomers and soon for those who are there.
func TestTrustList(t *testing.T) {
	srv := start(t, strict(t), plant)
	if _, err := secured(t, srv, ua.UserTokenTypeAnonymous); err == nil {
		t.Fatal("an unknown certificate was let in")
	}
	certificate, _ := clientKey()
	thumb := pki.Thumbprint(certificate)
	if _, err := srv.PKI().Trust(thumb); err != nil {
		t.Fatalf("trust what was rejected: %v", err)
	}
	c, err := secured(t, srv, ua.UserTokenTypeAnonymous)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := srv.PKI().Reject(thumb); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(15 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := c.Node(ua.NewNumericNodeID(0, id.Server_ServerStatus_State)).Value(ctx)
		cancel()
		if err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the channel stays open although its certificate was rejected")
		}
	}
	if _, err := secured(t, srv, ua.UserTokenTypeAnonymous); err == nil {
		t.Error("a rejected certificate was let in")
	}
}

// X36: without an endpoint of policy None such a channel is good for discovery
// only.
func TestDiscoveryOnlyChannel(t *testing.T) {
	srv := start(t, strict(t))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	servers, err := opcua.FindServers(ctx, endpoint(srv))
	if err != nil || len(servers) != 1 || servers[0].ApplicationURI != srv.ApplicationURI() {
		t.Errorf("FindServers: %v, %v", servers, err)
	}
	eps, err := opcua.GetEndpoints(ctx, endpoint(srv))
	if err != nil || len(eps) != 6 {
		t.Fatalf("GetEndpoints: %d, %v", len(eps), err)
	}
	for _, ep := range eps {
		if ep.SecurityMode == ua.MessageSecurityModeNone || ep.EndpointURL != endpoint(srv) || len(ep.UserIdentityTokens) != 1 {
			t.Errorf("%+v", ep)
		}
	}
	c, err := opcua.NewClient(endpoint(srv), opcua.SecurityMode(ua.MessageSecurityModeNone), opcua.AutoReconnect(false))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Connect(ctx); !errors.Is(err, ua.StatusBadSecurityPolicyRejected) {
		t.Errorf("session without security: %v", err)
		_ = c.Close(ctx)
	}
}

func TestUserNames(t *testing.T) {
	users, err := session.OpenUsers(filepath.Join(t.TempDir(), "users.yaml"), session.UsersOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := users.Add(session.User{Name: "alice", Admin: true}, []byte("secret")); err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Security.AllowAnonymous = false
	o.Authenticator = &session.Identities{Users: users}
	srv := start(t, o, plant)
	if _, err := secured(t, srv, ua.UserTokenTypeAnonymous); err == nil {
		t.Error("nobody was let in")
	}
	if _, err := secured(t, srv, ua.UserTokenTypeUserName, opcua.AuthUsername("alice", "wrong")); !errors.Is(err, ua.StatusBadUserAccessDenied) && !errors.Is(err, ua.StatusBadIdentityTokenRejected) {
		t.Errorf("wrong password: %v", err)
	}
	c, err := secured(t, srv, ua.UserTokenTypeUserName, opcua.AuthUsername("alice", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	// An administrator sees who is there and what is subscribed to.
	ctx := context.Background()
	sub, err := c.Subscribe(ctx, &opcua.SubscriptionParameters{Interval: time.Hour}, make(chan *opcua.PublishNotificationData, 16))
	if err != nil {
		t.Fatal(err)
	}
	item := opcua.NewMonitoredItemCreateRequestWithDefaults(ua.NewStringNodeID(srv.AddressSpace().Namespace("urn:plant").Index(), "Boiler.Temperature"), ua.AttributeIDValue, 42)
	if _, err := sub.Monitor(ctx, ua.TimestampsToReturnBoth, item); err != nil {
		t.Fatal(err)
	}
	row := func(array uint32) any {
		t.Helper()
		v, err := c.Node(ua.NewNumericNodeID(0, array)).Value(ctx)
		if err != nil {
			t.Fatal(err)
		}
		rows, ok := v.Value().([]*ua.ExtensionObject)
		if !ok || len(rows) != 1 {
			t.Fatalf("%d holds %v", array, v.Value())
		}
		return rows[0].Value
	}
	who := row(id.Server_ServerDiagnostics_SessionsDiagnosticsSummary_SessionDiagnosticsArray).(*ua.SessionDiagnosticsDataType)
	if who.CurrentSubscriptionsCount != 1 || who.CurrentMonitoredItemsCount != 1 || who.CreateMonitoredItemsCount.TotalCount != 1 {
		t.Errorf("SessionDiagnosticsArray %+v", who)
	}
	what := row(id.Server_ServerDiagnostics_SubscriptionDiagnosticsArray).(*ua.SubscriptionDiagnosticsDataType)
	if what.SubscriptionID != sub.SubscriptionID || what.MonitoredItemCount != 1 || !what.SessionID.Equal(who.SessionID) {
		t.Errorf("SubscriptionDiagnosticsArray %+v", what)
	}
	o.Security.AllowAnonymous = true
	if v, err := dial(t, start(t, o, plant), opcua.SecurityMode(ua.MessageSecurityModeNone)).Node(ua.NewNumericNodeID(0, id.Server_ServerDiagnostics_SubscriptionDiagnosticsArray)).Value(ctx); !errors.Is(err, ua.StatusBadUserAccessDenied) {
		t.Errorf("somebody else sees %v, %v", v, err)
	}
}

// The methods of the Server object.
func TestServerMethods(t *testing.T) {
	srv := start(t, options(), plant)
	c := dial(t, srv, opcua.SecurityMode(ua.MessageSecurityModeNone))
	ctx := context.Background()
	changes := make(chan *opcua.PublishNotificationData, 16)
	sub, err := c.Subscribe(ctx, &opcua.SubscriptionParameters{Interval: 50 * time.Millisecond}, changes)
	if err != nil {
		t.Fatal(err)
	}
	ns := srv.AddressSpace().Namespace("urn:plant")
	created, err := sub.Monitor(ctx, ua.TimestampsToReturnBoth, opcua.NewMonitoredItemCreateRequestWithDefaults(ua.NewStringNodeID(ns.Index(), "Boiler.Temperature"), ua.AttributeIDValue, 42))
	if err != nil {
		t.Fatal(err)
	}
	<-changes
	call := func(method uint32) *ua.CallMethodResult {
		t.Helper()
		r, err := c.Call(ctx, &ua.CallMethodRequest{ObjectID: ua.NewNumericNodeID(0, id.Server), MethodID: ua.NewNumericNodeID(0, method), InputArguments: []*ua.Variant{ua.MustVariant(sub.SubscriptionID)}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := call(id.Server_GetMonitoredItems)
	if r.StatusCode != ua.StatusOK || len(r.OutputArguments) != 2 {
		t.Fatalf("GetMonitoredItems: %+v", r)
	}
	server, client := r.OutputArguments[0].Value().([]uint32), r.OutputArguments[1].Value().([]uint32)
	if len(server) != 1 || server[0] != created.Results[0].MonitoredItemID || len(client) != 1 || client[0] != 42 {
		t.Errorf("GetMonitoredItems: %v %v", server, client)
	}
	if r := call(id.Server_ResendData); r.StatusCode != ua.StatusOK {
		t.Errorf("ResendData: %v", r.StatusCode)
	}
	select {
	case n := <-changes:
		if n.Error != nil {
			t.Error(n.Error)
		}
	case <-time.After(5 * time.Second):
		t.Error("ResendData sends nothing")
	}
	other := dial(t, srv, opcua.SecurityMode(ua.MessageSecurityModeNone))
	rs, err := other.Call(ctx, &ua.CallMethodRequest{ObjectID: ua.NewNumericNodeID(0, id.Server), MethodID: ua.NewNumericNodeID(0, id.Server_GetMonitoredItems), InputArguments: []*ua.Variant{ua.MustVariant(sub.SubscriptionID)}})
	if err != nil || rs.StatusCode != ua.StatusBadUserAccessDenied {
		t.Errorf("another session's subscription: %+v, %v", rs, err)
	}
}

func TestCollector(t *testing.T) {
	srv := start(t, options(), plant)
	c := dial(t, srv, opcua.SecurityMode(ua.MessageSecurityModeNone))
	useServer(t, srv, c)
	for range 16 { // of which one is timed
		if _, err := c.Read(context.Background(), &ua.ReadRequest{NodesToRead: []*ua.ReadValueID{{NodeID: ua.NewNumericNodeID(0, 2258), AttributeID: ua.AttributeIDValue}}}); err != nil {
			t.Fatal(err)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(srv.Collector()); err != nil {
		t.Fatal(err)
	}
	values := gather(t, registry)
	// An answer is on its way before the server has tidied up behind it.
	waitFor(t, func() bool {
		values = gather(t, registry)
		return values["opcua_server_requests_total Call good"] == 1 && values["opcua_server_request_duration_seconds Call"] == 1 &&
			values["opcua_server_isolation_used shared RequestExecution"] == 0
	})
	for key, want := range map[string]float64{
		"opcua_server_sessions":                                              1,
		"opcua_server_channels":                                              1,
		"opcua_server_requests_total Call good":                              1,
		"opcua_server_request_duration_seconds Call":                         1,
		"opcua_server_connections":                                           1,
		"opcua_server_connections_accepted_total " + srv.Addrs()[0].String(): 1,

		"opcua_server_isolation_used shared Connection":                 1,
		"opcua_server_isolation_capacity Connection":                    2010,
		"opcua_server_isolation_used shared RequestExecution":           0,
		"opcua_server_isolation_rejections_total capacity RequestQueue": 0,
		"opcua_server_isolation_owners":                                 1,
		"opcua_server_session_establishment_in_flight":                  0,
		"opcua_server_session_establishment_duration_seconds":           2, // CreateSession and ActivateSession
		"opcua_server_retry_backlog_seconds":                            0,
		"opcua_server_service_level":                                    255,
		"opcua_server_connection_limiter_tokens bootstrap":              1,
	} {
		if values[key] != want {
			t.Errorf("%s is %v, want %v", key, values[key], want)
		}
	}
	if timed, all := values["opcua_server_request_duration_seconds Read"], values["opcua_server_requests_total Read good"]; timed < 1 || timed > all/16+1 {
		t.Errorf("%v of %v reads are timed", timed, all)
	}
	if n, ok := values["opcua_server_notifications_total"]; !ok || n != float64(srv.Stats().Notifications) {
		t.Errorf("%v notifications", n)
	}
	if values["opcua_server_requests_total Read good"] < 3 || values["opcua_server_budget_max_bytes"] == 0 {
		t.Errorf("%v", values)
	}
}

// gather sums the samples of a registry by name and labels.
func gather(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			values[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func TestRunFailsWhenThePortIsTaken(t *testing.T) {
	first := start(t, options())
	o := options()
	o.Endpoints = []string{"opc.tcp://127.0.0.1:0", endpoint(first)}
	srv, err := stack.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Run(context.Background()); err == nil || errors.Is(err, stack.ErrServerClosed) {
		t.Errorf("Run: %v", err)
	}
}

func TestRenewalUnderTraffic(t *testing.T) {
	if raceEnabled {
		t.Skip("gopcua v0.8.0 races with itself when it renews")
	}
	o := strict(t)
	o.Security.TrustAll = true
	srv := start(t, o, plant)
	c, err := secured(t, srv, ua.UserTokenTypeAnonymous, opcua.Lifetime(2*time.Second)) // gopcua renews without pause at 1 s
	if err != nil {
		t.Fatal(err)
	}
	node := c.Node(ua.NewNumericNodeID(0, id.Server_ServerStatus_CurrentTime))
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		if _, err := node.Value(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}
