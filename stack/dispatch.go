package stack

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// A dispatcher takes complete messages from the channels and sees to it that
// each request is answered exactly once. It implements securechannel.Handler.
type dispatcher struct {
	srv       *Server
	table     *service.Table
	set       *service.Set
	admission Admission
	decoding  uabinary.Limits
	maxReply  int // bytes of a response when the client names no limit

	requests  sync.Pool     // of *request
	executing chan struct{} // run slots of requests on their own goroutines
	base      context.Context
	halt      context.CancelCauseFunc // ends base with BadServerHalted
	blocking  group                   // the goroutines of blocking requests
	draining  atomic.Bool             // shutting down: nothing new starts
	channels  atomic.Int64
	parked    atomic.Int64 // Publish requests that wait; see Server.answered
	maxParked int64
	counters  *counters
}

// A request is a service.Request with what the dispatcher keeps beside it.
type request struct {
	service.Request
	arrival Arrival
}

// noCaller stands in where there is no session.
var noCaller = addressspace.Caller{Anonymous: true}

// Opened implements securechannel.Handler.
func (d *dispatcher) Opened(ch *securechannel.Channel) { d.channels.Add(1) }

// Closed implements securechannel.Handler.
func (d *dispatcher) Closed(ch *securechannel.Channel, reason transport.CloseReason) {
	d.channels.Add(-1)
	d.set.Calls().CancelOwner(ch, ua.StatusBadSecureChannelClosed)
	d.set.Sessions.ChannelClosed(ch)
}

// Message implements securechannel.Handler.
func (d *dispatcher) Message(ch *securechannel.Channel, m *securechannel.Message) {
	r := d.requests.Get().(*request)
	r.Channel, r.RequestID = ch, m.RequestID
	r.Time = m.Received
	r.Now = uabinary.FromTime(r.Time)
	entry, code := d.route(ch, r, m.Body)
	if code != ua.StatusOK {
		d.refuse(ch, r, entry, code)
		return
	}
	r.Entry = entry
	a := &r.arrival
	*a = Arrival{Service: entry, Channel: ch, Session: r.Session, Size: len(m.Body), Blocking: entry.MayBlock}
	if code := d.admission.Admit(a); code != ua.StatusOK {
		r.RetryHint = a.RetryAfter
		d.refuse(ch, r, entry, code)
		return
	}
	switch {
	case entry.MayBlock:
		d.spawn(ch, r, m)
		return
	case entry.MayPark:
		m.Park() // before an answer can overtake it
	}
	r.Begin(0)
	code = d.handle(&r.Request)
	if r.Deferred() {
		d.admission.Release(a)
		a.Blocking = true
		if code := d.admission.Admit(a); code != ua.StatusOK {
			r.RetryHint = a.RetryAfter
			d.refuse(ch, r, entry, code)
			return
		}
		d.spawn(ch, r, m)
		return
	}
	if r.Parked {
		d.parked.Add(1)
		d.count(&r.Request, ua.StatusOK)
	} else {
		d.reply(ch, &r.Request, code)
	}
	d.admission.Release(a)
	d.done(r)
}

// route reads the header and checks, in this order: whether there is such a
// service, whether the channel may use it, and the session.
func (d *dispatcher) route(ch *securechannel.Channel, r *request, body []byte) (*service.Entry, ua.StatusCode) {
	r.Body.Reset(body, &d.decoding)
	typeID := r.Body.TypeID()
	r.Header = r.Body.RequestHeader()
	if err := r.Body.Err(); err != nil {
		return nil, uastatus.Code(err)
	}
	entry := d.table.Lookup(typeID)
	r.Limit = d.limit(ch.MaxResponseSize())
	r.Caller = &noCaller
	switch {
	case ch.DiscoveryOnly() && (entry == nil || !entry.OnDiscoveryChannel):
		// OPC 10000-4 §5.5.1: the discovery services only
		return entry, ua.StatusBadSecurityPolicyRejected
	case entry == nil || !entry.Supported():
		return entry, ua.StatusBadServiceUnsupported
	case entry.MayPark && d.parked.Load() >= d.maxParked:
		return entry, uastatus.BadServerTooBusy
	case d.draining.Load() && entry.MayBlock:
		return entry, d.drained(entry)
	case entry.NeedsSession:
		s, code := d.set.Sessions.Lookup(ch, r.Header.AuthenticationToken, r.Time)
		if code != ua.StatusOK {
			return entry, code
		}
		r.Session, r.Caller = s, s.Caller()
		if most := int(s.MaxResponseMessageSize()); most > 0 && most < r.Limit {
			r.Limit = most
		}
	}
	return entry, ua.StatusOK
}

// drained is what requests that could take long get while the server shuts down:
// whoever wants to establish a session is told that the server is busy, the
// others that it has ended. What is answered at once goes on, so that clients
// see the ServerStatus of a server that is about to end.
func (d *dispatcher) drained(e *service.Entry) ua.StatusCode {
	if e.Kind == service.KindEstablish {
		return uastatus.BadServerTooBusy
	}
	return ua.StatusBadServerHalted
}

func (d *dispatcher) limit(peer int) int {
	if peer > 0 && peer < d.maxReply {
		return peer
	}
	return d.maxReply
}

// handle runs the handler. A panic is a fault of ours: the request is answered
// with BadInternalError and the log gets the rest.
func (d *dispatcher) handle(r *service.Request) (code ua.StatusCode) {
	defer func() {
		if v := recover(); v != nil {
			d.srv.log.Error("request handler panicked", "service", r.Entry.Name, "panic", v, "stack", string(debug.Stack()))
			code = ua.StatusBadInternalError
		}
	}()
	return r.Entry.Handle(d.set, r)
}

// reply sends the response, or the fault that code stands for.
func (d *dispatcher) reply(ch session.Channel, r *service.Request, code ua.StatusCode) {
	if code == ua.StatusOK && r.Full() {
		code = ua.StatusBadResponseTooLarge
	}
	if code != ua.StatusOK {
		if code == uastatus.BadServerTooBusy {
			d.busy(ch, r)
		}
		r.Fault(code)
	}
	d.count(r, code)
	err := ch.Reply(r.RequestID, r.Out)
	if err != nil && code == ua.StatusOK && (errors.Is(err, ua.StatusBadResponseTooLarge) || errors.Is(err, ua.StatusBadTCPMessageTooLarge)) {
		r.Fault(ua.StatusBadResponseTooLarge)
		err = ch.Reply(r.RequestID, r.Out)
	}
	if err != nil { // the channel is gone, and with it whoever waited
		d.counters.lost.Add(1)
	}
}

// keepAfterHint is how much longer than its hint a client that was refused a
// session finds its channel (see securechannel.Channel.KeepUntil).
const keepAfterHint = 5 * time.Second

// busy gives every refusal for want of capacity a hint, and keeps the channel of
// a client that was told to come back.
func (d *dispatcher) busy(ch session.Channel, r *service.Request) {
	if r.RetryHint == 0 {
		r.RetryHint = busyRetry
		if d.draining.Load() {
			r.RetryHint = drainRetry
		}
	}
	if k, ok := ch.(interface{ KeepUntil(time.Time) }); ok && r.Entry != nil && r.Entry.Kind == service.KindEstablish {
		k.KeepUntil(r.Time.Add(r.RetryHint + keepAfterHint))
	}
}

// count counts a request for the server and its session.
func (d *dispatcher) count(r *service.Request, code ua.StatusCode) {
	d.counters.service(r.Entry, code)
	if r.Session != nil && r.Entry != nil {
		r.Session.Count(r.Entry.Counter, service.Failed(code))
	}
}

// refuse answers a request that was not admitted.
func (d *dispatcher) refuse(ch session.Channel, r *request, e *service.Entry, code ua.StatusCode) {
	r.Entry = e
	d.reply(ch, &r.Request, code)
	d.done(r)
}

// done gives the request back to the pool.
func (d *dispatcher) done(r *request) {
	r.Reset()
	r.arrival = Arrival{}
	d.requests.Put(r)
}

// spawn runs a request that may block on a goroutine of its own. The message
// leaves the read batch, so that its neighbours' answers do not wait for it.
func (d *dispatcher) spawn(ch *securechannel.Channel, r *request, m *securechannel.Message) {
	m = m.Detach()
	r.Body.Reset(m.Body, &d.decoding)
	r.Body.TypeID()
	r.Header = r.Body.RequestHeader()
	d.blocking.Go(func() {
		defer m.Release()
		defer d.done(r)
		defer d.admission.Release(&r.arrival)
		d.runBlocking(ch, r)
	})
}

// errTimeoutHint is the cause of a context that ended by the client's hint.
var errTimeoutHint = uastatus.New(ua.StatusBadTimeout, "timeout hint", nil)

// runBlocking waits for a run slot, runs the handler and answers. When the
// request's context ends first (Cancel, the session's end, the timeout hint,
// shutdown) the client is answered then, and what the handler still comes to is
// dropped.
func (d *dispatcher) runBlocking(ch *securechannel.Channel, r *request) {
	defer func() { d.counters.took(r.Entry, time.Since(r.Time)) }()
	var owner service.Owner = ch
	if r.Session != nil {
		owner = r.Session
	}
	base := d.base
	if hint := time.Duration(r.Header.TimeoutHint) * time.Millisecond; hint > 0 {
		var cancel context.CancelFunc
		base, cancel = context.WithDeadlineCause(base, r.Time.Add(hint), errTimeoutHint)
		defer cancel()
	}
	ctx, running := d.set.Calls().Start(base, owner, r.Header.RequestHandle)
	defer running.End()
	var answered atomic.Bool
	early := func() {
		if answered.CompareAndSwap(false, true) {
			d.replyEarly(ch, r, uastatus.Code(context.Cause(ctx)))
		}
	}
	if r.Entry.Kind != service.KindEstablish { // those have a limit of their own
		select {
		case d.executing <- struct{}{}:
			defer func() { <-d.executing }()
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil { // ended while it waited: it never runs
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
		d.reply(ch, &r.Request, code)
	}
}

// replyEarly answers with a fault while the handler still owns the request.
func (d *dispatcher) replyEarly(ch session.Channel, r *request, code ua.StatusCode) {
	f := service.Request{RequestID: r.RequestID, Entry: r.Entry, Header: r.Header, Time: r.Time, Now: r.Now, Session: r.Session}
	d.reply(ch, &f, code)
	f.Reset()
}
