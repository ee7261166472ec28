package transport

import (
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
)

var (
	peer = netip.MustParseAddrPort("10.0.0.9:1234")
	here = netip.MustParseAddrPort("10.0.0.1:4840")
)

type victim struct {
	busy      bool
	reclaimed int
}

func (v *victim) Busy() bool { return v.busy }
func (v *victim) Reclaim()   { v.reclaimed++ }

func admit(t *testing.T, g *Gate) (*Admission, *victim) {
	t.Helper()
	a, r := g.Admit(peer, here, &Port{})
	if a == nil {
		t.Fatal("refused:", r.Reason)
	}
	v := &victim{}
	a.Bind(v)
	return a, v
}

// asked counts the questions to a limiter.
type asked struct {
	n  int
	no bool
}

func (l *asked) AllowConnection(netip.Addr) (bool, time.Duration) {
	l.n++
	return !l.no, time.Minute
}

// overload.md §3: the limiter is asked exactly once per accepted socket, and
// only when the stages can be had.
func TestGateOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &asked{}
		g, _ := NewGate(GateOptions{MaxConnections: 2, Limiter: l})
		a, _ := admit(t, g)
		b, _ := admit(t, g)
		if _, r := g.Admit(peer, here, &Port{}); r.Reason != RefusedCapacity || l.n != 2 {
			t.Fatal("full, nothing to reclaim:", r.Reason, "asked", l.n)
		}
		time.Sleep(time.Second)
		l.no = true
		if _, r := g.Admit(peer, here, &Port{}); r.Reason != RefusedRate || l.n != 3 || r.RetryAfter != time.Minute {
			t.Fatal("reclaimable, but over the rate:", r, "asked", l.n)
		}
		if u := g.Usage(); u.Reclaimed != 0 || u.Connections != 2 {
			t.Fatalf("evicted for somebody over the rate: %+v", u)
		}
		l.no = false
		c, _ := admit(t, g)
		if l.n != 4 || g.Usage().Connections != 2 {
			t.Fatal("asked", l.n)
		}
		g.Stop(3 * time.Second)
		if _, r := g.Admit(peer, here, &Port{}); r.Reason != RefusedStopped || r.RetryAfter != 3*time.Second || l.n != 4 {
			t.Fatal(r, l.n)
		}
		for _, a := range []*Admission{a, b, c} {
			a.Release()
			a.Release() // once
		}
		if u := g.Usage(); u.Connections != 0 || u.Handshakes != 0 {
			t.Fatalf("%+v", u)
		}
	})
}

// overload.md §5: who goes first.
func TestGateReclaimOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := NewGate(GateOptions{MaxConnections: 7})
		type conn struct {
			a *Admission
			v *victim
		}
		next := func() conn {
			time.Sleep(time.Millisecond)
			a, v := admit(t, g)
			return conn{a, v}
		}
		inUse := next()
		inUse.a.Hello()
		inUse.a.CompleteHandshake()
		inUse.a.SetReclaimable(false)
		busy := next()
		busy.a.Hello()
		busy.a.CompleteHandshake()
		busy.v.busy = true
		idle := next()
		idle.a.Hello()
		idle.a.CompleteHandshake()
		later := next()
		later.a.Hello()
		later.a.CompleteHandshake()
		opening := next()
		opening.a.Hello()
		silent1, silent2 := next(), next()
		time.Sleep(10 * time.Second)
		newest := []conn{}
		for i, want := range []conn{silent1, silent2, opening, idle, later} {
			newest = append(newest, next())
			newest[i].a.Hello() // not silent itself
			newest[i].a.CompleteHandshake()
			if want.v.reclaimed != 1 {
				t.Fatal("not reclaimed:", i)
			}
			want.a.Hello() // what a victim still does changes nothing
			want.a.CompleteHandshake()
			want.a.SetReclaimable(true)
		}
		// All that are left are in use, busy, or younger than a second.
		if _, r := g.Admit(peer, here, &Port{}); r.Reason != RefusedCapacity {
			t.Fatal(r.Reason)
		}
		if inUse.v.reclaimed+busy.v.reclaimed != 0 {
			t.Fatal("a channel in use was reclaimed")
		}
		inUse.a.SetReclaimable(true) // its session is gone
		time.Sleep(time.Second)
		next() // takes the oldest of the new ones, which became idle before
		if newest[0].v.reclaimed != 1 || inUse.v.reclaimed != 0 {
			t.Fatal("not the longest idle one")
		}
	})
}

func TestGateListenerCap(t *testing.T) {
	g, _ := NewGate(GateOptions{})
	p := &Port{Max: 1}
	a, _ := g.Admit(peer, here, p)
	a.Bind(&victim{})
	if _, r := g.Admit(peer, here, p); r.Reason != RefusedListener {
		t.Fatal(r.Reason)
	}
	if b, _ := g.Admit(peer, here, &Port{Max: 1}); b == nil {
		t.Fatal("another listener's cap")
	}
	a.Release()
	if b, _ := g.Admit(peer, here, p); b == nil {
		t.Fatal("place not given back")
	}
}

// 40 racing for 10 places: exactly 10; 2 a second after the burst.
func TestGateRacingAndRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := NewGate(GateOptions{MaxConnections: 10, ConnectionsPerSecond: 2, ConnectionBurst: 100})
		var n atomic.Int32
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				if a, _ := g.Admit(peer, here, &Port{}); a != nil {
					n.Add(1)
				}
			})
		}
		wg.Wait()
		if n.Load() != 10 {
			t.Fatal("admitted", n.Load())
		}
		g, _ = NewGate(GateOptions{MaxConnections: -1, ConnectionsPerSecond: 2, ConnectionBurst: 4})
		for range 4 {
			admit(t, g)
		}
		_, r := g.Admit(peer, here, &Port{})
		if r.Reason != RefusedRate || r.RetryAfter != 500*time.Millisecond || !r.Polite {
			t.Fatalf("%+v", r)
		}
		time.Sleep(r.RetryAfter)
		admit(t, g)
	})
}

func TestLimits(t *testing.T) {
	l := Limits{}.Resolved()
	if l.ReceiveBufferSize != 65535 || l.MaxMessageSize != 4<<20 || l.MaxChunkCount != 512 || l.MaxOutstandingPerConnection != 64 ||
		l.WriteQueueBytes != 4<<20 || l.HandshakeTimeout != 2*time.Minute || l.HelloTimeout != 10*time.Second ||
		l.AssemblyTimeout != 30*time.Second || l.WriteTimeout != 30*time.Second {
		t.Fatalf("%+v", l)
	}
	for _, bad := range []Limits{
		{ReceiveBufferSize: 8191}, {SendBufferSize: 1 << 20}, {MaxMessageSize: 100}, {HandshakeTimeout: 3 * time.Minute},
		{HelloTimeout: 2 * time.Second, HandshakeTimeout: time.Second},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
	if err := (Limits{}).Validate(); err != nil {
		t.Fatal(err)
	}
	for _, r := range Reasons() {
		if r.String() == "" || r.String() == "unknown" {
			t.Errorf("reason %d has no name", r)
		}
	}
}

// X27: connections never take the last descriptors.
func TestGateKeepsDescriptors(t *testing.T) {
	for _, tc := range []struct{ limit, want int }{{0, 0}, {-1, 0}, {100, 50}, {1024, 960}, {1 << 20, 1<<20 - 64}} {
		if got := connectionsWithin(tc.limit); got != tc.want {
			t.Errorf("of %d descriptors %d connections, want %d", tc.limit, got, tc.want)
		}
	}
	limit := descriptorLimit()
	if limit == 0 {
		t.Skip("no limit known")
	}
	g, err := NewGate(GateOptions{MaxConnections: limit + 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil || g.Usage().MaxConnections != limit-descriptorReserve {
		t.Fatal(g.Usage().MaxConnections, err)
	}
}

// What is counted is known for each listener.
func TestUsageByPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, isolation.Balanced, nil, GateOptions{})
		one, other := &Port{Name: "one"}, &Port{Name: "other", Max: 1}
		b.must(ordinary(1), one)
		b.must(ordinary(2), other)
		if _, _, r := b.admit(ordinary(3), other); r != RefusedListener {
			t.Error(r)
		}
		u := b.Usage()
		if p := u.Ports["one"]; p.Admitted != 1 || len(p.Refused) != 0 {
			t.Errorf("one: %+v", p)
		}
		if p := u.Ports["other"]; p.Admitted != 1 || p.Refused[RefusedListener] != 1 {
			t.Errorf("other: %+v", p)
		}
		if u.Admitted != 2 || u.Refused[RefusedListener] != 1 {
			t.Errorf("%+v", u)
		}
		b.end()
	})
}
