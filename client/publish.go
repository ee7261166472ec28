package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/gopcua/opcua/ua"
)

// publishing is what the publisher keeps from one link to the next.
type publishing struct {
	mu    sync.Mutex
	sent  uint64 // number of the last Publish request
	first uint64 // number of the current session's first
	acks  []*ua.SubscriptionAcknowledgement
}

// maxAcks bounds the acknowledgements of one Publish request.
const maxAcks = 1000

func (p *publishing) last() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

// newSession: what older requests are answered says nothing about the new session.
func (p *publishing) newSession() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first = p.sent + 1
	p.acks = nil
}

func (p *publishing) current(number uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return number >= p.first
}

func (p *publishing) acknowledge(id, sequence uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acks = append(p.acks, &ua.SubscriptionAcknowledgement{SubscriptionID: id, SequenceNumber: sequence})
	if over := len(p.acks) - 10*maxAcks; over > 0 {
		p.acks = slices.Delete(p.acks, 0, over)
	}
}

func (p *publishing) next() (number uint64, acks []*ua.SubscriptionAcknowledgement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent++
	n := min(len(p.acks), maxAcks)
	acks = slices.Clone(p.acks[:n])
	p.acks = slices.Delete(p.acks, 0, n)
	return p.sent, acks
}

// publisher works for one link: it keeps Publish requests at the server and
// takes the notifications (OPC 10000-4 §5.14.5, Publish).
type publisher struct {
	s      *Session
	l      *link
	most   int              // Publish requests that the server takes
	delays *reconnect.State // after refused ones
	later  []answer         // for subscriptions that are being created
	gone   map[uint32]bool  // unknown subscriptions that were deleted
	hold   *time.Timer      // until full queues hold the publishing up no longer
}

// publish runs while the link lasts; so publishing stops when a recovery begins
// (hostile.md C10). Answers that come meanwhile wait in conn.published.
func (s *Session) publish(l *link) {
	p := &publisher{s: s, l: l, most: s.opts.MaxPublishRequests, delays: reconnect.NewState(s.opts.Reconnect), gone: make(map[uint32]bool)}
	pause := time.NewTimer(0)
	<-pause.C
	defer pause.Stop()
	p.hold = time.NewTimer(0)
	<-p.hold.C
	defer p.hold.Stop()
	paused := false
	for l.ctx.Err() == nil {
		if !paused && !p.fill() {
			return
		}
		select {
		case <-l.ctx.Done():
			return
		case a := <-l.conn.published:
			if s.publishing.current(a.tag) {
				l.conn.publishing--
			}
			if d := p.answered(a); d > 0 {
				pause.Reset(d)
				paused = true
			}
		case <-pause.C:
			paused = false
		case <-p.hold.C:
		case <-l.kick:
			again := p.later
			p.later = nil
			for _, a := range again {
				p.answered(a)
			}
		}
	}
}

// fill sends what is missing; false: the link is over.
func (p *publisher) fill() bool {
	c := p.l.conn
	want, until := p.wanted(time.Now())
	if until.IsZero() {
		p.hold.Stop()
	} else {
		p.hold.Reset(time.Until(until))
	}
	for c.publishing < want {
		number, acks := p.s.publishing.next()
		// No timeout hint: the answer may take as long as it likes.
		body, err := c.encode(&ua.PublishRequest{SubscriptionAcknowledgements: acks}, p.l.server.token, 0)
		if err != nil {
			c.fail(err)
			return false
		}
		c.publishing++
		if _, err := c.start(p.l.ctx, body, waiter{c.published, number}); err != nil {
			c.publishing--
			return false
		}
	}
	return true
}

// answered takes one answer and returns how long to send none.
func (p *publisher) answered(a answer) time.Duration {
	if a.err != nil {
		var abort *securechannel.Abort
		if errors.As(a.err, &abort) || single(a.err) { // its message is asked for again when the next one shows the gap
			return p.failed(reconnect.Signal(a.err))
		}
		return 0 // the connection is gone
	}
	msg, err := p.l.conn.decode(&ua.PublishRequest{}, a.body)
	if err == nil {
		rs := msg.(*ua.PublishResponse)
		if rs.NotificationMessage == nil {
			err = unknownResponse("Publish without a message")
		} else {
			p.delays = reconnect.NewState(p.s.opts.Reconnect)
			p.received(a, rs)
			return 0
		}
	}
	code, hint := reconnect.Signal(err)
	current := p.s.publishing.current(a.tag)
	switch {
	case isSessionLost(code):
		if current {
			p.l.fault(event{outcome: outcomeSessionLost, code: code})
		}
		return 0
	case isChannelLost(code):
		if current {
			p.l.conn.fail(err)
		}
		return 0
	case code == ua.StatusBadTooManyPublishRequests && p.l.conn.publishing > 0 && hint == 0:
		p.most = p.l.conn.publishing
		return 0
	case code == ua.StatusBadNoSubscription:
		if current && p.contradicts(a.tag) {
			p.l.fault(event{outcome: outcomeSubscriptionsLost, code: code})
			return p.failed(code, hint)
		}
		return 0
	}
	p.s.log.Debug("session: Publish failed", "error", err)
	return p.failed(code, hint)
}

func (p *publisher) failed(code ua.StatusCode, hint time.Duration) time.Duration {
	d, more := p.delays.Failed(code, hint)
	if !more {
		d = 30 * time.Second // publishing is never given up while the session lives
	}
	return max(d, time.Millisecond)
}

// contradicts says whether there was a subscription when a Publish request was
// sent that the server says had none to serve.
func (p *publisher) contradicts(number uint64) bool {
	for _, sub := range p.s.subscriptions() {
		sub.mu.Lock()
		had := !sub.away() && sub.since < number
		sub.mu.Unlock()
		if had {
			return true
		}
	}
	return false
}

// received takes a PublishResponse.
func (p *publisher) received(a answer, rs *ua.PublishResponse) {
	s := p.s
	s.mu.Lock()
	sub, creating := s.byID[rs.SubscriptionID], s.creating
	s.mu.Unlock()
	if sub == nil {
		p.unknown(a, rs, creating > 0)
		return
	}
	m := rs.NotificationMessage
	sub.mu.Lock()
	sub.heard = time.Now()
	expected, lost := sub.expected, sub.lost
	sub.mu.Unlock()
	if lost {
		return
	}
	ahead := distance(expected, m.SequenceNumber)
	if ahead > 0 {
		if err := s.fillGap(p.l.ctx, p.l.conn, p.l.server, sub, m.SequenceNumber, rs.AvailableSequenceNumbers); err != nil {
			// Not delivered, not acknowledged: the server still has it.
			if errors.Is(err, ua.StatusBadSubscriptionIDInvalid) {
				s.lose(sub)
				p.l.fault(event{outcome: outcomeSubscriptionsLost, code: ua.StatusBadSubscriptionIDInvalid})
			}
			return
		}
	}
	if len(m.NotificationData) == 0 { // keep-alive: its number is the next message's
		return
	}
	s.deliver(p.l, sub, m, s.publishing.current(a.tag)) // a duplicate is acknowledged only
	s.publishing.acknowledge(rs.SubscriptionID, m.SequenceNumber)
}

// unknown handles a message for a subscription that is not ours, or not yet.
func (p *publisher) unknown(a answer, rs *ua.PublishResponse, creating bool) {
	id := rs.SubscriptionID
	switch {
	case creating && len(p.later) < 2*maxPublishing:
		p.later = append(p.later, a)
	case creating || p.gone[id] || len(p.gone) > 1000:
	default:
		// Closed by us, or left over from a creation whose answer was lost.
		p.gone[id] = true
		ctx, cancel := context.WithTimeout(p.l.ctx, p.s.opts.RequestTimeout)
		defer cancel()
		if err := deleteSubscription(ctx, p.l.do, id); err != nil {
			p.s.log.Debug("session: unknown subscription", "id", id, "error", err)
		}
	}
}

// distance from one sequence number to another; they begin again at 1.
func distance(from, to uint32) int64 {
	d := int64(int32(to - from))
	switch {
	case d > 0 && to < from:
		d-- // 0 is left out
	case d < 0 && to > from:
		d++
	}
	return d
}

func nextSequence(n uint32) uint32 {
	if n++; n == 0 {
		return 1
	}
	return n
}

// fillGap asks for the messages between the expected one and the one with number
// upTo that the server still has, delivers them, and tells of those that it has
// not.
func (s *Session) fillGap(ctx context.Context, c *conn, server *serverSession, sub *Subscription, upTo uint32, available []uint32) error {
	sub.mu.Lock()
	expected := sub.expected
	sub.mu.Unlock()
	gap := distance(expected, upTo)
	var have []uint32
	for _, n := range available {
		if d := distance(expected, n); n != 0 && d >= 0 && d < gap {
			have = append(have, n)
		}
	}
	slices.SortFunc(have, func(a, b uint32) int { return int(distance(b, a)) })
	have = slices.Compact(have)
	for _, n := range have[max(0, len(have)-maxRepublish):] {
		if err := s.republish(ctx, c, server, sub, n); err != nil && !errors.Is(err, ua.StatusBadMessageNotAvailable) {
			return err
		}
	}
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.skip(upTo)
	return nil
}

// skip tells of the messages up to a number that will not come. sub.mu is held.
func (sub *Subscription) skip(to uint32) {
	if d := distance(sub.expected, to); d > 0 {
		sub.push(Notification{Subscription: sub, Missed: int(d)})
		sub.expected = to
	}
}

// republish asks for one message and delivers it (OPC 10000-4 §5.14.6, Republish).
func (s *Session) republish(ctx context.Context, c *conn, server *serverSession, sub *Subscription, number uint32) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.RequestTimeout, errStepTimeout)
	defer cancel()
	sub.mu.Lock()
	id := sub.id
	sub.mu.Unlock()
	msg, err := c.roundTrip(ctx, &ua.RepublishRequest{SubscriptionID: id, RetransmitSequenceNumber: number}, server.token)
	if err != nil {
		return err
	}
	m := msg.(*ua.RepublishResponse).NotificationMessage
	if m == nil || m.SequenceNumber != number {
		return broken(ua.StatusBadMessageNotAvailable, "Republish of %d returned another message", number)
	}
	sub.mu.Lock()
	sub.skip(number)
	sub.mu.Unlock()
	s.deliver(nil, sub, m, true)
	s.publishing.acknowledge(id, number)
	return nil
}

// deliver queues the notifications of the message that is next in order.
func (s *Session) deliver(l *link, sub *Subscription, m *ua.NotificationMessage, current bool) {
	var status []ua.StatusCode
	sub.mu.Lock()
	if m.SequenceNumber != sub.expected {
		sub.mu.Unlock()
		return
	}
	sub.expected = nextSequence(m.SequenceNumber)
	var out []Notification
	for _, eo := range m.NotificationData {
		if eo == nil {
			continue
		}
		switch n := eo.Value.(type) {
		case *ua.DataChangeNotification:
			for _, v := range n.MonitoredItems {
				if v == nil {
					continue
				}
				it := sub.items[v.ClientHandle]
				if it == nil { // not ours any more
					continue
				}
				value := v.Value
				if value == nil {
					value = &ua.DataValue{}
				}
				if it.same(value) {
					continue
				}
				it.last = value
				out = append(out, Notification{Subscription: sub, Published: m.PublishTime, Item: it, Value: value})
			}
		case *ua.EventNotificationList:
			for _, e := range n.Events {
				if e == nil {
					continue
				}
				if it := sub.items[e.ClientHandle]; it != nil {
					out = append(out, Notification{Subscription: sub, Published: m.PublishTime, Item: it, Fields: e.EventFields})
				}
			}
		case *ua.StatusChangeNotification:
			status = append(status, n.Status)
			out = append(out, Notification{Subscription: sub, Published: m.PublishTime, Status: n.Status})
		}
	}
	sub.push(out...)
	tell, id, queued := sub.dropped && !sub.told, sub.id, len(sub.queue)
	sub.told = sub.told || tell
	sub.mu.Unlock()
	if tell {
		s.log.Warn("session: notifications dropped, nobody reads them in time", "subscription", id, "queued", queued)
	}
	for _, code := range status {
		s.statusChanged(l, sub, code, current)
	}
}

// statusChanged acts on a StatusChangeNotification.
func (s *Session) statusChanged(l *link, sub *Subscription, code ua.StatusCode, current bool) {
	switch {
	case code == ua.StatusGoodSubscriptionTransferred && current:
		sub.leave(code)
	case code == ua.StatusBadTimeout: // expired
		s.lose(sub)
		if l != nil {
			l.fault(event{outcome: outcomeSubscriptionsLost, code: code})
		}
	}
}
