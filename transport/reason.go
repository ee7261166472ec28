// Package transport holds what all transports share: the limits of a
// connection, the Gate that admits physical connections, the list of
// deadlines, the outgoing side of a connection, and the contract between a
// transport (opc.tcp, WebSocket) and the secure channel above it.
package transport

// CloseReason says why a connection ended. Every connection ends with exactly
// one; logs and metrics use its String.
type CloseReason uint8

// Reasons. The comment names the peer's last sight of the connection.
const (
	ReasonNone         CloseReason = iota // still open
	PeerClosed                            // the peer closed or reset the socket, or sent ERR
	CloseSecureChannel                    // CloseSecureChannel request; the socket is closed
	HelloTimeout                          // ERR BadTimeout
	HandshakeTimeout                      // ERR BadTimeout
	AssemblyTimeout                       // ERR BadTimeout
	TokenExpired                          // ERR BadSecureChannelTokenUnknown: not renewed in time
	SlowReader                            // write queue over its bytes; no ERR, the peer does not read
	WriteTimeout                          // write queue over its time; no ERR
	ProtocolError                         // ERR with the precise code: framing, sizes, wrong message
	SecurityError                         // ERR BadSecurityChecksFailed, the precise code is in the log
	ResourceLimit                         // ERR BadTcpNotEnoughResources: reassembly budget
	TooBusy                               // ERR BadTcpServerTooBusy
	Reclaimed                             // ERR BadSecureChannelClosed: the slot went to a newcomer
	Shutdown                              // ERR BadServerHalted
	Administrative                        // closed by an operator or by a service's decision
	IOError                               // the socket failed
	InternalError                         // ERR BadTcpInternalError
	ProxyHeader                           // nothing: no valid PROXY header from a balancer in time
	reasons
)

var reasonNames = [reasons]string{
	"open", "peer closed", "close secure channel", "hello timeout", "handshake timeout",
	"assembly timeout", "token expired", "slow reader", "write timeout", "protocol error",
	"security error", "resource limit", "too busy", "reclaimed", "shutdown", "administrative",
	"i/o error", "internal error", "proxy header",
}

// String is a short fixed text, fit for a metric's label.
func (r CloseReason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return "unknown"
}

// MarshalText lets JSON logs name the reason as text logs do.
func (r CloseReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Reasons lists every reason a connection can end with.
func Reasons() []CloseReason {
	rs := make([]CloseReason, 0, reasons-1)
	for r := PeerClosed; r < reasons; r++ {
		rs = append(rs, r)
	}
	return rs
}

// Abrupt reports whether nothing more is sent to the peer: it is gone, or does
// not read.
func (r CloseReason) Abrupt() bool {
	return r == PeerClosed || r == SlowReader || r == WriteTimeout || r == IOError
}
