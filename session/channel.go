package session

import (
	"context"
	"net/netip"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
)

// Channel is what a session needs to know of the SecureChannel (or, over HTTPS,
// the endpoint) it is used through. Implementations are pointers: a Channel is
// compared with == and used as a map key.
type Channel interface {
	// ID is the SecureChannelId.
	ID() uint32
	// SecurityPolicy is the policy of the channel, never nil.
	SecurityPolicy() *security.Policy
	// SecurityMode is the MessageSecurityMode of the channel.
	SecurityMode() ua.MessageSecurityMode
	// PeerCertificate is the client's application instance certificate, the
	// leaf as DER; nil under policy None.
	PeerCertificate() []byte
	// RemoteAddr is the client's address.
	RemoteAddr() netip.AddrPort
	// LocalAddr is the address the client reached.
	LocalAddr() netip.AddrPort
	// EndpointURL is the URL the client gave when it connected.
	EndpointURL() string
	// Reply sends the response to one request.
	Reply(requestID uint32, body []byte) error
	// MaxResponseSize is the largest response the peer takes in bytes; 0 means
	// that it named no limit.
	MaxResponseSize() int
	// Close ends the channel without waiting for it.
	Close(reason transport.CloseReason, code ua.StatusCode)
	// Done is closed when the channel has ended, before [Store.ChannelClosed] is
	// called for it. It lets the Store refuse to bind a session to a channel that
	// went away while the request was being worked on.
	Done() <-chan struct{}
	// SessionAttached and SessionDetached keep the number of activated sessions
	// bound to the channel. They must not block or call the Store. A channel that
	// also has KeepUntil(time.Time) is asked not to give its place to a newcomer
	// while a session that was created on it waits for its activation.
	SessionAttached()
	SessionDetached()
}

// Introduced is what a Channel also is that has no security of its own, where
// CreateSession introduces the client: over HTTPS and WebSockets with JSON. When
// ActivateSession comes on such a channel that knows no certificate, for a session
// that lost its own, it is given the one of CreateSession.
type Introduced interface {
	Channel
	// TakeCertificate validates the client's certificate, as DER with its issuers
	// behind it, under a policy other than None. It is called behind the Gate;
	// after it PeerCertificate gives the leaf. That the client has the key is not
	// known before its first ActivateSession.
	TakeCertificate(ctx context.Context, chain []byte) error
	// SessionBound and SessionUnbound keep the number of sessions bound to the
	// channel, activated or not. They must not block or call the Store.
	SessionBound()
	SessionUnbound()
}

// Confidential is an optional part of a Channel: its transport hides what
// passes, so that a password may pass without encryption of its own where a
// UserTokenPolicy of policy None allows it (OPC 10000-6 §7.4.1).
type Confidential interface{ Confidential() bool }

func confidential(ch Channel) bool {
	c, ok := ch.(Confidential)
	return ok && c.Confidential()
}

// binding is the channel a session is bound to. Sessions point to it
// atomically, so that Lookup needs no lock.
type binding struct{ ch Channel }

// attachment is what the Store knows about one channel that has sessions.
type attachment struct {
	sessions []*Session
	inactive int // how many of them were never activated
}

// keepAfterCreate is how long a channel is spared after CreateSession. A client
// activates at once; a request that is being worked on keeps the channel anyway.
const keepAfterCreate = 5 * time.Second

func ended(ch Channel) bool {
	select {
	case <-ch.Done():
		return true
	default:
		return false
	}
}

// attachLocked binds s to ch. Store.mu is held.
func (st *Store) attachLocked(s *Session, ch Channel) {
	at := st.channels[ch]
	if at == nil {
		at = new(attachment)
		st.channels[ch] = at
	}
	at.sessions = append(at.sessions, s)
	s.bound.Store(&binding{ch})
	if i, ok := ch.(Introduced); ok {
		i.SessionBound()
	}
	if s.state.Load() == stateCreated {
		at.inactive++
	} else {
		ch.SessionAttached()
	}
}

// detachLocked takes s off the channel it is bound to, if any. Store.mu is held.
func (st *Store) detachLocked(s *Session) {
	b := s.bound.Swap(nil)
	if b == nil {
		return
	}
	at := st.channels[b.ch]
	for i, o := range at.sessions {
		if o == s {
			last := len(at.sessions) - 1
			at.sessions[i] = at.sessions[last]
			at.sessions[last] = nil
			at.sessions = at.sessions[:last]
			break
		}
	}
	if len(at.sessions) == 0 {
		delete(st.channels, b.ch)
	}
	if s.state.Load() == stateCreated {
		at.inactive--
	} else {
		b.ch.SessionDetached()
	}
	if i, ok := b.ch.(Introduced); ok {
		i.SessionUnbound()
	}
}
