package client

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Session is a session that is kept alive and brought back by itself. Its
// methods may be called concurrently, also from code that handles its
// notifications and states.
//
// While the connection is being brought back, calls wait, up to their context's
// deadline or Options.RequestTimeout. A call that was under way when the
// connection failed gets the error: whether the server has executed it is not
// known, so it is not repeated.
type Session struct {
	opts   Options
	url    *url.URL
	log    *slog.Logger
	states *states
	ctx    context.Context // ends when the session is to end
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it has ended
	wg     sync.WaitGroup

	// Of the goroutine that runs the machine, see run.
	machine  *machine
	endpoint *endpoint
	leaf     []byte // the server's certificate
	public   *rsa.PublicKey
	nonces   nonces
	conn     *conn
	server   *serverSession
	fresh    bool // server is new since the last time online
	was      bool // online at least once
	trouble  error
	release  func() // the place in Options.Gate

	mu       sync.Mutex
	link     *link         // nil: not online
	changed  chan struct{} // closed when link is set, or closed is
	closed   error         // why the session has ended
	farewell context.Context
	subs     map[*Subscription]bool
	byID     map[uint32]*Subscription
	creating int // CreateSubscription calls under way

	publishing publishing
	handles    atomic.Uint32 // client handles of monitored items
}

// link is one time of being online: a channel with an activated session on it.
type link struct {
	conn   *conn
	server *serverSession
	ctx    context.Context
	cancel context.CancelFunc
	kick   chan struct{} // something for the publisher to look at
	over   chan struct{} // closed when it is not the session's link any more

	sessionLost, subscriptionsLost chan event
}

// fault ends the link, or has its subscriptions looked at. Only the first of
// several counts, so there is one recovery however many notice (hostile.md C11).
// Publishing ends at once with the session.
func (l *link) fault(e event) {
	to := l.subscriptionsLost
	if e.outcome == outcomeSessionLost {
		to = l.sessionLost
	}
	select {
	case to <- e:
	default:
	}
	if e.outcome == outcomeSessionLost {
		l.cancel()
	}
}

func (l *link) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// ErrClosed is what calls on a session return that was closed by its user.
var ErrClosed = errors.New("client: session closed")

// Connect finds the server's endpoint, connects, and returns when the session is
// activated. Failed attempts are repeated as Options.Reconnect says, until ctx
// ends or the policy allows no more; an error then wraps the last one, and
// reconnect.ErrGaveUp. ctx is for connecting only: the session ends with Close.
func Connect(ctx context.Context, rawURL string, o Options) (*Session, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	o = o.resolved()
	s := &Session{
		opts: o, url: u, log: o.Logger.With("server", u.Host),
		states:  newStates(time.Now()),
		machine: newMachine(o.Reconnect),
		changed: make(chan struct{}),
		done:    make(chan struct{}),
		subs:    make(map[*Subscription]bool),
		byID:    make(map[uint32]*Subscription),
		release: func() {},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	node := s.states.current()
	s.wg.Go(s.run)
	stop := context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })
	for node.status.State != Online && node.status.State != Closed {
		<-node.ready
		node = node.next
	}
	if node.status.State == Online && stop() {
		return s, nil
	}
	stop()
	s.wg.Wait()
	s.mu.Lock()
	err = s.closed
	s.mu.Unlock()
	return nil, fmt.Errorf("client: connect to %q: %w", rawURL, err)
}

// Close ends the session and its subscriptions at the server, closes the
// connection, and returns when nothing is left. ctx bounds the farewell to the
// server (at most RequestTimeout), not the clean-up.
func (s *Session) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.RequestTimeout)
	defer cancel()
	s.mu.Lock()
	if s.farewell == nil {
		s.farewell = ctx
	}
	s.mu.Unlock()
	s.cancel(ErrClosed)
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.closed, ErrClosed) {
		return nil
	}
	return s.closed
}

// Done is closed when the session has ended, by Close or for good; Err says why.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err is why the session ended: ErrClosed, or an error that wraps
// reconnect.ErrGaveUp. nil while it lives.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Endpoint is the endpoint in use; nil when there is no connection.
func (s *Session) Endpoint() *ua.EndpointDescription {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil {
		return nil
	}
	return s.link.server.endpoint
}

// ID is the SessionId at the server, and the timeout that the server grants;
// nil when there is no connection.
func (s *Session) ID() (*ua.NodeID, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil {
		return nil, 0
	}
	return s.link.server.id, s.link.server.timeout
}

// run drives the machine: it performs one step after the other, so nothing ever
// runs beside a recovery.
func (s *Session) run() {
	e := event{outcome: outcomeStart}
	for {
		if s.ctx.Err() != nil {
			e = event{outcome: outcomeClose}
		}
		e.subscriptions = s.countSubscriptions()
		a := s.machine.next(e, time.Now())
		if a.dropSession {
			s.server = nil
		}
		if a.step == stepClosed {
			s.finish(a)
			return
		}
		e = s.perform(a)
	}
}

func (s *Session) perform(a action) event {
	switch a.step {
	case stepWait:
		return s.wait(a.delay)
	case stepOpen:
		return s.outcome(s.reopen(a.delay))
	case stepActivate:
		return s.outcome(s.timed(func(ctx context.Context) error { return s.activateSession(ctx, s.conn, s.server) }))
	case stepCreate:
		return s.outcome(s.create())
	case stepTransfer:
		return s.outcome(s.timed(s.transferAll))
	case stepRepublish:
		err := s.republishAll(s.ctx)
		return s.with(s.outcome(err))
	case stepRecreate:
		err := s.recreateAll(s.ctx)
		return s.with(s.outcome(err))
	}
	return s.beOnline(a.delay)
}

// with adds the number of subscriptions that are still lost.
func (s *Session) with(e event) event {
	e.lost = s.countLost()
	if e.lost > 0 && e.outcome == outcomeDone && s.trouble != nil {
		e.code, e.hint = reconnect.Signal(s.trouble)
	}
	return e
}

// timed gives a step its time.
func (s *Session) timed(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(s.ctx, s.opts.ConnectTimeout, errStepTimeout)
	defer cancel()
	return f(ctx)
}

var errStepTimeout = uastatus.New(ua.StatusBadTimeout, "client", context.DeadlineExceeded)

// outcome makes an event of how a step ended.
func (s *Session) outcome(err error) event {
	if err == nil {
		return event{outcome: outcomeDone}
	}
	s.trouble = err
	e := event{outcome: outcomeBroken}
	e.code, e.hint = reconnect.Signal(err)
	alive := s.conn != nil && s.conn.failure() == nil
	switch {
	case s.ctx.Err() != nil:
		e.outcome = outcomeClose
	case alive && isSessionLost(e.code) && s.machine.step > stepCreate:
		e.outcome = outcomeSessionLost
	case alive && !errors.Is(err, context.DeadlineExceeded):
		e.outcome = outcomeRefused
	}
	return e
}

// isSessionLost says whether a code means that the server does not know the
// session (any more).
func isSessionLost(code ua.StatusCode) bool {
	switch code {
	case ua.StatusBadSessionIDInvalid, ua.StatusBadSessionClosed, ua.StatusBadSessionNotActivated:
		return true
	}
	return false
}

// isChannelLost says whether a fault means that the server does not know the
// channel (any more), although it still answers on it.
func isChannelLost(code ua.StatusCode) bool {
	switch code {
	case ua.StatusBadSecureChannelIDInvalid, ua.StatusBadSecureChannelClosed, ua.StatusBadSecureChannelTokenUnknown, ua.StatusBadTCPSecureChannelUnknown:
		return true
	}
	return false
}

// isSecurityTrouble says whether a code is about certificates and keys.
func isSecurityTrouble(code ua.StatusCode) bool {
	return reconnect.IsFatal(code) || code == ua.StatusBadSecurityModeInsufficient || code == ua.StatusBadSecurityPolicyRejected
}

func (s *Session) drop() {
	if s.conn != nil {
		s.conn.close()
		s.conn = nil
	}
}

func (s *Session) wait(d time.Duration) event {
	s.drop()
	s.release()
	s.log.Info("session: next attempt", "in", d, "failures", s.machine.delays.Attempt(), "error", s.trouble)
	s.status(Waiting, d)
	_ = pause(s.ctx, d)
	return event{outcome: outcomeDone}
}

// pause waits, at most until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Session) status(st State, retry time.Duration) {
	now := time.Now()
	status := Status{State: st, Since: now, Attempt: s.machine.delays.Attempt()}
	switch st {
	case Waiting:
		status.Retry, status.Err = now.Add(retry), s.trouble
	case Online:
		status.NewSession = s.fresh
	default:
		status.Err = s.trouble
	}
	s.states.set(status)
}

func (s *Session) reopen(after time.Duration) error {
	s.drop()
	if err := pause(s.ctx, after); err != nil {
		return err
	}
	if s.was {
		if s.State().State != Recovering {
			s.status(Recovering, 0)
		}
	} else {
		if s.State().State != Connecting {
			s.status(Connecting, 0)
		}
		s.release()
		release, err := s.opts.Gate.Acquire(s.ctx)
		if err != nil {
			return err
		}
		s.release = release
	}
	c, err := s.open(s.ctx)
	if err != nil {
		return err
	}
	s.conn = c
	return nil
}

func (s *Session) create() error {
	return s.timed(func(ctx context.Context) error {
		ss, err := s.createSession(ctx, s.conn)
		if err != nil {
			return err
		}
		if err := s.activateSession(ctx, s.conn, ss); err != nil {
			if s.conn.failure() == nil && ctx.Err() == nil { // leave nothing behind
				_, _ = s.conn.roundTrip(ctx, &ua.CloseSessionRequest{DeleteSubscriptions: true}, ss.token)
			}
			return err
		}
		ss.endpoint = s.endpoint.description
		s.server, s.fresh = ss, true
		s.publishing.newSession()
		s.conn.publishing = 0
		return nil
	})
}

// beOnline serves until something is wrong.
func (s *Session) beOnline(retry time.Duration) event {
	s.release()
	l := &link{conn: s.conn, server: s.server, kick: make(chan struct{}, 1), over: make(chan struct{}),
		sessionLost: make(chan event, 1), subscriptionsLost: make(chan event, 1)}
	l.ctx, l.cancel = context.WithCancel(s.ctx)
	s.mu.Lock()
	s.link = l
	close(s.changed)
	s.mu.Unlock()
	if st := s.State(); st.State != Online || s.fresh {
		s.status(Online, 0)
		s.log.Info("session: online", "new", s.fresh)
	}
	s.was, s.fresh, s.trouble = true, false, nil
	var wg sync.WaitGroup
	wg.Go(func() { s.keepAlive(l) })
	wg.Go(func() { s.publish(l) })
	e := s.serve(l, retry)
	s.mu.Lock()
	s.link = nil
	s.changed = make(chan struct{})
	s.mu.Unlock()
	close(l.over)
	l.cancel()
	wg.Wait()
	if e.outcome != outcomeRetry && e.outcome != outcomeClose {
		s.log.Info("session: recovering", "because", e.outcome.String(), "error", s.trouble)
		s.status(Recovering, 0)
	}
	return e
}

func (s *Session) serve(l *link, retry time.Duration) event {
	var again <-chan time.Time
	if retry > 0 {
		t := time.NewTimer(retry)
		defer t.Stop()
		again = t.C
	}
	for {
		select {
		case <-s.ctx.Done():
			return event{outcome: outcomeClose}
		case <-l.conn.ctx.Done():
			s.trouble = l.conn.failure()
			e := event{outcome: outcomeBroken}
			e.code, e.hint = reconnect.Signal(s.trouble)
			return e
		case e := <-l.sessionLost:
			s.trouble = e.code
			return e
		case e := <-l.subscriptionsLost:
			if retry > 0 {
				continue // will be looked at anyway
			}
			s.trouble = e.code
			return e
		case <-again:
			return event{outcome: outcomeRetry}
		}
	}
}

// finish ends the session for good.
func (s *Session) finish(a action) {
	cause := context.Cause(s.ctx)
	if cause == nil {
		cause = errors.Join(reconnect.ErrGaveUp, s.trouble)
	} else if !errors.Is(cause, ErrClosed) && s.trouble != nil {
		cause = errors.Join(cause, s.trouble)
	}
	s.mu.Lock()
	ctx := s.farewell
	s.mu.Unlock()
	if ctx != nil && s.conn != nil && s.server != nil && s.conn.failure() == nil {
		_, _ = s.conn.roundTrip(ctx, &ua.CloseSessionRequest{DeleteSubscriptions: true}, s.server.token)
	}
	s.drop()
	s.release()
	s.mu.Lock()
	s.closed = cause
	if s.link == nil {
		close(s.changed)
	}
	subs := s.subs
	s.subs, s.byID = nil, nil
	s.mu.Unlock()
	for sub := range subs {
		sub.end(cause)
	}
	s.cancel(cause)
	if a.gaveUp {
		s.log.Error("session: gave up", "error", s.trouble)
	}
	st := Status{State: Closed, Since: time.Now(), Attempt: s.machine.delays.Attempt()}
	if !errors.Is(cause, ErrClosed) {
		st.Err = cause
	}
	s.states.set(st)
	close(s.done)
}

// online waits for the session to be online.
func (s *Session) online(ctx context.Context) (*link, error) {
	for {
		s.mu.Lock()
		l, changed, closed := s.link, s.changed, s.closed
		s.mu.Unlock()
		switch {
		case closed != nil:
			return nil, fmt.Errorf("client: %w", errors.Join(ua.StatusBadSessionClosed, closed))
		case l != nil && l.ctx.Err() == nil && l.conn.failure() == nil:
			return l, nil
		case l != nil: // it is about to end
			changed = l.over
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err := context.Cause(ctx)
			if st := s.State(); st.Err != nil {
				err = fmt.Errorf("%w while the session is %v: %w", err, st.State, st.Err)
			}
			return nil, fmt.Errorf("client: %w", errors.Join(ua.StatusBadNotConnected, err))
		}
	}
}

// deadline gives a call its time.
func (s *Session) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.opts.RequestTimeout)
}

// Do sends any request of a session service and returns its response. The
// request's header is filled in; what it asks for in ReturnDiagnostics and
// AuditEntryID is kept. A bad ServiceResult is an error that errors.Is finds the
// StatusCode in, and reconnect.Hint the server's retry-after; an answer that is
// not the response to the request is BadUnknownResponse. Requests that belong to
// the session itself (CreateSession, ActivateSession, CloseSession, Publish,
// Republish, TransferSubscriptions) are refused with BadServiceUnsupported.
func (s *Session) Do(ctx context.Context, rq ua.Request) (ua.Response, error) {
	switch rq.(type) {
	case *ua.CreateSessionRequest, *ua.ActivateSessionRequest, *ua.CloseSessionRequest, *ua.PublishRequest,
		*ua.RepublishRequest, *ua.TransferSubscriptionsRequest, *ua.OpenSecureChannelRequest, *ua.CloseSecureChannelRequest, nil:
		return nil, uastatus.New(ua.StatusBadServiceUnsupported, "client", fmt.Errorf("%T is the session's own", rq))
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	l, err := s.online(ctx)
	if err != nil {
		return nil, err
	}
	return l.do(ctx, rq)
}

// do is a call on this link. It notices when the session is gone.
func (l *link) do(ctx context.Context, rq ua.Request) (ua.Response, error) {
	rs, err := l.conn.roundTrip(ctx, rq, l.server.token)
	if err != nil {
		var refused *reconnect.Error
		switch {
		case !errors.As(err, &refused):
		case isSessionLost(refused.Status):
			l.fault(event{outcome: outcomeSessionLost, code: refused.Status})
		case isChannelLost(refused.Status):
			l.conn.fail(err)
		}
	}
	return rs, err
}

// call is Do for one type of response.
func call[T ua.Response](ctx context.Context, s *Session, rq ua.Request) (T, error) {
	msg, err := s.Do(ctx, rq)
	if err != nil {
		var zero T
		return zero, err
	}
	return as[T](msg)
}

func as[T ua.Response](msg ua.Response) (T, error) {
	rs, ok := msg.(T)
	if !ok {
		return rs, unknownResponse("%T", msg)
	}
	return rs, nil
}

// results checks that there is one result for each operation (hostile.md F8).
func results[T any](rq any, got []T, want int) error {
	if len(got) != want {
		return fmt.Errorf("client: %s: %w", service(rq), unknownResponse("%d results for %d operations", len(got), want))
	}
	return nil
}
