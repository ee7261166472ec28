package pki

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// What one peer can make us look at (hostile.md X3).
const (
	MaxChainBytes        = 32 << 10 // of a certificate blob
	MaxChainCertificates = 10       // in a certificate blob
	maxSignatureChecks   = 24       // per validation
	maxRSABits           = 8192     // of any key in a chain: verification is cubic in it
)

func refuse(code ua.StatusCode, format string, args ...any) error {
	return uastatus.New(code, "validate certificate", fmt.Errorf(format, args...))
}

// ParseChain cuts a certificate blob as it stands in messages (OPC 10000-6 §6.2.6, Certificate
// Chains): the leaf, followed by issuers in any number up to MaxChainCertificates, MaxChainBytes
// together. The error is BadCertificateInvalid. The certificates are copies: a blob
// is often a part of a buffer that the next message is read into.
func ParseChain(blob []byte) ([]*x509.Certificate, error) {
	if len(blob) <= MaxChainBytes {
		blob = bytes.Clone(blob)
	}
	ders, err := cutChain(blob)
	if err != nil {
		return nil, err
	}
	chain := make([]*x509.Certificate, len(ders))
	for i, der := range ders {
		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return nil, refuse(ua.StatusBadCertificateInvalid, "certificate %d of %d: %w", i+1, len(ders), err)
		}
	}
	return chain, nil
}

// Leaf returns the first certificate of a blob in DER, without parsing it: what
// ReceiverCertificateThumbprint and comparisons are about. nil when there is none.
func Leaf(blob []byte) []byte {
	var v asn1.RawValue
	if len(blob) > MaxChainBytes {
		return nil
	}
	if _, err := asn1.Unmarshal(blob, &v); err != nil {
		return nil
	}
	return v.FullBytes
}

func cutChain(blob []byte) ([][]byte, error) {
	if len(blob) == 0 {
		return nil, refuse(ua.StatusBadCertificateInvalid, "no certificate")
	}
	if len(blob) > MaxChainBytes {
		return nil, refuse(ua.StatusBadCertificateInvalid, "%d bytes of certificates, at most %d are looked at", len(blob), MaxChainBytes)
	}
	var ders [][]byte
	for len(blob) > 0 {
		if len(ders) == MaxChainCertificates {
			return nil, refuse(ua.StatusBadCertificateInvalid, "more than %d certificates", MaxChainCertificates)
		}
		var v asn1.RawValue
		rest, err := asn1.Unmarshal(blob, &v)
		if err != nil || v.Tag != asn1.TagSequence || v.Class != asn1.ClassUniversal {
			return nil, refuse(ua.StatusBadCertificateInvalid, "certificate %d is not DER", len(ders)+1)
		}
		ders = append(ders, v.FullBytes)
		blob = rest
	}
	return ders, nil
}

// buildChain finds the issuers of sent[0] up to a self-signed certificate, in the store or
// among the others that were sent, and checks each signature on the way. Every certificate
// is visited once at most, and the number of signature checks is bounded, so that neither A
// signed by B signed by A nor many namesakes cost more than a fixed amount of work.
func (t *trustList) buildChain(sent []*x509.Certificate, maxChain int) ([]*x509.Certificate, error) {
	chain := []*x509.Certificate{sent[0]}
	checks := 0
	for {
		last := chain[len(chain)-1]
		if err := checkKeySize(last); err != nil {
			return nil, err
		}
		if selfIssued(last) {
			checks++
			if checkSignature(last, last) == nil {
				return chain, nil
			}
		}
		if len(chain) >= maxChain {
			return nil, refuse(ua.StatusBadCertificateChainIncomplete, "no root within %d certificates", maxChain)
		}
		var issuer *x509.Certificate
		broken := selfIssued(last)
		for _, from := range [][]*x509.Certificate{t.issuers[string(last.RawIssuer)], sent[1:]} {
			for _, c := range from {
				if issuer != nil || !bytes.Equal(c.RawSubject, last.RawIssuer) || !keyIDsMatch(last, c) || contains(chain, c) {
					continue
				}
				if checks++; checks > maxSignatureChecks {
					return nil, refuse(ua.StatusBadCertificateChainIncomplete, "no root within %d signature checks", maxSignatureChecks)
				}
				if checkKeySize(c) == nil && checkSignature(last, c) == nil {
					issuer = c
				} else {
					broken = true
				}
			}
		}
		if issuer == nil {
			if broken {
				return nil, refuse(ua.StatusBadCertificateInvalid, "the signature of %s does not verify", name(last))
			}
			return chain, refuse(ua.StatusBadCertificateChainIncomplete, "the issuer %q of %s is not known (put it into issuers/certs)", last.Issuer, name(last))
		}
		chain = append(chain, issuer)
	}
}

func contains(chain []*x509.Certificate, c *x509.Certificate) bool {
	for _, x := range chain {
		if bytes.Equal(x.Raw, c.Raw) {
			return true
		}
	}
	return false
}

func selfIssued(c *x509.Certificate) bool { return bytes.Equal(c.RawSubject, c.RawIssuer) }

func keyIDsMatch(child, parent *x509.Certificate) bool {
	return len(child.AuthorityKeyId) == 0 || len(parent.SubjectKeyId) == 0 || bytes.Equal(child.AuthorityKeyId, parent.SubjectKeyId)
}

func checkKeySize(c *x509.Certificate) error {
	if pub, ok := c.PublicKey.(*rsa.PublicKey); ok && pub.N.BitLen() > maxRSABits {
		return refuse(ua.StatusBadCertificatePolicyCheckFailed, "%d-bit RSA key", pub.N.BitLen())
	}
	return nil
}

// checkSignature reports whether parent's key signed child. Go no longer verifies SHA-1 in
// certificates; the deprecated policies need it, and for the others the Security Policy Check
// refuses it with its own code.
func checkSignature(child, parent *x509.Certificate) error {
	if child.SignatureAlgorithm == x509.SHA1WithRSA {
		pub, ok := parent.PublicKey.(*rsa.PublicKey)
		if !ok {
			return errors.New("RSA signature, but the issuer has no RSA key")
		}
		digest := sha1.Sum(child.RawTBSCertificate)
		return rsa.VerifyPKCS1v15(pub, crypto.SHA1, digest[:], child.Signature)
	}
	return parent.CheckSignature(child.SignatureAlgorithm, child.RawTBSCertificate, child.Signature)
}

// Thumbprint returns the SHA-1 thumbprint as people write it: 40 upper-case hex digits.
func Thumbprint(der []byte) string {
	t := security.Thumbprint(der)
	return strings.ToUpper(hex.EncodeToString(t[:]))
}

func thumbprint(c *x509.Certificate) string { return Thumbprint(c.Raw) }

// name is how a certificate is called in messages.
func name(c *x509.Certificate) string {
	s := c.Subject.String()
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return fmt.Sprintf("%q", s)
}
