package addressspace

import (
	"runtime"
	"strconv"
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

// What a variable costs decides how many a server can hold.
func TestVariableCost(t *testing.T) {
	if raceEnabled {
		t.Skip("memory differs under the race detector")
	}
	const n = 50_000
	s := newSpace(t)
	ns := s.Namespace("urn:t")
	specs := make([]VariableSpec, n)
	for i := range specs {
		specs[i] = VariableSpec{Path: "Wide.V" + strconv.Itoa(i), Initial: float64(i)}
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := ns.AddVariables(specs...); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := int64(after.HeapAlloc-before.HeapAlloc) / n
	t.Logf("%d bytes per variable", each)
	if each > 800 {
		t.Errorf("%d bytes per variable, want ≤ 800", each)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(specs)
}
