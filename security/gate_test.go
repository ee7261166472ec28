package security

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// hold occupies one worker until release is called.
func hold(t *testing.T, g *CryptoGate) (release func()) {
	t.Helper()
	started, end := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { g.Do(context.Background(), PriorityRenew, func() { close(started); <-end }) })
	<-started
	return sync.OnceFunc(func() { close(end); wg.Wait() })
}

func TestGateOrder_Overload8a(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewCryptoGate(1)
		defer g.Close()
		release := hold(t, g)
		var order []string
		var wg sync.WaitGroup
		for _, o := range []struct {
			name string
			p    Priority
		}{
			{"issue 1", PriorityIssue},
			{"issue 2", PriorityIssue},
			{"issue bootstrap", PriorityIssue.Preferred(1)},
			{"session 1", PrioritySession},
			{"issue trusted", PriorityIssue.Preferred(2)},
			{"renew 1", PriorityRenew},
			{"session trusted", PrioritySession.Preferred(9)},
			{"activate", PriorityActivate},
			{"session 2", PrioritySession.Preferred(-1)},
			{"renew trusted", PriorityRenew.Preferred(2)},
		} {
			wg.Go(func() { g.Do(t.Context(), o.p, func() { order = append(order, o.name) }) })
			synctest.Wait()
		}
		if w := g.Waiting(); w != [3]int{3, 3, 4} {
			t.Errorf("waiting: %v", w)
		}
		release()
		wg.Wait()
		want := []string{
			"renew trusted", "renew 1", "activate",
			"session trusted", "session 1", "session 2",
			"issue trusted", "issue bootstrap", "issue 1", "issue 2",
		}
		if !slices.Equal(order, want) {
			t.Errorf("order %q\nwant  %q", order, want)
		}
		if w := g.Waiting(); w != [3]int{} {
			t.Errorf("still waiting: %v", w)
		}
	})
}

func TestGateCancelledEntriesNeverRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewCryptoGate(1)
		defer g.Close()
		release := hold(t, g)
		defer release()
		cause := errors.New("connection closed")
		ctx, cancel := context.WithCancelCause(t.Context())
		var errs [5]error
		var ran []int
		var wg sync.WaitGroup
		for i := range errs {
			c := t.Context()
			switch i {
			case 0, 2, 4: // first, middle, last of the queue
				c = ctx
			}
			wg.Go(func() { errs[i] = g.Do(c, PriorityIssue, func() { ran = append(ran, i) }) })
			synctest.Wait()
		}
		cancel(cause)
		synctest.Wait()
		if w := g.Waiting(); w != [3]int{0, 0, 2} {
			t.Errorf("waiting after the end of the context: %v", w)
		}
		if wait := g.ExpectedWait(PriorityIssue); wait != 2*firstMeanOperation {
			t.Errorf("expected wait %v", wait)
		}
		release()
		wg.Wait()
		if !slices.Equal(ran, []int{1, 3}) {
			t.Errorf("ran %v", ran)
		}
		for i, err := range errs {
			if cancelled := i%2 == 0; cancelled != errors.Is(err, cause) || !cancelled && err != nil {
				t.Errorf("entry %d: %v", i, err)
			}
		}
		if err := g.Do(ctx, PriorityRenew, func() { t.Error("ran") }); !errors.Is(err, cause) {
			t.Errorf("ended before: %v", err)
		}
	})
}

func TestGateDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewCryptoGate(1)
		defer g.Close()
		release := hold(t, g)
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := g.Do(ctx, PriorityIssue, func() { t.Error("ran") })
		if uastatus.Code(err) != ua.StatusBadTimeout || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

// Once an operation runs, the end of its context does not make Do return before it: the
// operation works on the caller's memory.
func TestGateWaitsForARunningOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewCryptoGate(1)
		defer g.Close()
		ctx, cancel := context.WithCancel(t.Context())
		done := false
		err := g.Do(ctx, PriorityIssue, func() {
			cancel()
			time.Sleep(time.Second) // of the bubble's clock
			done = true
		})
		if err != nil || !done {
			t.Errorf("done %v, %v", done, err)
		}
	})
}

func TestGateExpectedWait_Overload8a(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewCryptoGate(2)
		defer g.Close()
		if w := g.ExpectedWait(PriorityIssue); w != 0 {
			t.Errorf("idle: %v", w)
		}
		for range 200 {
			g.DoN(t.Context(), PriorityIssue, 2, func() { time.Sleep(8 * time.Millisecond) })
		}
		mean := g.MeanOperation()
		if mean < 3900*time.Microsecond || mean > 4*time.Millisecond {
			t.Errorf("mean %v, want 4 ms: two operations in 8 ms", mean)
		}
		a, b := hold(t, g), hold(t, g)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer b()
		defer a()
		for range 3 {
			wg.Go(func() { g.DoN(t.Context(), PriorityIssue, 3, func() {}) })
			wg.Go(func() { g.DoN(t.Context(), PriorityRenew, 1, func() {}) })
		}
		synctest.Wait()
		for p, ahead := range map[Priority]int{PriorityRenew: 3, PriorityRenew.Preferred(1): 0, PrioritySession: 3, PriorityIssue.Preferred(1): 3, PriorityIssue: 12} {
			if w := g.ExpectedWait(p); w != time.Duration(ahead)*mean/2 {
				t.Errorf("priority %#x: %v, want %d × %v ÷ 2", p, w, ahead, mean)
			}
		}
	})
}

func TestGateClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewCryptoGate(1)
		release := hold(t, g)
		var queued error
		var wg sync.WaitGroup
		wg.Go(func() { queued = g.Do(t.Context(), PriorityRenew, func() { t.Error("ran") }) })
		synctest.Wait()
		closed := false
		wg.Go(func() { g.Close(); closed = true })
		synctest.Wait()
		if closed {
			t.Error("Close did not wait for the running operation")
		}
		release()
		wg.Wait()
		if uastatus.Code(queued) != ua.StatusBadShutdown {
			t.Errorf("queued: %v", queued)
		}
		if err := g.Do(t.Context(), PriorityRenew, func() { t.Error("ran") }); uastatus.Code(err) != ua.StatusBadShutdown {
			t.Errorf("after Close: %v", err)
		}
		g.Close()
	})
}

func TestGatePanicStaysInside(t *testing.T) {
	g := testGate(t, 1)
	for range 3 {
		if err := g.Do(t.Context(), PriorityRenew, func() { panic("x") }); uastatus.Code(err) != ua.StatusBadInternalError {
			t.Errorf("got %v", err)
		}
	}
	if err := g.Do(t.Context(), PriorityRenew, func() {}); err != nil || g.Running() != 0 {
		t.Errorf("afterwards: %v, %d running", err, g.Running())
	}
}

func TestGateWidth(t *testing.T) {
	if n := testGate(t, 0).Workers(); n != max(1, runtime.GOMAXPROCS(0)-1) {
		t.Errorf("default width %d", n)
	}
	g := testGate(t, 3)
	releases := []func(){hold(t, g), hold(t, g), hold(t, g)} // all three at once
	if g.Running() != 3 {
		t.Errorf("%d running", g.Running())
	}
	for _, r := range releases {
		r()
	}
}

// Many goroutines come, go and give up; everything ends and nothing stays queued.
func TestGateRandom(t *testing.T) {
	g := testGate(t, 2)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for j := range 50 {
				ctx, cancel := context.WithCancel(context.Background())
				if (i+j)%3 == 0 {
					wg.Go(cancel)
				}
				ran := false
				err := g.Do(ctx, Priority((i+j)%3).Preferred(j%3), func() { ran = true })
				if ran != (err == nil) {
					t.Errorf("ran %v, error %v", ran, err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if w := g.Waiting(); w != [3]int{} || g.Running() != 0 || g.ExpectedWait(PriorityIssue) != 0 {
		t.Errorf("left behind: %v waiting, %d running", w, g.Running())
	}
}
