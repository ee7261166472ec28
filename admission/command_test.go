package admission

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var alice = Principal{"plant", "alice"}

func commands(t testing.TB, o CommandOptions) *CommandGovernor {
	t.Helper()
	g, err := NewCommandGovernor(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// reserve makes n equal reservations and returns those granted and the last error.
func reserve(g *CommandGovernor, c Command, n int) (granted []*Reservation, err error) {
	for range n {
		var r *Reservation
		if r, err = g.Reserve(context.Background(), c); err != nil {
			return granted, err
		}
		granted = append(granted, r)
	}
	return granted, nil
}

func wantRefused(t *testing.T, err error, l Lane, r Reason) {
	t.Helper()
	var refused *RefusedError
	if !errors.Is(err, ErrResourceExhausted) || !errors.As(err, &refused) {
		t.Fatalf("error %v, want a RefusedError", err)
	}
	if refused.Lane != l || refused.Reason != r {
		t.Errorf("refused for %v lane %v, want %v lane %v", refused.Lane, refused.Reason, l, r)
	}
}

func TestCommandDefaults(t *testing.T) {
	got, err := CommandOptions{}.Resolved()
	want := CommandOptions{
		MaxCommands: 256, MaxRetainedBytes: 134217728, MaxTenantCommands: 128, MaxPrincipalCommands: 64,
		ReservedControlCommands: 16, ReservedControlBytes: 2097152, MaxControlPayloadBytes: 65536,
		MaxTenantControlCommands: 8, MaxPrincipalControlCommands: 8,
	}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCommandOptionsRefuseNegativesByName(t *testing.T) {
	for field, o := range map[string]CommandOptions{
		"MaxCommands":                 {MaxCommands: -1},
		"MaxRetainedBytes":            {MaxRetainedBytes: -1},
		"MaxTenantCommands":           {MaxTenantCommands: -1},
		"MaxPrincipalCommands":        {MaxPrincipalCommands: -1},
		"ReservedControlCommands":     {ReservedControlCommands: -1},
		"ReservedControlBytes":        {ReservedControlBytes: -1},
		"MaxControlPayloadBytes":      {MaxControlPayloadBytes: -1},
		"MaxTenantControlCommands":    {MaxTenantControlCommands: -1},
		"MaxPrincipalControlCommands": {MaxPrincipalControlCommands: -1},
	} {
		var bad *OptionError
		if _, err := NewCommandGovernor(o); !errors.As(err, &bad) || bad.Field != field || !strings.Contains(err.Error(), field+" is -1") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestCommandCharge(t *testing.T) {
	for _, c := range []struct {
		name           string
		units, payload int64
		want           int64
	}{
		{"nothing costs the envelope", 0, 0, 4096},
		{"100 ASCII characters cost 4,496", 100, 100, 4496},
		{"100 characters of three bytes each", 100, 300, 4896},
		{"binary has no units", 0, 1000, 6096},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := commands(t, CommandOptions{}).Reserve(context.Background(), Command{alice, false, c.units, c.payload})
			if err != nil || r.Charge() != c.want {
				t.Errorf("charged %d, %v; want %d", r.Charge(), err, c.want)
			}
		})
	}
}

func TestCommandLimits(t *testing.T) {
	const huge = math.MaxInt64
	unbounded := CommandOptions{MaxRetainedBytes: huge, ReservedControlBytes: huge, MaxControlPayloadBytes: huge}
	data, control := Command{Principal: alice}, Command{Principal: alice, Control: true}
	sized := func(c Command, units, payload int64) Command {
		c.UTF16Units, c.PayloadBytes = units, payload
		return c
	}
	for _, c := range []struct {
		name    string
		options CommandOptions
		command Command
		granted int
		reason  Reason
	}{
		{"4,497 bytes hold one command of 100 ASCII characters", CommandOptions{MaxRetainedBytes: 4497}, sized(data, 100, 100), 1, BytesFull},
		{"8,992 bytes hold two", CommandOptions{MaxRetainedBytes: 8992}, sized(data, 100, 100), 2, BytesFull},
		{"4,495 bytes never hold one", CommandOptions{MaxRetainedBytes: 4495}, sized(data, 100, 100), 0, TooLarge},
		{"control bytes", CommandOptions{ReservedControlBytes: 4497}, sized(control, 100, 100), 1, BytesFull},
		{"principals by default: data", CommandOptions{}, data, 64, PrincipalFull},
		{"tenants by default: control", CommandOptions{}, control, 8, TenantFull},
		{"tenants come before principals", CommandOptions{MaxTenantCommands: 3, MaxPrincipalCommands: 3}, data, 3, TenantFull},
		{"tenants: control", CommandOptions{MaxTenantControlCommands: 3}, control, 3, TenantFull},
		{"the count comes before bytes, tenants and principals", CommandOptions{MaxCommands: 2, MaxRetainedBytes: 8192, MaxTenantCommands: 2, MaxPrincipalCommands: 2}, data, 2, CountFull},
		{"bytes come before tenants and principals", CommandOptions{MaxRetainedBytes: 8192, MaxTenantCommands: 2, MaxPrincipalCommands: 2}, data, 2, BytesFull},
		{"count: control", CommandOptions{ReservedControlCommands: 2}, control, 2, CountFull},
		{"a control payload of 64 KiB", CommandOptions{}, sized(control, 0, 65536), 8, TenantFull},
		{"principals: control", CommandOptions{MaxPrincipalControlCommands: 3}, control, 3, PrincipalFull},
		{"a control payload over 64 KiB", CommandOptions{}, sized(control, 0, 65537), 0, TooLarge},
		{"the same in the data lane", CommandOptions{}, sized(data, 0, 65537), 64, PrincipalFull},
		{"limits of 1", CommandOptions{MaxRetainedBytes: 4096, MaxCommands: 1, MaxTenantCommands: 1, MaxPrincipalCommands: 1}, data, 1, CountFull},
		{"2 × units overflows", unbounded, sized(data, huge/2+1, 0), 0, TooLarge},
		{"2 × payload overflows", unbounded, sized(control, 0, huge/2+1), 0, TooLarge},
		{"the sum overflows", unbounded, sized(data, huge/4+1, huge/4+1), 0, TooLarge},
		{"the envelope overflows", unbounded, sized(data, huge/2, 0), 0, TooLarge},
		{"just below", unbounded, sized(data, huge/2-2048, 0), 1, BytesFull},
		{"the lane is full to the last byte", CommandOptions{MaxRetainedBytes: huge}, sized(data, (huge-4096)/2, 0), 1, BytesFull},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := commands(t, c.options)
			granted, err := reserve(g, c.command, c.granted+1)
			if len(granted) != c.granted {
				t.Fatalf("%d granted, want %d", len(granted), c.granted)
			}
			lane := DataLane
			if c.command.Control {
				lane = ControlLane
			}
			wantRefused(t, err, lane, c.reason)
			if n := g.refused.of(lane)[c.reason.String()]; n != 1 {
				t.Errorf("counted %d refusals", n)
			}
			for _, r := range granted {
				r.Release()
			}
			wantEmpty(t, &g.lanes)
			if again, _ := reserve(g, c.command, c.granted); len(again) != c.granted {
				t.Errorf("%d granted after all were released, want %d", len(again), c.granted)
			}
		})
	}
}

// wantEmpty checks that nothing is held and that no scope has an entry.
func wantEmpty(t *testing.T, l *[lanes]lane) {
	t.Helper()
	for i := range l {
		if l[i].used != (Usage{}) || len(l[i].tenants) != 0 || len(l[i].principals) != 0 {
			t.Errorf("%v lane: %+v, %d tenants and %d principals left", Lane(i), l[i].used, len(l[i].tenants), len(l[i].principals))
		}
	}
}

func TestCommandArguments(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	g := commands(t, CommandOptions{MaxRetainedBytes: 4096})
	for _, c := range []struct {
		name    string
		ctx     context.Context
		command Command
		want    error
	}{
		{"cancelled comes before blank", cancelled, Command{}, context.Canceled},
		{"blank tenant", t.Context(), Command{Principal: Principal{" \t", "alice"}}, ErrInvalidCommand},
		{"blank principal", t.Context(), Command{Principal: Principal{"plant", ""}}, ErrInvalidCommand},
		{"blank comes before the charge", t.Context(), Command{PayloadBytes: math.MaxInt64}, ErrInvalidCommand},
		{"negative units", t.Context(), Command{alice, false, -1, 0}, ErrInvalidCommand},
		{"negative payload", t.Context(), Command{alice, true, 0, -1}, ErrInvalidCommand},
		{"negative comes before the charge", t.Context(), Command{alice, false, -1, math.MaxInt64}, ErrInvalidCommand},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r, err := g.Reserve(c.ctx, c.command); r != nil || !errors.Is(err, c.want) {
				t.Errorf("%v, %v; want %v", r, err, c.want)
			}
		})
	}
	wantEmpty(t, &g.lanes)
}

// turning is a context that ends between its first and its second question.
type turning struct {
	context.Context
	asked atomic.Int32
}

func (c *turning) Err() error {
	if c.asked.Add(1) > 1 {
		return context.Canceled
	}
	return nil
}

func TestReserveLooksAgainUnderTheLock(t *testing.T) {
	// The lane is full too: cancelled comes first.
	g := commands(t, CommandOptions{MaxCommands: 1})
	reserve(g, Command{Principal: alice}, 1)
	if _, err := g.Reserve(&turning{Context: t.Context()}, Command{Principal: alice}); !errors.Is(err, context.Canceled) {
		t.Errorf("command: %v", err)
	}
	h := https(t, HTTPOptions{MaxRequests: 1})
	ingress(h, 0, 1)
	if _, err := h.Ingress(&turning{Context: t.Context()}, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("request: %v", err)
	}
}

func TestLanesShareNothing(t *testing.T) {
	o := CommandOptions{MaxCommands: 2, MaxRetainedBytes: 8192, MaxTenantCommands: 2, MaxPrincipalCommands: 2,
		ReservedControlCommands: 2, ReservedControlBytes: 8192, MaxTenantControlCommands: 2, MaxPrincipalControlCommands: 2}
	for _, first := range []bool{false, true} {
		g := commands(t, o)
		for _, control := range []bool{first, !first} {
			if granted, err := reserve(g, Command{Principal: alice, Control: control}, 3); len(granted) != 2 || !errors.Is(err, ErrResourceExhausted) {
				t.Errorf("control=%v: %d granted, %v", control, len(granted), err)
			}
		}
	}
}

func TestScopesAreApart(t *testing.T) {
	t.Run("tenants", func(t *testing.T) {
		g := commands(t, CommandOptions{MaxTenantCommands: 2})
		a, _ := reserve(g, Command{Principal: Principal{"a", "x"}}, 3)
		b, _ := reserve(g, Command{Principal: Principal{"b", "y"}}, 3)
		if len(a) != 2 || len(b) != 2 {
			t.Errorf("granted %d and %d", len(a), len(b))
		}
	})
	t.Run("principals of one tenant", func(t *testing.T) {
		g := commands(t, CommandOptions{MaxTenantCommands: 3, MaxPrincipalCommands: 2})
		x, _ := reserve(g, Command{Principal: Principal{"a", "x"}}, 3)
		y, err := reserve(g, Command{Principal: Principal{"a", "y"}}, 3)
		if len(x) != 2 || len(y) != 1 {
			t.Errorf("granted %d and %d", len(x), len(y))
		}
		wantRefused(t, err, DataLane, TenantFull)
	})
	t.Run("one name in two tenants is two principals", func(t *testing.T) {
		g := commands(t, CommandOptions{MaxPrincipalCommands: 1})
		a, _ := reserve(g, Command{Principal: Principal{"a", "x"}}, 2)
		b, _ := reserve(g, Command{Principal: Principal{"b", "x"}}, 2)
		if len(a) != 1 || len(b) != 1 {
			t.Errorf("granted %d and %d", len(a), len(b))
		}
	})
}

func TestReleaseCountsOnce(t *testing.T) {
	g := commands(t, CommandOptions{MaxPrincipalCommands: 2})
	held, _ := reserve(g, Command{Principal: alice}, 2)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(held[0].Release)
	}
	wg.Wait()
	if used := g.Status().Node.Data.Usage; used != (Usage{1, 4096}) {
		t.Errorf("%+v held after one of two was released eight times", used)
	}
	if again, _ := reserve(g, Command{Principal: alice}, 2); len(again) != 1 {
		t.Errorf("%d granted into one place", len(again))
	}
}

func TestCancellationReleasesNothing(t *testing.T) {
	g := commands(t, CommandOptions{MaxCommands: 1})
	ctx, cancel := context.WithCancel(t.Context())
	r, err := g.Reserve(ctx, Command{Principal: alice})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_, err = g.Reserve(t.Context(), Command{Principal: alice})
	wantRefused(t, err, DataLane, CountFull)
	r.Release()
	wantEmpty(t, &g.lanes)
}

func TestIdleScopesHaveNoEntry(t *testing.T) {
	g := commands(t, CommandOptions{})
	for i := range 10_000 {
		r, err := g.Reserve(t.Context(), Command{Principal: Principal{fmt.Sprint("t", i), fmt.Sprint("p", i)}})
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
	wantEmpty(t, &g.lanes)
	if n := len(g.lanes[DataLane].free); n > 2 {
		t.Errorf("%d spare entries for two scopes held at once", n)
	}
}

func TestRacingCommandsFillExactly(t *testing.T) {
	g := commands(t, CommandOptions{MaxCommands: 10, MaxPrincipalCommands: 256})
	var wg sync.WaitGroup
	var granted atomic.Int64
	for range 40 {
		wg.Go(func() {
			if _, err := g.Reserve(context.Background(), Command{Principal: alice}); err == nil {
				granted.Add(1)
			}
		})
	}
	wg.Wait()
	if granted.Load() != 10 {
		t.Errorf("%d granted, want 10", granted.Load())
	}
}

func TestApplyCommandOptions(t *testing.T) {
	g := commands(t, CommandOptions{MaxCommands: 4})
	held, _ := reserve(g, Command{Principal: alice}, 4)
	if err := g.Apply(CommandOptions{MaxCommands: 2, MaxTenantCommands: -1}); err == nil || g.Status().Limits.MaxCommands != 4 {
		t.Errorf("a bad option: %v, limit %d", err, g.Status().Limits.MaxCommands)
	}
	if err := g.Apply(CommandOptions{MaxCommands: 2}); err != nil {
		t.Fatal(err)
	}
	for i, r := range held {
		_, err := g.Reserve(t.Context(), Command{Principal: alice})
		if drained := 4-i < 2; drained != (err == nil) {
			t.Errorf("with %d held of 2: %v", 4-i, err)
		}
		r.Release()
	}
	if err := g.Apply(CommandOptions{MaxCommands: 3}); err != nil {
		t.Fatal(err)
	}
	if more, _ := reserve(g, Command{Principal: alice}, 9); len(more) < 2 {
		t.Errorf("%d granted after the limit rose", len(more))
	}
}

func TestCommandAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("allocates under the race detector")
	}
	g := commands(t, CommandOptions{MaxCommands: 2, MaxPrincipalCommands: 1})
	c, ctx := Command{Principal: alice, PayloadBytes: 100}, t.Context()
	if n := testing.AllocsPerRun(100, func() {
		r, _ := g.Reserve(ctx, c)
		r.Release()
	}); n > 1 {
		t.Errorf("%v allocations for a reservation", n)
	}
	reserve(g, c, 1)
	if n := testing.AllocsPerRun(100, func() { g.Reserve(ctx, c) }); n > 1 {
		t.Errorf("%v allocations for a refusal", n)
	}
}

func BenchmarkCommandReserve(b *testing.B) {
	g, ctx := commands(b, CommandOptions{}), context.Background()
	c := Command{Principal: alice, PayloadBytes: 200}
	b.ReportAllocs()
	for b.Loop() {
		r, err := g.Reserve(ctx, c)
		if err != nil {
			b.Fatal(err)
		}
		r.Release()
	}
}

func BenchmarkCommandReserveContended(b *testing.B) {
	g := commands(b, CommandOptions{})
	var worker atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c := Command{Principal: Principal{"plant", fmt.Sprint(worker.Add(1))}, PayloadBytes: 200}
		ctx := context.Background()
		for pb.Next() {
			if r, err := g.Reserve(ctx, c); err == nil {
				r.Release()
			}
		}
	})
}

func BenchmarkCommandRefuse(b *testing.B) {
	g, ctx := commands(b, CommandOptions{MaxCommands: 1}), context.Background()
	c := Command{Principal: alice, PayloadBytes: 200}
	reserve(g, c, 1)
	b.ReportAllocs()
	for b.Loop() {
		g.Reserve(ctx, c)
	}
}
