package security

import (
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"hash"
)

// symmetricBlock is the block of AES, the only symmetric cipher of the RSA policies.
const symmetricBlock = aes.BlockSize

// cbc is what crypto/cipher's CBC modes are beside BlockMode: setting the IV again is 3 ns,
// a new mode 150 ns and 512 bytes.
type cbc interface {
	cipher.BlockMode
	SetIV([]byte)
}

// Symmetric protects one direction of one SecurityToken: HMAC and AES-CBC with the keys of
// OPC 10000-6 §6.7.5 (Deriving keys). It reuses its state and does not allocate after the
// first call of each method. It is not safe for concurrent use.
type Symmetric struct {
	mac     hash.Hash
	enc     cbc // made at the first Encrypt: a direction only ever needs one of the two
	dec     cbc
	sigSize int
	keySize int
	key     [32]byte
	iv      [symmetricBlock]byte
	tag     [sha256.Size]byte
}

// Derive returns the keys of one direction: signing key, encrypting key and initialisation
// vector are cut, in this order, from P_SHA(secret, seed). A client sends with
// Derive(serverNonce, clientNonce) and receives with Derive(clientNonce, serverNonce); a
// server the other way round. For None it returns nil.
func (p *Policy) Derive(secret, seed []byte) *Symmetric {
	if p.IsNone() {
		return nil
	}
	h := hashFunc(p.symHash)
	block := pSHA(h, secret, seed, p.signingKey+p.encryptingKey+symmetricBlock)
	s := &Symmetric{
		mac:     hmac.New(h, block[:p.signingKey]),
		sigSize: p.symHash.Size(),
		keySize: p.encryptingKey,
	}
	copy(s.key[:], block[p.signingKey:][:p.encryptingKey])
	copy(s.iv[:], block[p.signingKey+p.encryptingKey:])
	clear(block)
	return s
}

// SignatureSize is the length of a signature in bytes.
func (s *Symmetric) SignatureSize() int { return s.sigSize }

// BlockSize is the cipher's block in bytes; what is encrypted is a multiple of it.
func (s *Symmetric) BlockSize() int { return symmetricBlock }

// Sign appends the signature of data to dst. data may be dst itself.
func (s *Symmetric) Sign(dst, data []byte) []byte {
	s.mac.Reset()
	s.mac.Write(data)
	return s.mac.Sum(dst)
}

// Verify reports whether sig is the signature of data, in time that depends on lengths only.
func (s *Symmetric) Verify(data, sig []byte) bool {
	s.mac.Reset()
	s.mac.Write(data)
	return subtle.ConstantTimeCompare(s.mac.Sum(s.tag[:0]), sig) == 1
}

// Encrypt encrypts b in place, starting from the token's initialisation vector: every chunk
// begins anew (OPC 10000-6 §6.7.2). len(b) must be a multiple of BlockSize, else it panics;
// the sender pads.
func (s *Symmetric) Encrypt(b []byte) {
	if s.enc == nil {
		s.enc = cipher.NewCBCEncrypter(s.newBlock(), s.iv[:]).(cbc)
	} else {
		s.enc.SetIV(s.iv[:])
	}
	s.enc.CryptBlocks(b, b)
}

// Decrypt decrypts b in place. It reports false and leaves b alone when b is no whole number
// of blocks. It says nothing about authenticity: Verify afterwards.
func (s *Symmetric) Decrypt(b []byte) bool {
	if len(b)%symmetricBlock != 0 {
		return false
	}
	if s.dec == nil {
		s.dec = cipher.NewCBCDecrypter(s.newBlock(), s.iv[:]).(cbc)
	} else {
		s.dec.SetIV(s.iv[:])
	}
	s.dec.CryptBlocks(b, b)
	return true
}

func (s *Symmetric) newBlock() cipher.Block {
	b, err := aes.NewCipher(s.key[:s.keySize])
	if err != nil {
		panic(err) // key lengths are constants of this package
	}
	return b
}

// pSHA is P_hash of RFC 5246 §5 without label, the KeyDerivationAlgorithm of all RSA policies.
func pSHA(h func() hash.Hash, secret, seed []byte, n int) []byte {
	mac := hmac.New(h, secret)
	size := mac.Size()
	out := make([]byte, 0, n+size)
	mac.Write(seed)
	a := mac.Sum(nil) // A(1)
	for len(out) < n {
		mac.Reset()
		mac.Write(a)
		mac.Write(seed)
		out = mac.Sum(out)
		mac.Reset()
		mac.Write(a)
		a = mac.Sum(a[:0])
	}
	return out[:n]
}

func hashFunc(h crypto.Hash) func() hash.Hash {
	if h == crypto.SHA1 {
		return sha1.New
	}
	return sha256.New
}
