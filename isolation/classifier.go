package isolation

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
)

// ServiceKind is what a classifier may know of a request.
type ServiceKind uint8

// The kinds.
const (
	Other     ServiceKind = iota
	Establish             // creates or activates a session
	Close                 // cancels requests or closes a session
)

// OwnerClaim is an owner as a classifier names it.
type OwnerClaim struct {
	// Key of the owner; 1 to MaxOwnerKeyLength bytes.
	Key string
	// Class of its work.
	Class Class
}

// ChannelFacts is what a server knows of a channel.
type ChannelFacts struct {
	ID     uint32
	Remote netip.AddrPort
	Local  netip.AddrPort
	// Certificate is the peer's verified application certificate (DER). It is
	// hidden (nil) without security: an unproven certificate is no evidence.
	Certificate []byte
	// Ingress is what the connection was claimed as before any byte; the zero
	// value when nobody claimed it.
	Ingress OwnerClaim
	// Evidence changes whenever one of the above does.
	Evidence uint64
}

// BindingFacts is what a server knows of the live session that a request
// belongs to, on the channel it came on.
type BindingFacts struct {
	User      string // empty for an anonymous user
	SessionID string
}

// Classifier names the owners of connections and requests. It is where a
// deployment says which of its network paths or certificates may use reserved
// room; by itself, no address and no earlier success is a proof of anything.
// Its methods are called on hot paths, concurrently, and must not block.
type Classifier interface {
	// ClassifyIngress claims a connection by its addresses before any byte of
	// it was read; ok false leaves it to the default.
	ClassifyIngress(remote, local netip.AddrPort) (claim OwnerClaim, ok bool)
	// Classify claims a request. binding is nil without a live session on this
	// channel; ok false leaves it to the ingress claim or the default.
	Classify(kind ServiceKind, channel *ChannelFacts, binding *BindingFacts) (claim OwnerClaim, ok bool)
}

// AddressKey is the default key of a connection: its remote address, whatever
// the port (IPv4-mapped is IPv4, IPv6 counts by /64), in 4 or 16 bytes. They are
// short enough to need no digest, which every connect would pay for.
func AddressKey(remote netip.Addr) string {
	return "addr:" + string(AddressBlock(remote).Addr().AsSlice())
}

// UserKey is the default key of a request of a named user.
func UserKey(user string) string { return "user:" + digest([]byte(user)) }

// CertificateKey is the default key of a request on a secured channel.
func CertificateKey(der []byte) string { return "cert:" + digest(der) }

// digest keeps keys short and of one length, whatever the peer sent.
func digest(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:16])
}

// ClassifyIngress returns who a new connection belongs to: what the classifier
// claims, else its address with class Established. c may be nil.
func ClassifyIngress(c Classifier, remote, local netip.AddrPort) (claim OwnerClaim, claimed bool) {
	if c != nil {
		if claim, ok := c.ClassifyIngress(remote, local); ok {
			return claim, true
		}
	}
	return OwnerClaim{Key: AddressKey(remote.Addr()), Class: Established}, false
}

// Classify returns who a request belongs to: what the classifier claims, else
// what claimed its connection, else the default. The default key is the
// binding's user, else the verified certificate, else the address; the default
// class is Control for Close and Reconnect for Establish when there is a live
// binding on the channel, and Established otherwise. c may be nil.
func Classify(c Classifier, kind ServiceKind, channel *ChannelFacts, binding *BindingFacts) OwnerClaim {
	if c != nil {
		if claim, ok := c.Classify(kind, channel, binding); ok {
			return claim
		}
	}
	if channel.Ingress.Key != "" {
		return channel.Ingress
	}
	claim := OwnerClaim{Class: Established}
	if binding != nil {
		switch kind {
		case Close:
			claim.Class = Control
		case Establish:
			claim.Class = Reconnect
		}
	}
	switch {
	case binding != nil && binding.User != "":
		claim.Key = UserKey(binding.User)
	case len(channel.Certificate) > 0:
		claim.Key = CertificateKey(channel.Certificate)
	default:
		claim.Key = AddressKey(channel.Remote.Addr())
	}
	return claim
}
