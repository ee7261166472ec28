package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/stack"
)

func TestServices(t *testing.T) {
	inPlant(t, stack.Options{}, func(p *plant) {
		ctx := p.ctx
		s := p.connect(p.opts())
		if err := s.WriteValue(ctx, p.id(), int64(7)); err != nil {
			t.Error(err)
		}
		v, err := s.ReadValue(ctx, p.id())
		if err != nil || v.Value.Value() != int64(7) {
			t.Errorf("%+v, %v", v, err)
		}
		if _, err := s.ReadValue(ctx, ua.NewNumericNodeID(0, 999_999)); !errors.Is(err, ua.StatusBadNodeIDUnknown) {
			t.Errorf("unknown node: %v", err)
		}
		n := 0
		for visit, err := range s.Walk(ctx, ua.NewNumericNodeID(0, 85), 3) {
			if err != nil {
				t.Fatal(err)
			}
			if visit.BrowseName.Name == "" {
				t.Errorf("%+v", visit)
			}
			n++
		}
		if n < 40 {
			t.Errorf("%d nodes below Objects", n)
		}
		p.close(s)
		if _, err := s.ReadValue(ctx, p.id()); !errors.Is(err, ErrClosed) || !errors.Is(err, ua.StatusBadSessionClosed) {
			t.Errorf("after Close: %v", err)
		}
		if st := p.stats(); st.Sessions != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestSubscription(t *testing.T) {
	inPlant(t, stack.Options{}, func(p *plant) {
		s := p.connect(p.opts())
		sub, err := s.Subscribe(p.ctx, SubscriptionOptions{Interval: 100 * time.Millisecond}, Monitor{NodeID: p.id()})
		if err != nil {
			t.Fatal(err)
		}
		g := gather(sub)
		for i := range int64(50) {
			p.set(i)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if err := g.exactly(0, 49); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if st := p.stats(); st.ParkedPublishes != 2 {
			t.Errorf("%d Publish requests at the server, want 2", st.ParkedPublishes)
		}
		if err := sub.Close(p.ctx); err != nil {
			t.Error(err)
		}
		g.wg.Wait() // Notifications ends
		if !errors.Is(sub.Err(), ErrClosed) {
			t.Error(sub.Err())
		}
		if st := p.stats(); st.Subscriptions != 0 {
			t.Errorf("%+v", st)
		}
		p.close(s)
	})
}

// hostile.md C3: after a cut of 2 s the old session goes on and values resume.
func TestC3CutResumesTheOldSession(t *testing.T) {
	inPlant(t, stack.Options{}, func(p *plant) {
		s := p.connect(p.opts())
		was, _ := s.ID()
		sub, err := s.Subscribe(p.ctx, SubscriptionOptions{Interval: 100 * time.Millisecond}, Monitor{NodeID: p.id(), QueueSize: 1000})
		if err != nil {
			t.Fatal(err)
		}
		g := gather(sub)
		time.Sleep(time.Minute) // the session has settled
		p.set(1)
		time.Sleep(time.Second)
		p.network.set(true)
		p.cut()
		for i := range int64(20) {
			p.set(2 + i)
			time.Sleep(100 * time.Millisecond)
		}
		p.network.set(false)
		until(t, s, Online)
		p.set(22)
		time.Sleep(5 * time.Second)
		if is, _ := s.ID(); is == nil || is.String() != was.String() {
			t.Errorf("session %v, was %v", is, was)
		}
		if err := g.exactly(0, 22); err != nil {
			t.Error(err)
		}
		g.end()
		p.close(s)
	})
}

// hostile.md C5: a restarted server knows neither session nor subscription.
func TestC5ServerRestartRecreates(t *testing.T) {
	inPlant(t, stack.Options{}, func(p *plant) {
		s := p.connect(p.opts())
		sub, err := s.Subscribe(p.ctx, SubscriptionOptions{Interval: 100 * time.Millisecond}, Monitor{NodeID: p.id()})
		if err != nil {
			t.Fatal(err)
		}
		g := gather(sub)
		time.Sleep(time.Minute)
		p.stop()
		time.Sleep(10 * time.Second)
		p.start()
		p.set(1)
		if st := until(t, s, Online); !st.NewSession {
			t.Errorf("%+v", st)
		}
		time.Sleep(time.Second)
		p.set(2)
		time.Sleep(time.Second)
		g.end()
		if err := g.exactly(0, 2); err != nil || g.recreated != 1 || g.missed != 0 {
			t.Errorf("%v, recreated %d, missed %d", err, g.recreated, g.missed)
		}
		p.close(s)
	})
}

func TestConnectEndsWithItsContext(t *testing.T) {
	inPlant(t, stack.Options{}, func(p *plant) {
		p.network.set(true)
		ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
		defer cancel()
		begun := time.Now()
		s, err := Connect(ctx, plantURL, p.opts())
		if s != nil || !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 10*time.Second {
			t.Errorf("%v, %v after %v", s, err, time.Since(begun))
		}
		if n := p.count(); n != 4 { // at 0, 1, 3, 7 s
			t.Errorf("%d attempts", n)
		}
	})
}
