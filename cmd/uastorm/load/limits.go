package load

import (
	"fmt"
	"time"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

// Limits are what a phase must keep to. A field that is not given is no limit; 0
// is one where it says so.
type Limits struct {
	// ReadP99, WriteP99 and ConnectP99 bound the 99th percentile of latency, counted
	// from when an operation was due.
	ReadP99    time.Duration `yaml:"readP99"`
	WriteP99   time.Duration `yaml:"writeP99"`
	ConnectP99 time.Duration `yaml:"connectP99"`
	// ReadP99Times bounds it by so many times that of the plan's first phase, where
	// less than 1 ms counts as 1 ms.
	ReadP99Times float64 `yaml:"readP99Times"`
	// ReadsFailed, WritesFailed and NotificationsLost are the most there may be; 0
	// is none.
	ReadsFailed       *int `yaml:"readsFailed"`
	WritesFailed      *int `yaml:"writesFailed"`
	NotificationsLost *int `yaml:"notificationsLost"`
	// Notifications is the least number of values that must have arrived.
	Notifications *int `yaml:"notifications"`
	// Connected is the least share, 0 to 1, of the clients that hold a session at the
	// end; ConnectedWithin the time in which all must have had one.
	Connected       *float64      `yaml:"connected"`
	ConnectedWithin time.Duration `yaml:"connectedWithin"`
	// AttemptsPerClient is the most TCP connects of the clients on average.
	AttemptsPerClient float64 `yaml:"attemptsPerClient"`
	// Unhinted and SilentCloses are the most refusals of clients without a hint when
	// to come back, and without a word; SessionsLost the most sessions of clients
	// that ended by themselves. 0 is none.
	Unhinted     *int `yaml:"unhinted"`
	SilentCloses *int `yaml:"silentCloses"`
	SessionsLost *int `yaml:"sessionsLost"`
}

func (l *Limits) validate() *FieldError {
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"readP99", l.ReadP99}, {"writeP99", l.WriteP99}, {"connectP99", l.ConnectP99}, {"connectedWithin", l.ConnectedWithin}} {
		if d.v < 0 {
			return bad("%v is negative", d.v).in(d.name)
		}
	}
	for _, n := range []struct {
		name string
		v    *int
	}{{"readsFailed", l.ReadsFailed}, {"writesFailed", l.WritesFailed}, {"notificationsLost", l.NotificationsLost}, {"notifications", l.Notifications},
		{"unhinted", l.Unhinted}, {"silentCloses", l.SilentCloses}, {"sessionsLost", l.SessionsLost}} {
		if n.v != nil && *n.v < 0 {
			return bad("%d is negative", *n.v).in(n.name)
		}
	}
	if l.Connected != nil {
		if err := check(bounded{"connected", *l.Connected, 0, 1}); err != nil {
			return err
		}
	}
	return check(bounded{"readP99Times", l.ReadP99Times, 0, 1e6}, bounded{"attemptsPerClient", l.AttemptsPerClient, 0, 1e6})
}

// Judge holds what was measured against the limits of a plan.
func Judge(p *Plan, res *measure.Result, facts []Facts) []measure.Verdict {
	j := judge{}
	var first *measure.Phase
	for i := range p.Phases {
		f := &p.Phases[i]
		var phase *measure.Phase
		for k := range res.Phases {
			if res.Phases[k].Name == f.Name {
				phase = &res.Phases[k]
			}
		}
		if phase == nil || i >= len(facts) {
			j.add(f.Name, "phase", "ran", "did not", false)
			continue
		}
		if first == nil {
			first = phase
		}
		j.phase(f, phase, first, &facts[i])
	}
	if s := &p.Steady; s.Subscribers > 0 && s.CounterNode != "" && len(facts) > 0 {
		// Of a counter that stands still nothing can be lost.
		if n := facts[len(facts)-1].CounterValues; n < 2 {
			j.add("", "values of the counter "+s.CounterNode, "at least 2", fmt.Sprint(n), false)
		}
	}
	return j.verdicts
}

type judge struct{ verdicts []measure.Verdict }

func (j *judge) add(phase, what, limit, measured string, pass bool) {
	j.verdicts = append(j.verdicts, measure.Verdict{Phase: phase, What: what, Limit: limit, Measured: measured, Pass: pass})
}

func (j *judge) phase(f *Phase, phase, first *measure.Phase, facts *Facts) {
	l, t := &f.Limits, &phase.Totals
	p99 := func(what string, kind measure.Kind, limit time.Duration, plus string) {
		if limit <= 0 {
			return
		}
		q := t.Operations[kind].Latency
		if q.Count == 0 {
			j.add(f.Name, what, "at most "+limit.String()+plus, "nothing", false)
			return
		}
		got := time.Duration(q.P99 * float64(time.Millisecond))
		j.add(f.Name, what, "at most "+limit.String()+plus, rounded(got), got <= limit)
	}
	p99("read p99", measure.Read, l.ReadP99, "")
	p99("write p99", measure.Write, l.WriteP99, "")
	p99("connect p99", measure.Connect, l.ConnectP99, "")
	if l.ReadP99Times > 0 {
		base := max(1, first.Totals.Operations[measure.Read].Latency.P99)
		p99("read p99", measure.Read, time.Duration(base*l.ReadP99Times*float64(time.Millisecond)).Round(10*time.Microsecond),
			fmt.Sprintf(" (%v times that of %s)", l.ReadP99Times, first.Name))
	}
	most := func(what string, limit *int, got int) {
		if limit != nil {
			j.add(f.Name, what, fmt.Sprintf("at most %d", *limit), fmt.Sprint(got), got <= *limit)
		}
	}
	most("reads failed", l.ReadsFailed, int(t.Operations[measure.Read].Errors))
	most("writes failed", l.WritesFailed, int(t.Operations[measure.Write].Errors))
	most("notifications lost", l.NotificationsLost, int(t.Lost))
	if l.Notifications != nil {
		j.add(f.Name, "notifications", fmt.Sprintf("at least %d", *l.Notifications), fmt.Sprint(t.Notifications), t.Notifications >= uint64(*l.Notifications))
	}
	if l.Connected != nil {
		share := 1.0
		if facts.Clients > 0 {
			share = float64(facts.Holding) / float64(facts.Clients)
		}
		j.add(f.Name, "clients with a session", fmt.Sprintf("at least %.0f %%", 100**l.Connected),
			fmt.Sprintf("%d of %d", facts.Holding, facts.Clients), share >= *l.Connected)
	}
	if l.ConnectedWithin > 0 {
		measured, pass := "not within "+rounded(facts.Ran), false
		if facts.Held > 0 {
			measured, pass = rounded(facts.Held), facts.Held <= l.ConnectedWithin
		}
		j.add(f.Name, "all clients have a session", "within "+l.ConnectedWithin.String(), measured, pass)
	}
	if l.AttemptsPerClient > 0 {
		mean := float64(facts.Attempts) / float64(max(1, facts.Clients))
		j.add(f.Name, "connects per client", fmt.Sprintf("at most %v", l.AttemptsPerClient),
			fmt.Sprintf("%.2f, %d of one", mean, facts.MaxAttempts), mean <= l.AttemptsPerClient)
	}
	most("refusals without a hint", l.Unhinted, facts.Unhinted)
	most("closed without a word", l.SilentCloses, facts.Silent)
	most("sessions lost", l.SessionsLost, facts.Lost)
}

// rounded keeps three or so digits.
func rounded(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		d = d.Round(100 * time.Millisecond)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= 10*time.Millisecond:
		d = d.Round(100 * time.Microsecond)
	default:
		d = d.Round(time.Microsecond)
	}
	return d.String()
}
