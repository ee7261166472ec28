package stack

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/service"
)

// overload.md §13: the lowest of what sessions, the line of those who wait, and
// the budget say; a host's own function replaces all of it.
func TestServiceLevelSources(t *testing.T) {
	s, now := liveServer(t, Options{}), time.Now()
	if got := s.level(now); got != 255 {
		t.Fatalf("idle: %d", got)
	}
	if err := s.budget.Reserve(s.budget.Max()*6/10, true); err != nil {
		t.Fatal(err)
	}
	if got := s.level(now); got != 129 { // 0.6 used
		t.Errorf("60 %% of the budget: %d", got)
	}
	_ = s.budget.Release(s.budget.Reserved())
	for range 100_000 {
		s.planner.Slot("storm", now)
	}
	if got := s.level(now); got != lowestService {
		t.Errorf("a line longer than the longest hint: %d", got)
	}
	own := liveServer(t, Options{ServiceLevel: func(time.Time) byte { return 77 }})
	if got := own.level(now); got != 77 {
		t.Errorf("the host's: %d", got)
	}
}

// overload.md §13: published on a change of 5 or more, and on reaching an end.
func TestServiceLevelSteps(t *testing.T) {
	s := liveServer(t, Options{})
	for _, step := range []struct{ level, want byte }{
		{200, 200}, {197, 200}, {204, 200}, {195, 195}, {200, 200}, {251, 251}, {255, 255}, {251, 255}, {6, 6}, {2, 2}, {6, 2}, {7, 7}, {3, 7},
	} {
		s.published.publish(s, step.level)
		if got := s.ServiceLevel(); got != step.want {
			t.Errorf("level %d: %d is published, want %d", step.level, got, step.want)
		}
	}
}

type ownIngress struct{}

func (ownIngress) ClassifyIngress(_, _ netip.AddrPort) (isolation.OwnerClaim, bool) {
	return isolation.OwnerClaim{}, false
}

func (ownIngress) Classify(isolation.ServiceKind, *isolation.ChannelFacts, *isolation.BindingFacts) (isolation.OwnerClaim, bool) {
	return isolation.OwnerClaim{}, false
}

// overload.md §7: at start one line for each stage, and no owner's key.
func TestPlanIsLogged(t *testing.T) {
	var log bytes.Buffer
	s, err := NewServer(Options{
		Security:   Security{Policies: NoPolicies, AllowNone: true},
		Logger:     slog.New(slog.NewTextHandler(&log, nil)),
		Classifier: ownIngress{},
		Budget:     Budget{MaxBytes: 128 << 20},
		Isolation:  isolation.Options{Mode: isolation.TrustedReservations, TrustedOwners: []isolation.TrustedOwner{{Key: "plant-seven"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Shutdown(t.Context())
	for stage := range isolation.Stage(isolation.Stages) {
		n := 0
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "stage="+stage.String()+" ") {
				n++
				for _, field := range []string{"total=", "shared=", "bootstrap=", "ownerHardLimit=", "level=INFO"} {
					if !strings.Contains(line, field) {
						t.Errorf("%q says no %s", line, field)
					}
				}
			}
		}
		if n != 1 {
			t.Errorf("%d lines about %v", n, stage)
		}
	}
	if strings.Contains(log.String(), "plant-seven") {
		t.Error("an owner's key is in the log")
	}
}

// A request without a session has no rights by a policy that it has only named.
func TestSessionlessIsWithoutPolicy(t *testing.T) {
	s := sessionless{allowed: true}
	e := &service.Entry{Sessionless: true}
	for _, c := range []struct {
		ch   *logicalChannel
		want bool
	}{
		{&logicalChannel{policy: security.None}, true},
		{&logicalChannel{policy: security.None, lasting: true}, false},
		{&logicalChannel{policy: security.Basic256Sha256}, false},
	} {
		if got := s.admits(c.ch, e); got != c.want {
			t.Errorf("policy %s, lasting %v: %v", c.ch.policy.Name, c.ch.lasting, got)
		}
	}
}

// The rate at which the queue drains is measured while somebody waits, and forgotten
// when nobody does.
func TestDrainRate(t *testing.T) {
	var m drain
	now := time.Now()
	step := func(after time.Duration, served, waiting int, want float64) {
		t.Helper()
		for range served {
			m.served()
		}
		now = now.Add(after)
		if got := m.rate(now, waiting); got != want {
			t.Errorf("%v later, %d served, %d wait: %v per second, want %v", after, served, waiting, got, want)
		}
	}
	step(0, 0, 0, presumedDrain)
	step(time.Second, 0, 0, presumedDrain) // refused by another limit, nobody has waited
	step(2*time.Second, 40, 3, 20)
	step(500*time.Millisecond, 1, 3, 20) // too soon to tell
	step(500*time.Millisecond, 4, 3, 5)
	step(2*time.Second, 0, 3, 0.05)
	step(2*time.Second, 0, 0, presumedDrain)
	step(time.Second, 7, 1, 7)
	step(time.Minute, 0, 1, presumedDrain) // that was long ago
}
