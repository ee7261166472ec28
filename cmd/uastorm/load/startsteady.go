package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/ua"
)

// startSteady connects the sessions of the steady load and sets it going until
// pacing ends. After that quiet waits for its last answers, as long as there is time
// for that, and has its sessions leave; end waits until they have.
func (e *Engine) startSteady(ctx, pacing context.Context, s *Steady) (quiet, end func(), err error) {
	var members, pacers sync.WaitGroup
	// Not of ctx: sessions end after their load has.
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	answered := make(chan struct{})
	quiet = func() {
		e.work.Go(func() {
			defer close(answered)
			pacers.Wait()
		})
		select {
		case <-answered:
		case <-e.rush.Done():
		}
		stop()
	}
	end = func() {
		members.Wait()
		<-answered
	}
	if s.sessions() == 0 {
		return quiet, end, nil
	}
	var list []*member
	add := func(m *member) *member {
		m.from, m.buffer = e.sources.at(groupSteady, len(list)), 0
		list = append(list, m)
		return m
	}
	for i := range s.Readers {
		m := add(&member{})
		if i == 0 {
			m.up = func(ctx context.Context, c *conn, _ bool) error {
				if m.sessions.Load() > 0 {
					return nil
				}
				return s.readable(ctx, c)
			}
		}
	}
	values := make([]atomic.Pointer[ua.Variant], s.Writers)
	for i := range s.Writers {
		m := add(&member{})
		m.up = func(ctx context.Context, c *conn, _ bool) error {
			v, err := s.current(ctx, c, m.sessions.Load() == 0)
			if err == nil {
				values[i].Store(v)
			}
			return err
		}
	}
	for range s.Subscribers {
		e.subscribe(add(&member{}), s)
	}
	begun := time.Now()
	for _, m := range list {
		e.begin(alive, &members, m, begun)
	}
	if n := await(ctx, list, setupTime); n < len(list) {
		if err := context.Cause(ctx); err != nil {
			return quiet, end, err
		}
		e.mu.Lock()
		why := e.why
		e.mu.Unlock()
		return quiet, end, fmt.Errorf("%w: %d of %d after %v; what was in the way last: %v", ErrNotReady, n, len(list), setupTime, why)
	}
	e.rec.Event(fmt.Sprintf("the %d sessions of the steady load stand", len(list)))
	start := time.Now().Add(pollInterval)
	pace := func(list []*member, rate float64, op func(i int) operation) {
		if len(list) == 0 {
			return
		}
		if rate <= 0 {
			rate = float64(len(list))
		}
		gap := float64(time.Second) / rate
		for i, m := range list {
			pacers.Go(func() {
				e.pace(pacing, m, start.Add(time.Duration(gap*float64(i))), time.Duration(gap*float64(len(list))), op(i))
			})
		}
	}
	pace(list[:s.Readers], s.ReadRate, func(int) operation { return s.reading() })
	pace(list[s.Readers:s.Readers+s.Writers], s.WriteRate, func(i int) operation { return s.writing(values[i].Load()) })
	return quiet, end, nil
}

// subscribe gives a member the subscription of a steady load.
func (e *Engine) subscribe(m *member, s *Steady) {
	w := &subscriber{m: m, counter: s.CounterNode, interval: s.PublishingInterval, isLoopback: e.target.Host.Addr().IsLoopback()}
	if w.interval <= 0 {
		w.interval = time.Second
	}
	if s.CounterNode == "" || s.Items > 0 || len(s.SubscribeNodes) > 0 {
		nodes := orDefault(s.SubscribeNodes)
		for i := range max(1, s.Items) {
			w.nodes = append(w.nodes, nodes[i%len(nodes)])
		}
	}
	m.up, m.ready = w.subscribe, w.publishing
}
