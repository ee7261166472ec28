//go:build bufdebug

package buffer

import (
	"strings"
	"testing"
)

func TestDebugPoisonAndDoubleRelease(t *testing.T) {
	start := Outstanding()
	b := Get(10)
	b.B = append(b.B, 1, 2, 3)
	alias := b.B
	if Outstanding() != start+1 || !strings.Contains(Leaks(), "TestDebugPoison") {
		t.Fatalf("outstanding %d, leaks %q", Outstanding(), Leaks())
	}
	b.Release()
	if alias[0] != poison || Outstanding() != start {
		t.Fatalf("not poisoned: %v; outstanding %d", alias, Outstanding())
	}
	defer func() {
		if recover() == nil {
			t.Fatal("second release did not panic")
		}
	}()
	b.Release()
}
