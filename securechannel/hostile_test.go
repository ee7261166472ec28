package securechannel

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

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
