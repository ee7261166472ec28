package client

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Session is a session that is kept alive and brought back by itself. Its
// methods may be called concurrently, also from code that handles its
// notifications and states.
//
// While the connection is being brought back, calls wait, up to their context's
// deadline or Options.RequestTimeout. A call that was under way when the
// connection failed gets the error: whether the server has executed it is not
// known, so it is not repeated.
type Session struct {
	opts   Options
	url    *url.URL
	log    *slog.Logger
	states *states
	ctx    context.Context // ends when the session is to end
	cancel context.CancelCauseFunc
	done   chan struct{}  // closed when it has ended
	wg     sync.WaitGroup // of run
	aside  sync.WaitGroup // of background, which run waits for

	// Of the goroutine that runs the machine, see run.
	machine  *machine
	endpoint *endpoint
	stale    bool   // endpoint is to be asked for again before the next attempt
	hangups  int    // of the server in a row, while a channel is opened to endpoint
	active   *conn  // the last that server was activated on
	leaf     []byte // the server's certificate
	public   *rsa.PublicKey
	nonces   nonces
	conn     *conn
	server   *serverSession
	fresh    bool // server is new since the last time online
	was      bool // online at least once
	trouble  error
	until    time.Time // until when the server may believe in the last connection
	release  func()    // the place in Options.Gate

	mu       sync.Mutex
	link     *link         // nil: not online
	changed  chan struct{} // closed when link is set, or closed is
	closed   error         // why the session has ended
	farewell context.Context
	subs     map[*Subscription]bool
	byID     map[uint32]*Subscription
	creating int // CreateSubscription calls under way

	publishing publishing
	handles    atomic.Uint32 // client handles of monitored items
}

// link is one time of being online: a channel with an activated session on it.
type link struct {
	conn   *conn
	server *serverSession
	ctx    context.Context
	cancel context.CancelFunc
	kick   chan struct{} // something for the publisher to look at
	over   chan struct{} // closed when it is not the session's link any more

	sessionLost, subscriptionsLost chan event
}

// fault ends the link, or has its subscriptions looked at. Only the first of
// several counts, so there is one recovery however many notice (hostile.md C11).
// Publishing ends at once with the session.
func (l *link) fault(e event) {
	to := l.subscriptionsLost
	if e.outcome == outcomeSessionLost {
		to = l.sessionLost
	}
	select {
	case to <- e:
	default:
	}
	if e.outcome == outcomeSessionLost {
		l.cancel()
	}
}

func (l *link) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// ErrClosed is what calls on a session return that was closed by its user.
var ErrClosed = errors.New("client: session closed")

// Connect finds the server's endpoint, connects, and returns when the session is
// activated. Failed attempts are repeated as Options.Reconnect says, until ctx
// ends or the policy allows no more; an error then wraps the last one, and
// reconnect.ErrGaveUp. ctx is for connecting only: the session ends with Close. A
// session that the server has made when ctx ends is closed there, for which Connect
// takes up to 1 s more.
func Connect(ctx context.Context, rawURL string, o Options) (*Session, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	o = o.resolved()
	s := &Session{
		opts: o, url: u, log: o.Logger.With("server", u.Host),
		states:  newStates(time.Now()),
		machine: newMachine(o.Reconnect),
		changed: make(chan struct{}),
		done:    make(chan struct{}),
		subs:    make(map[*Subscription]bool),
		byID:    make(map[uint32]*Subscription),
		release: func() {},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	node := s.states.current()
	s.wg.Go(s.run)
	stop := context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })
	for node.status.State != Online && node.status.State != Closed {
		<-node.ready
		node = node.next
	}
	if node.status.State == Online && stop() {
		return s, nil
	}
	stop()
	s.wg.Wait()
	s.mu.Lock()
	err = s.closed
	s.mu.Unlock()
	return nil, fmt.Errorf("client: connect to %q: %w", rawURL, err)
}

// Close ends the session and its subscriptions at the server, closes the
// connection, and returns when nothing is left. ctx bounds the farewell to the
// server, at most RequestTimeout, and at most 1 s while the session is being brought
// back and so not activated on its connection.
//
// One second after ctx, or RequestTimeout, has ended Close returns the reason even
// when something is left, and the session goes on ending by itself; Done tells when.
// That is so when a callback of the options has not returned. A Close from within
// such a callback (VerifyServer, a Logger's handler, TCP.Dial, IssuedToken.Token)
// therefore waits that long in vain: call it as go s.Close(ctx) there.
func (s *Session) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.RequestTimeout)
	defer cancel()
	s.mu.Lock()
	if s.farewell == nil {
		s.farewell = ctx
	}
	s.mu.Unlock()
	s.cancel(ErrClosed)
	select {
	case <-s.done:
	case <-ctx.Done():
		t := time.NewTimer(farewellLimit)
		defer t.Stop()
		select {
		case <-s.done:
		case <-t.C:
			return fmt.Errorf("client: close: the session is still ending: %w", context.Cause(ctx))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.closed, ErrClosed) {
		return nil
	}
	return s.closed
}

// Done is closed when the session has ended, by Close or for good; Err says why.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err is why the session ended: ErrClosed, or an error that wraps
// reconnect.ErrGaveUp. nil while it lives.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Endpoint is the endpoint in use; nil when there is no connection.
func (s *Session) Endpoint() *ua.EndpointDescription {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil {
		return nil
	}
	return s.link.server.endpoint
}

// ID is the SessionId at the server, and the timeout that the server grants;
// nil when there is no connection.
func (s *Session) ID() (*ua.NodeID, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil {
		return nil, 0
	}
	return s.link.server.id, s.link.server.timeout
}

// online waits for the session to be online.
func (s *Session) online(ctx context.Context) (*link, error) {
	for {
		s.mu.Lock()
		l, changed, closed := s.link, s.changed, s.closed
		s.mu.Unlock()
		switch {
		case closed != nil:
			return nil, fmt.Errorf("client: %w", errors.Join(ua.StatusBadSessionClosed, closed))
		case l != nil && l.ctx.Err() == nil && l.conn.failure() == nil:
			return l, nil
		case l != nil: // it is about to end
			changed = l.over
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err := context.Cause(ctx)
			if st := s.State(); st.Err != nil {
				err = fmt.Errorf("%w while the session is %v: %w", err, st.State, st.Err)
			}
			return nil, fmt.Errorf("client: %w", errors.Join(ua.StatusBadNotConnected, err))
		}
	}
}

// deadline gives a call its time.
func (s *Session) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.opts.RequestTimeout)
}

// Do sends any request of a session service and returns its response. The
// request's header is filled in; what it asks for in ReturnDiagnostics and
// AuditEntryID is kept. A bad ServiceResult is an error that errors.Is finds the
// StatusCode in, and reconnect.Signal the server's retry-after; an answer that is
// not the response to the request is BadUnknownResponse. Requests that belong to
// the session itself (CreateSession, ActivateSession, CloseSession, Publish,
// Republish, TransferSubscriptions) are refused with BadServiceUnsupported, and so
// is CreateSubscription: only what Subscribe has made is published and brought
// back. A nil request is BadInvalidArgument.
func (s *Session) Do(ctx context.Context, rq ua.Request) (ua.Response, error) {
	if v := reflect.ValueOf(rq); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, uastatus.New(ua.StatusBadInvalidArgument, "client", errors.New("no request"))
	}
	switch rq.(type) {
	case *ua.CreateSubscriptionRequest:
		return nil, uastatus.New(ua.StatusBadServiceUnsupported, "client", fmt.Errorf("%T: use Subscribe", rq))
	case *ua.CreateSessionRequest, *ua.ActivateSessionRequest, *ua.CloseSessionRequest, *ua.PublishRequest,
		*ua.RepublishRequest, *ua.TransferSubscriptionsRequest, *ua.OpenSecureChannelRequest, *ua.CloseSecureChannelRequest:
		return nil, uastatus.New(ua.StatusBadServiceUnsupported, "client", fmt.Errorf("%T is the session's own", rq))
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	l, err := s.online(ctx)
	if err != nil {
		return nil, err
	}
	return l.do(ctx, rq)
}

// do is a call on this link. It notices when the session is gone.
func (l *link) do(ctx context.Context, rq ua.Request) (ua.Response, error) {
	rs, err := l.conn.roundTrip(ctx, rq, l.server.token)
	if err != nil {
		var refused *reconnect.Error
		switch {
		case !errors.As(err, &refused):
		case isSessionLost(refused.Status):
			l.fault(event{outcome: outcomeSessionLost, code: refused.Status})
		case isChannelLost(refused.Status):
			l.conn.fail(err)
		}
	}
	return rs, err
}

// call is Do for one type of response.
func call[T ua.Response](ctx context.Context, s *Session, rq ua.Request) (T, error) {
	msg, err := s.Do(ctx, rq)
	if err != nil {
		var zero T
		return zero, err
	}
	return as[T](msg)
}

func as[T ua.Response](msg ua.Response) (T, error) {
	rs, ok := msg.(T)
	if !ok {
		return rs, unknownResponse("%T", msg)
	}
	return rs, nil
}

// results checks that there is one result for each operation (hostile.md F8).
func results[T any](rq any, got []T, want int) error {
	if len(got) != want {
		return fmt.Errorf("client: %s: %w", service(rq), unknownResponse("%d results for %d operations", len(got), want))
	}
	return nil
}
