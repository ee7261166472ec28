package isolation

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// tiny is a plan in which every stage has the capacity and the floors given.
func tiny(mode Mode, capacity, bootstrap, reconnect, control int64, table int, trusted ...TrustedPlan) *Plan {
	p := &Plan{Mode: mode, MaxTrackedOwners: table, MaxOwnerKeyLength: 256, DefaultWeight: 1, Trusted: trusted}
	for s := range Stage(Stages) {
		sp := StagePlan{Stage: s, Total: capacity, Capacity: capacity, Unit: 1, Bootstrap: bootstrap, Reconnect: reconnect, Control: control, HardLimit: capacity}
		for _, t := range trusted {
			sp.Trusted += t.Floor[s]
		}
		sp.Shared = capacity - bootstrap - reconnect - control - sp.Trusted
		p.Stages[s] = sp
	}
	return p
}

func trustedPlan(key string, floor, limit int64) TrustedPlan {
	t := TrustedPlan{Key: key, Weight: 1}
	for s := range t.Floor {
		t.Floor[s], t.HardLimit[s] = floor, limit
	}
	return t
}

func issue(t testing.TB, p *Provider, key string, c Class) *Owner {
	t.Helper()
	o, err := p.Issue(key, c)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// take acquires one connection n times and returns the last reason.
func take(p *Provider, o *Owner, n int) (leases []*Lease, last Reason) {
	for range n {
		l := &Lease{}
		if last = p.TryAcquire(l, Connection, o, 1); last != Granted {
			return leases, last
		}
		leases = append(leases, l)
	}
	return leases, last
}

func TestAccountingVectors(t *testing.T) {
	t.Run("floors keep room", func(t *testing.T) {
		p := NewProvider(tiny(Balanced, 10, 1, 1, 0, 100))
		ordinary := issue(t, p, "ordinary", Established)
		if l, r := take(p, ordinary, 9); len(l) != 8 || r != Capacity {
			t.Errorf("ordinary took %d, then %v", len(l), r)
		}
		for _, c := range []Class{Bootstrap, Reconnect} {
			if l, r := take(p, issue(t, p, c.String(), c), 2); len(l) != 1 || r != Capacity {
				t.Errorf("%v took %d, then %v", c, len(l), r)
			}
		}
		if _, r := take(p, issue(t, p, "another start", Bootstrap), 1); r != Capacity {
			t.Errorf("a second bootstrap owner: %v", r)
		}
	})
	t.Run("FairShare lets one owner take all", func(t *testing.T) {
		p := NewProvider(tiny(FairShare, 10, 0, 0, 0, 100))
		if l, r := take(p, issue(t, p, "a", Established), 11); len(l) != 10 || r != OwnerLimit {
			t.Errorf("took %d, then %v", len(l), r)
		}
	})
	t.Run("two ports of one address share a hard limit", func(t *testing.T) {
		plan := tiny(FairShare, 10, 0, 0, 0, 100)
		plan.Stages[Connection].HardLimit = 4
		p := NewProvider(plan)
		a, b := issue(t, p, "addr", Established), issue(t, p, "addr", Established)
		take(p, a, 3)
		if l, r := take(p, b, 2); len(l) != 1 || r != OwnerLimit {
			t.Errorf("second port took %d, then %v", len(l), r)
		}
	})
	t.Run("trusted owners get exactly their own", func(t *testing.T) {
		p := NewProvider(tiny(TrustedReservations, 10, 1, 1, 0, 100, trustedPlan("A", 1, 10), trustedPlan("B", 1, 10)))
		if l, r := take(p, issue(t, p, "x", Established), 7); len(l) != 6 || r != Capacity {
			t.Errorf("shared took %d, then %v", len(l), r)
		}
		for _, key := range []string{"A", "B"} {
			if l, r := take(p, issue(t, p, key, Trusted), 2); len(l) != 1 || r != Capacity {
				t.Errorf("%s took %d, then %v", key, len(l), r)
			}
		}
	})
	t.Run("forty race for ten", func(t *testing.T) {
		p := NewProvider(tiny(FairShare, 10, 0, 0, 0, 100))
		var wg sync.WaitGroup
		var granted atomic.Int64
		for i := range 40 {
			o := issue(t, p, fmt.Sprint(i), Established)
			wg.Go(func() {
				if l, _ := take(p, o, 1); len(l) == 1 {
					granted.Add(1)
				}
			})
		}
		wg.Wait()
		if granted.Load() != 10 || p.Used(Connection) != 10 {
			t.Errorf("%d granted, %d used", granted.Load(), p.Used(Connection))
		}
	})
	t.Run("the owner table keeps places", func(t *testing.T) {
		p := NewProvider(tiny(Balanced, 10, 1, 1, 0, 3))
		for _, c := range []struct {
			key   string
			class Class
			want  Reason
		}{{"A", Established, Granted}, {"B", Established, OwnerTableFull}, {"boot", Bootstrap, Granted}, {"re", Reconnect, Granted}} {
			if _, r := take(p, issue(t, p, c.key, c.class), 1); r != c.want {
				t.Errorf("%s: %v, want %v", c.key, r, c.want)
			}
		}
	})
	t.Run("a key used with two classes fills no protected place", func(t *testing.T) {
		p := NewProvider(tiny(Balanced, 10, 1, 1, 0, 4))
		take(p, issue(t, p, "A", Established), 1)
		take(p, issue(t, p, "A", Bootstrap), 1) // same account: no bootstrap owner proper
		if _, r := take(p, issue(t, p, "B", Established), 1); r != Granted {
			t.Errorf("B: %v", r)
		}
		if _, r := take(p, issue(t, p, "C", Established), 1); r != OwnerTableFull {
			t.Errorf("C: %v: the places of bootstrap and reconnect are kept", r)
		}
	})
}

// Continuity: an owner that borrows the reconnect floor of one stage fills no
// place that the owner table keeps for reconnecting ones.
func TestLimitedOwnerFillsNoProtectedPlace(t *testing.T) {
	p := NewProvider(tiny(Balanced, 10, 1, 1, 0, 3))
	borrow := func(key string) *Owner {
		o, err := p.IssueFor(key, Reconnect, ReassemblyBytes)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	var a, b, re Lease
	if r := p.TryAcquire(&a, ReassemblyBytes, borrow("a"), 1); r != Granted || a.Reserved(ReassemblyBytes) != 1 {
		t.Fatal(r, a.Reserved(ReassemblyBytes))
	}
	if r := p.TryAcquire(&b, ReassemblyBytes, borrow("b"), 1); r != OwnerTableFull {
		t.Error("the second of three places, two of which are kept:", r)
	}
	if r := p.TryAcquire(&re, Connection, issue(t, p, "re", Reconnect), 1); r != Granted {
		t.Error("the reconnecting owner proper:", r)
	}
	a.Release()
	re.Release()
	if p.Owners() != 0 || p.sole[Reconnect] != 0 {
		t.Error(p.Owners(), "owners,", p.sole[Reconnect], "reconnecting")
	}
}

func TestOrderOfChecks(t *testing.T) {
	plan := tiny(Balanced, 10, 1, 1, 0, 3)
	plan.Stages[Connection].HardLimit = 2
	p, other := NewProvider(plan), NewProvider(plan)
	a := issue(t, p, "a", Established)
	only, err := p.IssueFor("q", Established, RequestQueue)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		p      *Provider
		o      *Owner
		amount int64
		want   Reason
	}{
		{"a stranger's owner", other, a, 1, InvalidOwner},
		{"nobody", p, nil, 1, InvalidOwner},
		{"an owner for another stage", p, only, 1, InvalidOwner},
		{"hard limit before capacity", p, a, 11, OwnerLimit},
	} {
		var l Lease
		if r := c.p.TryAcquire(&l, Connection, c.o, c.amount); r != c.want || l.Held() {
			t.Errorf("%s: %v, want %v", c.name, r, c.want)
		}
	}
	if _, err := p.Issue("nobody provisioned it", Trusted); err == nil {
		t.Error("a trusted key that was not provisioned was issued")
	}
	if _, err := p.Issue("", Established); err == nil {
		t.Error("an empty key was issued")
	}
	defer func() {
		if recover() == nil {
			t.Error("an amount of 0 did not panic")
		}
	}()
	var l Lease
	p.TryAcquire(&l, Connection, a, 0)
}

func TestLeasesReturnOnce(t *testing.T) {
	p := NewProvider(tiny(Balanced, 10, 1, 1, 1, 100))
	o := issue(t, p, "a", Established)
	var l Lease
	if r := p.Admit(&l, o, []Claim{{RequestQueue, 1}, {RequestQueueBytes, 5}, {ParkedRequest, 1}}); r != Granted {
		t.Fatal(r)
	}
	var second Lease
	if r := p.Admit(&second, o, []Claim{{RequestQueue, 1}, {RequestQueueBytes, 5}}); r != Capacity {
		t.Errorf("5 + 5 of 7 shared: %v", r)
	}
	if p.Used(RequestQueue) != 1 || second.Held() {
		t.Error("a refused call kept a part")
	}
	l.Shrink(RequestQueue)
	if p.Used(RequestQueue) != 0 || p.Used(RequestQueueBytes) != 5 || l.Amount(RequestQueueBytes) != 5 || l.Amount(ParkedRequest) != 1 {
		t.Error("Shrink returned the wrong part")
	}
	p.Close()
	if _, r := take(p, o, 1); r != Closed {
		t.Errorf("after Close: %v", r)
	}
	l.Release()
	l.Release()
	for s := range Stage(Stages) {
		if p.Used(s) != 0 {
			t.Errorf("%v: %d left", s, p.Used(s))
		}
	}
	if p.Owners() != 0 {
		t.Errorf("%d owners left", p.Owners())
	}
}

func TestInlineAdmissionIsBoundedByRunSlots(t *testing.T) {
	plan := tiny(Balanced, 10, 0, 0, 0, 100)
	plan.RunSlots = 2
	p := NewProvider(plan)
	o := issue(t, p, "a", Established)
	var l [3]Lease
	for i := range 2 {
		if r, _ := p.AdmitInline(&l[i], o, 1); r != Granted {
			t.Fatal(r)
		}
	}
	if r, saturated := p.AdmitInline(&l[2], o, 1); r != Capacity || !saturated {
		t.Errorf("third: %v, saturated %v", r, saturated)
	}
	l[0].Release()
	if r, saturated := p.AdmitInline(&l[2], o, 100); r != OwnerLimit || saturated {
		t.Errorf("too many bytes: %v, saturated %v", r, saturated)
	}
	if r, _ := p.AdmitInline(&l[2], o, 1); r != Granted {
		t.Errorf("after a release: %v", r)
	}
}

func TestApplyKeepsLeases(t *testing.T) {
	p := NewProvider(tiny(Balanced, 10, 2, 0, 0, 100))
	boot := issue(t, p, "b", Bootstrap)
	leases, _ := take(p, boot, 4) // two of the floor, two shared
	if err := p.Apply(tiny(Balanced, 3, 1, 0, 0, 100)); err != nil {
		t.Fatal(err)
	}
	if _, r := take(p, boot, 1); r == Granted {
		t.Error("a limit below what is used granted more")
	}
	for _, l := range leases {
		l.Release()
	}
	if l, r := take(p, issue(t, p, "x", Established), 3); len(l) != 2 || r != Capacity {
		t.Errorf("after draining: %d, %v", len(l), r)
	}
	if err := p.Apply(tiny(FairShare, 3, 0, 0, 0, 100)); err == nil {
		t.Error("Mode changed")
	}
}

// model is the contract written down plainly.
type model struct {
	plan *Plan
	live []grant
}

type grant struct {
	key      string
	class    Class
	trusted  bool
	stage    Stage
	amount   int64
	reserved int64
}

func (m *model) sum(f func(grant) bool, v func(grant) int64) (n int64) {
	for _, g := range m.live {
		if f(g) {
			n += v(g)
		}
	}
	return n
}

func (m *model) acquire(key string, class Class, s Stage, amount int64) (grant, Reason) {
	st := m.plan.Stages[s]
	limit, floor := st.HardLimit, map[Class]int64{Bootstrap: st.Bootstrap, Reconnect: st.Reconnect, Control: st.Control}[class]
	trusted := false
	for _, t := range m.plan.Trusted {
		if t.Key == key {
			trusted, limit = true, t.HardLimit[s]
			if class == Trusted {
				floor = t.Floor[s]
			}
		}
	}
	amountOf := func(g grant) int64 { return g.amount }
	reservedOf := func(g grant) int64 { return g.reserved }
	if amount > limit-m.sum(func(g grant) bool { return g.key == key && g.stage == s }, amountOf) {
		return grant{}, OwnerLimit
	}
	floorUsed := m.sum(func(g grant) bool {
		return g.stage == s && g.class == class && (class != Trusted || g.key == key)
	}, reservedOf)
	reserved := min(amount, max(0, floor-floorUsed))
	all := func(g grant) bool { return g.stage == s }
	used := m.sum(all, amountOf)
	sharedUsed := used - m.sum(all, reservedOf)
	if amount > st.Capacity-used || amount-reserved > st.Shared-sharedUsed {
		return grant{}, Capacity
	}
	owners, classes, trustedIn := map[string]bool{}, map[string]map[Class]bool{}, map[string]bool{}
	for _, g := range m.live {
		owners[g.key] = true
		if classes[g.key] == nil {
			classes[g.key] = map[Class]bool{}
		}
		classes[g.key][g.class] = true
		if g.trusted {
			trustedIn[g.key] = true
		}
	}
	if !owners[key] {
		kept := len(m.plan.Trusted) - len(trustedIn)
		if trusted {
			kept--
		}
		for _, c := range []Class{Bootstrap, Reconnect, Control} {
			has, present := false, false
			for _, st := range m.plan.Stages {
				has = has || map[Class]int64{Bootstrap: st.Bootstrap, Reconnect: st.Reconnect, Control: st.Control}[c] > 0
			}
			for k := range owners {
				present = present || (classes[k][c] && len(classes[k]) == 1)
			}
			if has && !present && class != c {
				kept++
			}
		}
		if len(owners)+1+kept > m.plan.MaxTrackedOwners {
			return grant{}, OwnerTableFull
		}
	}
	g := grant{key, class, trusted, s, amount, reserved}
	return g, Granted
}

// Random operations give the same answers as the model.
func TestProviderAgreesWithModel(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		plan := tiny(Balanced, 12, 2, 1, 1, 7, trustedPlan("t0", 1, 6), trustedPlan("t1", 2, 12))
		plan.Stages[Handshake].Control, plan.Stages[Handshake].Shared = 0, plan.Stages[Handshake].Shared+1
		plan.Stages[Connection].HardLimit = 5
		p, m := NewProvider(plan), &model{plan: plan}
		owners := map[string]*Owner{}
		var leases []*Lease
		for step := range 3000 {
			if len(leases) > 0 && r.IntN(100) < 45 {
				i := r.IntN(len(leases))
				leases[i].Release()
				leases = append(leases[:i], leases[i+1:]...)
				m.live = append(m.live[:i], m.live[i+1:]...)
				continue
			}
			key, class := fmt.Sprintf("k%d", r.IntN(6)), Class(r.IntN(Classes))
			if class == Trusted {
				key = fmt.Sprintf("t%d", r.IntN(2))
			} else if r.IntN(10) == 0 {
				key = "t0" // a trusted key at ordinary work
			}
			id := key + class.String()
			if owners[id] == nil || r.IntN(20) == 0 {
				owners[id] = issue(t, p, key, class)
			}
			s, amount := Stage(r.IntN(3)), int64(1+r.IntN(4))
			l := &Lease{}
			got := p.TryAcquire(l, s, owners[id], amount)
			g, want := m.acquire(key, class, s, amount)
			if got != want {
				t.Fatalf("seed %d, step %d: %s wants %d of %v: %v, the model says %v", seed, step, id, amount, s, got, want)
			}
			if got == Granted {
				leases = append(leases, l)
				m.live = append(m.live, g)
			}
		}
		for _, l := range leases {
			l.Release()
		}
		stages, n := p.Snapshot()
		for _, u := range stages {
			if u.Used != 0 || u.Shared != 0 || u.Bootstrap != 0 || u.Reconnect != 0 || u.Control != 0 || n != 0 {
				t.Fatalf("seed %d: %+v, %d owners left", seed, u, n)
			}
		}
	}
}

// Concurrent operations never exceed a limit and end at zero.
func TestProviderUnderConcurrency(t *testing.T) {
	p := NewProvider(tiny(Balanced, 50, 2, 2, 2, 40, trustedPlan("t", 3, 10)))
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 7))
			owners := []*Owner{issue(t, p, fmt.Sprintf("w%d", w), Established), issue(t, p, "shared", Reconnect), issue(t, p, "t", Trusted), issue(t, p, "c", Control)}
			var held []*Lease
			for range 4000 {
				if len(held) > 5 || (len(held) > 0 && r.IntN(2) == 0) {
					i := r.IntN(len(held))
					held[i].Release()
					held[i].Release()
					held = append(held[:i], held[i+1:]...)
					continue
				}
				l := &Lease{}
				if p.Admit(l, owners[r.IntN(len(owners))], []Claim{{Stage(r.IntN(4)), 1 + int64(r.IntN(3))}, {Stage(4 + r.IntN(4)), 1}}) == Granted {
					held = append(held, l)
				}
			}
			for _, l := range held {
				l.Release()
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 {
			stages, _ := p.Snapshot()
			for _, u := range stages {
				if u.Used > u.Capacity || u.Used < 0 || u.Shared < 0 || u.Trusted < 0 {
					t.Errorf("%+v", u)
					return
				}
			}
		}
	}()
	wg.Wait()
	<-done
	for s := range Stage(Stages) {
		if p.Used(s) != 0 {
			t.Errorf("%v: %d left", s, p.Used(s))
		}
	}
}

func TestAdmissionDoesNotAllocate(t *testing.T) {
	plan := tiny(Balanced, 1<<30, 1, 1, 1, 100)
	plan.RunSlots = 8
	p := NewProvider(plan)
	o := issue(t, p, "a", Established)
	var l Lease
	if n := testing.AllocsPerRun(1000, func() {
		p.AdmitInline(&l, o, 4096)
		l.Release()
	}); n != 0 {
		t.Errorf("%v allocations for one request", n)
	}
}

func BenchmarkAdmitInline(b *testing.B) {
	plan := tiny(Balanced, 1<<30, 1, 1, 1, 100)
	plan.RunSlots = 64
	p := NewProvider(plan)
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		o := issue(b, p, "a", Established)
		var l Lease
		for b.Loop() {
			p.AdmitInline(&l, o, 4096)
			l.Release()
		}
	})
	b.Run("contended", func(b *testing.B) {
		b.ReportAllocs()
		var n atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			o := issue(b, p, fmt.Sprint("w", n.Add(1)), Established)
			var l Lease
			for pb.Next() {
				p.AdmitInline(&l, o, 4096)
				l.Release()
			}
		})
	})
}
