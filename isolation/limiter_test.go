package isolation

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var epoch = time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC)

// admitted counts how many of 20 tries pass at a moment.
func admitted(l *TokenLimiter, now time.Time, c Class, key string) (n int) {
	for range 20 {
		if ok, _ := l.Allow(now, c, key); ok {
			n++
		}
	}
	return n
}

func TestTokenLimiterVectors(t *testing.T) {
	t.Run("rate 3, burst 4", func(t *testing.T) {
		l, err := NewTokenLimiter(3, 4, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := admitted(l, epoch, Established, "x"); n != 2 {
			t.Errorf("%d ordinary admitted, want 2", n)
		}
	})
	t.Run("rate 5, burst 10", func(t *testing.T) {
		l, _ := NewTokenLimiter(5, 10, nil)
		for second := range 5 {
			now := epoch.Add(time.Duration(second) * time.Second)
			want := 3
			if second == 0 {
				want = 8
			}
			if n := admitted(l, now, Established, "x"); n != want {
				t.Errorf("second %d: %d ordinary, want %d", second, n, want)
			}
			if b, r := admitted(l, now, Bootstrap, "b"), admitted(l, now, Reconnect, "r"); b != 1 || r != 1 {
				t.Errorf("second %d: %d bootstrap, %d reconnect", second, b, r)
			}
			if n := admitted(l, now, Control, "c"); n != 0 {
				t.Errorf("second %d: control took %d tokens", second, n)
			}
		}
	})
	t.Run("rate 5, burst 7, two trusted", func(t *testing.T) {
		l, _ := NewTokenLimiter(5, 7, []string{"t1", "t2"})
		if n := admitted(l, epoch, Trusted, "t1"); n != 4 {
			t.Errorf("one trusted owner alone got %d, want its own and three shared", n)
		}
		if n := admitted(l, epoch, Trusted, "t2"); n != 1 {
			t.Errorf("the other got %d, want its own", n)
		}
		if n := admitted(l, epoch, Trusted, "nobody"); n != 0 {
			t.Errorf("an unknown key got %d", n)
		}
	})
	t.Run("a long idle time fills the buckets, no more", func(t *testing.T) {
		l, _ := NewTokenLimiter(5, 10, nil)
		l.Allow(epoch, Established, "x")
		if n := admitted(l, epoch.AddDate(250, 0, 0), Established, "x"); n != 8 {
			t.Errorf("%d after 250 years, want 8", n)
		}
	})
}

func TestTokenLimiterSaysWhen(t *testing.T) {
	l, _ := NewTokenLimiter(6, 7, nil) // 4 shared a second
	admitted(l, epoch, Established, "x")
	if ok, wait := l.Allow(epoch, Established, "x"); ok || wait != 250*time.Millisecond {
		t.Errorf("%v, %v", ok, wait)
	}
	if ok, wait := l.Allow(epoch.Add(100*time.Millisecond), Established, "x"); ok || (wait-150*time.Millisecond).Abs() > time.Microsecond {
		t.Errorf("%v, %v", ok, wait)
	}
	if ok, _ := l.Allow(epoch.Add(251*time.Millisecond), Established, "x"); !ok {
		t.Error("refused when it had said there would be a token")
	}
}

func TestTokenLimiterNeedsRoom(t *testing.T) {
	for _, c := range []struct {
		rate    float64
		burst   int
		trusted []string
		field   string
		minimum int64
	}{
		{2, 100, nil, "ConnectionsPerSecond", 3}, {100, 2, nil, "ConnectionBurst", 3}, {4, 9, []string{"a", "b"}, "ConnectionsPerSecond", 5},
	} {
		_, err := NewTokenLimiter(c.rate, c.burst, c.trusted)
		var oe *OptionError
		if !errors.As(err, &oe) || oe.Field != c.field || oe.Minimum != c.minimum {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestTokenLimiterIsExactUnderRace(t *testing.T) {
	l, _ := NewTokenLimiter(10, 102, nil)
	var total atomic.Int64
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for range 100 {
				if ok, _ := l.Allow(epoch, Class(w%2), "x"); ok { // ordinary and bootstrap
					total.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if total.Load() != 101 {
		t.Errorf("%d admitted, want 100 shared and one of bootstrap", total.Load())
	}
}

func TestAddressLimiter(t *testing.T) {
	if _, err := NewAddressLimiter(-1); err == nil {
		t.Error("a negative rate was taken")
	}
	l, _ := NewAddressLimiter(2)
	try := func(addr string) (n int) {
		for range 5 {
			if ok, _ := l.Allow(epoch, netip.MustParseAddr(addr)); ok {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		addr string
		want int
	}{
		{"10.0.0.1", 2}, {"::ffff:10.0.0.1", 0}, {"10.0.0.2", 2},
		{"2001:db8::1", 2}, {"2001:db8::ffff:2", 0}, {"2001:db8:0:1::1", 2},
	} {
		if n := try(c.addr); n != c.want {
			t.Errorf("%s: %d, want %d", c.addr, n, c.want)
		}
	}
	for i := range maxAddresses {
		l.Allow(epoch, netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	if len(l.buckets) > maxAddresses {
		t.Errorf("%d buckets", len(l.buckets))
	}
	if a, b := try("12.0.0.1"), try("12.0.0.2"); a+b != 0 { // the flood has used up the shared bucket
		t.Errorf("overflowing addresses got %d and %d", a, b)
	}
	if ok, _ := l.Allow(epoch.Add(time.Hour), netip.MustParseAddr("12.0.0.3")); !ok || len(l.buckets) > 2 {
		t.Errorf("an hour later: %v, %d buckets", ok, len(l.buckets))
	}
}
