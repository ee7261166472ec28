package transport

import (
	"context"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/admission"
	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// Request is what all implementations of Call have in common: the body and what
// it holds. Its fields are set before the Call is handed on.
type Request struct {
	From   *Peer
	Under  *security.Policy
	Binary *buffer.Buffer // the body
	At     time.Time
	Ctx    context.Context
	Lease  *admission.HTTPLease // nil without a governor
	Memory MemoryLease
	Read   int64 // bytes of the body as it came

	mu   sync.Mutex
	free bool
}

// Peer implements Call.
func (r *Request) Peer() *Peer { return r.From }

// Policy implements Call.
func (r *Request) Policy() *security.Policy { return r.Under }

// Body implements Call.
func (r *Request) Body() []byte { return r.Binary.B }

// Received implements Call.
func (r *Request) Received() time.Time { return r.At }

// Context implements Call.
func (r *Request) Context() context.Context { return r.Ctx }

// Principal implements Call.
func (r *Request) Principal(tenant, principal string, control, heavy bool) bool {
	if r.Lease == nil {
		return true
	}
	kind := admission.OtherRequest
	switch {
	case control:
		kind = admission.ControlRequest
	case heavy:
		kind = admission.HeavyRead
	}
	return r.Lease.Reclassify(kind, r.Read) && r.Lease.Bind(admission.Principal{Tenant: tenant, Name: principal})
}

// Decoded gives back what stood for the body while it was read: from now on it
// is the handler's account that bears it.
func (r *Request) Decoded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Memory.Release()
}

// FreeBody gives back the body, once there is an answer that is yet to be
// written; Free does the rest.
func (r *Request) FreeBody() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.freeBody()
}

// freeBody gives back the body, once. mu is held.
func (r *Request) freeBody() {
	r.Memory.Release()
	r.Binary.Release()
	r.Binary = nil
}

// Free gives back the body and all that the request holds, once: for Park and
// for the end.
func (r *Request) Free() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.free {
		return
	}
	r.free = true
	r.freeBody()
	if r.Lease != nil {
		r.Lease.Release()
	}
}

// AppendFault appends a ServiceFault, type id first, for a request that no
// handler gets to see (OPC 10000-4 §7.34, ServiceFault).
func AppendFault(b []byte, handle uint32, code ua.StatusCode, now time.Time) []byte {
	b = uabinary.AppendTypeID(b, id.ServiceFault_Encoding_DefaultBinary)
	return uabinary.AppendResponseHeader(b, &uabinary.ResponseHeader{
		Timestamp: uabinary.FromTime(now), RequestHandle: handle, ServiceResult: code,
	})
}
