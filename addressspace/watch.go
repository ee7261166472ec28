package addressspace

import (
	"slices"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// Watcher is told of every change of a node's stored value. It must be comparable,
// as a pointer is.
type Watcher interface {
	// Changed is called by the goroutine that changes the value, in the order
	// of the changes, one call at a time for each node. It must return soon and
	// must not set or write the value of n; reading, Watch and Unwatch are
	// allowed. v is immutable.
	Changed(n *Node, v *uabinary.DataValue)
}

// Watch adds w. A value read with [Node.Value] after Watch has returned is
// either current or followed by a call of Changed.
func (n *Node) Watch(w Watcher) {
	e := n.extend()
	e.watchMu.Lock()
	defer e.watchMu.Unlock()
	var list []Watcher
	if p := e.watchers.Load(); p != nil {
		list = *p
	}
	// A running notification walks the old list, which ends before w.
	list = append(list, w)
	e.watchers.Store(&list)
}

// Unwatch removes w. A call of Changed that is under way when Unwatch is called
// may still end after it.
func (n *Node) Unwatch(w Watcher) {
	e := n.ext.Load()
	if e == nil {
		return
	}
	e.watchMu.Lock()
	defer e.watchMu.Unlock()
	p := e.watchers.Load()
	if p == nil {
		return
	}
	i := slices.Index(*p, w)
	if i < 0 {
		return
	}
	if len(*p) == 1 {
		e.watchers.Store(nil)
		return
	}
	list := slices.Delete(slices.Clone(*p), i, i+1)
	e.watchers.Store(&list)
}

// Watched reports whether anybody watches n.
func (n *Node) Watched() bool {
	e := n.ext.Load()
	return e != nil && e.watchers.Load() != nil
}

// store publishes v as the value and tells the watchers. v must not change
// afterwards.
func (n *Node) store(v *uabinary.DataValue) {
	n.mu.Lock()
	n.storeLocked(v)
	n.mu.Unlock()
}

func (n *Node) storeLocked(v *uabinary.DataValue) {
	n.value.Store(v)
	// Watchers are looked up after the store: whoever watches later sees v.
	if e := n.ext.Load(); e != nil {
		if p := e.watchers.Load(); p != nil {
			for _, w := range *p {
				w.Changed(n, v)
			}
		}
	}
}

func (n *Node) tellDeleted() {
	e := n.ext.Load()
	if e == nil || e.watchers.Load() == nil {
		return
	}
	n.store(&uabinary.DataValue{
		Mask:   ua.DataValueStatusCode,
		Status: ua.StatusBadNodeIDUnknown,
	})
}
