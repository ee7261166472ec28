package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// DefaultTimeout bounds one call.
const DefaultTimeout = 20 * time.Second

// Options say how to reach a server.
type Options struct {
	// URL is the endpoint URL, opc.tcp://host:port/path.
	URL string
	// Policy and Mode of the SecureChannel; the zero values mean None.
	Policy *security.Policy
	Mode   ua.MessageSecurityMode
	// Key is the client's certificate and key. Needed unless Mode is None.
	Key *security.Key
	// ServerCertificate is the server's leaf certificate (DER). Needed unless Mode is None.
	ServerCertificate []byte
	// Lifetime asked for the channel's token. Zero: one hour.
	Lifetime time.Duration
	// Dial replaces the TCP dialer (in-memory listeners, proxies).
	Dial func(ctx context.Context) (net.Conn, error)
}

// Conn is one SecureChannel. Its methods may be called concurrently.
type Conn struct {
	Options
	Channel *securechannel.Client

	next    atomic.Uint32
	mu      sync.Mutex
	waiting map[uint32]chan answer
	err     error
	reader  sync.WaitGroup
}

type answer struct {
	body []byte
	err  error
}

// ErrClosed is returned by calls on a Conn that was closed by its owner.
var ErrClosed = errors.New("probe: closed")

// DialTCP connects to the host of an opc.tcp URL.
func DialTCP(ctx context.Context, endpoint string) (net.Conn, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "4840")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", host)
}

// Open connects and opens a SecureChannel.
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
	dial := o.Dial
	if dial == nil {
		dial = func(ctx context.Context) (net.Conn, error) { return DialTCP(ctx, o.URL) }
	}
	nc, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	ch, err := securechannel.Dial(ctx, nc, securechannel.ClientConfig{
		EndpointURL: o.URL, Policy: o.Policy, Mode: o.Mode, Key: o.Key,
		ServerCertificate: o.ServerCertificate, Lifetime: o.Lifetime,
	})
	if err != nil {
		nc.Close()
		return nil, err
	}
	c := &Conn{Options: o, Channel: ch, waiting: map[uint32]chan answer{}}
	c.reader.Go(c.read)
	return c, nil
}

func (c *Conn) read() {
	for {
		id, body, err := c.Channel.Receive()
		c.mu.Lock()
		if err != nil {
			if c.err == nil {
				c.err = err
			}
			for id, w := range c.waiting {
				delete(c.waiting, id)
				w <- answer{err: c.err}
			}
			c.mu.Unlock()
			return
		}
		w := c.waiting[id]
		delete(c.waiting, id)
		c.mu.Unlock()
		if w != nil {
			w <- answer{body: append([]byte(nil), body...)}
		}
	}
}

// Close ends the channel and waits for its reader.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.err == nil {
		c.err = ErrClosed
	}
	c.mu.Unlock()
	err := c.Channel.Close()
	c.reader.Wait()
	return err
}

// Pending is a request that was sent and not yet waited for.
type Pending struct {
	c  *Conn
	ch chan answer
	ID uint32
}

// SendBody sends an encoded message (type id and body) and returns at once.
func (c *Conn) SendBody(body []byte) (*Pending, error) {
	p := &Pending{c: c, ch: make(chan answer, 1), ID: c.next.Add(1)}
	c.mu.Lock()
	if c.err != nil {
		err := c.err
		c.mu.Unlock()
		return nil, err
	}
	c.waiting[p.ID] = p.ch
	c.mu.Unlock()
	if err := c.Channel.Send(p.ID, body); err != nil {
		c.mu.Lock()
		delete(c.waiting, p.ID)
		c.mu.Unlock()
		return nil, err
	}
	return p, nil
}

// Body waits for the answer's encoded message.
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
