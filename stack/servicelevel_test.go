package stack

import (
	"math"
	"testing"
)

func TestServiceLevel(t *testing.T) { // overload.md §13
	for _, tc := range []struct {
		used float64
		want byte
	}{
		{0, 255}, {0.2, 255}, {0.21, 252}, {0.4, 192}, {0.6, 129}, {0.8, 65}, {0.99, 5}, {1, 2}, {7, 2}, {math.NaN(), 255}, {-1, 255},
	} {
		if got := serviceLevel(tc.used); got != tc.want {
			t.Errorf("%v used: %d, want %d", tc.used, got, tc.want)
		}
	}
}
