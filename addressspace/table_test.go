package addressspace

import (
	"fmt"
	"sync"
	"testing"

	"github.com/breakwater-ua/breakwater/uabinary"
)

func idOf(t testing.TB, s string) uabinary.NodeID {
	t.Helper()
	id, err := uabinary.ParseNodeID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestTableFindsEveryKindOfID(t *testing.T) {
	var tab table
	ids := []string{"i=0", "i=1", "i=511", "i=512", "i=32767", "i=100000", "i=4294967295", "s=a", "s=",
		"g=09087e75-8e5e-499b-954f-f2a9603db28a", "b=AAEC", "s=i=1"}
	nodes := make([]*Node, len(ids))
	for i, s := range ids {
		nodes[i] = &Node{id: idOf(t, s)}
		tab.put(nodes[i])
	}
	find := func(id uabinary.NodeID) *Node {
		if id.Type == uabinary.IDNumeric {
			return tab.numeric(id.Numeric)
		}
		return tab.keyed(id)
	}
	for round := range 3 {
		for i := range ids {
			if got := find(nodes[i].id); got != nodes[i] {
				t.Errorf("round %d: %s not found", round, ids[i])
			}
		}
		tab.settle()
	}
	for _, s := range []string{"i=2", "i=513", "i=99999", "i=4294967294", "s=b", "b=AAE=", "g=09087e75-8e5e-499b-954f-f2a9603db28b"} {
		if find(idOf(t, s)) != nil {
			t.Errorf("%s is there", s)
		}
	}
	seen := 0
	tab.all(func(*Node) bool { seen++; return true })
	if seen != len(ids) {
		t.Errorf("all sees %d of %d", seen, len(ids))
	}
	for i := range ids {
		tab.remove(nodes[i])
		if find(nodes[i].id) != nil {
			t.Errorf("%s is there after its removal", ids[i])
		}
	}
	if tab.count.Load() != 0 {
		t.Errorf("count is %d", tab.count.Load())
	}
}

// Numeric ids spread over the whole range must not cost a page each.
func TestTableSparseIDsCostNoPages(t *testing.T) {
	var tab table
	for i := range uint32(10_000) {
		tab.put(&Node{id: uabinary.NumericID(1, i*429_000)})
	}
	pages := 0
	if p := tab.pages.Load(); p != nil {
		for i := range *p {
			if (*p)[i].Load() != nil {
				pages++
			}
		}
		if len(*p) > 2048 {
			t.Errorf("page list of %d", len(*p))
		}
	}
	if limit := 64 + 10_000/16; pages > limit {
		t.Errorf("%d pages, want ≤ %d", pages, limit)
	}
	for i := range uint32(10_000) {
		if tab.numeric(i*429_000) == nil {
			t.Fatalf("%d not found", i*429_000)
		}
	}
}

// A lookup during additions and merges finds what was there before it began.
func TestIndexConcurrent(t *testing.T) {
	var tab table
	const n = 3000
	var wg sync.WaitGroup
	added := make(chan int, n)
	wg.Go(func() {
		defer close(added)
		for i := range n {
			tab.put(&Node{id: uabinary.StringID(1, fmt.Sprintf("n%d", i))})
			added <- i
		}
	})
	for range 2 {
		wg.Go(func() {
			for i := range added {
				if tab.keyed(uabinary.StringID(1, fmt.Sprintf("n%d", i))) == nil {
					t.Errorf("n%d was added and is not found", i)
				}
				if tab.keyed(uabinary.StringID(1, "n0")) == nil {
					t.Error("n0 is not found")
				}
			}
		})
	}
	wg.Wait()
}

func TestLookupAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("allocation counts differ under the race detector")
	}
	s := newSpace(t)
	ns := s.Namespace("urn:x")
	ns.Variable("a.b.c", 1.0)
	ns.Variable("d", 1.0, NodeID(idOf(t, "ns=2;g=09087e75-8e5e-499b-954f-f2a9603db28a")))
	ns.Variable("e", 1.0, NumericNodeID(4_000_000_000))
	for _, id := range []uabinary.NodeID{i0(2258), ns.NodeID("a.b.c"), idOf(t, "ns=2;g=09087e75-8e5e-499b-954f-f2a9603db28a"), uabinary.NumericID(2, 4_000_000_000)} {
		if s.Lookup(id) == nil {
			t.Fatalf("%s not found", id)
		}
		for range 100 { // promotion of recent additions allocates, once
			s.Lookup(id)
		}
		if n := testing.AllocsPerRun(100, func() { s.Lookup(id) }); n != 0 {
			t.Errorf("%s: %v allocations", id, n)
		}
	}
}
