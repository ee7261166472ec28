package stack

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/transport"
)

func liveServer(t *testing.T, o Options) *Server {
	t.Helper()
	o.Security = Security{Policies: NoPolicies, AllowNone: true}
	o.Logger = slog.New(slog.DiscardHandler)
	s, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(t.Context()) })
	return s
}

// overload.md §16: the size of the budget, the bounds of hints and what a
// request is charged change while the server runs; a dry run says what would
// not fit and changes nothing.
func TestApplyBudgetRetryAndCost(t *testing.T) {
	s := liveServer(t, Options{})
	if err := s.budget.Reserve(60<<20, true); err != nil {
		t.Fatal(err)
	}
	o := s.LimitsInForce()
	o.Budget = Budget{MaxBytes: 52 << 20, SessionlessBytes: 10 << 20}
	o.Retry = Retry{Min: time.Second, Max: 2 * time.Minute}
	o.RequestCost = CostEncoded
	o.Limits.MaxTokenLifetime = 30 * time.Minute
	for _, dryRun := range []bool{true, false} {
		r, err := s.ApplyLimits(o, dryRun)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"Limits.MaxTokenLifetime", "Budget.MaxBytes", "Budget.SessionlessBytes", "Retry.Min", "Retry.Max", "RequestCost"}
		if !slices.Equal(r.Changed, want) {
			t.Errorf("changed %v", r.Changed)
		}
		if !slices.Contains(r.Over, Overrun{"Budget.MaxBytes", 60 << 20, 52 << 20}) {
			t.Errorf("over %v", r.Over)
		}
		if got := r.Plan.Stages[isolation.ReassemblyBytes].Total; got != 52<<20 {
			t.Errorf("the plan divides %d", got)
		}
		max, threshold, longest, cost := int64(64<<20), int64(32<<20), 30*time.Second, int64(4<<20)
		if !dryRun {
			max, threshold, longest, cost = 52<<20, 10<<20, 2*time.Minute, 4096+400
		}
		if s.budget.Max() != max || s.budget.SessionlessThreshold() != threshold || s.planner.Max() != longest || s.dispatch.cost(100) != cost {
			t.Errorf("dry run %v: budget %d and %d, hints to %v, cost %d", dryRun, s.budget.Max(), s.budget.SessionlessThreshold(), s.planner.Max(), s.dispatch.cost(100))
		}
	}
	if err := s.budget.Release(60 << 20); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"Budget.MaxBytes":         func(o *Options) { o.Budget = Budget{MaxBytes: 1} },
		"Budget.SessionlessBytes": func(o *Options) { o.Budget.SessionlessBytes = 1 << 40 },
		"Retry.Max":               func(o *Options) { o.Retry.Max = 1 },
		"Limits.MinTokenLifetime": func(o *Options) { o.Limits.MinTokenLifetime = time.Millisecond },
		"Budget.Shared": func(o *Options) {
			b, _ := budget.New(1 << 30)
			o.Budget = Budget{Shared: b}
		},
	} {
		bad := s.LimitsInForce()
		change(&bad)
		if _, err := s.ApplyLimits(bad, false); err == nil {
			t.Errorf("took a wrong %s", name)
		}
	}
	if s.budget.Max() != 52<<20 {
		t.Error("a refused change is in force")
	}
}

// A plan never promises connections that the process cannot hold.
func TestPlanKnowsTheDescriptors(t *testing.T) {
	most := transport.MaxConnections()
	if most == 0 {
		t.Skip("no limit of open files")
	}
	p, err := Options{Limits: Limits{MaxChannels: most + 1000, MaxSessions: 10}}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Stages[isolation.Connection].Total; got != int64(most) {
		t.Errorf("%d connections by the plan, the process may hold %d", got, most)
	}
	if _, err := (Options{Limits: Limits{MaxSessions: most}}).Plan(); err == nil {
		t.Error("more sessions than connections")
	}
}
