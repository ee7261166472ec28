package report

import (
	"fmt"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

// A tile is a number worth a glance.
type tile struct{ Name, Value, Note string }

// tiles are the numbers to begin with.
func (r *run) tiles() []tile {
	t := &r.result.Total
	var peak int64
	for i := range r.samples {
		peak = max(peak, r.samples[i].Sessions)
	}
	all := []tile{{"Most sessions", measure.Number(float64(peak)), measure.Number(float64(t.SessionsUp)) + " activated in all"}}
	if t.Attempts > 0 {
		all = append(all, tile{"Attempts", measure.Number(float64(t.Attempts)), measure.Number(float64(t.Refused)) + " refused"})
	}
	if t.Refused > 0 {
		var told uint64
		for _, c := range t.Refusals {
			if c.How == measure.ByError || c.How == measure.ByFault {
				told += c.Count
			}
		}
		all = append(all, tile{"Refused politely", share(told, t.Refused), share(t.Hinted, t.Refused) + " with a retry hint"})
	}
	for _, k := range kindOrder {
		if q := t.Operations[k].Latency; q.Count > 0 && len(all) < 6 {
			all = append(all, tile{k.String() + " p99", measure.Duration(q.P99), "median " + measure.Duration(q.P50) + ", max " + measure.Duration(q.Max)})
		}
	}
	if t.Notifications > 0 {
		all = append(all, tile{"Values lost", measure.Number(float64(t.Lost)), fmt.Sprintf("of %s, %d gaps", measure.Number(float64(t.Notifications)), t.Gaps)})
	}
	return all
}

// share writes a part of a whole in per cent; only all is 100 and none 0.
func share(part, whole uint64) string {
	switch p := 100 * float64(part) / float64(whole); {
	case part == whole:
		return "100 %"
	case p > 99.9:
		return "> 99.9 %"
	case part > 0 && p < 0.1:
		return "< 0.1 %"
	default:
		return fmt.Sprintf("%.1f %%", p)
	}
}

// A phaseRow is a phase in the table of phases.
type phaseRow struct {
	Name, Time                              string
	Attempts, Activated, Refused, Lost      string
	Latency                                 string // p50 / p99 of the kind that has most
	Errors, CPU, Lateness, SaturationReason string
	Saturated                               bool
}

func (r *run) phaseRows() []phaseRow {
	var rows []phaseRow
	kind, found := r.steadyKind()
	for i := range r.result.Phases {
		p := &r.result.Phases[i]
		t := &p.Totals
		row := phaseRow{Name: p.Name, Time: measure.Clock(p.Begin) + " – " + measure.Clock(p.End),
			Attempts: measure.Number(float64(t.Attempts)), Activated: measure.Number(float64(t.SessionsUp)),
			Refused: measure.Number(float64(t.Refused)), Lost: measure.Number(float64(t.Lost)), Latency: "–", CPU: "–",
			Lateness: measure.Duration(t.Lateness.P99), Saturated: p.Saturation.Saturated, SaturationReason: p.Saturation.Reason}
		if q := t.Operations[kind].Latency; found && q.Count > 0 {
			row.Latency = measure.Duration(q.P50) + " / " + measure.Duration(q.P99)
		}
		var failed uint64
		for _, o := range t.Operations {
			failed += o.Errors
		}
		row.Errors = measure.Number(float64(failed))
		if p.Saturation.CPU >= 0 {
			row.CPU = measure.Number(p.Saturation.CPU) + " of " + measure.Number(float64(r.result.Processors))
		}
		rows = append(rows, row)
	}
	return rows
}

// steadyKind is the kind of operation that stands for the steady load: the
// first of kindOrder that was timed.
func (r *run) steadyKind() (measure.Kind, bool) {
	for _, k := range kindOrder {
		if r.result.Total.Operations[k].Latency.Count > 0 {
			return k, true
		}
	}
	return 0, false
}

// SteadyKind names that kind for the head of the table of phases.
func (p page) SteadyKind() string {
	if k, ok := (&run{result: p.Result}).steadyKind(); ok {
		return k.String()
	}
	return "operation"
}

// An operationRow is a kind in the table of percentiles.
type operationRow struct {
	Phase, Kind, Count, Errors    string
	P50, P90, P99, P999, Max, Own string
}

// operationRows has each kind in each phase, and the whole run.
func (r *run) operationRows() []operationRow {
	var rows []operationRow
	row := func(phase string, k measure.Kind, o measure.Operations) {
		if o.Count == 0 {
			return
		}
		q := o.Latency
		rows = append(rows, operationRow{phase, k.String(), measure.Number(float64(o.Count)), measure.Number(float64(o.Errors)),
			measure.Duration(q.P50), measure.Duration(q.P90), measure.Duration(q.P99), measure.Duration(q.P999), measure.Duration(q.Max),
			measure.Duration(o.Service.P99)})
	}
	for _, k := range kindOrder {
		for i := range r.result.Phases {
			p := &r.result.Phases[i]
			row(p.Name, k, p.Totals.Operations[k])
		}
		if len(r.result.Phases) > 1 {
			row("all", k, r.result.Total.Operations[k])
		}
	}
	return rows
}

// A bar is one of the histogram of retry hints.
type bar struct {
	Label, Count, Width string
}

func (r *run) hintBars() []bar {
	var most uint64
	for _, b := range r.result.Total.HintBuckets {
		most = max(most, b.Count)
	}
	var bars []bar
	for _, b := range r.result.Total.HintBuckets {
		bars = append(bars, bar{"≤ " + measure.Duration(b.UpTo), measure.Number(float64(b.Count)), percent(0.8 * float64(b.Count) / float64(most))})
	}
	return bars
}

// A codeRow is a StatusCode's count in the tables of refusals and errors.
type codeRow struct{ How, Name, Code, Count, Hinted string }

// RefusalRows are the refusals by way and StatusCode.
func (p page) RefusalRows() []codeRow {
	var rows []codeRow
	for _, c := range p.Total.Refusals {
		rows = append(rows, codeRow{ways[min(c.How, measure.Refusals-1)], clean(c.Name), fmt.Sprintf("0x%08X", c.Code),
			measure.Number(float64(c.Count)), measure.Number(float64(c.Hinted))})
	}
	return rows
}

// ErrorRows are the failed operations by kind and StatusCode.
func (p page) ErrorRows() []codeRow {
	var rows []codeRow
	for _, c := range p.Total.Errors {
		rows = append(rows, codeRow{How: c.Kind.String(), Name: clean(c.Name), Code: fmt.Sprintf("0x%08X", c.Code), Count: measure.Number(float64(c.Count))})
	}
	return rows
}

// shownEventRows is how many events the page lists.
const shownEventRows = 200

// EventRows are the events, with their time as label.
func (p page) EventRows() []mark {
	var rows []mark
	for i, e := range p.Events {
		if i == shownEventRows {
			rows = append(rows, mark{Label: "…", At: fmt.Sprintf("%d more", len(p.Events)-i)})
			break
		}
		rows = append(rows, mark{Label: measure.Clock(e.At), At: e.Text})
	}
	return rows
}
