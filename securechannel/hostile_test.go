package securechannel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Rows of hostile.md. startServer's cleanup checks that nothing is left behind:
// budget, channels, gate, buffers; in a bubble also goroutines.

// expectERR wants the server's ERR, then the end of the connection.
func expectERR(t testing.TB, c *Client, code ua.StatusCode) *uatcp.Error {
	t.Helper()
	_, _, err := c.Receive()
	var e *uatcp.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got %v, want ERR %s", err, uastatus.Name(code))
	}
	if n, err := c.read.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("after the ERR: %d bytes, %v, want EOF", n, err)
	}
	_ = c.conn.Close()
	return e
}

func (s *testServer) expectEnd(t testing.TB, want transport.CloseReason) {
	t.Helper()
	if got := <-s.ends; got != want {
		t.Fatalf("closed with %q, want %q", got, want)
	}
}

// healthy shows that the server still serves.
func (s *testServer) healthy(t testing.TB) {
	t.Helper()
	c := s.dial(t, ClientConfig{})
	roundTrip(t, c, body(500))
	_ = c.Close()
}

func (c *Client) writeAll(t testing.TB, b ...[]byte) {
	t.Helper()
	for _, b := range b {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
}

// A1: one chunk more than negotiated; A2: no final chunk ever with defaults.
func TestHostileA1A2ChunkCount(t *testing.T) {
	for _, most := range []int{5, 0} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			bothPaths(t, testOptions{cfg: ServerConfig{Limits: transport.Limits{MaxChunkCount: most}}}, func(t *testing.T, s *testServer) {
				c := s.dial(t, ClientConfig{Limits: transport.Limits{ReceiveBufferSize: 8192, SendBufferSize: 8192}})
				if most == 0 && c.Parameters().MaxChunkCount != 512 {
					t.Fatal("default chunk count", c.Parameters().MaxChunkCount)
				}
				for range c.Parameters().MaxChunkCount {
					c.writeAll(t, c.Seal(RawChunk{Final: 'C', RequestID: 7, Body: body(100)}))
				}
				_, _ = c.Write(c.Seal(RawChunk{Final: 'C', RequestID: 7, Body: body(100)}))
				expectERR(t, c, ua.StatusBadTCPMessageTooLarge)
				s.expectEnd(t, transport.ProtocolError)
				s.healthy(t)
			})
		})
	}
}

// X1, A6: intermediate chunks without a final one, in the sizes of known attacks;
// cut by count or by size, whatever comes first.
func TestHostileX1A6HugeRead(t *testing.T) {
	for _, tc := range []struct{ chunk, total int }{{2000, 2 << 30}, {4000, 20 << 20}, {2000, 10 << 20}, {65511, 1 << 30}} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			s := startServer(t, testOptions{})
			c := s.dial(t, ClientConfig{})
			go func() { // ends when the server closes
				chunk := c.Seal(RawChunk{Final: 'C', RequestID: 1, Body: body(tc.chunk)})
				for n := 0; n < tc.total; n += tc.chunk {
					if _, err := c.Write(chunk); err != nil {
						return
					}
					binary.LittleEndian.PutUint32(chunk[16:], binary.LittleEndian.Uint32(chunk[16:])+1)
				}
			}()
			_, _, err := c.Receive()
			// The server lingers, but while we still send a reset may win.
			var e *uatcp.Error
			if errors.As(err, &e) && e.Code != ua.StatusBadTCPMessageTooLarge {
				t.Fatal(err)
			}
			_ = c.conn.Close()
			s.expectEnd(t, transport.ProtocolError)
			s.healthy(t)
		})
	}
	// Ignition: 3,000-byte chunks that stay under 64 chunks: the assembly's
	// deadline ends it.
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testOptions{memory: true})
		c := s.dial(t, ClientConfig{})
		start := time.Now()
		for range 60 {
			c.writeAll(t, c.Seal(RawChunk{Final: 'C', RequestID: 1, Body: body(3000)}))
			time.Sleep(400 * time.Millisecond) // further chunks do not restart the deadline
		}
		expectERR(t, c, ua.StatusBadTimeout)
		if d := time.Since(start); d != 30*time.Second {
			t.Fatal("closed after", d)
		}
		s.expectEnd(t, transport.AssemblyTimeout)
	})
}

// A3, X17: 0 in a Hello means that the peer has no limit for responses; ours stay.
func TestHostileA3X17ZeroLimits(t *testing.T) {
	s := startServer(t, testOptions{cfg: ServerConfig{Limits: transport.Limits{MaxChunkCount: 4, MaxMessageSize: 100_000}}})
	conn := s.connect(t)
	hello := uatcp.Hello{ReceiveBufferSize: 65535, SendBufferSize: 65535}
	_, _ = conn.Write(hello.Append(nil))
	b, err := uatcp.ReadMessage(conn, make([]byte, 100))
	if err != nil {
		t.Fatal(err)
	}
	a, err := uatcp.ParseAcknowledge(b)
	if err != nil || a.MaxChunkCount != 4 || a.MaxMessageSize != 100_000 {
		t.Fatalf("%+v, %v", a, err)
	}
	c := s.dial(t, ClientConfig{})
	ch := <-s.h.chans
	if n := ch.MaxResponseSize(); n != 4<<20 {
		t.Fatal("response limit of a client with limits", n)
	}
	c.writeAll(t, c.Seal(RawChunk{Final: 'C', RequestID: 1, Body: body(60_000)}))
	_, _ = c.Write(c.Seal(RawChunk{RequestID: 1, Body: body(60_000)}))
	expectERR(t, c, ua.StatusBadTCPMessageTooLarge)
}

// A4: an OpenSecureChannel that is too large is refused by its header, before
// any cryptography, unread.
func TestHostileA4OversizeOpen(t *testing.T) {
	bothPaths(t, testOptions{}, func(t *testing.T, s *testServer) {
		conn := s.connect(t)
		_, _ = conn.Write((&uatcp.Hello{ReceiveBufferSize: 65535, SendBufferSize: 65535}).Append(nil))
		_, _ = conn.Write([]byte("OPNF\x00\x00\x10\x00"))
		b := make([]byte, 5000)
		if _, err := uatcp.ReadMessage(conn, b); err != nil {
			t.Fatal(err)
		}
		var e *uatcp.Error
		if _, err := uatcp.ReadMessage(conn, b); !errors.As(err, &e) || e.Code != ua.StatusBadTCPMessageTooLarge {
			t.Fatal(err)
		}
		_ = conn.Close()
		s.expectEnd(t, transport.ProtocolError)
	})
}

// A5: unfinished messages on 20 sockets share one budget; without sessions they
// get half of it. Those that fit stay.
func TestHostileA5SharedBudget(t *testing.T) {
	for _, session := range []bool{false, true} {
		t.Run(fmt.Sprint("session=", session), func(t *testing.T) {
			b, _ := budget.New(8 * buffer.Size64K)
			s := startServer(t, testOptions{cfg: ServerConfig{Budget: b}})
			want := 4
			if session {
				want = 8
			}
			var kept []*Client
			for range 20 {
				c := s.dial(t, ClientConfig{})
				ch := <-s.h.chans
				if session {
					ch.SessionAttached()
				}
				c.writeAll(t, c.Seal(RawChunk{Final: 'C', RequestID: 1, Body: body(60_000)}))
				// A second request, in one chunk, is not charged: it works while
				// the budget is full, and replaces the partial message.
				if len(kept) < want {
					kept = append(kept, c)
					for ch.assemblyBytes() == 0 {
						time.Sleep(time.Millisecond) // real socket, no bubble
					}
					continue
				}
				expectERR(t, c, ua.StatusBadTCPNotEnoughResources)
				s.expectEnd(t, transport.ResourceLimit)
			}
			if n := b.Reserved(); n != int64(want*buffer.Size64K) {
				t.Fatal("reserved", n)
			}
			s.healthy(t)
			<-s.ends
			for i, c := range kept {
				switch i % 3 {
				case 0: // finishes: the final chunk is never charged
					c.writeAll(t, c.Seal(RawChunk{RequestID: 1, Body: body(60_000)}))
					if _, got, err := c.Receive(); err != nil || len(got) != 120_000 {
						t.Fatal(len(got), err)
					}
				case 1: // aborts: the channel stays usable
					c.writeAll(t, c.Seal(RawChunk{Final: 'A', RequestID: 1, Body: make([]byte, 8)}))
					roundTrip(t, c, body(10))
				case 2: // closes
				}
				_ = c.Close()
				<-s.ends
			}
			if n := b.Reserved(); n != 0 {
				t.Fatal("reserved at the end", n)
			}
		})
	}
}

// assemblyBytes is what the channel has in the budget.
func (ch *Channel) assemblyBytes() int64 {
	if !ch.partial.Load() {
		return 0
	}
	return ch.server.Budget().Reserved()
}

// A8: what is charged is what is held.
func TestHostileA8ChargeIsCapacity(t *testing.T) {
	b, _ := budget.New(1 << 20)
	a := assembly{budget: b}
	for i, tc := range []struct{ size, want int }{
		{0, 1024},           // an empty chunk is charged, too
		{1000, 1024},        // fits behind it
		{2000, 1024 + 8192}, // a new segment
		{6000, 1024 + 8192}, // fits
		{8168, 1024 + 2*8192},
		{65511, 1024 + 2*8192 + 65536},
	} {
		if err := a.add(1, body(tc.size), true); err != nil || b.Reserved() != int64(tc.want) {
			t.Fatalf("chunk %d: %v, reserved %d, want %d", i, err, b.Reserved(), tc.want)
		}
		held := 0
		for _, s := range a.segments {
			held += s.Cap()
		}
		if held != tc.want {
			t.Fatalf("chunk %d: held %d, charged %d", i, held, tc.want)
		}
	}
	a.drop()
	if b.Reserved() != 0 {
		t.Fatal(b.Reserved())
	}
}

// A9: request id 0 is an id like any other.
func TestHostileA9RequestIDZero(t *testing.T) {
	bothPaths(t, testOptions{}, func(t *testing.T, s *testServer) {
		c := s.dial(t, ClientConfig{})
		c.writeAll(t,
			c.Seal(RawChunk{Final: 'C', RequestID: 0, Body: []byte("ab")}),
			c.Seal(RawChunk{Final: 'C', RequestID: 0, Body: []byte("cd")}),
			c.Seal(RawChunk{RequestID: 0, Body: []byte("ef")}))
		if id, b, err := c.Receive(); err != nil || id != 0 || string(b) != "abcdef" {
			t.Fatal(id, string(b), err)
		}
		_ = c.Close()
	})
}

// X39, I11: any number of request ids with one intermediate chunk each: one
// partial message per channel, the newest.
func TestHostileX39I11RequestIDs(t *testing.T) {
	bothPaths(t, testOptions{}, func(t *testing.T, s *testServer) {
		c := s.dial(t, ClientConfig{})
		for id := range uint32(2000) {
			c.writeAll(t, c.Seal(RawChunk{Final: 'C', RequestID: id, Body: []byte("first")}))
		}
		c.writeAll(t, c.Seal(RawChunk{RequestID: 1999, Body: []byte("last")}))
		if id, b, err := c.Receive(); err != nil || id != 1999 || string(b) != "firstlast" {
			t.Fatal(id, string(b), err)
		}
		if n := s.Budget().Reserved(); n != 0 {
			t.Fatal("reserved", n)
		}
		_ = c.Close()
	})
}

// B1, X27: silent sockets end at the Hello's deadline, half-open ones at the
// handshake's; neither keeps a real client out.
func TestHostileB1X27Deadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testOptions{memory: true})
		start := time.Now()
		silent := make([]net.Conn, 100)
		for i := range silent {
			silent[i] = s.connect(t)
		}
		opening := s.connect(t)
		_, _ = opening.Write((&uatcp.Hello{ReceiveBufferSize: 65535, SendBufferSize: 65535}).Append(nil))
		s.healthy(t)
		<-s.ends
		b := make([]byte, 5000)
		var e *uatcp.Error
		for _, c := range silent {
			if _, err := uatcp.ReadMessage(c, b); !errors.As(err, &e) || e.Code != ua.StatusBadTimeout {
				t.Fatal(err)
			}
			_ = c.Close()
			s.expectEnd(t, transport.HelloTimeout)
		}
		if d := time.Since(start); d != 10*time.Second {
			t.Fatal("hello deadline after", d)
		}
		_, _ = uatcp.ReadMessage(opening, b)
		time.Sleep(time.Minute)
		_, _ = opening.Write([]byte("OPNF\x00\x01\x00\x00x")) // progress renews nothing
		if _, err := uatcp.ReadMessage(opening, b); !errors.As(err, &e) || e.Code != ua.StatusBadTimeout {
			t.Fatal(err)
		}
		_ = opening.Close()
		// The partial chunk has its own, shorter deadline.
		s.expectEnd(t, transport.AssemblyTimeout)
		if d := time.Since(start); d != 100*time.Second {
			t.Fatal("after", d)
		}

		start = time.Now()
		idle := s.connect(t)
		_, _ = idle.Write((&uatcp.Hello{ReceiveBufferSize: 65535, SendBufferSize: 65535}).Append(nil))
		_, _ = uatcp.ReadMessage(idle, b)
		if _, err := uatcp.ReadMessage(idle, b); !errors.As(err, &e) || e.Code != ua.StatusBadTimeout {
			t.Fatal(err)
		}
		_ = idle.Close()
		s.expectEnd(t, transport.HandshakeTimeout)
		if d := time.Since(start); d != 2*time.Minute {
			t.Fatal("handshake deadline after", d)
		}
	})
}

// B3: all channels taken by clients that only open; after a second the oldest
// makes room. A channel with a session never does.
func TestHostileB3Reclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testOptions{memory: true, gate: transport.GateOptions{MaxConnections: 3}})
		var clients []*Client
		for i := range 3 {
			clients = append(clients, s.dial(t, ClientConfig{}))
			if ch := <-s.h.chans; i == 0 {
				ch.SessionAttached()
			}
			time.Sleep(10 * time.Millisecond)
		}
		_, err := Dial(context.Background(), s.connect(t), ClientConfig{})
		if !errors.Is(err, ua.StatusBadTCPServerTooBusy) {
			t.Fatal("before a second:", err)
		}
		time.Sleep(time.Second)
		fresh := s.dial(t, ClientConfig{})
		roundTrip(t, fresh, body(10))
		e := expectERR(t, clients[1], ua.StatusBadSecureChannelClosed)
		_ = e
		s.expectEnd(t, transport.Reclaimed)
		roundTrip(t, clients[0], body(10))
		roundTrip(t, clients[2], body(10))
		for _, c := range []*Client{fresh, clients[0], clients[2]} {
			_ = c.Close()
			s.expectEnd(t, transport.CloseSecureChannel)
		}
		if u := s.gate.Usage(); u.Reclaimed != 1 || u.Refused[transport.RefusedCapacity] != 1 {
			t.Fatalf("%+v", u)
		}
	})
}

// X2: OpenSecureChannel (issue) on an open channel.
func TestHostileX2SecondIssue(t *testing.T) {
	p := newPKI(t, 1)
	s := startServer(t, testOptions{cfg: p.serverConfig()})
	for _, cfg := range []ClientConfig{{}, p.clientConfig(security.Basic256Sha256, ua.MessageSecurityModeSign)} {
		for _, channel := range []uint32{0, 1} { // none, its own
			c := s.dial(t, cfg)
			id := channel * c.ID()
			b, err := c.SealOpen(context.Background(), &id, OpenRequestBody(requestTypeIssue, c.cfg.Mode, make([]byte, 32), time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			c.writeAll(t, b)
			expectERR(t, c, ua.StatusBadRequestTypeInvalid)
			s.expectEnd(t, transport.ProtocolError)
		}
	}
	s.healthy(t)
}

// X2: renewals are bounded in rate.
func TestHostileX2RenewRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testOptions{memory: true})
		c := s.dial(t, ClientConfig{})
		for i := range 11 {
			id := c.ID()
			b, _ := c.SealOpen(context.Background(), &id, OpenRequestBody(requestTypeRenew, c.cfg.Mode, nil, time.Hour))
			c.writeAll(t, b)
			if i == 10 {
				break
			}
			c.renewing = &renewal{done: make(chan struct{})}
			if _, _, _, err := c.receive(); err != nil {
				t.Fatal(i, err)
			}
		}
		expectERR(t, c, ua.StatusBadTCPServerTooBusy)
		s.expectEnd(t, transport.TooBusy)
	})
}

// C14: renewals that are not of this channel.
func TestHostileC14ForeignRenew(t *testing.T) {
	p := newPKI(t, 1)
	s := startServer(t, testOptions{cfg: p.serverConfig()})
	other := newKey(t, rsaKeys()[2], p.gate)
	for _, tc := range []struct {
		name   string
		change func(c *Client) (channel uint32)
		code   ua.StatusCode
	}{
		{"channel 0", func(c *Client) uint32 { return 0 }, ua.StatusBadTCPSecureChannelUnknown},
		{"foreign channel", func(c *Client) uint32 { return c.ID() + 77 }, ua.StatusBadTCPSecureChannelUnknown},
		{"other certificate", func(c *Client) uint32 { c.server.key = other; return c.ID() }, ua.StatusBadSecurityChecksFailed},
		{"other policy", func(c *Client) uint32 { c.server.policy = security.Aes256Sha256RsaPss; return c.ID() }, ua.StatusBadSecurityChecksFailed},
		{"no policy", func(c *Client) uint32 { c.server.policy = security.None; return c.ID() }, ua.StatusBadSecurityChecksFailed},
		{"other mode", func(c *Client) uint32 { c.cfg.Mode = ua.MessageSecurityModeSignAndEncrypt; return c.ID() }, ua.StatusBadSecurityChecksFailed},
		{"wrong server thumbprint", func(c *Client) uint32 { c.server.thumb[3]++; return c.ID() }, ua.StatusBadSecurityChecksFailed},
		{"short nonce", func(c *Client) uint32 { return c.ID() }, ua.StatusBadSecurityChecksFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := s.dial(t, p.clientConfig(security.Basic256Sha256, ua.MessageSecurityModeSign))
			roundTrip(t, c, body(10))
			id := tc.change(c)
			nonce := make([]byte, 32)
			if tc.name == "short nonce" {
				nonce = nonce[:31]
			}
			b, err := c.SealOpen(context.Background(), &id, OpenRequestBody(requestTypeRenew, c.cfg.Mode, nonce, time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			c.writeAll(t, b)
			expectERR(t, c, tc.code)
			<-s.ends
		})
	}
}

// D6, D7, D9: sequence numbers.
func TestHostileD6D7D9SequenceNumbers(t *testing.T) {
	u := func(n uint32) *uint32 { return &n }
	bothPaths(t, testOptions{}, func(t *testing.T, s *testServer) {
		for _, tc := range []struct {
			name   string
			last   uint32 // as if this had been the last
			number uint32
			ok     bool
		}{
			{"replay", 0, 1, false},
			{"gap", 0, 3, false},
			{"next", 0, 2, true},
		} {
			c := s.dial(t, ClientConfig{})
			c.writeAll(t, c.Seal(RawChunk{SequenceNumber: u(tc.number), RequestID: 1, Body: body(9)}))
			if tc.ok {
				if _, _, err := c.Receive(); err != nil {
					t.Fatal(tc.name, err)
				}
				_ = c.Close()
				<-s.ends
				continue
			}
			expectERR(t, c, ua.StatusBadSecurityChecksFailed)
			s.expectEnd(t, transport.SecurityError)
		}
		// The very first number may be any; numbers wrap late and restart low.
		conn := s.connect(t)
		c := &Client{}
		*c = Client{cfg: ClientConfig{Policy: security.None, Mode: ua.MessageSecurityModeNone, Lifetime: time.Hour}, limits: transport.Limits{}.Resolved(), conn: conn}
		c.server.policy = security.None
		c.recvSeq.legacy, c.sendSeq.legacy = true, true
		c.SetSequenceNumber(4294966270)
		if err := c.handshake(context.Background()); err != nil {
			t.Fatal(err)
		}
		roundTrip(t, c, body(8)) // 4294966272, just past the threshold
		c.SetSequenceNumber(1022)
		roundTrip(t, c, body(8)) // 1023
		c.SetSequenceNumber(4294966271 - 1)
		c.writeAll(t, c.Seal(RawChunk{RequestID: 1, Body: body(9)}))
		expectERR(t, c, ua.StatusBadSecurityChecksFailed)
		<-s.ends
	})
}

// D11: tampering, and padding that lies, all end alike.
func TestHostileD11Tampering(t *testing.T) {
	p := newPKI(t, 1)
	s := startServer(t, testOptions{cfg: p.serverConfig()})
	for _, mode := range []ua.MessageSecurityMode{ua.MessageSecurityModeSign, ua.MessageSecurityModeSignAndEncrypt} {
		for _, at := range []int{13, 17, 30, 60, -40, -1, 0, 1, 2} {
			c := s.dial(t, p.clientConfig(security.Basic256Sha256, mode))
			b := c.Seal(RawChunk{RequestID: 1, Body: body(100)})
			switch at {
			case 0: // cut, with a header that says so
				b = b[:len(b)-16]
				binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
			case 1: // not a whole number of blocks
				b = append(b, 1)
				binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
			case 2: // padding larger than the body
				l := c.layout
				l.encrypt = mode == ua.MessageSecurityModeSignAndEncrypt
				b = make([]byte, l.chunk(8))
				le := binary.LittleEndian
				copy(b, "MSGF")
				le.PutUint32(b[4:], uint32(len(b)))
				le.PutUint32(b[8:], c.id)
				le.PutUint32(b[12:], c.send.id)
				for i := 16; i < len(b)-32; i++ {
					b[i] = 0xFF
				}
				if !l.encrypt {
					b[20] ^= 1 // only encrypted chunks have padding: plain tampering
					break
				}
				c.send.out.Sign(b[:len(b)-32], b[:len(b)-32])
				c.send.out.Encrypt(b[16:])
			default:
				i := at
				if i < 0 {
					i += len(b)
				}
				b[i] ^= 0x40
			}
			c.writeAll(t, b)
			_, _, err := c.Receive()
			var e *uatcp.Error
			if !errors.As(err, &e) || e.Code != ua.StatusBadSecurityChecksFailed && e.Code != ua.StatusBadSecureChannelTokenUnknown {
				t.Fatalf("mode %d, byte %d: %v", mode, at, err)
			}
			if at == 13 != (e.Code == ua.StatusBadSecureChannelTokenUnknown) {
				t.Fatalf("mode %d, byte %d: %v", mode, at, err)
			}
			_ = c.conn.Close()
			s.expectEnd(t, transport.SecurityError)
		}
	}
	s.healthy(t)
}

// X3: certificates larger than any chain, and refused ones.
func TestHostileX3Certificates(t *testing.T) {
	p := newPKI(t, 1)
	cfg := p.serverConfig()
	refused := uastatus.New(ua.StatusBadCertificateUntrusted, "validate", nil)
	var shownBy netip.AddrPort
	cfg.Validate = func(_ context.Context, ch *Channel, _ []byte, _ *security.Policy) (*x509Certificate, error) {
		shownBy = ch.RemoteAddr()
		return nil, refused
	}
	var log bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s := startServer(t, testOptions{cfg: cfg})
	_, err := Dial(context.Background(), s.connect(t), p.clientConfig(security.Basic256Sha256, ua.MessageSecurityModeSign))
	if !errors.Is(err, ua.StatusBadSecurityChecksFailed) {
		t.Fatal(err)
	}
	s.expectEnd(t, transport.SecurityError)
	for _, part := range []string{"secure channel closed", "remote=" + shownBy.String(), "code=BadCertificateUntrusted"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("%s is missing in %s", part, log.String())
		}
	}

	for _, size := range []uint32{maxCertificate + 1, 0x7FFFFFFF, 0xFFFFFFF0} {
		conn := s.connect(t)
		_, _ = conn.Write((&uatcp.Hello{ReceiveBufferSize: 65535, SendBufferSize: 65535}).Append(nil))
		b := []byte("OPNF\x00\x00\x00\x00\x00\x00\x00\x00")
		uri := security.Basic256Sha256.URI
		b = binary.LittleEndian.AppendUint32(b, uint32(len(uri)))
		b = append(b, uri...)
		b = binary.LittleEndian.AppendUint32(b, size)
		b = append(b, make([]byte, 40000)...)
		binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
		_, _ = conn.Write(b)
		buf := make([]byte, 5000)
		_, _ = uatcp.ReadMessage(conn, buf)
		var e *uatcp.Error
		if _, err := uatcp.ReadMessage(conn, buf); !errors.As(err, &e) || e.Code != ua.StatusBadSecurityChecksFailed {
			t.Fatal(size, err)
		}
		_ = conn.Close()
		<-s.ends
	}
}

// X31: a peer that does not read its answers is closed, by bytes or by time,
// and costs neither memory nor another client's time.
func TestHostileX31SlowReader(t *testing.T) {
	t.Run("time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := startServer(t, testOptions{memory: true})
			c := s.dial(t, ClientConfig{})
			start := time.Now()
			for i := range uint32(400) { // the reader stops taking them once the queue is long
				_ = c.conn.SetWriteDeadline(time.Now().Add(time.Second))
				if err := c.Send(i, body(60_000)); err != nil {
					break
				}
			}
			s.healthy(t)
			<-s.ends
			s.expectEnd(t, transport.WriteTimeout)
			if d := time.Since(start); d > 32*time.Second {
				t.Fatal("closed after", d)
			}
		})
	})
	t.Run("bytes", func(t *testing.T) {
		for _, memory := range []bool{false, true} {
			h := newHandler()
			h.message = func(ch *Channel, m *Message) { // a server that answers more than it is asked
				for range 200 {
					if err := ch.Reply(m.RequestID, body(60_000)); err != nil {
						if !errors.Is(err, ua.StatusBadSecureChannelClosed) {
							t.Error(err)
						}
						return
					}
				}
			}
			s := startServer(t, testOptions{memory: memory, handler: h, cfg: ServerConfig{Limits: transport.Limits{WriteQueueBytes: 1 << 20}}})
			c := s.dial(t, ClientConfig{})
			if err := c.Send(1, body(100)); err != nil {
				t.Fatal(err)
			}
			s.expectEnd(t, transport.SlowReader)
			if ch := <-h.chans; ch.Reply(1, body(10)) == nil {
				t.Fatal("reply after the end")
			}
		}
	})
}

// I10: a handler that takes long delays nobody but its own request, and the
// number of such requests of one connection is bounded.
func TestHostileI10SlowHandler(t *testing.T) {
	h := newHandler()
	var work syncGroup
	h.message = func(ch *Channel, m *Message) {
		d := m.Detach()
		work.Go(func() {
			defer d.Release()
			if string(d.Body) == "slow" {
				time.Sleep(5 * time.Second)
			}
			_ = ch.Reply(d.RequestID, d.Body)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testOptions{memory: true, handler: h, cfg: ServerConfig{Limits: transport.Limits{MaxOutstandingPerConnection: 3}}})
		c := s.dial(t, ClientConfig{})
		start := time.Now()
		for id, what := range []string{"slow", "slow", "fast", "slow", "late"} {
			if err := c.Send(uint32(id), []byte(what)); err != nil {
				t.Fatal(err)
			}
		}
		ch := <-h.chans
		synctest.Wait()
		if n := ch.Outstanding(); n != 3 {
			t.Fatal("outstanding", n)
		}
		if id, _, err := c.Receive(); err != nil || id != 2 {
			t.Fatal("first answer is of", id, err)
		}
		if d := time.Since(start); d != 0 {
			t.Fatal("the fast one waited", d)
		}
		s.healthy(t)
		seen := map[uint32]time.Duration{}
		for range 4 {
			id, _, err := c.Receive()
			if err != nil {
				t.Fatal(err)
			}
			seen[id] = time.Since(start)
		}
		if seen[0] != 5*time.Second || seen[3] != 5*time.Second || seen[4] != 5*time.Second {
			t.Fatal("answers after", seen) // 4 waited for a place
		}
		_ = c.Close()
		work.Wait()
	})
}
