package subscription

import (
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// Publish is the Publish service (OPC 10000-4 §5.14.5). body stands behind the RequestHeader h.
//
// When kept is true the engine answers through ch.Reply, exactly once, now or later, possibly before Publish returns; the
// caller must have taken the request out of its own books (securechannel's Message.Park) before the call. When kept is
// false the caller answers with a ServiceFault: BadNoSubscription, BadTooManyOperations, BadSessionClosed or what the
// decoder says. The request's later answers are a PublishResponse or a ServiceFault with BadTooManyPublishRequests (too many
// are parked, and this was the oldest), BadTimeout (the client's timeoutHint passed), BadNoSubscription (the last
// subscription went), BadRequestCancelledByClient, BadSessionClosed, BadSecureChannelClosed or BadServerHalted.
func (e *Engine) Publish(s Session, ch session.Channel, requestID uint32, h *uabinary.RequestHeader, body *uabinary.Decoder, now time.Time) (kept bool, _ ua.StatusCode) {
	n := body.ArrayLen(8)
	if err := body.Err(); err != nil {
		return false, uastatus.Code(err)
	}
	if n > e.limits.Load().MaxOperationsPerCall {
		return false, ua.StatusBadTooManyOperations
	}
	p := e.publisher(s)
	if p == nil {
		if ended(s) {
			return false, ua.StatusBadSessionClosed
		}
		return false, ua.StatusBadNoSubscription
	}
	p.mu.Lock()
	defer p.unlock()
	if p.closed {
		return false, ua.StatusBadSessionClosed
	}
	r := parkedPublish{ch: ch, requestID: requestID, handle: h.RequestHandle, deadline: never}
	if n > 0 {
		r.results = make([]ua.StatusCode, n)
		for i := range r.results {
			r.results[i] = p.acknowledge(body.UInt32(), body.UInt32())
		}
	}
	if len(p.subs) == 0 && len(p.status) == 0 {
		return false, ua.StatusBadNoSubscription
	}
	if len(p.parked) > 0 {
		p.dropStale()
		if most := max(e.limits.Load().MaxPublishRequestsPerSession, 2*len(p.subs)); len(p.parked) >= most {
			oldest := p.take()
			p.fault(&oldest, ua.StatusBadTooManyPublishRequests)
		}
	}
	p.parked = append(p.parked, r)
	e.parked.Add(1)
	stamp := uabinary.FromTime(now)
	p.tellParked(stamp)
	p.dispatch(stamp)
	if len(p.parked) > 0 {
		if len(p.subs) == 0 { // there was only a status to tell, and another request had taken it
			p.answerAll(ua.StatusBadNoSubscription)
			return true, ua.StatusOK
		}
		if h.TimeoutHint != 0 {
			deadline := e.clock(now) + int64(h.TimeoutHint)*int64(time.Millisecond)
			p.parked[len(p.parked)-1].deadline = deadline
			if len(p.parked) == 1 {
				p.deadline = deadline
			}
			p.deadline = min(p.deadline, deadline)
			p.arm()
		} else if len(p.parked) == 1 {
			p.deadline = never
		}
	}
	return true, ua.StatusOK
}

// MakeRoom answers the oldest parked Publish request of a session that has as many as it may, BadTooManyPublishRequests, and
// reports whether there was one: where the server has no room for another request, the session's own limit is looked at
// first.
func (e *Engine) MakeRoom(s Session) bool {
	p := e.publisher(s)
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.unlock()
	p.dropStale()
	if len(p.parked) == 0 || len(p.parked) < max(e.limits.Load().MaxPublishRequestsPerSession, 2*len(p.subs)) {
		return false
	}
	oldest := p.take()
	p.fault(&oldest, ua.StatusBadTooManyPublishRequests)
	return true
}

// acknowledge is one SubscriptionAcknowledgement. p.mu is held.
func (p *publisher) acknowledge(subscription, sequence uint32) ua.StatusCode {
	for _, s := range p.subs {
		if s.id == subscription {
			before := s.messages.bytes
			if s.messages.acknowledge(sequence) {
				p.engine.retained.Add(int64(s.messages.bytes - before))
				return ua.StatusOK
			}
			return ua.StatusBadSequenceNumberUnknown
		}
	}
	return ua.StatusBadSubscriptionIDInvalid
}

// CancelPublish answers the session's parked Publish requests with the given request handle BadRequestCancelledByClient and
// returns how many there were (OPC 10000-4 §5.7.5 Cancel).
func (e *Engine) CancelPublish(s Session, requestHandle uint32) int {
	p := e.publisher(s)
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.unlock()
	return p.dropIf(ua.StatusBadRequestCancelledByClient, func(r *parkedPublish) bool { return r.handle == requestHandle })
}

// DropPublish answers one parked Publish request with code, if it is still parked: whoever sent it has stopped waiting, though
// the channel goes on (a long poll over HTTPS).
func (e *Engine) DropPublish(s Session, ch session.Channel, requestID uint32, code ua.StatusCode) {
	p := e.publisher(s)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.unlock()
	p.dropIf(code, func(r *parkedPublish) bool { return r.ch == ch && r.requestID == requestID })
}

// Republish is the Republish service (OPC 10000-4 §5.14.6): it appends the encoded NotificationMessage, which is all of the
// response behind its header, or returns BadSubscriptionIdInvalid or BadMessageNotAvailable.
func (e *Engine) Republish(s Session, b []byte, subscriptionID, sequence uint32) ([]byte, ua.StatusCode) {
	sub, p := e.lockOwn(s, subscriptionID)
	if sub == nil {
		return b, ua.StatusBadSubscriptionIDInvalid
	}
	sub.touch()
	m := sub.messages.find(sequence)
	if sub.counts.republishAsked++; m != nil {
		sub.counts.republished++
	}
	p.mu.Unlock()
	if m == nil {
		return b, ua.StatusBadMessageNotAvailable
	}
	return append(b, m...), ua.StatusOK
}
