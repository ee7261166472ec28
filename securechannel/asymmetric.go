package securechannel

import (
	"context"
	"crypto/rsa"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

const (
	maxPolicyURI   = 255      // bytes, OPC 10000-6 §6.7.2.3 (Security header)
	maxCertificate = 32 << 10 // bytes of a chain; bounds the work of parsing it (hostile.md X3)
	thumbprintSize = 20
	maxNonce       = 512 // bytes
)

// asymmetricHeader is the security header of an OpenSecureChannel message; its
// fields alias the message.
type asymmetricHeader struct {
	channel     uint32
	policy      []byte
	certificate []byte // of the sender, with issuers; nil without
	thumbprint  []byte // of the receiver's certificate; nil without
	end         int    // offset of what follows
}

// parseAsymmetric reads the header of an OPN chunk whose size is right.
func parseAsymmetric(b []byte) (h asymmetricHeader, err error) {
	if len(b) < messageHeader {
		return h, errChunkShort
	}
	h.channel = binary.LittleEndian.Uint32(b[8:])
	h.end = messageHeader
	field := func(most int) (f []byte) {
		if err != nil {
			return nil
		}
		if len(b)-h.end < 4 {
			err = errChunkShort
			return nil
		}
		n := int32(binary.LittleEndian.Uint32(b[h.end:]))
		h.end += 4
		switch {
		case n < -1 || int(n) > most:
			err = uastatus.New(ua.StatusBadSecurityChecksFailed, "security header", fmt.Errorf("field of %d bytes, limit %d", n, most))
		case int(n) > len(b)-h.end:
			err = errChunkShort
		case n >= 0:
			f = b[h.end : h.end+int(n)]
			h.end += int(n)
		}
		return f
	}
	h.policy = field(maxPolicyURI)
	h.certificate = field(maxCertificate)
	h.thumbprint = field(thumbprintSize)
	return h, err
}

// identity is the cryptographic side of OpenSecureChannel messages in one
// direction of thought: our key, the peer's certificate.
type identity struct {
	policy *security.Policy
	key    *security.Key // ours; nil for None
	peer   *rsa.PublicKey
	thumb  [thumbprintSize]byte // of the peer's certificate
}

// sealAsymmetric makes a complete OPN message. Only the private-key operation
// waits, on the gate.
func (id *identity) seal(ctx context.Context, pr security.Priority, channel, sequence, request uint32, body []byte) ([]byte, error) {
	le := binary.LittleEndian
	b := append(make([]byte, 0, 4096), "OPNF\x00\x00\x00\x00"...)
	b = le.AppendUint32(b, channel)
	b = le.AppendUint32(b, uint32(len(id.policy.URI)))
	b = append(b, id.policy.URI...)
	if id.policy.IsNone() {
		b = append(b, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF)
	} else {
		b = le.AppendUint32(b, uint32(len(id.key.Chain())))
		b = append(b, id.key.Chain()...)
		b = le.AppendUint32(b, thumbprintSize)
		b = append(b, id.thumb[:]...)
	}
	header := len(b)
	b = le.AppendUint32(b, sequence)
	b = le.AppendUint32(b, request)
	b = append(b, body...)
	if id.policy.IsNone() {
		le.PutUint32(b[4:], uint32(len(b)))
		return b, nil
	}

	sig, plain, cipher := id.policy.SignatureSize(id.key.Public()), id.policy.PlainBlock(id.peer), id.policy.CipherBlock(id.peer)
	extra := 0
	if cipher > 256 {
		extra = 1 // ExtraPaddingSize: the key is longer than 2,048 bits
	}
	content := len(b) - header + 1 + extra + sig
	padding := (plain - content%plain) % plain
	b = append(b, byte(padding))
	for range padding {
		b = append(b, byte(padding))
	}
	if extra > 0 {
		b = append(b, byte(padding>>8))
	}
	le.PutUint32(b[4:], uint32(header+(content+padding)/plain*cipher))
	signature, err := id.policy.Sign(ctx, id.key, pr, b)
	if err != nil {
		return nil, err
	}
	b = append(b, signature...)
	return id.policy.Encrypt(b[:header:header], b[header:], id.peer)
}

// open decrypts and verifies what follows the header in an OPN message, in
// place. All failures that depend on the plaintext are the same one.
func (id *identity) open(ctx context.Context, pr security.Priority, b []byte, header int) (sequence, request uint32, body []byte, err error) {
	if !id.policy.IsNone() {
		plain, err := id.policy.Decrypt(ctx, id.key, pr, b[:header], b[header:])
		if err != nil {
			return 0, 0, nil, err
		}
		sig := id.policy.SignatureSize(id.peer)
		end := len(plain) - sig
		if end < header+sequenceHeader+2 {
			return 0, 0, nil, errOpen
		}
		if id.policy.Verify(id.peer, plain[:end], plain[end:]) != nil {
			return 0, 0, nil, errOpen
		}
		n := 0
		if id.policy.CipherBlock(id.key.Public()) > 256 {
			end--
			n = int(plain[end]) << 8
		}
		low := plain[end-1]
		n += int(low)
		if n+1 > end-header-sequenceHeader {
			return 0, 0, nil, errOpen
		}
		for _, p := range plain[end-n-1 : end] {
			if p != low {
				return 0, 0, nil, errOpen
			}
		}
		b = plain[:end-n-1]
	}
	if len(b)-header < sequenceHeader {
		return 0, 0, nil, errChunkShort
	}
	le := binary.LittleEndian
	return le.Uint32(b[header:]), le.Uint32(b[header+4:]), b[header+sequenceHeader:], nil
}

var errOpen = uastatus.New(ua.StatusBadSecurityChecksFailed, "open secure channel", errors.New("signature or padding wrong"))

// leaf is the first certificate of a chain in DER.
func leaf(chain []byte) []byte {
	// SEQUENCE with a length of two bytes: anything between 128 bytes and 64 KiB
	// that is a certificate looks like this, or with one length byte.
	if len(chain) < 4 || chain[0] != 0x30 {
		return chain
	}
	n := 0
	switch chain[1] {
	case 0x82:
		n = 4 + int(chain[2])<<8 + int(chain[3])
	case 0x81:
		n = 3 + int(chain[2])
	}
	if n == 0 || n > len(chain) {
		return chain
	}
	return chain[:n]
}
