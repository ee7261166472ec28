package load

import (
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/breakwater-ua/breakwater/client"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

// ErrForeign says that a target is not on this machine or in a private network
// and that nobody said it is theirs.
var ErrForeign = errors.New("not a loopback or private address")

// ErrURL says what a target's URL has to be.
var ErrURL = errors.New("want opc.tcp://host:port, opc.wss://host:port or opc.https://host:port")

// ErrUnspecified says that an address is one to listen on, not one to connect to.
var ErrUnspecified = errors.New("is what servers listen on, not where they are: name an address, such as 127.0.0.1")

// An Address is where a server listens, resolved once: all connections go to the
// address that was checked.
type Address struct {
	URL  string // as endpoint URL in Hello and CreateSession
	Host netip.AddrPort

	url *url.URL
	// connect replaces TCP, in tests.
	connect func(ctx context.Context, from net.IP) (net.Conn, error)
}

// Scheme is one of [Schemes].
func (a *Address) Scheme() string { return a.url.Scheme }

// Resolve looks the host of a URL up, whose scheme is one of [Schemes], else the
// error wraps [ErrURL]. Which hosts it takes is that of [Lookup].
func Resolve(ctx context.Context, rawURL string, owned bool) (Address, error) {
	u, port, err := parseURL(rawURL)
	if err != nil {
		return Address{}, err
	}
	found, err := Lookup(ctx, u.Hostname(), owned)
	if err != nil {
		return Address{}, err
	}
	pick := found[0]
	for _, a := range found { // servers that listen on one family listen on IPv4
		if a.Is4() {
			pick = a
			break
		}
	}
	return Address{URL: rawURL, Host: netip.AddrPortFrom(pick, port), url: u}, nil
}

// parseURL takes a target's URL apart.
func parseURL(rawURL string) (u *url.URL, port uint16, err error) {
	wrong := func(format string, args ...any) (*url.URL, uint16, error) {
		return nil, 0, fmt.Errorf("%.200q is no target: %s; %w", rawURL, fmt.Sprintf(format, args...), ErrURL)
	}
	if n := len(rawURL); n > transport.MaxEndpointURLLength {
		return wrong("%d bytes, at most %d", n, transport.MaxEndpointURLLength)
	}
	u, err = url.Parse(rawURL)
	var syntax *url.Error
	switch {
	case errors.As(err, &syntax):
		return wrong("%v", syntax.Err)
	case err != nil:
		return wrong("%v", err)
	case u.Scheme == "":
		return wrong("it has no scheme")
	case !slices.Contains(Schemes(), u.Scheme): // Parse has made it lower-case
		return wrong("its scheme is %s", u.Scheme)
	case u.Hostname() == "":
		return wrong("it has no host")
	}
	text := u.Port()
	if text == "" {
		text = defaultPort(u.Scheme)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 {
		return wrong("there is no port %s", text)
	}
	return u, uint16(number), nil
}

// Lookup finds the addresses of a host, one at least. Unless owned they must be
// loopback or private (RFC 1918, RFC 4193), every one that the name stands for,
// else the error wraps [ErrForeign]. Link-local ones are not taken for ours: on
// many machines a cloud's metadata service has one. An address that stands for all
// of this machine's is none ([ErrUnspecified]).
func Lookup(ctx context.Context, host string, owned bool) ([]netip.Addr, error) {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no address", host)
	}
	for i, a := range found {
		a = a.Unmap()
		switch found[i] = a; {
		case a.IsUnspecified():
			return nil, fmt.Errorf("%s %w", host, ErrUnspecified)
		case !owned && !a.IsLoopback() && !a.IsPrivate():
			return nil, fmt.Errorf("%s is %v: %w", host, a, ErrForeign)
		}
	}
	return found, nil
}

// Security says which of a server's endpoints to take, and as whom.
type Security struct {
	// Policy; nil: the strongest that the server offers.
	Policy *security.Policy
	// Mode; 0: the strongest of the policy. Over opc.https it means nothing.
	Mode ua.MessageSecurityMode
	// Key is uastorm's certificate and key. Called only when one is needed.
	Key func() (*security.Key, error)
	// ServerCertificate, in DER, that the server must have; nil: any. A load test
	// is no secret, and its operator knows whom he tests.
	ServerCertificate []byte
	// RootCAs sign the certificate of TLS, which must bear the URL's host name, over
	// opc.wss and opc.https; nil: any certificate will do, for the same reason.
	RootCAs *x509.CertPool
	// Identity of the user; the zero value is anonymous.
	Identity Identity
	// Timeout of one step: the handshake, or one call. 0: 30 s.
	Timeout time.Duration
}

// A Target is an endpoint of a server that clients can connect to.
type Target struct {
	Address
	Endpoint *ua.EndpointDescription
	Policy   *security.Policy
	Mode     ua.MessageSecurityMode
	Key      *security.Key // nil: Policy is None
	// SessionTimeout that sessions ask for. 0: 10 min.
	SessionTimeout time.Duration

	timeout     time.Duration
	tls         client.TLSOptions
	certificate []byte         // of the server, leaf; nil when not needed
	public      *rsa.PublicKey // its key
	identity    Identity
	token       *ua.UserTokenPolicy
	tokenPolicy *security.Policy
}

// Discover asks the server for its endpoints and picks one.
func Discover(ctx context.Context, a Address, s Security) (*Target, error) {
	if s.Timeout <= 0 {
		s.Timeout = 30 * time.Second
	}
	o := client.Options{ConnectTimeout: s.Timeout, TLS: s.tls(), Transport: client.ByScheme{
		Dial: func(ctx context.Context, _ string) (net.Conn, error) { return a.dial(ctx, nil) }}}
	list, err := client.Endpoints(ctx, a.URL, o)
	if err != nil {
		return nil, err
	}
	var (
		best    *Target
		offered []string
		others  int // over other transports
	)
	for _, d := range list {
		t, why := usable(a, d, &s)
		if why == anotherTransport {
			others++
		} else if text := describeEndpoint(d) + why; !slices.Contains(offered, text) {
			offered = append(offered, text)
		}
		if t != nil && (best == nil || t.stronger(best)) {
			best = t
		}
	}
	if best == nil {
		if len(offered) == 0 {
			offered = []string{"nothing"}
		}
		if others > 0 {
			offered = append(offered, fmt.Sprintf("%d more over other transports", others))
		}
		return nil, fmt.Errorf("no endpoint of the server will do; over %s it offers: %s", a.Scheme(), strings.Join(offered, "; "))
	}
	best.timeout = s.Timeout
	return best, best.secure(&s)
}

func (s *Security) tls() client.TLSOptions {
	return client.TLSOptions{RootCAs: s.RootCAs, InsecureSkipVerify: s.RootCAs == nil}
}

func (t *Target) stronger(o *Target) bool {
	if t.Policy != o.Policy {
		return t.Policy.Strength() > o.Policy.Strength()
	}
	return t.Mode > o.Mode
}

func describeEndpoint(d *ua.EndpointDescription) string {
	name := d.SecurityPolicyURI
	if p := security.PolicyByURI(name); p != nil {
		name = p.Name
	}
	return fmt.Sprintf("%q %s", name, modeName(d.SecurityMode))
}

// modeName is the mode's name in OPC 10000-4 §7.20 (MessageSecurityMode).
func modeName(m ua.MessageSecurityMode) string {
	switch m {
	case ua.MessageSecurityModeNone:
		return "None"
	case ua.MessageSecurityModeSign:
		return "Sign"
	case ua.MessageSecurityModeSignAndEncrypt:
		return "SignAndEncrypt"
	}
	return fmt.Sprintf("mode %d", uint32(m))
}

// anotherTransport is why an endpoint will not do that is not for the URL's scheme.
const anotherTransport = " (another transport)"

// usable makes a target of an endpoint, or says why not.
func usable(a Address, d *ua.EndpointDescription, s *Security) (t *Target, why string) {
	policy := security.PolicyByURI(d.SecurityPolicyURI)
	scheme := a.Scheme()
	https := scheme == SchemeHTTPS // without a SecureChannel the mode means nothing
	switch {
	// Old servers name no profile; they have but one.
	case d.TransportProfileURI != profile(scheme) && (d.TransportProfileURI != "" || scheme != SchemeTCP):
		return nil, anotherTransport
	case policy == nil:
		return nil, " (unknown policy)"
	case s.Policy != nil && policy != s.Policy, s.Mode != 0 && d.SecurityMode != s.Mode && !https:
		return nil, " (not asked for)"
	case s.Policy == nil && policy.Deprecated():
		return nil, " (deprecated: must be asked for)"
	case policy.IsNone() != (d.SecurityMode == ua.MessageSecurityModeNone) && (!https || policy.IsNone()):
		return nil, " (policy and mode do not go together)"
	}
	t = &Target{Address: a, Endpoint: d, Policy: policy, Mode: d.SecurityMode, identity: s.Identity, tls: s.tls()}
	// TLS hides what it carries from all but the server that it was told to believe.
	hidden := d.SecurityMode == ua.MessageSecurityModeSignAndEncrypt && !https || scheme != SchemeTCP && s.RootCAs != nil
	clear := false
	for _, u := range d.UserIdentityTokens {
		if u == nil || u.TokenType != s.Identity.kind() {
			continue
		}
		p := policy
		if u.SecurityPolicyURI != "" {
			if p = security.PolicyByURI(u.SecurityPolicyURI); p == nil {
				continue
			}
		}
		if s.Identity.kind() == ua.UserTokenTypeUserName && p.IsNone() && !hidden {
			clear = true
			continue
		}
		if t.token == nil || p.Strength() > t.tokenPolicy.Strength() {
			t.token, t.tokenPolicy = u, p
		}
	}
	if t.token == nil {
		if clear {
			return nil, " (wants the password in the clear)"
		}
		if len(d.UserIdentityTokens) > 0 || s.Identity.kind() != ua.UserTokenTypeAnonymous {
			return nil, fmt.Sprintf(" (takes no %s)", s.Identity)
		}
		t.token, t.tokenPolicy = &ua.UserTokenPolicy{}, policy
	}
	return t, ""
}

// secure checks the server's certificate and gets our own.
func (t *Target) secure(s *Security) error {
	secret := s.Identity.kind() != ua.UserTokenTypeAnonymous && !t.tokenPolicy.IsNone()
	if t.Policy.IsNone() && !secret {
		return nil
	}
	chain, err := pki.ParseChain(t.Endpoint.ServerCertificate)
	if err != nil || len(chain) == 0 {
		return fmt.Errorf("the endpoint's server certificate: %w", errors.Join(err, errors.New("cannot be read")))
	}
	leaf := chain[0]
	if s.ServerCertificate != nil && !bytes.Equal(leaf.Raw, s.ServerCertificate) {
		return fmt.Errorf("the server has another certificate than the one given: %q, thumbprint %s", leaf.Subject, pki.Thumbprint(leaf.Raw))
	}
	if err := t.trust(leaf); err != nil {
		return err
	}
	if t.Policy.IsNone() {
		return nil
	}
	if t.Key, err = s.Key(); err != nil {
		return err
	}
	return t.Policy.CheckKey(t.Key.Public())
}

func (t *Target) trust(leaf *x509.Certificate) error {
	pub, ok := leaf.PublicKey.(*rsa.PublicKey)
	if !ok {
		return fmt.Errorf("the server's certificate has a %T", leaf.PublicKey)
	}
	t.certificate, t.public = leaf.Raw, pub
	return nil
}

// String describes the target for people.
func (t *Target) String() string {
	s := fmt.Sprintf("%s (%v), policy %s, mode %s, %s", t.URL, t.Host, t.Policy.Name, modeName(t.Mode), t.identity)
	if t.certificate != nil {
		s += ", server certificate " + pki.Thumbprint(t.certificate)
	}
	return s
}

// dial connects from an address; nil: any.
func (a *Address) dial(ctx context.Context, from net.IP) (net.Conn, error) {
	if a.connect != nil {
		return a.connect(ctx, from)
	}
	d := net.Dialer{KeepAlive: -1}
	if from != nil {
		d.LocalAddr = &net.TCPAddr{IP: from}
	}
	return d.DialContext(ctx, "tcp", a.Host.String())
}
