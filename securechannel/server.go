package securechannel

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/gopcua/opcua/ua"
	"golang.org/x/time/rate"
)

// Handler is the layer above: it takes the requests of all channels.
type Handler interface {
	// Opened comes before the channel's first Message, on a goroutine that may
	// take its time; the client gets its answer after it.
	Opened(ch *Channel)
	// Message takes a complete, verified request on the connection's reading
	// goroutine. It must not block. m and m.Body are valid until it returns,
	// see Message.
	Message(ch *Channel, m *Message)
	// Closed comes exactly once for each Opened, after the socket is closed.
	Closed(ch *Channel, reason transport.CloseReason)
}

// Offer is a policy and mode that the server's endpoints announce.
type Offer struct {
	Policy *security.Policy
	Mode   ua.MessageSecurityMode
}

// ServerConfig configures a Server. Handler is required; the rest has useful
// zero values.
type ServerConfig struct {
	Handler Handler

	// Key signs and decrypts OpenSecureChannel; nil allows policy None only.
	Key *security.Key

	// Validate checks the client's certificate chain (DER, leaf first) and
	// returns the leaf. It runs before any private-key operation, on a
	// goroutine that may take its time; ch has its addresses, and no id yet.
	// Required with a secured offer.
	Validate func(ctx context.Context, ch *Channel, chain []byte, policy *security.Policy) (*x509.Certificate, error)

	// WireCode is what the peer is told of an error of Validate; nil =
	// BadSecurityChecksFailed for all. The log gets the precise code.
	WireCode func(error) ua.StatusCode

	// Offers are the policies and modes that may be opened.
	Offers []Offer

	// NoDiscovery refuses policy None when it is not offered. Else such a
	// channel opens for FindServers and GetEndpoints only (Channel.DiscoveryOnly).
	NoDiscovery bool

	// Limits of each connection; the same as the transport's.
	Limits transport.Limits
	// LiveLimits shares limits that may change with the transports; nil = Limits as
	// they are.
	LiveLimits *transport.LiveLimits

	// Budget for partial messages; nil = one of the default size.
	Budget *budget.ChunkReassemblyBudget

	// Isolation keeps the bytes of partial messages by owner; several servers
	// may share one. In SharedOnly, and without one (nil), the Budget's
	// threshold for channels without a session rules instead.
	Isolation *isolation.Provider

	// AssemblyOwner decides, for each partial message at its first chunk, whose
	// bytes it takes. continuity, if not nil, is the same owner with class
	// Reconnect, limited to ReassemblyBytes (Provider.IssueFor): a channel with
	// an activated session whose owner nobody has mapped may use that floor.
	// It is called on the reading goroutine and must not block. nil = the
	// ingress claim, else the certificate, else the address.
	AssemblyOwner func(ch *Channel) (owner, continuity *isolation.Owner)

	// Hint gives a refused owner, by its key, the time after which it should
	// come back; nil = the expected wait.
	Hint func(owner string, now time.Time) time.Duration

	// MinTokenLifetime and MaxTokenLifetime clamp what clients ask for;
	// 0 = 60 s and 1 h, at least 1 s (tests).
	MinTokenLifetime, MaxTokenLifetime time.Duration

	// MaxCryptoWait is the longest queue before private-key operations at
	// which a new channel is still begun; over it the client is told
	// BadTcpServerTooBusy with a hint. 0 = 2 s, negative = no bound.
	MaxCryptoWait time.Duration

	// Logger; nil = slog.Default().
	Logger *slog.Logger
}

// Server holds what the channels of all listeners share.
type Server struct {
	cfg     ServerConfig
	limits  *transport.LiveLimits
	handler Handler
	log     *slog.Logger
	alarms  *rate.Limiter // bounds log lines about attacks
	live    atomic.Pointer[Bounds]
	passed  atomic.Uint64 // see Shadowed
	ids     atomic.Uint32
	none    bool // None is offered
	byOwner bool // partial messages

	mu       sync.Mutex
	channels map[uint32]*Channel // opened and not closed
}

// NewServer checks the configuration.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.Handler == nil {
		return nil, errors.New("securechannel: ServerConfig.Handler is nil")
	}
	if err := cfg.Limits.Validate(); err != nil {
		return nil, err
	}
	s := &Server{handler: cfg.Handler, limits: cfg.LiveLimits, channels: make(map[uint32]*Channel)}
	if s.limits == nil {
		s.limits = transport.NewLiveLimits(cfg.Limits)
	}
	for _, o := range cfg.Offers {
		switch {
		case o.Policy == nil || o.Policy.IsNone() != (o.Mode == ua.MessageSecurityModeNone) || o.Mode < ua.MessageSecurityModeNone || o.Mode > ua.MessageSecurityModeSignAndEncrypt:
			return nil, fmt.Errorf("securechannel: ServerConfig.Offers: policy %v with mode %d", o.Policy, o.Mode)
		case o.Policy.IsNone():
			s.none = true
		case cfg.Key == nil:
			return nil, fmt.Errorf("securechannel: ServerConfig.Key is nil, %v is offered", o.Policy)
		case cfg.Validate == nil:
			return nil, fmt.Errorf("securechannel: ServerConfig.Validate is nil, %v is offered", o.Policy)
		}
	}
	cfg.Offers = slices.Clone(cfg.Offers)
	if cfg.Budget == nil {
		b, err := budget.New(budget.DefaultMaxBytes(int64(s.limits.Load().MaxMessageSize)))
		if err != nil {
			return nil, err
		}
		cfg.Budget = b
	}
	bounds := Bounds{cfg.MinTokenLifetime, cfg.MaxTokenLifetime, cfg.MaxCryptoWait, s.limits.Load().MaxOutstandingPerConnection, false}
	if err := s.Apply(bounds); err != nil {
		return nil, err
	}
	s.log = cfg.Logger
	if s.log == nil {
		s.log = slog.Default()
	}
	s.alarms = rate.NewLimiter(20, 100)
	s.byOwner = cfg.Isolation != nil && cfg.Isolation.Plan().Mode != isolation.SharedOnly
	s.cfg = cfg
	var b [4]byte
	rand.Read(b[:]) // never fails
	s.ids.Store(binary.LittleEndian.Uint32(b[:]))
	return s, nil
}

// Bounds are what may change while a Server works. Its zero values have the
// meaning that they have in ServerConfig and Limits.
type Bounds struct {
	MinTokenLifetime, MaxTokenLifetime time.Duration // of tokens that are issued from now on
	MaxCryptoWait                      time.Duration
	MaxOutstandingPerConnection        int
	// Shadow counts the new channels that MaxCryptoWait would refuse and lets
	// them pass.
	Shadow bool
}

// Apply puts other bounds in force; on an error nothing changes.
func (s *Server) Apply(b Bounds) error {
	if b.MinTokenLifetime == 0 {
		b.MinTokenLifetime = time.Minute
	}
	if b.MaxTokenLifetime == 0 {
		b.MaxTokenLifetime = max(time.Hour, b.MinTokenLifetime)
	}
	if b.MinTokenLifetime < time.Second || b.MaxTokenLifetime < b.MinTokenLifetime {
		return fmt.Errorf("securechannel: token lifetimes %v to %v, need 1 s or more, and the minimum first", b.MinTokenLifetime, b.MaxTokenLifetime)
	}
	if b.MaxCryptoWait == 0 {
		b.MaxCryptoWait = 2 * time.Second
	}
	b.MaxOutstandingPerConnection = transport.Limits{MaxOutstandingPerConnection: b.MaxOutstandingPerConnection}.Resolved().MaxOutstandingPerConnection
	s.live.Store(&b)
	s.Each(func(ch *Channel) bool {
		ch.conn.Resume() // it may have room now
		return true
	})
	return nil
}

// Shadowed is the number of new channels that were let pass in shadow mode.
func (s *Server) Shadowed() uint64 { return s.passed.Load() }

// Budget is the budget for partial messages.
func (s *Server) Budget() *budget.ChunkReassemblyBudget { return s.cfg.Budget }

// NewSink is the upper half of a new connection, for the transports' listeners.
func (s *Server) NewSink(conn transport.Conn) transport.Sink { return s.newChannel(conn) }

// Channels is the number of open channels.
func (s *Server) Channels() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.channels)
}

// Each calls f with every open channel until it returns false.
func (s *Server) Each(f func(*Channel) bool) {
	s.mu.Lock()
	all := make([]*Channel, 0, len(s.channels))
	for _, ch := range s.channels {
		all = append(all, ch)
	}
	s.mu.Unlock()
	for _, ch := range all {
		if !f(ch) {
			return
		}
	}
}

func (s *Server) offered(p *security.Policy, mode ua.MessageSecurityMode) bool {
	return slices.Contains(s.cfg.Offers, Offer{p, mode})
}

func (s *Server) policyOffered(p *security.Policy) bool {
	return slices.ContainsFunc(s.cfg.Offers, func(o Offer) bool { return o.Policy == p })
}

// nextID returns a channel id that is not 0 and not that of an open channel.
func (s *Server) register(ch *Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		id := s.ids.Add(1)
		if _, taken := s.channels[id]; id != 0 && !taken {
			ch.id = id
			s.channels[id] = ch
			return
		}
	}
}

func (s *Server) unregister(ch *Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.channels, ch.id)
}

// alarm logs what an attacker could cause, within a bound on lines.
func (s *Server) alarm(msg string, args ...any) {
	if s.alarms.Allow() {
		s.log.Warn(msg, args...)
	}
}
