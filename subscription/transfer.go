package subscription

import (
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// TransferSubscriptions is the TransferSubscriptions service (OPC 10000-4 §5.14.7): the subscriptions, with their items,
// queues and retransmission queues, go over to the calling session. The old session is told GoodSubscriptionTransferred.
// Results: BadSubscriptionIdInvalid; BadNothingToDo when it is the session's own already; BadUserAccessDenied unless both
// sessions act for the same user (for anonymous ones see identity.mayTake); BadTooManySubscriptions. A subscription goes on
// counting against its creator.
func (e *Engine) TransferSubscriptions(s Session, rq *ua.TransferSubscriptionsRequest) (*ua.TransferSubscriptionsResponse, ua.StatusCode) {
	n := len(rq.SubscriptionIDs)
	if code := e.operations(n); code != ua.StatusOK {
		return nil, code
	}
	to := e.publisherFor(s)
	if to == nil {
		return nil, ua.StatusBadSessionClosed
	}
	slab := make([]ua.TransferResult, n)
	results := make([]*ua.TransferResult, n)
	for i, id := range rq.SubscriptionIDs {
		results[i] = &slab[i]
		slab[i].AvailableSequenceNumbers, slab[i].StatusCode = e.transfer(to, id, rq.SendInitialValues)
	}
	return &ua.TransferSubscriptionsResponse{Results: results}, ua.StatusOK
}

func (e *Engine) transfer(to *publisher, id uint32, initial bool) ([]uint32, ua.StatusCode) {
	s := e.find(id)
	if s == nil {
		return nil, ua.StatusBadSubscriptionIDInvalid
	}
	from := s.lockWith(to)
	if from == nil {
		return nil, ua.StatusBadSubscriptionIDInvalid
	}
	defer func() { // nothing is sent while the other one's lock is held
		if from != to {
			from.mu.Unlock()
			defer from.flush()
		}
		to.unlock()
	}()
	if to.closed {
		return nil, ua.StatusBadSessionClosed
	}
	s.counts.transferAsked++
	if from == to { // row 22
		s.touch()
		return nil, ua.StatusBadNothingToDo
	}
	if !from.closed {
		from.identity = identify(from.session, from.session.Channel(), from.identity)
	}
	to.identity = identify(to.session, to.session.Channel(), to.identity)
	if !to.identity.mayTake(from.identity) { // row 23
		return nil, ua.StatusBadUserAccessDenied
	}
	if len(to.subs) >= e.limits.Load().MaxSubscriptionsPerSession {
		return nil, ua.StatusBadTooManySubscriptions
	}
	// Row 24. The old session is told first, while it has requests to be told with.
	from.tell(statusChange{s.id, nextSequence(s.sequence), ua.StatusGoodSubscriptionTransferred})
	from.release(s)
	from.arm()
	to.subs = append(to.subs, s)
	s.pub.Store(to)
	if to.identity.sameClient(from.identity) {
		s.counts.toSameClient++
	} else {
		s.counts.toOtherClient++
	}
	s.touch()
	s.audited = -int64(auditPeriod) // another caller: look at the rights soon
	if initial {
		s.mu.Lock()
		s.resend(uabinary.Now())
		s.mu.Unlock()
	}
	to.recount(s)
	to.dispatch(uabinary.Now())
	to.arm()
	return s.messages.sequences(), ua.StatusOK
}

// lockWith locks the publisher of s and another one, in order of their numbers. It returns nil, with nothing locked, when s
// has been deleted.
func (s *subscription) lockWith(to *publisher) *publisher {
	for {
		p := s.pub.Load()
		first, second := p, to
		if first.number > second.number {
			first, second = second, first
		}
		first.mu.Lock()
		if second != first {
			second.mu.Lock()
		}
		if s.pub.Load() == p && s.state != stateClosed {
			return p
		}
		deleted := s.pub.Load() == p
		if second != first {
			second.mu.Unlock()
		}
		first.mu.Unlock()
		if deleted {
			return nil
		}
	}
}
