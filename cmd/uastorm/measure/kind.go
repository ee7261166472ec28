package measure

import "fmt"

// A Kind is a kind of operation that is timed.
type Kind uint8

// The kinds of operations.
const (
	// Connect is all that it takes to get from nothing to an activated
	// session, one attempt.
	Connect Kind = iota
	// Read and the others up to Call are Service calls.
	Read
	Write
	Browse
	Call
	// Subscribe is CreateSubscription with its CreateMonitoredItems.
	Subscribe
	// Publish is the delay of a notification: scheduled is when the value was
	// sampled or published by the server, ended when it had arrived.
	Publish
	// KeepAlive is a read of the server's state that keeps an idle session.
	KeepAlive
	// Disconnect is CloseSession and all that follows.
	Disconnect
	// Kinds is how many there are.
	Kinds
)

var kindNames = [Kinds]string{"connect", "read", "write", "browse", "call", "subscribe", "publish", "keepalive", "disconnect"}

// String names the kind, in lower case.
func (k Kind) String() string { return name(kindNames[:], uint8(k)) }

// MarshalText makes a kind a key of JSON objects.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (k *Kind) UnmarshalText(b []byte) error {
	i, err := unname(kindNames[:], string(b), "kind of operation")
	*k = Kind(i)
	return err
}

// A Refusal is a way in which a server refuses a connection or a session.
type Refusal uint8

// The ways to refuse.
const (
	// ByError is a word of the transport: an Error message of OPC UA TCP (OPC
	// 10000-6 §7.1.2.5, "Error Message"), the close code of a WebSocket or an HTTP
	// status: the server said why.
	ByError Refusal = iota
	// ByFault is a ServiceFault or a response with a bad ServiceResult.
	ByFault
	// BySilence is a connection closed or reset without a word.
	BySilence
	// ByTimeout is no answer in time.
	ByTimeout
	// BySystem is a connection that the server's operating system refused.
	BySystem
	// Refusals is how many there are.
	Refusals
)

var refusalNames = [Refusals]string{"error", "fault", "silence", "timeout", "system"}

// String names the way, in lower case.
func (r Refusal) String() string { return name(refusalNames[:], uint8(r)) }

// MarshalText makes a refusal a key of JSON objects.
func (r Refusal) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (r *Refusal) UnmarshalText(b []byte) error {
	i, err := unname(refusalNames[:], string(b), "refusal")
	*r = Refusal(i)
	return err
}

func name(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown%d", i)
}

func unname(names []string, s, what string) (uint8, error) {
	for i, n := range names {
		if n == s {
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("measure: unknown %s %q", what, s)
}
