package uatcp

import (
	"net"
	"time"

	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

// Framed is a net.Conn on which each chunk travels in a frame of its own, as on
// a WebSocket (OPC 10000-6 §7.5, WebSockets). Read gives the chunks as a stream;
// a *uastatus.Error of it is answered with an ERR. Write takes whole chunks.
type Framed interface {
	net.Conn
	// Limit bounds the frames that are read from now on, in bytes.
	Limit(n int)
	// Finish tells the peer, behind all that was written, that and why the
	// connection ends, and awaits its end for at most linger. Close follows.
	Finish(reason transport.CloseReason, code ua.StatusCode, linger time.Duration)
}
