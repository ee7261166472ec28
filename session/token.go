package session

import (
	"bytes"
	"crypto/x509"
	"errors"

	"github.com/gopcua/opcua/ua"
	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// identityToken is a UserIdentityToken that was found well-formed and names a
// token policy of the endpoint. Its proof is not checked yet.
type identityToken struct {
	kind     ua.UserTokenType
	policyID string
	policy   *security.Policy // that protects the proof; nil for anonymous, and for a password that TLS hides
	user     string
	secret   []byte
	cert     *x509.Certificate
	chain    []byte
}

// identityToken checks the request's UserIdentityToken as far as that needs no
// key. OPC 10000-4 §7.40 UserIdentityToken parameters.
func (a *activation) identityToken() (*identityToken, error) {
	var value any
	if x := a.rq.UserIdentityToken; x != nil {
		value = x.Value
		if value == nil && x.TypeID != nil && x.TypeID.NodeID != nil &&
			(x.TypeID.NodeID.Namespace() != 0 || x.TypeID.NodeID.IntID() != 0 || x.TypeID.NodeID.Type() > ua.NodeIDTypeNumeric) {
			return nil, uastatus.New(ua.StatusBadIdentityTokenInvalid, "identity token without a body", nil)
		}
	}
	switch tok := value.(type) {
	case nil: // a null token is anonymous
		return a.anonymousToken("")
	case *ua.AnonymousIdentityToken:
		return a.anonymousToken(tok.PolicyID)
	case *ua.UserNameIdentityToken:
		return a.userNameToken(tok)
	case *ua.X509IdentityToken:
		return a.certificateToken(tok)
	case *ua.IssuedIdentityToken:
		if _, err := a.tokenPolicy(ua.UserTokenTypeIssuedToken, tok.PolicyID); err != nil {
			return nil, err
		}
		return nil, uastatus.New(ua.StatusBadIdentityTokenRejected, "issued token", errKindNotOffered)
	}
	return nil, uastatus.New(ua.StatusBadIdentityTokenInvalid, "identity token of an unknown type", nil)
}

// tokenPolicies are those offered on the endpoint the client uses.
func (a *activation) tokenPolicies() []*ua.UserTokenPolicy {
	if a.st.opts.Endpoints == nil {
		return TokenPolicies(a.ch.SecurityPolicy(), a.ch.SecurityMode(), a.st.opts.Authenticator.TokenTypes())
	}
	var out []*ua.UserTokenPolicy
	for _, e := range a.st.opts.Endpoints(a.ch, a.ch.EndpointURL()) {
		if e.SecurityMode == a.ch.SecurityMode() && e.SecurityPolicyURI == a.ch.SecurityPolicy().URI {
			if out == nil {
				out = e.UserIdentityTokens
			} else {
				out = append(out[:len(out):len(out)], e.UserIdentityTokens...)
			}
		}
	}
	return out
}

// tokenPolicy finds the offered policy that the token names.
func (a *activation) tokenPolicy(kind ua.UserTokenType, policyID string) (*ua.UserTokenPolicy, error) {
	for _, p := range a.tokenPolicies() {
		if p.PolicyID == policyID {
			if p.TokenType != kind {
				break
			}
			return p, nil
		}
	}
	return nil, uastatus.New(ua.StatusBadIdentityTokenInvalid, "no such token policy on this endpoint", nil)
}

// secureTokenPolicy is tokenPolicy for tokens whose proof needs a SecurityPolicy:
// the token policy's own, else the endpoint's.
func (a *activation) secureTokenPolicy(kind ua.UserTokenType, policyID string) (*security.Policy, error) {
	tp, err := a.tokenPolicy(kind, policyID)
	if err != nil {
		return nil, err
	}
	policy := a.ch.SecurityPolicy()
	if tp.SecurityPolicyURI != "" {
		policy = security.PolicyByURI(tp.SecurityPolicyURI)
	}
	if policy == nil || policy.IsNone() || a.st.opts.Key == nil {
		return nil, uastatus.New(ua.StatusBadIdentityTokenRejected, "token policy without security", nil)
	}
	return policy, nil
}

func (a *activation) anonymousToken(policyID string) (*identityToken, error) {
	t := &identityToken{kind: ua.UserTokenTypeAnonymous, policyID: policyID}
	if policyID != "" {
		_, err := a.tokenPolicy(t.kind, policyID)
		return t, err
	}
	for _, p := range a.tokenPolicies() {
		if p.TokenType == t.kind {
			t.policyID = p.PolicyID
			return t, nil
		}
	}
	return nil, uastatus.New(ua.StatusBadIdentityTokenRejected, "anonymous", errKindNotOffered)
}

func (a *activation) userNameToken(tok *ua.UserNameIdentityToken) (*identityToken, error) {
	if tok.PolicyID == plainPasswordID && confidential(a.ch) {
		return a.plainPassword(tok)
	}
	policy, err := a.secureTokenPolicy(ua.UserTokenTypeUserName, tok.PolicyID)
	if err != nil {
		return nil, err
	}
	switch {
	case tok.UserName == "" || len(tok.UserName) > maxUserNameLength:
		return nil, uastatus.New(ua.StatusBadIdentityTokenInvalid, "user name is empty or too long", nil)
	case tok.EncryptionAlgorithm == "":
		// A password that travels in the clear is spent; it must not even be tried.
		return nil, uastatus.New(ua.StatusBadIdentityTokenRejected, "password is not encrypted", nil)
	case tok.EncryptionAlgorithm != policy.EncryptionURI():
		return nil, uastatus.New(ua.StatusBadIdentityTokenInvalid, "encryption algorithm is not the token policy's", nil)
	case len(tok.Password) == 0 || len(tok.Password) > a.st.maxSecret(policy):
		return nil, uastatus.New(ua.StatusBadIdentityTokenInvalid, "password is empty or too long", nil)
	}
	return &identityToken{kind: ua.UserTokenTypeUserName, policyID: tok.PolicyID, policy: policy,
		user: tok.UserName, secret: tok.Password}, nil
}

// plainPassword is a password under a token policy without security, which the
// channel's transport hides.
func (a *activation) plainPassword(tok *ua.UserNameIdentityToken) (*identityToken, error) {
	if _, err := a.tokenPolicy(ua.UserTokenTypeUserName, tok.PolicyID); err != nil {
		return nil, err
	}
	switch {
	case tok.UserName == "" || len(tok.UserName) > maxUserNameLength:
		return nil, uastatus.New(ua.StatusBadIdentityTokenInvalid, "user name is empty or too long", nil)
	case tok.EncryptionAlgorithm != "":
		return nil, uastatus.New(ua.StatusBadIdentityTokenInvalid, "encryption algorithm is not the token policy's", nil)
	case len(tok.Password) == 0 || len(tok.Password) > maxPasswordLength:
		return nil, uastatus.New(ua.StatusBadIdentityTokenInvalid, "password is empty or too long", nil)
	}
	return &identityToken{kind: ua.UserTokenTypeUserName, policyID: tok.PolicyID, user: tok.UserName, secret: tok.Password}, nil
}

// maxSecret is the longest ciphertext of a password of maxPasswordLength: each
// block costs a private-key operation.
func (st *Store) maxSecret(policy *security.Policy) int {
	pub := st.opts.Key.Public()
	plain := max(1, policy.PlainBlock(pub))
	blocks := (4 + maxPasswordLength + nonceLength + plain - 1) / plain
	return blocks * policy.CipherBlock(pub)
}

func (a *activation) certificateToken(tok *ua.X509IdentityToken) (*identityToken, error) {
	policy, err := a.secureTokenPolicy(ua.UserTokenTypeCertificate, tok.PolicyID)
	if err != nil {
		return nil, err
	}
	if len(tok.CertificateData) == 0 || len(tok.CertificateData) > maxUserCertLength {
		return nil, uastatus.New(ua.StatusBadIdentityTokenInvalid, "user certificate is empty or too long", nil)
	}
	return &identityToken{kind: ua.UserTokenTypeCertificate, policyID: tok.PolicyID, policy: policy,
		chain: tok.CertificateData}, nil
}

// authenticate checks the token's proof and asks the Authenticator.
func (a *activation) authenticate(t *identityToken) (*Identity, error) {
	at := &Attempt{
		Kind:           t.kind,
		PolicyID:       t.policyID,
		User:           t.user,
		Remote:         a.ch.RemoteAddr(),
		SecurityPolicy: a.ch.SecurityPolicy(),
		SecurityMode:   a.ch.SecurityMode(),
		Application:    a.ch.PeerCertificate(),
	}
	switch t.kind {
	case ua.UserTokenTypeUserName:
		password := bytes.Clone(t.secret)
		if t.policy != nil {
			var err error
			password, err = t.policy.DecryptSecret(a.ctx, a.st.opts.Key, a.priority, t.secret, a.nonce[:])
			if err != nil {
				return nil, uastatus.New(identityCode(err, ua.StatusBadIdentityTokenRejected), "decrypt password", err)
			}
		}
		defer clear(password)
		if len(password) == 0 || len(password) > maxPasswordLength {
			return nil, uastatus.New(ua.StatusBadIdentityTokenRejected, "password is empty or too long", nil)
		}
		at.Password = password
	case ua.UserTokenTypeCertificate:
		if err := a.proveCertificate(t); err != nil {
			return nil, err
		}
		at.Certificate = t.cert
	}
	id, err := a.st.opts.Authenticator.Authenticate(a.ctx, at)
	if err == nil && id == nil {
		err = errors.New("authenticator returned no identity")
	}
	if err != nil {
		return nil, uastatus.New(identityCode(err, ua.StatusBadUserAccessDenied), "authenticate", err)
	}
	return id, nil
}

// proveCertificate checks that the client holds the certificate's key, then that
// the certificate is trusted: so strangers cannot fill the rejected folder with
// certificates that are not theirs.
func (a *activation) proveCertificate(t *identityToken) error {
	var err error
	if t.cert, err = firstCertificate(t.chain); err != nil {
		return uastatus.New(ua.StatusBadIdentityTokenInvalid, "parse user certificate", err)
	}
	if err := a.verify(t.policy, t.cert, a.rq.UserTokenSignature); err != nil {
		return uastatus.New(ua.StatusBadUserSignatureInvalid, "user token signature", err)
	}
	if a.st.opts.ValidateUserCertificate == nil {
		return uastatus.New(ua.StatusBadIdentityTokenRejected, "user certificates are not validated here", nil)
	}
	if err := a.st.opts.ValidateUserCertificate(a.ctx, a.ch, t.chain, t.policy); err != nil {
		return uastatus.New(identityCode(err, ua.StatusBadIdentityTokenRejected), "validate user certificate", err)
	}
	return nil
}

// firstCertificate parses a copy of the leaf of a chain.
func firstCertificate(chain []byte) (*x509.Certificate, error) {
	in := cryptobyte.String(chain)
	var leaf cryptobyte.String
	if !in.ReadASN1Element(&leaf, cryptobyteasn1.SEQUENCE) {
		return nil, errors.New("not a DER certificate")
	}
	return x509.ParseCertificate(bytes.Clone(leaf))
}

// identityCode is the code of err when it is one that may answer an identity,
// else fallback: whatever a host's Authenticator or trust store says, the wire
// gets one of a few codes.
func identityCode(err error, fallback ua.StatusCode) ua.StatusCode {
	switch code := uastatus.Code(err); code {
	case ua.StatusBadIdentityTokenInvalid, ua.StatusBadIdentityTokenRejected, ua.StatusBadUserAccessDenied,
		ua.StatusBadUserSignatureInvalid, uastatus.BadServerTooBusy, ua.StatusBadTimeout,
		ua.StatusBadRequestCancelledByClient, ua.StatusBadShutdown:
		return code
	}
	return fallback
}
