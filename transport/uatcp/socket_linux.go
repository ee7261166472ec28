package uatcp

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/gopcua/opcua/ua"
)

// gatherRounds is the number of reads in a row, each with data, after which a
// connection lets others run: it never blocks, so nothing else would make it.
const gatherRounds = 16

// rawWrite is the state of a TryWrite, for a closure that is made once.
type rawWrite struct {
	f   func(fd uintptr) bool
	b   []byte
	n   int
	err error
}

// read serves the connection. On a TCP socket its whole life lies inside one
// RawConn.Read whose function makes raw, non-blocking system calls: entering
// the scheduler for each call would wake sysmon and double the cost of a small
// request (performance.md §a). Probing goes on until EAGAIN, because a
// half-close that comes with the last data makes no further edge.
func (c *conn) read() {
	if c.raw == nil {
		c.readConn()
		return
	}
	if err := c.raw.Read(c.readRaw); err != nil {
		c.Close(readReason(err), ua.StatusGood, "")
	}
}

// readRaw returns false to wait for the socket, true at the end.
func (c *conn) readRaw(fd uintptr) bool {
	for round := 1; !c.closing.Load(); round++ {
		c.widen()
		n, errno := recv(fd, c.in.Whole()[c.end:])
		switch {
		case errno == syscall.EAGAIN:
			c.shrink()
			c.pause()
			return false
		case errno == syscall.EINTR:
			continue
		case errno != 0:
			c.Close(readReason(errno), ua.StatusGood, "")
			return true
		case n == 0:
			c.Close(readReason(io.EOF), ua.StatusGood, "")
			return true
		}
		c.end += n
		c.work()
		if round%gatherRounds == 0 {
			runtime.Gosched()
		}
	}
	return true
}

// TryWrite implements transport.Socket. RawConn.Write keeps the descriptor from
// being closed, and reused, under the call.
func (c *conn) TryWrite(b []byte) (int, error) {
	if c.raw == nil {
		return 0, nil // the goroutine for slow peers writes
	}
	w := &c.write
	w.b, w.n, w.err = b, 0, nil
	if err := c.raw.Write(w.f); err != nil {
		return w.n, err
	}
	w.b = nil
	return w.n, w.err
}

func (w *rawWrite) write(fd uintptr) bool {
	for w.n < len(w.b) {
		n, errno := send(fd, w.b[w.n:])
		switch errno {
		case 0:
			w.n += n
		case syscall.EINTR:
		case syscall.EAGAIN:
			return true
		default:
			w.err = errno
			return true
		}
	}
	return true
}

func recv(fd uintptr, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd,
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), syscall.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

func send(fd uintptr, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, fd,
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

// initSocket prepares the raw path if nc is a TCP socket.
func (c *conn) initSocket() {
	if c.server.portable {
		return
	}
	if c.raw = rawConn(c.nc); c.raw != nil {
		c.write.f = c.write.write
	}
}

// rawConn is nil for what is not a socket.
func rawConn(nc net.Conn) syscall.RawConn {
	if sc, ok := nc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// writeOnce writes what the socket takes at once.
func writeOnce(raw syscall.RawConn, b []byte) (n int, err error) {
	e := raw.Write(func(fd uintptr) bool {
		var errno syscall.Errno
		if n, errno = send(fd, b); errno != 0 {
			n, err = 0, errno
		}
		return true
	})
	if e != nil {
		err = e
	}
	return n, err
}

// readOnce reads what has arrived. n is 0 or less when nothing has; again is
// false when nothing more will.
func readOnce(raw syscall.RawConn, b []byte) (n int, again bool) {
	err := raw.Read(func(fd uintptr) bool {
		var errno syscall.Errno
		if n, errno = recv(fd, b); errno != 0 {
			n = 0
			again = errno == syscall.EAGAIN || errno == syscall.EINTR
		}
		return true
	})
	return n, err == nil && (n > 0 || again)
}
