package https

import (
	"cmp"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/transport"
)

// overload.md §10, OPC 10000-6 §7.5.2: sub-protocols, origins, no compression.
func TestWebSocketUpgrade(t *testing.T) {
	for _, tc := range []struct {
		name, upgrade, protocols string
		headers                  []string
		status                   int
		protocol                 string
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
		{name: "two origins", protocols: uacp, headers: []string{"Origin: https://plant", "Origin: https://evil.example"}, status: 403},
		{name: "upgrade to one of two", upgrade: "h2c, WebSocket", protocols: uacp, status: 101, protocol: uacp},
		{name: "compression", protocols: uacp, headers: []string{"Sec-WebSocket-Extensions: permessage-deflate"}, status: 101, protocol: uacp},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := webSocket(nil)
			o.AllowedOrigins = []string{"https://panel.example"}
			bubble(t, o, func(t *testing.T, s *server) {
				ws, rs := askFor(t, s, cmp.Or(tc.upgrade, "websocket"), tc.protocols, tc.headers...)
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

// h2Frame is a frame of HTTP/2 (RFC 9113 §4.1, Frame Format).
func h2Frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// readH2Frame reads the next frame.
func readH2Frame(t testing.TB, r io.Reader) (kind, flags byte, stream uint32, payload []byte) {
	t.Helper()
	var head [9]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		t.Fatal(err)
	}
	payload = make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(r, payload); err != nil {
		t.Fatal(err)
	}
	return head[3], head[4], binary.BigEndian.Uint32(head[5:]), payload
}

// headerBlock is a list of fields, none of them indexed or compressed (RFC 7541
// §6.2.2, Literal Header Field without Indexing).
func headerBlock(fields ...string) (b []byte) {
	for i := 0; i < len(fields); i += 2 {
		b = append(append(append(b, 0, byte(len(fields[i]))), fields[i]...), byte(len(fields[i+1])))
		b = append(b, fields[i+1]...)
	}
	return b
}

// RFC 8441 (Bootstrapping WebSockets with HTTP/2) is not spoken, and not announced;
// who tries it loses the stream, not the connection. What HTTP/2 is there for, POST,
// goes on.
func TestNoWebSocketOverHTTP2(t *testing.T) {
	const enableConnectProtocol, protocolError = 8, 1
	o := webSocket(nil)
	o.HTTPS = true
	bubble(t, o, func(t *testing.T, s *server) {
		c := s.secure(t, "h2")
		if p := c.ConnectionState().NegotiatedProtocol; p != "h2" {
			t.Fatal(p)
		}
		_, _ = io.WriteString(c, http2Preface)
		_, _ = c.Write(h2Frame(typeSettings, 0, 0, nil))
		_, _ = c.Write(h2Frame(typeHeaders, endHeaders, 1, headerBlock(":method", "CONNECT", ":protocol", "websocket", ":scheme", "https",
			":path", "/UA", ":authority", "plant", "sec-websocket-version", "13", "sec-websocket-protocol", uacp)))
		for reset := false; !reset; {
			kind, flags, stream, payload := readH2Frame(t, c)
			switch {
			case kind == typeSettings && flags == 0:
				for ; len(payload) >= 6; payload = payload[6:] {
					if id := binary.BigEndian.Uint16(payload); id == enableConnectProtocol {
						t.Error("SETTINGS_ENABLE_CONNECT_PROTOCOL is announced")
					}
				}
			case kind == typeReset:
				if stream != 1 || binary.BigEndian.Uint32(payload) != protocolError {
					t.Errorf("stream %d reset with %x", stream, payload)
				}
				reset = true
			case kind == typeHeaders:
				t.Fatalf("an answer: %x", payload)
			}
		}
		_, _ = c.Write(h2Frame(typeHeaders, endHeaders|endStream, 3, headerBlock(":method", "GET", ":scheme", "https", ":path", "/UA", ":authority", "plant")))
		for {
			if kind, _, stream, _ := readH2Frame(t, c); kind == typeHeaders && stream == 3 {
				break
			}
		}
		_ = c.Close()
		h2 := s.client(t, true)
		if a := do(t, h2, http.MethodGet, "", nil); a.code != 405 || a.header.Get("Allow") != "POST" {
			t.Error("GET:", a.code, a.header)
		}
		if a := do(t, h2, http.MethodConnect, "", nil); a.code != 405 {
			t.Error("CONNECT:", a.code)
		}
		if a := post(t, h2, binaryType, request(1)); a.code != 200 {
			t.Error("POST:", a.code)
		}
	})
}

// A port with WebSockets alone has no use for HTTP/2: who offers both gets
// HTTP/1.1, who offers only HTTP/2 is told so in the TLS handshake (RFC 7301 §3.2).
func TestProtocolNegotiation(t *testing.T) {
	for _, tc := range []struct {
		name          string
		https         bool
		offered       []string
		want, failure string
	}{
		{"wss: both", false, []string{"h2", "http/1.1"}, "http/1.1", ""},
		{"wss: none", false, nil, "", ""},
		{"wss: HTTP/2 only", false, []string{"h2"}, "", "no application protocol"},
		{"https: both", true, []string{"http/1.1", "h2"}, "h2", ""},
		{"https: HTTP/1.1 only", true, []string{"http/1.1"}, "http/1.1", ""},
		{"https: HTTP/2 only", true, []string{"h2"}, "h2", ""},
		{"https: neither", true, []string{"spdy/3"}, "", "no application protocol"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := webSocket(nil)
			o.HTTPS = tc.https
			bubble(t, o, func(t *testing.T, s *server) {
				_, pool := pair()
				c := tls.Client(s.dial(t), &tls.Config{RootCAs: pool, ServerName: "plant", NextProtos: tc.offered})
				err := c.Handshake()
				switch {
				case tc.failure != "" && (err == nil || !strings.Contains(err.Error(), tc.failure)):
					t.Error(err)
				case tc.failure == "" && (err != nil || c.ConnectionState().NegotiatedProtocol != tc.want):
					t.Error(err, c.ConnectionState().NegotiatedProtocol)
				}
				_ = c.Close()
				<-s.closed
			})
		})
	}
}
