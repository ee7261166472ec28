package subscription

import (
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// revised are the parameters of CreateSubscription and ModifySubscription as they will hold.
type revised struct {
	interval            time.Duration
	keepAlive, lifetime uint32
	notifications       uint32
}

// defaultKeepAlive is used where the client leaves the count to the server (0).
const defaultKeepAlive = 10

// revise negotiates (OPC 10000-4 §5.14.2.2): the lifetime is at least three keep-alives, and neither is so long that a
// subscription nobody wants any more stays for ever.
func (l *Limits) revise(interval float64, lifetime, keepAlive, notifications uint32) revised {
	r := revised{interval: duration(interval, l.MinPublishingInterval, l.MaxPublishingInterval)}
	most := uint32(min(max(l.MaxLifetime/r.interval, 3), 1<<31))
	if keepAlive == 0 {
		keepAlive = defaultKeepAlive
	}
	r.keepAlive = min(keepAlive, most/3)
	r.lifetime = min(max(lifetime, 3*r.keepAlive), most)
	r.notifications = uint32(l.MaxNotificationsPerPublish)
	if notifications != 0 {
		r.notifications = min(r.notifications, notifications)
	}
	return r
}

// CreateSubscription is the CreateSubscription service (OPC 10000-4 §5.14.2). BadTooManySubscriptions when the session, its
// owner or the server has as many as it may.
func (e *Engine) CreateSubscription(s Session, rq *ua.CreateSubscriptionRequest) (*ua.CreateSubscriptionResponse, ua.StatusCode) {
	r := e.limits.Load().revise(rq.RequestedPublishingInterval, rq.RequestedLifetimeCount, rq.RequestedMaxKeepAliveCount, rq.MaxNotificationsPerPublish)
	p := e.publisherFor(s)
	if p == nil {
		return nil, ua.StatusBadSessionClosed
	}
	p.mu.Lock()
	defer p.unlock()
	if p.closed {
		return nil, ua.StatusBadSessionClosed
	}
	p.identity = identify(s, s.Channel(), p.identity)
	if len(p.subs) >= e.limits.Load().MaxSubscriptionsPerSession {
		return nil, ua.StatusBadTooManySubscriptions
	}
	account, ok := e.quota.takeSubscription(p.owner)
	if !ok {
		return nil, ua.StatusBadTooManySubscriptions
	}
	sub := &subscription{
		engine: e, account: account, machine: newMachine(r.keepAlive, r.lifetime),
		interval: int64(r.interval), maxNotifications: r.notifications,
		priority: rq.Priority, enabled: rq.PublishingEnabled,
	}
	sub.pub.Store(p)
	if !e.register(sub) {
		e.quota.giveSubscription(account)
		return nil, ua.StatusBadServerHalted
	}
	now := e.clock(time.Now())
	sub.nextCycle.Store(now + sub.interval)
	sub.audited = now
	p.subs = append(p.subs, sub)
	p.arm()
	e.created.Add(1)
	return &ua.CreateSubscriptionResponse{
		SubscriptionID:            sub.id,
		RevisedPublishingInterval: milliseconds(r.interval),
		RevisedLifetimeCount:      r.lifetime,
		RevisedMaxKeepAliveCount:  r.keepAlive,
	}, ua.StatusOK
}

// ModifySubscription is the ModifySubscription service (OPC 10000-4 §5.14.3). The new interval starts now. Items whose
// sampling interval was left to the publishing interval follow it.
func (e *Engine) ModifySubscription(s Session, rq *ua.ModifySubscriptionRequest) (*ua.ModifySubscriptionResponse, ua.StatusCode) {
	r := e.limits.Load().revise(rq.RequestedPublishingInterval, rq.RequestedLifetimeCount, rq.RequestedMaxKeepAliveCount, rq.MaxNotificationsPerPublish)
	sub, p := e.lockOwn(s, rq.SubscriptionID)
	if sub == nil {
		return nil, ua.StatusBadSubscriptionIDInvalid
	}
	defer p.unlock()
	sub.counts.modified++
	sub.maxKeepAlive, sub.maxLifetime = r.keepAlive, r.lifetime
	sub.keepAlive = min(sub.keepAlive, r.keepAlive)
	sub.touch()
	sub.maxNotifications, sub.priority = r.notifications, rq.Priority
	if int64(r.interval) != sub.interval {
		now := e.clock(time.Now())
		sub.nextCycle.Store(now + int64(r.interval))
		sub.setInterval(int64(r.interval), now)
		p.arm()
	}
	return &ua.ModifySubscriptionResponse{
		RevisedPublishingInterval: milliseconds(r.interval),
		RevisedLifetimeCount:      r.lifetime,
		RevisedMaxKeepAliveCount:  r.keepAlive,
	}, ua.StatusOK
}

// setInterval changes the publishing interval and moves the items between the groups accordingly. pub.mu is held.
func (s *subscription) setInterval(interval, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interval = interval
	for _, g := range append([]*group(nil), s.groups...) {
		if g.interval != follow && g.interval != interval {
			continue
		}
		for _, it := range append([]*item(nil), g.items...) {
			s.detach(it)
			s.attach(it, now)
		}
	}
}

// SetPublishingMode is the SetPublishingMode service (OPC 10000-4 §5.14.4).
func (e *Engine) SetPublishingMode(s Session, rq *ua.SetPublishingModeRequest) (*ua.SetPublishingModeResponse, ua.StatusCode) {
	if code := e.operations(len(rq.SubscriptionIDs)); code != ua.StatusOK {
		return nil, code
	}
	results := make([]ua.StatusCode, len(rq.SubscriptionIDs))
	for i, id := range rq.SubscriptionIDs {
		sub, p := e.lockOwn(s, id)
		if sub == nil {
			results[i] = ua.StatusBadSubscriptionIDInvalid
			continue
		}
		sub.touch()
		if sub.enabled != rq.PublishingEnabled {
			if sub.enabled = rq.PublishingEnabled; sub.enabled {
				sub.counts.enabled++
			} else {
				sub.counts.disabled++
			}
		}
		sub.more = false
		p.recount(sub)
		p.unlock()
	}
	return &ua.SetPublishingModeResponse{Results: results}, ua.StatusOK
}

// DeleteSubscriptions is the DeleteSubscriptions service (OPC 10000-4 §5.14.8). With the session's last subscription its
// parked Publish requests are answered BadNoSubscription.
func (e *Engine) DeleteSubscriptions(s Session, rq *ua.DeleteSubscriptionsRequest) (*ua.DeleteSubscriptionsResponse, ua.StatusCode) {
	if code := e.operations(len(rq.SubscriptionIDs)); code != ua.StatusOK {
		return nil, code
	}
	results := make([]ua.StatusCode, len(rq.SubscriptionIDs))
	for i, id := range rq.SubscriptionIDs {
		sub, p := e.lockOwn(s, id)
		if sub == nil {
			results[i] = ua.StatusBadSubscriptionIDInvalid
			continue
		}
		p.remove(sub)
		p.arm()
		p.unlock()
	}
	return &ua.DeleteSubscriptionsResponse{Results: results}, ua.StatusOK
}

// operations checks the number of operations of one request.
func (e *Engine) operations(n int) ua.StatusCode {
	switch {
	case n == 0:
		return ua.StatusBadNothingToDo
	case n > e.limits.Load().MaxOperationsPerCall:
		return ua.StatusBadTooManyOperations
	}
	return ua.StatusOK
}

// GetMonitoredItems is the method of the Server object (OPC 10000-5 §9.1): the ids and client handles of the items of a
// subscription that belongs to the calling session. BadSubscriptionIdInvalid, BadUserAccessDenied.
func (e *Engine) GetMonitoredItems(sessionID uabinary.NodeID, subscriptionID uint32) (server, client []uint32, _ ua.StatusCode) {
	sub, code := e.methodTarget(sessionID, subscriptionID)
	if code != ua.StatusOK {
		return nil, nil, code
	}
	sub.mu.Lock()
	defer sub.mu.Unlock()
	server, client = make([]uint32, len(sub.items)), make([]uint32, len(sub.items))
	for i, it := range sub.items {
		server[i], client[i] = it.id, it.clientHandle
	}
	return server, client, ua.StatusOK
}

// ResendData is the method of the Server object (OPC 10000-5 §9.2): every reporting item reports its last value again in
// the next cycle. BadSubscriptionIdInvalid, BadUserAccessDenied.
func (e *Engine) ResendData(sessionID uabinary.NodeID, subscriptionID uint32) ua.StatusCode {
	sub, code := e.methodTarget(sessionID, subscriptionID)
	if code != ua.StatusOK {
		return code
	}
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.resend(uabinary.Now())
	return ua.StatusOK
}

func (e *Engine) methodTarget(sessionID uabinary.NodeID, subscriptionID uint32) (*subscription, ua.StatusCode) {
	sub := e.find(subscriptionID)
	if sub == nil {
		return nil, ua.StatusBadSubscriptionIDInvalid
	}
	p := sub.lock()
	if p == nil {
		return nil, ua.StatusBadSubscriptionIDInvalid
	}
	defer p.mu.Unlock()
	if p.closed || !p.session.ID().Equal(sessionID) {
		return nil, ua.StatusBadUserAccessDenied
	}
	sub.touch()
	return sub, ua.StatusOK
}
