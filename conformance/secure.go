package conformance

import (
	"github.com/breakwater-ua/breakwater/conformance/probe"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/gopcua/opcua/ua"
)

// onEveryEndpoint runs f on each endpoint with the named policy.
func (t *T) onEveryEndpoint(p *security.Policy, f func(e *ua.EndpointDescription)) {
	all, err := probe.Endpoints(t, t.Target.options())
	t.OK(err, "GetEndpoints")
	n := 0
	for _, e := range all {
		if e.SecurityPolicyURI == p.URI && t.ours(e) {
			n++
			f(e)
		}
	}
	if n == 0 {
		t.NotApplicable("the server offers no endpoint with %s", p.Name)
	}
}

// everyIdentity logs in with every identity that an endpoint offers and the
// target allows, and reads with it.
func (t *T) everyIdentity(e *ua.EndpointDescription) {
	for _, p := range e.UserIdentityTokens {
		id := probe.Identity{Kind: p.TokenType}
		switch p.TokenType {
		case ua.UserTokenTypeAnonymous:
		case ua.UserTokenTypeUserName:
			if t.Target.User == "" {
				continue
			}
			id.User, id.Password = t.Target.User, t.Target.Password
		default:
			continue // X.509 users need a certificate that the server trusts
		}
		s := t.Create(t.OpenWith(t.OptionsFor(e)))
		if err := s.Activate(t, id); err != nil {
			t.Errorf("%s %v with %v: %v", e.SecurityPolicyURI, e.SecurityMode, p.TokenType, err)
			continue
		}
		rs := call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, serverStatus))
		t.Code(rs.Results[0].Status, "read", ua.StatusOK)
		if s.Channel == nil {
			continue // nothing to renew
		}
		t.OK(s.Channel.Renew(t), "renew")
		call[*ua.ReadResponse](t, s, readOf(ua.AttributeIDValue, serverStatus))
	}
}

func policyCase(unit string, p *security.Policy) Case {
	return Case{unit, "every mode and identity connects, reads and renews", "OPC 10000-7 §6.6", func(t *T) {
		t.onEveryEndpoint(p, t.everyIdentity)
	}}
}

var securityCases = []Case{
	policyCase("Security None", security.None),
	policyCase("Security Basic256Sha256", security.Basic256Sha256),
	policyCase("Security Aes128-Sha256-RsaOaep", security.Aes128Sha256RsaOaep),
	policyCase("Security Aes256-Sha256-RsaPss", security.Aes256Sha256RsaPss),
	{"Security User Name Password 2", "a wrong password is refused", "OPC 10000-4 §5.7.3", func(t *T) {
		t.withUserName(func(s *probe.Session) {
			err := s.Activate(t, probe.Identity{Kind: ua.UserTokenTypeUserName, User: t.Target.User, Password: "not " + t.Target.Password})
			t.Status(err, "wrong password", ua.StatusBadUserAccessDenied, ua.StatusBadIdentityTokenRejected)
			t.OK(s.Activate(t, probe.Identity{Kind: ua.UserTokenTypeUserName, User: t.Target.User, Password: t.Target.Password}), "the right one afterwards")
		})
	}},
	{"Security User Name Password 2", "a user nobody knows is refused alike", "OPC 10000-4 §5.7.3", func(t *T) {
		t.withUserName(func(s *probe.Session) {
			err := s.Activate(t, probe.Identity{Kind: ua.UserTokenTypeUserName, User: "nobody by that name", Password: "x"})
			t.Status(err, "unknown user", ua.StatusBadUserAccessDenied, ua.StatusBadIdentityTokenRejected)
		})
	}},
	{"Security User Name Password 2", "an unencrypted password is refused", "OPC 10000-4 §7.40.4", func(t *T) {
		t.withUserName(func(s *probe.Session) {
			rq, err := s.ActivateRequest(t, probe.Identity{Kind: ua.UserTokenTypeUserName, User: t.Target.User, Password: t.Target.Password})
			t.OK(err, "build the request")
			tok := rq.UserIdentityToken.Value.(*ua.UserNameIdentityToken)
			tok.Password, tok.EncryptionAlgorithm = []byte(t.Target.Password), ""
			_, err = s.ActivateWith(t, rq)
			t.Status(err, "password in the clear", ua.StatusBadIdentityTokenRejected, ua.StatusBadIdentityTokenInvalid)
		})
	}},
	{"Security User Name Password 2", "a mangled secret is refused", "OPC 10000-4 §7.40.4", func(t *T) {
		t.withUserName(func(s *probe.Session) {
			rq, err := s.ActivateRequest(t, probe.Identity{Kind: ua.UserTokenTypeUserName, User: t.Target.User, Password: t.Target.Password})
			t.OK(err, "build the request")
			tok := rq.UserIdentityToken.Value.(*ua.UserNameIdentityToken)
			tok.Password[len(tok.Password)/2] ^= 0x40
			_, err = s.ActivateWith(t, rq)
			t.Status(err, "mangled secret", ua.StatusBadIdentityTokenRejected, ua.StatusBadIdentityTokenInvalid, ua.StatusBadUserAccessDenied)
		})
	}},
	{"Security", "a wrong client signature is refused", "OPC 10000-4 §5.7.3", func(t *T) {
		t.onEveryEndpoint(security.Basic256Sha256, func(e *ua.EndpointDescription) {
			s := t.Create(t.OpenWith(t.OptionsFor(e)))
			rq, err := s.ActivateRequest(t, t.Identity(e))
			t.OK(err, "build the request")
			rq.ClientSignature.Signature[0] ^= 1
			_, err = s.ActivateWith(t, rq)
			t.Status(err, "ActivateSession", ua.StatusBadApplicationSignatureInvalid)
		})
	}},
	{"Security", "a policyId nobody offered is refused", "OPC 10000-4 §7.40", func(t *T) {
		e := t.Endpoint()
		s := t.Create(t.OpenWith(t.OptionsFor(e)))
		rq, err := s.ActivateRequest(t, t.Identity(e))
		t.OK(err, "build the request")
		rq.UserIdentityToken = ua.NewExtensionObject(&ua.AnonymousIdentityToken{PolicyID: "no such policy"})
		_, err = s.ActivateWith(t, rq)
		t.Status(err, "ActivateSession", ua.StatusBadIdentityTokenInvalid, ua.StatusBadIdentityTokenRejected)
	}},
	{"Security", "the ApplicationUri must be the certificate's", "OPC 10000-4 §5.7.2", func(t *T) {
		t.onEveryEndpoint(security.Basic256Sha256, func(e *ua.EndpointDescription) {
			c := t.OpenWith(t.OptionsFor(e))
			rq := c.CreateRequest()
			rq.ClientDescription.ApplicationURI = "urn:somebody:else"
			_, err := c.Create(t, rq)
			t.Status(err, "CreateSession", ua.StatusBadCertificateURIInvalid)
		})
	}},
}

// withUserName runs f with a session, not yet activated, on the best endpoint
// that takes user names.
func (t *T) withUserName(f func(s *probe.Session)) {
	if t.Target.User == "" {
		t.NotApplicable("the target names no user")
	}
	all, err := probe.Endpoints(t, t.Target.options())
	t.OK(err, "GetEndpoints")
	n := 0
	for _, e := range all {
		if security.PolicyByURI(e.SecurityPolicyURI) == nil || !t.ours(e) {
			continue
		}
		for _, p := range e.UserIdentityTokens {
			if p.TokenType == ua.UserTokenTypeUserName && n < 2 { // two endpoints are enough: None and one other, or two others
				n++
				f(t.Create(t.OpenWith(t.OptionsFor(e))))
			}
		}
	}
	if n == 0 {
		t.NotApplicable("no endpoint takes user names")
	}
}
