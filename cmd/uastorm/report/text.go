package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

// Text writes a result as plain text for a terminal or a log: what was run, the
// phases, percentiles, refusals, errors, how the generator itself did, the
// verdicts, and what clients and floods met with.
func Text(w io.Writer, res *measure.Result) error {
	shown := cleaned(res)
	r := newRun(shown)
	p := page{Result: shown}
	out := &errWriter{w: w}
	fmt.Fprintf(out, "%s: %s, %s\n", shown.Title, subtitle(shown), plural(len(shown.Phases), "phase"))
	t := &shown.Total
	fmt.Fprintf(out, "%s attempts, %s sessions activated, %s refused\n", measure.Number(float64(t.Attempts)),
		measure.Number(float64(t.SessionsUp)), measure.Number(float64(t.Refused)))
	if t.Notifications+t.Gaps > 0 {
		fmt.Fprintf(out, "%s values, %s, %d lost, %d twice\n", measure.Number(float64(t.Notifications)), plural(int(t.Gaps), "gap"), t.Lost, t.Duplicates)
	}

	rows := [][]string{{"PHASE", "TIME", "ATTEMPTS", "ACTIVATED", "REFUSED", "ERRORS", "LOST", "CPU", "LATE P99"}}
	for _, x := range r.phaseRows() {
		late := x.Lateness
		if x.Saturated {
			late += "  SATURATED"
		}
		rows = append(rows, []string{x.Name, x.Time, x.Attempts, x.Activated, x.Refused, x.Errors, x.Lost, x.CPU, late})
	}
	tabular(out, rows)
	if all := r.operationRows(); len(all) > 0 {
		rows = [][]string{{"OPERATION", "PHASE", "COUNT", "FAILED", "P50", "P90", "P99", "P99.9", "MAX", "SERVICE P99"}}
		for _, x := range all {
			rows = append(rows, []string{x.Kind, x.Phase, x.Count, x.Errors, x.P50, x.P90, x.P99, x.P999, x.Max, x.Own})
		}
		tabular(out, rows)
	}
	if all := p.RefusalRows(); len(all) > 0 {
		rows = [][]string{{"REFUSED BY", "STATUS CODE", "COUNT", "WITH A HINT"}}
		for _, x := range all {
			rows = append(rows, []string{x.How, x.Name, x.Count, x.Hinted})
		}
		tabular(out, rows)
		if h := t.Hints; h.Count > 0 {
			fmt.Fprintf(out, "hints from %s to %s, median %s\n", measure.Duration(h.Min), measure.Duration(h.Max), measure.Duration(h.P50))
		}
	}
	if all := p.ErrorRows(); len(all) > 0 {
		rows = [][]string{{"FAILED", "STATUS CODE", "COUNT"}}
		for _, x := range all {
			rows = append(rows, []string{x.How, x.Name, x.Count})
		}
		tabular(out, rows)
	}
	if len(shown.Verdicts) > 0 {
		rows = [][]string{{"VERDICT", "WHAT", "PHASE", "LIMIT", "MEASURED"}}
		for _, v := range shown.Verdicts {
			rows = append(rows, []string{verdict(v.Pass), v.What, cmp.Or(v.Phase, "all"), v.Limit, v.Measured})
		}
		tabular(out, rows)
	}
	if saturated, why := shown.Saturated(); saturated {
		fmt.Fprintf(out, "\nuastorm did not keep up. %s.\nWhat was measured is the load test as much as the server: use a bigger machine, or less load.\n", why)
	}
	fmt.Fprintf(out, "\n%s\n", verdict(shown.Passed()))
	for _, rows := range p.factTables() {
		tabular(out, rows)
	}
	return out.err
}

func verdict(pass bool) string {
	if pass {
		return "PASS"
	}
	return "FAIL"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%s %ss", measure.Number(float64(n)), what)
}

// tabular writes rows in columns, after an empty line.
func tabular(w io.Writer, rows [][]string) {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush() // errWriter keeps the error
}

// errWriter keeps the first error of a writer.
type errWriter struct {
	w   io.Writer
	err error
}

func (e *errWriter) Write(p []byte) (int, error) {
	if e.err == nil {
		_, e.err = e.w.Write(p)
	}
	return len(p), e.err
}
