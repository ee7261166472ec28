package memnet

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// pipe is one direction of a connection: a bounded byte queue.
type pipe struct {
	mu   sync.Mutex
	cond sync.Cond
	buf  []byte // ring
	r, n int

	writeClosed bool // the writer is done: EOF after the rest
	readClosed  bool // nobody reads any more: writes fail
	reset       bool // both ends fail at once

	readDeadline, writeDeadline deadline
}

func newPipe(size int) *pipe {
	p := &pipe{buf: make([]byte, size)}
	p.cond.L = &p.mu
	return p
}

// deadline wakes the waiters of a pipe when its time has come.
type deadline struct {
	timer   *time.Timer
	expired bool
	gen     int
}

func (p *pipe) setDeadline(d *deadline, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.gen++
	gen := d.gen
	d.expired = !t.IsZero() && time.Until(t) <= 0
	if !t.IsZero() && !d.expired {
		d.timer = time.AfterFunc(time.Until(t), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if d.gen == gen {
				d.expired = true
				p.cond.Broadcast()
			}
		})
	}
	p.cond.Broadcast()
}

func (p *pipe) read(b []byte, closed *bool) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case *closed:
			return 0, errClosed
		case p.reset:
			return 0, syscall.ECONNRESET
		case p.readDeadline.expired:
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case p.n > 0:
			c := 0
			for p.n > 0 && c < len(b) {
				k := copy(b[c:], p.buf[p.r:min(p.r+p.n, len(p.buf))])
				c += k
				p.n -= k
				p.r = (p.r + k) % len(p.buf)
			}
			p.cond.Broadcast()
			return c, nil
		case p.writeClosed:
			return 0, io.EOF
		}
		p.cond.Wait()
	}
}

func (p *pipe) write(b []byte, closed *bool) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := 0
	for {
		switch {
		case *closed:
			return done, errClosed
		case p.reset:
			return done, syscall.ECONNRESET
		case p.writeClosed || p.readClosed:
			return done, syscall.EPIPE
		case p.writeDeadline.expired:
			return done, os.ErrDeadlineExceeded
		case done == len(b):
			return done, nil
		case p.n < len(p.buf):
			w := (p.r + p.n) % len(p.buf)
			end := len(p.buf)
			if w < p.r {
				end = p.r
			}
			k := copy(p.buf[w:end], b[done:])
			done += k
			p.n += k
			p.cond.Broadcast()
			continue
		}
		p.cond.Wait()
	}
}

func (p *pipe) update(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.cond.Broadcast()
}
