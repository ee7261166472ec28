package securechannel

import (
	"bufio"
	"context"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// ClientConfig configures the client half of a channel.
type ClientConfig struct {
	EndpointURL string

	// Policy and Mode; nil and 0 = None.
	Policy *security.Policy
	Mode   ua.MessageSecurityMode

	// Key is the client's certificate and private key; not needed for None.
	Key *security.Key

	// ServerCertificate is the server's in DER, as its endpoint announces it,
	// and already trusted. Not needed for None.
	ServerCertificate []byte

	// Lifetime asked for; 0 = 1 h.
	Lifetime time.Duration

	// Limits are the client's own: buffer sizes, and the largest responses.
	Limits transport.Limits
}

// Client is the client half of a SecureChannel. One goroutine calls Receive in
// a loop; Send and Renew may be called by others meanwhile.
type Client struct {
	cfg    ClientConfig
	limits transport.Limits
	conn   net.Conn
	read   *bufio.Reader
	params transport.Parameters
	layout layout
	server identity
	nextID atomic.Uint32 // request ids

	// Sending.
	mu       sync.Mutex
	id       uint32
	sendSeq  sequence
	send     *token
	out      []byte
	renewing *renewal

	// Receiving: of the goroutine that calls Receive.
	recvSeq  sequence
	cur, old *token
	issued   atomic.Pointer[token]
	assembly assembly
	frame    []byte         // nil: it is borrowed
	borrowed *buffer.Buffer // of the last chunk; nil while waiting for the next
	last     *buffer.Buffer // what the last Receive returned
}

type renewal struct {
	nonce  []byte
	done   chan struct{}
	err    error
	answer bool
}

// Dial does the whole handshake on conn, which it takes over: Hello,
// Acknowledge, OpenSecureChannel. When ctx ends, so does the handshake.
func Dial(ctx context.Context, conn net.Conn, cfg ClientConfig) (*Client, error) {
	if cfg.Policy == nil {
		cfg.Policy = security.None
	}
	if cfg.Mode == ua.MessageSecurityModeInvalid {
		cfg.Mode = ua.MessageSecurityModeNone
	}
	if cfg.Lifetime <= 0 {
		cfg.Lifetime = time.Hour
	}
	c := &Client{cfg: cfg, limits: cfg.Limits.Resolved(), conn: conn}
	c.recvSeq.legacy, c.sendSeq.legacy = true, true
	c.server = identity{policy: cfg.Policy, key: cfg.Key}
	if !cfg.Policy.IsNone() {
		if cfg.Key == nil {
			return nil, errors.New("securechannel: ClientConfig.Key is nil")
		}
		cert, err := x509.ParseCertificate(cfg.ServerCertificate)
		if err != nil {
			return nil, fmt.Errorf("securechannel: server certificate: %w", err)
		}
		pub, ok := cert.PublicKey.(*rsa.PublicKey)
		if !ok {
			return nil, fmt.Errorf("securechannel: server certificate has a %T", cert.PublicKey)
		}
		if err := cfg.Policy.CheckKey(pub); err != nil {
			return nil, err
		}
		c.server.peer = pub
		c.server.thumb = security.Thumbprint(cert.Raw)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := c.handshake(ctx)
	if err != nil {
		_ = conn.Close()
		c.Release()
		if ctx.Err() != nil {
			err = errors.Join(ctx.Err(), err)
		}
		return nil, err
	}
	return c, nil
}

func (c *Client) handshake(ctx context.Context) error {
	// Clients with the smallest chunks are those of which there are thousands in
	// one process: idle they hold no chunk's buffer, and a small one to read.
	lean := c.limits.ReceiveBufferSize <= transport.MinBufferSize
	size := 64 << 10
	if lean {
		size = 1 << 10
	}
	c.read = bufio.NewReaderSize(c.conn, size)
	p, err := uatcp.Connect(c.conn, c.read, c.cfg.EndpointURL, &c.limits)
	if err != nil {
		return err
	}
	c.params = p
	c.layout = newLayout(p.BufferSize, c.cfg.Policy, c.cfg.Mode)
	if !lean {
		c.frame = make([]byte, p.BufferSize)
	}
	r, err := c.requestToken(ctx, requestTypeIssue)
	if err != nil {
		return err
	}
	for !r.answer {
		if err := c.receiveFrame(); err != nil {
			return err
		}
	}
	return r.err
}

// requestToken sends OpenSecureChannel.
func (c *Client) requestToken(ctx context.Context, kind uint32) (*renewal, error) {
	r := &renewal{nonce: security.Nonce(nonceLength(c.cfg.Policy)), done: make(chan struct{})}
	b := OpenRequestBody(kind, c.cfg.Mode, r.nonce, c.cfg.Lifetime)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.renewing != nil {
		return nil, errors.New("securechannel: a renewal is under way")
	}
	// Signing under the lock keeps the numbers in order; a client has one
	// connection to care for.
	message, err := c.server.seal(ctx, security.PriorityRenew, c.id, c.sendSeq.next(), c.nextID.Add(1), b)
	if err != nil {
		return nil, err
	}
	c.renewing = r
	_, err = c.conn.Write(message)
	return r, err
}

// OpenRequestBody is the body of an OpenSecureChannel request, type id first.
func OpenRequestBody(kind uint32, mode ua.MessageSecurityMode, nonce []byte, lifetime time.Duration) []byte {
	b := uabinary.AppendTypeID(nil, idOpenRequest)
	b = uabinary.AppendRequestHeader(b, &uabinary.RequestHeader{Timestamp: uabinary.Now()})
	b = uabinary.AppendUint32(b, 0) // ClientProtocolVersion
	b = uabinary.AppendUint32(b, kind)
	b = uabinary.AppendUint32(b, uint32(mode))
	b = uabinary.AppendByteString(b, nonce)
	return uabinary.AppendUint32(b, uint32(lifetime/time.Millisecond))
}

// Renew asks for a new token and waits for it. Receive must be running.
func (c *Client) Renew(ctx context.Context) error {
	r, err := c.requestToken(ctx, requestTypeRenew)
	if err != nil {
		return err
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NextRequestID returns an unused request id.
func (c *Client) NextRequestID() uint32 { return c.nextID.Add(1) }

// ID is the SecureChannelId.
func (c *Client) ID() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

// Parameters are what Hello and Acknowledge have settled.
func (c *Client) Parameters() transport.Parameters { return c.params }

// Send sends a request, cut into chunks within the server's limits: type id
// first, as uabinary encodes it. BadRequestTooLarge says that nothing was sent.
func (c *Client) Send(requestID uint32, body []byte) error {
	n := c.layout.chunks(len(body))
	p := &c.params
	if p.MaxMessageSize > 0 && len(body) > p.MaxMessageSize || p.MaxChunkCount > 0 && n > p.MaxChunkCount {
		return uastatus.New(ua.StatusBadRequestTooLarge, "send", fmt.Errorf("%d bytes", len(body)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = c.out[:0]
	for ; n > 1; n-- {
		c.out = c.appendChunk(c.out, kindMSG, chunkIntermediate, c.sendSeq.next(), requestID, body[:c.layout.body])
		body = body[c.layout.body:]
	}
	c.out = c.appendChunk(c.out, kindMSG, chunkFinal, c.sendSeq.next(), requestID, body)
	_, err := c.conn.Write(c.out)
	return err
}

func (c *Client) appendChunk(b []byte, kind [3]byte, final byte, sequence, request uint32, body []byte) []byte {
	n, size := len(b), c.layout.chunk(len(body))
	for cap(b)-n < size {
		b = append(b[:cap(b)], 0)
	}
	b = b[:n+size]
	c.layout.seal(b[n:], kind, final, c.id, c.send, sequence, request, body)
	return b
}

// Receive returns the next response: its request id, and its body, valid until
// the next call. An ERR of the server is a *uatcp.Error, an aborted response a
// *Abort.
func (c *Client) Receive() (requestID uint32, body []byte, err error) {
	c.last.Release()
	c.borrowed.Release()
	c.last, c.borrowed = nil, nil
	for {
		id, body, done, err := c.receive()
		if err != nil {
			var abort *Abort
			if !errors.As(err, &abort) {
				c.failRenewal(err)
			}
			return id, nil, err
		}
		if done {
			return id, body, nil
		}
	}
}

// Abort is a response that the server has aborted (OPC 10000-6 §6.7.3, MessageChunks
// and error handling).
type Abort struct {
	Code   ua.StatusCode
	Reason string
}

// Error is the code's name and the reason.
func (a *Abort) Error() string {
	return "response aborted: " + uastatus.Name(a.Code) + " " + fmt.Sprintf("%q", a.Reason)
}

// Unwrap is the code, for errors.Is.
func (a *Abort) Unwrap() error { return a.Code }

// receive reads one chunk. done says that a response is complete.
func (c *Client) receive() (id uint32, body []byte, done bool, err error) {
	room := c.frame
	if room == nil {
		if c.borrowed == nil {
			_, _ = c.read.Peek(uatcp.HeaderSize) // what goes wrong ReadMessage will say
			c.borrowed = buffer.Get(c.params.BufferSize)
		}
		room = c.borrowed.Whole()[:c.params.BufferSize]
	}
	frame, err := uatcp.ReadMessage(c.read, room)
	if err != nil {
		return 0, nil, false, err
	}
	if kind(frame) == kindOPN {
		return 0, nil, false, c.opened(frame)
	}
	if kind(frame) != kindMSG {
		return 0, nil, false, uastatus.New(ua.StatusBadTCPMessageTypeInvalid, "receive", fmt.Errorf("message %q", frame[:4]))
	}
	if t := c.issued.Swap(nil); t != nil {
		c.old, c.cur = c.cur, t
	}
	if len(frame) < bodyOffset {
		return 0, nil, false, errChunkShort
	}
	t := c.cur
	switch token := le32(frame[12:]); {
	case le32(frame[8:]) != c.id:
		return 0, nil, false, uastatus.New(ua.StatusBadTCPSecureChannelUnknown, "receive", nil)
	case t != nil && token == t.id && time.Now().Before(t.dead()):
	case c.old != nil && token == c.old.id && time.Now().Before(c.old.dead()):
		t = c.old
	default:
		return 0, nil, false, errToken
	}
	sequence, id, body, err := c.layout.open(frame, t)
	if err != nil {
		return 0, nil, false, err
	}
	if err := c.recvSeq.accept(sequence); err != nil {
		return 0, nil, false, err
	}
	a := &c.assembly
	if a.active() && a.request != id {
		a.drop()
	}
	switch frame[3] {
	case chunkAbort:
		a.drop()
		var d uabinary.Decoder
		d.Reset(body, nil)
		return id, nil, false, &Abort{Code: d.StatusCode(), Reason: d.String()}
	case chunkIntermediate:
		if err := a.check(len(body), c.limits.MaxMessageSize, c.limits.MaxChunkCount); err != nil {
			return 0, nil, false, err
		}
		return id, nil, false, a.add(id, body, true)
	}
	if err := a.check(len(body), c.limits.MaxMessageSize, c.limits.MaxChunkCount); err != nil {
		return 0, nil, false, err
	}
	if a.active() {
		c.last = a.finish(body)
		return id, c.last.B, true, nil
	}
	return id, body, true, nil
}

// receiveFrame is receive for the handshake: only an OpenSecureChannel response
// may come.
func (c *Client) receiveFrame() error {
	_, _, done, err := c.receive()
	if err == nil && done {
		err = uastatus.New(ua.StatusBadTCPMessageTypeInvalid, "receive", errors.New("response before the channel is open"))
	}
	return err
}

// opened takes an OpenSecureChannel response.
func (c *Client) opened(frame []byte) error {
	c.mu.Lock()
	r := c.renewing
	c.mu.Unlock()
	if r == nil {
		return uastatus.New(ua.StatusBadTCPMessageTypeInvalid, "receive", errors.New("unasked OpenSecureChannel response"))
	}
	t, err := c.readToken(frame, r)
	c.mu.Lock()
	c.renewing = nil
	if err == nil {
		c.send = t // clients use the new token at once
	}
	c.mu.Unlock()
	if err == nil {
		c.old, c.cur = c.cur, t
	}
	r.err, r.answer = err, true
	close(r.done)
	return err
}

func (c *Client) readToken(frame []byte, r *renewal) (*token, error) {
	h, err := parseAsymmetric(frame)
	if err != nil {
		return nil, err
	}
	if string(h.policy) != c.cfg.Policy.URI {
		return nil, errOpen
	}
	if !c.cfg.Policy.IsNone() {
		thumb := c.cfg.Key.Thumbprint()
		if string(h.thumbprint) != string(thumb[:]) || security.Thumbprint(leaf(h.certificate)) != c.server.thumb {
			return nil, errOpen
		}
	}
	sequence, _, body, err := c.server.open(context.Background(), security.PriorityRenew, frame, h.end)
	if err != nil {
		return nil, err
	}
	if err := c.recvSeq.accept(sequence); err != nil {
		return nil, err
	}
	var d uabinary.Decoder
	d.Reset(body, nil)
	id := d.TypeID()
	rh := d.ResponseHeader()
	if d.Err() == nil && rh.ServiceResult != ua.StatusGood {
		return nil, uastatus.New(rh.ServiceResult, "open secure channel", nil)
	}
	_ = d.UInt32()
	channel, tokenID := d.UInt32(), d.UInt32()
	_ = d.DateTime()
	lifetime := d.UInt32()
	nonce := d.ByteString()
	if d.Err() != nil {
		return nil, d.Err()
	}
	if id != idOpenResponse || !c.cfg.Policy.IsNone() && len(nonce) != c.cfg.Policy.NonceLength() {
		return nil, uastatus.New(ua.StatusBadSecurityChecksFailed, "open secure channel", fmt.Errorf("type id %d, nonce of %d bytes", id, len(nonce)))
	}
	c.mu.Lock()
	first := c.id == 0
	if first {
		c.id = channel
	}
	c.mu.Unlock()
	if !first && channel != c.id {
		return nil, uastatus.New(ua.StatusBadTCPSecureChannelUnknown, "renew secure channel", nil)
	}
	t := &token{id: tokenID, created: time.Now(), lifetime: time.Duration(lifetime) * time.Millisecond}
	if !c.cfg.Policy.IsNone() {
		t.clientKeys(c.cfg.Policy, r.nonce, nonce)
	}
	return t, nil
}

func (c *Client) failRenewal(err error) {
	c.mu.Lock()
	r := c.renewing
	c.renewing = nil
	c.mu.Unlock()
	if r != nil {
		r.err = err
		close(r.done)
	}
}

// Lifetime is the revised lifetime of the newest token.
func (c *Client) Lifetime() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.send.lifetime
}

// Close sends CloseSecureChannel and closes the connection.
func (c *Client) Close() error {
	b := uabinary.AppendTypeID(nil, idCloseRequest)
	b = uabinary.AppendRequestHeader(b, &uabinary.RequestHeader{Timestamp: uabinary.Now()})
	_ = c.conn.SetWriteDeadline(time.Now().Add(time.Second))
	c.mu.Lock()
	_, _ = c.conn.Write(c.appendChunk(nil, kindCLO, chunkFinal, c.sendSeq.next(), c.nextID.Add(1), b))
	c.mu.Unlock()
	return c.conn.Close()
}

// Release gives back what an unfinished response and the last one hold. Only
// after Receive has returned for the last time.
func (c *Client) Release() {
	c.last.Release()
	c.borrowed.Release()
	c.last, c.borrowed = nil, nil
	c.assembly.drop()
}

var _ io.Closer = (*Client)(nil)
