package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
)

// The models are what the governors should do, written to be seen right: they
// keep a list of what is held and add it up anew at each question.

type held struct {
	lane   Lane
	who    Principal // zero: nobody yet
	charge int64
	large  bool
	moved  bool
}

type model struct {
	sync.Mutex
	all map[any]*held
}

func (m *model) total(keep func(h *held) bool) (u Usage) {
	for _, h := range m.all {
		if keep(h) {
			u.add(h.charge)
		}
	}
	return u
}

func (m *model) room(h held, limit laneLimits) (Reason, bool) {
	used := m.total(func(o *held) bool { return o.lane == h.lane })
	switch {
	case used.Count >= limit.count:
		return CountFull, false
	case h.charge > limit.bytes-used.Bytes:
		return BytesFull, false
	}
	return m.scopeRoom(h, limit)
}

func (m *model) scopeRoom(h held, limit laneLimits) (Reason, bool) {
	switch {
	case h.who == Principal{}:
	case m.total(func(o *held) bool { return o.lane == h.lane && o.who.Tenant == h.who.Tenant }).Count >= limit.perTenant:
		return TenantFull, false
	case m.total(func(o *held) bool { return o.lane == h.lane && o.who == h.who }).Count >= limit.perPrincipal:
		return PrincipalFull, false
	}
	return 0, true
}

// status is what a governor that holds the same should report.
func (m *model) status() (node [lanes]Usage, unbound [lanes]Usage, large Usage, scopes [lanes]map[ScopeUsage]bool) {
	for l := range Lane(lanes) {
		node[l] = m.total(func(h *held) bool { return h.lane == l })
		unbound[l] = m.total(func(h *held) bool { return h.lane == l && h.who == Principal{} })
		scopes[l] = map[ScopeUsage]bool{}
		for _, h := range m.all {
			if h.lane != l || h.who == (Principal{}) {
				continue
			}
			w := h.who
			scopes[l][ScopeUsage{w.Tenant, "", m.total(func(o *held) bool { return o.lane == l && o.who.Tenant == w.Tenant })}] = true
			scopes[l][ScopeUsage{w.Tenant, w.Name, m.total(func(o *held) bool { return o.lane == l && o.who == w })}] = true
		}
	}
	return node, unbound, m.total(func(h *held) bool { return h.large }), scopes
}

func set(s ScopesStatus) map[ScopeUsage]bool {
	m := map[ScopeUsage]bool{}
	for _, u := range append(s.Tenants, s.Principals...) {
		m[u] = true
	}
	return m
}

// seeds are fewer under the race detector, which has nothing to find in one goroutine.
func seeds() uint64 {
	if raceEnabled {
		return 2
	}
	return 20
}

func somebody(r *rand.Rand) Principal {
	return Principal{fmt.Sprint("t", r.IntN(3)), fmt.Sprint("p", r.IntN(3))}
}

// wantReason compares a governor's answer with the model's.
func wantReason(t *testing.T, what string, err error, reason Reason, ok bool) {
	t.Helper()
	var refused *RefusedError
	if ok != (err == nil) || !ok && (!errors.As(err, &refused) || refused.Reason != reason) {
		t.Fatalf("%s: %v; the model says %v, %v", what, err, reason, ok)
	}
}

func TestCommandGovernorAgainstModel(t *testing.T) {
	for seed := range seeds() {
		r := rand.New(rand.NewPCG(seed, 5))
		o, err := CommandOptions{MaxCommands: 12, MaxRetainedBytes: 80_000, MaxTenantCommands: 7, MaxPrincipalCommands: 4,
			ReservedControlCommands: 6, ReservedControlBytes: 40_000, MaxControlPayloadBytes: 3000, MaxTenantControlCommands: 4, MaxPrincipalControlCommands: 2}.Resolved()
		if err != nil {
			t.Fatal(err)
		}
		g, m := commands(t, o), &model{all: map[any]*held{}}
		for range 2000 {
			switch {
			case r.IntN(100) == 0:
				o.MaxCommands, o.MaxTenantCommands, o.ReservedControlBytes = 1+r.IntN(12), 1+r.IntN(8), 1+r.Int64N(40_000)
				if err := g.Apply(o); err != nil {
					t.Fatal(err)
				}
			case r.IntN(5) < 3:
				c := Command{somebody(r), r.IntN(3) == 0, r.Int64N(3500), r.Int64N(3500)}
				h := held{lane: c.lane(), who: c.Principal, charge: 2*c.UTF16Units + 2*c.PayloadBytes + 4096}
				reason, ok := m.room(h, o.lane(h.lane))
				if c.Control && c.PayloadBytes > 3000 || h.charge > o.lane(h.lane).bytes {
					reason, ok = TooLarge, false
				}
				got, err := g.Reserve(context.Background(), c)
				wantReason(t, "Reserve", err, reason, ok)
				if ok {
					m.all[got] = &h
				}
			default:
				for got := range m.all {
					got.(*Reservation).Release()
					got.(*Reservation).Release()
					delete(m.all, got)
					break
				}
			}
			s := g.Status()
			node, _, _, scopes := m.status()
			if s.Node.Data.Usage != node[DataLane] || s.Node.Control.Usage != node[ControlLane] ||
				!reflect.DeepEqual(set(s.VerifiedScopes.Data), scopes[DataLane]) || !reflect.DeepEqual(set(s.VerifiedScopes.Control), scopes[ControlLane]) {
				t.Fatalf("seed %d: %+v\nthe model says %v, %v", seed, s, node, scopes)
			}
		}
	}
}

func TestHTTPGovernorAgainstModel(t *testing.T) {
	for seed := range seeds() {
		r := rand.New(rand.NewPCG(seed, 7))
		o := HTTPOptions{MaxRequests: 12, MaxReservedBytes: 300_000, MaxTenantRequests: 6, MaxPrincipalRequests: 3, SmallBodyRequests: 4,
			ReservedControlRequests: 5, ReservedControlBytes: 30_000, MaxTenantControlRequests: 4, MaxPrincipalControlRequests: 2,
			MaxBodyBytes: 10_000, MaxControlBodyBytes: 1000, HeavyReadReservedBytes: 60_000, OtherReservedBytes: 7000}
		keptBytes, largest := int64(4*(4*1000+7000+4096)), int64(4*10_000+7000+4096)
		g, m := https(t, o), &model{all: map[any]*held{}}
		largeRoom := func(h held, was held) (Reason, bool) {
			u := m.total(func(o *held) bool { return o.large })
			if was.large {
				u.remove(was.charge)
			}
			switch {
			case !h.large || was.large && h.charge <= was.charge:
			case !was.large && u.Count >= o.MaxRequests-4:
				return CountFull, false
			case h.charge > max(largest, o.MaxReservedBytes-keptBytes)-u.Bytes:
				return BytesFull, false
			}
			return 0, true
		}
		limits := func(l Lane) laneLimits { return newHTTPLimits(o).lanes[l] }
		for range 2000 {
			lease, mine := any(nil), (*held)(nil)
			for lease, mine = range m.all {
				break
			}
			switch n := r.IntN(20); {
			case n == 0:
				o.MaxRequests, o.MaxTenantRequests, o.MaxReservedBytes = 5+r.IntN(8), 1+r.IntN(8), 60_000+r.Int64N(240_000)
				if err := g.Apply(o); err != nil {
					t.Fatal(err)
				}
			case n < 8:
				declared := r.Int64N(10_200)
				switch r.IntN(4) {
				case 0:
					declared = -1
				case 1:
					declared = r.Int64N(1100)
				}
				body := declared
				if body < 0 {
					body = 10_000
				}
				h := held{charge: 4*body + 7000 + 4096, large: body > 1000}
				reason, ok := m.room(h, limits(DataLane))
				if ok || reason == BytesFull {
					if why, fits := largeRoom(h, held{}); !fits && (ok || why == CountFull) {
						reason, ok = why, false
					}
				}
				if body > 10_000 {
					reason, ok = TooLarge, false
				}
				got, err := g.Ingress(context.Background(), declared)
				wantReason(t, "Ingress", err, reason, ok)
				if ok {
					m.all[got] = &h
				}
			case lease == nil:
			case n < 12:
				who := somebody(r)
				_, ok := m.scopeRoom(held{lane: mine.lane, who: who}, limits(mine.lane))
				ok = ok && mine.who == Principal{}
				if got := lease.(*HTTPLease).Bind(who); got != ok {
					t.Fatalf("Bind: %v; the model says %v", got, ok)
				}
				if ok {
					mine.who = who
				}
			case n < 16:
				kind, body := Kind(r.IntN(3)), r.Int64N(1200)
				if r.IntN(3) == 0 {
					body = r.Int64N(10_100)
				}
				h := *mine
				h.charge, h.large, h.moved = 4*body+7000+4096, body > 1000, true
				switch {
				case kind == ControlRequest && body <= 1000:
					h.lane, h.charge = ControlLane, 4*body+4096
				case kind == HeavyRead:
					h.charge = 4*body + 60_000 + 4096
				}
				ok := !mine.moved && body <= 10_000 && h.charge <= limits(h.lane).bytes
				if ok && h.lane != mine.lane {
					_, ok = m.room(h, limits(h.lane))
				} else if ok {
					used := m.total(func(o *held) bool { return o.lane == DataLane })
					_, fits := largeRoom(h, *mine)
					ok = fits && (h.charge <= mine.charge || h.charge-mine.charge <= limits(DataLane).bytes-used.Bytes)
				}
				if got := lease.(*HTTPLease).Reclassify(kind, body); got != ok {
					t.Fatalf("Reclassify %v, %d of %+v: %v; the model says %v", kind, body, *mine, got, ok)
				}
				mine.moved = true
				if ok {
					*mine = h
				}
			default:
				lease.(*HTTPLease).Release()
				lease.(*HTTPLease).Release()
				delete(m.all, lease)
			}
			s := g.Status()
			node, unbound, large, scopes := m.status()
			if s.Node.Data.Usage != node[DataLane] || s.Node.Control.Usage != node[ControlLane] ||
				s.Ingress != (IngressStatus{unbound[DataLane], unbound[ControlLane], large}) ||
				!reflect.DeepEqual(set(s.VerifiedScopes.Data), scopes[DataLane]) || !reflect.DeepEqual(set(s.VerifiedScopes.Control), scopes[ControlLane]) {
				t.Fatalf("seed %d: %+v\nthe model says %v, %v, %v, %v", seed, s, node, unbound, large, scopes)
			}
		}
	}
}

// TestGovernorsUnderRace lets many goroutines do what they like and checks that
// no limit was passed at any instant and that nothing is left.
func TestGovernorsUnderRace(t *testing.T) {
	g := commands(t, CommandOptions{MaxCommands: 5, MaxTenantCommands: 4, MaxPrincipalCommands: 2, ReservedControlCommands: 3, MaxTenantControlCommands: 2})
	h := https(t, HTTPOptions{MaxRequests: 6, MaxTenantRequests: 4, MaxPrincipalRequests: 2, ReservedControlRequests: 3, MaxTenantControlRequests: 2})
	within := func(node NodeStatus, scopes VerifiedScopes, data, control, tenant, principal, controlTenant int) {
		if node.Data.Count > data || node.Control.Count > control || node.Data.Bytes < 0 || node.Control.Bytes < 0 {
			t.Errorf("held %+v", node)
		}
		for _, u := range scopes.Data.Tenants {
			if u.Count > tenant || u.Count < 1 {
				t.Errorf("tenant %+v", u)
			}
		}
		for _, u := range scopes.Data.Principals {
			if u.Count > principal || u.Count < 1 {
				t.Errorf("principal %+v", u)
			}
		}
		for _, u := range scopes.Control.Tenants {
			if u.Count > controlTenant || u.Count < 1 {
				t.Errorf("control tenant %+v", u)
			}
		}
	}
	var wg sync.WaitGroup
	for w := range uint64(6) {
		wg.Go(func() {
			r, ctx := rand.New(rand.NewPCG(w, 9)), context.Background()
			for range 500 {
				one, errOne := g.Reserve(ctx, Command{somebody(r), r.IntN(2) == 0, 10, 10})
				lease, errLease := h.Ingress(ctx, r.Int64N(200_000)-1)
				if errLease == nil {
					var pair sync.WaitGroup
					pair.Go(func() { lease.Bind(Principal{"t0", "p0"}) })
					lease.Reclassify(Kind(r.IntN(3)), r.Int64N(100_000))
					if r.IntN(2) == 0 {
						pair.Go(lease.Release)
					}
					lease.Release()
					pair.Wait()
				}
				s := h.Status()
				within(s.Node, s.VerifiedScopes, 6, 3, 4, 2, 2)
				c := g.Status()
				within(c.Node, c.VerifiedScopes, 5, 3, 4, 2, 2)
				if errOne == nil {
					one.Release()
				}
			}
		})
	}
	wg.Wait()
	wantEmpty(t, &g.lanes)
	wantHTTPEmpty(t, h)
}
