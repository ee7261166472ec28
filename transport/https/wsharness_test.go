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
	"time"

	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uajson"
	"github.com/gopcua/opcua/ua"
)

// Opcodes of frames (RFC 6455 §5.2, Base Framing Protocol).
const (
	opMore, opText, opBinary = 0x0, 0x1, 0x2
	opClose, opPing, opPong  = 0x8, 0x9, 0xa
	opReserved               = 0x3
	fin, reserved1           = 0x80, 0x40
	reserved2, reserved3     = 0x20, 0x10
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
	return askFor(t, s, "websocket", protocols, headers...)
}

func askFor(t testing.TB, s *server, upgrade, protocols string, headers ...string) (*wsConn, *http.Response) {
	t.Helper()
	c := s.secure(t, "http/1.1")
	var b strings.Builder
	b.WriteString("GET /UA HTTP/1.1\r\nHost: plant\r\nConnection: Upgrade\r\nUpgrade: " + upgrade + "\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
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

// CloseWrite ends what the client sends.
func (ws *wsConn) CloseWrite() error {
	if h, ok := ws.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}

// greet upgrades to chunks and says Hello.
func greet(t testing.TB, s *server) *wsConn {
	t.Helper()
	ws := upgrade(t, s, uacp)
	ws.send(t, frame(fin|opBinary, hello()))
	if ack := ws.expect(t, opBinary); string(ack[:4]) != "ACKF" {
		t.Fatalf("%x", ack)
	}
	return ws
}

// ending reads up to the close frame and the end: the messages before it, and its
// payload.
func (ws *wsConn) ending(t testing.TB) (messages [][]byte, farewell []byte) {
	t.Helper()
	for {
		first, payload, err := ws.next()
		switch {
		case err != nil:
			t.Fatalf("no close frame: %v", err)
		case first == fin|opClose:
			_, _ = ws.Write(frame(fin|opClose, payload[:min(2, len(payload))]))
			ends(t, ws)
			return messages, payload
		}
		messages = append(messages, payload)
	}
}

// goodbye is the payload of a close frame.
func goodbye(code uint16, reason string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, code), reason...)
}

// echo is a Sink that sends every chunk back, and closes at CLO.
type echo struct{ transport.Conn }

func (echo) Ready() bool                  { return true }
func (echo) Busy() bool                   { return false }
func (echo) Closed(transport.CloseReason) {}

func (e echo) Chunk(chunk []byte, _ time.Time) {
	switch string(chunk[:3]) {
	case "OPN":
		e.ChannelOpened()
	case "CLO":
		e.Close(transport.CloseSecureChannel, ua.StatusGood, "")
		return
	}
	o := e.Outbox()
	o.Lock()
	if o.Admit(len(chunk)) != nil {
		o.Unlock()
		return
	}
	copy(o.Grow(len(chunk)), chunk)
	o.UnlockAndFlush()
}

func echoing() Options {
	return Options{WSS: true, NewSink: func(c transport.Conn) transport.Sink { return echo{c} }}
}

// chunk is one of any kind and size.
func chunk(kind string, size int) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(kind), uint32(size))
	for len(b) < size {
		b = append(b, byte(len(b)))
	}
	return b
}
