package probe

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
)

// Hello builds a HEL message (OPC 10000-6 §7.1.2.3) with the numbers as given.
func Hello(receive, send, message, chunks uint32, url string) []byte {
	b := []byte("HELF\x00\x00\x00\x00")
	for _, v := range []uint32{0, receive, send, message, chunks, uint32(len(url))} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	b = append(b, url...)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	return b
}

// ReadMessage reads one UACP message of at most 1 MiB from a bare connection
// and returns its type, "ACK" for instance, and what follows its header.
func ReadMessage(c net.Conn) (kind string, body []byte, err error) {
	var h [8]byte
	if _, err := io.ReadFull(c, h[:]); err != nil {
		return "", nil, err
	}
	n := binary.LittleEndian.Uint32(h[4:])
	if n < 8 || n > 1<<20 {
		return string(h[:3]), nil, errors.New("probe: impossible message size")
	}
	body = make([]byte, n-8)
	_, err = io.ReadFull(c, body)
	return string(h[:3]), body, err
}
