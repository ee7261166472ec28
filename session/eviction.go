package session

import (
	"net/netip"
	"time"
)

// sessionQueue lists sessions, oldest first: the never-activated ones of one
// owner, or the activated ones whose channel has gone. A session is in at most
// one of them.
type sessionQueue struct {
	oldest, newest *Session
	n              int
}

func (q *sessionQueue) add(s *Session) {
	s.prev = q.newest
	if q.newest != nil {
		q.newest.next = s
	} else {
		q.oldest = s
	}
	q.newest = s
	q.n++
}

func (q *sessionQueue) remove(s *Session) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		q.oldest = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		q.newest = s.prev
	}
	s.prev, s.next = nil, nil
	q.n--
}

func (st *Store) joinQueueLocked(s *Session) {
	q := st.owners[s.owner]
	if q == nil {
		q = new(sessionQueue)
		st.owners[s.owner] = q
	}
	q.add(s)
}

func (st *Store) leaveQueueLocked(s *Session) {
	q := st.owners[s.owner]
	if q.remove(s); q.n == 0 {
		delete(st.owners, s.owner)
	}
}

// evictLocked makes one place in a full table: the oldest never-activated
// session of the owner that holds most of them, of those old enough to go. It
// returns the session it removed, or nil. Only a full table pays for the walk
// over the owners, of whom there are never more than sessions.
func (st *Store) evictLocked(now int64) *Session {
	var victim *Session
	most := 0
	for _, q := range st.owners {
		s := q.oldest
		if !st.evictable(s, now) {
			continue
		}
		if q.n > most || q.n == most && s.created.Before(victim.created) {
			victim, most = s, q.n
		}
	}
	if victim != nil {
		st.removeLocked(victim, ClosedEvicted)
	}
	return victim
}

// evictFromLocked makes one place on a channel that holds its share of
// never-activated sessions: its oldest one goes, if it is old enough.
func (st *Store) evictFromLocked(at *attachment, now int64) *Session {
	var victim *Session
	for _, s := range at.sessions {
		if s.state.Load() == stateCreated && st.evictable(s, now) && (victim == nil || s.created.Before(victim.created)) {
			victim = s
		}
	}
	if victim != nil {
		st.removeLocked(victim, ClosedEvicted)
	}
	return victim
}

func (st *Store) evictable(s *Session, now int64) bool {
	return now-st.since(s.created) >= int64(st.opts.EvictionAge)
}

// EvictDetached switches Options.EvictDetached on or off.
func (st *Store) EvictDetached(on bool) {
	st.mu.Lock()
	st.opts.EvictDetached = on
	st.mu.Unlock()
}

// leastDetached is how long a channel must have been gone, whatever the session
// timeout, before Options.EvictDetached gives the session up.
const leastDetached = 10 * time.Second

// abandoned reports whether nobody has come back for s long enough: its channel
// has been gone for half its timeout, and for leastDetached.
func (s *Session) abandoned(now int64) bool {
	return now-s.detached >= int64(max(leastDetached, s.timeout/2))
}

// promisedLocked reports whether one more session may be created in a full table:
// there is an abandoned session that no other newcomer counts on. It is only
// given up when the newcomer has proved who it is, see giveUpLocked.
func (st *Store) promisedLocked(now int64) bool {
	if !st.opts.EvictDetached {
		return false
	}
	n := 0
	for s := st.gone.oldest; s != nil; s = s.next {
		if s.abandoned(now) {
			if n++; n > st.provisional {
				return true
			}
		}
	}
	return false
}

// giveUpLocked makes the place that a newcomer was promised, who has identity id
// now: an abandoned session of the same user goes first, else the one whose
// channel went first. It returns the session it removed, or nil when all have
// come back.
func (st *Store) giveUpLocked(now int64, id *Identity) *Session {
	if !st.opts.EvictDetached {
		return nil
	}
	var victim *Session
	for s := st.gone.oldest; s != nil; s = s.next {
		if !s.abandoned(now) {
			continue
		}
		if id.same(s.identity.Load()) {
			victim = s
			break
		}
		if victim == nil {
			victim = s
		}
	}
	if victim != nil {
		st.removeLocked(victim, ClosedAbandoned)
	}
	return victim
}

// defaultOwner is the client's certificate, else its address. A certificate that
// only CreateSession has named proves nothing yet.
func defaultOwner(ch Channel) string {
	if _, ok := ch.(Introduced); ok {
		return addressKey(ch.RemoteAddr().Addr())
	}
	if app := applicationOf(ch); app != ([len(app)]byte{}) {
		return string(app[:])
	}
	return addressKey(ch.RemoteAddr().Addr())
}

// addressKey identifies a remote host: IPv4-mapped addresses as IPv4, IPv6 by
// its /64, because one host has all of that.
func addressKey(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			a = p.Addr()
		}
	}
	b, _ := a.MarshalBinary()
	return string(b)
}
