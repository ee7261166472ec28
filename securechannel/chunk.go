package securechannel

import (
	"encoding/binary"
	"errors"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Sizes in bytes of what precedes a chunk's body: OPC 10000-6 §6.7.2.2 (Message
// Header), §6.7.2.3 (Security header), §6.7.2.4 (Sequence header).
const (
	messageHeader   = 12 // type, chunk type, size, channel id
	symmetricHeader = messageHeader + 4
	sequenceHeader  = 8
	bodyOffset      = symmetricHeader + sequenceHeader
)

// Chunk types.
const (
	chunkFinal        = 'F'
	chunkIntermediate = 'C'
	chunkAbort        = 'A'
)

// layout is how a direction of a channel cuts messages into chunks.
type layout struct {
	size    int // of the largest chunk
	body    int // most body bytes in a chunk
	sig     int // of the signature; 0 = none
	block   int // of the cipher; 1 = not encrypted
	encrypt bool
}

func newLayout(size int, p *security.Policy, mode ua.MessageSecurityMode) layout {
	l := layout{size: size, block: 1}
	if p.IsNone() || mode == ua.MessageSecurityModeNone {
		l.body = size - bodyOffset
		return l
	}
	l.sig = p.SymmetricSignatureLength()
	if mode != ua.MessageSecurityModeSignAndEncrypt {
		l.body = size - bodyOffset - l.sig
		return l
	}
	l.encrypt, l.block = true, p.SymmetricBlockSize()
	cipher := (size - symmetricHeader) / l.block * l.block
	l.body = cipher - sequenceHeader - 1 - l.sig
	return l
}

// chunks is the number of chunks that a message of n body bytes takes.
func (l *layout) chunks(n int) int { return max(1, (n+l.body-1)/l.body) }

// chunk is the size of a chunk with n body bytes.
func (l *layout) chunk(n int) int {
	if !l.encrypt {
		return bodyOffset + n + l.sig
	}
	plain := sequenceHeader + n + 1 + l.sig
	return symmetricHeader + (plain+l.block-1)/l.block*l.block
}

// seal makes a chunk in place: b has exactly the size that layout.chunk says.
func (l *layout) seal(b []byte, kind [3]byte, final byte, channel uint32, t *token, sequence, request uint32, body []byte) {
	le := binary.LittleEndian
	b[0], b[1], b[2], b[3] = kind[0], kind[1], kind[2], final
	le.PutUint32(b[4:], uint32(len(b)))
	le.PutUint32(b[8:], channel)
	le.PutUint32(b[12:], t.id)
	le.PutUint32(b[16:], sequence)
	le.PutUint32(b[20:], request)
	n := bodyOffset + copy(b[bodyOffset:], body)
	if l.sig == 0 {
		return
	}
	end := len(b) - l.sig
	if l.encrypt {
		// PaddingSize and Padding, all with the number of padding bytes
		// (OPC 10000-6 §6.7.2.5, Message footer). AES keys are below 2,048
		// bits, so there is no ExtraPaddingSize.
		padding := byte(end - n - 1)
		for i := n; i < end; i++ {
			b[i] = padding
		}
	}
	t.out.Sign(b[:end], b[:end])
	if l.encrypt {
		t.out.Encrypt(b[symmetricHeader:])
	}
}

// open verifies and decrypts a chunk in place. Every failure is the same
// BadSecurityChecksFailed, and no byte of the padding is looked at before the
// signature is right (hostile.md D11).
func (l *layout) open(b []byte, t *token) (sequence, request uint32, body []byte, err error) {
	if len(b) < bodyOffset {
		return 0, 0, nil, errChunkShort
	}
	end := len(b)
	if l.sig > 0 {
		if l.encrypt && !t.in.Decrypt(b[symmetricHeader:]) {
			return 0, 0, nil, errChunk
		}
		end -= l.sig
		if end < bodyOffset || !t.in.Verify(b[:end], b[end:]) {
			return 0, 0, nil, errChunk
		}
		if l.encrypt {
			n := int(b[end-1]) + 1
			if end-n < bodyOffset {
				return 0, 0, nil, errChunk
			}
			for _, p := range b[end-n : end] {
				if p != b[end-1] {
					return 0, 0, nil, errChunk
				}
			}
			end -= n
		}
	}
	le := binary.LittleEndian
	return le.Uint32(b[16:]), le.Uint32(b[20:]), b[bodyOffset:end:end], nil
}

// kind is the message type of a chunk.
func kind(b []byte) [3]byte { return [3]byte(b[:3]) }

var (
	kindMSG = [3]byte{'M', 'S', 'G'}
	kindOPN = [3]byte{'O', 'P', 'N'}
	kindCLO = [3]byte{'C', 'L', 'O'}
)

// Made once: they carry nothing that differs, and an attacker's chunk costs no
// allocation.
var (
	errChunk      = uastatus.New(ua.StatusBadSecurityChecksFailed, "chunk", errors.New("signature, padding or length wrong"))
	errChunkShort = uastatus.New(ua.StatusBadDecodingError, "chunk", errors.New("shorter than its headers"))
)
