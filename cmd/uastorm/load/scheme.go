package load

import (
	"net/url"

	"github.com/breakwater-ua/breakwater/transport"
)

// The schemes of URLs that uastorm speaks.
const (
	SchemeTCP   = "opc.tcp"   // OPC 10000-6 §7.2, OPC UA TCP
	SchemeWSS   = "opc.wss"   // OPC 10000-6 §7.5, WebSockets, sub-protocol opcua+uacp
	SchemeHTTPS = "opc.https" // OPC 10000-6 §7.4, OPC UA HTTPS, with OPC UA Binary
)

// Schemes lists them.
func Schemes() []string { return []string{SchemeTCP, SchemeWSS, SchemeHTTPS} }

// defaultPort is the one of URLs of a scheme that have none.
func defaultPort(scheme string) string {
	if scheme == SchemeTCP {
		return "4840"
	}
	return "4843" // IANA's for OPC UA over TLS
}

// profile is the TransportProfileUri of a scheme's endpoints (OPC 10000-7).
func profile(scheme string) string {
	switch scheme {
	case SchemeWSS:
		return transport.ProfileWSSBinary
	case SchemeHTTPS:
		return transport.ProfileHTTPSBinary
	}
	return transport.ProfileTCPBinary
}

// webURL is a URL of opc.wss or opc.https as the web writes it, with the port.
func (a *Address) webURL() *url.URL {
	u := *a.url
	u.Scheme, u.User, u.Fragment = u.Scheme[len("opc."):], nil, ""
	if u.Path == "" {
		u.Path = "/"
	}
	if u.Port() == "" {
		u.Host += ":" + defaultPort(a.url.Scheme)
	}
	return &u
}
