package client

import (
	"context"
	"iter"
	"sync"
	"time"
)

// State is what a session does, as far as its user cares.
type State uint8

// The states.
const (
	// Connecting: the first connection is being made.
	Connecting State = iota
	// Online: calls are sent, values arrive.
	Online
	// Recovering: the connection, the session or a subscription was lost and is
	// being brought back. Calls wait.
	Recovering
	// Waiting: the last attempt failed, the next one comes at Status.Retry.
	Waiting
	// Closed: for good, by Close or because the policy allowed no further attempt.
	Closed
)

var stateNames = [...]string{"Connecting", "Online", "Recovering", "Waiting", "Closed"}

// String is the state's name.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "Invalid"
}

// Status is a state with its circumstances.
type Status struct {
	State State
	// Since is when the state began.
	Since time.Time
	// Attempt counts the failed attempts since the last session that lasted.
	Attempt int
	// Retry is when the next attempt will be made; only in Waiting.
	Retry time.Time
	// Err is what ended the last connection or attempt; nil in Online, and in
	// Closed after Close.
	Err error
	// NewSession says that this Online began with a session that the server made
	// anew: its queues, registered nodes and continuation points are gone.
	NewSession bool
}

// states is a chain of statuses: each one leads to the next, so that observers
// need no place in a list and none of them can hold up the session.
type states struct {
	mu   sync.Mutex
	last *stateNode
}

type stateNode struct {
	status Status
	ready  chan struct{} // closed when next is set, or there will be none
	next   *stateNode
}

func newStates(now time.Time) *states {
	return &states{last: &stateNode{status: Status{State: Connecting, Since: now}, ready: make(chan struct{})}}
}

func (s *states) set(st Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.status.State == Closed {
		return
	}
	n := &stateNode{status: st, ready: make(chan struct{})}
	s.last.next = n
	close(s.last.ready)
	s.last = n
	if st.State == Closed {
		close(n.ready)
	}
}

func (s *states) current() *stateNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// State is the present status.
func (s *Session) State() Status { return s.states.current().status }

// States yields the present status and then every change, in order and none left
// out, until the session is closed or ctx ends. An observer that lags holds
// nothing up; what it has not seen yet is kept for it.
func (s *Session) States(ctx context.Context) iter.Seq[Status] {
	n := s.states.current()
	return func(yield func(Status) bool) {
		for n != nil {
			if !yield(n.status) {
				return
			}
			select {
			case <-n.ready:
				n = n.next
			case <-ctx.Done():
				return
			}
		}
	}
}
