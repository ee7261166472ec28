package transport

import (
	"net/netip"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
)

// Admission is the lease of one admitted connection: Connection and Handshake
// stage. Its methods are safe for concurrent use, but for Carried, which comes
// before all others.
type Admission struct {
	gate   *Gate
	counts *portCounts
	port   *Port
	victim Victim

	// Of the admission itself; constant afterwards.
	remote  netip.Addr // whose rate is limited
	local   netip.AddrPort
	claim   isolation.OwnerClaim
	claimed bool // by the classifier
	owner   *isolation.Owner
	proxy   bool // a PROXY header must come first
	asked   bool // the limiters were

	// guarded by gate.mu
	phase      phase
	since      time.Time // of the phase
	prev, next *Admission
	handshake  bool // holds the Handshake stage
	connection bool // holds the Connection stage
	placed     bool // counts at the port
	lingers    bool // was reclaimed, its close has not returned

	connectionLease, handshakeLease isolation.Lease
}

// ExpectsProxyHeader reports whether a PROXY protocol header must come before
// the first byte of the connection proper.
func (a *Admission) ExpectsProxyHeader() bool { return a.proxy }

// Ingress is what the classifier claimed the connection as; the zero value when
// it left it alone.
func (a *Admission) Ingress() isolation.OwnerClaim {
	if !a.claimed {
		return isolation.OwnerClaim{}
	}
	return a.claim
}

// Owner is whose connection it is, as the Gate's Provider issued it; nil without
// a Provider.
func (a *Admission) Owner() *isolation.Owner { return a.owner }

// stages is steps 3 and 4: both or none. full is the stage that was refused.
// The Gate's lock is held.
func (a *Admission) stages() (r RefusalReason, full isolation.Stage) {
	g := a.gate
	if g.iso != nil {
		if r := g.iso.TryAcquire(&a.connectionLease, isolation.Connection, a.owner, 1); r != isolation.Granted {
			return refusalOf(r), isolation.Connection
		}
		if r := g.iso.TryAcquire(&a.handshakeLease, isolation.Handshake, a.owner, 1); r != isolation.Granted {
			a.connectionLease.Release()
			return refusalOf(r), isolation.Handshake
		}
	}
	if g.max >= 0 && g.used >= g.max {
		a.handshakeLease.Release()
		a.connectionLease.Release()
		return RefusedCapacity, isolation.Connection
	}
	a.connection, a.handshake = true, true
	g.used++
	g.handshakes++
	return RefusedNone, 0
}

// staged reports whether the stages are held.
func (a *Admission) staged() bool { return a.connection }

// giveStages gives both stages back. The Gate's lock is held.
func (a *Admission) giveStages() {
	a.completeHandshake()
	if a.connection {
		a.connection = false
		a.gate.used--
	}
	a.connectionLease.Release()
}

// refusalOf maps what a Provider said.
func refusalOf(r isolation.Reason) RefusalReason {
	switch r {
	case isolation.OwnerLimit:
		return RefusedOwnerLimit
	case isolation.OwnerTableFull:
		return RefusedOwnerTable
	case isolation.Capacity:
		return RefusedCapacity
	case isolation.Closed:
		return RefusedStopped
	}
	return RefusedOwner
}

// Bind names the connection that Reclaim closes. It comes before the first
// other method.
func (a *Admission) Bind(v Victim) {
	a.gate.mu.Lock()
	defer a.gate.mu.Unlock()
	a.victim = v
}

// Hello notes that a Hello has come.
func (a *Admission) Hello() { a.move(phaseOpening) }

// CompleteHandshake gives the Handshake stage back: the first OpenSecureChannel
// has succeeded.
func (a *Admission) CompleteHandshake() {
	a.gate.mu.Lock()
	defer a.gate.mu.Unlock()
	a.completeHandshake()
	a.enter(phaseIdle, time.Now())
}

func (a *Admission) completeHandshake() {
	if a.handshake {
		a.handshake = false
		a.gate.handshakes--
	}
	a.handshakeLease.Release()
}

// SetReclaimable says whether an established connection may be reclaimed: it
// may while its channel carries no session.
func (a *Admission) SetReclaimable(yes bool) {
	if yes {
		a.move(phaseIdle)
	} else {
		a.move(phaseInUse)
	}
}

func (a *Admission) move(p phase) {
	a.gate.mu.Lock()
	defer a.gate.mu.Unlock()
	a.enter(p, time.Now())
}

// Release gives everything back, once, when the physical close has returned,
// with or without an error.
func (a *Admission) Release() {
	g := a.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	a.giveStages()
	a.leavePort()
	if a.lingers {
		a.lingers = false
		g.lingering--
	}
	a.enter(phaseGone, time.Time{})
}

func (a *Admission) leavePort() {
	if a.placed {
		a.placed = false
		a.port.used--
	}
}
