package reconnect

import (
	"time"

	"github.com/gopcua/opcua/ua"
)

// Delays computes the delay before a retry; [Policy] does.
type Delays interface {
	// NextDelay returns the delay before retry number attempt, from 0, and
	// whether it may be made.
	NextDelay(attempt int) (d time.Duration, more bool)
}

// AdaptiveDelays is an optional extra of Delays for those that look at why the
// last attempt failed. With handled false it declines, and NextDelay counts.
type AdaptiveDelays interface {
	AdaptiveDelay(attempt int, status ua.StatusCode, hint time.Duration) (d time.Duration, more, handled bool)
}

// AdaptiveDelay implements [AdaptiveDelays] by NextDelayAfter.
func (p Policy) AdaptiveDelay(attempt int, status ua.StatusCode, hint time.Duration) (time.Duration, bool, bool) {
	d, more := p.NextDelayAfter(attempt, status, hint)
	return d, more, true
}

// State counts the attempts of one client. It has no clock and no lock: its
// owner tells it what happened and when.
type State struct {
	// Delays computes the delays; nil: Policy{}.
	Delays Delays
	// MaxFatal and Settled are taken from Policy when Delays is one, or a pointer to
	// one: how many fatal failures in a row end the attempts (0: 3, negative: none), and how
	// long a session must live before the count starts anew (0: 30 s).
	MaxFatal int
	Settled  time.Duration

	attempt   int
	fatal     int
	connected time.Time
}

// NewState returns the state of a client that has not tried yet.
func NewState(d Delays) *State {
	s := &State{Delays: d}
	if d == nil {
		s.Delays = Policy{}
	}
	p, ok := s.Delays.(Policy)
	if at, is := s.Delays.(*Policy); is {
		if at == nil {
			at = &Policy{}
			s.Delays = at
		}
		p, ok = *at, true
	}
	if ok {
		s.MaxFatal, s.Settled = p.MaxFatalRetries, p.max()
	}
	return s
}

// Attempt is the number of failures since the last settled session.
func (s *State) Attempt() int { return s.attempt }

// Failed records a failed attempt and returns how long to wait before the
// next, and whether there may be one.
func (s *State) Failed(status ua.StatusCode, hint time.Duration) (time.Duration, bool) {
	s.connected = time.Time{}
	if IsFatal(status) {
		s.fatal++
		limit := s.MaxFatal
		if limit == 0 {
			limit = 3
		}
		if s.fatal > limit {
			return 0, false
		}
	} else {
		s.fatal = 0
	}
	attempt := s.attempt
	s.attempt++
	if a, ok := s.Delays.(AdaptiveDelays); ok {
		if d, more, handled := a.AdaptiveDelay(attempt, status, hint); handled {
			return d, more
		}
	}
	return s.Delays.NextDelay(attempt)
}

// Connected records that an attempt succeeded.
func (s *State) Connected(now time.Time) {
	s.connected, s.fatal = now, 0
}

// Lost records that the session ended. Only one that lived for Settled starts
// the count anew: a session that dies at once must not reset the backoff.
func (s *State) Lost(now time.Time) {
	settled := s.Settled
	if settled <= 0 {
		settled = 30 * time.Second
	}
	if !s.connected.IsZero() && now.Sub(s.connected) >= settled {
		s.attempt = 0
	}
	s.connected = time.Time{}
}
