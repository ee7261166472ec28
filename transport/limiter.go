package transport

import (
	"net/netip"
	"time"

	"github.com/breakwater-ua/breakwater/admission/retry"
	"github.com/breakwater-ua/breakwater/isolation"
	"golang.org/x/time/rate"
)

// limiter is the rate of new connections: one of the three below. It is asked
// at most once per accepted socket, and what it gave is never returned.
type limiter interface {
	allow(now time.Time, remote netip.Addr, owner isolation.OwnerClaim) (ok bool, wait time.Duration)
	// perSecond is how many it allows in the long run; 0 = nobody knows.
	perSecond() float64
}

// limit chooses the limiter; g.mu is held. One whose values stay is kept.
func (g *Gate) limit(o *GateOptions) error {
	mode := isolation.SharedOnly
	if o.Isolation != nil {
		mode = o.Isolation.Plan().Mode
	}
	g.ownerless = o.Isolation != nil && mode == isolation.SharedOnly
	if was := &g.options; g.limiter != nil && o.Limiter == nil && was.Limiter == nil && !o.ConnectionsUnlimited &&
		was.ConnectionsPerSecond == o.ConnectionsPerSecond && was.ConnectionBurst == o.ConnectionBurst {
		return nil
	}
	switch {
	case o.Limiter != nil:
		g.tokens, g.limiter = nil, host{o.Limiter}
	case o.ConnectionsUnlimited:
		g.tokens, g.limiter = nil, nil
	case mode == isolation.Balanced || mode == isolation.TrustedReservations:
		var trusted []string
		for _, t := range o.Isolation.Plan().Trusted {
			trusted = append(trusted, t.Key)
		}
		l, err := isolation.NewTokenLimiter(o.ConnectionsPerSecond, o.ConnectionBurst, trusted)
		if err != nil {
			return err
		}
		g.tokens, g.limiter = l, reserved{l}
	default:
		g.tokens, g.limiter = nil, &bucket{rate.NewLimiter(rate.Limit(o.ConnectionsPerSecond), o.ConnectionBurst)}
	}
	return nil
}

// Tokens is what the reserved-token limiter has left, for metrics; nil when
// another limiter, or none, is in use.
func (g *Gate) Tokens() *isolation.TokenLimiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tokens
}

// bucket is the plain limiter of SharedOnly and FairShare.
type bucket struct{ l *rate.Limiter }

func (b *bucket) allow(now time.Time, _ netip.Addr, _ isolation.OwnerClaim) (bool, time.Duration) {
	if b.l.AllowN(now, 1) {
		return true, 0
	}
	missing := 1 - b.l.TokensAt(now)
	return false, time.Duration(missing / float64(b.l.Limit()) * float64(time.Second))
}

func (b *bucket) perSecond() float64 { return float64(b.l.Limit()) }

// reserved is the limiter of Balanced and TrustedReservations.
type reserved struct{ l *isolation.TokenLimiter }

func (r reserved) allow(now time.Time, _ netip.Addr, o isolation.OwnerClaim) (bool, time.Duration) {
	return r.l.Allow(now, o.Class, o.Key)
}

func (r reserved) perSecond() float64 { return r.l.PerSecond() }

// host is the limiter that the host supplied.
type host struct{ l ConnectionLimiter }

func (h host) allow(_ time.Time, remote netip.Addr, _ isolation.OwnerClaim) (bool, time.Duration) {
	return h.l.AllowConnection(remote)
}

func (host) perSecond() float64 { return 0 }

// refusedBy are the limits of what has refused for a reason; g.mu is held.
func (g *Gate) refusedBy(r RefusalReason) (limits retry.Rates) {
	switch {
	case r == RefusedRate && g.limiter != nil:
		limits.All = g.limiter.perSecond()
	case r == RefusedAddress && g.perAddress != nil:
		limits.Owner = g.perAddress.PerSecond()
	}
	return limits
}
