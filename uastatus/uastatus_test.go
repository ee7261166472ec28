package uastatus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/gopcua/opcua/ua"
)

func TestErrorIs(t *testing.T) {
	err := fmt.Errorf("read: %w", New(ua.StatusBadNodeIDUnknown, "lookup i=1", io.ErrUnexpectedEOF))
	for _, target := range []error{ua.StatusBadNodeIDUnknown, io.ErrUnexpectedEOF} {
		if !errors.Is(err, target) {
			t.Errorf("errors.Is(%v) is false", target)
		}
	}
	if errors.Is(err, ua.StatusBadNodeIDInvalid) {
		t.Error("errors.Is finds a code that is not there")
	}
	if got, want := err.Error(), "read: lookup i=1: BadNodeIdUnknown: unexpected EOF"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if got := New(BadServerTooBusy, "", nil).Error(); got != "BadServerTooBusy" {
		t.Errorf("Error() = %q", got)
	}
}

func TestCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want ua.StatusCode
	}{
		{nil, ua.StatusGood},
		{ua.StatusBadTypeMismatch, ua.StatusBadTypeMismatch},
		{fmt.Errorf("x: %w", ua.StatusBadTypeMismatch), ua.StatusBadTypeMismatch},
		{New(BadServerTooBusy, "op", ua.StatusBadTypeMismatch), BadServerTooBusy},
		{errors.Join(io.EOF, New(BadServerTooBusy, "op", nil)), BadServerTooBusy},
		{context.DeadlineExceeded, ua.StatusBadTimeout},
		{fmt.Errorf("x: %w", context.Canceled), ua.StatusBadRequestCancelledByClient},
		{io.EOF, ua.StatusBadInternalError},
	} {
		if got := Code(c.err); got != c.want {
			t.Errorf("Code(%v) = %s, want %s", c.err, Name(got), Name(c.want))
		}
	}
}

func TestName(t *testing.T) {
	for code, want := range map[ua.StatusCode]string{
		ua.StatusGood:                      "Good",
		ua.StatusBadNodeIDUnknown:          "BadNodeIdUnknown",
		ua.StatusBadNodeIDUnknown | 0x0480: "BadNodeIdUnknown",
		ua.StatusBadTCPServerTooBusy:       "BadTcpServerTooBusy",
		ua.StatusBadTCPEndpointURLInvalid:  "BadTcpEndpointUrlInvalid",
		ua.StatusBadServerURIInvalid:       "BadServerUriInvalid",
		ua.StatusUncertainInitialValue:     "UncertainInitialValue",
		BadServerTooBusy:                   "BadServerTooBusy",
		BadIndexRangeDataMismatch:          "BadIndexRangeDataMismatch",
		0x9FFF0000:                         "0x9FFF0000",
	} {
		if got := Name(code); got != want {
			t.Errorf("Name(%#x) = %q, want %q", uint32(code), got, want)
		}
	}
}
