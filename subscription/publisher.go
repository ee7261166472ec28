package subscription

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/internal/wheel"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

const never = math.MaxInt64

// publisher is what the subscriptions of one session share: the parked Publish requests, the timer and the way out.
//
// While a request is parked, no subscription waits for one, and the other way round: dispatch restores that after every
// change.
type publisher struct {
	engine  *Engine
	number  uint64 // lock order
	owner   string
	session Session
	timer   wheel.Timer

	mu        sync.Mutex
	identity  identity // of the session, as far as it was seen
	closed    bool     // the session has ended: the subscriptions are orphans
	subs      []*subscription
	waiting   int // subscriptions that the next Publish request is for
	turns     uint64
	parked    []parkedPublish // oldest first
	status    []statusChange  // for the session, of subscriptions that have gone
	scheduled int64           // when the timer is set to fire
	deadline  int64           // not later than the earliest of the parked requests' deadlines

	out     []response // to be sent, in order
	spare   []response // empty, for reuse
	sending bool
}

// parkedPublish is a Publish request that waits for something to report.
type parkedPublish struct {
	ch                session.Channel
	requestID, handle uint32
	deadline          int64 // engine clock; never: the client set no timeoutHint
	results           []ua.StatusCode
}

// statusChange is a StatusChangeNotification whose subscription this session no longer has.
type statusChange struct {
	subscription, sequence uint32
	code                   ua.StatusCode
}

// maxStatusChanges bounds what a session that publishes nothing can pile up; the oldest goes.
const maxStatusChanges = 200

type response struct {
	ch        session.Channel
	requestID uint32
	handle    uint32
	buf       *buffer.Buffer
	fault     bool
}

// fire runs on the wheel's goroutine: timeouts of parked requests, then the cycles that are due, highest priority first and
// least recently served first among equals.
func (p *publisher) fire(at time.Time) {
	p.mu.Lock()
	now := p.engine.clock(at)
	p.scheduled = never
	p.expireParked(now)
	var few [8]*subscription
	due := few[:0]
	for _, s := range p.subs {
		if s.nextCycle.Load() <= now {
			due = append(due, s)
		}
	}
	if len(due) > 1 {
		slices.SortFunc(due, func(a, b *subscription) int {
			if before(a, b) {
				return -1
			}
			return 1
		})
	}
	for _, s := range due {
		p.cycle(s, now, at)
	}
	p.arm()
	p.unlock()
}

// before reports whether a is served before b.
func before(a, b *subscription) bool {
	if a.priority != b.priority {
		return a.priority > b.priority
	}
	return a.turn < b.turn
}

// arm sets the timer for the next thing to do.
func (p *publisher) arm() {
	next := int64(never)
	for _, s := range p.subs {
		next = min(next, s.nextCycle.Load())
	}
	if len(p.parked) > 0 {
		next = min(next, p.deadline)
	}
	if next == p.scheduled {
		return
	}
	p.scheduled = next
	if next == never {
		p.engine.wheel.Cancel(&p.timer)
		return
	}
	p.engine.wheel.Schedule(&p.timer, p.engine.when(next))
}

// cycle is the expiry of one subscription's publishing timer.
func (p *publisher) cycle(s *subscription, now int64, at time.Time) {
	if s.state == stateClosed {
		return
	}
	next := s.nextCycle.Load() + s.interval
	if next <= now { // the machine was too busy or suspended: skip what was missed
		next = now + s.interval
	}
	s.nextCycle.Store(next)
	stamp := uabinary.FromTime(at)
	s.mu.Lock()
	s.sampleCycle(now, stamp)
	available, any := s.ready > 0, len(s.items) > 0
	s.mu.Unlock()
	if any && now-s.audited >= int64(auditPeriod) {
		s.audited = now
		p.engine.workers.addAudit(s)
	}
	p.dropStale()
	act := s.step(eventTimer, input{enabled: s.enabled, available: available, queued: len(p.parked) > 0})
	p.act(s, act, stamp)
	p.dispatch(stamp)
}

func (p *publisher) act(s *subscription, act action, stamp uabinary.DateTime) {
	switch act {
	case actionNotify:
		s.counts.published++
		p.notify(s, p.take(), stamp)
	case actionKeepAlive:
		s.counts.published++
		p.keepAlive(s, p.take(), stamp)
	case actionExpire:
		p.expire(s)
	}
	p.recount(s)
}

// recount keeps the number of waiting subscriptions.
func (p *publisher) recount(s *subscription) {
	w := s.waiting(s.enabled)
	if w == s.queuedForPublish {
		return
	}
	s.queuedForPublish = w
	if w {
		p.waiting++
	} else {
		p.waiting--
	}
}

// dispatch gives parked requests to waiting subscriptions while there are both.
func (p *publisher) dispatch(stamp uabinary.DateTime) {
	for p.waiting > 0 && len(p.parked) > 0 {
		var best *subscription
		for _, s := range p.subs {
			if s.queuedForPublish && (best == nil || before(s, best)) {
				best = s
			}
		}
		best.mu.Lock()
		available := best.ready > 0
		best.mu.Unlock()
		p.act(best, best.step(eventPublish, input{enabled: best.enabled, available: available}), stamp)
	}
}

// expire ends a subscription whose lifetime is over and tells the session, if there is one.
func (p *publisher) expire(s *subscription) {
	p.engine.expired.Add(1)
	change := statusChange{s.id, nextSequence(s.sequence), ua.StatusBadTimeout}
	p.tell(change)
	p.remove(s)
}

// tell hands a StatusChangeNotification to the session: with a parked request now, or with the next one.
func (p *publisher) tell(c statusChange) {
	if p.closed {
		return
	}
	if len(p.status) >= maxStatusChanges {
		p.status = slices.Delete(p.status, 0, 1)
	}
	p.status = append(p.status, c)
	p.dropStale()
	p.tellParked(uabinary.Now())
}

func (p *publisher) tellParked(stamp uabinary.DateTime) {
	for len(p.status) > 0 && len(p.parked) > 0 {
		c := p.status[0]
		p.status = slices.Delete(p.status, 0, 1)
		p.statusChange(c, p.take(), stamp)
	}
}

// remove deletes a subscription. When it was the last one, nothing can answer the parked requests any more.
func (p *publisher) remove(s *subscription) {
	s.state = stateClosed
	p.release(s)
	s.close()
}

// release takes a subscription out of the publisher.
func (p *publisher) release(s *subscription) {
	if s.queuedForPublish {
		s.queuedForPublish = false
		p.waiting--
	}
	if i := slices.Index(p.subs, s); i >= 0 {
		p.subs = slices.Delete(p.subs, i, i+1)
	}
	if len(p.subs) == 0 {
		p.answerAll(ua.StatusBadNoSubscription)
	}
}

// take removes the oldest parked request.
func (p *publisher) take() parkedPublish {
	r := p.parked[0]
	p.parked = slices.Delete(p.parked, 0, 1)
	p.engine.parked.Add(-1)
	return r
}

// answerAll answers every parked request with a ServiceFault.
func (p *publisher) answerAll(code ua.StatusCode) {
	p.dropIf(code, func(*parkedPublish) bool { return true })
}

// dropIf answers the parked requests for which f holds with a ServiceFault and returns how many there were.
func (p *publisher) dropIf(code ua.StatusCode, f func(*parkedPublish) bool) int {
	n := len(p.parked)
	p.parked = slices.DeleteFunc(p.parked, func(r parkedPublish) bool {
		if !f(&r) {
			return false
		}
		p.fault(&r, code)
		return true
	})
	n -= len(p.parked)
	p.engine.parked.Add(int64(-n))
	return n
}

// dropStale answers what came over a channel that the session is no longer bound to (hostile.md C3, C10): it will not be
// read any more, and a notification sent there would be lost until it is asked for again.
func (p *publisher) dropStale() {
	if len(p.parked) == 0 || p.closed {
		return
	}
	ch := p.session.Channel()
	if p.parked[0].ch == ch { // new ones come last, so the first one is the first to go stale
		return
	}
	code := ua.StatusBadSecureChannelClosed
	select {
	case <-p.session.Done(): // the channel may be well, and SessionClosed is about to come
		code = ua.StatusBadSessionClosed
	default:
	}
	p.dropIf(code, func(r *parkedPublish) bool { return r.ch != ch })
}

func (p *publisher) expireParked(now int64) {
	if len(p.parked) == 0 || now < p.deadline {
		return
	}
	p.dropIf(ua.StatusBadTimeout, func(r *parkedPublish) bool { return r.deadline <= now })
	p.deadline = never
	for i := range p.parked {
		p.deadline = min(p.deadline, p.parked[i].deadline)
	}
}

// fault queues a ServiceFault.
func (p *publisher) fault(r *parkedPublish, code ua.StatusCode) {
	p.out = append(p.out, response{r.ch, r.requestID, r.handle, serviceFault(r.handle, code), true})
}

func serviceFault(handle uint32, code ua.StatusCode) *buffer.Buffer {
	buf := buffer.Get(64)
	b := uabinary.AppendTypeID(buf.B, id.ServiceFault_Encoding_DefaultBinary)
	buf.B = uabinary.AppendResponseHeader(b, &uabinary.ResponseHeader{
		Timestamp: uabinary.Now(), RequestHandle: handle, ServiceResult: code,
	})
	return buf
}

// unlock releases p.mu and sends what has been queued. While another goroutine sends, it leaves the new responses to that
// one, so they leave in the order in which they were queued.
func (p *publisher) unlock() {
	if p.sending || len(p.out) == 0 {
		p.mu.Unlock()
		return
	}
	p.sending = true
	for len(p.out) > 0 {
		batch := p.out
		p.out, p.spare = p.spare, nil
		p.mu.Unlock()
		for i := range batch {
			p.send(&batch[i])
		}
		clear(batch)
		p.mu.Lock()
		if cap(batch) <= 32 {
			p.spare = batch[:0]
		}
	}
	p.sending = false
	p.mu.Unlock()
}

// flush sends what somebody else queued.
func (p *publisher) flush() {
	p.mu.Lock()
	p.unlock()
}

func (p *publisher) send(r *response) {
	err := r.ch.Reply(r.requestID, r.buf.B)
	r.buf.Release()
	if err != nil && !r.fault {
		// The message was cut to the client's limits, so this is a channel that closes. Should it be something else, the
		// client is told; the message stays available for Republish either way.
		code := uastatus.Code(err)
		buf := serviceFault(r.handle, code)
		if r.ch.Reply(r.requestID, buf.B) != nil {
			p.engine.logger.Debug("publish response not sent", "error", err)
		}
		buf.Release()
	}
	p.engine.answered(r.ch, r.requestID)
}
