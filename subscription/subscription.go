package subscription

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/breakwater-ua/breakwater/addressspace"
)

// subscription is one Subscription with its MonitoredItems.
type subscription struct {
	engine  *Engine
	id      uint32
	account *account // whom it counts against: its creator, also after a transfer

	// pub is the publisher it belongs to. It changes only with both publishers locked.
	pub atomic.Pointer[publisher]

	// Guarded by pub.mu.
	machine
	messages         retransmission
	interval         int64 // revised publishing interval in ns; written with mu held as well
	maxNotifications uint32
	sequence         uint32 // of the last NotificationMessage; never 0 once one was sent
	turn             uint64 // when it was last served, for round robin
	audited          int64
	priority         byte
	enabled          bool
	counts           counts
	queuedForPublish bool // counted in pub.waiting

	nextCycle atomic.Int64 // engine clock; written with pub.mu held
	auditing  atomic.Bool

	mu                 sync.Mutex
	items              []*item                       // by id
	groups             []*group                      // with a sampling interval
	watches            map[*addressspace.Node]*group // told of each change
	listHead, listTail *item                         // items with something to report, in the order in which they came to it
	ready              int                           // how many of them
	queuedBytes        int                           // weight of all queues
	lastItem           uint32
	overflows          uint32 // how often a queue dropped something
	deleted            bool
}

// lock locks the publisher that s belongs to. It returns nil when s has been deleted.
func (s *subscription) lock() *publisher {
	for {
		p := s.pub.Load()
		p.mu.Lock()
		if s.pub.Load() == p {
			if s.state == stateClosed {
				p.mu.Unlock()
				return nil
			}
			return p
		}
		p.mu.Unlock()
	}
}

// caller is on whose behalf values are read.
func (s *subscription) caller() *addressspace.Caller { return s.pub.Load().session.Caller() }

// find returns the item with the given id, or nil. s.mu is held.
func (s *subscription) find(id uint32) *item {
	if i, ok := s.place(id); ok {
		return s.items[i]
	}
	return nil
}

func (s *subscription) place(id uint32) (int, bool) {
	return slices.BinarySearchFunc(s.items, id, func(it *item, id uint32) int {
		switch {
		case it.id < id:
			return -1
		case it.id > id:
			return 1
		}
		return 0
	})
}

// add gives it an id and adds it. s.mu is held.
func (s *subscription) add(it *item) {
	for {
		s.lastItem++
		if s.lastItem == 0 {
			continue
		}
		if i, taken := s.place(s.lastItem); !taken {
			it.id = s.lastItem
			s.items = slices.Insert(s.items, i, it)
			return
		}
	}
}

// kill ends an item that is still in s.items. s.mu is held.
func (s *subscription) kill(it *item) {
	s.detach(it)
	s.empty(it)
	it.set(flagDead, true)
	s.refresh(it)
	it.links = nil
	s.engine.quota.giveItem(s.account, it.size)
}

// sweep takes dead items out of s.items and out of the links of others. s.mu is held.
func (s *subscription) sweep() {
	dead := func(it *item) bool { return it.is(flagDead) }
	s.items = slices.DeleteFunc(s.items, dead)
	if len(s.items) == 0 {
		s.items = nil
	}
	for _, it := range s.items {
		if it.links != nil {
			it.links = slices.DeleteFunc(it.links, dead)
		}
	}
}

// close deletes everything. pub.mu is held and s.state is stateClosed.
func (s *subscription) close() {
	s.mu.Lock()
	s.deleted = true
	for _, it := range s.items {
		s.kill(it)
	}
	s.clearList()
	s.items, s.groups, s.watches = nil, nil, nil
	s.mu.Unlock()
	s.engine.retained.Add(int64(-s.messages.bytes))
	s.messages = retransmission{}
	e := s.engine
	e.mu.Lock()
	delete(e.subscriptions, s.id)
	e.mu.Unlock()
	e.quota.giveSubscription(s.account)
}

// nextSequence returns the number after n; 0 is never used (OPC 10000-4 §7.26 NotificationMessage).
func nextSequence(n uint32) uint32 {
	if n++; n == 0 {
		n = 1
	}
	return n
}
