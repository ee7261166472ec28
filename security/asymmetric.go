package security

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"errors"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// MaxDecryptBlocks bounds the private-key operations that one ciphertext may cost. An
// OpenSecureChannel message needs two to ten; without a bound one 64 KiB chunk would buy
// 255 of them.
const MaxDecryptBlocks = 32

// SignatureSize is the length of a signature made with pub's private key, in bytes.
func (p *Policy) SignatureSize(pub *rsa.PublicKey) int {
	if p.IsNone() {
		return 0
	}
	return pub.Size()
}

// CipherBlock is the length of one encrypted block, in bytes; 1 for None.
func (p *Policy) CipherBlock(pub *rsa.PublicKey) int {
	if p.IsNone() {
		return 1
	}
	return pub.Size()
}

// PlainBlock is the most plaintext that one block holds, in bytes; 1 for None. It is negative
// for keys that are too short for the policy: CheckKey first.
func (p *Policy) PlainBlock(pub *rsa.PublicKey) int {
	switch p.encryption {
	case encryptPKCS1v15:
		return pub.Size() - 11
	case encryptOAEPSHA1:
		return pub.Size() - 2*sha1.Size - 2
	case encryptOAEPSHA256:
		return pub.Size() - 2*sha256.Size - 2
	}
	return 1
}

// Verify checks an asymmetric signature. Every failure is the same BadSecurityChecksFailed;
// sessions turn it into BadApplicationSignatureInvalid or BadUserSignatureInvalid. None has
// nothing to check and returns nil.
func (p *Policy) Verify(pub *rsa.PublicKey, data, sig []byte) error {
	if p.IsNone() {
		return nil
	}
	if p.CheckKey(pub) != nil {
		return errVerify()
	}
	var err error
	if p.pss {
		err = rsa.VerifyPSS(pub, p.asymHash, p.digest(data), sig, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
	} else {
		err = rsa.VerifyPKCS1v15(pub, p.asymHash, p.digest(data), sig)
	}
	if err != nil {
		return errVerify()
	}
	return nil
}

// Sign signs data with k's private key on the gate. Only the private-key operation waits
// there, hashing does not. None returns nil, nil.
func (p *Policy) Sign(ctx context.Context, k *Key, pr Priority, data []byte) ([]byte, error) {
	if p.IsNone() {
		return nil, nil
	}
	var opts crypto.SignerOpts = p.asymHash
	if p.pss {
		opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: p.asymHash}
	}
	return k.sign(ctx, pr, p.digest(data), opts)
}

// Encrypt appends plain, encrypted for pub in blocks of PlainBlock bytes, to dst; the last
// block may be shorter. dst and plain must not overlap. None appends plain as it is.
func (p *Policy) Encrypt(dst, plain []byte, pub *rsa.PublicKey) ([]byte, error) {
	if p.IsNone() {
		return append(dst, plain...), nil
	}
	if err := p.CheckKey(pub); err != nil {
		return nil, err
	}
	size := p.PlainBlock(pub)
	for len(plain) > 0 {
		n := min(size, len(plain))
		var block []byte
		var err error
		switch p.encryption {
		case encryptPKCS1v15:
			//lint:ignore SA1019 Basic128Rsa15 is this scheme; the policy is off by default
			block, err = rsa.EncryptPKCS1v15(rand.Reader, pub, plain[:n])
		case encryptOAEPSHA1:
			block, err = rsa.EncryptOAEP(sha1.New(), rand.Reader, pub, plain[:n], nil)
		default:
			block, err = rsa.EncryptOAEP(sha256.New(), rand.Reader, pub, plain[:n], nil)
		}
		if err != nil {
			return nil, uastatus.New(ua.StatusBadInternalError, "encrypt", err)
		}
		dst = append(dst, block...)
		plain = plain[n:]
	}
	return dst, nil
}

// Decrypt appends the plaintext of a message chunk to dst. All blocks are decrypted in one
// turn on the gate, which counts them. dst may be the buffer in front of cipher (plaintext is
// never longer than its ciphertext).
//
// Every failure is the same BadSecurityChecksFailed. With Basic128Rsa15 a bad padding is no
// failure at all: the block is replaced by random bytes in constant time, and the signature
// check that follows fails as it does for any other forgery (hostile.md X21). That relies on
// the sender filling every block, as OPC 10000-6 §6.7.2.5 (Message footer) makes it; for
// secrets of other lengths use DecryptSecret.
func (p *Policy) Decrypt(ctx context.Context, k *Key, pr Priority, dst, cipher []byte) ([]byte, error) {
	if p.IsNone() {
		return append(dst, cipher...), nil
	}
	size := k.pub.Size()
	if len(cipher) == 0 || len(cipher)%size != 0 || len(cipher)/size > MaxDecryptBlocks || p.PlainBlock(k.pub) < 1 {
		return nil, errDecrypt()
	}
	opts := p.decryptOptions(p.PlainBlock(k.pub))
	var failed error
	err := k.gate.DoN(ctx, pr, len(cipher)/size, func() {
		for rest := cipher; len(rest) > 0; rest = rest[size:] {
			plain, err := k.decrypter.Decrypt(rand.Reader, rest[:size], opts)
			if err != nil {
				failed = err
				return // OAEP: which block was bad tells an attacker nothing
			}
			dst = append(dst, plain...)
		}
	})
	if err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, errDecrypt()
	}
	return dst, nil
}

// decryptOptions are the options for one block. sessionKey > 0 makes PKCS #1 v1.5 return that
// many random bytes instead of an error.
func (p *Policy) decryptOptions(sessionKey int) crypto.DecrypterOpts {
	switch p.encryption {
	case encryptPKCS1v15:
		//lint:ignore SA1019 Basic128Rsa15 is this scheme; the policy is off by default
		return &rsa.PKCS1v15DecryptOptions{SessionKeyLen: sessionKey}
	case encryptOAEPSHA1:
		return &rsa.OAEPOptions{Hash: crypto.SHA1}
	default:
		return &rsa.OAEPOptions{Hash: crypto.SHA256}
	}
}

func (p *Policy) digest(data []byte) []byte {
	if p.asymHash == crypto.SHA1 {
		d := sha1.Sum(data)
		return d[:]
	}
	d := sha256.Sum256(data)
	return d[:]
}

var (
	errSignature  = errors.New("signature does not verify")
	errCiphertext = errors.New("ciphertext refused")
)

func errVerify() error {
	return uastatus.New(ua.StatusBadSecurityChecksFailed, "verify", errSignature)
}

// errDecrypt is the one error of every failed decryption, so that nobody learns why.
func errDecrypt() error {
	return uastatus.New(ua.StatusBadSecurityChecksFailed, "decrypt", errCiphertext)
}
