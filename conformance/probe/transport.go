package probe

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"strings"

	"github.com/breakwater-ua/breakwater/transport/wss"
)

// Transport is a way to reach a server: a protocol and an encoding.
type Transport string

// The transports.
const (
	TCP         Transport = "opc.tcp"
	WSS         Transport = "opc.wss" // opcua+uacp
	WSSJSON     Transport = "opc.wss JSON"
	HTTPSBinary Transport = "opc.https"
	HTTPSJSON   Transport = "opc.https JSON"
)

// Transport says which one the options mean.
func (o *Options) Transport() Transport {
	scheme, _, _ := strings.Cut(o.URL, "://")
	switch web := strings.TrimPrefix(scheme, "opc."); {
	case web == "https" && o.JSON:
		return HTTPSJSON
	case web == "https":
		return HTTPSBinary
	case web == "wss" && o.JSON:
		return WSSJSON
	case web == "wss":
		return WSS
	}
	return TCP
}

// Scheme of its URLs.
func (t Transport) Scheme() string {
	scheme, _, _ := strings.Cut(string(t), " ")
	return scheme
}

// Chunked tells whether messages are cut into chunks, secured by a SecureChannel
// (OPC 10000-6 §6.7, OPC UA Secure Conversation).
func (t Transport) Chunked() bool { return t == TCP || t == WSS }

// Profile is the TransportProfileUri (OPC 10000-7).
func (t Transport) Profile() string {
	const uri = "http://opcfoundation.org/UA-Profile/Transport/"
	switch t {
	case WSS:
		return uri + "wss-uasc-uabinary"
	case WSSJSON:
		return uri + "wss-uajson"
	case HTTPSBinary:
		return uri + "https-uabinary"
	case HTTPSJSON:
		return uri + "https-uajson"
	}
	return uri + "uatcp-uasc-uabinary"
}

// discovery are the options for a connection without security.
func (o *Options) discovery() Options {
	return Options{URL: o.URL, JSON: o.JSON, HTTP1: o.HTTP1, Dial: o.Dial}
}

// anyCertificate trusts every server: what the probe tests is not who it is.
func anyCertificate() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// Dial opens the stream of chunks below a SecureChannel and sends nothing: the
// TCP connection of opc.tcp, and of opc.wss a WebSocket with opcua+uacp that makes
// a frame of each chunk that is written, and of what is none.
func Dial(ctx context.Context, o Options) (net.Conn, error) {
	if o.Transport() == WSS {
		return wss.Dial(ctx, o.URL, anyCertificate())
	}
	return o.connect(ctx)
}

// connect opens the socket.
func (o *Options) connect(ctx context.Context) (net.Conn, error) {
	if o.Dial != nil {
		return o.Dial(ctx)
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, err
	}
	host := u.Host
	if u.Port() == "" {
		port := "4840"
		if o.Transport() != TCP {
			port = "4843"
		}
		host = net.JoinHostPort(u.Hostname(), port)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", host)
}

// DialTLS opens a connection to the server and does the TLS handshake of opc.wss
// and opc.https, and no more.
func DialTLS(ctx context.Context, o Options) (net.Conn, error) {
	nc, err := o.connect(ctx)
	if err != nil {
		return nil, err
	}
	c := anyCertificate()
	c.NextProtos = []string{"http/1.1"}
	secure := tls.Client(nc, c)
	if err := secure.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, err
	}
	return secure, nil
}
