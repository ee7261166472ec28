package reconnect

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
)

// A pointer to a Policy counts as the Policy.
func TestPolicyByPointer(t *testing.T) {
	s := NewState(&Policy{MaxFatalRetries: -1, MaxDelay: time.Minute})
	if s.Settled != time.Minute {
		t.Errorf("settled after %v", s.Settled)
	}
	if _, more := s.Failed(ua.StatusBadCertificateUntrusted, 0); more {
		t.Error("another attempt after a fatal failure")
	}
	if _, more := NewState((*Policy)(nil)).Failed(ua.StatusOK, 0); !more {
		t.Error("a nil pointer ends the attempts")
	}
}

// What is more than a number can hold is a day.
func TestLongRetryAfter(t *testing.T) {
	for _, v := range []string{"86401", "4294967296", "18446744073709551615", "99999999999999999999999"} {
		rs := &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {v}}}
		if _, hint := Signal(HTTPError(rs, time.Now())); hint != 24*time.Hour {
			t.Errorf("%s: %v", v, hint)
		}
	}
}

// A context that has ended allows no attempt.
func TestDoWithEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Do(ctx, Policy{}, func(context.Context) error { t.Error("an attempt"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
