package subscription

import (
	"bytes"
	"crypto/sha256"
	"net/netip"

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
	address     netip.Addr
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
		id.address = ch.RemoteAddr().Addr().Unmap()
	}
	return id
}

// mayTake reports whether a client of identity id may take over a subscription of old: "operating on behalf of the same
// user" (OPC 10000-4 §5.14.7 TransferSubscriptions). An anonymous client proves nothing by its user: it must be the same
// application on a secured channel. Without security nothing proves anything; there the old session must have lost its
// channel and the address be the same, which lets a client come back after a broken connection and nobody take a living
// subscription away.
func (id identity) mayTake(old identity, oldChannelGone bool) bool {
	switch {
	case id.anonymous != old.anonymous || id.user != old.user:
		return false
	case !id.anonymous:
		return true
	case id.application != old.application || id.secure != old.secure:
		return false
	case id.secure:
		return id.certificate == old.certificate
	}
	return oldChannelGone && id.address == old.address
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
