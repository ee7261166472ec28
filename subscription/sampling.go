package subscription

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/internal/wheel"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// A group is the items of one subscription that are sampled together. There are three kinds:
//
// Items that are told of each change form one group for each node, which watches it. Groups of stored values are sampled on
// the wheel's goroutine under sub.mu, those with the subscription's own interval as part of the publishing cycle. Groups of
// values that must be read are sampled by a worker without any lock.
type group struct {
	sub      *subscription
	node     *addressspace.Node // of a watching group, nil for the others
	interval int64              // ns, or follow
	read     bool               // must be read by a worker
	items    []*item
	timer    wheel.Timer
	next     int64       // engine clock; guarded by sub.mu
	waiting  atomic.Bool // queued for a worker
}

// Changed is called by the node of a watching group with the node's lock held, see addressspace.Watcher.
func (g *group) Changed(_ *addressspace.Node, v *uabinary.DataValue) {
	now := uabinary.Now()
	s := g.sub
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range g.items {
		if !it.is(flagDenied) {
			s.observe(it, v, now)
		}
	}
}

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

// attach starts the sampling of an item that is not disabled. Where sampling as often as the item asks for is more than its
// owner's share, it is sampled less often. sub.mu is held.
func (s *subscription) attach(it *item, now int64) {
	q := &s.engine.quota
	fromStore := stored(it.node, it.attribute())
	interval := it.interval
	switch {
	case interval == 0 && fromStore && q.takeSampling(s.account, watchCost, false):
		it.cost = watchCost
		s.watch(it)
		return
	case interval == 0: // no share of that, or it became dynamic
		interval = int64(s.engine.limits.Load().MinSamplingInterval)
	case interval == follow:
		interval = s.interval
	}
	for {
		slower := int64(quantize(2 * time.Duration(interval)))
		cost := samplingCost(interval, !fromStore)
		if q.takeSampling(s.account, cost, slower > int64(s.engine.limits.Load().MaxSamplingInterval)) {
			it.cost = int32(cost)
			break
		}
		interval = slower
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
	g.add(it)
}

func (g *group) add(it *item) {
	it.group, it.place = g, int32(len(g.items))
	g.items = append(g.items, it)
}

// watch adds an item to the group that watches its node.
func (s *subscription) watch(it *item) {
	g := s.watches[it.node]
	if g == nil {
		g = &group{sub: s, node: it.node}
		if s.watches == nil {
			s.watches = make(map[*addressspace.Node]*group)
		}
		s.watches[it.node] = g
	}
	if g.add(it); len(g.items) == 1 {
		it.node.Watch(g) // a leaf lock
	}
}

// detach ends the sampling of an item. sub.mu is held.
func (s *subscription) detach(it *item) {
	g := it.group
	if g == nil {
		return
	}
	s.engine.quota.giveSampling(s.account, int(it.cost))
	it.group, it.cost = nil, 0
	last := len(g.items) - 1
	g.items[it.place] = g.items[last]
	g.items[it.place].place = it.place
	g.items[last] = nil
	g.items = g.items[:last]
	switch {
	case last > 0:
	case g.node != nil:
		g.node.Unwatch(g)
		delete(s.watches, g.node)
	default:
		s.engine.wheel.Cancel(&g.timer)
		s.groups = slices.DeleteFunc(s.groups, func(o *group) bool { return o == g })
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
