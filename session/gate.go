package session

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uastatus"
)

// Gate admits one CreateSession or ActivateSession to its expensive part. With
// ua.StatusOK it returns a release function that is called exactly once when
// the service call ends; with any other code, which the client gets, release is
// nil. A Gate may wait, but not past ctx.
type Gate func(ctx context.Context, ch Channel) (release func(), code ua.StatusCode)

// ConcurrencyGate admits n calls at a time and refuses the rest at once with
// BadServerTooBusy. n below 1 counts as 1.
func ConcurrencyGate(n int) Gate {
	limit := int64(max(n, 1))
	var inFlight atomic.Int64
	return func(context.Context, Channel) (func(), ua.StatusCode) {
		if inFlight.Add(1) > limit {
			inFlight.Add(-1)
			return nil, uastatus.BadServerTooBusy
		}
		return sync.OnceFunc(func() { inFlight.Add(-1) }), ua.StatusOK
	}
}
