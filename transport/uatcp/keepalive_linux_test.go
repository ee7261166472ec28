package uatcp

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/breakwater-ua/breakwater/transport"
)

// A peer that vanishes without a word is noticed: accepted sockets probe.
func TestKeepAliveInherited(t *testing.T) {
	l, err := Listen(context.Background(), "127.0.0.1:0", Options{NewSink: func(transport.Conn) transport.Sink { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.acceptor.Listener.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.acceptor.Listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	raw, err := s.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		for _, o := range [...]struct{ level, name, want int }{
			{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, keepAliveSeconds},
			{syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1},
		} {
			if v, err := syscall.GetsockoptInt(int(fd), o.level, o.name); err != nil || v != o.want {
				t.Errorf("option %d/%d is %d, %v, want %d", o.level, o.name, v, err, o.want)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
