package client

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// The transport profiles that the client speaks, OPC 10000-7.
const (
	profiles     = "http://opcfoundation.org/UA-Profile/Transport/"
	profileTCP   = profiles + "uatcp-uasc-uabinary"
	profileWSS   = profiles + "wss-uasc-uabinary"
	profileHTTPS = profiles + "https-uabinary"
)

// A scheme is what a URL's scheme stands for.
type scheme struct {
	profile string // TransportProfileUri
	port    string // when the URL has none
	web     string // the scheme in the web's words; empty: no TLS
}

// schemes by name. opc.wss and opc.https share IANA's port for OPC UA over TLS;
// the web's own names mean the web's port.
var schemes = map[string]scheme{
	"opc.tcp":   {profileTCP, "4840", ""},
	"opc.wss":   {profileWSS, "4843", "wss"},
	"wss":       {profileWSS, "443", "wss"},
	"opc.https": {profileHTTPS, "4843", "https"},
	"https":     {profileHTTPS, "443", "https"},
}

func schemeOf(u *url.URL) (scheme, error) {
	s, ok := schemes[strings.ToLower(u.Scheme)]
	if !ok {
		return s, uastatus.New(ua.StatusBadTCPEndpointURLInvalid, "client", fmt.Errorf("no transport for %q", u.Scheme))
	}
	return s, nil
}

// address is host:port of a URL.
func (s scheme) address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = s.port
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// webURL is the URL as the web writes it.
func (s scheme) webURL(u *url.URL) string {
	w := *u
	w.Scheme, w.Host, w.User, w.Fragment = s.web, s.address(u), nil, ""
	if w.Path == "" {
		w.Path = "/"
	}
	return w.String()
}

// ByScheme picks the transport by the URL: opc.tcp is [TCP], opc.wss and wss are
// [WebSocket], opc.https and https are [HTTPS].
type ByScheme struct {
	// Dial connects to host:port; nil: a net.Dialer.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Open implements [Transport].
func (b ByScheme) Open(ctx context.Context, c ChannelConfig) (Channel, error) {
	s, err := schemeOf(c.URL)
	if err != nil {
		return nil, err
	}
	switch s.profile {
	case profileWSS:
		return WebSocket(b).Open(ctx, c)
	case profileHTTPS:
		return HTTPS{Dial: b.Dial}.Open(ctx, c)
	}
	return TCP(b).Open(ctx, c)
}

// dialer is dial, or a net.Dialer.
func dialer(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	if dial != nil {
		return dial
	}
	var d net.Dialer
	return func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
}
