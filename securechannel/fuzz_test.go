package securechannel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/internal/memnet"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/gopcua/opcua/ua"
)

// FuzzChunk opens any bytes as a chunk, under every kind of protection: once as
// they are, once with a right signature, so that what comes after it is reached.
func FuzzChunk(f *testing.F) {
	client, server := &token{id: 1}, &token{id: 1}
	a, b := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	client.clientKeys(security.Basic256Sha256, a, b)
	server.serverKeys(security.Basic256Sha256, a, b)
	layouts := []layout{
		newLayout(8192, security.None, ua.MessageSecurityModeNone),
		newLayout(8192, security.Basic256Sha256, ua.MessageSecurityModeSign),
		newLayout(8192, security.Basic256Sha256, ua.MessageSecurityModeSignAndEncrypt),
	}
	for _, l := range layouts {
		c := make([]byte, l.chunk(50))
		l.seal(c, kindMSG, chunkFinal, 7, client, 1, 2, body(50))
		f.Add(c)
	}
	f.Add([]byte("OPNF\x30\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add(bytes.Repeat([]byte{0xFF}, 80))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, l := range layouts {
			b := bytes.Clone(in)
			if _, _, body, err := l.open(b, server); err == nil && len(body) > len(b)-bodyOffset {
				t.Fatal("body larger than the chunk")
			}
			if l.sig == 0 || len(in) < bodyOffset+l.sig {
				continue
			}
			b = bytes.Clone(in)
			if l.encrypt {
				b = b[:symmetricHeader+(len(b)-symmetricHeader)/16*16]
				if len(b) < bodyOffset+l.sig {
					continue
				}
			}
			end := len(b) - l.sig
			client.out.Sign(b[:end], b[:end])
			padding := int(b[end-1])
			if l.encrypt {
				client.out.Encrypt(b[symmetricHeader:])
			}
			_, _, body, err := l.open(b, server)
			if l.encrypt && end-padding-1 < bodyOffset {
				if err == nil {
					t.Fatal("padding over the body accepted")
				}
			} else if !l.encrypt && (err != nil || len(body) != end-bodyOffset) {
				t.Fatal(err)
			}
		}
		if h, err := parseAsymmetric(in); err == nil && h.end > len(in) {
			t.Fatal("header larger than the message")
		}
		_, _ = decodeOpen(in)
		_ = leaf(in)
		id := identity{policy: security.None}
		if h, err := parseAsymmetric(in); err == nil {
			_, _, _, _ = id.open(context.Background(), 0, in, h.end)
		}
	})
}

// FuzzMessage plays a script of chunks on an open channel and compares what the
// handler gets with a simple model: two bytes per chunk, what it is and how long.
func FuzzMessage(f *testing.F) {
	f.Add([]byte{0, 10})
	f.Add([]byte{1, 10, 1, 20, 0, 30})
	f.Add([]byte{1, 10, 2, 0, 0, 30})
	f.Add([]byte{1, 10, 5, 10, 4, 1, 0, 30})
	f.Add([]byte{1, 255, 1, 255, 1, 255, 1, 255, 1, 255, 0, 0})
	f.Add([]byte{1, 0, 1, 0, 1, 0, 0, 0, 3, 9})

	h := newHandler()
	mem := memnet.Listen("")
	ended := make(chan transport.CloseReason, 1)
	limits := transport.Limits{MaxChunkCount: 6, MaxMessageSize: 9000}
	s, err := NewServer(ServerConfig{Handler: h, Limits: limits, Logger: slog.New(slog.DiscardHandler),
		Offers: []Offer{{security.None, ua.MessageSecurityModeNone}}})
	if err != nil {
		f.Fatal(err)
	}
	gate, _ := transport.NewGate(transport.GateOptions{ConnectionsUnlimited: true})
	l, err := uatcp.New(mem, uatcp.Options{NewSink: s.NewSink, Gate: gate, Limits: limits, Logger: slog.New(slog.DiscardHandler),
		Closed: func(_ netip.AddrPort, r transport.CloseReason) { ended <- r }})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = l.Serve(ctx); close(done) }()
	f.Cleanup(func() { cancel(); <-done })

	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 64 {
			script = script[:64]
		}
		before := buffer.Outstanding()
		conn, err := mem.Dial(context.Background(), netip.AddrPort{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := Dial(context.Background(), conn, ClientConfig{})
		if err != nil {
			t.Fatal(err)
		}
		var out []byte
		var want [][]byte // messages the handler gets
		var partial []byte
		var request uint32
		chunks, ok := 0, true
		for i := 0; i+1 < len(script) && ok; i += 2 {
			kind, id := script[i]&3, uint32(script[i]>>2&1)
			part := bytes.Repeat([]byte{byte(i)}, int(script[i+1])*12)
			if chunks > 0 && id != request {
				partial, chunks = nil, 0
			}
			final := byte(chunkFinal)
			switch kind {
			case 0:
				ok = len(partial)+len(part) <= 9000 && chunks < 6
				if ok {
					want = append(want, append(partial, part...))
				}
				partial, chunks = nil, 0
			case 1:
				final = chunkIntermediate
				ok = len(partial)+len(part) <= 9000 && chunks < 6
				partial, chunks, request = append(partial, part...), chunks+1, id
			case 2:
				final = chunkAbort
				partial, chunks = nil, 0
			case 3: // a lie about the number
				out = append(out, c.Seal(RawChunk{SequenceNumber: new(uint32), RequestID: id, Body: part})...)
				ok = false
				continue
			}
			out = append(out, c.Seal(RawChunk{Final: final, RequestID: id, Body: part})...)
		}
		go func() {
			_, _ = c.Write(out)
			_ = conn.(*memnet.Conn).CloseWrite()
		}()
		for i, w := range want {
			_, got, err := c.Receive()
			if err != nil || !bytes.Equal(got, w) {
				t.Fatalf("message %d: %d bytes, %v, want %d bytes", i, len(got), err, len(w))
			}
		}
		_, _, err = c.Receive()
		var e *uatcp.Error
		if isERR := errors.As(err, &e); isERR == ok || ok && !errors.Is(err, io.EOF) {
			t.Fatalf("at the end: %v, script ok %v", err, ok)
		}
		_ = conn.Close()
		c.Release()
		<-ended
		if n := s.Budget().Reserved(); n != 0 {
			t.Fatal("budget", n)
		}
		if n := buffer.Outstanding(); n != before {
			t.Fatalf("%d buffers left\n%s", n-before, buffer.Leaks())
		}
		<-h.chans
		<-h.reasons
	})
}

// FuzzStream sends any bytes to an open channel.
func FuzzStream(f *testing.F) {
	le := binary.LittleEndian
	msg := func(id, tokenID uint32, n int) []byte {
		b := append([]byte("MSGF"), 0, 0, 0, 0)
		b = le.AppendUint32(b, id)
		b = le.AppendUint32(b, tokenID)
		b = le.AppendUint32(b, 2)
		b = le.AppendUint32(b, 2)
		b = append(b, make([]byte, n)...)
		le.PutUint32(b[4:], uint32(len(b)))
		return b
	}
	f.Add(msg(0, 1, 10))
	f.Add(msg(0, 9, 10))
	f.Add([]byte("CLOF\x18\x00\x00\x00"))
	f.Add([]byte("OPNF\x18\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	s := startServer(f, testOptions{memory: true, gate: transport.GateOptions{ConnectionsUnlimited: true},
		cfg: ServerConfig{Limits: transport.Limits{}}})
	f.Fuzz(func(t *testing.T, b []byte) {
		conn := s.connectOnce(t)
		c, err := Dial(context.Background(), conn, ClientConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if len(b) >= 12 { // the right channel more often than not
			le.PutUint32(b[8:], c.id+uint32(b[8]>>7))
		}
		go func() {
			_, _ = c.Write(b)
			_ = conn.(*memnet.Conn).CloseWrite()
		}()
		_, _ = io.Copy(io.Discard, c.read)
		_ = conn.Close()
		<-s.ends
		<-s.h.chans
		<-s.h.reasons
		if n := s.Budget().Reserved(); n != 0 {
			t.Fatal("budget", n)
		}
	})
}
