package session

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// Store holds the sessions of one server. Make it with [NewStore] and end it
// with [Store.Shutdown].
type Store struct {
	opts  Options
	log   *slog.Logger
	epoch time.Time // lastContact and due count from here, on the monotonic clock
	table table

	summary summary

	mu       sync.Mutex
	stopped  bool
	live     int
	channels map[Channel]*attachment
	owners   map[string]*sessionQueue
	gone     sessionQueue // activated sessions whose channel has gone, those first whose went first
	// provisional counts the sessions that were created in a full table, in the
	// place of one of gone that is to end when they are activated.
	provisional int
	heap        deadlines
	armed       int64 // what the reaper's timer is set to; noDeadline when it is not

	activated atomic.Int64
	wake      chan struct{}
	stop      chan struct{}
	wg        sync.WaitGroup
}

// NewStore starts a Store and the goroutine that ends sessions whose time is up.
func NewStore(o Options) *Store {
	st := &Store{
		opts:     o.resolved(),
		epoch:    time.Now(),
		channels: make(map[Channel]*attachment),
		owners:   make(map[string]*sessionQueue),
		armed:    noDeadline,
		wake:     make(chan struct{}, 1),
		stop:     make(chan struct{}),
	}
	st.log = st.opts.Logger
	st.wg.Go(st.reap)
	return st
}

// since is t on the Store's clock.
func (st *Store) since(t time.Time) int64 { return int64(t.Sub(st.epoch)) }

// Lookup finds the session a request acts in and counts it as contact.
//
// BadSessionIdInvalid: the token is unknown, its session has timed out or ended,
// or it is bound to another channel. BadSessionNotActivated: it was never
// activated; it is closed by this (OPC 10000-4 §5.7.3 ActivateSession). ch must
// be the channel the request came on. Lookup allocates nothing and takes no
// lock.
func (st *Store) Lookup(ch Channel, token uabinary.NodeID, now time.Time) (*Session, ua.StatusCode) {
	s := st.table.find(&token)
	if s == nil {
		return nil, ua.StatusBadSessionIDInvalid
	}
	b := s.bound.Load()
	if b == nil || b.ch != ch {
		return nil, ua.StatusBadSessionIDInvalid
	}
	switch s.state.Load() {
	case stateActive:
	case stateCreated:
		if st.end(s, ClosedUsedBeforeActivation, false) {
			return nil, ua.StatusBadSessionNotActivated
		}
		return nil, ua.StatusBadSessionIDInvalid
	default:
		return nil, ua.StatusBadSessionIDInvalid
	}
	t, last := st.since(now), s.lastContact.Load()
	idle := t - last
	if idle >= int64(s.timeout) {
		st.end(s, ClosedTimeout, false)
		return nil, ua.StatusBadSessionIDInvalid
	}
	// Requests of one read batch share their now: one store for all of them.
	if idle > 0 {
		s.lastContact.Store(t)
	}
	return s, ua.StatusOK
}

// Peek tells whether token names an activated session bound to ch, and which,
// without counting as contact and without closing anything. Admission uses it
// to classify a request before it is decoded.
func (st *Store) Peek(ch Channel, token uabinary.NodeID) *Session {
	s := st.table.find(&token)
	if s == nil || s.state.Load() != stateActive {
		return nil
	}
	if b := s.bound.Load(); b == nil || b.ch != ch {
		return nil
	}
	return s
}

// Bound is the channel that the session which token names is bound to, activated
// or not; nil when there is none.
func (st *Store) Bound(token uabinary.NodeID) Channel {
	if s := st.table.find(&token); s != nil {
		return s.Channel()
	}
	return nil
}

// Len is the number of sessions, activated or not.
func (st *Store) Len() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.live
}

// Activated is the number of activated sessions.
func (st *Store) Activated() int { return int(st.activated.Load()) }

// Max is the largest number of sessions the table takes.
func (st *Store) Max() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.opts.MaxSessions
}

// Resize puts other bounds in force: of the table, and of the timeouts of
// sessions created from now on. Values of 0 or less leave a bound as it is, and
// minTimeout must not exceed maxTimeout. Sessions over a lowered bound stay.
func (st *Store) Resize(maxSessions int, minTimeout, maxTimeout, activation time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	o := &st.opts
	o.MaxSessions = orInt(maxSessions, o.MaxSessions)
	o.MinTimeout, o.MaxTimeout = orDuration(minTimeout, o.MinTimeout), orDuration(maxTimeout, o.MaxTimeout)
	o.MaxTimeout = max(o.MaxTimeout, o.MinTimeout)
	o.ActivationTimeout = orDuration(activation, o.ActivationTimeout)
}

// Each calls f for every session until it returns false. Sessions that come or
// go meanwhile may be missed or seen after their end.
func (st *Store) Each(f func(*Session) bool) {
	places := st.table.places.Load()
	if places == nil {
		return
	}
	for i := range *places {
		if s := (*places)[i].Load(); s != nil && !f(s) {
			return
		}
	}
}

// Find returns the session with this SessionId, or nil. It walks the table.
func (st *Store) Find(id uabinary.NodeID) (found *Session) {
	st.Each(func(s *Session) bool {
		if s.id.Equal(id) {
			found = s
			return false
		}
		return true
	})
	return found
}

// Shutdown closes every session, deleting subscriptions, refuses new ones with
// BadServerHalted and waits for the Store's goroutine.
func (st *Store) Shutdown() {
	st.mu.Lock()
	first := !st.stopped
	st.stopped = true
	st.mu.Unlock()
	if first {
		close(st.stop)
	}
	st.wg.Wait()
	st.Each(func(s *Session) bool {
		st.end(s, ClosedShutdown, true)
		return true
	})
}
