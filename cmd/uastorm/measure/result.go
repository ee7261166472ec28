package measure

import "time"

// Version is the version of Result's JSON. It changes when a field changes its
// meaning or goes.
const Version = 1

// A Result is all that a run measured: plain data.
type Result struct {
	// Version is Version at the time of writing.
	Version int `json:"version"`
	// Title, Target, Server and Command are those of Options.
	Title   string `json:"title"`
	Target  string `json:"target"`
	Server  string `json:"server,omitempty"`
	Command string `json:"command,omitempty"`
	// Begun is when the run began; Seconds how long it took.
	Begun   time.Time `json:"begun"`
	Seconds float64   `json:"seconds"`
	// Processors is how many the generator may use at once ([Processors]).
	Processors int `json:"processors"`
	// Limits are the bounds beyond which a generator counts as saturated.
	Limits SaturationLimits `json:"limits"`
	// Phases are in order; there is one at least.
	Phases []Phase `json:"phases"`
	// Total is over all phases.
	Total Totals `json:"total"`
	// Samples are one a second, oldest first. A run of more than two hours has
	// neighbours merged: their counts are added, their quantiles are the worse.
	Samples []Sample `json:"samples,omitempty"`
	// Events are in order of time, EventLimit at most.
	Events []Event `json:"events,omitempty"`
	// Metrics describes the server's metrics that the samples hold, by name.
	Metrics []Metric `json:"metrics,omitempty"`
	// Clients and Floods are what those of each phase met with, filled in by the
	// load test's command.
	Clients []ClientFacts `json:"clients,omitempty"`
	Floods  []FloodFacts  `json:"floods,omitempty"`
	// Verdicts are the load test's judgements, filled in by its command.
	Verdicts []Verdict `json:"verdicts,omitempty"`
}

// A Phase is a named stretch of the run.
type Phase struct {
	Name string `json:"name"`
	// Begin and End are seconds since the run began.
	Begin float64 `json:"begin"`
	End   float64 `json:"end"`
	// Totals are what happened in it; operations count where they were
	// scheduled, all else when it happened.
	Totals Totals `json:"totals"`
	// Saturation tells whether the generator kept up.
	Saturation Saturation `json:"saturation"`
}

// Totals are the sums of a stretch of time.
type Totals struct {
	Counts
	// Operations has the kinds of which there was one at least.
	Operations map[Kind]Operations `json:"operations,omitempty"`
	// Refusals are sorted by count, largest first.
	Refusals []RefusalCount `json:"refusals,omitempty"`
	// Errors of operations, sorted by count, largest first.
	Errors []ErrorCount `json:"errors,omitempty"`
	// Hints are the retry hints given with refusals, in milliseconds.
	Hints Quantiles `json:"hints"`
	// HintBuckets is their histogram; empty buckets at both ends are left out.
	HintBuckets []Bucket `json:"hintBuckets,omitempty"`
	// Lateness is how late the load engine woke, in milliseconds.
	Lateness Quantiles `json:"lateness"`
}

// Counts are counters of one stretch of time. All are of that stretch alone.
type Counts struct {
	// Attempts are connections tried.
	Attempts uint64 `json:"attempts"`
	// Refused are all refusals; Hinted are those that told when to come back.
	Refused uint64 `json:"refused"`
	Hinted  uint64 `json:"hinted"`
	// SessionsUp and SessionsDown are sessions activated and ended or lost.
	SessionsUp   uint64 `json:"sessionsUp"`
	SessionsDown uint64 `json:"sessionsDown"`
	// ConnectionsUp and ConnectionsDown are TCP connections made and gone.
	ConnectionsUp   uint64 `json:"connectionsUp"`
	ConnectionsDown uint64 `json:"connectionsDown"`
	// Notifications are values that arrived on subscriptions.
	Notifications uint64 `json:"notifications"`
	// Gaps are jumps of sequence numbers; Lost are the values known to be
	// missing for good; Duplicates those that came twice.
	Gaps       uint64 `json:"gaps"`
	Lost       uint64 `json:"lost"`
	Duplicates uint64 `json:"duplicates"`
}

// Operations are the operations of one kind in a stretch of time.
type Operations struct {
	// Count is how many ended, failed ones included; Errors how many failed.
	Count  uint64 `json:"count"`
	Errors uint64 `json:"errors"`
	// Latency is from the scheduled time, Service from the time they began;
	// milliseconds.
	Latency Quantiles `json:"latency"`
	Service Quantiles `json:"service"`
}

// Quantiles sum up a histogram. All are 0 when Count is.
type Quantiles struct {
	Count uint64  `json:"count"`
	Min   float64 `json:"min"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
}

// A Bucket counts values up to a bound that the bucket before does not hold.
type Bucket struct {
	// UpTo is the bound, inclusive, in milliseconds.
	UpTo  float64 `json:"upTo"`
	Count uint64  `json:"count"`
}

// A RefusalCount counts refusals of one way with one StatusCode.
type RefusalCount struct {
	How   Refusal `json:"how"`
	Code  uint32  `json:"code"`
	Name  string  `json:"name"`
	Count uint64  `json:"count"`
	// Hinted is how many carried a retry hint.
	Hinted uint64 `json:"hinted"`
}

// An ErrorCount counts failed operations of one kind with one StatusCode.
type ErrorCount struct {
	Kind  Kind   `json:"kind"`
	Code  uint32 `json:"code"`
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

// A Sample is what happened in about one second.
type Sample struct {
	// At is its end, in seconds since the run began; Seconds is its length.
	At      float64 `json:"at"`
	Seconds float64 `json:"seconds"`
	// Phase is the name of the phase in its middle.
	Phase string `json:"phase"`
	// Sessions and Connections are up at its end.
	Sessions    int64 `json:"sessions"`
	Connections int64 `json:"connections"`
	Counts
	// Operations has the kinds of which there was one at least.
	Operations map[Kind]Operations `json:"operations,omitempty"`
	// Refusals are by way, Errors of operations by the StatusCode's name.
	Refusals map[Refusal]uint64 `json:"refusals,omitempty"`
	Errors   map[string]uint64  `json:"errors,omitempty"`
	// RefusalCodes are refusals by the StatusCode's name.
	RefusalCodes map[string]uint64 `json:"refusalCodes,omitempty"`
	// Hints and Lateness are as in Totals.
	Hints    Quantiles `json:"hints"`
	Lateness Quantiles `json:"lateness"`
	// CPU is how many processors the generator used on average; below 0 when
	// the system does not tell.
	CPU float64 `json:"cpu"`
	// Saturated tells that the generator did not keep up in this second: more
	// CPU or lateness than the limits allow.
	Saturated bool `json:"saturated,omitempty"`
	// Server has the server's metrics, as scraped: a counter is its total, a
	// histogram its _count and _sum, a series with labels stands under its name
	// and labels as Prometheus writes them, a family of more than
	// SeriesPerFamily series under its name, added up.
	Server map[string]float64 `json:"server,omitempty"`
}

// A Metric describes a family of the server's metrics.
type Metric struct {
	Name string `json:"name"`
	// Type is counter, gauge, histogram, summary or untyped.
	Type string `json:"type"`
	Help string `json:"help,omitempty"`
}

// An Event is something worth a line on the time axis.
type Event struct {
	// At is in seconds since the run began.
	At   float64 `json:"at"`
	Text string  `json:"text"`
}

// A Verdict is one judgement: a limit and what was measured against it.
type Verdict struct {
	// Phase is the phase judged; empty: the whole run.
	Phase string `json:"phase,omitempty"`
	// What is judged, such as "read p99".
	What string `json:"what"`
	// Limit and Measured are for people, with units.
	Limit    string `json:"limit"`
	Measured string `json:"measured"`
	Pass     bool   `json:"pass"`
}

// Passed tells whether every verdict passed and the generator kept up.
func (r *Result) Passed() bool {
	for _, v := range r.Verdicts {
		if !v.Pass {
			return false
		}
	}
	saturated, _ := r.Saturated()
	return !saturated
}
