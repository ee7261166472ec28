package stack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// tightGovernors leave room for little.
func tightGovernors() stack.Governors {
	return stack.Governors{
		HTTP:     &admission.HTTPOptions{},
		Commands: &admission.CommandOptions{MaxCommands: 2, MaxPrincipalCommands: 1, ReservedControlCommands: 2, MaxTenantControlCommands: 1, MaxPrincipalControlCommands: 1},
	}
}

func busyWithHint(t *testing.T, rs any, code ua.StatusCode) {
	t.Helper()
	f, ok := rs.(*ua.ServiceFault)
	if !ok || code != uastatus.BadServerTooBusy || reconnect.HeaderHint(f.ResponseHeader) == 0 {
		t.Errorf("%v (%T), want BadServerTooBusy with a hint", code, rs)
	}
}

// Commands of one principal share its budget, on whatever transport; reads and
// continuity work go on, and what was reserved comes back with the answer.
func TestCommandGovernor(t *testing.T) {
	inBubble(t, stack.Options{Governors: tightGovernors()}, func(s *site) {
		started, deaf := make(chan struct{}, 1), make(chan struct{})
		rq := slow(s, started, deaf)
		p, w := s.connect().login(), s.web("192.0.2.10:1").login()
		rq.RequestHeader = p.header()
		running := p.start(p.encode(rq))
		<-started
		if c := s.admission().Commands; c.Node.Data.Count != 1 || len(c.VerifiedScopes.Data.Principals) != 1 || c.VerifiedScopes.Data.Principals[0].Principal != "anonymous" || c.VerifiedScopes.Data.Principals[0].Tenant != "default" {
			t.Errorf("%+v", c)
		}
		second := *rq
		second.RequestHeader = w.header()
		rs, code := w.call(&second)
		busyWithHint(t, rs, code)
		rs, code = p.call(&ua.WriteRequest{RequestHeader: p.header(), NodesToWrite: []*ua.WriteValue{{NodeID: numeric(2258), AttributeID: ua.AttributeIDValue, Value: &ua.DataValue{}}}})
		busyWithHint(t, rs, code)
		p.read(numeric(2258))
		w.must(readOf(w.peer, numeric(2258)))
		// A reservation ends after its answer, which the next request may overtake.
		w.must(activateOf(w.peer))
		synctest.Wait()
		w.must(&ua.CancelRequest{RequestHeader: w.header(), RequestHandle: 1})
		synctest.Wait()
		w.must(&ua.CloseSessionRequest{RequestHeader: w.header()})
		close(deaf)
		p.result(<-running)
		synctest.Wait()
		if n := s.admission().Commands.Node.Data.Count; n != 0 {
			t.Errorf("%d commands are still held", n)
		}
		rq.RequestHeader = p.header()
		if _, code := p.call(rq); code != ua.StatusOK {
			t.Errorf("afterwards: %v", code)
		}
	})
}

// An answer that goes out early, because the client cancels, does not free what
// the handler still holds.
func TestReservationLastsAsLongAsTheHandler(t *testing.T) {
	inBubble(t, stack.Options{Governors: tightGovernors()}, func(s *site) {
		started, deaf := make(chan struct{}, 1), make(chan struct{})
		rq := slow(s, started, deaf)
		p := s.connect().login()
		rq.RequestHeader = p.header()
		rq.RequestHeader.TimeoutHint = 100
		if _, code := p.call(rq); code != ua.StatusBadTimeout {
			t.Fatalf("%v", code)
		}
		if n := s.admission().Commands.Node.Data.Count; n != 1 {
			t.Errorf("%d commands held while the handler runs", n)
		}
		close(deaf)
		synctest.Wait()
		if n := s.admission().Commands.Node.Data.Count; n != 0 {
			t.Errorf("%d commands held after it", n)
		}
	})
}

// Clients that leave all at once, more than the control lane is wide, wait for
// their turn and are not refused.
func TestManyLeaveAtOnce(t *testing.T) {
	inBubble(t, stack.Options{Governors: tightGovernors(), Limits: stack.Limits{RunSlots: 1}}, func(s *site) {
		var webs []*web
		for i := range 30 {
			webs = append(webs, s.web(fmt.Sprintf("192.0.2.10:%d", i+1)).login())
		}
		release := s.holdSlots()
		var leaving []*webCall
		for _, w := range webs {
			leaving = append(leaving, w.start(&ua.CloseSessionRequest{RequestHeader: w.header(), DeleteSubscriptions: true}))
		}
		synctest.Wait()
		release()
		webs[0].call(&ua.GetEndpointsRequest{RequestHeader: &ua.RequestHeader{}})
		for i, c := range leaving {
			if _, code := c.wait(); code != ua.StatusOK {
				t.Errorf("%d: %v", i, code)
			}
		}
		if n := s.admission().Commands.Node.Control.Count; n != 0 {
			t.Errorf("%d reservations are left", n)
		}
	})
}

// A Publish reserves for its acknowledgements only: what is parked holds nothing.
func TestPublishReservesForItsAcknowledgements(t *testing.T) {
	inBubble(t, stack.Options{Governors: tightGovernors()}, func(s *site) {
		w := s.web("192.0.2.10:1").login()
		w.subscribe()
		w.must(&ua.PublishRequest{RequestHeader: w.header()})
		for range 3 { // more than the lane has room for
			w.start(&ua.PublishRequest{RequestHeader: w.header(), SubscriptionAcknowledgements: []*ua.SubscriptionAcknowledgement{{SubscriptionID: 1, SequenceNumber: 1}}})
		}
		synctest.Wait()
		if n := s.stats().ParkedPublishes; n != 3 {
			t.Errorf("%d parked", n)
		}
		if n := s.admission().Commands.Node.Control.Count; n != 0 {
			t.Errorf("%d reservations of parked requests", n)
		}
		big := &ua.PublishRequest{RequestHeader: w.header()}
		for range 9000 { // over MaxControlPayloadBytes
			big.SubscriptionAcknowledgements = append(big.SubscriptionAcknowledgements, &ua.SubscriptionAcknowledgement{SubscriptionID: 1, SequenceNumber: 1})
		}
		rs, code := w.call(big)
		busyWithHint(t, rs, code)
	})
}

// The transport is told whom a call belongs to and of what kind it is, and a
// full account refuses.
func TestPrincipalsOfCalls(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		w := s.web("192.0.2.10:1").login()
		w.subscribe()
		many := make([]*ua.NodeID, 1001)
		for i := range many {
			many[i] = numeric(2258)
		}
		for _, tc := range []struct {
			rq   any
			want string
		}{
			{&ua.GetEndpointsRequest{RequestHeader: &ua.RequestHeader{}}, ""},
			{readOf(w.peer, numeric(2258)), "default/anonymous"},
			{readOf(w.peer, many[:1000]...), "default/anonymous"},
			{readOf(w.peer, many...), "default/anonymous heavy"},
			{browseOf(w.peer, many[:100]...), "default/anonymous"},
			{browseOf(w.peer, many[:101]...), "default/anonymous heavy"},
			{&ua.BrowseNextRequest{RequestHeader: w.header(), ContinuationPoints: make([][]byte, 100)}, "default/anonymous"},
			{&ua.BrowseNextRequest{RequestHeader: w.header(), ContinuationPoints: make([][]byte, 101)}, "default/anonymous heavy"},
			{&ua.PublishRequest{RequestHeader: w.header()}, "default/anonymous control"},
			{activateOf(w.peer), "default/anonymous control"},
			{&ua.CloseSessionRequest{RequestHeader: w.header()}, "default/anonymous control"},
		} {
			if c := w.start(tc.rq); c.account != tc.want {
				t.Errorf("%T: account %q, want %q", tc.rq, c.account, tc.want)
			}
			synctest.Wait()
		}
		full := s.web("192.0.2.10:1").login()
		c := full.prepare(readOf(full.peer, numeric(2258)))
		c.full = true
		s.srv.CallHandler().Call(c)
		rs, code := c.wait()
		busyWithHint(t, rs, code)
	})
}

func browseOf(p *peer, ids ...*ua.NodeID) *ua.BrowseRequest {
	rq := &ua.BrowseRequest{RequestHeader: p.header(), View: &ua.ViewDescription{ViewID: numeric(0)}}
	for _, id := range ids {
		rq.NodesToBrowse = append(rq.NodesToBrowse, &ua.BrowseDescription{NodeID: id, ReferenceTypeID: numeric(0)})
	}
	return rq
}

// admins makes everybody who is anonymous an administrator of a tenant.
type admins struct{}

func (admins) Authenticate(_ context.Context, a *session.Attempt) (*session.Identity, error) {
	return &session.Identity{Kind: a.Kind, User: "ada", Tenant: "north", Admin: true}, nil
}

func (admins) TokenTypes() []ua.UserTokenType { return []ua.UserTokenType{ua.UserTokenTypeAnonymous} }

func statusOf(p *peer) *ua.CallRequest {
	id, err := ua.ParseNodeID(stack.AdmissionStatusMethod)
	if err != nil {
		p.Fatal(err)
	}
	return &ua.CallRequest{RequestHeader: p.header(), MethodsToCall: []*ua.CallMethodRequest{{ObjectID: numeric(2253), MethodID: id}}}
}

// overload.md §17: the status is for administrators, as JSON.
func TestAdmissionStatusMethod(t *testing.T) {
	t.Run("anybody", func(t *testing.T) {
		inBubble(t, stack.Options{Governors: tightGovernors()}, func(s *site) {
			p := s.connect().login()
			if r := p.must(statusOf(p)).(*ua.CallResponse).Results[0]; r.StatusCode != ua.StatusBadUserAccessDenied || len(r.OutputArguments) != 0 {
				t.Errorf("%v", r.StatusCode)
			}
		})
	})
	t.Run("administrator", func(t *testing.T) {
		o := stack.Options{Governors: tightGovernors(), Authenticator: admins{}}
		o.Security = stack.Security{Policies: stack.NoPolicies, AllowNone: true}
		synctest.Test(t, func(t *testing.T) {
			bubble(t, o, func(s *site) {
				p := s.connect().login()
				r := p.must(statusOf(p)).(*ua.CallResponse).Results[0]
				if r.StatusCode != ua.StatusOK || len(r.OutputArguments) != 1 {
					t.Fatalf("%v", r.StatusCode)
				}
				var st stack.AdmissionStatus
				if err := json.Unmarshal([]byte(r.OutputArguments[0].Value().(string)), &st); err != nil {
					t.Fatal(err)
				}
				if st.HTTP == nil || st.Commands == nil || st.Commands.Limits.MaxCommands != 2 {
					t.Fatalf("%+v", st)
				}
				if ps := st.Commands.VerifiedScopes.Data.Principals; len(ps) != 1 || ps[0].Tenant != "north" || ps[0].Principal != "ada" {
					t.Errorf("this very call is held for %+v", ps)
				}
			})
		})
	})
}

// Options that a governor cannot work with fail start, by name.
func TestGovernorOptions(t *testing.T) {
	_, err := stack.NewServer(stack.Options{Security: stack.Security{Policies: stack.NoPolicies, AllowNone: true}, Governors: stack.Governors{Commands: &admission.CommandOptions{MaxCommands: -1}}})
	if o, ok := err.(*stack.OptionError); !ok || o.Field != "Governors.Commands.MaxCommands" {
		t.Errorf("%v", err)
	}
}
