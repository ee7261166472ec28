package load

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/stack"
)

// A steady load reads, writes and subscribes as its schedule says, and loses nothing.
func TestSteady(t *testing.T) {
	overAll(t, nil, func(t *testing.T, s *site) {
		p := &Plan{Steady: Steady{Readers: 3, ReadRate: 150, Writers: 2, WriteRate: 40, Subscribers: 2, NodesPerRead: 2,
			PublishingInterval: 50 * time.Millisecond, ReadNodes: []string{counterText, setText}, WriteNode: setText, CounterNode: counterText},
			Phases: []Phase{{Name: "steady", Duration: 4 * time.Second}}}
		res, _ := s.run(t, p)
		f := phaseOf(t, res, "steady").Totals
		reads, writes := f.Operations[measure.Read], f.Operations[measure.Write]
		if reads.Count < 590 || reads.Count > 610 || reads.Errors != 0 {
			t.Errorf("%d reads, %d failed; 600 were due", reads.Count, reads.Errors)
		}
		if writes.Count < 155 || writes.Count > 165 || writes.Errors != 0 {
			t.Errorf("%d writes, %d failed; 160 were due", writes.Count, writes.Errors)
		}
		// Two subscribers see a change every 10 ms, but for the last interval's.
		if f.Notifications < 760 || f.Notifications > 820 || f.Gaps != 0 || f.Lost != 0 || f.Duplicates != 0 {
			t.Errorf("%d notifications, %d gaps, %d lost, %d twice", f.Notifications, f.Gaps, f.Lost, f.Duplicates)
		}
		if f.Lateness.Count == 0 || f.Lateness.Max > 1 {
			t.Errorf("lateness %+v on a clock that is never late", f.Lateness)
		}
		if res.Total.SessionsUp != 7 || res.Total.SessionsDown != 7 {
			t.Errorf("%d sessions up, %d down", res.Total.SessionsUp, res.Total.SessionsDown)
		}
	})
}

// A server that stalls is charged for all that was due meanwhile, and the
// generator is not late for it.
func TestStallIsCharged(t *testing.T) {
	overAll(t, nil, func(t *testing.T, s *site) {
		s.stall.Store(&stall{time.Now().Add(5 * time.Second), 2 * time.Second})
		p := &Plan{Steady: Steady{Readers: 1, ReadRate: 100}, Phases: []Phase{{Name: "steady", Duration: 10 * time.Second}}}
		res, _ := s.run(t, p)
		f := phaseOf(t, res, "steady").Totals
		q := f.Operations[measure.Read].Latency
		// 200 of 1000 reads were due during the stall and took 1 s on average.
		if q.P90 < 900 || q.P90 > 1100 || q.Max < 1900 || q.Max > 2100 || q.P50 > 50 {
			t.Errorf("latency %+v", q)
		}
		if f.Lateness.Max > 1 {
			t.Errorf("lateness %+v: that is the server's", f.Lateness)
		}
	})
}

// Clients connect in all policies and modes, and hold their sessions. Over
// opc.https modes mean nothing, and opc.wss has the SecureChannel of opc.tcp.
func TestConnectPolicies(t *testing.T) {
	for _, scheme := range Schemes() {
		t.Run(scheme, func(t *testing.T) { connectPolicies(t, newSite(t, scheme)) })
	}
}

func connectPolicies(t *testing.T, s *site) {
	policies := []*security.Policy{security.None, security.Basic256Sha256, security.Aes128Sha256RsaOaep, security.Aes256Sha256RsaPss}
	if s.target.Scheme() == SchemeWSS {
		policies = policies[2:]
	}
	for _, policy := range policies {
		for _, mode := range modes {
			want := Security{Policy: policy, Mode: mode}
			if policy.IsNone() || s.target.Scheme() == SchemeHTTPS {
				want.Mode = 0
			}
			t.Run(policy.Name+modeName(want.Mode), func(t *testing.T) {
				s.target = s.discover(t, want)
				_, facts := s.run(t, &Plan{Phases: []Phase{{Name: "connect", Duration: time.Minute, UntilConnected: true,
					Connect: &Connect{Clients: 3, Subscribe: true}}}})
				if facts[0].Holding != 3 || facts[0].Attempts != 3 || facts[0].Refused != 0 {
					t.Errorf("%+v", facts[0])
				}
			})
			if want.Mode == 0 {
				break
			}
		}
	}
}

// Clients that a full server refuses come back when it says so, and not before.
// Who is refused before TLS hears nothing.
func TestHints(t *testing.T) {
	limits := func(o *stack.Options) {
		o.RateLimits.ConnectionsPerSecond, o.RateLimits.ConnectionBurst = 20, 10
	}
	overAll(t, limits, func(t *testing.T, s *site) {
		plan := func(eager bool) *Plan {
			return &Plan{Phases: []Phase{{Name: "storm", Duration: time.Minute, UntilConnected: true,
				Connect: &Connect{Clients: 25, IgnoreHints: eager}}}}
		}
		_, polite := s.run(t, plan(false))
		f := polite[0]
		told, untold := f.Hinted, f.Silent
		if s.target.Scheme() != SchemeTCP {
			told, untold = untold, told
		}
		if f.Holding != 25 || told == 0 || f.Unhinted != 0 || untold != 0 {
			t.Errorf("polite: %+v", f)
		}
		if s.target.Scheme() != SchemeTCP {
			return // what a client does with a hint is the same
		}
		time.Sleep(time.Minute)
		_, eager := s.run(t, plan(true))
		if e := eager[0]; e.Holding != 25 || e.Attempts <= f.Attempts {
			t.Errorf("%d attempts by clients that ignore hints, %d by those that do not", e.Attempts, f.Attempts)
		}
	})
}

// After a cut clients take their sessions up again, and nothing is lost on the way.
func TestCut(t *testing.T) {
	overAll(t, nil, func(t *testing.T, s *site) {
		p := &Plan{Phases: []Phase{
			{Name: "before", Duration: 20 * time.Second, UntilConnected: true, Connect: &Connect{Clients: 8, Ramp: 4 * time.Second}},
			{Name: "blip", Duration: 30 * time.Second, UntilConnected: true, Cut: 0.5},
			{Name: "held", Duration: 5 * time.Minute}, // keep-alives
			{Name: "released", Duration: 100 * time.Millisecond, Release: true},
		}}
		res, facts := s.run(t, p)
		if f := facts[0]; f.Held < 3500*time.Millisecond || f.Held > 4*time.Second {
			t.Errorf("a ramp of 4 s took %v", f.Held)
		}
		if f := facts[1]; f.Holding != 8 || f.Attempts != 4 || f.Lost != 0 {
			t.Errorf("blip: %+v", f)
		}
		if f := facts[2]; f.Holding != 8 || f.Attempts != 0 || phaseOf(t, res, "held").Totals.Operations[measure.KeepAlive].Count < 8*9 {
			t.Errorf("held: %+v", f)
		}
		if facts[3].Clients != 0 {
			t.Errorf("released: %+v", facts[3])
		}
		if res.Total.SessionsUp != 12 || res.Total.SessionsDown != 12 {
			t.Errorf("%d sessions up, %d down", res.Total.SessionsUp, res.Total.SessionsDown)
		}
		if n := s.srv.Sessions().Summary().Cumulated; n != 8 {
			t.Errorf("the server made %d sessions for 8 clients", n)
		}
	})
}

// A subscription survives a cut: what was missed is asked for again.
func TestCutSubscription(t *testing.T) {
	overAll(t, nil, func(t *testing.T, s *site) {
		p := &Plan{Steady: Steady{Subscribers: 2, CounterNode: counterText, PublishingInterval: 50 * time.Millisecond},
			Phases: []Phase{{Name: "blip", Duration: 20 * time.Second, Limits: Limits{NotificationsLost: number(0), Notifications: number(3900)}}}}
		res, facts, err := s.runUntil(t, t.Context(), p, func(e *Engine) {
			for range 3 {
				time.Sleep(5 * time.Second)
				e.mu.Lock()
				members := e.members
				e.mu.Unlock()
				for _, m := range members {
					if c := m.cur.Load(); c != nil {
						c.cut(errCut)
					}
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if v := Judge(p, res, facts); !v[0].Pass || !v[1].Pass {
			t.Errorf("%+v", v)
		}
	})
}

// A server that is stopped under the load is an end to reads, and the load says so.
func TestServerGone(t *testing.T) {
	overAll(t, nil, func(t *testing.T, s *site) {
		p := &Plan{Steady: Steady{Readers: 1, ReadRate: 50, Subscribers: 1, CounterNode: counterText, PublishingInterval: 50 * time.Millisecond},
			Phases: []Phase{{Name: "before", Duration: 2 * time.Second}, {Name: "gone", Duration: 4 * time.Second, Limits: Limits{ReadsFailed: number(0)}}}}
		res, facts, err := s.runUntil(t, t.Context(), p, func(*Engine) {
			time.Sleep(3 * time.Second)
			over, end := context.WithCancel(context.Background())
			end()
			_ = s.srv.Shutdown(over)
		})
		if err != nil {
			t.Fatal(err)
		}
		// A second of good reads, then nothing but failures, each by the schedule.
		if f := phaseOf(t, res, "gone").Totals.Operations[measure.Read]; f.Count < 190 || f.Count > 210 || f.Errors < 140 || f.Errors > 160 {
			t.Errorf("%d reads, %d failed", f.Count, f.Errors)
		}
		if v := Judge(p, res, facts); len(v) != 1 || v[0].Pass {
			t.Errorf("verdicts %+v", v)
		}
	})
}

// Floods of every kind that a transport has end clean, even when the run is broken
// off: newSite sees that nothing is left.
func TestFlood(t *testing.T) {
	for _, scheme := range Schemes() {
		t.Run(scheme, func(t *testing.T) { flooded(t, newSite(t, scheme)) })
	}
}

func flooded(t *testing.T, s *site) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	load, kinds := &Flood{}, 0
	for _, k := range load.kinds() {
		if slices.Contains(k.schemes, s.target.Scheme()) {
			*k.n = 2
			kinds++
		}
	}
	started := func(e *Engine) bool {
		e.mu.Lock()
		floods := e.floods
		e.mu.Unlock()
		for _, w := range floods {
			w.mu.Lock()
			f, live := w.facts, w.live
			ended := len(f.Ended)
			w.mu.Unlock()
			switch f.Kind {
			case "chunks", "slow chunks", "slow readers", "slow headers", "slow bodies":
				if f.Bytes == 0 {
					return false
				}
			case "OPN":
				if ended == 0 {
					return false
				}
			default:
				if live < 2 {
					return false
				}
			}
		}
		return len(floods) == kinds
	}
	_, facts, err := s.runUntil(t, ctx, &Plan{Phases: []Phase{{Name: "flood", Duration: 2 * time.Minute, Flood: load}}}, func(e *Engine) {
		eventually(t, "all floods are under way", func() bool { return started(e) })
		cancel()
	})
	if !errors.Is(err, context.Canceled) || len(facts) != 1 || len(facts[0].Floods) != kinds {
		t.Fatalf("%v %+v", err, facts)
	}
	for _, f := range facts[0].Floods {
		t.Logf("%+v", f)
		if f.Opened == 0 || f.Peak == 0 || f.Longest == 0 {
			t.Errorf("%s: %+v", f.Kind, f)
		}
		switch f.Kind {
		case "silent", "TLS silent", "hellos", "sessions", "slow headers", "slow bodies":
			if f.Held == 0 {
				t.Errorf("%s: none held", f.Kind)
			}
		case "OPN":
			if f.Ended["BadSecurityChecksFailed"] == 0 {
				t.Errorf("the server on an OPN that is none: %v", f.Ended)
			}
		}
	}
}
