package security

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/subtle"
	"encoding/binary"
	"errors"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

var errSecret = errors.New("secret refused")

// EncryptSecret encrypts a password or token for the server that sent serverNonce, in the
// Legacy Encrypted Token Secret Format (OPC 10000-4 §7.40.2.2): length, secret, nonce.
// For None it returns the secret as it is.
func (p *Policy) EncryptSecret(pub *rsa.PublicKey, secret, serverNonce []byte) ([]byte, error) {
	if p.IsNone() {
		return append([]byte(nil), secret...), nil
	}
	plain := make([]byte, 0, 4+len(secret)+len(serverNonce))
	plain = binary.LittleEndian.AppendUint32(plain, uint32(len(secret)+len(serverNonce)))
	plain = append(plain, secret...)
	plain = append(plain, serverNonce...)
	defer clear(plain)
	return p.Encrypt(nil, plain, pub)
}

// DecryptSecret undoes EncryptSecret. serverNonce is the nonce this server sent last; a secret
// that does not end with it is a replay. Bad padding, bad length, wrong nonce, wrong size and
// policy None are one and the same BadIdentityTokenRejected, reached by the same work: a
// padding failure goes on with random bytes (hostile.md X21).
func (p *Policy) DecryptSecret(ctx context.Context, k *Key, pr Priority, secret, serverNonce []byte) ([]byte, error) {
	size := k.pub.Size()
	if p.IsNone() || len(secret) == 0 || len(secret)%size != 0 || len(secret)/size > MaxDecryptBlocks ||
		len(serverNonce) == 0 || p.PlainBlock(k.pub) < 1 {
		return nil, errRejected()
	}
	block := p.PlainBlock(k.pub)
	opts := p.decryptOptions(0)
	plain := make([]byte, 0, len(secret))
	random := make([]byte, block)
	err := k.gate.DoN(ctx, pr, len(secret)/size, func() {
		rand.Read(random)
		for rest := secret; len(rest) > 0; rest = rest[size:] {
			b, err := k.decrypter.Decrypt(rand.Reader, rest[:size], opts)
			if err != nil {
				b = random
			}
			plain = append(plain, b...)
		}
	})
	if err != nil {
		return nil, err
	}
	defer clear(plain)
	// Clients may fill the last block behind the nonce, so the length field rules.
	if len(plain) < 4+len(serverNonce) {
		plain = append(plain, make([]byte, 4+len(serverNonce))...)
	}
	body := plain[4:]
	n := uint64(binary.LittleEndian.Uint32(plain))
	ok := 1
	if n < uint64(len(serverNonce)) || n > uint64(len(body)) {
		n, ok = uint64(len(serverNonce)), 0
	}
	body = body[:n]
	split := len(body) - len(serverNonce)
	ok &= subtle.ConstantTimeCompare(body[split:], serverNonce)
	out := append([]byte(nil), body[:split]...)
	if ok != 1 {
		clear(out)
		return nil, errRejected()
	}
	return out, nil
}

func errRejected() error {
	return uastatus.New(ua.StatusBadIdentityTokenRejected, "decrypt secret", errSecret)
}
