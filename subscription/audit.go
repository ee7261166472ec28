package subscription

import (
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// auditPeriod is how often a subscription looks after what does not announce itself: deleted nodes that came back, access
// rights, values that got or lost a read callback.
const auditPeriod = 10 * time.Second

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
	inStore := it.group != nil && !it.group.read
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
