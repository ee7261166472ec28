package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// conn is one channel with the requests under way on it. When the channel
// fails, each of them gets the error (hostile.md C19).
type conn struct {
	ch     Channel
	limits *uabinary.Limits
	out    chan outgoing
	ctx    context.Context // ends when the channel is to end, its cause says why
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	handle atomic.Uint32

	mu      sync.Mutex
	pending map[uint32]waiter // nil: no answer will come any more

	// Publish requests that the server has, and their answers; of the one who publishes.
	publishing int
	published  chan answer
}

type waiter struct {
	w   chan<- answer // has room for this answer
	tag uint64
}

// give must not block the reader: when there is no room for a Publish answer,
// which takes a server that answers for many sessions that it has forgotten, it
// is dropped. The message was not acknowledged then.
func (w waiter) give(a answer) {
	a.tag = w.tag
	select {
	case w.w <- a:
	default:
	}
}

// publishedRoom is for the requests of the present session and of forgotten ones.
const publishedRoom = 8 * maxPublishing

type outgoing struct {
	id   uint32
	body []byte
}

// answer is the answer to a request: an encoded message of its own memory, or
// the error that ended the waiting.
type answer struct {
	body []byte
	err  error
	tag  uint64 // of a Publish: its number
}

var errChannelClosed = uastatus.New(ua.StatusBadSecureChannelClosed, "client", errors.New("the connection was closed"))

// newConn starts the goroutines of an open channel; close ends and awaits them.
func newConn(ch Channel, limits *uabinary.Limits, renewTimeout time.Duration) *conn {
	c := &conn{
		ch: ch, limits: limits,
		out:       make(chan outgoing),
		pending:   make(map[uint32]waiter),
		published: make(chan answer, publishedRoom),
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.wg.Add(1)
	context.AfterFunc(c.ctx, func() { // ends Receive, Send and Renew
		defer c.wg.Done()
		_ = ch.Close()
	})
	c.wg.Go(c.receive)
	c.wg.Go(c.send)
	c.wg.Go(func() { c.renew(renewTimeout) })
	return c
}

// fail ends the channel. The first error is the one that counts.
func (c *conn) fail(err error) { c.cancel(err) }

// failure is what ended the channel; nil while it lives.
func (c *conn) failure() error { return context.Cause(c.ctx) }

// close ends the channel and waits for its goroutines.
func (c *conn) close() {
	c.fail(errChannelClosed)
	c.wg.Wait()
}

// receive hands answers to those who wait for them.
func (c *conn) receive() {
	defer c.ch.Release()
	for {
		id, body, err := c.ch.Receive()
		if err != nil {
			var abort *securechannel.Abort
			if errors.As(err, &abort) || single(err) {
				c.answer(id, answer{err: err})
				continue
			}
			c.fail(lost(err))
			break
		}
		c.answer(id, answer{body: append(make([]byte, 0, len(body)), body...)})
	}
	c.mu.Lock()
	pending := c.pending
	c.pending = nil
	c.mu.Unlock()
	for _, w := range pending {
		w.give(answer{err: c.failure()})
	}
}

// lost gives an error of the network a StatusCode.
func lost(err error) error {
	var code ua.StatusCode
	if errors.As(err, &code) {
		return err
	}
	return errors.Join(ua.StatusBadConnectionClosed, err)
}

func (c *conn) answer(id uint32, a answer) {
	c.mu.Lock()
	w := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	if w.w != nil { // else it came too late, or was never asked for
		w.give(a)
	}
}

// send writes requests in their order.
func (c *conn) send() {
	for {
		select {
		case o := <-c.out:
			err := c.ch.Send(o.id, o.body)
			switch {
			case err == nil:
			case errors.Is(err, ua.StatusBadRequestTooLarge):
				c.answer(o.id, answer{err: err})
			default:
				c.fail(lost(err))
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// renewShare of the lifetime is over when a token is renewed (OPC 10000-4
// §5.6.2, OpenSecureChannel).
const renewShare = 0.75

// minRenewal bounds how often a server can make a client renew.
const minRenewal = 500 * time.Millisecond

func (c *conn) renew(timeout time.Duration) {
	for {
		lifetime := c.ch.Lifetime()
		if lifetime <= 0 {
			return
		}
		t := time.NewTimer(max(time.Duration(float64(lifetime)*renewShare), minRenewal))
		select {
		case <-t.C:
		case <-c.ctx.Done():
			t.Stop()
			return
		}
		ctx, done := context.WithTimeout(c.ctx, timeout)
		err := c.ch.Renew(ctx)
		done()
		if err != nil {
			c.fail(fmt.Errorf("client: renew the secure channel: %w", err))
			return
		}
	}
}

// start sends an encoded request. Its answer, exactly one, comes on w, which has
// room for it; when start fails none will come.
func (c *conn) start(ctx context.Context, body []byte, w waiter) (id uint32, err error) {
	id = c.ch.NextRequestID()
	c.mu.Lock()
	if c.pending == nil {
		c.mu.Unlock()
		return 0, c.failure()
	}
	c.pending[id] = w
	c.mu.Unlock()
	select {
	case c.out <- outgoing{id, body}:
		return id, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-c.ctx.Done():
		err = c.failure()
	}
	if !c.forget(id) {
		return id, nil // the channel has failed, and that is the answer
	}
	return 0, err
}

// forget takes a request off the list; false: its answer is on the way.
func (c *conn) forget(id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, there := c.pending[id]
	delete(c.pending, id)
	return there
}

// encode fills the header in and encodes a request.
func (c *conn) encode(rq ua.Request, token *ua.NodeID, timeout time.Duration) ([]byte, error) {
	h := rq.Header()
	if h == nil {
		h = &ua.RequestHeader{}
	} else {
		own := *h
		h = &own
	}
	h.AuthenticationToken = token
	h.Timestamp = time.Now()
	h.RequestHandle = c.handle.Add(1)
	if timeout > 0 {
		h.TimeoutHint = uint32(min(timeout.Milliseconds(), 1<<32-1))
	}
	rq.SetHeader(h)
	var e uabinary.Encoder
	uabinary.EncodeMessage(&e, rq)
	return e.B, e.Err()
}

// roundTrip sends a request and returns its response, whose ServiceResult is
// good and whose type is the request's.
func (c *conn) roundTrip(ctx context.Context, rq ua.Request, token *ua.NodeID) (ua.Response, error) {
	var timeout time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline), time.Millisecond)
	}
	body, err := c.encode(rq, token, timeout)
	if err != nil {
		return nil, fmt.Errorf("client: encode %T: %w", rq, err)
	}
	w := make(chan answer, 1)
	id, err := c.start(ctx, body, waiter{w: w})
	if err != nil {
		return nil, callError(rq, err)
	}
	select {
	case a := <-w:
		if a.err != nil {
			return nil, callError(rq, a.err)
		}
		rs, err := c.decode(rq, a.body)
		if err != nil {
			return nil, callError(rq, err)
		}
		return rs, nil
	case <-ctx.Done():
		c.forget(id)
		if ch, ok := c.ch.(Canceler); ok {
			ch.Cancel(id)
		}
		return nil, callError(rq, context.Cause(ctx))
	}
}

func callError(rq any, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.Join(ua.StatusBadTimeout, err)
	}
	return fmt.Errorf("client: %s: %w", service(rq), err)
}

// decode turns an answer into the response to rq. A ServiceFault and every
// other bad ServiceResult is a *reconnect.Error, anything that is not the
// response BadUnknownResponse (hostile.md I3).
func (c *conn) decode(rq any, body []byte) (ua.Response, error) {
	var d uabinary.Decoder
	d.Reset(body, c.limits)
	msg, err := uabinary.DecodeMessage(&d)
	if err != nil {
		return nil, err
	}
	rs, ok := msg.(ua.Response)
	if !ok || rs.Header() == nil {
		return nil, unknownResponse("%T", msg)
	}
	if err := reconnect.ResponseError(rs.Header()); err != nil {
		return nil, err
	}
	if want := responseID(uabinary.MessageTypeID(rq)); uabinary.MessageTypeID(msg) != want {
		return nil, unknownResponse("%T, want type id %d", msg, want)
	}
	return rs, nil
}

func unknownResponse(format string, args ...any) error {
	return uastatus.New(ua.StatusBadUnknownResponse, "response", fmt.Errorf(format, args...))
}

// broken makes an error of something that a server did against the rules.
func broken(code ua.StatusCode, format string, args ...any) error {
	return uastatus.New(code, "client", fmt.Errorf(format, args...))
}
