package securechannel

import (
	"fmt"
	"testing"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

func TestNoneRoundTrip(t *testing.T) {
	bothPaths(t, testOptions{}, func(t *testing.T, s *testServer) {
		c := s.dial(t, ClientConfig{})
		for _, n := range []int{4, 100, 65000, 65535 - bodyOffset, 65535, 200_000, 1 << 20, 4 << 20} {
			roundTrip(t, c, body(n))
		}
		_ = c.Close()
		if r := <-s.ends; r != transport.CloseSecureChannel {
			t.Fatal(r)
		}
	})
}

func TestEveryPolicyRoundTrip(t *testing.T) {
	for _, keys := range []int{1, 2} {
		p := newPKI(t, keys)
		s := startServer(t, testOptions{cfg: p.serverConfig()})
		for _, policy := range allPolicies {
			for _, mode := range []ua.MessageSecurityMode{ua.MessageSecurityModeSign, ua.MessageSecurityModeSignAndEncrypt} {
				if policy.CheckKey(p.client.Public()) != nil {
					continue
				}
				t.Run(fmt.Sprintf("%v/%d/%d", policy, mode, p.client.Public().N.BitLen()), func(t *testing.T) {
					cfg := p.clientConfig(policy, mode)
					cfg.Limits = transport.Limits{ReceiveBufferSize: 8192, SendBufferSize: 8192}
					c := s.dial(t, cfg)
					ch := <-s.h.chans
					if ch.SecurityPolicy() != policy || ch.SecurityMode() != mode || string(ch.PeerCertificate()) != string(p.client.Certificate()) || ch.ID() != c.ID() {
						t.Fatal("channel says", ch.SecurityPolicy(), ch.SecurityMode())
					}
					for n := 4; n < 40; n++ { // every padding
						roundTrip(t, c, body(n))
					}
					for n := 8100; n < 8192; n += 5 {
						roundTrip(t, c, body(n))
					}
					roundTrip(t, c, body(100_000))
					_ = c.Close()
				})
			}
		}
	}
	_ = security.None
}
