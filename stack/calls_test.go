package stack_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// OPC 10000-6 §7.4.1: all connections to one URL are one channel, so a session
// goes on whichever of them a request comes on, from whatever port.
func TestSessionAcrossConnections(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		a := s.web("192.0.2.10:1")
		a.token = a.must(createOf(a.peer)).(*ua.CreateSessionResponse).AuthenticationToken
		b := s.web("192.0.2.10:2")
		b.token = a.token
		b.must(activateOf(b.peer))
		if n := s.stats().Channels; n != 1 {
			t.Errorf("%d channels for one session", n)
		}
		c := s.web("192.0.2.10:3")
		c.token = a.token
		c.must(readOf(c.peer, numeric(2258)))
		if d := s.diagnostics(); d.TransportProtocol != "opc.https" || d.Encoding != "UA Binary" || d.SecurityMode != ua.MessageSecurityModeNone {
			t.Errorf("diagnostics %+v", d)
		}
		c.must(&ua.CloseSessionRequest{RequestHeader: c.header()})
		c.refused(readOf(c.peer, numeric(2258)), ua.StatusBadSessionIDInvalid)
		if n := s.stats().Channels; n != 0 {
			t.Errorf("%d channels after the session", n)
		}
	})
}

// The logical channel ends with whatever ends its session.
func TestLogicalChannelEndsWithItsSession(t *testing.T) {
	for name, end := range map[string]func(s *site, w *web){
		"timeout":         func(*site, *web) { time.Sleep(2 * time.Minute) },
		"terminated":      func(s *site, _ *web) { s.srv.Sessions().Terminate(s.onlySession(), true) },
		"used too early":  func(s *site, w *web) { w.refused(readOf(w.peer, numeric(2258)), ua.StatusBadSessionNotActivated) },
		"never activated": func(*site, *web) { time.Sleep(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, stack.Options{}, func(s *site) {
				w := s.web("192.0.2.10:1")
				w.token = w.must(createOf(w.peer)).(*ua.CreateSessionResponse).AuthenticationToken
				if name == "timeout" || name == "terminated" {
					w.must(activateOf(w.peer))
				}
				end(s, w)
				synctest.Wait()
				if st := s.stats(); st.Channels != 0 || st.Sessions != 0 {
					t.Errorf("%d channels and %d sessions are left", st.Channels, st.Sessions)
				}
			})
		})
	}
}

// A token means nothing on another kind of channel, and nobody moves an
// anonymous session that is not protected (OPC 10000-4 §5.7.3 ActivateSession).
func TestSessionsStayOnTheirTransport(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		w, p := s.web("192.0.2.10:1").login(), s.connect().login()
		w.token, p.token = p.token, w.token
		w.refused(readOf(w.peer, numeric(2258)), ua.StatusBadSessionIDInvalid)
		w.refused(activateOf(w.peer), ua.StatusBadSessionIDInvalid)
		w.refused(&ua.CloseSessionRequest{RequestHeader: w.header()}, ua.StatusBadSessionIDInvalid)
		p.refused(readOf(p, numeric(2258)), ua.StatusBadSessionIDInvalid)
		p.refused(activateOf(p), ua.StatusBadSessionIDInvalid)
		w.token, p.token = p.token, w.token
		w.must(readOf(w.peer, numeric(2258)))
		p.read(numeric(2258))
		j := s.socket("192.0.2.10:2")
		j.token = w.token
		j.refused(readOf(j.peer, numeric(2258)), ua.StatusBadSessionIDInvalid)
		j.hangUp()
	})
}

// A session whose channel has gone may be taken up over HTTPS where the rules for
// moving sessions allow it; its logical channel then lives and ends with it.
func TestSessionMovesToHTTPS(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		p := s.connect().login() // from 192.0.2.1
		p.close()
		synctest.Wait()
		foreign := s.web("192.0.2.99:1")
		foreign.token = p.token
		foreign.refused(activateOf(foreign.peer), ua.StatusBadSessionIDInvalid)
		w := s.web("192.0.2.1:77")
		w.token = p.token
		w.refused(readOf(w.peer, numeric(2258)), ua.StatusBadSessionIDInvalid)
		w.must(activateOf(w.peer))
		w.must(readOf(w.peer, numeric(2258)))
		if n := s.stats().Channels; n != 1 {
			t.Errorf("%d channels", n)
		}
		w.must(&ua.CloseSessionRequest{RequestHeader: w.header()})
		if n := s.stats().Channels; n != 0 {
			t.Errorf("%d channels after the session", n)
		}
	})
}

// A Publish over HTTPS is a long poll: it parks, holds neither body nor slot,
// and is answered when there is something to report.
func TestLongPoll(t *testing.T) {
	inBubble(t, stack.Options{Limits: stack.Limits{RunSlots: 1}}, func(s *site) {
		v := s.srv.AddressSpace().Namespace("urn:plant").Variable("V", 1.0)
		w := s.web("192.0.2.10:1").login()
		sub := w.must(&ua.CreateSubscriptionRequest{RequestHeader: w.header(), RequestedPublishingInterval: 100, RequestedLifetimeCount: 1000, RequestedMaxKeepAliveCount: 100, PublishingEnabled: true}).(*ua.CreateSubscriptionResponse).SubscriptionID
		w.must(&ua.CreateMonitoredItemsRequest{RequestHeader: w.header(), SubscriptionID: sub, TimestampsToReturn: ua.TimestampsToReturnBoth, ItemsToCreate: []*ua.MonitoredItemCreateRequest{{
			ItemToMonitor: &ua.ReadValueID{NodeID: v.Node().ID().UA(), AttributeID: ua.AttributeIDValue}, MonitoringMode: ua.MonitoringModeReporting,
			RequestedParameters: &ua.MonitoringParameters{ClientHandle: 7, SamplingInterval: 0, QueueSize: 1}}}})
		w.must(&ua.PublishRequest{RequestHeader: w.header()}) // the first value
		long := w.start(&ua.PublishRequest{RequestHeader: w.header()})
		synctest.Wait()
		if !long.parked {
			t.Error("the request is not parked")
		}
		stages, _ := s.usage()
		for _, u := range stages {
			if want := map[string]int64{"ParkedRequest": 1, "RequestQueueBytes": 4 << 20}[u.Name]; u.Name != "Connection" && u.Used != want {
				t.Errorf("%s: %d, want %d", u.Name, u.Used, want)
			}
		}
		time.Sleep(5 * time.Second)
		if len(long.answer) != 0 {
			t.Error("answered without anything to report")
		}
		v.Set(2.0)
		msg, code := long.wait()
		if p, ok := msg.(*ua.PublishResponse); !ok || code != ua.StatusOK || p.SubscriptionID != sub || len(p.NotificationMessage.NotificationData) != 1 {
			t.Errorf("%v %+v", code, msg)
		}
		w.onceEach()
	})
}

// Who stops waiting for a long poll leaves nothing behind, and the session goes on.
func TestLongPollsClientGoes(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		w := s.web("192.0.2.10:1").login()
		w.subscribe()
		w.must(&ua.PublishRequest{RequestHeader: w.header()}) // the first keep-alive
		gone, stays := w.start(&ua.PublishRequest{RequestHeader: w.header()}), w.start(&ua.PublishRequest{RequestHeader: w.header()})
		synctest.Wait()
		gone.cancel()
		synctest.Wait()
		if n := s.stats().ParkedPublishes; n != 1 {
			t.Errorf("%d parked, want 1", n)
		}
		if n := s.used(isolation.ParkedRequest); n != 1 {
			t.Errorf("%d places of parked requests in use, want 1", n)
		}
		if _, code := stays.wait(); code != ua.StatusOK { // the keep-alive
			t.Errorf("the other: %v", code)
		}
		w.must(&ua.CloseSessionRequest{RequestHeader: w.header(), DeleteSubscriptions: true})
		w.onceEach()
	})
}

// A request that runs or waits ends with the connection that it came on.
func TestCallEndsWithItsClient(t *testing.T) {
	inBubble(t, stack.Options{Isolation: narrow(1, 10)}, func(s *site) {
		started, deaf := make(chan struct{}, 10), make(chan struct{})
		defer close(deaf)
		rq := slow(s, started, deaf)
		w := s.web("192.0.2.10:1").login()
		rq.RequestHeader = w.header()
		running := w.start(rq)
		<-started
		rq.RequestHeader = w.header()
		waiting := w.start(rq)
		synctest.Wait()
		for _, c := range []*webCall{running, waiting} {
			c.cancel()
			if _, code := c.wait(); code != ua.StatusBadRequestCancelledByClient {
				t.Errorf("%v", code)
			}
		}
		w.must(readOf(w.peer, numeric(2258)))
	})
}

// A WebSocket with JSON is one channel for its life, like a SecureChannel: what
// was never activated ends with it, what was waits for another.
func TestLastingPeer(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		w := s.socket("192.0.2.10:1").login()
		w.subscribe()
		w.must(&ua.PublishRequest{RequestHeader: w.header()})
		w.start(&ua.PublishRequest{RequestHeader: w.header()})
		second := w.must(createOf(w.peer)).(*ua.CreateSessionResponse).AuthenticationToken
		if n := s.stats().Channels; n != 1 {
			t.Errorf("%d channels", n)
		}
		w.hangUp()
		synctest.Wait()
		if st := s.stats(); st.Channels != 0 || st.Sessions != 1 {
			t.Errorf("%d channels, %d sessions", st.Channels, st.Sessions)
		}
		again := s.socket("192.0.2.10:2")
		again.token = second
		again.refused(activateOf(again.peer), ua.StatusBadSessionIDInvalid)
		again.token = w.token
		again.must(activateOf(again.peer))
		again.must(&ua.PublishRequest{RequestHeader: again.header()})
		again.hangUp()
	})
}

// Read, Browse and Write without a session are for those who allow them.
func TestSessionless(t *testing.T) {
	requests := func(w *web, v *addressspace.Variable) []any {
		rd := readOf(w.peer, v.Node().ID().UA())
		br := &ua.BrowseRequest{RequestHeader: w.header(), View: &ua.ViewDescription{ViewID: numeric(0)}, NodesToBrowse: []*ua.BrowseDescription{{NodeID: numeric(85), BrowseDirection: ua.BrowseDirectionForward, ReferenceTypeID: numeric(0), ResultMask: 63}}}
		wr := &ua.WriteRequest{RequestHeader: w.header(), NodesToWrite: []*ua.WriteValue{{NodeID: v.Node().ID().UA(), AttributeID: ua.AttributeIDValue, Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(5.0)}}}}
		return []any{rd, br, wr}
	}
	t.Run("off", func(t *testing.T) {
		inBubble(t, stack.Options{}, func(s *site) {
			v := s.srv.AddressSpace().Namespace("urn:plant").Variable("V", 1.0, addressspace.Writable())
			w := s.web("192.0.2.10:1")
			for _, rq := range requests(w, v) {
				w.refused(rq, ua.StatusBadSessionIDInvalid)
			}
		})
	})
	t.Run("on", func(t *testing.T) {
		inBubble(t, stack.Options{HTTP: stack.HTTPOptions{AllowSessionless: true}}, func(s *site) {
			v := s.srv.AddressSpace().Namespace("urn:plant").Variable("V", 1.0, addressspace.Writable())
			w := s.web("192.0.2.10:1")
			for _, rq := range requests(w, v) {
				w.must(rq)
			}
			if got := w.must(readOf(w.peer, v.Node().ID().UA())).(*ua.ReadResponse).Results[0].Value.Value(); got != 5.0 {
				t.Errorf("read %v, wrote 5", got)
			}
			if c := w.calls[0]; c.account != "default/anonymous" {
				t.Errorf("account %q", c.account)
			}
			many := &ua.BrowseRequest{RequestHeader: w.header(), View: &ua.ViewDescription{ViewID: numeric(0)}, RequestedMaxReferencesPerNode: 1, NodesToBrowse: []*ua.BrowseDescription{{NodeID: numeric(2253), BrowseDirection: ua.BrowseDirectionForward, ReferenceTypeID: numeric(0), ResultMask: 63}}}
			if r := w.must(many).(*ua.BrowseResponse).Results[0]; r.StatusCode != ua.StatusBadNoContinuationPoints {
				t.Errorf("what is left over without a session: %v", r.StatusCode)
			}
			w.refused(&ua.PublishRequest{RequestHeader: w.header()}, ua.StatusBadSessionIDInvalid)
			p := s.connect()
			p.refused(readOf(p, numeric(2258)), ua.StatusBadSessionIDInvalid) // over HTTPS only
			j := s.socket("192.0.2.10:2")
			j.refused(readOf(j.peer, numeric(2258)), ua.StatusBadSessionIDInvalid)
			j.hangUp()
		})
	})
	t.Run("capped", func(t *testing.T) {
		inBubble(t, stack.Options{HTTP: stack.HTTPOptions{AllowSessionless: true, MaxSessionless: 2}}, func(s *site) {
			gate := make(chan struct{})
			v := s.srv.AddressSpace().Namespace("urn:plant").Variable("Slow", 1.0)
			v.OnRead(func(*addressspace.Caller) (any, error) { <-gate; return 1.0, nil })
			w := s.web("192.0.2.10:1")
			var running []*webCall
			for range 2 {
				running = append(running, w.start(readOf(w.peer, v.Node().ID().UA())))
			}
			synctest.Wait()
			third := w.start(readOf(w.peer, numeric(2258)))
			if msg, code := third.wait(); code != uastatus.BadServerTooBusy || reconnect.HeaderHint(msg.(*ua.ServiceFault).ResponseHeader) == 0 || third.hint == 0 {
				t.Errorf("%v, hint %v", code, third.hint)
			}
			close(gate)
			for _, c := range running {
				if _, code := c.wait(); code != ua.StatusOK {
					t.Errorf("%v", code)
				}
			}
			w.must(readOf(w.peer, numeric(2258)))
		})
	})
}

// A response that the transport does not take becomes a fault that it does.
func TestCallsResponseTooLarge(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		v := s.srv.AddressSpace().Namespace("urn:plant").Variable("Long", make([]byte, 1000))
		w := s.web("192.0.2.10:1").login()
		c := w.prepare(readOf(w.peer, v.Node().ID().UA()))
		c.small = 200
		s.srv.CallHandler().Call(c)
		if _, code := c.wait(); code != ua.StatusBadResponseTooLarge {
			t.Errorf("%v", code)
		}
		w.onceEach()
	})
}

// Random calls, clients that go, sessions that end, sockets that hang up, and a
// stop: each call has exactly one end, and every lease comes back.
func TestEveryCallEndsOnce(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			o := stack.Options{Isolation: narrow(3, 6), Limits: stack.Limits{RunSlots: 1}, HTTP: stack.HTTPOptions{AllowSessionless: true, MaxSessionless: 2}}
			if seed%4 == 3 {
				o.Isolation.Mode = isolation.SharedOnly
			}
			if seed%2 == 1 {
				o.Governors = tightGovernors()
			}
			inBubble(t, o, func(s *site) { randomCalls(s, rand.New(rand.NewPCG(seed, 2))) })
		})
	}
}

func randomCalls(s *site, rnd *rand.Rand) {
	ns := s.srv.AddressSpace().Namespace("urn:plant")
	m := ns.Method("Sleep", []ua.Argument{{Name: "ms", DataType: ua.NewNumericNodeID(0, 7), ValueRank: -1}}, nil,
		func(ctx context.Context, c *addressspace.Call) ([]any, error) {
			d := time.Duration(c.Arg(0).(uint32)) * time.Millisecond
			if d%2 == 0 { // deaf
				time.Sleep(d)
				return nil, nil
			}
			select {
			case <-time.After(d):
				return nil, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		})
	lazy := ns.Variable("Lazy", 0.0)
	lazy.OnRead(func(*addressspace.Caller) (any, error) { time.Sleep(3 * time.Millisecond); return 1.0, nil })
	var webs, all []*web
	fresh := func() *web {
		addr := fmt.Sprintf("192.0.2.%d:%d", 10+len(all)%3, 1000+len(all))
		w := s.web(addr)
		if len(all)%3 == 2 {
			w = s.socket(addr)
		}
		all = append(all, w)
		if rs, code := w.call(createOf(w.peer)); code == ua.StatusOK {
			w.token = rs.(*ua.CreateSessionResponse).AuthenticationToken
			w.call(activateOf(w.peer))
			w.call(&ua.CreateSubscriptionRequest{RequestHeader: w.header(), RequestedPublishingInterval: 50, RequestedLifetimeCount: 1000, RequestedMaxKeepAliveCount: 2, PublishingEnabled: true})
		}
		return w
	}
	for range 4 {
		webs = append(webs, fresh())
	}
	for range 300 {
		i := rnd.IntN(len(webs))
		w := webs[i]
		h := w.header()
		if rnd.IntN(4) == 0 {
			h.TimeoutHint = uint32(1 + rnd.IntN(30))
		}
		var rq any
		switch rnd.IntN(44) {
		default:
			rq = &ua.CallRequest{RequestHeader: h, MethodsToCall: []*ua.CallMethodRequest{{ObjectID: numeric(85), MethodID: m.ID().UA(), InputArguments: []*ua.Variant{ua.MustVariant(uint32(rnd.IntN(20)))}}}}
		case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9:
			rd := readOf(w.peer, numeric(2258))
			if rnd.IntN(2) == 0 {
				rd = readOf(w.peer, lazy.Node().ID().UA())
			}
			if rd.RequestHeader = h; rnd.IntN(4) == 0 {
				h.AuthenticationToken = nil
			}
			rq = rd
		case 10, 11, 12, 13, 14, 15, 16:
			rq = &ua.PublishRequest{RequestHeader: h, SubscriptionAcknowledgements: []*ua.SubscriptionAcknowledgement{{SubscriptionID: 1, SequenceNumber: 1}}}
		case 17, 18:
			rq = &ua.CancelRequest{RequestHeader: h, RequestHandle: w.handle - uint32(rnd.IntN(5))}
		case 19:
			rq = &ua.CloseSessionRequest{RequestHeader: h, DeleteSubscriptions: rnd.IntN(2) == 0}
		case 20:
			rq = createOf(w.peer)
		case 21, 22, 23, 24: // somebody stops waiting
			if n := len(w.calls); n > 0 {
				w.calls[rnd.IntN(n)].cancel()
			}
			continue
		case 25:
			if w.conn != nil {
				w.hangUp()
			}
			webs[i] = fresh()
			continue
		case 26, 27:
			time.Sleep(time.Duration(rnd.IntN(40)) * time.Millisecond)
			continue
		}
		w.start(rq)
	}
	if rnd.IntN(2) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rnd.IntN(30))*time.Millisecond)
	defer cancel()
	_ = s.srv.Shutdown(ctx)
	synctest.Wait()
	for _, w := range all {
		w.onceEach()
		for _, c := range w.calls {
			if c.code == uastatus.BadServerTooBusy && c.hint == 0 {
				s.Error("busy without a hint")
			}
			c.cancel()
		}
		if w.conn != nil {
			select {
			case <-w.gone:
			default:
				w.hangUp()
			}
		}
	}
	st := s.admission()
	if st.Commands != nil && (st.Commands.Node.Data.Count != 0 || st.Commands.Node.Control.Count != 0) {
		s.Errorf("the command governor holds %+v", st.Commands.Node)
	}
}

// diagnostics is what administrators see of the only session's security.
func (s *site) diagnostics() *ua.SessionSecurityDiagnosticsDataType {
	s.Helper()
	rd := addressspace.Read{Node: s.srv.AddressSpace().Lookup(uabinary.NumericID(0, id.Server_ServerDiagnostics_SessionsDiagnosticsSummary_SessionSecurityDiagnosticsArray)), Attribute: uint32(ua.AttributeIDValue), Caller: &addressspace.Caller{Admin: true}}
	var d uabinary.Decoder
	d.Reset(s.srv.AddressSpace().AppendRead(nil, &rd), nil)
	v := d.DataValue()
	all, err := v.Value.Value()
	if err != nil {
		s.Fatal(err)
	}
	return all.([]*ua.ExtensionObject)[0].Value.(*ua.SessionSecurityDiagnosticsDataType)
}

// The answer of a call that goes out early gives its memory back while the
// handler still reads its arguments: those are the handler's own.
func TestHandlerOutlivesItsCall(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		gate, got := make(chan struct{}), make(chan any, 1)
		ns := s.srv.AddressSpace().Namespace("urn:plant")
		m := ns.Method("Late", []ua.Argument{{Name: "text", DataType: ua.NewNumericNodeID(0, id.String), ValueRank: -1}}, nil,
			func(_ context.Context, c *addressspace.Call) ([]any, error) {
				<-gate
				got <- c.Arg(0)
				return nil, nil
			})
		w := s.web("192.0.2.10:1").login()
		rq := &ua.CallRequest{RequestHeader: w.header(), MethodsToCall: []*ua.CallMethodRequest{{ObjectID: numeric(85), MethodID: m.ID().UA(), InputArguments: []*ua.Variant{ua.MustVariant("unharmed")}}}}
		rq.RequestHeader.TimeoutHint = 100
		w.refused(rq, ua.StatusBadTimeout)
		close(gate)
		if a := <-got; a != "unharmed" {
			t.Errorf("the handler reads %q", a)
		}
	})
}

// Whatever bytes come, each call is answered once, and nothing is left.
func TestJunkCalls(t *testing.T) {
	inBubble(t, stack.Options{Governors: tightGovernors(), HTTP: stack.HTTPOptions{AllowSessionless: true}}, func(s *site) {
		rnd := rand.New(rand.NewPCG(1, 9))
		w := s.web("192.0.2.10:1").login()
		w.subscribe()
		samples := [][]byte{
			w.encode(readOf(w.peer, numeric(2258))), w.encode(createOf(w.peer)), w.encode(activateOf(w.peer)),
			w.encode(&ua.PublishRequest{RequestHeader: w.header(), SubscriptionAcknowledgements: []*ua.SubscriptionAcknowledgement{{SubscriptionID: 1, SequenceNumber: 1}}}),
			w.encode(&ua.CallRequest{RequestHeader: w.header(), MethodsToCall: []*ua.CallMethodRequest{{ObjectID: numeric(85), MethodID: numeric(1)}}}),
			w.encode(&ua.CloseSessionRequest{RequestHeader: w.header()}), {}, {0}, {1, 0, 0x77, 2},
		}
		for range 3000 {
			c := w.prepare(&ua.GetEndpointsRequest{RequestHeader: &ua.RequestHeader{}})
			c.body = append([]byte{}, samples[rnd.IntN(len(samples))]...)
			switch {
			case len(c.body) == 0:
			case rnd.IntN(2) == 0:
				c.body = c.body[:rnd.IntN(len(c.body))]
			default:
				for range 1 + rnd.IntN(3) {
					c.body[rnd.IntN(len(c.body))] = byte(rnd.Uint32())
				}
			}
			s.srv.CallHandler().Call(c)
		}
		s.down()
		synctest.Wait()
		w.onceEach()
	})
}
