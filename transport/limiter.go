package transport

import (
	"net/netip"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
	"golang.org/x/time/rate"
)

// limiter is the rate of new connections: one of the three below. It is asked
// at most once per accepted socket, and what it gave is never returned.
type limiter interface {
	allow(now time.Time, remote netip.Addr, owner isolation.OwnerClaim) (ok bool, wait time.Duration)
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

// reserved is the limiter of Balanced and TrustedReservations.
type reserved struct{ l *isolation.TokenLimiter }

func (r reserved) allow(now time.Time, _ netip.Addr, o isolation.OwnerClaim) (bool, time.Duration) {
	return r.l.Allow(now, o.Class, o.Key)
}

// host is the limiter that the host supplied.
type host struct{ l ConnectionLimiter }

func (h host) allow(_ time.Time, remote netip.Addr, _ isolation.OwnerClaim) (bool, time.Duration) {
	return h.l.AllowConnection(remote)
}
