package report

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

func TestLinearTicks(t *testing.T) {
	for _, c := range []struct {
		high float64
		want []float64
	}{
		{0, []float64{0, 0.25, 0.5, 0.75, 1}},
		{math.NaN(), []float64{0, 0.25, 0.5, 0.75, 1}},
		{5e-324, []float64{0, 0.25, 0.5, 0.75, 1}},
		{math.MaxFloat64, []float64{0, 2.5e17, 5e17, 7.5e17, 1e18}},
		{math.Inf(1), []float64{0, 2.5e17, 5e17, 7.5e17, 1e18}},
		{4, []float64{0, 1, 2, 3, 4}},
		{9000, []float64{0, 2500, 5000, 7500, 10000}},
		{1000, []float64{0, 250, 500, 750, 1000}},
		{0.7, []float64{0, 0.2, 0.4, 0.6, 0.8}},
	} {
		if got := linear(c.high).ticks; fmt.Sprint(rounded(got)) != fmt.Sprint(c.want) {
			t.Errorf("up to %v: %v, want %v", c.high, got, c.want)
		}
	}
	if got := binary(400 << 20); fmt.Sprint(rounded(got.ticks)) != fmt.Sprint([]float64{0, 100 << 20, 200 << 20, 300 << 20, 400 << 20}) || got.high != 400<<20 {
		t.Errorf("bytes: %v", got)
	}
}

func rounded(v []float64) []float64 {
	out := slices.Clone(v)
	for i := range out {
		if out[i] < 1e9 {
			out[i] = math.Round(out[i]*1e6) / 1e6
		}
	}
	return out
}

func TestLogarithmicScalesHoldTheirValues(t *testing.T) {
	for _, c := range [][2]float64{{1, 1}, {0.9, 12}, {0.001, 600_000}, {3, 4}, {1, 10}, {0, 5}, {math.Inf(1), math.Inf(-1)}, {9.99, 10.01}, {7, 6300}, {1e-300, 1e300}, {5, math.MaxFloat64}} {
		s := logarithmic(c[0], c[1])
		if !(s.high > s.low) || s.low <= 0 || math.IsInf(s.high, 0) || len(s.ticks) < 2 || len(s.ticks) > 9 || !slices.IsSorted(s.ticks) {
			t.Errorf("from %v to %v: %v", c[0], c[1], s)
			continue
		}
		if c[0] > 0 && !math.IsInf(c[0], 0) && (s.low > c[0]*1.001 || s.high < min(c[1], mostShown)*0.999) && c[0] > leastShown {
			t.Errorf("from %v to %v: the scale goes from %v to %v", c[0], c[1], s.low, s.high)
		}
		if a, b := s.at(s.low), s.at(s.high); a != 0 || b != 1 || s.at(s.high*10) != 1 || s.at(0) != 0 {
			t.Errorf("from %v to %v: ends at %v and %v", c[0], c[1], a, b)
		}
	}
	s := logarithmic(1, 100)
	if got := s.at(10); math.Abs(got-0.5) > 1e-9 {
		t.Errorf("10 stands at %v between 1 and 100", got)
	}
}

func TestTimeTicks(t *testing.T) {
	for _, c := range []struct {
		length float64
		want   string
	}{
		{1, "[0 1]"}, {6, "[0 1 2 3 4 5 6]"}, {90, "[0 15 30 45 60 75 90]"}, {100, "[0 30 60 90]"}, {3600, "[0 600 1200 1800 2400 3000 3600]"},
		{5 * 86_400, "[0 86400 172800 259200 345600 432000]"}, {30 * 86_400, "[0 432000 864000 1.296e+06 1.728e+06 2.16e+06 2.592e+06]"},
	} {
		if got := fmt.Sprint(timeTicks(c.length, 6)); got != c.want {
			t.Errorf("%v seconds: %s, want %s", c.length, got, c.want)
		}
	}
}
