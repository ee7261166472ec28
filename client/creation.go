package client

import (
	"context"
	"time"

	"github.com/gopcua/opcua/ua"
)

// lateAnswer is how long after its caller has left the answer to a request that
// makes something is waited for, to delete what it has made.
const lateAnswer = 5 * time.Minute

// creator is l.do for requests that make something at the server: when the caller
// has left before the answer comes, discard gets it, to delete what nobody knows.
func (s *Session) creator(l *link, discard func(ua.Response)) caller {
	return func(ctx context.Context, rq ua.Request) (ua.Response, error) {
		type reply struct {
			rs  ua.Response
			err error
		}
		replies := make(chan reply) // nobody takes a late one
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		wait := s.opts.RequestTimeout
		if deadline, ok := ctx.Deadline(); ok {
			wait = max(time.Until(deadline), time.Millisecond)
		}
		rq.SetHeader(&ua.RequestHeader{TimeoutHint: uint32(min(wait.Milliseconds(), 1<<32-1))})
		if !s.background(func() {
			defer cancel()
			defer time.AfterFunc(wait+lateAnswer, cancel).Stop()
			rs, err := l.do(own, rq)
			select {
			case replies <- reply{rs, err}:
				return
			case <-ctx.Done():
			}
			if err == nil {
				discard(rs)
			}
		}) {
			cancel()
			return nil, callError(rq, ErrClosed)
		}
		select {
		case r := <-replies:
			return r.rs, r.err
		case <-ctx.Done():
			return nil, callError(rq, context.Cause(ctx))
		}
	}
}

// background runs f on a goroutine that the session waits for before it has ended;
// false: it has. f must end with the connection.
func (s *Session) background(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return false
	}
	s.aside.Go(f)
	return true
}

// discard deletes a subscription at the server that nobody has, with time of its own.
func (s *Session) discard(l *link, id uint32) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.RequestTimeout)
	defer cancel()
	if err := deleteSubscription(ctx, l.do, id); err != nil {
		s.log.Debug("session: subscription not deleted", "id", id, "error", err)
	}
	l.wake()
}

// discardItems deletes monitored items at the server that nobody has, with time of
// its own.
func (s *Session) discardItems(l *link, subscription uint32, items []leavingItem) {
	if len(items) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.RequestTimeout)
	defer cancel()
	if _, err := split(items, s.operations(ctx, l).monitored, func(part []leavingItem) ([]ua.StatusCode, error) {
		return deleteItems(ctx, l.do, subscription, part)
	}); err != nil {
		s.log.Debug("session: monitored items not deleted", "subscription", subscription, "items", len(items), "error", err)
	}
}

// abandon is Close for one whose context may be over already: it does not wait for
// the server.
func (sub *Subscription) abandon() {
	s := sub.session
	id := sub.leave(ErrClosed)
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if id != 0 && l != nil {
		s.background(func() { s.discard(l, id) })
	}
}
