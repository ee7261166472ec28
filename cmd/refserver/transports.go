package main

import (
	"fmt"
	"net"
	"net/url"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/stack"
)

// httpConfig is for what comes over HTTPS and WebSockets (docs/transports.md).
type httpConfig struct {
	None              bool     `yaml:"none"`
	Sessionless       bool     `yaml:"sessionless"`
	MaxSessionless    int      `yaml:"maxSessionless"`
	AllowedOrigins    []string `yaml:"allowedOrigins"`
	RequestsPerSecond int      `yaml:"requestsPerSecond"`
	RequestBurst      int      `yaml:"requestBurst"`
}

func (h *httpConfig) stack() stack.HTTPOptions {
	return stack.HTTPOptions{
		AllowPolicyNone: h.None, AllowSessionless: h.Sessionless, MaxSessionless: h.MaxSessionless,
		AllowedOrigins: h.AllowedOrigins, RequestsPerSecond: float64(h.RequestsPerSecond), RequestBurst: h.RequestBurst,
	}
}

type tlsConfig struct {
	Certificate              string `yaml:"certificate"`
	Key                      string `yaml:"key"`
	ClientCAs                string `yaml:"clientCAs"`
	RequireClientCertificate bool   `yaml:"requireClientCertificate"`
}

func (t *tlsConfig) stack() stack.TLSOptions {
	return stack.TLSOptions{
		CertificateFile: t.Certificate, KeyFile: t.Key,
		ClientCAs: t.ClientCAs, RequireClientCertificate: t.RequireClientCertificate,
	}
}

type governorsConfig struct {
	HTTP     httpGovernorConfig    `yaml:"http"`
	Commands commandGovernorConfig `yaml:"commands"`
}

type httpGovernorConfig struct {
	Enabled                     bool `yaml:"enabled"`
	MaxRequests                 int  `yaml:"maxRequests"`
	MaxReservedBytes            size `yaml:"maxReservedBytes"`
	MaxTenantRequests           int  `yaml:"maxTenantRequests"`
	MaxPrincipalRequests        int  `yaml:"maxPrincipalRequests"`
	SmallBodyRequests           int  `yaml:"smallBodyRequests"`
	ReservedControlRequests     int  `yaml:"reservedControlRequests"`
	ReservedControlBytes        size `yaml:"reservedControlBytes"`
	MaxTenantControlRequests    int  `yaml:"maxTenantControlRequests"`
	MaxPrincipalControlRequests int  `yaml:"maxPrincipalControlRequests"`
	MaxBodyBytes                size `yaml:"maxBodyBytes"`
	MaxControlBodyBytes         size `yaml:"maxControlBodyBytes"`
	HeavyReadReservedBytes      size `yaml:"heavyReadReservedBytes"`
	OtherReservedBytes          size `yaml:"otherReservedBytes"`
}

type commandGovernorConfig struct {
	Enabled                     bool `yaml:"enabled"`
	MaxCommands                 int  `yaml:"maxCommands"`
	MaxRetainedBytes            size `yaml:"maxRetainedBytes"`
	MaxTenantCommands           int  `yaml:"maxTenantCommands"`
	MaxPrincipalCommands        int  `yaml:"maxPrincipalCommands"`
	ReservedControlCommands     int  `yaml:"reservedControlCommands"`
	ReservedControlBytes        size `yaml:"reservedControlBytes"`
	MaxControlPayloadBytes      size `yaml:"maxControlPayloadBytes"`
	MaxTenantControlCommands    int  `yaml:"maxTenantControlCommands"`
	MaxPrincipalControlCommands int  `yaml:"maxPrincipalControlCommands"`
}

// defaultGovernors are the library's own, but for those of one server that many
// tenants share.
func defaultGovernors() governorsConfig {
	return governorsConfig{
		HTTP: httpGovernorConfig{
			Enabled: true, MaxRequests: 256, MaxReservedBytes: 1 << 30, MaxTenantRequests: 256, MaxPrincipalRequests: 64,
			SmallBodyRequests: 16, ReservedControlRequests: 64, ReservedControlBytes: 8 << 20,
			MaxTenantControlRequests: 64, MaxPrincipalControlRequests: 64,
			MaxBodyBytes: 8 << 20, MaxControlBodyBytes: 64 << 10, HeavyReadReservedBytes: 64 << 20,
			// All of MaxRequests must fit into MaxReservedBytes: establishments that wait for
			// the private key, 128 at most, must not keep the reads of others out.
			OtherReservedBytes: 3 << 20,
		},
		Commands: commandGovernorConfig{
			Enabled: true, MaxCommands: 256, MaxRetainedBytes: 128 << 20, MaxTenantCommands: 128, MaxPrincipalCommands: 64,
			// As many as the request queue holds: all anonymous sessions are one
			// principal, and when they close together none should be refused.
			ReservedControlCommands: 256, ReservedControlBytes: 2 << 20, MaxControlPayloadBytes: 64 << 10,
			MaxTenantControlCommands: 256, MaxPrincipalControlCommands: 256,
		},
	}
}

func (g *governorsConfig) stack() (out stack.Governors) {
	if h := &g.HTTP; h.Enabled {
		out.HTTP = &admission.HTTPOptions{
			MaxRequests: h.MaxRequests, MaxReservedBytes: int64(h.MaxReservedBytes),
			MaxTenantRequests: h.MaxTenantRequests, MaxPrincipalRequests: h.MaxPrincipalRequests, SmallBodyRequests: h.SmallBodyRequests,
			ReservedControlRequests: h.ReservedControlRequests, ReservedControlBytes: int64(h.ReservedControlBytes),
			MaxTenantControlRequests: h.MaxTenantControlRequests, MaxPrincipalControlRequests: h.MaxPrincipalControlRequests,
			MaxBodyBytes: int64(h.MaxBodyBytes), MaxControlBodyBytes: int64(h.MaxControlBodyBytes),
			HeavyReadReservedBytes: int64(h.HeavyReadReservedBytes), OtherReservedBytes: int64(h.OtherReservedBytes),
		}
	}
	if c := &g.Commands; c.Enabled {
		out.Commands = &admission.CommandOptions{
			MaxCommands: c.MaxCommands, MaxRetainedBytes: int64(c.MaxRetainedBytes),
			MaxTenantCommands: c.MaxTenantCommands, MaxPrincipalCommands: c.MaxPrincipalCommands,
			ReservedControlCommands: c.ReservedControlCommands, ReservedControlBytes: int64(c.ReservedControlBytes),
			MaxControlPayloadBytes:   int64(c.MaxControlPayloadBytes),
			MaxTenantControlCommands: c.MaxTenantControlCommands, MaxPrincipalControlCommands: c.MaxPrincipalControlCommands,
		}
	}
	return out
}

// defaultPorts are those of the schemes (OPC 10000-6 §7).
var defaultPorts = map[string]string{"opc.tcp": "4840", "opc.wss": "4843", "opc.https": "4843", "https": "4843"}

// sharedListen are the URLs of one port that speaks everything.
func sharedListen(address string) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("--listen-shared: %w", err)
	}
	at := net.JoinHostPort(host, port)
	return []string{"opc.tcp://" + at, "opc.wss://" + at, "opc.https://" + at}, nil
}

// portOf returns the port of a URL to listen on.
func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return defaultPorts[u.Scheme]
}
