package measure

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uastatus"
)

func TestRecordingAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Options{})
		defer r.Finish()
		now := time.Now()
		all := func() {
			for _, k := range []Kind{Read, Write, Publish} {
				r.Operation(k, now, now, now.Add(time.Millisecond), ua.StatusOK)
			}
			r.Operation(Read, now, now, now, ua.StatusBadTimeout)
			r.Attempt()
			r.Refused(ByError, uastatus.BadServerTooBusy, time.Second)
			r.SessionUp()
			r.SessionDown()
			r.ConnectionUp()
			r.ConnectionDown()
			r.Notifications(3)
			r.Gap(1)
			r.Duplicates(1)
			r.Woke(now, now)
		}
		for range 200 { // both tallies of every shard have their histograms
			all()
			if r.mu.TryLock() {
				r.flush(0)
				r.mu.Unlock()
			}
		}
		if n := testing.AllocsPerRun(200, all); n > 0 {
			t.Errorf("%v allocations for an event of each kind", n)
		}
	})
}

func BenchmarkOperation(b *testing.B) {
	r, err := Start(Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Finish()
	now := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Operation(Read, now, now, now.Add(1234*time.Microsecond), ua.StatusOK)
		}
	})
}

// BenchmarkSample is what a second costs with four kinds of operations.
func BenchmarkSample(b *testing.B) {
	r, err := Start(Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Finish()
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		for i := range 1000 {
			r.Operation(Kind(i%4), now, now, now.Add(time.Duration(i)*time.Millisecond), ua.StatusOK)
		}
		r.mu.Lock()
		r.flush(0)
		r.interval.operations()
		r.interval.reset()
		r.mu.Unlock()
	}
}
