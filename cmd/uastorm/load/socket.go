package load

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
)

// sockets are the TCP connections of one client: one, but for opc.https, which
// opens them as it needs them.
type sockets struct {
	address *Address
	from    net.IP

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{} // of opc.wss and opc.https
	one    net.Conn              // the first
}

// dial opens one; to where, is decided.
func (k *sockets) dial(ctx context.Context, _ string) (net.Conn, error) {
	nc, err := k.address.dial(ctx, k.from)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed { // nobody waits for it any more
		_ = nc.Close()
		return nil, net.ErrClosed
	}
	if k.address.Scheme() != SchemeTCP {
		s := &socket{Conn: nc, of: k}
		if k.open == nil {
			k.open = make(map[net.Conn]struct{})
		}
		k.open[s] = struct{}{}
		nc = s
	}
	if k.one == nil {
		k.one = nc
	}
	return nc, nil
}

// first is the first one.
func (k *sockets) first() net.Conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.one
}

// end makes dial fail from now on and returns what is open.
func (k *sockets) end() []net.Conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	return slices.Collect(maps.Keys(k.open))
}

// close closes what an attempt that has failed has left. The one of opc.tcp is
// closed by those who had it.
func (k *sockets) close() {
	for _, nc := range k.end() {
		_ = nc.Close()
	}
}

// reset drops all as a failing network does.
func (k *sockets) reset() {
	for _, nc := range k.end() {
		reset(nc)
	}
}

// reset ends a connection with a TCP reset.
func reset(nc net.Conn) {
	below := nc
	if s, ok := nc.(*socket); ok {
		below = s.Conn
	}
	if tcp, ok := below.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // RST
	}
	_ = nc.Close()
}

// A socket tells of its end.
type socket struct {
	net.Conn
	of *sockets
}

// Close implements net.Conn.
func (s *socket) Close() error {
	s.of.mu.Lock()
	delete(s.of.open, s)
	s.of.mu.Unlock()
	return s.Conn.Close()
}
