package isolation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func always[T any](*Entry[T]) bool { return true }

func popAll(q *Queue[int], run func(*Entry[int]) bool) (got []int) {
	for e := q.Pop(run); e != nil; e = q.Pop(run) {
		got = append(got, e.Value)
	}
	return got
}

func ownersOf(t testing.TB, weights ...int) []*Owner {
	p := NewProvider(tiny(FairShare, 10, 0, 0, 0, 100))
	var out []*Owner
	for i, w := range weights {
		o := issue(t, p, fmt.Sprint("o", i), Established)
		o.weight = w
		out = append(out, o)
	}
	return out
}

func TestQueueKeepsATurnForTheWeight(t *testing.T) {
	o := ownersOf(t, 2, 1)
	for _, c := range []struct {
		fifo bool
		want []int
	}{{false, []int{1, 2, 5, 3, 4, 6}}, {true, []int{1, 2, 3, 4, 5, 6}}} {
		q := NewQueue[int](c.fifo)
		for v := 1; v <= 4; v++ {
			q.Push(&Entry[int]{Value: v, Owner: o[0]})
		}
		for v := 5; v <= 6; v++ {
			q.Push(&Entry[int]{Value: v, Owner: o[1]})
		}
		if got := popAll(q, always); !slices.Equal(got, c.want) {
			t.Errorf("fifo %v: %v, want %v", c.fifo, got, c.want)
		}
		if q.Len() != 0 || q.Owners() != 0 {
			t.Errorf("%d entries, %d owners left", q.Len(), q.Owners())
		}
	}
}

func TestQueuePassesABlockedOwnerOver(t *testing.T) {
	o := ownersOf(t, 1, 1, 1)
	q := NewQueue[int](false)
	for i, owner := range o {
		for v := range 2 {
			q.Push(&Entry[int]{Value: 10*i + v, Owner: owner})
		}
	}
	asked := map[*Owner]int{}
	run := func(e *Entry[int]) bool { asked[e.Owner]++; return e.Owner != o[0] }
	if e := q.Pop(run); e == nil || e.Owner != o[1] || asked[o[0]] != 1 {
		t.Fatalf("got %+v after asking the blocked owner %d times", e, asked[o[0]])
	}
	if got := popAll(q, run); !slices.Equal(got, []int{20, 11, 21}) {
		t.Errorf("the others: %v", got)
	}
	if got := popAll(q, always); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("once it may run: %v", got)
	}
}

func TestQueueCancelKeepsTheTurn(t *testing.T) {
	o := ownersOf(t, 2, 1)
	q := NewQueue[int](false)
	var entries []*Entry[int]
	for v := range 4 {
		e := &Entry[int]{Value: v, Owner: o[0]}
		entries = append(entries, e)
		q.Push(e)
	}
	q.Push(&Entry[int]{Value: 9, Owner: o[1]})
	if e := q.Pop(always); e.Value != 0 {
		t.Fatal(e.Value)
	}
	if !q.Remove(entries[1]) || q.Remove(entries[1]) || q.Remove(entries[0]) {
		t.Error("Remove must report once, and only of what waits")
	}
	if got := popAll(q, always); !slices.Equal(got, []int{2, 9, 3}) {
		t.Errorf("%v: the second place of the turn was kept", got)
	}
}

func TestQueueDisplacesTheNewestOfTheHeaviest(t *testing.T) {
	o := ownersOf(t, 1, 1, 1)
	q := NewQueue[int](false)
	for v := range 5 {
		q.Push(&Entry[int]{Value: v, Owner: o[0]})
	}
	q.Push(&Entry[int]{Value: 7, Owner: o[1]})
	holds := func(e *Entry[int]) int64 { return map[*Owner]int64{o[0]: 50, o[1]: 20}[e.Owner] }
	if e := q.Displace(o[0], 10, holds); e != nil {
		t.Errorf("the heaviest displaced itself: %v", e.Value)
	}
	if e := q.Displace(o[2], 50, holds); e != nil {
		t.Errorf("nobody holds more than most: %v", e.Value)
	}
	if e := q.Displace(o[2], 20, holds); e == nil || e.Value != 4 {
		t.Errorf("displaced %v", e)
	}
	if got := len(q.Drain()); got != 5 || q.Len() != 0 || q.Owners() != 0 {
		t.Errorf("drained %d, %d left", got, q.Len())
	}
}

// Whatever is pushed comes out once, by whatever way.
func TestQueueLosesNothing(t *testing.T) {
	o := ownersOf(t, 1, 2, 3, 1, 5)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 3))
		q := NewQueue[int](seed%5 == 0)
		out := map[int]int{}
		var waiting []*Entry[int]
		next := 0
		for range 500 {
			switch r.IntN(5) {
			case 0, 1:
				e := &Entry[int]{Value: next, Owner: o[r.IntN(len(o))]}
				next++
				waiting = append(waiting, e)
				q.Push(e)
			case 2:
				blocked := o[r.IntN(len(o))]
				if e := q.Pop(func(e *Entry[int]) bool { return e.Owner != blocked }); e != nil {
					out[e.Value]++
				}
			case 3:
				if len(waiting) > 0 {
					if e := waiting[r.IntN(len(waiting))]; q.Remove(e) {
						out[e.Value]++
					}
				}
			case 4:
				if e := q.Displace(o[r.IntN(len(o))], int64(r.IntN(5)), func(e *Entry[int]) int64 { return int64(e.Value % 7) }); e != nil {
					out[e.Value]++
				}
			}
			if q.Len()+len(out) != next {
				t.Fatalf("seed %d: %d in, %d out, %d waiting", seed, next, len(out), q.Len())
			}
		}
		for _, e := range q.Drain() {
			out[e.Value]++
		}
		for v := range next {
			if out[v] != 1 {
				t.Fatalf("seed %d: entry %d came out %d times", seed, v, out[v])
			}
		}
	}
}

func BenchmarkQueue(b *testing.B) {
	b.ReportAllocs()
	o := ownersOf(b, 1, 1, 1, 1)
	q := NewQueue[int](false)
	for i := range 64 {
		q.Push(&Entry[int]{Owner: o[i%4]})
	}
	for b.Loop() {
		q.Push(q.Pop(always))
	}
}

// Entries of several owners are taken out in one go; the others keep their order.
func TestQueueRemoveAll(t *testing.T) {
	o := ownersOf(t, 1, 1, 1)
	for mask := range 1 << 6 { // every subset of six entries
		q := NewQueue[int](false)
		for i := range 6 {
			q.Push(&Entry[int]{Value: i, Owner: o[i%3]})
		}
		gone := q.RemoveAll(func(e *Entry[int]) bool { return mask>>e.Value&1 == 1 })
		for _, e := range gone {
			if mask>>e.Value&1 == 0 || q.Remove(e) {
				t.Fatalf("mask %b: took out %d, or left it in", mask, e.Value)
			}
		}
		left := 0
		last := [3]int{-1, -1, -1}
		for e := q.Pop(always); e != nil; e = q.Pop(always) {
			left++
			if mask>>e.Value&1 == 1 || e.Value < last[e.Value%3] {
				t.Fatalf("mask %b: %d came", mask, e.Value)
			}
			last[e.Value%3] = e.Value
		}
		if left+len(gone) != 6 || q.Len() != 0 || q.Owners() != 0 {
			t.Fatalf("mask %b: %d out, %d left", mask, len(gone), left)
		}
	}
}
