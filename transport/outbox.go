package transport

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
)

// FlushAt is the number of gathered bytes at which an Outbox writes although
// the read batch is not finished.
const FlushAt = 32 << 10

const outBuffer = buffer.Size64K

// Errors of an Outbox.
var (
	ErrOutboxClosed = errors.New("transport: connection closed")
	ErrSlowReader   = errors.New("transport: the peer does not read, write queue full")
)

// Socket is what an Outbox writes to.
type Socket interface {
	// TryWrite writes what the socket takes at once. It never blocks; n <
	// len(b) with a nil error means that it would.
	TryWrite(b []byte) (n int, err error)
	// Write writes all of b, waiting until the time of the last ExpireWrites.
	Write(b []byte) (int, error)
	// WriteFailed is told, without the Outbox's lock, that nothing more will
	// be written, and whether a deadline was why.
	WriteFailed(err error, timeout bool)
	// Drained is told that a queue that kept the reader from reading is no
	// longer long.
	Drained()
	// ExpireWrites makes Write, also one that waits now, fail at t; the zero
	// time means never. It is called with the Outbox's lock held.
	ExpireWrites(t time.Time)
}

// Outbox is the outgoing side of a connection: chunks are made in place in its
// buffer and written together. Gathering is what makes pipelined requests
// cheap (performance.md §b): all answers to one read go out with one write, by
// whoever finishes the last of them, or when FlushAt bytes have gathered.
//
// What a slow peer does not take at once waits in a queue that is bounded in
// bytes and in time, written by a goroutine that exists only meanwhile.
//
// Lock order: an Outbox's lock is innermost but for the socket's own.
type Outbox struct {
	held atomic.Int32 // requests of the read batch, and the reader while it reads

	blocked atomic.Bool // the goroutine for slow peers is writing

	mu       sync.Mutex
	cur      *buffer.Buffer   // gathers; nil when empty
	full     []*buffer.Buffer // before cur, oldest first
	pending  int              // bytes in full, cur, and the buffer being written
	writing  bool             // somebody is writing, and will take along what is asked for
	wanted   bool             // a flush was asked for while writing
	draining bool             // no new messages
	closed   bool             // no writes
	bound    int              // of pending while the peer does not read
	timeout  time.Duration    // of each buffer while the peer does not read
	end      time.Time        // of everything, once draining
	idle     sync.Cond        // writing has become false
	writer   sync.WaitGroup   // the goroutine for slow peers
	blockage func()           // writeBlocked, once it was needed
	rest     *buffer.Buffer   // what it starts with
	socket   Socket
	written  uint64
	writes   uint64
}

// Init prepares an Outbox over socket.
func (o *Outbox) Init(socket Socket, l *Limits) {
	o.socket, o.bound, o.timeout = socket, l.WriteQueueBytes, l.WriteTimeout
	o.idle.L = &o.mu
}

// Lock takes the lock that also guards the sequence numbers and keys of the
// sending direction: what is appended under one lock stays together.
func (o *Outbox) Lock() { o.mu.Lock() }

// Unlock gives the lock back without writing.
func (o *Outbox) Unlock() { o.mu.Unlock() }

// Admit reports whether n more bytes may be queued: ErrOutboxClosed, or
// ErrSlowReader when they do not fit behind those that the peer has not taken.
// The lock is held.
func (o *Outbox) Admit(n int) error {
	if o.closed || o.draining {
		return ErrOutboxClosed
	}
	if o.blocked.Load() && o.pending+n > o.bound {
		return ErrSlowReader
	}
	return nil
}

// Grow returns n bytes, at most 147,456, at the end of the outgoing bytes, to be
// filled before the lock is given back. Shrink takes unused ones back. The lock
// is held.
func (o *Outbox) Grow(n int) []byte {
	if o.cur != nil && len(o.cur.B)+n > cap(o.cur.B) {
		o.full = append(o.full, o.cur)
		o.cur = nil
	}
	if o.cur == nil {
		o.cur = buffer.Get(max(n, outBuffer))
	}
	l := len(o.cur.B)
	o.cur.B = o.cur.B[:l+n]
	o.pending += n
	return o.cur.B[l : l+n : l+n]
}

// UnlockAndFlush gives the lock back and writes, unless the batch that is being
// read is not finished and less than FlushAt bytes have gathered.
func (o *Outbox) UnlockAndFlush() {
	if o.pending >= FlushAt || o.held.Load() == 0 {
		o.flush()
	}
	o.mu.Unlock()
}

// Hold keeps answers back until the same number of Leave: the reader holds
// while it works through what one read brought, and for each request of it that
// is answered from elsewhere but soon.
func (o *Outbox) Hold() { o.held.Add(1) }

// Leave ends a Hold; the last one writes.
func (o *Outbox) Leave() {
	if o.held.Add(-1) != 0 {
		return
	}
	o.mu.Lock()
	if o.pending > 0 {
		o.flush()
	}
	o.mu.Unlock()
}

// Congested reports whether the peer has not taken what was written so far and
// a quarter of the queue is in use: then nothing more should be read from it.
func (o *Outbox) Congested() bool {
	if !o.blocked.Load() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.blocked.Load() && o.pending > o.bound/4
}

// Pending is the number of bytes not yet written.
func (o *Outbox) Pending() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pending
}

// Counts returns the bytes and the write calls so far.
func (o *Outbox) Counts() (bytes, writes uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.written, o.writes
}

// flush writes all that has gathered. The lock is held, given back around each
// write, and held again at the end.
func (o *Outbox) flush() {
	if o.writing {
		o.wanted = true
		return
	}
	if o.closed {
		return
	}
	o.writing = true
	for {
		b := o.next()
		if b == nil {
			break
		}
		o.mu.Unlock()
		n, err := o.socket.TryWrite(b.B)
		o.mu.Lock()
		o.writes++
		o.done(n)
		switch {
		case err != nil:
			b.Release()
			o.fail(err, false)
			return
		case o.closed:
			b.Release()
			o.stopped()
			return
		case n < len(b.B):
			b.B = b.B[n:]
			o.blocked.Store(true)
			if o.rest = b; o.blockage == nil {
				o.blockage = o.writeBlocked // on a WebSocket it is needed for each answer
			}
			o.writer.Go(o.blockage)
			return
		}
		b.Release()
		// What others have gathered meanwhile goes along only if they asked:
		// theirs may be a batch that is not complete.
		if !o.wanted && len(o.full) == 0 && (o.cur == nil || len(o.cur.B) < FlushAt) && o.held.Load() != 0 {
			break
		}
		o.wanted = false
	}
	o.stopped()
}

// stopped ends the turn of whoever was writing. The lock is held.
func (o *Outbox) stopped() {
	o.writing, o.wanted = false, false
	if o.blocked.Load() {
		o.blocked.Store(false)
		o.socket.ExpireWrites(time.Time{}) // else it would meet a later TryWrite
	}
	if o.closed {
		o.drop()
	}
	if o.draining {
		o.idle.Broadcast()
	}
}

// next takes the oldest buffer. The lock is held.
func (o *Outbox) next() *buffer.Buffer {
	if len(o.full) > 0 {
		b := o.full[0]
		n := copy(o.full, o.full[1:])
		o.full[n] = nil
		o.full = o.full[:n]
		if n == 0 && cap(o.full) > 8 {
			o.full = nil // an idle connection keeps no large array
		}
		return b
	}
	b := o.cur
	o.cur = nil
	return b
}

func (o *Outbox) done(n int) {
	o.pending -= n
	o.written += uint64(n)
}

// writeBlocked is the goroutine for a slow peer: it starts with the rest of a
// buffer and ends when everything is written.
func (o *Outbox) writeBlocked() {
	o.mu.Lock()
	b := o.rest
	o.rest = nil
	o.mu.Unlock()
	for b != nil {
		o.mu.Lock()
		deadline := time.Now().Add(o.timeout)
		if !o.end.IsZero() && o.end.Before(deadline) {
			deadline = o.end
		}
		o.socket.ExpireWrites(deadline)
		o.mu.Unlock()
		_, err := o.socket.Write(b.B)
		o.mu.Lock()
		n := len(b.B)
		b.Release()
		o.writes++
		if err != nil {
			o.pending -= n
			o.fail(err, isTimeout(err))
			o.mu.Unlock()
			return
		}
		o.done(n)
		wake := o.pending <= o.bound/4 && o.pending+n > o.bound/4
		b = nil
		if !o.closed {
			b = o.next()
		}
		if b == nil {
			o.stopped()
			wake = true
		}
		o.mu.Unlock()
		if wake {
			o.socket.Drained()
		}
	}
}

// fail drops everything and tells the connection. The lock is held, and given
// back meanwhile.
func (o *Outbox) fail(err error, timeout bool) {
	o.closed = true
	o.stopped()
	o.mu.Unlock()
	o.socket.WriteFailed(err, timeout)
	o.mu.Lock()
}

func (o *Outbox) drop() {
	for _, b := range o.full {
		b.Release()
	}
	o.full = nil
	o.cur.Release()
	o.cur = nil
	o.pending = 0
}

// Finish is for the connection's end: no more messages are taken; the last
// bytes, an ERR, follow what is queued, and are awaited for at most d. With
// d ≤ 0 what is queued is dropped. It returns when nobody writes any more.
func (o *Outbox) Finish(last []byte, d time.Duration) {
	now := time.Now()
	o.mu.Lock()
	o.draining = true
	o.end = now.Add(d)
	if d <= 0 {
		o.closed = true
	} else if !o.closed {
		if len(last) > 0 {
			copy(o.Grow(len(last)), last)
		}
		if o.pending > 0 {
			o.flush()
		}
	}
	if o.writing {
		o.socket.ExpireWrites(o.end)
		for o.writing {
			o.idle.Wait()
		}
	}
	o.closed = true
	o.drop()
	o.mu.Unlock()
	o.writer.Wait()
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
