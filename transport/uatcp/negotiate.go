package uatcp

import (
	"fmt"

	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// protocolVersion is the only one there is (OPC 10000-6 §7.1.2.3, Hello Message).
const protocolVersion = 0

// negotiate settles a connection's parameters under our own ceilings: whatever
// the peer asks for, nothing gets larger than our limits (hostile.md A13, X17).
// A peer's 0 says that it has no limit for our responses, nothing about
// requests (hostile.md A3). Both directions get the same buffer size because
// node-opcua reads the Acknowledge's two sizes the wrong way round.
func negotiate(h *Hello, l *transport.Limits) (transport.Parameters, Acknowledge, error) {
	size := min(int64(l.ReceiveBufferSize), int64(l.SendBufferSize), int64(h.ReceiveBufferSize), int64(h.SendBufferSize))
	if size < transport.MinBufferSize {
		return transport.Parameters{}, Acknowledge{}, uastatus.New(ua.StatusBadConnectionRejected, "hello",
			fmt.Errorf("buffer sizes %d and %d, need %d", h.ReceiveBufferSize, h.SendBufferSize, transport.MinBufferSize))
	}
	p := transport.Parameters{
		ProtocolVersion: h.ProtocolVersion,
		BufferSize:      int(size),
		MaxMessageSize:  int(min(h.MaxMessageSize, 1<<31-1)),
		MaxChunkCount:   int(min(h.MaxChunkCount, 1<<31-1)),
	}
	return p, Acknowledge{
		ProtocolVersion:   protocolVersion,
		ReceiveBufferSize: uint32(size),
		SendBufferSize:    uint32(size),
		MaxMessageSize:    uint32(l.MaxMessageSize),
		MaxChunkCount:     uint32(l.MaxChunkCount),
	}, nil
}
