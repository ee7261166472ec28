package session

import (
	"crypto/sha256"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uabinary"
)

// The states of a session. Store.mu is held for every change; Lookup reads
// without it.
const (
	stateCreated uint32 = iota // never activated
	stateActive
	stateClosed
)

// Session is one session of a [Store]. Its methods are safe for concurrent use.
type Session struct {
	// Continuations, Publishing, Registered and Running belong to the packages
	// above, which keep there what they hold for a session. The Store neither
	// reads nor writes them.
	Continuations, Publishing, Registered, Running atomic.Value

	store    *Store
	token    [tokenLength]byte
	id       uabinary.NodeID
	name     string
	endpoint string // the EndpointUrl of CreateSession
	server   string // the ServerUri of CreateSession
	client   *ua.ApplicationDescription
	timeout  time.Duration
	maxReply uint32
	owner    string
	created  time.Time
	done     chan struct{}

	state       atomic.Uint32
	bound       atomic.Pointer[binding]
	lastContact atomic.Int64 // since Store.epoch
	caller      atomic.Pointer[addressspace.Caller]
	identity    atomic.Pointer[Identity]
	reason      atomic.Uint32 // CloseReason, once closed
	counters    [serviceCount]counter

	activating sync.Mutex // serialises ActivateSession; taken before Store.mu

	// Guarded by Store.mu.
	nonce       [nonceLength]byte
	policy      *security.Policy // of the channel it was last bound to
	mode        ua.MessageSecurityMode
	application [sha256.Size]byte // of the client's certificate; zero under None
	chain       []byte            // that certificate and what issuers came with it; nil under None
	remote      netip.Addr        // of the channel it was last bound to
	due         int64             // position in the deadline heap, since Store.epoch
	heapIndex   int               // -1 when not in it
	detached    int64             // when its channel went, while it is in Store.gone
	provisional bool              // created in a full table, see Store.provisional
	prev, next  *Session          // in a sessionQueue
}

// ID is the SessionId, the one shown to others; the authentication token is
// never shown.
func (s *Session) ID() uabinary.NodeID { return s.id }

// Name is the SessionName the client chose, or one the server made up. It is
// the client's bytes, not necessarily valid UTF-8, at most 512 of them.
func (s *Session) Name() string { return s.name }

// Channel is the channel the session is bound to; nil while there is none.
func (s *Session) Channel() Channel {
	if b := s.bound.Load(); b != nil {
		return b.ch
	}
	return nil
}

// Caller is who acts through the session. It is immutable; each ActivateSession
// makes a new one. Before the first it is the anonymous caller without rights.
func (s *Session) Caller() *addressspace.Caller { return s.caller.Load() }

// Identity is the identity of the last successful ActivateSession; nil before.
func (s *Session) Identity() *Identity { return s.identity.Load() }

// LocaleIDs are the preferred locales, best first. Not to be changed.
func (s *Session) LocaleIDs() []string { return s.caller.Load().Locales }

// MaxResponseMessageSize is the largest response body the client takes, in
// bytes, as it said in CreateSession; 0 means no limit.
func (s *Session) MaxResponseMessageSize() uint32 { return s.maxReply }

// Timeout is the revised session timeout.
func (s *Session) Timeout() time.Duration { return s.timeout }

// ClientDescription describes the client application. Not to be changed.
func (s *Session) ClientDescription() *ua.ApplicationDescription { return s.client }

// EndpointURL is the endpoint URL of CreateSession.
func (s *Session) EndpointURL() string { return s.endpoint }

// Created is when the session was created.
func (s *Session) Created() time.Time { return s.created }

// LastContact is when the client last used the session.
func (s *Session) LastContact() time.Time {
	return s.store.epoch.Add(time.Duration(s.lastContact.Load()))
}

// Activated tells whether the session is activated and not closed.
func (s *Session) Activated() bool { return s.state.Load() == stateActive }

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Reason is why the session ended; meaningful once Done is closed.
func (s *Session) Reason() CloseReason { return CloseReason(s.reason.Load()) }

// Tenant is the tenant of the session's identity, "" without one.
func (s *Session) Tenant() string {
	if id := s.identity.Load(); id != nil {
		return id.Tenant
	}
	return ""
}

// chainOf is the certificate of the application behind ch with the issuers that
// came with it, if the channel tells of them.
func chainOf(ch Channel) []byte {
	if c, ok := ch.(interface{ PeerChain() []byte }); ok {
		return c.PeerChain()
	}
	return ch.PeerCertificate()
}

// applicationOf identifies the application behind ch by its certificate; all
// zero when there is none.
func applicationOf(ch Channel) (sum [sha256.Size]byte) {
	if der := ch.PeerCertificate(); len(der) > 0 {
		sum = sha256.Sum256(der)
	}
	return sum
}
