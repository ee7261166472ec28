package admission

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

func https(t testing.TB, o HTTPOptions) *HTTPGovernor {
	t.Helper()
	g, err := NewHTTPGovernor(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// ingress takes n equal leases and returns those granted and the last error.
func ingress(g *HTTPGovernor, declared int64, n int) (granted []*HTTPLease, err error) {
	for range n {
		var l *HTTPLease
		if l, err = g.Ingress(context.Background(), declared); err != nil {
			return granted, err
		}
		granted = append(granted, l)
	}
	return granted, nil
}

func enter(t testing.TB, g *HTTPGovernor, declared int64) *HTTPLease {
	t.Helper()
	l, err := g.Ingress(context.Background(), declared)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestHTTPDefaults(t *testing.T) {
	want := HTTPOptions{
		MaxRequests: 32, MaxReservedBytes: 1073741824, MaxTenantRequests: 16, MaxPrincipalRequests: 8, SmallBodyRequests: 16,
		ReservedControlRequests: 16, ReservedControlBytes: 8388608, MaxTenantControlRequests: 8, MaxPrincipalControlRequests: 8,
		MaxBodyBytes: 8388608, MaxControlBodyBytes: 65536, HeavyReadReservedBytes: 67108864, OtherReservedBytes: 8388608,
	}
	got, err := HTTPOptions{}.Resolved()
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if again, err := got.Resolved(); err != nil || again != want {
		t.Errorf("resolved again: %+v, %v", again, err)
	}
}

func TestHTTPOptionsRefuseByName(t *testing.T) {
	for field, o := range map[string]HTTPOptions{
		"MaxRequests":                 {MaxRequests: -1},
		"MaxReservedBytes":            {MaxReservedBytes: -1},
		"MaxTenantRequests":           {MaxTenantRequests: -1},
		"MaxPrincipalRequests":        {MaxPrincipalRequests: -1},
		"SmallBodyRequests":           {MaxRequests: 4, SmallBodyRequests: 4},
		"ReservedControlRequests":     {ReservedControlRequests: -1},
		"ReservedControlBytes":        {ReservedControlBytes: -1},
		"MaxTenantControlRequests":    {MaxTenantControlRequests: -1},
		"MaxPrincipalControlRequests": {MaxPrincipalControlRequests: -1},
		"MaxBodyBytes":                {MaxBodyBytes: -1},
		"MaxControlBodyBytes":         {MaxControlBodyBytes: -1},
		"HeavyReadReservedBytes":      {HeavyReadReservedBytes: -1},
		"OtherReservedBytes":          {OtherReservedBytes: -1},
	} {
		var bad *OptionError
		if _, err := NewHTTPGovernor(o); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestIngressCharge(t *testing.T) {
	for _, c := range []struct {
		name           string
		declared, want int64
	}{
		{"no body", 0, 8*mib + 4096},
		{"1,000 bytes count four times", 1000, 4000 + 8*mib + 4096},
		{"the largest body", 8 * mib, 40*mib + 4096},
		{"an unknown length costs the largest body", -1, 40*mib + 4096},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := https(t, HTTPOptions{})
			enter(t, g, c.declared)
			want := Usage{1, c.want}
			s := g.Status()
			if s.Node.Data.Usage != want || s.Ingress.Data != want || s.Node.Control.Usage != (Usage{}) {
				t.Errorf("%+v", s)
			}
			if len(s.VerifiedScopes.Data.Tenants) != 0 {
				t.Errorf("a scope before anybody was authenticated: %+v", s.VerifiedScopes)
			}
		})
	}
}

func TestIngressLimits(t *testing.T) {
	for _, c := range []struct {
		name     string
		options  HTTPOptions
		declared int64
		granted  int
		reason   Reason
	}{
		{"32 small requests, whoever sends them", HTTPOptions{}, 64 * kib, 32, CountFull},
		{"16 large ones", HTTPOptions{}, 64*kib + 1, 16, CountFull},
		{"16 of unknown length", HTTPOptions{}, -1, 16, CountFull},
		{"none kept for small bodies", HTTPOptions{SmallBodyRequests: -1}, 64*kib + 1, 32, CountFull},
		{"half of a small lane", HTTPOptions{MaxRequests: 5}, -1, 3, CountFull},
		{"one slot serves everybody", HTTPOptions{MaxRequests: 1}, -1, 1, CountFull},
		{"bytes", HTTPOptions{OtherReservedBytes: 1000, MaxReservedBytes: 2*5496 + 5495}, 100, 2, BytesFull},
		{"large bodies leave the bytes of small ones", HTTPOptions{MaxRequests: 256}, -1, 22, BytesFull},
		{"and take all when nothing is kept", HTTPOptions{MaxRequests: 256, SmallBodyRequests: -1}, -1, 25, BytesFull},
		{"one large body has its chance in few bytes", HTTPOptions{MaxReservedBytes: 50 * mib}, -1, 1, BytesFull},
		{"over the largest body", HTTPOptions{}, 8*mib + 1, 0, TooLarge},
		{"over the lane", HTTPOptions{MaxReservedBytes: 40 * mib}, -1, 0, TooLarge},
		{"4 × body overflows", HTTPOptions{MaxBodyBytes: math.MaxInt64, MaxReservedBytes: math.MaxInt64}, math.MaxInt64, 0, TooLarge},
		{"working space overflows", HTTPOptions{OtherReservedBytes: math.MaxInt64, MaxReservedBytes: math.MaxInt64}, 0, 0, TooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := https(t, c.options)
			granted, err := ingress(g, c.declared, c.granted+1)
			if len(granted) != c.granted {
				t.Fatalf("%d granted, want %d", len(granted), c.granted)
			}
			wantRefused(t, err, DataLane, c.reason)
			for _, l := range granted {
				l.Release()
			}
			wantHTTPEmpty(t, g)
		})
	}
}

func wantHTTPEmpty(t *testing.T, g *HTTPGovernor) {
	t.Helper()
	wantEmpty(t, &g.lanes)
	if g.unbound != [lanes]Usage{} || g.large != (Usage{}) {
		t.Errorf("unbound %+v, large %+v", g.unbound, g.large)
	}
}

func TestSlowUploadsLeaveAWayIn(t *testing.T) {
	for _, o := range []HTTPOptions{{}, {MaxRequests: 256}} {
		g := https(t, o)
		ingress(g, -1, 1000)
		if small, _ := ingress(g, 64*kib, 16); len(small) != 16 {
			t.Errorf("MaxRequests %d: %d small requests beside as many large ones as go", o.MaxRequests, len(small))
		}
	}
}

func TestIngressArguments(t *testing.T) {
	g := https(t, HTTPOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Ingress(ctx, -2); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := g.Ingress(t.Context(), -2); !errors.Is(err, ErrInvalidCommand) {
		t.Errorf("negative: %v", err)
	}
	wantHTTPEmpty(t, g)
}

func TestReclassify(t *testing.T) {
	const other, control, heavy = 8*mib + 4096, 4096, 64*mib + 4096
	for _, c := range []struct {
		name           string
		declared, body int64
		kind           Kind
		lane           Lane
		charge         int64
	}{
		{"control moves", 1000, 1000, ControlRequest, ControlLane, 4*1000 + control},
		{"control of 64 KiB moves", 64 * kib, 64 * kib, ControlRequest, ControlLane, 256*kib + control},
		{"a larger one stays", 64*kib + 1, 64*kib + 1, ControlRequest, DataLane, 4*(64*kib+1) + other},
		{"control of unknown length that turned out small", -1, 500, ControlRequest, ControlLane, 2000 + control},
		{"other keeps its charge", 1000, 1000, OtherRequest, DataLane, 4*1000 + other},
		{"an unknown length becomes known", -1, 1000, OtherRequest, DataLane, 4*1000 + other},
		{"heavy", 1000, 1000, HeavyRead, DataLane, 4*1000 + heavy},
	} {
		for _, bind := range []string{"never", "before", "after"} {
			t.Run(c.name+", bound "+bind, func(t *testing.T) {
				g := https(t, HTTPOptions{})
				l := enter(t, g, c.declared)
				if bind == "before" && !l.Bind(alice) {
					t.Fatal("not bound")
				}
				if !l.Reclassify(c.kind, c.body) {
					t.Fatal("not moved")
				}
				if bind == "after" && !l.Bind(alice) {
					t.Fatal("not bound")
				}
				s := g.Status()
				want := map[Lane]Usage{c.lane: {1, c.charge}}
				if s.Node.Data.Usage != want[DataLane] || s.Node.Control.Usage != want[ControlLane] {
					t.Errorf("node %+v, want %+v", s.Node, want)
				}
				scopes, unbound := s.VerifiedScopes.Data, s.Ingress.Data
				if c.lane == ControlLane {
					scopes, unbound = s.VerifiedScopes.Control, s.Ingress.Control
				}
				switch {
				case bind == "never":
					if unbound != want[c.lane] || len(scopes.Tenants)+len(scopes.Principals) != 0 {
						t.Errorf("unbound %+v, scopes %+v", unbound, scopes)
					}
				case unbound != Usage{} || len(scopes.Tenants) != 1 || len(scopes.Principals) != 1 ||
					scopes.Tenants[0] != ScopeUsage{"plant", "", want[c.lane]} || scopes.Principals[0] != ScopeUsage{"plant", "alice", want[c.lane]}:
					t.Errorf("unbound %+v, scopes %+v", unbound, scopes)
				}
				if l.Reclassify(OtherRequest, 0) || g.lanes[c.lane].used != want[c.lane] {
					t.Errorf("moved twice: %+v", g.lanes)
				}
				l.Release()
				l.Release()
				wantHTTPEmpty(t, g)
			})
		}
	}
}

func TestReclassifyRefused(t *testing.T) {
	for _, c := range []struct {
		name           string
		options        HTTPOptions
		before         func(g *HTTPGovernor)
		declared, body int64
		kind           Kind
		lane           Lane
		reason         Reason
	}{
		{"control count", HTTPOptions{ReservedControlRequests: 1}, one(ControlRequest, "bob"), 0, 0, ControlRequest, ControlLane, CountFull},
		{"control bytes", HTTPOptions{ReservedControlBytes: 8192}, one(ControlRequest, "bob"), 1, 1, ControlRequest, ControlLane, BytesFull},
		{"control tenant", HTTPOptions{MaxTenantControlRequests: 1}, one(ControlRequest, "bob"), 0, 0, ControlRequest, ControlLane, TenantFull},
		{"control principal", HTTPOptions{MaxPrincipalControlRequests: 1}, one(ControlRequest, "alice"), 0, 0, ControlRequest, ControlLane, PrincipalFull},
		{"heavy bytes", HTTPOptions{MaxReservedBytes: 72*mib + 8192}, one(HeavyRead, "bob"), 0, 0, HeavyRead, DataLane, BytesFull},
		{"heavy for no lane", HTTPOptions{MaxReservedBytes: 64 * mib}, nil, 0, 0, HeavyRead, DataLane, TooLarge},
		{"more body than the largest", HTTPOptions{}, nil, 0, 8*mib + 1, OtherRequest, DataLane, TooLarge},
		{"overflow", HTTPOptions{}, nil, 0, math.MaxInt64, OtherRequest, DataLane, TooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := https(t, c.options)
			if c.before != nil {
				c.before(g)
			}
			l := enter(t, g, c.declared)
			if !l.Bind(alice) {
				t.Fatal("not bound")
			}
			before := g.Status()
			if l.Reclassify(c.kind, c.body) {
				t.Fatal("moved")
			}
			after := g.Status()
			if n := after.Node.Control.Refused[c.reason.String()]; c.lane == ControlLane && n != 1 {
				t.Errorf("refusals %+v", after.Node.Control.Refused)
			}
			if n := after.Node.Data.Refused[c.reason.String()]; c.lane == DataLane && n != 1 {
				t.Errorf("refusals %+v", after.Node.Data.Refused)
			}
			after.Node.Data.Refused, after.Node.Control.Refused = before.Node.Data.Refused, before.Node.Control.Refused
			if fmt.Sprint(before) != fmt.Sprint(after) {
				t.Errorf("a refused move changed\n%+v to\n%+v", before, after)
			}
			if l.Reclassify(OtherRequest, 0) {
				t.Error("a lease moved after its one move was refused")
			}
		})
	}
}

// one admits one request of a kind for somebody.
func one(k Kind, name string) func(g *HTTPGovernor) {
	return func(g *HTTPGovernor) {
		l, err := g.Ingress(context.Background(), 0)
		if err != nil || !l.Reclassify(k, 0) || !l.Bind(Principal{"plant", name}) {
			panic(fmt.Sprint("one: ", err))
		}
	}
}

func TestReclassifyThatShrinksIsNeverRefused(t *testing.T) {
	g := https(t, HTTPOptions{})
	l := enter(t, g, -1)
	if err := g.Apply(HTTPOptions{MaxRequests: 1, MaxReservedBytes: 9 * mib}); err != nil {
		t.Fatal(err)
	}
	enterRefused(t, g)
	if !l.Reclassify(OtherRequest, 100) {
		t.Error("refused")
	}
	l.Release()
	wantHTTPEmpty(t, g)
}

func enterRefused(t *testing.T, g *HTTPGovernor) {
	t.Helper()
	if _, err := g.Ingress(t.Context(), 0); !errors.Is(err, ErrResourceExhausted) {
		t.Errorf("admitted, %v", err)
	}
}

func TestBind(t *testing.T) {
	t.Run("exactly once", func(t *testing.T) {
		g := https(t, HTTPOptions{})
		l := enter(t, g, 0)
		if !l.Bind(alice) || l.Bind(alice) || l.Bind(Principal{"plant", "bob"}) {
			t.Error("bound other than once")
		}
		if s := g.Status().VerifiedScopes.Data; len(s.Principals) != 1 || s.Principals[0].Count != 1 {
			t.Errorf("%+v", s)
		}
		l.Release()
		wantHTTPEmpty(t, g)
	})
	t.Run("blank", func(t *testing.T) {
		g := https(t, HTTPOptions{})
		l := enter(t, g, 0)
		if l.Bind(Principal{"", "alice"}) || l.Bind(Principal{"plant", "  "}) {
			t.Error("bound to nobody")
		}
	})
	t.Run("limits and what stays", func(t *testing.T) {
		for _, c := range []struct {
			name   string
			kind   Kind
			o      HTTPOptions
			spread bool // every request of another principal
			want   int
			reason Reason
		}{
			{"principal", OtherRequest, HTTPOptions{}, false, 8, PrincipalFull},
			{"tenant", OtherRequest, HTTPOptions{}, true, 16, TenantFull},
			{"control principal", ControlRequest, HTTPOptions{MaxTenantControlRequests: 9}, false, 8, PrincipalFull},
			{"control tenant", ControlRequest, HTTPOptions{}, true, 8, TenantFull},
			{"heavy reads share the data scopes", HeavyRead, HTTPOptions{MaxReservedBytes: 16 << 30}, false, 8, PrincipalFull},
		} {
			g := https(t, c.o)
			n := 0
			for ; ; n++ {
				l := enter(t, g, 0)
				if !l.Reclassify(c.kind, 0) {
					t.Fatalf("%s: request %d not moved", c.name, n)
				}
				p := alice
				if c.spread {
					p.Name = fmt.Sprint(n)
				}
				if l.Bind(p) {
					continue
				}
				lane := l.lane
				if g.unbound[lane].Count != 1 || g.lanes[lane].used.Count != n+1 {
					t.Errorf("%s: a refused request is not with the node: %+v", c.name, g.unbound)
				}
				if g.refused.of(lane)[c.reason.String()] != 1 {
					t.Errorf("%s: refusals %v", c.name, g.refused.of(lane))
				}
				l.Release()
				break
			}
			if n != c.want {
				t.Errorf("%s: %d bound, want %d", c.name, n, c.want)
			}
		}
	})
	t.Run("control has room when data is full", func(t *testing.T) {
		g := https(t, HTTPOptions{MaxRequests: 9})
		for range 8 {
			enter(t, g, 0).Bind(alice)
		}
		l := enter(t, g, 0)
		if !l.Reclassify(ControlRequest, 0) || !l.Bind(alice) {
			t.Error("refused")
		}
		if _, err := g.Ingress(t.Context(), 0); err != nil {
			t.Errorf("the slot that moved out of the data lane is not free: %v", err)
		}
	})
}

func TestReleasedLeaseStaysReleased(t *testing.T) {
	g := https(t, HTTPOptions{})
	l := enter(t, g, -1) // nobody was authenticated
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(l.Release)
	}
	wg.Wait()
	if l.Reclassify(ControlRequest, 0) || l.Bind(alice) {
		t.Error("a released lease moved")
	}
	wantHTTPEmpty(t, g)
}

func TestApplyHTTPOptions(t *testing.T) {
	g := https(t, HTTPOptions{})
	held, _ := ingress(g, 0, 4)
	if err := g.Apply(HTTPOptions{MaxRequests: 2, MaxBodyBytes: -1}); err == nil || g.Status().Limits.MaxRequests != 32 {
		t.Errorf("a bad option: %v, limit %d", err, g.Status().Limits.MaxRequests)
	}
	// Working space changes too: what was charged before is what is returned.
	if err := g.Apply(HTTPOptions{MaxRequests: 2, OtherReservedBytes: 1}); err != nil {
		t.Fatal(err)
	}
	for _, l := range held[:3] {
		enterRefused(t, g)
		l.Release()
	}
	enter(t, g, 0).Release()
	held[3].Release()
	wantHTTPEmpty(t, g)
}

func TestHTTPAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("allocates under the race detector")
	}
	g, ctx := https(t, HTTPOptions{}), t.Context()
	if n := testing.AllocsPerRun(100, func() {
		l, _ := g.Ingress(ctx, 100)
		l.Reclassify(ControlRequest, 100)
		l.Bind(alice)
		l.Release()
	}); n > 1 {
		t.Errorf("%v allocations for a request", n)
	}
}

func BenchmarkHTTPRequest(b *testing.B) {
	g, ctx := https(b, HTTPOptions{}), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		l, err := g.Ingress(ctx, 100)
		if err != nil {
			b.Fatal(err)
		}
		l.Reclassify(OtherRequest, 100)
		l.Bind(alice)
		l.Release()
	}
}

func BenchmarkHTTPRefuse(b *testing.B) {
	g, ctx := https(b, HTTPOptions{MaxRequests: 1}), context.Background()
	ingress(g, 0, 1)
	b.ReportAllocs()
	for b.Loop() {
		g.Ingress(ctx, 100)
	}
}
