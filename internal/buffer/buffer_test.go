package buffer

import "testing"

func TestClasses(t *testing.T) {
	for _, tc := range []struct{ size, class int }{
		{0, Size1K}, {1024, Size1K}, {1025, Size8K}, {8192, Size8K}, {65535, Size64K},
		{65537, Size256K}, {Size256K + 1, Size1M}, {4 << 20, Size4M}, {4<<20 + 65535, Size4M},
		{5 << 20, 5 << 20},
	} {
		b := Get(tc.size)
		if len(b.B) != 0 || cap(b.B) != tc.class || b.Cap() != tc.class || ClassSize(tc.size) != tc.class {
			t.Errorf("Get(%d): len %d cap %d Cap %d, want %d", tc.size, len(b.B), cap(b.B), b.Cap(), tc.class)
		}
		b.Release()
	}
}

func TestReleaseKeepsBackingArray(t *testing.T) {
	b := Get(100)
	b.B = append(b.B, make([]byte, 1000)...)[500:]
	b.Release()
	if c := Get(1024); cap(c.B) != Size1K {
		t.Fatalf("capacity after reslicing and release: %d", cap(c.B))
	} else {
		c.Release()
	}
	(*Buffer)(nil).Release()
}

func TestNoAllocation(t *testing.T) {
	if raceEnabled || Debug {
		t.Skip("exact counts need a plain build")
	}
	if n := testing.AllocsPerRun(1000, func() { Get(Size64K).Release() }); n > 0.01 {
		t.Fatalf("%v allocations per Get and Release", n)
	}
}

func BenchmarkGetRelease(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Get(Size64K).Release()
	}
}
