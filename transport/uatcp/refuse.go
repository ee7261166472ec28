package uatcp

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// Bounds of polite refusals: after the ERR the peer's end is awaited, or a
// reset would swallow it, but not for long and not for many.
const (
	maxRefusals   = 256
	refusalLinger = 500 * time.Millisecond
	refusalTick   = 25 * time.Millisecond
	refusalBytes  = 4096
)

// refusals are refused sockets that have got their ERR and linger. One
// goroutine looks after all of them, while there are any.
type refusals struct {
	mu     sync.Mutex
	fresh  []refused // not yet seen by run
	count  int       // all that linger
	closed bool
	wg     sync.WaitGroup
}

type refused struct {
	nc   net.Conn
	raw  syscall.RawConn // nil: none, or the portable path
	by   time.Time
	read int
}

// add sends message, in one write that does not wait, and takes nc over.
func (r *refusals) add(nc net.Conn, message []byte) {
	now := time.Now()
	raw := rawConn(nc)
	var n int
	var err error
	if raw != nil {
		n, err = writeOnce(raw, message)
	} else {
		// An empty buffer takes a few dozen bytes at once; the deadline is for
		// the one that would not.
		_ = nc.SetWriteDeadline(now.Add(refusalTick))
		n, err = nc.Write(message)
	}
	h, ok := nc.(interface{ CloseWrite() error })
	if err != nil || n < len(message) || !ok || h.CloseWrite() != nil {
		_ = nc.Close()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.count >= maxRefusals {
		_ = nc.Close()
		return
	}
	r.fresh = append(r.fresh, refused{nc: nc, raw: raw, by: now.Add(refusalLinger)})
	if r.count++; r.count == 1 {
		r.wg.Go(r.run)
	}
}

func (r *refusals) run() {
	tick := time.NewTicker(refusalTick)
	defer tick.Stop()
	var b [512]byte
	var ring []refused
	for now := range tick.C {
		r.mu.Lock()
		ring = append(ring, r.fresh...)
		clear(r.fresh)
		r.fresh = r.fresh[:0]
		closed := r.closed
		r.mu.Unlock()

		keep := ring[:0]
		for _, e := range ring {
			if !closed && e.by.After(now) && e.read < refusalBytes && e.drain(b[:]) {
				keep = append(keep, e)
			} else {
				_ = e.nc.Close()
			}
		}
		ended := len(ring) - len(keep)
		clear(ring[len(keep):])
		ring = keep

		r.mu.Lock()
		r.count -= ended
		empty := r.count == 0
		r.mu.Unlock()
		if empty {
			return
		}
	}
}

// drain reads and drops what is there. It reports false when the peer is done.
func (e *refused) drain(b []byte) bool {
	for e.read < refusalBytes {
		if e.raw != nil {
			n, again := readOnce(e.raw, b)
			if e.read += n; n <= 0 {
				return again
			}
			continue
		}
		// A deadline in the past would fail before it reads; this one lets
		// what has arrived through and costs a millisecond at most.
		_ = e.nc.SetReadDeadline(time.Now().Add(time.Millisecond))
		n, err := e.nc.Read(b)
		e.read += n
		if err != nil {
			return isTimeout(err)
		}
	}
	return false
}

func isTimeout(err error) bool {
	t, ok := err.(net.Error)
	return ok && t.Timeout()
}

func (r *refusals) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.wg.Wait()
}
