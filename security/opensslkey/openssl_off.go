//go:build !openssl || !cgo

package opensslkey

import (
	"crypto"
	"crypto/rsa"
	"errors"
	"io"
)

// Available reports whether the package was built with OpenSSL.
const Available = false

// Key is an RSA private key held by OpenSSL.
type Key struct{}

// New returns an error: the package was built without OpenSSL.
func New(*rsa.PrivateKey) (*Key, error) {
	return nil, errors.New("opensslkey: built without OpenSSL; build with -tags openssl and cgo")
}

var errUnavailable = errors.New("opensslkey: built without OpenSSL")

// Public returns nil.
func (k *Key) Public() crypto.PublicKey { return nil }

// Sign returns an error.
func (k *Key) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) { return nil, errUnavailable }

// Decrypt returns an error.
func (k *Key) Decrypt(io.Reader, []byte, crypto.DecrypterOpts) ([]byte, error) {
	return nil, errUnavailable
}
