package transport

import "time"

// Victim is a connection as the Gate sees it.
type Victim interface {
	// Busy reports whether it is in use: an OpenSecureChannel under way, a
	// partial message, a queued write, a request in flight. It is called with
	// the Gate's lock held and must not block or call the Gate.
	Busy() bool
	// Reclaim closes it for a newcomer and returns at once.
	Reclaim()
}

// phase is how far a connection has come, as reclaiming sees it.
type phase uint8

const (
	phaseGone    phase = iota // in no list
	phaseHello                // no Hello yet
	phaseOpening              // Hello, but no OpenSecureChannel
	phaseIdle                 // a channel without session
	phaseInUse                // a channel with a session: never reclaimed
	phases
)

// Reclaimed connections keep their socket until the peer has read why, within a
// bound. Their lease is the newcomer's already, so their number is bounded apart.
const maxLingering = 256

// minIdle protects connections that have only just come so far.
const minIdle = time.Second

// list is a queue of admissions, oldest phase first.
type list struct{ first, last *Admission }

// enter moves a to the end of the phase's list. The Gate's lock is held.
func (a *Admission) enter(p phase, now time.Time) {
	if a.phase == phaseGone && p != phaseHello || a.phase == p {
		return // released, or no change
	}
	if l := &a.gate.phases[a.phase]; a.phase != phaseGone {
		if a.prev != nil {
			a.prev.next = a.next
		} else {
			l.first = a.next
		}
		if a.next != nil {
			a.next.prev = a.prev
		} else {
			l.last = a.prev
		}
		a.prev, a.next = nil, nil
	}
	a.phase, a.since = p, now
	if p == phaseGone {
		return
	}
	l := &a.gate.phases[p]
	if a.prev = l.last; l.last != nil {
		l.last.next = a
	} else {
		l.first = a
	}
	l.last = a
}

// candidate is the connection to be closed for a newcomer, or nil: the oldest
// without Hello for a second; else the oldest without OpenSecureChannel for
// HelloTimeout; else the oldest channel that has had no session for a second
// and is not busy. The Gate's lock is held.
func (g *Gate) candidate(now time.Time) *Admission { return g.candidateOf(now, nil) }

func (g *Gate) candidateOf(now time.Time, port *Port) *Admission {
	if g.lingering >= maxLingering {
		return nil
	}
	for _, c := range [...]struct {
		p    phase
		age  time.Duration
		busy bool // ask
	}{{phaseHello, minIdle, false}, {phaseOpening, g.hello, true}, {phaseIdle, minIdle, true}} {
		for a := g.phases[c.p].first; a != nil && now.Sub(a.since) >= c.age; a = a.next {
			if port != nil && a.port != port || a.victim == nil || c.busy && a.victim.Busy() {
				continue
			}
			return a
		}
	}
	return nil
}

// takeOver frees the lease of a connection that is about to be reclaimed. The
// Gate's lock is held.
func (g *Gate) takeOver(a *Admission) {
	a.completeHandshake()
	a.connection = false
	g.used--
	a.port.used--
	a.lingers = true
	g.lingering++
	a.enter(phaseGone, time.Time{})
}
