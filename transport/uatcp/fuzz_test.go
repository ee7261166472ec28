package uatcp

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/transport"
)

// FuzzFrame sends any bytes as a connection's first and wants it to end with
// everything given back. Whatever parses as Hello, Acknowledge or Error encodes
// to the same bytes again.
func FuzzFrame(f *testing.F) {
	f.Add(hello())
	f.Add(append(hello(), frame("OPNF", 60)...))
	f.Add(append(append(hello(), frame("OPNF", 60)...), frame("MSGC", 30)...))
	f.Add((&Error{Code: 0x80010000, Reason: "why"}).Append(nil))
	f.Add((&Acknowledge{ReceiveBufferSize: 8192, SendBufferSize: 8192}).Append(nil))
	f.Add([]byte("RHEF\x30\x00\x00\x00"))
	f.Add([]byte("MSGF\x00\x00\x00\x00"))
	f.Add([]byte("HELF\x07\x00\x00\x00"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))

	mem := memnet.Listen("")
	ended := make(chan transport.CloseReason, 1)
	l, err := New(mem, Options{
		NewSink: func(c transport.Conn) transport.Sink {
			return &echo{conn: c, closed: make(chan transport.CloseReason, 1)}
		},
		Closed: func(_ netip.AddrPort, r transport.CloseReason) { ended <- r },
		Limits: transport.Limits{},
		Gate:   unlimited(f), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = l.Serve(ctx); close(done) }()
	f.Cleanup(func() { cancel(); <-done })

	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= HeaderSize {
			if size, err := frameSize(b, len(b)); err == nil {
				checkMessage(t, b[:size])
			}
		}
		before := buffer.Outstanding()
		c, err := mem.Dial(context.Background(), netip.AddrPort{})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = c.Write(b)
			_ = c.(*memnet.Conn).CloseWrite()
		}()
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
		<-ended
		if n := buffer.Outstanding(); n != before {
			t.Fatalf("%d buffers left\n%s", n-before, buffer.Leaks())
		}
	})
}

func checkMessage(t *testing.T, b []byte) {
	switch kindOf(b) {
	case typeHEL:
		if h, err := ParseHello(b); err == nil && b[len(b)-1] != 0xFF && !bytes.Equal(h.Append(nil), b) && len(h.EndpointURL) > 0 {
			t.Fatalf("%x encodes as %x", b, h.Append(nil))
		}
	case typeACK:
		if a, err := ParseAcknowledge(b); err == nil && !bytes.Equal(a.Append(nil), b) {
			t.Fatalf("%x encodes as %x", b, a.Append(nil))
		}
	case typeERR:
		if e, err := ParseError(b); err == nil && len(e.Reason) > maxReason {
			t.Fatal("long reason", len(e.Reason))
		}
	}
}
