package reconnect

import (
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

var good = ua.StatusOK

const busy = uastatus.BadServerTooBusy

func TestNextDelayAfterVectors(t *testing.T) {
	exact := Policy{Strategy: Constant, JitterFactor: -1, InitialDelay: time.Second, MaxDelay: 30 * time.Second}
	with := func(f func(*Policy)) Policy { p := exact; f(&p); return p }
	for _, c := range []struct {
		name    string
		p       Policy
		attempt int
		status  ua.StatusCode
		hint    time.Duration
		want    time.Duration
		more    bool
	}{
		{"good", exact, 0, good, 0, time.Second, true},
		{"busy", exact, 0, busy, 0, 4 * time.Second, true},
		{"busy at the cap", with(func(p *Policy) { p.InitialDelay = 20 * time.Second }), 0, busy, 0, 30 * time.Second, true},
		{"hint", exact, 0, busy, 10 * time.Second, 10 * time.Second, true},
		{"hint past the cap", exact, 0, busy, 100 * time.Second, 30 * time.Second, true},
		{"hint without a busy code", exact, 0, good, 10 * time.Second, 10 * time.Second, true},
		{"out of retries", with(func(p *Policy) { p.MaxRetries = 2 }), 2, good, 0, 0, false},
		{"last retry", with(func(p *Policy) { p.MaxRetries = 2 }), 1, good, 0, time.Second, true},
		{"no retries", with(func(p *Policy) { p.MaxRetries = -1 }), 0, good, 0, 0, false},
		{"halted is a plain retry", exact, 0, ua.StatusBadServerHalted, 0, time.Second, true},
		{"seed compatible hint below ×4", with(func(p *Policy) { p.SeedCompatible = true }), 0, busy, 2 * time.Second, 4 * time.Second, true},
		{"seed compatible hint above ×4", with(func(p *Policy) { p.SeedCompatible = true }), 0, busy, 9 * time.Second, 9 * time.Second, true},
		{"first retry: the plain delay is capped at a second", with(func(p *Policy) { p.InitialDelay = 5 * time.Second }), 0, busy, 1500 * time.Millisecond, 1500 * time.Millisecond, true},
		{"first retry: a short hint waits the capped plain delay", with(func(p *Policy) { p.InitialDelay = 5 * time.Second }), 0, busy, 50 * time.Millisecond, time.Second, true},
		{"later retries wait the plain delay", with(func(p *Policy) { p.InitialDelay = 5 * time.Second }), 1, busy, 1500 * time.Millisecond, 5 * time.Second, true},
		{"exponential", with(func(p *Policy) { p.Strategy = Exponential }), 3, good, 0, 8 * time.Second, true},
		{"exponential without overflow", with(func(p *Policy) { p.Strategy = Exponential }), 5000, good, 0, 30 * time.Second, true},
		{"linear", with(func(p *Policy) { p.Strategy = Linear }), 3, good, 0, 4 * time.Second, true},
		{"defaults", Policy{JitterFactor: -1}, 0, good, 0, time.Second, true},
		{"defaults, late", Policy{JitterFactor: -1}, 9, good, 0, 30 * time.Second, true},
	} {
		got, more := c.p.NextDelayAfter(c.attempt, c.status, c.hint)
		if more != c.more || (more && got != c.want) {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, got, more, c.want, c.more)
		}
	}
}

func TestJitter(t *testing.T) {
	for _, c := range []struct {
		name      string
		p         Policy
		attempt   int
		hint      time.Duration
		low, high time.Duration // at random 0 and just below 1
	}{
		{"both ways", Policy{Strategy: Constant}, 0, 0, 900 * time.Millisecond, 1100 * time.Millisecond},
		{"only downward at the cap", Policy{Strategy: Constant, InitialDelay: 30 * time.Second}, 0, 0, 27 * time.Second, 30 * time.Second},
		{"never past the cap", Policy{Strategy: Constant, InitialDelay: 29 * time.Second}, 0, 0, 26100 * time.Millisecond, 30 * time.Second},
		{"only upward behind a hint", Policy{Strategy: Constant}, 0, 10 * time.Second, 10 * time.Second, 11 * time.Second},
		{"behind a hint also past the cap", Policy{Strategy: Constant}, 0, 100 * time.Second, 30 * time.Second, 33 * time.Second},
		{"by the factor", Policy{Strategy: Constant, JitterFactor: 0.5}, 0, 0, 500 * time.Millisecond, 1500 * time.Millisecond},
	} {
		at := func(r float64) time.Duration {
			p := c.p
			p.Rand = func() float64 { return r }
			d, _ := p.NextDelayAfter(c.attempt, good, c.hint)
			return d
		}
		const slack = time.Millisecond
		if low, high := at(0), at(0.999999); (low-c.low).Abs() > slack || (high-c.high).Abs() > slack {
			t.Errorf("%s: from %v to %v, want %v to %v", c.name, low, high, c.low, c.high)
		}
	}
}

func TestIsBusyAndIsFatal(t *testing.T) {
	for _, c := range []struct {
		code        ua.StatusCode
		busy, fatal bool
	}{
		{busy, true, false}, {ua.StatusBadTCPServerTooBusy, true, false}, {ua.StatusBadTooManySessions, true, false},
		{ua.StatusBadTooManyOperations, true, false}, {ua.StatusBadTooManyPublishRequests, true, false},
		{ua.StatusBadTimeout, true, false}, {ua.StatusBadRequestTimeout, true, false},
		{good, false, false}, {ua.StatusBadServerHalted, false, false}, {ua.StatusBadConnectionClosed, false, false},
		{ua.StatusBadCertificateUntrusted, false, true}, {ua.StatusBadUserAccessDenied, false, true}, {ua.StatusBadIdentityTokenRejected, false, true},
	} {
		if IsBusy(c.code) != c.busy || IsFatal(c.code) != c.fatal {
			t.Errorf("%v: busy %v, fatal %v", c.code, IsBusy(c.code), IsFatal(c.code))
		}
	}
}
