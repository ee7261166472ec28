package measure

import (
	"fmt"
	"runtime"
	"time"
)

// SaturationLimits are the bounds of a generator that keeps up; see the
// package's text for the rule.
type SaturationLimits struct {
	// MaxLateness bounds the 99th percentile of schedule lateness, in
	// nanoseconds in JSON. Zero is 20 ms; negative is no bound.
	MaxLateness time.Duration `json:"maxLateness"`
	// MaxCPU bounds the share of the processors that the generator may use,
	// 0 to 1. Zero is 0.85; negative is no bound.
	MaxCPU float64 `json:"maxCPU"`
}

const (
	// saturatedSeconds is how many seconds of a phase must be over MaxCPU at
	// least, for a garbage collection in a short phase not to count.
	saturatedSeconds = 3
	// saturatedShare is the share of the seconds that must be exceeded.
	saturatedShare = 0.1
)

func (l SaturationLimits) resolved() SaturationLimits {
	if l.MaxLateness == 0 {
		l.MaxLateness = 20 * time.Millisecond
	}
	if l.MaxCPU == 0 {
		l.MaxCPU = 0.85
	}
	return l
}

func (l SaturationLimits) late(q Quantiles) bool {
	return l.MaxLateness > 0 && q.P99 > milliseconds(l.MaxLateness)
}

func (l SaturationLimits) busy(cpu float64, processors int) bool {
	return l.MaxCPU > 0 && cpu > l.MaxCPU*float64(processors)
}

// Saturation is whether, and why, a generator did not keep up.
type Saturation struct {
	Saturated bool `json:"saturated"`
	// Reason is one sentence; empty when not saturated.
	Reason string `json:"reason,omitempty"`
	// CPU is the mean number of processors used; MaxCPU the highest of a
	// second; below 0 when the system does not tell.
	CPU    float64 `json:"cpu"`
	MaxCPU float64 `json:"maxCPU"`
	// BusySeconds is in how many of Seconds MaxCPU's limit was exceeded.
	BusySeconds int `json:"busySeconds"`
	Seconds     int `json:"seconds"`
}

// judge applies the rule to a phase.
func (l SaturationLimits) judge(s Saturation, lateness Quantiles, processors int) Saturation {
	switch {
	case l.late(lateness):
		s.Saturated = true
		s.Reason = fmt.Sprintf("one wake-up in a hundred was %.0f ms late or more; the limit is %.0f ms",
			lateness.P99, milliseconds(l.MaxLateness))
	case s.BusySeconds >= saturatedSeconds && float64(s.BusySeconds) > saturatedShare*float64(s.Seconds):
		s.Saturated = true
		s.Reason = fmt.Sprintf("more than %.0f %% of %d processors used in %d of %d seconds",
			100*l.MaxCPU, processors, s.BusySeconds, s.Seconds)
	}
	return s
}

// Saturated tells whether the generator did not keep up in one phase at least,
// and in which and why. How the run ends ([EndPhase]) is not looked at: nothing of
// it is judged.
func (r *Result) Saturated() (bool, string) {
	for i := range r.Phases {
		if p := &r.Phases[i]; p.Saturation.Saturated && p.Name != EndPhase {
			return true, fmt.Sprintf("phase %s: %s", p.Name, p.Saturation.Reason)
		}
	}
	return false, ""
}

// processors that the process began with: those of the machine, or fewer when the
// environment (GOMAXPROCS) or the system's quota says so. A program may have more
// threads than that.
var processors = min(runtime.NumCPU(), runtime.GOMAXPROCS(0))

// Processors is how many the generator can use at once.
func Processors() int { return processors }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
