package transport

import (
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// ConnectionLimiter is a rate limiter of physical connections that a host may
// supply in the place of the Gate's own; it is used as it is. AllowConnection
// is asked exactly once per accepted socket; when it refuses, wait is the time
// until it may not, or 0.
type ConnectionLimiter interface {
	AllowConnection(remote netip.Addr) (ok bool, wait time.Duration)
}

// GateOptions configure a Gate; the zero value works.
type GateOptions struct {
	// MaxConnections bounds the connections of all listeners together, in
	// handshake or not; 0 = 2,010, negative = no bound. It is lowered, with a
	// warning, to what the process may open less 64 descriptors for
	// everything else.
	MaxConnections int

	// ConnectionsPerSecond and ConnectionBurst are the token bucket of the
	// whole server: one token per accepted connection, never refunded.
	// 0 or less: 500 per second, burst 1,000.
	ConnectionsPerSecond float64
	ConnectionBurst      int
	// ConnectionsUnlimited switches the bucket off.
	ConnectionsUnlimited bool
	// Limiter replaces the bucket; nil = the bucket.
	Limiter ConnectionLimiter

	// PoliteRefusalsPerSecond bounds the refused peers that are told
	// BadTcpServerTooBusy; the rest is just closed. 0 = 2,000, negative = none.
	PoliteRefusalsPerSecond int

	// HelloTimeout decides when a connection without OpenSecureChannel may be
	// reclaimed; 0 = 10 s. It should be that of the Limits.
	HelloTimeout time.Duration

	// Logger; nil = slog.Default().
	Logger *slog.Logger
}

// RefusalReason says why a connection was not admitted.
type RefusalReason uint8

// The refusal reasons.
const (
	RefusedNone RefusalReason = iota
	RefusedStopped
	RefusedCapacity
	RefusedRate
	RefusedListener // the listener's own cap
	refusals
)

// String is a short fixed text, fit for a metric's label.
func (r RefusalReason) String() string {
	return [...]string{"admitted", "stopped", "capacity", "rate", "listener"}[min(r, refusals-1)]
}

// Refusal is what Admit returns for a connection that it does not take.
type Refusal struct {
	Reason     RefusalReason
	RetryAfter time.Duration // when coming back makes sense; 0 = unknown
	Polite     bool          // the peer may be told, within the bound on such answers
}

// Gate admits physical connections, for all listeners of a server, before any
// byte is read and before TLS. The order of its steps is the contract: stopped,
// classify, Connection stage, Handshake stage, rate limiter, the listener's own
// cap; the connection starts its deadline after that. A connection refused for
// capacity may be admitted in the place of one that does nothing (reclaim.go).
//
// Here the two stages are plain counters under one lock and every remote
// address is the same owner.
type Gate struct {
	max      int
	hello    time.Duration
	limiter  ConnectionLimiter
	polite   *rate.Limiter // nil = never polite
	admitted atomic.Uint64
	refused  [refusals]atomic.Uint64
	reclaims atomic.Uint64

	mu         sync.Mutex
	stopped    bool
	retryAfter time.Duration // told while stopped
	used       int           // Connection stage
	handshakes int           // Handshake stage
	lingering  int           // reclaimed ones whose close has not returned
	phases     [phases]list
}

// NewGate returns a Gate, or an error that names the bad option.
func NewGate(o GateOptions) (*Gate, error) {
	if o.ConnectionsPerSecond <= 0 {
		o.ConnectionsPerSecond = 500
	}
	if o.ConnectionBurst <= 0 {
		o.ConnectionBurst = 1000
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = 2010
	}
	if o.HelloTimeout < 0 {
		return nil, fmt.Errorf("transport: GateOptions.HelloTimeout is %v, need 0 or more", o.HelloTimeout)
	}
	if o.HelloTimeout == 0 {
		o.HelloTimeout = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if n := connectionsWithin(descriptorLimit()); n > 0 && o.MaxConnections > n {
		o.Logger.Warn("MaxConnections lowered: the process may not open more files (ulimit -n)", "wanted", o.MaxConnections, "possible", n)
		o.MaxConnections = n
	}
	g := &Gate{max: o.MaxConnections, hello: o.HelloTimeout, limiter: o.Limiter}
	if g.limiter == nil && !o.ConnectionsUnlimited {
		g.limiter = &bucket{rate.NewLimiter(rate.Limit(o.ConnectionsPerSecond), o.ConnectionBurst)}
	}
	if n := o.PoliteRefusalsPerSecond; n >= 0 {
		if n == 0 {
			n = 2000
		}
		g.polite = rate.NewLimiter(rate.Limit(n), n)
	}
	return g, nil
}

// descriptorReserve is kept free for logs, certificates, the admin interface and
// for refusing: a server without a descriptor cannot even say that it is full.
const descriptorReserve = 64

// connectionsWithin is the number of connections that a limit of descriptors
// leaves room for; 0 = no bound known.
func connectionsWithin(limit int) int {
	switch {
	case limit <= 0:
		return 0
	case limit > 2*descriptorReserve:
		return limit - descriptorReserve
	}
	return limit / 2
}

// bucket is the plain limiter: one token per connection, never refunded.
type bucket struct{ l *rate.Limiter }

func (b *bucket) AllowConnection(netip.Addr) (bool, time.Duration) {
	now := time.Now()
	if b.l.AllowN(now, 1) {
		return true, 0
	}
	missing := 1 - b.l.TokensAt(now)
	return false, time.Duration(missing / float64(b.l.Limit()) * float64(time.Second))
}

// Port is a listener's share in a Gate: its own cap on connections. The zero
// value has none.
type Port struct {
	Max  int // 0 = no cap of its own
	used int // guarded by Gate.mu
}

// Admission is the lease of one admitted connection: Connection and Handshake
// stage. Its methods are safe for concurrent use.
type Admission struct {
	gate   *Gate
	port   *Port
	victim Victim

	// guarded by gate.mu
	phase      phase
	since      time.Time // of the phase
	prev, next *Admission
	handshake  bool // holds the Handshake stage
	connection bool // holds the Connection stage
	lingers    bool // was reclaimed, its close has not returned
}

// Admit decides about an accepted socket. A nil Admission means refused.
func (g *Gate) Admit(remote netip.AddrPort, port *Port) (*Admission, Refusal) {
	now := time.Now()
	g.mu.Lock()
	if g.stopped {
		wait := g.retryAfter
		g.mu.Unlock()
		return nil, g.refuse(RefusedStopped, wait)
	}
	// Classification: the owner is decided here, from remote alone.
	fits := g.fits()
	reclaimable := fits || g.candidate(now) != nil
	g.mu.Unlock()
	if !reclaimable {
		return nil, g.refuse(RefusedCapacity, time.Second)
	}

	// The limiter is asked exactly once, only when the stages can be had.
	if g.limiter != nil {
		if ok, wait := g.limiter.AllowConnection(remote.Addr()); !ok {
			return nil, g.refuse(RefusedRate, wait)
		}
	}

	var evicted *Admission
	g.mu.Lock()
	if g.stopped {
		wait := g.retryAfter
		g.mu.Unlock()
		return nil, g.refuse(RefusedStopped, wait)
	}
	if port.Max > 0 && port.used >= port.Max {
		// The cap of the listener can be met by reclaiming, too.
		if evicted = g.candidateOf(now, port); evicted == nil {
			g.mu.Unlock()
			return nil, g.refuse(RefusedListener, time.Second)
		}
	} else if !g.fits() {
		if evicted = g.candidate(now); evicted == nil {
			g.mu.Unlock()
			return nil, g.refuse(RefusedCapacity, time.Second)
		}
	}
	if evicted != nil {
		g.takeOver(evicted)
	}
	a := &Admission{gate: g, port: port, handshake: true, connection: true}
	g.used++
	g.handshakes++
	port.used++
	a.enter(phaseHello, now)
	g.mu.Unlock()

	if evicted != nil {
		g.reclaims.Add(1)
		evicted.victim.Reclaim()
	}
	g.admitted.Add(1)
	return a, Refusal{}
}

func (g *Gate) fits() bool { return g.max < 0 || g.used < g.max }

func (g *Gate) refuse(r RefusalReason, wait time.Duration) Refusal {
	g.refused[r].Add(1)
	return Refusal{Reason: r, RetryAfter: wait, Polite: g.polite != nil && g.polite.Allow()}
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

// Release gives everything back, once, when the physical close has returned.
func (a *Admission) Release() {
	g := a.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	a.completeHandshake()
	if a.connection {
		a.connection = false
		g.used--
		a.port.used--
	}
	if a.lingers {
		a.lingers = false
		g.lingering--
	}
	a.enter(phaseGone, time.Time{})
}

// Stop refuses every connection from now on; peers are told to come back after
// retryAfter (0 = not told).
func (g *Gate) Stop(retryAfter time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped, g.retryAfter = true, retryAfter
}

// Usage is a snapshot of the Gate's counters.
type Usage struct {
	Connections, Handshakes, MaxConnections int
	Admitted, Reclaimed                     uint64
	Refused                                 map[RefusalReason]uint64
}

// Usage returns the counters.
func (g *Gate) Usage() Usage {
	g.mu.Lock()
	u := Usage{Connections: g.used, Handshakes: g.handshakes, MaxConnections: g.max}
	g.mu.Unlock()
	u.Admitted, u.Reclaimed = g.admitted.Load(), g.reclaims.Load()
	u.Refused = make(map[RefusalReason]uint64)
	for r := range g.refused {
		if n := g.refused[r].Load(); n > 0 {
			u.Refused[RefusalReason(r)] = n
		}
	}
	return u
}
