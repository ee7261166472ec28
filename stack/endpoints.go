package stack

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

// An offer is one way to secure a channel.
type offer struct {
	policy *security.Policy
	mode   ua.MessageSecurityMode
}

// An announcer tells clients what the server offers and where. It implements
// service.Discovery.
type announcer struct {
	name, applicationURI, productURI string
	key                              *security.Key // nil: policy None only
	offers                           []offer       // of SecureChannels
	tlsOffers                        []offer       // where TLS protects the messages
	tokens                           []ua.UserTokenType
	advertise                        []string // host or host:port, lower case
	hostname                         string   // stands in where no URL names a host

	mu   sync.Mutex
	urls []*url.URL                          // configured, with the ports in use
	made map[place][]*ua.EndpointDescription // by where the client reached us
}

// maxAnnounced bounds the descriptions kept; they depend on the port that
// clients say they used.
const maxAnnounced = 64

// setURLs replaces the configured URLs, once the ports are known.
func (a *announcer) setURLs(urls []*url.URL) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.urls = urls
	a.made = nil
}

// Application implements service.Discovery.
func (a *announcer) Application(ch session.Channel, rawURL string) *ua.ApplicationDescription {
	return a.application(a.addresses(a.reached(ch, rawURL)))
}

func (a *announcer) application(addresses []address) *ua.ApplicationDescription {
	var urls []string
	for _, at := range addresses {
		urls = append(urls, at.url)
	}
	return &ua.ApplicationDescription{
		ApplicationURI:  a.applicationURI,
		ProductURI:      a.productURI,
		ApplicationName: ua.NewLocalizedText(a.name),
		ApplicationType: ua.ApplicationTypeServer,
		DiscoveryURLs:   urls,
	}
}

// Endpoints implements service.Discovery: the endpoints of all transports, that
// of the client's first. The result must not be changed.
func (a *announcer) Endpoints(ch session.Channel, rawURL string) []*ua.EndpointDescription {
	used := a.reached(ch, rawURL)
	a.mu.Lock()
	eps, ok := a.made[used]
	a.mu.Unlock()
	if ok {
		return eps
	}
	eps = a.describe(a.addresses(used))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.made == nil || len(a.made) >= maxAnnounced {
		a.made = make(map[place][]*ua.EndpointDescription)
	}
	a.made[used] = eps
	return eps
}

// SessionEndpoints are those of the transport that a session is created on.
func (a *announcer) SessionEndpoints(ch session.Channel, rawURL string) []*ua.EndpointDescription {
	profile := profileOf(ch)
	var own []*ua.EndpointDescription
	for _, ep := range a.Endpoints(ch, rawURL) {
		if ep.TransportProfileURI == profile {
			own = append(own, ep)
		}
	}
	return own
}

// describe lists the EndpointDescriptions (OPC 10000-4 §7.14) of addresses: one
// per transport profile and offer.
func (a *announcer) describe(addresses []address) []*ua.EndpointDescription {
	app := a.application(addresses)
	var certificate []byte
	if a.key != nil {
		certificate = a.key.Certificate()
	}
	var eps []*ua.EndpointDescription
	for _, at := range addresses {
		for _, p := range profilesOf(at.scheme) {
			for _, o := range a.offered(p) {
				eps = append(eps, &ua.EndpointDescription{
					EndpointURL:         at.url,
					Server:              app,
					ServerCertificate:   certificate,
					SecurityMode:        o.mode,
					SecurityPolicyURI:   o.policy.URI,
					UserIdentityTokens:  a.tokenPolicies(p, o),
					TransportProfileURI: p,
					SecurityLevel:       securityLevel(o),
				})
			}
		}
	}
	return eps
}

// tokenPolicies are those of an endpoint. Where TLS is all there is, it may hide
// passwords too.
func (a *announcer) tokenPolicies(profile string, o offer) []*ua.UserTokenPolicy {
	all := session.TokenPolicies(o.policy, o.mode, a.tokens)
	switch profile {
	case profileHTTPS, profileHTTPSJSON, profileWSSJSON:
		if o.policy.IsNone() && slices.Contains(a.tokens, ua.UserTokenTypeUserName) {
			all = append(all, session.PlainPassword())
		}
	}
	return all
}

// offered lists how channels of a transport profile are secured. A WebSocket
// with JSON can sign nothing.
func (a *announcer) offered(profile string) []offer {
	switch profile {
	case profileTCP, profileWSS:
		return a.offers
	case profileWSSJSON:
		for _, o := range a.tlsOffers {
			if o.policy.IsNone() {
				return []offer{o}
			}
		}
		return nil
	}
	return a.tlsOffers
}

// securityLevel orders endpoints: encrypting ones above signing ones of the
// same policy, and 0 for None, which says "do not use" (OPC 10000-4 §7.14).
func securityLevel(o offer) uint8 {
	if o.policy.IsNone() {
		return 0
	}
	level := 10 * o.policy.Strength()
	if o.mode == ua.MessageSecurityModeSignAndEncrypt {
		level += 5
	}
	return uint8(min(max(level, 1), 255))
}

// A place is where a client has reached the server: by which transport, and under
// which URL if that was one of ours.
type place struct {
	via                string // the scheme of the transport
	scheme, host, port string // empty when the URL was not ours
}

// An address is a URL under which clients are told to find the server.
type address struct{ scheme, url string }

// reached is where a client on ch has reached the server: the host and port of
// the URL it names, or of the one it connected with, when that host is ours.
func (a *announcer) reached(ch session.Channel, rawURL string) place {
	if rawURL == "" {
		rawURL = ch.EndpointURL() // of the Hello, or of the HTTP request
	}
	unknown := place{via: schemeFor(profileOf(ch))}
	if len(rawURL) == 0 || len(rawURL) > transport.MaxEndpointURLLength {
		return unknown
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return unknown
	}
	scheme := schemeOf(u)
	host, port := u.Hostname(), u.Port()
	if scheme == "" || host == "" || !a.ours(ch, host, port) {
		return unknown
	}
	if port == "" {
		port = defaultPort(scheme)
	}
	return place{unknown.via, scheme, host, port}
}

// addresses are the configured URLs as a client should see them that has reached
// the server at a place: that place itself stands in for the URL it belongs to
// (its port may have been mapped on the way), and its host for hosts that were
// left open. The client's own comes first.
func (a *announcer) addresses(used place) []address {
	urls := a.configured()
	own := -1
	for i, u := range urls {
		if schemeOf(u) != used.scheme {
			continue
		}
		if own < 0 || portOf(u) == used.port && portOf(urls[own]) != used.port {
			own = i
		}
	}
	var all []address
	add := func(u *url.URL, scheme, host, port string) {
		at := address{scheme, scheme + "://" + net.JoinHostPort(host, port)}
		if u != nil {
			at.url += u.EscapedPath()
		}
		if !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	if own >= 0 {
		add(urls[own], used.scheme, used.host, used.port)
	}
	for i, u := range urls {
		if i == own {
			continue
		}
		host := u.Hostname()
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
			if host = used.host; host == "" {
				host = a.hostname
			}
		}
		add(u, schemeOf(u), host, portOf(u))
	}
	if used.via != "" && !slices.ContainsFunc(all, func(at address) bool { return at.scheme == used.via }) {
		// a listener of the host's own, which has no URL
		host, port := used.host, used.port
		if used.scheme != used.via {
			host, port = a.hostname, defaultPort(used.via)
		}
		add(nil, used.via, host, port)
	}
	return all
}

// ours tells whether a host name or address is one of this server.
func (a *announcer) ours(ch session.Channel, host, port string) bool {
	host = strings.ToLower(host)
	local := ch.LocalAddr().Addr().Unmap()
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Unmap().WithZone("") == local.WithZone("") && local.IsValid() {
			return true
		}
	} else if host == "localhost" && local.IsLoopback() {
		return true
	}
	if slices.Contains(a.advertise, host) || slices.Contains(a.advertise, net.JoinHostPort(host, port)) {
		return true
	}
	return a.key != nil && a.key.Leaf().VerifyHostname(host) == nil
}

// withPort returns u with the port that was really taken.
func withPort(u *url.URL, port int) *url.URL {
	c := *u
	c.Host = net.JoinHostPort(u.Hostname(), strconv.Itoa(port))
	return &c
}

// tlsOffers lists the ways to sign in where TLS protects the messages: one for
// each policy, best first.
func (o *Options) tlsOffers() []offer {
	var all []offer
	for _, p := range o.Security.Policies {
		all = append(all, offer{p, ua.MessageSecurityModeSign})
	}
	slices.SortStableFunc(all, func(a, b offer) int { return int(securityLevel(b)) - int(securityLevel(a)) })
	if o.Security.AllowNone || o.HTTP.AllowPolicyNone {
		all = append(all, offer{security.None, ua.MessageSecurityModeNone})
	}
	return all
}
