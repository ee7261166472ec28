package transport

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
)

// bed is a Gate on a small Provider whose every question is written down.
type bed struct {
	*Gate
	t        *testing.T
	provider *isolation.Provider
	asked    []string
	claims   map[netip.Addr]isolation.OwnerClaim
	noToken  bool
	all      []*Admission
}

func (b *bed) ClassifyIngress(remote, _ netip.AddrPort) (isolation.OwnerClaim, bool) {
	b.asked = append(b.asked, "classify")
	c, ok := b.claims[remote.Addr()]
	return c, ok
}

func (b *bed) Classify(isolation.ServiceKind, *isolation.ChannelFacts, *isolation.BindingFacts) (isolation.OwnerClaim, bool) {
	return isolation.OwnerClaim{}, false
}

func (b *bed) AllowConnection(netip.Addr) (bool, time.Duration) {
	b.asked = append(b.asked, "limiter")
	return !b.noToken, 3 * time.Second
}

// testPlan has five connections and handshakes: floors of one for bootstrap and
// reconnect, three shared.
func testPlan(t testing.TB, mode isolation.Mode, edit func(*isolation.Plan)) *isolation.Plan {
	t.Helper()
	totals := isolation.Totals{MaxMessageSize: 1 << 20, MaxBufferSize: 65535, MaxSessions: 2, MaxChannels: 5,
		Budget: 64 << 20, MaxEstablishment: 128, HasClassifier: true}
	o := isolation.Options{Mode: mode}
	if mode == isolation.TrustedReservations {
		totals.MaxChannels = 6
		o.TrustedOwners = []isolation.TrustedOwner{{Key: "plant"}}
	}
	p, err := isolation.CreatePlan(o, totals)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(p)
	}
	return p
}

var (
	bootstrapPeer = netip.MustParseAddr("10.1.0.1")
	reconnectPeer = netip.MustParseAddr("10.1.0.2")
	trustedPeer   = netip.MustParseAddr("10.1.0.3")
	strangePeer   = netip.MustParseAddr("10.1.0.4")
)

func newBed(t *testing.T, mode isolation.Mode, edit func(*isolation.Plan), o GateOptions) *bed {
	t.Helper()
	b := &bed{t: t, provider: isolation.NewProvider(testPlan(t, mode, edit)), claims: map[netip.Addr]isolation.OwnerClaim{
		bootstrapPeer: {Key: "boot", Class: isolation.Bootstrap},
		reconnectPeer: {Key: "re", Class: isolation.Reconnect},
		trustedPeer:   {Key: "plant", Class: isolation.Trusted},
		strangePeer:   {Key: "nobody provisioned it", Class: isolation.Trusted},
	}}
	o.Isolation, o.Classifier, o.Logger = b.provider, b, slog.New(slog.DiscardHandler)
	if o.Limiter == nil && o.ConnectionsPerSecond == 0 && !o.ConnectionsUnlimited {
		o.Limiter = b
	}
	g, err := NewGate(o)
	if err != nil {
		t.Fatal(err)
	}
	b.Gate = g
	return b
}

// admit admits from an address, of ordinary ones 10.0.0.n, and returns the
// reason and the victim that stands for its connection.
func (b *bed) admit(from netip.Addr, port *Port) (*Admission, *victim, RefusalReason) {
	b.asked = nil
	a, r := b.Gate.Admit(netip.AddrPortFrom(from, 50000), here, port)
	if a == nil {
		return nil, nil, r.Reason
	}
	v := &victim{}
	a.Bind(v)
	b.all = append(b.all, a)
	return a, v, RefusedNone
}

func (b *bed) must(from netip.Addr, port *Port) (*Admission, *victim) {
	b.t.Helper()
	a, v, r := b.admit(from, port)
	if r != RefusedNone {
		b.t.Fatal("refused:", r)
	}
	return a, v
}

func ordinary(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }

// end gives everything back, twice, and looks for what is left.
func (b *bed) end() {
	b.t.Helper()
	for _, a := range b.all {
		a.Release()
		a.Release()
	}
	for _, s := range []isolation.Stage{isolation.Connection, isolation.Handshake} {
		if n := b.provider.Used(s); n != 0 {
			b.t.Errorf("%v: %d left", s, n)
		}
	}
	if u := b.Usage(); u.Connections != 0 || u.Handshakes != 0 || b.provider.Owners() != 0 || b.lingering != 0 {
		b.t.Errorf("%+v, %d owners, %d lingering", u, b.provider.Owners(), b.lingering)
	}
}
