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

// Resolve looks the host of a URL up, whose scheme is one of [Schemes]. Unless
// owned it must be a loopback, private (RFC 1918, RFC 4193) or link-local address:
// every address that the name stands for, else the error wraps [ErrForeign].
func Resolve(ctx context.Context, rawURL string, owned bool) (Address, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return Address{}, err
	}
	if !slices.Contains(Schemes(), u.Scheme) || u.Hostname() == "" { // Parse has made the scheme lower-case
		return Address{}, fmt.Errorf("%q is no URL of opc.tcp://host:port, opc.wss:// or opc.https://", rawURL)
	}
	if len(rawURL) > transport.MaxEndpointURLLength {
		return Address{}, fmt.Errorf("URL of %d bytes, at most %d", len(rawURL), transport.MaxEndpointURLLength)
	}
	port := u.Port()
	if port == "" {
		port = defaultPort(u.Scheme)
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return Address{}, err
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return Address{}, err
	}
	if len(found) == 0 {
		return Address{}, fmt.Errorf("%s has no address", u.Hostname())
	}
	for _, a := range found {
		if !owned && !near(a) {
			return Address{}, fmt.Errorf("%s is %v: %w", u.Hostname(), a.Unmap(), ErrForeign)
		}
	}
	pick := found[0].Unmap()
	for _, a := range found { // servers that listen on one family listen on IPv4
		if a.Unmap().Is4() {
			pick = a.Unmap()
			break
		}
	}
	return Address{URL: rawURL, Host: netip.AddrPortFrom(pick, uint16(number)), url: u}, nil
}

func near(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast()
}

// Security says which of a server's endpoints to take, and as whom.
type Security struct {
	// Policy; nil: the strongest that the server offers.
	Policy *security.Policy
	// Mode; 0: the strongest of the policy.
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
	)
	for _, d := range list {
		t, why := usable(a, d, &s)
		offered = append(offered, describeEndpoint(d)+why)
		if t != nil && (best == nil || t.stronger(best)) {
			best = t
		}
	}
	if best == nil {
		return nil, fmt.Errorf("no endpoint of the server will do; it offers: %s", strings.Join(offered, "; "))
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

// usable makes a target of an endpoint, or says why not.
func usable(a Address, d *ua.EndpointDescription, s *Security) (t *Target, why string) {
	policy := security.PolicyByURI(d.SecurityPolicyURI)
	scheme := a.Scheme()
	https := scheme == SchemeHTTPS // without a SecureChannel the mode means nothing
	switch {
	// Old servers name no profile; they have but one.
	case d.TransportProfileURI != profile(scheme) && (d.TransportProfileURI != "" || scheme != SchemeTCP):
		return nil, " (another transport)"
	case policy == nil:
		return nil, " (unknown policy)"
	case s.Policy != nil && policy != s.Policy, s.Mode != 0 && d.SecurityMode != s.Mode:
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
