package stack

import (
	"net/netip"
	"net/url"
	"testing"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/gopcua/opcua/ua"
)

// localChannel is a channel that was reached under an address of ours.
type localChannel struct {
	session.Channel
	local netip.AddrPort
	hello string
}

func (c localChannel) EndpointURL() string { return c.hello }

func (c localChannel) LocalAddr() netip.AddrPort { return c.local }

// Clients are told the host they used when it is ours, else the first
// configured one.
func TestAnnouncedHost(t *testing.T) {
	mustURL := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	a := &announcer{hostname: "machine", advertise: []string{"plant.example", "nat.example:14840"},
		offers: []offer{{security.None, ua.MessageSecurityModeNone}}, tokens: []ua.UserTokenType{ua.UserTokenTypeAnonymous}}
	a.setURLs([]*url.URL{mustURL("opc.tcp://:4840/UA")})
	ch := localChannel{local: netip.MustParseAddrPort("192.0.2.7:4840")}
	loop := localChannel{local: netip.MustParseAddrPort("127.0.0.1:4840")}
	const first = "opc.tcp://machine:4840/UA"
	for _, tc := range []struct {
		name string
		ch   session.Channel
		url  string
		want string
	}{
		{"the local address", ch, "opc.tcp://192.0.2.7:4840", "opc.tcp://192.0.2.7:4840/UA"},
		{"a port that is mapped", ch, "opc.tcp://192.0.2.7:14840/x", "opc.tcp://192.0.2.7:14840/UA"},
		{"without port", ch, "opc.tcp://192.0.2.7", "opc.tcp://192.0.2.7:4840/UA"},
		{"advertised", ch, "opc.tcp://Plant.Example:4840", "opc.tcp://Plant.Example:4840/UA"},
		{"advertised with port", ch, "opc.tcp://nat.example:14840", "opc.tcp://nat.example:14840/UA"},
		{"advertised with another port", ch, "opc.tcp://nat.example:4840", first},
		{"localhost over loopback", loop, "opc.tcp://localhost:4840", "opc.tcp://localhost:4840/UA"},
		{"localhost from outside", ch, "opc.tcp://localhost:4840", first},
		{"a stranger's address", ch, "opc.tcp://198.51.100.1:4840", first},
		{"a stranger's name", ch, "opc.tcp://evil.example:4840", first},
		{"nothing", ch, "", first},
		{"nothing but in the Hello", localChannel{local: ch.local, hello: "opc.tcp://192.0.2.7:4840"}, "", "opc.tcp://192.0.2.7:4840/UA"},
		{"another scheme", ch, "http://192.0.2.7:4840", first},
		{"no URL", ch, "::::", first},
		{"too long", ch, "opc.tcp://192.0.2.7:4840/" + string(make([]byte, 5000)), first},
	} {
		eps := a.Endpoints(tc.ch, tc.url)
		if len(eps) != 1 || eps[0].EndpointURL != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, eps[0].EndpointURL, tc.want)
		}
		if app := a.Application(tc.ch, tc.url); len(app.DiscoveryURLs) != 1 || app.DiscoveryURLs[0] != tc.want {
			t.Errorf("%s: discovery URLs %v", tc.name, app.DiscoveryURLs)
		}
	}
}

// A client chooses the port in its URL: what is kept for that is bounded.
func TestAnnouncedDescriptionsAreBounded(t *testing.T) {
	a := &announcer{hostname: "machine", offers: []offer{{security.None, ua.MessageSecurityModeNone}}}
	ch := localChannel{local: netip.MustParseAddrPort("192.0.2.7:4840")}
	for p := range 1000 {
		a.Endpoints(ch, "opc.tcp://"+netip.AddrPortFrom(ch.local.Addr(), uint16(p+1)).String())
	}
	if n := len(a.made); n > maxAnnounced {
		t.Errorf("%d descriptions kept", n)
	}
}

func TestSecurityLevels(t *testing.T) {
	o := Options{Security: Security{AllowNone: true}}.resolved()
	offers := o.offers()
	last := offers[len(offers)-1]
	if !last.policy.IsNone() || securityLevel(last) != 0 {
		t.Errorf("None is not last, or its level is %d", securityLevel(last))
	}
	for i := 1; i < len(offers); i++ {
		if securityLevel(offers[i]) > securityLevel(offers[i-1]) {
			t.Errorf("%v/%v before %v/%v", offers[i-1].policy, offers[i-1].mode, offers[i].policy, offers[i].mode)
		}
	}
}
