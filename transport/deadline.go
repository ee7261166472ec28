package transport

import (
	"sync"
	"time"
)

// Deadlines is an ordered list of deadlines under one timer, so that a
// connection's handshake and assembly need no timer of their own. Functions
// run one after another on the timer's goroutine and must not block.
type Deadlines struct {
	mu     sync.Mutex
	heap   []*Deadline // by at
	timer  *time.Timer
	next   time.Time // what the timer is set to; zero: stopped
	closed bool
	firing int // calls of Expired under way
	idle   sync.Cond
}

// Deadline is an entry; the zero value with Expired set is ready to use. It
// belongs to one Deadlines at a time.
type Deadline struct {
	// Expired runs once the time set has passed.
	Expired func()

	at  time.Time
	pos int // index + 1 in the heap; 0 = not set
}

// NewDeadlines returns an empty list.
func NewDeadlines() *Deadlines {
	l := &Deadlines{}
	l.idle.L = &l.mu
	return l
}

// Set makes d expire at that time instead of any set before. The zero time
// means never. It reports whether d was set before, so that Set(d, time.Time{})
// decides atomically between completion and expiry.
func (l *Deadlines) Set(d *Deadline, at time.Time) (wasSet bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasSet = d.pos != 0
	switch {
	case at.IsZero() || l.closed:
		if wasSet {
			l.remove(d)
		}
	case wasSet:
		d.at = at
		l.down(l.up(d.pos - 1))
	default:
		d.at = at
		l.heap = append(l.heap, d)
		d.pos = len(l.heap)
		l.up(d.pos - 1)
	}
	l.arm()
	return wasSet
}

// Len is the number of deadlines set.
func (l *Deadlines) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.heap)
}

// Close drops all deadlines and waits for a function that runs.
func (l *Deadlines) Close() {
	l.mu.Lock()
	l.closed = true
	for _, d := range l.heap {
		d.pos = 0
	}
	l.heap = nil
	l.arm()
	for l.firing > 0 {
		l.idle.Wait()
	}
	l.mu.Unlock()
}

// arm sets the timer to the earliest deadline. A timer that is early only
// because its deadline moved back is left alone: it fires and re-arms, which
// spares a timer operation per message.
func (l *Deadlines) arm() {
	if len(l.heap) == 0 {
		if l.timer != nil {
			l.timer.Stop()
		}
		l.next = time.Time{}
		return
	}
	first := l.heap[0].at
	if !l.next.IsZero() && !first.Before(l.next) {
		return
	}
	l.next = first
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Until(first), l.fire)
	} else {
		l.timer.Reset(time.Until(first))
	}
}

// fire may run although the timer was stopped or reset a moment before: it
// looks at the clock and arms again.
func (l *Deadlines) fire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = time.Time{}
	l.firing++
	for len(l.heap) > 0 {
		d := l.heap[0]
		if time.Until(d.at) > 0 {
			break
		}
		l.remove(d)
		l.mu.Unlock()
		d.Expired()
		l.mu.Lock()
	}
	if l.firing--; l.firing == 0 {
		l.idle.Broadcast()
	}
	l.arm()
}

func (l *Deadlines) remove(d *Deadline) {
	i, last := d.pos-1, len(l.heap)-1
	d.pos = 0
	moved := l.heap[last]
	l.heap[last] = nil
	l.heap = l.heap[:last]
	if i == last {
		return
	}
	l.heap[i] = moved
	moved.pos = i + 1
	l.down(l.up(i))
}

func (l *Deadlines) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !l.heap[i].at.Before(l.heap[parent].at) {
			break
		}
		l.swap(i, parent)
		i = parent
	}
	return i
}

func (l *Deadlines) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(l.heap) {
			return
		}
		if child+1 < len(l.heap) && l.heap[child+1].at.Before(l.heap[child].at) {
			child++
		}
		if !l.heap[child].at.Before(l.heap[i].at) {
			return
		}
		l.swap(i, child)
		i = child
	}
}

func (l *Deadlines) swap(i, j int) {
	l.heap[i], l.heap[j] = l.heap[j], l.heap[i]
	l.heap[i].pos, l.heap[j].pos = i+1, j+1
}
