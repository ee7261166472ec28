package transport

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/admission/retry"
	"github.com/breakwater-ua/breakwater/isolation"
)

// overload.md §3: the order of the steps, as a table: what is asked, what is
// answered, who is evicted.
func TestAdmissionOrder(t *testing.T) {
	type step struct {
		name    string
		mode    isolation.Mode
		edit    func(*isolation.Plan)
		options GateOptions
		before  func(b *bed, port *Port)
		from    netip.Addr
		port    Port
		want    RefusalReason
		asked   []string
		evicted uint64
	}
	connections := func(f func(*isolation.StagePlan)) func(*isolation.Plan) {
		return func(p *isolation.Plan) { f(&p.Stages[isolation.Connection]) }
	}
	// three fills the shared part with reclaimable connections without Hello.
	three := func(b *bed, port *Port) {
		for i := range 3 {
			b.must(ordinary(i), port)
		}
		time.Sleep(time.Second)
	}
	idle := func(b *bed, port *Port) {
		three(b, port)
		for _, a := range b.all {
			a.Hello()
			a.CompleteHandshake()
		}
		time.Sleep(time.Second)
	}
	for _, s := range []step{
		{name: "all granted", from: ordinary(9), want: RefusedNone, asked: []string{"classify", "limiter"}},
		{name: "1 stopped comes before the classifier",
			before: func(b *bed, _ *Port) { b.Stop(0) }, from: ordinary(9), want: RefusedStopped},
		{name: "2 a trusted key that is not provisioned is no free pass",
			before: three, from: strangePeer, want: RefusedOwner, asked: []string{"classify"}},
		{name: "3 owner limit: no token, nobody evicted",
			edit: connections(func(s *isolation.StagePlan) { s.HardLimit = 2 }),
			before: func(b *bed, port *Port) {
				b.must(ordinary(9), port)
				b.must(ordinary(9), port) // another port, the same owner
				time.Sleep(time.Second)
			}, from: ordinary(9), want: RefusedOwnerLimit, asked: []string{"classify"}},
		{name: "3 owner table full: no token, nobody evicted",
			edit: func(p *isolation.Plan) { p.MaxTrackedOwners = 3 + 2 }, // bootstrap, reconnect and control have places
			before: func(b *bed, port *Port) {
				b.must(ordinary(1), port)
				b.must(ordinary(2), port)
				time.Sleep(time.Second)
			}, from: ordinary(9), want: RefusedOwnerTable, asked: []string{"classify"}},
		{name: "3 capacity, nothing to reclaim: no token",
			before: func(b *bed, port *Port) { three(b, port); newer(b) }, from: ordinary(9), want: RefusedCapacity, asked: []string{"classify"}},
		{name: "3 capacity, reclaimable, no token: nobody evicted",
			before: func(b *bed, port *Port) { three(b, port); b.noToken = true }, from: ordinary(9), want: RefusedRate, asked: []string{"classify", "limiter"}},
		{name: "3 capacity, reclaimable, token: asked once, one evicted",
			before: three, from: ordinary(9), want: RefusedNone, asked: []string{"classify", "limiter"}, evicted: 1},
		{name: "§5 without Hello for less than a second",
			before: func(b *bed, port *Port) {
				for i := range 3 {
					b.must(ordinary(i), port)
				}
				time.Sleep(time.Second - 1)
			}, from: ordinary(9), want: RefusedCapacity, asked: []string{"classify"}},
		{name: "§5 idle for less than a second",
			before: func(b *bed, port *Port) {
				three(b, port)
				for _, a := range b.all {
					a.Hello()
					a.CompleteHandshake()
				}
				time.Sleep(time.Second - 1)
			}, from: ordinary(9), want: RefusedCapacity, asked: []string{"classify"}},
		{name: "3 the bootstrap floor is there when the rest is full",
			before: three, from: bootstrapPeer, want: RefusedNone, asked: []string{"classify", "limiter"}},
		{name: "3 a floor's holder is no victim for others",
			before: func(b *bed, port *Port) {
				b.must(bootstrapPeer, port)
				time.Sleep(time.Second) // the only one old enough
				for i := range 3 {
					b.must(ordinary(i), port)
				}
			}, from: ordinary(9), want: RefusedCapacity, asked: []string{"classify"}},
		{name: "3 a floor's holder is a victim for its own kind",
			before: func(b *bed, port *Port) {
				b.must(bootstrapPeer, port)
				time.Sleep(time.Second)
				for i := range 3 {
					b.must(ordinary(i), port)
				}
			}, from: bootstrapPeer, want: RefusedNone, asked: []string{"classify", "limiter"}, evicted: 1},
		{name: "4 handshake: owner limit, connection given back",
			edit: func(p *isolation.Plan) { p.Stages[isolation.Handshake].HardLimit = 1 },
			before: func(b *bed, port *Port) {
				b.must(ordinary(9), port)
				time.Sleep(time.Second)
			}, from: ordinary(9), want: RefusedOwnerLimit, asked: []string{"classify"}},
		{name: "4 handshake: capacity, idle channels would not help",
			edit: func(p *isolation.Plan) {
				h := &p.Stages[isolation.Handshake]
				h.Capacity, h.Shared = 3, 1
			},
			before: func(b *bed, port *Port) {
				a, _ := b.must(ordinary(1), port)
				a.Hello()
				a.CompleteHandshake()
				time.Sleep(time.Second)
				b.must(ordinary(2), port)
			}, from: ordinary(9), want: RefusedCapacity, asked: []string{"classify"}},
		{name: "5 no token: both stages given back",
			before: func(b *bed, _ *Port) { b.noToken = true }, from: ordinary(9), want: RefusedRate, asked: []string{"classify", "limiter"}},
		{name: "6 the listener's cap comes after the token",
			port: Port{Max: 1}, before: func(b *bed, port *Port) { b.must(ordinary(1), port) },
			from: ordinary(9), want: RefusedListener, asked: []string{"classify", "limiter"}},
		{name: "6 no token, the listener's cap is not looked at",
			port: Port{Max: 1}, before: func(b *bed, port *Port) { b.must(ordinary(1), port); b.noToken = true },
			from: ordinary(9), want: RefusedRate, asked: []string{"classify", "limiter"}},
		{name: "6 the listener's cap, reclaimable there",
			port: Port{Max: 1}, before: func(b *bed, port *Port) {
				b.must(ordinary(1), &Port{}) // older, but elsewhere
				b.must(ordinary(2), port)
				time.Sleep(time.Second)
			}, from: ordinary(9), want: RefusedNone, asked: []string{"classify", "limiter"}, evicted: 1},
		{name: "§5 idle channels", before: idle, from: ordinary(9), want: RefusedNone, asked: []string{"classify", "limiter"}, evicted: 1},
		{name: "SharedOnly: no owners, no floors", mode: isolation.SharedOnly,
			before: func(b *bed, port *Port) {
				for i := range 5 {
					b.must(ordinary(i), port)
				}
			}, from: trustedPeer, want: RefusedCapacity, asked: []string{"classify"}},
		{name: "FairShare: all five", mode: isolation.FairShare,
			before: func(b *bed, port *Port) {
				for range 4 {
					b.must(ordinary(1), port)
				}
			}, from: bootstrapPeer, want: RefusedNone, asked: []string{"classify", "limiter"}},
		{name: "TrustedReservations", mode: isolation.TrustedReservations,
			before: func(b *bed, port *Port) { three(b, port); newer(b) }, from: trustedPeer, want: RefusedNone, asked: []string{"classify", "limiter"}},
	} {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, s.mode, s.edit, s.options)
				port := s.port
				if s.before != nil {
					s.before(b, &port)
				}
				held := [2]int64{b.provider.Used(isolation.Connection), b.provider.Used(isolation.Handshake)}
				a, _, r := b.admit(s.from, &port)
				if r != s.want {
					t.Errorf("%v, want %v", r, s.want)
				}
				if !slices.Equal(b.asked, s.asked) {
					t.Errorf("asked %v, want %v", b.asked, s.asked)
				}
				if n := b.Usage().Reclaimed; n != s.evicted {
					t.Errorf("%d evicted, want %d", n, s.evicted)
				}
				if now := [2]int64{b.provider.Used(isolation.Connection), b.provider.Used(isolation.Handshake)}; a == nil && now != held {
					t.Errorf("leases %v, were %v", now, held)
				}
				b.end()
			})
		})
	}
}

// newer makes what is admitted so far too busy to be reclaimed.
func newer(b *bed) {
	for _, a := range b.all {
		a.Hello()
		a.CompleteHandshake()
		a.SetReclaimable(false)
	}
}

// overload.md §3: CompleteHandshake frees the Handshake stage, the close frees
// the Connection stage, each once; a reclaimed one's leases went before.
func TestStagesAreFreedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, isolation.Balanced, nil, GateOptions{})
		a, _ := b.must(ordinary(1), &Port{})
		held := func(connections, handshakes int64) {
			t.Helper()
			if c, h := b.provider.Used(isolation.Connection), b.provider.Used(isolation.Handshake); c != connections || h != handshakes {
				t.Errorf("%d connections, %d handshakes; want %d, %d", c, h, connections, handshakes)
			}
		}
		held(1, 1)
		a.Hello()
		held(1, 1)
		a.CompleteHandshake()
		a.CompleteHandshake()
		held(1, 0)
		c, _ := b.must(ordinary(2), &Port{})
		c.Release() // before its handshake is complete
		held(1, 0)
		a.Release()
		held(0, 0)
		b.end()
	})
}

// overload.md §2 through the Gate: the reserved-token limiter in the modes that
// have floors, the plain bucket in the others, the host's as it is.
func TestLimiterByMode(t *testing.T) {
	many := func(p *isolation.Plan) {
		for _, s := range []isolation.Stage{isolation.Connection, isolation.Handshake} {
			p.Stages[s].Capacity, p.Stages[s].Shared, p.Stages[s].HardLimit = 1000, 990, 1000
		}
		p.MaxTrackedOwners = 1000
	}
	for _, tc := range []struct {
		mode                                    isolation.Mode
		rate                                    float64
		burst                                   int
		ordinary, bootstrap, reconnect, trusted int
		laterOrdinary                           int
	}{
		{isolation.Balanced, 5, 10, 8, 1, 1, 0, 3},
		{isolation.Balanced, 3, 4, 2, 1, 1, 0, 1},
		{isolation.TrustedReservations, 5, 10, 7, 1, 1, 1, 2},
		{isolation.FairShare, 5, 10, 10, 0, 0, 0, 5},
		{isolation.SharedOnly, 5, 10, 10, 0, 0, 0, 5},
	} {
		t.Run(tc.mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, tc.mode, many, GateOptions{MaxConnections: -1, ConnectionsPerSecond: tc.rate, ConnectionBurst: tc.burst})
				count := func(from netip.Addr) (n int) {
					for range 30 {
						switch _, _, r := b.admit(from, &Port{}); r {
						case RefusedNone:
							n++
						case RefusedRate, RefusedOwner:
						default:
							t.Fatal(r)
						}
					}
					return n
				}
				if n := count(ordinary(1)); n != tc.ordinary {
					t.Errorf("%d ordinary, want %d", n, tc.ordinary)
				}
				for from, want := range map[netip.Addr]int{bootstrapPeer: tc.bootstrap, reconnectPeer: tc.reconnect, trustedPeer: tc.trusted} {
					if n := count(from); n != want {
						t.Errorf("%v: %d, want %d", b.claims[from].Class, n, want)
					}
				}
				time.Sleep(time.Second)
				if n := count(ordinary(1)); n != tc.laterOrdinary {
					t.Errorf("%d ordinary in the next second, want %d", n, tc.laterOrdinary)
				}
				b.end()
			})
		})
	}
	if _, err := NewGate(GateOptions{Isolation: isolation.NewProvider(testPlan(t, isolation.Balanced, nil)), ConnectionsPerSecond: 2}); err == nil {
		t.Error("a rate that leaves nothing shared was taken")
	}
}

// The rate of one address is asked before the others, which lose no token to
// who is over it.
func TestPerAddressFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		per, err := isolation.NewAddressLimiter(1)
		if err != nil {
			t.Fatal(err)
		}
		b := newBed(t, isolation.Balanced, nil, GateOptions{PerAddress: per})
		b.must(ordinary(1), &Port{})
		if _, _, r := b.admit(ordinary(1), &Port{}); r != RefusedAddress || slices.Contains(b.asked, "limiter") {
			t.Error(r, b.asked)
		}
		b.must(ordinary(2), &Port{})
		b.end()
	})
}

// Clients that come back when they were told to find the door open, whichever
// limiter has closed it: the places in the line are as far apart as its tokens.
func TestHintsFollowTheLimiter(t *testing.T) {
	per, err := isolation.NewAddressLimiter(10)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		options   GateOptions
		addresses int
		within    time.Duration
	}{
		"all": {GateOptions{ConnectionsPerSecond: 20, ConnectionBurst: 20}, 100, 5 * time.Second},
		"one": {GateOptions{PerAddress: per, ConnectionsUnlimited: true}, 1, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.options.Hint = retry.New(retry.Options{Workers: 2}).SlotWithin
				g, err := NewGate(c.options)
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				var attempts atomic.Int64
				var clients sync.WaitGroup
				for i := range 100 {
					clients.Go(func() {
						for {
							attempts.Add(1)
							a, r := g.Admit(netip.AddrPortFrom(ordinary(1+i%c.addresses), 1), here, &Port{})
							if a != nil {
								a.Release()
								return
							}
							time.Sleep(r.RetryAfter)
						}
					})
				}
				clients.Wait()
				if n, took := attempts.Load(), time.Since(begun); n > 250 || took > c.within {
					t.Errorf("%d attempts of 100 clients, the last was let in after %v", n, took)
				}
			})
		})
	}
}

// Only a peer that will hear of it takes a place in the line.
func TestHintsForPoliteRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var owners []string
		place := 7 * time.Second
		hint := func(owner string, _ time.Time, _ retry.Rates) time.Duration {
			owners = append(owners, owner)
			return place
		}
		b := newBed(t, isolation.Balanced, nil, GateOptions{Hint: hint, PoliteRefusalsPerSecond: 2})
		b.noToken = true
		refused := func(port *Port) Refusal {
			_, r := b.Gate.Admit(netip.AddrPortFrom(ordinary(1), 1), here, port)
			return r
		}
		if r := refused(&Port{Silent: true}); r.Polite || len(owners) != 0 {
			t.Errorf("silent: %+v, %v", r, owners)
		}
		for range 2 {
			if r := refused(&Port{}); !r.Polite || r.RetryAfter != 7*time.Second || r.Text() != "RetryAfterMs=7000" {
				t.Errorf("%+v", r)
			}
		}
		if r := refused(&Port{}); r.Polite {
			t.Error("a third one in this second is told, too")
		}
		if !slices.Equal(owners, []string{isolation.AddressKey(ordinary(1)), isolation.AddressKey(ordinary(1))}) {
			t.Error(owners)
		}
		time.Sleep(time.Second)
		place = time.Second
		if r := refused(&Port{}); !r.Polite || r.RetryAfter != 3*time.Second {
			t.Errorf("sooner than the limiter's next token: %+v", r)
		}
		b.Stop(4 * time.Second) // draining has a time of its own
		time.Sleep(time.Second)
		if r := refused(&Port{}); !r.Polite || r.RetryAfter != 4*time.Second || len(owners) != 3 {
			t.Errorf("%+v", r)
		}
		if u := b.Usage(); u.Polite != 4 || u.Refused[RefusedRate] != 5 {
			t.Errorf("%+v", u)
		}
		b.end()
	})
	for d, want := range map[time.Duration]string{0: "", 1: "RetryAfterMs=1", time.Millisecond: "RetryAfterMs=1", time.Millisecond + 1: "RetryAfterMs=2"} {
		if got := (Refusal{RetryAfter: d}).Text(); got != want {
			t.Errorf("%v: %q", d, got)
		}
	}
}

// PROXY protocol, overload.md §3: the peer's leases until the header has come,
// then those of the address it carries; one token per socket.
func TestCarriedAddress(t *testing.T) {
	balancer := netip.MustParseAddr("192.168.0.1")
	for _, tc := range []struct {
		name   string
		peer   isolation.OwnerClaim // what the path is claimed as
		before func(b *bed)
		remote netip.AddrPort
		want   RefusalReason
		key    string
		class  isolation.Class
		tokens int
	}{
		{name: "an ordinary client", remote: netip.AddrPortFrom(ordinary(1), 7), key: isolation.AddressKey(ordinary(1)), tokens: 1},
		{name: "LOCAL keeps the balancer's own", key: isolation.AddressKey(balancer), tokens: 1},
		{name: "no class above Established from a carried address alone", remote: netip.AddrPortFrom(bootstrapPeer, 7),
			key: isolation.AddressKey(bootstrapPeer), tokens: 1},
		{name: "nor from one that names nobody", remote: netip.AddrPortFrom(strangePeer, 7), key: isolation.AddressKey(strangePeer), tokens: 1},
		{name: "the path proves it", peer: isolation.OwnerClaim{Key: "boot", Class: isolation.Bootstrap}, remote: netip.AddrPortFrom(bootstrapPeer, 7),
			key: "boot", class: isolation.Bootstrap, tokens: 1},
		{name: "another class of path proves nothing", peer: isolation.OwnerClaim{Key: "boot", Class: isolation.Bootstrap}, remote: netip.AddrPortFrom(reconnectPeer, 7),
			key: isolation.AddressKey(reconnectPeer), tokens: 1},
		{name: "no token", before: func(b *bed) { b.noToken = true }, remote: netip.AddrPortFrom(ordinary(1), 7), want: RefusedRate, tokens: 1},
		{name: "stopped meanwhile", before: func(b *bed) { b.Stop(0) }, remote: netip.AddrPortFrom(ordinary(1), 7), want: RefusedStopped},
		{name: "the client's own limit", remote: netip.AddrPortFrom(ordinary(5), 7), want: RefusedOwnerLimit, tokens: 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := func(p *isolation.Plan) { p.Stages[isolation.Connection].HardLimit = 2 }
				b := newBed(t, isolation.Balanced, limit, GateOptions{ProxyPeers: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/24")}})
				if tc.peer.Key != "" {
					b.claims[balancer] = tc.peer
				}
				for range 2 {
					if a, _ := b.must(ordinary(5), &Port{}); a.ExpectsProxyHeader() {
						t.Fatal("a header from anybody")
					}
				}
				port := &Port{Max: 1}
				a, _ := b.must(balancer, port)
				if !a.ExpectsProxyHeader() || slices.Contains(b.asked, "limiter") || b.provider.Used(isolation.Connection) != 3 {
					t.Fatal("before the header: asked", b.asked)
				}
				if tc.before != nil {
					tc.before(b)
				}
				b.asked = nil
				r := a.Carried(tc.remote)
				if r.Reason != tc.want {
					t.Fatal(r.Reason)
				}
				if n := len(slices.DeleteFunc(b.asked, func(s string) bool { return s != "limiter" })); n != tc.tokens {
					t.Error("tokens", n)
				}
				if tc.want == RefusedNone {
					if a.claim.Key != tc.key || a.claim.Class != tc.class {
						t.Errorf("%+v", a.claim)
					}
					o, err := b.provider.Issue(tc.key, tc.class)
					if err != nil || b.provider.OwnerUsed(o, isolation.Connection) != 1 || b.provider.Used(isolation.Connection) != 3 {
						t.Error("the lease is not the carried owner's", err)
					}
				} else if b.provider.Used(isolation.Connection) != 2 && tc.want != RefusedStopped {
					t.Error("leases kept:", b.provider.Used(isolation.Connection))
				}
				if port.used != 1 {
					t.Error("at the port:", port.used)
				}
				b.end()
			})
		})
	}
}

// A full server behind a balancer: the token that reclaiming cost is not asked
// for again when the header has come.
func TestCarriedAfterReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, isolation.Balanced, nil, GateOptions{ProxyPeers: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/24")}})
		for i := range 3 {
			b.must(ordinary(i), &Port{})
		}
		time.Sleep(time.Second)
		a, _ := b.must(netip.MustParseAddr("192.168.0.1"), &Port{})
		if !slices.Equal(b.asked, []string{"classify", "limiter"}) || b.Usage().Reclaimed != 1 {
			t.Fatal(b.asked, b.Usage())
		}
		b.asked = nil
		if r := a.Carried(netip.AddrPortFrom(ordinary(9), 1)); r.Reason != RefusedNone || !slices.Equal(b.asked, []string{"classify"}) {
			t.Fatal(r, b.asked)
		}
		b.end()
	})
}

// Racing newcomers under every reason at once: the totals are exact and come
// back to nothing.
func TestAdmitRaces(t *testing.T) {
	b := newBed(t, isolation.Balanced, nil, GateOptions{ConnectionsUnlimited: true, MaxConnections: 4,
		ProxyPeers: []netip.Prefix{netip.PrefixFrom(ordinary(2), 32)}})
	b.claims = nil
	b.classifier = nil // bed writes its questions down
	var wg sync.WaitGroup
	var held, most atomic.Int32
	port := &Port{Max: 3}
	for i := range 8 {
		wg.Go(func() {
			for n := range 400 {
				a, _ := b.Gate.Admit(netip.AddrPortFrom(ordinary(i%4), uint16(n)), here, port)
				if a == nil {
					continue
				}
				if now := held.Add(1); now > most.Load() {
					most.Store(now)
				}
				a.Bind(&victim{})
				if !a.ExpectsProxyHeader() || a.Carried(netip.AddrPortFrom(ordinary(100+n%3), 1)).Reason == RefusedNone {
					a.Hello()
					a.CompleteHandshake()
					a.SetReclaimable(n%2 == 0)
				}
				held.Add(-1)
				a.Release()
			}
		})
	}
	wg.Wait()
	if most.Load() > 3 {
		t.Error("at once:", most.Load())
	}
	b.end()
}

// overload.md §16: limits change while the Gate works.
func TestGateApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := NewGate(GateOptions{MaxConnections: 1, ConnectionsPerSecond: 1, ConnectionBurst: 1})
		if err != nil {
			t.Fatal(err)
		}
		a, _ := admit(t, g)
		refused := func(want RefusalReason) {
			t.Helper()
			if _, r := g.Admit(peer, here, &Port{}); r.Reason != want {
				t.Error(r.Reason, "want", want)
			}
		}
		refused(RefusedCapacity)
		if err := g.Apply(GateOptions{MaxConnections: 3, ConnectionsPerSecond: 1, ConnectionBurst: 1}); err != nil {
			t.Fatal(err)
		}
		refused(RefusedRate) // the bucket is the one that was
		if err := g.Apply(GateOptions{MaxConnections: 3, ConnectionsPerSecond: 5, ConnectionBurst: 5}); err != nil {
			t.Fatal(err)
		}
		b, _ := admit(t, g)
		if g.Apply(GateOptions{HelloTimeout: -1}) == nil {
			t.Error("a negative time was taken")
		}
		if err := g.Apply(GateOptions{MaxConnections: 1, ConnectionsPerSecond: 5, ConnectionBurst: 5}); err != nil {
			t.Fatal(err)
		}
		a.Release()
		refused(RefusedCapacity) // one is still there, which is what there may be
		b.Release()
		c, _ := admit(t, g)
		c.Release()
	})
}
