package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/breakwater-ua/breakwater/isolation"
)

func TestTrustedIngress(t *testing.T) {
	owners := []trustedOwnerConfig{{Key: "card"}, {Key: "port"}, {Key: "both"}, {Key: "six"}}
	in, err := newTrustedIngress([]ingressConfig{
		{":4850", "port"}, {"10.99.0.1", "card"}, {"10.99.0.1:4850", "both"}, {"[2001:db8::1]:4840", "six"},
	}, owners, []string{"opc.tcp://:4840", "opc.tcp://[::]:4850"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, local, want string }{
		{"the address, any port", "10.99.0.1:4840", "card"},
		{"the same address mapped into IPv6", "[::ffff:10.99.0.1]:4840", "card"},
		{"the port, any address", "192.0.2.1:4850", "port"},
		{"the rule that says most", "10.99.0.1:4850", "both"},
		{"IPv6", "[2001:db8::1]:4840", "six"},
		{"IPv6 with a zone", "[2001:db8::1%eth0]:4840", "six"},
		{"another address", "10.99.0.2:4840", ""},
		{"no address at all", "", ""},
	} {
		local, _ := netip.ParseAddrPort(tt.local)
		// The remote address is that of a trusted one and must not matter.
		claim, ok := in.ClassifyIngress(netip.MustParseAddrPort("10.99.0.1:4850"), local)
		if want := (isolation.OwnerClaim{Key: tt.want, Class: isolation.Trusted}); ok != (tt.want != "") || ok && claim != want {
			t.Errorf("%s: %v, %v", tt.name, claim, ok)
		}
	}
	if _, ok := in.Classify(0, nil, nil); ok {
		t.Error("requests do not go with their connection")
	}
}

func TestTrustedIngressRules(t *testing.T) {
	owners := []trustedOwnerConfig{{Key: "a"}}
	listen := []string{"opc.tcp://127.0.0.1:4840", "opc.tcp://plant7:4850"}
	for _, tt := range []struct {
		name   string
		rules  []ingressConfig
		owners []trustedOwnerConfig
		want   string
	}{
		{"nothing", nil, nil, ""},
		{"address", []ingressConfig{{"127.0.0.1:4840", "a"}}, owners, ""},
		{"a host name may be any address", []ingressConfig{{"10.0.0.1:4850", "a"}}, owners, ""},
		{"not listened at", []ingressConfig{{"10.0.0.1:4840", "a"}}, owners, "does not listen at 10.0.0.1:4840"},
		{"port not listened at", []ingressConfig{{":4860", "a"}}, owners, "does not listen at :4860"},
		{"all addresses", []ingressConfig{{"0.0.0.0:4840", "a"}}, owners, "neither an IP address"},
		{"a name", []ingressConfig{{"plant7:4850", "a"}}, owners, "neither an IP address"},
		{"no port", []ingressConfig{{":", "a"}}, owners, "neither an IP address"},
		{"empty", []ingressConfig{{"", "a"}}, owners, "neither an IP address"},
		{"unknown owner", []ingressConfig{{":4840", "b"}}, owners, `trustedIngress[0].owner: "b" is not in`},
		{"twice", []ingressConfig{{":4840", "a"}, {":4840", "a"}}, owners, "trustedIngress[1].address: :4840 is listed twice"},
		{"no way in", nil, owners, "leads to"},
	} {
		if _, err := newTrustedIngress(tt.rules, tt.owners, listen); tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestSettingName(t *testing.T) {
	for field, want := range map[string]string{
		"Limits.MaxChannels":                      "limits.maxChannels",
		"Endpoints":                               "listen",
		"Classifier":                              "isolation.trustedIngress",
		"HTTP.MaxSessionless":                     "http.maxSessionless",
		"HTTP.AllowPolicyNone":                    "http.none",
		"TLS.KeyFile":                             "tls.key",
		"Governors.HTTP.MaxRequests":              "governors.http.maxRequests",
		"Isolation.Stages[RequestQueue].Capacity": "isolation.stages.RequestQueue.capacity",
		"Isolation.TrustedOwners[0].Reservations[Handshake].Reserved": "isolation.trustedOwners[0].reservations.Handshake.reserved",
	} {
		if got := settingName(field); got != want {
			t.Errorf("%s: %s, want %s", field, got, want)
		}
	}
}
