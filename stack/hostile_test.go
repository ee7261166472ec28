package stack_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
)

func subscribe(p *peer) uint32 {
	p.Helper()
	return p.must(&ua.CreateSubscriptionRequest{RequestHeader: p.header(), RequestedPublishingInterval: 1000, RequestedLifetimeCount: 1000, RequestedMaxKeepAliveCount: 100,
		PublishingEnabled: true}).(*ua.CreateSubscriptionResponse).SubscriptionID
}

// I14: the DeleteSubscriptions flag of CloseSession is honoured.
func TestHostileI14CloseSessionFlag(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		for _, deleted := range []bool{true, false} {
			p := s.connect().login()
			id := subscribe(p)
			p.must(&ua.CloseSessionRequest{RequestHeader: p.header(), DeleteSubscriptions: deleted})
			want := 1
			if deleted {
				want = 0
			}
			if st := s.stats(); st.Subscriptions != want {
				t.Errorf("DeleteSubscriptions %v: %d subscriptions", deleted, st.Subscriptions)
			}
			p.close()
			synctest.Wait()
			q := s.connect().login()
			rs := q.must(&ua.TransferSubscriptionsRequest{RequestHeader: q.header(), SubscriptionIDs: []uint32{id}, SendInitialValues: true}).(*ua.TransferSubscriptionsResponse)
			// It is there, but not for an anonymous client without security (OPC 10000-4 §5.14.7.1).
			refusal := ua.StatusBadUserAccessDenied
			if deleted {
				refusal = ua.StatusBadSubscriptionIDInvalid
			}
			if got := rs.Results[0].StatusCode; got != refusal {
				t.Errorf("DeleteSubscriptions %v: transfer %v, want %v", deleted, got, refusal)
			}
		}
	})
}

// C10: when the server forgets a session, each request that waits is answered
// once, and no more.
func TestHostileC10SessionForgotten(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		p := s.connect().login()
		subscribe(p)
		p.must(&ua.PublishRequest{RequestHeader: p.header()}) // the first keep-alive
		var waiting []<-chan response
		for range 5 {
			waiting = append(waiting, p.start(p.encode(&ua.PublishRequest{RequestHeader: p.header()})))
		}
		synctest.Wait()
		s.srv.Sessions().Each(func(sess *session.Session) bool { return s.srv.Sessions().Terminate(sess, true) })
		for _, w := range waiting {
			if _, code := p.result(<-w); code != ua.StatusBadSessionClosed && code != ua.StatusBadSessionIDInvalid {
				t.Errorf("%v", code)
			}
		}
		p.refused(&ua.PublishRequest{RequestHeader: p.header()}, ua.StatusBadSessionIDInvalid)
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.early) != 0 {
			t.Errorf("answers nobody asked for: %v", p.early)
		}
	})
}

// E10: a callback that ends its own session.
func TestHostileE10CallbackEndsItsSession(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		ns := s.srv.AddressSpace().Namespace("urn:plant")
		m := ns.Method("Suicide", nil, nil, func(_ context.Context, c *addressspace.Call) ([]any, error) {
			s.srv.Sessions().Terminate(s.srv.Sessions().Find(c.Caller.SessionID), true)
			return nil, nil
		})
		p := s.connect().login()
		subscribe(p)
		_, code := p.call(&ua.CallRequest{RequestHeader: p.header(), MethodsToCall: []*ua.CallMethodRequest{{ObjectID: numeric(id.ObjectsFolder), MethodID: m.ID().UA()}}})
		if code != ua.StatusBadSessionClosed {
			t.Errorf("%v", code)
		}
		s.connect().login().read(numeric(2258))
	})
}

// X8: subscriptions are capped by session.
func TestHostileX8Subscriptions(t *testing.T) {
	inBubble(t, stack.Options{Limits: stack.Limits{MaxSubscriptionsPerSession: 3, MaxMonitoredItemsPerSubscription: 4}}, func(s *site) {
		p := s.connect().login()
		var sub uint32
		for range 3 {
			sub = subscribe(p)
		}
		p.refused(&ua.CreateSubscriptionRequest{RequestHeader: p.header(), RequestedPublishingInterval: 1000, PublishingEnabled: true}, ua.StatusBadTooManySubscriptions)
		rq := &ua.CreateMonitoredItemsRequest{RequestHeader: p.header(), SubscriptionID: sub, TimestampsToReturn: ua.TimestampsToReturnBoth}
		for i := range 6 {
			rq.ItemsToCreate = append(rq.ItemsToCreate, &ua.MonitoredItemCreateRequest{ItemToMonitor: &ua.ReadValueID{NodeID: numeric(2258), AttributeID: ua.AttributeIDValue},
				MonitoringMode: ua.MonitoringModeReporting, RequestedParameters: &ua.MonitoringParameters{ClientHandle: uint32(i), SamplingInterval: 1000, QueueSize: 1}})
		}
		refused := 0
		for _, r := range p.must(rq).(*ua.CreateMonitoredItemsResponse).Results {
			if r.StatusCode == ua.StatusBadTooManyMonitoredItems {
				refused++
			}
		}
		if refused != 2 {
			t.Errorf("%d of 6 items refused, want 2", refused)
		}
	})
}

// X10: 100 Call messages with far too many operations each, not waited for, and
// the session closed behind them.
func TestHostileX10CallFlood(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		p := s.connect().login()
		sub := subscribe(p)
		many := &ua.CallRequest{RequestHeader: p.header()}
		one := &ua.CallMethodRequest{ObjectID: numeric(id.Server), MethodID: numeric(id.Server_GetMonitoredItems), InputArguments: []*ua.Variant{ua.MustVariant(sub)}}
		for range 28_671 {
			many.MethodsToCall = append(many.MethodsToCall, one)
		}
		few := &ua.CallRequest{RequestHeader: p.header(), MethodsToCall: many.MethodsToCall[:1000]}
		tooMany, allowed := p.encode(many), p.encode(few)
		var refused, ran []<-chan response
		for range 20 {
			refused = append(refused, p.start(tooMany))
			ran = append(ran, p.start(allowed))
		}
		closed := p.start(p.encode(&ua.CloseSessionRequest{RequestHeader: p.header(), DeleteSubscriptions: true}))
		for _, w := range refused {
			if _, code := p.result(<-w); code != ua.StatusBadTooManyOperations && code != ua.StatusBadSessionClosed {
				t.Errorf("28,671 operations: %v", code)
			}
		}
		for _, w := range ran {
			if _, code := p.result(<-w); code != ua.StatusOK && code != ua.StatusBadSessionClosed {
				t.Errorf("1,000 operations: %v", code)
			}
		}
		if _, code := p.result(<-closed); code != ua.StatusOK {
			t.Errorf("CloseSession: %v", code)
		}
	})
}

// X12: one client browses everything again and again while nodes come and go.
func TestHostileX12BrowseWhileNodesChange(t *testing.T) {
	inBubble(t, stack.Options{}, func(s *site) {
		ns := s.srv.AddressSpace().Namespace("urn:plant")
		var wg sync.WaitGroup
		stop := make(chan struct{})
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				folder := fmt.Sprintf("f%d", i%7)
				for k := range 20 {
					_, _ = ns.AddVariable(fmt.Sprintf("%s.v%d", folder, k), float64(k))
				}
				ns.Delete(folder)
			}
		})
		p := s.connect()
		p.settle = nil
		p.login()
		for range 100 {
			rs := p.must(&ua.BrowseRequest{RequestHeader: p.header(), View: &ua.ViewDescription{ViewID: numeric(0)}, RequestedMaxReferencesPerNode: 2,
				NodesToBrowse: []*ua.BrowseDescription{{NodeID: numeric(id.ObjectsFolder), ReferenceTypeID: numeric(0), ResultMask: 63}}}).(*ua.BrowseResponse)
			for r := rs.Results[0]; r.ContinuationPoint != nil; {
				next := p.must(&ua.BrowseNextRequest{RequestHeader: p.header(), ContinuationPoints: [][]byte{r.ContinuationPoint}}).(*ua.BrowseNextResponse)
				r = next.Results[0]
				for _, ref := range r.References {
					if rd := p.must(readOf(p, ref.NodeID.NodeID)).(*ua.ReadResponse); len(rd.Results) != 1 {
						t.Fatal("no result")
					}
				}
			}
		}
		close(stop)
		wg.Wait()
	})
}

// A channel that ends takes its parked requests and continuation points with its
// session, and what its client started in other ways ends too.
func TestHostileConnectionCut(t *testing.T) {
	inBubble(t, stack.Options{Limits: stack.Limits{MaxSessionTimeout: 30 * time.Second}}, func(s *site) {
		started := make(chan struct{}, 1)
		rq := slow(s, started, nil)
		p := s.connect().login()
		rq.RequestHeader = p.header()
		p.start(p.encode(rq))
		<-started
		p.must(&ua.BrowseRequest{RequestHeader: p.header(), View: &ua.ViewDescription{ViewID: numeric(0)}, RequestedMaxReferencesPerNode: 1,
			NodesToBrowse: []*ua.BrowseDescription{{NodeID: numeric(id.Server), ReferenceTypeID: numeric(0)}}})
		p.c.Conn().Close()
		synctest.Wait()
		if st := s.stats(); st.Channels != 0 || st.Sessions != 1 || st.BlockingRequests != 1 {
			t.Errorf("after the cut: %+v", st)
		}
		time.Sleep(time.Minute) // the session's time is up
		if st := s.stats(); st.Sessions != 0 || st.BlockingRequests != 0 {
			t.Errorf("a minute later: %+v", st)
		}
	})
}
