package reconnect

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uacp"
)

const (
	// hintKey is the parameter's name in an AdditionalHeader.
	hintKey = "RetryAfterMs"
	// hintToken stands before the milliseconds in texts.
	hintToken = hintKey + "="
	// maxHint bounds what a server may ask for.
	maxHint = 24 * time.Hour
	// maxInner bounds the walk through nested DiagnosticInfos.
	maxInner = 100
)

// ParseHint finds "RetryAfterMs=N" in a text and returns N milliseconds, at
// most one day; 0 when there is none, or N is 0.
func ParseHint(text string) time.Duration {
	_, after, found := strings.Cut(text, hintToken)
	if !found {
		return 0
	}
	end := 0
	for end < len(after) && after[end] >= '0' && after[end] <= '9' {
		end++
	}
	if end == 0 {
		return 0
	}
	ms, err := strconv.ParseUint(after[:end], 10, 64)
	if err != nil { // more digits than a number can have
		return maxHint
	}
	return milliseconds(ms)
}

func milliseconds(ms uint64) time.Duration {
	if ms >= uint64(maxHint/time.Millisecond) {
		return maxHint
	}
	return time.Duration(ms) * time.Millisecond
}

// HeaderHint finds the hint in a ResponseHeader: the RetryAfterMs parameter of
// its AdditionalHeader (OPC 10000-4 §7.1, AdditionalParametersType), else the
// AdditionalInfo of its diagnostics, inner ones included. It is 0 unless the
// ServiceResult, or an inner one, is BadServerTooBusy or BadTcpServerTooBusy.
func HeaderHint(h *ua.ResponseHeader) time.Duration {
	if h == nil {
		return 0
	}
	if carriesHint(h.ServiceResult) {
		if d := parameterHint(h.AdditionalHeader); d > 0 {
			return d
		}
	}
	return diagnosticHint(h.ServiceResult, h.ServiceDiagnostics)
}

func parameterHint(eo *ua.ExtensionObject) time.Duration {
	if eo == nil {
		return 0
	}
	params, ok := eo.Value.(*ua.AdditionalParametersType)
	if !ok || params == nil {
		return 0
	}
	for _, p := range params.Parameters {
		if p == nil || p.Key == nil || p.Key.NamespaceIndex != 0 || p.Key.Name != hintKey || p.Value == nil {
			continue
		}
		switch v := p.Value.Value().(type) {
		case int64:
			if v > 0 {
				return milliseconds(uint64(v))
			}
		case uint64:
			return milliseconds(v)
		case int32:
			if v > 0 {
				return milliseconds(uint64(v))
			}
		case uint32:
			return milliseconds(uint64(v))
		}
	}
	return 0
}

func diagnosticHint(code ua.StatusCode, d *ua.DiagnosticInfo) time.Duration {
	for range maxInner {
		if d == nil {
			return 0
		}
		if carriesHint(code) {
			if hint := ParseHint(d.AdditionalInfo); hint > 0 {
				return hint
			}
		}
		code, d = d.InnerStatusCode, d.InnerDiagnosticInfo
	}
	return 0
}

// Error is a failed attempt with what the server said of it.
type Error struct {
	// Status is what the attempt failed with.
	Status ua.StatusCode
	// After is the server's hint; 0 when it gave none.
	After time.Duration
	// Err is the cause; may be nil.
	Err error
}

// Error describes the failure, hint included.
func (e *Error) Error() string {
	s := uastatus.Name(e.Status)
	if e.After > 0 {
		s += fmt.Sprintf(" (retry after %v)", e.After)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap makes errors.Is find the StatusCode and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Status}
	}
	return []error{e.Status, e.Err}
}

// RetryAfter returns the hint.
func (e *Error) RetryAfter() time.Duration { return e.After }

// ResponseError makes an error of a ResponseHeader whose ServiceResult is bad,
// hint included; nil when it is not bad.
func ResponseError(h *ua.ResponseHeader) error {
	if h == nil || uint32(h.ServiceResult)>>31 == 0 {
		return nil
	}
	return &Error{Status: h.ServiceResult, After: HeaderHint(h)}
}

// HTTPError makes an error of an HTTP response: 429 and 503 become
// BadServerTooBusy with the hint of Retry-After (seconds, at most one day, or a
// date, of which one in the past is none); nil for every other status.
func HTTPError(rs *http.Response, now time.Time) error {
	if rs.StatusCode != http.StatusTooManyRequests && rs.StatusCode != http.StatusServiceUnavailable {
		return nil
	}
	e := &Error{Status: uastatus.BadServerTooBusy, Err: fmt.Errorf("HTTP %s", rs.Status)}
	v := strings.TrimSpace(rs.Header.Get("Retry-After"))
	if s, err := strconv.ParseUint(v, 10, 64); err == nil {
		e.After = time.Duration(min(s, uint64(maxHint/time.Second))) * time.Second
	} else if errors.Is(err, strconv.ErrRange) { // more digits than a number can have
		e.After = maxHint
	} else if at, err := http.ParseTime(v); err == nil {
		e.After = max(0, min(at.Sub(now), maxHint))
	}
	return e
}

// Signal returns what an error says to a policy: the status code it carries
// (Good for none) and the server's hint. The hint is taken from the first error
// in the chain with a RetryAfter method, else from the error's text when the
// code is one that carries hints, so that errors of other clients count too.
func Signal(err error) (ua.StatusCode, time.Duration) {
	if err == nil {
		return ua.StatusOK, 0
	}
	var code ua.StatusCode
	if !errors.As(err, &code) {
		code = textCode(err)
	}
	var carrier interface{ RetryAfter() time.Duration }
	if errors.As(err, &carrier) {
		return code, carrier.RetryAfter()
	}
	if !carriesHint(code) {
		return code, 0
	}
	var refused *uacp.Error // gopcua's ERR message, whose Error method leaves the reason out
	if errors.As(err, &refused) {
		return code, ParseHint(refused.Reason)
	}
	return code, ParseHint(err.Error())
}

// textCode recognises a refusal that a client has flattened into text.
func textCode(err error) ua.StatusCode {
	s := err.Error()
	switch {
	case strings.Contains(s, "0x80EE0000"), strings.Contains(s, "BadServerTooBusy"):
		return uastatus.BadServerTooBusy
	case strings.Contains(s, "0x807D0000"), strings.Contains(s, "BadTcpServerTooBusy"), strings.Contains(s, "BadTCPServerTooBusy"):
		return ua.StatusBadTCPServerTooBusy
	}
	return ua.StatusOK
}
