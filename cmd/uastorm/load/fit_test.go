package load

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/gopcua/opcua/ua"
)

// A node that is not there, or not one for what it was named for, ends the run at
// its beginning, with its name, and leaves no session behind.
func TestUnfitNodes(t *testing.T) {
	inBubble(t, SchemeTCP, nil, func(t *testing.T, s *site) {
		s.ns.Variable("Text", "seven")
		const none, text = "ns=2;s=None", "ns=2;s=Text"
		for _, c := range []struct {
			steady Steady
			node   string
			code   ua.StatusCode
		}{
			{Steady{Readers: 2, NodesPerRead: 2, ReadNodes: []string{setText, none}}, none, ua.StatusBadNodeIDUnknown},
			{Steady{Writers: 2, WriteNode: none}, none, ua.StatusBadNodeIDUnknown},
			{Steady{Writers: 2, WriteNode: counterText}, counterText, ua.StatusBadNotWritable},
			{Steady{Subscribers: 2, SubscribeNodes: []string{none}}, none, ua.StatusBadNodeIDUnknown},
			{Steady{Subscribers: 2, CounterNode: none}, none, ua.StatusBadNodeIDUnknown},
			{Steady{Subscribers: 2, CounterNode: text}, text, ua.StatusBadTypeMismatch},
			{Steady{Subscribers: 2, CounterNode: currentTimeNode}, currentTimeNode, ua.StatusBadTypeMismatch},
		} {
			begun := time.Now()
			_, facts, err := s.runUntil(t, t.Context(), &Plan{Steady: c.steady, Phases: []Phase{{Name: "steady", Duration: time.Second}}}, nil)
			if err == nil || !strings.Contains(err.Error(), "node "+c.node+" ") || !errors.Is(err, c.code) {
				t.Errorf("%+v: %v", c.steady, err)
			}
			if took := time.Since(begun); took > 5*time.Second || len(facts) != 0 {
				t.Errorf("%+v: after %v, phases %+v", c.steady, took, facts)
			}
			time.Sleep(time.Second)
			if left := s.left(); left != "" {
				t.Errorf("%+v: left at the server: %s", c.steady, left)
			}
		}
	})
}

// A counter that stands still proves nothing, and is no pass.
func TestCounterThatStandsStill(t *testing.T) {
	inBubble(t, SchemeTCP, nil, func(t *testing.T, s *site) {
		s.ns.Variable("Still", int64(7))
		for node, pass := range map[string]bool{"ns=2;s=Still": false, counterText: true} {
			p := &Plan{Steady: Steady{Subscribers: 2, CounterNode: node, PublishingInterval: 50 * time.Millisecond},
				Phases: []Phase{{Name: "steady", Duration: 3 * time.Second, Limits: Limits{NotificationsLost: number(0)}}}}
			res, facts := s.run(t, p)
			res.Verdicts = Judge(p, res, facts)
			if res.Passed() != pass {
				t.Errorf("%s: %+v", node, res.Verdicts)
			}
		}
	})
}

// Limits are held against the phase of the plan, not against the one in which
// uastorm begins or ends: no phase has their names.
func TestNamesOfPhases(t *testing.T) {
	for _, name := range []string{measure.SetupPhase, measure.EndPhase} {
		p := &Plan{Phases: []Phase{{Name: "a", Duration: time.Second}, {Name: name, Duration: time.Second}}}
		var wrong *FieldError
		if err := p.Validate(); !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), "phases[1].name: "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
