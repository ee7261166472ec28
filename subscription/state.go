package subscription

// The Subscription state machine of OPC 10000-4 §5.14.1.2 (State table), without time, requests and messages: those belong
// to the publisher. CREATING is over before a machine exists.

type state uint8

const (
	stateNormal    state = iota // cycles between two messages
	stateLate                   // something to send, but no Publish request
	stateKeepAlive              // nothing to send; counting the cycles until a keep-alive is due
	stateClosed
)

type event uint8

const (
	eventTimer   event = iota // the publishing timer expired
	eventPublish              // a Publish request arrived or became free
	eventTouch                // another service named the subscription
)

// input is what a step needs to know of the surroundings.
type input struct {
	enabled   bool // PublishingEnabled
	available bool // NotificationsAvailable
	queued    bool // PublishingReqQueued; for eventTimer only
}

type action uint8

const (
	actionNone      action = iota // eventPublish: the request is left to others
	actionNotify                  // ReturnNotifications with one Publish request
	actionKeepAlive               // ReturnKeepAlive with one Publish request
	actionExpire                  // the lifetime ended: IssueStatusChangeNotification, delete
)

type machine struct {
	state state
	sent  bool // MessageSent: a message or keep-alive has been sent since creation
	more  bool // MoreNotifications: the last message did not hold all
	// keepAlive counts down the cycles to the next keep-alive, lifetime the cycles without a Publish request to the end.
	keepAlive, lifetime       uint32
	maxKeepAlive, maxLifetime uint32

	lateCount, keepAliveCount uint32 // how often the states were entered
}

func newMachine(maxKeepAlive, maxLifetime uint32) machine {
	return machine{keepAlive: maxKeepAlive, maxKeepAlive: maxKeepAlive, lifetime: maxLifetime, maxLifetime: maxLifetime}
}

// waiting reports whether the next Publish request is for this subscription.
func (m *machine) waiting(enabled bool) bool {
	return m.state == stateLate || m.state == stateNormal && enabled && m.more
}

// touch is the step for every other service that names the subscription (rows 18 to 24).
func (m *machine) touch() { m.lifetime = m.maxLifetime }

func (m *machine) step(ev event, in input) action {
	before := m.state
	act := m.next(ev, in)
	if m.state != before {
		switch m.state {
		case stateLate:
			m.lateCount++
		case stateKeepAlive:
			m.keepAliveCount++
		}
	}
	return act
}

func (m *machine) next(ev event, in input) action {
	if m.state == stateClosed {
		return actionNone
	}
	if !in.available { // what was left over may have been deleted meanwhile
		m.more = false
	}
	pending := in.enabled && in.available
	switch ev {
	case eventTouch: // rows 18 to 24
		m.touch()
	case eventPublish:
		return m.publish(in, pending)
	case eventTimer:
		// The lifetime is the number of expirations "without a Publish request being available" (CreateSubscription,
		// requestedLifetimeCount), so a cycle with one starts it afresh, whether it takes the request or not.
		if in.queued {
			m.lifetime = m.maxLifetime
		} else if m.lifetime--; m.lifetime == 0 { // row 27
			m.state = stateClosed
			return actionExpire
		}
		return m.timer(in, pending)
	}
	return actionNone
}

func (m *machine) publish(in input, pending bool) action {
	switch m.state {
	case stateNormal:
		if in.enabled && m.more { // row 5
			m.lifetime = m.maxLifetime
			return actionNotify
		}
	case stateLate:
		m.lifetime = m.maxLifetime
		m.sent = true
		if pending { // row 10
			m.state = stateNormal
			return actionNotify
		}
		m.state = stateKeepAlive // row 11
		m.keepAlive = m.maxKeepAlive
		return actionKeepAlive
	}
	return actionNone // rows 4, 13: it is queued
}

func (m *machine) timer(in input, pending bool) action {
	switch m.state {
	case stateNormal, stateKeepAlive:
		switch {
		case pending && in.queued: // rows 6, 14
			m.state, m.sent = stateNormal, true
			return actionNotify
		case pending || !m.sent && !in.queued: // rows 8, 17
			m.state = stateLate
			return actionNone
		case !m.sent: // row 7: the first cycle tells the client that the subscription works
			m.sent = true
			return actionKeepAlive
		}
		if m.state == stateNormal { // row 9; this is the first cycle without a message
			m.state = stateKeepAlive
			m.keepAlive = m.maxKeepAlive
		}
		switch {
		case m.keepAlive > 1: // row 16
			m.keepAlive--
		case in.queued: // row 15
			m.keepAlive = m.maxKeepAlive
			return actionKeepAlive
		default: // row 17
			m.state = stateLate
		}
	case stateLate: // row 12
	}
	return actionNone
}
