package reconnect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// ErrGaveUp is wrapped in what [Do] returns when the policy allows no further
// attempt; the last attempt's error is wrapped beside it.
var ErrGaveUp = errors.New("reconnect: gave up")

// Do calls attempt until it succeeds, the policy allows no more, or ctx ends,
// and waits in between as the policy and the server's hints say. The first
// attempt is made at once, unless ctx has ended already. An error wrapped with
// backoff.Permanent ends it too.
// Do works with any client; see the example for gopcua's.
func Do(ctx context.Context, d Delays, attempt func(context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w := &waits{state: NewState(d)}
	err := backoff.Retry(func() error {
		err := attempt(ctx)
		w.last = err
		return err
	}, backoff.WithContext(w, ctx))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errors.Join(context.Cause(ctx), w.last)
	case w.stopped:
		return fmt.Errorf("%w after %d attempts: %w", ErrGaveUp, w.state.Attempt(), w.last)
	}
	return err // permanent
}

// waits is the policy as cenkalti/backoff asks for it: after each failure.
type waits struct {
	state   *State
	last    error
	stopped bool
}

func (w *waits) NextBackOff() time.Duration {
	d, more := w.state.Failed(Signal(w.last))
	if !more {
		w.stopped = true
		return backoff.Stop
	}
	return d
}

func (w *waits) Reset() {}
