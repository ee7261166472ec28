package session

import (
	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/security"
)

// TokenPolicies are the UserTokenPolicies of an endpoint with this policy and
// mode, for the given kinds of identity (OPC 10000-4 §7.41 UserTokenPolicy).
//
// Every policy that carries a secret or a signature names its SecurityPolicyUri,
// so a PolicyId means the same on every endpoint. On endpoints without security
// there is one per current SecurityPolicy, Basic256Sha256 first because clients
// that do not choose take the first; a password is never sent in the clear.
// Issued tokens are not offered.
func TokenPolicies(p *security.Policy, _ ua.MessageSecurityMode, kinds []ua.UserTokenType) []*ua.UserTokenPolicy {
	protections := []*security.Policy{p}
	if p.IsNone() {
		protections = []*security.Policy{security.Basic256Sha256, security.Aes256Sha256RsaPss, security.Aes128Sha256RsaOaep}
	}
	var out []*ua.UserTokenPolicy
	seen := make(map[ua.UserTokenType]bool)
	for _, k := range kinds {
		if seen[k] {
			continue
		}
		seen[k] = true
		switch k {
		case ua.UserTokenTypeAnonymous:
			out = append(out, &ua.UserTokenPolicy{PolicyID: kindName(k), TokenType: k})
		case ua.UserTokenTypeUserName, ua.UserTokenTypeCertificate:
			for _, sp := range protections {
				out = append(out, &ua.UserTokenPolicy{
					PolicyID:          kindName(k) + "-" + sp.Name,
					TokenType:         k,
					SecurityPolicyURI: sp.URI,
				})
			}
		}
	}
	return out
}

// plainPasswordID names the token policy of PlainPassword.
const plainPasswordID = "username-None"

// PlainPassword is the UserTokenPolicy for passwords that are not encrypted, for
// endpoints whose transport hides them ([Confidential]): OPC 10000-6 §7.4.1 has
// HTTPS clients encrypt only where the UserTokenPolicy says so. Scripts and web
// pages have no other way.
func PlainPassword() *ua.UserTokenPolicy {
	return &ua.UserTokenPolicy{PolicyID: plainPasswordID, TokenType: ua.UserTokenTypeUserName, SecurityPolicyURI: security.None.URI}
}
