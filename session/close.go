package session

import (
	"context"
	"log/slog"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// CloseReason is why a session ended. Each ends with exactly one.
type CloseReason uint8

const (
	// ClosedByClient: CloseSession.
	ClosedByClient CloseReason = iota + 1
	// ClosedTimeout: no request within the session timeout.
	ClosedTimeout
	// ClosedNotActivated: not activated within the activation deadline.
	ClosedNotActivated
	// ClosedUsedBeforeActivation: a request other than ActivateSession and
	// CloseSession came first.
	ClosedUsedBeforeActivation
	// ClosedEvicted: never activated, and its place was needed.
	ClosedEvicted
	// ClosedAbandoned: activated, its channel long gone, and its place was needed
	// (Options.EvictDetached).
	ClosedAbandoned
	// ClosedChannelGone: never activated, and its channel ended.
	ClosedChannelGone
	// ClosedCreateFailed: CreateSession failed after the session had its place.
	ClosedCreateFailed
	// ClosedByAdministrator: [Store.Terminate].
	ClosedByAdministrator
	// ClosedShutdown: the server stops.
	ClosedShutdown
)

var closeReasonNames = [...]string{
	ClosedByClient: "client", ClosedTimeout: "timeout", ClosedNotActivated: "not-activated",
	ClosedUsedBeforeActivation: "used-before-activation", ClosedEvicted: "evicted", ClosedAbandoned: "abandoned",
	ClosedChannelGone: "channel-gone", ClosedCreateFailed: "create-failed",
	ClosedByAdministrator: "administrator", ClosedShutdown: "shutdown",
}

func (r CloseReason) String() string {
	if int(r) < len(closeReasonNames) && closeReasonNames[r] != "" {
		return closeReasonNames[r]
	}
	return "open"
}

// Close is the CloseSession service (OPC 10000-4 §5.7.4 CloseSession): only the
// channel the session is bound to may close it, activated or not.
// BadSessionIdInvalid otherwise. With deleteSubscriptions false they live on for
// their own lifetime.
func (st *Store) Close(ch Channel, token uabinary.NodeID, deleteSubscriptions bool) ua.StatusCode {
	s := st.table.find(&token)
	if s != nil {
		if b := s.bound.Load(); b != nil && b.ch == ch && st.end(s, ClosedByClient, deleteSubscriptions) {
			return ua.StatusOK
		}
	}
	st.refused(ch, "CloseSession", s, uastatus.New(ua.StatusBadSessionIDInvalid, "unknown session or another channel's", nil))
	return ua.StatusBadSessionIDInvalid
}

// Terminate closes a session on behalf of an administrator. False when it has
// ended already.
func (st *Store) Terminate(s *Session, deleteSubscriptions bool) bool {
	return st.end(s, ClosedByAdministrator, deleteSubscriptions)
}

// ChannelClosed tells the Store that ch has ended: its never-activated sessions
// end, the activated ones wait for ActivateSession on another channel until
// they time out.
func (st *Store) ChannelClosed(ch Channel) {
	for _, s := range st.detachAll(ch) {
		st.finish(s, false)
	}
}

// detachAll unbinds the sessions of ch and returns those that ended by it.
func (st *Store) detachAll(ch Channel) (gone []*Session) {
	st.mu.Lock()
	defer st.mu.Unlock()
	at, now := st.channels[ch], st.since(time.Now())
	for at != nil && len(at.sessions) > 0 {
		s := at.sessions[len(at.sessions)-1]
		if s.state.Load() == stateCreated {
			st.removeLocked(s, ClosedChannelGone)
			gone = append(gone, s)
		} else {
			st.detachLocked(s)
			s.detached = now
			st.gone.add(s)
		}
	}
	return gone
}

// end closes s once; false when somebody else did.
func (st *Store) end(s *Session, reason CloseReason, deleteSubscriptions bool) bool {
	if !st.remove(s, reason) {
		return false
	}
	st.finish(s, deleteSubscriptions)
	return true
}

func (st *Store) remove(s *Session, reason CloseReason) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.removeLocked(s, reason)
}

// removeLocked takes s out of every structure. The caller calls finish after
// releasing Store.mu when it returns true.
func (st *Store) removeLocked(s *Session, reason CloseReason) bool {
	state := s.state.Load()
	if state == stateClosed {
		return false
	}
	s.reason.Store(uint32(reason))
	close(s.done) // before the channel goes, so that nobody takes one end for the other
	attached := s.bound.Load() != nil
	st.detachLocked(s)
	switch {
	case state == stateCreated:
		st.leaveQueueLocked(s)
		st.settleLocked(s)
	case !attached:
		st.gone.remove(s)
		fallthrough
	default:
		st.activated.Add(-1)
	}
	s.state.Store(stateClosed)
	st.table.remove(s)
	st.heap.remove(s)
	st.live--
	clear(s.nonce[:])
	return true
}

// settleLocked ends a session's being provisional: it has got a place, or needs
// none any more.
func (st *Store) settleLocked(s *Session) {
	if s.provisional {
		s.provisional = false
		st.provisional--
	}
}

// finish tells the world that s has ended.
func (st *Store) finish(s *Session, deleteSubscriptions bool) {
	reason := s.Reason()
	switch reason {
	case ClosedTimeout, ClosedNotActivated:
		st.summary.timeouts.Add(1)
	case ClosedByClient, ClosedShutdown:
	default:
		st.summary.aborts.Add(1)
	}
	if st.opts.OnClose != nil {
		st.opts.OnClose(s, deleteSubscriptions)
	}
	if !st.log.Enabled(context.Background(), slog.LevelInfo) {
		return // without the frames of a log line, which would grow a connection's stack
	}
	st.log.LogAttrs(context.Background(), slog.LevelInfo, "session closed",
		slog.String("session", s.id.String()),
		slog.String("reason", reason.String()),
		slog.Bool("delete_subscriptions", deleteSubscriptions),
		slog.Duration("lived", time.Since(s.created).Round(time.Millisecond)))
}
