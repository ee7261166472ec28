package transport

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

func TestDeadlinesOrderAndChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewDeadlines()
		defer l.Close()
		start := time.Now()
		r := rand.New(rand.NewPCG(1, 2))
		type entry struct {
			Deadline
			want  time.Duration // 0 = must not expire
			fired time.Duration
		}
		entries := make([]*entry, 500)
		for i := range entries {
			e := &entry{}
			e.Expired = func() {
				if e.fired != 0 {
					t.Error("expired twice")
				}
				e.fired = time.Since(start)
			}
			entries[i] = e
		}
		// Any sequence of setting, moving and stopping, some of it late.
		for step := range 3000 {
			e := entries[r.IntN(len(entries))]
			if e.fired != 0 {
				continue
			}
			if r.IntN(4) == 0 {
				l.Set(&e.Deadline, time.Time{})
				e.want = 0
			} else {
				e.want = time.Since(start) + time.Duration(1+r.IntN(1000))*time.Millisecond
				l.Set(&e.Deadline, start.Add(e.want))
			}
			if step%100 == 0 {
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for i, e := range entries {
			if e.fired != e.want {
				t.Fatalf("entry %d expired after %v, want %v", i, e.fired, e.want)
			}
		}
		if l.Len() != 0 {
			t.Fatal("left", l.Len())
		}
	})
}

func TestDeadlinesSetDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewDeadlines()
		fired := false
		d := &Deadline{Expired: func() { fired = true }}
		if l.Set(d, time.Now().Add(time.Second)) {
			t.Fatal("was set at first")
		}
		if !l.Set(d, time.Time{}) || l.Set(d, time.Time{}) {
			t.Fatal("completion must win exactly once")
		}
		l.Set(d, time.Now().Add(time.Second))
		time.Sleep(time.Second)
		synctest.Wait()
		if !fired || l.Set(d, time.Time{}) {
			t.Fatal("expiry must win")
		}
		// From an expiring function the list may be used.
		again := make(chan struct{})
		d.Expired = func() {
			d.Expired = func() { close(again) }
			l.Set(d, time.Now().Add(time.Second))
		}
		l.Set(d, time.Now())
		<-again
		l.Set(d, time.Now().Add(time.Second))
		l.Close()
		l.Set(d, time.Now().Add(time.Second))
		time.Sleep(time.Minute)
		if l.Len() != 0 {
			t.Fatal("set after Close")
		}
	})
}

func BenchmarkDeadlinesMove(b *testing.B) {
	l := NewDeadlines()
	defer l.Close()
	now := time.Now()
	entries := make([]Deadline, 10_000)
	for i := range entries {
		l.Set(&entries[i], now.Add(time.Hour+time.Duration(i)*time.Millisecond))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		l.Set(&entries[i%len(entries)], now.Add(2*time.Hour+time.Duration(i)))
		i++
	}
}
