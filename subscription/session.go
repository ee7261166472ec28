package subscription

import (
	"bytes"
	"crypto/sha256"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// Session is what the engine needs to know of a session; *session.Session is one. Implementations are pointers: they are
// compared and used as map keys. Done must be closed before [Engine.SessionClosed] is called.
type Session interface {
	ID() uabinary.NodeID
	Channel() session.Channel // nil while the session has none
	Caller() *addressspace.Caller
	MaxResponseMessageSize() uint32
	ClientDescription() *ua.ApplicationDescription
	Done() <-chan struct{}
}

func ended(s Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// identity is who a subscription belongs to, for TransferSubscriptions.
type identity struct {
	user        string
	anonymous   bool
	application string // ApplicationUri
	secure      bool   // mode Sign or SignAndEncrypt
	certificate [sha256.Size]byte
}

// identify returns the identity of a session; ch is its channel and may be nil, then what the channel showed before is kept.
func identify(s Session, ch session.Channel, before identity) identity {
	id := before
	if c := s.Caller(); c != nil {
		id.user, id.anonymous = c.User, c.Anonymous
	}
	if d := s.ClientDescription(); d != nil {
		id.application = d.ApplicationURI
	}
	if ch != nil {
		id.secure = ch.SecurityMode() != ua.MessageSecurityModeNone
		id.certificate = sha256.Sum256(ch.PeerCertificate())
	}
	return id
}

// mayTake reports whether a client of identity id may take over a subscription of old: the same user who is not anonymous, or,
// of anonymous clients, the same ApplicationUri with both sessions on channels of mode Sign or SignAndEncrypt (OPC 10000-4
// §5.14.7.1 TransferSubscriptions). An ApplicationUri is what the certificate behind it proves, so that must be the same, too.
// Without security nothing proves anything, and whoever knows or guesses a SubscriptionId is refused, also when the session
// that had the subscription is gone.
func (id identity) mayTake(old identity) bool {
	switch {
	case id.anonymous != old.anonymous || id.user != old.user:
		return false
	case !id.anonymous:
		return true
	}
	return id.secure && old.secure && id.sameClient(old)
}

// sameClient reports whether both say that they are the same application.
func (id identity) sameClient(other identity) bool {
	return id.application == other.application && id.certificate == other.certificate
}

// ownerOf is whom a session's subscriptions count against unless Options.Owner says otherwise.
func ownerOf(s Session) string {
	if c := s.Caller(); c != nil && !c.Anonymous && c.User != "" {
		return "user " + c.User
	}
	ch := s.Channel()
	if ch == nil {
		return ""
	}
	if cert := ch.PeerCertificate(); len(bytes.TrimSpace(cert)) > 0 {
		sum := sha256.Sum256(cert)
		return "certificate " + string(sum[:])
	}
	a := ch.RemoteAddr().Addr().Unmap()
	if a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return "address " + p.String()
		}
	}
	return "address " + a.String()
}
