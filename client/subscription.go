package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gopcua/opcua/ua"
)

// SubscriptionOptions are what a subscription asks for (OPC 10000-4 §5.14.2,
// CreateSubscription). The zero value works.
type SubscriptionOptions struct {
	// Interval between notifications. 0: 1 s.
	Interval time.Duration
	// KeepAliveCount is after how many intervals without news the server says so. 0: 10.
	KeepAliveCount uint32
	// LifetimeCount is after how many intervals without a Publish request the server
	// deletes the subscription: how long a broken connection may last without
	// loss. At least three times KeepAliveCount. 0: 5 min, or that.
	LifetimeCount uint32
	// MaxNotifications in one message. 0: no bound but the server's.
	MaxNotifications uint32
	// Priority among the session's subscriptions; more is sooner.
	Priority uint8
	// Timestamps wanted with values. 0 (Source) and Invalid: both.
	Timestamps ua.TimestampsToReturn
}

func (o SubscriptionOptions) resolved() SubscriptionOptions {
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	if o.KeepAliveCount == 0 {
		o.KeepAliveCount = 10
	}
	if o.LifetimeCount == 0 {
		o.LifetimeCount = uint32(min(5*time.Minute/o.Interval, 1<<30))
	}
	o.LifetimeCount = max(o.LifetimeCount, 3*min(o.KeepAliveCount, 1<<30))
	if o.Timestamps == ua.TimestampsToReturnSource || o.Timestamps > ua.TimestampsToReturnNeither {
		o.Timestamps = ua.TimestampsToReturnBoth
	}
	return o
}

// Notification is one thing that a subscription has to say: the value or event
// of an item, or, when Item is nil, something about the subscription itself.
type Notification struct {
	Subscription *Subscription
	// Published is when the server sent it.
	Published time.Time

	// Item that it is about; nil: the subscription.
	Item *Item
	// Value of the attribute; nil for events, and when Status is bad.
	Value *ua.DataValue
	// Fields of the event, in the order of the filter's select clauses.
	Fields []*ua.Variant

	// Status of the subscription (StatusChangeNotification), or why the server
	// would not monitor Item again after it has lost the subscription.
	Status ua.StatusCode
	// Missed messages: so many came before this point that the server does not
	// hold any more. It happens when a connection is broken for longer than the
	// server's queues last.
	Missed int
	// Dropped values and events: so many were taken out of the full queue because
	// nobody read them in time (see Options.MaxQueuedNotifications). What is left
	// follows, with at least the newest of each item. What was taken out and was about
	// the subscription itself is here too: Missed, Recreated and the last Status.
	Dropped int
	// Recreated: the server had lost the subscription, and it has been made anew.
	// What happened in between is not known; the present values follow.
	Recreated bool
}

// Subscription is a subscription that outlives connections, sessions and
// servers. Read it with Notifications.
//
// When a server that has lost it refuses to make it anew, the session is online
// without it and it is asked for again after the delays of Options.Reconnect; those
// that the policy allows no more are followed by its longest one, for as long as the
// session lives. It ends with an error only when what it asks for cannot be sent.
type Subscription struct {
	session *Session
	opts    SubscriptionOptions

	mu   sync.Mutex
	id   uint32 // at the server; 0: it has none
	half *half  // made, but not all of its items
	lost bool   // the server does not have it
	// denied: an older session of ours still has it, in the server's eyes; until
	// when it is asked for again.
	denied     time.Time
	transfer   *ua.TransferResult
	generation int    // how often it was made
	expected   uint32 // sequence number of the next message
	since      uint64 // number of the last Publish request sent before it was made
	heard      time.Time
	lifetime   time.Duration // after which the server has deleted it
	revised    SubscriptionOptions
	items      map[uint32]*Item // by client handle
	queue      []Notification
	full       bool      // until half of the queue is taken
	filled     time.Time // when it became full
	over       bool      // publishing goes on although it is full
	dropped    bool      // notifications, since it is full
	told       bool      // the log of that
	ended      bool
	err        error

	ready chan struct{} // the queue has something
	done  chan struct{} // ended
}

// half is a subscription whose making was interrupted.
type half struct {
	server *serverSession
	id     uint32
}

// Subscribe creates a subscription and monitors items. When only some of the
// items are refused the subscription is returned without an error: see Item.Err.
// After an error there is no subscription: what the server has made of it is
// deleted, also when its answer comes only after ctx has ended (up to 5 min).
func (s *Session) Subscribe(ctx context.Context, o SubscriptionOptions, items ...Monitor) (*Subscription, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	l, err := s.online(ctx)
	if err != nil {
		return nil, err
	}
	sub := &Subscription{
		session: s, opts: o.resolved(), items: make(map[uint32]*Item),
		ready: make(chan struct{}, 1), done: make(chan struct{}),
	}
	s.mu.Lock()
	s.creating++
	s.mu.Unlock()
	do := s.creator(l, func(rs ua.Response) {
		if made, ok := rs.(*ua.CreateSubscriptionResponse); ok {
			s.discard(l, made.SubscriptionID)
		}
	})
	err = s.createSubscription(ctx, do, sub)
	s.mu.Lock()
	s.creating--
	switch {
	case err != nil:
	case s.closed != nil:
		err = ErrClosed
	case s.link != l: // the recovery that has begun does not know it
		err = fmt.Errorf("client: CreateSubscription: %w", errors.Join(ua.StatusBadConnectionClosed, errors.New("the connection was lost")))
	default:
		s.subs[sub], s.byID[sub.id] = true, sub
	}
	s.mu.Unlock()
	l.wake()
	if err != nil {
		sub.mu.Lock()
		id := sub.id
		sub.mu.Unlock()
		if id != 0 { // made, but on a link that is over
			s.background(func() { s.discard(l, id) })
		}
		return nil, err
	}
	if len(items) > 0 {
		if _, err := sub.Monitor(ctx, items...); err != nil {
			sub.abandon()
			return nil, err
		}
	}
	return sub, nil
}

// caller sends a request and returns its response.
type caller func(ctx context.Context, rq ua.Request) (ua.Response, error)

// createSubscription makes the subscription at the server.
func (s *Session) createSubscription(ctx context.Context, do caller, sub *Subscription) error {
	o := sub.opts
	since := s.publishing.last()
	msg, err := do(ctx, &ua.CreateSubscriptionRequest{
		RequestedPublishingInterval: float64(o.Interval) / float64(time.Millisecond),
		RequestedLifetimeCount:      o.LifetimeCount,
		RequestedMaxKeepAliveCount:  o.KeepAliveCount,
		MaxNotificationsPerPublish:  o.MaxNotifications,
		PublishingEnabled:           true,
		Priority:                    o.Priority,
	})
	if err != nil {
		return err
	}
	rs, err := as[*ua.CreateSubscriptionResponse](msg)
	if err != nil {
		return err
	}
	if rs.SubscriptionID == 0 {
		return unknownResponse("subscription id 0")
	}
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.id, sub.expected, sub.since, sub.heard = rs.SubscriptionID, 1, since, time.Now()
	sub.generation++
	sub.transfer = nil
	sub.revised = o
	if ms := rs.RevisedPublishingInterval; ms > 0 && ms < 1e12 {
		sub.revised.Interval = time.Duration(ms * float64(time.Millisecond))
	}
	sub.revised.LifetimeCount, sub.revised.KeepAliveCount = rs.RevisedLifetimeCount, rs.RevisedMaxKeepAliveCount
	sub.lifetime = 0 // of a server that says nothing sensible, it is not known
	if n := time.Duration(rs.RevisedLifetimeCount); n > 0 && sub.revised.Interval < 365*24*time.Hour/n {
		sub.lifetime = max(n*sub.revised.Interval, time.Second)
	}
	return nil
}

// Revised are the interval and counts that the server grants.
func (sub *Subscription) Revised() SubscriptionOptions {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return sub.revised
}

// Done is closed when the subscription has ended.
func (sub *Subscription) Done() <-chan struct{} { return sub.done }

// Err is why the subscription has ended: ErrClosed after Close, the session's
// error, GoodSubscriptionTransferred when another client has taken it over, or why
// it could not be asked for anew of a server that has lost it (BadEncodingError,
// BadRequestTooLarge).
func (sub *Subscription) Err() error {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return sub.err
}

func (sub *Subscription) end(err error) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if !sub.ended {
		sub.ended, sub.err = true, err
		close(sub.done)
	}
}

// leave takes the subscription out of the session and returns its id at the
// server, 0 for none.
func (sub *Subscription) leave(err error) uint32 {
	s := sub.session
	sub.mu.Lock()
	id := sub.id
	sub.id = 0
	sub.mu.Unlock()
	s.mu.Lock()
	delete(s.subs, sub)
	if s.byID[id] == sub {
		delete(s.byID, id)
	}
	s.mu.Unlock()
	sub.end(err)
	return id
}

// Close ends the subscription, at the server too when the session is online;
// else the server finds it without Publish requests and deletes it.
func (sub *Subscription) Close(ctx context.Context) error {
	s := sub.session
	id := sub.leave(ErrClosed)
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if id == 0 || l == nil {
		return nil
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	defer l.wake()
	return deleteSubscription(ctx, l.do, id)
}

func deleteSubscription(ctx context.Context, do caller, id uint32) error {
	rq := &ua.DeleteSubscriptionsRequest{SubscriptionIDs: []uint32{id}}
	msg, err := do(ctx, rq)
	if err != nil {
		return err
	}
	rs, err := as[*ua.DeleteSubscriptionsResponse](msg)
	if err != nil {
		return err
	}
	if err := results(rq, rs.Results, 1); err != nil {
		return err
	}
	if code := rs.Results[0]; isBad(code) && code != ua.StatusBadSubscriptionIDInvalid {
		return fmt.Errorf("client: DeleteSubscriptions: %w", code)
	}
	return nil
}

func isBad(code ua.StatusCode) bool { return code>>31 != 0 }

// wakePublisher has the publisher look again at what there is to do.
func (s *Session) wakePublisher() {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l != nil {
		l.wake()
	}
}

// subscriptions returns those that have not ended.
func (s *Session) subscriptions() []*Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Subscription, 0, len(s.subs))
	for sub := range s.subs {
		all = append(all, sub)
	}
	return all
}

func (s *Session) countSubscriptions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.subs)
}

func (s *Session) countLost() int {
	n := 0
	for _, sub := range s.subscriptions() {
		sub.mu.Lock()
		if sub.lost && !sub.ended {
			n++
		}
		sub.mu.Unlock()
	}
	return n
}

// countDenied counts those that an older session still has.
func (s *Session) countDenied() int {
	n := 0
	for _, sub := range s.subscriptions() {
		sub.mu.Lock()
		if !sub.denied.IsZero() && !sub.ended {
			n++
		}
		sub.mu.Unlock()
	}
	return n
}

// away says whether the present session has no such subscription. sub.mu is held.
func (sub *Subscription) away() bool { return sub.lost || !sub.denied.IsZero() }

// lose notes that the server does not have the subscription.
func (s *Session) lose(sub *Subscription) {
	sub.mu.Lock()
	id := sub.id
	sub.lost, sub.denied, sub.id, sub.transfer = true, time.Time{}, 0, nil
	sub.mu.Unlock()
	s.mu.Lock()
	if s.byID[id] == sub {
		delete(s.byID, id)
	}
	s.mu.Unlock()
}

// expired looks for subscriptions that the server must have deleted, since
// nothing was heard of them for their lifetime, and notes them as lost.
func (s *Session) expired(now time.Time) bool {
	found := false
	for _, sub := range s.subscriptions() {
		sub.mu.Lock()
		gone := !sub.away() && sub.lifetime > 0 && now.Sub(sub.heard) > sub.lifetime+s.opts.RequestTimeout
		if gone {
			sub.heard = now // asked once per lifetime
		}
		sub.mu.Unlock()
		found = found || gone
	}
	return found
}
