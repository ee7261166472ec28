package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// roomy admits whatever these tests enqueue.
var roomy = CommandOptions{ReservedControlCommands: 64, MaxTenantControlCommands: 64, MaxPrincipalControlCommands: 64}

func put(t testing.TB, b *Inbox[string, int], control bool, names ...string) (all []*Pending[string, int]) {
	t.Helper()
	for _, n := range names {
		p, err := b.Enqueue(context.Background(), Command{Principal: alice, Control: control}, n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func numbered(letter string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(letter, i))
	}
	return names
}

// drain runs n commands and returns their names.
func drain(t testing.TB, b *Inbox[string, int], n int) string {
	t.Helper()
	var names []string
	for range n {
		p, err := b.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, p.Value())
		p.Complete(0)
	}
	return strings.Join(names, " ")
}

func TestInboxOrder(t *testing.T) {
	for _, c := range []struct {
		name          string
		control, data int
		want          string
	}{
		{"data waits for eight control commands", 10, 2, "c0 c1 c2 c3 c4 c5 c6 c7 d0 c8 c9 d1"},
		{"only control waits", 20, 0, strings.Join(numbered("c", 20), " ")},
		{"only data waits", 0, 10, strings.Join(numbered("d", 10), " ")},
		{"every ninth", 17, 3, "c0 c1 c2 c3 c4 c5 c6 c7 d0 c8 c9 c10 c11 c12 c13 c14 c15 d1 c16 d2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewInbox[string, int](commands(t, roomy))
			put(t, b, false, numbered("d", c.data)...)
			put(t, b, true, numbered("c", c.control)...)
			if got := drain(t, b, c.control+c.data); got != c.want {
				t.Errorf("order %s\n want %s", got, c.want)
			}
			wantEmpty(t, &b.governor.lanes)
		})
	}
	t.Run("control commands that ran alone count", func(t *testing.T) {
		b := NewInbox[string, int](commands(t, roomy))
		put(t, b, true, numbered("c", 12)...)
		got := drain(t, b, 10)
		put(t, b, false, "d0", "d1")
		if got += " " + drain(t, b, 4); got != "c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 d0 c10 c11 d1" {
			t.Error(got)
		}
	})
	t.Run("a data command starts the count again", func(t *testing.T) {
		b := NewInbox[string, int](commands(t, roomy))
		put(t, b, true, numbered("c", 5)...)
		got := drain(t, b, 5)
		put(t, b, false, "d0")
		got += " " + drain(t, b, 1)
		put(t, b, false, "d1")
		put(t, b, true, numbered("e", 9)...)
		if got += " " + drain(t, b, 10); got != "c0 c1 c2 c3 c4 d0 e0 e1 e2 e3 e4 e5 e6 e7 d1 e8" {
			t.Error(got)
		}
	})
}

func TestInboxRefusesWhatTheGovernorDoes(t *testing.T) {
	b := NewInbox[string, int](commands(t, CommandOptions{MaxCommands: 1}))
	put(t, b, false, "a")
	_, err := b.Enqueue(t.Context(), Command{Principal: alice}, "b")
	wantRefused(t, err, DataLane, CountFull)
	if got := drain(t, b, 1); got != "a" {
		t.Error(got)
	}
	put(t, b, false, "c")
}

func TestRunningCommandKeepsItsPlace(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name string
		end  func(p *Pending[string, int])
		want error
	}{
		{"completed", func(p *Pending[string, int]) { p.Complete(7) }, nil},
		{"failed", func(p *Pending[string, int]) { p.Fail(boom) }, boom},
		{"failed without saying how", func(p *Pending[string, int]) { p.Fail(nil) }, ErrUnknownOutcome},
		{"disposed", func(p *Pending[string, int]) { p.Dispose() }, ErrUnknownOutcome},
	} {
		for _, stopped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stopped %v", c.name, stopped), func(t *testing.T) {
				g := commands(t, CommandOptions{})
				b := NewInbox[string, int](g)
				put(t, b, false, "a")
				p, err := b.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				// A caller that goes away releases nothing and learns nothing.
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				if _, err := p.Wait(gone); !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
					t.Errorf("a caller that left: %v", err)
				}
				if stopped {
					b.Stop()
				}
				if n := g.Status().Node.Data.Count; n != 1 {
					t.Fatalf("%d held while one runs", n)
				}
				c.end(p)
				wantEmpty(t, &g.lanes)
				p.Complete(8)
				p.Fail(errors.New("too late"))
				p.Dispose()
				wantEmpty(t, &g.lanes)
				if r, err := p.Wait(gone); !errors.Is(err, c.want) || err == nil && r != 7 {
					t.Errorf("%d, %v; want %v", r, err, c.want)
				}
			})
		}
	}
}

func TestQueuedCommandCannotBeEndedByAnother(t *testing.T) {
	b := NewInbox[string, int](commands(t, CommandOptions{}))
	p := put(t, b, false, "a")[0]
	p.Complete(1)
	p.Dispose()
	if got := drain(t, b, 1); got != "a" {
		t.Error(got)
	}
	if r, err := p.Wait(t.Context()); r != 0 || err != nil {
		t.Errorf("%d, %v", r, err)
	}
}

func TestInboxStop(t *testing.T) {
	g := commands(t, CommandOptions{})
	b := NewInbox[string, int](g)
	queued := append(put(t, b, false, "d0", "d1"), put(t, b, true, "c0")...)
	b.Stop()
	b.Stop()
	for _, p := range queued {
		if _, err := p.Wait(t.Context()); !errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrResourceExhausted) {
			t.Errorf("%s: %v", p.Value(), err)
		}
	}
	_, err := b.Enqueue(t.Context(), Command{Principal: alice, Control: true}, "late")
	wantRefused(t, err, ControlLane, Stopped)
	if _, err := b.Next(t.Context()); !errors.Is(err, ErrInboxStopped) {
		t.Errorf("the reader: %v", err)
	}
	wantEmpty(t, &g.lanes)
}

func TestInboxReaderWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewInbox[string, int](commands(t, CommandOptions{}))
		got := make(chan string)
		go func() {
			defer close(got)
			for {
				p, err := b.Next(context.Background())
				if err != nil {
					got <- err.Error()
					return
				}
				got <- p.Value()
				p.Complete(len(p.Value()))
			}
		}()
		synctest.Wait() // the reader sleeps
		p := put(t, b, false, "one")[0]
		if s := <-got; s != "one" {
			t.Error(s)
		}
		if r, err := p.Wait(t.Context()); r != 3 || err != nil {
			t.Errorf("%d, %v", r, err)
		}
		synctest.Wait()
		b.Stop()
		if s := <-got; s != ErrInboxStopped.Error() {
			t.Error(s)
		}
		<-got
	})
}

func TestInboxReaderCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewInbox[string, int](commands(t, CommandOptions{}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := b.Next(ctx)
			done <- err
		}()
		synctest.Wait()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("two readers at once")
				}
			}()
			b.Next(t.Context())
		}()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		// The next reader finds what comes later, and not because it was woken.
		put(t, b, false, "a")
		if got := drain(t, b, 1); got != "a" {
			t.Error(got)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := commands(t, CommandOptions{})
		b := NewInbox[string, int](g)
		p := put(t, b, false, "a")[0]
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := p.Wait(ctx)
			done <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if n := g.Status().Node.Data.Count; n != 1 {
			t.Errorf("%d held after the waiter left", n)
		}
		if got := drain(t, b, 1); got != "a" {
			t.Error("the command did not run: ", got)
		}
	})
}

func TestInboxRaces(t *testing.T) {
	g := commands(t, roomy)
	b := NewInbox[string, int](g)
	var worker, callers sync.WaitGroup
	worker.Go(func() {
		for n := 0; ; n++ {
			p, err := b.Next(context.Background())
			if err != nil {
				return
			}
			if n%3 == 0 {
				p.Dispose()
			}
			p.Complete(len(p.Value()))
		}
	})
	for w := range 4 {
		callers.Go(func() {
			for i := range 500 {
				name := fmt.Sprint(w, "-", i)
				p, err := b.Enqueue(context.Background(), Command{Principal: alice, Control: i%2 == 0}, name)
				if err != nil {
					if !errors.Is(err, ErrResourceExhausted) {
						t.Error(err)
					}
					continue
				}
				if i%5 == 0 {
					continue
				}
				if r, err := p.Wait(context.Background()); err == nil && r != len(name) || err != nil && !errors.Is(err, ErrUnknownOutcome) {
					t.Errorf("%s: %d, %v", name, r, err)
				}
				if w == 0 && i == 250 {
					b.Stop()
				}
			}
		})
	}
	callers.Wait()
	b.Stop()
	worker.Wait()
	wantEmpty(t, &g.lanes)
}

func BenchmarkInbox(b *testing.B) {
	in := NewInbox[string, int](commands(b, CommandOptions{}))
	ctx, c := context.Background(), Command{Principal: alice, PayloadBytes: 100}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := in.Enqueue(ctx, c, ""); err != nil {
			b.Fatal(err)
		}
		p, _ := in.Next(ctx)
		p.Complete(0)
	}
}
