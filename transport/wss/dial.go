package wss

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/coder/websocket"
	"github.com/gopcua/opcua/ua"
)

// Sub-protocols (OPC 10000-6 §7.5.2, Protocol Mapping).
const (
	SubprotocolUACP = "opcua+uacp"
	SubprotocolJSON = "opcua+uajson"
)

// StatusError is the HTTP answer of a server that did not change to WebSocket. A
// redirection is one too: it is not followed.
type StatusError struct {
	Code   int
	Header http.Header // Retry-After, for instance
}

// Error is the status.
func (e *StatusError) Error() string {
	return fmt.Sprintf("wss: server answered %d %s", e.Code, http.StatusText(e.Code))
}

// A Dialer connects to URLs opc.wss:// and wss://. The zero value believes the
// system's authorities.
type Dialer struct {
	// TLS of the connection; its protocols are replaced by HTTP/1.1. nil: the zero
	// value of a tls.Config.
	TLS *tls.Config
	// NetDial connects to host:port. nil: a net.Dialer, or the proxy that the
	// environment names (see http.ProxyFromEnvironment).
	NetDial func(ctx context.Context, address string) (net.Conn, error)
}

// Dial connects with the sub-protocol opcua+uacp, before ctx ends. The connection
// is a stream of chunks: Write takes whole ones and sends each in a binary frame,
// Read gives those of the server. Its deadlines work as those of TCP. When the
// server closes the WebSocket, Read returns an error that is io.EOF and the
// websocket.CloseError. An answer other than the change of protocols is a
// *StatusError, another sub-protocol BadNotSupported.
//
// Close ends the connection at once; Finish before it, which may be called while
// another goroutine reads, says goodbye.
func (d *Dialer) Dial(ctx context.Context, url string) (uatcp.Framed, error) {
	ws, s, err := d.dial(ctx, url, SubprotocolUACP)
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(transport.MaxBufferSize)
	return &dialed{chunks: &chunks{socket: s, ws: ws}}, nil
}

// DialJSON connects with the sub-protocol opcua+uajson: text messages. The
// caller sets the read limit.
func (d *Dialer) DialJSON(ctx context.Context, url string) (*websocket.Conn, error) {
	ws, _, err := d.dial(ctx, url, SubprotocolJSON)
	return ws, err
}

// Dial is a [Dialer]'s, with a TLS configuration.
func Dial(ctx context.Context, url string, c *tls.Config) (net.Conn, error) {
	d := Dialer{TLS: c}
	nc, err := d.Dial(ctx, url)
	if err != nil {
		return nil, err
	}
	return nc, nil
}

// DialJSON is a [Dialer]'s, with a TLS configuration.
func DialJSON(ctx context.Context, url string, c *tls.Config) (*websocket.Conn, error) {
	d := Dialer{TLS: c}
	return d.DialJSON(ctx, url)
}

func (d *Dialer) dial(ctx context.Context, url, subprotocol string) (*websocket.Conn, *socket, error) {
	c := d.TLS.Clone()
	if c == nil {
		c = &tls.Config{}
	}
	c.NextProtos = []string{"http/1.1"} // RFC 8441 is not for us
	a := &attempt{ctx: ctx, dial: d.NetDial}
	// One connection, for one request: nothing of it is left when that fails.
	a.web = &http.Transport{TLSClientConfig: c, DialContext: a.connect, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10}
	if a.dial == nil {
		a.web.Proxy = http.ProxyFromEnvironment
		a.dial = func(ctx context.Context, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}
	}
	ws, resp, err := websocket.Dial(ctx, strings.TrimPrefix(url, "opc."), &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: a, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		Subprotocols: []string{subprotocol}, CompressionMode: websocket.CompressionDisabled,
	})
	switch {
	case err == nil && ws.Subprotocol() != subprotocol:
		_ = ws.CloseNow()
		err = uastatus.New(ua.StatusBadNotSupported, "websocket", errors.New("server does not speak "+subprotocol))
	case err == nil:
		return ws, a.socket, nil
	case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		err = &StatusError{resp.StatusCode, resp.Header}
	}
	a.abandon()
	return nil, nil, err
}

// An attempt is one try to connect: the round trip of one request.
type attempt struct {
	web    *http.Transport
	ctx    context.Context // the caller's: net/http dials on when nobody waits any more
	dial   func(ctx context.Context, address string) (net.Conn, error)
	socket *socket // once the protocol has changed

	mu   sync.Mutex
	over bool
	open []net.Conn
}

func (a *attempt) connect(_ context.Context, _, address string) (net.Conn, error) {
	nc, err := a.dial(a.ctx, address)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return nil, errors.Join(net.ErrClosed, nc.Close())
	}
	a.open = append(a.open, nc)
	return nc, nil
}

// abandon closes what is left of a try that has failed, in its TLS handshake for
// instance.
func (a *attempt) abandon() {
	a.mu.Lock()
	a.over = true
	open := a.open
	a.mu.Unlock()
	for _, nc := range open {
		_ = nc.Close()
	}
}

// RoundTrip implements http.RoundTripper. It puts a socket below the WebSocket
// that comes of it.
func (a *attempt) RoundTrip(rq *http.Request) (*http.Response, error) {
	var nc net.Conn
	ctx := httptrace.WithClientTrace(rq.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { nc = i.Conn }})
	resp, err := a.web.RoundTrip(rq.WithContext(ctx))
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, err
	}
	a.socket = &socket{Conn: &upgraded{Conn: nc, read: resp.Body}}
	resp.Body = a.socket
	return resp, nil
}

// upgraded is a connection of which net/http has read a part already.
type upgraded struct {
	net.Conn
	read io.Reader
}

func (u *upgraded) Read(b []byte) (int, error) { return u.read.Read(b) }

// Close closes the connection without TLS's farewell, as socket does.
func (u *upgraded) Close() error {
	if t, ok := u.Conn.(*tls.Conn); ok {
		return t.NetConn().Close()
	}
	return u.Conn.Close()
}

// dialed is a client's end, which may be finished while it is read.
type dialed struct {
	*chunks
	text atomic.Bool
}

// Read implements net.Conn.
func (d *dialed) Read(b []byte) (int, error) {
	n, err := d.chunks.Read(b)
	if d.chunks.text {
		d.text.Store(true)
	}
	return n, err
}

// Finish implements uatcp.Framed.
func (d *dialed) Finish(reason transport.CloseReason, code ua.StatusCode, linger time.Duration) {
	status := closeStatus(reason)
	switch {
	case d.text.Load():
		status = websocket.StatusUnsupportedData
	case code == ua.StatusBadTCPMessageTooLarge:
		status = websocket.StatusMessageTooBig
	}
	_ = d.SetDeadline(time.Now().Add(linger))
	_ = d.ws.Close(status, reason.String())
}
