package uatcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

// echo is a sink that sends every MSG back and opens the channel at OPN.
type echo struct {
	conn   transport.Conn
	block  atomic.Bool
	busy   atomic.Bool
	closed chan transport.CloseReason
}

func (e *echo) Ready() bool { return !e.block.Load() && !e.conn.Outbox().Congested() }
func (e *echo) Busy() bool  { return e.busy.Load() }
func (e *echo) Chunk(frame []byte, now time.Time) {
	switch string(frame[:3]) {
	case "OPN":
		e.conn.ChannelOpened()
	case "CLO":
		e.conn.Close(transport.CloseSecureChannel, ua.StatusGood, "")
		return
	}
	o := e.conn.Outbox()
	o.Lock()
	if err := o.Admit(len(frame)); err != nil {
		o.Unlock()
		if errors.Is(err, transport.ErrSlowReader) {
			e.conn.Close(transport.SlowReader, ua.StatusGood, "")
		}
		return
	}
	copy(o.Grow(len(frame)), frame)
	o.UnlockAndFlush()
}
func (e *echo) Closed(r transport.CloseReason) { e.closed <- r }

// server is a Listener of echo sinks.
type server struct {
	*Listener
	mem    *memnet.Listener
	sinks  chan *echo
	closed chan transport.CloseReason
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// start serves in memory when mem, else on a loopback socket.
func start(t testing.TB, mem bool, o Options) *server {
	t.Helper()
	s := &server{sinks: make(chan *echo, 5000), closed: make(chan transport.CloseReason, 5000)}
	before := buffer.Outstanding()
	o.NewSink = func(c transport.Conn) transport.Sink {
		e := &echo{conn: c, closed: make(chan transport.CloseReason, 2)}
		s.sinks <- e
		return e
	}
	o.Closed = func(_ netip.AddrPort, r transport.CloseReason) { s.closed <- r }
	var err error
	if mem {
		s.mem = memnet.Listen("10.0.0.1:4840")
		s.Listener, err = New(s.mem, o)
	} else {
		s.Listener, err = Listen(context.Background(), "127.0.0.1:0", o)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.done.Go(func() {
		if err := s.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		s.stop()
		if n := s.Connections(); n != 0 {
			t.Errorf("%d connections left", n)
		}
		if u := s.Listener.server.gate.Usage(); u.Connections != 0 || u.Handshakes != 0 {
			t.Errorf("gate after the end: %+v", u)
		}
		if n := s.Listener.server.deadlines.Len(); n != 0 {
			t.Errorf("%d deadlines left", n)
		}
		if n := buffer.Outstanding(); n != before {
			t.Errorf("%d buffers left:\n%s", n-before, buffer.Leaks())
		}
	})
	return s
}

func (s *server) stop() {
	s.cancel()
	s.done.Wait()
}

func (s *server) dial(t testing.TB) net.Conn {
	t.Helper()
	var c net.Conn
	var err error
	if s.mem != nil {
		c, err = s.mem.Dial(context.Background(), netip.MustParseAddrPort("10.0.0.2:999"))
	} else {
		c, err = net.Dial("tcp", s.Addr().String())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func hello() []byte {
	return (&Hello{ReceiveBufferSize: 65535, SendBufferSize: 65535, EndpointURL: "opc.tcp://x:4840"}).Append(nil)
}

func frame(kind string, size int) []byte {
	b := appendHeader(nil, kind, size)
	for len(b) < size {
		b = append(b, byte(len(b)))
	}
	return b
}

// readFrame reads one message.
func readFrame(t testing.TB, c net.Conn) []byte {
	t.Helper()
	b := make([]byte, HeaderSize)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal("header:", err)
	}
	b = append(b, make([]byte, binary.LittleEndian.Uint32(b[4:])-HeaderSize)...)
	if _, err := io.ReadFull(c, b[HeaderSize:]); err != nil {
		t.Fatal("body:", err)
	}
	return b
}

func send1(t testing.TB, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

// expectERR reads an ERR and then the end of the connection.
func expectERR(t testing.TB, c net.Conn, code ua.StatusCode) *Error {
	t.Helper()
	e, err := ParseError(readFrame(t, c))
	if err != nil || e.Code != code {
		t.Fatalf("got %v, %v, want %v", e, err, code)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("after ERR: %d bytes, %v, want EOF", n, err)
	}
	return e
}

func (s *server) expectClosed(t testing.TB, want transport.CloseReason) {
	t.Helper()
	if got := <-s.closed; got != want {
		t.Fatalf("closed with %q, want %q", got, want)
	}
}

// bothPaths runs f on the raw path over loopback and in memory.
func bothPaths(t *testing.T, o Options, f func(t *testing.T, s *server)) {
	t.Run("loopback", func(t *testing.T) { f(t, start(t, false, o)) })
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, start(t, true, o)) })
	})
}

func connect(t testing.TB, s *server) (net.Conn, *echo) {
	t.Helper()
	c := s.dial(t)
	send1(t, c, hello())
	if a, err := ParseAcknowledge(readFrame(t, c)); err != nil || a.ReceiveBufferSize != 65535 {
		t.Fatal(a, err)
	}
	send1(t, c, frame("OPNF", 100))
	if got := readFrame(t, c); len(got) != 100 {
		t.Fatal(got)
	}
	return c, <-s.sinks
}

func TestEcho(t *testing.T) {
	bothPaths(t, Options{}, func(t *testing.T, s *server) {
		c, e := connect(t, s)
		var sent []byte
		for _, n := range []int{12, 100, 8192, 65535, 13, 65535, 65535, 30} {
			sent = append(sent, frame("MSGF", n)...)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for rest := sent; len(rest) > 0; { // odd pieces
				n := min(len(rest), 7001)
				if _, err := c.Write(rest[:n]); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
		})
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
			t.Fatal("echo differs", err)
		}
		wg.Wait()
		_ = c.Close()
		s.expectClosed(t, transport.PeerClosed)
		if r := <-e.closed; r != transport.PeerClosed {
			t.Fatal(r)
		}
	})
}

func TestHalfCloseWithLastData(t *testing.T) {
	bothPaths(t, Options{}, func(t *testing.T, s *server) {
		for range 50 {
			c, _ := connect(t, s)
			send1(t, c, frame("MSGF", 100))
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
			if b, err := io.ReadAll(c); err != nil || len(b) != 100 {
				t.Fatal(len(b), err)
			}
			s.expectClosed(t, transport.PeerClosed)
		}
	})
}

func TestBatchIsOneWrite(t *testing.T) {
	s := start(t, false, Options{})
	c, e := connect(t, s)
	var batch []byte
	for range 8 {
		batch = append(batch, frame("MSGF", 64)...)
	}
	settle := func() uint64 { // the peer may read before the write is counted
		o := e.conn.Outbox()
		for o.Pending() > 0 {
			runtime.Gosched()
		}
		_, writes := o.Counts()
		return writes
	}
	before := settle()
	send1(t, c, batch)
	if _, err := io.ReadFull(c, make([]byte, len(batch))); err != nil {
		t.Fatal(err)
	}
	if after := settle(); after-before != 1 {
		t.Fatalf("%d writes for 8 answers of one read, want 1", after-before)
	}
}
