package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/internal/cutproxy"
	"github.com/breakwater-ua/breakwater/session"
	"github.com/breakwater-ua/breakwater/stack"
)

// limited breaks after so many bytes in one direction.
type limited struct {
	net.Conn
	read, write *atomic.Int64 // bytes left; nil: no limit
	reset       func()
}

func (l *limited) Read(b []byte) (int, error) {
	if l.read != nil {
		left := l.read.Load()
		if left <= 0 {
			l.reset()
			return 0, syscall.ECONNRESET
		}
		b = b[:min(int64(len(b)), left)]
	}
	n, err := l.Conn.Read(b)
	if l.read != nil {
		l.read.Add(-int64(n))
	}
	return n, err
}

func (l *limited) Write(b []byte) (int, error) {
	if l.write != nil {
		left := l.write.Load()
		if int64(len(b)) > left {
			n, _ := l.Conn.Write(b[:max(left, 0)])
			l.reset()
			return n, syscall.ECONNRESET
		}
		l.write.Add(-int64(len(b)))
	}
	return l.Conn.Write(b)
}

// C8 against the real server: the connection breaks after every so many bytes of
// the handshake and of a recovery with subscriptions, in either direction. Each
// time the session comes back, and no value is lost or comes twice.
func TestC8CutAtEveryPlace(t *testing.T) {
	const step = 61 // bytes; 1 takes minutes and finds nothing else
	for _, direction := range []string{"read", "write"} {
		t.Run(direction, func(t *testing.T) {
			for at := int64(0); at < 3000; at += step {
				cutAt(t, direction, at)
				if t.Failed() {
					t.Fatalf("cut after %d bytes", at)
				}
			}
		})
	}
}

// cutAt cuts the second connection (the first is discovery's) and the first one
// of the recovery after so many bytes.
func cutAt(t *testing.T, direction string, at int64) {
	inPlant(t, stack.Options{}, func(p *plant) {
		var armed atomic.Bool
		p.wrap = func(n int, c net.Conn) net.Conn {
			if !armed.Swap(false) {
				return c
			}
			l := &limited{Conn: c, reset: c.(interface{ Reset() }).Reset}
			left := new(atomic.Int64)
			left.Store(at)
			if direction == "read" {
				l.read = left
			} else {
				l.write = left
			}
			return l
		}
		go func() { // the connection after discovery's
			for p.count() == 0 {
				time.Sleep(time.Microsecond)
			}
			armed.Store(true)
		}()
		s := p.connect(p.opts())
		armed.Store(false)
		sub, err := s.Subscribe(p.ctx, SubscriptionOptions{Interval: 100 * time.Millisecond}, Monitor{NodeID: p.id(), QueueSize: 1000})
		if err != nil { // the cut came here: the caller is told
			if !errors.Is(err, ua.StatusBadConnectionClosed) {
				t.Errorf("subscribe: %v", err)
			}
			if sub, err = s.Subscribe(p.ctx, SubscriptionOptions{Interval: 100 * time.Millisecond}, Monitor{NodeID: p.id(), QueueSize: 1000}); err != nil {
				t.Fatal(err)
			}
		}
		g := gather(sub)
		time.Sleep(time.Minute)
		p.set(1)
		armed.Store(true)
		p.cut()
		p.set(2)
		time.Sleep(time.Minute)
		p.set(3)
		time.Sleep(time.Second)
		g.end()
		if err := g.exactly(0, 3); err != nil || g.recreated+g.missed > 0 {
			t.Errorf("%v, recreated %d, missed %d", err, g.recreated, g.missed)
		}
		if st := p.stats(); st.Subscriptions != 1 {
			t.Errorf("%d subscriptions at the server", st.Subscriptions)
		}
		p.close(s)
	})
}

// The server has closed the session but kept the subscription: a new session
// takes it over, with what the server holds of it.
func TestSessionLostTransfers(t *testing.T) {
	inPlant(t, stack.Options{Authenticator: operator{}}, func(p *plant) {
		s := p.connect(p.opts())
		was, _ := s.ID()
		sub, err := s.Subscribe(p.ctx, SubscriptionOptions{Interval: 100 * time.Millisecond, LifetimeCount: 10_000}, Monitor{NodeID: p.id(), QueueSize: 1000})
		if err != nil {
			t.Fatal(err)
		}
		g := gather(sub)
		time.Sleep(time.Minute)
		p.set(1)
		time.Sleep(time.Second)
		p.network.set(true)
		p.cut()
		for i := range int64(100) { // longer than the session's timeout
			p.set(2 + i)
			time.Sleep(2 * time.Second)
		}
		if st := p.stats(); st.Sessions != 0 || st.Subscriptions != 1 {
			t.Fatalf("%+v", st)
		}
		p.network.set(false)
		if st := until(t, s, Online); !st.NewSession {
			t.Errorf("%+v", st)
		}
		p.set(102)
		time.Sleep(time.Second)
		g.end()
		if is, _ := s.ID(); is.String() == was.String() {
			t.Error("the same session")
		}
		if err := g.exactly(0, 102); err != nil || g.recreated+g.missed > 0 {
			t.Errorf("%v, recreated %d, missed %d", err, g.recreated, g.missed)
		}
		if st := p.stats(); st.Subscriptions != 1 {
			t.Errorf("%d subscriptions at the server", st.Subscriptions)
		}
		p.close(s)
	})
}

// The server ends a session while its connection is fine.
func TestSessionTerminated(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		t.Run(fmt.Sprintf("deleteSubscriptions=%v", deleted), func(t *testing.T) {
			inPlant(t, stack.Options{Authenticator: operator{}}, func(p *plant) {
				s := p.connect(p.opts())
				sub, err := s.Subscribe(p.ctx, SubscriptionOptions{Interval: 100 * time.Millisecond}, Monitor{NodeID: p.id(), QueueSize: 1000})
				if err != nil {
					t.Fatal(err)
				}
				g := gather(sub)
				time.Sleep(time.Minute + 50*time.Millisecond) // no cycle, and no keep-alive, in the middle of it
				dials := p.count()
				p.srv.Sessions().Each(func(ss *session.Session) bool {
					p.srv.Sessions().Terminate(ss, deleted)
					return true
				})
				p.set(1)
				time.Sleep(time.Minute)
				p.set(2)
				time.Sleep(time.Second)
				g.end()
				if err := g.exactly(0, 2); err != nil || g.missed > 0 || (g.recreated == 1) != deleted {
					t.Errorf("%v, recreated %d, missed %d", err, g.recreated, g.missed)
				}
				if n := p.count() - dials; n != 0 {
					t.Errorf("%d connections for a session lost on a good one", n)
				}
				p.close(s)
			})
		})
	}
}

// hostile.md: 30 minutes of a link that flaps in every way a link can (resets,
// silence, delays, half-closes, in either direction, and times without any), with
// a value every half second: no gap, no duplicate, nothing left behind at either end.
func TestFlapping(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			overCuts(t, stack.Options{Authenticator: operator{}}, func(c *cutter) { flap(c, rand.New(rand.NewPCG(seed, 2))) })
		})
	}
}

func flap(c *cutter, rnd *rand.Rand) {
	o := c.cutOptions()
	o.Reconnect = reconnect.Policy{MaxDelay: 5 * time.Second}
	s := c.connect(o)
	var subs []*Subscription
	var tallies []*tally
	for range 3 {
		sub, err := s.Subscribe(c.ctx, SubscriptionOptions{Interval: 500 * time.Millisecond, LifetimeCount: 6_000}, Monitor{NodeID: c.id(), QueueSize: 1000})
		if err != nil {
			c.Fatal(err)
		}
		subs, tallies = append(subs, sub), append(tallies, gather(sub))
	}
	ctx, cancel := context.WithCancel(c.ctx)
	var wg sync.WaitGroup
	wg.Go(func() { // calls all the while
		for ctx.Err() == nil {
			_, err := s.ReadValue(ctx, c.id())
			if err != nil && ctx.Err() == nil && !errors.Is(err, ua.StatusBadConnectionClosed) && !errors.Is(err, ua.StatusBadNotConnected) && !errors.Is(err, ua.StatusBadTimeout) {
				c.Errorf("read: %v", err)
			}
			time.Sleep(700 * time.Millisecond)
		}
	})
	value := int64(0)
	begun := time.Now()
	next := begun
	struck, down := [4]int{}, false
	for time.Since(begun) < 30*time.Minute {
		value++
		c.set(value)
		time.Sleep(500 * time.Millisecond)
		if time.Now().Before(next) {
			continue
		}
		cut := cutproxy.Cut{Mode: cutproxy.Mode(rnd.IntN(4)), Direction: cutproxy.Direction(rnd.IntN(2)), At: int64(rnd.IntN(300)), For: time.Duration(rnd.IntN(20_000)) * time.Millisecond}
		// Down for 40 s at most: with what it takes to notice a silence and to
		// wait for an old session, less than the 1,000 values of the server's queues.
		if down = !down && rnd.IntN(3) == 0; down {
			cut = cutproxy.Cut{Mode: cutproxy.Reset}
		}
		c.network.set(down)
		c.proxy.Strike(cut)
		struck[cut.Mode]++
		next = time.Now().Add(time.Duration(rnd.IntN(40_000)) * time.Millisecond)
	}
	c.network.set(false)
	cancel()
	wg.Wait()
	time.Sleep(5 * time.Minute)
	for i, g := range tallies {
		g.end()
		if err := g.exactly(0, value); err != nil || g.recreated+g.missed > 0 {
			c.Errorf("subscription %d: %v, recreated %d, missed %d", i, err, g.recreated, g.missed)
		}
	}
	if st := c.stats(); st.Sessions != 1 || st.Channels != 1 || st.Subscriptions != 3 || st.ParkedPublishes > 10 {
		c.Errorf("after %v cuts: %+v", struck, st)
	}
	for m, n := range struck {
		if n < 5 {
			c.Errorf("%d times %v", n, cutproxy.Mode(m))
		}
	}
	_ = subs
	c.close(s)
	time.Sleep(3 * time.Minute)
	if st := c.stats(); st.Sessions != 0 || st.Channels != 0 || st.Subscriptions != 0 {
		c.Errorf("%+v", st)
	}
	if n := c.proxy.Open(); n != 0 {
		c.Errorf("%d connections left", n)
	}
}

// Whoever reads notifications or states may call the session, in the middle of a
// recovery too.
func TestCallbacksMayCallBack(t *testing.T) {
	inPlant(t, stack.Options{}, func(p *plant) {
		s := p.connect(p.opts())
		sub, err := s.Subscribe(p.ctx, SubscriptionOptions{Interval: 100 * time.Millisecond}, Monitor{NodeID: p.id()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(p.ctx)
		var wg sync.WaitGroup
		var calls, states atomic.Int32
		wg.Go(func() {
			for range s.States(ctx) {
				if _, err := s.ReadValue(ctx, p.id()); err == nil {
					states.Add(1)
				}
			}
		})
		wg.Go(func() {
			for range sub.Values(ctx) {
				extra, err := s.Subscribe(ctx, SubscriptionOptions{}, Monitor{NodeID: p.id()})
				if err != nil {
					continue
				}
				calls.Add(1)
				_ = extra.Close(ctx)
			}
		})
		for i := range int64(20) {
			p.set(i + 1)
			time.Sleep(20 * time.Second)
			p.cut()
		}
		time.Sleep(time.Minute)
		cancel()
		wg.Wait()
		if calls.Load() < 10 || states.Load() < 10 {
			t.Errorf("%d and %d calls", calls.Load(), states.Load())
		}
		if st := p.stats(); st.Subscriptions != 1 {
			t.Errorf("%d subscriptions at the server", st.Subscriptions)
		}
		p.close(s)
	})
}
