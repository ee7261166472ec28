package budget

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

func TestDefaultMaxBytes(t *testing.T) { // overload.md §6
	for _, tc := range []struct{ message, want int64 }{
		{-1, 1073741824}, {0, 1073741824}, {65535, 67108864}, {2 << 20, 67108864}, {4 << 20, 67108864},
		{4194305, 67108880}, {8 << 20, 134217728}, {64 << 20, 1073741824}, {128 << 20, 1073741824},
		{512 << 20, 2147483648}, {2147483647, 8589934588}, {1 << 62, 1<<63 - 1},
	} {
		if got := DefaultMaxBytes(tc.message); got != tc.want {
			t.Errorf("DefaultMaxBytes(%d) = %d, want %d", tc.message, got, tc.want)
		}
	}
}

func TestNew(t *testing.T) {
	b, err := New(1025)
	if err != nil || b.Max() != 1025 || b.SessionlessThreshold() != 512 {
		t.Fatalf("New(1025) = %+v, %v", b, err)
	}
	for _, tc := range []struct{ max, sessionless int64 }{{0, 0}, {-1, 0}, {10, -1}, {10, 11}} {
		if _, err := NewWithThreshold(tc.max, tc.sessionless); err == nil {
			t.Errorf("NewWithThreshold(%d, %d) succeeded", tc.max, tc.sessionless)
		}
	}
	for _, s := range []int64{0, 10} {
		if _, err := NewWithThreshold(10, s); err != nil {
			t.Errorf("NewWithThreshold(10, %d): %v", s, err)
		}
	}
}

// 40 channels of 256 B on a 1024 B budget: 4 survive with sessions, 2 without.
func TestForty(t *testing.T) {
	for _, tc := range []struct {
		session bool
		want    int
	}{{true, 4}, {false, 2}} {
		b, _ := New(1024)
		n := 0
		for range 40 {
			if b.Reserve(256, tc.session) == nil {
				n++
			}
		}
		if n != tc.want || b.Refused() != uint64(40-tc.want) {
			t.Errorf("session %v: %d channels survive (%d refused), want %d", tc.session, n, b.Refused(), tc.want)
		}
	}
}

func TestThresholdCountsTotalOccupancy(t *testing.T) {
	b, _ := NewWithThreshold(1000, 500)
	if err := b.Reserve(600, true); err != nil {
		t.Fatal(err)
	}
	// 400 bytes are free, but the occupancy is above the threshold.
	if err := b.Reserve(1, false); !errors.Is(err, ErrExhausted) {
		t.Fatalf("sessionless above the threshold: %v", err)
	}
	if err := b.Reserve(0, false); !errors.Is(err, ErrExhausted) {
		t.Fatalf("0 > 500 - 600: %v", err)
	}
	if err := b.Reserve(400, true); err != nil {
		t.Fatal(err)
	}
	if err := b.Reserve(1, true); !errors.Is(err, ErrExhausted) {
		t.Fatalf("full: %v", err)
	}
}

func TestBadAmounts(t *testing.T) {
	b, _ := New(100)
	if b.Reserve(-1, true) == nil || b.Release(-1) == nil {
		t.Fatal("negative amount accepted")
	}
	if err := b.Reserve(1<<62, true); !errors.Is(err, ErrExhausted) {
		t.Fatal(err)
	}
	_ = b.Reserve(40, true)
	if err := b.Release(41); !errors.Is(err, ErrOverRelease) || b.Reserved() != 40 {
		t.Fatalf("over-release: %v, reserved %d", err, b.Reserved())
	}
	if err := b.Release(40); err != nil || b.Reserved() != 0 {
		t.Fatalf("release: %v, reserved %d", err, b.Reserved())
	}
}

func TestRacingNeverExceeds(t *testing.T) {
	b, _ := New(1000)
	var wg sync.WaitGroup
	var over atomic.Bool
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 5000 {
				n := r.Int64N(300)
				session := r.IntN(2) == 0
				if b.Reserve(n, session) != nil {
					continue
				}
				if b.Reserved() > 1000 {
					over.Store(true)
				}
				if b.Release(n) != nil {
					over.Store(true)
				}
			}
		})
	}
	wg.Wait()
	if over.Load() || b.Reserved() != 0 {
		t.Fatalf("exceeded %v, reserved at the end %d", over.Load(), b.Reserved())
	}
}

func BenchmarkReserveRelease(bm *testing.B) {
	b, _ := New(1 << 20)
	bm.ReportAllocs()
	for bm.Loop() {
		_ = b.Reserve(8192, true)
		_ = b.Release(8192)
	}
}

// overload.md §16: the bounds may change while bytes are reserved; above a
// lowered maximum nothing is reserved until enough was released.
func TestResize(t *testing.T) {
	b, err := New(100)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Reserve(80, true); err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][2]int64{{0, 0}, {-1, 0}, {10, 11}, {10, -1}} {
		if b.Resize(bad[0], bad[1]) == nil {
			t.Errorf("took %v", bad)
		}
	}
	if b.Max() != 100 || b.SessionlessThreshold() != 50 {
		t.Errorf("%d and %d after refused changes", b.Max(), b.SessionlessThreshold())
	}
	if err := b.Resize(60, 20); err != nil {
		t.Fatal(err)
	}
	if b.Max() != 60 || b.SessionlessThreshold() != 20 || b.Reserved() != 80 {
		t.Errorf("max %d, threshold %d, reserved %d", b.Max(), b.SessionlessThreshold(), b.Reserved())
	}
	if b.Reserve(1, true) == nil {
		t.Error("reserved above the lowered maximum")
	}
	if err := b.Release(25); err != nil { // 55 are left
		t.Fatal(err)
	}
	if b.Reserve(6, true) == nil || b.Reserve(5, true) != nil || b.Reserve(1, false) == nil {
		t.Error("the new bounds are not those in force")
	}
	if err := b.Resize(1000, 500); err != nil || b.Reserve(440, false) != nil {
		t.Error("a raised threshold is not in force:", err)
	}
}
