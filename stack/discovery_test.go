package stack_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// hostile.md X36: one address that asks for ever who the server is gets busy
// answers with a hint; other addresses, and clients with a session, go on.
func TestDiscoveryIsBoundedPerAddress(t *testing.T) {
	o := stack.Options{RateLimits: stack.RateLimits{DiscoveryPerSecond: 2, DiscoveryBurst: 3, Disabled: true}}
	inBubble(t, o, func(s *site) {
		p, same := s.connect(), s.connect()
		endpoints := func(p *peer) any {
			return &ua.GetEndpointsRequest{RequestHeader: p.header(), EndpointURL: "opc.tcp://192.0.2.2:4840"}
		}
		find := func(p *peer) any {
			return &ua.FindServersRequest{RequestHeader: p.header(), EndpointURL: "opc.tcp://192.0.2.2:4840"}
		}
		p.must(endpoints(p))
		p.must(find(p))
		same.must(endpoints(same))
		for _, rq := range []any{endpoints(p), find(p)} {
			f := p.refused(rq, uastatus.BadServerTooBusy)
			if hint := reconnect.HeaderHint(f.ResponseHeader); hint != 500*time.Millisecond {
				t.Errorf("hint %v", hint)
			}
		}
		other, err := s.through("198.51.100.9", netip.AddrPort{})
		if err != nil {
			t.Fatal(err)
		}
		other.must(endpoints(other))
		same.login() // nothing else is bounded by it
		for range 5 {
			same.must(endpoints(same))
		}
		p.refused(endpoints(p), uastatus.BadServerTooBusy)
		time.Sleep(500 * time.Millisecond)
		p.must(endpoints(p))

		live := s.srv.LimitsInForce()
		live.RateLimits.DiscoveryPerSecond = -1
		if _, err := s.srv.ApplyLimits(live, false); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			p.must(endpoints(p))
		}
	})
}
