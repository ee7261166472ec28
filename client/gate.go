package client

import (
	"container/list"
	"context"
	"sync"
)

// ConnectGate lets at most so many sessions connect for the first time at once;
// the others wait in the order in which they came, without a bound on their
// number. A program with thousands of sessions shares one through
// [Options].Gate, so that it is not its own connect storm. A session that waits
// for its next attempt gives its place up and later queues again.
type ConnectGate struct {
	mu      sync.Mutex
	free    int
	waiting list.List // of chan struct{}; a closed one has its place
}

// NewConnectGate returns a gate for n connects at once, at least one.
func NewConnectGate(n int) *ConnectGate {
	return &ConnectGate{free: max(n, 1)}
}

// Acquire waits for a place. release gives it back and may be called more than
// once. It fails only when ctx ends first. A nil gate always has a place.
func (g *ConnectGate) Acquire(ctx context.Context) (release func(), err error) {
	if g == nil {
		return func() {}, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	g.mu.Lock()
	if g.free > 0 { // then nobody waits
		g.free--
		g.mu.Unlock()
		return sync.OnceFunc(g.leave), nil
	}
	turn := make(chan struct{})
	place := g.waiting.PushBack(turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return sync.OnceFunc(g.leave), nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	select {
	case <-turn: // both happened: hand the place on
		g.mu.Unlock()
		g.leave()
	default:
		g.waiting.Remove(place)
		g.mu.Unlock()
	}
	return nil, context.Cause(ctx)
}

// leave gives a place to who has waited longest.
func (g *ConnectGate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if next := g.waiting.Front(); next != nil {
		close(g.waiting.Remove(next).(chan struct{}))
		return
	}
	g.free++
}

// Waiting is the number of those who wait.
func (g *ConnectGate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting.Len()
}
