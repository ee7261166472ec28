package isolation

import "sync"

// Queue is a weighted fair queue: round robin over owners, each of which keeps
// its turn for as many entries as its weight. It bounds nothing by itself; the
// leases of RequestQueue and RequestQueueBytes do. All methods may be called
// concurrently.
type Queue[T any] struct {
	mu    sync.Mutex
	fifo  bool
	lanes map[string]*lane[T]
	turn  *lane[T] // whose turn it is; nil when the queue is empty
	left  int      // entries the turn is good for
	n     int
}

// Entry is a place in a Queue. It belongs to one queue at a time.
type Entry[T any] struct {
	Value T
	Owner *Owner

	lane       *lane[T]
	prev, next *Entry[T]
}

// lane holds one owner's entries; lanes form a ring.
type lane[T any] struct {
	key         string
	weight      int
	first, last *Entry[T]
	n           int
	prev, next  *lane[T]
}

// NewQueue returns an empty queue. With fifo (mode SharedOnly) there is one
// lane, and weights do not count.
func NewQueue[T any](fifo bool) *Queue[T] {
	return &Queue[T]{fifo: fifo, lanes: map[string]*lane[T]{}}
}

// Push appends an entry to its owner's lane.
func (q *Queue[T]) Push(e *Entry[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, weight := "", 1
	if !q.fifo {
		key, weight = e.Owner.key, e.Owner.weight
	}
	l := q.lanes[key]
	if l == nil {
		l = &lane[T]{key: key, weight: weight}
		q.lanes[key] = l
		if q.turn == nil {
			l.prev, l.next = l, l
			q.turn, q.left = l, weight
		} else { // behind all others
			l.prev, l.next = q.turn.prev, q.turn
			l.prev.next, l.next.prev = l, l
		}
	}
	e.lane, e.prev, e.next = l, l.last, nil
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
	l.n++
	q.n++
}

// Pop takes the next entry for which run answers true, and returns nil when
// there is none. An owner whose first entry cannot run is passed over, and asked
// only once per call. run is called with the queue locked and must not use it.
func (q *Queue[T]) Pop(run func(*Entry[T]) bool) *Entry[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l, asked := q.turn, len(q.lanes); asked > 0; l, asked = l.next, asked-1 {
		e := l.first
		if !run(e) {
			continue
		}
		if l != q.turn {
			q.turn, q.left = l, l.weight
		}
		q.left--
		q.unlink(e)
		if q.turn == l && q.left <= 0 {
			q.turn = l.next
			q.left = q.turn.weight
		}
		return e
	}
	return nil
}

// Remove takes an entry out and reports whether it was still there. The turn
// stays where it was.
func (q *Queue[T]) Remove(e *Entry[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.lane == nil {
		return false
	}
	q.unlink(e)
	return true
}

// RemoveAll takes out the entries for which of answers true and returns them. of
// is called with the queue locked and must not use it.
func (q *Queue[T]) RemoveAll(of func(*Entry[T]) bool) (out []*Entry[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l, n := q.turn, len(q.lanes); n > 0; n-- {
		following := l.next
		for e := l.first; e != nil; {
			next := e.next
			if of(e) {
				q.unlink(e)
				out = append(out, e)
			}
			e = next
		}
		l = following
	}
	return out
}

// Displace takes the newest entry of the owner that holds most out and returns
// it, or nil when that is the newcomer itself or nobody holds more than most. holds
// says what an owner holds, by its newest entry. It is called with the queue
// locked and must not use it.
func (q *Queue[T]) Displace(newcomer *Owner, most int64, holds func(newest *Entry[T]) int64) *Entry[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fifo {
		return nil
	}
	var heaviest *lane[T]
	for l, n := q.turn, len(q.lanes); n > 0; l, n = l.next, n-1 {
		if held := holds(l.last); held > most {
			heaviest, most = l, held
		}
	}
	if heaviest == nil || heaviest.key == newcomer.key {
		return nil
	}
	e := heaviest.last
	q.unlink(e)
	return e
}

// Drain takes everything out, in no particular order between owners.
func (q *Queue[T]) Drain() []*Entry[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make([]*Entry[T], 0, q.n)
	for q.turn != nil {
		e := q.turn.first
		q.unlink(e)
		all = append(all, e)
	}
	return all
}

// Len returns how many entries wait.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n
}

// Owners returns how many owners have entries waiting.
func (q *Queue[T]) Owners() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.lanes)
}

func (q *Queue[T]) unlink(e *Entry[T]) {
	l := e.lane
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.lane, e.prev, e.next = nil, nil, nil
	l.n--
	q.n--
	if l.n > 0 {
		return
	}
	delete(q.lanes, l.key)
	switch {
	case l.next == l:
		q.turn, q.left = nil, 0
	case q.turn == l:
		q.turn, q.left = l.next, l.next.weight
		fallthrough
	default:
		l.prev.next, l.next.prev = l.next, l.prev
	}
}
