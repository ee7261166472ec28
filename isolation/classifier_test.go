package isolation

import (
	"net/netip"
	"testing"
)

func TestAddressKey(t *testing.T) {
	key := func(s string) string { return AddressKey(netip.MustParseAddr(s)) }
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"10.1.2.3", "::ffff:10.1.2.3", true}, {"10.1.2.3", "10.1.2.4", false},
		{"2001:db8::1", "2001:db8::2", true}, {"2001:db8::1", "2001:db8:0:1::1", false},
		{"fe80::1%eth0", "fe80::1%eth1", true},
	} {
		if (key(c.a) == key(c.b)) != c.same {
			t.Errorf("%s and %s: same %v, want %v", c.a, c.b, !c.same, c.same)
		}
	}
}

type byCertificate struct{}

func (byCertificate) ClassifyIngress(remote, local netip.AddrPort) (OwnerClaim, bool) {
	return OwnerClaim{Key: "line", Class: Trusted}, local.Port() == 4841
}

func (byCertificate) Classify(kind ServiceKind, ch *ChannelFacts, b *BindingFacts) (OwnerClaim, bool) {
	return OwnerClaim{Key: "known", Class: Trusted}, string(ch.Certificate) == "known"
}

func TestClassifyOrder(t *testing.T) {
	remote := netip.MustParseAddrPort("10.0.0.9:5000")
	address := AddressKey(remote.Addr())
	user := &BindingFacts{User: "ann"}
	for _, c := range []struct {
		name    string
		c       Classifier
		kind    ServiceKind
		channel ChannelFacts
		binding *BindingFacts
		want    OwnerClaim
	}{
		{"address", nil, Other, ChannelFacts{}, nil, OwnerClaim{address, Established}},
		{"certificate", nil, Other, ChannelFacts{Certificate: []byte("x")}, nil, OwnerClaim{CertificateKey([]byte("x")), Established}},
		{"user", nil, Other, ChannelFacts{Certificate: []byte("x")}, user, OwnerClaim{UserKey("ann"), Established}},
		{"anonymous binding", nil, Other, ChannelFacts{}, &BindingFacts{}, OwnerClaim{address, Established}},
		{"close with a binding", nil, Close, ChannelFacts{}, user, OwnerClaim{UserKey("ann"), Control}},
		{"close without one", nil, Close, ChannelFacts{}, nil, OwnerClaim{address, Established}},
		{"establish with a binding", nil, Establish, ChannelFacts{}, user, OwnerClaim{UserKey("ann"), Reconnect}},
		{"establish without one", nil, Establish, ChannelFacts{}, nil, OwnerClaim{address, Established}},
		{"ingress before the default", nil, Other, ChannelFacts{Ingress: OwnerClaim{"line", Trusted}}, user, OwnerClaim{"line", Trusted}},
		{"classifier before the ingress", byCertificate{}, Other, ChannelFacts{Certificate: []byte("known"), Ingress: OwnerClaim{"line", Trusted}}, user, OwnerClaim{"known", Trusted}},
		{"classifier that declines", byCertificate{}, Other, ChannelFacts{}, user, OwnerClaim{UserKey("ann"), Established}},
	} {
		c.channel.Remote = remote
		if got := Classify(c.c, c.kind, &c.channel, c.binding); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if claim, ok := ClassifyIngress(byCertificate{}, remote, netip.MustParseAddrPort("10.0.0.1:4841")); !ok || claim.Class != Trusted {
		t.Errorf("%+v, %v", claim, ok)
	}
	if claim, ok := ClassifyIngress(byCertificate{}, remote, netip.MustParseAddrPort("10.0.0.1:4840")); ok || claim != (OwnerClaim{address, Established}) {
		t.Errorf("%+v, %v", claim, ok)
	}
}
