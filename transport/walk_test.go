package transport

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
)

// A random walk through the lives of connections: whatever the order, the
// Provider, the Gate's counters, the ports and the lists of victims agree with
// what the admissions hold.
func TestGateWalk(t *testing.T) {
	for _, mode := range []isolation.Mode{isolation.Balanced, isolation.SharedOnly, isolation.FairShare, isolation.TrustedReservations} {
		t.Run(mode.String(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { walk(t, mode) }) })
	}
}

func walk(t *testing.T, mode isolation.Mode) {
	r := rand.New(rand.NewPCG(7, uint64(mode)))
	roomy := func(p *isolation.Plan) {
		h := &p.Stages[isolation.Handshake]
		h.Capacity, h.Shared = h.Capacity-1, h.Shared-1
		p.Stages[isolation.Connection].HardLimit = 3
	}
	b := newBed(t, mode, roomy, GateOptions{ConnectionsPerSecond: 20, ConnectionBurst: 20, MaxConnections: 5,
		ProxyPeers: []netip.Prefix{netip.PrefixFrom(ordinary(3), 32)}})
	ports := []*Port{{Max: 2}, {}, {Max: 3, Silent: true}}
	peers := []netip.Addr{ordinary(1), ordinary(2), ordinary(3), bootstrapPeer, reconnectPeer, trustedPeer, strangePeer}
	victims := map[*Admission]*victim{}
	var refused [refusals]int
	for n := range 6000 {
		var a *Admission
		if len(b.all) > 0 {
			a = b.all[r.IntN(len(b.all))]
		}
		switch op := r.IntN(10); {
		case op < 4 || a == nil:
			c, v, why := b.admit(peers[r.IntN(len(peers))], ports[r.IntN(len(ports))])
			refused[why]++
			if c != nil {
				v.busy = r.IntN(4) == 0
				victims[c] = v
			}
		case op == 4:
			a.Hello()
		case op == 5:
			a.CompleteHandshake()
		case op == 6:
			a.SetReclaimable(r.IntN(2) == 0)
		case op == 7 && a.proxy && a.phase == phaseHello: // once, before all else
			a.proxy = false
			refused[a.Carried(netip.AddrPortFrom(peers[r.IntN(len(peers))], 1)).Reason]++
		case op == 8:
			a.Release()
			if r.IntN(2) == 0 {
				a.Release()
			}
		default:
			time.Sleep(time.Duration(r.IntN(900)) * time.Millisecond)
		}
		b.agree(ports)
		if t.Failed() {
			t.Fatal("after", n, "steps")
		}
	}
	for _, why := range []RefusalReason{RefusedNone, RefusedCapacity, RefusedListener} {
		if refused[why] == 0 {
			t.Errorf("the walk met no %q: %v", why, refused)
		}
	}
	if b.Usage().Reclaimed == 0 {
		t.Error("the walk reclaimed nothing")
	}
	for a, v := range victims {
		if v.reclaimed > 1 || v.reclaimed == 1 && a.connection {
			t.Errorf("reclaimed %d times, holds %v", v.reclaimed, a.connection)
		}
	}
	b.end()
	b.agree(ports)
}

// agree compares all books.
func (b *bed) agree(ports []*Port) {
	b.t.Helper()
	var connections, handshakes, lingering, listed int
	at := map[*Port]int{}
	for _, a := range b.all {
		if a.connection != a.connectionLease.Held() || a.handshake != a.handshakeLease.Held() {
			b.t.Errorf("flags %v %v, leases %v %v", a.connection, a.handshake, a.connectionLease.Held(), a.handshakeLease.Held())
		}
		if a.connection {
			connections++
		}
		if a.handshake {
			handshakes++
		}
		if a.lingers {
			lingering++
		}
		if a.placed {
			at[a.port]++
		}
		if a.phase != phaseGone {
			listed++
		}
	}
	if u := b.Usage(); u.Connections != connections || u.Handshakes != handshakes || b.lingering != lingering ||
		b.provider.Used(isolation.Connection) != int64(connections) || b.provider.Used(isolation.Handshake) != int64(handshakes) {
		b.t.Errorf("held %d and %d, %d linger; the gate says %+v, %d; the provider %d and %d", connections, handshakes, lingering, u, b.lingering,
			b.provider.Used(isolation.Connection), b.provider.Used(isolation.Handshake))
	}
	for _, p := range ports {
		if p.used != at[p] || p.Max > 0 && p.used > p.Max {
			b.t.Errorf("port of %d says %d, has %d", p.Max, p.used, at[p])
		}
	}
	for p := phaseHello; p < phases; p++ {
		var last time.Time
		for a := b.phases[p].first; a != nil; a = a.next {
			listed--
			if a.phase != p || a.since.Before(last) || a.next == nil && b.phases[p].last != a {
				b.t.Errorf("list of phase %d is broken", p)
			}
			last = a.since
		}
	}
	if listed != 0 {
		b.t.Errorf("%d admissions in no list, or in two", listed)
	}
}

// A scan in vain of a long list is not repeated at once, but soon; and not for
// those who could use what others cannot.
func TestLongScansPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := NewGate(GateOptions{MaxConnections: longScan, ConnectionsUnlimited: true})
		var all []*victim
		for range longScan {
			a, v := admit(t, g)
			a.Hello()
			a.CompleteHandshake()
			v.busy = true
			all = append(all, v)
		}
		time.Sleep(time.Second)
		full := func(want bool) {
			t.Helper()
			a, _ := g.Admit(peer, here, &Port{})
			if (a == nil) != want {
				t.Error("admitted:", a != nil)
			}
		}
		full(true)
		all[7].busy = false
		full(true)
		time.Sleep(scanPause)
		full(false)
		if all[7].reclaimed != 1 {
			t.Error("another one was reclaimed")
		}
	})
}
