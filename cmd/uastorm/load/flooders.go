package load

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/breakwater-ua/breakwater/transport/wss"
	"github.com/gopcua/opcua/ua"
)

// until makes reads and writes on a connection end with ctx.
func until(ctx context.Context, c interface{ SetDeadline(time.Time) error }) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
}

// chunks sends intermediate chunks of one message that never ends.
func (w *flood) chunks(ctx context.Context, t *Target, i, size int, every time.Duration) error {
	w.e.rec.Attempt()
	c, err := t.open(ctx, w.e.sources.at(groupFlood, i), 0)
	if err != nil {
		return w.refused(err)
	}
	defer w.opened()()
	defer until(ctx, c.nc)()
	var (
		reader sync.WaitGroup
		reason error
	)
	ch := c.raw()
	reader.Go(func() { _, _, reason = ch.Receive() })
	size = min(size, ch.Parameters().BufferSize-64)
	body, id := make([]byte, size), ch.NextRequestID()
	for err == nil && (every == 0 || pause(ctx, every)) {
		var n int
		n, err = ch.Write(ch.Seal(securechannel.RawChunk{Final: 'C', RequestID: id, Body: body}))
		w.sent(n)
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(lastWords))
	if ctx.Err() != nil {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	}
	reader.Wait()
	c.drop()
	c.ch.Release()
	if reason != nil {
		return reason
	}
	return err
}

// silent connects and says nothing.
func (w *flood) silent(ctx context.Context, i int) error {
	nc, err := w.connect(ctx, i)
	if err != nil {
		return w.refused(err)
	}
	defer nc.Close()
	defer until(ctx, nc)()
	defer w.opened()()
	if w.e.target.Scheme() == SchemeTCP {
		return word(nc)
	}
	_, err = io.Copy(io.Discard, nc) // an alert of TLS is no word
	return errors.Join(err, io.EOF)
}

// hello says nothing after its Hello.
func (w *flood) hello(ctx context.Context, i int) error {
	nc, stream, err := w.stream(ctx, i)
	if err != nil {
		return w.refused(err)
	}
	defer stream.Close()
	defer until(ctx, nc)()
	defer w.opened()()
	return word(stream)
}

// word is what the server says to end a connection.
func word(r io.Reader) error {
	_, err := uatcp.ReadMessage(r, make([]byte, transport.MinBufferSize))
	return err
}

// connect opens a TCP connection, and no more.
func (w *flood) connect(ctx context.Context, i int) (net.Conn, error) {
	w.e.rec.Attempt()
	ctx, cancel := context.WithTimeout(ctx, w.e.target.timeout)
	defer cancel()
	return w.e.target.dial(ctx, w.e.sources.at(groupFlood, i))
}

// stream opens what carries the messages of OPC UA TCP, which may be the TCP
// connection itself, and exchanges Hello and Acknowledge. Deadlines are for nc.
func (w *flood) stream(ctx context.Context, i int) (nc, stream net.Conn, err error) {
	t := w.e.target
	w.e.rec.Attempt()
	dial, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	k := &sockets{address: &t.Address, from: w.e.sources.at(groupFlood, i)}
	if t.Scheme() == SchemeWSS {
		d := wss.Dialer{TLS: t.tlsConfig(), NetDial: k.dial}
		stream, err = d.Dial(dial, t.webURL().String())
	} else {
		stream, err = k.dial(dial, "")
	}
	if err != nil {
		k.close()
		return nil, nil, answered(err)
	}
	nc = k.first()
	defer until(dial, nc)()
	limits := transport.Limits{}.Resolved()
	if _, err := uatcp.Connect(stream, stream, t.URL, &limits); err != nil {
		_ = stream.Close()
		return nil, nil, err
	}
	return nc, stream, nil
}

// opn sends one OpenSecureChannel request and takes the answer. A secured one is
// random bytes under a good header: the server has to decrypt it to find out.
func (w *flood) opn(ctx context.Context, i int) error {
	t := w.e.target
	if t.Policy.IsNone() {
		w.e.rec.Attempt()
		c, err := t.open(ctx, w.e.sources.at(groupFlood, i), 0)
		if err != nil {
			return w.refused(err)
		}
		w.opened()()
		c.close()
		c.ch.Release()
		return nil
	}
	nc, stream, err := w.stream(ctx, i)
	if err != nil {
		return w.refused(err)
	}
	defer stream.Close()
	answer, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	defer until(answer, nc)()
	if _, err := stream.Write(t.falseOpen()); err != nil {
		return w.refused(err)
	}
	done := w.opened()
	_, err = uatcp.ReadMessage(stream, make([]byte, transport.MaxBufferSize))
	done()
	return err
}

// falseOpen is an OpenSecureChannel message (OPC 10000-6 §6.7.2.3, Security Header)
// whose header is right and whose rest is no cipher text.
func (t *Target) falseOpen() []byte {
	b := []byte("OPNF\x00\x00\x00\x00\x00\x00\x00\x00")
	thumb := security.Thumbprint(t.certificate)
	for _, field := range [][]byte{[]byte(t.Policy.URI), t.Key.Certificate(), thumb[:]} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(field)))
		b = append(b, field...)
	}
	block := make([]byte, t.Policy.CipherBlock(t.public))
	for i := range block[1:] { // below the modulus
		block[1+i] = byte(rand.Uint32())
	}
	b = append(b, bytes.Repeat(block, 2)...)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	return b
}

// slowReader asks for values again and again and never reads an answer.
func (w *flood) slowReader(ctx context.Context, i int) error {
	w.e.rec.Attempt()
	l := link{session: w.session(i, nil)}
	err := l.step(ctx, func(ctx context.Context) (*conn, error) {
		return w.e.target.open(ctx, w.e.sources.at(groupFlood, i), 0)
	})
	w.session(i, l.session)
	if err != nil {
		if l.failed(err) { // the server has forgotten the session
			w.forget(i)
		}
		l.drop()
		return w.refused(err)
	}
	c := l.conn
	defer func() {
		c.drop()
		c.ch.Release()
	}()
	done := w.opened()
	_ = c.nc.SetDeadline(time.Time{})
	defer until(ctx, c.nc)()
	rq := &ua.ReadRequest{TimestampsToReturn: ua.TimestampsToReturnBoth}
	for range slowRead {
		rq.NodesToRead = append(rq.NodesToRead, valueOf(currentTimeNode))
	}
	body, err := c.encode(rq)
	for err == nil && ctx.Err() == nil {
		err = c.ch.Send(c.ch.NextRequestID(), body) // blocks when the server reads no more
		if err == nil {
			w.sent(len(body))
		}
	}
	done()
	if silent(err) && ctx.Err() == nil { // the reason may stand behind the answers
		_ = c.nc.SetReadDeadline(time.Now().Add(lastWords))
		var word *uatcp.Error
		if last := c.drain(); errors.As(last, &word) {
			return last
		}
	}
	return err
}

// drain reads to the end and says what the end was.
func (c *conn) drain() (err error) {
	for err == nil {
		_, _, err = c.ch.Receive()
	}
	return err
}

// endUnread closes the session, if there is one, whatever else has not been read,
// and the connection: what a flood has left at the server ends with it.
func (c *conn) endUnread() {
	var reader sync.WaitGroup
	if c.nc != nil {
		c.deadline(time.Now().Add(lastWords))
		reader.Go(func() { _ = c.drain() }) // makes room for the server, and so for us
	}
	c.bye()
	reader.Wait()
	c.ch.Release()
}

// bye closes the session, if there is one, and the channel. Somebody reads a
// SecureChannel meanwhile, and nobody what stands for one over opc.https.
func (c *conn) bye() {
	rq := &ua.CloseSessionRequest{DeleteSubscriptions: true}
	switch {
	case c.token == nil:
	case c.nc == nil:
		bound, cancel := context.WithTimeout(context.Background(), lastWords)
		_, _ = c.call(bound, rq)
		cancel()
	default:
		if body, err := c.encode(rq); err == nil {
			_ = c.ch.Send(c.ch.NextRequestID(), body)
		}
	}
	_ = c.ch.Close()
}

// neverActivated creates a session and leaves it at that.
func (w *flood) neverActivated(ctx context.Context, i int) error {
	w.e.rec.Attempt()
	c, err := w.e.target.open(ctx, w.e.sources.at(groupFlood, i), smallBuffer)
	if err != nil {
		return w.refused(err)
	}
	s, err := c.create(ctx)
	if err != nil {
		c.endUnread()
		return w.refused(err)
	}
	c.token = s.token
	done := w.opened()
	c.deadline(time.Time{})
	// A server may drop the session and keep the channel: asking would activate
	// nothing, so what is seen here is how long the channel lives. Over opc.https
	// there is none, and so nothing to see.
	ended := make(chan error, 1)
	var reader sync.WaitGroup
	if c.nc != nil {
		reader.Go(func() { ended <- c.drain() })
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	done()
	c.deadline(time.Now().Add(lastWords))
	c.bye()
	reader.Wait()
	c.ch.Release()
	return err
}
