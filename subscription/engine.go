package subscription

import (
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/internal/wheel"
	"github.com/breakwater-ua/breakwater/session"
)

// Options configures an [Engine]. Space is required.
type Options struct {
	// Space holds the nodes that are monitored.
	Space *addressspace.Space
	// Limits bound what clients may have. The zero value holds the defaults.
	Limits Limits
	// Wheel runs the timers; nil: the engine makes one and closes it.
	Wheel *wheel.Wheel
	// Workers is the number of goroutines that read values which are not stored (read callbacks, other attributes). As many
	// callbacks that do not return stop such sampling, though never publishing. 0 or negative: 4.
	Workers int
	// Owner names whom a session's subscriptions count against. nil: its user, else its client's certificate, else the
	// address (IPv6 by /64).
	Owner func(Session) string
	// Answered is called for each request that [Engine.Publish] kept, once, after it was answered or dropped because its
	// channel is gone. It must not block. nil: nothing is called.
	Answered func(ch session.Channel, requestID uint32)
	// Logger receives what goes wrong. nil: nothing is logged.
	Logger *slog.Logger
}

// An Engine holds the subscriptions of a server. Its methods are safe for concurrent use. Make one with [NewEngine].
type Engine struct {
	space    *addressspace.Space
	limits   atomic.Pointer[Limits] // see Apply
	wheel    *wheel.Wheel
	ownWheel bool
	owner    func(Session) string
	answered func(session.Channel, uint32)
	logger   *slog.Logger
	epoch    time.Time
	workers  workers
	quota    quota

	mu            sync.RWMutex
	subscriptions map[uint32]*subscription
	publishers    map[Session]*publisher // of sessions that have or had subscriptions
	lastID        uint32
	lastPublisher uint64
	closed        bool

	queuedBytes   atomic.Int64 // see Limits.MaxQueuedBytes
	retained      atomic.Int64 // see Limits.MaxTotalRetransmissionBytes
	parked        atomic.Int64
	created       atomic.Uint64
	notifications atomic.Uint64
	messages      atomic.Uint64
	expired       atomic.Uint64
}

// NewEngine starts an engine. [Engine.Close] ends it.
func NewEngine(o Options) *Engine {
	e := &Engine{
		space: o.Space, wheel: o.Wheel, owner: o.Owner, answered: o.Answered, logger: o.Logger,
		epoch:         time.Now(),
		subscriptions: make(map[uint32]*subscription),
		publishers:    make(map[Session]*publisher),
	}
	e.Apply(o.Limits)
	if e.wheel == nil {
		e.wheel, e.ownWheel = wheel.New(0), true
	}
	if e.owner == nil {
		e.owner = ownerOf
	}
	if e.answered == nil {
		e.answered = func(session.Channel, uint32) {}
	}
	if e.logger == nil {
		e.logger = slog.New(slog.DiscardHandler)
	}
	e.quota = quota{limits: &e.limits, owners: make(map[string]*account)}
	// Ids go on from a random start: one that a client knows from before a restart does not name somebody else's.
	var b [4]byte
	_, _ = rand.Read(b[:])
	e.lastID = binary.LittleEndian.Uint32(b[:])
	if o.Workers <= 0 {
		o.Workers = 4
	}
	e.workers.start(o.Workers)
	return e
}

// Limits returns the limits in force, with the defaults filled in.
func (e *Engine) Limits() Limits { return *e.limits.Load() }

// Apply puts other limits in force for what comes from now on: what exists keeps its intervals and sizes, and is kept where
// there is more of it than a new limit allows.
func (e *Engine) Apply(l Limits) {
	l = l.resolved()
	e.limits.Store(&l)
}

// Close deletes all subscriptions, answers every parked Publish request with BadServerHalted and returns when no goroutine
// of the engine runs any more. It must not be called from a callback of the address space.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	subs := make([]*subscription, 0, len(e.subscriptions))
	for _, s := range e.subscriptions {
		subs = append(subs, s)
	}
	pubs := make([]*publisher, 0, len(e.publishers))
	for _, p := range e.publishers {
		pubs = append(pubs, p)
	}
	for s := range e.publishers {
		remember(s, nil)
	}
	clear(e.publishers)
	e.mu.Unlock()
	for _, p := range pubs {
		p.mu.Lock()
		p.closed = true
		p.status = nil
		p.answerAll(ua.StatusBadServerHalted)
		p.unlock()
	}
	for _, s := range subs {
		if p := s.lock(); p != nil {
			p.closed = true
			p.remove(s)
			p.arm()
			p.unlock()
		}
	}
	e.workers.close()
	if e.ownWheel {
		e.wheel.Close()
	}
}

// Counts is a snapshot of what the engine holds and has done.
type Counts struct {
	Subscriptions  int    // now, orphans included
	MonitoredItems int    // now
	ParkedPublish  int    // Publish requests now waiting
	Created        uint64 // subscriptions since the start
	Expired        uint64 // subscriptions whose lifetime ended
	Messages       uint64 // NotificationMessages with notifications sent
	Notifications  uint64 // notifications sent
}

// Counts returns the current counts.
func (e *Engine) Counts() Counts {
	u := e.quota.used()
	return Counts{
		Subscriptions: u.subscriptions, MonitoredItems: u.items, ParkedPublish: int(e.parked.Load()),
		Created: e.created.Load(), Expired: e.expired.Load(),
		Messages: e.messages.Load(), Notifications: e.notifications.Load(),
	}
}

// clock turns a time into nanoseconds since the engine was made.
func (e *Engine) clock(t time.Time) int64 { return int64(t.Sub(e.epoch)) }

func (e *Engine) when(clock int64) time.Time { return e.epoch.Add(time.Duration(clock)) }

// publisher returns the publisher of a session, nil when it has none.
func (e *Engine) publisher(s Session) *publisher {
	if s, ok := s.(*session.Session); ok { // has room for it, which saves the search
		p, _ := s.Publishing.Load().(*publisher)
		return p
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.publishers[s]
}

// publisherFor returns the publisher of a session and makes it when there is none. It returns nil when the session or the
// engine has been closed.
func (e *Engine) publisherFor(s Session) *publisher {
	if p := e.publisher(s); p != nil {
		return p
	}
	made := &publisher{engine: e, session: s, owner: e.owner(s), identity: identify(s, s.Channel(), identity{}), scheduled: never}
	made.timer.Init(made.fire)
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.publishers[s]
	if p == nil && !e.closed && !ended(s) {
		e.lastPublisher++
		p, made.number = made, e.lastPublisher
		e.publishers[s] = p
		remember(s, p)
	}
	return p
}

// remember keeps the publisher of a session with the session, nil once it has none.
func remember(s Session, p *publisher) {
	if s, ok := s.(*session.Session); ok {
		s.Publishing.Store(p)
	}
}

// register gives a new subscription its id.
func (e *Engine) register(s *subscription) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	for {
		e.lastID++
		if _, taken := e.subscriptions[e.lastID]; e.lastID != 0 && !taken {
			s.id = e.lastID
			e.subscriptions[s.id] = s
			return true
		}
	}
}

func (e *Engine) find(id uint32) *subscription {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.subscriptions[id]
}

// lockOwn finds a subscription of the session and locks its publisher. nil: BadSubscriptionIdInvalid.
func (e *Engine) lockOwn(s Session, id uint32) (*subscription, *publisher) {
	sub := e.find(id)
	if sub == nil {
		return nil, nil
	}
	p := sub.lock()
	if p == nil {
		return nil, nil
	}
	if p.session != s || p.closed {
		p.mu.Unlock()
		return nil, nil
	}
	return sub, p
}

// own is lockOwn for services that only concern the items: it counts as a sign of life and leaves nothing locked.
func (e *Engine) own(s Session, id uint32) *subscription {
	sub, p := e.lockOwn(s, id)
	if sub != nil {
		sub.touch()
		p.mu.Unlock()
	}
	return sub
}

// SessionClosed ends what the engine keeps for a session: its parked Publish requests are answered BadSessionClosed and
// its subscriptions are deleted, or live on without session until they are transferred or their lifetime ends (OPC 10000-4
// §5.7.4 CloseSession). The session must have closed its Done channel before. Further calls do nothing.
func (e *Engine) SessionClosed(s Session, deleteSubscriptions bool) {
	e.mu.Lock()
	p := e.publishers[s]
	delete(e.publishers, s)
	if p != nil {
		remember(s, nil)
	}
	e.mu.Unlock()
	if p == nil {
		return
	}
	p.mu.Lock()
	p.closed = true
	p.identity = identify(s, nil, p.identity)
	p.status = nil
	p.answerAll(ua.StatusBadSessionClosed)
	if deleteSubscriptions {
		for len(p.subs) > 0 {
			p.remove(p.subs[len(p.subs)-1])
		}
	}
	p.arm()
	p.unlock()
}

// ChannelClosed drops the parked Publish requests of a session that came over a channel which is gone; the session keeps
// its subscriptions. Without this call they are dropped in the next publishing cycle after the session has noticed.
func (e *Engine) ChannelClosed(s Session, ch session.Channel) {
	p := e.publisher(s)
	if p == nil {
		return
	}
	p.mu.Lock()
	p.dropIf(ua.StatusBadSecureChannelClosed, func(r *parkedPublish) bool { return r.ch == ch })
	p.unlock()
}

// duration clamps a requested interval in milliseconds, NaN and negative ones included.
func duration(ms float64, low, high time.Duration) time.Duration {
	if !(ms > 0) {
		return low
	}
	if ms >= float64(high)/float64(time.Millisecond) {
		return high
	}
	return max(time.Duration(ms*float64(time.Millisecond)), low)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

var _ Session = (*session.Session)(nil)
