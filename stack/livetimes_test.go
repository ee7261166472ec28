package stack_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
)

// dial connects without saying anything.
func (s *site) dial() net.Conn {
	s.Helper()
	s.addr++
	nc, err := s.ln.Dial(context.Background(), netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(10000+s.addr)))
	if err != nil {
		s.Fatal(err)
	}
	return nc
}

// overload.md §16 with §4: the deadlines of connections may change while the
// server runs; what begins after that has the new ones.
func TestDeadlinesChangeLive(t *testing.T) {
	apply := func(s *site, change func(*stack.Limits)) {
		s.Helper()
		o := s.srv.LimitsInForce()
		o.Isolation.HandshakeTimeout = 0 // the same deadline by its other name
		change(&o.Limits)
		r, err := s.srv.ApplyLimits(o, false)
		if err != nil {
			s.Fatal(err)
		}
		if len(r.Changed) == 0 {
			s.Error("nothing changed")
		}
	}
	lives := func(nc net.Conn) time.Duration {
		begun := time.Now()
		_, _ = io.Copy(io.Discard, nc)
		_ = nc.Close()
		return time.Since(begun)
	}
	within := func(s *site, what string, got, want time.Duration) {
		s.Helper()
		if got < want || got > want+2*time.Second { // the end may linger
			s.Errorf("%s: over after %v, want %v", what, got, want)
		}
	}
	hello := func(s *site) net.Conn {
		nc := s.dial()
		limits := transport.Limits{}.Resolved()
		if _, err := uatcp.Connect(nc, nc, "opc.tcp://plant:4840", &limits); err != nil {
			s.Fatal(err)
		}
		return nc
	}
	inBubble(t, stack.Options{}, func(s *site) {
		within(s, "Hello", lives(s.dial()), 10*time.Second)
		apply(s, func(l *stack.Limits) { l.HelloTimeout = 3 * time.Second })
		within(s, "Hello, changed", lives(s.dial()), 3*time.Second)

		within(s, "handshake", lives(hello(s)), 2*time.Minute)
		apply(s, func(l *stack.Limits) { l.HandshakeTimeout = 20 * time.Second })
		within(s, "handshake, changed", lives(hello(s)), 20*time.Second)

		assembly := func() time.Duration {
			p := s.connect().login()
			begun := time.Now()
			id := p.c.NextRequestID()
			if _, err := p.c.Write(p.c.Seal(securechannel.RawChunk{Final: 'C', RequestID: id, Body: make([]byte, 1000)})); err != nil {
				s.Fatal(err)
			}
			<-p.gone
			p.c.Release()
			return time.Since(begun)
		}
		within(s, "assembly", assembly(), 30*time.Second)
		apply(s, func(l *stack.Limits) { l.AssemblyTimeout = 5 * time.Second })
		within(s, "assembly, changed", assembly(), 5*time.Second)
	})
}
