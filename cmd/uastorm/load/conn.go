package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/client"
	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// smallBuffer is the chunk size of clients that only hold a session: the least
// that OPC 10000-6 §7.1.2.3 (Hello Message) allows. It is what keeps ten thousand
// of them cheap.
const smallBuffer = transport.MinBufferSize

// tokenLifetime asked for.
const tokenLifetime = time.Hour

// errTimeout is what ends a call that has no answer.
var errTimeout = uastatus.New(ua.StatusBadTimeout, "no answer in time", nil)

// errCut is what ends a connection that the run cuts on purpose.
var errCut = uastatus.New(ua.StatusBadConnectionClosed, "cut on purpose", nil)

// A conn is one SecureChannel, or what stands for it over opc.https: one client's
// HTTP connections. Until serve it does one thing at a time, by call; from then on
// requests go out with send and their answers come to functions.
type conn struct {
	t     *Target
	ch    client.Channel
	nc    net.Conn   // the TCP connection under it; nil: opc.https
	web   *sockets   // the TCP connections of opc.https
	token *ua.NodeID // AuthenticationToken of the session on it
	// broken says that call has ended with the channel's end.
	broken bool
	// leaving says that the session is being closed: what becomes of requests on it
	// is of no interest.
	leaving atomic.Bool

	handle atomic.Uint32

	mu      sync.Mutex
	pending map[uint32]pending
	dead    error // set once, when the connection has ended
}

// pending is a request whose answer is awaited.
type pending struct {
	answer func(body []byte, at time.Time, err error)
	late   time.Time // zero: it may take for ever, as Publish does
}

// open connects from an address and opens a channel. Over opc.https nothing is
// sent before the first request.
func (t *Target) open(ctx context.Context, from net.IP, buffer int) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	c := &conn{t: t}
	k := &sockets{address: &t.Address, from: from}
	ch, err := client.ByScheme{Dial: k.dial}.Open(ctx, client.ChannelConfig{
		URL: t.url, Policy: t.Policy, Mode: t.Mode, Key: t.Key, ServerCertificate: t.certificate, TLS: t.tls,
		Lifetime: tokenLifetime, Limits: transport.Limits{ReceiveBufferSize: buffer, SendBufferSize: buffer},
	})
	if err != nil {
		k.close()
		return nil, err
	}
	c.ch = ch
	if t.Scheme() == SchemeHTTPS {
		c.web = k
	} else {
		c.nc = k.first()
	}
	return c, nil
}

// raw is the SecureChannel itself, for those who misuse it: of opc.tcp and opc.wss.
func (c *conn) raw() *securechannel.Client { return c.ch.(*securechannel.Client) }

// deadline bounds all reading and writing; zero: it has no bound. Requests of
// opc.https have bounds of their own.
func (c *conn) deadline(at time.Time) {
	if c.nc != nil {
		_ = c.nc.SetDeadline(at)
	}
}

// close ends the channel in order; its session stays with the server.
func (c *conn) close() {
	c.deadline(time.Now().Add(time.Second))
	_ = c.ch.Close()
}

// drop ends the channel without a word more on the network than TCP's.
func (c *conn) drop() {
	if c.nc == nil {
		_ = c.ch.Close()
		return
	}
	_ = c.nc.Close()
	if c.t.Scheme() == SchemeWSS {
		_ = c.ch.Close() // what is above the connection
	}
}

// cut drops the connection as a failing network does. serve returns the reason.
func (c *conn) cut(why error) {
	c.mu.Lock()
	if c.dead == nil {
		c.dead = why
	}
	c.mu.Unlock()
	if c.nc != nil {
		reset(c.nc)
		return
	}
	c.web.reset()
	_ = c.ch.Close()
}

// encode fills the header in and encodes a request.
func (c *conn) encode(rq ua.Request) ([]byte, error) {
	token := c.token
	if token == nil {
		token = ua.NewTwoByteNodeID(0)
	}
	rq.SetHeader(&ua.RequestHeader{AuthenticationToken: token, Timestamp: time.Now(), RequestHandle: c.handle.Add(1),
		TimeoutHint: uint32(c.t.timeout.Milliseconds()), AdditionalHeader: ua.NewExtensionObject(nil)})
	var e uabinary.Encoder
	uabinary.EncodeMessage(&e, rq)
	return e.B, e.Err()
}

// decode decodes an answer. A bad ServiceResult is a *reconnect.Error with the
// server's hint.
func decode(body []byte) (ua.Response, error) {
	var d uabinary.Decoder
	d.Reset(body, nil)
	msg, err := uabinary.DecodeMessage(&d)
	if err != nil {
		return nil, err
	}
	rs, ok := msg.(ua.Response)
	if !ok || rs.Header() == nil {
		return nil, uastatus.New(ua.StatusBadUnknownResponse, "decode", fmt.Errorf("%T", msg))
	}
	return rs, reconnect.ResponseError(rs.Header())
}

// call sends a request and waits for its answer. Only before serve. When ctx ends
// it gives up after lastWords: a session whose creation nobody has waited for could
// not be closed, nor could another over a WebSocket that was left in the middle.
func (c *conn) call(ctx context.Context, rq ua.Request) (ua.Response, error) {
	body, err := c.encode(rq)
	if err != nil {
		return nil, err
	}
	if c.nc == nil {
		return c.post(ctx, body)
	}
	if err := c.nc.SetDeadline(time.Now().Add(c.t.timeout)); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.nc.SetDeadline(time.Now().Add(lastWords)) })
	defer stop()
	return c.exchange(body)
}

// post is call over opc.https.
func (c *conn) post(ctx context.Context, body []byte) (ua.Response, error) {
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.t.timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWords, cancel) })()
	defer context.AfterFunc(bound, func() { _ = c.ch.Close() })()
	rs, err := c.exchange(body)
	switch {
	case err == nil || bound.Err() == nil:
		return rs, err
	case ctx.Err() != nil:
		return nil, errors.Join(ctx.Err(), err)
	}
	return nil, errTimeout
}

// exchange is one request and its answer.
func (c *conn) exchange(body []byte) (ua.Response, error) {
	id := c.ch.NextRequestID()
	if err := c.ch.Send(id, body); err != nil {
		c.broken = !errors.Is(err, ua.StatusBadRequestTooLarge)
		return nil, err
	}
	for {
		got, body, err := c.ch.Receive()
		if err != nil {
			c.broken = !single(err)
			return nil, err
		}
		if got == id {
			return decode(bytes.Clone(body)) // NodeIds and nonces are kept
		}
	}
}

// single says that an error of Receive concerns one request, and the channel
// lives on.
func single(err error) bool {
	var (
		abort *securechannel.Abort
		one   *client.RequestError
	)
	return errors.As(err, &abort) || errors.As(err, &one)
}

// as makes sure of a response's type.
func as[T ua.Response](rs ua.Response, err error) (t T, _ error) {
	if err != nil {
		return t, err
	}
	t, ok := rs.(T)
	if !ok {
		return t, uastatus.New(ua.StatusBadUnknownResponse, "answer", fmt.Errorf("%T instead of %T", rs, t))
	}
	return t, nil
}

// serve hands answers to those who wait for them until the connection ends, and
// says why. It is the only goroutine of an idle client.
func (c *conn) serve() error {
	c.deadline(time.Time{})
	var err error
	for {
		var (
			id   uint32
			body []byte
		)
		id, body, err = c.ch.Receive()
		if err != nil && !single(err) {
			break
		}
		c.mu.Lock()
		p, wanted := c.pending[id]
		delete(c.pending, id)
		c.mu.Unlock()
		if wanted {
			p.answer(body, time.Now(), err)
		}
	}
	c.mu.Lock()
	if c.dead == nil {
		c.dead = err
	}
	err = c.dead
	rest := c.pending
	c.pending = nil
	c.mu.Unlock()
	c.drop()
	c.ch.Release()
	now := time.Now()
	for _, p := range rest {
		p.answer(nil, now, err)
	}
	return err
}

// send sends a request. answer is called once, by serve's goroutine or by sweep's;
// body is valid until it returns. When send fails it is not called. A limit of 0
// is none.
func (c *conn) send(rq ua.Request, limit time.Duration, answer func(body []byte, at time.Time, err error)) error {
	body, err := c.encode(rq)
	if err != nil {
		return err
	}
	id := c.ch.NextRequestID()
	now := time.Now()
	p := pending{answer: answer}
	if limit > 0 {
		p.late = now.Add(limit)
	}
	c.mu.Lock()
	if c.dead != nil {
		err := c.dead
		c.mu.Unlock()
		return err
	}
	if c.pending == nil {
		c.pending = make(map[uint32]pending)
	}
	c.pending[id] = p
	c.mu.Unlock()
	// A server that does not read must not hold the schedule up for ever.
	if c.nc != nil {
		_ = c.nc.SetWriteDeadline(now.Add(c.t.timeout))
	}
	if err := c.ch.Send(id, body); err != nil {
		c.mu.Lock()
		_, mine := c.pending[id]
		delete(c.pending, id)
		c.mu.Unlock()
		if !errors.Is(err, ua.StatusBadRequestTooLarge) {
			c.cut(err)
		}
		if mine {
			return err
		}
	}
	return nil
}

// sweep gives up on requests whose time is over.
func (c *conn) sweep(now time.Time) {
	var (
		late []pending
		ids  []uint32
	)
	c.mu.Lock()
	for id, p := range c.pending {
		if !p.late.IsZero() && now.After(p.late) {
			late, ids = append(late, p), append(ids, id)
			delete(c.pending, id)
		}
	}
	c.mu.Unlock()
	for i, p := range late {
		if k, ok := c.ch.(client.Canceler); ok {
			k.Cancel(ids[i]) // its connection is wanted for others
		}
		p.answer(nil, now, errTimeout)
	}
}
