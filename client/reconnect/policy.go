package reconnect

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/gopcua/opcua/ua"
)

// Strategy is how the delay grows with the attempts.
type Strategy uint8

// The strategies.
const (
	Exponential Strategy = iota // InitialDelay × 2^attempt
	Constant                    // InitialDelay
	Linear                      // InitialDelay × (attempt + 1)
)

// Policy says how long to wait before each attempt; the zero value is
// exponential from 1 s to 30 s without end. It is a value: methods do not
// change it and may be called concurrently.
type Policy struct {
	// Strategy of growth; zero: Exponential.
	Strategy Strategy
	// InitialDelay before the first retry. Zero or negative: 1 s.
	InitialDelay time.Duration
	// MaxDelay that a computed delay and a hint are capped at. Zero or negative: 30 s.
	MaxDelay time.Duration
	// MaxRetries ends the attempts. Zero: no limit; negative: no retry at all.
	MaxRetries int
	// MaxFatalRetries ends the attempts after so many failures in a row that
	// waiting does not heal (certificates, identities). Zero: 3; negative: none.
	MaxFatalRetries int
	// JitterFactor spreads a delay by ± that share of it, only downward once
	// it has reached MaxDelay, only upward when a hint decides. 0: 0.1;
	// negative: none. At most 1.
	JitterFactor float64
	// SeedCompatible multiplies the delay by four also when there is a hint,
	// and takes the hint as a lower bound only.
	SeedCompatible bool
	// Rand returns a number in [0, 1); nil: math/rand/v2.
	Rand func() float64
}

// busyFactor multiplies the delay after a busy signal without a hint.
const busyFactor = 4

// firstRetryCap bounds the plain delay of the first retry when a hint says
// where the client stands in line.
const firstRetryCap = time.Second

func (p Policy) initial() time.Duration {
	if p.InitialDelay <= 0 {
		return time.Second
	}
	return p.InitialDelay
}

func (p Policy) max() time.Duration {
	if p.MaxDelay <= 0 {
		return 30 * time.Second
	}
	return p.MaxDelay
}

// plain is the delay before any jitter.
func (p Policy) plain(attempt int) time.Duration {
	if attempt < 0 {
		attempt = 0
	}
	initial, limit := p.initial(), p.max()
	factor := 1.0
	switch p.Strategy {
	case Linear:
		factor = float64(attempt) + 1
	case Exponential:
		factor = math.Exp2(float64(min(attempt, 1000)))
	}
	// The comparison is in floats: the product may be past any Duration.
	if d := float64(initial) * factor; d < float64(limit) {
		return time.Duration(d)
	}
	return limit
}

// more reports whether an attempt of that number may be made.
func (p Policy) more(attempt int) bool {
	return p.MaxRetries == 0 || attempt < p.MaxRetries
}

func (p Policy) random() float64 {
	if p.Rand != nil {
		return p.Rand()
	}
	return rand.Float64()
}

func (p Policy) jitterFactor() float64 {
	switch {
	case p.JitterFactor < 0:
		return 0
	case p.JitterFactor == 0:
		return 0.1
	}
	return min(p.JitterFactor, 1)
}

// spread applies jitter between low and high shares of the factor.
func (p Policy) spread(d time.Duration, low, high float64) time.Duration {
	f := p.jitterFactor()
	share := f * (low + (high-low)*p.random())
	return time.Duration(float64(d) * (1 + share))
}

func (p Policy) jitter(d time.Duration) time.Duration {
	if d >= p.max() {
		return p.spread(d, -1, 0)
	}
	return min(p.spread(d, -1, 1), p.max())
}

// NextDelay returns how long to wait before retry number attempt (the first is
// 0), and whether it may be made at all.
func (p Policy) NextDelay(attempt int) (time.Duration, bool) {
	if !p.more(attempt) {
		return backoff.Stop, false
	}
	return p.jitter(p.plain(attempt)), true
}

// NextDelayAfter is NextDelay for one who knows how the last attempt failed:
// its status code and the server's hint, 0 for none. A busy signal without a
// hint multiplies the delay by four. A hint is a place in the server's line:
// the delay is the hint, or the plain one when that is longer (at most a second
// for the first retry); neither is longer than MaxDelay, but jitter behind a
// hint only adds, since who comes early finds no capacity.
func (p Policy) NextDelayAfter(attempt int, status ua.StatusCode, hint time.Duration) (time.Duration, bool) {
	if !p.more(attempt) {
		return backoff.Stop, false
	}
	plain := p.plain(attempt)
	hint = min(hint, p.max())
	switch {
	case hint > 0 && p.SeedCompatible:
		if IsBusy(status) {
			plain = p.times(plain)
		}
		return p.jitter(max(plain, hint)), true
	case hint > 0:
		if attempt <= 0 {
			plain = min(plain, firstRetryCap)
		}
		if hint >= plain {
			return p.spread(hint, 0, 1), true
		}
	case IsBusy(status):
		plain = p.times(plain)
	}
	return p.jitter(plain), true
}

func (p Policy) times(d time.Duration) time.Duration {
	if d > p.max()/busyFactor {
		return p.max()
	}
	return d * busyFactor
}
