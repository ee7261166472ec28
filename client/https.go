package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/gopcua/opcua/ua"
)

// HTTPS is opc.https, OPC 10000-6 §7.4 (OPC UA HTTPS) with OPC UA Binary: each
// request is a POST, its response the body of the answer. A session is known by its
// AuthenticationToken, on whichever connection; Publish is a long poll. With
// HTTP/2 all requests share one connection.
type HTTPS struct {
	// Dial connects to host:port; nil: a net.Dialer, or the proxy that the
	// environment names (see http.ProxyFromEnvironment).
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// MaxConnections bounds the connections of one session. Over it requests wait
	// for one to be free; Publish requests hold theirs. 0: 16; never less than the
	// Publish requests and one.
	MaxConnections int
}

const (
	contentBinary    = "application/octet-stream"
	contentUABinary  = "application/opcua+uabinary"
	headerPolicy     = "OPCUA-SecurityPolicy" // OPC 10000-6 §7.4.1
	defaultHTTPConns = 16
	httpIdle         = 90 * time.Second
)

// Open implements [Transport]. Nothing is sent before the first request.
func (t HTTPS) Open(_ context.Context, c ChannelConfig) (Channel, error) {
	s, err := schemeOf(c.URL)
	if err != nil || s.profile != profileHTTPS {
		return nil, fmt.Errorf("client: no HTTPS for %q", c.URL.Scheme)
	}
	n := t.MaxConnections
	if n <= 0 {
		n = defaultHTTPConns
	}
	sockets := &sockets{dial: dialer(t.Dial), open: make(map[net.Conn]struct{})}
	n = max(n, maxPublishing+1)
	web := &http.Transport{
		TLSClientConfig:        c.TLS.config(c.URL.Hostname()),
		DialContext:            func(ctx context.Context, _, address string) (net.Conn, error) { return sockets.connect(ctx, address) },
		TLSHandshakeTimeout:    30 * time.Second,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
		MaxConnsPerHost:        n,
		MaxIdleConnsPerHost:    n,
		IdleConnTimeout:        httpIdle,
	}
	if t.Dial == nil {
		web.Proxy = http.ProxyFromEnvironment
	}
	ch := &httpsChannel{
		web:     web,
		sockets: sockets,
		client:  &http.Client{Transport: web, CheckRedirect: noRedirect},
		url:     s.webURL(c.URL),
		policy:  c.Policy.URI,
		most:    int64(c.Limits.Resolved().MaxMessageSize),
		answers: make(chan httpAnswer),
		cancels: make(map[uint32]context.CancelFunc),
	}
	ch.ctx, ch.cancel = context.WithCancel(context.Background())
	return ch, nil
}

// noRedirect: a request with a token goes nowhere but where it was sent.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// httpsChannel implements [Channel]. The goroutines of its requests end with
// Close, which waits for them.
type httpsChannel struct {
	web     *http.Transport
	sockets *sockets
	client  *http.Client
	url     string
	policy  string
	most    int64 // bytes of a response
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	nextID  atomic.Uint32

	answers chan httpAnswer

	mu      sync.Mutex
	closed  bool
	cancels map[uint32]context.CancelFunc
}

type httpAnswer struct {
	id   uint32
	body []byte
	err  error
}

// NextRequestID implements [Channel].
func (c *httpsChannel) NextRequestID() uint32 { return c.nextID.Add(1) }

// Lifetime implements [Channel]: there is nothing to renew.
func (c *httpsChannel) Lifetime() time.Duration { return 0 }

// Renew implements [Channel].
func (c *httpsChannel) Renew(context.Context) error { return nil }

// Release implements [Channel].
func (c *httpsChannel) Release() {}

// Send implements [Channel].
func (c *httpsChannel) Send(id uint32, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errChannelClosed
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.cancels[id] = cancel
	c.wg.Go(func() {
		a := c.post(ctx, body)
		abandoned := ctx.Err() != nil
		cancel()
		c.mu.Lock()
		delete(c.cancels, id)
		c.mu.Unlock()
		if abandoned {
			return
		}
		a.id = id
		select {
		case c.answers <- a:
		case <-c.ctx.Done():
		}
	})
	return nil
}

// Cancel implements [Canceler].
func (c *httpsChannel) Cancel(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.cancels[id]; cancel != nil {
		cancel()
	}
}

// Receive implements [Channel].
func (c *httpsChannel) Receive() (uint32, []byte, error) {
	select {
	case a := <-c.answers:
		return a.id, a.body, a.err
	case <-c.ctx.Done():
		return 0, nil, errChannelClosed
	}
}

// Close implements [Channel].
func (c *httpsChannel) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
	c.web.CloseIdleConnections()
	c.sockets.close()
	return nil
}

// sockets are the connections of a channel. net/http keeps one whose dialing was
// overtaken by another for later; a channel that has ended has no later.
type sockets struct {
	dial func(ctx context.Context, address string) (net.Conn, error)

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
}

func (s *sockets) connect(ctx context.Context, address string) (net.Conn, error) {
	nc, err := s.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(errChannelClosed, nc.Close())
	}
	k := &socket{Conn: nc, of: s}
	s.open[k] = struct{}{}
	return k, nil
}

func (s *sockets) close() {
	s.mu.Lock()
	s.closed = true
	left := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, nc := range left {
		_ = nc.Close()
	}
}

// socket tells of its end.
type socket struct {
	net.Conn
	of *sockets
}

// Close implements net.Conn.
func (k *socket) Close() error {
	k.of.mu.Lock()
	delete(k.of.open, k)
	k.of.mu.Unlock()
	return k.Conn.Close()
}

// post is one request. An answer of the server that is not OPC UA concerns this
// request only; a connection that breaks ends the channel, since what was on its
// way may be lost with it.
func (c *httpsChannel) post(ctx context.Context, body []byte) httpAnswer {
	rq, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return httpAnswer{err: err}
	}
	rq.Header.Set("Content-Type", contentBinary)
	rq.Header.Set(headerPolicy, c.policy)
	rs, err := c.client.Do(rq)
	if err != nil {
		return httpAnswer{err: lost(tlsError(err))}
	}
	defer rs.Body.Close()
	if rs.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, rs.Body, 4<<10) // so that the connection may be used again
		return httpAnswer{err: &RequestError{httpError(rs.StatusCode, rs.Header)}}
	}
	if kind, _, err := mime.ParseMediaType(rs.Header.Get("Content-Type")); err != nil || kind != contentBinary && kind != contentUABinary {
		return httpAnswer{err: &RequestError{unknownResponse("content type %q", rs.Header.Get("Content-Type"))}}
	}
	if rs.ContentLength > c.most {
		return httpAnswer{err: &RequestError{broken(ua.StatusBadResponseTooLarge, "a response of %d bytes", rs.ContentLength)}}
	}
	b, err := io.ReadAll(io.LimitReader(rs.Body, c.most+1))
	switch {
	case err != nil:
		return httpAnswer{err: lost(err)}
	case int64(len(b)) > c.most:
		return httpAnswer{err: &RequestError{broken(ua.StatusBadResponseTooLarge, "a response of more than %d bytes", c.most)}}
	}
	return httpAnswer{body: b}
}

// httpError makes an error of an HTTP response that is not a success.
func httpError(status int, h http.Header) error {
	text := fmt.Sprintf("%d %s", status, http.StatusText(status))
	if err := reconnect.HTTPError(&http.Response{StatusCode: status, Status: text, Header: h}, time.Now()); err != nil {
		return err
	}
	code := ua.StatusBadCommunicationError
	switch status {
	case http.StatusRequestEntityTooLarge:
		code = ua.StatusBadRequestTooLarge
	case http.StatusUnauthorized, http.StatusForbidden:
		code = ua.StatusBadUserAccessDenied
	}
	return broken(code, "HTTP %s", text)
}

// RequestError is an error of Channel.Receive that concerns one request only: the
// channel lives on.
type RequestError struct{ Err error }

// Error is the cause's.
func (e *RequestError) Error() string { return e.Err.Error() }

// Unwrap is the cause.
func (e *RequestError) Unwrap() error { return e.Err }

// single says whether an error concerns one request.
func single(err error) bool {
	var one *RequestError
	return errors.As(err, &one)
}
