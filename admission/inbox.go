package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrInboxStopped ends the reader of a stopped [Inbox].
var ErrInboxStopped = errors.New("admission: inbox stopped")

// controlRun is how many control commands may go before a waiting data command.
const controlRun = 8

// Inbox queues admitted commands for one worker, control commands before data
// commands, each lane in order; after eight control commands in a row one data
// command that waits goes first. C is what the worker is given, R what it
// answers. Enqueue, Stop and the methods of a [Pending] may be called
// concurrently; Next is for one goroutine. It starts none of its own.
type Inbox[C, R any] struct {
	governor *CommandGovernor
	wake     chan struct{} // holds one token when Next should look again

	mu      sync.Mutex // before the governor's
	queues  [lanes]queue[C, R]
	run     int // control commands since the last data command, at most controlRun
	reading bool
	stopped bool
}

// NewInbox returns an empty Inbox whose commands g admits. g bounds it, and may
// bound others too.
func NewInbox[C, R any](g *CommandGovernor) *Inbox[C, R] {
	return &Inbox[C, R]{governor: g, wake: make(chan struct{}, 1)}
}

// Enqueue admits a command and puts it into its lane. Errors are those of
// [CommandGovernor.Reserve]; a stopped Inbox refuses with
// [ErrResourceExhausted]. Cancelling ctx after Enqueue returned changes nothing.
func (b *Inbox[C, R]) Enqueue(ctx context.Context, c Command, value C) (*Pending[C, R], error) {
	r, err := b.governor.Reserve(ctx, c)
	if err != nil {
		return nil, err
	}
	p := &Pending[C, R]{inbox: b, value: value, reservation: r, done: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		r.Release()
		return nil, b.governor.refused.refuse(r.lane, Stopped)
	}
	b.queues[r.lane].push(p)
	b.signal()
	return p, nil
}

// Next returns the command that is next, and waits for one when there is none.
// It runs until [Pending.Complete], [Pending.Fail] or [Pending.Dispose].
// Errors: the context's, and [ErrInboxStopped]. A second Next at the same time
// is a programming error and panics.
func (b *Inbox[C, R]) Next(ctx context.Context) (*Pending[C, R], error) {
	b.mu.Lock()
	if b.reading {
		b.mu.Unlock()
		panic("admission: two readers of one Inbox")
	}
	b.reading = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.reading = false
		b.mu.Unlock()
	}()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, err := b.take()
		if p != nil || err != nil {
			return p, err
		}
		select {
		case <-b.wake:
		case <-ctx.Done():
		}
	}
}

// take returns the next command, or nil when none waits.
func (b *Inbox[C, R]) take() (*Pending[C, R], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil, ErrInboxStopped
	}
	data, control := &b.queues[DataLane], &b.queues[ControlLane]
	if control.first != nil && (b.run < controlRun || data.first == nil) {
		b.run = min(b.run+1, controlRun)
		return control.pop().start(), nil
	}
	if data.first == nil {
		return nil, nil
	}
	b.run = 0
	return data.pop().start(), nil
}

// Stop refuses further commands and ends those that wait with
// [ErrUnknownOutcome]; what they held is released. A running command keeps its
// place until its worker ends it. Further calls do nothing.
func (b *Inbox[C, R]) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return
	}
	b.stopped = true
	for i := range b.queues {
		for p := b.queues[i].pop(); p != nil; p = b.queues[i].pop() {
			p.finish(ErrUnknownOutcome)
		}
	}
	b.signal()
}

func (b *Inbox[C, R]) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Pending is a command in an [Inbox] or out of it and running.
type Pending[C, R any] struct {
	inbox       *Inbox[C, R]
	next        *Pending[C, R] // in its lane
	value       C
	reservation *Reservation
	done        chan struct{}

	// Guarded by the inbox's mu until done is closed, constant afterwards.
	running bool
	result  R
	err     error
}

// Value returns what was enqueued.
func (p *Pending[C, R]) Value() C { return p.value }

// Wait returns the worker's answer, or its error, or [ErrUnknownOutcome] when
// the command was dropped. When ctx ends first the error is ErrUnknownOutcome
// and the context's: the command goes on and keeps its place. Any number of
// goroutines may wait.
func (p *Pending[C, R]) Wait(ctx context.Context) (R, error) {
	select {
	case <-p.done:
		return p.result, p.err
	default:
	}
	select {
	case <-p.done:
		return p.result, p.err
	case <-ctx.Done():
		var none R
		return none, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
	}
}

// Complete ends a running command with its answer.
func (p *Pending[C, R]) Complete(result R) { p.end(result, nil) }

// Fail ends a running command with an error; nil counts as [ErrUnknownOutcome].
func (p *Pending[C, R]) Fail(err error) {
	if err == nil {
		err = ErrUnknownOutcome
	}
	var none R
	p.end(none, err)
}

// Dispose ends a running command that was neither completed nor failed with
// [ErrUnknownOutcome]. A worker defers it.
func (p *Pending[C, R]) Dispose() { p.Fail(ErrUnknownOutcome) }

// end ends a running command; the first call counts.
func (p *Pending[C, R]) end(result R, err error) {
	p.inbox.mu.Lock()
	defer p.inbox.mu.Unlock()
	if !p.running {
		return
	}
	p.running = false
	p.result = result
	p.finish(err)
}

// start says that the reader has p.
func (p *Pending[C, R]) start() *Pending[C, R] {
	p.running = true
	return p
}

// finish ends p, which waits or runs.
func (p *Pending[C, R]) finish(err error) {
	p.err = err
	p.reservation.Release()
	close(p.done)
}

// queue is one lane, oldest first.
type queue[C, R any] struct{ first, last *Pending[C, R] }

func (q *queue[C, R]) push(p *Pending[C, R]) {
	if q.last == nil {
		q.first = p
	} else {
		q.last.next = p
	}
	q.last = p
}

// pop returns the oldest, or nil.
func (q *queue[C, R]) pop() *Pending[C, R] {
	p := q.first
	if p == nil {
		return nil
	}
	q.first, p.next = p.next, nil
	if q.first == nil {
		q.last = nil
	}
	return p
}
