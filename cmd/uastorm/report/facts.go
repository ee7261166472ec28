package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A clientRow is a phase in the table of clients.
type clientRow struct {
	Phase, Clients, Holding, Held, Attempts, MostAttempts string
	Refused, Hinted, Unhinted, Silent                     string
	Unreached, TimedOut, Lost                             string
}

// ClientRows are what the clients of each phase met with.
func (p page) ClientRows() []clientRow {
	var rows []clientRow
	for _, c := range p.Clients {
		held := "never"
		if c.HeldAfter > 0 {
			held = milliseconds(c.HeldAfter)
		}
		n := strconv.Itoa
		rows = append(rows, clientRow{clean(c.Phase), n(c.Clients), n(c.Holding), held, n(c.Attempts), n(c.MostAttempts),
			n(c.Refused), n(c.Hinted), n(c.Unhinted), n(c.Silent), n(c.Unreached), n(c.TimedOut), n(c.Lost)})
	}
	return rows
}

// A floodRow is a kind of flood in a phase.
type floodRow struct{ Phase, Kind, Connections, Opened, Refused, Held, Peak, Longest, Sent, Ended string }

// FloodRows are what the floods of each phase got.
func (p page) FloodRows() []floodRow {
	var rows []floodRow
	for _, f := range p.Floods {
		n := strconv.Itoa
		rows = append(rows, floodRow{clean(f.Phase), clean(f.Kind), n(f.Connections), n(f.Opened), n(f.Refused), n(f.Held), n(f.Peak),
			milliseconds(f.Longest), fmt.Sprintf("%.1f", float64(f.Bytes)/1e6), ends(f.Ended)})
	}
	return rows
}

func milliseconds(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).Round(time.Millisecond).String()
}

// ends lists what ended a flood's connections, the most frequent first.
func ends(m map[string]int) string {
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b)) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", m[name], clean(name))
	}
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// factTables are both tables as Text writes them, each with its head.
func (p page) factTables() (tables [][][]string) {
	if all := p.ClientRows(); len(all) > 0 {
		rows := [][]string{{"clients of phase", "there", "hold a session", "all after", "connects", "of one", "refused", "with hint", "without", "silent",
			"unreachable", "timed out", "sessions lost"}}
		for _, x := range all {
			rows = append(rows, []string{x.Phase, x.Clients, x.Holding, x.Held, x.Attempts, x.MostAttempts, x.Refused, x.Hinted, x.Unhinted, x.Silent,
				x.Unreached, x.TimedOut, x.Lost})
		}
		tables = append(tables, rows)
	}
	if all := p.FloodRows(); len(all) > 0 {
		rows := [][]string{{"flood of phase", "kind", "at once", "taken", "refused", "held at the end", "most", "longest", "MB sent", "ended by"}}
		for _, x := range all {
			rows = append(rows, []string{x.Phase, x.Kind, x.Connections, x.Opened, x.Refused, x.Held, x.Peak, x.Longest, x.Sent, x.Ended})
		}
		tables = append(tables, rows)
	}
	return tables
}
