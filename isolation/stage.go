package isolation

// Stage is a resource that a request holds on its way through the server.
type Stage uint8

// The stages, in the order in which a request meets them.
const (
	Connection           Stage = iota // physical connections
	Handshake                         // connections whose handshake is not complete
	ReassemblyBytes                   // bytes of messages that are not complete
	SessionEstablishment              // CreateSession and ActivateSession at work
	RequestQueue                      // requests that wait to run
	RequestExecution                  // requests that run apart from their connection
	RequestQueueBytes                 // bytes kept for requests that wait, run or are parked
	ParkedRequest                     // requests that wait for something to report

	Stages = iota // how many there are
)

var stageNames = [Stages]string{"Connection", "Handshake", "ReassemblyBytes", "SessionEstablishment",
	"RequestQueue", "RequestExecution", "RequestQueueBytes", "ParkedRequest"}

// String returns the stage's name, fit for a metric's label.
func (s Stage) String() string {
	if int(s) < len(stageNames) {
		return stageNames[s]
	}
	return "Stage?"
}

// ParseStage finds a stage by its name.
func ParseStage(name string) (Stage, bool) {
	for s, n := range stageNames {
		if n == name {
			return Stage(s), true
		}
	}
	return 0, false
}

// request reports whether the stage is one of the four that single requests hold.
func (s Stage) request() bool { return s >= RequestQueue }

// Class says why an owner's work may not wait for everybody else's.
type Class uint8

// The classes.
const (
	Established Class = iota // ordinary work; no floor
	Bootstrap                // verified start-up work
	Reconnect                // a session that comes back
	Trusted                  // an owner provisioned by name
	Control                  // work that frees resources

	Classes = iota
)

// String returns the class's name.
func (c Class) String() string {
	if int(c) < Classes {
		return [...]string{"Established", "Bootstrap", "Reconnect", "Trusted", "Control"}[c]
	}
	return "Class?"
}

// Mode is how resources are shared.
type Mode uint8

// The modes.
const (
	Balanced            Mode = iota // floors for bootstrap, reconnect and control; trusted owners possible
	SharedOnly                      // no owners, no floors: totals only
	FairShare                       // owners and hard limits, no floors
	TrustedReservations             // as Balanced, with trusted owners, which are then required
)

// String returns the mode's name.
func (m Mode) String() string {
	if m <= TrustedReservations {
		return [...]string{"Balanced", "SharedOnly", "FairShare", "TrustedReservations"}[m]
	}
	return "Mode?"
}

// floors reports whether the mode keeps floors.
func (m Mode) floors() bool { return m == Balanced || m == TrustedReservations }

// Reason says why a lease was refused.
type Reason uint8

// The reasons, in the order in which they are checked.
const (
	Granted        Reason = iota
	InvalidOwner          // not issued by this Provider, or for another stage
	OwnerLimit            // over what one owner may hold
	Capacity              // nothing left that this owner may use
	OwnerTableFull        // no room to keep account of another owner
	Closed                // the Provider was closed

	Reasons = iota
)

// String returns the reason, fit for a metric's label.
func (r Reason) String() string {
	if int(r) < Reasons {
		return [...]string{"granted", "invalid owner", "owner limit", "capacity", "owner table full", "closed"}[r]
	}
	return "reason?"
}
