package reconnect

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/gopcua/opcua/ua"
)

var exactly = Policy{Strategy: Constant, JitterFactor: -1}

func TestDoHonoursHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{&Error{Status: busy, After: 7 * time.Second}, ua.StatusBadTooManySessions, errors.New("refused"), nil}
		start := time.Now()
		var at []time.Duration
		err := Do(t.Context(), exactly, func(context.Context) error {
			at = append(at, time.Since(start))
			return answers[len(at)-1]
		})
		want := []time.Duration{0, 7 * time.Second, 11 * time.Second, 12 * time.Second} // hint, busy ×4, plain
		if err != nil || fmt.Sprint(at) != fmt.Sprint(want) {
			t.Errorf("attempts at %v, %v; want %v", at, err, want)
		}
	})
}

func TestDoEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		p := exactly
		p.MaxRetries = 2
		n := 0
		err := Do(t.Context(), p, func(context.Context) error { n++; return refused })
		if n != 3 || !errors.Is(err, ErrGaveUp) || !errors.Is(err, refused) {
			t.Errorf("MaxRetries 2: %d attempts, %v", n, err)
		}
		n = 0
		err = Do(t.Context(), exactly, func(context.Context) error { n++; return ua.StatusBadCertificateUntrusted })
		if n != 4 || !errors.Is(err, ErrGaveUp) {
			t.Errorf("untrusted certificate: %d attempts, %v", n, err)
		}
		n = 0
		err = Do(t.Context(), exactly, func(context.Context) error { n++; return backoff.Permanent(refused) })
		if n != 1 || !errors.Is(err, refused) {
			t.Errorf("permanent: %d attempts, %v", n, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(90*time.Second, cancel)
		start := time.Now()
		err = Do(ctx, Policy{}, func(context.Context) error { return &Error{Status: busy, After: time.Hour} })
		if took := time.Since(start); took != 90*time.Second || !errors.Is(err, context.Canceled) || !errors.Is(err, busy) {
			t.Errorf("cancelled after 90 s: took %v, %v", took, err)
		}
	})
}

// declines is a policy that has no opinion on statuses.
type declines struct{ Policy }

func (declines) AdaptiveDelay(int, ua.StatusCode, time.Duration) (time.Duration, bool, bool) {
	return 0, false, false
}

func TestStateUsesPlainDelayWhenThePolicyDeclines(t *testing.T) {
	s := NewState(declines{exactly})
	if d, more := s.Failed(busy, time.Minute); d != time.Second || !more {
		t.Errorf("%v, %v", d, more)
	}
}

func TestStateResetsOnlyAfterASettledSession(t *testing.T) {
	s := NewState(Policy{JitterFactor: -1})
	now := time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC)
	fail := func() time.Duration { d, _ := s.Failed(good, 0); return d }
	fail()
	fail()
	s.Connected(now)
	s.Lost(now.Add(2 * time.Second)) // died at once
	if d := fail(); d != 4*time.Second {
		t.Errorf("after a session of 2 s: %v", d)
	}
	s.Connected(now)
	s.Lost(now.Add(30 * time.Second))
	if d := fail(); d != time.Second {
		t.Errorf("after a session of 30 s: %v", d)
	}
	s.Lost(now.Add(time.Hour)) // there was no session
	if d := fail(); d != 2*time.Second {
		t.Errorf("a loss without a session: %v", d)
	}
}

func TestFatalFailuresMustComeInARow(t *testing.T) {
	s := NewState(exactly)
	for i := range 12 {
		code := ua.StatusBadUserAccessDenied
		if i%3 == 2 {
			code = ua.StatusBadTimeout
		}
		if _, more := s.Failed(code, 0); !more {
			t.Fatalf("gave up at %d", i)
		}
	}
}
