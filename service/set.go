package service

import (
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/subscription"
	"github.com/gopcua/opcua/ua"
)

// A Set is what the handlers of one server work on. Fill the exported fields
// before the first request and call SetLimits.
type Set struct {
	Space         *addressspace.Space
	Sessions      *session.Store
	Subscriptions *subscription.Engine
	Discovery     Discovery
	Logger        *slog.Logger

	limits        atomic.Pointer[Limits]
	continuations continuations
	calls         Calls
}

// SetLimits puts limits in force for the requests that come from now on.
func (s *Set) SetLimits(l Limits) {
	l = l.WithDefaults()
	s.limits.Store(&l)
}

// Limits returns the numbers in force (see [Limits.WithDefaults]).
func (s *Set) Limits() Limits { return *s.limits.Load() }

// Discovery tells FindServers, GetEndpoints and CreateSession what to announce
// to a client that reached the server on channel ch under the address url.
type Discovery interface {
	Application(ch session.Channel, url string) *ua.ApplicationDescription
	Endpoints(ch session.Channel, url string) []*ua.EndpointDescription
}

// Calls gives the registry of requests that run on their own goroutines.
func (s *Set) Calls() *Calls { return &s.calls }

// SessionClosed drops what the set keeps for a session: its continuation points
// and running requests, which are cancelled. Package stack calls it once when a
// session ends.
func (s *Set) SessionClosed(sess *session.Session) {
	s.continuations.drop(sess)
	s.calls.CancelOwner(sess, ua.StatusBadSessionClosed)
}

// caught turns a panic in a callback of the host into BadInternalError for the
// operation that called it. Defer it around such a call.
func (s *Set) caught(what string, code *ua.StatusCode) {
	if v := recover(); v != nil {
		*code = ua.StatusBadInternalError
		s.Logger.Error("callback panicked", "operation", what, "panic", v, "stack", string(debug.Stack()))
	}
}
