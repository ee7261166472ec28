package securechannel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/gopcua/opcua/ua"
)

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
