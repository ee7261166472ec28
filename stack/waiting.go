package stack

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/internal/stacksize"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// waiting is a fair queue with a count that costs nothing to look at. Requests
// that may block wait apart from those that do not: neither must stand in the
// other's way, because they wait for different things.
//
// A request in it has left its connection's goroutine (apart, detached) and is
// ended by exactly one of those who take it out: a runner, the end of its
// context, or one who gives its place to somebody else.
type waiting struct {
	queue *isolation.Queue[*request]
	n     atomic.Int64 // of entries, or of those about to be pushed
	run   func(*request) bool
}

func newWaiting(fifo bool, run func(*isolation.Lease) isolation.Reason) waiting {
	return waiting{
		queue: isolation.NewQueue[*request](fifo),
		run:   func(r *request) bool { return run(&r.lease) == isolation.Granted },
	}
}

// any reports whether somebody waits. Newcomers queue up behind them.
func (w *waiting) any() bool { return w.n.Load() > 0 }

// pop takes the next request for which there is a place to run.
func (w *waiting) pop() *request {
	e := w.queue.Pop(func(e *isolation.Entry[*request]) bool { return w.run(e.Value) })
	if e == nil {
		return nil
	}
	w.n.Add(-1)
	return e.Value
}

// claimPlace admits a request to the queue. When that is full, of requests or of
// their bytes, a caller that holds less than its fair share gets the place of the
// newest request of whoever holds most.
func (d *dispatcher) claimPlace(r *request, bytes int64) isolation.Reason {
	stage, reason := d.provider.AdmitQueued(&r.lease, r.owner, bytes, r.Entry.MayPark)
	var amount int64
	switch {
	case reason != isolation.Capacity:
		return reason
	case stage == isolation.RequestQueue:
		amount = 1
	case stage == isolation.RequestQueueBytes:
		amount = bytes
	default:
		return reason
	}
	most, under := d.provider.UnderFairShare(r.owner, stage, amount)
	if !under {
		return reason
	}
	holds := func(newest *isolation.Entry[*request]) int64 {
		if newest.Value.lease.Amount(stage) < amount {
			return 0 // its place would not do
		}
		return d.provider.OwnerUsed(newest.Owner, stage)
	}
	first, second := &d.short, &d.slow
	if r.Entry.MayBlock {
		first, second = second, first
	}
	for _, w := range [...]*waiting{first, second} {
		e := w.queue.Displace(r.owner, most, holds)
		if e == nil {
			continue
		}
		w.n.Add(-1)
		victim := e.Value
		victim.lease.Release() // the place is wanted at once
		_, reason = d.provider.AdmitQueued(&r.lease, r.owner, bytes, r.Entry.MayPark)
		victim.RetryHint = d.workHint()
		d.end(victim, uastatus.BadServerTooBusy)
		d.blocking.leave()
		return reason
	}
	return reason
}

// apart takes a request off its connection's goroutine and runs it on one of
// its own. Its lease holds the place to run; w is where the next one is taken
// from when this one is done, nil for none.
func (d *dispatcher) apart(r *request, m carrier, w *waiting) {
	d.detach(r, m.detach())
	d.blocking.enter()
	go d.runner(w, r)
}

// detach gives a request a message and a context of its own.
func (d *dispatcher) detach(r *request, m carrier) {
	r.m = m
	r.Body.Reset(m.body(), &d.decoding)
	r.Body.TypeID()
	r.Header = r.Body.RequestHeader()
	var owner service.Owner = r.ch
	if r.Session != nil {
		owner = r.Session
	}
	base := d.base
	if hint := time.Duration(r.Header.TimeoutHint) * time.Millisecond; hint > 0 {
		base, r.cancel = context.WithDeadlineCause(base, r.Time.Add(hint), errTimeoutHint)
	}
	if m.c != nil {
		base = r.endWith(m.c, base)
	}
	if r.Entry.Kind == service.KindEstablish {
		base = context.WithValue(base, establishing{}, r)
	}
	r.ctx, r.running = d.set.Calls().Start(base, owner, r.Header.RequestHandle)
}

// errNobodyWaits is the cause of a context that ended because the client of a
// call stopped waiting.
var errNobodyWaits = uastatus.New(ua.StatusBadRequestCancelledByClient, "client stopped waiting", nil)

// endWith derives a context that ends with the call's.
func (r *request) endWith(c *call, base context.Context) context.Context {
	ctx, end := context.WithCancelCause(base)
	stop := context.AfterFunc(c.Context(), func() { end(errNobodyWaits) })
	timeout := r.cancel
	r.cancel = func() {
		stop()
		end(context.Canceled)
		if timeout != nil {
			timeout()
		}
	}
	return ctx
}

// wait puts a request, whose lease holds a place in the queue, there.
func (d *dispatcher) wait(r *request, m carrier, w *waiting) {
	if w == &d.short {
		d.detach(r, m.queue()) // its neighbours' answers go out with its own
	} else {
		d.detach(r, m.detach())
	}
	d.blocking.enter()
	d.enqueue(r, w)
}

// enqueue makes a detached request wait.
func (d *dispatcher) enqueue(r *request, w *waiting) {
	r.waited = true
	e := &isolation.Entry[*request]{Value: r, Owner: r.owner}
	ctx, ch := r.ctx, r.ch // once it is pushed, r belongs to whoever takes e out
	context.AfterFunc(ctx, func() { d.abandon(w, e, ctx) })
	w.n.Add(1)
	w.queue.Push(e)
	if ctx.Err() != nil {
		d.abandon(w, e, ctx)
	}
	select {
	case <-ch.Done(): // nobody may call hangUp any more
		d.hangUp(w, ch)
	default:
	}
	d.pump(w)
}

// hangUp ends the requests that wait and whose channel has ended: nobody would
// read their answers, and others want their places.
func (d *dispatcher) hangUp(w *waiting, ch channel) {
	if !w.any() {
		return
	}
	for _, e := range w.queue.RemoveAll(func(e *isolation.Entry[*request]) bool { return e.Value.ch == ch }) {
		w.n.Add(-1)
		d.end(e.Value, ua.StatusBadSecureChannelClosed)
		d.blocking.leave()
	}
}

// abandon answers a request whose context ended while it waited.
func (d *dispatcher) abandon(w *waiting, e *isolation.Entry[*request], ctx context.Context) {
	if w.queue.Remove(e) {
		w.n.Add(-1)
		d.end(e.Value, uastatus.Code(context.Cause(ctx)))
		d.blocking.leave()
	}
}

// end answers a request that never ran.
func (d *dispatcher) end(r *request, code ua.StatusCode) {
	d.reply(r.Channel, &r.Request, code)
	d.finish(r)
}

// pump starts runners while there are requests and places for them.
func (d *dispatcher) pump(w *waiting) {
	for {
		r := w.pop()
		if r == nil {
			return
		}
		go d.runner(w, r)
	}
}

// runner runs a request that has a place, and then those that wait, as long as
// there are places. Each request counts in d.blocking from its detach to the
// moment at which the runner has the next one.
func (d *dispatcher) runner(w *waiting, r *request) {
	stacksize.Grow()
	for r != nil {
		if r.waited {
			d.drained.served()
		}
		if code := d.revalidate(r); code != ua.StatusOK {
			if code == uastatus.BadServerTooBusy {
				r.RetryHint = d.workHint()
			}
			d.end(r, code)
		} else if w == &d.short {
			d.runShort(r)
		} else {
			d.runBlocking(r)
		}
		r = nil
		if w != nil {
			r = w.pop()
		}
		d.blocking.leave()
	}
}

// revalidate looks at a request again that has waited: what it was admitted for
// may have changed.
func (d *dispatcher) revalidate(r *request) ua.StatusCode {
	if !r.waited {
		return ua.StatusOK
	}
	if r.ctx.Err() != nil {
		return uastatus.Code(context.Cause(r.ctx))
	}
	select {
	case <-r.ch.Done():
		return ua.StatusBadSecureChannelIDInvalid
	default:
	}
	if s := r.Session; s != nil {
		switch {
		case !s.Activated(), s.Channel() != r.Channel:
			return ua.StatusBadSessionIDInvalid
		case s.Caller() != r.Caller: // activated again, for another user or with other locales
			return uastatus.BadServerTooBusy
		}
	}
	if !d.owners.unchanged(r) {
		if r.Session != nil {
			d.owners.forget(r.Session)
		}
		return uastatus.BadServerTooBusy
	}
	return ua.StatusOK
}

// runShort runs a request that does not block, after it has waited.
func (d *dispatcher) runShort(r *request) {
	r.Begin(0)
	var code ua.StatusCode
	if r.Entry.MayPark {
		code = d.handleParking(r, r.m)
	} else {
		code = d.handleShort(r)
	}
	switch {
	case r.Deferred():
		d.moveOn(r)
		return
	case r.Parked:
		d.count(&r.Request, ua.StatusOK)
	default:
		d.reply(r.Channel, &r.Request, code)
	}
	d.finish(r)
}

// moveOn sends a request that has waited for a run slot, and turns out to
// block, on to where such requests run: after a second wait, if it must be.
func (d *dispatcher) moveOn(r *request) {
	r.m = r.m.detach()
	r.Body.Reset(r.m.body(), &d.decoding)
	r.Body.TypeID()
	r.Body.RequestHeader()
	if !d.slow.any() && r.lease.Execute() == isolation.Granted {
		r.waited = false // what has changed since a moment ago was looked at
		d.blocking.enter()
		go d.runner(&d.slow, r)
		return
	}
	if reason := r.lease.Enqueue(); reason != isolation.Granted {
		d.refuse(r, d.overloaded(r, reason))
		return
	}
	d.blocking.enter()
	d.enqueue(r, &d.slow)
}

// parked keeps the leases of requests that wait for something to report. The
// engine says when each was answered, possibly before Publish has returned.
type parked struct {
	mu     sync.Mutex
	leases map[parkedKey]*parkedLease
	free   *parkedLease
}

type parkedKey struct {
	ch session.Channel
	id uint32
}

// parkedLease is a lease in the map; a client that uses a request id twice has
// several under one key.
type parkedLease struct {
	lease isolation.Lease
	next  *parkedLease
}

// keep moves what a parked request keeps out of its lease.
func (p *parked) keep(key parkedKey, l *isolation.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.free
	if e == nil {
		e = new(parkedLease)
	} else {
		p.free, e.next = e.next, nil
	}
	l.Keep(&e.lease)
	if p.leases == nil {
		p.leases = make(map[parkedKey]*parkedLease)
	}
	e.next = p.leases[key]
	p.leases[key] = e
}

// release returns one lease under the key.
func (p *parked) release(key parkedKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.leases[key]
	if e == nil {
		return
	}
	if e.next != nil {
		p.leases[key] = e.next
	} else {
		delete(p.leases, key)
	}
	e.lease.Release()
	e.next, p.free = p.free, e
}

// handleParking runs a handler that may park its request, which came in m.
func (d *dispatcher) handleParking(r *request, m carrier) ua.StatusCode {
	key := parkedKey{r.Channel, r.RequestID}
	reservation, code := d.reserveAcknowledgements(r)
	if code != ua.StatusOK {
		return code
	}
	d.parked.keep(key, &r.lease)
	code = d.handle(&r.Request)
	if reservation != nil { // the request may be parked by now: all that it changes is done
		reservation.Release()
	}
	if !r.Parked {
		d.parked.release(key)
	} else if m.c != nil {
		m.c.parked(r.Session)
	}
	return code
}

// drain measures how fast requests leave the queue.
type drain struct {
	mu    sync.Mutex
	since time.Time
	count int
	last  float64 // per second; 0 = not measured yet
}

// presumedDrain is the rate in requests per second until one was measured.
const presumedDrain = 200

func (m *drain) served() {
	m.mu.Lock()
	m.count++
	m.mu.Unlock()
}

// rate is the measured one, or the presumed one. waiting is how many wait now:
// while nobody does, how many have left the queue says nothing.
func (m *drain) rate(now time.Time, waiting int) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	passed := now.Sub(m.since)
	switch {
	case m.since.IsZero() || passed > 10*time.Second: // nothing was refused for long: begin anew
		m.since, m.count, m.last = now, 0, 0
	case passed < time.Second:
	case waiting == 0:
		m.since, m.count, m.last = now, 0, 0
	default:
		// Nothing at all in a second is slower than anything that could be measured.
		m.last = max(float64(m.count), 0.1) / passed.Seconds()
		m.since, m.count = now, 0
	}
	if m.last == 0 {
		return presumedDrain
	}
	return m.last
}
