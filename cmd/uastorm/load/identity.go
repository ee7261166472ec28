package load

import (
	"bytes"
	"context"
	"errors"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/gopcua/opcua/ua"
)

// An Identity is the user of all sessions. The zero value is anonymous.
type Identity struct {
	// User and Password of a user name token.
	User     string
	Password []byte
	// Key of a user certificate; counts before User.
	Key *security.Key
}

func (id Identity) kind() ua.UserTokenType {
	switch {
	case id.Key != nil:
		return ua.UserTokenTypeCertificate
	case id.User != "":
		return ua.UserTokenTypeUserName
	}
	return ua.UserTokenTypeAnonymous
}

// String names the kind, and never the user.
func (id Identity) String() string {
	switch id.kind() {
	case ua.UserTokenTypeCertificate:
		return "user certificate"
	case ua.UserTokenTypeUserName:
		return "user name and password"
	}
	return "anonymous user"
}

// priority is that of all private-key work. The clients of this process share a
// gate: with one priority the first to come is the first served, and none is
// overtaken by those who are a step further.
const priority = security.PriorityRenew

// tokens makes the UserIdentityToken and its signature (OPC 10000-4 §7.40) for
// the server's last nonce.
func (t *Target) tokens(ctx context.Context, nonce []byte) (any, *ua.SignatureData, error) {
	id, none := t.identity, &ua.SignatureData{}
	switch id.kind() {
	case ua.UserTokenTypeUserName:
		token := &ua.UserNameIdentityToken{PolicyID: t.token.PolicyID, UserName: id.User, Password: id.Password}
		if t.tokenPolicy.IsNone() {
			return token, none, nil
		}
		var err error
		token.EncryptionAlgorithm = t.tokenPolicy.EncryptionURI()
		token.Password, err = t.tokenPolicy.EncryptSecret(t.public, id.Password, nonce)
		return token, none, err
	case ua.UserTokenTypeCertificate:
		if t.tokenPolicy.IsNone() {
			return nil, nil, errors.New("the server has no security policy for user certificates")
		}
		sig, err := t.tokenPolicy.Sign(ctx, id.Key, priority, append(bytes.Clone(t.certificate), nonce...))
		return &ua.X509IdentityToken{PolicyID: t.token.PolicyID, CertificateData: id.Key.Certificate()},
			&ua.SignatureData{Algorithm: t.tokenPolicy.SignatureURI(), Signature: sig}, err
	}
	return &ua.AnonymousIdentityToken{PolicyID: t.token.PolicyID}, none, nil
}
