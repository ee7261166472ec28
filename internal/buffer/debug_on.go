//go:build bufdebug

package buffer

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
)

// Debug reports whether the bufdebug build tag is set.
const Debug = true

const poison = 0xDB

type debugInfo struct {
	live bool
	pcs  []uintptr
}

var live struct {
	mu sync.Mutex
	m  map[*Buffer]struct{}
}

func (*debugInfo) taken(b *Buffer) {
	pcs := make([]uintptr, 16)
	n := runtime.Callers(3, pcs)
	live.mu.Lock()
	defer live.mu.Unlock()
	b.debug = debugInfo{live: true, pcs: pcs[:n]}
	if live.m == nil {
		live.m = make(map[*Buffer]struct{})
	}
	live.m[b] = struct{}{}
}

func (*debugInfo) returned(b *Buffer) {
	live.mu.Lock()
	if !b.debug.live {
		live.mu.Unlock()
		panic("buffer: released twice; last taken at\n" + b.where())
	}
	b.debug.live = false
	delete(live.m, b)
	live.mu.Unlock()
	for i := range b.mem {
		b.mem[i] = poison
	}
}

func (b *Buffer) where() string {
	var sb strings.Builder
	frames := runtime.CallersFrames(b.debug.pcs)
	for {
		f, more := frames.Next()
		fmt.Fprintf(&sb, "\t%s %s:%d\n", f.Function, f.File, f.Line)
		if !more {
			return sb.String()
		}
	}
}

// Outstanding is the number of buffers taken and not released.
func Outstanding() int {
	live.mu.Lock()
	defer live.mu.Unlock()
	return len(live.m)
}

// Leaks lists where each outstanding buffer was taken.
func Leaks() string {
	live.mu.Lock()
	defer live.mu.Unlock()
	var sb strings.Builder
	for b := range live.m {
		fmt.Fprintf(&sb, "buffer of %d bytes taken at\n%s", len(b.mem), b.where())
	}
	return sb.String()
}
