package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uajson"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// DefaultTimeout bounds one call.
const DefaultTimeout = 20 * time.Second

// Options say how to reach a server.
type Options struct {
	// URL is the endpoint URL: opc.tcp://host:port/path, opc.wss or opc.https.
	URL string
	// JSON makes messages of opc.wss (sub-protocol opcua+uajson) and opc.https OPC
	// UA JSON. There is no SecureChannel then.
	JSON bool
	// HTTP1 makes opc.https HTTP/1.1, one connection for each request under way;
	// not set: HTTP/2.
	HTTP1 bool
	// Policy and Mode of the SecureChannel, for opc.https of the session; the zero
	// values mean None.
	Policy *security.Policy
	Mode   ua.MessageSecurityMode
	// Key is the client's certificate and key. Needed unless Mode is None.
	Key *security.Key
	// ServerCertificate is the server's leaf certificate (DER). Needed unless Mode is None.
	ServerCertificate []byte
	// Lifetime asked for the channel's token. Zero: one hour.
	Lifetime time.Duration
	// Dial replaces the TCP dialer (in-memory listeners, proxies) of opc.tcp and
	// opc.https.
	Dial func(ctx context.Context) (net.Conn, error)
}

// Conn is one SecureChannel, or what stands for it where messages are not
// secured by one. Its methods may be called concurrently.
type Conn struct {
	Options
	// Channel is the SecureChannel of opc.tcp and opc.wss; nil when there is none.
	Channel *securechannel.Client

	wire    wire
	tables  atomic.Pointer[uajson.Context] // of the server, for JSON; nil until a session is active
	next    atomic.Uint32
	mu      sync.Mutex
	waiting map[uint32]chan answer
	err     error
	reader  sync.WaitGroup
}

// wire carries whole messages and gives their answers to Conn.deliver.
type wire interface {
	// key is what the answer to a message is known by; fresh is a number that no
	// other message has.
	key(msg []byte, fresh uint32) uint32
	// send sends a message. An error means that it was not sent.
	send(key uint32, msg []byte) error
	// read delivers answers until the connection fails, and returns why.
	read() error
	// cut ends the connection without a word.
	cut()
	// close ends it properly.
	close() error
}

type answer struct {
	body []byte
	err  error
}

// ErrClosed is returned by calls on a Conn that was closed by its owner.
var ErrClosed = errors.New("probe: closed")

// Open connects and, where there is one, opens a SecureChannel.
func Open(ctx context.Context, o Options) (*Conn, error) {
	if o.Policy == nil {
		o.Policy = security.None
	}
	if o.Mode == ua.MessageSecurityModeInvalid {
		o.Mode = ua.MessageSecurityModeNone
	}
	if o.Lifetime == 0 {
		o.Lifetime = time.Hour
	}
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	c := &Conn{Options: o, waiting: map[uint32]chan answer{}}
	var err error
	switch o.Transport() {
	case HTTPSBinary, HTTPSJSON:
		c.wire = newPosts(c)
	case WSSJSON:
		c.wire, err = dialTexts(ctx, c)
	default:
		c.wire, err = dialChannel(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	c.reader.Go(func() { c.fail(c.wire.read()) })
	return c, nil
}

// channel is a SecureChannel as a wire.
type channel struct {
	*securechannel.Client
	c *Conn
}

func dialChannel(ctx context.Context, c *Conn) (wire, error) {
	nc, err := Dial(ctx, c.Options)
	if err != nil {
		return nil, err
	}
	c.Channel, err = securechannel.Dial(ctx, nc, securechannel.ClientConfig{
		EndpointURL: c.URL, Policy: c.Policy, Mode: c.Mode, Key: c.Key,
		ServerCertificate: c.ServerCertificate, Lifetime: c.Lifetime,
	})
	if err != nil {
		nc.Close()
		return nil, err
	}
	return channel{c.Channel, c}, nil
}

func (ch channel) key(_ []byte, fresh uint32) uint32 { return fresh }

func (ch channel) send(key uint32, msg []byte) error { return ch.Send(key, msg) }

func (ch channel) read() error {
	for {
		id, body, err := ch.Receive()
		if err != nil {
			return err
		}
		ch.c.deliver(id, answer{body: bytes.Clone(body)})
	}
}

func (ch channel) cut() { ch.Conn().Close() }

func (ch channel) close() error { return ch.Client.Close() }

// deliver gives an answer to who waits for it.
func (c *Conn) deliver(key uint32, a answer) {
	c.mu.Lock()
	w := c.waiting[key]
	delete(c.waiting, key)
	c.mu.Unlock()
	if w != nil {
		w <- a
	}
}

// fail ends the waiting of all. The first error counts.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	for key, w := range c.waiting {
		delete(c.waiting, key)
		w <- answer{err: c.err}
	}
}

// Cut ends the connection without a word, as a client that crashes does. Close
// must still be called.
func (c *Conn) Cut() { c.wire.cut() }

// Close ends the connection and waits for its reader.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.err == nil {
		c.err = ErrClosed
	}
	c.mu.Unlock()
	err := c.wire.close()
	c.reader.Wait()
	return err
}

// Pending is a request that was sent and not yet waited for.
type Pending struct {
	ch chan answer
	ID uint32
}

// SendBody sends a message in OPC UA Binary (type id and body), translated where
// messages are JSON, and returns at once.
func (c *Conn) SendBody(body []byte) (*Pending, error) {
	if c.JSON {
		text, err := c.tables.Load().AppendJSON(nil, body, uajson.Compact, nil)
		if err != nil {
			return nil, err
		}
		body = text
	}
	return c.SendEncoded(body)
}

// SendEncoded sends the bytes of a message as they are, which the server takes
// for OPC UA Binary or for JSON as the Conn says, and returns at once. A message
// with opcua+uajson must be the only one under way with its RequestHandle.
func (c *Conn) SendEncoded(msg []byte) (*Pending, error) {
	fresh := c.next.Add(1)
	p := &Pending{ch: make(chan answer, 1), ID: c.wire.key(msg, fresh)}
	c.mu.Lock()
	if c.err == nil && c.waiting[p.ID] != nil {
		c.mu.Unlock()
		return nil, fmt.Errorf("probe: two requests with handle %d", p.ID)
	}
	if c.err != nil {
		err := c.err
		c.mu.Unlock()
		return nil, err
	}
	c.waiting[p.ID] = p.ch
	c.mu.Unlock()
	if err := c.wire.send(p.ID, msg); err != nil {
		return nil, c.unsent(p, err)
	}
	return p, nil
}

// lastWords is how long the reader may take to say why a server has ended the
// connection that nothing could be sent on.
const lastWords = 2 * time.Second

// unsent is why a request could not be sent: what the server has said last, if the
// connection has ended, is a better reason than a broken pipe.
func (c *Conn) unsent(p *Pending, err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) {
		select {
		case a := <-p.ch:
			return a.err
		case <-time.After(lastWords):
		}
	}
	c.mu.Lock()
	delete(c.waiting, p.ID)
	c.mu.Unlock()
	return err
}

// Body waits for the answer's message in OPC UA Binary.
func (p *Pending) Body(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	select {
	case a := <-p.ch:
		return a.body, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("probe: no answer to request %d: %w", p.ID, ctx.Err())
	}
}

// Wait waits for the answer and decodes it. A ServiceFault, and any other
// answer whose ServiceResult is bad, is returned beside an error that carries
// the code.
func (p *Pending) Wait(ctx context.Context) (any, error) {
	body, err := p.Body(ctx)
	if err != nil {
		return nil, err
	}
	return Decode(body)
}

// Decode decodes an answer as Wait does.
func Decode(body []byte) (any, error) {
	var d uabinary.Decoder
	d.Reset(body, nil)
	msg, err := uabinary.DecodeMessage(&d)
	if err != nil {
		return nil, err
	}
	if r, ok := msg.(ua.Response); ok && r.Header() != nil && r.Header().ServiceResult>>30 != 0 {
		return msg, uastatus.New(r.Header().ServiceResult, fmt.Sprintf("%T", msg), nil)
	}
	return msg, nil
}

// Encode encodes a service message with its type id.
func Encode(msg any) ([]byte, error) {
	var e uabinary.Encoder
	uabinary.EncodeMessage(&e, msg)
	return e.B, e.Err()
}

// Send encodes and sends a request and returns at once.
func (c *Conn) Send(rq ua.Request) (*Pending, error) {
	body, err := Encode(rq)
	if err != nil {
		return nil, err
	}
	return c.SendBody(body)
}

// Call sends a request and waits for its answer.
func (c *Conn) Call(ctx context.Context, rq ua.Request) (any, error) {
	if rq.Header() == nil {
		rq.SetHeader(Header(nil))
	}
	p, err := c.Send(rq)
	if err != nil {
		return nil, err
	}
	return p.Wait(ctx)
}

var handle atomic.Uint32

// Header returns a RequestHeader with the token, the time and a fresh handle.
func Header(token *ua.NodeID) *ua.RequestHeader {
	if token == nil {
		token = ua.NewTwoByteNodeID(0)
	}
	return &ua.RequestHeader{AuthenticationToken: token, Timestamp: time.Now(), RequestHandle: handle.Add(1),
		TimeoutHint: uint32(DefaultTimeout.Milliseconds()), AdditionalHeader: ua.NewExtensionObject(nil)}
}

// Call sends rq on c and asserts the answer's type.
func Call[T any](ctx context.Context, c interface {
	Call(context.Context, ua.Request) (any, error)
}, rq ua.Request) (T, error) {
	var zero T
	msg, err := c.Call(ctx, rq)
	if err != nil {
		if t, ok := msg.(T); ok {
			return t, err
		}
		return zero, err
	}
	t, ok := msg.(T)
	if !ok {
		return zero, fmt.Errorf("probe: answer to %T is %T", rq, msg)
	}
	return t, nil
}
