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

// Transport profile of opc.tcp with UASC and OPC UA Binary, OPC 10000-7.
const profileTCP = "http://opcfoundation.org/UA-Profile/Transport/uatcp-uasc-uabinary"

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
	offers                           []offer
	tokens                           []ua.UserTokenType
	advertise                        []string // host or host:port, lower case
	hostname                         string   // stands in where no URL names a host

	mu   sync.Mutex
	urls []*url.URL                           // configured, with the ports in use
	made map[string][]*ua.EndpointDescription // by announced URL
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
	return a.application(a.announced(ch, rawURL))
}

func (a *announcer) application(address string) *ua.ApplicationDescription {
	return &ua.ApplicationDescription{
		ApplicationURI:  a.applicationURI,
		ProductURI:      a.productURI,
		ApplicationName: ua.NewLocalizedText(a.name),
		ApplicationType: ua.ApplicationTypeServer,
		DiscoveryURLs:   []string{address},
	}
}

// Endpoints implements service.Discovery. The result must not be changed.
func (a *announcer) Endpoints(ch session.Channel, rawURL string) []*ua.EndpointDescription {
	address := a.announced(ch, rawURL)
	a.mu.Lock()
	defer a.mu.Unlock()
	if eps, ok := a.made[address]; ok {
		return eps
	}
	eps := a.describe(address)
	if a.made == nil || len(a.made) >= maxAnnounced {
		a.made = make(map[string][]*ua.EndpointDescription)
	}
	a.made[address] = eps
	return eps
}

// describe lists one EndpointDescription (OPC 10000-4 §7.14) per offer.
func (a *announcer) describe(address string) []*ua.EndpointDescription {
	app := a.application(address)
	var certificate []byte
	if a.key != nil {
		certificate = a.key.Certificate()
	}
	eps := make([]*ua.EndpointDescription, 0, len(a.offers))
	for _, o := range a.offers {
		eps = append(eps, &ua.EndpointDescription{
			EndpointURL:         address,
			Server:              app,
			ServerCertificate:   certificate,
			SecurityMode:        o.mode,
			SecurityPolicyURI:   o.policy.URI,
			UserIdentityTokens:  session.TokenPolicies(o.policy, o.mode, a.tokens),
			TransportProfileURI: profileTCP,
			SecurityLevel:       securityLevel(o),
		})
	}
	return eps
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

// announced is the URL under which a client on ch is told to find the server:
// the host and port it used when that host is ours, else the first configured.
func (a *announcer) announced(ch session.Channel, rawURL string) string {
	a.mu.Lock()
	urls := a.urls
	a.mu.Unlock()
	first := a.fallback(urls)
	if rawURL == "" {
		rawURL = ch.EndpointURL() // of the Hello
	}
	if len(rawURL) == 0 || len(rawURL) > transport.MaxEndpointURLLength {
		return first
	}
	u, err := url.Parse(rawURL)
	if err != nil || !strings.EqualFold(u.Scheme, "opc.tcp") {
		return first
	}
	host, port := u.Hostname(), u.Port()
	if host == "" || !a.ours(ch, host, port) {
		return first
	}
	if port == "" {
		port = defaultPort
	}
	return "opc.tcp://" + net.JoinHostPort(host, port) + pathFor(urls, port)
}

const defaultPort = "4840"

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

// pathFor gives the path of the configured URL with that port, or of the first.
func pathFor(urls []*url.URL, port string) string {
	for _, u := range urls {
		if portOf(u) == port {
			return u.EscapedPath()
		}
	}
	if len(urls) > 0 {
		return urls[0].EscapedPath()
	}
	return ""
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return defaultPort
}

// fallback is the first configured URL, with the host name of the machine where
// it names none.
func (a *announcer) fallback(urls []*url.URL) string {
	if len(urls) == 0 {
		return "opc.tcp://" + net.JoinHostPort(a.hostname, defaultPort)
	}
	u := urls[0]
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = a.hostname
	}
	return "opc.tcp://" + net.JoinHostPort(host, portOf(u)) + u.EscapedPath()
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
