package service

import (
	"context"
	"sync"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// An Owner is what a running request ends with: a session or a channel. Owners
// are pointers, compared with ==.
type Owner interface {
	Done() <-chan struct{}
}

// Calls keeps the requests that run on goroutines of their own, by owner, so
// that Cancel, CloseSession and the end of a channel can reach them.
type Calls struct {
	mu      sync.Mutex
	running map[Owner]map[*Running]struct{}
}

// A Running is one such request.
type Running struct {
	calls  *Calls
	owner  Owner
	handle uint32
	cancel context.CancelCauseFunc
}

// Start registers a request and derives the context it runs under; the
// context's cause carries the status code the client gets when it ends early.
// End must be called once.
func (c *Calls) Start(parent context.Context, o Owner, handle uint32) (context.Context, *Running) {
	ctx, cancel := context.WithCancelCause(parent)
	r := &Running{calls: c, owner: o, handle: handle, cancel: cancel}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-o.Done(): // ended between the request's check and now: nobody will cancel this one later
		cancel(uastatus.New(ua.StatusBadSessionClosed, "", nil))
		return ctx, r
	default:
	}
	if c.running == nil {
		c.running = make(map[Owner]map[*Running]struct{})
	}
	of := c.running[o]
	if of == nil {
		of = make(map[*Running]struct{})
		c.running[o] = of
	}
	of[r] = struct{}{}
	return ctx, r
}

// End forgets the request and frees its context.
func (r *Running) End() {
	r.cancel(context.Canceled)
	c := r.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.running[r.owner]
	delete(of, r)
	if len(of) == 0 {
		delete(c.running, r.owner)
	}
}

// Cancel ends the requests of o that carry the handle and returns their number.
func (c *Calls) Cancel(o Owner, handle uint32) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for r := range c.running[o] {
		if r.handle == handle {
			r.cancel(uastatus.New(ua.StatusBadRequestCancelledByClient, "", nil))
			n++
		}
	}
	return n
}

// CancelOwner ends all requests of an owner that has ended.
func (c *Calls) CancelOwner(o Owner, code ua.StatusCode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.running[o] {
		r.cancel(uastatus.New(code, "", nil))
	}
}

// Len returns the number of registered requests.
func (c *Calls) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, of := range c.running {
		n += len(of)
	}
	return n
}
