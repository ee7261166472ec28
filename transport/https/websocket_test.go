package https

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uajson"
)

// Opcodes of frames (RFC 6455 §5.2, Base Framing Protocol).
const (
	opMore, opText, opBinary = 0x0, 0x1, 0x2
	opClose, opPing, opPong  = 0x8, 0x9, 0xa
	opReserved               = 0x3
	fin, reserved1           = 0x80, 0x40
)

// frame is a client's frame, masked with zeros.
func frame(first byte, payload []byte) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

// wsConn is the client's side of a WebSocket, byte by byte.
type wsConn struct {
	net.Conn
	r *bufio.Reader
}

// ask sends a request for a WebSocket and returns the answer. Each header is one
// line.
func ask(t testing.TB, s *server, protocols string, headers ...string) (*wsConn, *http.Response) {
	t.Helper()
	c := s.secure(t, "http/1.1")
	var b strings.Builder
	b.WriteString("GET /UA HTTP/1.1\r\nHost: plant\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
	if protocols != "" {
		b.WriteString("Sec-WebSocket-Protocol: " + protocols + "\r\n")
	}
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	if _, err := io.WriteString(c, b.String()+"\r\n"); err != nil {
		t.Fatal(err)
	}
	ws := &wsConn{c, bufio.NewReader(c)}
	rs, err := http.ReadResponse(ws.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ws, rs
}

func upgrade(t testing.TB, s *server, protocol string) *wsConn {
	t.Helper()
	ws, rs := ask(t, s, protocol)
	if rs.StatusCode != http.StatusSwitchingProtocols || rs.Header.Get("Sec-WebSocket-Protocol") != protocol {
		t.Fatal(rs.Status, rs.Header)
	}
	return ws
}

func (ws *wsConn) send(t testing.TB, frames ...[]byte) {
	t.Helper()
	if _, err := ws.Write(bytes.Join(frames, nil)); err != nil {
		t.Fatal(err)
	}
}

// next reads one frame of the server.
func (ws *wsConn) next() (first byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(ws.r, head[:]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1])
	switch {
	case head[1]&0x80 != 0:
		return 0, nil, fmt.Errorf("a server's frame is masked")
	case n == 126:
		var more [2]byte
		if _, err := io.ReadFull(ws.r, more[:]); err != nil {
			return 0, nil, err
		}
		n = uint64(binary.BigEndian.Uint16(more[:]))
	case n == 127:
		var more [8]byte
		if _, err := io.ReadFull(ws.r, more[:]); err != nil {
			return 0, nil, err
		}
		n = binary.BigEndian.Uint64(more[:])
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(ws.r, payload)
	return head[0], payload, err
}

// expect reads a whole message of a kind.
func (ws *wsConn) expect(t testing.TB, opcode byte) []byte {
	t.Helper()
	first, payload, err := ws.next()
	if err != nil || first != fin|opcode {
		t.Fatalf("frame %#x %q, %v", first, payload, err)
	}
	return payload
}

// closes reads up to the close frame and the end, and checks the code.
func (ws *wsConn) closes(t testing.TB, want uint16) {
	t.Helper()
	for {
		first, payload, err := ws.next()
		if err != nil {
			t.Fatalf("no close frame: %v", err)
		}
		if first != fin|opClose {
			continue
		}
		if got := binary.BigEndian.Uint16(payload); got != want {
			t.Fatalf("close code %d %q, want %d", got, payload[2:], want)
		}
		_, _ = ws.Write(frame(fin|opClose, payload[:2]))
		ends(t, ws)
		return
	}
}

// claim is the beginning of a frame of 1 TiB.
func claim(opcode byte, sent int) []byte {
	b := binary.BigEndian.AppendUint64([]byte{fin | opcode, 0x80 | 127}, 1<<40)
	return append(b, make([]byte, 4+sent)...)
}

// hello is the Hello of a client, one chunk.
func hello() []byte {
	url := "opc.wss://plant:4843"
	b := binary.LittleEndian.AppendUint32([]byte("HELF"), uint32(32+len(url)))
	for _, v := range []uint32{0, 65535, 65535, 0, 0, uint32(len(url))} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return append(b, url...)
}

const uacp, uajsonProtocol = "opcua+uacp", "opcua+uajson"

func webSocket(seen chan transport.Conn) Options { return Options{WSS: true, NewSink: sink(seen)} }

// overload.md §10, OPC 10000-6 §7.5.2: sub-protocols, origins, no compression.
func TestWebSocketUpgrade(t *testing.T) {
	for _, tc := range []struct {
		name, protocols string
		headers         []string
		status          int
		protocol        string
	}{
		{name: "none", status: 400},
		{name: "foreign", protocols: "chat", status: 400},
		{name: "chunks", protocols: uacp, status: 101, protocol: uacp},
		{name: "JSON", protocols: uajsonProtocol, status: 101, protocol: uajsonProtocol},
		{name: "one of several", protocols: "chat, " + uajsonProtocol, status: 101, protocol: uajsonProtocol},
		{name: "both: chunks", protocols: uajsonProtocol + ", " + uacp, status: 101, protocol: uacp},
		{name: "own origin", protocols: uacp, headers: []string{"Origin: https://plant"}, status: 101, protocol: uacp},
		{name: "allowed origin", protocols: uacp, headers: []string{"Origin: https://panel.example"}, status: 101, protocol: uacp},
		{name: "foreign origin", protocols: uacp, headers: []string{"Origin: https://evil.example"}, status: 403},
		{name: "compression", protocols: uacp, headers: []string{"Sec-WebSocket-Extensions: permessage-deflate"}, status: 101, protocol: uacp},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := webSocket(nil)
			o.AllowedOrigins = []string{"https://panel.example"}
			bubble(t, o, func(t *testing.T, s *server) {
				ws, rs := ask(t, s, tc.protocols, tc.headers...)
				if rs.StatusCode != tc.status || rs.Header.Get("Sec-WebSocket-Protocol") != tc.protocol {
					t.Error(rs.Status, rs.Header)
				}
				if rs.Header.Get("Sec-WebSocket-Extensions") != "" {
					t.Error("compresses")
				}
				ws.Close()
				synctest.Wait()
			})
		})
	}
	t.Run("governor full", func(t *testing.T) {
		o := governed(t, admission.HTTPOptions{MaxRequests: 1, SmallBodyRequests: -1})
		o.WSS, o.HTTPS = true, true
		bubble(t, o, func(t *testing.T, s *server) {
			s.h.hold = true
			done := make(chan answer)
			go func() { done <- post(t, s.client(t, false), binaryType, request(1)) }()
			call := <-s.h.held
			if _, rs := ask(t, s, uajsonProtocol); rs.StatusCode != 503 || rs.Header.Get("Retry-After") != "1" {
				t.Error(rs.Status, rs.Header)
			}
			if err := call.Respond(s.h.answer(call.Body()), 0, 0); err != nil {
				t.Error(err)
			}
			<-done
		})
	})
}

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

// hostile.md B1, X30: a WebSocket without Hello ends as any silent connection.
func TestWebSocketSilence(t *testing.T) {
	for _, protocol := range []string{uacp} {
		bubble(t, webSocket(nil), func(t *testing.T, s *server) {
			begun := time.Now()
			ws := upgrade(t, s, protocol)
			_, _ = io.Copy(io.Discard, ws)
			if d := time.Since(begun); d < 10*time.Second || d > 12*time.Second {
				t.Error("closed after", d)
			}
			s.expectClosed(t, transport.HelloTimeout)
		})
	}
}

// jsonRequest is a request in JSON.
func jsonRequest(t testing.TB, handle uint32) []byte {
	t.Helper()
	b, err := uajson.AppendJSON(nil, request(handle), uajson.Compact, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func jsonHandle(t testing.TB, text []byte) uint32 {
	t.Helper()
	body, _, err := uajson.AppendBinary(nil, text, nil)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	_, handle, _ := result(t, body)
	return handle
}

// OPC 10000-6 §7.5.2: a text message is a request, its answer too.
func TestJSONWebSocket(t *testing.T) {
	bubble(t, webSocket(nil), func(t *testing.T, s *server) {
		var peers []*transport.Peer
		s.h.seen = func(c transport.Call) { peers = append(peers, c.Peer()) }
		ws := upgrade(t, s, uajsonProtocol)
		for i := range uint32(3) {
			ws.send(t, frame(fin|opText, jsonRequest(t, i+7)))
			if got := jsonHandle(t, ws.expect(t, opText)); got != i+7 {
				t.Errorf("handle %d", got)
			}
		}
		ws.send(t, frame(fin|opPing, []byte("x")))
		ws.expect(t, opPong)
		p := peers[0]
		if peers[1] != p || peers[2] != p || !p.Lasting || p.Profile != transport.ProfileWSSJSON || p.EndpointURL != "opc.wss://plant/UA" {
			t.Errorf("%+v", p)
		}
		ws.send(t, frame(fin|opClose, []byte{0x03, 0xe8}))
		ws.closes(t, 1000)
		s.expectClosed(t, transport.PeerClosed)
		if got := <-s.h.gone; got != p || len(s.h.gone) != 0 {
			t.Error("Gone is wrong")
		}
		select {
		case <-p.Done:
		default:
			t.Error("the peer is not done")
		}
	})
}

// What is no request: a fault where there can be one, else the close code.
func TestJSONWebSocketRefusals(t *testing.T) {
	for _, tc := range []struct {
		name  string
		frame []byte
		code  uint16
	}{
		{"binary", frame(fin|opBinary, []byte("{}")), 1003},
		{"invalid UTF-8", frame(fin|opText, []byte("{\"a\":\"\xff\"}")), 1007},
		{"too large", frame(fin|opText, make([]byte, 8192+1)), 1009},
		{"a claim of 1 TiB", claim(opText, 9000), 1009},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := webSocket(nil)
			o.Limits.MaxMessageSize = 8192
			bubble(t, o, func(t *testing.T, s *server) {
				ws := upgrade(t, s, uajsonProtocol)
				ws.send(t, tc.frame)
				ws.closes(t, tc.code)
				s.expectClosed(t, transport.ProtocolError)
				if len(s.h.gone) != 0 {
					t.Error("Gone without a call")
				}
			})
		})
	}
	t.Run("undecodable", func(t *testing.T) {
		bubble(t, webSocket(nil), func(t *testing.T, s *server) {
			ws := upgrade(t, s, uajsonProtocol)
			ws.send(t, frame(fin|opText, []byte(`{"UaTypeId":"i=629","RequestHeader":{"RequestHandle":42},"NodesToRead":7}`)))
			if got := jsonHandle(t, ws.expect(t, opText)); got != 42 {
				t.Errorf("handle %d", got)
			}
			ws.send(t, frame(fin|opText, jsonRequest(t, 43))) // and it goes on
			if got := jsonHandle(t, ws.expect(t, opText)); got != 43 {
				t.Errorf("handle %d", got)
			}
		})
	})
	t.Run("governor full", func(t *testing.T) { // overload.md §9: capacity after the upgrade
		o := governed(t, admission.HTTPOptions{MaxRequests: 1, SmallBodyRequests: -1})
		o.WSS = true
		bubble(t, o, func(t *testing.T, s *server) {
			s.h.hold = true
			ws := upgrade(t, s, uajsonProtocol)
			ws.send(t, frame(fin|opText, jsonRequest(t, 1)))
			call := <-s.h.held
			ws.send(t, frame(fin|opText, jsonRequest(t, 2)))
			ws.closes(t, 1013)
			s.expectClosed(t, transport.TooBusy)
			call.Drop(0)
			<-s.h.gone
		})
	})
}

// A message is not read while as many calls as the limit allows wait for their
// answers, and parked ones do not count.
func TestJSONWebSocketOutstanding(t *testing.T) {
	o := webSocket(nil)
	o.Limits.MaxOutstandingPerConnection = 2
	bubble(t, o, func(t *testing.T, s *server) {
		s.h.hold = true
		ws := upgrade(t, s, uajsonProtocol)
		for i := range uint32(4) {
			ws.send(t, frame(fin|opText, jsonRequest(t, i+1)))
		}
		synctest.Wait()
		if n := len(s.h.held); n != 2 {
			t.Fatalf("%d calls at once", n)
		}
		first, second := <-s.h.held, <-s.h.held
		reply := s.h.answer(first.Body())
		first.Park()
		synctest.Wait()
		if n := len(s.h.held); n != 1 {
			t.Fatalf("%d more calls after one has parked", n)
		}
		third := <-s.h.held
		for _, c := range []transport.Call{second, third} {
			if err := c.Respond(s.h.answer(c.Body()), 0, 0); err != nil {
				t.Error(err)
			}
		}
		fourth := <-s.h.held
		if err := fourth.Respond(s.h.answer(fourth.Body()), 0, 0); err != nil {
			t.Error(err)
		}
		if err := first.Respond(reply, 0, 0); err != nil {
			t.Error(err)
		}
		for _, want := range []uint32{2, 3, 4, 1} {
			if got := jsonHandle(t, ws.expect(t, opText)); got != want {
				t.Errorf("answer to %d, want %d", got, want)
			}
		}
	})
}

// FuzzFrames sends arbitrary bytes behind a good upgrade: whatever they are, the
// connection ends and everything is given back.
func FuzzFrames(f *testing.F) {
	f.Add(true, frame(fin|opBinary, hello()))
	f.Add(true, append(frame(opBinary, hello()[:7]), frame(fin|opMore, hello()[7:])...))
	f.Add(false, frame(fin|opText, []byte(`{"UaTypeId":"i=629","RequestHeader":{"RequestHandle":1}}`)))
	f.Add(false, append(frame(fin|opPing, []byte("x")), frame(fin|opClose, []byte{3, 232})...))
	f.Fuzz(func(t *testing.T, chunks bool, in []byte) {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, false, webSocket(nil))
			protocol := uajsonProtocol
			if chunks {
				protocol = uacp
			}
			ws := upgrade(t, s, protocol)
			go func() {
				_, _ = ws.Write(in)
				_ = ws.CloseWrite()
			}()
			_, _ = io.Copy(io.Discard, ws.r)
			_ = ws.Conn.Close()
			<-s.closed
		})
	})
}

// CloseWrite ends what the client sends.
func (ws *wsConn) CloseWrite() error {
	if h, ok := ws.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}
