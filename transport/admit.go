package transport

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
)

// Port is a listener's share in a Gate. The zero value has no cap and tells
// refused peers why.
type Port struct {
	Name   string // of the listener, in Usage; several may share one
	Max    int    // cap on this listener's connections; 0 = none
	Silent bool   // refused peers are just closed: TLS, or a port shared by protocols

	// guarded by Gate.mu
	used   int
	counts *portCounts
}

// portCounts are those of all ports of a name.
type portCounts struct {
	admitted atomic.Uint64
	refused  [refusals]atomic.Uint64
}

// countsOf are the counts of a port.
func (g *Gate) countsOf(p *Port) *portCounts {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.counts == nil {
		if g.ports[p.Name] == nil {
			g.ports[p.Name] = new(portCounts)
		}
		p.counts = g.ports[p.Name]
	}
	return p.counts
}

// Admit decides about an accepted socket in seven steps:
//
//  1. stopped: refused;
//  2. the remote endpoint is classified, once;
//  3. Connection stage, one;
//  4. Handshake stage, one;
//  5. the rate limiters, asked exactly once, and only when 3 and 4 were granted
//     or were refused for capacity while a connection could be reclaimed;
//  6. the listener's own cap;
//  7. the deadline of the handshake, which the transport starts with now.
//
// Refused at 3 or 4 for another reason than capacity, a newcomer costs no token
// and nobody's connection. Refused for capacity, it takes the place of one
// reclaimed connection, and 3 and 4 are tried once more; the token is neither
// asked for again nor returned when that fails.
//
// A nil Admission means refused. When its ExpectsProxyHeader is true, the
// address is a balancer's: the transport reads the header and calls Carried.
func (g *Gate) Admit(remote, local netip.AddrPort, port *Port) (*Admission, Refusal) {
	now := time.Now()
	a := &Admission{gate: g, port: port, counts: g.countsOf(port), remote: remote.Addr(), local: local, proxy: g.proxied(remote.Addr())}
	if wait, stopped := g.isStopped(); stopped {
		return nil, a.refuse(RefusedStopped, wait, now)
	}
	if r := a.classify(remote, local); r != RefusedNone {
		return nil, a.refuse(r, 0, now)
	}
	r, wait := g.enter(a, now, !a.proxy)
	if r != RefusedNone {
		return nil, a.refuse(r, wait, now)
	}
	if !a.proxy {
		a.counts.admitted.Add(1)
	}
	return a, Refusal{}
}

// Carried is the second part of the admission of a connection that came
// through a balancer, once its header is read: steps 1 to 6 for the address
// that it carried. The zero remote is a header of command LOCAL, a connection
// of the balancer's own. With a reason the connection must be closed.
//
// What a classifier proves it proves by the path that the balancer's connection
// took: a claim of more than class Established counts only if the balancer's
// own address has it, too. The carried address alone is nobody's proof.
func (a *Admission) Carried(remote netip.AddrPort) Refusal {
	g, now := a.gate, time.Now()
	if wait, stopped := g.isStopped(); stopped {
		return a.refuse(RefusedStopped, wait, now)
	}
	if remote.IsValid() {
		path := a.claim
		claimed := a.claimed
		a.remote = remote.Addr()
		r := a.classify(remote, a.local)
		if r == RefusedOwner || a.claim.Class != isolation.Established && !(claimed && a.claim == path) {
			r = a.belong(isolation.OwnerClaim{Key: isolation.AddressKey(a.remote)}, false)
		}
		if r != RefusedNone {
			return a.refuse(r, 0, now)
		}
	}
	r, wait := g.enter(a, now, true)
	if r != RefusedNone {
		return a.refuse(r, wait, now)
	}
	a.counts.admitted.Add(1)
	return Refusal{}
}

// classify is step 2.
func (a *Admission) classify(remote, local netip.AddrPort) RefusalReason {
	return a.belong(isolation.ClassifyIngress(a.gate.classifier, remote, local))
}

func (a *Admission) belong(c isolation.OwnerClaim, claimed bool) RefusalReason {
	g := a.gate
	if g.ownerless {
		c.Class = isolation.Established // SharedOnly has no classes, and keeps nothing for one
	}
	var o *isolation.Owner
	r := RefusedNone
	if g.iso != nil {
		var err error
		if o, err = g.iso.Issue(c.Key, c.Class); err != nil {
			g.log.Warn("classifier claimed a connection for an owner that cannot be", "error", err)
			r = RefusedOwner
		}
	}
	g.mu.Lock() // others look at the claim of one that waits for its header
	a.claim, a.claimed, a.owner = c, claimed, o
	g.mu.Unlock()
	return r
}

// enter does steps 3 to 6. Without asking, the limiters are left for later
// unless a connection must be reclaimed, which costs the token.
func (g *Gate) enter(a *Admission, now time.Time, ask bool) (RefusalReason, time.Duration) {
	g.mu.Lock()
	if g.stopped {
		defer g.mu.Unlock()
		return RefusedStopped, g.retryAfter
	}
	again := a.placed // a carried address: it has its place at the port
	a.giveStages()
	r, full := a.stages()
	if r != RefusedNone && r != RefusedCapacity {
		g.mu.Unlock()
		return r, 0
	}
	narrow := !again && a.port.Max > 0 && a.port.used >= a.port.Max
	if r == RefusedCapacity && g.candidate(now, a, full, narrow) == nil {
		g.mu.Unlock()
		return r, 0
	}
	g.mu.Unlock()
	ask = ask || narrow || r == RefusedCapacity

	if ask && !a.asked {
		a.asked = true
		if why, wait := g.allow(a, now); why != RefusedNone {
			g.mu.Lock()
			a.giveStages()
			g.mu.Unlock()
			return why, wait
		}
	}

	g.mu.Lock()
	var evicted *Admission
	r, wait := g.settle(a, now, again, &evicted)
	if r != RefusedNone {
		a.giveStages()
	} else if !again {
		a.placed = true
		a.port.used++
		a.enter(phaseHello, now)
	}
	g.mu.Unlock()
	if evicted != nil {
		g.reclaims.Add(1)
		evicted.victim.Reclaim()
	}
	return r, wait
}

// settle is the second look, after the limiter: what was free may be taken, and
// the other way round. It reclaims at most one connection. g.mu is held.
func (g *Gate) settle(a *Admission, now time.Time, again bool, evicted **Admission) (RefusalReason, time.Duration) {
	if g.stopped {
		return RefusedStopped, g.retryAfter
	}
	r, full := RefusedNone, isolation.Connection
	if !a.staged() {
		if r, full = a.stages(); r != RefusedNone && r != RefusedCapacity {
			return r, 0
		}
	}
	narrow := !again && a.port.Max > 0 && a.port.used >= a.port.Max
	if r == RefusedNone && !narrow {
		return RefusedNone, 0
	}
	v := g.candidate(now, a, full, narrow)
	if v == nil {
		if r == RefusedNone {
			r = RefusedListener
		}
		return r, 0
	}
	g.takeOver(v)
	*evicted = v
	if !a.staged() {
		if r, _ = a.stages(); r != RefusedNone {
			return r, 0
		}
	}
	if !again && a.port.Max > 0 && a.port.used >= a.port.Max {
		return RefusedListener, 0
	}
	return RefusedNone, 0
}

// allow is step 5.
func (g *Gate) allow(a *Admission, now time.Time) (RefusalReason, time.Duration) {
	g.mu.Lock()
	perAddress, limiter, shadow := g.perAddress, g.limiter, g.options.Shadow
	g.mu.Unlock()
	why, wait := g.ask(a, now, perAddress, limiter)
	if why != RefusedNone && shadow {
		g.shadowed[why].Add(1)
		return RefusedNone, 0
	}
	return why, wait
}

// ask asks the limiters in their order.
func (g *Gate) ask(a *Admission, now time.Time, perAddress *isolation.AddressLimiter, limiter limiter) (RefusalReason, time.Duration) {
	if perAddress != nil {
		if ok, wait := perAddress.Allow(now, a.remote); !ok {
			return RefusedAddress, wait
		}
	}
	if limiter != nil {
		if ok, wait := limiter.allow(now, a.remote, a.claim); !ok {
			return RefusedRate, wait
		}
	}
	return RefusedNone, 0
}

// proxied reports whether a header is expected of that address.
func (g *Gate) proxied(remote netip.Addr) bool {
	remote = remote.Unmap().WithZone("")
	return slices.ContainsFunc(g.proxies, func(p netip.Prefix) bool { return p.Contains(remote) })
}

func (g *Gate) isStopped() (retryAfter time.Duration, stopped bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.retryAfter, g.stopped
}

// refuse counts a refusal and finds out what the peer may be told. A place in
// the line is only taken for a peer that will hear of it.
func (a *Admission) refuse(r RefusalReason, wait time.Duration, now time.Time) Refusal {
	g := a.gate
	a.counts.refused[r].Add(1)
	f := Refusal{Reason: r, RetryAfter: wait}
	g.mu.Lock()
	polite, limits := g.polite, g.refusedBy(r)
	if a.placed { // its socket lingers, past its lease
		if g.lingering >= maxLingering {
			polite = nil
		} else if polite != nil && !a.lingers {
			a.lingers = true
			g.lingering++
		}
	}
	g.mu.Unlock()
	if a.port.Silent || polite == nil || !polite.AllowN(now, 1) {
		return f
	}
	f.Polite = true
	g.politely.Add(1)
	switch {
	case r == RefusedStopped && (wait > 0 || g.hint == nil):
	case g.hint != nil:
		key := a.claim.Key
		if key == "" { // stopped, not even classified
			key = isolation.AddressKey(a.remote)
		}
		f.RetryAfter = max(wait, g.hint(key, now, limits))
	case wait == 0:
		f.RetryAfter = time.Second
	}
	return f
}
