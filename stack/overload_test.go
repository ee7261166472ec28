package stack_test

import (
	"testing"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
)

// narrow leaves room for so few requests, all of them shared.
func narrow(executing, queued int64) isolation.Options {
	return isolation.Options{Mode: isolation.FairShare, Stages: []isolation.StageOptions{
		{Stage: isolation.RequestExecution, Capacity: isolation.Amount(executing)},
		{Stage: isolation.RequestQueue, Capacity: isolation.Amount(queued)},
	}}
}

// noLeases asserts that nobody holds anything of any stage.
func noLeases(t testing.TB, srv *stack.Server) {
	t.Helper()
	stages, owners := srv.Isolation().Snapshot()
	for _, u := range stages {
		if u.Used != 0 {
			t.Errorf("%s: %d still in use", u.Name, u.Used)
		}
	}
	if slots, _ := srv.Isolation().RunSlots(); slots != 0 || owners != 0 {
		t.Errorf("%d run slots in use, %d owners present", slots, owners)
	}
}

// onlySession returns the server's one session.
func (s *site) onlySession() (found *session.Session) {
	s.srv.Sessions().Each(func(x *session.Session) bool { found = x; return false })
	return found
}
