package load

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/security"
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
	// Bytes sent in chunks, requests, headers or bodies.
	Bytes int64
	// Ended counts what ended or refused connections, by StatusCode's name or HTTP's
	// status; "silence" for a close without a word, "nothing" for no answer in time.
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
	once := map[string]func(w *flood, ctx context.Context, i int) error{
		"chunks": func(w *flood, ctx context.Context, i int) error { return w.chunks(ctx, &none, i, floodChunk, 0) },
		"slowChunks": func(w *flood, ctx context.Context, i int) error {
			return w.chunks(ctx, &none, i, slowChunk, slowInterval)
		},
		"silent": (*flood).silent, "tlsSilent": (*flood).tlsSilent, "slowHeaders": (*flood).slowHeaders, "slowBodies": (*flood).slowBodies,
		"hellos": (*flood).hello, "opn": (*flood).opn, "slowReaders": (*flood).slowReader, "sessions": (*flood).neverActivated,
	}
	next := 0
	for _, k := range f.kinds() {
		n := *k.n
		if n == 0 {
			continue
		}
		w := &flood{e: e, ctx: ctx, facts: FloodFacts{Kind: k.name, Connections: n, Ended: map[string]int{}}}
		floods = append(floods, w)
		for i := range n {
			at := next + i
			w.work.Go(func() {
				for more := true; more; more = pause(ctx, floodPause) {
					w.ended(once[k.key](w, ctx, at))
				}
				w.cleanUp(at)
			})
		}
		next += n
	}
	return floods
}

// sent counts bytes.
func (w *flood) sent(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts.Bytes += int64(n)
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
	ctx := w.e.over // the phase's end is none for this
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
	var status httpStatus
	switch {
	case how == measure.BySilence:
		name = "silence"
	case how == measure.ByTimeout:
		name = "nothing"
	case errors.As(err, &status):
		name = status.Error()
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
