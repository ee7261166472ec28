package main

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/load"
	"github.com/spf13/pflag"
)

// errNothing is a plan that would pass because nothing happens.
var errNothing = errors.New("no load: there are no readers, writers, subscribers, clients or floods")

// changesNothing reports the first of the flags that was given although what it
// is for is not there.
func changesNothing(flags *pflag.FlagSet, there bool, without string, names ...string) error {
	for _, n := range names {
		if !there && flags.Changed(n) {
			return fmt.Errorf("--%s changes nothing without %s", n, without)
		}
	}
	return nil
}

// check reports flags that the rest of the command line makes useless, or whose
// values cannot be used.
func (c *common) check(flags *pflag.FlagSet, s *load.Steady) error {
	isUser := strings.HasPrefix(c.target.identity, "user:")
	for _, err := range []error{
		changesNothing(flags, s.Readers > 0, "readers", "read-rate", "read-node", "nodes-per-read"),
		changesNothing(flags, s.Writers > 0, "writers", "write-rate", "write-node"),
		changesNothing(flags, s.Subscribers > 0, "subscribers", "subscribe-node", "counter-node", "items", "publishing-interval"),
		changesNothing(flags, c.target.identity == "certificate", "--identity certificate", "user-certificate", "user-key"),
		changesNothing(flags, isUser, "--identity user:NAME", "password-file"),
	} {
		if err != nil {
			return err
		}
	}
	if v := c.output.maxCPU; flags.Changed("max-cpu") && v != -1 && !(v > 0 && v <= 1) { // NaN too
		return fmt.Errorf("--max-cpu %v, need more than 0 and at most 1, or -1 for no bound", v)
	}
	if n := c.target.sources; n < 0 || n > load.MaxSources {
		return fmt.Errorf("--sources %d, need 0 to %d", n, load.MaxSources)
	}
	if o := &c.output; o.json != "" && o.json == o.report {
		return fmt.Errorf("--json and --report are both %s", o.json)
	}
	return nil
}

// explain puts what is wrong with the plan into the words of whoever wrote it:
// flags on the command line, fields of a scenario's file.
func (r *runner) explain(err error) error {
	if r.scenario != "" {
		return fmt.Errorf("%s: %w", r.scenario, err)
	}
	var f *load.FieldError
	if !errors.As(err, &f) {
		return err
	}
	if flag := r.flagOf(f.Path); flag != "" {
		return fmt.Errorf("--%s: %s", flag, f.Reason)
	}
	return errors.New(f.Reason)
}

// flagOf is the flag that sets a field of a plan; empty: there is none.
func (r *runner) flagOf(path []any) string {
	field, phase := "", ""
	for _, p := range path {
		switch p := p.(type) {
		case string:
			field = p
		case int:
			if field == "phases" && p < len(r.plan.Phases) {
				phase = r.plan.Phases[p].Name
			}
		}
	}
	names := []string{hyphenated(field), strings.TrimSuffix(hyphenated(field), "s")}
	if field == "duration" { // named after its phase, where there is more than one
		names = []string{phase, "duration", "within"}
	}
	for _, n := range names {
		if r.flags.Lookup(n) != nil {
			return n
		}
	}
	return ""
}

// hyphenated makes read-rate of readRate.
func hyphenated(key string) string {
	var b strings.Builder
	for _, c := range key {
		if unicode.IsUpper(c) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
