package transport

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/admission/retry"
	"github.com/breakwater-ua/breakwater/isolation"
	"golang.org/x/time/rate"
)

// ConnectionLimiter is a rate limiter of physical connections that a host may
// supply in the place of the Gate's own; it is used as it is. AllowConnection
// is asked exactly once per accepted socket; when it refuses, wait is the time
// until it may not, or 0.
type ConnectionLimiter interface {
	AllowConnection(remote netip.Addr) (ok bool, wait time.Duration)
}

// GateOptions configure a Gate; the zero value works.
type GateOptions struct {
	// MaxConnections bounds the connections of all listeners together, in
	// handshake or not; 0 = 2,010, negative = no bound. It is lowered, with a
	// warning, to what the process may open less 64 descriptors for
	// everything else.
	MaxConnections int

	// ConnectionsPerSecond and ConnectionBurst are the token bucket of the
	// whole server: one token per accepted connection, never refunded.
	// 0 or less: 500 per second, burst 1,000.
	ConnectionsPerSecond float64
	ConnectionBurst      int
	// ConnectionsUnlimited switches the bucket off.
	ConnectionsUnlimited bool
	// Limiter replaces the bucket and is used as it is; nil = the bucket.
	Limiter ConnectionLimiter
	// PerAddress limits each remote address and is asked before the others;
	// nil = no such limit.
	PerAddress *isolation.AddressLimiter

	// Isolation keeps the Connection and Handshake stages by owner; several
	// Gates may share one. In Balanced and TrustedReservations the bucket is
	// then an isolation.TokenLimiter, which keeps tokens for bootstrap,
	// reconnect and trusted owners. nil = plain counters.
	Isolation *isolation.Provider
	// Classifier names the owners of connections before any byte is read; it
	// must not block. nil = the remote address, class Established.
	Classifier isolation.Classifier

	// PoliteRefusalsPerSecond bounds the refused peers that are told
	// BadTcpServerTooBusy; the rest is just closed. 0 = 2,000, negative = none.
	PoliteRefusalsPerSecond int
	// Hint gives a refused owner, by its key, a place in the line: the time
	// after which it should come back. It is asked once for each polite
	// refusal. limits are those of the limiter that refused it, zero when another
	// limit did. nil = the limiter's wait, else 1 s.
	Hint func(owner string, now time.Time, limits retry.Rates) time.Duration

	// ProxyPeers are the balancers that speak PROXY protocol v2: from their
	// addresses a header is mandatory, and the address that it carries is the
	// remote one. From all others it is a bad first byte. nil = nobody.
	ProxyPeers []netip.Prefix

	// HelloTimeout decides when a connection without OpenSecureChannel may be
	// reclaimed; 0 = 10 s. It should be that of the Limits.
	HelloTimeout time.Duration

	// Shadow counts the connections that the rate limiters would refuse and
	// admits them. Caps are never passed over.
	Shadow bool

	// Logger; nil = slog.Default().
	Logger *slog.Logger
}

// RefusalReason says why a connection was not admitted.
type RefusalReason uint8

// The refusal reasons.
const (
	RefusedNone RefusalReason = iota
	RefusedStopped
	RefusedCapacity
	RefusedRate
	RefusedListener   // the listener's own cap
	RefusedOwnerLimit // the owner holds what one owner may
	RefusedOwnerTable // no account can be kept of another owner
	RefusedOwner      // claimed as an owner that was not provisioned
	RefusedAddress    // the rate of one remote address
	refusals
)

// String is a short fixed text, fit for a metric's label.
func (r RefusalReason) String() string {
	return [...]string{"admitted", "stopped", "capacity", "rate", "listener",
		"owner limit", "owner table full", "invalid owner", "address rate"}[min(r, refusals-1)]
}

// Refusal is what Admit returns for a connection that it does not take.
type Refusal struct {
	Reason     RefusalReason
	RetryAfter time.Duration // when coming back makes sense; 0 = unknown
	Polite     bool          // the peer may be told, within the bound on such answers
}

// Text is the reason of a polite ERR: RetryAfterMs=N in whole milliseconds,
// rounded up, or empty.
func (r Refusal) Text() string {
	if r.RetryAfter <= 0 {
		return ""
	}
	return "RetryAfterMs=" + strconv.FormatInt(int64((r.RetryAfter+time.Millisecond-1)/time.Millisecond), 10)
}

// Gate admits physical connections, for all listeners of a server, before any
// byte is read and before TLS. The order of its steps is the contract
// (admit.go). A connection refused for capacity may be admitted in the place of
// one that does nothing (reclaim.go).
//
// Lock order: Gate.mu, then the isolation.Provider's. Classifiers, limiters and
// hints are called without Gate.mu.
type Gate struct {
	iso        *isolation.Provider
	classifier isolation.Classifier
	ownerless  bool // SharedOnly: no classes
	hint       func(string, time.Time, retry.Rates) time.Duration
	proxies    []netip.Prefix
	log        *slog.Logger

	shadowed [refusals]atomic.Uint64 // admitted in shadow mode
	reclaims atomic.Uint64
	politely atomic.Uint64

	mu         sync.Mutex
	options    GateOptions // in force
	max        int         // connections; < 0 = no bound
	hello      time.Duration
	limiter    limiter                 // nil = unlimited
	tokens     *isolation.TokenLimiter // nil unless the limiter is one
	perAddress *isolation.AddressLimiter
	polite     *rate.Limiter // nil = never polite
	stopped    bool
	retryAfter time.Duration // told while stopped
	used       int           // Connection stage
	handshakes int           // Handshake stage
	lingering  int           // reclaimed ones whose close has not returned
	barren     time.Time     // no use in looking for a victim before
	phases     [phases]list
	ports      map[string]*portCounts // by name
}

// NewGate returns a Gate, or an error that names the bad option.
func NewGate(o GateOptions) (*Gate, error) {
	g := &Gate{ports: make(map[string]*portCounts), iso: o.Isolation, classifier: o.Classifier, hint: o.Hint, proxies: slices.Clone(o.ProxyPeers), log: o.Logger}
	if g.log == nil {
		g.log = slog.Default()
	}
	if err := g.Apply(o); err != nil {
		return nil, err
	}
	return g, nil
}

// Apply puts other limits in force while the Gate works: MaxConnections, the
// rates and their limiters, PoliteRefusalsPerSecond, HelloTimeout and Shadow. The other
// options stay as they are. A limiter whose values change starts full;
// connections over a lowered maximum stay. On an error nothing changes.
func (g *Gate) Apply(o GateOptions) error {
	o.Isolation, o.Logger = g.iso, g.log
	if o.ConnectionsPerSecond <= 0 {
		o.ConnectionsPerSecond = 500
	}
	if o.ConnectionBurst <= 0 {
		o.ConnectionBurst = 1000
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = 2010
	}
	if o.HelloTimeout < 0 {
		return fmt.Errorf("transport: GateOptions.HelloTimeout is %v, need 0 or more", o.HelloTimeout)
	}
	if o.HelloTimeout == 0 {
		o.HelloTimeout = 10 * time.Second
	}
	if n := MaxConnections(); n > 0 && o.MaxConnections > n {
		o.Logger.Warn("MaxConnections lowered: the process may not open more files (ulimit -n)", "wanted", o.MaxConnections, "possible", n)
		o.MaxConnections = n
	}
	if o.PoliteRefusalsPerSecond == 0 {
		o.PoliteRefusalsPerSecond = 2000
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.limit(&o); err != nil {
		return err
	}
	g.max, g.hello, g.perAddress = o.MaxConnections, o.HelloTimeout, o.PerAddress
	if n := o.PoliteRefusalsPerSecond; g.polite == nil || n != g.options.PoliteRefusalsPerSecond {
		g.polite = nil
		if n > 0 {
			g.polite = rate.NewLimiter(rate.Limit(n), n)
		}
	}
	g.options = o
	return nil
}

// descriptorReserve is kept free for logs, certificates, the admin interface and
// for refusing: a server without a descriptor cannot even say that it is full.
const descriptorReserve = 64

// MaxConnections is the number of connections that the process may hold beside
// what else it keeps open, by its limit of open files; 0 = no bound known.
func MaxConnections() int { return connectionsWithin(descriptorLimit()) }

// connectionsWithin is the number of connections that a limit of descriptors
// leaves room for; 0 = no bound known.
func connectionsWithin(limit int) int {
	switch {
	case limit <= 0:
		return 0
	case limit > 2*descriptorReserve:
		return limit - descriptorReserve
	}
	return limit / 2
}

// Stop refuses every connection from now on; peers are told to come back after
// retryAfter (0 = not told).
func (g *Gate) Stop(retryAfter time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped, g.retryAfter = true, retryAfter
}

// Usage is a snapshot of the Gate's counters.
type Usage struct {
	Connections, Handshakes, MaxConnections int
	Admitted, Reclaimed                     uint64
	Polite                                  uint64 // refused peers that were told
	Refused                                 map[RefusalReason]uint64
	Shadowed                                map[RefusalReason]uint64 // admitted in shadow mode
	Ports                                   map[string]PortUsage     // by name, of all that have seen a connection
}

// PortUsage is what is counted of the ports of one name.
type PortUsage struct {
	Admitted uint64
	Refused  map[RefusalReason]uint64
}

// Usage returns the counters.
func (g *Gate) Usage() Usage {
	g.mu.Lock()
	u := Usage{Connections: g.used, Handshakes: g.handshakes, MaxConnections: g.max,
		Refused: make(map[RefusalReason]uint64), Ports: make(map[string]PortUsage, len(g.ports))}
	for name, c := range g.ports {
		p := PortUsage{Admitted: c.admitted.Load(), Refused: counted(&c.refused)}
		u.Ports[name] = p
		u.Admitted += p.Admitted
		for r, n := range p.Refused {
			u.Refused[r] += n
		}
	}
	g.mu.Unlock()
	u.Reclaimed, u.Polite, u.Shadowed = g.reclaims.Load(), g.politely.Load(), counted(&g.shadowed)
	return u
}

// counted is a snapshot of the counters that are not 0.
func counted(all *[refusals]atomic.Uint64) map[RefusalReason]uint64 {
	m := make(map[RefusalReason]uint64)
	for r := range all {
		if n := all[r].Load(); n > 0 {
			m[RefusalReason(r)] = n
		}
	}
	return m
}
