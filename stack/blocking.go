package stack

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// errTimeoutHint is the cause of a context that ended by the client's hint.
var errTimeoutHint = uastatus.New(ua.StatusBadTimeout, "timeout hint", nil)

// runBlocking runs the handler of a request that may block and answers. When
// the request's context ends first (Cancel, the session's end, the timeout hint,
// shutdown) the client is answered then, and what the handler still comes to is
// dropped; the lease is kept until it has come to it.
func (d *dispatcher) runBlocking(r *request) {
	ctx, entry, began := r.ctx, r.Entry, r.Time
	defer func() { d.counters.took(entry, time.Since(began)) }()
	defer d.finish(r)
	var answered atomic.Bool
	early := func() {
		if answered.CompareAndSwap(false, true) {
			d.replyEarly(r.Channel, r, uastatus.Code(context.Cause(ctx)))
		}
	}
	if ctx.Err() != nil { // ended before it ran: it never does
		early()
		return
	}
	gone := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(gone)
		early()
	})
	r.Context, r.MayBlock = ctx, true
	r.Begin(0)
	code := d.handle(&r.Request)
	if !stop() { // the answer has been given or is being given
		<-gone
	}
	if answered.CompareAndSwap(false, true) {
		d.reply(r.Channel, &r.Request, code)
	}
}

// replyEarly answers with a fault while the handler still owns the request.
func (d *dispatcher) replyEarly(ch session.Channel, r *request, code ua.StatusCode) {
	f := service.Request{RequestID: r.RequestID, Entry: r.Entry, Header: r.Header, Time: r.Time, Now: r.Now, Session: r.Session}
	d.reply(ch, &f, code)
	f.Reset()
}
