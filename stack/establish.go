package stack

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// establishment admits CreateSession and ActivateSession to their certificates
// and private-key operations: isolation first, then a bound on how many are in
// flight, behind which some may wait, oldest first.
type establishment struct {
	srv *Server

	mu       sync.Mutex
	inFlight int
	limit    int // 0 = none
	queue    int
	shadow   bool
	waiting  []chan struct{}

	refused  atomic.Uint64
	shadowed atomic.Uint64 // admitted in shadow mode
	took     histogram
	finished atomic.Uint64
}

// establishing is the context key of the *request that asks for admission.
type establishing struct{}

func (s *Server) newEstablishment() *establishment {
	e := &establishment{srv: s}
	e.configure(&s.opts)
	return e
}

func (e *establishment) configure(o *Options) {
	r := &o.RateLimits
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shadow = o.Shadow
	e.limit, e.queue = r.MaxConcurrentSessionEstablishment, r.SessionEstablishmentQueueLimit
	if r.Disabled || r.EstablishmentUnlimited {
		e.limit = 0
	}
	e.grant()
}

// admit implements session.Gate.
func (e *establishment) admit(ctx context.Context, _ session.Channel) (func(), ua.StatusCode) {
	r, _ := ctx.Value(establishing{}).(*request)
	if r == nil { // not through our dispatcher
		return nil, ua.StatusBadInternalError
	}
	var lease isolation.Lease
	if reason := e.srv.provider.TryAcquire(&lease, isolation.SessionEstablishment, r.owner, 1); reason != isolation.Granted {
		return nil, e.refuse(r, reason)
	}
	if code := e.enter(ctx, r); code != ua.StatusOK {
		lease.Release()
		return nil, code
	}
	began := time.Now()
	return sync.OnceFunc(func() {
		lease.Release()
		e.leave()
		e.took.add(time.Since(began))
	}), ua.StatusOK
}

// preference implements session.Options.Preference.
func (e *establishment) preference(ctx context.Context) int {
	if r, _ := ctx.Value(establishing{}).(*request); r != nil {
		return preference(r.owner)
	}
	return 0
}

// refuse gives the client a place in line.
func (e *establishment) refuse(r *request, reason isolation.Reason) ua.StatusCode {
	e.refused.Add(1)
	code := statusOf(reason)
	if code == uastatus.BadServerTooBusy {
		r.RetryHint = e.srv.planner.Slot(keyOf(r.owner), time.Now())
	}
	return code
}

// enter takes one of the places in flight, after waiting for it if it may.
func (e *establishment) enter(ctx context.Context, r *request) ua.StatusCode {
	e.mu.Lock()
	if e.limit <= 0 || e.inFlight < e.limit && len(e.waiting) == 0 {
		e.inFlight++
		e.mu.Unlock()
		return ua.StatusOK
	}
	if len(e.waiting) >= e.queue {
		if e.shadow {
			e.inFlight++
			e.mu.Unlock()
			e.shadowed.Add(1)
			return ua.StatusOK
		}
		e.mu.Unlock()
		return e.refuse(r, isolation.Capacity)
	}
	turn := make(chan struct{})
	e.waiting = append(e.waiting, turn)
	e.mu.Unlock()
	e.srv.planner.Pressed(time.Now())
	select {
	case <-turn:
		return ua.StatusOK
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, w := range e.waiting {
		if w == turn {
			e.waiting = append(e.waiting[:i], e.waiting[i+1:]...)
			return uastatus.Code(context.Cause(ctx))
		}
	}
	e.inFlight-- // the turn came with the end
	e.grant()
	return uastatus.Code(context.Cause(ctx))
}

func (e *establishment) leave() {
	e.mu.Lock()
	e.inFlight--
	e.grant()
	e.mu.Unlock()
}

// grant lets waiters in while there is room. mu is held.
func (e *establishment) grant() {
	for len(e.waiting) > 0 && (e.limit <= 0 || e.inFlight < e.limit) {
		close(e.waiting[0])
		e.waiting = e.waiting[1:]
		e.inFlight++
	}
}

// usage returns how many are in flight and how many wait.
func (e *establishment) usage() (inFlight, waiting int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inFlight, len(e.waiting)
}

// completed counts a session that was activated: this is the work whose rate
// the planner hands out.
func (e *establishment) completed() {
	e.finished.Add(1)
	e.srv.planner.Completed(time.Now())
}
