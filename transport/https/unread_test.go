package https

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Of HTTP/2 (RFC 9113 §6, Frame Definitions).
const (
	typeData, typeHeaders, typeReset, typeSettings, typeWindowUpdate = 0, 1, 3, 4, 8
	endStream, endHeaders                                            = 1, 4
	initialWindowSize                                                = 4
)

// closing is how long crypto/tls tries to say that a connection ends, and a bit.
const closing = 6 * time.Second

// http2Client is an HTTP/2 connection of frames, whose answers are read as frames
// and dropped.
type http2Client struct {
	io.Writer
	resets atomic.Int32
	data   atomic.Int64 // bytes
	done   chan struct{}
}

// http2Frames begins an HTTP/2 connection whose streams may be sent window bytes.
func http2Frames(t *testing.T, s *server, window uint32) *http2Client {
	conn := s.secure(t, "h2")
	c := &http2Client{Writer: conn, done: make(chan struct{})}
	_, _ = io.WriteString(c, http2Preface)
	_, _ = c.Write(h2Frame(typeSettings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, initialWindowSize}, window)))
	go func() {
		defer close(c.done)
		var head [9]byte
		for {
			if _, err := io.ReadFull(conn, head[:]); err != nil {
				return
			}
			n, _ := io.CopyN(io.Discard, conn, int64(head[0])<<16|int64(head[1])<<8|int64(head[2]))
			switch head[3] {
			case typeData:
				c.data.Add(n)
			case typeReset:
				c.resets.Add(1)
			}
		}
	}()
	return c
}

func (c *http2Client) post(stream uint32, kind string, body []byte) {
	_, _ = c.Write(h2Frame(typeHeaders, endHeaders, stream, headerBlock(":method", "POST", ":scheme", "https", ":path", "/UA", ":authority", "plant",
		"content-type", kind, "content-length", strconv.Itoa(len(body)))))
	_, _ = c.Write(h2Frame(typeData, endStream, stream, body))
}

// holds is what answers that are not written hold.
func (s *server) holds() (unwritten int64, waiting int32, governed int) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		unwritten += c.unwritten.Load()
		waiting += c.waiting.Load()
	}
	return unwritten, waiting, s.governor.Status().Node.Data.Count
}

func (s *server) expectHolds(t *testing.T, when string, unwritten int64, requests int) {
	t.Helper()
	if u, w, g := s.holds(); u != unwritten || int(w) != requests || g != requests {
		t.Errorf("%s: %d bytes are held, %d requests of connections and %d of the governor, want %d and %d", when, u, w, g, unwritten, requests)
	}
}

// hostile.md X31: the streams of one HTTP/2 connection that takes nothing share
// WriteQueueBytes; what is kept holds its place until its time is over, small
// answers always have room.
func TestUnreadStreams(t *testing.T) {
	const streams, large = 40, 1 << 20
	for _, kind := range []string{binaryType, jsonType} {
		t.Run(kind, func(t *testing.T) {
			o := governed(t, admission.HTTPOptions{MaxRequests: 128, MaxReservedBytes: 8 << 30})
			bubble(t, o, func(t *testing.T, s *server) {
				before := buffer.Outstanding()
				s.h.hold, s.h.large = true, large
				c := http2Frames(t, s, 0)
				body := request(1)
				if kind == jsonType {
					body = []byte(readJSON)
				}
				var kept, refused int
				for i := range uint32(streams) {
					c.post(2*i+1, kind, body)
					call := <-s.h.held
					err := call.Respond(s.h.answer(call.Body()), ua.StatusGood, 0)
					switch {
					case err == nil:
						kept++
					case errors.Is(err, uastatus.BadServerTooBusy):
						refused++
					default:
						t.Error(err)
					}
				}
				unwritten, _, _ := s.holds()
				if bound := int64(transport.Limits{}.Resolved().WriteQueueBytes); unwritten > bound || unwritten < bound/2 || kept+refused != streams {
					t.Errorf("%d bytes are held of %d answers, %d are refused", unwritten, kept, refused)
				}
				s.expectHolds(t, "unread", unwritten, kept)
				if n := buffer.Outstanding() - before; buffer.Debug && n > kept {
					t.Errorf("%d buffers for %d answers:\n%s", n, kept, buffer.Leaks())
				}
				s.h.large = 0
				c.post(2*streams+1, kind, body)
				call := <-s.h.held
				if err := call.Respond(s.h.answer(call.Body()), ua.StatusGood, 0); err != nil {
					t.Error("a small answer:", err)
				}
				time.Sleep(transport.Limits{}.Resolved().WriteTimeout + time.Second)
				s.expectHolds(t, "after WriteTimeout", 0, 0)
				if n := c.resets.Load(); n != streams+1 {
					t.Errorf("%d streams were reset", n)
				}
				if n := buffer.Outstanding(); n != before {
					t.Errorf("%d buffers:\n%s", n-before, buffer.Leaks())
				}
			})
		})
	}
}

// hostile.md X31: connections of HTTP/1.1 that take nothing hold their place in
// the governor until WriteTimeout ends them.
func TestUnreadConnections(t *testing.T) {
	const conns, large = 3, 12 << 20
	bubble(t, governed(t, admission.HTTPOptions{MaxRequests: conns, SmallBodyRequests: -1}), func(t *testing.T, s *server) {
		s.h.large = large
		for range conns {
			_, _ = io.WriteString(s.secure(t, "http/1.1"), withLength(len(request(1)))+string(request(1)))
		}
		s.expectHolds(t, "unread", int64(conns*len(s.h.answer(request(1)))), conns)
		if a := post(t, s.client(t, false), binaryType, request(1)); a.code != 503 {
			t.Error("one more:", a.code)
		}
		time.Sleep(transport.Limits{}.Resolved().WriteTimeout + closing)
		s.expectHolds(t, "after WriteTimeout", 0, 0)
		s.h.large = 0
		if a := post(t, s.client(t, false), binaryType, request(1)); a.code != 200 {
			t.Error("afterwards:", a.code)
		}
	})
}

// hostile.md X31: who takes 64 KiB each time that WriteTimeout is nearly over has
// no longer for the whole answer than its size deserves.
func TestTrickledAnswer(t *testing.T) {
	const large, step, piece = 4<<20 - 1000, 29 * time.Second, 64 << 10
	whole := transport.Limits{}.Resolved().WriteTimeout * (1 + large>>20)
	for name, take := range map[string]func(t *testing.T, s *server, stop chan struct{}) (taken func() int64, done chan struct{}){
		"HTTP/1.1": func(t *testing.T, s *server, stop chan struct{}) (func() int64, chan struct{}) {
			c, done := s.secure(t, "http/1.1"), make(chan struct{})
			_, _ = io.WriteString(c, withLength(len(request(1)))+string(request(1)))
			var taken atomic.Int64
			go func() {
				defer close(done)
				for {
					n, err := io.CopyN(io.Discard, c, piece)
					if taken.Add(n); err != nil {
						return
					}
					select {
					case <-time.After(step):
					case <-stop:
						return
					}
				}
			}()
			return taken.Load, done
		},
		"HTTP/2": func(t *testing.T, s *server, stop chan struct{}) (func() int64, chan struct{}) {
			c, done := http2Frames(t, s, piece), make(chan struct{})
			c.post(1, binaryType, request(1))
			go func() {
				defer close(done)
				for {
					select {
					case <-time.After(step):
					case <-stop:
						return
					}
					for _, stream := range []uint32{0, 1} {
						if _, err := c.Write(h2Frame(typeWindowUpdate, 0, stream, binary.BigEndian.AppendUint32(nil, piece))); err != nil {
							return
						}
					}
				}
			}()
			return c.data.Load, done
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, governed(t, admission.HTTPOptions{}), func(t *testing.T, s *server) {
				s.h.large = large
				stop := make(chan struct{})
				taken, done := take(t, s, stop)
				time.Sleep(whole - time.Second)
				s.expectHolds(t, "before its end", int64(len(s.h.answer(request(1)))), 1)
				if n := taken(); n < 4*piece {
					t.Errorf("%d bytes were taken", n)
				}
				time.Sleep(time.Second + closing)
				s.expectHolds(t, "after its end", 0, 0)
				close(stop)
				<-done
			})
		})
	}
}

// Answers that are refused before a request is read are no way to hold a
// connection without taking anything.
func TestUnreadRefusals(t *testing.T) {
	bubble(t, governed(t, admission.HTTPOptions{}), func(t *testing.T, s *server) {
		c := s.secure(t, "http/1.1")
		begun := time.Now()
		if _, err := c.Write(bytes.Repeat([]byte("GET / HTTP/1.1\r\nHost: plant\r\n\r\n"), 10000)); err == nil {
			t.Error("all requests were read")
		}
		s.expectClosed(t, transport.PeerClosed)
		if d := time.Since(begun); d > time.Minute {
			t.Error("closed after", d)
		}
	})
}

// RFC 9113 §8.1.1 (Malformed Messages): a stream that ends with its header has no
// body, whatever length stands there.
func TestLengthWithoutBody(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *server) {
		c := s.secure(t, "h2")
		_, _ = io.WriteString(c, http2Preface)
		_, _ = c.Write(h2Frame(typeSettings, 0, 0, nil))
		_, _ = c.Write(h2Frame(typeHeaders, endHeaders|endStream, 1, headerBlock(":method", "POST", ":scheme", "https", ":path", "/UA", ":authority", "plant",
			"content-type", binaryType, "content-length", "10")))
		for {
			kind, _, _, payload := readH2Frame(t, c)
			if kind != typeHeaders {
				continue
			}
			if badRequest := byte(0x80 | 12); payload[0] != badRequest { // RFC 7541 Appendix A, Static Table: :status 400
				t.Errorf("answer %x", payload)
			}
			return
		}
	})
}
