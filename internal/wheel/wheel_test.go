package wheel

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

func TestTimersFireOnceAtTheirTick(t *testing.T) {
	for _, c := range []struct {
		name  string
		after time.Duration
		want  time.Duration
	}{
		{"past means next tick", -time.Second, 10 * time.Millisecond},
		{"now means next tick", 0, 10 * time.Millisecond},
		{"rounded up to a tick", 11 * time.Millisecond, 20 * time.Millisecond},
		{"exactly on a tick", 50 * time.Millisecond, 50 * time.Millisecond},
		{"one whole turn", slots * 10 * time.Millisecond, slots * 10 * time.Millisecond},
		{"more than a turn", time.Hour, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := NewSharded(10*time.Millisecond, 2)
				defer w.Close()
				start := time.Now()
				var fired []time.Duration
				var tm Timer
				tm.Init(func(now time.Time) { fired = append(fired, now.Sub(start)) })
				w.Schedule(&tm, start.Add(c.after))
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if len(fired) != 1 || fired[0] != c.want {
					t.Fatalf("fired at %v, want once at %v", fired, c.want)
				}
			})
		})
	}
}

func TestRescheduleMovesAndCancelStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(0)
		defer w.Close()
		start := time.Now()
		var n atomic.Int32
		var at atomic.Int64
		var tm Timer
		tm.Init(func(now time.Time) { n.Add(1); at.Store(int64(now.Sub(start))) })
		if w.Cancel(&tm) {
			t.Error("Cancel of an idle timer reports true")
		}
		w.Schedule(&tm, start.Add(time.Second))
		w.Schedule(&tm, start.Add(3*time.Second)) // later
		time.Sleep(2 * time.Second)
		if n.Load() != 0 {
			t.Fatal("fired at its first time although it was moved")
		}
		w.Schedule(&tm, start.Add(2500*time.Millisecond)) // earlier than planned
		time.Sleep(10 * time.Second)
		if n.Load() != 1 || time.Duration(at.Load()) != 2500*time.Millisecond {
			t.Fatalf("fired %d times, last at %v", n.Load(), time.Duration(at.Load()))
		}
		w.Schedule(&tm, time.Now().Add(time.Second))
		if !w.Cancel(&tm) || w.Len() != 0 {
			t.Fatal("Cancel did not stop a scheduled timer")
		}
		time.Sleep(10 * time.Second)
		if n.Load() != 1 {
			t.Fatal("fired after Cancel")
		}
	})
}

// A function may reschedule its own timer and cancel one that is due in the same tick.
func TestFunctionsMayChangeTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewSharded(0, 1)
		defer w.Close()
		start := time.Now()
		var ticks, victims int
		var self, victim Timer
		victim.Init(func(time.Time) { victims++ })
		self.Init(func(now time.Time) {
			if ticks++; ticks < 100 {
				w.Schedule(&self, now.Add(20*time.Millisecond))
			}
			w.Cancel(&victim)
		})
		w.Schedule(&self, start.Add(20*time.Millisecond))
		w.Schedule(&victim, start.Add(20*time.Millisecond))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if ticks != 100 || victims != 0 {
			t.Fatalf("%d ticks, %d victims; want 100, 0", ticks, victims)
		}
	})
}

// In a bubble, time only jumps to the next timer: a wheel that kept a ticker while empty would make
// this sleep take a thousand million steps and time out.
func TestAnEmptyWheelSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(time.Microsecond)
		defer w.Close()
		var tm Timer
		done := make(chan struct{})
		tm.Init(func(time.Time) { close(done) })
		w.Schedule(&tm, time.Now())
		<-done
		time.Sleep(1000 * time.Second)
	})
}

func TestCloseDropsTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(0)
		var tm Timer
		tm.Init(func(time.Time) { t.Error("fired after Close") })
		w.Schedule(&tm, time.Now().Add(time.Second))
		w.Close()
		w.Close()
		w.Schedule(&tm, time.Now().Add(time.Second))
		time.Sleep(time.Minute)
		if w.Len() != 0 {
			t.Error("timers left after Close")
		}
	})
}

// Against a model: every timer fires at its last scheduled tick or not at all, whatever the order.
func TestRandomSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewSharded(10*time.Millisecond, 3)
		defer w.Close()
		r := rand.New(rand.NewPCG(1, 2))
		start := time.Now()
		type model struct {
			tm   Timer
			want time.Duration // 0: not scheduled
			mu   sync.Mutex
			bad  bool
		}
		all := make([]model, 300)
		for i := range all {
			m := &all[i]
			m.tm.Init(func(now time.Time) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.bad = m.bad || m.want != now.Sub(start)
				m.want = 0
			})
		}
		for range 20_000 {
			m := &all[r.IntN(len(all))]
			m.mu.Lock()
			if r.IntN(4) == 0 {
				w.Cancel(&m.tm)
				m.want = 0
			} else {
				m.want = time.Since(start) + time.Duration(1+r.IntN(2000))*10*time.Millisecond
				w.Schedule(&m.tm, start.Add(m.want))
			}
			m.mu.Unlock()
			if r.IntN(3) == 0 {
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for i := range all {
			if all[i].bad || all[i].want != 0 {
				t.Fatalf("timer %d: fired at a wrong time %v, missing %v", i, all[i].bad, all[i].want)
			}
		}
	})
}

func TestTimerIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(Timer{}); n > 48 {
		t.Errorf("a Timer takes %d bytes", n)
	}
}

func TestConcurrentUse(t *testing.T) {
	w := New(time.Millisecond)
	defer w.Close()
	timers := make([]Timer, 64)
	var fired atomic.Int64
	for i := range timers {
		timers[i].Init(func(now time.Time) { fired.Add(1); w.Schedule(&timers[(i+1)%len(timers)], now) })
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 20_000 {
				tm := &timers[r.IntN(len(timers))]
				if r.IntN(3) == 0 {
					w.Cancel(tm)
				} else {
					w.Schedule(tm, time.Now().Add(time.Duration(r.IntN(5))*time.Millisecond))
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkSchedule(b *testing.B) {
	w := NewSharded(0, 1)
	defer w.Close()
	var tm Timer
	tm.Init(func(time.Time) {})
	at := time.Now().Add(time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		w.Schedule(&tm, at)
	}
}
