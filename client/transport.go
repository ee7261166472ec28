package client

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Channel carries whole messages between a session and a server, secured or
// not. *securechannel.Client is the one of opc.tcp and opc.wss.
//
// One goroutine calls Receive in a loop until it fails, another one Send, a
// third one Renew; Close may be called by any and ends them all.
type Channel interface {
	// NextRequestID returns a request id that is not in use.
	NextRequestID() uint32
	// Send sends a request, type id first; body is the channel's from then on. An
	// error that is BadRequestTooLarge says that nothing was sent, every other one
	// ends the channel.
	Send(requestID uint32, body []byte) error
	// Receive returns the next response. body is valid until the next call. An
	// error that is a *securechannel.Abort or a *RequestError concerns that request
	// only.
	Receive() (requestID uint32, body []byte, err error)
	// Renew renews what secures the channel, when Lifetime says so.
	Renew(ctx context.Context) error
	// Lifetime of what secures the channel now; 0 = it needs no renewal.
	Lifetime() time.Duration
	// Close ends the channel.
	Close() error
	// Release gives buffers back, after the last Receive has returned.
	Release()
}

// Canceler is an optional extra of a Channel that can take a request back whose
// answer nobody waits for any more.
type Canceler interface {
	Cancel(requestID uint32)
}

// ChannelConfig says what channel to open.
type ChannelConfig struct {
	// URL of the endpoint.
	URL *url.URL
	// Policy and Mode; Key and ServerCertificate (the trusted leaf, in DER) are
	// set unless the policy is None.
	Policy            *security.Policy
	Mode              ua.MessageSecurityMode
	Key               *security.Key
	ServerCertificate []byte
	// TLS of opc.wss and opc.https.
	TLS TLSOptions
	// Lifetime to ask for.
	Lifetime time.Duration
	// Limits of what the client takes.
	Limits transport.Limits
	// WriteTimeout bounds the time in which the server must take a message.
	WriteTimeout time.Duration
}

// Transport opens channels: [TCP], [WebSocket], [HTTPS], or [ByScheme], which
// picks one by ChannelConfig.URL.
type Transport interface {
	// Open connects and secures a channel. When ctx ends, so does the attempt.
	Open(ctx context.Context, c ChannelConfig) (Channel, error)
}

// TCP is opc.tcp, OPC 10000-6 §7.2 (OPC UA TCP).
type TCP struct {
	// Dial connects to host:port; nil: a net.Dialer. For proxies and networks in memory.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Open implements [Transport].
func (t TCP) Open(ctx context.Context, c ChannelConfig) (Channel, error) {
	s, err := schemeOf(c.URL)
	if err != nil || s.profile != profileTCP {
		return nil, fmt.Errorf("client: no opc.tcp for %q", c.URL.Scheme)
	}
	conn, err := dialer(t.Dial)(ctx, s.address(c.URL))
	if err != nil {
		return nil, err
	}
	ch, err := securechannel.Dial(ctx, &timedConn{Conn: conn, timeout: c.WriteTimeout}, c.secure())
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return ch, nil
}

// secure is the configuration of the secure channel.
func (c *ChannelConfig) secure() securechannel.ClientConfig {
	return securechannel.ClientConfig{
		EndpointURL: c.URL.String(), Policy: c.Policy, Mode: c.Mode, Key: c.Key,
		ServerCertificate: c.ServerCertificate, Lifetime: c.Lifetime, Limits: c.Limits,
	}
}

// timedConn gives every write a deadline, so that a server that does not read
// ends the connection instead of holding it. A deadline that is set from outside
// stays.
type timedConn struct {
	net.Conn
	timeout time.Duration
	pinned  atomic.Bool
}

func (c *timedConn) Write(b []byte) (int, error) {
	if c.timeout > 0 && !c.pinned.Load() {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(c.timeout))
	}
	return c.Conn.Write(b)
}

func (c *timedConn) SetDeadline(t time.Time) error {
	c.pinned.Store(true)
	return c.Conn.SetDeadline(t)
}

func (c *timedConn) SetWriteDeadline(t time.Time) error {
	c.pinned.Store(true)
	return c.Conn.SetWriteDeadline(t)
}

func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if u.Hostname() == "" || u.Scheme == "" {
		return nil, uastatus.New(ua.StatusBadTCPEndpointURLInvalid, "client", fmt.Errorf("URL %q needs a scheme and a host", s))
	}
	if _, err := schemeOf(u); err != nil {
		return nil, err
	}
	if len(s) > transport.MaxEndpointURLLength {
		return nil, uastatus.New(ua.StatusBadTCPEndpointURLInvalid, "client", fmt.Errorf("URL of %d bytes, at most %d", len(s), transport.MaxEndpointURLLength))
	}
	return u, nil
}
