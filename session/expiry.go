package session

import (
	"container/heap"
	"math"
	"time"

	"github.com/breakwater-ua/breakwater/uabinary"
)

const noDeadline = math.MaxInt64

// deadlines is a heap of all sessions by due. Contact does not touch it: a
// session that comes due is first asked when it was last used and put back when
// that was later than the heap knew. So a busy session costs one heap operation
// per timeout, and all sessions share one timer.
type deadlines []*Session

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].due < d[j].due }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].heapIndex, d[j].heapIndex = i, j
}

// Push and Pop are heap.Interface's; use add and remove.
func (d *deadlines) Push(x any) {
	s := x.(*Session)
	s.heapIndex = len(*d)
	*d = append(*d, s)
}

func (d *deadlines) Pop() any {
	last := len(*d) - 1
	s := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	s.heapIndex = -1
	return s
}

func (d *deadlines) remove(s *Session) {
	if s.heapIndex >= 0 {
		heap.Remove(d, s.heapIndex)
	}
}

// KeepUntil gives a session that waits for its first activation until then, if
// its deadline was earlier. It is for a client whose ActivateSession was refused
// for want of capacity and who was told when to come back: what CreateSession
// has cost is not to be spent again. Another channel's session, one that was
// activated, and no session at all are left alone.
func (st *Store) KeepUntil(ch Channel, token uabinary.NodeID, until time.Time) {
	s := st.table.find(&token)
	if s == nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	b, due := s.bound.Load(), st.since(until)
	if b != nil && b.ch == ch && s.state.Load() == stateCreated && s.heapIndex >= 0 && due > s.due {
		st.setDueLocked(s, due)
	}
}

// setDueLocked gives s its deadline and wakes the reaper when that is the next.
func (st *Store) setDueLocked(s *Session, due int64) {
	s.due = due
	if s.heapIndex < 0 {
		heap.Push(&st.heap, s)
	} else {
		heap.Fix(&st.heap, s.heapIndex)
	}
	if due < st.armed {
		st.armed = due
		select {
		case st.wake <- struct{}{}:
		default:
		}
	}
}

// expired removes the sessions whose time is up at now and tells when the next
// one is due.
func (st *Store) expired(now int64) (gone []*Session, next int64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for len(st.heap) > 0 {
		s := st.heap[0]
		if s.due > now {
			break
		}
		reason := ClosedNotActivated
		if s.state.Load() == stateActive {
			reason = ClosedTimeout
			if due := s.lastContact.Load() + int64(s.timeout); due > now {
				s.due = due
				heap.Fix(&st.heap, 0)
				continue
			}
		}
		st.removeLocked(s, reason)
		gone = append(gone, s)
	}
	st.armed = noDeadline
	if len(st.heap) > 0 {
		st.armed = st.heap[0].due
	}
	return gone, st.armed
}

// reap ends sessions as they come due. It is the Store's only goroutine and ends
// with Shutdown.
func (st *Store) reap() {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	for {
		select {
		case <-st.stop:
			timer.Stop()
			return
		case <-st.wake:
		case <-timer.C:
		}
		gone, next := st.expired(st.since(time.Now()))
		for _, s := range gone {
			st.finish(s, false)
		}
		if next == noDeadline {
			timer.Stop()
		} else {
			timer.Reset(max(0, time.Duration(next-st.since(time.Now()))))
		}
	}
}
