package subscription

import (
	"sync"
)

// workers is the fixed set of goroutines for what may take host code or address space locks.
type workers struct {
	mu     sync.Mutex
	cond   sync.Cond
	jobs   []job // FIFO; each group and audit is in it at most once
	closed bool
	wg     sync.WaitGroup
}

type job interface{ run() }

func (w *workers) start(n int) {
	w.cond.L = &w.mu
	for range n {
		w.wg.Go(w.work)
	}
}

// add queues a sampling of g unless one is queued already.
func (w *workers) add(g *group) {
	if !g.waiting.Swap(true) {
		w.push(g)
	}
}

func (w *workers) addAudit(s *subscription) {
	if !s.auditing.Swap(true) {
		w.push(audit{s})
	}
}

func (w *workers) push(j job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.jobs = append(w.jobs, j)
		w.cond.Signal()
	}
}

func (w *workers) work() {
	for {
		w.mu.Lock()
		for len(w.jobs) == 0 && !w.closed {
			w.cond.Wait()
		}
		if w.closed {
			w.mu.Unlock()
			return
		}
		j := w.jobs[0]
		w.jobs[0] = nil
		if w.jobs = w.jobs[1:]; len(w.jobs) == 0 {
			w.jobs = nil
		}
		w.mu.Unlock()
		j.run()
	}
}

// close drops what is queued and waits for what runs.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	w.jobs = nil
	w.cond.Broadcast()
	w.mu.Unlock()
	w.wg.Wait()
}
