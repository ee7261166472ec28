package wss

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/coder/websocket"
	"github.com/gopcua/opcua/ua"
)

var (
	errText     = errors.New("text frame, want binary")
	errTrailing = errors.New("more than one chunk in a frame")
	errShort    = errors.New("less than a chunk in a frame")
)

// chunks is a WebSocket of the sub-protocol opcua+uacp as the stream of bytes
// that package uatcp reads and writes: a uatcp.Framed.
type chunks struct {
	*socket // addresses and deadlines
	ws      *websocket.Conn

	// Of the reading goroutine.
	text bool      // a text frame has come
	r    io.Reader // the frame being read; nil between frames
	got  int       // bytes of it
	head [uatcp.HeaderSize]byte
}

// Limit implements uatcp.Framed.
func (c *chunks) Limit(n int) { c.ws.SetReadLimit(int64(n)) }

// Read gives what is there of a chunk. It never reads past the end of one, so
// that a caller may be quick to answer it.
func (c *chunks) Read(p []byte) (int, error) {
	for {
		if c.r == nil {
			kind, r, err := c.ws.Reader(context.Background())
			if err != nil {
				return 0, c.because(err)
			}
			if kind != websocket.MessageBinary {
				c.text = true
				return 0, uastatus.New(ua.StatusBadTCPMessageTypeInvalid, "websocket", errText)
			}
			c.r, c.got = r, 0
		}
		want := c.want()
		if want == 0 { // the end, which a later, empty frame may bring
			var more [1]byte
			n, err := c.r.Read(more[:])
			switch {
			case n > 0:
				return 0, uastatus.New(ua.StatusBadTCPMessageTypeInvalid, "websocket", errTrailing)
			case errors.Is(err, io.EOF):
				c.r = nil
			case err != nil:
				return 0, c.because(err)
			}
			continue
		}
		n, err := c.r.Read(p[:min(len(p), want)])
		if c.got < len(c.head) {
			copy(c.head[c.got:], p[:n])
		}
		c.got += n
		switch {
		case n > 0 && (err == nil || errors.Is(err, io.EOF)):
			return n, nil
		case errors.Is(err, io.EOF):
			return 0, uastatus.New(ua.StatusBadDecodingError, "websocket", errShort)
		case err != nil:
			return n, c.because(err)
		}
	}
}

// want is what is missing of the chunk. While its header is not complete, no
// more than that is read; a size that no chunk has is left to those above.
func (c *chunks) want() int {
	if c.got < len(c.head) {
		return len(c.head) - c.got
	}
	return max(0, int(binary.LittleEndian.Uint32(c.head[4:]))-c.got)
}

// because says what an error of the WebSocket means to those above.
func (c *chunks) because(err error) error {
	switch {
	case websocket.CloseStatus(err) != -1: // the peer has said goodbye
		return errors.Join(io.EOF, err)
	case errors.Is(err, websocket.ErrMessageTooBig):
		return uastatus.New(ua.StatusBadTCPMessageTooLarge, "websocket", err)
	case c.failed.Load() && c.r == nil && errors.Is(err, io.ErrUnexpectedEOF): // between two frames
		return io.EOF
	case c.failed.Load(), errors.Is(err, net.ErrClosed):
		return err
	}
	return uastatus.New(ua.StatusBadTCPMessageTypeInvalid, "websocket", err)
}

// Write writes whole chunks.
func (c *chunks) Write(b []byte) (int, error) {
	c.cork()
	n, err := c.write(b)
	if e := c.uncork(); err == nil && e != nil {
		return 0, e
	}
	return n, err
}

func (c *chunks) write(b []byte) (n int, err error) {
	for n < len(b) {
		chunk := b[n:]
		if len(chunk) >= uatcp.HeaderSize {
			if size := int(binary.LittleEndian.Uint32(chunk[4:])); size >= uatcp.HeaderSize && size < len(chunk) {
				chunk = chunk[:size]
			}
		}
		if err := c.ws.Write(context.Background(), websocket.MessageBinary, chunk); err != nil {
			return n, err
		}
		n += len(chunk)
	}
	return n, nil
}

// Finish implements uatcp.Framed.
func (c *chunks) Finish(reason transport.CloseReason, code ua.StatusCode, linger time.Duration) {
	status := websocket.StatusProtocolError
	switch {
	case c.text:
		status = websocket.StatusUnsupportedData
	case code == ua.StatusBadTCPMessageTooLarge:
		status = websocket.StatusMessageTooBig
	case reason != transport.ProtocolError:
		status = closeStatus(reason)
	}
	if reason.Abrupt() {
		return
	}
	until := time.Now().Add(linger)
	_ = c.SetDeadline(until)
	if reason == transport.ProtocolError && c.r != nil && status != websocket.StatusMessageTooBig {
		// If the rest of a frame that is no chunk is too large as well, that is
		// what the peer is told; the library does. When it does not come, there
		// must be time for the close frame yet.
		_ = c.SetReadDeadline(until.Add(-linger / 2))
		_, _ = io.Copy(io.Discard, c.r)
		_ = c.SetReadDeadline(until)
	}
	_ = c.ws.Close(status, reason.String())
}

// closeStatus is the code of the close frame (RFC 6455 §7.4.1, Defined Status Codes).
func closeStatus(reason transport.CloseReason) websocket.StatusCode {
	switch reason {
	case transport.PeerClosed, transport.CloseSecureChannel:
		return websocket.StatusNormalClosure
	case transport.Shutdown:
		return websocket.StatusGoingAway
	case transport.ProtocolError:
		return websocket.StatusProtocolError
	case transport.ResourceLimit, transport.TooBusy, transport.Reclaimed:
		return websocket.StatusTryAgainLater
	case transport.InternalError, transport.IOError:
		return websocket.StatusInternalError
	}
	return websocket.StatusPolicyViolation
}

// Close implements net.Conn.
func (c *chunks) Close() error { return c.ws.CloseNow() }
