package session

import (
	"net/netip"
)

// inactiveQueue lists the never-activated sessions of one owner, oldest first.
type inactiveQueue struct {
	oldest, newest *Session
	n              int
}

func (st *Store) joinQueueLocked(s *Session) {
	q := st.owners[s.owner]
	if q == nil {
		q = new(inactiveQueue)
		st.owners[s.owner] = q
	}
	s.prev = q.newest
	if q.newest != nil {
		q.newest.next = s
	} else {
		q.oldest = s
	}
	q.newest = s
	q.n++
}

func (st *Store) leaveQueueLocked(s *Session) {
	q := st.owners[s.owner]
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
	if q.n--; q.n == 0 {
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
