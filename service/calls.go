package service

import (
	"context"
	"sync"

	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Calls keeps the requests of each session that run on goroutines of their own,
// so that Cancel, CloseSession and the end of the server can reach them.
type Calls struct {
	mu      sync.Mutex
	running map[*session.Session]map[*Running]struct{}
}

// A Running is one such request.
type Running struct {
	calls   *Calls
	session *session.Session
	handle  uint32
	cancel  context.CancelCauseFunc
}

// Start registers a request of a session (nil: one that needs none) and derives
// the context it runs under; the context's cause carries the status code the
// client gets when it ends early. End must be called once.
func (c *Calls) Start(parent context.Context, s *session.Session, handle uint32) (context.Context, *Running) {
	ctx, cancel := context.WithCancelCause(parent)
	r := &Running{calls: c, session: s, handle: handle, cancel: cancel}
	if s == nil {
		return ctx, r
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-s.Done(): // closed between its lookup and now: nobody will cancel this one later
		cancel(uastatus.New(ua.StatusBadSessionClosed, "", nil))
		return ctx, r
	default:
	}
	if c.running == nil {
		c.running = make(map[*session.Session]map[*Running]struct{})
	}
	of := c.running[s]
	if of == nil {
		of = make(map[*Running]struct{})
		c.running[s] = of
	}
	of[r] = struct{}{}
	return ctx, r
}

// End forgets the request and frees its context.
func (r *Running) End() {
	r.cancel(context.Canceled)
	if r.session == nil {
		return
	}
	c := r.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.running[r.session]
	delete(of, r)
	if len(of) == 0 {
		delete(c.running, r.session)
	}
}

// Cancel ends the requests of s that carry the handle and returns their number.
func (c *Calls) Cancel(s *session.Session, handle uint32) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for r := range c.running[s] {
		if r.handle == handle {
			r.cancel(uastatus.New(ua.StatusBadRequestCancelledByClient, "", nil))
			n++
		}
	}
	return n
}

func (c *Calls) cancelSession(s *session.Session, code ua.StatusCode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.running[s] {
		r.cancel(uastatus.New(code, "", nil))
	}
}

// Len returns the number of registered requests of all sessions.
func (c *Calls) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, of := range c.running {
		n += len(of)
	}
	return n
}
