// Package buffer is the one pool of byte buffers of the data path.
//
// A buffer has one owner at a time. Whoever gets a buffer releases it exactly
// once, or hands it on to a function whose name or comment says that it takes
// the buffer over. After Release the memory belongs to somebody else. The
// build tag bufdebug overwrites released buffers, panics when one is released
// twice and remembers where each outstanding one was taken.
package buffer

import "sync"

// Class sizes in bytes. A chunk of 65,535 bytes, the largest buffer size that
// opc.tcp peers usually offer, fits the third class; the last one holds the
// default maximum message of 4 MiB together with its last chunk.
const (
	Size1K   = 1 << 10
	Size8K   = 8 << 10
	Size64K  = 64 << 10
	Size256K = 256 << 10
	Size1M   = 1 << 20
	Size4M   = 4<<20 + 64<<10
)

const classes = 6

// Buffer is pooled memory. B starts with length 0 and the capacity of its
// class; the owner may reslice and append within that capacity. Release finds
// the class by the backing array it was made with, so B may also be replaced.
type Buffer struct {
	B     []byte
	mem   []byte // whole backing array
	class int8   // index into pools, -1 = not pooled
	debug debugInfo
}

var pools [classes]sync.Pool

// Get returns a buffer with len(B) == 0 and cap(B) ≥ size. Sizes beyond the
// largest class are allocated and, on Release, left to the collector.
func Get(size int) *Buffer {
	c := classOf(size)
	if c < 0 {
		mem := make([]byte, size)
		b := &Buffer{B: mem[:0], mem: mem, class: -1}
		b.debug.taken(b)
		return b
	}
	b, _ := pools[c].Get().(*Buffer)
	if b == nil {
		mem := make([]byte, ClassSize(size))
		b = &Buffer{mem: mem, class: int8(c)}
	}
	b.B = b.mem[:0]
	b.debug.taken(b)
	return b
}

// Release gives the buffer back. It is a no-op on nil.
func (b *Buffer) Release() {
	if b == nil {
		return
	}
	b.debug.returned(b)
	b.B = nil
	if b.class >= 0 {
		pools[b.class].Put(b)
	}
}

// Discard ends the ownership as Release does, but leaves the memory to the
// collector: somebody else may still read it. It is a no-op on nil.
func (b *Buffer) Discard() {
	if b == nil {
		return
	}
	b.mem = nil // which bufdebug would overwrite
	b.debug.returned(b)
	b.B = nil
}

// Cap is the size of the backing array, the amount that budgets charge.
func (b *Buffer) Cap() int { return len(b.mem) }

// Whole is the complete backing array, for callers that fill it by position.
func (b *Buffer) Whole() []byte { return b.mem }

// ClassSize is the capacity that Get(size) will have.
func ClassSize(size int) int {
	switch {
	case size <= Size1K:
		return Size1K
	case size <= Size8K:
		return Size8K
	case size <= Size64K:
		return Size64K
	case size <= Size256K:
		return Size256K
	case size <= Size1M:
		return Size1M
	case size <= Size4M:
		return Size4M
	}
	return size
}

func classOf(size int) int {
	switch {
	case size <= Size1K:
		return 0
	case size <= Size8K:
		return 1
	case size <= Size64K:
		return 2
	case size <= Size256K:
		return 3
	case size <= Size1M:
		return 4
	case size <= Size4M:
		return 5
	}
	return -1
}
