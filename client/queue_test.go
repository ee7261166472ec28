package client

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/stack"
)

// A warnings handler counts what is logged at Warn and above.
type warnings struct{ n atomic.Int64 }

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		w.n.Add(1)
	}
	return nil
}

func (w *warnings) WithAttrs([]slog.Attr) slog.Handler { return w }
func (w *warnings) WithGroup(string) slog.Handler      { return w }

// changes is a data change of items, by client handle.
func changes(v int64, handles ...uint32) *ua.DataChangeNotification {
	d := &ua.DataChangeNotification{}
	for _, h := range handles {
		d.MonitoredItems = append(d.MonitoredItems, &ua.MonitoredItemNotification{ClientHandle: h,
			Value: &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(v)}})
	}
	return d
}

// unread makes two subscriptions, the first of two items, with queues of 8.
func unread(t *testing.T, r *rogue) (s *Session, subs []*Subscription, log *warnings) {
	t.Helper()
	log = &warnings{}
	o := r.opts()
	o.MaxQueuedNotifications, o.Logger = 8, slog.New(log)
	s, err := Connect(r.ctx, plantURL, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, items := range []int{2, 1} {
		sub, err := s.Subscribe(r.ctx, SubscriptionOptions{}, monitors(items)...)
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
	}
	synctest.Wait()
	return s, subs, log
}

func monitors(n int) []Monitor {
	m := make([]Monitor, n)
	for i := range m {
		m[i].NodeID = ua.NewTwoByteNodeID(byte(i + 1))
	}
	return m
}

// Publish requests are the session's: a subscription that nobody reads gets its
// newest values and the number of the lost ones, and the others go on.
func TestUnreadSubscriptionStarvesNobody(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs, log := unread(t, r)
		g := gather(subs[1])
		const rounds = 100
		for i := uint32(1); i <= rounds; i++ {
			d := changes(int64(i), 2)
			if i == 1 {
				d = changes(int64(i), 1, 2)
			}
			r.push(1, i, nil, d)
			r.push(2, i, nil, changes(int64(i), 3))
			time.Sleep(2 * patience) // also when it is held up
		}
		g.end()
		if err := g.exactly(1, rounds); err != nil {
			t.Error(err)
		}
		if n := subs[0].Queued(); n > 8 {
			t.Errorf("%d queued", n)
		}
		if n := log.n.Load(); n != 1 {
			t.Errorf("%d warnings", n)
		}
		first, _ := subs[0].take()
		if left := subs[0].Queued(); first.Dropped+left != rounds+1 || first.Item != nil || first.Missed != 0 {
			t.Errorf("%d dropped and %d left, of %d: %+v", first.Dropped, left, rounds+1, first)
		}
		var values []int64
		for n, ok := subs[0].take(); ok; n, ok = subs[0].take() {
			values = append(values, n.Value.Value.Value().(int64))
		}
		if values[0] != 1 { // the only value of item 1
			t.Errorf("left: %v", values)
		}
		for i, v := range values[1:] {
			if v != int64(rounds-len(values)+2+i) {
				t.Errorf("left: %v", values)
				break
			}
		}
		synctest.Wait()
		if n := r.waiting(); n != 3 {
			t.Errorf("%d Publish requests", n)
		}
		s.Close(r.ctx)
	})
}

// A reader that takes a burst within the patience loses nothing of it, although
// another subscription has room all the time.
func TestBurstIsNotDropped(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs, log := unread(t, r)
		sequence := uint32(0)
		burst := func() {
			for n := 0; n < 20 && r.waiting() > 0; n++ {
				sequence++
				d := changes(int64(sequence), 2)
				for range 4 {
					d.MonitoredItems = append(d.MonitoredItems, d.MonitoredItems[0])
				}
				r.push(1, sequence, nil, d)
				synctest.Wait()
			}
		}
		total := 0
		for range 5 {
			burst()
			time.Sleep(patience / 2)
			for n, ok := subs[0].take(); ok; n, ok = subs[0].take() {
				if n.Dropped > 0 {
					t.Errorf("%d dropped", n.Dropped)
				}
				total++
			}
			synctest.Wait()
		}
		if total != int(5*sequence) || log.n.Load() != 0 {
			t.Errorf("%d values of %d messages, %d warnings", total, sequence, log.n.Load())
		}
		s.Close(r.ctx)
	})
}

// What the subscription itself had to say survives in the mark, and marks add up.
func TestShedKeepsTheRest(t *testing.T) {
	s := &Session{opts: Options{MaxQueuedNotifications: 4}}
	sub := &Subscription{session: s, items: map[uint32]*Item{1: {handle: 1}}, ready: make(chan struct{}, 1), over: true}
	gone := &Item{handle: 2} // not monitored any more
	for range 2 {
		sub.push(Notification{Missed: 3}, Notification{Recreated: true}, Notification{Status: ua.StatusBadTimeout})
		sub.push(Notification{Item: gone}, Notification{Item: sub.items[1]}, Notification{Item: gone}, Notification{Item: gone}, Notification{Item: gone})
		if len(sub.queue) != 3 {
			t.Errorf("%d left", len(sub.queue))
		}
	}
	m := sub.queue[0]
	if m.Dropped != 8 || m.Missed != 6 || !m.Recreated || m.Status != ua.StatusBadTimeout || sub.queue[1].Item != sub.items[1] || sub.queue[2].Item != gone {
		t.Errorf("%+v", sub.queue)
	}
}

// When nothing of a session is read the server queues, but it does not lose the
// subscriptions for want of Publish requests.
func TestUnreadSubscriptionsLive(t *testing.T) {
	inPlant(t, stack.Options{}, func(p *plant) {
		o := p.opts()
		o.MaxQueuedNotifications = 20
		s := p.connect(o)
		var subs []*Subscription
		for range 2 {
			sub, err := s.Subscribe(p.ctx, SubscriptionOptions{Interval: 100 * time.Millisecond, KeepAliveCount: 10, LifetimeCount: 60}, Monitor{NodeID: p.id()})
			if err != nil {
				p.Fatal(err)
			}
			subs = append(subs, sub)
		}
		for v := range int64(1200) {
			time.Sleep(100 * time.Millisecond)
			p.set(v + 1)
		}
		if n := p.stats().Subscriptions; n != 2 {
			p.Errorf("%d subscriptions after two minutes", n)
		}
		for i, sub := range subs {
			if n := sub.Queued(); n > 20 {
				p.Errorf("%d queued", n)
			}
			dropped, last := 0, int64(0)
			ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
			for n := range sub.Notifications(ctx) {
				dropped += n.Dropped
				if n.Recreated || n.Status != 0 || n.Missed != 0 {
					p.Errorf("subscription %d: %+v", i, n)
				}
				if n.Value != nil {
					last = n.Value.Value.Value().(int64)
				}
			}
			cancel()
			if last != 1200 || dropped == 0 {
				p.Errorf("subscription %d: the last value is %d, %d dropped", i, last, dropped)
			}
		}
		p.close(s)
	})
}

// A leaving context ends when it is asked for the second time.
type leaving struct {
	context.Context
	asked atomic.Int64
}

func (l *leaving) Err() error {
	if l.asked.Add(1) > 1 {
		return context.Canceled
	}
	return nil
}

// A reader whose context ends as it is woken up leaves the value to another one
// that waits.
func TestLeavingReaderWakesTheNext(t *testing.T) {
	inRogue(t, func(r *rogue) {
		s, subs := subscribed(t, r, 1)
		left := make(chan struct{})
		go func() {
			defer close(left)
			for n := range subs[0].Notifications(&leaving{Context: r.ctx}) {
				t.Errorf("the leaving reader has taken %+v", n)
			}
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
		defer cancel()
		taken := make(chan Notification, 1)
		go func() {
			defer close(taken)
			for n := range subs[0].Notifications(ctx) {
				taken <- n
				return
			}
		}()
		synctest.Wait()
		r.push(1, 1, nil, int64(7))
		<-left
		if n, ok := <-taken; !ok || n.Value == nil || n.Value.Value.Value() != int64(7) {
			t.Errorf("the other reader has %+v, %v", n, ctx.Err())
		}
		s.Close(r.ctx)
	})
}
