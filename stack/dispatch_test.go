package stack_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// holdSlots takes all run slots, so that requests must wait.
func (s *site) holdSlots() (release func()) {
	s.Helper()
	o, err := s.srv.Isolation().Issue("test", isolation.Established)
	if err != nil {
		s.Fatal(err)
	}
	_, n := s.srv.Isolation().RunSlots()
	leases := make([]isolation.Lease, n)
	for i := range leases {
		if r, _ := s.srv.Isolation().AdmitInline(&leases[i], o, 1); r != isolation.Granted {
			s.Fatal(r)
		}
	}
	return func() {
		for i := range leases {
			leases[i].Release()
		}
	}
}

// Without a run slot requests wait; the next that finds one takes them along, in
// their order, and each is answered once.
func TestSaturatedRequestsWait(t *testing.T) {
	inBubble(t, stack.Options{Limits: stack.Limits{RunSlots: 2}}, func(s *site) {
		p := s.connect().login()
		release := s.holdSlots()
		var waiting []<-chan response
		for range 5 {
			waiting = append(waiting, p.start(p.encode(readOf(p, numeric(2258)))))
		}
		synctest.Wait()
		if st := s.stats(); st.QueuedRequests != 5 {
			t.Errorf("%d wait, want 5", st.QueuedRequests)
		}
		release()
		p.read(numeric(2258))
		for _, w := range waiting {
			if _, code := p.result(<-w); code != ua.StatusOK {
				t.Errorf("%v", code)
			}
		}
	})
}

// What waits ends with its timeout, its session and its channel.
func TestWaitingRequestsEnd(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(s *site, p *peer)
		want ua.StatusCode
	}{
		{"timeout hint", func(*site, *peer) { time.Sleep(2 * time.Second) }, ua.StatusBadTimeout},
		{"session terminated", func(s *site, _ *peer) { s.srv.Sessions().Terminate(s.onlySession(), true) }, ua.StatusBadSessionClosed},
		{"shutdown", func(s *site, _ *peer) { s.down() }, ua.StatusBadServerHalted},
		{"channel closed", func(_ *site, p *peer) { p.close() }, ua.StatusBadUnexpectedError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, stack.Options{Limits: stack.Limits{RunSlots: 1}}, func(s *site) {
				p := s.connect().login()
				defer s.holdSlots()()
				rq := readOf(p, numeric(2258))
				rq.RequestHeader.TimeoutHint = 1000
				w := p.start(p.encode(rq))
				synctest.Wait()
				tc.end(s, p)
				if _, code := p.result(<-w); code != tc.want {
					t.Errorf("%v, want %v", code, tc.want)
				}
				synctest.Wait()
				if st := s.stats(); st.QueuedRequests != 0 && tc.name != "channel closed" {
					t.Errorf("%d still wait", st.QueuedRequests)
				}
			})
		})
	}
}

// A request whose session was activated again while it waited is not run for
// somebody else.
func TestWaitingRequestIsLookedAtAgain(t *testing.T) {
	inBubble(t, stack.Options{Isolation: narrow(1, 10)}, func(s *site) {
		started, deaf := make(chan struct{}, 10), make(chan struct{})
		rq := slow(s, started, deaf)
		p := s.connect().login()
		var waiting []<-chan response
		for range 2 {
			rq.RequestHeader = p.header()
			waiting = append(waiting, p.start(p.encode(rq)))
		}
		<-started
		synctest.Wait()
		p.activate()
		close(deaf)
		if _, code := p.result(<-waiting[0]); code != ua.StatusOK {
			t.Errorf("the one that ran: %v", code)
		}
		r := <-waiting[1]
		if _, code := p.result(r); code != uastatus.BadServerTooBusy {
			t.Errorf("the one that waited: %v", code)
		} else if reconnect.HeaderHint(r.msg.(*ua.ServiceFault).ResponseHeader) == 0 {
			t.Error("busy without a hint")
		}
		if len(started) != 0 {
			t.Error("it ran all the same")
		}
	})
}

// from opens a channel from an address of its own.
func (s *site) from(addr string) *peer {
	s.Helper()
	conn, err := s.ln.Dial(context.Background(), netip.MustParseAddrPort(addr))
	if err != nil {
		s.Fatal(err)
	}
	p, err := open(s.T, conn)
	if err != nil {
		s.Fatal(err)
	}
	s.peers = append(s.peers, p)
	return p
}

// An owner who fills the queue gives places up, newest first, to one who has
// less than its share; each owner then has its turn.
func TestFullQueueGivesOver(t *testing.T) {
	inBubble(t, stack.Options{Isolation: narrow(1, 4)}, func(s *site) {
		var mu sync.Mutex
		var order []string
		gate := make(chan struct{})
		m := s.srv.AddressSpace().Namespace("urn:plant").Method("Wait", []ua.Argument{{Name: "who", DataType: ua.NewNumericNodeID(0, 12), ValueRank: -1}}, nil,
			func(_ context.Context, c *addressspace.Call) ([]any, error) {
				mu.Lock()
				order = append(order, c.Arg(0).(string))
				mu.Unlock()
				<-gate
				return nil, nil
			})
		call := func(p *peer, who string) <-chan response {
			rq := &ua.CallRequest{RequestHeader: p.header(), MethodsToCall: []*ua.CallMethodRequest{{ObjectID: numeric(85), MethodID: m.ID().UA(), InputArguments: []*ua.Variant{ua.MustVariant(who)}}}}
			w := p.start(p.encode(rq))
			synctest.Wait()
			return w
		}
		hog, other := s.from("192.0.2.10:1").login(), s.from("192.0.2.20:1").login()
		var hogs []<-chan response
		for i := range 5 { // one runs, four wait
			hogs = append(hogs, call(hog, fmt.Sprint("hog", i)))
		}
		if _, code := hog.result(<-call(hog, "hog5")); code != uastatus.BadServerTooBusy {
			t.Errorf("the hog's sixth: %v", code)
		}
		others := []<-chan response{call(other, "other0"), call(other, "other1")}
		for i := 4; i >= 3; i-- {
			r := <-hogs[i]
			if _, code := hog.result(r); code != uastatus.BadServerTooBusy {
				t.Errorf("the hog's newest give their places up: %v", code)
			} else if reconnect.HeaderHint(r.msg.(*ua.ServiceFault).ResponseHeader) == 0 {
				t.Error("busy without a hint")
			}
		}
		if _, code := other.result(<-call(other, "other2")); code != uastatus.BadServerTooBusy {
			t.Errorf("past its share of two: %v", code)
		}
		close(gate)
		for _, w := range append(others, hogs[:3]...) {
			if _, code := hog.result(<-w); code != ua.StatusOK {
				t.Errorf("%v", code)
			}
		}
		if got, want := fmt.Sprint(order), "[hog0 hog1 other0 hog2 other1]"; got != want {
			t.Errorf("ran %s, want %s", got, want)
		}
	})
}

// Who has less than its share gets a place, whichever stage is full and however
// many others are there: with more owners than places a share is less than one.
func TestGiveOver(t *testing.T) {
	const size = 64 << 10
	bytes := narrow(1, 100)
	bytes.Stages = append(bytes.Stages, isolation.StageOptions{Stage: isolation.RequestQueueBytes, Capacity: isolation.Amount(5 * size)})
	for _, c := range []struct {
		name      string
		isolation isolation.Options
		idle      int // other owners
		places    int // that one with nothing gets of the five that the hog fills
	}{
		{"requests", narrow(1, 4), 0, 2},
		{"requests, as many owners as places", narrow(1, 4), 2, 1},
		{"requests, more owners than places", narrow(1, 4), 8, 1},
		{"bytes", bytes, 0, 2}, // the third would be more than half of five
		{"bytes, more owners than places", bytes, 8, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, stack.Options{Isolation: c.isolation, Limits: stack.Limits{MaxMessageSize: size}}, func(s *site) {
				gate := make(chan struct{})
				m := s.srv.AddressSpace().Namespace("urn:plant").Method("Wait", nil, nil,
					func(context.Context, *addressspace.Call) ([]any, error) { <-gate; return nil, nil })
				call := func(p *peer) <-chan response {
					w := p.start(p.encode(&ua.CallRequest{RequestHeader: p.header(), MethodsToCall: []*ua.CallMethodRequest{{ObjectID: numeric(85), MethodID: m.ID().UA()}}}))
					synctest.Wait()
					return w
				}
				hog, other := s.from("192.0.2.10:1").login(), s.from("192.0.2.20:1").login()
				for i := range c.idle {
					s.from(fmt.Sprintf("192.0.2.%d:1", 100+i))
				}
				var hogs, others []<-chan response
				for range 5 {
					hogs = append(hogs, call(hog))
				}
				for range c.places + 1 {
					others = append(others, call(other))
				}
				if _, code := other.result(<-others[c.places]); code != uastatus.BadServerTooBusy {
					t.Errorf("past its share: %v", code)
				}
				close(gate)
				for _, w := range others[:c.places] {
					if _, code := other.result(<-w); code != ua.StatusOK {
						t.Errorf("one within its share: %v", code)
					}
				}
				for i, w := range hogs {
					want := ua.StatusOK
					if i >= len(hogs)-c.places {
						want = uastatus.BadServerTooBusy
					}
					if _, code := hog.result(<-w); code != want {
						t.Errorf("the hog's request %d: %v, want %v", i, code, want)
					}
				}
			})
		})
	}
}

// Random requests, cancels, closes and a stop: each request gets exactly one
// answer or the end of its connection, and every lease comes back (inBubble
// looks at those).
func TestEveryRequestIsAnsweredOnce(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			o := stack.Options{Isolation: narrow(3, 6), Limits: stack.Limits{RunSlots: 1, MaxOutstandingPerConnection: 40}}
			if seed%4 == 3 {
				o.Isolation.Mode = isolation.SharedOnly
			}
			inBubble(t, o, func(s *site) { randomWalk(s, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func randomWalk(s *site, rnd *rand.Rand) {
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

	type pending struct {
		p *peer
		w <-chan response
	}
	var all []pending
	var peers []*peer
	fresh := func() *peer {
		p := s.from(fmt.Sprintf("192.0.2.%d:%d", 10+len(peers)%3, 1000+len(s.peers))).login()
		_, code := p.call(&ua.CreateSubscriptionRequest{RequestHeader: p.header(), RequestedPublishingInterval: 50, RequestedLifetimeCount: 1000, RequestedMaxKeepAliveCount: 2, PublishingEnabled: true})
		if code != ua.StatusOK && code != uastatus.BadServerTooBusy {
			s.Fatalf("CreateSubscription: %v", code)
		}
		return p
	}
	for range 4 {
		peers = append(peers, fresh())
	}
	for range 300 {
		i := rnd.IntN(len(peers))
		p := peers[i]
		var rq any
		h := p.header()
		if rnd.IntN(4) == 0 {
			h.TimeoutHint = uint32(1 + rnd.IntN(30))
		}
		switch rnd.IntN(40) {
		default:
			rq = &ua.CallRequest{RequestHeader: h, MethodsToCall: []*ua.CallMethodRequest{{ObjectID: numeric(85), MethodID: m.ID().UA(), InputArguments: []*ua.Variant{ua.MustVariant(uint32(rnd.IntN(20)))}}}}
		case 0, 1, 2, 3, 4, 5, 6, 7:
			rd := readOf(p, numeric(2258))
			rd.RequestHeader = h
			rq = rd
		case 8, 9, 10, 11, 12, 13:
			rd := readOf(p, lazy.Node().ID().UA(), numeric(2258))
			rd.RequestHeader = h
			rq = rd
		case 14, 15, 16, 17, 18, 19:
			rq = &ua.PublishRequest{RequestHeader: h}
		case 20, 21, 22:
			rq = &ua.CancelRequest{RequestHeader: h, RequestHandle: p.handle - uint32(rnd.IntN(5))}
		case 23:
			rq = &ua.CloseSessionRequest{RequestHeader: h, DeleteSubscriptions: rnd.IntN(2) == 0}
		case 24:
			p.close()
			peers[i] = fresh()
			continue
		case 25:
			peers[i] = fresh() // the old one stays as it is, its session perhaps closed
			continue
		case 26, 27:
			time.Sleep(time.Duration(rnd.IntN(40)) * time.Millisecond)
			continue
		}
		all = append(all, pending{p, p.start(p.encode(rq))})
	}
	if rnd.IntN(2) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rnd.IntN(30))*time.Millisecond)
	defer cancel()
	_ = s.srv.Shutdown(ctx)
	for i, x := range all {
		select {
		case r := <-x.w:
			if r.err == nil {
				if f, ok := r.msg.(*ua.ServiceFault); ok && f.ResponseHeader.ServiceResult == uastatus.BadServerTooBusy && reconnect.HeaderHint(f.ResponseHeader) == 0 {
					s.Errorf("request %d: busy without a hint", i)
				}
			}
		case <-time.After(time.Second):
			s.Fatalf("request %d was not answered", i)
		}
	}
	for _, p := range s.peers {
		p.mu.Lock()
		if len(p.early) != 0 {
			s.Errorf("answered twice: %v", p.early)
		}
		p.mu.Unlock()
	}
}

// The session's own limit comes before the server's: with both reached the
// session's oldest Publish makes room for its newest.
func TestSessionsPublishLimitComesFirst(t *testing.T) {
	o := stack.Options{Limits: stack.Limits{MaxPublishRequests: 3, MaxParkedRequests: 6}} // three of six are floors
	inBubble(t, o, func(s *site) {
		p := s.connect().login()
		p.must(&ua.CreateSubscriptionRequest{RequestHeader: p.header(), RequestedPublishingInterval: 1000, RequestedLifetimeCount: 1000, RequestedMaxKeepAliveCount: 100, PublishingEnabled: true})
		p.must(&ua.PublishRequest{RequestHeader: p.header()}) // the first keep-alive
		var waiting []<-chan response
		for range 4 {
			waiting = append(waiting, p.start(p.encode(&ua.PublishRequest{RequestHeader: p.header()})))
		}
		if _, code := p.result(<-waiting[0]); code != ua.StatusBadTooManyPublishRequests {
			t.Errorf("the oldest: %v", code)
		}
		synctest.Wait()
		if n := s.used(isolation.ParkedRequest); n != 3 {
			t.Errorf("%d parked", n)
		}
		q := s.connect().login()
		q.must(&ua.CreateSubscriptionRequest{RequestHeader: q.header(), RequestedPublishingInterval: 1000, RequestedLifetimeCount: 1000, RequestedMaxKeepAliveCount: 100, PublishingEnabled: true})
		q.refused(&ua.PublishRequest{RequestHeader: q.header()}, uastatus.BadServerTooBusy)
	})
}
