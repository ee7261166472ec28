package wss

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/breakwater-ua/breakwater/internal/buffer"
)

// recordSize is the most that one TLS record carries.
const recordSize = 16 << 10

// socket is the connection below a WebSocket. It lets several frames share a
// record and a system call, and remembers whether reading failed here or above.
type socket struct {
	net.Conn

	failed atomic.Bool // a Read has

	mu  sync.Mutex     // of writers: messages, and pongs of the reader
	out *buffer.Buffer // gathers while not nil
}

// Read reports the end of the stream as io.ErrUnexpectedEOF: a WebSocket ends with
// a close frame, and the library takes io.EOF for the end of the message that it
// reads, however much of that is missing.
func (s *socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if err != nil {
		s.failed.Store(true)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Write gathers between cork and uncork.
func (s *socket) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		return s.Conn.Write(b)
	}
	if len(s.out.B)+len(b) > recordSize {
		if err := s.flush(); err != nil {
			return 0, err
		}
		if len(b) >= recordSize {
			return s.Conn.Write(b)
		}
	}
	s.out.B = append(s.out.B, b...)
	return len(b), nil
}

func (s *socket) cork() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = buffer.Get(recordSize)
}

func (s *socket) uncork() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.flush()
	s.out.Release()
	s.out = nil
	return err
}

func (s *socket) flush() error {
	if len(s.out.B) == 0 {
		return nil
	}
	_, err := s.Conn.Write(s.out.B)
	s.out.B = s.out.B[:0]
	return err
}

// Close closes the connection without TLS's farewell, which a peer that does not
// read would hold up: the WebSocket has had its own.
func (s *socket) Close() error {
	if t, ok := s.Conn.(*tls.Conn); ok {
		return t.NetConn().Close()
	}
	return s.Conn.Close()
}

// hijacker puts a socket below the WebSocket that is made of a request.
type hijacker struct {
	http.ResponseWriter
	socket *socket
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.socket = &socket{Conn: nc}
	return h.socket, bufio.NewReadWriter(rw.Reader, bufio.NewWriter(&farewell{socket: h.socket})), nil
}
