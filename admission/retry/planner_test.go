package retry

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

var epoch = time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC)

// planner has a capacity of 100 establishments a second and no jitter.
func planner(o Options) *Planner {
	o.Workers, o.PrivateOperation = 1, 2500*time.Microsecond
	if o.Rand == nil {
		o.Rand = func() float64 { return 0 }
	}
	return New(o)
}

func near(a, b, slack time.Duration) bool { return (a - b).Abs() <= slack }

func TestStartValue(t *testing.T) {
	p := New(Options{Workers: 2, PrivateOperation: time.Millisecond})
	if p.Rate() != 500 {
		t.Errorf("%v establishments a second, want W ÷ (4 × 1 ms) = 500", p.Rate())
	}
}

// A storm of one client per owner gets places one after another.
func TestSlotsOfAStormDrainAtCapacity(t *testing.T) {
	p := planner(Options{})
	var hints []time.Duration
	for i := range 1000 {
		hints = append(hints, p.Slot(fmt.Sprint(i), epoch))
	}
	if !slices.IsSorted(hints) {
		t.Error("places are not in order")
	}
	for _, c := range []struct {
		n    int
		want time.Duration
	}{{0, DefaultMin}, {99, time.Second}, {499, 5 * time.Second}, {999, 10 * time.Second}} {
		if !near(hints[c.n], c.want, 100*time.Millisecond) {
			t.Errorf("client %d: %v, want about %v", c.n, hints[c.n], c.want)
		}
	}
	if b := p.Backlog(epoch); !near(b, 10*time.Second, 200*time.Millisecond) {
		t.Errorf("backlog %v", b)
	}
	if b := p.Backlog(epoch.Add(5 * time.Second)); !near(b, 5*time.Second, 300*time.Millisecond) {
		t.Errorf("backlog after 5 s: %v", b)
	}
	if b := p.Backlog(epoch.Add(time.Hour)); b != 0 {
		t.Errorf("backlog after an hour: %v", b)
	}
}

// One owner with a thousand clients does not push back another with one.
func TestSlotsArePerOwner(t *testing.T) {
	p := planner(Options{})
	var last time.Duration
	for range 500 {
		last = p.Slot("crowd", epoch)
	}
	if !near(last, 5*time.Second, 100*time.Millisecond) {
		t.Errorf("the crowd's last waits %v", last)
	}
	if one := p.Slot("one", epoch); one > 100*time.Millisecond {
		t.Errorf("the one waits %v behind the crowd", one)
	}
	// With two owners in line each has half the capacity.
	a := p.Slot("one", epoch)
	if b := p.Slot("one", epoch); !near(b-a, 20*time.Millisecond, time.Millisecond) {
		t.Errorf("two places of one owner are %v apart", b-a)
	}
}

func TestHintsAreClamped(t *testing.T) {
	r := 0.0
	p := planner(Options{Rand: func() float64 { return r }})
	for range 5000 {
		p.Slot("x", epoch)
	}
	for _, c := range []struct {
		r    float64
		want time.Duration
	}{{0, 15 * time.Second}, {0.5, 22500 * time.Millisecond}, {0.9999, 30 * time.Second}} {
		r = c.r
		if got := p.Slot("x", epoch); !near(got, c.want, 10*time.Millisecond) {
			t.Errorf("at the upper clamp, random %v: %v, want %v", c.r, got, c.want)
		}
	}
	r = 0.9999
	if got := p.Slot("y", epoch); got < DefaultMin || got > 110*time.Millisecond {
		t.Errorf("the first place of another owner: %v", got)
	}
	for _, c := range []struct {
		queued int
		rate   float64
		want   time.Duration
	}{{100, 1000, 100 * time.Millisecond}, {1, 1e6, DefaultMin}, {5, 0, DefaultMin}} {
		r = 0
		if got := p.Work(c.queued, c.rate); got != c.want {
			t.Errorf("%d queued at %v/s: %v, want %v", c.queued, c.rate, got, c.want)
		}
	}
	if got := p.Work(1e9, 1); got != 15*time.Second {
		t.Errorf("endless work: %v", got)
	}
}

func TestJitterIsUpward(t *testing.T) {
	p := planner(Options{Rand: func() float64 { return 1 }})
	for range 100 {
		p.Slot("x", epoch)
	}
	if got := p.Slot("x", epoch); !near(got, 1155*time.Millisecond, 10*time.Millisecond) {
		t.Errorf("%v, want 1.05 s and a tenth", got)
	}
}

func TestCapacityIsMeasuredUnderPressureOnly(t *testing.T) {
	p := planner(Options{})
	second := func(n int, completed int, pressed bool) {
		for i := range completed {
			p.Completed(epoch.Add(time.Duration(n)*time.Second + time.Duration(i)*time.Second/time.Duration(completed+1)))
		}
		if pressed {
			p.Pressed(epoch.Add(time.Duration(n)*time.Second + 500*time.Millisecond))
		}
	}
	for n := range 20 {
		second(n, 5, false) // a quiet server finishes few, which says nothing
	}
	if p.Rate() != 100 {
		t.Errorf("quiet: %v", p.Rate())
	}
	for n := 20; n < 60; n++ {
		second(n, 300, true)
	}
	if r := p.Rate(); r < 280 || r > 310 {
		t.Errorf("300 a second under pressure: estimate %v", r)
	}
	for n := 60; n < 200; n++ {
		p.Pressed(epoch.Add(time.Duration(n) * time.Second))
	}
	if r := p.Rate(); r != 2 {
		t.Errorf("nothing finished under pressure: %v, want the lowest estimate 2", r)
	}
}

func TestOwnerTableIsBounded(t *testing.T) {
	p := planner(Options{MaxOwners: 10})
	for i := range 1000 {
		p.Slot(fmt.Sprint(i), epoch)
	}
	if len(p.owners) != 10 {
		t.Errorf("%d owners kept", len(p.owners))
	}
	if h := p.Slot("newcomer", epoch); h < 15*time.Second {
		t.Errorf("those past the bound share one place in line, got %v", h)
	}
	later := epoch.Add(time.Minute)
	if h := p.Slot("newcomer", later); h != DefaultMin || len(p.owners) > 10 {
		t.Errorf("a minute later: %v, %d owners", h, len(p.owners))
	}
}

func TestPlannerIsSafeForConcurrentUse(t *testing.T) {
	p := planner(Options{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 500 {
				now := epoch.Add(time.Duration(i) * 10 * time.Millisecond)
				p.Slot(fmt.Sprint(w, i%7), now)
				p.Completed(now)
				p.Backlog(now)
			}
		})
	}
	wg.Wait()
}

func BenchmarkSlot(b *testing.B) {
	b.ReportAllocs()
	p := planner(Options{})
	owners := make([]string, 1000)
	for i := range owners {
		owners[i] = fmt.Sprint(i)
	}
	now := epoch
	for i := 0; b.Loop(); i++ {
		now = now.Add(time.Millisecond)
		p.Slot(owners[i%len(owners)], now)
	}
}

// Those whom a limiter keeps out come back no faster than it lets them in, and say
// nothing about what the server can do.
func TestSlotsWithinLimits(t *testing.T) {
	p := planner(Options{})
	before := p.Rate()
	var last time.Duration
	for i := range 180 {
		last = p.SlotWithin(fmt.Sprint(i), epoch, Rates{All: 18})
	}
	if !near(last, 10*time.Second, 1100*time.Millisecond) {
		t.Errorf("the 180th at 18 a second: %v", last)
	}
	p = planner(Options{})
	for range 9 {
		last = p.SlotWithin("one", epoch, Rates{Owner: 3})
	}
	if !near(last, 3*time.Second, 350*time.Millisecond) {
		t.Errorf("the ninth of an owner that has 3 a second: %v", last)
	}
	if one := p.SlotWithin("another", epoch, Rates{Owner: 3}); one > 400*time.Millisecond {
		t.Errorf("another owner: %v", one)
	}
	p.Slot("busy", epoch.Add(time.Second))
	for i := range 5 {
		p.SlotWithin("one", epoch.Add(time.Duration(i+2)*1100*time.Millisecond), Rates{All: 18})
	}
	if p.Rate() < before*(1-weight)-1 { // one interval under pressure, at most
		t.Errorf("%v establishments a second, %v before", p.Rate(), before)
	}
}
