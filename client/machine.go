package client

import (
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/gopcua/opcua/ua"
)

// step is what a session is doing: the state of its machine, and at the same
// time the action that the machine asks for. Only one is under way at a time,
// so there is only ever one recovery.
type step uint8

const (
	stepIdle      step = iota
	stepWait           // until the next attempt; there is no connection
	stepOpen           // a secure channel, after discovery when it is needed
	stepActivate       // the old session on the new channel
	stepCreate         // a new session
	stepTransfer       // the subscriptions of the old session to the new one
	stepRepublish      // what is missing of each subscription
	stepRecreate       // the subscriptions that the server does not have any more
	stepOnline         // publish, keep alive, serve callers
	stepClosed
)

var stepNames = [...]string{"idle", "wait", "open", "activate", "create", "transfer", "republish", "recreate", "online", "closed"}

func (s step) String() string { return stepNames[s] }

// outcome says how a step ended, or what happened while online.
type outcome uint8

const (
	outcomeStart             outcome = iota // Connect was called
	outcomeDone                             // the step succeeded; in stepWait, the time is over
	outcomeBroken                           // the connection failed, or could not be made
	outcomeRefused                          // the server answered, with a bad ServiceResult or nonsense
	outcomeSessionLost                      // the server does not know the session any more
	outcomeSubscriptionsLost                // the session is fine, a subscription is not
	outcomeRetry                            // the time for another look at lost subscriptions has come
	outcomeClose                            // Close was called
)

var outcomeNames = [...]string{"start", "done", "broken", "refused", "session lost", "subscriptions lost", "retry", "close"}

func (o outcome) String() string { return outcomeNames[o] }

// event is an outcome with what the machine needs to know of it.
type event struct {
	outcome       outcome
	code          ua.StatusCode // of a failure; Good when it has none
	hint          time.Duration // the server's retry-after
	subscriptions int           // that the session has
	lost          int           // of them, that the server does not have
	denied        int           // of them, that an older session still has
}

// action is what is to be done next.
type action struct {
	step  step
	delay time.Duration // stepWait: how long; stepOpen: before it; stepOnline: until outcomeRetry, 0 = never
	// dropSession: the server does not have the session, or will not take it back.
	dropSession bool
	// gaveUp: closed because the policy allows no further attempt.
	gaveUp bool
}

// maxActivations is how often in a row a connection may die while the old
// session is activated before a new one is made; the subscriptions come over by
// transfer, so nothing is lost by it.
const maxActivations = 3

// breath is what the server gets to notice the end of the old connection before
// the new one: some let a session move only from a connection that has gone.
const breath = 100 * time.Millisecond

// transferRetry is the time between two requests for subscriptions that the server
// believes to be in use.
const transferRetry = 5 * time.Second

// machine decides how a session is brought up and back (OPC 10000-4 §6.7,
// Re-establishing subscriptions). It has no clock, no lock and does nothing.
type machine struct {
	step     step
	session  bool // there is one that the server may still have
	transfer bool // the subscriptions may still be with an older session
	failures int  // of activation in a row, by broken connections
	online   time.Time
	delays   *reconnect.State
	settled  time.Duration
}

func newMachine(d reconnect.Delays) *machine {
	m := &machine{delays: reconnect.NewState(d)}
	m.settled = m.delays.Settled
	if m.settled <= 0 {
		m.settled = 30 * time.Second
	}
	return m
}

// next takes what happened in the current step and returns what to do.
func (m *machine) next(e event, now time.Time) action {
	if m.step == stepClosed || e.outcome == outcomeClose {
		m.step = stepClosed
		return action{step: stepClosed}
	}
	switch m.step {
	case stepIdle, stepWait:
		return m.do(stepOpen)
	case stepOpen:
		if e.outcome != outcomeDone {
			return m.again(e, false)
		}
		if m.session {
			return m.do(stepActivate)
		}
		return m.do(stepCreate)
	case stepActivate:
		return m.activated(e, now)
	case stepCreate:
		if e.outcome != outcomeDone {
			return m.again(e, false)
		}
		m.session, m.failures = true, 0
		if e.subscriptions == 0 {
			m.transfer = false
			return m.resume(now, 0)
		}
		m.transfer = true
		return m.do(stepTransfer)
	case stepTransfer:
		switch {
		case e.outcome == outcomeDone:
			m.transfer = e.denied > 0
			return m.do(stepRepublish)
		case e.outcome == outcomeRefused && !reconnect.IsBusy(e.code):
			// A server without the service, or one that will not have it.
			m.transfer = false
			return m.do(stepRecreate)
		}
		return m.again(e, e.outcome == outcomeSessionLost)
	case stepRepublish:
		switch {
		case e.outcome != outcomeDone:
			return m.again(e, e.outcome == outcomeSessionLost)
		case e.lost > 0:
			return m.do(stepRecreate)
		}
		return m.resume(now, 0)
	case stepRecreate:
		switch {
		case e.outcome != outcomeDone:
			return m.again(e, e.outcome == outcomeSessionLost)
		case e.lost > 0: // refused: online without them, and another try later
			return m.resume(now, m.later(e))
		}
		return m.resume(now, 0)
	case stepOnline:
		return m.lost(e, now)
	}
	return m.again(e, false)
}

func (m *machine) do(s step) action {
	m.step = s
	return action{step: s}
}

func (m *machine) resume(now time.Time, retry time.Duration) action {
	m.failures = 0
	if m.online.IsZero() {
		m.online = now
	}
	m.delays.Connected(now)
	return m.stay(retry)
}

// stay is online with another look at the subscriptions after a time, 0: never.
func (m *machine) stay(retry time.Duration) action {
	if m.transfer && (retry == 0 || retry > transferRetry) {
		retry = transferRetry
	}
	m.step = stepOnline
	return action{step: stepOnline, delay: retry}
}

func (m *machine) activated(e event, now time.Time) action {
	switch e.outcome {
	case outcomeDone:
		m.failures = 0
		switch {
		case e.subscriptions == 0:
			m.transfer = false
			return m.resume(now, 0)
		case m.transfer:
			return m.do(stepTransfer)
		}
		return m.do(stepRepublish)
	case outcomeBroken:
		m.failures++
		if m.failures < maxActivations {
			return m.again(e, false)
		}
		return m.again(e, true)
	}
	if reconnect.IsBusy(e.code) { // the session is not at fault
		return m.again(e, false)
	}
	m.drop()
	return action{step: m.do(stepCreate).step, dropSession: true}
}

func (m *machine) drop() { m.session, m.failures = false, 0 }

// lost is what ends the online step.
func (m *machine) lost(e event, now time.Time) action {
	settled := now.Sub(m.online) >= m.settled
	if e.outcome == outcomeSubscriptionsLost || e.outcome == outcomeRetry {
		if e.outcome == outcomeRetry || settled {
			if settled && e.outcome != outcomeRetry { // what is refused still goes on counting
				m.delays.Lost(now)
			}
			m.online = now // another loss is looked at once only when this lasts
			if m.transfer {
				return m.do(stepTransfer)
			}
			return m.do(stepRepublish)
		}
		d := m.later(e)
		m.delays.Connected(now)
		return m.stay(d)
	}
	m.delays.Lost(now)
	m.online = time.Time{}
	drop := e.outcome == outcomeSessionLost
	if settled && e.hint == 0 && (drop || !reconnect.IsBusy(e.code)) {
		if !drop {
			m.step = stepOpen
			return action{step: stepOpen, delay: breath}
		}
		m.drop()
		return action{step: m.do(stepCreate).step, dropSession: true}
	}
	return m.again(e, drop)
}

// later is when a subscription is looked at again, with the session online. It is
// never 0, and not given up: the session is fine.
func (m *machine) later(e event) time.Duration {
	d, more := m.delays.Failed(e.code, e.hint)
	if !more {
		d = m.settled
	}
	return max(d, breath)
}

// again waits before the next attempt, or ends it all.
func (m *machine) again(e event, drop bool) action {
	if drop {
		m.drop()
	}
	m.online = time.Time{}
	d, more := m.delays.Failed(e.code, e.hint)
	if !more {
		a := m.giveUp()
		a.dropSession = drop
		return a
	}
	m.step = stepWait
	return action{step: stepWait, delay: max(d, 0), dropSession: drop}
}

func (m *machine) giveUp() action {
	m.step = stepClosed
	return action{step: stepClosed, gaveUp: true}
}
