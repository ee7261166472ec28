package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/internal/command"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
)

// options turns the settings into those of the server. It opens the users file
// and reads the NodeSets.
func (c *config) options(log *slog.Logger) (stack.Options, error) {
	o := stack.Options{
		ApplicationName: c.ApplicationName,
		ApplicationURI:  c.ApplicationURI,
		ProductURI:      "urn:breakwater:refserver",
		Build: stack.Build{
			ManufacturerName: "Breakwater", ProductName: "Breakwater reference server",
			SoftwareVersion: command.ThisBuild().Short, BuildNumber: command.ThisBuild().Revision, Date: command.ThisBuild().Time,
		},
		Endpoints: c.Listen,
		Advertise: c.Advertise,
		Logger:    log,
		Security: stack.Security{
			AllowNone: c.Security.None, AllowAnonymous: c.Security.Anonymous,
			DeprecatedPolicies: c.Security.DeprecatedPolicies, TrustAll: c.Security.TrustAll,
			PKI: c.PKI, CryptoWorkers: c.Runtime.CryptoWorkers,
		},
		Limits:     c.Limits.stack(),
		RateLimits: c.RateLimits.stack(),
		HTTP:       c.HTTP.stack(),
		TLS:        c.TLS.stack(),
		Governors:  c.Governors.stack(),
		Retry:      c.Retry.stack(),
		Budget:     c.Budget.stack(),
		Shadow:     c.Shadow,
	}
	if err := c.check(); err != nil {
		return o, err
	}
	var err error
	if o.ProxyPeers, err = proxyPeers(c.ProxyPeers); err != nil {
		return o, err
	}
	if err := c.checkOpenSSL(); err != nil {
		return o, err
	}
	if err := c.Isolation.stack(&o, c.Listen); err != nil {
		return o, err
	}
	if len(c.Security.Policies) == 0 {
		o.Security.Policies = stack.NoPolicies
	}
	for _, name := range c.Security.Policies {
		p, err := policyByName(name)
		if err != nil {
			return o, err
		}
		o.Security.Policies = append(o.Security.Policies, p)
	}
	for _, name := range c.Security.Modes {
		m, err := modeByName(name)
		if err != nil {
			return o, err
		}
		o.Security.Modes = append(o.Security.Modes, m)
	}
	if c.Security.UserNames || c.Security.Certificates {
		identities := &session.Identities{Certificates: c.Security.Certificates}
		if c.Security.UserNames {
			users, err := session.OpenUsers(c.Users, session.UsersOptions{Logger: log})
			if err != nil {
				return o, err
			}
			identities.Users = users
		}
		o.Authenticator = identities
	}
	for _, file := range c.NodeSets {
		text, err := os.ReadFile(file)
		if err != nil {
			return o, err
		}
		o.NodeSets = append(o.NodeSets, addressspace.NodeSetFile{Name: file, Data: text})
	}
	return o, nil
}

// proxyPeers reads addresses and networks.
func proxyPeers(texts []string) ([]netip.Prefix, error) {
	var peers []netip.Prefix
	for i, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, alone := netip.ParseAddr(text)
			if alone != nil {
				return nil, fmt.Errorf("proxyPeers[%d]: %q is neither an address nor a network like 10.0.0.0/24", i, text)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		peers = append(peers, p)
	}
	return peers, nil
}

func policyByName(name string) (*security.Policy, error) {
	var known []string
	for _, p := range security.Policies() {
		if p.IsNone() {
			continue
		}
		if p.Name == name {
			return p, nil
		}
		known = append(known, p.Name)
	}
	return nil, fmt.Errorf("security.policies: %q is not one of %s", name, strings.Join(known, ", "))
}

func modeByName(name string) (ua.MessageSecurityMode, error) {
	switch name {
	case "Sign":
		return ua.MessageSecurityModeSign, nil
	case "SignAndEncrypt":
		return ua.MessageSecurityModeSignAndEncrypt, nil
	}
	return 0, fmt.Errorf("security.modes: %q is neither Sign nor SignAndEncrypt", name)
}

func (l *limitsConfig) stack() stack.Limits {
	return stack.Limits{
		MaxSessions:                      l.MaxSessions,
		MaxChannels:                      l.MaxChannels,
		MaxMessageSize:                   int(l.MaxMessageSize),
		MaxChunkCount:                    l.MaxChunkCount,
		ReceiveBufferSize:                int(l.ReceiveBufferSize),
		SendBufferSize:                   int(l.SendBufferSize),
		MaxExecutingRequests:             l.MaxExecutingRequests,
		MaxQueuedRequests:                l.MaxQueuedRequests,
		RunSlots:                         l.RunSlots,
		MaxPublishRequests:               l.MaxPublishRequests,
		MaxParkedRequests:                l.MaxParkedRequests,
		MaxOutstandingPerConnection:      l.MaxOutstandingPerConnection,
		WriteQueueBytes:                  int(l.WriteQueue),
		WriteTimeout:                     l.WriteTimeout,
		HelloTimeout:                     l.HelloTimeout,
		HandshakeTimeout:                 l.HandshakeTimeout,
		AssemblyTimeout:                  l.AssemblyTimeout,
		MinSessionTimeout:                l.MinSessionTimeout,
		MaxSessionTimeout:                l.MaxSessionTimeout,
		ActivationTimeout:                l.ActivationTimeout,
		EvictDetachedSessions:            l.EvictDetachedSessions,
		MinTokenLifetime:                 l.MinTokenLifetime,
		MaxTokenLifetime:                 l.MaxTokenLifetime,
		MinPublishingInterval:            l.MinPublishingInterval,
		MaxPublishingInterval:            l.MaxPublishingInterval,
		MaxSubscriptionsPerSession:       l.MaxSubscriptionsPerSession,
		MaxMonitoredItemsPerSubscription: l.MaxMonitoredItemsPerSubscription,
		MaxMonitoredItemQueueSize:        l.MaxMonitoredItemQueueSize,
		MaxRetransmissionQueueSize:       l.MaxRetransmissionQueueSize,
		Operations: service.Limits{
			MaxNodesPerRead:                          l.MaxNodesPerRead,
			MaxNodesPerWrite:                         l.MaxNodesPerWrite,
			MaxNodesPerMethodCall:                    l.MaxNodesPerMethodCall,
			MaxNodesPerBrowse:                        l.MaxNodesPerBrowse,
			MaxNodesPerRegisterNodes:                 l.MaxNodesPerRegisterNodes,
			MaxNodesPerTranslateBrowsePathsToNodeIDs: l.MaxNodesPerTranslateBrowsePaths,
			MaxMonitoredItemsPerCall:                 l.MaxMonitoredItemsPerCall,
			MaxBrowseContinuationPoints:              l.MaxBrowseContinuationPoints,
		},
		MaxStringLength:     int(l.MaxStringLength),
		MaxByteStringLength: int(l.MaxByteStringLength),
		MaxArrayLength:      l.MaxArrayLength,
		MaxNestingLevel:     l.MaxNestingLevel,
	}
}

func (r *rateLimitsConfig) stack() stack.RateLimits {
	return stack.RateLimits{
		Disabled:                          r.Disabled,
		ConnectionsUnlimited:              r.ConnectionsUnlimited,
		EstablishmentUnlimited:            r.EstablishmentUnlimited,
		ConnectionsPerSecond:              r.ConnectionsPerSecond,
		ConnectionBurst:                   r.ConnectionBurst,
		ConnectionsPerSecondPerAddress:    r.ConnectionsPerSecondPerAddress,
		PoliteRefusalsPerSecond:           r.PoliteRefusalsPerSecond,
		MaxConcurrentSessionEstablishment: r.MaxConcurrentSessionEstablishment,
		SessionEstablishmentQueueLimit:    r.SessionEstablishmentQueueLimit,
		MaxCryptoWait:                     r.MaxCryptoWait,
		DiscoveryPerSecond:                r.DiscoveryPerSecond,
		DiscoveryBurst:                    r.DiscoveryBurst,
		ListenBacklog:                     r.ListenBacklog,
	}
}

func (r *retryConfig) stack() stack.Retry { return stack.Retry{Min: r.Min, Max: r.Max} }

func (b *budgetConfig) stack() stack.Budget {
	return stack.Budget{MaxBytes: int64(b.MaxBytes), SessionlessBytes: int64(b.SessionlessBytes)}
}
