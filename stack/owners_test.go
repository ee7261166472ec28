package stack_test

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// byPort claims everybody with key, or nobody.
type byPort struct {
	claim atomic.Pointer[isolation.OwnerClaim]
	asked atomic.Int64
}

func (c *byPort) ClassifyIngress(netip.AddrPort, netip.AddrPort) (isolation.OwnerClaim, bool) {
	return isolation.OwnerClaim{}, false
}

func (c *byPort) Classify(_ isolation.ServiceKind, ch *isolation.ChannelFacts, b *isolation.BindingFacts) (isolation.OwnerClaim, bool) {
	c.asked.Add(1)
	if ch.Certificate != nil {
		panic("a certificate of a channel without security is no evidence")
	}
	if claim := c.claim.Load(); claim != nil && b != nil {
		return *claim, true
	}
	return isolation.OwnerClaim{}, false
}

// The classifier is asked once for each binding, not for each request, and its
// owners are what requests are charged to.
func TestClassifierIsAskedOncePerBinding(t *testing.T) {
	c := new(byPort)
	c.claim.Store(&isolation.OwnerClaim{Key: "plant", Class: isolation.Bootstrap})
	inBubble(t, stack.Options{Classifier: c}, func(s *site) {
		started := make(chan struct{}, 10)
		rq := slow(s, started, nil)
		p := s.connect().login()
		p.read(numeric(2258))
		before := c.asked.Load()
		for range 10 {
			p.read(numeric(2258))
		}
		if n := c.asked.Load() - before; n != 0 {
			t.Errorf("asked %d times for 10 requests", n)
		}
		rq.RequestHeader = p.header()
		p.start(p.encode(rq))
		<-started
		stages, _ := s.usage()
		if u := stages[isolation.RequestExecution]; u.Bootstrap != 1 || u.Shared != 0 {
			t.Errorf("a bootstrap request uses its floor: %+v", u)
		}
		p.must(&ua.CloseSessionRequest{RequestHeader: p.header()})
	})
}

// A trusted key that nobody provisioned is refused, and the log says so.
func TestUnprovisionedTrustIsNoFreePass(t *testing.T) {
	c := new(byPort)
	c.claim.Store(&isolation.OwnerClaim{Key: "nobody", Class: isolation.Trusted})
	inBubble(t, stack.Options{Classifier: c}, func(s *site) {
		p := s.connect()
		p.create(0)
		p.activate()
		p.refused(readOf(p, numeric(2258)), uastatus.BadServerTooBusy)
		if !testLog.contains("the classifier named an owner that cannot be had") {
			t.Error("nothing in the log")
		}
	})
}

// A request that waited is refused when its owner is somebody else by then, and
// the next one belongs to the new owner.
func TestMappingChangesWhileARequestWaits(t *testing.T) {
	c := new(byPort)
	inBubble(t, stack.Options{Classifier: c, Isolation: narrow(1, 4)}, func(s *site) {
		started, deaf := make(chan struct{}, 10), make(chan struct{})
		rq := slow(s, started, deaf)
		p := s.connect().login()
		var waiting []<-chan response
		for range 2 {
			rq.RequestHeader = p.header()
			waiting = append(waiting, p.start(p.encode(rq)))
		}
		synctest.Wait()
		c.claim.Store(&isolation.OwnerClaim{Key: "plant", Class: isolation.Established})
		close(deaf)
		if _, code := p.result(<-waiting[0]); code != ua.StatusOK {
			t.Errorf("the one that ran: %v", code)
		}
		if _, code := p.result(<-waiting[1]); code != uastatus.BadServerTooBusy {
			t.Errorf("the one that waited: %v", code)
		}
		p.must(&ua.CallRequest{RequestHeader: p.header(), MethodsToCall: rq.MethodsToCall})
	})
}

// The continuity rule, overload.md §7: when nothing is left for everybody, the
// large request of a session that no classifier has claimed is put together from
// what is kept for those who come back; a channel without session is not helped.
func TestContinuityOfAssembly(t *testing.T) {
	c := new(byPort)
	o := stack.Options{Classifier: c, Limits: stack.Limits{MaxMessageSize: 64 << 10},
		Budget: stack.Budget{MaxBytes: 3 * 4 * (64<<10 + 65535)}}
	inBubble(t, o, func(s *site) {
		partial := func(p *peer) {
			_, _ = p.c.Write(p.c.Seal(securechannel.RawChunk{Final: 'C', RequestID: p.c.NextRequestID(), Body: make([]byte, 60_000)}))
			synctest.Wait()
		}
		member := s.connect().login()
		var strangers []*peer
		for range 30 {
			p := s.connect()
			partial(p)
			if ended(p) {
				if !errors.Is(p.err, ua.StatusBadTCPNotEnoughResources) {
					t.Errorf("a stranger: %v", p.err)
				}
				break
			}
			strangers = append(strangers, p)
		}
		if len(strangers) == 0 || len(strangers) == 30 {
			t.Fatalf("%d strangers have room", len(strangers))
		}
		stages, _ := s.usage()
		if u := stages[isolation.ReassemblyBytes]; u.Reconnect != 0 {
			t.Errorf("strangers use what is kept: %+v", u)
		}
		partial(member)
		if ended(member) {
			t.Fatalf("a member: %v", member.err)
		}
		if stages, _ = s.usage(); stages[isolation.ReassemblyBytes].Reconnect == 0 {
			t.Errorf("%+v", stages[isolation.ReassemblyBytes])
		}
	})
}
