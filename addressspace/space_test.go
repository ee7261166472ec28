package addressspace

import (
	"runtime"
	"testing"
	"time"
)

func newSpace(t testing.TB) *Space {
	t.Helper()
	s, err := New(Options{ApplicationURI: "urn:test"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The issue: start-up with namespace 0 takes < 150 ms and < 40 MB.
func TestNewCost(t *testing.T) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	s := newSpace(t)
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	runtime.GC()
	var live runtime.MemStats
	runtime.ReadMemStats(&live)
	t.Logf("%d nodes, %v, %d KiB allocated, %d KiB live", s.Len(), took, allocated>>10, (live.HeapAlloc-before.HeapAlloc)>>10)
	if allocated > 10<<20 {
		t.Errorf("New allocates %d bytes, want < 10 MiB", allocated)
	}
	runtime.KeepAlive(s)
}
