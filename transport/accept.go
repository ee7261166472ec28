package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// Accepted is a connection that the Gate has taken, on its way to the protocol
// that serves it.
type Accepted struct {
	Conn          net.Conn
	Admission     *Admission
	Remote, Local netip.AddrPort
	// At is the time of admission, from which the deadlines of the handshake count.
	At time.Time
	// Begun holds the bytes that were read to tell protocols apart.
	Begun []byte

	carried bool
}

// ProxyHeaderDue reports whether a PROXY header must come before anything else.
func (a *Accepted) ProxyHeaderDue() bool { return a.Admission.ExpectsProxyHeader() && !a.carried }

// ProxyTimeout is the time from admission to a balancer's complete PROXY header.
const ProxyTimeout = 2 * time.Second

// Carried reads the PROXY header that a balancer owes and lets the Gate look at
// the address that it carries, which becomes Remote. It waits for the peer: the
// caller has set a deadline. A refusal with Reason RefusedNone means go on.
func (a *Accepted) Carried() (Refusal, error) {
	remote, err := ReadProxyHeader(a.Conn)
	if err != nil {
		return Refusal{}, err
	}
	a.carried = true
	r := a.Admission.Carried(remote)
	if remote.IsValid() {
		a.Remote = remote
	}
	return r, nil
}

// Acceptor is the accept loop of every listener. It never reads, and survives
// every error but the end of the net.Listener.
type Acceptor struct {
	Listener net.Listener
	Gate     *Gate
	Port     Port
	Logger   *slog.Logger
	// Take takes a connection over; Refuse one that the Gate did not take. Both
	// run in the loop and must not wait.
	Take   func(Accepted)
	Refuse func(net.Conn, Refusal)

	retries atomic.Uint64
}

// Errors is the number of errors that accepting has survived.
func (l *Acceptor) Errors() uint64 { return l.retries.Load() }

const (
	firstBackoff = 5 * time.Millisecond
	lastBackoff  = time.Second
)

// Run accepts until ctx ends or the net.Listener is closed.
func (l *Acceptor) Run(ctx context.Context) error {
	backoff := firstBackoff
	for {
		nc, err := l.Listener.Accept()
		switch {
		case err == nil:
			backoff = firstBackoff
			l.admit(nc)
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return fmt.Errorf("transport: accept: %w", err)
		default:
			// Descriptors exhausted, a connection reset in the backlog, ...
			l.retries.Add(1)
			l.Logger.Warn("accept failed, going on", "error", err, "backoff", backoff)
			select {
			case <-time.After(backoff):
			case <-ctx.Done():
			}
			backoff = min(2*backoff, lastBackoff)
		}
	}
}

func (l *Acceptor) admit(nc net.Conn) {
	now := time.Now()
	remote, local := addrPort(nc.RemoteAddr()), addrPort(nc.LocalAddr())
	a, refusal := l.Gate.Admit(remote, local, &l.Port)
	if a == nil {
		l.Logger.Debug("connection refused", "remote", remote, "reason", refusal.Reason)
		l.Refuse(nc, refusal)
		return
	}
	l.Take(Accepted{Conn: nc, Admission: a, Remote: remote, Local: local, At: now})
}

func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	ap, _ := netip.ParseAddrPort(a.String())
	return ap
}
