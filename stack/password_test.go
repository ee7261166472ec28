package stack_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
)

// passwords lets in who knows the password of the house.
type passwords struct{}

func (passwords) Authenticate(_ context.Context, a *session.Attempt) (*session.Identity, error) {
	if string(a.Password) != "open sesame" {
		return nil, ua.StatusBadUserAccessDenied
	}
	return &session.Identity{Kind: a.Kind, User: a.User, Tenant: "caves"}, nil
}

func (passwords) TokenTypes() []ua.UserTokenType { return []ua.UserTokenType{ua.UserTokenTypeUserName} }

// OPC 10000-6 §7.4.1: over HTTPS a password is encrypted where the
// UserTokenPolicy says so; one policy does not. Elsewhere it is never accepted in
// the clear.
func TestPlainPassword(t *testing.T) {
	o := stack.Options{Authenticator: passwords{}, Security: stack.Security{Policies: stack.NoPolicies, AllowNone: true}}
	login := func(p *peer, password string) *ua.ActivateSessionRequest {
		rq := activateOf(p)
		rq.UserIdentityToken = &ua.ExtensionObject{TypeID: ua.NewFourByteExpandedNodeID(0, 324), EncodingMask: ua.ExtensionObjectBinary,
			Value: &ua.UserNameIdentityToken{PolicyID: session.PlainPassword().PolicyID, UserName: "ali", Password: []byte(password)}}
		return rq
	}
	synctest.Test(t, func(t *testing.T) {
		bubble(t, o, func(s *site) {
			w := s.web("192.0.2.10:1")
			rs := w.must(createOf(w.peer)).(*ua.CreateSessionResponse)
			w.token = rs.AuthenticationToken
			if !slices.ContainsFunc(rs.ServerEndpoints[0].UserIdentityTokens, func(p *ua.UserTokenPolicy) bool { return p.PolicyID == session.PlainPassword().PolicyID }) {
				t.Error("the policy is not offered over HTTPS")
			}
			w.refused(login(w.peer, "wrong"), ua.StatusBadUserAccessDenied)
			w.refused(login(w.peer, ""), ua.StatusBadIdentityTokenInvalid)
			w.must(login(w.peer, "open sesame"))
			if c := w.start(readOf(w.peer, numeric(2258))); c.account != "caves/ali" {
				t.Errorf("account %q", c.account)
			}

			p := s.connect()
			created := p.must(createOf(p)).(*ua.CreateSessionResponse)
			p.token = created.AuthenticationToken
			for _, ep := range created.ServerEndpoints {
				for _, tp := range ep.UserIdentityTokens {
					if tp.PolicyID == session.PlainPassword().PolicyID {
						t.Error("the policy is offered over opc.tcp")
					}
				}
			}
			p.refused(login(p, "open sesame"), ua.StatusBadIdentityTokenInvalid)
		})
	})
}
