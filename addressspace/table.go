package addressspace

import (
	"encoding/binary"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/breakwater-ua/breakwater/uabinary"
)

const (
	pageBits = 9
	pageSize = 1 << pageBits
)

type page [pageSize]atomic.Pointer[Node]

// table finds the nodes of one namespace. Numeric ids live in dense pages, as
// long as that wastes little (see densePage), everything else in maps. Only
// the holder of Space.mu changes a table; lookups take no lock, save for nodes
// that were added to a map since its last promotion.
type table struct {
	pages  atomic.Pointer[[]atomic.Pointer[page]]
	sparse index // numeric ids outside the pages, by their 4 bytes
	names  index // string ids, by their bytes
	guids  index // GUID ids, by their 16 bytes
	opaque index // opaque ids, by their bytes
	count  atomic.Int64
}

// densePage reports whether the page of a numeric id is worth having: pages
// cost at most 256 KiB plus 256 bytes for every node of the namespace.
func (t *table) densePage(n uint32) bool {
	return int64(n>>pageBits) < 64+t.count.Load()/16
}

func (t *table) numeric(n uint32) *Node {
	if pages := t.pages.Load(); pages != nil {
		if i := int(n >> pageBits); i < len(*pages) {
			if p := (*pages)[i].Load(); p != nil {
				if node := p[n&(pageSize-1)].Load(); node != nil {
					return node
				}
			}
		}
	}
	if t.sparse.empty() {
		return nil
	}
	var key [4]byte
	binary.LittleEndian.PutUint32(key[:], n)
	return t.sparse.get(key[:])
}

func (t *table) keyed(id uabinary.NodeID) *Node {
	switch id.Type {
	case uabinary.IDString:
		return t.names.get(id.Bytes)
	case uabinary.IDGUID:
		return t.guids.get(id.Bytes)
	case uabinary.IDOpaque:
		return t.opaque.get(id.Bytes)
	}
	return nil
}

// put adds n under its id. The caller holds Space.mu and knows the id is free.
func (t *table) put(n *Node) {
	t.count.Add(1)
	switch n.id.Type {
	case uabinary.IDNumeric:
		if slot := t.slot(n.id.Numeric); slot != nil {
			slot.Store(n)
			return
		}
		var key [4]byte
		binary.LittleEndian.PutUint32(key[:], n.id.Numeric)
		t.sparse.put(string(key[:]), n)
	case uabinary.IDString:
		t.names.put(string(n.id.Bytes), n)
	case uabinary.IDGUID:
		t.guids.put(string(n.id.Bytes), n)
	case uabinary.IDOpaque:
		t.opaque.put(string(n.id.Bytes), n)
	}
}

// slot returns the dense slot of a numeric id, making its page when that is
// worth it; nil when the id belongs into the sparse map.
func (t *table) slot(n uint32) *atomic.Pointer[Node] {
	i := int(n >> pageBits)
	pages := t.pages.Load()
	if pages == nil || i >= len(*pages) {
		if !t.densePage(n) {
			return nil
		}
		size := i + 1
		if pages != nil {
			size = max(size, 2*len(*pages))
		}
		grown := make([]atomic.Pointer[page], size)
		if pages != nil {
			for k := range *pages {
				grown[k].Store((*pages)[k].Load())
			}
		}
		t.pages.Store(&grown)
		pages = &grown
	}
	p := (*pages)[i].Load()
	if p == nil {
		if !t.densePage(n) {
			return nil
		}
		p = new(page)
		(*pages)[i].Store(p)
	}
	return &p[n&(pageSize-1)]
}

// remove takes n out. The caller holds Space.mu.
func (t *table) remove(n *Node) {
	t.count.Add(-1)
	switch n.id.Type {
	case uabinary.IDNumeric:
		if pages := t.pages.Load(); pages != nil {
			if i := int(n.id.Numeric >> pageBits); i < len(*pages) {
				if p := (*pages)[i].Load(); p != nil && p[n.id.Numeric&(pageSize-1)].CompareAndSwap(n, nil) {
					return
				}
			}
		}
		var key [4]byte
		binary.LittleEndian.PutUint32(key[:], n.id.Numeric)
		t.sparse.put(string(key[:]), nil)
	case uabinary.IDString:
		t.names.put(string(n.id.Bytes), nil)
	case uabinary.IDGUID:
		t.guids.put(string(n.id.Bytes), nil)
	case uabinary.IDOpaque:
		t.opaque.put(string(n.id.Bytes), nil)
	}
}

// settle promotes what the maps gathered, so that lookups are lock-free again.
func (t *table) settle() {
	for _, ix := range []*index{&t.sparse, &t.names, &t.guids, &t.opaque} {
		ix.settle()
	}
}

func (t *table) all(f func(*Node) bool) bool {
	if pages := t.pages.Load(); pages != nil {
		for i := range *pages {
			p := (*pages)[i].Load()
			if p == nil {
				continue
			}
			for k := range p {
				if n := p[k].Load(); n != nil && !f(n) {
					return false
				}
			}
		}
	}
	for _, ix := range []*index{&t.sparse, &t.names, &t.guids, &t.opaque} {
		ix.settle()
		if m := ix.settled.Load(); m != nil {
			for _, n := range *m {
				if !f(n) {
					return false
				}
			}
		}
	}
	return true
}

// index maps id bytes to nodes. The settled map is immutable and read without a
// lock; recent holds what came since (nil: deleted) and is merged into a new
// settled map when it has grown in proportion or has cost enough locked reads,
// so that n single additions cost O(n) in all.
type index struct {
	settled atomic.Pointer[map[string]*Node]
	pending atomic.Int64 // len(recent); zero lets get skip the lock
	locked  atomic.Int64 // reads that took the lock since the last merge

	mu     sync.RWMutex
	recent map[string]*Node
}

func (ix *index) empty() bool { return ix.pending.Load() == 0 && ix.settled.Load() == nil }

func (ix *index) get(key []byte) *Node {
	if ix.pending.Load() != 0 {
		ix.mu.RLock()
		n, ok := ix.recent[string(key)]
		size := len(ix.recent)
		ix.mu.RUnlock()
		if m := ix.settled.Load(); m != nil {
			size += len(*m)
		}
		if ix.locked.Add(1) > int64(size) {
			ix.settle()
		}
		if ok {
			return n
		}
	}
	// Loaded after recent was asked: a merge publishes settled before it
	// empties recent, so a node is always in one of the two.
	if m := ix.settled.Load(); m != nil {
		return (*m)[string(key)]
	}
	return nil
}

// put sets or, with nil, deletes a key.
func (ix *index) put(key string, n *Node) {
	ix.mu.Lock()
	if ix.recent == nil {
		ix.recent = make(map[string]*Node)
	}
	ix.recent[key] = n
	ix.pending.Store(int64(len(ix.recent)))
	size := 0
	if m := ix.settled.Load(); m != nil {
		size = len(*m)
	}
	if len(ix.recent) > 64+size {
		ix.merge()
	}
	ix.mu.Unlock()
}

func (ix *index) settle() {
	if ix.pending.Load() == 0 {
		return
	}
	ix.mu.Lock()
	ix.merge()
	ix.mu.Unlock()
}

func (ix *index) merge() {
	if len(ix.recent) == 0 {
		return
	}
	var merged map[string]*Node
	if m := ix.settled.Load(); m == nil {
		merged = make(map[string]*Node, len(ix.recent))
	} else {
		merged = maps.Clone(*m)
	}
	for k, n := range ix.recent {
		if n == nil {
			delete(merged, k)
		} else {
			merged[k] = n
		}
	}
	ix.settled.Store(&merged)
	ix.recent = nil
	ix.pending.Store(0)
	ix.locked.Store(0)
}
