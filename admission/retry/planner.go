package retry

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Defaults of Options.
const (
	DefaultMin       = 50 * time.Millisecond
	DefaultMax       = 30 * time.Second
	DefaultMaxOwners = 65536
)

// operationsPerSession is how many private-key operations the server spends on
// a secured session: two decryptions and a signature in OpenSecureChannel, a
// signature in CreateSession.
const operationsPerSession = 4

const (
	// interval over which capacity is measured.
	interval = time.Second
	// weight of a new measurement in the estimate.
	weight = 0.2
	// An estimate stays within these multiples of the start value: one bad
	// second must not stop the line, one lucky one not flood the server.
	lowest, highest = 1.0 / 50, 50.0
	// jitter spreads hints by up to this share, upward.
	jitter = 0.1
)

// Options configure a Planner.
type Options struct {
	// Min and Max clamp hints. 0: 50 ms and 30 s.
	Min, Max time.Duration
	// Workers run private-key operations, each taking PrivateOperation; they
	// give the first estimate of capacity. 0: 1 worker, 1 ms.
	Workers          int
	PrivateOperation time.Duration
	// MaxOwners bounds the table; the owners past it share one place. 0: 65,536.
	MaxOwners int
	// Rand returns a number in [0, 1); nil: math/rand/v2.
	Rand func() float64
}

// Planner hands out slots. Its methods may be called concurrently; now must
// not go back by more than a second.
type Planner struct {
	maxOwners int
	start     float64
	random    func() float64

	mu        sync.Mutex
	min, max  time.Duration
	capacity  float64              // establishments per second
	owners    map[string]time.Time // each owner's last slot
	overflow  time.Time
	open      ring // owners by their last slot
	slots     ring // slots
	sweepAt   time.Time
	since     time.Time // start of the interval being measured
	completed int
	pressed   bool
}

// New returns a Planner.
func New(o Options) *Planner {
	if o.Min <= 0 {
		o.Min = DefaultMin
	}
	if o.Max <= 0 {
		o.Max = DefaultMax
	}
	if o.Workers <= 0 {
		o.Workers = 1
	}
	if o.PrivateOperation <= 0 {
		o.PrivateOperation = time.Millisecond
	}
	if o.MaxOwners <= 0 {
		o.MaxOwners = DefaultMaxOwners
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	start := float64(o.Workers) / (operationsPerSession * o.PrivateOperation.Seconds())
	p := &Planner{min: o.Min, max: max(o.Max, o.Min), maxOwners: o.MaxOwners, start: start, random: o.Rand, capacity: start, owners: map[string]time.Time{}}
	p.open.width, p.slots.width = bucketWidth(p.max), bucketWidth(p.max)
	return p
}

// bucketWidth makes the longest hint fit into a ring.
func bucketWidth(longest time.Duration) time.Duration {
	return max(longest/(ringSize-2), time.Millisecond)
}

// Clamp puts other bounds of hints in force; 0 stands for the defaults. Slots
// that were handed out keep their time.
func (p *Planner) Clamp(least, most time.Duration, now time.Time) {
	if least <= 0 {
		least = DefaultMin
	}
	if most <= 0 {
		most = DefaultMax
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.min, p.max = least, max(least, most)
	// Slots stay in the ring as long as the longest hint that was ever given.
	width := max(bucketWidth(p.max), p.slots.width)
	if width == p.slots.width {
		return
	}
	p.slots.widen(width, now)
	p.open = ring{width: width}
	p.open.advance(now)
	for _, last := range p.owners {
		if last.After(now) {
			p.open.add(last, +1)
		}
	}
	if p.overflow.After(now) {
		p.open.add(p.overflow, +1)
	}
}

// Rates are limits, per second, by which a caller was refused instead of by the
// server's capacity: of all callers together, and of one owner. 0 = no such limit.
type Rates struct{ All, Owner float64 }

// Slot takes a slot for an owner that is refused a connection, a channel or a
// session, and returns the hint.
func (p *Planner) Slot(owner string, now time.Time) time.Duration {
	return p.SlotWithin(owner, now, Rates{})
}

// SlotWithin is Slot for an owner that limits keep out: slots follow each other
// no faster than the limits let callers in, else those who come back in their
// slot would be refused again.
func (p *Planner) SlotWithin(owner string, now time.Time, limits Rates) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.measure(now)
	if limits == (Rates{}) {
		p.pressed = true
	}
	p.open.advance(now)
	p.slots.advance(now)
	last, known := p.owners[owner]
	if !known && len(p.owners) >= p.maxOwners {
		p.sweep(now)
	}
	shared := !known && len(p.owners) >= p.maxOwners
	if shared {
		last, known = p.overflow, !p.overflow.IsZero()
	}
	if !known {
		last = now
	}
	// The owner's own place counts among those with an open slot.
	n := p.open.total
	if !last.After(now) {
		n++
	}
	rate := p.capacity
	if limits.All > 0 {
		rate = min(rate, limits.All)
	}
	rate /= float64(max(n, 1))
	if limits.Owner > 0 {
		rate = min(rate, limits.Owner)
	}
	each := time.Duration(min(1/rate, p.max.Seconds()) * float64(time.Second))
	slot := last.Add(each)
	if earliest := now.Add(p.min); slot.Before(earliest) {
		slot = earliest
	}
	if latest := now.Add(p.max); slot.After(latest) {
		slot = latest
	}
	if last.After(now) {
		p.open.add(last, -1)
	}
	p.open.add(slot, +1)
	p.slots.add(slot, +1)
	if shared {
		p.overflow = slot
	} else {
		p.owners[owner] = slot
	}
	return p.clamp(slot.Sub(now))
}

// Work returns the hint for a caller refused because of queued work: how long
// the work takes at the rate at which it drains. It takes no slot.
func (p *Planner) Work(queued int, drainPerSecond float64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if drainPerSecond <= 0 {
		return p.clamp(p.min)
	}
	seconds := min(float64(queued)/drainPerSecond, p.max.Seconds())
	return p.clamp(time.Duration(seconds * float64(time.Second)))
}

// clamp adds jitter and keeps the hint within its bounds. At the upper one
// there is no place to tell apart any more, so those callers are spread. mu is
// held.
func (p *Planner) clamp(d time.Duration) time.Duration {
	if d >= p.max {
		return p.max/2 + time.Duration(p.random()*float64(p.max-p.max/2))
	}
	d += time.Duration(jitter * p.random() * float64(d))
	return min(max(d, p.min), p.max)
}

// Completed counts one establishment that was finished.
func (p *Planner) Completed(now time.Time) {
	p.mu.Lock()
	p.measure(now)
	p.completed++
	p.mu.Unlock()
}

// Pressed says that somebody waits or was refused: only then does the number
// of finished establishments say what the server can do.
func (p *Planner) Pressed(now time.Time) {
	p.mu.Lock()
	p.measure(now)
	p.pressed = true
	p.mu.Unlock()
}

// measure closes the interval that has passed and starts the next.
func (p *Planner) measure(now time.Time) {
	if p.since.IsZero() {
		p.since = now
		return
	}
	passed := now.Sub(p.since)
	if passed < interval {
		return
	}
	// A longer time without a call was no time under pressure.
	if p.pressed && passed < 2*interval {
		rate := float64(p.completed) / passed.Seconds()
		p.capacity = (1-weight)*p.capacity + weight*rate
		p.capacity = math.Min(math.Max(p.capacity, p.start*lowest), p.start*highest)
	}
	p.since, p.completed, p.pressed = now, 0, false
}

// sweep forgets owners whose slot has passed, at most ten times a second.
func (p *Planner) sweep(now time.Time) {
	if now.Before(p.sweepAt) {
		return
	}
	p.sweepAt = now.Add(interval / 10)
	for k, last := range p.owners {
		if !last.After(now) {
			delete(p.owners, k)
		}
	}
}

// Rate returns the estimated capacity in establishments per second.
func (p *Planner) Rate() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.capacity
}

// Backlog returns how long the slots that are still open take at the estimated
// capacity.
func (p *Planner) Backlog(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slots.advance(now)
	return time.Duration(float64(p.slots.total) / p.capacity * float64(time.Second))
}

// Max returns the upper clamp.
func (p *Planner) Max() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.max
}
