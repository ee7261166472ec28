package client

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uabinary"
)

func TestSelectEndpoint(t *testing.T) {
	gate := security.NewCryptoGate(1)
	defer gate.Close()
	key := certified(t, 0, "urn:client", gate)
	anonymous := &ua.UserTokenPolicy{PolicyID: "a", TokenType: ua.UserTokenTypeAnonymous}
	user := &ua.UserTokenPolicy{PolicyID: "u", TokenType: ua.UserTokenTypeUserName}
	secretUser := &ua.UserTokenPolicy{PolicyID: "s", TokenType: ua.UserTokenTypeUserName, SecurityPolicyURI: security.Basic256Sha256.URI}
	oldUser := &ua.UserTokenPolicy{PolicyID: "o", TokenType: ua.UserTokenTypeUserName, SecurityPolicyURI: security.Basic128Rsa15.URI}
	ep := func(p *security.Policy, mode ua.MessageSecurityMode, level uint8, tokens ...*ua.UserTokenPolicy) *ua.EndpointDescription {
		return &ua.EndpointDescription{SecurityPolicyURI: p.URI, SecurityMode: mode, SecurityLevel: level, UserIdentityTokens: tokens, TransportProfileURI: profileTCP}
	}
	sign, both, none := ua.MessageSecurityModeSign, ua.MessageSecurityModeSignAndEncrypt, ua.MessageSecurityModeNone
	https := ep(security.Aes256Sha256RsaPss, both, 255, anonymous)
	https.TransportProfileURI = "http://opcfoundation.org/UA-Profile/Transport/https-uabinary"
	all := []*ua.EndpointDescription{
		ep(security.None, none, 250, anonymous, secretUser, oldUser), https,
		ep(security.Basic128Rsa15, both, 240, anonymous, user),
		ep(security.Basic256Sha256, sign, 230, anonymous, user),
		ep(security.Basic256Sha256, both, 1, anonymous, user),
		ep(security.Aes128Sha256RsaOaep, both, 2, anonymous),
		{SecurityPolicyURI: "urn:unknown", SecurityMode: both, UserIdentityTokens: []*ua.UserTokenPolicy{anonymous}},
		{SecurityPolicyURI: security.Basic256Sha256.URI, SecurityMode: none, UserIdentityTokens: []*ua.UserTokenPolicy{anonymous}},
		{SecurityPolicyURI: security.Basic256Sha256.URI, SecurityMode: 77, UserIdentityTokens: []*ua.UserTokenPolicy{anonymous}},
		{},
	}
	plain := &ua.UserTokenPolicy{PolicyID: "n", TokenType: ua.UserTokenTypeUserName, SecurityPolicyURI: security.None.URI}
	bare := []*ua.EndpointDescription{ep(security.Basic256Sha256, sign, 0, plain), ep(security.Basic256Sha256, both, 0, plain)}
	name := &UserName{Name: "u", Password: []byte("p")}
	for _, c := range []struct {
		what string
		o    Options
		list []*ua.EndpointDescription
		want *ua.EndpointDescription // nil: none will do
		id   string
	}{
		{"the strongest, whatever its level", Options{Key: key}, all, nil, "a"},
		{"a mode", Options{Key: key, Mode: sign}, all, all[3], "a"},
		{"a policy", Options{Key: key, Policy: security.Basic256Sha256}, all, all[4], "a"},
		{"None by name", Options{Policy: security.None}, all, all[0], "a"},
		{"deprecated by name", Options{Key: key, Policy: security.Basic128Rsa15}, all, all[2], "a"},
		{"a user", Options{Key: key, Identity: name}, all, all[4], "u"},
		{"a user on None takes the token policy that protects", Options{Policy: security.None, Identity: name}, all, all[0], "s"},
		{"a secret that only the channel encrypts", Options{Key: key, Identity: name}, bare[1:], bare[1], "n"},
		{"a secret that nothing encrypts", Options{Key: key, Identity: name}, bare[:1], nil, ""},
		{"a secret that nothing encrypts, by name", Options{Key: key, Identity: name, InsecurePlaintextPassword: true}, bare[:1], bare[0], "n"},
		{"no endpoints", Options{Key: key}, nil, nil, ""},
		{"only None, not asked for", Options{Key: key}, all[:1], nil, ""},
		{"only deprecated", Options{Key: key}, all[2:3], nil, ""},
		{"only another transport", Options{Key: key}, all[1:2], nil, ""},
		{"no such identity", Options{Key: key, Identity: &X509{Key: key}}, all, nil, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			u, _ := parseURL(plantURL)
			o := c.o.resolved()
			e, err := selectEndpoint(u, c.list, &o)
			if c.id == "" {
				if !errors.Is(err, ua.StatusBadSecurityPolicyRejected) {
					t.Errorf("%+v, %v", e, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := c.want
			if want == nil { // strongest: by the policies' own order
				want = all[4]
				if security.Aes128Sha256RsaOaep.Strength() > security.Basic256Sha256.Strength() {
					want = all[5]
				}
			}
			if e.description != want || e.token.PolicyID != c.id {
				t.Errorf("%s %v, token %q", e.policy.Name, e.description.SecurityMode, e.token.PolicyID)
			}
		})
	}
}

// A list as a server gives it that has every transport: the URL's scheme decides
// by TransportProfileUri (OPC 10000-7, Transport facets), whatever the order, and
// profiles with JSON are not for this client.
func TestSelectEndpointByTransport(t *testing.T) {
	gate := security.NewCryptoGate(1)
	defer gate.Close()
	key := certified(t, 0, "urn:client", gate)
	sign, both, none := ua.MessageSecurityModeSign, ua.MessageSecurityModeSignAndEncrypt, ua.MessageSecurityModeNone
	anonymous := []*ua.UserTokenPolicy{{PolicyID: "a", TokenType: ua.UserTokenTypeAnonymous}}
	ep := func(profile string, p *security.Policy, mode ua.MessageSecurityMode) *ua.EndpointDescription {
		return &ua.EndpointDescription{EndpointURL: "opc.tcp://elsewhere:1", TransportProfileURI: profile, SecurityPolicyURI: p.URI, SecurityMode: mode, UserIdentityTokens: anonymous}
	}
	b256 := security.Basic256Sha256
	wssJSON, httpsJSON := ep(profiles+"wss-uajson", security.None, none), ep(profiles+"https-uajson", b256, sign)
	tcp, tcpNone := ep(profileTCP, b256, both), ep(profileTCP, security.None, none)
	wss, wssNone := ep(profileWSS, b256, both), ep(profileWSS, security.None, none)
	https, httpsNone := ep(profileHTTPS, b256, sign), ep(profileHTTPS, security.None, none)
	unnamed := ep("", b256, both)
	all := []*ua.EndpointDescription{wssJSON, httpsJSON, httpsNone, https, wssNone, wss, tcpNone, tcp}
	secure, open := Options{Key: key}, Options{Policy: security.None}
	encrypt := Options{Key: key, Mode: both}
	blind := encrypt
	blind.TLS.InsecureSkipVerify = true
	for _, c := range []struct {
		what, url string
		o         Options
		list      []*ua.EndpointDescription
		want      *ua.EndpointDescription // nil: none will do
	}{
		{"opc.tcp", "opc.tcp://h", secure, all, tcp},
		{"opc.tcp, None", "opc.tcp://h", open, all, tcpNone},
		{"opc.wss", "opc.wss://h", secure, all, wss},
		{"wss", "wss://h", secure, all, wss},
		{"opc.wss, None", "opc.wss://h", open, all, wssNone},
		{"opc.https", "opc.https://h", secure, all, https},
		{"https", "https://h", secure, all, https},
		{"opc.https, None", "opc.https://h", open, all, httpsNone},
		{"TLS encrypts", "opc.https://h", encrypt, all, https},
		{"TLS encrypts for anybody", "opc.https://h", blind, all, nil},
		{"only JSON over WebSockets", "opc.wss://h", open, all[:2], nil},
		{"only JSON over HTTPS", "opc.https://h", secure, all[:2], nil},
		{"only others for opc.tcp", "opc.tcp://h", secure, all[:6], nil},
		{"only others for opc.wss", "opc.wss://h", secure, append(all[:4:4], all[6:]...), nil},
		{"only others for opc.https", "opc.https://h", secure, all[4:], nil},
		{"no profile", "opc.tcp://h", secure, []*ua.EndpointDescription{https, unnamed}, unnamed},
		{"no profile is opc.tcp's, not opc.wss's", "opc.wss://h", secure, []*ua.EndpointDescription{unnamed}, nil},
		{"no profile is opc.tcp's, not opc.https's", "opc.https://h", secure, []*ua.EndpointDescription{unnamed}, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			u, err := parseURL(c.url)
			if err != nil {
				t.Fatal(err)
			}
			o := c.o.resolved()
			reversed := slices.Clone(c.list)
			slices.Reverse(reversed)
			for _, list := range [][]*ua.EndpointDescription{c.list, reversed} {
				e, err := selectEndpoint(u, list, &o)
				switch {
				case c.want == nil && !errors.Is(err, ua.StatusBadSecurityPolicyRejected):
					t.Errorf("%+v, %v", e, err)
				case c.want != nil && (err != nil || e.description != c.want || e.url != u):
					t.Errorf("%+v, %v", e, err)
				}
			}
		})
	}
}

func TestOptionErrors(t *testing.T) {
	gate := security.NewCryptoGate(1)
	defer gate.Close()
	key := certified(t, 0, "urn:client", gate)
	for field, o := range map[string]Options{
		"Key":                {},
		"PKI":                {Key: key},
		"Mode":               {Policy: security.None, Mode: ua.MessageSecurityModeSign},
		"SessionTimeout":     {Policy: security.None, SessionTimeout: -1},
		"MaxPublishRequests": {Policy: security.None, MaxPublishRequests: -1},
		"Endpoint":           {Policy: security.None, Endpoint: &ua.EndpointDescription{SecurityMode: ua.MessageSecurityModeSign}},
	} {
		_, err := Connect(t.Context(), plantURL, o)
		var oe *OptionError
		if !errors.As(err, &oe) || oe.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, u := range []string{"", "opc.tcp://", "://x", "192.0.2.1:4840", "opc.tcp://" + strings.Repeat("x", 5000)} {
		if _, err := Connect(t.Context(), u, Options{Policy: security.None}); err == nil {
			t.Errorf("%.20q was taken", u)
		}
	}
}

// A password never leaves in the clear unless that is asked for by name.
func TestPlaintextPassword(t *testing.T) {
	inRogue(t, func(r *rogue) {
		list := r.endpoints()
		list[0].UserIdentityTokens = []*ua.UserTokenPolicy{{PolicyID: "u", TokenType: ua.UserTokenTypeUserName}}
		r.on("GetEndpoints", func(int, ua.Request) any { return &ua.GetEndpointsResponse{Endpoints: list} })
		r.on("CreateSession", func(_ int, rq ua.Request) any {
			rs := r.created(r.last(), rq.(*ua.CreateSessionRequest))
			rs.ServerEndpoints = list
			return rs
		})
		var sent []byte
		r.on("ActivateSession", func(_ int, rq ua.Request) any {
			sent = rq.(*ua.ActivateSessionRequest).UserIdentityToken.Value.(*ua.UserNameIdentityToken).Password
			return behaved{}
		})
		o := r.opts()
		o.Identity = &UserName{Name: "u", Password: []byte("secret")}
		if _, err := Connect(r.ctx, plantURL, o); !errors.Is(err, ua.StatusBadSecurityPolicyRejected) || sent != nil || strings.Contains(err.Error(), "secret\"") {
			t.Errorf("%v, sent %q", err, sent)
		}
		o.InsecurePlaintextPassword = true
		s, err := Connect(r.ctx, plantURL, o)
		if err != nil || string(sent) != "secret" {
			t.Fatalf("%v, sent %q", err, sent)
		}
		s.Close(r.ctx)
	})
}

func TestResponseIDs(t *testing.T) {
	for rq, rs := range map[any]any{
		&ua.FindServersRequest{}: &ua.FindServersResponse{}, &ua.GetEndpointsRequest{}: &ua.GetEndpointsResponse{}, &ua.FindServersOnNetworkRequest{}: &ua.FindServersOnNetworkResponse{},
		&ua.RegisterServerRequest{}: &ua.RegisterServerResponse{}, &ua.RegisterServer2Request{}: &ua.RegisterServer2Response{},
		&ua.CreateSessionRequest{}: &ua.CreateSessionResponse{}, &ua.ActivateSessionRequest{}: &ua.ActivateSessionResponse{}, &ua.CloseSessionRequest{}: &ua.CloseSessionResponse{}, &ua.CancelRequest{}: &ua.CancelResponse{},
		&ua.AddNodesRequest{}: &ua.AddNodesResponse{}, &ua.AddReferencesRequest{}: &ua.AddReferencesResponse{}, &ua.DeleteNodesRequest{}: &ua.DeleteNodesResponse{}, &ua.DeleteReferencesRequest{}: &ua.DeleteReferencesResponse{},
		&ua.BrowseRequest{}: &ua.BrowseResponse{}, &ua.BrowseNextRequest{}: &ua.BrowseNextResponse{}, &ua.TranslateBrowsePathsToNodeIDsRequest{}: &ua.TranslateBrowsePathsToNodeIDsResponse{},
		&ua.RegisterNodesRequest{}: &ua.RegisterNodesResponse{}, &ua.UnregisterNodesRequest{}: &ua.UnregisterNodesResponse{}, &ua.QueryFirstRequest{}: &ua.QueryFirstResponse{}, &ua.QueryNextRequest{}: &ua.QueryNextResponse{},
		&ua.ReadRequest{}: &ua.ReadResponse{}, &ua.WriteRequest{}: &ua.WriteResponse{}, &ua.HistoryReadRequest{}: &ua.HistoryReadResponse{}, &ua.HistoryUpdateRequest{}: &ua.HistoryUpdateResponse{}, &ua.CallRequest{}: &ua.CallResponse{},
		&ua.CreateMonitoredItemsRequest{}: &ua.CreateMonitoredItemsResponse{}, &ua.ModifyMonitoredItemsRequest{}: &ua.ModifyMonitoredItemsResponse{}, &ua.SetMonitoringModeRequest{}: &ua.SetMonitoringModeResponse{},
		&ua.SetTriggeringRequest{}: &ua.SetTriggeringResponse{}, &ua.DeleteMonitoredItemsRequest{}: &ua.DeleteMonitoredItemsResponse{},
		&ua.CreateSubscriptionRequest{}: &ua.CreateSubscriptionResponse{}, &ua.ModifySubscriptionRequest{}: &ua.ModifySubscriptionResponse{}, &ua.SetPublishingModeRequest{}: &ua.SetPublishingModeResponse{},
		&ua.PublishRequest{}: &ua.PublishResponse{}, &ua.RepublishRequest{}: &ua.RepublishResponse{}, &ua.TransferSubscriptionsRequest{}: &ua.TransferSubscriptionsResponse{}, &ua.DeleteSubscriptionsRequest{}: &ua.DeleteSubscriptionsResponse{},
	} {
		if got, want := responseID(uabinary.MessageTypeID(rq)), uabinary.MessageTypeID(rs); got != want || want == 0 {
			t.Errorf("%s: %d, want %d", service(rq), got, want)
		}
	}
}

func TestNonces(t *testing.T) {
	var n nonces
	first := security.Nonce(32)
	if err := n.take(first); err != nil {
		t.Fatal(err)
	}
	for range 3 * maxNonces {
		if err := n.take(security.Nonce(32)); err != nil {
			t.Fatal(err)
		}
	}
	if len(n.seen) != maxNonces || len(n.ring) != maxNonces {
		t.Errorf("%d and %d nonces are kept", len(n.seen), len(n.ring))
	}
	last := n.ring[n.next]
	if err := n.take(last[:]); !errors.Is(err, ua.StatusBadNonceInvalid) {
		t.Error(err)
	}
}
