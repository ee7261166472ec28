package session

import (
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
)

func lookupSetup(t testing.TB, sessions int) (*Store, []*fakeChannel, []*client) {
	st := newStore(t, Options{MaxSessions: sessions})
	var chs []*fakeChannel
	var cs []*client
	for range sessions {
		ch := noneChannel()
		c := create(t, st, ch)
		want(t, "activate", c.activate(ch, anonymous), ua.StatusOK)
		chs, cs = append(chs, ch), append(cs, c)
	}
	return st, chs, cs
}

func TestLookupDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("allocation counts do not hold under the race detector")
	}
	st, chs, cs := lookupSetup(t, 10)
	now := time.Now()
	other := noneChannel()
	if n := testing.AllocsPerRun(100, func() {
		now = now.Add(time.Millisecond * 100)
		if _, code := st.Lookup(chs[3], cs[3].token, now); code != ua.StatusOK {
			t.Fatal(code)
		}
		if _, code := st.Lookup(other, cs[3].token, now); code != ua.StatusBadSessionIDInvalid {
			t.Fatal(code)
		}
		st.Peek(chs[4], cs[4].token)
	}); n != 0 {
		t.Errorf("%v allocations per lookup", n)
	}
}

func BenchmarkLookup(b *testing.B) {
	st, chs, cs := lookupSetup(b, 1000)
	now := time.Now()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i = (i + 1) % 1000
		if _, code := st.Lookup(chs[i], cs[i].token, now); code != ua.StatusOK {
			b.Fatal(code)
		}
	}
}

// Cores that look up at once do not wait for each other.
func BenchmarkLookupParallel(b *testing.B) {
	st, chs, cs := lookupSetup(b, 1000)
	now := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		i := 0
		for pb.Next() {
			i = (i + 7) % 1000
			if _, code := st.Lookup(chs[i], cs[i].token, now); code != ua.StatusOK {
				b.Error(code)
				return
			}
		}
	})
}

// BenchmarkCycle is create, activate and close of an unsecured anonymous
// session: what the Store adds to a connect cycle.
func BenchmarkCycle(b *testing.B) {
	st := newStore(b, Options{})
	ch := noneChannel()
	b.ReportAllocs()
	for b.Loop() {
		c := create(b, st, ch)
		c.activate(ch, anonymous)
		st.Close(ch, c.token, true)
	}
}
