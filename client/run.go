package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

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
		return s.outcome(s.timed(func(ctx context.Context) error {
			err := s.activateSession(ctx, s.conn, s.server)
			if err == nil {
				s.active, s.stale = s.conn, false
			}
			return err
		}))
	case stepCreate:
		return s.outcome(s.create())
	case stepTransfer:
		return s.with(s.outcome(s.timed(s.transferAll)))
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
	e.lost, e.denied = s.countLost(), s.countDenied()
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
	if s.machine.step == stepActivate || s.machine.step == stepCreate {
		s.reconsider(err, e)
	}
	if e.outcome == outcomeBroken && s.machine.step > stepOpen {
		s.leftBehind()
	}
	return e
}

// leftBehind notes that a connection has ended on which the server had a session
// of ours. It need not know: packets may still be under way, or lost.
func (s *Session) leftBehind() {
	if s.server != nil {
		s.until = time.Now().Add(s.server.timeout)
	}
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
			s.bye(context.Background(), farewellLimit, ss) // leave nothing behind
			return err
		}
		ss.endpoint = s.endpoint.description
		s.server, s.fresh, s.active, s.stale = ss, true, s.conn, false
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
	switch e.outcome {
	case outcomeBroken:
		s.leftBehind()
	case outcomeSessionLost:
		s.until = time.Time{}
	}
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

// farewellLimit bounds a CloseSession that nobody waits for, or that the server may not
// answer because the session is not activated on the connection.
const farewellLimit = time.Second

// bye closes a session at the server, when there is still a connection to do it on.
func (s *Session) bye(ctx context.Context, limit time.Duration, ss *serverSession) {
	if s.conn.failure() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, _ = s.conn.roundTrip(ctx, &ua.CloseSessionRequest{DeleteSubscriptions: true}, ss.token)
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
	limit := farewellLimit
	switch {
	case ctx == nil: // nobody has called Close
		ctx = context.Background()
	case s.active == s.conn:
		limit = s.opts.RequestTimeout
	}
	if s.conn != nil && s.server != nil {
		s.bye(ctx, limit, s.server)
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
	s.aside.Wait() // their connection has gone
	close(s.done)
}
