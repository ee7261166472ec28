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
// pacing ends. end, after that, waits for its last answers and ends its sessions.
func (e *Engine) startSteady(ctx, pacing context.Context, s *Steady) (end func(), err error) {
	var members, pacers sync.WaitGroup
	// Not of ctx: sessions end after their load has.
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	end = func() {
		pacers.Wait()
		stop()
		members.Wait()
	}
	if s.sessions() == 0 {
		return end, nil
	}
	var list []*member
	add := func(m *member) *member {
		m.from, m.buffer = e.sources.at(groupSteady, len(list)), 0
		list = append(list, m)
		return m
	}
	for range s.Readers {
		add(&member{})
	}
	values := make([]atomic.Pointer[ua.Variant], s.Writers)
	for i := range s.Writers {
		add(&member{up: func(ctx context.Context, c *conn, _ bool) error {
			v, err := s.current(ctx, c)
			if err == nil {
				values[i].Store(v)
			}
			return err
		}})
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
			return end, err
		}
		return end, fmt.Errorf("%w: %d of %d after %v", ErrNotReady, n, len(list), setupTime)
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
	return end, nil
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
