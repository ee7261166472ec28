package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/gopcua/opcua/ua"
)

// maxEndpoints bounds what a server may list.
const maxEndpoints = 1000

// endpoint is where and how a session connects.
type endpoint struct {
	url         *url.URL
	description *ua.EndpointDescription
	discovered  []*ua.EndpointDescription // nil: not asked
	policy      *security.Policy
	token       *ua.UserTokenPolicy
	tokenPolicy *security.Policy // for secrets and signatures of the token
}

// Endpoints asks a server for its endpoints (OPC 10000-4 §5.5.4, GetEndpoints)
// over an unsecured channel of its own. Nothing in the answer is to be trusted
// before a session has confirmed it.
func Endpoints(ctx context.Context, rawURL string, o Options) ([]*ua.EndpointDescription, error) {
	o = o.resolved()
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	return discover(ctx, u, &o)
}

// openChannel gives a timeout its StatusCode: a server that takes the connection
// and says nothing is as busy as one that says so.
func (o *Options) openChannel(ctx context.Context, c ChannelConfig) (Channel, error) {
	ch, err := o.Transport.Open(ctx, c)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return ch, err
}

func discover(ctx context.Context, u *url.URL, o *Options) ([]*ua.EndpointDescription, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.ConnectTimeout, errStepTimeout)
	defer cancel()
	ch, err := o.openChannel(ctx, ChannelConfig{URL: u, Policy: security.None, Mode: ua.MessageSecurityModeNone,
		TLS: o.TLS, Lifetime: o.TokenLifetime, Limits: o.Limits, WriteTimeout: o.RequestTimeout})
	if err != nil {
		return nil, fmt.Errorf("client: discovery: %w", err)
	}
	c := newConn(ch, &o.DecodeLimits, o.RequestTimeout)
	defer c.close()
	msg, err := c.roundTrip(ctx, &ua.GetEndpointsRequest{EndpointURL: u.String()}, nil)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(msg.(*ua.GetEndpointsResponse).Endpoints, func(e *ua.EndpointDescription) bool { return e == nil })
	if len(list) > maxEndpoints {
		return nil, broken(ua.StatusBadEncodingLimitsExceeded, "%d endpoints", len(list))
	}
	return list, nil
}

// selectEndpoint picks the strongest of the offered endpoints that the options
// allow. It goes by our own order: SecurityLevel is the server's opinion, over a
// channel that anybody may have changed.
func selectEndpoint(u *url.URL, list []*ua.EndpointDescription, o *Options) (*endpoint, error) {
	var best *endpoint
	var reasons []string
	for _, d := range list {
		e, err := usable(u, d, o)
		if err != nil {
			reasons = append(reasons, err.Error())
			continue
		}
		if best == nil || stronger(e, best) > 0 {
			best = e
		}
	}
	if best == nil {
		reasons = slices.Compact(slices.Sorted(slices.Values(reasons)))
		if len(reasons) > 20 {
			reasons = append(reasons[:20], "and more")
		}
		code := ua.StatusBadSecurityPolicyRejected
		return nil, broken(code, "none of the %d endpoints will do: %q", len(list), reasons)
	}
	best.discovered = list
	if o.UseEndpointURL {
		if named, err := parseURL(best.description.EndpointURL); err == nil {
			best.url = named
		}
	}
	return best, nil
}

func stronger(a, b *endpoint) int {
	return cmp.Or(
		cmp.Compare(a.policy.Strength(), b.policy.Strength()),
		cmp.Compare(a.description.SecurityMode, b.description.SecurityMode),
		cmp.Compare(a.tokenPolicy.Strength(), b.tokenPolicy.Strength()),
	)
}

// usable says whether the options allow an endpoint, else why not.
func usable(u *url.URL, d *ua.EndpointDescription, o *Options) (*endpoint, error) {
	policy := security.PolicyByURI(d.SecurityPolicyURI)
	sch, err := schemeOf(u)
	// Old servers name no profile; they have but one.
	if err != nil || d.TransportProfileURI != sch.profile && (d.TransportProfileURI != "" || sch.profile != profileTCP) {
		return nil, errors.New("another transport")
	}
	web := sch.profile == profileHTTPS // TLS signs and encrypts, whatever mode is named
	switch {
	case policy == nil:
		return nil, errors.New("unknown security policy")
	case o.Policy != nil && policy != o.Policy:
		return nil, errors.New("another security policy")
	case o.Policy == nil && (policy.IsNone() || policy.Deprecated()):
		return nil, errors.New("too weak a security policy")
	case policy.IsNone() != (d.SecurityMode == ua.MessageSecurityModeNone) && (!web || policy.IsNone()):
		return nil, errors.New("policy and mode do not go together")
	case d.SecurityMode < ua.MessageSecurityModeNone || d.SecurityMode > ua.MessageSecurityModeSignAndEncrypt:
		return nil, errors.New("invalid mode")
	case o.Mode != ua.MessageSecurityModeInvalid && d.SecurityMode != o.Mode && !(web && !policy.IsNone() && o.TLS.verified()):
		return nil, errors.New("another mode")
	}
	e := &endpoint{url: u, description: d, policy: policy}
	if !policy.IsNone() {
		if err := policy.CheckKey(o.Key.Public()); err != nil {
			return nil, fmt.Errorf("our key does not suit %s", policy.Name)
		}
	}
	clear := false
	for _, t := range d.UserIdentityTokens {
		if t == nil || t.TokenType != o.Identity.kind() {
			continue
		}
		p := policy
		if t.SecurityPolicyURI != "" {
			if p = security.PolicyByURI(t.SecurityPolicyURI); p == nil || p.Deprecated() && p != o.Policy {
				continue
			}
		}
		// Without a policy of the token only the channel can hide a secret.
		hidden := d.SecurityMode == ua.MessageSecurityModeSignAndEncrypt && !web || sch.web != "" && o.TLS.verified()
		if secret(t.TokenType) && p.IsNone() && !hidden && !o.InsecurePlaintextPassword {
			clear = true
			continue
		}
		if e.token == nil || p.Strength() > e.tokenPolicy.Strength() {
			e.token, e.tokenPolicy = t, p
		}
	}
	if e.token == nil {
		if clear {
			return nil, errors.New("the server wants a secret in the clear; see Options.InsecurePlaintextPassword")
		}
		if o.Identity.kind() != ua.UserTokenTypeAnonymous || len(d.UserIdentityTokens) > 0 {
			return nil, fmt.Errorf("no user token of kind %v", o.Identity.kind())
		}
		e.token, e.tokenPolicy = &ua.UserTokenPolicy{}, policy // a server that does not care
	}
	return e, nil
}

// secret says whether tokens of a kind carry one.
func secret(kind ua.UserTokenType) bool {
	return kind == ua.UserTokenTypeUserName || kind == ua.UserTokenTypeIssuedToken
}

// secretive says whether the server's certificate is used for anything.
func (e *endpoint) secretive() bool {
	return !e.policy.IsNone() || !e.tokenPolicy.IsNone() && e.token.TokenType != ua.UserTokenTypeAnonymous
}

// nobody says that the server cannot know who uses the session.
func (e *endpoint) nobody() bool {
	return e.policy.IsNone() && e.token.TokenType == ua.UserTokenTypeAnonymous
}

// verify checks the server's certificate and returns the leaf and its key.
func (e *endpoint) verify(ctx context.Context, o *Options) (leaf []byte, pub *rsa.PublicKey, err error) {
	d := e.description
	if !e.secretive() {
		return nil, nil, nil
	}
	chain := d.ServerCertificate
	policy := e.policy
	if policy.IsNone() {
		policy = e.tokenPolicy
	}
	var cert *x509.Certificate
	switch {
	case o.PKI != nil:
		check := pki.Check{Policy: policy, Server: true}
		if !o.InsecureSkipHostName {
			check.HostName = e.url.Hostname()
		}
		if d.Server != nil {
			check.ApplicationURI = d.Server.ApplicationURI
		}
		if cert, err = o.PKI.Validate(chain, check); err != nil {
			return nil, nil, fmt.Errorf("client: server certificate: %w", err)
		}
	case o.VerifyServer == nil:
		return nil, nil, broken(ua.StatusBadCertificateUntrusted, "a token is to be encrypted for the server, but neither Options.PKI nor VerifyServer is set")
	default:
		certs, err := pki.ParseChain(chain)
		if err != nil || len(certs) == 0 {
			return nil, nil, broken(ua.StatusBadCertificateInvalid, "server certificate: %w", err)
		}
		cert = certs[0]
	}
	if o.VerifyServer != nil {
		s := Server{URL: e.url.String(), Endpoint: d, Chain: chain, Policy: policy}
		if err := o.VerifyServer(ctx, s); err != nil {
			return nil, nil, &verifyError{err}
		}
	}
	pub, ok := cert.PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, nil, broken(ua.StatusBadCertificateInvalid, "server certificate has a %T", cert.PublicKey)
	}
	if err := policy.CheckKey(pub); err != nil {
		return nil, nil, fmt.Errorf("client: server certificate: %w", err)
	}
	return cert.Raw, pub, nil
}

// verifyError is a refusal by Options.VerifyServer: fatal, whatever it wraps.
type verifyError struct{ err error }

func (e *verifyError) Error() string { return "client: server certificate refused: " + e.err.Error() }

func (e *verifyError) Unwrap() []error { return []error{ua.StatusBadCertificateUntrusted, e.err} }

// confirm compares the endpoints of discovery with those in CreateSession's
// response, which a secured channel vouches for (OPC 10000-4 §5.7.2,
// CreateSession: the client shall verify them). Host names are left out: they
// follow the name by which the server was asked.
func (e *endpoint) confirm(confirmed []*ua.EndpointDescription) error {
	if e.discovered == nil {
		return nil
	}
	if len(confirmed) > maxEndpoints {
		return broken(ua.StatusBadEncodingLimitsExceeded, "%d endpoints", len(confirmed))
	}
	a, b := canonical(e.discovered, e.description.TransportProfileURI), canonical(confirmed, e.description.TransportProfileURI)
	if !slices.EqualFunc(a, b, bytes.Equal) {
		return broken(ua.StatusBadSecurityChecksFailed, "discovery and CreateSession list different endpoints (%d and %d)", len(a), len(b))
	}
	return nil
}

func canonical(list []*ua.EndpointDescription, profile string) [][]byte {
	var out [][]byte
	for _, d := range list {
		if d == nil || d.TransportProfileURI != profile {
			continue
		}
		b := fmt.Appendf(nil, "%d %q %d", d.SecurityMode, d.SecurityPolicyURI, d.SecurityLevel)
		tokens := make([]string, 0, len(d.UserIdentityTokens))
		for _, t := range d.UserIdentityTokens {
			if t != nil {
				tokens = append(tokens, fmt.Sprintf(" %q %d %q %q %q", t.PolicyID, t.TokenType, t.IssuedTokenType, t.IssuerEndpointURL, t.SecurityPolicyURI))
			}
		}
		slices.Sort(tokens)
		for _, t := range tokens {
			b = append(b, t...)
		}
		out = append(out, b)
	}
	slices.SortFunc(out, bytes.Compare)
	return out
}
