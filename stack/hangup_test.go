package stack_test

import (
	"testing"
	"testing/synctest"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
)

// A request that waits gives its place and its lease back when its channel ends,
// not only when it would have run: others want them (overload.md §7).
func TestQueuedRequestsOfAChannelThatEnds(t *testing.T) {
	inBubble(t, stack.Options{Isolation: narrow(1, 2)}, func(s *site) {
		started, deaf := make(chan struct{}, 10), make(chan struct{})
		rq := slow(s, started, deaf)
		runs, goes, comes := s.connect().login(), s.connect().login(), s.connect().login()
		begin := func(p *peer) {
			rq.RequestHeader = p.header()
			p.start(p.encode(rq))
			synctest.Wait()
		}
		begin(runs)
		begin(goes)
		begin(goes)
		if n := s.used(isolation.RequestQueue); n != 2 {
			t.Fatalf("%d wait", n)
		}
		bytes := s.used(isolation.RequestQueueBytes)
		goes.close()
		synctest.Wait()
		if n := s.used(isolation.RequestQueue); n != 0 || s.stats().QueuedRequests != 0 {
			t.Errorf("%d places kept by a channel that has gone", n)
		}
		if n := s.used(isolation.RequestQueueBytes); n*3 != bytes {
			t.Errorf("%d of %d bytes kept", n, bytes)
		}
		begin(comes) // there is room for it
		if n := s.used(isolation.RequestQueue); n != 1 {
			t.Errorf("%d wait", n)
		}
		close(deaf)
		synctest.Wait()
		if len(started) != 2 {
			t.Errorf("%d ran", len(started))
		}
	})
}
