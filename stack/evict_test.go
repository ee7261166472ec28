package stack_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// overload.md §5: with EvictDetachedSessions a newcomer gets the place of a
// session whose channel has long gone, and with it that session's is over; the
// option may be switched while the server runs.
func TestEvictDetachedSessions(t *testing.T) {
	o := stack.Options{Limits: stack.Limits{MaxSessions: 2}}
	inBubble(t, o, func(s *site) {
		gone, stays := s.connect().login(), s.connect().login()
		gone.close()
		time.Sleep(35 * time.Second)
		stays.read(numeric(2258))
		p := s.connect()
		p.refused(createOf(p), ua.StatusBadTooManySessions)

		o := s.srv.LimitsInForce()
		o.Limits.EvictDetachedSessions = true
		if r, err := s.srv.ApplyLimits(o, false); err != nil || len(r.Changed) != 1 {
			t.Fatal(r, err)
		}
		p.create(0)
		if n := s.srv.Sessions().Len(); n != 3 {
			t.Errorf("%d sessions before the newcomer has proved who it is", n)
		}
		p.activate()
		if n := s.srv.Sessions().Len(); n != 2 {
			t.Errorf("%d sessions", n)
		}
		stays.read(numeric(2258))
		back := s.connect()
		back.token = gone.token
		back.refused(activateOf(back), ua.StatusBadSessionIDInvalid)
	})
}

// overload.md §8b: a client whose ActivateSession is refused with a hint finds
// its session and its channel when it comes back at its time, although
// the session's deadline would have passed before.
func TestRefusedActivationFindsItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, auth := establishing(1, 0)
		o.Limits.ActivationTimeout = time.Second
		o.Retry = stack.Retry{Min: 20 * time.Second}
		bubble(t, o, func(s *site) {
			first, second := s.connect(), s.connect()
			first.create(0)
			second.create(0)
			w := first.start(first.encode(activateOf(first)))
			synctest.Wait()
			second.refused(activateOf(second), uastatus.BadServerTooBusy)
			close(auth.open)
			first.result(<-w)
			time.Sleep(20 * time.Second)
			second.activate()
			second.read(numeric(2258))
		})
	})
}
