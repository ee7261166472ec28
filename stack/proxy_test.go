package stack_test

import (
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
)

// proxyHeader is a PROXY protocol version 2 header of TCP over IPv4.
func proxyHeader(client netip.AddrPort) []byte {
	b := append([]byte("\r\n\r\n\x00\r\nQUIT\n"), 0x21, 0x11, 0, 12)
	ip := client.Addr().As4()
	b = append(append(b, ip[:]...), 192, 0, 2, 2)
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, client.Port()), 4840)
}

// through connects from an address and sends a header first, unless client is
// the zero value.
func (s *site) through(from string, client netip.AddrPort) (*peer, error) {
	s.Helper()
	s.addr++
	conn, err := s.ln.Dial(context.Background(), netip.AddrPortFrom(netip.MustParseAddr(from), uint16(10000+s.addr)))
	if err != nil {
		s.Fatal(err)
	}
	if client.IsValid() {
		if _, err := conn.Write(proxyHeader(client)); err != nil {
			s.Fatal(err)
		}
	}
	p, err := open(s.T, conn)
	if err == nil {
		s.peers = append(s.peers, p)
	}
	return p, err
}

// ingressLog notes what it is asked to classify.
type ingressLog struct {
	mu      sync.Mutex
	ingress []netip.AddrPort
	remotes []netip.AddrPort
}

func (l *ingressLog) ClassifyIngress(remote, _ netip.AddrPort) (isolation.OwnerClaim, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ingress = append(l.ingress, remote)
	return isolation.OwnerClaim{}, false
}

func (l *ingressLog) Classify(_ isolation.ServiceKind, ch *isolation.ChannelFacts, _ *isolation.BindingFacts) (isolation.OwnerClaim, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remotes = append(l.remotes, ch.Remote)
	return isolation.OwnerClaim{}, false
}

// overload.md §3, PROXY protocol v2: clients behind a balancer are told apart by
// the address that its header carries, in isolation and for the classifier; from
// the balancer a header is mandatory, from others it is a bad first byte.
func TestClientsBehindABalancer(t *testing.T) {
	seen := new(ingressLog)
	o := stack.Options{
		ProxyPeers: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
		Classifier: seen,
		Isolation: isolation.Options{Mode: isolation.FairShare, Stages: []isolation.StageOptions{
			{Stage: isolation.Connection, OwnerHardLimit: isolation.Amount(1)}}},
	}
	inBubble(t, o, func(s *site) {
		first, second := netip.MustParseAddrPort("203.0.113.7:50001"), netip.MustParseAddrPort("203.0.113.8:50001")
		p, err := s.through("10.0.0.9", first)
		if err != nil {
			t.Fatal(err)
		}
		p.login().read(numeric(2258))
		if got := s.onlySession().Channel().RemoteAddr(); got != first {
			t.Errorf("the session's client is at %v", got)
		}
		if q, err := s.through("10.0.0.9", second); err != nil {
			t.Errorf("another client behind the same balancer: %v", err)
		} else {
			q.login()
		}
		if _, err := s.through("10.0.0.9", netip.AddrPortFrom(first.Addr(), 50002)); err == nil {
			t.Error("the same client again, over its limit, was let in")
		}
		for name, c := range map[string]struct {
			from   string
			client netip.AddrPort
		}{
			"the balancer without a header": {from: "10.0.0.10"},
			"a header from somebody else":   {"192.0.2.77", first},
		} {
			if _, err := s.through(c.from, c.client); err == nil {
				t.Error(name + " was let in")
			}
		}
		if direct, err := s.through("192.0.2.78", netip.AddrPort{}); err != nil {
			t.Errorf("a direct client: %v", err)
		} else {
			direct.login()
		}
		synctest.Wait()
		seen.mu.Lock()
		defer seen.mu.Unlock()
		for _, want := range []netip.AddrPort{first, second} {
			if !slices.Contains(seen.ingress, want) || !slices.Contains(seen.remotes, want) {
				t.Errorf("the classifier was not asked for %v: ingress %v, channels %v", want, seen.ingress, seen.remotes)
			}
		}
	})
}
