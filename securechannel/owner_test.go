package securechannel

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

// byAddress claims loopback addresses by their last number.
type byAddress struct{}

func (byAddress) ClassifyIngress(remote, _ netip.AddrPort) (isolation.OwnerClaim, bool) {
	switch remote.Addr().As4()[3] {
	case 2:
		return isolation.OwnerClaim{Key: "boot", Class: isolation.Bootstrap}, true
	case 3:
		return isolation.OwnerClaim{Key: "re", Class: isolation.Reconnect}, true
	}
	return isolation.OwnerClaim{}, false
}

func (byAddress) Classify(isolation.ServiceKind, *isolation.ChannelFacts, *isolation.BindingFacts) (isolation.OwnerClaim, bool) {
	return isolation.OwnerClaim{}, false
}

// overload.md §8a: within a class of the crypto gate, reconnecting and trusted
// owners go first, then bootstrap, then the rest.
func TestOpenPriorityByOwner(t *testing.T) {
	gate, clients := security.NewCryptoGate(1), security.NewCryptoGate(1)
	defer gate.Close()
	defer clients.Close()
	p := &pki{gate, newKey(t, rsaKeys()[0], gate), newKey(t, rsaKeys()[1], clients)}
	cfg := p.serverConfig()
	cfg.MaxCryptoWait = -1
	s := startServer(t, testOptions{cfg: cfg, gate: transport.GateOptions{Classifier: byAddress{}}})
	release := make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	defer let()
	var wg sync.WaitGroup
	wg.Go(func() { _ = gate.Do(context.Background(), security.PriorityRenew, func() { <-release }) })
	for gate.Running() == 0 {
		time.Sleep(time.Millisecond) // real threads, no bubble
	}
	// What waits ahead of each rank: nobody better has come before.
	for _, tc := range []struct {
		from  string
		rank  int
		class isolation.Class
	}{{"127.0.0.1", 0, isolation.Established}, {"127.0.0.2", 1, isolation.Bootstrap}, {"127.0.0.3", 2, isolation.Reconnect}} {
		at := security.PriorityIssue.Preferred(tc.rank)
		if w := gate.ExpectedWait(at); w != 0 {
			t.Fatalf("before %s: %v", tc.from, w)
		}
		nc, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(tc.from)}}).Dial("tcp", s.ln.Addr().String())
		if err != nil {
			t.Skip("this system has no such loopback address:", err)
		}
		defer nc.Close()
		wg.Go(func() {
			cc := p.clientConfig(security.Basic256Sha256, ua.MessageSecurityModeSign)
			cc.EndpointURL = "opc.tcp://localhost:4840"
			c, err := Dial(context.Background(), nc, cc)
			if err != nil {
				t.Error(err)
				return
			}
			c.Release()
		})
		for begun := time.Now(); gate.ExpectedWait(at) == 0; {
			if time.Since(begun) > 20*time.Second {
				t.Fatal(tc.from, "never asked for the private key at its rank")
			}
			time.Sleep(time.Millisecond)
			select {
			case ch := <-s.h.chans:
				t.Fatal("opened", ch.RemoteAddr())
			default:
			}
		}
	}
	let()
	wg.Wait()
	for range 3 {
		ch := <-s.h.chans
		want := map[byte]isolation.Class{1: isolation.Established, 2: isolation.Bootstrap, 3: isolation.Reconnect}[ch.RemoteAddr().Addr().As4()[3]]
		if ch.Ingress().Class != want {
			t.Errorf("%v is of class %v", ch.RemoteAddr(), ch.Ingress().Class)
		}
	}
}
