package transport

import (
	"fmt"
	"time"
)

// Limits bound what one connection may cost. They are ours alone: nothing that
// a peer asks for raises them (hostile.md X17). In every field zero, or a
// negative value where it says so, means the default.
type Limits struct {
	// ReceiveBufferSize and SendBufferSize are the largest chunks in bytes
	// that are accepted and sent, 8,192 to 147,456; default 65,535. A peer gets
	// the smallest of both and of what it offers, for both directions:
	// node-opcua reads the two sizes of the Acknowledge the wrong way round.
	ReceiveBufferSize, SendBufferSize int

	// MaxMessageSize is the largest request body in bytes after assembly;
	// default 4 MiB, at least 8,192.
	MaxMessageSize int

	// MaxChunkCount is the largest number of chunks of a request; default 512.
	MaxChunkCount int

	// MaxOutstandingPerConnection is the number of requests whose handling
	// goes on beside the reading goroutine; at it the socket is not read.
	// Parked ones (Publish) do not count. Default 64.
	MaxOutstandingPerConnection int

	// WriteQueueBytes bounds the bytes that wait for a peer that does not
	// read; default 4 MiB. One message is always taken by an empty queue.
	// Over it the connection closes with SlowReader.
	WriteQueueBytes int

	// WriteTimeout is the time in which a slow peer must take each 64 KiB that
	// wait for it; default 30 s. Over it the connection closes with WriteTimeout.
	WriteTimeout time.Duration

	// HelloTimeout is the time from admission to a complete Hello; default 10 s.
	HelloTimeout time.Duration

	// HandshakeTimeout is the time from admission to the answer of the first
	// OpenSecureChannel; default and maximum 2 min.
	HandshakeTimeout time.Duration

	// AssemblyTimeout is the time from a message's first intermediate chunk to
	// its last, and from a chunk's first byte to its last; default 30 s.
	AssemblyTimeout time.Duration

	// LingerTimeout bounds a graceful close: what is queued is written, the
	// connection half-closed and the peer's end awaited this long; default 1 s.
	LingerTimeout time.Duration
}

// Bounds of the buffer sizes in bytes (OPC 10000-6 §7.1.2.3, Hello Message,
// sets the lower one).
const (
	MinBufferSize = 8192
	MaxBufferSize = 147456
)

const maxHandshakeTimeout = 2 * time.Minute

// MaxEndpointURLLength is the longest endpoint URL in bytes that a Hello may
// carry (OPC 10000-6 §7.1.2.3, Hello Message).
const MaxEndpointURLLength = 4096

// Resolved is a copy in which the defaults are filled in.
func (l Limits) Resolved() Limits {
	pos := func(v, d int) int {
		if v <= 0 {
			return d
		}
		return v
	}
	dur := func(v, d time.Duration) time.Duration {
		if v <= 0 {
			return d
		}
		return v
	}
	l.ReceiveBufferSize = pos(l.ReceiveBufferSize, 65535)
	l.SendBufferSize = pos(l.SendBufferSize, 65535)
	l.MaxMessageSize = pos(l.MaxMessageSize, 4<<20)
	l.MaxChunkCount = pos(l.MaxChunkCount, 512)
	l.MaxOutstandingPerConnection = pos(l.MaxOutstandingPerConnection, 64)
	l.WriteQueueBytes = pos(l.WriteQueueBytes, 4<<20)
	l.WriteTimeout = dur(l.WriteTimeout, 30*time.Second)
	l.HelloTimeout = dur(l.HelloTimeout, 10*time.Second)
	l.HandshakeTimeout = dur(l.HandshakeTimeout, maxHandshakeTimeout)
	l.AssemblyTimeout = dur(l.AssemblyTimeout, 30*time.Second)
	l.LingerTimeout = dur(l.LingerTimeout, time.Second)
	return l
}

// A LimitError says which of the Limits cannot work, and why.
type LimitError struct{ Field, Reason string }

// Error names the field.
func (e *LimitError) Error() string { return "transport: Limits." + e.Field + " " + e.Reason }

// Validate reports the first field that cannot work, by name.
func (l Limits) Validate() error {
	l = l.Resolved()
	bad := func(field string, v any, need string) error {
		return &LimitError{Field: field, Reason: fmt.Sprintf("is %v, need %s", v, need)}
	}
	for _, f := range []struct {
		name string
		v    int
	}{{"ReceiveBufferSize", l.ReceiveBufferSize}, {"SendBufferSize", l.SendBufferSize}} {
		if f.v < MinBufferSize || f.v > MaxBufferSize {
			return bad(f.name, f.v, fmt.Sprintf("%d to %d", MinBufferSize, MaxBufferSize))
		}
	}
	if l.MaxMessageSize < MinBufferSize || l.MaxMessageSize > 1<<30 {
		return bad("MaxMessageSize", l.MaxMessageSize, fmt.Sprintf("%d to %d", MinBufferSize, 1<<30))
	}
	if l.HandshakeTimeout > maxHandshakeTimeout {
		return bad("HandshakeTimeout", l.HandshakeTimeout, "at most "+maxHandshakeTimeout.String())
	}
	if l.HelloTimeout > l.HandshakeTimeout {
		return bad("HelloTimeout", l.HelloTimeout, "at most HandshakeTimeout, "+l.HandshakeTimeout.String())
	}
	return nil
}
