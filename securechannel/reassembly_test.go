package securechannel

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

const rental = buffer.Size64K // what a chunk of 60,000 bytes costs

// bytesPlan divides eight rentals: in Balanced two each for bootstrap and
// reconnect, four shared.
func bytesPlan(t testing.TB, mode isolation.Mode, trusted ...isolation.TrustedOwner) *isolation.Plan {
	t.Helper()
	o := isolation.Options{Mode: mode, TrustedOwners: trusted}
	totals := isolation.Totals{MaxMessageSize: 64 << 10, MaxBufferSize: 8192, MaxSessions: 100, MaxChannels: 200, Budget: 8 * rental,
		MaxEstablishment: 128, HasClassifier: len(trusted) > 0}
	if mode != isolation.SharedOnly {
		o.MaxRetainedMessageBytes = 2 * rental
	}
	p, err := isolation.CreatePlan(o, totals)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// assemblies is a server in memory with a budget of eight rentals.
type assemblies struct {
	*testServer
	t        *testing.T
	provider *isolation.Provider
}

func startAssemblies(t *testing.T, p *isolation.Provider, o testOptions) *assemblies {
	t.Helper()
	b, err := budget.New(8 * rental)
	if err != nil {
		t.Fatal(err)
	}
	if p != nil {
		t.Cleanup(func() { // after the server's end
			for s := range isolation.Stage(isolation.Stages) {
				if n := p.Used(s); n != 0 {
					t.Errorf("%v: %d left", s, n)
				}
			}
			if n := p.Owners(); n != 0 {
				t.Errorf("%d owners left", n)
			}
		})
	}
	o.memory, o.cfg.Budget, o.cfg.Isolation = true, b, p
	return &assemblies{startServer(t, o), t, p}
}

// open is a channel, with an activated session if wanted.
func (s *assemblies) open(session bool) (*Client, *Channel) {
	s.t.Helper()
	c := s.dial(s.t, ClientConfig{})
	ch := <-s.h.chans
	if session {
		ch.SessionAttached()
	}
	return c, ch
}

// add sends one more intermediate chunk.
func (s *assemblies) add(c *Client, request uint32) {
	s.t.Helper()
	c.writeAll(s.t, c.Seal(RawChunk{Final: 'C', RequestID: request, Body: body(60_000)}))
	synctest.Wait()
}

func (s *assemblies) refused(c *Client) {
	s.t.Helper()
	expectERR(s.t, c, ua.StatusBadTCPNotEnoughResources)
	s.expectEnd(s.t, transport.ResourceLimit)
}

func (s *assemblies) reserved(rentals int64) {
	s.t.Helper()
	if n := s.Budget().Reserved(); n != rentals*rental {
		s.t.Errorf("budget %d, want %d rentals", n, rentals)
	}
	if s.provider != nil {
		if n := s.provider.Used(isolation.ReassemblyBytes); n != rentals*rental {
			s.t.Errorf("leases %d, want %d rentals", n, rentals)
		}
	}
}

// overload.md §6: 40 channels on a budget of four: four survive with sessions,
// two without; the threshold rules without a Provider and in SharedOnly.
func TestReassemblyThreshold(t *testing.T) {
	for _, tc := range []struct {
		name    string
		shared  bool
		session bool
		want    int
	}{{"sessions", false, true, 8}, {"no sessions", false, false, 4}, {"sessions, SharedOnly", true, true, 8}, {"no sessions, SharedOnly", true, false, 4}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p *isolation.Provider
				if tc.shared {
					p = isolation.NewProvider(bytesPlan(t, isolation.SharedOnly))
				}
				s := startAssemblies(t, p, testOptions{})
				alive := 0
				for range 40 {
					c, ch := s.open(tc.session)
					s.add(c, 1)
					select {
					case <-ch.Done():
						s.refused(c)
					default:
						alive++
					}
				}
				if alive != tc.want {
					t.Errorf("%d survive, want %d", alive, tc.want)
				}
				s.reserved(int64(tc.want))
			})
		})
	}
}

// overload.md §6: without owners the session is looked at live, chunk by chunk;
// what is held stays, the next chunk over the threshold closes.
func TestReassemblySessionAskedLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startAssemblies(t, nil, testOptions{})
		c, ch := s.open(true)
		for range 5 {
			s.add(c, 1)
		}
		s.reserved(5)
		ch.SessionDetached()
		synctest.Wait()
		s.reserved(5) // a downgrade evicts nothing
		s.add(c, 1)
		s.refused(c)
		s.reserved(0)
	})
}

// overload.md §6, vector with isolation: Balanced, rental r, budget 8r,
// footprint 2r.
func TestReassemblyByOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startAssemblies(t, isolation.NewProvider(bytesPlan(t, isolation.Balanced)), testOptions{})
		a, _ := s.open(false)
		b, _ := s.open(false)
		for range 2 {
			s.add(a, 1)
			s.add(b, 1)
		}
		s.reserved(4) // the shared part is full
		c1, ch1 := s.open(true)
		s.add(c1, 1)
		s.reserved(5)
		c2, _ := s.open(true)
		s.add(c2, 1)
		s.reserved(6)
		if u, _ := s.provider.Snapshot(); u[isolation.ReassemblyBytes].Reconnect != 2*rental {
			t.Errorf("%+v", u[isolation.ReassemblyBytes])
		}
		late, _ := s.open(false)
		s.add(late, 1)
		s.refused(late)
		s.reserved(6) // the others stay

		c1.writeAll(t, c1.Seal(RawChunk{Final: 'A', RequestID: 1, Body: make([]byte, 8)})) // drops its message,
		synctest.Wait()
		s.reserved(5)
		roundTrip(t, c1, body(10)) // is usable,
		ch1.SessionDetached()      // loses its session
		s.add(c1, 2)               // and begins another
		s.refused(c1)
		s.reserved(5)

		// Those who hold chunks finish: the last one is never charged.
		c2.writeAll(t, c2.Seal(RawChunk{RequestID: 1, Body: body(60_000)}))
		if _, got, err := c2.Receive(); err != nil || len(got) != 120_000 {
			t.Fatal(len(got), err)
		}
		s.reserved(4)
		for _, c := range []*Client{a, b, c2} {
			_ = c.Close()
			<-s.ends
		}
		synctest.Wait()
		s.reserved(0)
	})
}

// The continuity rule is decided per partial message: one that has begun with a
// session goes on without, and the other way round.
func TestReassemblyOwnerPerMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startAssemblies(t, isolation.NewProvider(bytesPlan(t, isolation.Balanced)), testOptions{})
		c, ch := s.open(true)
		s.add(c, 1)
		ch.SessionDetached()
		s.add(c, 1)
		if u, _ := s.provider.Snapshot(); u[isolation.ReassemblyBytes].Reconnect != 2*rental {
			t.Errorf("begun with a session: %+v", u[isolation.ReassemblyBytes])
		}
		s.add(c, 2) // replaces it: released before the new one is reserved
		ch.SessionAttached()
		s.add(c, 2)
		if u, _ := s.provider.Snapshot(); u[isolation.ReassemblyBytes].Reconnect != 0 || u[isolation.ReassemblyBytes].Shared != 2*rental {
			t.Errorf("begun without: %+v", u[isolation.ReassemblyBytes])
		}
		s.reserved(2)
	})
}

// A trusted ingress gets its message through whatever the others hold; what
// somebody claimed is not continued by the reconnect floor.
func TestReassemblyOfTrustedIngress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := bytesPlan(t, isolation.TrustedReservations, isolation.TrustedOwner{Key: "plant", Reservations: []isolation.Reservation{
			{Stage: isolation.ReassemblyBytes, Reserved: 2 * rental}}})
		p := isolation.NewProvider(plan)
		s := startAssemblies(t, p, testOptions{gate: transport.GateOptions{Isolation: p, Classifier: plant{}}})
		other, _ := s.open(false)
		s.add(other, 1)
		s.add(other, 1) // the shared part
		trusted, ch := s.open2(t, "10.7.7.7:1")
		if ch.Ingress() != (isolation.OwnerClaim{Key: "plant", Class: isolation.Trusted}) {
			t.Fatalf("%+v", ch.Ingress())
		}
		ch.SessionAttached()
		s.add(trusted, 1)
		s.add(trusted, 1)
		s.reserved(4)
		trusted.writeAll(t, trusted.Seal(RawChunk{RequestID: 1, Body: body(60_000)}))
		if _, got, err := trusted.Receive(); err != nil || len(got) != 180_000 {
			t.Fatal(len(got), err)
		}
		s.add(other, 1)
		s.refused(other)
	})
}

// plant trusts one network.
type plant struct{}

func (plant) ClassifyIngress(remote, _ netip.AddrPort) (isolation.OwnerClaim, bool) {
	return isolation.OwnerClaim{Key: "plant", Class: isolation.Trusted}, netip.MustParsePrefix("10.7.0.0/16").Contains(remote.Addr())
}

func (plant) Classify(isolation.ServiceKind, *isolation.ChannelFacts, *isolation.BindingFacts) (isolation.OwnerClaim, bool) {
	return isolation.OwnerClaim{}, false
}

func (s *assemblies) open2(t *testing.T, from string) (*Client, *Channel) {
	t.Helper()
	nc, err := s.mem.Dial(context.Background(), netip.MustParseAddrPort(from))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(context.Background(), nc, ClientConfig{EndpointURL: "opc.tcp://localhost:4840"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Release(); _ = nc.Close() })
	return c, <-s.h.chans
}

// Seams: AssemblyOwner decides once per message; its continuity owner counts;
// nobody is nobody's, and refused.
func TestAssemblyOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := isolation.NewProvider(bytesPlan(t, isolation.Balanced))
		asked := 0
		var owner, continuity *isolation.Owner
		s := startAssemblies(t, p, testOptions{cfg: ServerConfig{AssemblyOwner: func(*Channel) (*isolation.Owner, *isolation.Owner) {
			asked++
			return owner, continuity
		}}})
		owner, _ = p.Issue("me", isolation.Established)
		c, _ := s.open(false)
		s.add(c, 1)
		s.add(c, 1)
		if asked != 1 || p.OwnerUsed(owner, isolation.ReassemblyBytes) != 2*rental {
			t.Error("asked", asked, "used", p.OwnerUsed(owner, isolation.ReassemblyBytes))
		}
		continuity, _ = p.IssueFor("me", isolation.Reconnect, isolation.ReassemblyBytes)
		s.add(c, 2)
		if u, _ := p.Snapshot(); asked != 2 || u[isolation.ReassemblyBytes].Reconnect != rental {
			t.Errorf("asked %d, %+v", asked, u[isolation.ReassemblyBytes])
		}
		owner, continuity = nil, nil
		s.add(c, 3)
		s.refused(c)
		s.reserved(0)
	})
}

// The budget may be shared and full although the owner has room: the lease that
// was taken for the chunk goes back.
func TestReassemblyBudgetOfAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startAssemblies(t, isolation.NewProvider(bytesPlan(t, isolation.Balanced)), testOptions{})
		if err := s.Budget().Reserve(7*rental, true); err != nil { // another server's
			t.Fatal(err)
		}
		c, _ := s.open(false)
		s.add(c, 1) // over half of the budget, but owners are what counts
		s.reserved2(8, 1)
		s.add(c, 1)
		s.refused(c)
		s.reserved2(7, 0)
		if err := s.Budget().Release(7 * rental); err != nil {
			t.Fatal(err)
		}
	})
}

func (s *assemblies) reserved2(budget, leases int64) {
	s.t.Helper()
	if b, l := s.Budget().Reserved(), s.provider.Used(isolation.ReassemblyBytes); b != budget*rental || l != leases*rental {
		s.t.Errorf("budget %d, leases %d; want %d, %d rentals", b, l, budget, leases)
	}
}

// Every way in which a message ends gives back exactly what it held.
func TestReassemblyReleasedOnEveryPath(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *assemblies, c *Client, ch *Channel){
		"completed": func(t *testing.T, s *assemblies, c *Client, _ *Channel) {
			c.writeAll(t, c.Seal(RawChunk{RequestID: 1, Body: nil}))
			if _, got, err := c.Receive(); err != nil || len(got) != 120_000 {
				t.Fatal(len(got), err)
			}
		},
		"aborted": func(t *testing.T, s *assemblies, c *Client, _ *Channel) {
			c.writeAll(t, c.Seal(RawChunk{Final: 'A', RequestID: 1, Body: make([]byte, 8)}))
			roundTrip(t, c, body(5))
		},
		"replaced by a small one": func(t *testing.T, s *assemblies, c *Client, _ *Channel) {
			c.writeAll(t, c.Seal(RawChunk{RequestID: 2, Body: body(5)}))
			if id, got, err := c.Receive(); err != nil || id != 2 || len(got) != 5 {
				t.Fatal(id, got, err)
			}
		},
		"too large": func(t *testing.T, s *assemblies, c *Client, _ *Channel) {
			s.add(c, 1)
			c.writeAll(t, c.Seal(RawChunk{Final: 'C', RequestID: 1, Body: body(60_000)}))
			synctest.Wait()
			s.reserved(0) // and not only when the peer has read why, and gone
			expectERR(t, c, ua.StatusBadTCPMessageTooLarge)
		},
		"protocol error": func(t *testing.T, s *assemblies, c *Client, _ *Channel) {
			c.writeAll(t, []byte("XXXXXXXXXXXX"))
			expectERR(t, c, ua.StatusBadTCPMessageTypeInvalid)
		},
		"reset": func(t *testing.T, s *assemblies, c *Client, _ *Channel) { _ = c.Conn().Close() },
		"timeout": func(t *testing.T, s *assemblies, c *Client, _ *Channel) {
			time.Sleep(30 * time.Second)
			expectERR(t, c, ua.StatusBadTimeout)
		},
		"CloseSecureChannel": func(t *testing.T, s *assemblies, c *Client, _ *Channel) { _ = c.Close() },
		"closed by us": func(t *testing.T, s *assemblies, c *Client, ch *Channel) {
			ch.Close(transport.Administrative, ua.StatusBadSecureChannelClosed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startAssemblies(t, isolation.NewProvider(bytesPlan(t, isolation.Balanced)),
					testOptions{cfg: ServerConfig{Limits: transport.Limits{MaxMessageSize: 200_000}}})
				c, ch := s.open(false)
				s.add(c, 1)
				s.add(c, 1)
				s.reserved(2)
				end(t, s, c, ch)
				time.Sleep(2 * time.Second) // a linger
				synctest.Wait()
				s.reserved(0)
			})
		})
	}
}

// overload.md §8a: the refused OpenSecureChannel takes a place in the line under
// the owner of its connection, and the hint is on the wire.
func TestRefusedOpenCarriesHint(t *testing.T) {
	p := newPKI(t, 1)
	cfg := p.serverConfig()
	cfg.MaxCryptoWait = time.Nanosecond
	var mu sync.Mutex
	var owners []string
	cfg.Hint = func(owner string, _ time.Time) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		owners = append(owners, owner)
		return 1234567 * time.Microsecond
	}
	s := startServer(t, testOptions{cfg: cfg})
	release := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 { // 2 run, 2 wait
		wg.Go(func() { _ = p.gate.Do(context.Background(), security.PriorityRenew, func() { <-release }) })
	}
	defer wg.Wait()
	defer close(release)
	for p.gate.Waiting()[0] < 2 {
		time.Sleep(time.Millisecond) // real threads, no bubble
	}
	other := security.NewCryptoGate(1)
	defer other.Close()
	cc := p.clientConfig(security.Basic256Sha256, ua.MessageSecurityModeSign)
	cc.Key = newKey(t, rsaKeys()[1], other)
	_, err := Dial(context.Background(), s.connect(t), cc)
	if !errors.Is(err, ua.StatusBadTCPServerTooBusy) || !strings.Contains(err.Error(), "RetryAfterMs=1235") {
		t.Fatal(err)
	}
	s.expectEnd(t, transport.TooBusy)
	mu.Lock()
	defer mu.Unlock()
	if len(owners) != 1 || owners[0] != isolation.AddressKey(netip.MustParseAddr("127.0.0.1")) {
		t.Error(owners)
	}
}

// overload.md §5: not within a second of the answer to OpenSecureChannel, a
// renewal's too; not before KeepUntil; the oldest idle one first.
func TestReclaimSparesWhoWasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testOptions{memory: true, gate: transport.GateOptions{MaxConnections: 2}})
		newcomer := func() error {
			c, err := Dial(context.Background(), s.connect(t), ClientConfig{})
			if err == nil {
				t.Cleanup(c.Release)
				<-s.h.chans
			}
			return err
		}
		told := s.dial(t, ClientConfig{})
		(<-s.h.chans).KeepUntil(time.Now().Add(3 * time.Second)) // a hint and five seconds
		time.Sleep(time.Millisecond)
		renewed := s.dial(t, ClientConfig{})
		<-s.h.chans
		time.Sleep(1500 * time.Millisecond)
		end := make(chan error, 1)
		go func() { // reads the answer, then why it ends
			_, _, err := renewed.Receive()
			end <- err
		}()
		if err := renewed.Renew(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := newcomer(); !errors.Is(err, ua.StatusBadTCPServerTooBusy) {
			t.Fatal("one waits for its turn, the other has just renewed:", err)
		}
		time.Sleep(time.Second)
		if err := newcomer(); err != nil { // takes renewed's place
			t.Fatal(err)
		}
		if err := <-end; !errors.Is(err, ua.StatusBadSecureChannelClosed) {
			t.Fatal(err)
		}
		_ = renewed.Conn().Close() // or the server would linger
		s.expectEnd(t, transport.Reclaimed)
		time.Sleep(500*time.Millisecond - 2*time.Millisecond)
		if err := newcomer(); !errors.Is(err, ua.StatusBadTCPServerTooBusy) {
			t.Fatal("before the time that was promised:", err)
		}
		time.Sleep(2 * time.Millisecond)
		if err := newcomer(); err != nil {
			t.Fatal(err)
		}
		expectERR(t, told, ua.StatusBadSecureChannelClosed)
		s.expectEnd(t, transport.Reclaimed)
	})
}
