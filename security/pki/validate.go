package pki

import (
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Check says what a certificate is to be valid for.
type Check struct {
	// ApplicationURI must be among the URIs of the SubjectAltName; "" = not checked.
	ApplicationURI string
	// HostName, a DNS name or an address, must be in the SubjectAltName; "" = not checked.
	// For clients that look at a server's certificate.
	HostName string
	// Policy decides about key length and signature algorithm. nil or None = lengths are not
	// checked; SHA-1 signatures are accepted only with a policy that is made of it.
	Policy *security.Policy
	// User: the certificate is an X509IdentityToken, not an ApplicationInstanceCertificate:
	// no ApplicationUri, no host name, and only signing is required of the key.
	User bool
	// Server: the peer is a server, so an extendedKeyUsage must hold serverAuth, not clientAuth.
	Server bool
	// Remote and ChannelID say in the log who showed the certificate, and decide nothing. Zero:
	// not known; a SecureChannel has no id before its certificate has passed.
	Remote    netip.AddrPort
	ChannelID uint32
}

// Validate checks a certificate blob (leaf, then issuers) by the steps of OPC 10000-4 §6.1.3
// (Determining if a Certificate is trusted), in their order, and returns the leaf. The error's
// StatusCode is the precise one, for log and audit; send a peer [WireCode] of it.
//
// A refusal is logged with the command that would trust the certificate, and a certificate
// that is merely unknown is kept in rejected/; both at a bounded rate. Successes are
// remembered until the trust list changes or something in the chain expires.
func (s *Store) Validate(chain []byte, v Check) (*x509.Certificate, error) {
	t := s.current()
	now := time.Now()
	if len(chain) > MaxChainBytes {
		return nil, s.refused(nil, v, refuse(ua.StatusBadCertificateInvalid, "%d bytes of certificates, at most %d are looked at", len(chain), MaxChainBytes))
	}
	key := v.key(chain)
	if leaf := t.recall(key, now); leaf != nil {
		return leaf, nil
	}
	sent, err := ParseChain(chain)
	if err != nil {
		return nil, s.refused(nil, v, err)
	}
	until, err := s.validate(t, sent, v, now)
	if err != nil {
		return nil, s.refused(sent[0], v, err)
	}
	t.remember(key, sent[0], until)
	return sent[0], nil
}

// key identifies a validation: everything it depends on but trust list and time, and not who asks.
func (v Check) key(chain []byte) [32]byte {
	h := sha256.New()
	var b [4]byte
	part := func(s string) {
		binary.LittleEndian.PutUint32(b[:], uint32(len(s)))
		h.Write(b[:])
		h.Write([]byte(s))
	}
	part(v.ApplicationURI)
	part(v.HostName)
	if v.Policy != nil {
		part(v.Policy.URI)
	} else {
		part("")
	}
	flags := []byte{0}
	if v.User {
		flags[0] |= 1
	}
	if v.Server {
		flags[0] |= 2
	}
	h.Write(flags)
	h.Write(chain)
	return [32]byte(h.Sum(nil))
}

func (s *Store) validate(t *trustList, sent []*x509.Certificate, v Check, now time.Time) (until time.Time, err error) {
	leaf := sent[0]
	// Certificate Structure.
	if err := checkStructure(leaf); err != nil {
		return until, err
	}
	// Build Certificate Chain; Signature.
	chain, err := t.buildChain(sent, s.opts.MaxChain)
	if err != nil {
		if !s.opts.TrustAll || chain == nil {
			return until, err
		}
	}
	// Security Policy Check.
	for i, c := range chain {
		if err := checkPolicy(c, i, len(chain), v.Policy); err != nil {
			return until, err
		}
	}
	// Trust List Check.
	if !slices.ContainsFunc(chain, t.isTrusted) && !s.opts.TrustAll {
		return until, refuse(ua.StatusBadCertificateUntrusted, "neither %s nor an issuer of it is in trusted/certs", name(leaf))
	}
	// Validity Period.
	for i, c := range chain {
		if now.Before(c.NotBefore) || now.After(c.NotAfter) {
			code := ua.StatusBadCertificateTimeInvalid
			if i > 0 {
				code = ua.StatusBadCertificateIssuerTimeInvalid
			}
			return until, refuse(code, "%s is valid from %s to %s", name(c), c.NotBefore.Format(time.RFC3339), c.NotAfter.Format(time.RFC3339))
		}
		if i == 0 || c.NotAfter.Before(until) {
			until = c.NotAfter
		}
	}
	if !v.User {
		// Host Name; URI.
		if v.HostName != "" && !hasHost(leaf, v.HostName) {
			return until, refuse(ua.StatusBadCertificateHostNameInvalid, "%s is not for host %q", name(leaf), v.HostName)
		}
		if v.ApplicationURI != "" && !slices.Contains(applicationURIs(leaf), v.ApplicationURI) {
			return until, refuse(ua.StatusBadCertificateURIInvalid, "%s is for %q, the application says %q", name(leaf), applicationURIs(leaf), v.ApplicationURI)
		}
	}
	// Certificate Usage.
	if err := checkUsage(chain, v); err != nil {
		return until, err
	}
	// Find Revocation List; Revocation Check.
	lists, suppressed, err := t.checkRevocation(chain, now, s.opts.SuppressRevocationUnknown || s.opts.TrustAll)
	if err != nil {
		return until, err
	}
	if suppressed > 0 && s.reports.Allow() {
		s.log.Warn("certificate accepted without revocation list", "thumbprint", thumbprint(leaf), "subject", name(leaf))
	}
	if !lists.IsZero() && lists.Before(until) {
		until = lists
	}
	return until, nil
}

func checkStructure(leaf *x509.Certificate) error {
	if leaf.Version != 3 {
		return refuse(ua.StatusBadCertificateInvalid, "X.509 version %d", leaf.Version)
	}
	if len(leaf.UnhandledCriticalExtensions) > 0 {
		return refuse(ua.StatusBadCertificateInvalid, "unknown critical extension %v", leaf.UnhandledCriticalExtensions[0])
	}
	pub, ok := leaf.PublicKey.(*rsa.PublicKey)
	if !ok {
		return refuse(ua.StatusBadCertificateInvalid, "no RSA key, but %s", leaf.PublicKeyAlgorithm)
	}
	return security.CheckRSA(pub)
}

// checkPolicy is the Security Policy Check of certificate i in a chain of n. The signature a
// root makes on itself proves nothing, so its algorithm does not matter; a self-signed leaf's
// does.
func checkPolicy(c *x509.Certificate, i, n int, p *security.Policy) error {
	weak := p != nil && p.WeakHash()
	if i == 0 || i < n-1 {
		switch c.SignatureAlgorithm {
		case x509.SHA256WithRSA, x509.SHA384WithRSA, x509.SHA512WithRSA,
			x509.SHA256WithRSAPSS, x509.SHA384WithRSAPSS, x509.SHA512WithRSAPSS:
		case x509.SHA1WithRSA:
			if !weak {
				return refuse(ua.StatusBadCertificatePolicyCheckFailed, "%s is signed with SHA-1", name(c))
			}
		default:
			return refuse(ua.StatusBadCertificatePolicyCheckFailed, "%s is signed with %s", name(c), c.SignatureAlgorithm)
		}
	}
	if p == nil || p.IsNone() {
		return nil
	}
	pub, ok := c.PublicKey.(*rsa.PublicKey)
	switch {
	case !ok:
		return refuse(ua.StatusBadCertificatePolicyCheckFailed, "%s has no RSA key", name(c))
	case i == 0:
		return p.CheckKey(pub)
	}
	if least, _ := p.KeyBits(); pub.N.BitLen() < least { // a longer key of a CA is no weakness
		return refuse(ua.StatusBadCertificatePolicyCheckFailed, "issuer %s has a %d-bit key, %s wants %d", name(c), pub.N.BitLen(), p.Name, least)
	}
	return nil
}

// checkUsage is the step Certificate Usage. Of an application's key we use signing and both
// kinds of encipherment (OPC 10000-6 §6.2.2, Application Instance Certificate); nonRepudiation
// is listed there too but nothing here makes use of it, so its absence is let pass.
func checkUsage(chain []*x509.Certificate, v Check) error {
	leaf := chain[0]
	want := x509.KeyUsageDigitalSignature
	if !v.User {
		want |= x509.KeyUsageKeyEncipherment | x509.KeyUsageDataEncipherment
	}
	if leaf.KeyUsage&want != want {
		return refuse(ua.StatusBadCertificateUseNotAllowed, "the keyUsage of %s lacks digitalSignature, keyEncipherment or dataEncipherment", name(leaf))
	}
	if ext := len(leaf.ExtKeyUsage) + len(leaf.UnknownExtKeyUsage); ext > 0 && !v.User {
		role := x509.ExtKeyUsageClientAuth
		if v.Server {
			role = x509.ExtKeyUsageServerAuth
		}
		if !slices.Contains(leaf.ExtKeyUsage, role) && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
			return refuse(ua.StatusBadCertificateUseNotAllowed, "the extendedKeyUsage of %s lacks serverAuth or clientAuth", name(leaf))
		}
	}
	between := 0 // CA certificates between this one and the leaf, RFC 5280 §4.2.1.9
	for _, c := range chain[1:] {
		switch {
		case !c.BasicConstraintsValid || !c.IsCA:
			return refuse(ua.StatusBadCertificateIssuerUseNotAllowed, "%s is no CA", name(c))
		case c.KeyUsage&x509.KeyUsageCertSign == 0:
			return refuse(ua.StatusBadCertificateIssuerUseNotAllowed, "the keyUsage of %s lacks keyCertSign", name(c))
		case (c.MaxPathLen > 0 || c.MaxPathLenZero) && between > c.MaxPathLen:
			return refuse(ua.StatusBadCertificateIssuerUseNotAllowed, "%s may be followed by %d CAs, not %d", name(c), c.MaxPathLen, between)
		case len(c.UnhandledCriticalExtensions) > 0:
			return refuse(ua.StatusBadCertificateIssuerUseNotAllowed, "%s has the unknown critical extension %v", name(c), c.UnhandledCriticalExtensions[0])
		}
		if !selfIssued(c) {
			between++
		}
		if err := checkNameConstraints(leaf, c); err != nil {
			return err
		}
	}
	return nil
}

// checkNameConstraints enforces RFC 5280 §4.2.1.10 on the leaf's names. The standard library's
// verifier cannot do it for us: it refuses every URI without host under any constraint, and
// an ApplicationUri is usually a URN. Constraints on URIs and mail addresses are not
// understood beyond "there are such names": those are refused.
func checkNameConstraints(leaf, ca *x509.Certificate) error {
	bad := func(n any) error {
		return refuse(ua.StatusBadCertificateIssuerUseNotAllowed, "%s may not certify %q", name(ca), n)
	}
	for _, n := range leaf.DNSNames {
		within := func(domain string) bool { return inDomain(n, domain) }
		if len(ca.PermittedDNSDomains) > 0 && !slices.ContainsFunc(ca.PermittedDNSDomains, within) || slices.ContainsFunc(ca.ExcludedDNSDomains, within) {
			return bad(n)
		}
	}
	for _, ip := range leaf.IPAddresses {
		within := func(r *net.IPNet) bool { return r.Contains(ip) }
		if len(ca.PermittedIPRanges) > 0 && !slices.ContainsFunc(ca.PermittedIPRanges, within) || slices.ContainsFunc(ca.ExcludedIPRanges, within) {
			return bad(ip)
		}
	}
	if len(leaf.URIs) > 0 && len(ca.PermittedURIDomains)+len(ca.ExcludedURIDomains) > 0 {
		return bad(leaf.URIs[0])
	}
	if len(leaf.EmailAddresses) > 0 && len(ca.PermittedEmailAddresses)+len(ca.ExcludedEmailAddresses) > 0 {
		return bad(leaf.EmailAddresses[0])
	}
	return nil
}

// inDomain reports whether host is domain or below it; the empty domain holds all.
func inDomain(host, domain string) bool {
	host, domain = strings.ToLower(strings.TrimSuffix(host, ".")), strings.ToLower(domain)
	return domain == "" || host == domain || strings.HasSuffix(host, "."+strings.TrimPrefix(domain, "."))
}

// WireCode is what the peer may be told about an error of Validate. OPC 10000-4 §6.1.3: whoever
// is not trusted gets BadSecurityChecksFailed for structure, chain, signature, policy and
// trust, and so do revoked certificates and those whose issuers cannot be checked; the
// codes of the later steps, which only trusted peers reach and can act on, go out as they
// are. nil is Good.
func WireCode(err error) ua.StatusCode {
	if err == nil {
		return ua.StatusGood
	}
	switch code := uastatus.Code(err); code {
	case ua.StatusBadCertificateTimeInvalid, ua.StatusBadCertificateIssuerTimeInvalid,
		ua.StatusBadCertificateHostNameInvalid, ua.StatusBadCertificateURIInvalid,
		ua.StatusBadCertificateUseNotAllowed, ua.StatusBadCertificateIssuerUseNotAllowed,
		ua.StatusBadCertificateRevocationUnknown:
		return code
	}
	return ua.StatusBadSecurityChecksFailed
}

var oidSubjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

// ApplicationURI returns the first URI of the SubjectAltName, byte for byte as it stands
// there; "" when there is none.
func ApplicationURI(c *x509.Certificate) string {
	if uris := applicationURIs(c); len(uris) > 0 {
		return uris[0]
	}
	return ""
}

// applicationURIs reads the URIs itself: url.URL would write some of them differently.
func applicationURIs(c *x509.Certificate) []string {
	const tagURI = 6
	var uris []string
	for _, e := range c.Extensions {
		if !e.Id.Equal(oidSubjectAltName) {
			continue
		}
		var seq asn1.RawValue
		if _, err := asn1.Unmarshal(e.Value, &seq); err != nil {
			return nil
		}
		for rest := seq.Bytes; len(rest) > 0; {
			var v asn1.RawValue
			var err error
			if rest, err = asn1.Unmarshal(rest, &v); err != nil {
				return uris
			}
			if v.Class == asn1.ClassContextSpecific && v.Tag == tagURI {
				uris = append(uris, string(v.Bytes))
			}
		}
	}
	return uris
}

func hasHost(c *x509.Certificate, host string) bool {
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	if ip := net.ParseIP(host); ip != nil && slices.ContainsFunc(c.IPAddresses, ip.Equal) {
		return true
	}
	return slices.ContainsFunc(c.DNSNames, func(n string) bool { return strings.EqualFold(strings.TrimSuffix(n, "."), host) })
}
