package load

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/securechannel"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

const (
	floodChunk   = 60_000 // bytes of a fast flooder's chunk
	slowChunk    = 8000
	slowInterval = 100 * time.Millisecond
	// floodPause keeps a flooder that was thrown out from becoming a storm.
	floodPause = 20 * time.Millisecond
	// lastWords is the time to read why the server has ended a connection.
	lastWords = 2 * time.Second
	// slowRead nodes in one request, whose answers nobody reads.
	slowRead = 500
)

// FloodFacts are what one kind of flooder got.
type FloodFacts struct {
	Kind        string
	Connections int // at once, asked for
	// Opened are connections, or what the kind opens on them, that the server took;
	// Refused those that it did not.
	Opened, Refused int
	// Held are those that lived at the end of the phase, Peak the most there were.
	Held, Peak int
	// Longest is how long the server has borne one of them.
	Longest time.Duration
	// Bytes sent in chunks.
	Bytes int64
	// Ended counts what ended or refused connections, by StatusCode's name; "silence"
	// for a close without a word, "nothing" for no answer in time.
	Ended map[string]int
}

// A flood is all flooders of one kind.
type flood struct {
	e    *Engine
	work sync.WaitGroup
	ctx  context.Context

	mu       sync.Mutex
	facts    FloodFacts
	live     int
	sessions map[int]*session // of slow readers, which survive their connections
}

// flood starts what a phase asks for; the floods end when ctx does.
func (e *Engine) flood(ctx context.Context, f *Flood) (floods []*flood) {
	none := *e.target // chunks and silence need no security
	none.Policy, none.Mode, none.Key = security.None, ua.MessageSecurityModeNone, nil
	next := 0
	for _, k := range []struct {
		name string
		n    int
		once func(w *flood, ctx context.Context, i int) error
	}{
		{"chunks", f.Chunks, func(w *flood, ctx context.Context, i int) error { return w.chunks(ctx, &none, i, floodChunk, 0) }},
		{"slow chunks", f.SlowChunks, func(w *flood, ctx context.Context, i int) error {
			return w.chunks(ctx, &none, i, slowChunk, slowInterval)
		}},
		{"silent", f.Silent, func(w *flood, ctx context.Context, i int) error { return w.silent(ctx, i, false) }},
		{"hellos", f.Hellos, func(w *flood, ctx context.Context, i int) error { return w.silent(ctx, i, true) }},
		{"OPN", f.OPN, (*flood).opn},
		{"slow readers", f.SlowReaders, (*flood).slowReader},
		{"sessions", f.Sessions, (*flood).neverActivated},
	} {
		if k.n == 0 {
			continue
		}
		w := &flood{e: e, ctx: ctx, facts: FloodFacts{Kind: k.name, Connections: k.n, Ended: map[string]int{}}}
		floods = append(floods, w)
		for i := range k.n {
			at := next + i
			w.work.Go(func() {
				for more := true; more; more = pause(ctx, floodPause) {
					w.ended(k.once(w, ctx, at))
				}
				w.cleanUp(at)
			})
		}
		next += k.n
	}
	return floods
}

// session returns the session of a flooder and, unless s is nil, sets it.
func (w *flood) session(i int, s *session) *session {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s != nil {
		if w.sessions == nil {
			w.sessions = map[int]*session{}
		}
		w.sessions[i] = s
	}
	return w.sessions[i]
}

// forget is for a session that the server does not know any more.
func (w *flood) forget(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sessions, i)
}

// cleanUp ends a session whose connection cannot carry its end: half a request
// stands in it, or the server has closed it.
func (w *flood) cleanUp(i int) {
	l := link{session: w.session(i, nil)}
	if l.session == nil {
		return
	}
	ctx := context.WithoutCancel(w.ctx)
	if err := l.step(ctx, func(ctx context.Context) (*conn, error) {
		return w.e.target.open(ctx, w.e.sources.at(groupFlood, i), smallBuffer)
	}); err != nil {
		w.e.rec.Event("a flood's session could not be closed: " + err.Error())
	}
	l.end()
}

// end waits for the flooders and says what they got.
func (w *flood) end() FloodFacts {
	w.mu.Lock()
	held := w.live
	w.mu.Unlock()
	w.work.Wait()
	w.facts.Held = held
	return w.facts
}

// opened notes that the server has taken one; the function that it has ended.
func (w *flood) opened() func() {
	begun := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts.Opened++
	w.live++
	w.facts.Peak = max(w.facts.Peak, w.live)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.ctx.Err() == nil {
			w.live-- // at the end they count as held
		}
		w.facts.Longest = max(w.facts.Longest, time.Since(begun))
	}
}

// ended notes what ended a flooder's connection, unless the phase's end did.
func (w *flood) ended(err error) {
	if w.ctx.Err() != nil || err == nil {
		return
	}
	if ours(err) {
		w.e.fail(err)
		return
	}
	how, code, hint := classify(err)
	name := uastatus.Name(code)
	switch how {
	case measure.BySilence:
		name = "silence"
	case measure.ByTimeout:
		name = "nothing"
	}
	w.e.rec.Refused(how, code, hint)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts.Ended[name]++
}

// refused notes that the server did not take one.
func (w *flood) refused(err error) error {
	if w.ctx.Err() == nil {
		w.mu.Lock()
		w.facts.Refused++
		w.mu.Unlock()
	}
	return err
}

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
