package session

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/security"
)

// Bounds that are not options. Each names what it stops.
const (
	nonceLength       = 32   // server nonces, also under policy None: node-opcua refuses shorter ones
	maxClientNonce    = 128  // OPC 10000-4 §5.7.2 CreateSession: 32 to 128 bytes
	maxNameLength     = 512  // session names kept for diagnostics; longer ones are cut
	maxURILength      = 4096 // URIs and URLs kept for diagnostics; longer ones are cut
	maxDiscoveryURLs  = 8    // of a ClientDescription, kept for diagnostics
	maxLocales        = 16   // LocaleIds kept per session
	maxLocaleLength   = 64   // a longer LocaleId is dropped
	maxUserNameLength = 256  // bytes of UTF-8
	maxPasswordLength = 512  // bytes; bounds the RSA blocks of an encrypted password
	maxUserCertLength = 32 << 10
	maxSignature      = 2048 // 16,384-bit RSA
)

// Options configure a [Store]. The zero value works, except that policies other
// than None need Key.
type Options struct {
	// MaxSessions bounds the session table. 0 or negative: 1000.
	MaxSessions int
	// MaxInactivePerChannel bounds the never-activated sessions of one channel.
	// 0 or negative: 10.
	MaxInactivePerChannel int
	// MinTimeout and MaxTimeout clamp the requested session timeout.
	// 0 or negative: 10 s and 1 h.
	MinTimeout, MaxTimeout time.Duration
	// ActivationTimeout is how long a session may stay unactivated. 0 or
	// negative: 30 s.
	ActivationTimeout time.Duration
	// EvictionAge is the age a never-activated session must have before it can
	// be evicted for a new one. 0 or negative: 1 s.
	EvictionAge time.Duration
	// EvictDetached lets a newcomer into a full table, in the place of an
	// activated session whose channel has been gone for half its timeout and for
	// 10 s. That session ends only when the newcomer's ActivateSession has
	// succeeded; one of the same user goes first, else the one that has been
	// without a channel longest. False: such sessions keep their place until they
	// time out.
	EvictDetached bool
	// MaxConcurrentEstablishment bounds the CreateSession and ActivateSession
	// calls in flight; ignored when Gate is set. 0 or negative:
	// max(8 × CPUs, 128).
	MaxConcurrentEstablishment int
	// Gate is asked for each CreateSession and ActivateSession after the request
	// is validated and before any certificate or private key is used. nil: the
	// plain bound of MaxConcurrentEstablishment.
	Gate Gate

	// Preference puts the private-key operations of a call ahead of others of
	// the same kind: 0 (everybody), 1 or 2, see security.Priority.Preferred. ctx
	// is that of the call. nil: 0.
	Preference func(ctx context.Context) int

	// Key is the server's application instance certificate with its private key.
	// nil: only policy None and identities without secrets work.
	Key *security.Key
	// ApplicationURI is the server's; a serverUri in CreateSession must equal it.
	// Empty: taken from the endpoint that matches the channel; without one the
	// serverUri is not checked.
	ApplicationURI string
	// MaxRequestMessageSize is announced to clients, in bytes. 0: no limit is
	// announced.
	MaxRequestMessageSize uint32
	// Endpoints lists the endpoints a client on ch that used endpointURL may see.
	// CreateSession echoes them and the user token policies of the one that
	// matches the channel apply. nil: nothing is echoed and the policies are
	// those of [TokenPolicies] for what the Authenticator takes.
	Endpoints func(ch Channel, endpointURL string) []*ua.EndpointDescription

	// Authenticator decides about identities whose proof the Store has checked.
	// nil: [Anonymous].
	Authenticator Authenticator
	// ValidateUserCertificate decides whether an X.509 user certificate (leaf,
	// then issuers, as DER) is trusted. It is called after the signature made with
	// it was found right; ch, which it came on, is for the log. nil: every user certificate is refused.
	ValidateUserCertificate func(ctx context.Context, ch Channel, chain []byte, policy *security.Policy) error

	// Owner names who a never-activated session counts for. nil: the client's
	// certificate, else its address (IPv6 by /64).
	Owner func(ch Channel) string

	// OnActivate is called after each successful ActivateSession, before it is
	// answered. from is the channel the session was bound to before when that is
	// another one than now: nil also when that channel had gone. first tells the
	// first activation. nil: not called.
	OnActivate func(s *Session, from Channel, first bool)
	// OnClose is called exactly once for each session that ends, without any lock
	// held, possibly on the goroutine that reads a connection. nil: not called.
	OnClose func(s *Session, deleteSubscriptions bool)
	// Logger receives the audit lines. nil: none are written.
	Logger *slog.Logger
}

func orInt(v, def int) int {
	if v <= 0 {
		return def
	}
	return v
}

func orDuration(v, def time.Duration) time.Duration {
	if v <= 0 {
		return def
	}
	return v
}

// resolved returns a copy with the defaults filled in.
func (o Options) resolved() Options {
	o.MaxSessions = orInt(o.MaxSessions, 1000)
	o.MaxInactivePerChannel = orInt(o.MaxInactivePerChannel, 10)
	o.MinTimeout = orDuration(o.MinTimeout, 10*time.Second)
	o.MaxTimeout = max(orDuration(o.MaxTimeout, time.Hour), o.MinTimeout)
	o.ActivationTimeout = orDuration(o.ActivationTimeout, 30*time.Second)
	o.EvictionAge = orDuration(o.EvictionAge, time.Second)
	o.MaxConcurrentEstablishment = orInt(o.MaxConcurrentEstablishment, max(8*runtime.NumCPU(), 128))
	if o.Gate == nil {
		o.Gate = ConcurrencyGate(o.MaxConcurrentEstablishment)
	}
	if o.Preference == nil {
		o.Preference = func(context.Context) int { return 0 }
	}
	if o.Authenticator == nil {
		o.Authenticator = Anonymous{}
	}
	if o.Owner == nil {
		o.Owner = defaultOwner
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
