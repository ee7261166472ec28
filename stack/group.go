package stack

import (
	"context"
	"sync"
)

// A group counts work on goroutines like a sync.WaitGroup, but may be waited for
// while more of it comes, and the wait ends with a context.
type group struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to 0; nil while nobody waits
}

// enter counts one more, leave one less.
func (g *group) enter() {
	g.mu.Lock()
	g.n++
	g.mu.Unlock()
}

func (g *group) leave() {
	g.mu.Lock()
	g.n--
	if g.n == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
	g.mu.Unlock()
}

// Wait returns nil when there is no work, or ctx's error.
func (g *group) Wait(ctx context.Context) error {
	g.mu.Lock()
	if g.n == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Len returns how much work there is.
func (g *group) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}
