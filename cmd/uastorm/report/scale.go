package report

import (
	"math"
)

// A scale maps values to 0 (bottom) … 1 (top).
type scale struct {
	low, high float64
	log       bool
	ticks     []float64
}

// The bounds of what an axis shows. A server chooses the values of its metrics,
// and steps between values beyond these would be 0 or infinite.
const (
	leastShown = 1e-12
	mostShown  = 1e18
)

// linear makes a scale from 0 to at least high, to 1 when that is nothing.
func linear(high float64) scale {
	if !(high > leastShown) {
		high = 1
	}
	high = math.Min(high, mostShown)
	step := niceStep(high / 4)
	top := math.Ceil(high/step-1e-9) * step
	s := scale{high: top}
	for i := 0; float64(i)*step <= top*1.0001; i++ {
		s.ticks = append(s.ticks, float64(i)*step)
	}
	return s
}

// binary is linear in the largest power of 1024 that is no larger than high.
func binary(high float64) scale {
	unit := 1.0
	for high >= 1000*unit && unit < mostShown {
		unit *= 1024
	}
	s := linear(high / unit)
	s.high *= unit
	for i := range s.ticks {
		s.ticks[i] *= unit
	}
	return s
}

// logarithmic makes a scale that holds all from low to high, its ends at 1, 2 or
// 5 times a power of ten.
func logarithmic(low, high float64) scale {
	if !(low > leastShown && low < mostShown) {
		low = 0.001
	}
	high = math.Min(math.Max(high, low), mostShown)
	steps := []float64{1, 2, 5}
	if high/low > 300 { // too many lines otherwise
		steps = []float64{1}
	}
	var ticks []float64
	for e := math.Floor(math.Log10(low)) - 1; e <= math.Ceil(math.Log10(high))+1; e++ {
		for _, m := range steps {
			ticks = append(ticks, m*math.Pow(10, e))
		}
	}
	for len(ticks) > 2 && ticks[1] <= low*1.0001 {
		ticks = ticks[1:]
	}
	for len(ticks) > 2 && ticks[len(ticks)-2] >= high*0.9999 {
		ticks = ticks[:len(ticks)-1]
	}
	for len(ticks) > 7 { // every second one, the top one kept
		var half []float64
		for i := len(ticks) - 1; i >= 0; i -= 2 {
			half = append([]float64{ticks[i]}, half...)
		}
		if half[0] > low { // the bottom must hold the lowest value
			half = append([]float64{ticks[0]}, half...)
		}
		ticks = half
	}
	return scale{low: ticks[0], high: ticks[len(ticks)-1], log: true, ticks: ticks}
}

// at is where a value stands; values beyond the scale stand at its end.
func (s scale) at(v float64) float64 {
	f := (v - s.low) / (s.high - s.low)
	if s.log {
		f = math.Log(math.Max(v, s.low)/s.low) / math.Log(s.high/s.low)
	}
	return math.Min(math.Max(f, 0), 1)
}

// niceStep is 1, 2, 2.5 or 5 times a power of ten, at least v.
func niceStep(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*p >= v*0.9999 {
			return m * p
		}
	}
	return 10 * p
}

// timeSteps are the distances of ticks on a time axis, in seconds.
var timeSteps = []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400}

// timeTicks are at most n+1 ticks on an axis of a length in seconds.
func timeTicks(length float64, n int) []float64 {
	step := timeSteps[len(timeSteps)-1]
	for _, s := range timeSteps {
		if length/s <= float64(n) {
			step = s
			break
		}
	}
	step = math.Max(step, math.Ceil(length/float64(n)/86_400)*math.Floor(step/86_400)*86_400)
	var ticks []float64
	for i := 0; float64(i)*step <= length; i++ {
		ticks = append(ticks, float64(i)*step)
	}
	return ticks
}
