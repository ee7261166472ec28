package stack

import (
	"context"
	"errors"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// Governors bound what tenants and users have under way, in two lanes: data, and
// control for what keeps clients going. The tenant and the user are those of the
// session's identity, so all credentials of one user share a budget; callers
// without an identity are the user "anonymous" of the tenant "default".
type Governors struct {
	// HTTP guards the HTTPS listeners: the number of requests from before the
	// body is read to the end of the response, and the memory they may take. nil:
	// off; the zero value: admission's defaults.
	HTTP *admission.HTTPOptions
	// Commands guards requests that change something, over every transport,
	// before they are queued: Write, Call, HistoryUpdate and NodeManagement in the
	// data lane, continuity work in the control lane. nil: off; the zero value:
	// admission's defaults.
	Commands *admission.CommandOptions
}

// AdmissionStatus is what the governors allow and hold; nil stands for one that
// is off.
type AdmissionStatus struct {
	HTTP     *admission.HTTPStatus    `json:"http"`
	Commands *admission.CommandStatus `json:"commands"`
}

// governors are those in force; nil ones admit everything.
type governors struct {
	http     *admission.HTTPGovernor
	commands *admission.CommandGovernor
}

func newGovernors(o *Governors) (g governors, err error) {
	if o.HTTP != nil {
		if g.http, err = admission.NewHTTPGovernor(*o.HTTP); err != nil {
			return g, governorError("Governors.HTTP", err)
		}
	}
	if o.Commands != nil {
		if g.commands, err = admission.NewCommandGovernor(*o.Commands); err != nil {
			return g, governorError("Governors.Commands", err)
		}
	}
	return g, nil
}

func governorError(field string, err error) error {
	var o *admission.OptionError
	if errors.As(err, &o) {
		return &OptionError{Field: field + "." + o.Field, Reason: o.Reason}
	}
	return &OptionError{Field: field, Reason: err.Error()}
}

// AdmissionStatus returns the limits of the governors and what is held now.
func (s *Server) AdmissionStatus() AdmissionStatus {
	var st AdmissionStatus
	if g := s.governors.http; g != nil {
		is := g.Status()
		st.HTTP = &is
	}
	if g := s.governors.commands; g != nil {
		is := g.Status()
		st.Commands = &is
	}
	return st
}

// Who acts without an identity, and where users without a tenant belong.
const (
	anonymousPrincipal = "anonymous"
	defaultTenant      = "default"
)

// principalOf is who a session acts for; nil: an anonymous caller.
func principalOf(s *session.Session) admission.Principal {
	p := admission.Principal{Tenant: defaultTenant, Name: anonymousPrincipal}
	if s == nil {
		return p
	}
	if is := s.Identity(); is != nil && is.User != "" {
		p.Name = is.User
		if is.Tenant != "" {
			p.Tenant = is.Tenant
		}
	}
	return p
}

// continues reports whether a request is continuity work: the services marked
// so, and ActivateSession of a live session.
func continues(e *service.Entry, live bool) bool {
	return e.Continues || live && e.TypeID == id.ActivateSessionRequest_Encoding_DefaultBinary
}

// settle asks the governors for a request that acts for sess; nil when it has
// none. It is asked before isolation, which holds less for those it refuses.
func (d *dispatcher) settle(r *request, m carrier, sess *session.Session, size int) ua.StatusCode {
	control := continues(r.Entry, sess != nil)
	if m.c != nil && (sess != nil || r.sessionless) {
		p := principalOf(sess)
		if !m.c.Principal(p.Tenant, p.Name, control, heavy(r)) {
			return uastatus.BadServerTooBusy
		}
	}
	if d.governors.commands == nil || r.Entry.MayPark {
		return ua.StatusOK
	}
	if r.Entry.Changes || control && sess != nil && r.Entry.MayBlock {
		return d.reserve(r, sess, control, size)
	}
	return ua.StatusOK
}

// handleShort runs a handler that does not block. Continuity work reserves here,
// and not before it is queued: its lane is as narrow as the work is short, and a
// thousand clients that leave at once must not meet the end of a lane while they
// wait for their turn.
func (d *dispatcher) handleShort(r *request) ua.StatusCode {
	if !d.governed || !r.Entry.Continues {
		return d.handle(&r.Request)
	}
	sess := r.Session
	if sess == nil {
		sess = d.set.Sessions.Peek(r.Channel, r.Header.AuthenticationToken)
	}
	if sess == nil {
		return d.handle(&r.Request)
	}
	v, err := d.governors.commands.Reserve(d.base, admission.Command{Principal: principalOf(sess), Control: true, PayloadBytes: int64(r.size)})
	if err != nil {
		return commandStatus(err)
	}
	defer v.Release()
	return d.handle(&r.Request)
}

// reserve takes a reservation of the command governor, which finish returns. A
// binary request counts as its size.
func (d *dispatcher) reserve(r *request, sess *session.Session, control bool, size int) ua.StatusCode {
	v, err := d.governors.commands.Reserve(d.base, admission.Command{Principal: principalOf(sess), Control: control, PayloadBytes: int64(size)})
	if err != nil {
		return commandStatus(err)
	}
	r.reservation = v
	return ua.StatusOK
}

// reserveAcknowledgements takes a reservation for what a Publish request
// acknowledges, if it does; it is returned before the request parks.
func (d *dispatcher) reserveAcknowledgements(r *request) (*admission.Reservation, ua.StatusCode) {
	if d.governors.commands == nil || r.Session == nil {
		return nil, ua.StatusOK
	}
	const acknowledgement = 8 // SubscriptionId, SequenceNumber
	peek := r.Body
	n := peek.ArrayLen(acknowledgement)
	if n <= 0 || peek.Err() != nil {
		return nil, ua.StatusOK
	}
	v, err := d.governors.commands.Reserve(d.base, admission.Command{Principal: principalOf(r.Session), Control: true, PayloadBytes: int64(n) * acknowledgement})
	if err != nil {
		return nil, commandStatus(err)
	}
	return v, ua.StatusOK
}

// commandStatus is the status code of an error of the command governor.
func commandStatus(err error) ua.StatusCode {
	switch {
	case errors.Is(err, admission.ErrResourceExhausted):
		return uastatus.BadServerTooBusy
	case errors.Is(err, admission.ErrUnknownOutcome), errors.Is(err, context.Canceled): // the dispatcher's base has ended
		return ua.StatusBadServerHalted
	}
	return ua.StatusBadInternalError
}

// From how many operations on a request counts as a heavy read.
const (
	heavyBrowse = 100
	heavyRead   = 1000
)

// heavy reports whether a request is a bulk read or a query, from its number of
// operations.
func heavy(r *request) bool {
	peek := r.Body
	switch r.Entry.TypeID {
	case id.HistoryReadRequest_Encoding_DefaultBinary, id.QueryFirstRequest_Encoding_DefaultBinary, id.QueryNextRequest_Encoding_DefaultBinary:
		return true
	case id.ReadRequest_Encoding_DefaultBinary:
		peek.Double() // maxAge
		peek.UInt32() // timestampsToReturn
		return peek.ArrayLen(1) > heavyRead
	case id.BrowseRequest_Encoding_DefaultBinary:
		peek.NodeID() // view
		peek.DateTime()
		peek.UInt32()
		peek.UInt32() // requestedMaxReferencesPerNode
		return peek.ArrayLen(1) > heavyBrowse
	case id.BrowseNextRequest_Encoding_DefaultBinary:
		peek.Bool() // releaseContinuationPoints
		return peek.ArrayLen(1) > heavyBrowse
	}
	return false
}
