package client

import (
	"context"
	"errors"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/security"
)

// D12: what a client has to check when a session is made. Each lie is refused,
// and named.
func TestD12Handshake(t *testing.T) {
	testKeys()
	type lie struct {
		name    string
		want    ua.StatusCode
		create  func(r *rogue, rs *ua.CreateSessionResponse)
		active  func(r *rogue, rs *ua.ActivateSessionResponse)
		options func(o *Options)
	}
	again := make([]byte, 32)
	for _, l := range []lie{
		{name: "truth", want: ua.StatusOK},
		{name: "no signature", want: ua.StatusBadApplicationSignatureInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerSignature = nil }},
		{name: "empty signature", want: ua.StatusBadApplicationSignatureInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerSignature.Signature = nil }},
		{name: "wrong signature", want: ua.StatusBadApplicationSignatureInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerSignature.Signature[3] ^= 1 }},
		{name: "another algorithm", want: ua.StatusBadApplicationSignatureInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) {
			rs.ServerSignature.Algorithm = security.Basic256.SignatureURI()
		}},
		{name: "short nonce", want: ua.StatusBadNonceInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerNonce = rs.ServerNonce[:31] }},
		{name: "no nonce", want: ua.StatusBadNonceInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerNonce = nil }},
		{name: "short nonce in ActivateSession", want: ua.StatusBadNonceInvalid, active: func(_ *rogue, rs *ua.ActivateSessionResponse) { rs.ServerNonce = rs.ServerNonce[:8] }},
		{name: "nonce used twice", want: ua.StatusBadNonceInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerNonce = again },
			active: func(_ *rogue, rs *ua.ActivateSessionResponse) { rs.ServerNonce = again }},
		{name: "another certificate", want: ua.StatusBadSecurityChecksFailed, create: func(r *rogue, rs *ua.CreateSessionResponse) {
			rs.ServerCertificate = certified(r, 2, "urn:other", r.key.Gate()).Certificate()
		}},
		{name: "no endpoints", want: ua.StatusBadSecurityChecksFailed, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerEndpoints = nil }},
		{name: "stronger endpoint hidden in discovery", want: ua.StatusBadSecurityChecksFailed, create: func(_ *rogue, rs *ua.CreateSessionResponse) {
			better := *rs.ServerEndpoints[1]
			better.SecurityMode = ua.MessageSecurityModeSignAndEncrypt
			rs.ServerEndpoints = append(rs.ServerEndpoints, &better)
		}},
		{name: "token policy changed", want: ua.StatusBadSecurityChecksFailed, create: func(_ *rogue, rs *ua.CreateSessionResponse) {
			rs.ServerEndpoints[1].UserIdentityTokens = []*ua.UserTokenPolicy{{PolicyID: "anonymous", TokenType: ua.UserTokenTypeAnonymous, SecurityPolicyURI: security.None.URI}}
		}},
		{name: "null entries in the endpoints", want: ua.StatusOK, create: func(_ *rogue, rs *ua.CreateSessionResponse) {
			rs.ServerEndpoints[0].Server = nil
		}},
		{name: "no token", want: ua.StatusBadSessionIDInvalid, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.AuthenticationToken = nil }},
		{name: "endpoints unchecked by name", want: ua.StatusOK, create: func(_ *rogue, rs *ua.CreateSessionResponse) { rs.ServerEndpoints = nil },
			options: func(o *Options) { o.InsecureSkipEndpointCheck = true }},
		{name: "refused by the callback", want: ua.StatusBadCertificateUntrusted, options: func(o *Options) {
			o.VerifyServer = func(context.Context, Server) error { return errors.New("not ours") }
		}},
	} {
		t.Run(l.name, func(t *testing.T) {
			var gate *security.CryptoGate
			inRogueWith(t, func(r *rogue) {
				gate = security.NewCryptoGate(1)
				r.key = certified(t, 0, "urn:rogue", gate)
			}, func(r *rogue) {
				defer gate.Close()
				o := r.opts()
				o.Policy, o.Key = nil, certified(t, 1, "urn:client", gate)
				o.Reconnect = reconnect.Policy{MaxRetries: -1}
				o.VerifyServer = func(_ context.Context, s Server) error {
					if string(s.Chain) != string(r.key.Certificate()) || s.Policy != security.Basic256Sha256 {
						return errors.New("another server")
					}
					return nil
				}
				if l.options != nil {
					l.options(&o)
				}
				r.on("CreateSession", func(_ int, rq ua.Request) any {
					rs := r.created(r.last(), rq.(*ua.CreateSessionRequest))
					if l.create != nil {
						l.create(r, rs)
					}
					return rs
				})
				r.on("ActivateSession", func(int, ua.Request) any {
					rs := &ua.ActivateSessionResponse{ServerNonce: r.freshNonce()}
					if l.active != nil {
						l.active(r, rs)
					}
					return rs
				})
				r.on("CloseSession", nil)
				s, err := Connect(r.ctx, plantURL, o)
				if l.want == ua.StatusOK {
					if err != nil {
						t.Fatal(err)
					}
					if _, err := s.ReadValue(r.ctx, ua.NewTwoByteNodeID(1)); err != nil {
						t.Error(err)
					}
					s.Close(r.ctx)
					return
				}
				if !errors.Is(err, l.want) {
					t.Errorf("%v, want %v", err, l.want)
				}
				if got := r.asked("CloseSession"); got != min(r.asked("CreateSession"), 1) && l.name != "no token" {
					t.Errorf("the refused session was closed %d times", got)
				}
				if s != nil {
					s.Close(r.ctx)
				}
			})
		})
	}
}
