package wss

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/breakwater-ua/breakwater/transport"
	"github.com/coder/websocket"
)

// Sub-protocols (OPC 10000-6 §7.5.2, Protocol Mapping).
const (
	SubprotocolUACP = "opcua+uacp"
	SubprotocolJSON = "opcua+uajson"
)

// StatusError is the HTTP answer of a server that did not change to WebSocket.
type StatusError struct {
	Code   int
	Header http.Header // Retry-After, for instance
}

// Error is the status.
func (e *StatusError) Error() string {
	return fmt.Sprintf("wss: server answered %d %s", e.Code, http.StatusText(e.Code))
}

// Dial connects to a URL opc.wss:// or wss:// with the sub-protocol opcua+uacp.
// The connection is a stream of chunks: Write takes whole ones and sends each in
// a binary frame, Read gives those of the server. Its deadlines work as those of
// TCP. An answer other than the change of protocols is a *StatusError.
func Dial(ctx context.Context, url string, c *tls.Config) (net.Conn, error) {
	ws, s, err := dial(ctx, url, SubprotocolUACP, c)
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(transport.MaxBufferSize)
	return &chunks{socket: s, ws: ws}, nil
}

// DialJSON connects with the sub-protocol opcua+uajson: text messages. The
// caller sets the read limit.
func DialJSON(ctx context.Context, url string, c *tls.Config) (*websocket.Conn, error) {
	ws, _, err := dial(ctx, url, SubprotocolJSON, c)
	return ws, err
}

func dial(ctx context.Context, url, subprotocol string, c *tls.Config) (*websocket.Conn, *socket, error) {
	if c = c.Clone(); c == nil {
		c = &tls.Config{}
	}
	c.NextProtos = []string{"http/1.1"} // RFC 8441 is not for us
	var s *socket
	d := tls.Dialer{Config: c}
	// One connection, for one request: nothing of it is left when that fails.
	t := &http.Transport{DisableKeepAlives: true, DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		s = &socket{Conn: nc}
		return s, nil
	}}
	ws, resp, err := websocket.Dial(ctx, strings.TrimPrefix(url, "opc."), &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: t}, Subprotocols: []string{subprotocol},
	})
	switch {
	case err == nil && ws.Subprotocol() != subprotocol:
		_ = ws.CloseNow()
		return nil, nil, errors.New("wss: server does not speak " + subprotocol)
	case err == nil:
		return ws, s, nil
	case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4096))
		_ = resp.Body.Close()
		return nil, nil, &StatusError{resp.StatusCode, resp.Header}
	}
	return nil, nil, err
}
