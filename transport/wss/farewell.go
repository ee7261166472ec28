package wss

import (
	"encoding/binary"
	"unicode/utf8"
)

// farewell is what a server's WebSocket writes to. The library answers a close
// frame with the code and reason that it had, and does not look whether the reason
// is UTF-8: an answer that RFC 6455 §5.5.1 (Close) forbids. What §8.1 (Handling
// Errors in UTF-8-Encoded Data) asks for goes out instead.
type farewell struct {
	*socket
	left int // bytes of a frame that are still to come
}

// Of frames (RFC 6455 §5.2, Base Framing Protocol) as a server writes them:
// unmasked, the header in one piece.
const (
	closeFrame = 0x88 // the first byte
	closeHead  = 2 + 2
)

var notUTF8 = [...]byte{closeFrame, 2, 0x03, 0xef} // 1007

// Write writes a frame, or a part of one.
func (f *farewell) Write(b []byte) (int, error) {
	if f.left == 0 {
		f.left = frameSize(b)
		if b[0] == closeFrame && len(b) > closeHead && !utf8.Valid(b[closeHead:]) {
			f.left = 0
			if _, err := f.socket.Write(notUTF8[:]); err != nil {
				return 0, err
			}
			return len(b), nil
		}
	}
	f.left -= min(f.left, len(b))
	return f.socket.Write(b)
}

// frameSize is the size of the frame that begins with b.
func frameSize(b []byte) int {
	switch n := int(b[1]); n {
	case 126:
		return 4 + int(binary.BigEndian.Uint16(b[2:]))
	case 127:
		return 10 + int(binary.BigEndian.Uint64(b[2:]))
	default:
		return 2 + n
	}
}
