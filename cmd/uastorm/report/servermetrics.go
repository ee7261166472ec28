package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

const (
	// shownMetrics and shownSeries bound the plots of the server's metrics and
	// the curves of each.
	shownMetrics = 24
	shownSeries  = 5
	metricHeight = 130
)

// A steady metric is one that did not change.
type steady struct{ Name, Value string }

// metrics are figures of the families that changed, and those that did not.
func (r *run) metrics() (changed []figure, still []steady) {
	names := map[string]bool{}
	for i := range r.samples {
		for name := range r.samples[i].Server {
			names[name] = true
		}
	}
	all := slices.Sorted(maps.Keys(names))
	for _, m := range r.result.Metrics {
		format := formatOf(m.Name)
		f := figure{title: clean(m.Name), note: clean(m.Help), format: format, height: metricHeight,
			binary: strings.HasSuffix(m.Name, "_bytes")}
		for _, name := range all {
			base, labels := name, ""
			if i := strings.IndexByte(name, '{'); i >= 0 {
				base, labels = name[:i], strings.Trim(name[i:], "{}")
			}
			label := cmp.Or(clean(strings.ReplaceAll(labels, `"`, "")), "value")
			switch {
			case m.Type == "counter" && base == m.Name:
				f.format = perSecond
				f.curves = append(f.curves, curve{label, r.increase(name)})
			case m.Type == "histogram" || m.Type == "summary":
				if sum, ok := strings.CutSuffix(base, "_sum"); ok && sum == m.Name {
					f.curves = append(f.curves, curve{strings.TrimPrefix("mean "+label, "mean value"), r.mean(name, m.Name+"_count"+name[len(base):])})
				}
			case base == m.Name:
				f.curves = append(f.curves, curve{label, func(i int) float64 { return r.metric(i, name) }})
			}
		}
		for i := range f.curves {
			f.curves[i].name = cmp.Or(f.curves[i].name, "mean")
		}
		if m.Type == "counter" {
			f.note = strings.TrimSuffix(f.note, ".") + ", per second."
		}
		f.curves = slices.DeleteFunc(f.curves, func(c curve) bool { return r.flat(c) })
		switch {
		case len(f.curves) == 0:
			if v := r.last(m.Name); !math.IsNaN(v) {
				still = append(still, steady{clean(m.Name), format(v)})
			}
		case len(changed) < shownMetrics:
			f.curves = r.largest(f.curves, shownSeries)
			f.id = "metric-" + string(rune('a'+len(changed)))
			changed = append(changed, f)
		}
	}
	return changed, still
}

func (r *run) metric(i int, name string) float64 {
	if v, ok := r.samples[i].Server[name]; ok {
		return v
	}
	return math.NaN()
}

// last is a metric's last value.
func (r *run) last(name string) float64 {
	for i := len(r.samples) - 1; i >= 0; i-- {
		if v := r.metric(i, name); !math.IsNaN(v) {
			return v
		}
	}
	return math.NaN()
}

// increase is how much a counter rose, per second. A counter that fell began
// anew: the server was restarted.
func (r *run) increase(name string) func(int) float64 {
	return func(i int) float64 {
		if i == 0 {
			return math.NaN()
		}
		d := r.metric(i, name) - r.metric(i-1, name)
		if d < 0 {
			return math.NaN()
		}
		return d / (r.samples[i].At - r.samples[i-1].At)
	}
}

// mean is what a histogram's values were on average since the sample before;
// none when there were no new ones.
func (r *run) mean(sum, count string) func(int) float64 {
	s, n := r.increase(sum), r.increase(count)
	return func(i int) float64 {
		if v := n(i); v > 0 {
			return s(i) / v
		}
		return math.NaN()
	}
}

// flat tells whether a curve has one value only, or none; rounding aside.
func (r *run) flat(c curve) bool {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range r.samples {
		if v := c.value(i); !math.IsNaN(v) {
			low, high = math.Min(low, v), math.Max(high, v)
		}
	}
	return !(high > low+1e-9*math.Abs(high))
}

// largest keeps the n curves that rise highest, in their order.
func (r *run) largest(all []curve, n int) []curve {
	if len(all) <= n {
		return all
	}
	peak := make(map[string]float64, len(all))
	for _, c := range all {
		for i := range r.samples {
			if v := c.value(i); v > peak[c.name] {
				peak[c.name] = v
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(peak), func(a, b string) int { return cmp.Or(cmp.Compare(peak[b], peak[a]), cmp.Compare(a, b)) })
	return slices.DeleteFunc(all, func(c curve) bool { return !slices.Contains(names[:n], c.name) })
}

// formatOf guesses the unit from the end of a name, as Prometheus advises.
func formatOf(name string) func(float64) string {
	switch {
	case strings.HasSuffix(name, "_seconds"):
		return func(v float64) string { return measure.Duration(1000 * v) }
	case strings.HasSuffix(name, "_bytes"):
		return bytesText
	}
	return measure.Number
}

func bytesText(v float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for len(units) > 1 && v >= 1000 {
		v, units = v/1024, units[1:]
	}
	return measure.Number(v) + " " + units[0]
}
