package stack

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
)

// Options configure a [Server]. The zero value gives a server on
// opc.tcp://:4840 that offers the current security policies with Sign and
// SignAndEncrypt, keeps its certificates below the user's configuration folder
// and lets in the users of its Authenticator, of which there are none: name an
// Authenticator, or set Security.AllowAnonymous. NewServer resolves defaults into
// a copy and never changes what it was given.
type Options struct {
	// ApplicationName is the human-readable name. Empty: "Breakwater".
	ApplicationName string
	// ApplicationURI identifies this installation and must be the URI in the
	// certificate's SubjectAltName. Empty: that of the certificate when there is
	// one, else urn:<host>:breakwater:<name>.
	ApplicationURI string
	// ProductURI identifies the product. Empty: "urn:breakwater".
	ProductURI string
	// Build fills Server/ServerStatus/BuildInfo; ProductURI is taken from above.
	Build Build

	// Endpoints are the URLs to listen on: "opc.tcp://host:port/path", and the
	// same with opc.wss (WebSockets) and opc.https. An empty host listens on all
	// addresses, port 0 takes a free one; without a port it is 4840, or 4843 for
	// opc.wss and opc.https. URLs of one host and port share a listener, which
	// tells its clients apart by what they send. Empty: one, opc.tcp://:4840.
	// Listeners given to Server.Serve need no URL here, but the first URL is what
	// unknown clients are told.
	Endpoints []string
	// Advertise are host names and addresses, with or without port, by which
	// clients may reach the server besides those in the certificate and the
	// local addresses; a client that used one of them is told it again. Empty: none.
	Advertise []string
	// TLS is the certificate of opc.wss and opc.https.
	TLS TLSOptions
	// HTTP is for what comes over HTTPS and WebSockets.
	HTTP HTTPOptions

	Security Security
	// Authenticator decides about user identities. nil: nobody but anonymous
	// callers, when Security.AllowAnonymous is set.
	Authenticator session.Authenticator

	Limits     Limits
	RateLimits RateLimits
	Budget     Budget
	// Retry clamps the hints that refused clients get.
	Retry Retry
	// Shadow tries limits out: what the rate limiters, the establishment limits
	// and isolation would refuse is counted (metric shadow_refusals_total) and let
	// pass. It does not apply to memory (partial messages, the bytes of requests),
	// to MaxChannels and MaxSessions, nor to the bounds of one session or connection.
	Shadow bool

	// Isolation divides the server between the owners of connections and
	// requests. Zero: Balanced, with floors for start-up work, sessions that
	// come back and requests that free resources. Server.Plan shows the result.
	Isolation isolation.Options
	// Classifier names owners. nil: a request belongs to its user, else to the
	// client's certificate, else to the remote address.
	Classifier isolation.Classifier
	// ConnectionLimiter decides about new connections instead of the limiter
	// that RateLimits describes; it is used as it is. nil: that one.
	ConnectionLimiter transport.ConnectionLimiter
	// RequestCost is what a request is charged in bytes while the server holds
	// it. Zero: CostMessage.
	RequestCost RequestCost
	// ProxyPeers are the balancers in front of the server that speak PROXY
	// protocol version 2: a connection from these addresses must begin with its
	// header, and belongs to the address that the header carries. From others the
	// header is a bad first byte. Empty: there are none.
	ProxyPeers []netip.Prefix
	// Admission is asked for every request before its body is decoded, and
	// before isolation is. nil: nothing else is asked.
	Admission Admission
	// Governors bound what tenants and users have under way.
	Governors Governors

	// ServiceLevel computes what Server/ServiceLevel says instead of the server's
	// own estimate, for a redundant set for instance. It is asked once a second
	// and must not block. nil: the estimate, from the sessions, those that wait
	// for one, and the memory of partial messages.
	ServiceLevel func(now time.Time) byte

	// NodeSets are NodeSet2 XML documents to import, in any order; their names
	// stand in errors. Empty: none.
	NodeSets []addressspace.NodeSetFile

	// Logger receives what an operator should know. nil: slog.Default().
	Logger *slog.Logger
}

// Build describes the software, OPC 10000-5 §12.4 BuildInfo. Empty fields are
// sent as empty strings, a zero Date as the null date.
type Build struct {
	ManufacturerName string
	ProductName      string
	SoftwareVersion  string
	BuildNumber      string
	Date             time.Time
}

// Security says who may talk to the server and how.
type Security struct {
	// Policies are the security policies offered. nil: Basic256Sha256,
	// Aes128_Sha256_RsaOaep, Aes256_Sha256_RsaPss. NoPolicies, or any other slice
	// that is empty but not nil: no secured endpoints. None has its own switch.
	Policies []*security.Policy
	// Modes are the message security modes offered with each policy. Empty: Sign
	// and SignAndEncrypt.
	Modes []ua.MessageSecurityMode
	// AllowNone offers an endpoint without any security as well.
	AllowNone bool
	// AllowAnonymous lets callers in without an identity.
	AllowAnonymous bool
	// DeprecatedPolicies permits Basic128Rsa15 and Basic256 in Policies. Both are
	// broken; they are there for devices that know nothing else.
	DeprecatedPolicies bool

	// PKI is the folder of certificates and keys; it is created when it is not
	// there, and a missing application certificate is made. Empty: "breakwater/pki"
	// in the user's configuration folder; none is used when Key is set and PKI is
	// empty, in which case only TrustAll lets secured clients in. Certificates of
	// users, if the Authenticator takes any, have a trust list in the folder
	// "users" below it.
	PKI string
	// Key is the application instance certificate with its private key, instead
	// of the one in the PKI folder. The server uses its gate and does not close it.
	Key *security.Key
	// CryptoWorkers is the number of threads for private-key work. 0:
	// max(1, GOMAXPROCS − 1); see security.CryptoGate before raising it.
	CryptoWorkers int
	// TrustAll accepts every client certificate that is well-formed and valid.
	// For demos and tests only.
	TrustAll bool
}

// NoPolicies, as Security.Policies, offers no secured endpoints. Such a server
// needs no certificate.
var NoPolicies = []*security.Policy{}

// Limits bound what clients can make the server hold. All defaults are finite;
// where 0 takes the default there is no way to ask for no limit but a large number.
type Limits struct {
	MaxSessions int // default 1,000
	// MaxChannels bounds the open connections. 0: 2 × MaxSessions + 10. It must
	// exceed MaxSessions.
	MaxChannels int

	MaxMessageSize    int // bytes of a request, and of a response whose client has no limit; default 4 MiB
	MaxChunkCount     int // chunks of a request; default 512
	ReceiveBufferSize int // bytes of a chunk, 8,192 to 147,456; default 65,535
	SendBufferSize    int // likewise

	// MaxExecutingRequests bounds the requests that run on goroutines of their
	// own, because they may block. Default and least 100; Isolation.Stages may
	// lower it.
	MaxExecutingRequests int
	// MaxQueuedRequests bounds the requests that wait to run. Default 200, least
	// 100; Isolation.Stages may lower it.
	MaxQueuedRequests int
	// RunSlots bounds the requests that run at once on the goroutine of their
	// connection; what comes then waits in the fair queue. 0: twice the number
	// of cores; negative: no bound.
	RunSlots                    int
	MaxPublishRequests          int // parked Publish requests per session; default 20
	MaxParkedRequests           int // parked Publish requests of the server; 0: max(MaxQueuedRequests, MaxSessions × MaxPublishRequests)
	MaxOutstandingPerConnection int // requests of one connection that are not answered, Publish apart; default 64

	WriteQueueBytes  int           // answers of one connection not written yet; default 4 MiB
	WriteTimeout     time.Duration // that a connection may take no answers; default 30 s
	HelloTimeout     time.Duration // from accept to HEL; default 10 s
	HandshakeTimeout time.Duration // from accept to the first OpenSecureChannel; default 2 min, at most that
	AssemblyTimeout  time.Duration // from the first to the last chunk of a message; default 30 s

	MinSessionTimeout, MaxSessionTimeout time.Duration // default 10 s, 1 h
	ActivationTimeout                    time.Duration // of a created session; default 30 s
	MinTokenLifetime, MaxTokenLifetime   time.Duration // of security tokens; default 60 s, 1 h
	// EvictDetachedSessions lets newcomers into a full server in the place of
	// activated sessions whose channel has been gone for half their timeout, and
	// for 10 s; the same user's goes first. False: they keep their place until
	// they time out, and newcomers get BadTooManySessions.
	EvictDetachedSessions bool

	MinPublishingInterval, MaxPublishingInterval time.Duration // default 50 ms, 1 h
	MaxSubscriptionsPerSession                   int           // default 100
	MaxMonitoredItemsPerSubscription             int           // default 10,000
	MaxMonitoredItemQueueSize                    int           // notifications of one item; default 1,000
	MaxRetransmissionQueueSize                   int           // messages kept for Republish, per subscription; default 20

	// Operations bounds the operations of one request.
	Operations service.Limits

	MaxStringLength     int // bytes of one string of a request; default MaxMessageSize
	MaxByteStringLength int // likewise
	MaxArrayLength      int // elements; default 1,000,000
	MaxNestingLevel     int // of Variants, ExtensionObjects, DiagnosticInfos and filters together; default 100
}

// RateLimits bound what a storm of newcomers may cost. Isolation of clients from
// each other and the memory budget are not affected by Disabled.
type RateLimits struct {
	// Disabled switches both limiters off.
	Disabled bool
	// ConnectionsPerSecond and ConnectionBurst admit connections. 0 or negative:
	// 500 and 1,000.
	ConnectionsPerSecond, ConnectionBurst int
	// ConnectionsUnlimited switches the connection limiter off.
	ConnectionsUnlimited bool
	// ConnectionsPerSecondPerAddress admits connections of one remote address
	// (an IPv6 address counts by its /64). 0: no such limit; negative is an error.
	ConnectionsPerSecondPerAddress int
	// PoliteRefusalsPerSecond bounds the refused connections that are told why
	// and when to come back; above it they are closed without a word. 0: 2,000;
	// negative: never.
	PoliteRefusalsPerSecond int
	// MaxConcurrentSessionEstablishment bounds the CreateSession and
	// ActivateSession calls in flight; more are refused with BadServerTooBusy.
	// 0 or negative: max(8 × CPUs, 128).
	MaxConcurrentSessionEstablishment int
	// SessionEstablishmentQueueLimit is how many more may wait, oldest first,
	// before any of them is refused. 0 or negative: none.
	SessionEstablishmentQueueLimit int
	// EstablishmentUnlimited switches that limiter off.
	EstablishmentUnlimited bool
	// MaxCryptoWait is the longest expected wait for the server's private key with
	// which a new secure channel is still begun; over it the client is told when
	// to come back. 0: 2 s; negative: no bound. Not affected by Disabled.
	MaxCryptoWait time.Duration
	// DiscoveryPerSecond and DiscoveryBurst bound the FindServers and
	// GetEndpoints requests of one remote address (an IPv6 address counts by its
	// /64) on channels without a session; more are refused with BadServerTooBusy.
	// 0: 500 and 1,000; a negative DiscoveryPerSecond: no such limit.
	DiscoveryPerSecond, DiscoveryBurst int
	// ListenBacklog is the length of the queue of connections the operating
	// system keeps for us. 0 or negative: 512.
	ListenBacklog int
}

// Retry clamps the time after which a refused client is told to come back.
type Retry struct {
	// Min and Max; 0: 50 ms and 30 s. Negative values, and a Max below Min, are
	// errors.
	Min, Max time.Duration
}

// RequestCost says what a request is charged at the stage RequestQueueBytes
// while it waits, runs or is parked.
type RequestCost uint8

// The costs.
const (
	// CostMessage charges Limits.MaxMessageSize, the most a request can hold.
	CostMessage RequestCost = iota
	// CostEncoded charges min(MaxMessageSize, 4 × encoded size + 4096).
	CostEncoded
)

// Budget bounds the memory of partly received messages, over all connections.
type Budget struct {
	// MaxBytes is the total. 0: budget.DefaultMaxBytes of Limits.MaxMessageSize.
	MaxBytes int64
	// SessionlessBytes is the occupancy up to which channels without a session
	// get any. 0: half of MaxBytes.
	SessionlessBytes int64
	// Shared is a budget to use instead, possibly with other servers.
	Shared *budget.ChunkReassemblyBudget
}
