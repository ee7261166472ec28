package stack_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/uajson"
)

// BenchmarkReadTransports is the Read of one node over every transport, one at a
// time over one connection. The clients are made of bytes that are prepared once
// and allocate nothing, so that what is reported is the server's.
func BenchmarkReadTransports(b *testing.B) {
	b.Run("opc.tcp", func(b *testing.B) {
		srv := start(b, options())
		r := newRawReads(b, srv, doubles(srv, 1), 1)
		measure(b, r.round)
		_ = r.conn.Close()
	})
	b.Run("opc.wss/opcua+uacp", func(b *testing.B) {
		srv := start(b, everywhere())
		w := newRawSocket(b, srv, "opcua+uacp", 0x82)
		c, p, step := loginOver(b, w, "opc.wss://"+srv.Addrs()[0].String())
		r := newRawReadsOver(b, c, p, step, doubles(srv, 1), 1)
		measure(b, r.round)
		_ = r.conn.Close()
	})
	b.Run("opc.wss/opcua+uajson", func(b *testing.B) {
		srv := start(b, everywhere())
		w := newRawSocket(b, srv, "opcua+uajson", 0x81)
		defer w.Close()
		measureWeb(b, srv, true, w.exchange)
	})
	for _, json := range []bool{false, true} {
		kind := map[bool]string{false: "binary", true: "JSON"}[json]
		b.Run("opc.https/HTTP1.1/"+kind, func(b *testing.B) {
			srv := start(b, everywhere())
			h := newRawHTTP(b, srv, json)
			defer h.conn.Close()
			measureWeb(b, srv, json, h.exchange)
		})
		b.Run("opc.https/HTTP2/"+kind, func(b *testing.B) {
			srv := start(b, everywhere())
			h := newRawHTTP2(b, srv, json)
			defer h.conn.Close()
			measureWeb(b, srv, json, h.exchange)
		})
	}
}

func measure(b *testing.B, round func() error) {
	b.ReportAllocs()
	for b.Loop() {
		if err := round(); err != nil {
			b.Fatal(err)
		}
	}
}

// measureWeb opens a session and reads over it; exchange sends a body and gives
// that of the answer, which is valid up to the next call.
func measureWeb(b *testing.B, srv *stack.Server, json bool, exchange func([]byte) ([]byte, error)) {
	b.Helper()
	p := &peer{T: &testing.T{}}
	encode := func(rq any) []byte {
		body := p.encode(rq)
		if !json {
			return body
		}
		text, err := uajson.AppendJSON(nil, body, uajson.Compact, nil)
		if err != nil {
			b.Fatal(err)
		}
		return text
	}
	step := func(rq any) any {
		answer, err := exchange(encode(rq))
		if err != nil {
			b.Fatal(err)
		}
		if json {
			if answer, _, err = uajson.AppendBinary(nil, answer, nil); err != nil {
				b.Fatal(err)
			}
		}
		return decode(b, answer)
	}
	openSession(b, p, step)
	read := readOf(p, doubles(srv, 1)...)
	if rs, ok := step(read).(*ua.ReadResponse); !ok || len(rs.Results) != 1 || rs.Results[0].Status != ua.StatusOK {
		b.Fatalf("Read failed: %+v", rs)
	}
	body := encode(read)
	measure(b, func() error {
		_, err := exchange(body)
		return err
	})
}

func dialTLS(b testing.TB, srv *stack.Server, protocol string) *tls.Conn {
	b.Helper()
	cfg := insecure()
	cfg.NextProtos = []string{protocol}
	conn, err := tls.Dial("tcp", srv.Addrs()[0].String(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	return conn
}

// rawSocket is a WebSocket: each Write is a frame, Read gives what frames hold.
type rawSocket struct {
	net.Conn
	in    *bufio.Reader
	first byte // of the frames
	left  int  // of the frame being read
	out   []byte
	whole []byte
}

func newRawSocket(b testing.TB, srv *stack.Server, subprotocol string, first byte) *rawSocket {
	b.Helper()
	conn := dialTLS(b, srv, "http/1.1")
	w := &rawSocket{Conn: conn, in: bufio.NewReaderSize(conn, 64<<10), first: first}
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: plant\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: %s\r\n\r\n", subprotocol)
	rs, err := http.ReadResponse(w.in, nil)
	if err != nil || rs.StatusCode != http.StatusSwitchingProtocols {
		b.Fatal(rs, err)
	}
	return w
}

// Write sends a frame, masked with zeros.
func (w *rawSocket) Write(p []byte) (int, error) {
	w.out = append(w.out[:0], w.first)
	if len(p) < 126 {
		w.out = append(w.out, 0x80|byte(len(p)))
	} else {
		w.out = binary.BigEndian.AppendUint16(append(w.out, 0x80|126), uint16(len(p)))
	}
	w.out = append(append(w.out, 0, 0, 0, 0), p...)
	_, err := w.Conn.Write(w.out)
	return len(p), err
}

// header reads that of the next frame.
func (w *rawSocket) header() error {
	first, err := w.in.ReadByte()
	if err != nil {
		return err
	}
	n, err := w.in.ReadByte()
	if err != nil {
		return err
	}
	if first != w.first || n > 126 {
		return fmt.Errorf("frame %#x %#x", first, n)
	}
	w.left = int(n)
	if n == 126 {
		size, err := w.in.Peek(2)
		if err != nil {
			return err
		}
		w.left = int(binary.BigEndian.Uint16(size))
		_, _ = w.in.Discard(2)
	}
	return nil
}

// Read implements net.Conn.
func (w *rawSocket) Read(p []byte) (int, error) {
	for w.left == 0 {
		if err := w.header(); err != nil {
			return 0, err
		}
	}
	n, err := w.in.Read(p[:min(len(p), w.left)])
	w.left -= n
	return n, err
}

func (w *rawSocket) exchange(body []byte) ([]byte, error) {
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.header(); err != nil {
		return nil, err
	}
	w.whole = sized(w.whole, w.left)
	w.left = 0
	_, err := io.ReadFull(w.in, w.whole)
	return w.whole, err
}

func sized(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// rawHTTP is HTTP/1.1 as far as the server's answers need it.
type rawHTTP struct {
	conn  net.Conn
	in    *bufio.Reader
	head  string
	out   []byte
	whole []byte
}

func contentType(json bool) string {
	if json {
		return "application/json"
	}
	return "application/octet-stream"
}

func newRawHTTP(b testing.TB, srv *stack.Server, json bool) *rawHTTP {
	b.Helper()
	conn := dialTLS(b, srv, "http/1.1")
	return &rawHTTP{conn: conn, in: bufio.NewReaderSize(conn, 64<<10),
		head: "POST / HTTP/1.1\r\nHost: plant\r\nContent-Type: " + contentType(json) + "\r\nContent-Length: "}
}

var contentLength = []byte("Content-Length: ")

func (h *rawHTTP) exchange(body []byte) ([]byte, error) {
	h.out = strconv.AppendInt(append(h.out[:0], h.head...), int64(len(body)), 10)
	h.out = append(append(h.out, "\r\n\r\n"...), body...)
	if _, err := h.conn.Write(h.out); err != nil {
		return nil, err
	}
	for n, status := -1, true; ; status = false {
		line, err := h.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case status && string(line) != "HTTP/1.1 200 OK":
			return nil, errors.New(string(line))
		case bytes.HasPrefix(line, contentLength):
			if n, err = strconv.Atoi(string(line[len(contentLength):])); err != nil {
				return nil, err
			}
		case len(line) == 0:
			h.whole = sized(h.whole, n)
			_, err := io.ReadFull(h.in, h.whole)
			return h.whole, err
		}
	}
}

// rawHTTP2 is HTTP/2 as far as the server's answers need it.
type rawHTTP2 struct {
	conn   net.Conn
	in     *bufio.Reader
	block  []byte // of the request's header
	stream uint32
	out    []byte
	whole  []byte
}

// Types and flags of frames (RFC 9113 §6, Frame Definitions).
const (
	h2Data, h2Headers, h2Reset, h2Settings, h2WindowUpdate = 0, 1, 3, 4, 8
	h2End, h2EndHeaders                                    = 1, 4
)

func newRawHTTP2(b testing.TB, srv *stack.Server, json bool) *rawHTTP2 {
	b.Helper()
	conn := dialTLS(b, srv, "h2")
	h := &rawHTTP2{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), stream: 1}
	fields := []string{":method", "POST", ":scheme", "https", ":path", "/", ":authority", "plant", "content-type", contentType(json)}
	for i := 0; i < len(fields); i += 2 { // neither indexed nor compressed (RFC 7541 §6.2.2)
		h.block = append(append(h.block, 0, byte(len(fields[i]))), fields[i]...)
		h.block = append(append(h.block, byte(len(fields[i+1]))), fields[i+1]...)
	}
	h.out = append(h.out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"...)
	h.frame(h2Settings, 0, 0, nil)
	h.frame(h2WindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, 1<<31-1-65535)) // enough for all that follows
	return h
}

func (h *rawHTTP2) frame(kind, flags byte, stream uint32, payload []byte) {
	n := len(payload)
	h.out = append(h.out, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	h.out = append(binary.BigEndian.AppendUint32(h.out, stream), payload...)
}

func (h *rawHTTP2) exchange(body []byte) ([]byte, error) {
	h.frame(h2Headers, h2EndHeaders, h.stream, h.block)
	h.frame(h2Data, h2End, h.stream, body)
	if _, err := h.conn.Write(h.out); err != nil {
		return nil, err
	}
	h.out, h.whole = h.out[:0], h.whole[:0]
	for {
		head, err := h.in.Peek(9)
		if err != nil {
			return nil, err
		}
		n, kind, flags, stream := int(head[0])<<16|int(head[1])<<8|int(head[2]), head[3], head[4], binary.BigEndian.Uint32(head[5:])
		_, _ = h.in.Discard(9)
		payload, err := h.in.Peek(n)
		if err != nil {
			return nil, err
		}
		switch {
		case kind == h2Settings && flags == 0:
			h.frame(h2Settings, 1, 0, nil) // sent with the next request
		case kind == h2Data && stream == h.stream:
			h.whole = append(h.whole, payload...)
		case kind == h2Headers && payload[0] != 0x88: // :status 200 (RFC 7541 Appendix A)
			return nil, fmt.Errorf("answer %x", payload)
		case kind == h2Reset:
			return nil, fmt.Errorf("stream reset: %x", payload)
		}
		_, _ = h.in.Discard(n)
		if kind == h2Data && flags&h2End != 0 {
			h.stream += 2
			return h.whole, nil
		}
	}
}
