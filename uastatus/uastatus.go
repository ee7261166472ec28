// Package uastatus carries OPC UA StatusCodes through Go errors.
//
// An [Error] says what was attempted (for the log), which StatusCode the peer gets, and what caused it.
// The peer is only ever sent the StatusCode and a short fixed reason; the cause stays on this side.
package uastatus

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gopcua/opcua/ua"
)

// StatusCodes of OPC 10000-6 Annex A.2 (StatusCodes) that gopcua v0.8.0 does not have.
const (
	// BadIndexRangeDataMismatch says that a written value does not have the shape of its IndexRange.
	BadIndexRangeDataMismatch ua.StatusCode = 0x80EA0000
	// BadRequiresLock says that the node must be locked before the operation.
	BadRequiresLock ua.StatusCode = 0x80EC0000
	// BadLocaleNotSupported says that the server cannot write a text in that locale.
	BadLocaleNotSupported ua.StatusCode = 0x80ED0000
	// BadServerTooBusy says that the server cannot take the request now and that the client should try again later.
	BadServerTooBusy ua.StatusCode = 0x80EE0000
	// BadNoValue says that a variable has neither a default nor an initial value.
	BadNoValue ua.StatusCode = 0x80F00000
)

// missing names the codes that ua.StatusCodes does not.
func missing(code ua.StatusCode) string {
	switch code {
	case ua.StatusGood: // ua calls it StatusOK
		return "Good"
	case BadIndexRangeDataMismatch:
		return "BadIndexRangeDataMismatch"
	case BadRequiresLock:
		return "BadRequiresLock"
	case BadLocaleNotSupported:
		return "BadLocaleNotSupported"
	case BadServerTooBusy:
		return "BadServerTooBusy"
	case BadNoValue:
		return "BadNoValue"
	}
	return ""
}

// Error is an error with the StatusCode a peer is given for it.
//
// errors.Is finds both the StatusCode and the cause:
//
//	errors.Is(err, ua.StatusBadNodeIDUnknown)
//	errors.Is(err, io.ErrUnexpectedEOF)
type Error struct {
	Code ua.StatusCode // what the peer is told
	Op   string        // what was attempted, for the log; may be empty
	Err  error         // cause, for the log; may be nil
}

// New returns an [Error]. The cause may be nil.
func New(code ua.StatusCode, op string, cause error) *Error {
	return &Error{Code: code, Op: op, Err: cause}
}

// Error returns "op: BadCode: cause" without the parts that are absent.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		b.WriteString(e.Op)
		b.WriteString(": ")
	}
	b.WriteString(Name(e.Code))
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the StatusCode and, when there is one, the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Err}
}

// Code returns the StatusCode a peer is given for err: Good for nil, the code of the first [Error] or ua.StatusCode in
// its chain, BadTimeout for an exceeded deadline, BadRequestCancelledByClient for a cancelled context, else
// BadInternalError.
func Code(err error) ua.StatusCode {
	if err == nil {
		return ua.StatusGood
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	var c ua.StatusCode
	if errors.As(err, &c) {
		return c
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return ua.StatusBadTimeout
	}
	if errors.Is(err, context.Canceled) {
		return ua.StatusBadRequestCancelledByClient
	}
	return ua.StatusBadInternalError
}

// Name returns the specification's name of the code, for instance "BadNodeIdUnknown". The flag bits (OPC 10000-4 §7.39,
// StatusCode) do not count. A code without a name is written as hexadecimal number.
func Name(code ua.StatusCode) string {
	base := code & 0xFFFF0000
	if name := missing(base); name != "" {
		return name
	}
	d, ok := ua.StatusCodes[base]
	if !ok {
		return fmt.Sprintf("0x%08X", uint32(code))
	}
	return specName(strings.TrimPrefix(d.Name, "Status"))
}

// specName turns the Go casing of initialisms ("BadNodeIDUnknown", "BadTCPServerTooBusy") back into the
// specification's ("BadNodeIdUnknown", "BadTcpServerTooBusy"): of a run of capitals the first, and the last when a lower
// case letter follows, stay.
func specName(s string) string {
	b := []byte(s)
	upper := func(c byte) bool { return c >= 'A' && c <= 'Z' }
	for i := 1; i < len(b); i++ {
		if upper(s[i]) && upper(s[i-1]) && (i+1 == len(s) || upper(s[i+1]) || pluralOf(s, i)) {
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}

// pluralOf reports whether s[i] ends an initialism in the plural ("NodeIDs").
func pluralOf(s string, i int) bool {
	return s[i+1] == 's' && (i+2 == len(s) || s[i+2] >= 'A' && s[i+2] <= 'Z')
}
