package stack

import (
	"time"

	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/gopcua/opcua/ua"
)

// Admission is a host's own say in whether a request may run. It is asked after
// the session was found and before isolation and the body's decoding, on the
// goroutine that reads the connection, so it must not block. Implementations are
// called concurrently.
type Admission interface {
	// Admit returns Good, or the status to refuse the request with; for
	// BadServerTooBusy it sets a.RetryAfter.
	Admit(a *Arrival) ua.StatusCode
	// Release is called exactly once for each request that was admitted: when it
	// has been answered or refused after all, or when it parks.
	Release(a *Arrival)
}

// An Arrival is one request that asks for admission.
type Arrival struct {
	Service  *service.Entry
	Channel  session.Channel
	Session  *session.Session // nil when the service needs none
	Size     int              // bytes of the request
	Blocking bool             // will run on a goroutine of its own

	// RetryAfter is what a refused client is told; 0 = no hint.
	RetryAfter time.Duration
	// Lease is the implementation's, for what it must release.
	Lease any
}
