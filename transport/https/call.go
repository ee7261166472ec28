package https

import (
	"encoding/binary"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
	"github.com/breakwater-ua/breakwater/transport"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uajson"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

type decodingLimits = uabinary.Limits

// call is one POST. Its handler goroutine waits for the answer, or for the end of
// whoever waits for that; the call itself lasts until Drop, or until what Respond
// left has been written or given up.
type call struct {
	transport.Request
	peer         transport.Peer
	conn         *conn
	media        media
	form         uajson.Form // of a JSON body
	object       bool        // a binary body came as an ExtensionObject
	decoding     *decodingLimits
	tables       func() *uajson.Context // never nil
	writeTimeout time.Duration

	mu        sync.Mutex
	uncounted bool           // in conn.waiting
	ended     bool           // Respond or Drop
	refused   bool           // the answer, for want of room
	left      bool           // the handler goroutine has gone
	told      bool           // it can go: Respond or Drop is done
	waiter    chan struct{}  // closed then; nil while it does not wait
	answer    *buffer.Buffer // nil after Drop
}

var (
	errEnded = errors.New("nobody waits for the answer")
	errFull  = errors.New("the peer has not taken its other answers")
)

// Park implements transport.Call.
func (q *call) Park() {
	q.mu.Lock()
	q.unwait()
	q.mu.Unlock()
	q.Free()
}

// unwait takes the call out of its connection's count. mu is held.
func (q *call) unwait() {
	if !q.uncounted {
		q.uncounted = true
		q.conn.waiting.Add(-1)
	}
}

// end gives back what the call holds.
func (q *call) end() {
	q.mu.Lock()
	q.ended = true
	q.unwait()
	q.mu.Unlock()
	q.Free()
}

// Respond implements transport.Call. The answer is copied, and counts for its
// connection until it is written. So do the request and its place in the
// governor, unless it has parked; the body does not.
func (q *call) Respond(body []byte, _ ua.StatusCode, _ time.Duration) error {
	q.mu.Lock()
	left, ended := q.left, q.ended
	q.mu.Unlock()
	switch {
	case ended:
		return uastatus.New(ua.StatusBadConnectionClosed, "respond", errEnded)
	case left:
		q.end()
		return uastatus.New(ua.StatusBadConnectionClosed, "respond", errEnded)
	}
	out, err := q.encode(body)
	if err != nil {
		return uastatus.New(ua.StatusBadResponseTooLarge, "respond", err)
	}
	if !q.conn.hold(len(out.B)) {
		out.Release()
		q.mu.Lock()
		q.refused = true
		q.mu.Unlock()
		q.end()
		q.tell()
		return uastatus.New(uastatus.BadServerTooBusy, "respond", errFull)
	}
	q.mu.Lock()
	if q.left || q.ended {
		q.mu.Unlock()
		q.conn.written(len(out.B))
		out.Release()
		q.end()
		return uastatus.New(ua.StatusBadConnectionClosed, "respond", errEnded)
	}
	q.answer = out
	q.ended = true
	q.mu.Unlock()
	q.FreeBody()
	q.tell()
	return nil
}

// encode makes the answer, in a buffer that is not much larger than it.
func (q *call) encode(body []byte) (*buffer.Buffer, error) {
	if !q.media.json {
		out := buffer.Get(len(body) + objectHeader)
		out.B = appendBody(out.B, body, q.object)
		return out, nil
	}
	out := buffer.Get(min(4*len(body), buffer.Size4M))
	b, err := q.tables().AppendJSON(out.B, body, q.form, q.decoding)
	if err != nil {
		out.Release()
		return nil, err
	}
	if out.Cap() == buffer.ClassSize(len(b)) {
		out.B = b
		return out, nil
	}
	fitting := buffer.Get(len(b))
	fitting.B = append(fitting.B, b...)
	out.Release()
	return fitting, nil
}

// Drop implements transport.Call.
func (q *call) Drop(ua.StatusCode) {
	q.mu.Lock()
	again := q.ended
	q.mu.Unlock()
	if again {
		return
	}
	q.end()
	q.tell()
}

// tell lets the handler goroutine go on.
func (q *call) tell() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.told {
		return
	}
	q.told = true
	if q.waiter != nil {
		close(q.waiter)
	}
}

// wait is the handler goroutine's wait for the answer, which it writes.
func (q *call) wait(w http.ResponseWriter) {
	q.mu.Lock()
	if !q.told { // else the answer was there at once, as for most services
		q.waiter = make(chan struct{})
		q.mu.Unlock()
		select {
		case <-q.waiter:
		case <-q.Ctx.Done():
		}
		q.mu.Lock()
	}
	q.left = true
	out, refused := q.answer, q.refused
	q.answer = nil
	q.mu.Unlock()
	switch {
	case refused:
		l := q.conn.l
		w.Header().Set("Retry-After", l.retryAfter(time.Now()))
		l.fail(w, "too many answers of this connection are unread", http.StatusServiceUnavailable)
	case out == nil:
		panic(http.ErrAbortHandler) // no answer: the client sees the connection, or stream, end
	default:
		q.write(w, out)
	}
}

// write writes the answer, and then gives back what it and the request held. Each
// 64 KiB have writeTimeout, and all together that time once, and once more for
// each full MiB: a peer that takes a little now and then is no better
// than one that takes nothing.
func (q *call) write(w http.ResponseWriter, out *buffer.Buffer) {
	size, whole := len(out.B), false
	defer func() {
		if whole {
			out.Release()
		} else {
			out.Discard() // a frame of HTTP/2 may still be made of it
		}
		q.conn.written(size)
		q.end()
	}()
	h := w.Header()
	h["Content-Type"] = q.media.header
	if size >= smallAnswer {
		h["Content-Length"] = []string{strconv.Itoa(size)}
	}
	rc := http.NewResponseController(w)
	now := time.Now()
	end := now.Add(q.writeTimeout * time.Duration(1+size>>20))
	for b := out.B; ; now = time.Now() {
		n := min(len(b), buffer.Size64K)
		by := now.Add(q.writeTimeout)
		if by.After(end) {
			by = end
		}
		_ = rc.SetWriteDeadline(by)
		if _, err := w.Write(b[:n]); err != nil {
			return
		}
		if b = b[n:]; len(b) == 0 {
			whole = true
			return
		}
	}
}

// smallAnswer is the size in bytes from which net/http needs to be told the
// Content-Length: what is smaller it gathers, and sees for itself.
const smallAnswer = 2 << 10

// objectHeader is what an ExtensionObject has before its body that a message has
// not: the encoding byte and the length (OPC 10000-6 §5.2.2.15, ExtensionObject).
const objectHeader = 1 + 4

// typeIDSize is the size of a numeric NodeId at the front of a body; 0 = none.
func typeIDSize(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	n := 0
	switch b[0] {
	case 0:
		n = 2
	case 1:
		n = 4
	case 2:
		n = 7
	}
	if len(b) < n {
		return 0
	}
	return n
}

// stripObject makes of a body that is an ExtensionObject the type id and the
// message. It reports false for one that is so already. The two look alike in
// the byte behind the type id; the length that agrees decides.
func stripObject(in *buffer.Buffer) bool {
	b := in.B
	n := typeIDSize(b)
	if n == 0 || len(b) < n+objectHeader || b[n] != 1 ||
		int64(binary.LittleEndian.Uint32(b[n+1:])) != int64(len(b)-n-objectHeader) {
		return false
	}
	copy(b[objectHeader:], b[:n])
	in.B = b[objectHeader:]
	return true
}

// appendBody appends an answer in the form of the request.
func appendBody(out, body []byte, object bool) []byte {
	n := typeIDSize(body)
	if !object || n == 0 {
		return append(out, body...)
	}
	out = append(out, body[:n]...)
	out = append(out, 1)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(body)-n))
	return append(out, body[n:]...)
}
