package stack

import (
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Admission decides whether a request may run. It is asked after the session
// was found and before the body is decoded, on the goroutine that reads the
// connection, so it must not block. Implementations are called concurrently.
type Admission interface {
	// Admit returns Good, or the status to refuse the request with; for
	// BadServerTooBusy it sets a.RetryAfter.
	Admit(a *Arrival) ua.StatusCode
	// Release is called exactly once for each request that was admitted: when it
	// has been answered, or when it parks.
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

// slots is the simple Admission: a bound on blocking requests that run or wait,
// a bound on those of one kind that establish sessions, and none on inline ones
// beyond one for each connection, which is how many there can be.
type slots struct {
	blocking      atomic.Int64
	establishment atomic.Int64
	refused       atomic.Uint64

	maxBlocking      int64 // executing + queued
	maxEstablishment int64
}

// busyRetry is the hint of a refused request.
const busyRetry = 500 * time.Millisecond

func (s *slots) count(a *Arrival) (n *atomic.Int64, limit int64) {
	switch {
	case a.Service.Kind == service.KindEstablish:
		return &s.establishment, s.maxEstablishment
	case a.Blocking:
		return &s.blocking, s.maxBlocking
	}
	return nil, 0
}

// Admit implements Admission.
func (s *slots) Admit(a *Arrival) ua.StatusCode {
	n, limit := s.count(a)
	if n == nil {
		return ua.StatusOK
	}
	if n.Add(1) > limit {
		n.Add(-1)
		s.refused.Add(1)
		a.RetryAfter = busyRetry
		return uastatus.BadServerTooBusy
	}
	return ua.StatusOK
}

// Release implements Admission.
func (s *slots) Release(a *Arrival) {
	if n, _ := s.count(a); n != nil {
		n.Add(-1)
	}
}
