package client

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/uastatus"
)

var epoch = time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC)

// OPC 10000-4 §6.7, Re-establishing subscriptions: (state, event) → (state, action).
func TestMachine(t *testing.T) {
	type m = machine
	sec := func(n int) time.Duration { return time.Duration(n) * time.Second }
	busy := uastatus.BadServerTooBusy
	for _, c := range []struct {
		name  string
		from  m
		event event
		after time.Duration // since the session came online
		want  action
		is    m
	}{
		{"start", m{step: stepIdle}, event{outcome: outcomeStart}, 0, action{step: stepOpen}, m{step: stepOpen}},
		{"waited", m{step: stepWait, session: true}, event{}, 0, action{step: stepOpen}, m{step: stepOpen, session: true}},

		{"open: first", m{step: stepOpen}, event{outcome: outcomeDone}, 0, action{step: stepCreate}, m{step: stepCreate}},
		{"open: with an old session", m{step: stepOpen, session: true}, event{outcome: outcomeDone}, 0, action{step: stepActivate}, m{step: stepActivate, session: true}},
		{"open: refused", m{step: stepOpen, session: true}, event{outcome: outcomeBroken}, 0, action{step: stepWait, delay: sec(1)}, m{step: stepWait, session: true}},
		{"open: busy", m{step: stepOpen}, event{outcome: outcomeBroken, code: ua.StatusBadTCPServerTooBusy}, 0, action{step: stepWait, delay: sec(4)}, m{step: stepWait}},
		{"open: busy with a hint", m{step: stepOpen}, event{outcome: outcomeBroken, code: busy, hint: sec(9)}, 0, action{step: stepWait, delay: sec(9)}, m{step: stepWait}},

		{"create: no subscriptions", m{step: stepCreate}, event{outcome: outcomeDone}, 0, action{step: stepOnline}, m{step: stepOnline, session: true}},
		{"create: subscriptions", m{step: stepCreate}, event{outcome: outcomeDone, subscriptions: 2}, 0, action{step: stepTransfer}, m{step: stepTransfer, session: true, transfer: true}},
		{"create: refused", m{step: stepCreate}, event{outcome: outcomeRefused, code: busy, hint: sec(3)}, 0, action{step: stepWait, delay: sec(3)}, m{step: stepWait}},

		{"activate: no subscriptions", m{step: stepActivate, session: true}, event{outcome: outcomeDone}, 0, action{step: stepOnline}, m{step: stepOnline, session: true}},
		{"activate: subscriptions", m{step: stepActivate, session: true}, event{outcome: outcomeDone, subscriptions: 1}, 0, action{step: stepRepublish}, m{step: stepRepublish, session: true}},
		{"activate: transfer was interrupted", m{step: stepActivate, session: true, transfer: true}, event{outcome: outcomeDone, subscriptions: 1}, 0, action{step: stepTransfer}, m{step: stepTransfer, session: true, transfer: true}},
		{"activate: unknown session", m{step: stepActivate, session: true}, event{outcome: outcomeRefused, code: ua.StatusBadSessionIDInvalid}, 0, action{step: stepCreate, dropSession: true}, m{step: stepCreate}},
		{"activate: nonce out of step", m{step: stepActivate, session: true}, event{outcome: outcomeRefused, code: ua.StatusBadApplicationSignatureInvalid}, 0, action{step: stepCreate, dropSession: true}, m{step: stepCreate}},
		{"activate: busy keeps the session", m{step: stepActivate, session: true}, event{outcome: outcomeRefused, code: busy, hint: sec(5)}, 0, action{step: stepWait, delay: sec(5)}, m{step: stepWait, session: true}},
		{"activate: broken keeps the session", m{step: stepActivate, session: true}, event{outcome: outcomeBroken}, 0, action{step: stepWait, delay: sec(1)}, m{step: stepWait, session: true, failures: 1}},
		{"activate: broken for the third time", m{step: stepActivate, session: true, failures: 2}, event{outcome: outcomeBroken}, 0, action{step: stepWait, delay: sec(1), dropSession: true}, m{step: stepWait}},

		{"transfer: done", m{step: stepTransfer, session: true, transfer: true}, event{outcome: outcomeDone, subscriptions: 1}, 0, action{step: stepRepublish}, m{step: stepRepublish, session: true}},
		{"transfer: denied for now", m{step: stepTransfer, session: true, transfer: true}, event{outcome: outcomeDone, subscriptions: 2, denied: 1}, 0, action{step: stepRepublish}, m{step: stepRepublish, session: true, transfer: true}},
		{"republish: some are denied", m{step: stepRepublish, session: true, transfer: true}, event{outcome: outcomeDone, subscriptions: 2, denied: 1}, 0, action{step: stepOnline, delay: transferRetry}, m{step: stepOnline, session: true, transfer: true}},
		{"recreate: refused, and some are denied", m{step: stepRecreate, session: true, transfer: true}, event{outcome: outcomeDone, subscriptions: 2, lost: 1, denied: 1, hint: sec(9), code: uastatus.BadServerTooBusy}, 0, action{step: stepOnline, delay: transferRetry}, m{step: stepOnline, session: true, transfer: true}},
		{"online: retry of a transfer", m{step: stepOnline, session: true, transfer: true}, event{outcome: outcomeRetry, denied: 1}, sec(5), action{step: stepTransfer}, m{step: stepTransfer, session: true, transfer: true}},
		{"transfer: unsupported", m{step: stepTransfer, session: true, transfer: true}, event{outcome: outcomeRefused, code: ua.StatusBadServiceUnsupported}, 0, action{step: stepRecreate}, m{step: stepRecreate, session: true}},
		{"transfer: broken", m{step: stepTransfer, session: true, transfer: true}, event{outcome: outcomeBroken}, 0, action{step: stepWait, delay: sec(1)}, m{step: stepWait, session: true, transfer: true}},
		{"transfer: session lost", m{step: stepTransfer, session: true, transfer: true}, event{outcome: outcomeSessionLost}, 0, action{step: stepWait, delay: sec(1), dropSession: true}, m{step: stepWait, transfer: true}},

		{"republish: done", m{step: stepRepublish, session: true}, event{outcome: outcomeDone, subscriptions: 1}, 0, action{step: stepOnline}, m{step: stepOnline, session: true}},
		{"republish: some are lost", m{step: stepRepublish, session: true}, event{outcome: outcomeDone, subscriptions: 2, lost: 1}, 0, action{step: stepRecreate}, m{step: stepRecreate, session: true}},
		{"republish: broken", m{step: stepRepublish, session: true}, event{outcome: outcomeBroken}, 0, action{step: stepWait, delay: sec(1)}, m{step: stepWait, session: true}},

		{"recreate: done", m{step: stepRecreate, session: true}, event{outcome: outcomeDone, subscriptions: 2}, 0, action{step: stepOnline}, m{step: stepOnline, session: true}},
		{"recreate: refused, online without", m{step: stepRecreate, session: true}, event{outcome: outcomeDone, subscriptions: 2, lost: 1, code: ua.StatusBadTooManySubscriptions}, 0, action{step: stepOnline, delay: sec(1)}, m{step: stepOnline, session: true}},
		{"recreate: broken", m{step: stepRecreate, session: true}, event{outcome: outcomeBroken}, 0, action{step: stepWait, delay: sec(1)}, m{step: stepWait, session: true}},

		{"online: cut after long", m{step: stepOnline, session: true}, event{outcome: outcomeBroken, code: ua.StatusBadConnectionClosed}, sec(30), action{step: stepOpen, delay: breath}, m{step: stepOpen, session: true}},
		{"online: cut at once", m{step: stepOnline, session: true}, event{outcome: outcomeBroken}, sec(29), action{step: stepWait, delay: sec(1)}, m{step: stepWait, session: true}},
		{"online: cut with a hint", m{step: stepOnline, session: true}, event{outcome: outcomeBroken, code: ua.StatusBadTCPServerTooBusy, hint: sec(12)}, sec(3600), action{step: stepWait, delay: sec(12)}, m{step: stepWait, session: true}},
		{"online: session lost after long", m{step: stepOnline, session: true}, event{outcome: outcomeSessionLost, code: ua.StatusBadSessionClosed}, sec(60), action{step: stepCreate, dropSession: true}, m{step: stepCreate}},
		{"online: session lost at once", m{step: stepOnline, session: true}, event{outcome: outcomeSessionLost}, sec(2), action{step: stepWait, delay: sec(1), dropSession: true}, m{step: stepWait}},
		{"online: subscription lost after long", m{step: stepOnline, session: true}, event{outcome: outcomeSubscriptionsLost}, sec(60), action{step: stepRepublish}, m{step: stepRepublish, session: true}},
		{"online: subscription lost at once", m{step: stepOnline, session: true}, event{outcome: outcomeSubscriptionsLost}, sec(2), action{step: stepOnline, delay: sec(1)}, m{step: stepOnline, session: true}},
		{"online: retry", m{step: stepOnline, session: true}, event{outcome: outcomeRetry}, sec(2), action{step: stepRepublish}, m{step: stepRepublish, session: true}},

		{"close", m{step: stepTransfer, session: true}, event{outcome: outcomeClose}, 0, action{step: stepClosed}, m{step: stepClosed, session: true}},
		{"closed stays closed", m{step: stepClosed}, event{outcome: outcomeDone}, 0, action{step: stepClosed}, m{step: stepClosed}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(reconnect.Policy{JitterFactor: -1})
			m.step, m.session, m.transfer, m.failures = c.from.step, c.from.session, c.from.transfer, c.from.failures
			now := epoch
			if m.step == stepOnline {
				m.online = epoch
				m.delays.Connected(epoch)
				now = epoch.Add(c.after)
			}
			if got := m.next(c.event, now); got != c.want {
				t.Errorf("action %+v, want %+v", got, c.want)
			}
			if m.step != c.is.step || m.session != c.is.session || m.transfer != c.is.transfer || m.failures != c.is.failures {
				t.Errorf("state %v session %v transfer %v failures %d", m.step, m.session, m.transfer, m.failures)
			}
		})
	}
}

func TestMachineGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		policy reconnect.Policy
		event  event
		tries  int
	}{
		"retries":     {reconnect.Policy{MaxRetries: 3}, event{outcome: outcomeBroken}, 4},
		"certificate": {reconnect.Policy{}, event{outcome: outcomeBroken, code: ua.StatusBadCertificateUntrusted}, 4},
		"no retry":    {reconnect.Policy{MaxRetries: -1}, event{outcome: outcomeBroken}, 1},
	} {
		m := newMachine(c.policy)
		m.next(event{}, epoch)
		tries := 0
		for {
			tries++
			a := m.next(c.event, epoch)
			if a.step == stepClosed {
				if !a.gaveUp || tries != c.tries {
					t.Errorf("%s: %+v after %d attempts, want %d", name, a, tries, c.tries)
				}
				break
			}
			m.next(event{outcome: outcomeDone}, epoch)
		}
	}
}

var traced = flag.Int("walk", -1, "seed of the random walk to trace")

// Whatever happens in whatever order: what every action needs is there when it
// is asked for, and a machine that keeps failing keeps waiting.
func TestMachineRandomWalk(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		m := newMachine(reconnect.Policy{})
		codes := []ua.StatusCode{ua.StatusOK, ua.StatusBadTimeout, uastatus.BadServerTooBusy, ua.StatusBadSessionIDInvalid, ua.StatusBadInternalError}
		if seed%2 == 0 { // may give up
			codes = append(codes, ua.StatusBadCertificateUntrusted)
		}
		now := epoch
		channel, session, subs, lost := false, false, 0, 0
		var moved time.Duration // time that has passed since the last thing that costs the server something
		opens := 0
		e := event{outcome: outcomeStart}
		var trace []string
		fail := func(format string, args ...any) {
			t.Fatalf("seed %d: %s (see -walk)\n%s", seed, fmt.Sprintf(format, args...), trace)
		}
		for range 400 {
			e.subscriptions, e.lost = subs, lost
			a := m.next(e, now)
			if seed == uint64(*traced) {
				trace = append(trace, fmt.Sprintf("%v(%#x) → %+v\n", e.outcome, uint32(e.code), a))
			}
			if a.dropSession {
				session = false
			}
			fails := []outcome{outcomeBroken, outcomeRefused, outcomeSessionLost}
			next := event{outcome: outcomeDone}
			if rnd.IntN(3) == 0 {
				next = event{outcome: fails[rnd.IntN(3)], code: codes[rnd.IntN(len(codes))], hint: time.Duration(rnd.IntN(3)) * time.Second}
			}
			need := func(ch, se bool) {
				if ch && !channel || se && !session {
					fail("%v with channel %v, session %v", a.step, channel, session)
				}
			}
			switch a.step {
			case stepWait:
				if a.delay <= 0 || a.delay > 34*time.Second {
					fail("waits %v", a.delay)
				}
				channel = false
				now = now.Add(a.delay)
				moved += a.delay
				next = event{outcome: outcomeDone}
			case stepOpen:
				channel = next.outcome == outcomeDone
				opens++
			case stepActivate:
				need(true, true)
				if next.outcome == outcomeSessionLost {
					next.outcome = outcomeRefused
				}
			case stepCreate:
				need(true, false)
				if session {
					fail("a second session")
				}
				session = next.outcome == outcomeDone
				if next.outcome == outcomeSessionLost {
					next.outcome = outcomeRefused
				}
			case stepTransfer:
				need(true, true)
				if subs == 0 {
					fail("nothing to transfer")
				}
				if next.outcome != outcomeBroken && next.outcome != outcomeSessionLost {
					lost = rnd.IntN(subs + 1)
				}
			case stepRepublish:
				need(true, true)
			case stepRecreate:
				need(true, true)
				if next.outcome == outcomeDone {
					lost = rnd.IntN(lost/2 + 1)
				}
			case stepOnline:
				need(true, true)
				d := time.Duration(rnd.IntN(60)) * time.Second
				now = now.Add(d)
				moved += d
				subs = max(subs, lost) + rnd.IntN(3)
				next = event{outcome: []outcome{outcomeBroken, outcomeSessionLost, outcomeSubscriptionsLost}[rnd.IntN(3)], code: codes[rnd.IntN(len(codes))]}
				if a.delay > 0 && rnd.IntN(2) == 0 {
					next = event{outcome: outcomeRetry}
				}
				if next.outcome == outcomeSubscriptionsLost && subs > 0 {
					lost = max(lost, 1)
				}
			case stepClosed:
				if !a.gaveUp || seed%2 == 1 {
					fail("gave up")
				}
				session = false
			}
			if a.step == stepClosed {
				break
			}
			if next.outcome == outcomeBroken {
				channel = false
			}
			e = next
		}
		if opens > 5 && moved < time.Duration(opens)*time.Second/3 {
			fail("%d opens in %v", opens, moved)
		}
	}
}
