package security

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Key is an ApplicationInstanceCertificate with its private key. The private key is only ever
// asked through crypto.Signer and crypto.Decrypter, so that an HSM can stand in, and only
// on workers of the CryptoGate. A Key is immutable and safe for concurrent use.
type Key struct {
	leaf      *x509.Certificate
	pub       *rsa.PublicKey
	chain     []byte
	thumb     [20]byte
	signer    crypto.Signer
	decrypter crypto.Decrypter
	gate      *CryptoGate
}

// NewKey joins a certificate chain (DER, leaf first) with the private key of its leaf. signer
// and dec are usually the same *rsa.PrivateKey. It signs once on the gate: that proves that
// key and certificate belong together and gives the gate its first measurement.
func NewKey(chain [][]byte, signer crypto.Signer, dec crypto.Decrypter, gate *CryptoGate) (*Key, error) {
	if len(chain) == 0 || signer == nil || dec == nil || gate == nil {
		return nil, errors.New("security: NewKey needs a certificate, a Signer, a Decrypter and a CryptoGate")
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return nil, fmt.Errorf("security: application certificate: %w", err)
	}
	pub, ok := leaf.PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("security: application certificate has a %T, only RSA is supported", leaf.PublicKey)
	}
	if err := CheckRSA(pub); err != nil {
		return nil, err
	}
	k := &Key{
		leaf: leaf, pub: pub, chain: bytes.Join(chain, nil), thumb: Thumbprint(leaf.Raw),
		signer: signer, decrypter: dec, gate: gate,
	}
	digest := sha256.Sum256(leaf.Raw)
	sig, err := k.sign(context.Background(), PriorityRenew, digest[:], crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("security: private key: %w", err)
	}
	if rsa.VerifyPKCS1v15(pub, crypto.SHA256, digest[:], sig) != nil {
		return nil, errors.New("security: the private key is not that of the certificate")
	}
	return k, nil
}

// Certificate returns the leaf in DER. Callers must not change it.
func (k *Key) Certificate() []byte { return k.leaf.Raw }

// Chain returns leaf and issuers concatenated in DER, the form of OPC 10000-6 §6.2.6
// (Certificate Chains). Callers must not change it.
func (k *Key) Chain() []byte { return k.chain }

// Leaf returns the parsed certificate.
func (k *Key) Leaf() *x509.Certificate { return k.leaf }

// Public returns the certificate's public key.
func (k *Key) Public() *rsa.PublicKey { return k.pub }

// Thumbprint returns the SHA-1 of the leaf.
func (k *Key) Thumbprint() [20]byte { return k.thumb }

// Gate returns the gate on which the private key runs.
func (k *Key) Gate() *CryptoGate { return k.gate }

// sign runs one private-key signature on the gate.
func (k *Key) sign(ctx context.Context, pr Priority, digest []byte, opts crypto.SignerOpts) (sig []byte, err error) {
	gateErr := k.gate.Do(ctx, pr, func() { sig, err = k.signer.Sign(rand.Reader, digest, opts) })
	if gateErr != nil {
		return nil, gateErr
	}
	if err != nil {
		return nil, uastatus.New(ua.StatusBadInternalError, "sign", err)
	}
	return sig, nil
}
