// Package wheel keeps very many coarse timers cheaply: publishing and sampling cycles,
// session timeouts and other deadlines whose accuracy is one tick.
//
// A Wheel is split into shards. Each shard is a hashed timing wheel with one goroutine, which
// sleeps until the next slot that holds a timer and for good while the shard is empty: an idle
// server has no ticking clock. A Timer costs its own five words and nothing else; ten thousand
// of them at 1 Hz take well under 1 % of a core, a tenth of what ten thousand goroutines take.
//
// Time comes from package time, so a Wheel made inside a testing/synctest bubble follows the
// bubble's clock.
package wheel

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultTick is the accuracy of a Wheel that was made with a tick of zero.
const DefaultTick = 10 * time.Millisecond

const (
	slots = 512 // power of two; one turn is slots ticks
	words = slots / 64
)

// A Timer calls its function once for each Schedule. The zero value needs [Timer.Init]. It is
// meant to be a field of what it belongs to; it must not be copied after first use.
type Timer struct {
	next, prev *Timer                // circular list of its slot; nil while not scheduled
	at         int64                 // tick at which it expires
	shard      atomic.Pointer[shard] // fixed at first use
	f          func(now time.Time)
}

// Init sets the function that the wheel's goroutine calls. The function may schedule and cancel
// any timer, this one included. It must not block for long: it holds up its shard.
func (t *Timer) Init(f func(now time.Time)) { t.f = f }

// A Wheel runs timers. Its methods are safe for concurrent use. Its locks are leaves: callers may
// hold their own locks around Schedule and Cancel, and functions run without any lock of the wheel.
type Wheel struct {
	tick   time.Duration
	epoch  time.Time
	shards []*shard
	turn   atomic.Uint32
	done   chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
}

// New starts a Wheel with the given accuracy (0 or less: [DefaultTick]) and one shard for each P,
// at most eight. [Wheel.Close] ends it.
func New(tick time.Duration) *Wheel {
	return NewSharded(tick, min(runtime.GOMAXPROCS(0), 8))
}

// NewSharded is New with a fixed number of shards, at least one.
func NewSharded(tick time.Duration, n int) *Wheel {
	if tick <= 0 {
		tick = DefaultTick
	}
	w := &Wheel{tick: tick, epoch: time.Now(), done: make(chan struct{})}
	for range max(n, 1) {
		s := &shard{wheel: w, wake: make(chan struct{}, 1), planned: never}
		for i := range s.slot {
			head := &s.slot[i]
			head.next, head.prev = head, head
		}
		w.shards = append(w.shards, s)
		w.wg.Go(s.run)
	}
	return w
}

// Tick returns the accuracy.
func (w *Wheel) Tick() time.Duration { return w.tick }

// Schedule (re)starts t so that its function is called once at the first tick that is not before
// at; a time in the past means the next tick. A timer that is already scheduled moves. After Close
// it does nothing.
func (w *Wheel) Schedule(t *Timer, at time.Time) {
	ticks := int64((at.Sub(w.epoch) + w.tick - 1) / w.tick)
	s := w.shardOf(t)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.unlink(t)
	t.at = max(ticks, s.passed+1)
	s.link(t)
	poke := t.at < s.planned
	if poke {
		s.planned = t.at
	}
	s.mu.Unlock()
	if poke {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// Cancel stops t and reports whether it was scheduled. When it reports false the function may be
// running at this moment or be about to run: the function must look at the state it belongs to.
func (w *Wheel) Cancel(t *Timer) bool {
	s := w.shardOf(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unlink(t)
}

// Len counts the scheduled timers.
func (w *Wheel) Len() int {
	n := 0
	for _, s := range w.shards {
		s.mu.Lock()
		n += s.count
		s.mu.Unlock()
	}
	return n
}

// Close drops every timer and returns when no function runs any more. It must not be called from
// a timer's function.
func (w *Wheel) Close() {
	w.once.Do(func() { close(w.done) })
	w.wg.Wait()
}

// shardOf gives t its shard at first use. Where two goroutines race for that, the first one's
// choice stands for both, so a timer is never in two shards.
func (w *Wheel) shardOf(t *Timer) *shard {
	if s := t.shard.Load(); s != nil {
		return s
	}
	t.shard.CompareAndSwap(nil, w.shards[int(w.turn.Add(1))%len(w.shards)])
	return t.shard.Load()
}

const never = int64(1<<63 - 1)

// A shard is one wheel with one goroutine.
type shard struct {
	wheel *Wheel
	wake  chan struct{}

	mu      sync.Mutex
	slot    [slots]Timer // list heads
	used    [words]uint64
	count   int
	passed  int64 // every tick up to this one has been run
	planned int64 // tick the goroutine will wake up at
	closed  bool
}

func (s *shard) link(t *Timer) {
	i := t.at & (slots - 1)
	head := &s.slot[i]
	t.prev, t.next = head.prev, head
	head.prev.next, head.prev = t, t
	s.used[i/64] |= 1 << (i % 64)
	s.count++
}

func (s *shard) unlink(t *Timer) bool {
	if t.next == nil {
		return false
	}
	t.prev.next, t.next.prev = t.next, t.prev
	t.next, t.prev = nil, nil
	s.count--
	if i := t.at & (slots - 1); s.slot[i].next == &s.slot[i] {
		s.used[i/64] &^= 1 << (i % 64)
	}
	return true
}

// following returns the first tick after passed whose slot is used, never when the shard is empty.
func (s *shard) following() int64 {
	if s.count == 0 {
		return never
	}
	from := s.passed + 1
	for n := int64(0); n < slots; {
		i := (from + n) & (slots - 1)
		if w := s.used[i/64] >> (i % 64); w != 0 {
			return from + n + int64(bits.TrailingZeros64(w))
		}
		n += 64 - i%64
	}
	return never
}

func (s *shard) run() {
	w := s.wheel
	alarm := time.NewTimer(time.Hour)
	alarm.Stop()
	defer alarm.Stop()
	for {
		s.mu.Lock()
		s.planned = s.following()
		at := s.planned
		s.mu.Unlock()
		if at == never {
			alarm.Stop()
		} else {
			alarm.Reset(time.Until(w.epoch.Add(time.Duration(at) * w.tick)))
		}
		select {
		case <-w.done:
			s.drop()
			return
		case <-s.wake:
		case <-alarm.C:
		}
		now := time.Now()
		s.expire(now, int64(now.Sub(w.epoch)/w.tick))
	}
}

// expire runs every timer up to tick upto. It goes from used slot to used slot, so a goroutine
// that slept long does not walk through the ticks it missed.
func (s *shard) expire(now time.Time, upto int64) {
	for {
		s.mu.Lock()
		at := s.following()
		if at > upto {
			s.passed = max(s.passed, upto)
			s.mu.Unlock()
			return
		}
		var due Timer // list of its own: functions may reschedule into the same slot
		due.next, due.prev = &due, &due
		head := &s.slot[at&(slots-1)]
		for t := head.next; t != head; {
			next := t.next
			if t.at <= at {
				s.unlink(t)
				t.prev, t.next = due.prev, &due
				due.prev.next, due.prev = t, t
				s.count++
			}
			t = next
		}
		s.passed = at
		for due.next != &due {
			t := due.next
			s.unlink(t)
			f := t.f
			s.mu.Unlock()
			f(now)
			s.mu.Lock()
		}
		s.mu.Unlock()
	}
}

func (s *shard) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for i := range s.slot {
		for head := &s.slot[i]; head.next != head; {
			s.unlink(head.next)
		}
	}
}
