package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// WebSocket is opc.wss, OPC 10000-6 §7.5 (WebSockets): a secure channel whose
// chunks are binary messages of a WebSocket over TLS, sub-protocol opcua+uacp. All
// security policies work inside it; with None the hiding is TLS's.
type WebSocket struct {
	// Dial connects to host:port; nil: a net.Dialer, or the proxy that the
	// environment names (see http.ProxyFromEnvironment).
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

const subprotocolUACP = "opcua+uacp"

// Open implements [Transport].
func (t WebSocket) Open(ctx context.Context, c ChannelConfig) (Channel, error) {
	s, err := schemeOf(c.URL)
	if err != nil || s.profile != profileWSS {
		return nil, fmt.Errorf("client: no WebSocket for %q", c.URL.Scheme)
	}
	web := webTransport(t.Dial, c.TLS.config(c.URL.Hostname(), "http/1.1"))
	ws, rs, err := websocket.Dial(ctx, s.webURL(c.URL), &websocket.DialOptions{
		HTTPClient:      &http.Client{Transport: web, CheckRedirect: noRedirect},
		Subprotocols:    []string{subprotocolUACP},
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		web.CloseIdleConnections()
		if rs != nil && rs.StatusCode != http.StatusSwitchingProtocols {
			return nil, httpError(rs)
		}
		return nil, tlsError(err)
	}
	if got := ws.Subprotocol(); got != subprotocolUACP {
		_ = ws.CloseNow()
		return nil, broken(ua.StatusBadNotSupported, "the server does not speak %s", subprotocolUACP)
	}
	conn := &framed{ws: ws, Conn: websocket.NetConn(context.Background(), ws, websocket.MessageBinary)}
	ws.SetReadLimit(int64(c.Limits.Resolved().ReceiveBufferSize))
	ch, err := securechannel.Dial(ctx, &timedConn{Conn: conn, timeout: c.WriteTimeout}, c.secure())
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return ch, nil
}

// A framed connection carries each chunk as one message of a WebSocket.
type framed struct {
	net.Conn
	ws *websocket.Conn
}

// Write sends whole chunks, which say their length in bytes 4 to 8 (OPC 10000-6
// §7.1.2.2, Message Header).
func (f *framed) Write(b []byte) (n int, err error) {
	for n < len(b) {
		chunk := b[n:]
		if len(chunk) >= 8 {
			if size := binary.LittleEndian.Uint32(chunk[4:]); size >= 8 && uint64(size) < uint64(len(chunk)) {
				chunk = chunk[:size]
			}
		}
		k, err := f.Conn.Write(chunk)
		n += k
		if err != nil {
			return n, f.failure(err)
		}
	}
	return n, nil
}

func (f *framed) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	return n, f.failure(err)
}

// failure gives the codes with which servers close WebSockets their meaning
// (RFC 6455 §7.4.1, Defined Status Codes).
func (f *framed) failure(err error) error {
	if err == nil {
		return nil
	}
	var closed websocket.CloseError
	if !errors.As(err, &closed) {
		return err
	}
	switch closed.Code {
	case websocket.StatusTryAgainLater:
		return &reconnect.Error{Status: uastatus.BadServerTooBusy, After: reconnect.ParseHint(closed.Reason), Err: err}
	case websocket.StatusMessageTooBig:
		return errors.Join(ua.StatusBadTCPMessageTooLarge, err)
	}
	return err
}

// Close says goodbye, and does not wait long for the answer.
func (f *framed) Close() error {
	t := time.AfterFunc(time.Second, func() { _ = f.ws.CloseNow() })
	defer t.Stop()
	return f.Conn.Close()
}
