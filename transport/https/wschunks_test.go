package https

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

// A binary message is a chunk, however many frames bring it.
func TestChunksInFrames(t *testing.T) {
	h := hello()
	for name, frames := range map[string][][]byte{
		"one":             {frame(fin|opBinary, h)},
		"three":           {frame(opBinary, h[:1]), frame(opMore, h[1:30]), frame(fin|opMore, h[30:])},
		"empty ones too":  {frame(opBinary, nil), frame(opMore, h), frame(fin|opMore, nil)},
		"a ping between":  {frame(opBinary, h[:9]), frame(fin|opPing, []byte("there?")), frame(fin|opMore, h[9:])},
		"byte after byte": {},
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan transport.Conn, 1)
			bubble(t, webSocket(seen), func(t *testing.T, s *server) {
				ws := upgrade(t, s, uacp)
				ws.send(t, frames...)
				if len(frames) == 0 {
					for _, b := range frame(fin|opBinary, h) {
						ws.send(t, []byte{b})
					}
				}
				if name == "a ping between" {
					if got := ws.expect(t, opPong); string(got) != "there?" {
						t.Errorf("pong %q", got)
					}
				}
				ack := ws.expect(t, opBinary)
				if len(ack) != 28 || string(ack[:4]) != "ACKF" {
					t.Fatalf("%x", ack)
				}
				if c := <-seen; c.EndpointURL() != "opc.wss://plant:4843" || c.Parameters().BufferSize != 65535 {
					t.Error(c.EndpointURL(), c.Parameters())
				}
				ws.Close()
				s.expectClosed(t, transport.PeerClosed)
			})
		})
	}
}

// RFC 6455 and overload.md §9: what is no chunk and what is no frame ends with the
// code of its kind, and nothing is allocated by a length that is only claimed.
func TestFramesThatAreNone(t *testing.T) {
	huge := claim(opBinary, 150_000)
	unmasked := append([]byte{fin | opBinary, byte(len(hello()))}, hello()...)
	two := append(hello(), hello()...)
	greeted := [][]byte{frame(fin|opBinary, hello())}
	for _, tc := range []struct {
		name   string
		frames [][]byte
		code   uint16
	}{
		{"text", [][]byte{frame(fin|opText, hello())}, 1003},
		{"two chunks", [][]byte{frame(fin|opBinary, two)}, 1002},
		{"half a chunk", [][]byte{frame(fin|opBinary, hello()[:20])}, 1002},
		{"less than a header", [][]byte{frame(fin|opBinary, []byte("HEL"))}, 1002},
		{"no chunk", [][]byte{frame(fin|opBinary, []byte("GET / HTTP/1.1"))}, 1002},
		{"a claim of 1 TiB", [][]byte{huge}, 1009},
		{"a claim of 1 TiB after Hello", append(greeted, huge), 1009},
		{"over the buffer that was agreed", append(greeted, frame(fin|opBinary, make([]byte, 70000))), 1009},
		{"unmasked", [][]byte{unmasked}, 1002},
		{"reserved bit", [][]byte{frame(fin|reserved1|opBinary, hello())}, 1002},
		{"reserved opcode", [][]byte{frame(fin|opReserved, hello())}, 1002},
		{"continuation of nothing", [][]byte{frame(fin|opMore, hello())}, 1002},
		{"another message in between", [][]byte{frame(opBinary, hello()[:9]), frame(fin|opBinary, hello())}, 1002},
		{"long ping", [][]byte{frame(fin|opPing, make([]byte, 126))}, 1002},
		{"ping in pieces", [][]byte{frame(opPing, nil)}, 1002},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, webSocket(nil), func(t *testing.T, s *server) {
				ws := upgrade(t, s, uacp)
				ws.send(t, tc.frames...)
				ws.closes(t, tc.code)
				s.expectClosed(t, transport.ProtocolError)
			})
		})
	}
}

// overload.md §9: the ERR of opc.tcp comes in a frame of its own, before the close
// frame. The exceptions are faults in the frames themselves, at which nothing but
// the close frame may follow (RFC 6455 §7.1.7, Fail the WebSocket Connection).
func TestErrorBeforeCloseFrame(t *testing.T) {
	greeted := frame(fin|opBinary, hello())
	for _, tc := range []struct {
		name   string
		frames [][]byte
		status ua.StatusCode
		code   uint16
		reason transport.CloseReason
	}{
		{"text", [][]byte{frame(fin|opText, hello())}, ua.StatusBadTCPMessageTypeInvalid, 1003, transport.ProtocolError},
		{"text later", [][]byte{greeted, frame(fin|opText, chunk("MSGF", 20))}, ua.StatusBadTCPMessageTypeInvalid, 1003, transport.ProtocolError},
		{"half a chunk", [][]byte{frame(fin|opBinary, hello()[:20])}, ua.StatusBadDecodingError, 1002, transport.ProtocolError},
		{"two chunks", [][]byte{greeted, frame(fin|opBinary, append(chunk("MSGF", 20), chunk("MSGF", 20)...))}, ua.StatusBadTCPMessageTypeInvalid, 1002, transport.ProtocolError},
		{"unknown chunk", [][]byte{greeted, frame(fin|opBinary, chunk("XYZF", 20))}, ua.StatusBadTCPMessageTypeInvalid, 1002, transport.ProtocolError},
		{"Hello again", [][]byte{greeted, greeted}, ua.StatusBadTCPMessageTypeInvalid, 1002, transport.ProtocolError},
		{"hostile.md X38: ReverseHello", [][]byte{frame(fin|opBinary, chunk("RHEF", 20))}, ua.StatusBadTCPMessageTypeInvalid, 1002, transport.ProtocolError},
		{"hostile.md X19, A7: size 0", [][]byte{greeted, frame(fin|opBinary, chunk("MSGF", 0))}, ua.StatusBadTCPMessageTypeInvalid, 1002, transport.ProtocolError},
		{"size over the buffer", [][]byte{greeted, frame(opBinary, binary.LittleEndian.AppendUint32([]byte("MSGF"), 65536))}, ua.StatusBadTCPMessageTooLarge, 1009, transport.ProtocolError},
		{"unknown chunk, its frame not finished", [][]byte{greeted, frame(opBinary, chunk("XYZF", 20))}, ua.StatusBadTCPMessageTypeInvalid, 1002, transport.ProtocolError},
		{"no Hello in time", nil, ua.StatusBadTimeout, 1008, transport.HelloTimeout},
		{"no OpenSecureChannel in time", [][]byte{greeted}, ua.StatusBadTimeout, 1008, transport.HandshakeTimeout},
		{"half a chunk, and no more", [][]byte{greeted, frame(fin|opBinary, chunk("OPNF", 20)), frame(opBinary, chunk("MSGF", 20)[:9])}, ua.StatusBadTimeout, 1008, transport.AssemblyTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, echoing(), func(t *testing.T, s *server) {
				ws := upgrade(t, s, uacp)
				ws.send(t, tc.frames...)
				messages, farewell := ws.ending(t)
				if got := binary.BigEndian.Uint16(farewell); got != tc.code {
					t.Errorf("close code %d %q", got, farewell[2:])
				}
				if len(messages) == 0 {
					t.Fatal("no ERR")
				}
				last := messages[len(messages)-1]
				if len(last) < 12 || string(last[:4]) != "ERRF" || ua.StatusCode(binary.LittleEndian.Uint32(last[8:])) != tc.status {
					t.Errorf("last message %q", last)
				}
				s.expectClosed(t, tc.reason)
			})
		})
	}
}

// After Acknowledge come OPN and MSG, each chunk in a frame of its own both ways,
// also when several are under way at once, and CLO ends with 1000.
func TestChunksBothWays(t *testing.T) {
	bubble(t, echoing(), func(t *testing.T, s *server) {
		ws := greet(t, s)
		expect := func(want []byte) {
			t.Helper()
			if got := ws.expect(t, opBinary); !bytes.Equal(got, want) {
				t.Fatalf("%d bytes %.20x, want %d bytes %.20x", len(got), got, len(want), want)
			}
		}
		opn := chunk("OPNF", 132)
		ws.send(t, frame(fin|opBinary, opn))
		expect(opn)
		if u := s.gate.Usage(); u.Handshakes != 0 || u.Connections != 1 {
			t.Errorf("after OpenSecureChannel: %+v", u)
		}
		for _, size := range []int{8, 9, 125 + 8, 4096, 65535} {
			ws.send(t, frame(fin|opBinary, chunk("MSGC", size)))
			expect(chunk("MSGC", size))
		}
		var many [][]byte
		for size := range 50 {
			many = append(many, frame(fin|opBinary, chunk("MSGF", 100+size)))
		}
		many = append(many, frame(opBinary, chunk("MSGF", 300)[:5]), frame(fin|opPing, []byte("?")), frame(opMore, chunk("MSGF", 300)[5:200]), frame(fin|opMore, chunk("MSGF", 300)[200:]))
		ws.send(t, many...)
		pongs := 0
		for size := 100; size <= 150; {
			first, payload, err := ws.next()
			want := chunk("MSGF", size)
			if size == 150 {
				want = chunk("MSGF", 300)
			}
			switch {
			case err == nil && first == fin|opPong && string(payload) == "?":
				pongs++
			case err == nil && first == fin|opBinary && bytes.Equal(payload, want):
				size++
			default:
				t.Fatalf("%#x %.20x %v", first, payload, err)
			}
		}
		if pongs != 1 {
			t.Errorf("%d pongs", pongs)
		}
		ws.send(t, frame(fin|opBinary, chunk("CLOF", 57)))
		ws.closes(t, 1000)
		s.expectClosed(t, transport.CloseSecureChannel)
	})
}
