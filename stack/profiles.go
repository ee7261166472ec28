package stack

import (
	"net"
	"net/url"
	"strings"

	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/transport"
)

// Transport profiles, OPC 10000-7.
const (
	profileTCP       = transport.ProfileTCPBinary
	profileWSS       = transport.ProfileWSSBinary
	profileWSSJSON   = transport.ProfileWSSJSON
	profileHTTPS     = transport.ProfileHTTPSBinary
	profileHTTPSJSON = transport.ProfileHTTPSJSON
)

// Schemes of endpoint URLs.
const (
	schemeTCP   = "opc.tcp"
	schemeWSS   = "opc.wss"
	schemeHTTPS = "opc.https"
)

// defaultPort is that of URLs without one.
func defaultPort(scheme string) string {
	if scheme == schemeTCP {
		return "4840"
	}
	return "4843"
}

// schemeOf gives the scheme of an endpoint URL in the form that is announced, ""
// when it is none of ours.
func schemeOf(u *url.URL) string {
	switch s := strings.ToLower(u.Scheme); s {
	case schemeTCP, schemeWSS, schemeHTTPS:
		return s
	case "https":
		return schemeHTTPS
	}
	return ""
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return defaultPort(schemeOf(u))
}

// listenOn is the host and port to listen on.
func listenOn(u *url.URL) string { return net.JoinHostPort(u.Hostname(), portOf(u)) }

// profilesOf lists the transport profiles that are served under a scheme.
func profilesOf(scheme string) []string {
	switch scheme {
	case schemeWSS:
		return []string{profileWSS, profileWSSJSON}
	case schemeHTTPS:
		return []string{profileHTTPS, profileHTTPSJSON}
	}
	return []string{profileTCP}
}

// schemeFor is the scheme under which a transport profile is served.
func schemeFor(profile string) string {
	switch profile {
	case profileWSS, profileWSSJSON:
		return schemeWSS
	case profileHTTPS, profileHTTPSJSON:
		return schemeHTTPS
	}
	return schemeTCP
}

// profileOf is the transport profile that a channel uses. A SecureChannel is
// known by the URL of its Hello: what clients say there decides only what they
// are shown.
func profileOf(ch session.Channel) string {
	if l, ok := ch.(*logicalChannel); ok {
		return l.peer.Load().Profile
	}
	if u, err := url.Parse(ch.EndpointURL()); err == nil && schemeOf(u) == schemeWSS {
		return profileWSS
	}
	return profileTCP
}
