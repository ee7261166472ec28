package memnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func pair(t *testing.T, buffer int) (c, s *Conn) {
	t.Helper()
	l := Listen("10.0.0.1:4840")
	l.Buffer = buffer
	cc, err := l.Dial(context.Background(), netip.MustParseAddrPort("10.0.0.2:999"))
	if err != nil {
		t.Fatal(err)
	}
	sc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if sc.RemoteAddr().String() != "10.0.0.2:999" || cc.RemoteAddr().String() != "10.0.0.1:4840" {
		t.Fatal("addresses", sc.RemoteAddr(), cc.RemoteAddr())
	}
	return cc.(*Conn), sc.(*Conn)
}

func TestStreamThroughSmallBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := pair(t, 7)
		want := bytes.Repeat([]byte("breakwater"), 1000)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := c.Write(want); err != nil {
				t.Error(err)
			}
			_ = c.CloseWrite()
		})
		got, err := io.ReadAll(s)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		wg.Wait()
		// Half-closed: the other direction still works.
		if _, err := s.Write([]byte("ok")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Fatal("write after CloseWrite:", err)
		}
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := pair(t, 4)
		start := time.Now()
		_ = s.SetReadDeadline(start.Add(5 * time.Second))
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 5*time.Second {
			t.Fatal(err, time.Since(start))
		}
		_ = s.SetReadDeadline(time.Time{})
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := c.Write([]byte("123456")); n != 4 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(n, err)
		}
		b := make([]byte, 9)
		if n, err := s.Read(b); n != 4 || err != nil {
			t.Fatal(n, err)
		}
		_ = c.Close()
		_ = s.Close()
	})
}

func TestCloseAndReset(t *testing.T) {
	c, s := pair(t, 0)
	_, _ = c.Write([]byte("bye"))
	_ = c.Close()
	b, err := io.ReadAll(s)
	if string(b) != "bye" || err != nil {
		t.Fatal(string(b), err)
	}
	if _, err := c.Read(b); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}

	c, s = pair(t, 0)
	_, _ = c.Write([]byte("unread"))
	_ = s.Close()
	if _, err := c.Read(b[:1]); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal("close with unread data:", err)
	}

	c, s = pair(t, 0)
	s.Reset()
	if _, err := c.Read(b[:1]); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	if _, err := c.Write(b[:1]); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
}

func TestListenerClose(t *testing.T) {
	l := Listen("")
	c, err := l.Dial(context.Background(), netip.AddrPort{})
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := l.Dial(context.Background(), netip.AddrPort{}); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal("connection in the backlog:", err)
	}
}
