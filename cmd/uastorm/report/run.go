package report

import (
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

// A run is a result made ready for drawing.
type run struct {
	result   *measure.Result
	samples  []measure.Sample // plotPoints at most
	length   float64          // of the time axis, in seconds
	times    []string         // of the samples, with their phase
	percents []float64        // where the samples stand
	ticks    []mark
	bands    []band
	marks    []mark
}

// shownEvents is how many events have a mark in the plots.
const shownEvents = 40

func newRun(res *measure.Result) *run {
	r := &run{result: res, samples: thinned(res.Samples, plotPoints), length: res.Seconds}
	if n := len(r.samples); n > 0 {
		r.length = max(r.length, r.samples[n-1].At)
	}
	if !(r.length > 0) {
		r.length = 1
	}
	for i := range r.samples {
		s := &r.samples[i]
		r.times = append(r.times, measure.Clock(s.At)+" "+clean(s.Phase))
		r.percents = append(r.percents, math.Round(r.across(i)*1e4)/100)
	}
	ticks := 6
	if r.length >= 3600 { // with hours in front they are longer
		ticks = 4
	}
	for _, t := range timeTicks(r.length, ticks) {
		m := mark{At: percent(t / r.length), Label: measure.Clock(t), Anchor: "middle"}
		switch {
		case t == 0:
			m.Anchor = "start"
		case t > 0.94*r.length:
			m.Anchor = "end"
		}
		r.ticks = append(r.ticks, m)
	}
	for i, p := range res.Phases {
		begin, end := p.Begin/r.length, min(p.End/r.length, 1)
		if end > begin {
			r.bands = append(r.bands, band{X: percent(begin), Width: percent(end - begin), Name: clean(p.Name), Odd: i%2 == 1})
		}
	}
	for _, e := range res.Events {
		if strings.HasPrefix(e.Text, "phase ") {
			continue // has its band
		}
		if len(r.marks) == shownEvents {
			break
		}
		r.marks = append(r.marks, mark{At: percent(min(e.At/r.length, 1)), Label: measure.Clock(e.At) + " " + clean(e.Text)})
	}
	return r
}

// across is where a sample stands on the time axis, 0 to 1: in its middle.
func (r *run) across(i int) float64 {
	s := &r.samples[i]
	return min(max((s.At-s.Seconds/2)/r.length, 0), 1)
}

// thinned merges neighbours until there are no more than n.
func thinned(all []measure.Sample, n int) []measure.Sample {
	if len(all) <= n {
		return all
	}
	each := (len(all) + n - 1) / n
	var out []measure.Sample
	for part := range slices.Chunk(all, each) {
		s := part[0]
		for i := range part[1:] {
			s.Merge(&part[1+i])
		}
		out = append(out, s)
	}
	return out
}

// clean takes out control characters, which XML does not allow, and such that
// change the direction of writing.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r):
			return ' '
		case unicode.In(r, unicode.Cf), r == 0xfffe, r == 0xffff:
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}
