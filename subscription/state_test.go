package subscription

import (
	"math/rand/v2"
	"testing"
)

// The rows of the state table, OPC 10000-4 §5.14.1.2. Each case is one row, or one half of one where a row has an "or".
func TestStateTable(t *testing.T) {
	at := func(s state, f func(*machine)) machine {
		m := machine{state: s, sent: true, keepAlive: 3, maxKeepAlive: 5, lifetime: 7, maxLifetime: 20}
		if f != nil {
			f(&m)
		}
		return m
	}
	const fresh, used = 20, 6 // lifetime counter: reset, or one less than it was
	unsent := func(m *machine) { m.sent = false }
	last := func(m *machine) { m.keepAlive = 1 }
	more := func(m *machine) { m.more = true }
	for _, c := range []struct {
		name      string
		m         machine
		ev        event
		in        input
		act       action
		state     state
		sent      bool
		keepAlive uint32
		lifetime  uint32
	}{
		{"§5.14.1.2 row 4 NORMAL Publish, nothing more", at(stateNormal, nil), eventPublish, input{enabled: true, available: true}, actionNone, stateNormal, true, 3, 7},
		{"row 4 NORMAL Publish, disabled", at(stateNormal, more), eventPublish, input{available: true}, actionNone, stateNormal, true, 3, 7},
		{"row 5 NORMAL Publish, MoreNotifications", at(stateNormal, more), eventPublish, input{enabled: true, available: true}, actionNotify, stateNormal, true, 3, fresh},
		{"row 5 with what was left over deleted", at(stateNormal, more), eventPublish, input{enabled: true}, actionNone, stateNormal, true, 3, 7},
		{"row 6 NORMAL timer, notifications and a request", at(stateNormal, unsent), eventTimer, input{true, true, true}, actionNotify, stateNormal, true, 3, fresh},
		{"row 7 NORMAL timer, first message is a keep-alive", at(stateNormal, unsent), eventTimer, input{true, false, true}, actionKeepAlive, stateNormal, true, 3, fresh},
		{"row 7 NORMAL timer, disabled", at(stateNormal, unsent), eventTimer, input{false, true, true}, actionKeepAlive, stateNormal, true, 3, fresh},
		{"row 8 NORMAL timer, no request, first message due", at(stateNormal, unsent), eventTimer, input{true, false, false}, actionNone, stateLate, false, 3, used},
		{"row 8 NORMAL timer, no request, notifications", at(stateNormal, nil), eventTimer, input{true, true, false}, actionNone, stateLate, true, 3, used},
		{"row 9 NORMAL timer, nothing to send", at(stateNormal, nil), eventTimer, input{true, false, true}, actionNone, stateKeepAlive, true, 4, fresh},
		{"row 9 NORMAL timer, disabled, no request", at(stateNormal, nil), eventTimer, input{false, true, false}, actionNone, stateKeepAlive, true, 4, used},
		{"row 9 with a keep-alive count of 1", at(stateNormal, func(m *machine) { m.maxKeepAlive = 1 }), eventTimer, input{true, false, true}, actionKeepAlive, stateKeepAlive, true, 1, fresh},
		{"row 10 LATE Publish, notifications", at(stateLate, nil), eventPublish, input{enabled: true, available: true}, actionNotify, stateNormal, true, 3, fresh},
		{"row 11 LATE Publish, nothing", at(stateLate, unsent), eventPublish, input{enabled: true}, actionKeepAlive, stateKeepAlive, true, 5, fresh},
		{"row 11 LATE Publish, disabled", at(stateLate, nil), eventPublish, input{available: true}, actionKeepAlive, stateKeepAlive, true, 5, fresh},
		{"row 12 LATE timer", at(stateLate, nil), eventTimer, input{true, true, false}, actionNone, stateLate, true, 3, used},
		{"row 13 KEEPALIVE Publish", at(stateKeepAlive, nil), eventPublish, input{enabled: true, available: true}, actionNone, stateKeepAlive, true, 3, 7},
		{"row 14 KEEPALIVE timer, notifications and a request", at(stateKeepAlive, nil), eventTimer, input{true, true, true}, actionNotify, stateNormal, true, 3, fresh},
		{"row 15 KEEPALIVE timer, counter 1", at(stateKeepAlive, last), eventTimer, input{true, false, true}, actionKeepAlive, stateKeepAlive, true, 5, fresh},
		{"row 15 KEEPALIVE timer, counter 1, disabled", at(stateKeepAlive, last), eventTimer, input{false, true, true}, actionKeepAlive, stateKeepAlive, true, 5, fresh},
		{"row 16 KEEPALIVE timer, counter above 1", at(stateKeepAlive, nil), eventTimer, input{true, false, true}, actionNone, stateKeepAlive, true, 2, fresh},
		{"row 16 KEEPALIVE timer, no request", at(stateKeepAlive, nil), eventTimer, input{true, false, false}, actionNone, stateKeepAlive, true, 2, used},
		{"row 17 KEEPALIVE timer, counter 1, no request", at(stateKeepAlive, last), eventTimer, input{true, false, false}, actionNone, stateLate, true, 1, used},
		{"row 17 KEEPALIVE timer, notifications, no request", at(stateKeepAlive, nil), eventTimer, input{true, true, false}, actionNone, stateLate, true, 3, used},
		{"rows 18 to 24 other services", at(stateKeepAlive, nil), eventTouch, input{}, actionNone, stateKeepAlive, true, 3, fresh},
		{"row 27 lifetime ends", at(stateLate, func(m *machine) { m.lifetime = 1 }), eventTimer, input{true, true, false}, actionExpire, stateClosed, true, 3, 0},
		{"row 27 not while there is a request", at(stateKeepAlive, func(m *machine) { m.lifetime = 1 }), eventTimer, input{true, false, true}, actionNone, stateKeepAlive, true, 2, fresh},
		{"CLOSED stays so", at(stateClosed, nil), eventTimer, input{true, true, true}, actionNone, stateClosed, true, 3, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.m
			act := m.step(c.ev, c.in)
			if act != c.act || m.state != c.state || m.sent != c.sent || m.keepAlive != c.keepAlive || m.lifetime != c.lifetime {
				t.Errorf("got action %d, state %d, sent %v, keep-alive %d, lifetime %d\nwant action %d, state %d, sent %v, keep-alive %d, lifetime %d",
					act, m.state, m.sent, m.keepAlive, m.lifetime, c.act, c.state, c.sent, c.keepAlive, c.lifetime)
			}
		})
	}
}

// §5.14.2.2: maxKeepAliveCount and lifetimeCount are numbers of expirations.
func TestCountsOfExpirations(t *testing.T) {
	for _, count := range []uint32{1, 2, 3, 10} {
		m := newMachine(count, 100)
		var sent []int
		for i := 1; i <= 40; i++ {
			if m.step(eventTimer, input{enabled: true, queued: true}) == actionKeepAlive {
				sent = append(sent, i)
			}
		}
		for i, at := range sent {
			if want := 1 + i*int(count); at != want {
				t.Fatalf("keep-alive count %d: keep-alive %d after %d expirations, want %d", count, i, at, want)
			}
		}
		if len(sent) < 4 {
			t.Fatalf("keep-alive count %d: %d keep-alives in 40 expirations", count, len(sent))
		}
	}
	m := newMachine(3, 9)
	for i := 1; ; i++ {
		if m.step(eventTimer, input{enabled: true}) == actionExpire {
			if i != 9 {
				t.Fatalf("expired after %d expirations, want 9", i)
			}
			break
		}
	}
}

// A walk through random events, as the publisher makes them, under what must always hold.
func TestStateRandomWalk(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		m := newMachine(1+r.Uint32N(4), 12)
		enabled := true
		queue, available := 0, 0
		sinceMessage, idle := 0, 0
		for range 2000 {
			if r.IntN(3) == 0 {
				available += r.IntN(4)
			}
			var act action
			switch r.IntN(8) {
			case 0:
				enabled = r.IntN(4) != 0
				m.more = false
				m.step(eventTouch, input{})
				idle = 0
			case 1, 2, 3:
				before := m
				act = m.step(eventPublish, input{enabled: enabled, available: available > 0})
				if before.waiting(enabled) && (act == actionNone) && (before.state == stateLate || available > 0) {
					t.Fatalf("seed %d: a waiting subscription did not take the request", seed)
				}
				if act == actionNone {
					queue++
				}
			default:
				had := queue > 0
				act = m.step(eventTimer, input{enabled: enabled, available: available > 0, queued: had})
				if (act == actionNotify || act == actionKeepAlive) && !had {
					t.Fatalf("seed %d: sends without a request", seed)
				}
				if act == actionNotify || act == actionKeepAlive {
					queue--
				}
				sinceMessage++
				if had {
					idle = 0
				} else {
					idle++
				}
				if had && m.state == stateLate {
					// Late with a request in the queue would wait for ever.
					if act = m.step(eventPublish, input{enabled: enabled, available: available > 0}); act == actionNone {
						t.Fatalf("seed %d: late and does not take a request", seed)
					}
					queue--
				}
			}
			switch act {
			case actionNotify:
				if !enabled || available == 0 {
					t.Fatalf("seed %d: notifies with nothing to send", seed)
				}
				available -= 1 + r.IntN(available)
				m.more = available > 0
				sinceMessage = 0
			case actionKeepAlive:
				if enabled && available > 0 {
					t.Fatalf("seed %d: a keep-alive instead of notifications", seed)
				}
				sinceMessage = 0
			case actionExpire:
				if idle < 1 {
					t.Fatalf("seed %d: expired while there were requests", seed)
				}
			}
			if m.state == stateClosed {
				break
			}
			if m.lifetime == 0 || m.lifetime > m.maxLifetime || m.keepAlive == 0 || m.keepAlive > m.maxKeepAlive {
				t.Fatalf("seed %d: counters out of range: %+v", seed, m)
			}
			if queue > 0 && sinceMessage > int(m.maxKeepAlive)+1 {
				t.Fatalf("seed %d: %d cycles without a message", seed, sinceMessage)
			}
		}
	}
}
