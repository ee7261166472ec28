// Package https is the TLS listener: the opc.https transport, OPC 10000-6 §7.4
// (OPC UA HTTPS), with bodies in OPC UA Binary and JSON over HTTP/1.1 and HTTP/2,
// and on the same port opc.wss (package wss) and, told apart by the first byte,
// opc.tcp (package uatcp).
//
// Connections are admitted by transport.Gate before TLS; what they may take
// until their first request, and how long, is the handshake's. A request is
// admitted before its body is read and handed to a transport.CallHandler; the
// order of the checks is the contract (request.go).
package https

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/budget"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uajson"
)

// Options configure a Listener.
type Options struct {
	// OPCTCP, WSS and HTTPS say what the port serves; at least one. With OPCTCP
	// alone use package uatcp.
	OPCTCP, WSS, HTTPS bool

	// NewSink makes the upper half of a connection with SecureChannels: opc.tcp,
	// and opc.wss with opcua+uacp, which is not offered when it is nil.
	NewSink func(transport.Conn) transport.Sink

	// Calls takes whole requests: opc.https, and opc.wss with opcua+uajson, which
	// is not offered when it is nil.
	Calls transport.CallHandler

	// TLS has the certificate, in Certificates or, to be asked at each handshake,
	// GetCertificate, and for mutual TLS ClientAuth and ClientCAs. It is copied;
	// MinVersion is at least TLS 1.2. GetConfigForClient may return another one
	// at each handshake, which holds to the same rules; it should be the same
	// pointer while nothing has changed.
	TLS *tls.Config

	// CryptoGate runs the private-key operations of RSA certificates; nil = they
	// run where they are needed.
	CryptoGate *security.CryptoGate

	// Gate and Deadlines are shared by all listeners of a server; nil = own ones.
	Gate      *transport.Gate
	Deadlines *transport.Deadlines

	// MaxConnections is this listener's own cap; 0 = none.
	MaxConnections int

	// Backlog for Listen; ≤ 0 = 512.
	Backlog int

	// Limits of each connection. MaxMessageSize bounds bodies, as they come.
	// HelloTimeout is the time to the end of the first request's header,
	// AssemblyTimeout that of a body, WriteTimeout that of each 64 KiB of an
	// answer, and that of the whole of it once and once more for each full MiB.
	// MaxOutstandingPerConnection bounds the requests of an HTTP/2 connection whose
	// answers are not written yet, WriteQueueBytes the bytes of these answers; one
	// larger than that may wait alone, those up to 8 KiB always do, and all others
	// become a 503.
	Limits transport.Limits
	// LiveLimits shares limits that may change with the other listeners of a server;
	// nil = Limits as they are.
	LiveLimits *transport.LiveLimits

	// Isolation (stage ReassemblyBytes) and Budget account for bodies while they
	// are read; nil = they do not.
	Isolation *isolation.Provider
	Budget    *budget.ChunkReassemblyBudget

	// Governor admits requests; nil = no bound but Limits'.
	Governor *admission.HTTPGovernor

	// RetryAfter is the Retry-After of a 503; nil = 1 s.
	RetryAfter func(now time.Time) time.Duration

	// RequestsPerSecond and RequestBurst are a token bucket for the requests of
	// the whole listener, over which the answer is 429; 0 = off. A burst of 0 is
	// 100, or the rate if that is more.
	RequestsPerSecond float64
	RequestBurst      int

	// Live reports whether a request, in OPC UA Binary, carries the token of a
	// live session: those do not count. nil = all count.
	Live func(body []byte) bool

	// AllowedOrigins are the origins of web pages that may open a WebSocket, see
	// wss.Options.
	AllowedOrigins []string

	// Decoding bounds JSON bodies; nil = the defaults.
	Decoding *uabinary.Limits
	// Tables are the server's NamespaceArray and ServerArray of the moment, with
	// which JSON has ids with their URIs (OPC 10000-6 §5.4.2.10, NodeId). It is
	// asked twice for each request. nil = ids have their indexes.
	Tables func() *uajson.Context

	// Closed is told of each connection's end, for metrics; nil = nobody.
	Closed func(remote netip.AddrPort, reason transport.CloseReason)

	// Logger; nil = slog.Default().
	Logger *slog.Logger
}

func (o *Options) validate() error {
	bad := func(field, what string) error { return fmt.Errorf("https: Options.%s %s", field, what) }
	switch {
	case !o.OPCTCP && !o.WSS && !o.HTTPS:
		return errors.New("https: Options.OPCTCP, WSS and HTTPS are all false")
	case o.OPCTCP && o.NewSink == nil:
		return bad("NewSink", "is nil, OPCTCP needs it")
	case o.HTTPS && o.Calls == nil:
		return bad("Calls", "is nil, HTTPS needs it")
	case o.WSS && o.NewSink == nil && o.Calls == nil:
		return bad("NewSink", "and Calls are nil, WSS needs one of them")
	case o.TLS == nil && (o.WSS || o.HTTPS):
		return bad("TLS", "is nil")
	case o.RequestsPerSecond < 0:
		return bad("RequestsPerSecond", "is negative")
	}
	return o.Limits.Validate()
}
