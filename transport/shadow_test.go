package transport

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/breakwater-ua/breakwater/isolation"
)

// overload.md §16: shadow mode admits what the rate limiters would refuse and
// counts it; caps hold. It may be switched while the gate works.
func TestShadowPassesOverRates(t *testing.T) {
	per, err := isolation.NewAddressLimiter(1)
	if err != nil {
		t.Fatal(err)
	}
	o := GateOptions{MaxConnections: 4, ConnectionsPerSecond: 1, ConnectionBurst: 2, PerAddress: per, Shadow: true, Logger: slog.New(slog.DiscardHandler)}
	g, err := NewGate(o)
	if err != nil {
		t.Fatal(err)
	}
	admit := func(from string, port *Port) RefusalReason {
		a, r := g.Admit(netip.AddrPortFrom(netip.MustParseAddr(from), 50000), here, port)
		if a != nil {
			a.Bind(&victim{})
			t.Cleanup(a.Release)
		}
		return r.Reason
	}
	one := Port{Max: 3}
	for i, c := range []struct {
		from string
		port *Port
		want RefusalReason
	}{
		{"10.0.0.1", &one, RefusedNone},
		{"10.0.0.2", &one, RefusedNone},
		{"10.0.0.2", &one, RefusedNone},     // over the rate of its address
		{"10.0.0.3", &one, RefusedListener}, // the listener's cap
		{"10.0.0.3", &Port{}, RefusedNone},  // over the rate
		{"10.0.0.4", &Port{}, RefusedCapacity},
	} {
		if got := admit(c.from, c.port); got != c.want {
			t.Errorf("connection %d: %v, want %v", i, got, c.want)
		}
	}
	u := g.Usage()
	if u.Shadowed[RefusedAddress] != 2 || u.Shadowed[RefusedRate] == 0 || u.Refused[RefusedRate] != 0 || u.Refused[RefusedAddress] != 0 {
		t.Errorf("%+v", u)
	}
	o.Shadow, o.MaxConnections = false, 10
	if err := g.Apply(o); err != nil {
		t.Fatal(err)
	}
	if got := admit("10.0.0.5", &Port{}); got != RefusedRate {
		t.Errorf("after the mode ended: %v", got)
	}
}
