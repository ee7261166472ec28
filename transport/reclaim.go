package transport

import (
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
)

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

// A scan that looked at this many connections in vain is not repeated for a
// moment, or a storm against a full server would cost it the time it has left.
const (
	longScan   = 256
	scanPause  = 10 * time.Millisecond
	handshakes = phaseOpening // the last phase that holds the Handshake stage
)

// candidate is the connection to be closed for the newcomer a, or nil: the
// oldest without Hello for a second; else the oldest without OpenSecureChannel
// for HelloTimeout; else the oldest channel that has had no session for a second
// and is not busy. Whose end would make no room is left alone: in another
// listener when the cap is the listener's, past the handshake when that stage is
// full, and those in a floor that the newcomer may not use. The Gate's lock is
// held.
func (g *Gate) candidate(now time.Time, a *Admission, full isolation.Stage, ofPort bool) *Admission {
	// Only a scan for what everybody could use says something about the next.
	general := full == isolation.Connection && !ofPort && a.claim.Class == isolation.Established
	if g.lingering >= maxLingering || general && now.Before(g.barren) {
		return nil
	}
	seen := 0
	for _, c := range [...]struct {
		p    phase
		age  time.Duration
		busy bool // ask
	}{{phaseHello, minIdle, false}, {phaseOpening, g.hello, true}, {phaseIdle, minIdle, true}} {
		if full == isolation.Handshake && c.p > handshakes {
			break
		}
		for v := g.phases[c.p].first; v != nil && now.Sub(v.since) >= c.age; v = v.next {
			seen++
			if v == a || ofPort && v.port != a.port || v.victim == nil || !v.makesRoom(a, full) || c.busy && v.victim.Busy() {
				continue
			}
			return v
		}
	}
	if general && seen >= longScan {
		g.barren = now.Add(scanPause)
	}
	return nil
}

// makesRoom reports whether a could use what v holds of a stage: what is shared
// is everybody's, what came out of a floor is of use to the same kind only.
func (v *Admission) makesRoom(a *Admission, s isolation.Stage) bool {
	if v.gate.iso == nil || a.staged() { // only the listener's cap is in the way
		return true
	}
	l := &v.connectionLease
	if s == isolation.Handshake {
		l = &v.handshakeLease
	}
	return l.Reserved(s) == 0 ||
		v.claim.Class == a.claim.Class && (a.claim.Class != isolation.Trusted || v.claim.Key == a.claim.Key)
}

// takeOver frees the lease of a connection that is about to be reclaimed. The
// Gate's lock is held.
func (g *Gate) takeOver(a *Admission) {
	a.giveStages()
	a.leavePort()
	a.lingers = true
	g.lingering++
	a.enter(phaseGone, time.Time{})
}
