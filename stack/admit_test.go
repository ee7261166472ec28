package stack

import (
	"sync/atomic"
	"testing"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/service"
)

// admissions returns what one core does for the admission of inline requests of
// one session, without the handler: owner, lease and its return.
func admissions(tb testing.TB, p *isolation.Provider, key string) func() {
	tb.Helper()
	owner, err := p.Issue(key, isolation.Established)
	if err != nil {
		tb.Fatal(err)
	}
	d := &dispatcher{provider: p, short: newWaiting(false, (*isolation.Lease).Run), cost: newRequestCost(&Options{Limits: Limits{}.resolved()}).of}
	var slot atomic.Value // as in a session
	b := &binding{}
	b.owners[isolation.Other] = owner
	slot.Store(b)
	entry := &service.Entry{Name: "Read", NeedsSession: true}
	r := &request{}
	return func() {
		r.owner = bound(&slot, nil, nil).owners[kindOf(entry)]
		if d.short.any() {
			tb.Fatal("somebody waits")
		}
		if reason, _ := p.AdmitInline(&r.lease, r.owner, d.cost(100)); reason != isolation.Granted {
			tb.Fatal(reason)
		}
		r.lease.Release()
	}
}

func provider(tb testing.TB) *isolation.Provider {
	tb.Helper()
	plan, err := Options{}.Plan()
	if err != nil {
		tb.Fatal(err)
	}
	return isolation.NewProvider(plan)
}

func TestAdmissionAllocatesNothing(t *testing.T) {
	once := admissions(t, provider(t), "a")
	once()
	if n := testing.AllocsPerRun(1000, once); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkAdmission is the whole admission of one inline request: alone and, at
// -cpu 2, on two cores that contend.
func BenchmarkAdmission(b *testing.B) {
	b.Run("alone", func(b *testing.B) {
		once := admissions(b, provider(b), "a")
		b.ReportAllocs()
		for b.Loop() {
			once()
		}
	})
	b.Run("contended", func(b *testing.B) {
		p := provider(b)
		keys := make(chan string, 64)
		for i := range 64 {
			keys <- string(rune('A' + i))
		}
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			once := admissions(b, p, <-keys)
			for pb.Next() {
				once()
			}
		})
	})
}
