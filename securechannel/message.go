package securechannel

import (
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
)

// Message is a complete, verified request. It and its Body are valid until
// Handler.Message returns; then the request's handling has ended, unless the
// handler took it further:
//
//   - Detach: the handling goes on elsewhere and may take its time.
//   - Queue: the handling goes on elsewhere and ends soon.
//   - Park: the answer comes when it comes, without the message.
type Message struct {
	RequestID uint32
	Body      []byte    // type id and body
	Received  time.Time // when its last chunk was read

	ch      *Channel
	buf     *buffer.Buffer // of Body; nil while Body lies in the read buffer
	own     bool           // detached: Release is due
	inBatch bool           // holds the Outbox
}

var messages = sync.Pool{New: func() any { return new(Message) }}

// Channel is the channel that the message came on.
func (m *Message) Channel() *Channel { return m.ch }

// Detach takes the message out of the reading goroutine's hands: the result
// has a pooled copy of the body, or the assembly's buffer moved, and belongs to
// the caller, who must Release it once it has replied. Until then the request
// counts as outstanding. It has left the read batch: its neighbours' answers do
// not wait for its own.
func (m *Message) Detach() *Message {
	if m.own {
		m.leave()
		return m
	}
	d := messages.Get().(*Message)
	*d = Message{RequestID: m.RequestID, Received: m.Received, ch: m.ch, own: true, buf: m.buf, Body: m.Body}
	if m.buf == nil {
		d.buf = buffer.Get(len(m.Body))
		d.buf.B = append(d.buf.B, m.Body...)
		d.Body = d.buf.B
	}
	m.buf, m.Body = nil, nil
	m.ch.outstanding.Add(1)
	return d
}

// Queue is Detach for a request whose handler will run soon and will not block:
// it stays in the read batch, whose answers are written together when the last
// of them is released. A handler that turns out to block must Detach first.
func (m *Message) Queue() *Message {
	d := m.Detach()
	if !d.inBatch {
		d.inBatch = true
		d.ch.out.Hold()
	}
	return d
}

// Park ends the message's life while its request waits for long (Publish): it
// does not count as outstanding any more and the body is gone. A detached
// message must not be used after Park.
func (m *Message) Park() {
	if m.own {
		m.Release()
		return
	}
	m.Body = nil
}

// Release ends the life of a detached message: after the reply. It is a no-op
// on one that is not detached.
func (m *Message) Release() {
	if !m.own {
		return
	}
	ch := m.ch
	m.leave()
	m.buf.Release()
	*m = Message{}
	messages.Put(m)
	if int(ch.outstanding.Add(-1))+1 >= ch.server.live.Load().MaxOutstandingPerConnection {
		ch.conn.Resume()
	}
}

func (m *Message) leave() {
	if m.inBatch {
		m.inBatch = false
		m.ch.out.Leave()
	}
}
