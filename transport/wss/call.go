package wss

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uajson"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// jsonCall is one request of a jsonConn.
type jsonCall struct {
	transport.Request
	conn  *jsonConn
	form  uajson.Form
	phase atomic.Int32 // running, parked, ended
}

const (
	running = iota
	parked
	ended
)

var errEnded = errors.New("connection closed, or request answered")

// Park implements transport.Call.
func (j *jsonCall) Park() {
	if !j.phase.CompareAndSwap(running, parked) {
		return
	}
	j.Free()
	c := j.conn
	c.mu.Lock()
	c.outstanding--
	c.parked++
	c.mu.Unlock()
	c.Drained()
}

// Respond implements transport.Call.
func (j *jsonCall) Respond(body []byte, _ ua.StatusCode, _ time.Duration) error {
	if j.phase.Load() == ended {
		return uastatus.New(ua.StatusBadConnectionClosed, "respond", errEnded)
	}
	c := j.conn
	text := buffer.Get(min(4*len(body), buffer.Size4M))
	defer text.Release()
	b, err := c.server.tables().AppendJSON(text.B, body, j.form, c.server.decoding)
	if err != nil {
		return uastatus.New(ua.StatusBadResponseTooLarge, "respond", err)
	}
	n := lengthSize + len(b)
	c.out.Lock()
	if err := c.out.Admit(n); err != nil {
		c.out.Unlock()
		j.end()
		if errors.Is(err, transport.ErrSlowReader) {
			c.close(transport.SlowReader, ua.StatusGood)
		}
		return uastatus.New(ua.StatusBadConnectionClosed, "respond", err)
	}
	to := c.out.Grow(n)
	binary.LittleEndian.PutUint32(to, uint32(len(b)))
	copy(to[lengthSize:], b)
	c.out.UnlockAndFlush()
	j.end()
	return nil
}

// Drop implements transport.Call.
func (j *jsonCall) Drop(ua.StatusCode) { j.end() }

func (j *jsonCall) end() {
	c := j.conn
	c.mu.Lock()
	switch j.phase.Swap(ended) {
	case running:
		c.outstanding--
	case parked:
		c.parked--
	}
	c.mu.Unlock()
	j.Free()
	c.Drained()
}
