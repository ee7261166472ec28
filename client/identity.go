package client

import (
	"bytes"
	"context"
	"crypto/rsa"
	"fmt"
	"log/slog"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/gopcua/opcua/ua"
)

// Identity is who uses a session: [Anonymous], [*UserName], [*X509] or
// [*IssuedToken].
type Identity interface {
	kind() ua.UserTokenType
	// token makes the UserIdentityToken and its signature (OPC 10000-4 §7.40).
	token(ctx context.Context, a *tokenContext) (any, *ua.SignatureData, error)
}

// tokenContext is what tokens are made with.
type tokenContext struct {
	id          string           // PolicyId
	policy      *security.Policy // of the token; never nil
	certificate []byte           // the server's leaf
	public      *rsa.PublicKey   // its key; nil when it has none
	nonce       []byte           // the server's last
}

// Anonymous is nobody in particular.
type Anonymous struct{}

func (Anonymous) kind() ua.UserTokenType { return ua.UserTokenTypeAnonymous }

func (Anonymous) token(_ context.Context, a *tokenContext) (any, *ua.SignatureData, error) {
	return &ua.AnonymousIdentityToken{PolicyID: a.id}, nil, nil
}

// UserName is a user with a password. It is encrypted for the server, or at least by
// the channel, unless Options.InsecurePlaintextPassword allows otherwise.
type UserName struct {
	Name     string
	Password []byte
}

func (*UserName) kind() ua.UserTokenType { return ua.UserTokenTypeUserName }

// LogValue keeps the password out of logs.
func (u *UserName) LogValue() slog.Value { return slog.StringValue("user name") }

// String keeps the password out of messages.
func (u *UserName) String() string { return "user name" }

func (u *UserName) token(_ context.Context, a *tokenContext) (any, *ua.SignatureData, error) {
	secret, algorithm, err := a.secret(u.Password)
	return &ua.UserNameIdentityToken{PolicyID: a.id, UserName: u.Name, Password: secret, EncryptionAlgorithm: algorithm}, nil, err
}

// X509 is a user with a certificate.
type X509 struct {
	Key *security.Key
}

func (*X509) kind() ua.UserTokenType { return ua.UserTokenTypeCertificate }

func (x *X509) token(ctx context.Context, a *tokenContext) (any, *ua.SignatureData, error) {
	if a.policy.IsNone() {
		return nil, nil, broken(ua.StatusBadIdentityTokenRejected, "the server has no security policy for user certificates")
	}
	sig, err := a.policy.Sign(ctx, x.Key, security.PrioritySession, append(bytes.Clone(a.certificate), a.nonce...))
	if err != nil {
		return nil, nil, fmt.Errorf("client: sign the user token: %w", err)
	}
	return &ua.X509IdentityToken{PolicyID: a.id, CertificateData: x.Key.Certificate()},
		&ua.SignatureData{Algorithm: a.policy.SignatureURI(), Signature: sig}, nil
}

// IssuedToken is a user whom an authorization service vouches for. Token is
// called for each activation and returns, for example, a fresh JSON Web Token.
type IssuedToken struct {
	Token func(ctx context.Context) ([]byte, error)
}

func (*IssuedToken) kind() ua.UserTokenType { return ua.UserTokenTypeIssuedToken }

func (i *IssuedToken) token(ctx context.Context, a *tokenContext) (any, *ua.SignatureData, error) {
	raw, err := i.Token(ctx)
	if err != nil {
		return nil, nil, err
	}
	secret, algorithm, err := a.secret(raw)
	return &ua.IssuedIdentityToken{PolicyID: a.id, TokenData: secret, EncryptionAlgorithm: algorithm}, nil, err
}

// secret encrypts for the server (OPC 10000-4 §7.40.2.2, Legacy Encrypted Token
// Secret Format).
func (a *tokenContext) secret(b []byte) ([]byte, string, error) {
	if a.policy.IsNone() { // see usable: the channel encrypts, or it was asked for
		return b, "", nil
	}
	if a.public == nil {
		return nil, "", broken(ua.StatusBadCertificateInvalid, "the server has no certificate to encrypt a secret for")
	}
	secret, err := a.policy.EncryptSecret(a.public, b, a.nonce)
	return secret, a.policy.EncryptionURI(), err
}

// incomplete says what an identity lacks to be used; empty: nothing.
func incomplete(i Identity) string {
	switch i := i.(type) {
	case *UserName:
		if i == nil {
			return "a nil *UserName"
		}
	case *X509:
		if i == nil || i.Key == nil {
			return "an X509 without a Key"
		}
	case *IssuedToken:
		if i == nil || i.Token == nil {
			return "an IssuedToken without a Token function"
		}
	}
	return ""
}
