package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

const (
	plotHeight = 210
	// shownCodes is how many StatusCodes have a curve of their own.
	shownCodes = 6
)

// rate is a count of a sample, per second.
func (r *run) rate(name string, n func(*measure.Sample) uint64) curve {
	return curve{name, func(i int) float64 {
		s := &r.samples[i]
		if s.Seconds <= 0 {
			return math.NaN()
		}
		return float64(n(s)) / s.Seconds
	}}
}

// level is a number of a sample, as it is.
func (r *run) level(name string, v func(*measure.Sample) float64) curve {
	return curve{name, func(i int) float64 { return v(&r.samples[i]) }}
}

// quantile is one of the quantiles of a sample, where it has any.
func (r *run) quantile(name string, q func(*measure.Sample) measure.Quantiles, v func(measure.Quantiles) float64) curve {
	return curve{name, func(i int) float64 {
		if all := q(&r.samples[i]); all.Count > 0 {
			return v(all)
		}
		return math.NaN()
	}}
}

func (r *run) sessions() figure {
	return figure{id: "sessions", title: "Sessions", note: "Activated sessions and TCP connections that are up.",
		format: measure.Number, height: plotHeight, curves: []curve{
			r.level("sessions", func(s *measure.Sample) float64 { return float64(s.Sessions) }),
			r.level("connections", func(s *measure.Sample) float64 { return float64(s.Connections) }),
		}}
}

func (r *run) attempts() figure {
	return figure{id: "attempts", title: "Attempts", note: "Connections tried, sessions activated and attempts refused, per second.",
		format: perSecond, height: plotHeight, curves: []curve{
			r.rate("attempts", func(s *measure.Sample) uint64 { return s.Attempts }),
			r.rate("activated", func(s *measure.Sample) uint64 { return s.SessionsUp }),
			r.rate("refused", func(s *measure.Sample) uint64 { return s.Refused }),
		}}
}

// ways says what the ways to refuse are called here.
var ways = [measure.Refusals]string{"Error message", "ServiceFault", "closed silently", "timeout", "operating system"}

func (r *run) refusals() figure {
	f := figure{id: "refusals", title: "Refusals by kind",
		note:   "How the server said no, per second. An Error message or a ServiceFault says why; silence and timeouts do not.",
		format: perSecond, height: plotHeight}
	for how, name := range ways {
		seen := slices.ContainsFunc(r.samples, func(s measure.Sample) bool { return s.Refusals[measure.Refusal(how)] > 0 })
		if seen {
			f.curves = append(f.curves, r.rate(name, func(s *measure.Sample) uint64 { return s.Refusals[measure.Refusal(how)] }))
		}
	}
	return f
}

func (r *run) hints() figure {
	q := func(s *measure.Sample) measure.Quantiles { return s.Hints }
	return figure{id: "hints", title: "Retry hints", note: "When refused clients were told to come back, from the time of the refusal. Logarithmic.",
		format: measure.Duration, log: true, height: plotHeight, curves: []curve{
			r.quantile("shortest", q, func(q measure.Quantiles) float64 { return q.Min }),
			r.quantile("median", q, func(q measure.Quantiles) float64 { return q.P50 }),
			r.quantile("longest", q, func(q measure.Quantiles) float64 { return q.Max }),
		}}
}

// kindOrder is the order of the latency plots: what storms are to leave alone
// first.
var kindOrder = []measure.Kind{measure.Read, measure.Write, measure.Publish, measure.Connect, measure.Browse, measure.Call,
	measure.Subscribe, measure.KeepAlive, measure.Disconnect}

// latencies has one figure for each kind that was timed.
func (r *run) latencies() []figure {
	var all []figure
	for _, k := range kindOrder {
		if r.result.Total.Operations[k].Latency.Count == 0 {
			continue
		}
		note := "From the time the schedule wanted it begun: coordinated omission corrected. Logarithmic."
		if k == measure.Publish {
			note = "From the server's timestamp to the arrival of the value; clocks may differ. Logarithmic."
		}
		q := func(s *measure.Sample) measure.Quantiles { return s.Operations[k].Latency }
		all = append(all, figure{id: "latency-" + k.String(), title: "Latency of " + k.String(), note: note,
			format: measure.Duration, log: true, height: plotHeight, curves: []curve{
				r.quantile("p50", q, func(q measure.Quantiles) float64 { return q.P50 }),
				r.quantile("p90", q, func(q measure.Quantiles) float64 { return q.P90 }),
				r.quantile("p99", q, func(q measure.Quantiles) float64 { return q.P99 }),
				r.quantile("max", q, func(q measure.Quantiles) float64 { return q.Max }),
			}})
	}
	return all
}

func (r *run) throughput() figure {
	f := figure{id: "throughput", title: "Operations", note: "Operations that ended, failed ones included, per second.", format: perSecond, height: plotHeight}
	for _, k := range kindOrder {
		if k != measure.Publish && k != measure.Connect && k != measure.Disconnect && r.result.Total.Operations[k].Count > 0 {
			f.curves = append(f.curves, r.rate(k.String(), func(s *measure.Sample) uint64 { return s.Operations[k].Count }))
		}
	}
	return f
}

// failures shows the StatusCodes of failed operations.
func (r *run) failures() figure {
	f := figure{id: "errors", title: "Errors by StatusCode", note: "Operations that failed, per second.", format: perSecond, height: plotHeight}
	sums := map[string]uint64{}
	for i := range r.samples {
		for name, n := range r.samples[i].Errors {
			sums[name] += n
		}
	}
	names := slices.SortedFunc(maps.Keys(sums), func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b)) })
	for i, name := range names {
		if i == shownCodes-1 && len(names) > shownCodes {
			rest := names[i:]
			f.curves = append(f.curves, r.rate(fmt.Sprintf("%d others", len(rest)), func(s *measure.Sample) uint64 {
				var n uint64
				for _, name := range rest {
					n += s.Errors[name]
				}
				return n
			}))
			break
		}
		f.curves = append(f.curves, r.rate(clean(name), func(s *measure.Sample) uint64 { return s.Errors[name] }))
	}
	return f
}

// values is nothing when no value arrived.
func (r *run) values() figure {
	f := figure{id: "values", title: "Values on subscriptions", note: "Values that arrived, per second.", format: perSecond, height: plotHeight}
	if r.result.Total.Notifications > 0 {
		f.curves = []curve{r.rate("values", func(s *measure.Sample) uint64 { return s.Notifications })}
	}
	return f
}

// losses is nothing when all values arrived once.
func (r *run) losses() figure {
	f := figure{id: "losses", title: "Gaps and losses", note: "Gaps in the numbers of values, values lost for good and values that came twice, per second.",
		format: perSecond, height: plotHeight}
	t := &r.result.Total
	for _, c := range []struct {
		name  string
		total uint64
		count func(*measure.Sample) uint64
	}{
		{"gaps", t.Gaps, func(s *measure.Sample) uint64 { return s.Gaps }},
		{"lost", t.Lost, func(s *measure.Sample) uint64 { return s.Lost }},
		{"twice", t.Duplicates, func(s *measure.Sample) uint64 { return s.Duplicates }},
	} {
		if c.total > 0 {
			f.curves = append(f.curves, r.rate(c.name, c.count))
		}
	}
	return f
}

// generator shows whether the load test itself kept up.
func (r *run) generator() []figure {
	l := r.result.Limits
	late := func(s *measure.Sample) measure.Quantiles { return s.Lateness }
	cpu := figure{id: "cpu", title: "uastorm's processors", note: fmt.Sprintf("Processors that the load test itself used, of %d.", r.result.Processors),
		format: measure.Number, height: 150, curves: []curve{r.level("processors", func(s *measure.Sample) float64 { return s.CPU })}}
	if l.MaxCPU > 0 {
		cpu.limit, cpu.limitName = l.MaxCPU*float64(r.result.Processors), fmt.Sprintf("limit %s", measure.Number(l.MaxCPU*float64(r.result.Processors)))
	}
	lateness := figure{id: "lateness", title: "uastorm's lateness", note: "How late the load engine woke. Logarithmic.",
		format: measure.Duration, log: true, height: 150, curves: []curve{
			r.quantile("p99", late, func(q measure.Quantiles) float64 { return q.P99 }),
			r.quantile("max", late, func(q measure.Quantiles) float64 { return q.Max }),
		}}
	if l.MaxLateness > 0 {
		ms := float64(l.MaxLateness) / 1e6
		lateness.limit, lateness.limitName = ms, "limit of p99: "+measure.Duration(ms)
	}
	return []figure{cpu, lateness}
}
