package isolation

import "time"

// Options configure isolation; the zero value is Balanced with every limit
// computed from [Totals].
type Options struct {
	// Mode of sharing; zero: Balanced.
	Mode Mode
	// MaxTrackedOwners bounds the owner table. 0: max(4096, 2 × MaxChannels +
	// trusted owners + 8).
	MaxTrackedOwners int
	// MaxOwnerKeyLength in bytes. 0: 256.
	MaxOwnerKeyLength int
	// DefaultWeight of an owner in the request queue. 0: 1.
	DefaultWeight int
	// HandshakeTimeout from admission to a complete handshake; more than 0 and
	// at most 2 min. 0: 2 min.
	HandshakeTimeout time.Duration
	// MaxRetainedMessageBytes is the footprint of one message in assembly.
	// 0: 4 × (MaxMessageSize + MaxBufferSize clamped to 8,192 … 147,456).
	MaxRetainedMessageBytes int64
	// BootstrapReservedBytes and ReconnectReservedBytes are floors of
	// ReassemblyBytes. nil: one footprint each; 0: no floor; else at least one
	// footprint. A StageOptions entry for ReassemblyBytes overrides them.
	BootstrapReservedBytes *int64
	ReconnectReservedBytes *int64
	// Stages override the computed limits of single stages; at most one entry each.
	Stages []StageOptions
	// TrustedOwners are provisioned owners with floors of their own.
	TrustedOwners []TrustedOwner
}

// StageOptions override one stage. Amounts are in the stage's unit: connections,
// requests, or bytes. nil keeps the computed value; a floor of 0 removes it.
type StageOptions struct {
	Stage Stage
	// Capacity may only lower the total.
	Capacity          *int64
	BootstrapReserved *int64
	ReconnectReserved *int64
	ControlReserved   *int64
	// OwnerHardLimit is the most that one owner may hold; nil: the capacity.
	OwnerHardLimit *int64
}

// TrustedOwner is an owner known by its key.
type TrustedOwner struct {
	// Key that a Classifier answers with; not empty, unique.
	Key string
	// Weight in the request queue. 0: DefaultWeight.
	Weight int
	// Reservations by stage; a stage that is not listed keeps one unit.
	Reservations []Reservation
}

// Reservation is a trusted owner's floor at one stage.
type Reservation struct {
	Stage Stage
	// Reserved is the floor: 0 for none, else at least one unit.
	Reserved int64
	// HardLimit is the most that the owner may hold. 0: the stage's.
	HardLimit int64
}

// Totals are the server's limits that a plan divides.
type Totals struct {
	MaxMessageSize       int64 // bytes
	MaxBufferSize        int64 // bytes
	MaxSessions          int64
	MaxChannels          int64
	Budget               int64 // bytes of messages in assembly
	MaxEstablishment     int64 // CreateSession and ActivateSession in flight
	MaxQueuedRequests    int64
	MaxExecutingRequests int64
	MaxParkedRequests    int64
	HasClassifier        bool  // whether somebody can name trusted owners
	RunSlots             int64 // requests that run inline at once; 0 = no bound
}

// Amount returns a pointer to n, for the optional amounts of StageOptions.
func Amount(n int64) *int64 { return &n }
