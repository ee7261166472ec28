package cutproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/internal/memnet"
)

// ends runs f with the two ends of a connection through a proxy.
func ends(t *testing.T, plan func(int) (Cut, bool), f func(p *Proxy, client, server net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		front, back := memnet.Listen("192.0.2.3:1"), memnet.Listen("192.0.2.2:1")
		from := netip.MustParseAddrPort("192.0.2.1:1")
		p := &Proxy{Plan: plan, Dial: func(ctx context.Context) (net.Conn, error) { return back.Dial(ctx, from) }}
		served := make(chan error, 1)
		go func() { served <- p.Serve(front) }()
		client, err := front.Dial(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		server, err := back.Accept()
		if err != nil {
			t.Fatal(err)
		}
		f(p, client, server)
		_ = client.Close()
		_ = server.Close()
		_ = front.Close()
		_ = back.Close()
		p.Close()
		<-served
		if n := p.Open(); n != 0 {
			t.Errorf("%d connections left", n)
		}
	})
}

// got reads what comes within a second.
func got(c net.Conn) (s string, err error) {
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	b := make([]byte, 64)
	for err == nil {
		var n int
		n, err = c.Read(b)
		s += string(b[:n])
	}
	return s, err
}

// Each mode, in each direction, after each byte of a message of four, and
// without a cut: what arrives, how it ends, and what the other direction does.
func TestCuts(t *testing.T) {
	const message = "abcd"
	for _, d := range []Direction{Up, Down} {
		for _, m := range Modes() {
			for at := range int64(len(message) + 1) {
				t.Run(fmt.Sprintf("%v/%v/%d", d, m, at), func(t *testing.T) {
					ends(t, func(int) (Cut, bool) { return Cut{Mode: m, Direction: d, At: at, For: 5 * time.Second}, true }, func(p *Proxy, client, server net.Conn) {
						from, to := client, server
						if d == Down {
							from, to = server, client
						}
						synctest.Wait()
						_, werr := from.Write([]byte(message))
						synctest.Wait()
						begun := time.Now()
						first, err := got(to)
						want := message[:at]
						var end error
						switch m {
						case Reset: // what has passed may be lost with it
							if !errors.Is(err, syscall.ECONNRESET) || len(first) > int(at) {
								t.Errorf("%q, %v", first, err)
							}
							if at == 0 && werr == nil {
								t.Error("the sender was not told")
							}
							if _, err := got(from); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
								t.Errorf("the sender reads %v", err)
							}
							return
						case Drop, Delay:
							end = os.ErrDeadlineExceeded
						case Halve:
							end = io.EOF
						}
						if first != want || !errors.Is(err, end) {
							t.Errorf("%q, %v, want %q, %v", first, err, want, end)
						}
						if m == Delay {
							time.Sleep(5*time.Second - time.Since(begun))
							synctest.Wait()
							if rest, _ := got(to); rest != message[at:] {
								t.Errorf("later %q", rest)
							}
						} else if _, err := from.Write([]byte("more")); err != nil {
							t.Errorf("the sender is told: %v", err)
						} else if rest, _ := got(to); rest != "" {
							t.Errorf("after the cut: %q", rest)
						}
						if _, err := to.Write([]byte("back")); err != nil {
							t.Error(err)
						}
						if s, _ := got(from); s != "back" {
							t.Errorf("the other direction carries %q", s)
						}
						_ = from.Close()
						synctest.Wait()
						if _, err := got(to); m == Drop && !errors.Is(err, os.ErrDeadlineExceeded) || m == Delay && !errors.Is(err, io.EOF) {
							t.Errorf("after the sender's end: %v", err)
						}
					})
				})
			}
		}
	}
}

// Without a cut everything passes, ends included, and is counted.
func TestUncut(t *testing.T) {
	ends(t, nil, func(p *Proxy, client, server net.Conn) {
		big := bytes.Repeat([]byte("x"), 100_000)
		go func() {
			_, _ = client.Write(big)
			_ = client.(*memnet.Conn).CloseWrite()
		}()
		if b, err := io.ReadAll(server); err != nil || !bytes.Equal(b, big) {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		_, _ = server.Write([]byte("ok"))
		synctest.Wait()
		if up, down := p.Passed(); up != 100_000 || down != 2 || p.Connections() != 1 || p.Open() != 1 {
			t.Errorf("%d, %d, %d, %d", up, down, p.Connections(), p.Open())
		}
		_ = server.Close()
		if b, err := io.ReadAll(client); err != nil || string(b) != "ok" {
			t.Errorf("%q, %v", b, err)
		}
	})
}

// A strike counts from what has passed already.
func TestStrike(t *testing.T) {
	for _, m := range Modes() {
		for at := range int64(3) {
			t.Run(fmt.Sprintf("%v/%d", m, at), func(t *testing.T) {
				ends(t, nil, func(p *Proxy, client, server net.Conn) {
					_, _ = client.Write([]byte("before"))
					if s, _ := got(server); s != "before" {
						t.Fatalf("%q", s)
					}
					p.Strike(Cut{Mode: m, At: at, For: 10 * time.Second})
					synctest.Wait()
					_, _ = client.Write([]byte("ab"))
					s, err := got(server)
					switch {
					case m == Reset && (!errors.Is(err, syscall.ECONNRESET) || len(s) > int(at)),
						m == Halve && (!errors.Is(err, io.EOF) || s != "ab"[:at]),
						(m == Drop || m == Delay) && (!errors.Is(err, os.ErrDeadlineExceeded) || s != "ab"[:at]):
						t.Errorf("%q, %v", s, err)
					}
				})
			})
		}
	}
}

// Over TCP a reset is a reset and a half-close is a half-close.
func TestTCP(t *testing.T) {
	for _, m := range []Mode{Reset, Halve} {
		t.Run(m.String(), func(t *testing.T) {
			front, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			back, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var d net.Dialer
			p := &Proxy{
				Dial: func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "tcp", back.Addr().String()) },
				Plan: func(int) (Cut, bool) { return Cut{Mode: m, Direction: Down, At: 2}, true },
			}
			served := make(chan error, 1)
			go func() { served <- p.Serve(front) }()
			client, err := d.DialContext(t.Context(), "tcp", front.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			server, err := back.Accept()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = server.Write([]byte("abcd"))
			b, err := io.ReadAll(client)
			if m == Halve && (err != nil || string(b) != "ab") || m == Reset && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%q, %v", b, err)
			}
			_ = front.Close()
			_ = back.Close()
			p.Close()
			<-served
			_, _ = client.Close(), server.Close()
		})
	}
}
