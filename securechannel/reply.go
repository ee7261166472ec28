package securechannel

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Errors of Reply. Nothing has been queued when one is returned.
var (
	errReplyClosed   = uastatus.New(ua.StatusBadSecureChannelClosed, "reply", transport.ErrOutboxClosed)
	errReplySlow     = uastatus.New(ua.StatusBadSecureChannelClosed, "reply", transport.ErrSlowReader)
	errReplyTooLarge = uastatus.New(ua.StatusBadResponseTooLarge, "reply", errors.New("over the peer's limits"))
)

// MaxResponseSize is the largest body in bytes that the peer takes, type id
// included; 0 = no limit.
func (ch *Channel) MaxResponseSize() int {
	p := ch.conn.Parameters()
	most := p.MaxMessageSize
	if p.MaxChunkCount > 0 && p.MaxChunkCount <= 1<<30/ch.layout.body {
		if n := p.MaxChunkCount * ch.layout.body; most <= 0 || n < most {
			most = n
		}
	}
	return most
}

// Reply sends the answer to a request: it is cut into chunks, secured in the
// connection's outgoing buffer, and written together with its neighbours of the
// same read batch. body, type id first, is copied.
//
// An answer over the peer's limits is BadResponseTooLarge: nothing was queued, a
// ServiceFault can be sent instead. BadSecureChannelClosed says that the
// channel is gone. Reply does not block and is safe for concurrent use; the
// same request id must not be answered twice.
func (ch *Channel) Reply(requestID uint32, body []byte) error {
	if most := ch.MaxResponseSize(); most > 0 && len(body) > most {
		return errReplyTooLarge
	}
	ch.out.Lock()
	if ch.hold {
		return ch.deferReply(requestID, body)
	}
	if err := ch.append(requestID, body); err != nil {
		ch.out.Unlock()
		return ch.replyFailed(err)
	}
	ch.out.UnlockAndFlush()
	return nil
}

func (ch *Channel) replyFailed(err error) error {
	if errors.Is(err, transport.ErrSlowReader) {
		ch.conn.Close(transport.SlowReader, ua.StatusGood, "")
		return errReplySlow
	}
	return errReplyClosed
}

// append cuts and secures a message in the outgoing buffer. The Outbox is locked.
func (ch *Channel) append(requestID uint32, body []byte) error {
	l := &ch.layout
	n := l.chunks(len(body))
	if err := ch.out.Admit((n-1)*l.size + l.chunk(len(body)-(n-1)*l.body)); err != nil {
		return err
	}
	t := ch.sending()
	if t == nil {
		return transport.ErrOutboxClosed
	}
	for ; n > 1; n-- {
		l.seal(ch.out.Grow(l.chunk(l.body)), kindMSG, chunkIntermediate, ch.id, t, ch.sendSeq.next(), requestID, body[:l.body])
		body = body[l.body:]
	}
	l.seal(ch.out.Grow(l.chunk(len(body))), kindMSG, chunkFinal, ch.id, t, ch.sendSeq.next(), requestID, body)
	return nil
}

// sending is the token that secures what is sent: the newest one that the
// client has used, or a newer one if that has expired.
func (ch *Channel) sending() *token {
	if ch.sendNext != nil && time.Now().After(ch.sendCur.expires()) {
		ch.sendCur, ch.sendNext = ch.sendNext, nil
	}
	return ch.sendCur
}

// deferred is an answer that came while the response of a renewal was being
// signed: its sequence number follows that one's.
type deferred struct {
	request uint32
	body    *buffer.Buffer
}

// deferReply gives the lock back.
func (ch *Channel) deferReply(requestID uint32, body []byte) error {
	if err := ch.out.Admit(len(body)); err != nil {
		ch.out.Unlock()
		return ch.replyFailed(err)
	}
	if ch.deferredBytes > 0 && ch.deferredBytes+len(body) > ch.server.limits.Load().WriteQueueBytes {
		ch.out.Unlock()
		return ch.replyFailed(transport.ErrSlowReader)
	}
	b := buffer.Get(len(body))
	b.B = append(b.B, body...)
	ch.deferred = append(ch.deferred, deferred{requestID, b})
	ch.deferredBytes += len(body)
	ch.out.Unlock()
	return nil
}

// resume ends the hold and queues what was deferred. The Outbox is locked.
func (ch *Channel) resume() error {
	ch.hold = false
	var failed error
	for _, d := range ch.deferred {
		if failed == nil {
			failed = ch.append(d.request, d.body.B)
		}
	}
	ch.dropDeferred()
	return failed
}

func (ch *Channel) dropDeferred() {
	for _, d := range ch.deferred {
		d.body.Release()
	}
	ch.deferred, ch.deferredBytes = nil, 0
}

func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
