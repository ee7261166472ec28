package stack

import (
	"errors"
	"strings"
	"testing"

	"github.com/breakwater-ua/breakwater/isolation"
)

func TestPlanOfZeroOptions(t *testing.T) { // overload.md §0
	p, err := Options{}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if p.Mode != isolation.Balanced || p.Stages[isolation.Connection].Total != 2010 || p.Stages[isolation.ReassemblyBytes].Total != 64<<20 ||
		p.Stages[isolation.RequestQueue].Total != 200 || p.Stages[isolation.RequestExecution].Total != 100 || p.Stages[isolation.ParkedRequest].Total != 20_000 ||
		p.Stages[isolation.RequestQueueBytes].Total != 20_300*(4<<20) || p.Footprint != 4*(4<<20+65535) {
		t.Errorf("%+v", p)
	}
}

func TestPlanNamesTheField(t *testing.T) {
	for _, tc := range []struct {
		field, reason string
		o             Options
	}{
		{"Limits.MaxChannels", "smallest value that works is 5", Options{Limits: Limits{MaxSessions: 2, MaxChannels: 4}}},
		{"Budget.MaxBytes", "12 × (MaxMessageSize + MaxBufferSize)", Options{Limits: Limits{MaxMessageSize: 90 << 20}}},
		{"RateLimits.MaxConcurrentSessionEstablishment", "smallest value that works is 3", Options{RateLimits: RateLimits{MaxConcurrentSessionEstablishment: 2}}},
		{"RateLimits.ConnectionsPerSecond", "smallest value that works is 3", Options{RateLimits: RateLimits{ConnectionsPerSecond: 2}}},
		{"RateLimits.ConnectionsPerSecondPerAddress", "negative", Options{RateLimits: RateLimits{ConnectionsPerSecondPerAddress: -1}}},
		{"Isolation.TrustedOwners", "needs trusted owners", Options{Isolation: isolation.Options{Mode: isolation.TrustedReservations}}},
		{"Isolation.HandshakeTimeout", "2 min", Options{Isolation: isolation.Options{HandshakeTimeout: -1}}},
		{"Retry.Max", "below the minimum", Options{Retry: Retry{Min: 2, Max: 1}}},
		{"RequestCost", "none of the costs", Options{RequestCost: 9}},
	} {
		err := tc.o.Validate()
		var e *OptionError
		if !errors.As(err, &e) || e.Field != tc.field || !strings.Contains(e.Reason, tc.reason) {
			t.Errorf("%s: %v, want %q", tc.field, err, tc.reason)
		}
	}
	// Unlimited connections need no tokens.
	if err := (Options{RateLimits: RateLimits{ConnectionsPerSecond: 2, ConnectionsUnlimited: true}}).Validate(); err != nil {
		t.Error(err)
	}
	// The largest message with which the reserved bytes still fit.
	if _, err := (Options{Limits: Limits{MaxMessageSize: 85 << 20}}).Plan(); err != nil {
		t.Error(err)
	}
}

func TestWhenFullKnowsEveryStage(t *testing.T) {
	for s := range isolation.Stage(isolation.Stages) {
		if text := WhenFull(s); !strings.Contains(text, " ") {
			t.Errorf("%v: %q", s, text)
		}
	}
}

func TestEveryReasonHasAStatus(t *testing.T) { // overload.md §9
	for r := isolation.Reason(1); r < isolation.Reasons; r++ {
		if code := statusOf(r); code>>30 != 2 {
			t.Errorf("%v: %#x is not Bad", r, uint32(code))
		}
	}
}
