package securechannel

import "time"

// renewals bounds how often a channel renews its token: each renewal costs
// three private-key operations. A client renews once in three quarters of a
// lifetime; ten in a row and then one each quarter of the smallest lifetime
// leave room for restarts and tests.
type renewals struct {
	used   float64
	before time.Time
}

const renewalBurst = 10

// take counts a renewal, or says how long it is until there may be one.
func (r *renewals) take(now time.Time, every time.Duration) (wait time.Duration) {
	if !r.before.IsZero() {
		r.used = max(0, r.used-float64(now.Sub(r.before))/float64(every))
	}
	r.before = now
	if over := r.used + 1 - renewalBurst; over > 0 {
		return time.Duration(over * float64(every))
	}
	r.used++
	return 0
}
