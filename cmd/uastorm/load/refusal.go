package load

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/coder/websocket"
	"github.com/gopcua/opcua/ua"
)

// classify says in which way a server refused, or what ended a connection.
func classify(err error) (how measure.Refusal, code ua.StatusCode, hint time.Duration) {
	var (
		word   *uatcp.Error
		fault  *reconnect.Error
		closed websocket.CloseError
		status httpStatus
		dialed *net.OpError
	)
	code, hint = reconnect.Signal(err)
	switch {
	case errors.As(err, &word), errors.As(err, &fault) && fault.Err != nil: // an HTTP status, or the close of a WebSocket
		return measure.ByError, code, hint
	case errors.As(err, &closed):
		if code == ua.StatusOK {
			code = ua.StatusBadConnectionClosed
		}
		return measure.ByError, code, hint
	case errors.As(err, &status):
		return measure.ByError, ua.StatusBadCommunicationError, 0
	case errors.As(err, &fault):
		return measure.ByFault, code, hint
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return measure.BySystem, ua.StatusBadConnectionRejected, 0
	case timedOut(err):
		return measure.ByTimeout, ua.StatusBadTimeout, 0
	case silent(err), code == ua.StatusBadConnectionClosed: // HTTP/2's ways to say it
		return measure.BySilence, ua.StatusBadConnectionClosed, 0
	case errors.As(err, &dialed) && dialed.Op == "dial":
		return measure.BySystem, ua.StatusBadConnectionRejected, 0
	case code != ua.StatusOK:
		return measure.ByFault, code, hint // a response with a bad result, or one that proves nothing
	}
	return measure.ByFault, ua.StatusBadCommunicationError, 0
}

// silent says that the peer has closed or reset the connection without a word.
func silent(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func timedOut(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout() || errors.Is(err, errTimeout) || errors.Is(err, os.ErrDeadlineExceeded)
}

// ours says that this machine, and not the server, is at its end.
func ours(err error) bool {
	for _, n := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.EADDRINUSE} {
		if errors.Is(err, n) {
			return true
		}
	}
	return false
}
