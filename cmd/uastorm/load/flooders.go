package load

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
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
	reader.Go(func() { _, _, reason = c.ch.Receive() })
	size = min(size, c.ch.Parameters().BufferSize-64)
	body, id := make([]byte, size), c.ch.NextRequestID()
	for err == nil && (every == 0 || pause(ctx, every)) {
		var n int
		n, err = c.ch.Write(c.ch.Seal(securechannel.RawChunk{Final: 'C', RequestID: id, Body: body}))
		w.mu.Lock()
		w.facts.Bytes += int64(n)
		w.mu.Unlock()
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(lastWords))
	if ctx.Err() != nil {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	}
	reader.Wait()
	_ = c.nc.Close()
	c.ch.Release()
	if reason != nil {
		return reason
	}
	return err
}

// silent connects and says nothing, or nothing after the Hello.
func (w *flood) silent(ctx context.Context, i int, hello bool) error {
	w.e.rec.Attempt()
	dial, cancel := context.WithTimeout(ctx, w.e.target.timeout)
	nc, err := w.e.target.dial(dial, w.e.sources.at(groupFlood, i))
	cancel()
	if err != nil {
		return w.refused(err)
	}
	defer nc.Close()
	defer until(ctx, nc)()
	if hello {
		limits := transport.Limits{}.Resolved()
		_ = nc.SetDeadline(time.Now().Add(w.e.target.timeout))
		if _, err := uatcp.Connect(nc, nc, w.e.target.URL, &limits); err != nil {
			return w.refused(err)
		}
		_ = nc.SetDeadline(time.Time{})
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	defer w.opened()()
	_, err = uatcp.ReadMessage(nc, make([]byte, transport.MinBufferSize)) // what the server says to end it
	return err
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
	w.e.rec.Attempt()
	dial, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	nc, err := t.dial(dial, w.e.sources.at(groupFlood, i))
	if err != nil {
		return w.refused(err)
	}
	defer nc.Close()
	defer until(dial, nc)()
	limits := transport.Limits{}.Resolved()
	if _, err := uatcp.Connect(nc, nc, t.URL, &limits); err != nil {
		return w.refused(err)
	}
	if _, err := nc.Write(t.falseOpen()); err != nil {
		return w.refused(err)
	}
	done := w.opened()
	_, err = uatcp.ReadMessage(nc, make([]byte, transport.MaxBufferSize))
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
		_ = c.nc.Close()
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
			w.mu.Lock()
			w.facts.Bytes += int64(len(body))
			w.mu.Unlock()
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
	_ = c.nc.SetDeadline(time.Now().Add(lastWords))
	var reader sync.WaitGroup
	reader.Go(func() { _ = c.drain() }) // makes room for the server, and so for us
	if c.token != nil {
		if body, err := c.encode(&ua.CloseSessionRequest{DeleteSubscriptions: true}); err == nil {
			_ = c.ch.Send(c.ch.NextRequestID(), body)
		}
	}
	_ = c.ch.Close()
	reader.Wait()
	c.ch.Release()
}

// neverActivated creates a session and leaves it at that.
func (w *flood) neverActivated(ctx context.Context, i int) error {
	w.e.rec.Attempt()
	c, err := w.e.target.open(ctx, w.e.sources.at(groupFlood, i), smallBuffer)
	if err != nil {
		return w.refused(err)
	}
	defer c.endUnread()
	s, err := c.create(ctx)
	if err != nil {
		return w.refused(err)
	}
	c.token = s.token
	defer w.opened()()
	_ = c.nc.SetDeadline(time.Time{})
	defer until(ctx, c.nc)()
	// A server may drop the session and keep the channel: asking would activate
	// nothing, so what is seen here is how long the channel lives.
	_, _, err = c.ch.Receive()
	return err
}
