package uatcp

import (
	"fmt"
	"io"
	"net"

	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Connect does the client's side of the handshake: it sends a Hello with the
// limits for responses and reads the Acknowledge from r. The caller sets the
// deadline.
func Connect(conn net.Conn, r io.Reader, endpointURL string, l *transport.Limits) (p transport.Parameters, err error) {
	h := Hello{
		ProtocolVersion:   protocolVersion,
		ReceiveBufferSize: uint32(l.ReceiveBufferSize),
		SendBufferSize:    uint32(l.SendBufferSize),
		MaxMessageSize:    uint32(l.MaxMessageSize),
		MaxChunkCount:     uint32(l.MaxChunkCount),
		EndpointURL:       endpointURL,
	}
	if _, err := conn.Write(h.Append(nil)); err != nil {
		return p, err
	}
	b, err := ReadMessage(r, make([]byte, maxError))
	if err != nil {
		return p, err
	}
	if kindOf(b) != typeACK {
		return p, uastatus.New(ua.StatusBadTCPMessageTypeInvalid, "connect", fmt.Errorf("message %q", b[:4]))
	}
	a, err := ParseAcknowledge(b)
	if err != nil {
		return p, err
	}
	// What the server receives is what we send; the smaller of both counts for
	// either direction, as ours does.
	size := min(int64(a.ReceiveBufferSize), int64(a.SendBufferSize), int64(l.ReceiveBufferSize), int64(l.SendBufferSize))
	if size < transport.MinBufferSize {
		return p, uastatus.New(ua.StatusBadConnectionRejected, "connect", fmt.Errorf("buffer sizes %d and %d", a.ReceiveBufferSize, a.SendBufferSize))
	}
	return transport.Parameters{
		ProtocolVersion: a.ProtocolVersion,
		BufferSize:      int(size),
		MaxMessageSize:  int(min(a.MaxMessageSize, 1<<31-1)),
		MaxChunkCount:   int(min(a.MaxChunkCount, 1<<31-1)),
	}, nil
}

// ReadMessage reads one message into b, whose length is the limit. An ERR comes
// back as the *Error that it carries.
func ReadMessage(r io.Reader, b []byte) ([]byte, error) {
	if _, err := io.ReadFull(r, b[:HeaderSize]); err != nil {
		return nil, err
	}
	size, err := frameSize(b, len(b))
	if err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(r, b[HeaderSize:size]); err != nil {
		return nil, err
	}
	if kindOf(b) == typeERR {
		e, err := ParseError(b[:size])
		if err != nil {
			return nil, err
		}
		return nil, e
	}
	return b[:size], nil
}
