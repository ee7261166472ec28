package uatcp

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Rows of hostile.md. start's cleanup checks that nothing is left behind.

// A7, X19: sizes 0 to 7 end the connection at once, before and after Hello.
func TestHostileA7X19ZeroSize(t *testing.T) {
	bothPaths(t, Options{}, func(t *testing.T, s *server) {
		for size := range uint32(HeaderSize) {
			for _, after := range []bool{false, true} {
				var c net.Conn
				kind := "HELF"
				if after {
					c, _ = connect(t, s)
					kind = "MSGF"
				} else {
					c = s.dial(t)
				}
				b := binary.LittleEndian.AppendUint32([]byte(kind), size)
				send1(t, c, append(b, make([]byte, 100)...))
				expectERR(t, c, ua.StatusBadTCPMessageTypeInvalid)
				_ = c.Close()
				s.expectClosed(t, transport.ProtocolError)
			}
		}
	})
}

// X38, I9: ReverseHello; and everything else that does not belong where it comes.
func TestHostileX38I9WrongMessages(t *testing.T) {
	rhe := func() []byte {
		b := appendHeader(nil, "RHEF", 8+4+12+4+12)
		for range 2 {
			b = binary.LittleEndian.AppendUint32(b, 12)
			b = append(b, "opc.tcp://xx"...)
		}
		return b
	}
	bothPaths(t, Options{}, func(t *testing.T, s *server) {
		for _, tc := range []struct {
			name  string
			after bool // Hello and OPN
			b     []byte
			code  ua.StatusCode
		}{
			{"ReverseHello first", false, rhe(), ua.StatusBadTCPMessageTypeInvalid},
			{"ReverseHello later", true, rhe(), ua.StatusBadTCPMessageTypeInvalid},
			{"Acknowledge", false, frame("ACKF", 28), ua.StatusBadTCPMessageTypeInvalid},
			{"OPN before Hello", false, frame("OPNF", 100), ua.StatusBadTCPMessageTypeInvalid},
			{"second Hello", true, hello(), ua.StatusBadTCPMessageTypeInvalid},
			{"HTTP", false, []byte("GET / HTTP/1.1\r\n\r\n"), ua.StatusBadTCPMessageTypeInvalid},
			{"TLS", false, []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3}, ua.StatusBadTCPMessageTypeInvalid},
			{"intermediate Hello", false, frame("HELC", 40), ua.StatusBadTCPMessageTypeInvalid},
			{"intermediate OPN", true, frame("OPNC", 40), ua.StatusBadTCPMessageTypeInvalid},
			{"unknown chunk type", true, frame("MSGX", 40), ua.StatusBadTCPMessageTypeInvalid},
			{"Hello of 64 KiB", false, appendHeader(nil, "HELF", 65536), ua.StatusBadTCPMessageTooLarge},
			{"chunk over the buffer", true, appendHeader(nil, "MSGF", 65536), ua.StatusBadTCPMessageTooLarge},
			{"chunk of 4 GiB", true, binary.LittleEndian.AppendUint32([]byte("MSGF"), 0xFFFFFFFF), ua.StatusBadTCPMessageTooLarge},
			{"Hello too short", false, frame("HELF", 20), ua.StatusBadDecodingError},
			{"URL longer than the message", false, frame("HELF", 40), ua.StatusBadDecodingError},
			{"URL over 4,096", false, (&Hello{ReceiveBufferSize: 65535, SendBufferSize: 65535, EndpointURL: strings.Repeat("x", 4097)}).Append(nil), ua.StatusBadTCPMessageTooLarge},
			{"small buffers", false, (&Hello{ReceiveBufferSize: 8191, SendBufferSize: 65535}).Append(nil), ua.StatusBadConnectionRejected},
		} {
			var c net.Conn
			if tc.after {
				c, _ = connect(t, s)
			} else {
				c = s.dial(t)
			}
			send1(t, c, tc.b)
			e, err := ParseError(readFrame(t, c))
			if err != nil || (e.Code != tc.code && !(tc.name == "URL longer than the message" && e.Code == ua.StatusBadTCPEndpointURLInvalid)) {
				t.Fatalf("%s: %v, %v", tc.name, e, err)
			}
			_ = c.Close()
			s.expectClosed(t, transport.ProtocolError)
		}
		// A peer that says why it goes is gone; nobody answers.
		c, _ := connect(t, s)
		send1(t, c, (&Error{Code: ua.StatusBadInternalError, Reason: "bye"}).Append(nil))
		if b, err := io.ReadAll(c); err != nil || len(b) != 0 {
			t.Fatal(b, err)
		}
		s.expectClosed(t, transport.PeerClosed)
	})
}

// A11, A13: buffer sizes are the smallest of all four, never below 8,192.
func TestHostileA11A13Negotiation(t *testing.T) {
	for _, tc := range []struct{ recv, send, ownRecv, ownSend, want uint32 }{
		{8192, 8192, 0, 0, 8192},
		{65535, 65535, 0, 0, 65535},
		{8192, 65535, 0, 0, 8192},
		{65535, 8192, 0, 0, 8192},
		{0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 65535},
		{0xFFFFFFFF, 0xFFFFFFFF, 100_000, 147_456, 100_000},
		{10_000, 20_000, 9_000, 65535, 9_000},
	} {
		l := transport.Limits{ReceiveBufferSize: int(tc.ownRecv), SendBufferSize: int(tc.ownSend)}.Resolved()
		p, a, err := negotiate(&Hello{ReceiveBufferSize: tc.recv, SendBufferSize: tc.send}, &l)
		if err != nil || a.ReceiveBufferSize != tc.want || a.SendBufferSize != tc.want || p.BufferSize != int(tc.want) {
			t.Errorf("%+v: %+v, %v", tc, a, err)
		}
		if a.ReceiveBufferSize > tc.send || a.SendBufferSize > tc.recv {
			t.Errorf("%+v: acknowledged more than was asked", tc)
		}
		if a.MaxChunkCount != 512 || a.MaxMessageSize != 4<<20 || p.MaxChunkCount != 0 || p.MaxMessageSize != 0 {
			t.Errorf("%+v: %+v %+v", tc, a, p)
		}
	}
	for _, size := range []uint32{0, 1, 8191} {
		l := transport.Limits{}.Resolved()
		if _, _, err := negotiate(&Hello{ReceiveBufferSize: size, SendBufferSize: 65535}, &l); uastatus.Code(err) != ua.StatusBadConnectionRejected {
			t.Errorf("%d: %v", size, err)
		}
	}
}

// A13: large buffers, for transports whose frames are larger than one pooled
// read buffer.
func TestLargeBuffers(t *testing.T) {
	bothPaths(t, Options{Limits: transport.Limits{ReceiveBufferSize: 147_456, SendBufferSize: 147_456}}, func(t *testing.T, s *server) {
		c := s.dial(t)
		send1(t, c, (&Hello{ReceiveBufferSize: 0xFFFFFFFF, SendBufferSize: 0xFFFFFFFF}).Append(nil))
		if a, _ := ParseAcknowledge(readFrame(t, c)); a.SendBufferSize != 147_456 {
			t.Fatal(a)
		}
		var wg sync.WaitGroup
		b := frame("MSGF", 147_456)
		wg.Go(func() { send1(t, c, append(frame("OPNF", 30), b...)) })
		if got := readFrame(t, c); len(got) != 30 {
			t.Fatal(len(got))
		}
		if got := readFrame(t, c); string(got) != string(b) {
			t.Fatal(len(got))
		}
		wg.Wait()
		_ = c.Close()
	})
}

// A peer that stops in the middle of a chunk holds what it has sent, not a read
// buffer, and not for long.
func TestHostilePartialChunk(t *testing.T) {
	if !buffer.Debug {
		t.Log("sizes of outstanding buffers need -tags bufdebug")
	}
	s := start(t, false, Options{Limits: transport.Limits{AssemblyTimeout: 300 * time.Millisecond}})
	before := buffer.Outstanding()
	c, _ := connect(t, s)
	send1(t, c, append(appendHeader(nil, "MSGF", 65535), make([]byte, 700)...))
	began := time.Now()
	expectERR(t, c, ua.StatusBadTimeout)
	if d := time.Since(began); d < 250*time.Millisecond {
		t.Fatal("closed after", d)
	}
	_ = c.Close()
	s.expectClosed(t, transport.AssemblyTimeout)
	if n := buffer.Outstanding(); n != before {
		t.Fatal("buffers", n-before)
	}
	// One that goes on in time is served, again and again.
	c, _ = connect(t, s)
	for range 4 {
		b := frame("MSGF", 3000)
		send1(t, c, b[:1500])
		select {
		case r := <-s.closed:
			t.Fatal(r)
		case <-time.After(150 * time.Millisecond):
		}
		send1(t, c, b[1500:])
		if got := readFrame(t, c); len(got) != 3000 {
			t.Fatal(len(got))
		}
	}
	_ = c.Close()
}

func TestShrink(t *testing.T) {
	for _, tc := range []struct{ unread, want int }{{0, 0}, {1, 1024}, {1024, 1024}, {5000, 8192}, {9000, 65536}} {
		c := &conn{limit: 65535}
		c.widen()
		c.start, c.end = 100, 100+tc.unread
		for i := range tc.unread {
			c.in.Whole()[100+i] = byte(i)
		}
		c.shrink()
		held := 0
		if c.in != nil {
			held = c.in.Cap()
		}
		if held != tc.want || c.start != 0 || c.end != tc.unread {
			t.Errorf("%d unread bytes are held in %d, want %d", tc.unread, held, tc.want)
		}
		c.widen()
		for i := range tc.unread {
			if c.in.Whole()[i] != byte(i) {
				t.Fatal("bytes lost")
			}
		}
		c.in.Release()
	}
}

// I7, X37, X27: silent sockets keep nobody out.
func TestHostileI7X37X27SilentSockets(t *testing.T) {
	bothPaths(t, Options{}, func(t *testing.T, s *server) {
		for range 200 {
			s.dial(t)
		}
		c, _ := connect(t, s)
		send1(t, c, frame("MSGF", 50))
		readFrame(t, c)
	})
}

// I8, X37: a reset before Hello ends that connection only.
func TestHostileI8X37ResetBeforeHello(t *testing.T) {
	bothPaths(t, Options{}, func(t *testing.T, s *server) {
		for range 20 {
			switch c := s.dial(t).(type) {
			case *net.TCPConn:
				_ = c.SetLinger(0)
				_ = c.Close()
			case *memnet.Conn:
				c.Reset()
			}
		}
		c, _ := connect(t, s)
		send1(t, c, frame("MSGF", 50))
		readFrame(t, c)
	})
}

// flaky fails every other Accept.
type flaky struct {
	net.Listener
	err error
	n   int
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.n++; f.n%2 == 1 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", f.err)}
	}
	return f.Listener.Accept()
}

// The accept loop survives every error of accept, descriptors exhausted
// included, and backs off meanwhile.
func TestAcceptSurvivesErrors(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ENOMEM} {
		synctest.Test(t, func(t *testing.T) {
			mem := memnet.Listen("")
			s := &server{mem: mem, sinks: make(chan *echo, 10), closed: make(chan transport.CloseReason, 10)}
			var err error
			s.Listener, err = New(&flaky{Listener: mem, err: errno}, Options{Logger: slog.New(slog.DiscardHandler), NewSink: func(c transport.Conn) transport.Sink {
				e := &echo{conn: c, closed: make(chan transport.CloseReason, 2)}
				s.sinks <- e
				return e
			}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			s.cancel = cancel
			s.done.Go(func() { _ = s.Serve(ctx) })
			for range 5 {
				c, _ := connect(t, s)
				_ = c.Close()
			}
			if n := s.AcceptErrors(); n < 5 {
				t.Fatal("errors", n)
			}
			s.stop()
		})
	}
	// A listener that is closed from outside ends Serve, with an error.
	mem := memnet.Listen("")
	l, _ := New(mem, Options{NewSink: func(c transport.Conn) transport.Sink { return nil }})
	_ = mem.Close()
	if err := l.Serve(context.Background()); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

func openDescriptors(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(d)
}

// B21, B23, A24, A25: connecting and closing leaves nothing, however it ends.
func TestHostileB21B23A24A25ConnectClose(t *testing.T) {
	s := start(t, false, Options{Gate: unlimited(t)})
	cycle := func(i int) {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		switch i % 4 {
		case 0: // at once
		case 1:
			send1(t, c, hello())
		case 2:
			send1(t, c, append(hello(), frame("OPNF", 40)...))
			readFrame(t, c)
			readFrame(t, c)
			send1(t, c, frame("CLOF", 40))
			_, _ = io.ReadAll(c)
		case 3:
			_ = c.(*net.TCPConn).SetLinger(0)
			send1(t, c, append(hello(), frame("OPNF", 40)...))
		}
		_ = c.Close()
		<-s.closed
	}
	for i := range 100 {
		cycle(i)
	}
	drainSinks(s)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fds, goroutines := openDescriptors(t), runtime.NumGoroutine()
	const n = 2000
	for i := range n {
		cycle(i)
		drainSinks(s)
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if d := openDescriptors(t) - fds; d > 3 {
		t.Error("descriptors", d)
	}
	if d := runtime.NumGoroutine() - goroutines; d > 3 {
		t.Error("goroutines", d)
	}
	if d := int64(after.HeapAlloc) - int64(before.HeapAlloc); d > 200*n {
		t.Errorf("heap grew by %d bytes in %d cycles", d, n)
	}
}

func drainSinks(s *server) {
	for {
		select {
		case <-s.sinks:
		default:
			return
		}
	}
}

func unlimited(t testing.TB) *transport.Gate {
	t.Helper()
	g, err := transport.NewGate(transport.GateOptions{ConnectionsUnlimited: true, MaxConnections: -1})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// B2: more sockets than places, silent ones at that; a real client is served
// once they have been silent for a second.
func TestHostileB2MoreSocketsThanPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := transport.NewGate(transport.GateOptions{MaxConnections: 100, ConnectionsUnlimited: true})
		s := start(t, true, Options{Gate: g})
		refused := 0
		for i := range 110 {
			c := s.dial(t)
			if i < 100 {
				continue
			}
			e := expectERR(t, c, ua.StatusBadTCPServerTooBusy)
			if e.Reason != "RetryAfterMs=1000" {
				t.Fatal(e.Reason)
			}
			refused++
			_ = c.Close()
		}
		time.Sleep(time.Second)
		c, _ := connect(t, s)
		send1(t, c, frame("MSGF", 50))
		readFrame(t, c)
		s.expectClosed(t, transport.Reclaimed)
		if u := g.Usage(); u.Reclaimed != 1 || u.Connections != 100 {
			t.Fatalf("%+v", u)
		}
	})
}

// B22: five hundred connections that nobody accepts yet wait in the backlog.
func TestHostileB22Backlog(t *testing.T) {
	ctx := context.Background()
	l, err := Listen(ctx, "127.0.0.1:0", Options{NewSink: func(transport.Conn) transport.Sink { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.acceptor.Listener.Close()
	d := net.Dialer{Timeout: 2 * time.Second}
	for i := range 500 {
		c, err := d.DialContext(ctx, "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(i, err)
		}
		defer c.Close()
	}
}

// A polite refusal reaches a peer that has already sent something, and lingers
// for a bounded time and number.
func TestPoliteRefusals(t *testing.T) {
	bothPaths(t, Options{Gate: full(t)}, func(t *testing.T, s *server) {
		for range 20 {
			c := s.dial(t)
			_, _ = c.Write(hello())
			e := expectERR(t, c, ua.StatusBadTCPServerTooBusy)
			if !strings.HasPrefix(e.Reason, "RetryAfterMs=") {
				t.Fatal(e.Reason)
			}
			_ = c.Close()
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := start(t, true, Options{Gate: full(t)})
		begun := time.Now()
		var conns []net.Conn
		for range 300 { // they do not close
			conns = append(conns, s.dial(t))
		}
		synctest.Wait()
		s.refusals.mu.Lock()
		n := s.refusals.count
		s.refusals.mu.Unlock()
		if n != maxRefusals {
			t.Fatal("lingering", n)
		}
		for s := range conns {
			_, _ = io.ReadAll(conns[s])
		}
		time.Sleep(time.Second)
		synctest.Wait()
		s.refusals.mu.Lock()
		n = s.refusals.count
		s.refusals.mu.Unlock()
		if n != 0 {
			t.Fatal("still lingering", n, "after", time.Since(begun))
		}
	})
}

func full(t testing.TB) *transport.Gate {
	t.Helper()
	g, err := transport.NewGate(transport.GateOptions{ConnectionsUnlimited: true})
	if err != nil {
		t.Fatal(err)
	}
	g.Stop(time.Second)
	return g
}

// The end of Serve: everybody is told, nobody is waited for longer than the
// linger.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, true, Options{})
		a, _ := connect(t, s)
		b, _ := connect(t, s)
		silent := s.dial(t)
		synctest.Wait()
		begun := time.Now()
		s.stop()
		if d := time.Since(begun); d > time.Second {
			t.Fatal("took", d)
		}
		for _, c := range []net.Conn{a, b, silent} {
			if e, err := ParseError(readFrame(t, c)); err != nil || e.Code != ua.StatusBadServerHalted {
				t.Fatal(e, err)
			}
		}
	})
}

// The hello's parts may come byte by byte; its deadline is not renewed by them.
func TestHelloByteByByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, true, Options{})
		c := s.dial(t)
		for _, x := range hello() {
			send1(t, c, []byte{x})
			time.Sleep(time.Millisecond)
		}
		readFrame(t, c)
		slow := s.dial(t)
		begun := time.Now()
		for _, x := range hello()[:30] {
			send1(t, slow, []byte{x})
			time.Sleep(300 * time.Millisecond)
		}
		expectERR(t, slow, ua.StatusBadTimeout)
		if d := time.Since(begun); d != 10*time.Second {
			t.Fatal("after", d)
		}
		_ = c.Close()
		_ = slow.Close()
	})
}

// A sink that is not ready is not given more; the answers so far go out.
func TestStalledSink(t *testing.T) {
	bothPaths(t, Options{}, func(t *testing.T, s *server) {
		c, e := connect(t, s)
		send1(t, c, frame("MSGF", 50))
		readFrame(t, c)
		e.block.Store(true)
		var b []byte
		for range 3 {
			b = append(b, frame("MSGF", 60)...)
		}
		send1(t, c, b)
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("answered by a sink that is not ready", n, err)
		}
		_ = c.SetReadDeadline(time.Time{})
		e.block.Store(false)
		e.conn.Resume()
		for range 3 {
			readFrame(t, c)
		}
		e.block.Store(true) // closing ends the wait
		send1(t, c, frame("MSGF", 60))
		e.conn.Close(transport.Administrative, ua.StatusBadSecureChannelClosed, "x")
		expectERR(t, c, ua.StatusBadSecureChannelClosed)
		s.expectClosed(t, transport.Administrative)
	})
}

// A peer that was slow once, and caught up in time, is not punished later.
func TestSlowReaderCatchesUp(t *testing.T) {
	s := start(t, false, Options{Limits: transport.Limits{WriteTimeout: 2 * time.Second}})
	c, e := connect(t, s)
	const n = 200
	var wg sync.WaitGroup
	wg.Go(func() {
		for range n {
			if _, err := c.Write(frame("MSGF", 65535)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for !e.conn.Outbox().Congested() {
		time.Sleep(time.Millisecond) // the kernel's buffers fill
	}
	for range n {
		readFrame(t, c)
	}
	wg.Wait()
	time.Sleep(2100 * time.Millisecond) // past the deadline of that write
	send1(t, c, frame("MSGF", 100))
	readFrame(t, c)
	_ = c.Close()
	s.expectClosed(t, transport.PeerClosed)
}
