package progress

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

// shownCodes is how many StatusCodes are named in a line of errors.
const shownCodes = 6

// block is the picture of a sample.
func (v *View) block(s *measure.Sample, width int) []line {
	rate := func(n uint64) string { return measure.Number(float64(n)/s.Seconds) + "/s" }
	lines := []line{{fit(width, measure.Clock(s.At)+"  phase "+clean(s.Phase), clean(v.options.Title), clean(v.options.Target)), styleBold}}
	add := func(label string, parts ...string) {
		parts[0] = fmt.Sprintf("%-11s", label) + parts[0]
		lines = append(lines, line{text: fit(width, parts...)})
	}
	add("sessions", measure.Number(float64(s.Sessions)), "up "+rate(s.SessionsUp), "down "+rate(s.SessionsDown),
		"connections "+measure.Number(float64(s.Connections)))
	hints := ""
	if s.Hints.Count > 0 {
		hints = fmt.Sprintf("hints p50 %s max %s", measure.Duration(s.Hints.P50), measure.Duration(s.Hints.Max))
	}
	add("attempts", rate(s.Attempts), "refused "+rate(s.Refused), ways(s, rate), hints)
	for k := range measure.Kinds {
		o, ok := s.Operations[k]
		if !ok {
			continue
		}
		parts := append([]string{fmt.Sprintf("%-8s", rate(o.Count))}, percentiles(o.Latency)...)
		if o.Errors > 0 {
			parts = append(parts, "failed "+rate(o.Errors))
		}
		add(k.String(), parts...)
	}
	if s.Notifications+s.Gaps+s.Lost+s.Duplicates > 0 {
		add("values", rate(s.Notifications), fmt.Sprintf("gaps %d", s.Gaps), fmt.Sprintf("lost %d", s.Lost), fmt.Sprintf("twice %d", s.Duplicates))
	}
	if len(v.errors) > 0 {
		add("errors", codes(v.errors)...)
		lines[len(lines)-1].style = styleBad
	}
	own := line{text: fit(width, v.generator(s)...)}
	if s.Saturated {
		own = line{fit(width, append([]string{"SATURATED"}, v.generator(s)...)...), styleBad}
	}
	return append(lines, own)
}

// percentiles are those that matter most, one a part and as wide as those of
// the line above.
func percentiles(q measure.Quantiles) []string {
	if q.Count == 0 {
		return []string{"none in time"}
	}
	return []string{
		fmt.Sprintf("p50 %-7s", measure.Duration(q.P50)),
		fmt.Sprintf("p99 %-7s", measure.Duration(q.P99)),
		fmt.Sprintf("p99.9 %-7s", measure.Duration(q.P999)),
		fmt.Sprintf("max %-7s", measure.Duration(q.Max)),
	}
}

// ways tells how attempts were refused, and with which code most often.
func ways(s *measure.Sample, rate func(uint64) string) string {
	if s.Refused == 0 {
		return ""
	}
	var parts []string
	for how := range measure.Refusals {
		if n := s.Refusals[how]; n > 0 {
			parts = append(parts, "by "+how.String()+" "+rate(n))
		}
	}
	text := strings.Join(parts, ", ")
	if c := codes(s.RefusalCodes); len(c) > 0 && !strings.HasPrefix(c[0], "none ") {
		text += ", " + c[0]
	}
	return text
}

// codes lists StatusCodes and how often, the most frequent first.
func codes(m map[string]uint64) []string {
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b))
	})
	parts := make([]string, 0, shownCodes+1)
	for i, name := range names {
		if i == shownCodes {
			parts = append(parts, fmt.Sprintf("and %d more", len(names)-i))
			break
		}
		parts = append(parts, clean(name)+" "+measure.Number(float64(m[name])))
	}
	return parts
}

// generator tells how the load test itself is doing.
func (v *View) generator(s *measure.Sample) []string {
	cpu := ""
	if s.CPU >= 0 {
		cpu = fmt.Sprintf(", %.2f of %d processors", s.CPU, v.options.Processors)
	}
	late := ""
	if s.Lateness.Count > 0 {
		late = fmt.Sprintf("late p99 %s max %s", measure.Duration(s.Lateness.P99), measure.Duration(s.Lateness.Max))
	}
	return []string{"uastorm" + cpu, late}
}

// summary is a sample of several seconds in one line, in parts.
func (v *View) summary(s *measure.Sample) []string {
	rate := func(n uint64) string { return measure.Number(float64(n)/s.Seconds) + "/s" }
	parts := []string{fmt.Sprintf("%s  %s: %s sessions", measure.Clock(s.At), clean(s.Phase), measure.Number(float64(s.Sessions)))}
	if s.Attempts+s.Refused > 0 {
		text := "attempts " + rate(s.Attempts)
		if s.Refused > 0 {
			text += ", refused " + rate(s.Refused) + " (" + ways(s, rate) + ")"
		}
		parts = append(parts, text)
	}
	for k := range measure.Kinds {
		if o, ok := s.Operations[k]; ok {
			text := k.String() + " " + rate(o.Count)
			if q := o.Latency; q.Count > 0 {
				text += fmt.Sprintf(" p50 %s p99 %s max %s", measure.Duration(q.P50), measure.Duration(q.P99), measure.Duration(q.Max))
			}
			parts = append(parts, text)
		}
	}
	if s.Notifications+s.Gaps+s.Lost > 0 {
		parts = append(parts, fmt.Sprintf("values %s, gaps %d, lost %d", rate(s.Notifications), s.Gaps, s.Lost))
	}
	if len(s.Errors) > 0 {
		parts = append(parts, "errors "+strings.Join(codes(s.Errors), ", "))
	}
	own := strings.TrimSuffix(strings.Join(v.generator(s), ", "), ", ")
	if s.Saturated {
		own = "SATURATED: " + own
	}
	return append(parts, own)
}
