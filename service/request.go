package service

import (
	"context"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// Bits of RequestHeader.returnDiagnostics that ask for service-level
// diagnostics (OPC 10000-4 §7.32 RequestHeader).
const (
	diagnosticsSymbolicID     = 0x01
	diagnosticsAdditionalInfo = 0x04
)

// A Request is one service call on its way through its handler. Package stack
// fills it, a handler reads Body and appends to Out. Requests are reused:
// nothing in one, nor anything decoded from Body, may be kept after the handler
// returned.
type Request struct {
	Channel   session.Channel
	RequestID uint32
	Entry     *Entry
	Header    uabinary.RequestHeader
	Body      uabinary.Decoder     // positioned behind the RequestHeader
	Session   *session.Session     // nil when the service needs none
	Caller    *addressspace.Caller // of Session; an empty caller without one
	Time      time.Time            // when the request was read
	Now       uabinary.DateTime    // the same instant
	Context   context.Context      // ends with the session, the timeout hint, Cancel and the server; only set when MayBlock
	MayBlock  bool                 // the handler runs on a goroutine of its own
	Out       []byte               // the response so far
	Parked    bool                 // the answer comes later, from elsewhere
	Limit     int                  // largest response in bytes the client and the server take; 0 = none
	RetryHint time.Duration        // sent with a BadServerTooBusy fault; 0 = none
	// AdditionalHeader is sent in the ResponseHeader, of a fault too, where a
	// retry hint joins its parameters. It must be set before Begin.
	AdditionalHeader uabinary.ExtensionObject

	buf      *buffer.Buffer // owner of the array Out started in
	deferred bool
	read     addressspace.Read
	value    uabinary.DataValue
}

// responseHeaderSize is what Begin appends: type id (4), timestamp (8), handle
// (4), result (4), no diagnostics (1), no string table (4), no additional
// header (3).
const responseHeaderSize = 28

// Begin takes a response buffer for about size bytes and writes the type id of
// the response and a Good ResponseHeader.
func (r *Request) Begin(size int) {
	if r.buf == nil {
		r.buf = buffer.Get(size)
	}
	r.Out = r.header(r.buf.B[:0], r.Entry.ResponseID, ua.StatusOK)
}

// Reserve makes room for n more bytes in the response, from the buffer pool.
func (r *Request) Reserve(n int) {
	if r.Limit > 0 && n > r.Limit {
		n = r.Limit
	}
	if cap(r.Out)-len(r.Out) >= n {
		return
	}
	b := buffer.Get(len(r.Out) + n)
	out := append(b.B[:0], r.Out...)
	if r.buf != nil {
		r.buf.Release()
	}
	r.buf, r.Out = b, out
}

// Failed reports whether the severity of a code is Bad (OPC 10000-4 §7.39).
func Failed(code ua.StatusCode) bool { return code&0x80000000 != 0 }

// Full reports whether the response has outgrown Limit; a handler that sees it
// returns BadResponseTooLarge instead of building more of what cannot be sent.
func (r *Request) Full() bool { return r.Limit > 0 && len(r.Out) > r.Limit }

// Defer tells the dispatcher that this request cannot go on without blocking,
// for instance because a value is behind a callback of the host. The handler
// returns at once and is called again from the start, on a goroutine of its
// own. Defer reports false, and does nothing, when that is where it runs.
func (r *Request) Defer() bool {
	if r.MayBlock {
		return false
	}
	r.deferred = true
	return true
}

// Deferred reports whether the handler asked for a goroutine of its own, and
// forgets it.
func (r *Request) Deferred() bool {
	d := r.deferred
	r.deferred = false
	return d
}

func (r *Request) header(b []byte, typeID uint32, code ua.StatusCode) []byte {
	b = uabinary.AppendTypeID(b, typeID)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Now))
	b = binary.LittleEndian.AppendUint32(b, r.Header.RequestHandle)
	b = binary.LittleEndian.AppendUint32(b, uint32(code))
	// no DiagnosticInfo; a null string table
	b = append(b, 0, 0xff, 0xff, 0xff, 0xff)
	if r.AdditionalHeader.Encoding != 0 {
		return uabinary.AppendExtensionObject(b, r.AdditionalHeader)
	}
	return append(b, 0, 0, 0) // an AdditionalHeader without type or body
}

// Fault replaces the response by a ServiceFault (OPC 10000-4 §7.34): the status
// code, its symbolic name when the client asked for diagnostics, and a retry
// hint when the code is BadServerTooBusy. What went wrong in detail belongs in
// the log.
func (r *Request) Fault(code ua.StatusCode) {
	if r.buf == nil {
		r.buf = buffer.Get(responseHeaderSize + 128)
	}
	b := r.Out[:0]
	if r.Out == nil {
		b = r.buf.B[:0]
	}
	h := uabinary.ResponseHeader{Timestamp: r.Now, RequestHandle: r.Header.RequestHandle, ServiceResult: code}
	hint := r.RetryHint
	if code != uastatus.BadServerTooBusy {
		hint = 0
	}
	if want := r.Header.ReturnDiagnostics; want&(diagnosticsSymbolicID|diagnosticsAdditionalInfo) != 0 {
		h.Diagnostics, h.StringTable = faultDiagnostics(want, code, hint)
	}
	h.AdditionalHeader = r.AdditionalHeader
	if hint > 0 {
		h.AdditionalHeader = withRetryHint(h.AdditionalHeader, hint)
	}
	b = uabinary.AppendTypeID(b, id.ServiceFault_Encoding_DefaultBinary)
	r.Out = uabinary.AppendResponseHeader(b, &h)
}

// faultDiagnostics encodes the DiagnosticInfo (OPC 10000-6 §5.2.2.12) of a
// fault with the parts asked for.
func faultDiagnostics(want uint32, code ua.StatusCode, hint time.Duration) (info []byte, table []string) {
	info = []byte{0}
	if want&diagnosticsSymbolicID != 0 {
		info[0] |= 0x01
		info = binary.LittleEndian.AppendUint32(info, 0)
		table = []string{uastatus.Name(code)}
	}
	if want&diagnosticsAdditionalInfo != 0 {
		text := uastatus.Name(code)
		if hint > 0 {
			text = "RetryAfterMs=" + strconv.FormatInt(milliseconds(hint), 10)
		}
		info[0] |= 0x10
		info = uabinary.AppendString(info, text)
	}
	return info, table
}

// retryParameter names the hint among the parameters of an AdditionalHeader.
var retryParameter = uabinary.QualifiedName{Name: []byte("RetryAfterMs")}

// withRetryHint adds the parameter RetryAfterMs, Int64, to an AdditionalHeader
// (OPC 10000-4 §7.1 AdditionalParametersType), behind those that are there. A
// header of another type gives way: a client that knows nothing of it knows how
// to wait.
func withRetryHint(h uabinary.ExtensionObject, hint time.Duration) uabinary.ExtensionObject {
	n, have := uint32(0), []byte(nil)
	if h.Encoding == 1 && h.TypeID.NodeID.Equal(additionalParameters) && len(h.Body) >= 4 {
		if n = binary.LittleEndian.Uint32(h.Body); int32(n) < 0 {
			n = 0 // null, as good as empty
		}
		have = h.Body[4:]
	}
	b := make([]byte, 0, 64+len(have))
	b = binary.LittleEndian.AppendUint32(b, n+1)
	b = append(b, have...)
	b = uabinary.AppendQualifiedName(b, retryParameter)
	b = append(b, byte(ua.TypeIDInt64))
	b = binary.LittleEndian.AppendUint64(b, uint64(milliseconds(hint)))
	return uabinary.ExtensionObject{TypeID: uabinary.ExpandedNodeID{NodeID: additionalParameters}, Encoding: 1, Body: b}
}

var additionalParameters = uabinary.NumericID(0, id.AdditionalParametersType_Encoding_DefaultBinary)

// milliseconds rounds up.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Reset gives the response buffer back and clears the request for the next use.
func (r *Request) Reset() {
	if r.buf != nil {
		r.buf.Release()
	}
	*r = Request{}
}

// beginArray appends a placeholder for the length of an array of results.
func (r *Request) beginArray() (at int) {
	at = len(r.Out)
	r.Out = append(r.Out, 0, 0, 0, 0)
	return at
}

// endArray writes the length into the placeholder.
func (r *Request) endArray(at, n int) {
	binary.LittleEndian.PutUint32(r.Out[at:], uint32(n))
}

// putCount writes an array length that is known beforehand.
func (r *Request) putCount(n int) {
	r.Out = binary.LittleEndian.AppendUint32(r.Out, uint32(n))
}

func (r *Request) putStatus(code ua.StatusCode) {
	r.Out = binary.LittleEndian.AppendUint32(r.Out, uint32(code))
}

// noDiagnostics appends the null array of operation-level DiagnosticInfos.
func (r *Request) noDiagnostics() {
	r.Out = append(r.Out, 0xff, 0xff, 0xff, 0xff)
}

// operations reads the length of a request's array of operations and holds it
// against the limit: none is BadNothingToDo, more than the limit is
// BadTooManyOperations (OPC 10000-4 §7.38 service result codes). minSize is the
// smallest encoding of one operand.
func (r *Request) operations(minSize, limit int) (int, ua.StatusCode) {
	n := r.Body.ArrayLen(minSize)
	if code := r.decoded(); code != ua.StatusOK {
		return 0, code
	}
	if n <= 0 {
		return 0, ua.StatusBadNothingToDo
	}
	if limit > 0 && n > limit {
		return 0, ua.StatusBadTooManyOperations
	}
	return n, ua.StatusOK
}

// decoded gives the status of the decoder: Good, BadDecodingError or
// BadEncodingLimitsExceeded.
func (r *Request) decoded() ua.StatusCode {
	if err := r.Body.Err(); err != nil {
		return uastatus.Code(err)
	}
	return ua.StatusOK
}
