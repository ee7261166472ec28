package client

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

// Options configure a session. The zero value wants the strongest security that
// the server offers, so it needs a Key and either PKI or VerifyServer; a
// connection without security must be asked for by name:
//
//	client.Options{Policy: security.None}
//
// Connect resolves the defaults into a copy.
type Options struct {
	// ApplicationName for the server's diagnostics. Empty: "Breakwater client".
	ApplicationName string
	// ApplicationURI must be the URI in the certificate of Key. Empty: taken from
	// there, without a key "urn:breakwater:client".
	ApplicationURI string
	// SessionName for the server's diagnostics. Empty: ApplicationName.
	SessionName string
	// Locales that texts are wanted in, the best first. Empty: the server's choice.
	Locales []string

	// Policy of the secure channel. nil: the strongest one offered that is not
	// deprecated. security.None must be named.
	Policy *security.Policy
	// Mode of the secure channel. 0: SignAndEncrypt when it is offered, else Sign.
	// Over opc.https TLS does both, so with a server that TLS verifies every mode is
	// as good as the one asked for (OPC 10000-6 §7.4.1, OPC UA HTTPS).
	Mode ua.MessageSecurityMode
	// Key is the certificate and private key of this application; see [LoadKey].
	// Not needed for security.None. The session uses its gate and does not close it.
	Key *security.Key
	// PKI is the trust list that server certificates are checked against, on every
	// connection: chain, validity, host name, ApplicationUri, revocation.
	PKI *pki.Store
	// VerifyServer, when set, has the last word on a server's certificate: it is
	// called after PKI's checks, or instead of them when PKI is nil. An error
	// refuses the server. It runs on the session's own goroutine: calls of that
	// session made from it wait until they time out, Close included.
	VerifyServer func(ctx context.Context, s Server) error
	// InsecureSkipHostName accepts certificates for another host name than the
	// URL's. For servers behind address translation whose certificate is known.
	InsecureSkipHostName bool
	// InsecureSkipEndpointCheck accepts a CreateSession response whose endpoints
	// are not those of discovery, which is how a downgrade shows.
	InsecureSkipEndpointCheck bool
	// InsecurePlaintextPassword sends passwords and issued tokens in the clear when
	// the server's endpoint has neither an encrypting channel nor a policy for tokens.
	InsecurePlaintextPassword bool

	// Identity of the user. nil: [Anonymous].
	Identity Identity

	// Endpoint skips discovery: it is used as it stands. nil: the server is asked.
	Endpoint *ua.EndpointDescription
	// UseEndpointURL connects to the host that the chosen endpoint names instead of
	// the one in the URL. Off, because servers often name hosts that only they know.
	UseEndpointURL bool

	// SessionTimeout asked for: how long the server keeps the session without
	// hearing of it. 0: 1 min.
	SessionTimeout time.Duration
	// KeepAlive is the longest time between two signs of life. It is never more
	// than half the timeout that the server grants, but at least 1 s. 0: half.
	KeepAlive time.Duration
	// RequestTimeout bounds calls whose context has no deadline, waiting for a
	// recovery included, and the session's own calls. 0: 10 s.
	RequestTimeout time.Duration
	// ConnectTimeout bounds one attempt: connecting, handshake, and each of
	// discovery, CreateSession and ActivateSession. 0: 30 s.
	ConnectTimeout time.Duration
	// TokenLifetime asked for; tokens are renewed after 75 % of what is granted. 0: 1 h.
	TokenLifetime time.Duration

	// Reconnect says how long to wait before attempts. nil: reconnect.Policy{}.
	Reconnect reconnect.Delays
	// Gate bounds how many sessions connect for the first time at once. nil: no bound.
	Gate *ConnectGate
	// Transport opens channels. nil: ByScheme{}.
	Transport Transport
	// TLS of opc.wss and opc.https.
	TLS TLSOptions

	// MaxPublishRequests bounds the Publish requests at the server. 0 and more than
	// 10: 10. There are never more than one per subscription and one besides.
	MaxPublishRequests int
	// MaxQueuedNotifications bounds what one subscription holds for its reader. 0: 10,000.
	//
	// When all subscriptions of the session are over it no Publish requests are sent
	// until half is taken: the server queues then, within its own bounds. What is
	// under way (MaxPublishRequests) is still taken. Publish requests are the
	// session's, not a subscription's (OPC 10000-4 §5.14.5, Publish), so they are sent
	// all the same 1 s after a queue has become full when another subscription has
	// room, and after a third of a subscription's lifetime in any case. A full queue
	// then drops its oldest notifications, but never the newest of an item, so the
	// bound is twice the number of items when that is more; [Notification].Dropped
	// tells the reader how many, and the log once until half is taken (Warn).
	MaxQueuedNotifications int
	// MaxReferences bounds the references of one Browse and the nodes of one Walk.
	// 0: 1,000,000.
	MaxReferences int
	// MaxNameLength bounds browse names and display names in bytes; a reference
	// with a longer one is an error. 0: 4,096.
	MaxNameLength int

	// Limits of what the client receives. The zero value: see transport.Limits.
	Limits transport.Limits
	// DecodeLimits bound the memory of one response. The zero value: see uabinary.Limits.
	DecodeLimits uabinary.Limits

	// Logger; nil: slog.Default(). Nothing a server sends is logged unquoted.
	Logger *slog.Logger
}

// Server is who a certificate claims to be.
type Server struct {
	// URL that is being connected to.
	URL string
	// Endpoint as the server describes it.
	Endpoint *ua.EndpointDescription
	// Chain is the certificate and its issuers, DER, leaf first.
	Chain []byte
	// Policy that the certificate will be used with.
	Policy *security.Policy
}

// OptionError names an option that cannot work.
type OptionError struct {
	Field, Reason string
}

// Error names the field and what is wrong with it.
func (e *OptionError) Error() string { return "client: Options." + e.Field + ": " + e.Reason }

// maxPublishing bounds the Publish requests of a session at the server
// (hostile.md C18).
const maxPublishing = 10

// Validate reports the first option that cannot work, as *OptionError.
func (o *Options) Validate() error {
	bad := func(field, format string, args ...any) error {
		return &OptionError{field, fmt.Sprintf(format, args...)}
	}
	none := o.Policy != nil && o.Policy.IsNone()
	switch {
	case none && o.Mode != ua.MessageSecurityModeInvalid && o.Mode != ua.MessageSecurityModeNone:
		return bad("Mode", "policy None has no mode %v", o.Mode)
	case !none && o.Mode == ua.MessageSecurityModeNone:
		return bad("Mode", "None needs Policy: security.None")
	case o.Mode > ua.MessageSecurityModeSignAndEncrypt:
		return bad("Mode", "%d is no mode", o.Mode)
	case !none && o.Key == nil:
		return bad("Key", "a secured channel needs one; see LoadKey, or set Policy: security.None")
	case !none && o.PKI == nil && o.VerifyServer == nil:
		return bad("PKI", "a secured channel needs PKI or VerifyServer")
	case o.Endpoint != nil && none != (o.Endpoint.SecurityMode == ua.MessageSecurityModeNone):
		return bad("Endpoint", "its mode %v does not go with the policy", o.Endpoint.SecurityMode)
	}
	if reason := incomplete(o.Identity); reason != "" {
		return bad("Identity", "%s", reason)
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"SessionTimeout", o.SessionTimeout}, {"KeepAlive", o.KeepAlive}, {"RequestTimeout", o.RequestTimeout}, {"ConnectTimeout", o.ConnectTimeout}, {"TokenLifetime", o.TokenLifetime}} {
		if d.v < 0 || d.v > math.MaxUint32*time.Millisecond {
			return bad(d.name, "%v, need 0 to %v", d.v, math.MaxUint32*time.Millisecond)
		}
	}
	for _, n := range []struct {
		name string
		v    int
	}{{"MaxPublishRequests", o.MaxPublishRequests}, {"MaxQueuedNotifications", o.MaxQueuedNotifications}, {"MaxReferences", o.MaxReferences}, {"MaxNameLength", o.MaxNameLength}} {
		if n.v < 0 {
			return bad(n.name, "%d is negative", n.v)
		}
	}
	if err := o.Limits.Validate(); err != nil {
		return bad("Limits", "%v", err)
	}
	return nil
}

func (o Options) resolved() Options {
	text := func(s *string, d string) {
		if *s == "" {
			*s = d
		}
	}
	dur := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	num := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	text(&o.ApplicationName, "Breakwater client")
	text(&o.SessionName, o.ApplicationName)
	if o.Key != nil {
		text(&o.ApplicationURI, pki.ApplicationURI(o.Key.Leaf()))
	}
	text(&o.ApplicationURI, "urn:breakwater:client")
	if o.Identity == nil {
		o.Identity = Anonymous{}
	}
	dur(&o.SessionTimeout, time.Minute)
	dur(&o.RequestTimeout, 10*time.Second)
	dur(&o.ConnectTimeout, 30*time.Second)
	dur(&o.TokenLifetime, time.Hour)
	if o.Transport == nil {
		o.Transport = ByScheme{}
	}
	num(&o.MaxPublishRequests, maxPublishing)
	o.MaxPublishRequests = min(o.MaxPublishRequests, maxPublishing)
	num(&o.MaxQueuedNotifications, 10_000)
	num(&o.MaxReferences, 1_000_000)
	num(&o.MaxNameLength, 4096)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Limits = o.Limits.Resolved()
	if o.DecodeLimits.MaxMessageSize == 0 {
		o.DecodeLimits.MaxMessageSize = o.Limits.MaxMessageSize
	}
	return o
}

// LoadKey returns the application's certificate and key from a PKI folder and
// makes them when there are none. Private-key work runs on gate.
func LoadKey(store *pki.Store, app pki.AppInfo, gate *security.CryptoGate) (*security.Key, error) {
	chain, key, _, err := store.LoadOrCreate(app)
	if err != nil {
		return nil, err
	}
	return security.NewKey(chain, key, key, gate)
}
