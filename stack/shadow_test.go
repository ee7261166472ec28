package stack_test

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/gopcua/opcua/ua"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// shadowed sums the metric shadow_refusals_total by limit.
func (s *site) shadowed() map[string]float64 {
	s.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(s.srv.Collector())
	families, err := reg.Gather()
	if err != nil {
		s.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "opcua_server_shadow_refusals_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "limit" && m.GetCounter().GetValue() > 0 {
					sums[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sums
}

// overload.md §16: shadow mode counts what would be refused and lets it pass: by
// the rates of connections and of discovery, by establishment, by a stage of
// isolation. Caps hold all the same, and when the mode ends so do the limits.
func TestShadowMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, auth := establishing(1, 0)
		o.Shadow = true
		o.Isolation = narrow(1, 1)
		o.Limits.MaxSessions, o.Limits.MaxChannels = 4, 5
		o.RateLimits.ConnectionsPerSecond, o.RateLimits.ConnectionBurst = 1, 1
		o.RateLimits.DiscoveryPerSecond, o.RateLimits.DiscoveryBurst = 1, 1
		bubble(t, o, func(s *site) {
			first, second, third := s.connect(), s.connect(), s.connect() // two over the burst
			for range 3 {
				first.must(&ua.GetEndpointsRequest{RequestHeader: first.header(), EndpointURL: "opc.tcp://192.0.2.2:4840"})
			}
			first.create(0)
			w := first.start(first.encode(activateOf(first)))
			synctest.Wait()
			second.create(0) // one is in flight, one may be
			close(auth.open)
			first.result(<-w)
			second.activate()

			started := make(chan struct{}, 10)
			rq := slow(s, started, nil)
			for range 4 { // one runs, one may wait, two more wait
				rq.RequestHeader = first.header()
				first.start(first.encode(rq))
			}
			synctest.Wait()
			if st := s.stats(); st.QueuedRequests != 3 || len(started) != 1 || st.RefusedRequests != 0 {
				t.Errorf("%d wait, %d run, %d refused", st.QueuedRequests, len(started), st.RefusedRequests)
			}
			got := s.shadowed()
			for limit, want := range map[string]float64{"connections": 2, "discovery": 2, "establishment": 1, "RequestQueue": 2} {
				if got[limit] != want {
					t.Errorf("%s: %v passed over, want %v", limit, got[limit], want)
				}
			}
			live := s.srv.LimitsInForce()
			live.Shadow = false
			r, err := s.srv.ApplyLimits(live, false)
			if err != nil || len(r.Changed) != 1 || r.Changed[0] != "Shadow" {
				t.Fatal(r, err)
			}
			rq.RequestHeader = second.header()
			second.refused(rq, uastatus.BadServerTooBusy)
			third.refused(&ua.GetEndpointsRequest{RequestHeader: third.header()}, uastatus.BadServerTooBusy)
			first.must(&ua.CloseSessionRequest{RequestHeader: first.header()})
		})
	})
}

// The cap on channels is no limit to try out.
func TestShadowModeKeepsTheCap(t *testing.T) {
	o := stack.Options{Shadow: true, Limits: stack.Limits{MaxSessions: 2, MaxChannels: 5}}
	inBubble(t, o, func(s *site) {
		for range 5 { // Balanced keeps two of them for others, who do not come
			s.connect()
		}
		if _, err := s.through("198.51.100.9", netip.AddrPort{}); err == nil {
			t.Error("a sixth connection of five")
		}
		if got := s.shadowed()["Connection"]; got != 2 {
			t.Errorf("%v let into the floors", got)
		}
	})
}
