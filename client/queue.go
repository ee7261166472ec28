package client

import (
	"context"
	"iter"
	"time"

	"github.com/gopcua/opcua/ua"
)

// patience is for how long a full queue holds up the publishing of a session
// whose other subscriptions have room: enough for a reader at work to take a
// burst, and within what a server queues.
const patience = time.Second

// Notifications yields what the subscription has to say, in the server's order,
// every message once, until the subscription or ctx ends; Err then says why.
// What nobody has taken stays for the next reader. Several readers at once share
// the notifications between them.
func (sub *Subscription) Notifications(ctx context.Context) iter.Seq[Notification] {
	return func(yield func(Notification) bool) {
		for ctx.Err() == nil {
			n, ok := sub.take()
			if ok {
				if !yield(n) {
					return
				}
				continue
			}
			select {
			case <-sub.ready:
			case <-ctx.Done():
			case <-sub.done:
				if sub.Queued() == 0 {
					return
				}
			}
		}
		sub.signal() // it may have been taken for nothing: another reader waits for it
	}
}

// Values yields the values of the data items among the notifications, for those
// who have no use for the rest.
func (sub *Subscription) Values(ctx context.Context) iter.Seq2[*Item, *ua.DataValue] {
	return func(yield func(*Item, *ua.DataValue) bool) {
		for n := range sub.Notifications(ctx) {
			if n.Value != nil && !yield(n.Item, n.Value) {
				return
			}
		}
	}
}

func (sub *Subscription) take() (n Notification, ok bool) {
	sub.mu.Lock()
	if len(sub.queue) > 0 {
		n, ok = sub.queue[0], true
		sub.queue[0] = Notification{}
		sub.queue = sub.queue[1:]
	}
	left := len(sub.queue)
	if left == 0 {
		sub.queue = nil
	}
	resume := sub.full && left <= sub.session.opts.MaxQueuedNotifications/2
	if resume {
		sub.full, sub.over, sub.dropped, sub.told = false, false, false, false
	}
	sub.mu.Unlock()
	if left > 0 {
		sub.signal()
	}
	if resume {
		sub.session.wakePublisher()
	}
	return n, ok
}

// push queues notifications; sub.mu is held.
func (sub *Subscription) push(n ...Notification) {
	if sub.ended || len(n) == 0 {
		return
	}
	sub.queue = append(sub.queue, n...)
	most := sub.session.opts.MaxQueuedNotifications
	if !sub.full && len(sub.queue) > most {
		sub.full, sub.filled = true, time.Now()
	}
	if most = max(most, 2*len(sub.items)); sub.over && len(sub.queue) > most {
		sub.shed(most - most/4)
	}
	sub.signal()
}

// shed drops the oldest notifications, but not the newest of an item, so that keep
// are left. The first of them tells how many are gone. sub.mu is held.
func (sub *Subscription) shed(keep int) {
	newest := make(map[*Item]int, len(sub.items))
	for i, n := range sub.queue {
		if n.Item != nil && sub.items[n.Item.handle] == n.Item {
			newest[n.Item] = i
		}
	}
	mark := Notification{Subscription: sub}
	excess := len(sub.queue) + 1 - keep
	left := make([]Notification, 1, len(sub.queue))
	for i, n := range sub.queue {
		last, monitored := newest[n.Item]
		if excess <= 0 || monitored && last == i {
			left = append(left, n)
			continue
		}
		excess--
		mark.Published = n.Published
		mark.Missed += n.Missed
		mark.Dropped += n.Dropped
		mark.Recreated = mark.Recreated || n.Recreated
		if n.Item != nil {
			mark.Dropped++
		} else if n.Status != 0 {
			mark.Status = n.Status
		}
	}
	left[0] = mark
	sub.queue, sub.dropped = left, true
}

func (sub *Subscription) signal() {
	select {
	case sub.ready <- struct{}{}:
	default:
	}
}

// Queued is the number of notifications that nobody has taken.
func (sub *Subscription) Queued() int {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return len(sub.queue)
}

// wanted is how many Publish requests the server should have: one for each
// subscription and one more, so that there is one while another is answered.
// None, when full queues hold the publishing up; until then, when that is known.
//
// Publish requests are the session's (OPC 10000-4 §5.14.5), so none can be held
// back from the full subscription only. While another has room it has to be read
// within the patience, and in any case before the server would give up a
// subscription that it may not report to. After that it drops notifications.
func (p *publisher) wanted(now time.Time) (n int, until time.Time) {
	var full []*Subscription
	var life time.Time // when a third of the first lifetime is over
	for _, sub := range p.s.subscriptions() {
		sub.mu.Lock()
		if !sub.away() {
			n++
			if sub.full {
				full = append(full, sub)
				if end := sub.filled.Add(patience); end.After(until) {
					until = end
				}
			}
			if end := sub.heard.Add(sub.lifetime / 3); sub.lifetime > 0 && (life.IsZero() || end.Before(life)) {
				life = end
			}
		}
		sub.mu.Unlock()
	}
	if n == 0 {
		return 0, time.Time{}
	}
	if len(full) > 0 {
		if len(full) == n || !life.IsZero() && life.Before(until) {
			until = life
		}
		if until.IsZero() || now.Before(until) {
			return 0, until
		}
		for _, sub := range full {
			sub.mu.Lock()
			sub.over = sub.full
			sub.mu.Unlock()
		}
	}
	return min(n+1, p.most), time.Time{}
}
