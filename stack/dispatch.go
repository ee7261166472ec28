package stack

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/admission/retry"
	"github.com/breakwater-ua/breakwater/isolation"
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

	requests sync.Pool // of *request
	base     context.Context
	halt     context.CancelCauseFunc // ends base with BadServerHalted
	blocking group                   // requests that wait or run apart from their connection
	draining atomic.Bool             // shutting down: nothing new starts
	channels atomic.Int64
	counters *counters

	provider *isolation.Provider
	planner  *retry.Planner
	owners   *owners
	cost     func(size int) int64 // of a request, in bytes
	short    waiting              // for a run slot
	slow     waiting              // for RequestExecution
	parked   parked               // Publish requests that wait for something to report
	drained  drain                // how fast waiting requests go

	sessionless sessionless
	governors   governors
	governed    bool // by the command governor
}

// A request is a service.Request with what the dispatcher keeps beside it.
type request struct {
	service.Request
	arrival Arrival

	ch    channel
	owner *isolation.Owner
	lease isolation.Lease
	size  int // bytes of the request

	// Only of requests that have left their connection's goroutine.
	m       carrier // detached
	ctx     context.Context
	cancel  context.CancelFunc // of the timeout hint; nil without one
	running *service.Running
	waited  bool // was in a queue

	sessionless bool                   // holds a place of dispatcher.sessionless
	reservation *admission.Reservation // nil without one
}

// noCaller stands in where there is no session.
var noCaller = addressspace.Caller{Anonymous: true}

// Opened implements securechannel.Handler.
func (d *dispatcher) Opened(ch *securechannel.Channel) { d.opened(ch) }

func (d *dispatcher) opened(ch channel) {
	d.channels.Add(1)
	d.owners.opened(ch)
}

// Closed implements securechannel.Handler.
func (d *dispatcher) Closed(ch *securechannel.Channel, _ transport.CloseReason) {
	d.closed(ch)
	d.set.Sessions.ChannelClosed(ch)
}

func (d *dispatcher) closed(ch channel) {
	d.channels.Add(-1)
	d.owners.closed(ch)
	d.set.Calls().CancelOwner(ch, ua.StatusBadSecureChannelClosed)
	d.hangUp(&d.short, ch)
	d.hangUp(&d.slow, ch)
}

// Message implements securechannel.Handler.
func (d *dispatcher) Message(ch *securechannel.Channel, m *securechannel.Message) {
	d.take(ch, carrier{m: m}, m.RequestID, m.Body, m.Received)
}

// take finds the session and the owner of a request from its header, admits it,
// and runs it here while there is a run slot and the handler does not block.
func (d *dispatcher) take(ch channel, m carrier, id uint32, body []byte, received time.Time) {
	r := d.requests.Get().(*request)
	r.Channel, r.RequestID, r.ch = ch, id, ch
	r.Time, r.size = received, len(body)
	r.Now = uabinary.FromTime(r.Time)
	entry, code := d.route(ch, r, body)
	r.Entry = entry
	if code == ua.StatusOK && d.admission != nil {
		a := &r.arrival
		*a = Arrival{Service: entry, Channel: ch, Session: r.Session, Size: len(body), Blocking: entry.MayBlock}
		if code = d.admission.Admit(a); code != ua.StatusOK {
			r.RetryHint = a.RetryAfter
			*a = Arrival{}
		}
	}
	if code != ua.StatusOK {
		d.refuse(r, code)
		return
	}
	binding := r.Session                                        // whom the request acts for
	if !entry.NeedsSession && entry.Kind != service.KindOther { // the store checks these tokens, later
		binding = d.set.Sessions.Peek(ch, r.Header.AuthenticationToken)
	}
	if d.governed || m.c != nil {
		if code := d.settle(r, m, binding, len(body)); code != ua.StatusOK {
			d.refuse(r, code)
			return
		}
	}
	r.owner = d.owners.of(ch, binding, kindOf(entry))
	d.admit(r, m, len(body))
}

// admit takes what the request needs and sends it on its way.
func (d *dispatcher) admit(r *request, m carrier, size int) {
	bytes := d.cost(size)
	var reason isolation.Reason
	saturated := false
	switch {
	case r.Entry.Kind == service.KindEstablish: // SessionEstablishment bounds the work, and the bytes those who ask for it
		reason = d.provider.Admit(&r.lease, r.owner, []isolation.Claim{{Stage: isolation.RequestQueueBytes, Amount: bytes}})
		if reason == isolation.Granted {
			d.apart(r, m, nil)
			return
		}
	case r.Entry.MayBlock:
		if saturated = d.slow.any(); !saturated {
			if reason, saturated = d.provider.AdmitBlocking(&r.lease, r.owner, bytes); reason == isolation.Granted {
				d.apart(r, m, &d.slow)
				return
			}
		}
	case r.Entry.MayPark:
		if saturated = d.short.any(); !saturated {
			if reason, saturated = d.provider.AdmitParking(&r.lease, r.owner, bytes); reason == isolation.Capacity && !saturated && d.set.Subscriptions.MakeRoom(r.Session) {
				reason, saturated = d.provider.AdmitParking(&r.lease, r.owner, bytes)
			}
			if reason == isolation.Granted {
				d.inline(r, m)
				return
			}
		}
	default:
		if saturated = d.short.any(); !saturated {
			if reason, saturated = d.provider.AdmitInline(&r.lease, r.owner, bytes); reason == isolation.Granted {
				d.inline(r, m)
				return
			}
		}
	}
	if saturated || reason == isolation.Capacity && r.Entry.Kind != service.KindEstablish {
		if reason = d.claimPlace(r, bytes); reason == isolation.Granted {
			w := &d.short
			if r.Entry.MayBlock {
				w = &d.slow
			}
			d.wait(r, m, w)
			return
		}
	}
	d.refuse(r, d.overloaded(r, reason))
}

// inline runs a request on the goroutine that read it.
func (d *dispatcher) inline(r *request, m carrier) {
	r.Begin(0)
	var code ua.StatusCode
	if r.Entry.MayPark {
		m.leave() // before an answer can overtake it
		code = d.handleParking(r, m)
	} else {
		code = d.handleShort(r)
	}
	if r.Deferred() {
		d.goApart(r, m)
	} else {
		if r.Parked {
			d.count(&r.Request, ua.StatusOK)
		} else {
			d.reply(r.Channel, &r.Request, code)
			if d.counters.of(r.Entry).sampled() {
				d.counters.took(r.Entry, time.Since(r.Time))
			}
		}
		d.finish(r)
	}
	if d.short.any() {
		d.pump(&d.short)
	}
}

// goApart continues a request whose handler found, on its connection's
// goroutine, that it may block.
func (d *dispatcher) goApart(r *request, m carrier) {
	if !d.slow.any() && r.lease.Execute() == isolation.Granted {
		d.apart(r, m, &d.slow)
		return
	}
	if reason := r.lease.Enqueue(); reason != isolation.Granted {
		d.refuse(r, d.overloaded(r, reason))
		return
	}
	d.wait(r, m, &d.slow)
}

// route reads the header and checks, in this order: whether there is such a
// service, whether the channel may use it, and the session.
func (d *dispatcher) route(ch channel, r *request, body []byte) (*service.Entry, ua.StatusCode) {
	r.Body.Reset(body, &d.decoding)
	typeID := r.Body.TypeID()
	unread := r.Body.Err() != nil
	r.Header = r.Body.RequestHeader()
	entry := d.table.Lookup(typeID)
	if err := r.Body.Err(); err != nil {
		if entry == nil && !unread { // it may not even be a request
			return nil, ua.StatusBadServiceUnsupported
		}
		return nil, uastatus.Code(err)
	}
	r.Limit = d.limit(ch.MaxResponseSize())
	r.Caller = &noCaller
	switch {
	case ch.DiscoveryOnly() && (entry == nil || !entry.OnDiscoveryChannel):
		// OPC 10000-4 §5.5.1: the discovery services only
		return entry, ua.StatusBadSecurityPolicyRejected
	case entry == nil || !entry.Supported():
		return entry, ua.StatusBadServiceUnsupported
	case d.draining.Load() && entry.MayBlock:
		return entry, d.halted(entry)
	case entry.OnDiscoveryChannel:
		return entry, d.srv.discovery.admit(ch, &r.Request)
	case entry.NeedsSession && r.Header.AuthenticationToken.IsNull() && d.sessionless.admits(ch, entry):
		code := d.sessionless.enter()
		r.sessionless = code == ua.StatusOK
		return entry, code
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
func (d *dispatcher) halted(e *service.Entry) ua.StatusCode {
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
	err := d.send(ch, r, code)
	if err != nil && code == ua.StatusOK && (errors.Is(err, ua.StatusBadResponseTooLarge) || errors.Is(err, ua.StatusBadTCPMessageTooLarge)) {
		r.Fault(ua.StatusBadResponseTooLarge)
		err = d.send(ch, r, ua.StatusBadResponseTooLarge)
	}
	if err != nil { // the channel is gone, and with it whoever waited
		d.counters.lost.Add(1)
	}
	if code == uastatus.BadServerTooBusy {
		d.counters.refused.Add(1)
	}
}

// send hands the response to the channel, and the hint to one that can carry it
// beside the response.
func (d *dispatcher) send(ch session.Channel, r *service.Request, code ua.StatusCode) error {
	if code == uastatus.BadServerTooBusy {
		if l, ok := ch.(*logicalChannel); ok {
			return l.answer(r.RequestID, r.Out, r.RetryHint)
		}
	}
	return ch.Reply(r.RequestID, r.Out)
}

// keepAfterHint is how much longer than its hint a client that was refused a
// session finds its channel (see securechannel.Channel.KeepUntil).
const keepAfterHint = 5 * time.Second

// busy gives every refusal for want of capacity a hint, and keeps the channel of
// a client that was told to come back, and its session if it has got that far.
func (d *dispatcher) busy(ch session.Channel, r *service.Request) {
	if r.RetryHint == 0 {
		r.RetryHint = d.workHint()
		if d.draining.Load() {
			r.RetryHint = drainRetry
		}
	}
	if r.Entry == nil || r.Entry.Kind != service.KindEstablish {
		return
	}
	until := r.Time.Add(r.RetryHint + keepAfterHint)
	if k, ok := ch.(interface{ KeepUntil(time.Time) }); ok {
		k.KeepUntil(until)
	}
	d.srv.sessions.KeepUntil(ch, r.Header.AuthenticationToken, until)
}

// count counts a request for the server and its session.
func (d *dispatcher) count(r *service.Request, code ua.StatusCode) {
	d.counters.service(r.Entry, code)
	if r.Session != nil && r.Entry != nil {
		r.Session.Count(r.Entry.Counter, service.Failed(code))
	}
}

// overloaded gives a refused request its hint and the status code of the reason.
func (d *dispatcher) overloaded(r *request, reason isolation.Reason) ua.StatusCode {
	code := statusOf(reason)
	if code != uastatus.BadServerTooBusy {
		return code
	}
	if r.Entry.Kind == service.KindEstablish {
		r.RetryHint = d.planner.Slot(keyOf(r.owner), r.Time)
	} else {
		r.RetryHint = d.workHint()
	}
	return code
}

// workHint is how long what waits takes at the rate at which it goes.
func (d *dispatcher) workHint() time.Duration {
	waiting := int(d.short.n.Load() + d.slow.n.Load())
	return d.planner.Work(waiting+1, d.drained.rate(time.Now(), waiting))
}

// refuse answers a request that was not admitted.
func (d *dispatcher) refuse(r *request, code ua.StatusCode) {
	d.reply(r.Channel, &r.Request, code)
	d.finish(r)
}

// finish gives everything back that a request held. It is called exactly once
// for each, after the answer.
func (d *dispatcher) finish(r *request) {
	r.lease.Release()
	if r.arrival.Service != nil {
		d.admission.Release(&r.arrival)
		r.arrival = Arrival{}
	}
	if r.running != nil {
		r.running.End()
		if r.cancel != nil {
			r.cancel()
		}
		r.running, r.cancel, r.ctx = nil, nil, nil
	}
	if r.sessionless {
		r.sessionless = false
		d.sessionless.leave()
	}
	if r.reservation != nil {
		r.reservation.Release()
		r.reservation = nil
	}
	r.m.release()
	r.m = carrier{}
	r.Reset()
	r.ch, r.owner, r.waited = nil, nil, false
	d.requests.Put(r)
}
