package retry

import (
	"fmt"
	"testing"
	"time"
)

// overload.md §16: the bounds of hints may change while clients stand in line.
func TestClampWhileClientsWait(t *testing.T) {
	p := planner(Options{Max: 2 * time.Second})
	for i := range 100 {
		p.Slot(fmt.Sprint(i), epoch)
	}
	before := p.Backlog(epoch)
	if h := p.Work(1_000_000, 1); h != time.Second {
		t.Errorf("hint %v at an upper clamp of 2 s", h) // the lower end of its spread
	}
	p.Clamp(200*time.Millisecond, 5*time.Minute, epoch)
	if p.Max() != 5*time.Minute {
		t.Errorf("upper clamp %v", p.Max())
	}
	// The line is as long as before, now in wider buckets of 300 ms.
	if b := p.Backlog(epoch); !near(b, before, 20*time.Millisecond) {
		t.Errorf("backlog %v, was %v", b, before)
	}
	if b := p.Backlog(epoch.Add(500 * time.Millisecond)); !near(b, before/2, 400*time.Millisecond) {
		t.Errorf("backlog after half of it: %v of %v", b, before)
	}
	if b := p.Backlog(epoch.Add(2 * time.Second)); b != 0 {
		t.Errorf("backlog after all of it: %v", b)
	}
	at := epoch.Add(3 * time.Second)
	if h := p.Slot("new", at); h != 200*time.Millisecond {
		t.Errorf("hint %v, the least is 200 ms", h)
	}
	if h := p.Work(10_000, 100); h != 100*time.Second {
		t.Errorf("hint %v for 100 s of work", h)
	}
	p.Clamp(0, 0, at) // the defaults
	if h := p.Work(1, 1e9); h != DefaultMin {
		t.Errorf("hint %v", h)
	}
	if p.Max() != DefaultMax {
		t.Errorf("upper clamp %v", p.Max())
	}
}

// An owner's place counts once, however often the bounds change.
func TestClampCountsOwnersOnce(t *testing.T) {
	p := planner(Options{Max: time.Second})
	p.Slot("a", epoch)
	p.Slot("b", epoch)
	for i := range 5 {
		p.Clamp(0, time.Duration(i+2)*time.Minute, epoch)
		if p.open.total != 2 || p.slots.total != 2 {
			t.Fatalf("%d owners with open slots, %d slots", p.open.total, p.slots.total)
		}
	}
	p.Slot("a", epoch)
	if p.open.total != 2 || p.slots.total != 3 {
		t.Errorf("%d owners with open slots, %d slots", p.open.total, p.slots.total)
	}
}
