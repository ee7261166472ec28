package https

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

const head = "POST / HTTP/1.1\r\nHost: plant\r\nContent-Type: application/octet-stream\r\n"

func withLength(n int) string { return head + "Content-Length: " + strconv.Itoa(n) + "\r\n\r\n" }

// bubble runs f in memory, on a clock of its own.
func bubble(t *testing.T, o Options, f func(t *testing.T, s *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, start(t, false, o)) })
}

// hostile.md X30, B1, I7: whatever a peer does or does not before its first
// request, HelloTimeout after admission it is over, and nothing renews it.
func TestSlowBeforeFirstRequest(t *testing.T) {
	for _, tc := range []struct {
		name string
		slow func(t *testing.T, s *server) net.Conn
	}{
		{"silent", func(t *testing.T, s *server) net.Conn { return s.dial(t) }},
		{"one byte", func(t *testing.T, s *server) net.Conn {
			c := s.dial(t)
			_, _ = c.Write([]byte{recordHandshake})
			return c
		}},
		{"half a ClientHello", func(t *testing.T, s *server) net.Conn {
			c := s.dial(t)
			_, _ = c.Write([]byte{recordHandshake, 3, 1, 1, 0, 1})
			return c
		}},
		{"no request", func(t *testing.T, s *server) net.Conn { return s.secure(t, "http/1.1") }},
		{"no HTTP/2 request", func(t *testing.T, s *server) net.Conn {
			c := s.secure(t, "h2")
			_, _ = io.WriteString(c, http2Preface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
			return c
		}},
		{"header drop by drop", func(t *testing.T, s *server) net.Conn {
			c := s.secure(t, "http/1.1")
			go func() {
				for _, b := range []byte("POST / HTTP/1.1\r\nHost: plant\r\n") {
					if _, err := c.Write([]byte{b}); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			}()
			return c
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, s *server) {
				begun := time.Now()
				ends(t, tc.slow(t, s))
				if d := time.Since(begun); d != 10*time.Second {
					t.Error("closed after", d)
				}
				s.expectClosed(t, transport.HelloTimeout)
				time.Sleep(time.Second) // for who sends slowly to notice
			})
		})
	}
}

const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// A second request's header has HelloTimeout, too, and an idle connection ends.
func TestSlowLater(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *server) {
		c := s.secure(t, "http/1.1")
		raw(t, c, withLength(len(request(1)))+string(request(1)))
		_, _ = io.WriteString(c, "POST / HT")
		begun := time.Now()
		ends(t, c)
		if d := time.Since(begun); d != 10*time.Second {
			t.Error("header: closed after", d)
		}
		c = s.secure(t, "http/1.1")
		raw(t, c, withLength(len(request(1)))+string(request(1)))
		begun = time.Now()
		ends(t, c)
		if d := time.Since(begun); d != idleTimeout {
			t.Error("idle: closed after", d)
		}
	})
}

// Slowloris with bodies: AssemblyTimeout from the header to the last byte.
func TestSlowBody(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *server) {
		c := s.secure(t, "http/1.1")
		begun := time.Now()
		_, _ = io.WriteString(c, withLength(100))
		go func() {
			for range 100 {
				if _, err := c.Write([]byte{1}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		a := readAnswer(t, bufio.NewReader(c))
		if d := time.Since(begun); a.code != 408 || d != 30*time.Second {
			t.Error(a.code, d)
		}
		ends(t, c)
		time.Sleep(transport.Limits{}.Resolved().LingerTimeout + 2*time.Second) // for who sends slowly to notice
		synctest.Wait()
		if n := s.budget.Reserved(); n != 0 {
			t.Error(n, "bytes reserved")
		}
	})
}

// What is wrong with a body as HTTP/1.1.
func TestBadBodies(t *testing.T) {
	rq := string(request(1))
	for _, tc := range []struct {
		name, send string
		half       bool // end of input behind it
		code       int
		lasts      bool // the connection
	}{
		{"whole", withLength(len(rq)) + rq, false, 200, true},
		{"half", withLength(len(rq)+1) + rq, true, 400, false},
		{"none", withLength(100), true, 400, false},
		{"negative length", head + "Content-Length: -1\r\n\r\n", false, 400, false},
		{"two lengths", head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", false, 400, false},
		{"length of 20 digits", head + "Content-Length: 99999999999999999999\r\n\r\n", false, 400, false},
		{"length of 18 digits", head + "Content-Length: 999999999999999999\r\n\r\n", false, 413, false},
		{"chunked", head + "Transfer-Encoding: chunked\r\n\r\n" + strconv.FormatInt(int64(len(rq)), 16) + "\r\n" + rq + "\r\n0\r\n\r\n", false, 200, true},
		{"chunk size of 17 digits", head + "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n", false, 400, false},
		{"no chunk size", head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", false, 400, false},
		{"chunks cut", head + "Transfer-Encoding: chunked\r\n\r\n64\r\nabc", true, 400, false},
		{"chunked and length", head + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false, 200, false},
		{"chunked over the limit", head + "Transfer-Encoding: chunked\r\n\r\n2001\r\n" + strings.Repeat("x", 8193) + "\r\n", false, 413, false},
		{"unknown coding", head + "Transfer-Encoding: gzip\r\n\r\n", false, 501, false},
		{"compressed", "POST / HTTP/1.1\r\nHost: plant\r\nContent-Type: application/octet-stream\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxx", false, 415, true},
		{"refused unread, small", "POST / HTTP/1.1\r\nHost: plant\r\nContent-Length: 2\r\n\r\nxx", false, 415, true},
		{"refused unread, large", "POST / HTTP/1.1\r\nHost: plant\r\nContent-Length: 99999999\r\n\r\nxx", false, 415, false},
		{"Content-Type twice", head + "Content-Type: application/json\r\nContent-Length: 2\r\n\r\nxx", false, 400, true},
		{"Content-Encoding twice", head + "Content-Encoding: identity\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxx", false, 415, true},
		{"policy twice", head + "OPCUA-SecurityPolicy: x\r\nOPCUA-SecurityPolicy: y\r\nContent-Length: 2\r\n\r\nxx", false, 400, true},
		{"no Host", "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nxx", false, 400, false},
		{"header of 64 KiB", "POST / HTTP/1.1\r\nHost: plant\r\nX-A: " + strings.Repeat("y", 64<<10) + "\r\n\r\n", false, 431, false},
		{"garbage", "\x00\x01\x02\r\n\r\n", false, 400, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, Options{Limits: transport.Limits{MaxMessageSize: 8192}}, func(t *testing.T, s *server) {
				c := s.secure(t, "http/1.1")
				go func() { // the server may answer, and stop reading, at any byte
					_, _ = io.WriteString(c, tc.send)
					if tc.half {
						_ = c.CloseWrite()
					}
				}()
				r := bufio.NewReader(c)
				if a := readAnswer(t, r); a.code != tc.code {
					t.Fatalf("%d %s", a.code, a.body)
				}
				if tc.lasts {
					_, _ = io.WriteString(c, withLength(len(rq))+rq)
					if a := readAnswer(t, r); a.code != 200 {
						t.Error("next request:", a.code)
					}
				} else {
					ends(t, c)
				}
				synctest.Wait()
				if n := s.budget.Reserved(); n != 0 {
					t.Error(n, "bytes reserved")
				}
			})
		})
	}
}

// A small body that was refused and never comes holds its connection for a
// moment only.
func TestRefusedBodyNeverComes(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *server) {
		c := s.secure(t, "http/1.1")
		begun := time.Now()
		if a := raw(t, c, "POST / HTTP/1.1\r\nHost: plant\r\nContent-Length: 2\r\n\r\n"); a.code != 415 {
			t.Error(a.code)
		}
		ends(t, c)
		if d := time.Since(begun); d > 2*time.Second {
			t.Error("held for", d)
		}
	})
}

// 100 Continue is not sent for a body that is refused.
func TestExpectContinue(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *server) {
		c := s.secure(t, "http/1.1")
		if a := raw(t, c, "POST / HTTP/1.1\r\nHost: plant\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n"); a.code != 415 {
			t.Error(a.code)
		}
	})
}

// What is neither TLS nor, on this port, anything else is closed at once.
func TestNotTLS(t *testing.T) {
	for name, send := range map[string]string{
		"HTTP": "POST / HTTP/1.1\r\n", "opc.tcp": "HELF\x20\x00\x00\x00", "SSH": "SSH-2.0-x\r\n", "zero": "\x00",
		"PROXY from anybody": "\r\n\r\n\x00\r\nQUIT\n", "SSLv2": "\x80\x2e\x01\x00\x02",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, s *server) {
				c := s.dial(t)
				begun := time.Now()
				_, _ = io.WriteString(c, send)
				ends(t, c)
				if time.Since(begun) != 0 {
					t.Error("held for", time.Since(begun))
				}
				s.expectClosed(t, transport.ProtocolError)
			})
		})
	}
}

// TLS garbage of many kinds, and handshakes cut at every byte of what a client
// sends first: no answer is owed, nothing is left.
func TestTLSGarbage(t *testing.T) {
	hello := recordedHello(t)
	bubble(t, Options{}, func(t *testing.T, s *server) {
		for _, g := range []string{
			"160301ffff" + strings.Repeat("00", 100), "1603010000", "16030100050100000100", "160301000401ffffff",
			"1603ff0004010000ff", "16000000040000000016030100", "160301000215ff",
		} {
			b, _ := hex.DecodeString(g)
			c := s.dial(t)
			_, _ = c.Write(b)
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
			ends(t, c)
			<-s.closed
		}
		for n := range hello {
			c := s.dial(t)
			_, _ = c.Write(hello[:n])
			_ = c.Close()
			<-s.closed
		}
		synctest.Wait()
		if u := s.gate.Usage(); u.Connections != 0 || u.Handshakes != 0 {
			t.Errorf("%+v", u)
		}
		if a := post(t, s.client(t, false), binaryType, request(1)); a.code != 200 {
			t.Error(a.code)
		}
	})
}

// recordedHello is a ClientHello of crypto/tls.
func recordedHello(t *testing.T) []byte {
	t.Helper()
	a, b := net.Pipe()
	go func() { _ = tls.Client(a, &tls.Config{ServerName: "plant"}).Handshake() }()
	buf := make([]byte, 4096)
	n, err := b.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Close()
	_ = b.Close()
	return buf[:n]
}

// Old versions of TLS are refused.
func TestTLSVersions(t *testing.T) {
	s := start(t, true, Options{})
	_, pool := pair()
	for v, ok := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		c := tls.Client(s.dial(t), &tls.Config{RootCAs: pool, ServerName: "plant", MinVersion: v, MaxVersion: v})
		if err := c.Handshake(); (err == nil) != ok {
			t.Errorf("%s: %v", tls.VersionName(v), err)
		}
	}
}

// HTTP/2: many streams at once, each within bounds: the connection's requests
// over MaxOutstandingPerConnection are answered 503.
func TestManyStreams(t *testing.T) {
	bubble(t, Options{Limits: transport.Limits{MaxOutstandingPerConnection: 10}}, func(t *testing.T, s *server) {
		s.h.hold = true
		c := s.client(t, true)
		var wg sync.WaitGroup
		codes := make(chan int, 100)
		for range 40 {
			wg.Go(func() { codes <- post(t, c, binaryType, request(1)).code })
			synctest.Wait()
		}
		for range 30 {
			if code := <-codes; code != 503 {
				t.Error(code)
			}
		}
		// A parked one makes room.
		first := <-s.h.held
		first.Park()
		wg.Go(func() { codes <- post(t, c, binaryType, request(1)).code })
		synctest.Wait()
		_ = first.Respond(s.h.answer(request(1)), ua.StatusGood, 0)
		for range 10 {
			_ = (<-s.h.held).Respond(s.h.answer(request(1)), ua.StatusGood, 0)
		}
		wg.Wait()
		for range 11 {
			if code := <-codes; code != 200 {
				t.Error(code)
			}
		}
	})
}

// An HTTP/2 client that resets its streams at once (CVE-2023-44487) leaves no
// call and no byte behind.
func TestRapidReset(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *server) {
		s.h.hold = true
		c := s.client(t, true)
		for range 100 {
			body, feed := io.Pipe()
			r, _ := http.NewRequest("POST", "https://plant/", body)
			r.Header.Set("Content-Type", binaryType)
			go func() {
				_, _ = feed.Write([]byte("x"))
				_ = feed.CloseWithError(errors.New("reset"))
			}()
			if resp, err := c.Do(r); err == nil {
				_ = resp.Body.Close()
			}
		}
		synctest.Wait()
		if n := s.budget.Reserved(); n != 0 {
			t.Error(n, "bytes reserved")
		}
		select {
		case <-s.h.held:
			t.Error("a request without its end was handed on")
		default:
		}
	})
}

// hostile.md X31: a client that does not read its answer loses the connection
// when WriteTimeout has passed.
func TestSlowReader(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, s *server) {
				s.h.large = 12 << 20 // more than clients take without being asked
				c := s.client(t, h2)
				r, _ := http.NewRequest("POST", "https://plant/", bytes.NewReader(request(1)))
				r.Header.Set("Content-Type", binaryType)
				resp, err := c.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if b, err := io.ReadAll(resp.Body); err == nil {
					t.Error("all came:", len(b))
				}
				_ = resp.Body.Close()
			})
		})
	}
}

// hostile.md X27: connections without a request go when the Gate is full; so do
// idle ones, but not those with a request under way.
func TestReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, _ := transport.NewGate(transport.GateOptions{MaxConnections: 2, ConnectionsUnlimited: true})
		s := start(t, false, Options{Gate: gate})
		s.h.hold = true
		silent := s.dial(t)
		busy := s.client(t, false)
		done := make(chan int)
		go func() { done <- post(t, busy, binaryType, request(1)).code }()
		call := <-s.h.held
		time.Sleep(2 * time.Second)
		idle := s.client(t, false)
		go func() { done <- post(t, idle, binaryType, request(2)).code }()
		ends(t, silent)
		s.expectClosed(t, transport.Reclaimed)
		_ = (<-s.h.held).Respond(s.h.answer(request(2)), ua.StatusGood, 0)
		if code := <-done; code != 200 {
			t.Error(code)
		}
		time.Sleep(2 * time.Second)
		go func() { done <- post(t, s.client(t, false), binaryType, request(3)).code }()
		s.expectClosed(t, transport.Reclaimed) // the idle one
		_ = (<-s.h.held).Respond(s.h.answer(request(3)), ua.StatusGood, 0)
		_ = call.Respond(s.h.answer(request(1)), ua.StatusGood, 0)
		for range 2 {
			if code := <-done; code != 200 {
				t.Error(code)
			}
		}
		if u := s.gate.Usage(); u.Reclaimed != 2 {
			t.Errorf("%+v", u)
		}
	})
}

// overload.md §3: the Handshake stage is held until the first request.
func TestHandshakeStage(t *testing.T) {
	plan, err := isolation.CreatePlan(isolation.Options{Mode: isolation.SharedOnly}, isolation.Totals{MaxMessageSize: 1 << 20, MaxBufferSize: 65535,
		MaxSessions: 100, MaxChannels: 300, Budget: 64 << 20, MaxEstablishment: 128})
	if err != nil {
		t.Fatal(err)
	}
	bubble(t, Options{Isolation: isolation.NewProvider(plan)}, func(t *testing.T, s *server) {
		used := func() [2]int64 {
			synctest.Wait()
			return [2]int64{s.provider.Used(isolation.Connection), s.provider.Used(isolation.Handshake)}
		}
		c := s.secure(t, "http/1.1")
		if u := used(); u != [2]int64{1, 1} {
			t.Error("after TLS:", u)
		}
		raw(t, c, withLength(len(request(1)))+string(request(1)))
		if u := used(); u != [2]int64{1, 0} {
			t.Error("after a request:", u)
		}
		_ = c.Close()
		if u := used(); u != [2]int64{0, 0} {
			t.Error("after the end:", u)
		}
	})
}

// A refused connection is plainly closed, before TLS.
func TestGateRefuses(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *server) {
		s.gate.Stop(time.Second)
		c := s.dial(t)
		if b, err := io.ReadAll(c); err != nil && !isReset(err) || len(b) != 0 {
			t.Errorf("%q, %v", b, err)
		}
	})
}
