package uatcp

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/admission/retry"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

const signature = "\r\n\r\n\x00\r\nQUIT\n"

// carried is a PROXY header of command PROXY over IPv4 with n bytes of TLVs.
func carried(from string, n int) []byte {
	src := netip.MustParseAddrPort(from)
	b := binary.BigEndian.AppendUint16([]byte(signature+"\x21\x11"), uint16(12+n))
	ip := src.Addr().As4()
	b = append(append(b, ip[:]...), 10, 0, 0, 1)
	b = binary.BigEndian.AppendUint16(b, src.Port())
	b = binary.BigEndian.AppendUint16(b, 4840)
	return append(b, make([]byte, n)...)
}

// balanced is a server whose peers are balancers; its gate keeps leases in a
// Provider, of which nothing may be left at the end.
func balanced(t *testing.T, mem bool, o transport.GateOptions) *server {
	t.Helper()
	plan, err := isolation.CreatePlan(isolation.Options{}, isolation.Totals{MaxMessageSize: 1 << 20, MaxBufferSize: 65535,
		MaxSessions: 10, MaxChannels: 20, Budget: 64 << 20, MaxEstablishment: 128})
	if err != nil {
		t.Fatal(err)
	}
	p := isolation.NewProvider(plan)
	o.Isolation = p
	if o.ProxyPeers == nil {
		o.ProxyPeers = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/24")}
	}
	g, err := transport.NewGate(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after start's
		for s := range isolation.Stage(isolation.Stages) {
			if n := p.Used(s); n != 0 {
				t.Errorf("%v: %d left", s, n)
			}
		}
	})
	return start(t, mem, Options{Gate: g})
}

func bothBalanced(t *testing.T, o transport.GateOptions, f func(t *testing.T, s *server)) {
	t.Run("loopback", func(t *testing.T) { f(t, balanced(t, false, o)) })
	t.Run("memory", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, balanced(t, true, o)) }) })
}

// expectEOF wants the end without a word.
func expectEOF(t *testing.T, c net.Conn) {
	t.Helper()
	if b, err := io.ReadAll(c); len(b) != 0 || err != nil {
		t.Fatalf("%q, %v; want the end", b, err)
	}
}

// overload.md §3: the header's address is the connection's, whatever pieces it
// comes in and whatever follows at once.
func TestProxyHeader(t *testing.T) {
	bothBalanced(t, transport.GateOptions{}, func(t *testing.T, s *server) {
		for _, tc := range []struct {
			name string
			b    []byte
			want string // "" = the balancer's own
		}{
			{"PROXY", carried("203.0.113.7:50000", 0), "203.0.113.7:50000"},
			{"the longest", carried("203.0.113.8:1", 508), "203.0.113.8:1"},
			{"LOCAL", []byte(signature + "\x20\x00\x00\x00"), ""},
		} {
			for _, pieces := range []int{1, 0} {
				c := s.dial(t)
				b := append(append(append([]byte{}, tc.b...), hello()...), frame("OPNF", 100)...)
				for len(b) > 0 {
					n := len(b)
					if pieces == 1 {
						n = 1
					}
					send1(t, c, b[:n])
					b = b[n:]
				}
				if a, err := ParseAcknowledge(readFrame(t, c)); err != nil {
					t.Fatal(tc.name, a, err)
				}
				readFrame(t, c)
				want := tc.want
				if want == "" {
					want = c.LocalAddr().String()
				}
				if e := <-s.sinks; e.conn.RemoteAddr().String() != want {
					t.Errorf("%s: %v, want %v", tc.name, e.conn.RemoteAddr(), want)
				}
				_ = c.Close()
				s.expectClosed(t, transport.PeerClosed)
			}
		}
	})
}

// What a balancer sends instead of a header ends the connection without a word,
// and without a token; a header from anybody else is a bad first byte.
func TestHostileProxyHeaders(t *testing.T) {
	bothBalanced(t, transport.GateOptions{}, func(t *testing.T, s *server) {
		for name, b := range map[string][]byte{
			"Hello":       hello(),
			"text":        []byte("PROXY TCP4 203.0.113.7 10.0.0.1 50000 4840\r\n"),
			"UDP":         []byte(signature + "\x21\x12\x00\x0c............"),
			"too long":    append([]byte(signature+"\x21\x11\xff\xff"), make([]byte, 1000)...),
			"two headers": nil,
		} {
			c := s.dial(t)
			if name == "two headers" { // the second one is the client's: a bad first byte
				send1(t, c, append(carried("203.0.113.7:1", 0), carried("203.0.113.8:1", 0)...))
				expectERR(t, c, ua.StatusBadTCPMessageTypeInvalid)
				_ = c.Close()
				s.expectClosed(t, transport.ProtocolError)
				continue
			}
			send1(t, c, b)
			b, err := io.ReadAll(c) // what was sent beyond the header may turn the end into a reset
			if len(b) != 0 {
				t.Fatalf("%s: %q, %v", name, b, err)
			}
			_ = c.Close()
			s.expectClosed(t, transport.ProxyHeader)
		}
		if u := s.Listener.server.gate.Usage(); u.Admitted != 1 {
			t.Errorf("%+v", u)
		}
	})
	bothBalanced(t, transport.GateOptions{ProxyPeers: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, func(t *testing.T, s *server) {
		c := s.dial(t)
		send1(t, c, carried("203.0.113.7:1", 0))
		expectERR(t, c, ua.StatusBadTCPMessageTypeInvalid)
		_ = c.Close()
		s.expectClosed(t, transport.ProtocolError)
	})
}

// Two seconds from admission to the whole header, however it dribbles in; then
// HelloTimeout counts from the same admission.
func TestProxyHeaderTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := balanced(t, true, transport.GateOptions{})
		begun := time.Now()
		silent, slow, none := s.dial(t), s.dial(t), s.dial(t)
		b := carried("203.0.113.7:1", 0)
		for i := range 19 {
			time.Sleep(100 * time.Millisecond)
			send1(t, slow, b[i:i+1])
		}
		_ = none.Close()
		s.expectClosed(t, transport.ProxyHeader)
		expectEOF(t, silent)
		expectEOF(t, slow)
		if d := time.Since(begun); d != 2*time.Second {
			t.Error("after", d)
		}
		s.expectClosed(t, transport.ProxyHeader)
		s.expectClosed(t, transport.ProxyHeader)

		begun = time.Now()
		c := s.dial(t)
		time.Sleep(time.Second)
		send1(t, c, b)
		expectERR(t, c, ua.StatusBadTimeout)
		if d := time.Since(begun); d != 10*time.Second {
			t.Error("HelloTimeout after", d)
		}
		s.expectClosed(t, transport.HelloTimeout)
	})
}

// The carried address is refused like any other: politely, or by the close.
func TestCarriedAddressRefused(t *testing.T) {
	for _, polite := range []int{0, -1} {
		per, err := isolation.NewAddressLimiter(1)
		if err != nil {
			t.Fatal(err)
		}
		hint := func(owner string, _ time.Time, _ retry.Rates) time.Duration {
			if owner != isolation.AddressKey(netip.MustParseAddr("203.0.113.7")) {
				t.Error("hint for", owner)
			}
			return 1500 * time.Millisecond
		}
		synctest.Test(t, func(t *testing.T) {
			s := balanced(t, true, transport.GateOptions{PerAddress: per, Hint: hint, PoliteRefusalsPerSecond: polite})
			first := s.dial(t)
			send1(t, first, append(carried("203.0.113.7:1", 0), hello()...))
			readFrame(t, first)
			second := s.dial(t)
			send1(t, second, carried("203.0.113.7:2", 0))
			if polite == 0 {
				if e := expectERR(t, second, ua.StatusBadTCPServerTooBusy); e.Reason != "RetryAfterMs=1500" {
					t.Error(e.Reason)
				}
				_ = second.Close()
			} else {
				expectEOF(t, second)
			}
			s.expectClosed(t, transport.TooBusy)
			third := s.dial(t) // another client behind the same balancer
			send1(t, third, append(carried("203.0.113.9:1", 0), hello()...))
			readFrame(t, third)
		})
	}
}

// A listener that stops while headers are awaited ends them, too.
func TestProxyHeaderShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := balanced(t, true, transport.GateOptions{})
		c := s.dial(t)
		synctest.Wait()
		s.cancel()
		expectERR(t, c, ua.StatusBadServerHalted)
		_ = c.Close()
		s.expectClosed(t, transport.Shutdown)
	})
}

// Refused at the gate: the hint on the wire; a silent listener just closes.
func TestRefusalHint(t *testing.T) {
	for _, silent := range []bool{false, true} {
		run := func(t *testing.T, mem bool) {
			g, err := transport.NewGate(transport.GateOptions{MaxConnections: 1,
				Hint: func(string, time.Time, retry.Rates) time.Duration { return 250 * time.Millisecond }})
			if err != nil {
				t.Fatal(err)
			}
			s := start(t, mem, Options{Gate: g, Silent: silent})
			connect(t, s)
			c := s.dial(t)
			if silent {
				if b, err := io.ReadAll(c); len(b) != 0 {
					t.Fatal(b, err)
				}
				return
			}
			if e := expectERR(t, c, ua.StatusBadTCPServerTooBusy); e.Reason != "RetryAfterMs=250" {
				t.Fatal(e.Reason)
			}
		}
		t.Run("loopback", func(t *testing.T) { run(t, false) })
		t.Run("memory", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { run(t, true) }) })
	}
}

// A peer that sends on and on after its refusal is read for 4 KiB, no more, and
// holds up nobody else who lingers.
func TestRefusedFlood(t *testing.T) {
	s := start(t, false, Options{Gate: full(t)})
	nc, err := new(net.Dialer).DialContext(context.Background(), "tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	b := make([]byte, 1<<16)
	_ = nc.SetWriteDeadline(time.Now().Add(5 * time.Second))
	for {
		if _, err := nc.Write(b); err != nil {
			if isTimeout(err) {
				t.Fatal("still open after five seconds")
			}
			break
		}
	}
}
