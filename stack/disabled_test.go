package stack_test

import (
	"testing"
	"testing/synctest"

	"github.com/breakwater-ua/breakwater/uastatus"
)

// overload.md §1: RateLimits.Disabled switches the two limiters off, never
// isolation: its stage SessionEstablishment still bounds who may establish.
func TestDisabledLimitersLeaveIsolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, auth := establishing(1, 0)
		o.RateLimits.Disabled = true
		o.RateLimits.ConnectionsPerSecond, o.RateLimits.ConnectionBurst = 1, 1
		bubble(t, o, func(s *site) {
			first, second := s.connect(), s.connect() // the connection limiter is off
			first.create(0)
			w := first.start(first.encode(activateOf(first)))
			synctest.Wait()
			second.refused(createOf(second), uastatus.BadServerTooBusy)
			close(auth.open)
			first.result(<-w)
			second.login()
		})
	})
}
