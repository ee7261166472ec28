package https

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"unicode/utf8"

	"github.com/breakwater-ua/breakwater/transport"
)

// RFC 6455 §5.2 – §5.5 and §7.4, on both sub-protocols: what control frames, and
// the bits that nobody has agreed on, may look like.
func TestControlFrames(t *testing.T) {
	unmasked := func(first byte, payload string) []byte { return append([]byte{first, byte(len(payload))}, payload...) }
	type row struct {
		name  string
		frame []byte
		code  uint16 // 0: a close frame without one
		peer  bool   // the peer's farewell, not a fault
	}
	rows := []row{
		{"close without a code", frame(fin|opClose, nil), 0, true},
		{"close with a reason", frame(fin|opClose, goodbye(1000, "schön")), 1000, true},
		{"close with the longest reason", frame(fin|opClose, goodbye(1001, string(bytes.Repeat([]byte{'x'}, 123)))), 1001, true},
		{"close of one byte", frame(fin|opClose, []byte{3}), 1002, false},
		{"close with a reason that is not UTF-8", frame(fin|opClose, goodbye(1000, "\xff\xfe")), 1007, true},
		{"close with a reason that ends within a rune", frame(fin|opClose, goodbye(1000, "\xe2\x82")), 1007, true},
		{"close over 125 bytes", frame(fin|opClose, goodbye(1000, string(make([]byte, 124)))), 1002, false},
		{"close in pieces", frame(opClose, goodbye(1000, "")), 1002, false},
		{"unmasked close", unmasked(fin|opClose, "\x03\xe8"), 1002, false},
		{"ping over 125 bytes", frame(fin|opPing, make([]byte, 126)), 1002, false},
		{"ping in pieces", frame(opPing, []byte("x")), 1002, false},
		{"unmasked ping", unmasked(fin|opPing, "x"), 1002, false},
		{"pong over 125 bytes", frame(fin|opPong, make([]byte, 126)), 1002, false},
		{"pong in pieces", frame(opPong, nil), 1002, false},
		{"continuation without a beginning", frame(fin|opMore, []byte("x")), 1002, false},
		{"unfinished continuation without a beginning", frame(opMore, nil), 1002, false},
		{"a length below zero", append(binary.BigEndian.AppendUint64([]byte{fin | opBinary, 0x80 | 127}, 1<<63), 0, 0, 0, 0), 1002, false},
	}
	for code, good := range map[uint16]bool{
		0: false, 999: false, 1000: true, 1001: true, 1002: true, 1003: true, 1004: false, 1005: false, 1006: false, 1007: true, 1008: true,
		1009: true, 1010: true, 1011: true, 1012: true, 1013: true, 1014: true, 1015: false, 1016: false, 2999: false, 3000: true, 4999: true, 5000: false, 65535: false,
	} {
		r := row{fmt.Sprint("close with code ", code), frame(fin|opClose, goodbye(code, "")), 1002, good}
		if good {
			r.code = code
		}
		rows = append(rows, r)
	}
	for _, op := range []byte{0x3, 0x4, 0x5, 0x6, 0x7, 0xb, 0xc, 0xd, 0xe, 0xf} {
		rows = append(rows, row{fmt.Sprintf("opcode %#x", op), frame(fin|op, []byte("x")), 1002, false})
	}
	for name, bit := range map[string]byte{"RSV1": reserved1, "RSV2": reserved2, "RSV3": reserved3} {
		for _, op := range []byte{opText, opBinary, opPing, opClose} {
			rows = append(rows, row{fmt.Sprintf("%s on %#x", name, op), frame(fin|bit|op, goodbye(1000, "")), 1002, false})
		}
	}
	for _, protocol := range []string{uacp, uajsonProtocol} {
		for _, tc := range rows {
			t.Run(protocol+"/"+tc.name, func(t *testing.T) {
				bubble(t, webSocket(nil), func(t *testing.T, s *server) {
					ws := upgrade(t, s, protocol)
					ws.send(t, tc.frame)
					messages, farewell := ws.ending(t)
					switch {
					case tc.code == 0:
						if len(farewell) != 0 {
							t.Errorf("farewell %x", farewell)
						}
					case len(farewell) < 2 || binary.BigEndian.Uint16(farewell) != tc.code:
						t.Errorf("farewell %x, want %d", farewell, tc.code)
					case !utf8.Valid(farewell[2:]):
						t.Errorf("the answer is not UTF-8: %x", farewell)
					}
					if tc.peer && len(messages) != 0 {
						t.Errorf("%q before the farewell", messages)
					}
					want := transport.ProtocolError
					if tc.peer {
						want = transport.PeerClosed
					}
					s.expectClosed(t, want)
				})
			})
		}
	}
}

// Pings are answered one by one, in the middle of a message too, pongs that nobody
// has asked for are ignored, and a flood of either costs nothing but its answers
// (hostile.md G3).
func TestPings(t *testing.T) {
	for _, protocol := range []string{uacp, uajsonProtocol} {
		t.Run(protocol, func(t *testing.T) {
			bubble(t, echoing(), func(t *testing.T, s *server) {
				ws := upgrade(t, s, protocol)
				kind, message := byte(opBinary), hello()
				if protocol == uajsonProtocol {
					kind, message = opText, jsonRequest(t, 5)
				}
				ws.send(t, frame(kind, message[:9]))
				for i := range 300 {
					text := fmt.Sprint(i)
					ws.send(t, frame(fin|opPong, []byte(text)), frame(fin|opPing, []byte(text)), frame(opMore, nil))
					if got := ws.expect(t, opPong); string(got) != text {
						t.Fatalf("pong %q to ping %q", got, text)
					}
				}
				ws.send(t, frame(fin|opPing, make([]byte, 125)), frame(fin|opPing, nil))
				if a, b := ws.expect(t, opPong), ws.expect(t, opPong); len(a) != 125 || len(b) != 0 {
					t.Error(len(a), len(b))
				}
				ws.send(t, frame(fin|opMore, message[9:]))
				ws.expect(t, kind)
				_ = ws.Close()
				s.expectClosed(t, transport.PeerClosed)
			})
		})
	}
}

// overload.md §6: a frame is not buffered because of the length that it claims,
// nor past the limit because more of it comes.
func TestOversizedFrameIsNotBuffered(t *testing.T) {
	const sent = 4 << 20
	for _, tc := range []struct {
		name, protocol string
		opcode         byte
	}{{"chunks", uacp, opBinary}, {"JSON", uajsonProtocol, opText}} {
		t.Run(tc.name, func(t *testing.T) {
			o := echoing()
			o.Limits.MaxMessageSize = 64 << 10
			bubble(t, o, func(t *testing.T, s *server) {
				ws := upgrade(t, s, tc.protocol)
				part := make([]byte, 1<<20)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				wrote := make(chan int, 1)
				go func() {
					n, _ := ws.Write(claim(tc.opcode, 0))
					for n < sent {
						k, err := ws.Write(part)
						n += k
						if err != nil {
							break
						}
					}
					wrote <- n
				}()
				for {
					first, payload, err := ws.next()
					if err != nil {
						t.Fatal("no close frame:", err)
					}
					if first == fin|opClose {
						if code := binary.BigEndian.Uint16(payload); code != 1009 {
							t.Error("close code", code)
						}
						break
					}
				}
				s.expectClosed(t, transport.ProtocolError)
				_ = ws.Close()
				n := <-wrote
				runtime.ReadMemStats(&after)
				if got := after.TotalAlloc - before.TotalAlloc; got > sent/2 {
					t.Errorf("%d bytes allocated for a frame of which %d came", got, n)
				}
				if n := s.budget.Reserved(); n != 0 {
					t.Error(n, "bytes reserved")
				}
			})
		})
	}
}
