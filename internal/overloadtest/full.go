package overloadtest

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// Full is the full size of all tests.
type Full struct {
	Storm StormSizes
	Flood FloodSizes
	Hog   HogSizes
}

// FullSize returns what issue 3 asks for.
func FullSize() Full {
	return Full{
		Storm: StormSizes{Active: 20, Clients: 5000, Bare: 1000, Loopers: 200, Quiet: 5 * time.Second, Loop: 20 * time.Second, Limit: 5 * time.Minute},
		Flood: FloodSizes{Active: 20, Connections: 500, For: 20 * time.Second, BulkBytes: 3 << 20, Bulks: 20},
		Hog:   HogSizes{Connections: 32, Depth: 48, SecondDepth: 32, For: 5 * time.Second},
	}
}

// Bounds of issue 3.
const (
	latencyFactor = 5
	latencyFloor  = 20 * time.Millisecond
	maxAttempts   = 3.0
	drainFactor   = 1.5
	memorySlack   = 0.2
	flatMemory    = 0.1
	fairShare     = 0.4 // of two owners, 0.5 less what a measurement may be off
)

// verdicts prints the rows of a table and counts what was missed.
type verdicts struct {
	w      io.Writer
	missed int
	// judged false: the rows are there to compare, nothing is a miss.
	judged bool
}

func (v *verdicts) row(name string, value any, bound string, ok bool) {
	verdict := "met"
	switch {
	case bound == "":
		verdict = ""
	case !v.judged && !ok:
		verdict = "missed (not judged)"
	case !ok:
		verdict = "MISSED"
		v.missed++
	}
	fmt.Fprintf(v.w, "| %s | %v | %s | %s |\n", name, value, bound, verdict)
}

func (v *verdicts) head(title string) {
	fmt.Fprintf(v.w, "\n## %s\n\n| what | measured | bound | verdict |\n|---|---|---|---|\n", title)
}

// bystanders judges what active sessions saw.
func (v *verdicts) bystanders(when string, quiet, r activeReport) {
	v.row("reads failed "+when, fmt.Sprintf("%d of %d", r.FailedReads, r.Reads.N), "0", r.FailedReads == 0 && r.Reads.N > 0)
	v.row("notifications lost "+when, fmt.Sprintf("%d of %d", r.Lost, r.Notifications), "0", r.Lost == 0 && r.Notifications > 0 && len(r.Failures) == 0)
	bound := max(latencyFloor, latencyFactor*quiet.Reads.P99)
	v.row("read p50 / p99 / max "+when, fmt.Sprintf("%v / %v / %v", short(r.Reads.P50), short(r.Reads.P99), short(r.Reads.Max)),
		fmt.Sprintf("p99 ≤ %v", short(bound)), r.Reads.P99 <= bound)
	for _, f := range r.Failures[:min(3, len(r.Failures))] {
		v.row("failure "+when, f, "", false)
	}
}

func short(d time.Duration) time.Duration {
	if d > 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func (r *StormReport) print(v *verdicts) {
	v.head(fmt.Sprintf("storm of %d, %s", r.Sizes.Clients, r.Protection))
	s := r.Storm
	v.row("clients with a session", s.Connected, fmt.Sprint(r.Sizes.Clients), s.Connected == r.Sizes.Clients)
	q := r.Quiet
	v.row("read p50 / p99 / max before the storm", fmt.Sprintf("%v / %v / %v", short(q.Reads.P50), short(q.Reads.P99), short(q.Reads.Max)), "", true)
	if r.Sizes.Bare > 0 {
		b := r.Calm.Reads
		v.row("read p50 / p99 / max during bare establishments", fmt.Sprintf("%v / %v / %v", short(b.P50), short(b.P99), short(b.Max)), "", true)
	}
	v.bystanders("during the storm", q, r.During)
	v.row("CPU of this machine's other work during the storm", short(r.Others), "", true)
	each := float64(s.Attempts) / float64(max(1, s.Clients))
	v.row("TCP connects per client (most)", fmt.Sprintf("%.2f (%d)", each, s.MaxAttempts), fmt.Sprintf("≤ %v on average", maxAttempts), each <= maxAttempts)
	per := func(n int) string { return fmt.Sprintf("%.2f (%d)", float64(n)/float64(max(1, s.Clients)), n) }
	v.row("silent closes per client", per(s.Silent), "", true)
	v.row("hints per client", per(s.Hints), "", true)
	v.row("longest hint", s.MaxHint, "", true)
	v.row("refusals without a hint, timeouts, others", fmt.Sprintf("%d, %d, %d", s.Unhinted, s.Timeouts, s.Other), "", true)
	v.row("codes", s.Codes, "", true)
	v.row("time to a session p50 / p99", fmt.Sprintf("%v / %v", short(s.P50), short(s.P99)), "", true)
	if r.Sizes.Bare > 0 {
		scale := float64(r.Sizes.Clients) / float64(r.Sizes.Bare)
		server, clients := time.Duration(float64(r.BareServer)*scale), time.Duration(float64(r.Bare.CPU)*scale)
		v.row(fmt.Sprintf("CPU of %d bare establishments (%d measured), server / clients", r.Sizes.Clients, r.Sizes.Bare), fmt.Sprintf("%v / %v", short(server), short(clients)), "", true)
		bound := time.Duration(drainFactor * float64(max(server, clients)))
		v.row("drain", short(s.Last), fmt.Sprintf("≤ %v", short(bound)), s.Last <= bound && s.Connected == r.Sizes.Clients)
	} else {
		v.row("drain", short(s.Last), "", true)
	}
	v.row("CPU of the storm, server / clients", fmt.Sprintf("%v / %v", short(r.StormServer), short(s.CPU)), "", true)
	v.row("stops of the world / longest, from the start", fmt.Sprintf("%d / %v", r.Peak.Pauses.N, short(r.Peak.Pauses.Max)), "", true)
	v.row("resident before / most", mib(r.Before.RSS)+" / "+mib(r.Peak.RSSPeak), "", true)
	if r.Sizes.Loopers > 0 {
		v.bystanders(fmt.Sprintf("while %d clients ignore hints", r.Sizes.Loopers), q, r.Loopers)
		l := r.Loop
		v.row("their connects / sessions / hints / silent closes", fmt.Sprintf("%d / %d / %d / %d", l.Attempts, l.Connected, l.Hints, l.Silent), "", true)
		grown := r.Loop1.RSSPeak - r.Loop0.RSS
		v.row("memory meanwhile, from / most", mib(r.Loop0.RSS)+" / "+mib(r.Loop1.RSSPeak), fmt.Sprintf("≤ +%.0f %% and 32 MiB", 100*flatMemory),
			grown <= int64(flatMemory*float64(r.Loop0.RSS))+32<<20)
	}
	v.row("leases, sessions, channels, budget afterwards", fmt.Sprintf("%s, %d, %d, %d", strings.TrimSpace(r.After.leased()+" 0"), r.After.Sessions, r.After.Channels, r.After.BudgetReserved), "0", true)
}

func (r *FloodReport) print(v *verdicts) {
	v.head(fmt.Sprintf("flood over %d connections, memory limit %s", r.Sizes.Connections, mib(r.MemoryLimit)))
	v.bystanders("during the flood", r.Quiet, r.During)
	v.row("channels, chunks, bytes", fmt.Sprintf("%d, %d, %s", r.Flood.Connections, r.Flood.Chunks, mib(r.Flood.Bytes)), "", true)
	v.row("ends", r.Flood.Codes, "", true)
	v.row("silent closes", r.Flood.Silent, "", true)
	v.row("stops of the world / longest, from the start", fmt.Sprintf("%d / %v", r.Peak.Pauses.N, short(r.Peak.Pauses.Max)), "", true)
	v.row("budget, most", mib(r.Peak.BudgetPeak), "≤ "+mib(r.Peak.BudgetMax), r.Peak.BudgetPeak <= r.Peak.BudgetMax)
	bound := int64((1 + memorySlack) * float64(r.Peak.BudgetMax))
	v.row("memory before / most", mib(r.Before.RSS)+" / "+mib(r.Peak.RSSPeak), "≤ +"+mib(bound), r.Peak.RSSPeak-r.Before.RSS <= bound)
	v.row(fmt.Sprintf("requests of %s through the trusted ingress", mib(int64(r.Sizes.BulkBytes))), r.Bulks, fmt.Sprint(r.Sizes.Bulks), r.Bulks == r.Sizes.Bulks)
	v.row("leases and budget afterwards", strings.TrimSpace(r.After.leased()+" 0"), "0", true)
}

func (r *HogReport) print(v *verdicts, what string) {
	v.head(fmt.Sprintf("hog on %d connections: %s", r.Sizes.Connections, what))
	v.row("answers, hog / second", fmt.Sprintf("%d / %d", r.Hog.Good, r.Second.Good), "", true)
	v.row("second's share", fmt.Sprintf("%.0f %%", 100*r.Share()), fmt.Sprintf("≥ %.0f %%", 100*fairShare), r.Share() >= fairShare)
	v.row("refused as busy, hog / second", fmt.Sprintf("%d / %d", r.Hog.Busy, r.Second.Busy), "", true)
	v.row("latency p50 / p99 of the hog", fmt.Sprintf("%v / %v", short(r.Hog.Latency.P50), short(r.Hog.Latency.P99)), "", true)
	v.row("latency p50 / p99 of the second", fmt.Sprintf("%v / %v", short(r.Second.Latency.P50), short(r.Second.Latency.P99)), "≤ the hog's p99", r.Second.Latency.P99 <= r.Hog.Latency.P99)
}

// Run runs the tests at full size, or the one named, and prints the tables to w.
// It returns how many bounds were missed. protection picks one of "balanced",
// "SharedOnly" and "limits off"; only the first is judged.
func (f Full) Run(ctx context.Context, w io.Writer, only, protection string) (missed int, err error) {
	v := &verdicts{w: w, judged: true}
	wants := func(name string) bool { return only == "" || only == name }
	if wants("storm") {
		for _, how := range []string{balanced, shared, unlimited} {
			if protection != "" && protection != how {
				continue
			}
			n := f.Storm
			c := serverConfig{Protection: how, MaxSessions: n.Clients + n.Clients/5, ListenBacklog: 4096}
			if how != balanced {
				n.Bare = 0
			}
			v.judged = how == balanced
			r, err := storm(ctx, pinned, c, n)
			r.print(v) // what there is
			if err != nil && v.judged {
				return v.missed, fmt.Errorf("storm: %w", err)
			} else if err != nil {
				fmt.Fprintf(w, "\nThis run ended early: %v\n", err)
			}
		}
		v.judged = true
	}
	if wants("flood") {
		// The budget bounds what is held; without a limit the collector lets twice
		// that lie around.
		c := serverConfig{Protection: balanced, MaxSessions: 1000, ListenBacklog: 4096, BudgetBytes: 128 << 20, MemoryLimit: 160 << 20}
		r, err := flood(ctx, pinned, c, f.Flood)
		if err != nil {
			return v.missed, fmt.Errorf("flood: %w", err)
		}
		r.print(v)
	}
	if wants("hog") {
		n := f.Hog
		n.Method = true
		if protection == "" || protection == shared {
			v.judged = false
			r, err := hogs(ctx, pinned, serverConfig{Protection: shared, MaxSessions: 1000, Executing: 8}, n)
			if err != nil {
				return v.missed, fmt.Errorf("hog: %w", err)
			}
			r.print(v, "calls of 2 ms, 8 at once, SharedOnly")
			v.judged = true
		}
		r, err := hogs(ctx, pinned, serverConfig{Protection: balanced, MaxSessions: 1000, Executing: 8}, n)
		if err != nil {
			return v.missed, fmt.Errorf("hog: %w", err)
		}
		r.print(v, "calls of 2 ms, 8 at once")
		n.Method = false
		if r, err = hogs(ctx, pinned, serverConfig{Protection: balanced, MaxSessions: 1000, RunSlots: 1}, n); err != nil {
			return v.missed, fmt.Errorf("hog: %w", err)
		}
		r.print(v, "reads, one run slot")
	}
	return v.missed, nil
}
