package stack_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uastatus"
)

func numeric(n uint32) *ua.NodeID { return ua.NewNumericNodeID(0, n) }

func TestSessionOverMemory(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		v := s.srv.AddressSpace().Namespace("urn:plant").Variable("a", 1.5)
		p := s.connect().login()
		if got := p.read(v.Node().ID().UA()); got != 1.5 {
			t.Errorf("a = %v", got)
		}
		if st := s.stats(); st.Channels != 1 || st.Sessions != 1 || st.ActivatedSessions != 1 {
			t.Errorf("%+v", st)
		}
		p.must(&ua.CloseSessionRequest{RequestHeader: p.header(), DeleteSubscriptions: true})
		p.refused(readOf(p, v.Node().ID().UA()), ua.StatusBadSessionIDInvalid)
	})
}

// I14: nothing works without a session, and a session that was not activated is
// closed when it is used.
func TestServicesNeedASession(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		p := s.connect()
		p.refused(readOf(p, numeric(2258)), ua.StatusBadSessionIDInvalid)
		p.refused(&ua.CloseSessionRequest{RequestHeader: p.header()}, ua.StatusBadSessionIDInvalid)
		p.token = ua.NewByteStringNodeID(0, make([]byte, 32))
		p.refused(readOf(p, numeric(2258)), ua.StatusBadSessionIDInvalid)
		p.refused(&ua.CloseSessionRequest{RequestHeader: p.header()}, ua.StatusBadSessionIDInvalid)
		p.create(0)
		p.refused(readOf(p, numeric(2258)), ua.StatusBadSessionNotActivated)
		p.refused(readOf(p, numeric(2258)), ua.StatusBadSessionIDInvalid)

		// X40: the token of one channel is worth nothing on another.
		a, b := s.connect().login(), s.connect()
		b.token = a.token
		b.refused(readOf(b, numeric(2258)), ua.StatusBadSessionIDInvalid)
		a.read(numeric(2258))
	})
}

// Services that are not built, and type ids that are no service.
func TestUnsupportedServices(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		p := s.connect().login()
		for _, rq := range []any{
			&ua.FindServersOnNetworkRequest{RequestHeader: p.header()},
			&ua.RegisterServer2Request{RequestHeader: p.header(), Server: &ua.RegisteredServer{}},
			&ua.HistoryReadRequest{RequestHeader: p.header()},
			&ua.HistoryUpdateRequest{RequestHeader: p.header()},
			&ua.QueryFirstRequest{RequestHeader: p.header(), View: &ua.ViewDescription{}, Filter: &ua.ContentFilter{}},
			&ua.QueryNextRequest{RequestHeader: p.header()},
			&ua.AddNodesRequest{RequestHeader: p.header()},
			&ua.DeleteNodesRequest{RequestHeader: p.header()},
			&ua.AddReferencesRequest{RequestHeader: p.header()},
			&ua.DeleteReferencesRequest{RequestHeader: p.header()},
			&ua.ServiceFault{ResponseHeader: &ua.ResponseHeader{}}, // a response is no request
		} {
			body := p.encode(rq)
			if _, ok := rq.(*ua.ServiceFault); ok {
				body = append(body[:4:4], p.encode(readOf(p, numeric(2258)))[4:]...)
			}
			rs, code := p.result(<-p.start(body))
			f, ok := rs.(*ua.ServiceFault)
			if code != ua.StatusBadServiceUnsupported || !ok || f.ResponseHeader.RequestHandle != p.handle && f.ResponseHeader.RequestHandle == 0 {
				t.Errorf("%T: %v (%T)", rq, code, rs)
			}
		}
		// What has a response's header as well: it cannot be read as a request's.
		if _, code := p.result(<-p.start(p.encode(&ua.ReadResponse{ResponseHeader: &ua.ResponseHeader{}}))); code != ua.StatusBadServiceUnsupported {
			t.Errorf("a ReadResponse: %v", code)
		}
		p.read(numeric(2258))
	})
}

// X7: requests that end early are answered at once; nothing waits for more.
func TestShortRequests(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		p := s.connect().login()
		body := p.encode(&ua.WriteRequest{RequestHeader: p.header(), NodesToWrite: []*ua.WriteValue{{NodeID: numeric(2258), AttributeID: ua.AttributeIDValue, Value: &ua.DataValue{}}}})
		const afterToken = 4 + 35 // type id, opaque token of 32 bytes
		for range 200 {
			if _, code := p.result(<-p.start(body[:afterToken+1])); code != ua.StatusBadDecodingError {
				t.Fatalf("%v", code)
			}
		}
		for _, n := range []int{0, 1, 3, 4} {
			if _, code := p.result(<-p.start(body[:n])); code != ua.StatusBadDecodingError {
				t.Errorf("%d bytes: %v", n, code)
			}
		}
		rs, code := p.result(<-p.start(body[:len(body)-1]))
		if f, ok := rs.(*ua.ServiceFault); code != ua.StatusBadDecodingError || !ok || f.ResponseHeader.RequestHandle != p.handle {
			t.Errorf("short body: %v, %+v", code, rs)
		}
		p.read(numeric(2258))
		if st := s.stats(); st.BlockingRequests != 0 {
			t.Errorf("%d requests wait", st.BlockingRequests)
		}
	})
}

// X4: the fault of a CloseSession with an old timestamp tells nothing of the
// inside; the timestamp itself is not our business.
func TestOldTimestamp(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		p := s.connect().login()
		p.read(numeric(2258))
		h := p.header()
		h.Timestamp = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)
		h.ReturnDiagnostics = 0x3ff
		rs, code := p.call(&ua.CloseSessionRequest{RequestHeader: h})
		if code != ua.StatusOK {
			t.Errorf("%v %+v", code, rs)
		}
		f := p.refused(&ua.CloseSessionRequest{RequestHeader: h}, ua.StatusBadSessionIDInvalid)
		if info := f.ResponseHeader.ServiceDiagnostics; info == nil || info.AdditionalInfo != "BadSessionIdInvalid" {
			t.Errorf("diagnostics %+v", info)
		}
	})
}

// slow adds a method that blocks until its context ends, or for ever when it is
// deaf to it, and tells when it starts.
func slow(s *site, started chan<- struct{}, deaf <-chan struct{}) *ua.CallRequest {
	ns := s.srv.AddressSpace().Namespace("urn:plant")
	m := ns.Method("Slow", nil, nil, func(ctx context.Context, _ *addressspace.Call) ([]any, error) {
		started <- struct{}{}
		if deaf != nil {
			<-deaf
			return nil, nil
		}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	return &ua.CallRequest{MethodsToCall: []*ua.CallMethodRequest{{ObjectID: numeric(id.ObjectsFolder), MethodID: m.ID().UA()}}}
}

// I10: a slow method stops nobody, not even its own connection.
func TestSlowCallStopsNobody(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		started := make(chan struct{}, 10)
		rq := slow(s, started, nil)
		p, other := s.connect().login(), s.connect().login()
		rq.RequestHeader = p.header()
		w := p.start(p.encode(rq))
		<-started
		p.read(numeric(2258))
		other.read(numeric(2258))
		cancel := p.must(&ua.CancelRequest{RequestHeader: p.header(), RequestHandle: rq.RequestHeader.RequestHandle}).(*ua.CancelResponse)
		if cancel.CancelCount != 1 {
			t.Errorf("CancelCount %d", cancel.CancelCount)
		}
		if _, code := p.result(<-w); code != ua.StatusBadRequestCancelledByClient {
			t.Errorf("cancelled call: %v", code)
		}
		if none := p.must(&ua.CancelRequest{RequestHeader: p.header(), RequestHandle: 999}).(*ua.CancelResponse); none.CancelCount != 0 {
			t.Errorf("Cancel of nothing: %d", none.CancelCount)
		}
	})
}

// A client is answered when its request's time is up, even when the method does
// not listen; the method's late result is dropped.
func TestCallEndsEarly(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(s *site, p *peer, rq *ua.CallRequest)
		want ua.StatusCode
	}{
		{"timeout hint", func(*site, *peer, *ua.CallRequest) { time.Sleep(2 * time.Second) }, ua.StatusBadTimeout},
		{"Cancel", func(_ *site, p *peer, rq *ua.CallRequest) {
			p.must(&ua.CancelRequest{RequestHeader: p.header(), RequestHandle: rq.RequestHeader.RequestHandle})
		}, ua.StatusBadRequestCancelledByClient},
		{"CloseSession", func(_ *site, p *peer, _ *ua.CallRequest) {
			p.must(&ua.CloseSessionRequest{RequestHeader: p.header()})
		}, ua.StatusBadSessionClosed}, // X10
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, stack.Options{}, func(s *site) {
				started, deaf := make(chan struct{}, 1), make(chan struct{})
				rq := slow(s, started, deaf)
				p := s.connect().login()
				rq.RequestHeader = p.header()
				rq.RequestHeader.TimeoutHint = 1000
				w := p.start(p.encode(rq))
				<-started
				tc.end(s, p, rq)
				synctest.Wait()
				select {
				case r := <-w:
					if _, code := p.result(r); code != tc.want {
						t.Errorf("%v, want %v", code, tc.want)
					}
				default:
					t.Error("not answered")
				}
				close(deaf)
				synctest.Wait()
				p.mu.Lock()
				defer p.mu.Unlock()
				if len(p.early) != 0 {
					t.Errorf("answered twice: %v", p.early)
				}
			})
		})
	}
}

// Calls beyond the limit wait, beyond the queue they are refused as busy with a
// hint in the header; everybody else goes on.
func TestBlockingRequestsAreBounded(t *testing.T) {
	inBubble(t, stack.Options{Isolation: narrow(3, 2)}, func(s *site) {
		started := make(chan struct{}, 10)
		rq := slow(s, started, nil)
		p := s.connect().login()
		var waiting []<-chan response
		for range 5 {
			rq.RequestHeader = p.header()
			waiting = append(waiting, p.start(p.encode(rq)))
		}
		synctest.Wait()
		if n := len(started); n != 3 {
			t.Errorf("%d calls run, want 3", n)
		}
		rq.RequestHeader = p.header()
		f := p.refused(rq, uastatus.BadServerTooBusy)
		params, _ := f.ResponseHeader.AdditionalHeader.Value.(*ua.AdditionalParametersType)
		if params == nil || len(params.Parameters) != 1 || params.Parameters[0].Key.Name != "RetryAfterMs" {
			t.Errorf("no hint: %+v", f.ResponseHeader.AdditionalHeader)
		}
		p.read(numeric(2258))
		p.must(&ua.CloseSessionRequest{RequestHeader: p.header()})
		for _, w := range waiting {
			if _, code := p.result(<-w); code != ua.StatusBadSessionClosed {
				t.Errorf("%v", code)
			}
		}
		synctest.Wait()
		if n := len(started); n != 3 {
			t.Errorf("%d calls ran, want 3", n)
		}
	})
}

// A panic in a callback ends the operation, is logged and nothing else.
func TestCallbackPanics(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		ns := s.srv.AddressSpace().Namespace("urn:plant")
		boom := ns.Variable("boom", 1.0).OnRead(func(*addressspace.Caller) (any, error) { panic("a secret of the host") })
		sick := ns.Variable("sick", 1.0).OnRead(func(*addressspace.Caller) (any, error) { return nil, errors.New("unwell") })
		p := s.connect().login()
		rs := p.must(readOf(p, boom.Node().ID().UA(), sick.Node().ID().UA(), numeric(2258))).(*ua.ReadResponse)
		if rs.Results[0].Status != ua.StatusBadInternalError || rs.Results[1].Status != ua.StatusBadInternalError || rs.Results[2].Status != ua.StatusOK {
			t.Errorf("%v %v %v", rs.Results[0].Status, rs.Results[1].Status, rs.Results[2].Status)
		}
		if !testLog.contains("a secret of the host") {
			t.Error("the panic is not in the log")
		}
	})
}

// What a Write stores does not alias the connection's read buffer (which the
// bufdebug run poisons).
func TestWrittenValuesAreCopies(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		v := s.srv.AddressSpace().Namespace("urn:plant").Variable("text", "", addressspace.Writable())
		p := s.connect().login()
		p.must(&ua.WriteRequest{RequestHeader: p.header(), NodesToWrite: []*ua.WriteValue{{NodeID: v.Node().ID().UA(), AttributeID: ua.AttributeIDValue,
			Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant("what was written")}}}})
		for range 10 {
			p.must(&ua.RegisterNodesRequest{RequestHeader: p.header(), NodesToRegister: []*ua.NodeID{ua.NewStringNodeID(1, strings.Repeat("x", 500))}})
		}
		if got := p.read(v.Node().ID().UA()); got != "what was written" {
			t.Errorf("%q", got)
		}
	})
}

// A Read that meets a callback on its way begins again, with nothing left of
// the first try.
func TestDeferredReadBeginsAgain(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		ns := s.srv.AddressSpace().Namespace("urn:plant")
		array := ns.Variable("array", []int32{1, 2, 3}).Node().ID().UA()
		dyn := ns.Variable("dyn", []int32{0}).OnRead(func(*addressspace.Caller) (any, error) { return []int32{7, 8}, nil }).Node().ID().UA()
		p := s.connect().login()
		rq := readOf(p, array, dyn, array)
		rq.NodesToRead[1].IndexRange = "1"
		rs := p.must(rq).(*ua.ReadResponse).Results
		for i, want := range []any{[]int32{1, 2, 3}, []int32{8}, []int32{1, 2, 3}} {
			if rs[i].Value == nil || !reflect.DeepEqual(rs[i].Value.Value(), want) {
				t.Errorf("result %d: %+v, want %v", i, rs[i], want)
			}
		}
	})
}

// A response over the client's limit is a fault, whichever limit it is.
func TestResponseTooLarge(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		big := s.srv.AddressSpace().Namespace("urn:plant").Variable("big", make([]float64, 10_000)).Node().ID().UA()
		p := s.connect()
		p.create(100_000)
		p.activate()
		p.read(big)
		p.refused(readOf(p, big, big), ua.StatusBadResponseTooLarge)
		p.read(numeric(2258))
	})
	inBubble(t, stack.Options{Limits: stack.Limits{MaxMessageSize: 50_000}}, func(s *site) {
		big := s.srv.AddressSpace().Namespace("urn:plant").Variable("big", make([]float64, 10_000)).Node().ID().UA()
		p := s.connect().login()
		p.read(big)
		p.refused(readOf(p, big, big), ua.StatusBadResponseTooLarge)
	})
}

// F4 and "equal to what is enforced".
func TestServerCapabilities(t *testing.T) {
	o := stack.Options{Limits: stack.Limits{MaxSessions: 7}}
	o.Limits.Operations.MaxNodesPerRead = 5
	inBubble(t, o, func(s *site) {
		p := s.connect().login()
		for node, want := range map[uint32]any{
			id.Server_ServerCapabilities_OperationLimits_MaxNodesPerRead:       uint32(5),
			id.Server_ServerCapabilities_OperationLimits_MaxNodesPerWrite:      uint32(10_000),
			id.Server_ServerCapabilities_OperationLimits_MaxNodesPerMethodCall: uint32(1_000),
			id.Server_ServerCapabilities_MaxBrowseContinuationPoints:           uint16(50),
			id.Server_ServerCapabilities_MaxQueryContinuationPoints:            uint16(0),
			id.Server_ServerCapabilities_MaxHistoryContinuationPoints:          uint16(0),
			id.Server_ServerCapabilities_MaxSessions:                           uint32(7),
			id.Server_ServiceLevel:                                             byte(255),
			id.Server_Auditing:                                                 false,
			id.Server_ServerStatus_State:                                       int32(ua.ServerStateRunning),
		} {
			if got := p.read(numeric(node)); got != want {
				t.Errorf("%s: %v (%T), want %v", id.Name(node), got, got, want)
			}
		}
		if got := p.read(numeric(id.Server_ServerArray)).([]string); len(got) != 1 || got[0] != s.srv.ApplicationURI() {
			t.Errorf("ServerArray %v", got)
		}
		if got := p.read(numeric(id.Server_NamespaceArray)).([]string); len(got) < 2 || got[1] != s.srv.ApplicationURI() {
			t.Errorf("NamespaceArray %v", got)
		}
		summary := p.read(numeric(id.Server_ServerDiagnostics_ServerDiagnosticsSummary)).(*ua.ExtensionObject).Value.(*ua.ServerDiagnosticsSummaryDataType)
		if summary.CurrentSessionCount != 1 || summary.CumulatedSessionCount != 1 {
			t.Errorf("%+v", summary)
		}
		var six []*ua.NodeID
		for range 6 {
			six = append(six, numeric(2258))
		}
		p.refused(readOf(p, six...), ua.StatusBadTooManyOperations)
	})
}

func TestShutdownLetsRequestsFinish(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		started, deaf := make(chan struct{}, 1), make(chan struct{})
		rq := slow(s, started, deaf)
		p := s.connect().login()
		rq.RequestHeader = p.header()
		w := p.start(p.encode(rq))
		<-started
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		down := make(chan error, 1)
		go func() { down <- s.srv.Shutdown(ctx) }()
		time.Sleep(time.Second)
		if state := p.read(numeric(id.Server_ServerStatus_State)); state != int32(ua.ServerStateShutdown) {
			t.Errorf("State %v", state)
		}
		if left := p.read(numeric(id.Server_ServerStatus_SecondsTillShutdown)); left != uint32(9) {
			t.Errorf("SecondsTillShutdown %v", left)
		}
		if level := p.read(numeric(id.Server_ServiceLevel)); level != byte(0) {
			t.Errorf("ServiceLevel %v", level)
		}
		rq.RequestHeader = p.header()
		p.refused(rq, ua.StatusBadServerHalted)
		p.refused(&ua.CreateSessionRequest{RequestHeader: p.header(), ClientDescription: &ua.ApplicationDescription{}}, uastatus.BadServerTooBusy)
		close(deaf)
		if _, code := p.result(<-w); code != ua.StatusOK {
			t.Errorf("the call that ran: %v", code)
		}
		if err := <-down; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		<-p.gone
		if err := s.srv.Shutdown(context.Background()); err != nil {
			t.Errorf("second Shutdown: %v", err)
		}
		if err := s.srv.Run(context.Background()); !errors.Is(err, stack.ErrServerClosed) {
			t.Errorf("Run after Shutdown: %v", err)
		}
	})
}

func TestShutdownCutsShortAtTheDeadline(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		started := make(chan struct{}, 1)
		rq := slow(s, started, nil)
		p := s.connect().login()
		rq.RequestHeader = p.header()
		w := p.start(p.encode(rq))
		<-started
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		began := time.Now()
		if err := s.srv.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		if d := time.Since(began); d < 3*time.Second || d > 6*time.Second {
			t.Errorf("took %v", d)
		}
		if _, code := p.result(<-w); code != ua.StatusBadServerHalted {
			t.Errorf("the call that ran: %v", code)
		}
	})
}

// Parked Publish requests are answered when the server ends, and Cancel reaches
// them before.
func TestParkedPublish(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		p := s.connect().login()
		p.refused(&ua.PublishRequest{RequestHeader: p.header()}, ua.StatusBadNoSubscription)
		p.must(&ua.CreateSubscriptionRequest{RequestHeader: p.header(), RequestedPublishingInterval: 1000, RequestedLifetimeCount: 1000, RequestedMaxKeepAliveCount: 100, PublishingEnabled: true})
		// the first message after the creation is a keep-alive
		if _, code := p.result(<-p.start(p.encode(&ua.PublishRequest{RequestHeader: p.header()}))); code != ua.StatusOK {
			t.Fatalf("first Publish: %v", code)
		}
		h := p.header()
		cancelled := p.start(p.encode(&ua.PublishRequest{RequestHeader: h}))
		kept := p.start(p.encode(&ua.PublishRequest{RequestHeader: p.header()}))
		synctest.Wait()
		if st := s.stats(); st.ParkedPublishes != 2 || st.BlockingRequests != 0 {
			t.Errorf("%+v", st)
		}
		if rs := p.must(&ua.CancelRequest{RequestHeader: p.header(), RequestHandle: h.RequestHandle}).(*ua.CancelResponse); rs.CancelCount != 1 {
			t.Errorf("CancelCount %d", rs.CancelCount)
		}
		if _, code := p.result(<-cancelled); code != ua.StatusBadRequestCancelledByClient {
			t.Errorf("cancelled Publish: %v", code)
		}
		s.down()
		if _, code := p.result(<-kept); code != ua.StatusBadServerHalted {
			t.Errorf("parked Publish: %v", code)
		}
	})
}

func TestParkedPublishesAreBounded(t *testing.T) {
	inBubble(t, stack.Options{Limits: stack.Limits{MaxParkedRequests: 6}}, func(s *site) {
		p := s.connect().login()
		p.must(&ua.CreateSubscriptionRequest{RequestHeader: p.header(), RequestedPublishingInterval: 1000, RequestedLifetimeCount: 1000, RequestedMaxKeepAliveCount: 100, PublishingEnabled: true})
		p.must(&ua.PublishRequest{RequestHeader: p.header()}) // the first keep-alive
		for range 3 {
			p.start(p.encode(&ua.PublishRequest{RequestHeader: p.header()}))
		}
		synctest.Wait()
		p.refused(&ua.PublishRequest{RequestHeader: p.header()}, uastatus.BadServerTooBusy)
		p.must(&ua.CloseSessionRequest{RequestHeader: p.header(), DeleteSubscriptions: true})
		// the places are free again
		q := s.connect().login()
		q.must(&ua.CreateSubscriptionRequest{RequestHeader: q.header(), RequestedPublishingInterval: 1000, RequestedLifetimeCount: 1000, RequestedMaxKeepAliveCount: 100, PublishingEnabled: true})
		q.must(&ua.PublishRequest{RequestHeader: q.header()})
	})
}
