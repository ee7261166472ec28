package session

import (
	"bytes"
	"context"
	"crypto/x509"
	"net/netip"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// Identity is who a session acts for, as an [Authenticator] decided. It is not
// changed after it was returned.
type Identity struct {
	Kind        ua.UserTokenType
	User        string // unique name within the server; "" for anonymous
	Tenant      string // admission scope; "" is the default tenant
	Admin       bool   // may call administrative methods
	Certificate []byte // the user's certificate as DER, for Kind Certificate
}

// same tells whether o is the same identity, as OPC 10000-4 §5.7.3
// (ActivateSession) asks of a session that moves to another channel. Rights may
// have changed meanwhile.
func (id *Identity) same(o *Identity) bool {
	return id.Kind == o.Kind && id.User == o.User && bytes.Equal(id.Certificate, o.Certificate)
}

// Attempt is one try to authenticate. The cryptographic proof has been checked:
// the password is what the client encrypted for this session's nonce, the
// certificate signed that nonce and is trusted. Password is wiped after the call.
type Attempt struct {
	Kind           ua.UserTokenType
	PolicyID       string
	User           string            // for UserName
	Password       []byte            // for UserName
	Certificate    *x509.Certificate // for Certificate
	Remote         netip.AddrPort
	SecurityPolicy *security.Policy // of the channel
	SecurityMode   ua.MessageSecurityMode
	Application    []byte // the client's application certificate, DER; nil under None
}

// Authenticator decides whether an identity may use the server.
type Authenticator interface {
	// Authenticate returns the identity or an error whose code (uastatus.Code) is
	// BadUserAccessDenied, BadIdentityTokenRejected, BadIdentityTokenInvalid or
	// BadServerTooBusy; any other error is answered with BadUserAccessDenied. The
	// error text goes to the log at warning level: no secrets, no user names.
	Authenticate(ctx context.Context, a *Attempt) (*Identity, error)
	// TokenTypes are the kinds of identity it can decide about.
	TokenTypes() []ua.UserTokenType
}

// Anonymous lets everybody in who gives no identity.
type Anonymous struct{}

// Authenticate implements [Authenticator].
func (Anonymous) Authenticate(_ context.Context, a *Attempt) (*Identity, error) {
	if a.Kind != ua.UserTokenTypeAnonymous {
		return nil, uastatus.New(ua.StatusBadIdentityTokenRejected, "authenticate", errKindNotOffered)
	}
	return &Identity{Kind: ua.UserTokenTypeAnonymous}, nil
}

// TokenTypes implements [Authenticator].
func (Anonymous) TokenTypes() []ua.UserTokenType {
	return []ua.UserTokenType{ua.UserTokenTypeAnonymous}
}

// Identities is the usual [Authenticator]: any of anonymous, users of a file
// and X.509 certificates. The zero value lets nobody in.
type Identities struct {
	// Anonymous lets clients in that give no identity.
	Anonymous bool
	// Users checks user names and passwords. nil: none are accepted.
	Users *Users
	// Certificates accepts users with a trusted certificate.
	Certificates bool
	// CertificateUser says who the holder of a trusted certificate is. Kind and
	// Certificate of its result are filled in. nil: the user of Users whose
	// certificate it is, else one named after the certificate's subject who is no
	// administrator.
	CertificateUser func(*x509.Certificate) (*Identity, error)
}

// TokenTypes implements [Authenticator].
func (d *Identities) TokenTypes() []ua.UserTokenType {
	var kinds []ua.UserTokenType
	if d.Anonymous {
		kinds = append(kinds, ua.UserTokenTypeAnonymous)
	}
	if d.Users != nil {
		kinds = append(kinds, ua.UserTokenTypeUserName)
	}
	if d.Certificates {
		kinds = append(kinds, ua.UserTokenTypeCertificate)
	}
	return kinds
}

// Authenticate implements [Authenticator].
func (d *Identities) Authenticate(ctx context.Context, a *Attempt) (*Identity, error) {
	switch {
	case a.Kind == ua.UserTokenTypeAnonymous && d.Anonymous:
		return &Identity{Kind: a.Kind}, nil
	case a.Kind == ua.UserTokenTypeUserName && d.Users != nil:
		u, err := d.Users.Verify(ctx, a.User, a.Password, a.Remote.Addr())
		if err != nil {
			return nil, err
		}
		return &Identity{Kind: a.Kind, User: u.Name, Tenant: u.Tenant, Admin: u.Admin}, nil
	case a.Kind == ua.UserTokenTypeCertificate && d.Certificates:
		id := &Identity{User: truncate(a.Certificate.Subject.String(), maxUserNameLength)}
		if d.CertificateUser != nil {
			own, err := d.CertificateUser(a.Certificate)
			if err != nil {
				return nil, err
			}
			*id = *own
		} else if d.Users != nil {
			if u, ok := d.Users.OfCertificate(a.Certificate.Raw); ok {
				id.User, id.Tenant, id.Admin = u.Name, u.Tenant, u.Admin
			}
		}
		id.Kind, id.Certificate = a.Kind, a.Certificate.Raw
		return id, nil
	}
	return nil, uastatus.New(ua.StatusBadIdentityTokenRejected, "authenticate", errKindNotOffered)
}
