package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/coder/websocket"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/breakwater-ua/breakwater/transport/wss"
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

// Open implements [Transport].
func (t WebSocket) Open(ctx context.Context, c ChannelConfig) (Channel, error) {
	s, err := schemeOf(c.URL)
	if err != nil || s.profile != profileWSS {
		return nil, fmt.Errorf("client: no WebSocket for %q", c.URL.Scheme)
	}
	d := wss.Dialer{TLS: c.TLS.config(c.URL.Hostname()), NetDial: t.Dial}
	ws, err := d.Dial(ctx, s.webURL(c.URL))
	if err != nil {
		var refused *wss.StatusError
		if errors.As(err, &refused) {
			return nil, httpError(refused.Code, refused.Header)
		}
		return nil, tlsError(err)
	}
	ws.Limit(c.Limits.Resolved().ReceiveBufferSize)
	conn := &webSocket{ws}
	ch, err := securechannel.Dial(ctx, &timedConn{Conn: conn, timeout: c.WriteTimeout}, c.secure())
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return ch, nil
}

// A webSocket hears what the server's goodbye means, and says its own.
type webSocket struct{ uatcp.Framed }

// Read gives the codes with which servers close WebSockets their meaning (RFC
// 6455 §7.4.1, Defined Status Codes).
func (w *webSocket) Read(b []byte) (int, error) {
	n, err := w.Framed.Read(b)
	var closed websocket.CloseError
	if err == nil || !errors.As(err, &closed) {
		return n, err
	}
	switch closed.Code {
	case websocket.StatusTryAgainLater:
		err = &reconnect.Error{Status: uastatus.BadServerTooBusy, After: reconnect.ParseHint(closed.Reason), Err: err}
	case websocket.StatusMessageTooBig:
		err = errors.Join(ua.StatusBadTCPMessageTooLarge, err)
	}
	return n, err
}

// goodbye is how long the server gets to answer one.
const goodbye = time.Second

// Close says goodbye, and does not wait long for the answer.
func (w *webSocket) Close() error {
	w.Finish(transport.CloseSecureChannel, ua.StatusOK, goodbye)
	return w.Framed.Close()
}
