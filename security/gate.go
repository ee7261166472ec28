package security

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// A Priority says what a private-key operation is for. Lower values run first. Within a class
// an owner may be Preferred; within that, first come, first served.
type Priority uint8

const (
	// PriorityRenew is for OpenSecureChannel renew: it keeps what already works alive.
	PriorityRenew Priority = iota
	// PrioritySession is for CreateSession and the first ActivateSession.
	PrioritySession
	// PriorityIssue is for OpenSecureChannel issue: a newcomer that has invested nothing yet.
	PriorityIssue

	// PriorityClasses is the number of classes.
	PriorityClasses = 3

	// PriorityActivate is for ActivateSession of a live session.
	PriorityActivate = PriorityRenew
)

const (
	ranks     = 3 // within a class: trusted and reconnecting owners, bootstrap, everybody
	rankShift = 4
)

// Preferred moves p ahead of its class by 0 (everybody), 1 (bootstrap owners) or 2
// (reconnecting and trusted owners). Other numbers count as the nearest of these.
func (p Priority) Preferred(by int) Priority {
	return p&(1<<rankShift-1) | Priority(max(0, min(by, ranks-1)))<<rankShift
}

func (p Priority) class() int { return min(int(p&(1<<rankShift-1)), PriorityClasses-1) }

func (p Priority) queue() int {
	return p.class()*ranks + ranks - 1 - min(int(p>>rankShift), ranks-1)
}

// firstMeanOperation stands for the duration of an operation until one has been measured.
const firstMeanOperation = time.Millisecond

// CryptoGate runs private-key operations, and nothing else, on a fixed set of workers in
// priority order. An RSA-2048 operation is 0.3 to 0.9 ms of pure computation; a storm of a
// thousand clients queues seconds of it, and without a gate every one of these goroutines
// would stand in the scheduler's run queue between a healthy client and its answer.
//
// Each worker is a goroutine locked to its operating system thread, on Linux at nice +10, so
// that the kernel preempts it for everything else; the thread ends with the goroutine.
//
// A worker that computes occupies one of Go's Ps, and only an idle P polls the network
// promptly: with as many workers as Ps a reader waits for sysmon, every 10 ms or so. Hence
// the default of GOMAXPROCS − 1. To use all cores for cryptography as well, raise GOMAXPROCS
// to cores + workers and let the kernel's priorities decide: cmd/refserver runs W = cores
// workers at GOMAXPROCS = cores + W. With GOMAXPROCS 1 there is no good width, raise it to 2.
type CryptoGate struct {
	workers int
	wg      sync.WaitGroup

	mu      sync.Mutex
	wake    sync.Cond // of mu: an entry was queued, or the gate closed
	closed  bool
	queues  [PriorityClasses * ranks]operationQueue
	running int
	mean    time.Duration // moving average of one operation
}

// operation is one waiting call of Do. All fields but done belong to CryptoGate.mu until it
// is taken out of its queue.
type operation struct {
	ctx        context.Context
	n          int
	f          func()
	queue      *operationQueue // nil once taken out
	prev, next *operation
	err        error // set before done is closed
	done       chan struct{}
}

// operationQueue is a list, so that a cancelled entry leaves from the middle in no time.
type operationQueue struct {
	first, last *operation
	entries     int
	operations  int
}

func (q *operationQueue) push(o *operation) {
	o.queue, o.prev = q, q.last
	if q.last != nil {
		q.last.next = o
	} else {
		q.first = o
	}
	q.last = o
	q.entries++
	q.operations += o.n
}

func (q *operationQueue) remove(o *operation) {
	if o.prev != nil {
		o.prev.next = o.next
	} else {
		q.first = o.next
	}
	if o.next != nil {
		o.next.prev = o.prev
	} else {
		q.last = o.prev
	}
	o.queue, o.prev, o.next = nil, nil, nil
	q.entries--
	q.operations -= o.n
}

var errGateClosed = errors.New("crypto gate closed")

// NewCryptoGate starts a gate. workers ≤ 0 means max(1, GOMAXPROCS − 1); see [CryptoGate] for
// why a program should raise GOMAXPROCS when it asks for more. Close ends it.
func NewCryptoGate(workers int) *CryptoGate {
	if workers <= 0 {
		workers = max(1, runtime.GOMAXPROCS(0)-1)
	}
	g := &CryptoGate{workers: workers, mean: firstMeanOperation}
	g.wake.L = &g.mu
	for range workers {
		g.wg.Go(g.work)
	}
	return g
}

// Do runs f, one private-key operation, on a worker and returns when it has ended. When ctx
// ends first, f is taken out of the queue, never runs, and the error says so (its StatusCode
// is that of the context's end); once f runs Do waits for it. After Close: BadShutdown.
// A panic of f comes back as BadInternalError.
func (g *CryptoGate) Do(ctx context.Context, p Priority, f func()) error {
	return g.DoN(ctx, p, 1, f)
}

// DoN is Do for an f that makes n operations in a row.
func (g *CryptoGate) DoN(ctx context.Context, p Priority, n int, f func()) error {
	o := &operation{ctx: ctx, n: max(n, 1), f: f, done: make(chan struct{})}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return uastatus.New(ua.StatusBadShutdown, "crypto gate", errGateClosed)
	}
	if ctx.Err() != nil {
		g.mu.Unlock()
		return cancelled(ctx)
	}
	g.queues[p.queue()].push(o)
	g.mu.Unlock()
	g.wake.Signal()

	select {
	case <-o.done:
	case <-ctx.Done():
		g.mu.Lock()
		if o.queue != nil {
			o.queue.remove(o)
			g.mu.Unlock()
			return cancelled(ctx)
		}
		g.mu.Unlock()
		<-o.done // f uses the caller's memory: it must not outlive the call
	}
	return o.err
}

func cancelled(ctx context.Context) error {
	return uastatus.New(uastatus.Code(ctx.Err()), "crypto gate", context.Cause(ctx))
}

// work is one worker.
func (g *CryptoGate) work() {
	runtime.LockOSThread() // never unlocked: the niced thread must not serve anybody else
	lowerThreadPriority()
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		o := g.takeLocked()
		if o == nil {
			if g.closed {
				return
			}
			g.wake.Wait()
			continue
		}
		if o.ctx.Err() != nil { // its goroutine has not come round to removing it
			o.err = cancelled(o.ctx)
			close(o.done)
			continue
		}
		g.running++
		g.mu.Unlock()
		start := time.Now()
		o.err = run(o.f)
		took := time.Since(start) / time.Duration(o.n)
		g.mu.Lock()
		g.running--
		if took > 0 {
			g.mean += (took - g.mean) / 8
		}
		close(o.done) // last: whoever waited finds the counts up to date
	}
}

func (g *CryptoGate) takeLocked() *operation {
	for i := range g.queues {
		if o := g.queues[i].first; o != nil {
			g.queues[i].remove(o)
			return o
		}
	}
	return nil
}

func run(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = uastatus.New(ua.StatusBadInternalError, "crypto gate", fmt.Errorf("panic: %v", r))
		}
	}()
	f()
	return nil
}

// Workers returns W, the number of operations that run at once.
func (g *CryptoGate) Workers() int { return g.workers }

// MeanOperation is a moving average of what one operation takes on a worker, waiting for the
// processor included; 1 ms before the first one.
func (g *CryptoGate) MeanOperation() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mean
}

// ExpectedWait estimates how long an operation of priority p would wait before it runs:
// operations queued ahead × MeanOperation ÷ Workers. Later arrivals of better priority are
// not foreseen. The gate itself never refuses; OPN admission compares this with MaxCryptoWait.
func (g *CryptoGate) ExpectedWait(p Priority) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	ahead := 0
	for i := range p.queue() + 1 {
		ahead += g.queues[i].operations
	}
	return time.Duration(ahead) * g.mean / time.Duration(g.workers)
}

// Waiting returns the number of queued calls per class, PriorityRenew first.
func (g *CryptoGate) Waiting() [PriorityClasses]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	var w [PriorityClasses]int
	for i := range g.queues {
		w[i/ranks] += g.queues[i].entries
	}
	return w
}

// Running returns the number of workers that are busy.
func (g *CryptoGate) Running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running
}

// Close answers what is queued with BadShutdown, lets running operations end and returns when
// all workers and their threads' goroutines have ended. It may be called more than once.
func (g *CryptoGate) Close() {
	g.mu.Lock()
	g.closed = true
	for o := g.takeLocked(); o != nil; o = g.takeLocked() {
		o.err = uastatus.New(ua.StatusBadShutdown, "crypto gate", errGateClosed)
		close(o.done)
	}
	g.mu.Unlock()
	g.wake.Broadcast()
	g.wg.Wait()
}
