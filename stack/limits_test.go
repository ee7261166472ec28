package stack_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
)

func TestApplyLimitsRefuses(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		for _, tc := range []struct {
			field, word string
			change      func(*stack.Options)
		}{
			{"Limits.MaxMessageSize", "restart", func(o *stack.Options) { o.Limits.MaxMessageSize = 1 << 20 }},
			{"Limits.ReceiveBufferSize", "restart", func(o *stack.Options) { o.Limits.ReceiveBufferSize = 8192 }},
			{"RateLimits.ListenBacklog", "restart", func(o *stack.Options) { o.RateLimits.ListenBacklog = 4096 }},
			{"Isolation.Mode", "restart", func(o *stack.Options) { o.Isolation.Mode = isolation.FairShare }},
			{"Limits.MaxChannels", "smallest value that works is 503", func(o *stack.Options) { o.Limits.MaxSessions, o.Limits.MaxChannels = 500, 502 }},
			{"RateLimits.ConnectionBurst", "smallest value that works is 3", func(o *stack.Options) { o.RateLimits.ConnectionBurst = 2 }},
		} {
			o := s.srv.LimitsInForce()
			tc.change(&o)
			_, err := s.srv.ApplyLimits(o, false)
			var e *stack.OptionError
			if !errors.As(err, &e) || e.Field != tc.field || !strings.Contains(e.Reason, tc.word) {
				t.Errorf("%s: %v, want %q", tc.field, err, tc.word)
			}
		}
		if got := s.srv.LimitsInForce().Limits.MaxMessageSize; got != 4<<20 {
			t.Errorf("a refused change is in force: %d", got)
		}
	})
}

func TestApplyLimitsWhileSessionsRun(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		for range 3 {
			s.connect().login()
		}
		o := s.srv.LimitsInForce()
		o.Limits.MaxSessions, o.Limits.MaxChannels, o.RateLimits.ConnectionsPerSecondPerAddress = 2, 6, 1
		r, err := s.srv.ApplyLimits(o, true)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(r.Changed, "Limits.MaxSessions") || !slices.Contains(r.Over, stack.Overrun{What: "Limits.MaxSessions", InUse: 3, Limit: 2}) {
			t.Errorf("dry run: %+v", r)
		}
		if r.Plan.Stages[isolation.Connection].Capacity != 6 || s.srv.Plan().Stages[isolation.Connection].Capacity == 6 {
			t.Error("a dry run shows the plan and changes nothing")
		}
		if _, err := s.srv.ApplyLimits(o, false); err != nil {
			t.Fatal(err)
		}
		p := s.connect()
		p.refused(createOf(p), ua.StatusBadTooManySessions)
		o.Limits.MaxSessions = 4
		o.Limits.MaxChannels = 8
		if _, err := s.srv.ApplyLimits(o, false); err != nil {
			t.Fatal(err)
		}
		p.login()
		if got := s.srv.Plan().Stages[isolation.Connection].Capacity; got != 8 {
			t.Errorf("%d connections by the plan in force", got)
		}
	})
}

// A raised limit lets those in that wait for it.
func TestApplyLimitsWakesWaiters(t *testing.T) {
	inBubble(t, stack.Options{Isolation: narrow(1, 4)}, func(s *site) {
		started := make(chan struct{}, 10)
		rq := slow(s, started, nil)
		p := s.connect().login()
		for range 3 {
			rq.RequestHeader = p.header()
			p.start(p.encode(rq))
		}
		synctest.Wait()
		if len(started) != 1 {
			t.Fatalf("%d run", len(started))
		}
		o := s.srv.LimitsInForce()
		o.Isolation = narrow(3, 4)
		if _, err := s.srv.ApplyLimits(o, false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(started) != 3 {
			t.Errorf("%d run after the limit was raised to 3", len(started))
		}
		rq.RequestHeader = p.header()
		p.start(p.encode(rq))
		time.Sleep(time.Millisecond)
		p.must(&ua.CloseSessionRequest{RequestHeader: p.header()})
	})
}

// ServiceLevel follows the sessions and ends with 0.
func TestServiceLevelFollowsTheSessions(t *testing.T) {
	inBubble(t, stack.Options{Limits: stack.Limits{MaxSessions: 4}}, func(s *site) {
		p := s.connect().login()
		for _, want := range []byte{239, 160, 81, 2} { // of 4 sessions 1 to 4
			time.Sleep(2 * time.Second)
			if got := s.srv.ServiceLevel(); got != want {
				t.Errorf("%d sessions: level %d, want %d", s.srv.Sessions().Len(), got, want)
			}
			if got := p.read(numeric(2267)); got != want {
				t.Errorf("Server_ServiceLevel is %v, want %d", got, want)
			}
			if want != 2 {
				s.connect().login()
			}
		}
		s.down()
		if got := s.srv.ServiceLevel(); got != 0 {
			t.Errorf("after shutdown: %d", got)
		}
	})
}

// overload.md §16 with §0: limits of operations and of subscriptions change for
// the requests that come after, and the Server object tells the new ones.
func TestOperationLimitsChangeLive(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		p := s.connect().login()
		read := func(nodes ...uint32) *ua.ReadRequest {
			rq := &ua.ReadRequest{RequestHeader: p.header(), TimestampsToReturn: ua.TimestampsToReturnNeither}
			for _, n := range nodes {
				rq.NodesToRead = append(rq.NodesToRead, &ua.ReadValueID{NodeID: ua.NewNumericNodeID(0, n), AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}})
			}
			return rq
		}
		subscribe := func() *ua.CreateSubscriptionRequest {
			return &ua.CreateSubscriptionRequest{RequestHeader: p.header(), RequestedPublishingInterval: 1000, RequestedLifetimeCount: 1000, RequestedMaxKeepAliveCount: 100}
		}
		told := func(node uint32) any {
			return p.must(read(node)).(*ua.ReadResponse).Results[0].Value.Value()
		}
		two := []uint32{id.Server_ServerCapabilities_OperationLimits_MaxNodesPerRead, id.Server_ServerCapabilities_MaxSubscriptionsPerSession}
		p.must(read(two...))
		p.must(subscribe())
		o := s.srv.LimitsInForce()
		o.Limits.Operations.MaxNodesPerRead, o.Limits.MaxSubscriptionsPerSession = 1, 1
		o.Limits.MinPublishingInterval = 5 * time.Second
		r, err := s.srv.ApplyLimits(o, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Limits.Operations.MaxNodesPerRead", "Limits.MaxSubscriptionsPerSession", "Limits.MinPublishingInterval"} {
			if !slices.Contains(r.Changed, want) {
				t.Errorf("%s is not among %q", want, r.Changed)
			}
		}
		p.refused(read(two...), ua.StatusBadTooManyOperations)
		p.refused(subscribe(), ua.StatusBadTooManySubscriptions)
		if a, b := told(two[0]), told(two[1]); a != uint32(1) || b != uint32(1) {
			t.Errorf("the Server object tells %v and %v", a, b)
		}
		o.Limits.MaxSubscriptionsPerSession = 2
		if _, err := s.srv.ApplyLimits(o, false); err != nil {
			t.Fatal(err)
		}
		if got := p.must(subscribe()).(*ua.CreateSubscriptionResponse).RevisedPublishingInterval; got != 5000 {
			t.Errorf("publishing interval %v ms", got)
		}
	})
}
