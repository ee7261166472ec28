package stack

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/breakwater-ua/breakwater/admission/retry"
	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/ua"
)

// An OptionError names the field of Options that cannot work.
type OptionError struct {
	Field  string // for instance "Limits.MaxChannels"
	Reason string
}

func (e *OptionError) Error() string { return "stack: Options." + e.Field + ": " + e.Reason }

func bad(field, format string, args ...any) error {
	return &OptionError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Validate reports the first field that cannot work, as an *OptionError.
// NewServer calls it.
func (o Options) Validate() error {
	o = o.resolved()
	if _, err := o.urls(); err != nil {
		return err
	}
	for _, p := range o.Security.Policies {
		switch {
		case p == nil:
			return bad("Security.Policies", "holds nil")
		case p.IsNone():
			return bad("Security.Policies", "None has its own switch, Security.AllowNone")
		case p.Deprecated() && !o.Security.DeprecatedPolicies:
			return bad("Security.Policies", "%s is deprecated; set Security.DeprecatedPolicies to offer it all the same", p.Name)
		}
	}
	for _, m := range o.Security.Modes {
		if m != ua.MessageSecurityModeSign && m != ua.MessageSecurityModeSignAndEncrypt {
			return bad("Security.Modes", "%v is neither Sign nor SignAndEncrypt; for None set Security.AllowNone", m)
		}
	}
	if len(o.offers()) == 0 {
		return bad("Security", "offers no endpoint: name Policies or set AllowNone")
	}
	l := o.Limits
	if err := l.transport().Validate(); err != nil {
		var e *transport.LimitError
		if errors.As(err, &e) {
			return &OptionError{Field: "Limits." + e.Field, Reason: e.Reason}
		}
		return err
	}
	if l.MinTokenLifetime < time.Second {
		return bad("Limits.MinTokenLifetime", "is %v, need at least 1 s", l.MinTokenLifetime)
	}
	for _, f := range []struct {
		field    string
		min, max time.Duration
	}{
		{"Limits.MinSessionTimeout", l.MinSessionTimeout, l.MaxSessionTimeout},
		{"Limits.MinTokenLifetime", l.MinTokenLifetime, l.MaxTokenLifetime},
		{"Limits.MinPublishingInterval", l.MinPublishingInterval, l.MaxPublishingInterval},
	} {
		if f.min > f.max {
			return bad(f.field, "is %v, above the maximum of %v", f.min, f.max)
		}
	}
	switch r := o.Retry; {
	case r.Min < 0 || r.Max < 0:
		return bad("Retry", "is negative")
	case r.Max > 0 && r.Max < r.Min:
		return bad("Retry.Max", "is %v, below the minimum of %v", r.Max, r.Min)
	case o.RateLimits.ConnectionsPerSecondPerAddress < 0:
		return bad("RateLimits.ConnectionsPerSecondPerAddress", "is negative; 0 switches it off")
	case o.RequestCost > CostEncoded:
		return bad("RequestCost", "is none of the costs")
	}
	for _, p := range o.ProxyPeers {
		if !p.IsValid() {
			return bad("ProxyPeers", "holds an invalid prefix")
		}
		if p.Addr().Is4In6() {
			return bad("ProxyPeers", "%v is IPv4 mapped into IPv6; peers are compared as IPv4", p)
		}
	}
	b := o.Budget
	switch {
	case b.Shared != nil && (b.MaxBytes != 0 || b.SessionlessBytes != 0):
		return bad("Budget.Shared", "comes with its own MaxBytes and SessionlessBytes")
	case b.MaxBytes < 0 || b.SessionlessBytes < 0:
		return bad("Budget", "is negative")
	case b.SessionlessBytes > b.MaxBytes && b.MaxBytes != 0:
		return bad("Budget.SessionlessBytes", "is %d, above MaxBytes %d", b.SessionlessBytes, b.MaxBytes)
	}
	if err := o.checkWeb(); err != nil {
		return err
	}
	plan, err := o.plan()
	if err != nil {
		return err
	}
	return o.checkTokens(plan)
}

// resolved returns a copy with the defaults filled in.
func (o Options) resolved() Options {
	if o.ApplicationName == "" {
		o.ApplicationName = "Breakwater"
	}
	if o.ProductURI == "" {
		o.ProductURI = "urn:breakwater"
	}
	if len(o.Endpoints) == 0 {
		o.Endpoints = []string{"opc.tcp://:4840"}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &o.Security
	if s.Policies == nil {
		s.Policies = []*security.Policy{security.Basic256Sha256, security.Aes128Sha256RsaOaep, security.Aes256Sha256RsaPss}
	}
	if len(s.Modes) == 0 {
		s.Modes = []ua.MessageSecurityMode{ua.MessageSecurityModeSign, ua.MessageSecurityModeSignAndEncrypt}
	}
	o.Limits = o.Limits.resolved()
	r := &o.RateLimits
	r.ConnectionsPerSecond = or(r.ConnectionsPerSecond, 500)
	r.ConnectionBurst = or(r.ConnectionBurst, 1000)
	r.MaxConcurrentSessionEstablishment = or(r.MaxConcurrentSessionEstablishment, max(8*runtime.NumCPU(), 128))
	r.SessionEstablishmentQueueLimit = max(r.SessionEstablishmentQueueLimit, 0)
	if r.DiscoveryPerSecond == 0 {
		r.DiscoveryPerSecond = 500
	}
	r.DiscoveryBurst = or(r.DiscoveryBurst, 1000)
	if r.MaxCryptoWait == 0 {
		r.MaxCryptoWait = 2 * time.Second
	}
	r.ListenBacklog = or(r.ListenBacklog, 512)
	switch h := &o.Isolation.HandshakeTimeout; { // one deadline, which has two names
	case *h == 0:
		*h = o.Limits.HandshakeTimeout
	case *h > 0:
		o.Limits.HandshakeTimeout = *h
	}
	if o.Retry.Min == 0 {
		o.Retry.Min = retry.DefaultMin
	}
	if o.Retry.Max == 0 {
		o.Retry.Max = max(retry.DefaultMax, o.Retry.Min)
	}
	if b := &o.Budget; b.Shared == nil {
		if b.MaxBytes == 0 {
			b.MaxBytes = budget.DefaultMaxBytes(int64(o.Limits.MaxMessageSize))
		}
		if b.SessionlessBytes == 0 {
			b.SessionlessBytes = b.MaxBytes / 2
		}
	}
	return o
}

// resolved returns a copy with the defaults filled in, Operations apart, whose
// zero means no limit once resolved.
func (l Limits) resolved() Limits {
	t := l.transport().Resolved()
	l.MaxMessageSize, l.MaxChunkCount = t.MaxMessageSize, t.MaxChunkCount
	l.ReceiveBufferSize, l.SendBufferSize = t.ReceiveBufferSize, t.SendBufferSize
	l.MaxOutstandingPerConnection = t.MaxOutstandingPerConnection
	l.WriteQueueBytes, l.WriteTimeout = t.WriteQueueBytes, t.WriteTimeout
	l.HelloTimeout, l.HandshakeTimeout, l.AssemblyTimeout = t.HelloTimeout, t.HandshakeTimeout, t.AssemblyTimeout
	l.MaxSessions = or(l.MaxSessions, 1000)
	l.MaxChannels = l.channels()
	if most := transport.MaxConnections(); most > 0 { // what the gate would refuse must not stand in the plan
		l.MaxChannels = min(l.MaxChannels, most)
	}
	l.MaxExecutingRequests = or(l.MaxExecutingRequests, 100)
	l.MaxQueuedRequests = or(l.MaxQueuedRequests, 200)
	if l.RunSlots == 0 {
		l.RunSlots = defaultRunSlots()
	}
	l.MaxPublishRequests = or(l.MaxPublishRequests, 20)
	l.MaxParkedRequests = or(l.MaxParkedRequests, max(l.MaxQueuedRequests, l.MaxSessions*l.MaxPublishRequests))
	l.MinSessionTimeout = or(l.MinSessionTimeout, 10*time.Second)
	l.MaxSessionTimeout = or(l.MaxSessionTimeout, time.Hour)
	l.ActivationTimeout = or(l.ActivationTimeout, 30*time.Second)
	l.MinTokenLifetime = or(l.MinTokenLifetime, time.Minute)
	l.MaxTokenLifetime = or(l.MaxTokenLifetime, time.Hour)
	l.MinPublishingInterval = or(l.MinPublishingInterval, 50*time.Millisecond)
	l.MaxPublishingInterval = or(l.MaxPublishingInterval, time.Hour)
	l.MaxSubscriptionsPerSession = or(l.MaxSubscriptionsPerSession, 100)
	l.MaxMonitoredItemsPerSubscription = or(l.MaxMonitoredItemsPerSubscription, 10_000)
	l.MaxMonitoredItemQueueSize = or(l.MaxMonitoredItemQueueSize, 1000)
	l.MaxRetransmissionQueueSize = or(l.MaxRetransmissionQueueSize, 20)
	l.MaxStringLength = or(l.MaxStringLength, l.MaxMessageSize)
	l.MaxByteStringLength = or(l.MaxByteStringLength, l.MaxMessageSize)
	l.MaxArrayLength = or(l.MaxArrayLength, 1_000_000)
	l.MaxNestingLevel = or(l.MaxNestingLevel, 100)
	return l
}

// channels that are wanted, whether or not the process may have so many.
func (l *Limits) channels() int { return or(l.MaxChannels, 2*or(l.MaxSessions, 1000)+10) }

// descriptors says, in an error about MaxChannels, that more is not to be had.
func (l *Limits) descriptors() string {
	if most := transport.MaxConnections(); most > 0 && l.MaxChannels == most {
		return fmt.Sprintf("; the process may hold no more than %d connections (ulimit -n)", most)
	}
	return ""
}

func or[T int | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

func (l Limits) transport() transport.Limits {
	return transport.Limits{
		ReceiveBufferSize:           l.ReceiveBufferSize,
		SendBufferSize:              l.SendBufferSize,
		MaxMessageSize:              l.MaxMessageSize,
		MaxChunkCount:               l.MaxChunkCount,
		MaxOutstandingPerConnection: l.MaxOutstandingPerConnection,
		WriteQueueBytes:             l.WriteQueueBytes,
		WriteTimeout:                l.WriteTimeout,
		HelloTimeout:                l.HelloTimeout,
		HandshakeTimeout:            l.HandshakeTimeout,
		AssemblyTimeout:             l.AssemblyTimeout,
	}
}

func (l Limits) decoding() uabinary.Limits {
	return uabinary.Limits{
		MaxMessageSize:      l.MaxMessageSize,
		MaxStringLength:     l.MaxStringLength,
		MaxByteStringLength: l.MaxByteStringLength,
		MaxArrayLength:      l.MaxArrayLength,
		MaxNestingLevel:     l.MaxNestingLevel,
	}
}

// urls parses Endpoints.
func (o *Options) urls() ([]*url.URL, error) {
	var urls []*url.URL
	for _, raw := range o.Endpoints {
		u, err := url.Parse(raw)
		switch {
		case err != nil:
			return nil, bad("Endpoints", "%v", err)
		case schemeOf(u) == "":
			return nil, bad("Endpoints", "%q begins with none of opc.tcp://, opc.wss://, opc.https://", raw)
		case !validPort(u.Port()):
			return nil, bad("Endpoints", "%q has no valid port", raw)
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			return nil, bad("Endpoints", "%q has more than a host, a port and a path", raw)
		case slices.ContainsFunc(urls, func(v *url.URL) bool {
			return schemeOf(v) == schemeOf(u) && listenOn(v) == listenOn(u) && u.Port() != "0"
		}):
			return nil, bad("Endpoints", "%q listens where another endpoint does", raw)
		}
		urls = append(urls, u)
	}
	return urls, nil
}

func validPort(p string) bool {
	_, err := strconv.ParseUint(p, 10, 16)
	return p == "" || err == nil
}

// offers lists the ways to secure a channel, best first.
func (o *Options) offers() []offer {
	var all []offer
	for _, p := range o.Security.Policies {
		for _, m := range o.Security.Modes {
			all = append(all, offer{p, m})
		}
	}
	slices.SortStableFunc(all, func(a, b offer) int { return int(securityLevel(b)) - int(securityLevel(a)) })
	if o.Security.AllowNone {
		all = append(all, offer{security.None, ua.MessageSecurityModeNone})
	}
	return all
}
