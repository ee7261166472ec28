package transport

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/internal/buffer"
)

// fakeSocket takes room bytes at once; Write waits for more room.
type fakeSocket struct {
	mu       sync.Mutex
	cond     sync.Cond
	room     int
	got      bytes.Buffer
	tries    int
	err      error
	failed   error
	timedOut bool
	drained  atomic.Int32
	deadline *time.Timer
	expired  bool
}

func newFakeSocket(room int) *fakeSocket {
	s := &fakeSocket{room: room}
	s.cond.L = &s.mu
	return s
}

func (s *fakeSocket) TryWrite(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	if s.err != nil {
		return 0, s.err
	}
	if s.expired {
		return 0, os.ErrDeadlineExceeded // as RawConn.Write does
	}
	n := min(len(b), s.room)
	s.room -= n
	s.got.Write(b[:n])
	return n, nil
}

func (s *fakeSocket) Write(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(b) > 0 {
		if s.expired {
			return n, os.ErrDeadlineExceeded
		}
		if s.room == 0 {
			s.cond.Wait()
			continue
		}
		k := min(len(b), s.room)
		s.room -= k
		s.got.Write(b[:k])
		b, n = b[k:], n+k
	}
	return n, nil
}

func (s *fakeSocket) ExpireWrites(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deadline != nil {
		s.deadline.Stop()
	}
	s.expired = false
	if at.IsZero() {
		return
	}
	s.deadline = time.AfterFunc(time.Until(at), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expired = true
		s.cond.Broadcast()
	})
}

func (s *fakeSocket) WriteFailed(err error, timeout bool) { s.failed, s.timedOut = err, timeout }
func (s *fakeSocket) Drained()                            { s.drained.Add(1) }

func (s *fakeSocket) take(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room += n
	s.cond.Broadcast()
}

func newOutbox(s *fakeSocket, bound int) *Outbox {
	o := &Outbox{}
	l := Limits{WriteQueueBytes: bound}.Resolved()
	o.Init(s, &l)
	return o
}

func put(o *Outbox, b []byte) error {
	o.Lock()
	if err := o.Admit(len(b)); err != nil {
		o.Unlock()
		return err
	}
	copy(o.Grow(len(b)), b)
	o.UnlockAndFlush()
	return nil
}

func checkBuffers(t *testing.T) {
	before := buffer.Outstanding()
	t.Cleanup(func() {
		if n := buffer.Outstanding() - before; n != 0 {
			t.Errorf("%d buffers left\n%s", n, buffer.Leaks())
		}
	})
}

func TestOutboxGathers(t *testing.T) {
	checkBuffers(t)
	s := newFakeSocket(1 << 30)
	o := newOutbox(s, 0)
	o.Hold() // the reader
	for range 10 {
		_ = put(o, make([]byte, 100))
	}
	o.Hold() // a request that is answered from elsewhere
	o.Leave()
	if s.tries != 0 {
		t.Fatal("written before the batch ended")
	}
	o.Leave()
	if s.tries != 1 || s.got.Len() != 1000 {
		t.Fatal(s.tries, s.got.Len())
	}
	o.Hold()
	for range 12 {
		_ = put(o, make([]byte, FlushAt/10))
	}
	if s.tries != 2 {
		t.Fatal("not written at FlushAt", s.tries)
	}
	o.Leave()
	_ = put(o, []byte("alone"))
	if s.tries != 4 {
		t.Fatal(s.tries)
	}
	o.Finish(nil, time.Second)
	if err := put(o, []byte("late")); !errors.Is(err, ErrOutboxClosed) {
		t.Fatal(err)
	}
}

func TestOutboxSlowPeer(t *testing.T) {
	checkBuffers(t)
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSocket(1000)
		o := newOutbox(s, 200_000)
		piece := make([]byte, 10_000)
		n := 0
		for ; n < 50; n++ {
			if err := put(o, piece); err != nil {
				if !errors.Is(err, ErrSlowReader) {
					t.Fatal(err)
				}
				break
			}
		}
		if n != 20 || !o.Congested() || o.Pending() != 199_000 {
			t.Fatal("queued", n, "pending", o.Pending())
		}
		s.take(189_000)
		synctest.Wait()
		if o.Congested() || s.drained.Load() == 0 || o.Pending() > 50_000 {
			t.Fatal("after draining: pending", o.Pending(), "drained", s.drained.Load())
		}
		s.take(1 << 20)
		synctest.Wait()
		if s.got.Len() != 200_000 || o.Pending() != 0 {
			t.Fatal(s.got.Len(), o.Pending())
		}
		// The time limit of that is over; it does not meet a later write.
		time.Sleep(time.Minute)
		_ = put(o, []byte("x"))
		if s.got.Len() != 200_001 || s.failed != nil {
			t.Fatal(s.got.Len(), s.failed)
		}
		// A message larger than the bound goes into an empty queue.
		s.room = 0
		o.Lock()
		if err := o.Admit(1 << 20); err != nil {
			t.Fatal(err)
		}
		o.Unlock()
		// No progress for the time limit.
		_ = put(o, piece)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if s.failed == nil || !s.timedOut {
			t.Fatal(s.failed, s.timedOut)
		}
		if err := put(o, piece); !errors.Is(err, ErrOutboxClosed) {
			t.Fatal(err)
		}
		o.Finish([]byte("x"), time.Second)
	})
}

func TestOutboxFinish(t *testing.T) {
	checkBuffers(t)
	for _, tc := range []struct {
		name string
		room int           // before Finish
		d    time.Duration // of Finish
		more int           // while it waits
		want int
		took time.Duration
	}{
		{"written at once", 1 << 20, time.Second, 0, 5003, 0},
		{"waits for the peer", 100, time.Second, 1 << 20, 5003, 500 * time.Millisecond},
		{"gives up", 100, time.Second, 0, 100, time.Second},
		{"abrupt", 100, 0, 0, 100, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeSocket(tc.room)
				o := newOutbox(s, 0)
				o.Hold() // an unfinished batch does not keep the end back
				_ = put(o, make([]byte, 5000))
				if tc.d == 0 {
					o.Leave()
				}
				start := time.Now()
				if tc.more > 0 {
					time.AfterFunc(500*time.Millisecond, func() { s.take(tc.more) })
				}
				o.Finish([]byte("ERR"), tc.d)
				if s.got.Len() != tc.want || time.Since(start) != tc.took {
					t.Fatalf("%d bytes after %v, want %d after %v", s.got.Len(), time.Since(start), tc.want, tc.took)
				}
			})
		})
	}
}

func TestOutboxWriteError(t *testing.T) {
	checkBuffers(t)
	s := newFakeSocket(1000)
	s.err = errors.New("reset")
	o := newOutbox(s, 0)
	_ = put(o, []byte("x"))
	if s.failed == nil || s.timedOut {
		t.Fatal(s.failed)
	}
	if err := put(o, []byte("x")); !errors.Is(err, ErrOutboxClosed) {
		t.Fatal(err)
	}
	o.Finish(nil, time.Second)
}

// Messages of concurrent senders arrive whole and complete, however the socket
// takes them.
func TestOutboxConcurrent(t *testing.T) {
	checkBuffers(t)
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSocket(0)
		o := newOutbox(s, 1<<30)
		stop := make(chan struct{})
		var taker sync.WaitGroup
		taker.Go(func() {
			r := rand.New(rand.NewPCG(3, 4))
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					s.take(r.IntN(200_000))
				}
			}
		})
		var wg sync.WaitGroup
		total := 0
		for g := range 8 {
			total += 200 * (g*500 + 10)
			wg.Go(func() {
				for i := range 200 {
					if g == 0 && i%10 == 0 {
						o.Hold()
					}
					if err := put(o, bytes.Repeat([]byte{byte(g)}, g*500+10)); err != nil {
						t.Error(err)
					}
					if g == 0 && i%10 == 9 {
						o.Leave()
					}
					if i%50 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
		wg.Wait()
		o.Finish([]byte{99}, time.Minute)
		close(stop)
		taker.Wait()
		b := s.got.Bytes()
		if len(b) != total+1 || b[total] != 99 {
			t.Fatal(len(b), "want", total+1)
		}
		for i := 0; i < total; {
			n := int(b[i])*500 + 10
			for _, x := range b[i : i+n] {
				if x != b[i] {
					t.Fatal("messages mixed at", i)
				}
			}
			i += n
		}
	})
}
