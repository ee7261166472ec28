//go:build openssl && cgo

package opensslkey

/*
#cgo pkg-config: libcrypto
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <openssl/err.h>

// One call per operation: each crossing from Go costs.

static EVP_PKEY *bw_load(const unsigned char *der, long n) {
	const unsigned char *p = der;
	return d2i_PrivateKey(EVP_PKEY_RSA, NULL, &p, n);
}

// pad is an RSA_*_PADDING; md may be NULL for none. salt -1 is the digest's length.
static int bw_sign(EVP_PKEY *key, int pad, const EVP_MD *md, int salt, const unsigned char *digest, size_t dn, unsigned char *out, size_t *on) {
	EVP_PKEY_CTX *c = EVP_PKEY_CTX_new(key, NULL);
	int ok = c != NULL && EVP_PKEY_sign_init(c) > 0 && EVP_PKEY_CTX_set_rsa_padding(c, pad) > 0 &&
		EVP_PKEY_CTX_set_signature_md(c, md) > 0 &&
		(pad != RSA_PKCS1_PSS_PADDING || EVP_PKEY_CTX_set_rsa_pss_saltlen(c, salt) > 0) &&
		EVP_PKEY_sign(c, out, on, digest, dn) > 0;
	EVP_PKEY_CTX_free(c);
	ERR_clear_error();
	return ok;
}

static int bw_decrypt(EVP_PKEY *key, int pad, const EVP_MD *md, const EVP_MD *mgf, const unsigned char *in, size_t n, unsigned char *out, size_t *on) {
	EVP_PKEY_CTX *c = EVP_PKEY_CTX_new(key, NULL);
	int ok = c != NULL && EVP_PKEY_decrypt_init(c) > 0 && EVP_PKEY_CTX_set_rsa_padding(c, pad) > 0 &&
		(pad != RSA_PKCS1_OAEP_PADDING || (EVP_PKEY_CTX_set_rsa_oaep_md(c, md) > 0 && EVP_PKEY_CTX_set_rsa_mgf1_md(c, mgf) > 0)) &&
		EVP_PKEY_decrypt(c, out, on, in, n) > 0;
	EVP_PKEY_CTX_free(c);
	ERR_clear_error();
	return ok;
}
*/
import "C"

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"runtime"
	"unsafe"
)

// Available reports whether the package was built with OpenSSL.
const Available = true

// Key is an RSA private key held by OpenSSL. It is a crypto.Signer and a
// crypto.Decrypter, and may be used concurrently. Its memory is OpenSSL's and is
// freed when the Key is no longer referenced.
type Key struct {
	pkey *C.EVP_PKEY
	pub  *rsa.PublicKey
	// pkcs1 serves what OpenSSL does differently: the decryption of session
	// keys with PKCS #1 v1.5 padding, whose uniform failure Go implements.
	pkcs1 *rsa.PrivateKey
}

// New hands a private key to OpenSSL.
func New(k *rsa.PrivateKey) (*Key, error) {
	if err := k.Validate(); err != nil {
		return nil, fmt.Errorf("opensslkey: %w", err)
	}
	der := x509.MarshalPKCS1PrivateKey(k)
	pkey := C.bw_load((*C.uchar)(unsafe.Pointer(&der[0])), C.long(len(der)))
	clear(der)
	if pkey == nil {
		return nil, errors.New("opensslkey: OpenSSL does not take the key")
	}
	key := &Key{pkey: pkey, pub: &k.PublicKey, pkcs1: k}
	runtime.AddCleanup(key, func(p *C.EVP_PKEY) { C.EVP_PKEY_free(p) }, pkey)
	return key, nil
}

// Public returns the *rsa.PublicKey.
func (k *Key) Public() crypto.PublicKey { return k.pub }

func digest(h crypto.Hash) (*C.EVP_MD, error) {
	switch h {
	case crypto.SHA1:
		return C.EVP_sha1(), nil
	case crypto.SHA256:
		return C.EVP_sha256(), nil
	case crypto.SHA384:
		return C.EVP_sha384(), nil
	case crypto.SHA512:
		return C.EVP_sha512(), nil
	}
	return nil, fmt.Errorf("opensslkey: hash %v is not supported", h)
}

// Sign signs a digest with PKCS #1 v1.5, or with PSS when opts is a
// *rsa.PSSOptions. rand is not used: OpenSSL has its own source.
func (k *Key) Sign(_ io.Reader, sum []byte, opts crypto.SignerOpts) ([]byte, error) {
	h := opts.HashFunc()
	md, err := digest(h)
	if err != nil {
		return nil, err
	}
	if len(sum) != h.Size() {
		return nil, errors.New("opensslkey: the digest has the wrong length")
	}
	pad, salt := C.int(C.RSA_PKCS1_PADDING), C.int(0)
	if o, ok := opts.(*rsa.PSSOptions); ok {
		pad, salt = C.RSA_PKCS1_PSS_PADDING, C.int(o.SaltLength)
		switch o.SaltLength {
		case rsa.PSSSaltLengthEqualsHash:
			salt = C.int(h.Size())
		case rsa.PSSSaltLengthAuto:
			salt = C.int(k.pub.Size() - 2 - h.Size())
		}
	}
	out := make([]byte, k.pub.Size())
	n := C.size_t(len(out))
	ok := C.bw_sign(k.pkey, pad, md, salt, (*C.uchar)(unsafe.Pointer(&sum[0])), C.size_t(len(sum)), (*C.uchar)(unsafe.Pointer(&out[0])), &n)
	runtime.KeepAlive(k)
	if ok != 1 {
		return nil, errors.New("opensslkey: signing failed")
	}
	return out[:n], nil
}

// Decrypt decrypts one block with OAEP when opts is a *rsa.OAEPOptions, else as
// *rsa.PrivateKey does.
func (k *Key) Decrypt(rand io.Reader, in []byte, opts crypto.DecrypterOpts) ([]byte, error) {
	o, ok := opts.(*rsa.OAEPOptions)
	if !ok || len(o.Label) > 0 {
		return k.pkcs1.Decrypt(rand, in, opts)
	}
	if len(in) != k.pub.Size() {
		return nil, rsa.ErrDecryption
	}
	md, err := digest(o.Hash)
	if err != nil {
		return nil, err
	}
	mgf := md
	if o.MGFHash != 0 {
		if mgf, err = digest(o.MGFHash); err != nil {
			return nil, err
		}
	}
	out := make([]byte, k.pub.Size())
	n := C.size_t(len(out))
	good := C.bw_decrypt(k.pkey, C.RSA_PKCS1_OAEP_PADDING, md, mgf, (*C.uchar)(unsafe.Pointer(&in[0])), C.size_t(len(in)), (*C.uchar)(unsafe.Pointer(&out[0])), &n)
	runtime.KeepAlive(k)
	if good != 1 {
		return nil, rsa.ErrDecryption
	}
	return out[:n], nil
}
