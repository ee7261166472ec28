package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/internal/wheel"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// MaxEager attempts per second are what a client makes that ignores hints.
const MaxEager = 20

// eagerPause is between them.
const eagerPause = time.Second / MaxEager

// A member is one client through its whole life: it connects, holds its session,
// and connects again when that is lost.
type member struct {
	e      *Engine
	from   net.IP
	buffer int  // chunk size
	eager  bool // ignores hints
	flap   bool // ends its session as soon as it has it
	client bool // of Connect
	// up is called with a session on a connection that nobody else uses yet; nil:
	// nothing to do. fresh says that the session is new.
	up func(ctx context.Context, c *conn, fresh bool) error
	// ready is called once others may use the connection; nil: nothing to do.
	ready func(c *conn)

	link     link
	cur      atomic.Pointer[conn] // nil: no session now
	attempts atomic.Int64         // TCP connects
	sessions atomic.Int64         // that it has had
	wanted   int64                // sessions it must have had to be counted as back; of the one who runs phases
	timer    wheel.Timer          // keep-alive and renewal

	renewMu sync.Mutex
	renewAt time.Time
}

// run lives until ctx ends. due is when the first attempt should begin.
func (m *member) run(ctx context.Context, due time.Time) {
	state := reconnect.NewState(nil)
	m.timer.Init(m.tick)
	for ctx.Err() == nil {
		begun := time.Now()
		err := m.attempt(ctx)
		if err != nil && ctx.Err() != nil {
			break
		}
		m.e.rec.Operation(measure.Connect, due, begun, time.Now(), codeOf(err))
		again := false
		if err == nil {
			state.Connected(time.Now())
			err = m.hold(ctx)
			state.Lost(time.Now())
			if ctx.Err() != nil {
				return // leave has ended it all
			}
		} else {
			m.e.refused(m, err)
			again = m.link.failed(err)
		}
		if again {
			due = time.Now()
			continue
		}
		delay := eagerPause
		if err != nil && !m.eager {
			// It never gives up: whether the server comes back is what is measured.
			d, _ := state.Failed(reconnect.Signal(err))
			delay = max(delay, d)
		}
		due = time.Now().Add(delay)
		if !pause(ctx, delay) {
			break
		}
	}
	m.link.end()
}

// attempt makes one attempt on a goroutine of its own: signatures make a stack
// grow, and the one of this goroutine is to stay small for as long as the
// session is held.
func (m *member) attempt(ctx context.Context) error {
	done := make(chan error, 1)
	m.e.work.Go(func() { done <- m.connect(ctx) })
	return <-done
}

func (m *member) connect(ctx context.Context) error {
	before := m.link.session
	err := m.link.step(ctx, func(ctx context.Context) (*conn, error) {
		m.attempts.Add(1)
		m.e.rec.Attempt()
		return m.e.target.open(ctx, m.from, m.buffer)
	})
	if err != nil || m.up == nil {
		return err
	}
	err = m.up(ctx, m.link.conn, m.link.session != before)
	if err != nil {
		m.undo(ctx, err)
	}
	return err
}

// undo ends the session in order that up has failed with, unless the server was
// busy only. A failure at the start that will stay is the run's end.
func (m *member) undo(ctx context.Context, err error) {
	if l := &m.link; !isBusy(err) && !l.conn.broken {
		_, _ = l.conn.call(ctx, &ua.CloseSessionRequest{DeleteSubscriptions: true})
		l.session, l.conn.token = nil, nil
	}
	if m.sessions.Load() == 0 && lasting(err) {
		m.e.fail(fmt.Errorf("the server does not take what the plan asks for: %w", err))
	}
}

// hold keeps the session until the connection ends, or ctx does, and says why it
// ended; nil when this client has ended it itself.
func (m *member) hold(ctx context.Context) error {
	c := m.link.conn
	m.link.conn = nil
	m.sessions.Add(1)
	m.e.rec.SessionUp()
	m.e.rec.ConnectionUp()
	m.renewMu.Lock()
	m.renewAt = time.Now().Add(c.ch.Lifetime() * 3 / 4)
	m.renewMu.Unlock()
	m.cur.Store(c)
	m.e.wheel.Schedule(&m.timer, time.Now().Add(m.interval()))
	left := make(chan struct{})
	leave := func() {
		defer close(left)
		m.leave(c)
	}
	stop := context.AfterFunc(ctx, leave)
	if m.ready != nil {
		m.ready(c)
	}
	own := m.flap && stop()
	if own {
		m.e.work.Go(leave)
	}
	err := c.serve()
	m.e.wheel.Cancel(&m.timer)
	m.cur.Store(nil)
	if own || !stop() {
		<-left
		m.link.session = nil
		err = nil
	}
	m.e.rec.SessionDown()
	m.e.rec.ConnectionDown()
	if err != nil {
		m.e.lost(m, err)
	}
	return err
}

// leave ends the session in order, or without it when the server does not answer
// within one timeout, or the run's time to end is over. Only so many leave at
// once, as long as there is time: it is the load that is to hurt, not its end.
func (m *member) leave(c *conn) {
	bound, cancel := context.WithTimeout(m.e.over, m.e.target.timeout)
	defer cancel()
	defer context.AfterFunc(bound, func() { c.cut(errTimeout) })()
	patience := time.NewTimer(m.e.target.timeout / 2)
	defer patience.Stop()
	select {
	case m.e.leaving <- struct{}{}:
		defer func() { <-m.e.leaving }()
	case <-patience.C:
	case <-m.e.rush.Done():
	}
	c.leaving.Store(true)
	for range closeAttempts {
		begun := time.Now()
		answer := make(chan error, 1)
		err := c.send(&ua.CloseSessionRequest{DeleteSubscriptions: true}, m.e.target.timeout, func(body []byte, at time.Time, err error) {
			if err == nil {
				_, err = decode(body)
			}
			m.e.rec.Operation(measure.Disconnect, begun, begun, at, codeOf(err))
			answer <- err
		})
		if err == nil {
			err = <-answer
		}
		if err == nil || !isBusy(err) {
			break
		}
		// A session that is left behind is load that outlives the run.
		_, hint := reconnect.Signal(err)
		if !pause(bound, max(hint, eagerPause)) {
			break
		}
	}
	c.close()
}

// closeAttempts bounds how often a busy server is asked to close a session.
const closeAttempts = 5

// interval is how often the server must hear of the session.
func (m *member) interval() time.Duration {
	d := 30 * time.Second
	if s := m.link.session; s != nil && s.timeout > 0 {
		d = min(d, s.timeout/2)
	}
	return max(d, time.Second)
}

// tick keeps the session and the channel's token alive. It is called by the wheel.
func (m *member) tick(now time.Time) {
	c := m.cur.Load()
	if c == nil {
		return
	}
	m.e.work.Go(func() {
		m.renew(c, now)
		begun := time.Now()
		err := c.send(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{valueOf(stateNode)}, TimestampsToReturn: ua.TimestampsToReturnNeither},
			m.e.target.timeout, func(body []byte, at time.Time, err error) {
				if err == nil {
					_, err = decode(body)
				}
				m.e.rec.Operation(measure.KeepAlive, begun, begun, at, codeOf(err))
				if err != nil && !isBusy(err) {
					c.cut(err)
				}
			})
		if err != nil {
			c.cut(err)
		}
		m.e.wheel.Schedule(&m.timer, time.Now().Add(m.interval()))
	})
}

func (m *member) renew(c *conn, now time.Time) {
	if c.ch.Lifetime() == 0 {
		return // opc.https has no token
	}
	m.renewMu.Lock()
	// The next tick may be late for a short token.
	due := !now.Add(m.interval()).Before(m.renewAt)
	m.renewMu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.e.target.timeout)
	defer cancel()
	if err := c.ch.Renew(ctx); err != nil {
		c.cut(err)
		return
	}
	m.renewMu.Lock()
	m.renewAt = now.Add(c.ch.Lifetime() * 3 / 4)
	m.renewMu.Unlock()
}

func isBusy(err error) bool {
	code, _ := reconnect.Signal(err)
	return reconnect.IsBusy(code) && !errors.Is(err, errTimeout)
}

// codeOf is the StatusCode of an error; Good for none, Bad for an unknown one.
func codeOf(err error) ua.StatusCode {
	if err == nil {
		return ua.StatusOK
	}
	_, code, _ := classify(err)
	return code
}

// errNoSession is what operations on a session fail with that is not there.
var errNoSession = uastatus.New(ua.StatusBadConnectionClosed, "no session now", nil)

// pause waits and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
