// Package cutproxy is a proxy for tests that breaks connections where it is
// told to: after any number of bytes, in either direction, in the ways in which
// networks break. It carries TCP and in-memory connections alike, so a sweep over
// every byte of a handshake may run inside a testing/synctest bubble, and a sample
// of it over real sockets.
package cutproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Mode is what happens where a connection is cut.
type Mode uint8

// The modes.
const (
	// Reset ends both directions at both ends at once, as a firewall does.
	Reset Mode = iota
	// Drop swallows all that follows in that direction, its end included; the
	// other direction lives on. Nobody is told, as when a cable is pulled.
	Drop
	// Delay holds what follows in that direction back for a time, so it arrives
	// in two parts. Nothing is lost.
	Delay
	// Halve ends that direction in the middle, as a peer that has closed its
	// half: the receiver reads the first part and then the end. What follows is
	// swallowed. The other direction lives on.
	Halve
)

var modeNames = [...]string{"reset", "drop", "delay", "halve"}

// Modes returns all modes.
func Modes() []Mode { return []Mode{Reset, Drop, Delay, Halve} }

// String is the mode's name.
func (m Mode) String() string { return modeNames[m] }

// Direction of the bytes that are counted and cut.
type Direction uint8

// The directions.
const (
	Up   Direction = iota // from the client to the server
	Down                  // from the server to the client
)

// String is the direction's name.
func (d Direction) String() string { return [...]string{"up", "down"}[d] }

// A Cut says where and how a connection breaks.
type Cut struct {
	Mode      Mode
	Direction Direction
	// At is how many bytes of that direction pass first.
	At int64
	// For is how long Delay holds the rest back.
	For time.Duration
}

// Proxy carries connections to a server. Dial must be set before Serve, and Plan
// too; neither may change later.
type Proxy struct {
	// Dial connects to the server.
	Dial func(context.Context) (net.Conn, error)
	// Plan says how connection number n, from 1, is cut; false: not at all. It may
	// be called from several goroutines at once.
	Plan func(n int) (c Cut, cut bool)

	mu     sync.Mutex
	wg     sync.WaitGroup
	number int
	links  map[*link]bool
	closed bool
}

// ErrClosed is what Serve returns after Close.
var ErrClosed = errors.New("cutproxy: closed")

// Serve carries what ln accepts until ln is closed.
func (p *Proxy) Serve(ln net.Listener) error {
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		if !p.Carry(c) {
			_ = c.Close()
			return ErrClosed
		}
	}
}

// Carry carries one connection of a client, without waiting; false: the proxy is
// closed.
func (p *Proxy) Carry(client net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.number++
	l := &link{client: client}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if p.Plan != nil {
		if c, ok := p.Plan(p.number); ok {
			l.halves[c.Direction].cut, l.halves[c.Direction].armed = c, true
		}
	}
	if p.links == nil {
		p.links = make(map[*link]bool)
	}
	p.links[l] = true
	p.wg.Go(func() {
		l.run(p.Dial)
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	})
	return true
}

// Connections is the number of connections so far.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.number
}

// Open is the number of connections that have not ended at both ends.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Passed is the number of bytes that have passed on the open connections.
func (p *Proxy) Passed() (up, down int64) {
	for _, l := range p.open() {
		up += l.halves[Up].count()
		down += l.halves[Down].count()
	}
	return up, down
}

// Strike cuts every open connection. At counts from now on.
func (p *Proxy) Strike(c Cut) {
	for _, l := range p.open() {
		l.strike(c)
	}
}

// Close resets every connection and waits for their goroutines. The listeners
// are their owners' to close.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for _, l := range p.open() {
		l.reset()
	}
	p.wg.Wait()
}

func (p *Proxy) open() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

// A link is one connection of a client and the one to the server.
type link struct {
	ctx    context.Context // ends with the link
	cancel context.CancelFunc
	client net.Conn

	mu     sync.Mutex
	server net.Conn // nil: not yet connected
	dead   bool     // reset

	halves [2]half
}

// A half is one direction of a link.
type half struct {
	mu     sync.Mutex
	passed int64
	cut    Cut
	armed  bool
	silent bool // nothing passes any more
}

func (h *half) count() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.passed
}

// take says how many of n bytes pass, and what happens after them.
func (h *half) take(n int) (pass int, c Cut, cut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.silent {
		return 0, Cut{}, false
	}
	pass = n
	if left := h.cut.At - h.passed; h.armed && left <= int64(n) {
		// A cut behind the last byte that has come happens now, not with the next.
		pass, c, cut = int(max(left, 0)), h.cut, true
		h.armed = false
		h.silent = c.Mode == Drop || c.Mode == Halve
	}
	h.passed += int64(pass)
	return pass, c, cut
}

// mute lets nothing pass any more.
func (h *half) mute() {
	h.mu.Lock()
	h.silent = true
	h.mu.Unlock()
}

func (h *half) muted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.silent
}

func (l *link) run(dial func(context.Context) (net.Conn, error)) {
	defer l.cancel()
	server, err := dial(l.ctx)
	if err != nil {
		l.reset()
		return
	}
	l.mu.Lock()
	l.server = server
	dead := l.dead
	l.mu.Unlock()
	if dead {
		abort(server)
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { l.pump(Up, l.client, server) })
	wg.Go(func() { l.pump(Down, server, l.client) })
	wg.Wait()
	_ = l.client.Close()
	_ = server.Close()
}

// pump carries one direction until its sender has ended it.
func (l *link) pump(d Direction, from, to net.Conn) {
	h := &l.halves[d]
	if _, c, cut := h.take(0); cut { // before the first byte
		l.perform(c, to)
	}
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		for rest := b[:n]; len(rest) > 0; {
			k, again := l.pass(d, to, rest)
			rest = rest[k:]
			if !again {
				break
			}
		}
		switch {
		case err == nil:
		case h.muted():
			return
		case errors.Is(err, io.EOF):
			closeWrite(to)
			return
		default:
			l.reset()
			return
		}
	}
}

// pass forwards bytes up to the next cut and performs it. again says whether
// those that are left may pass.
func (l *link) pass(d Direction, to net.Conn, b []byte) (n int, again bool) {
	h := &l.halves[d]
	n, c, cut := h.take(len(b))
	if n > 0 {
		if _, err := to.Write(b[:n]); err != nil {
			h.mute() // the receiver's end shows in the other direction
			return n, false
		}
	}
	if cut {
		l.perform(c, to)
	}
	return n, !h.muted() && l.ctx.Err() == nil
}

func (l *link) perform(c Cut, to net.Conn) {
	switch c.Mode {
	case Reset:
		l.reset()
	case Halve:
		closeWrite(to)
	case Delay:
		t := time.NewTimer(c.For)
		defer t.Stop()
		select {
		case <-t.C:
		case <-l.ctx.Done():
		}
	}
}

// strike arms a cut relative to what has passed. Delays wait for the next byte.
func (l *link) strike(c Cut) {
	h := &l.halves[c.Direction]
	h.mu.Lock()
	c.At += h.passed
	h.cut, h.armed = c, true
	now := c.At <= h.passed && c.Mode != Delay && !h.silent
	if now {
		h.armed = false
		h.silent = h.silent || c.Mode == Drop || c.Mode == Halve
	}
	h.mu.Unlock()
	if !now || c.Mode == Drop {
		return
	}
	l.mu.Lock()
	to := l.server
	l.mu.Unlock()
	if c.Direction == Down {
		to = l.client
	}
	if c.Mode == Reset || to == nil {
		l.reset()
		return
	}
	l.perform(c, to)
}

// reset ends everything at once.
func (l *link) reset() {
	l.mu.Lock()
	l.dead = true
	server := l.server
	l.mu.Unlock()
	l.cancel()
	abort(l.client)
	if server != nil {
		abort(server)
	}
}

// abort closes a connection so that its peer sees a reset.
func abort(c net.Conn) {
	switch t := c.(type) {
	case interface{ Reset() }: // memnet
		t.Reset()
		return
	case *net.TCPConn:
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

func closeWrite(c net.Conn) {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
		return
	}
	_ = c.Close()
}
