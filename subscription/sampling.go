package subscription

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/internal/wheel"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// A group is the items of one subscription that are sampled together.
//
// Groups of stored values are sampled on the wheel's goroutine under sub.mu, those with the subscription's own interval as
// part of the publishing cycle. Groups of values that must be read are sampled by a worker without any lock.
type group struct {
	sub      *subscription
	interval int64 // ns, or follow
	read     bool  // must be read by a worker
	items    []*item
	timer    wheel.Timer
	next     int64       // engine clock; guarded by sub.mu
	waiting  atomic.Bool // queued for a worker
}

// auditPeriod is how often a subscription looks after what does not announce itself: deleted nodes that came back, access
// rights, values that got or lost a read callback.
const auditPeriod = 10 * time.Second

// readLead is how long before a publishing cycle values that must be read for it are read.
const readLead = 20 * time.Millisecond

// quantize rounds a sampling interval up so that a subscription has a bounded number of groups (about 600 up to one hour).
func quantize(d time.Duration) time.Duration {
	step := 10 * time.Millisecond
	switch {
	case d > time.Minute:
		step = 10 * time.Second
	case d > 10*time.Second:
		step = time.Second
	case d > time.Second:
		step = 100 * time.Millisecond
	}
	return (d + step - 1) / step * step
}

// attach starts the sampling of an item that is not disabled. sub.mu is held.
func (s *subscription) attach(it *item, now int64) {
	fromStore := stored(it.node, it.attribute())
	if it.interval == 0 && fromStore {
		it.set(flagWatching, true)
		it.node.Watch(it) // a leaf lock
		return
	}
	interval := it.interval
	if interval == 0 { // became dynamic
		interval = int64(s.engine.limits.MinSamplingInterval)
	}
	if interval == s.interval {
		interval = follow
	}
	var g *group
	for _, o := range s.groups {
		if o.interval == interval && o.read == !fromStore {
			g = o
			break
		}
	}
	if g == nil {
		g = &group{sub: s, interval: interval, read: !fromStore}
		g.timer.Init(g.fire)
		s.groups = append(s.groups, g)
		if interval == follow {
			g.next = s.nextCycle.Load() - s.lead()
		} else {
			g.next = now + interval
		}
		g.schedule(now)
	}
	it.group, it.place = g, int32(len(g.items))
	g.items = append(g.items, it)
}

// detach ends the sampling of an item. sub.mu is held.
func (s *subscription) detach(it *item) {
	if it.is(flagWatching) {
		it.set(flagWatching, false)
		it.node.Unwatch(it)
	}
	g := it.group
	if g == nil {
		return
	}
	it.group = nil
	last := len(g.items) - 1
	g.items[it.place] = g.items[last]
	g.items[it.place].place = it.place
	g.items[last] = nil
	g.items = g.items[:last]
	if last == 0 {
		s.engine.wheel.Cancel(&g.timer)
		for i, o := range s.groups {
			if o == g {
				s.groups = append(s.groups[:i], s.groups[i+1:]...)
				break
			}
		}
	}
}

// lead is how long before the cycle a reading group that follows it starts.
func (s *subscription) lead() int64 { return min(s.interval/4, int64(readLead)) }

func (g *group) period() int64 {
	if g.interval == follow {
		return g.sub.interval
	}
	return g.interval
}

// schedule arms the timer; a stored group that follows the cycle has none. sub.mu is held.
func (g *group) schedule(now int64) {
	if g.interval == follow && !g.read {
		return
	}
	if g.next <= now {
		p := g.period()
		if g.next += p; g.next <= now { // a tick was missed: start afresh
			g.next = now + p
		}
	}
	g.sub.engine.wheel.Schedule(&g.timer, g.sub.engine.when(g.next))
}

// fire runs on the wheel's goroutine.
func (g *group) fire(at time.Time) {
	s := g.sub
	now := s.engine.clock(at)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deleted || len(g.items) == 0 {
		return
	}
	if g.read {
		s.engine.workers.add(g)
	} else if g.next <= now {
		g.sample(uabinary.FromTime(at))
	}
	g.schedule(now)
}

// sample samples a stored group. sub.mu is held.
func (g *group) sample(now uabinary.DateTime) {
	for _, it := range g.items {
		if it.is(flagDenied) {
			continue
		}
		if it.node.Deleted() {
			g.sub.gone(it, now)
		} else if v := it.node.Value(); v != it.last {
			g.sub.observe(it, v, now)
		}
	}
}

// sampleCycle samples what belongs to a publishing cycle: the stored group with the cycle's interval, and others that are
// due now, so that their values need not wait for the next cycle. sub.mu is held.
func (s *subscription) sampleCycle(now int64, at uabinary.DateTime) {
	for _, g := range s.groups {
		switch {
		case g.read:
		case g.interval == follow:
			g.sample(at)
		case g.next <= now:
			g.sample(at)
			g.schedule(now)
		}
	}
}

// gone reports that a node was deleted; audit finds it when it comes back. sub.mu is held.
func (s *subscription) gone(it *item, now uabinary.DateTime) {
	it.set(flagDenied, true)
	it.last = nil
	s.sample(it, &uabinary.DataValue{Mask: ua.DataValueStatusCode, Status: ua.StatusBadNodeIDUnknown}, now)
}

// run samples a reading group on a worker.
func (g *group) run() {
	defer g.waiting.Store(false)
	g.sub.mu.Lock()
	items := append([]*item(nil), g.items...)
	g.sub.mu.Unlock()
	g.sub.readAll(items)
}

// firstRead reads items whose values are not stored for the first time, or after they were disabled.
type firstRead struct {
	sub   *subscription
	items []*item
}

func (f firstRead) run() { f.sub.readAll(f.items) }

// readAll reads and samples items without holding a lock while it reads.
func (s *subscription) readAll(items []*item) {
	caller := s.caller()
	for _, it := range items {
		now := uabinary.Now()
		s.mu.Lock()
		g := it.group
		rd := it.read(now, caller)
		s.mu.Unlock()
		if g == nil { // deleted or disabled
			continue
		}
		v := s.engine.readValue(&rd)
		s.mu.Lock()
		if it.group == g && !same(it.last, &v) {
			kept := v
			it.last = &kept
			s.sample(it, &kept, now)
		}
		s.mu.Unlock()
	}
}

// readValue reads through callbacks of the host; one that panics reads as BadInternalError.
func (e *Engine) readValue(rd *addressspace.Read) (v uabinary.DataValue) {
	defer func() {
		if p := recover(); p != nil {
			e.logger.Error("read callback panicked", "node", rd.Node.ID().String(), "panic", p)
			v = uabinary.DataValue{Mask: ua.DataValueStatusCode, Status: ua.StatusBadInternalError}
		}
	}()
	return e.space.ReadValue(rd)
}

// audit runs on a worker, see auditPeriod.
type audit struct{ sub *subscription }

func (a audit) run() {
	s := a.sub
	defer s.auditing.Store(false)
	caller := s.caller()
	now := time.Now()
	s.mu.Lock()
	items := append([]*item(nil), s.items...)
	s.mu.Unlock()
	for _, it := range items {
		s.audit(it, caller, now)
	}
}

func (s *subscription) audit(it *item, caller *addressspace.Caller, now time.Time) {
	s.mu.Lock()
	node, off := it.node, it.is(flagDead) || it.mode == ua.MonitoringModeDisabled
	inStore := it.group == nil || !it.group.read
	s.mu.Unlock()
	if off {
		return
	}
	if node.Deleted() {
		again := s.engine.space.Lookup(node.ID())
		if again == nil {
			return
		}
		node = again
	}
	canStore := stored(node, it.attribute())
	denied, v := false, uabinary.DataValue{}
	if canStore && !s.engine.mayRead(node, caller) {
		rd := it.read(uabinary.FromTime(now), caller)
		rd.Node = node
		v = s.engine.readValue(&rd)
		denied = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if it.is(flagDead) || it.mode == ua.MonitoringModeDisabled {
		return
	}
	moved := node != it.node || canStore != inStore
	if moved {
		s.detach(it)
		it.node = node
		s.attach(it, s.engine.clock(now))
	}
	if !moved && denied == it.is(flagDenied) && it.reported != nil {
		return
	}
	it.set(flagDenied, denied)
	it.last = nil
	if denied {
		s.sample(it, &v, uabinary.FromTime(now))
	} else if canStore {
		s.observe(it, node.Value(), uabinary.FromTime(now))
	}
}

// mayRead reports whether the caller may read the node's value; a callback of the host may be behind it.
func (e *Engine) mayRead(n *addressspace.Node, c *addressspace.Caller) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			e.logger.Error("access callback panicked", "node", n.ID().String(), "panic", p)
			ok = false
		}
	}()
	return n.Class() != ua.NodeClassVariable || n.UserAccessLevel(c)&ua.AccessLevelTypeCurrentRead != 0
}

// workers is the fixed set of goroutines for what may take host code or address space locks.
type workers struct {
	mu     sync.Mutex
	cond   sync.Cond
	jobs   []job // FIFO; each group and audit is in it at most once
	closed bool
	wg     sync.WaitGroup
}

type job interface{ run() }

func (w *workers) start(n int) {
	w.cond.L = &w.mu
	for range n {
		w.wg.Go(w.work)
	}
}

// add queues a sampling of g unless one is queued already.
func (w *workers) add(g *group) {
	if !g.waiting.Swap(true) {
		w.push(g)
	}
}

func (w *workers) addAudit(s *subscription) {
	if !s.auditing.Swap(true) {
		w.push(audit{s})
	}
}

func (w *workers) push(j job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.jobs = append(w.jobs, j)
		w.cond.Signal()
	}
}

func (w *workers) work() {
	for {
		w.mu.Lock()
		for len(w.jobs) == 0 && !w.closed {
			w.cond.Wait()
		}
		if w.closed {
			w.mu.Unlock()
			return
		}
		j := w.jobs[0]
		w.jobs[0] = nil
		if w.jobs = w.jobs[1:]; len(w.jobs) == 0 {
			w.jobs = nil
		}
		w.mu.Unlock()
		j.run()
	}
}

// close drops what is queued and waits for what runs.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	w.jobs = nil
	w.cond.Broadcast()
	w.mu.Unlock()
	w.wg.Wait()
}
