package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Connections is the most that a plan has open at once.
func (p *Plan) Connections() int {
	held, most := 0, 0
	for _, f := range p.Phases {
		if f.Release {
			held = 0
		}
		if f.Connect != nil {
			held += f.Connect.Clients
		}
		now := held
		if f.Flood != nil {
			now += f.Flood.total()
		}
		most = max(most, now)
	}
	return most + p.Steady.sessions()
}

// String says what the plan will do, a line for each part.
func (p *Plan) String() string {
	var b strings.Builder
	line := func(head, format string, args ...any) {
		fmt.Fprintf(&b, "%-8s %s\n", head, fmt.Sprintf(format, args...))
	}
	line("plan", "%s: %v at most, %d connections at most", p.Name, p.Duration(), p.Connections())
	if s := &p.Steady; s.sessions() > 0 {
		var parts []string
		rate := func(n int, r float64) float64 {
			if r <= 0 {
				r = float64(n)
			}
			return r
		}
		if s.Readers > 0 {
			parts = append(parts, fmt.Sprintf("%d readers, %v reads/s of %d nodes", s.Readers, rate(s.Readers, s.ReadRate), max(1, s.NodesPerRead)))
		}
		if s.Writers > 0 {
			parts = append(parts, fmt.Sprintf("%d writers, %v writes/s of %s with its own value", s.Writers, rate(s.Writers, s.WriteRate), s.WriteNode))
		}
		if s.Subscribers > 0 {
			parts = append(parts, fmt.Sprintf("%d subscribers", s.Subscribers))
		}
		line("steady", "%s", strings.Join(parts, "; "))
	}
	for i := range p.Phases {
		line("phase", "%s", p.Phases[i].describe())
	}
	return b.String()
}

func (f *Phase) describe() string {
	what := []string{fmt.Sprintf("%s, %v", f.Name, f.Duration)}
	if f.UntilConnected {
		what[0] += " or until all clients have a session"
	}
	add := func(format string, args ...any) { what = append(what, fmt.Sprintf(format, args...)) }
	if f.Release {
		add("clients leave")
	}
	if f.Cut > 0 {
		add("%.0f %% of the connections are reset", 100*f.Cut)
	}
	if c := f.Connect; c != nil {
		how := "at once"
		switch {
		case c.Rate > 0:
			how = fmt.Sprintf("at %v/s", c.Rate)
		case c.Ramp > 0:
			how = fmt.Sprintf("within %v", c.Ramp)
		}
		if c.Subscribe {
			how += ", with a subscription each"
		}
		if c.IgnoreHints {
			how += ", ignoring hints"
		}
		if c.Flap {
			how += ", again and again"
		}
		add("%d clients connect %s", c.Clients, how)
	}
	if f.Flood != nil {
		for _, k := range f.Flood.kinds() {
			if *k.n > 0 {
				add("%d %s", *k.n, k.what)
			}
		}
	}
	return strings.Join(what, "; ")
}

// SetLimit sets one limit, given as key=value with a key of [Limits] in YAML.
func SetLimit(l *Limits, text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("%q: need KEY=VALUE", text)
	}
	next := *l
	d := yaml.NewDecoder(bytes.NewReader([]byte(key + ": " + value)))
	d.KnownFields(true)
	if err := d.Decode(&next); err != nil && !errors.Is(err, io.EOF) {
		return explain(text, false, err)
	}
	if err := next.validate(); err != nil {
		return err
	}
	*l = next
	return nil
}
