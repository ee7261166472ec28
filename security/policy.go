// Package security holds the SecurityPolicies of OPC 10000-7 §6.6 (SecurityPolicy
// Facets): asymmetric signing and encryption, key derivation and the symmetric
// protection of one direction of a SecureChannel, and the [CryptoGate] on which all
// private-key operations run.
//
// It knows no messages: securechannel cuts chunks and pads, session composes signatures.
package security

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"fmt"
	"math/big"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// encryption names the asymmetric encryption scheme of a policy.
type encryption uint8

const (
	encryptNone encryption = iota
	encryptPKCS1v15
	encryptOAEPSHA1
	encryptOAEPSHA256
)

// A Policy is one SecurityPolicy. Policies are immutable; compare them by pointer.
type Policy struct {
	URI  string // as it stands in the asymmetric security header and in EndpointDescriptions
	Name string // the last part of URI, "Basic256Sha256"

	strength   int
	deprecated bool

	minBits, maxBits int // Min/MaxAsymmetricKeyLength
	nonce            int // SecureChannelNonceLength, bytes

	asymHash      crypto.Hash // of AsymmetricSignatureAlgorithm
	pss           bool
	encryption    encryption
	signatureURI  string
	encryptionURI string

	symHash       crypto.Hash // of SymmetricSignatureAlgorithm and KeyDerivationAlgorithm
	signingKey    int         // DerivedSignatureKeyLength, bytes
	encryptingKey int         // key of SymmetricEncryptionAlgorithm, bytes
}

const (
	uriRSASHA1       = "http://www.w3.org/2000/09/xmldsig#rsa-sha1"
	uriRSASHA256     = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
	uriRSAPSSSHA256  = "http://opcfoundation.org/UA/security/rsa-pss-sha2-256"
	uriRSA15         = "http://www.w3.org/2001/04/xmlenc#rsa-1_5"
	uriRSAOAEP       = "http://www.w3.org/2001/04/xmlenc#rsa-oaep"
	uriRSAOAEPSHA256 = "http://opcfoundation.org/UA/security/rsa-oaep-sha2-256"
)

// The policies this stack implements. Basic128Rsa15 and Basic256 are deprecated (SHA-1):
// they exist for old clients and are offered only when an administrator asks for it.
var (
	None = &Policy{URI: ua.SecurityPolicyURINone, Name: "None"}

	Basic128Rsa15 = &Policy{
		URI: ua.SecurityPolicyURIBasic128Rsa15, Name: "Basic128Rsa15",
		strength: 1, deprecated: true, minBits: 1024, maxBits: 2048, nonce: 16,
		asymHash: crypto.SHA1, encryption: encryptPKCS1v15,
		signatureURI: uriRSASHA1, encryptionURI: uriRSA15,
		symHash: crypto.SHA1, signingKey: 16, encryptingKey: 16,
	}
	Basic256 = &Policy{
		URI: ua.SecurityPolicyURIBasic256, Name: "Basic256",
		strength: 2, deprecated: true, minBits: 1024, maxBits: 2048, nonce: 32,
		asymHash: crypto.SHA1, encryption: encryptOAEPSHA1,
		signatureURI: uriRSASHA1, encryptionURI: uriRSAOAEP,
		symHash: crypto.SHA1, signingKey: 24, encryptingKey: 32,
	}
	Basic256Sha256 = &Policy{
		URI: ua.SecurityPolicyURIBasic256Sha256, Name: "Basic256Sha256",
		strength: 3, minBits: 2048, maxBits: 4096, nonce: 32,
		asymHash: crypto.SHA256, encryption: encryptOAEPSHA1,
		signatureURI: uriRSASHA256, encryptionURI: uriRSAOAEP,
		symHash: crypto.SHA256, signingKey: 32, encryptingKey: 32,
	}
	Aes128Sha256RsaOaep = &Policy{
		URI: ua.SecurityPolicyURIAes128Sha256RsaOaep, Name: "Aes128_Sha256_RsaOaep",
		strength: 4, minBits: 2048, maxBits: 4096, nonce: 32,
		asymHash: crypto.SHA256, encryption: encryptOAEPSHA1,
		signatureURI: uriRSASHA256, encryptionURI: uriRSAOAEP,
		symHash: crypto.SHA256, signingKey: 32, encryptingKey: 16,
	}
	Aes256Sha256RsaPss = &Policy{
		URI: ua.SecurityPolicyURIAes256Sha256RsaPss, Name: "Aes256_Sha256_RsaPss",
		strength: 5, minBits: 2048, maxBits: 4096, nonce: 32,
		asymHash: crypto.SHA256, pss: true, encryption: encryptOAEPSHA256,
		signatureURI: uriRSAPSSSHA256, encryptionURI: uriRSAOAEPSHA256,
		symHash: crypto.SHA256, signingKey: 32, encryptingKey: 32,
	}
)

// Policies returns all policies, weakest first.
func Policies() []*Policy {
	return []*Policy{None, Basic128Rsa15, Basic256, Basic256Sha256, Aes128Sha256RsaOaep, Aes256Sha256RsaPss}
}

// PolicyByURI returns the policy with that URI, or nil when this stack has none. It does not
// allocate; unknown URIs are for the caller to refuse with BadSecurityPolicyRejected.
func PolicyByURI(uri string) *Policy {
	switch uri {
	case None.URI:
		return None
	case Basic256Sha256.URI:
		return Basic256Sha256
	case Aes128Sha256RsaOaep.URI:
		return Aes128Sha256RsaOaep
	case Aes256Sha256RsaPss.URI:
		return Aes256Sha256RsaPss
	case Basic256.URI:
		return Basic256
	case Basic128Rsa15.URI:
		return Basic128Rsa15
	}
	return nil
}

// PolicyByName returns the policy whose Name (or URI) that is, or nil. For configuration files.
func PolicyByName(name string) *Policy {
	for _, p := range Policies() {
		if p.Name == name || p.URI == name {
			return p
		}
	}
	return nil
}

// String returns the policy's name.
func (p *Policy) String() string { return p.Name }

// IsNone reports whether p protects nothing.
func (p *Policy) IsNone() bool { return p.encryption == encryptNone }

// Deprecated reports whether OPC 10000-7 has withdrawn the policy. Callers keep deprecated
// policies off unless told otherwise.
func (p *Policy) Deprecated() bool { return p.deprecated }

// Strength orders policies: None is 0, a larger number is stronger. It serves "no weaker
// than before" and the SecurityLevel of endpoints; distances mean nothing.
func (p *Policy) Strength() int { return p.strength }

// NonceLength is the SecureChannelNonceLength in bytes; 0 for None.
func (p *Policy) NonceLength() int { return p.nonce }

// KeyBits is the range of RSA modulus lengths the policy allows, in bits, both ends included;
// 0, 0 for None.
func (p *Policy) KeyBits() (least, most int) { return p.minBits, p.maxBits }

// SymmetricSignatureLength is the length of a chunk's signature in bytes; 0 for None.
func (p *Policy) SymmetricSignatureLength() int {
	if p.IsNone() {
		return 0
	}
	return p.symHash.Size()
}

// SymmetricBlockSize is the block size of the chunk cipher in bytes; 1 for None.
func (p *Policy) SymmetricBlockSize() int {
	if p.IsNone() {
		return 1
	}
	return symmetricBlock
}

// SignatureURI is the asymmetric signature algorithm as it stands in SignatureData; "" for None.
func (p *Policy) SignatureURI() string { return p.signatureURI }

// EncryptionURI is the asymmetric encryption algorithm as it stands in
// UserNameIdentityToken.EncryptionAlgorithm; "" for None.
func (p *Policy) EncryptionURI() string { return p.encryptionURI }

// WeakHash reports whether the policy accepts certificates signed with SHA-1
// (CertificateSignatureAlgorithm of the deprecated policies).
func (p *Policy) WeakHash() bool { return p.asymHash == crypto.SHA1 }

// CheckKey reports whether pub may be used with the policy. A modulus or exponent that is no
// RSA key at all (zero, even, exponent 1) is BadCertificateInvalid, a length outside of
// KeyBits BadCertificatePolicyCheckFailed (OPC 10000-4 §6.1.3, Security Policy Check).
// None accepts everything.
func (p *Policy) CheckKey(pub *rsa.PublicKey) error {
	if p.IsNone() {
		return nil
	}
	if err := CheckRSA(pub); err != nil {
		return err
	}
	if n := pub.N.BitLen(); n < p.minBits || n > p.maxBits {
		return uastatus.New(ua.StatusBadCertificatePolicyCheckFailed, "check key",
			fmt.Errorf("%d-bit RSA key, %s allows %d to %d", n, p.Name, p.minBits, p.maxBits))
	}
	return nil
}

// CheckRSA refuses degenerate keys before anything computes with them (hostile.md X22): an
// exponent of 1, for one, would make "encryption" the identity. The error is
// BadCertificateInvalid. CheckKey includes it.
func CheckRSA(pub *rsa.PublicKey) error {
	switch {
	case pub == nil || pub.N == nil:
		return uastatus.New(ua.StatusBadCertificateInvalid, "check key", fmt.Errorf("no RSA key"))
	case pub.N.Sign() <= 0 || pub.N.Bit(0) == 0 || pub.N.Cmp(big.NewInt(1)) == 0:
		return uastatus.New(ua.StatusBadCertificateInvalid, "check key", fmt.Errorf("RSA modulus is not an odd number above 1"))
	case pub.E < 3 || pub.E&1 == 0 || pub.E > 1<<31-1:
		return uastatus.New(ua.StatusBadCertificateInvalid, "check key", fmt.Errorf("RSA exponent %d", pub.E))
	}
	return nil
}

// Nonce returns n bytes from the operating system's secure source.
func Nonce(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails: crypto/rand ends the process instead
	return b
}

// Thumbprint is the SHA-1 of a DER certificate: the ReceiverCertificateThumbprint of
// OPC 10000-6 §6.7.2.3 and the name under which people know a certificate. Nothing here
// takes it for proof of identity; trust compares whole certificates.
func Thumbprint(der []byte) [20]byte { return sha1.Sum(der) }
