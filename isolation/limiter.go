package isolation

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// TokenLimiter limits the rate of new connections and keeps one token per
// second, and one of the burst, for each of bootstrap, reconnect and every
// trusted owner. Those try their own bucket first and the shared one next; all
// others only ever get shared tokens. One mutex guards all buckets, so that the
// total is exact however many callers race.
type TokenLimiter struct {
	mu        sync.Mutex
	shared    *rate.Limiter
	bootstrap *rate.Limiter
	reconnect *rate.Limiter
	trusted   map[string]*rate.Limiter
}

// NewTokenLimiter divides perSecond and burst. Both must exceed the number of
// protected buckets, two and one for each trusted owner; the error names the
// option and the least value.
func NewTokenLimiter(perSecond float64, burst int, trusted []string) (*TokenLimiter, error) {
	protected := 2 + len(trusted)
	if perSecond <= float64(protected) {
		return nil, atLeast("ConnectionsPerSecond", int64(perSecond), int64(protected)+1, fmt.Sprintf("ConnectionsPerSecond and ConnectionBurst must exceed the %d protected tokens", protected))
	}
	if burst <= protected {
		return nil, atLeast("ConnectionBurst", int64(burst), int64(protected)+1, fmt.Sprintf("ConnectionsPerSecond and ConnectionBurst must exceed the %d protected tokens", protected))
	}
	one := func() *rate.Limiter { return rate.NewLimiter(1, 1) }
	l := &TokenLimiter{shared: rate.NewLimiter(rate.Limit(perSecond-float64(protected)), burst-protected),
		bootstrap: one(), reconnect: one(), trusted: map[string]*rate.Limiter{}}
	for _, key := range trusted {
		l.trusted[key] = one()
	}
	return l, nil
}

// Allow takes a token for an owner of that class and key, or says how long it
// is until there may be one.
func (l *TokenLimiter) Allow(now time.Time, class Class, key string) (ok bool, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var own *rate.Limiter
	switch class {
	case Bootstrap:
		own = l.bootstrap
	case Reconnect:
		own = l.reconnect
	case Trusted:
		own = l.trusted[key]
	}
	if own != nil && own.AllowN(now, 1) {
		return true, 0
	}
	if l.shared.AllowN(now, 1) {
		return true, 0
	}
	wait = untilToken(l.shared, now)
	if own != nil {
		wait = min(wait, untilToken(own, now))
	}
	return false, wait
}

// PerSecond is the rate at which owners without a bucket of their own are let in.
func (l *TokenLimiter) PerSecond() float64 { return float64(l.shared.Limit()) }

// Tokens returns what is left in a bucket, for metrics: shared, bootstrap,
// reconnect, and the sum of the trusted ones.
func (l *TokenLimiter) Tokens(now time.Time) (shared, bootstrap, reconnect, trusted float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.trusted {
		trusted += t.TokensAt(now)
	}
	return l.shared.TokensAt(now), l.bootstrap.TokensAt(now), l.reconnect.TokensAt(now), trusted
}

// untilToken is the time until a bucket holds a whole token.
func untilToken(l *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	if missing <= 0 || l.Limit() <= 0 {
		return 0
	}
	return time.Duration(missing / float64(l.Limit()) * float64(time.Second))
}

// maxAddresses bounds the buckets of an AddressLimiter.
const maxAddresses = 65536

// AddressLimiter limits the rate of new connections from one remote address
// (IPv4-mapped is IPv4, IPv6 counts by /64). Addresses past the table's bound
// share one bucket.
type AddressLimiter struct {
	mu       sync.Mutex
	limit    rate.Limit
	burst    int
	buckets  map[netip.Prefix]*rate.Limiter
	overflow *rate.Limiter
}

// NewAddressLimiter allows perSecond connections a second from each address.
// The burst is one second's worth, at least 1.
func NewAddressLimiter(perSecond float64) (*AddressLimiter, error) {
	if perSecond <= 0 {
		return nil, wrong("ConnectionsPerSecondPerAddress", int64(perSecond), "it must be positive, or 0 for none")
	}
	return NewAddressBuckets(perSecond, max(1, int(perSecond))), nil
}

// NewAddressBuckets is an AddressLimiter for anything else that one address may
// do so often; perSecond and burst must be positive.
func NewAddressBuckets(perSecond float64, burst int) *AddressLimiter {
	return &AddressLimiter{limit: rate.Limit(perSecond), burst: burst, buckets: map[netip.Prefix]*rate.Limiter{},
		overflow: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

// PerSecond is the rate that one address has.
func (l *AddressLimiter) PerSecond() float64 { return float64(l.limit) }

// Allow takes a token of the address's bucket.
func (l *AddressLimiter) Allow(now time.Time, remote netip.Addr) (ok bool, wait time.Duration) {
	key := AddressBlock(remote)
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[key]
	if b == nil {
		if len(l.buckets) >= maxAddresses {
			l.sweep(now)
		}
		if len(l.buckets) >= maxAddresses {
			b = l.overflow
		} else {
			b = rate.NewLimiter(l.limit, l.burst)
			l.buckets[key] = b
		}
	}
	if b.AllowN(now, 1) {
		return true, 0
	}
	return false, untilToken(b, now)
}

// sweep drops the buckets that are full again: they say nothing.
func (l *AddressLimiter) sweep(now time.Time) {
	for k, b := range l.buckets {
		if b.TokensAt(now) >= float64(l.burst) {
			delete(l.buckets, k)
		}
	}
}

// AddressBlock returns what counts as one remote address: an IPv4 address
// (also when it comes mapped into IPv6), or the /64 of an IPv6 address.
func AddressBlock(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, err := a.Prefix(bits)
	if err != nil { // the zero Addr
		return netip.Prefix{}
	}
	return p
}
