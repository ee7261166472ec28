package addressspace

import (
	"sync"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

type recorder struct {
	mu     sync.Mutex
	values []*uabinary.DataValue
}

func (r *recorder) Changed(n *Node, v *uabinary.DataValue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.values = append(r.values, v)
}

func TestWatch(t *testing.T) {
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	v := ns.Variable("V", 1.0, Writable())
	n := v.Node()
	a, b := new(recorder), new(recorder)
	if n.Watched() {
		t.Error("watched")
	}
	n.Unwatch(a) // never watched: nothing happens
	n.Watch(a)
	n.Watch(b)
	_ = v.Set(2.0)
	writeValue(s, n.ID(), "", uabinary.Double(3))
	writeValue(s, n.ID(), "", uabinary.String("refused"))
	v.SetStatus(ua.StatusBadSensorFailure)
	if len(a.values) != 3 || len(b.values) != 3 || a.values[2] != n.Value() || a.values[0] == a.values[1] {
		t.Errorf("%d and %d changes", len(a.values), len(b.values))
	}
	n.Unwatch(a)
	_ = v.Set(4.0)
	n.Unwatch(b)
	_ = v.Set(5.0)
	if len(a.values) != 3 || len(b.values) != 4 || n.Watched() {
		t.Errorf("after Unwatch: %d and %d changes", len(a.values), len(b.values))
	}
}

// reentrant watches and unwatches from inside Changed.
type reentrant struct{ calls int }

func (r *reentrant) Changed(n *Node, v *uabinary.DataValue) {
	r.calls++
	n.Unwatch(r)
	n.Watch(&recorder{})
	_ = n.Value()
}

func TestWatcherMayUnwatch(t *testing.T) {
	v := newSpace(t).Namespace("urn:t").Variable("V", 1.0)
	r := new(reentrant)
	v.Node().Watch(r)
	_ = v.Set(2.0)
	_ = v.Set(3.0)
	if r.calls != 1 {
		t.Errorf("%d calls", r.calls)
	}
}

// Changes reach a watcher in their order, whoever makes them, and the last one
// told is the one that stays.
func TestWatchOrder(t *testing.T) {
	s := newSpace(t)
	v := s.Namespace("urn:t").Variable("V", 1.0)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				_ = v.Set(float64(g*1000 + i))
			}
		})
	}
	rounds := 0
	for rounds < 50 {
		rounds++
		r := new(recorder)
		v.Node().Watch(r)
		_ = v.Value()
		v.Node().Unwatch(r)
	}
	r := new(recorder)
	v.Node().Watch(r)
	first := v.Node().Value()
	wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	last := first
	if n := len(r.values); n > 0 {
		last = r.values[n-1]
	}
	if last != v.Node().Value() {
		t.Error("the last value told is not the value that stays")
	}
	next := make(map[int]int)
	for _, dv := range r.values {
		x, _ := dv.Value.Float64()
		g, i := int(x)/1000, int(x)%1000
		if i < next[g] {
			t.Fatalf("value %d of setter %d after %d", i, g, next[g])
		}
		next[g] = i
	}
}
