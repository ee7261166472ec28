package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/breakwater-ua/breakwater/transport/wss"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uajson"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/coder/websocket"
	"github.com/gopcua/opcua/ua"
)

// maxAnswer bounds an answer that is not cut into chunks, in bytes.
const maxAnswer = 64 << 20

// CloseError is the close frame of a server that ends a WebSocket with
// opcua+uajson.
type CloseError struct {
	Code   int // RFC 6455 §7.4.1, Defined Status Codes
	Reason string
}

// Error is the frame.
func (e *CloseError) Error() string { return fmt.Sprintf("probe: closed with %d %q", e.Code, e.Reason) }

// Unwrap is the StatusCode that says the same.
func (e *CloseError) Unwrap() error {
	switch websocket.StatusCode(e.Code) {
	case websocket.StatusMessageTooBig:
		return ua.StatusBadTCPMessageTooLarge
	case websocket.StatusTryAgainLater:
		return uastatus.BadServerTooBusy
	case websocket.StatusUnsupportedData, websocket.StatusProtocolError:
		return ua.StatusBadTCPMessageTypeInvalid
	case websocket.StatusInvalidFramePayloadData:
		return ua.StatusBadDecodingError
	}
	return ua.StatusBadConnectionClosed
}

// texts is a WebSocket with opcua+uajson.
type texts struct {
	c  *Conn
	ws *websocket.Conn
}

func dialTexts(ctx context.Context, c *Conn) (wire, error) {
	ws, err := wss.DialJSON(ctx, c.URL, anyCertificate())
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(maxAnswer)
	return &texts{c, ws}, nil
}

// key is the RequestHandle, which is all that an answer says.
func (t *texts) key(msg []byte, _ uint32) uint32 {
	handle, _ := uajson.RequestHandle(msg)
	return handle
}

func (t *texts) send(_ uint32, msg []byte) error {
	return t.ws.Write(context.Background(), websocket.MessageText, msg)
}

func (t *texts) read() error {
	for {
		kind, text, err := t.ws.Read(context.Background())
		var end websocket.CloseError
		switch {
		case errors.As(err, &end):
			return &CloseError{int(end.Code), end.Reason}
		case err != nil:
			return err
		case kind != websocket.MessageText:
			return errors.New("probe: the server sent a binary message with opcua+uajson")
		}
		body, _, err := t.c.tables.Load().AppendBinary(nil, text, nil)
		if err != nil {
			return fmt.Errorf("probe: %w in %.200s", err, text)
		}
		var d uabinary.Decoder
		d.Reset(body, nil)
		d.TypeID()
		d.DateTime()
		handle := d.UInt32()
		if d.Err() != nil {
			return fmt.Errorf("probe: ResponseHeader: %w", d.Err())
		}
		t.c.deliver(handle, answer{body: body})
	}
}

func (t *texts) cut() { _ = t.ws.CloseNow() }

func (t *texts) close() error {
	err := t.ws.CloseNow()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// HTTPError is an answer of opc.https other than 200.
type HTTPError struct {
	Status     int
	RetryAfter string // the header
	Text       string // the beginning of the body
}

// Error is the status.
func (e *HTTPError) Error() string {
	return fmt.Sprintf("probe: HTTP %d %s: %s", e.Status, http.StatusText(e.Status), e.Text)
}

// Unwrap is the StatusCode that says the same.
func (e *HTTPError) Unwrap() error {
	switch e.Status {
	case http.StatusRequestEntityTooLarge:
		return ua.StatusBadRequestTooLarge
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return uastatus.BadServerTooBusy
	case http.StatusRequestTimeout:
		return ua.StatusBadTimeout
	case http.StatusUnsupportedMediaType:
		return ua.StatusBadDataEncodingUnsupported
	}
	return ua.StatusBadCommunicationError
}

// posts is opc.https: each message a POST. Errors concern one message only.
type posts struct {
	c      *Conn
	web    *http.Transport
	url    string
	kind   string // Content-Type
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[*postSocket]struct{}
}

func newPosts(c *Conn) *posts {
	p := &posts{c: c, url: strings.TrimPrefix(c.URL, "opc."), kind: "application/octet-stream", open: map[*postSocket]struct{}{}}
	if c.JSON {
		p.kind = "application/json"
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.web = &http.Transport{DialContext: p.dial, TLSClientConfig: anyCertificate(), DisableCompression: true,
		MaxIdleConnsPerHost: 1000, Protocols: new(http.Protocols)}
	p.web.Protocols.SetHTTP1(c.HTTP1)
	p.web.Protocols.SetHTTP2(!c.HTTP1)
	return p
}

// postSocket tells of its end, so that all can be closed: net/http may keep one
// that nobody waits for any more.
type postSocket struct {
	net.Conn
	of *posts
}

func (s *postSocket) Close() error {
	s.of.mu.Lock()
	delete(s.of.open, s)
	s.of.mu.Unlock()
	return s.Conn.Close()
}

func (p *posts) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	nc, err := p.c.connect(ctx)
	if err != nil {
		return nil, err
	}
	s := &postSocket{nc, p}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		nc.Close()
		return nil, ErrClosed
	}
	p.open[s] = struct{}{}
	return s, nil
}

func (p *posts) key(_ []byte, fresh uint32) uint32 { return fresh }

func (p *posts) send(key uint32, msg []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	p.wg.Go(func() {
		body, err := p.post(msg)
		p.c.deliver(key, answer{body, err})
	})
	return nil
}

func (p *posts) post(msg []byte) ([]byte, error) {
	rq, err := http.NewRequestWithContext(p.ctx, http.MethodPost, p.url, bytes.NewReader(msg))
	if err != nil {
		return nil, err
	}
	rq.Header.Set("Content-Type", p.kind)
	rq.Header.Set("OPCUA-SecurityPolicy", p.c.Policy.URI) // OPC 10000-6 §7.4.1, OPC UA HTTPS
	rs, err := p.web.RoundTrip(rq)
	if err != nil {
		return nil, err
	}
	defer rs.Body.Close()
	b, err := io.ReadAll(io.LimitReader(rs.Body, maxAnswer))
	switch {
	case rs.StatusCode != http.StatusOK:
		return nil, &HTTPError{rs.StatusCode, rs.Header.Get("Retry-After"), string(b[:min(len(b), 200)])}
	case err != nil:
		return nil, err
	case rs.Header.Get("Content-Type") != p.kind:
		return nil, fmt.Errorf("probe: an answer of type %q to %q", rs.Header.Get("Content-Type"), p.kind)
	case p.c.JSON:
		b, _, err = p.c.tables.Load().AppendBinary(nil, b, nil)
	}
	return b, err
}

func (p *posts) read() error {
	<-p.ctx.Done()
	p.wg.Wait()
	return ErrClosed
}

func (p *posts) cut() {
	p.mu.Lock()
	p.closed = true
	open := make([]*postSocket, 0, len(p.open))
	for s := range p.open {
		open = append(open, s)
	}
	p.mu.Unlock()
	for _, s := range open {
		s.Close()
	}
}

func (p *posts) close() error {
	p.cut()
	p.cancel()
	p.wg.Wait()
	p.web.CloseIdleConnections()
	return nil
}
