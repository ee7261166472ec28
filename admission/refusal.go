package admission

import (
	"errors"
	"sync/atomic"
)

var (
	// ErrResourceExhausted says that there was no room: nothing was queued,
	// run or changed, and the same command may be sent again. [RefusedError]
	// says what was full.
	ErrResourceExhausted = errors.New("admission: resource exhausted")
	// ErrUnknownOutcome says that an admitted command may or may not have been
	// carried out. Who sends it again must use the same command id.
	ErrUnknownOutcome = errors.New("admission: unknown outcome")
	// ErrInvalidCommand says that a governor was asked in a way that no state
	// of it could grant: a blank tenant or principal, or a negative size.
	ErrInvalidCommand = errors.New("admission: invalid command")
)

// Lane is one of the two halves of a governor. They share nothing.
type Lane uint8

const (
	DataLane    Lane = iota // whatever is not control
	ControlLane             // work that keeps the system going; small
	lanes       = iota
)

// String returns "data" or "control".
func (l Lane) String() string {
	if l == ControlLane {
		return "control"
	}
	return "data"
}

// Reason is what a refusal was for.
type Reason uint8

const (
	CountFull     Reason = iota // the lane's count, or its part for large bodies
	BytesFull                   // the lane's bytes, or their part for large bodies
	TenantFull                  // the tenant's count in the lane
	PrincipalFull               // the principal's count in the lane
	TooLarge                    // more than the lane or its largest payload could ever hold
	Stopped                     // an Inbox takes no more
	reasons       = iota
)

// String names the reason as [LaneStatus] does.
func (r Reason) String() string {
	return [...]string{"count", "bytes", "tenant", "principal", "size", "stopped"}[r]
}

// RefusedError is an [ErrResourceExhausted] that says what was full.
type RefusedError struct {
	Lane   Lane
	Reason Reason
}

// Error names the lane and the reason, and no tenant or principal.
func (e *RefusedError) Error() string {
	return ErrResourceExhausted.Error() + ": " + e.Lane.String() + " lane: " + e.Reason.String()
}

// Is reports whether target is [ErrResourceExhausted].
func (e *RefusedError) Is(target error) bool { return target == ErrResourceExhausted }

// refusedErrors are constant, so that a storm of refusals makes no garbage.
var refusedErrors = func() (table [lanes][reasons]RefusedError) {
	for l := range table {
		for r := range table[l] {
			table[l][r] = RefusedError{Lane: Lane(l), Reason: Reason(r)}
		}
	}
	return table
}()

// refusals counts what a governor refused.
type refusals [lanes][reasons]atomic.Uint64

// refuse counts a refusal and returns its error.
func (c *refusals) refuse(l Lane, r Reason) *RefusedError {
	c[l][r].Add(1)
	return &refusedErrors[l][r]
}

// of returns a lane's refusals by reason, those that occurred.
func (c *refusals) of(l Lane) map[string]uint64 {
	m := map[string]uint64{}
	for r := range c[l] {
		if n := c[l][r].Load(); n > 0 {
			m[Reason(r).String()] = n
		}
	}
	return m
}
