package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/load"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/progress"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/report"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/spf13/pflag"
)

// spareDescriptors are for what is neither client nor flooder.
const spareDescriptors = 64

// setup is the phase before a plan's first.
const setup = "setup"

// outputFlags say where figures go.
type outputFlags struct {
	json, report  string
	serverMetrics string
	quiet         bool
	maxLateness   time.Duration
	maxCPU        float64
}

func (f *outputFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.json, "json", "", "`file` for one JSON object a line: samples, events, the result; - is standard output")
	s.StringVar(&f.report, "report", "", "`file` for the report, one self-contained HTML page")
	s.StringVar(&f.serverMetrics, "server-metrics", "", "`URL` of the server's metrics (Prometheus' text format), scraped once a second for the report")
	s.BoolVarP(&f.quiet, "quiet", "q", false, "no progress, only the result")
	s.DurationVar(&f.maxLateness, "max-lateness", 0, "99th percentile of its own lateness above which uastorm calls itself saturated (default 20ms)")
	s.Float64Var(&f.maxCPU, "max-cpu", 0, "share of its processors above which uastorm calls itself saturated (default 0.85)")
}

// A runner runs one plan.
type runner struct {
	*app
	command string
	target  *targetFlags
	output  *outputFlags
	plan    *load.Plan
}

// run does what a command asks for: it says what, does it, and judges.
func (r *runner) run(ctx context.Context, url string) error {
	defer r.target.close()
	if err := r.plan.Validate(); err != nil {
		return fails(exitUsage, err)
	}
	want, err := r.target.security()
	if err != nil {
		return fails(exitUsage, err)
	}
	address, err := r.target.address(ctx, url)
	if err != nil {
		return err
	}
	if err := r.plan.For(address.Scheme()); err != nil {
		return fails(exitUsage, err)
	}
	if have, need := descriptors(), uint64(r.plan.Connections()+spareDescriptors); have > 0 && need > have {
		return fails(exitUsage, fmt.Errorf("%d connections need as many open files; this process may have %d: see ulimit -n", need, have))
	}
	target, err := load.Discover(ctx, address, want)
	if err != nil {
		return fails(exitTarget, fmt.Errorf("%s: %w", url, err))
	}
	target.SessionTimeout = r.target.sessionTimeout
	sources := load.NewSources(target.Host.Addr(), r.target.sources)
	if err := target.Try(ctx); err != nil {
		return fails(exitTarget, r.refused(target, err))
	}
	// What will be done stands before what is done, also in a log.
	fmt.Fprintf(r.stderr, "target   %s\nsources  %s\n%s\n", target, sources, r.plan)
	res, facts, err := r.measure(ctx, target, sources)
	if res == nil {
		return err
	}
	res.Verdicts = load.Judge(r.plan, res, facts)
	return r.conclude(res, facts, err)
}

// refused says what can be done about a server that lets nobody in.
func (r *runner) refused(t *load.Target, err error) error {
	err = fmt.Errorf("%s does not let uastorm in: %w", t, err)
	code, _ := reconnect.Signal(err)
	if t.Key == nil || !reconnect.IsFatal(code) {
		return err
	}
	return fmt.Errorf("%w\nDoes the server trust uastorm's certificate? Its thumbprint is %s, and it is in the folder of --pki; or try --policy None",
		err, pki.Thumbprint(t.Key.Certificate()))
}

// measure runs the plan and shows its progress.
func (r *runner) measure(ctx context.Context, target *load.Target, sources load.Sources) (res *measure.Result, facts []load.Facts, err error) {
	o := measure.Options{Title: r.plan.Name, Target: target.URL, Command: r.command, Phase: setup, ServerMetrics: r.output.serverMetrics,
		Limits: measure.SaturationLimits{MaxLateness: r.output.maxLateness, MaxCPU: r.output.maxCPU}}
	if s := target.Endpoint.Server; s != nil && s.ApplicationName != nil {
		o.Server = s.ApplicationName.Text
	}
	var lines *measure.Lines
	if r.output.json != "" {
		w, end, openErr := r.create(r.output.json)
		if openErr != nil {
			return nil, nil, fails(exitUsage, openErr)
		}
		lines = measure.NewLines(w)
		o.Observers = append(o.Observers, lines)
		defer func() {
			if res != nil {
				err = errors.Join(err, lines.Result(res))
			}
			err = errors.Join(err, end())
		}()
	}
	if !r.output.quiet {
		p := progress.Options{Title: r.plan.Name, Target: target.URL, Processors: runtime.GOMAXPROCS(0)}
		if f, ok := r.stderr.(*os.File); ok {
			p = progress.ForFile(f, p)
		}
		view := progress.New(r.stderr, p)
		o.Observers = append(o.Observers, view)
		defer view.Close()
	}
	rec, err := measure.Start(o)
	if err != nil {
		return nil, nil, fails(exitUsage, err)
	}
	e := load.New(load.Options{Target: target, Recorder: rec, Sources: sources})
	err = e.Run(ctx, r.plan)
	res, facts = rec.Finish(), e.Facts()
	res.Verdicts = load.Judge(r.plan, res, facts)
	if err != nil && ctx.Err() == nil {
		err = fails(exitTarget, err)
	}
	return res, facts, err
}

// conclude writes the report and the summary, and says how it all ended.
func (r *runner) conclude(res *measure.Result, facts []load.Facts, err error) error {
	out := r.stdout
	if r.output.json == "-" {
		out = r.stderr
	}
	if r.output.report != "" {
		w, end, openErr := r.create(r.output.report)
		if openErr == nil {
			openErr = errors.Join(report.Write(w, res), end())
		}
		err = errors.Join(err, openErr)
	}
	err = errors.Join(err, report.Text(out, res), printFacts(out, facts))
	if err != nil {
		return err
	}
	if saturated, why := res.Saturated(); saturated {
		return fails(exitSaturated, fmt.Errorf("uastorm itself was saturated, so the figures are not the server's: %s", why))
	}
	failed := 0
	for _, v := range res.Verdicts {
		if !v.Pass {
			failed++
		}
	}
	if failed > 0 {
		return fails(exitLimits, fmt.Errorf("%d of %d limits not kept", failed, len(res.Verdicts)))
	}
	return nil
}

// create opens a file to write; - is standard output.
func (r *runner) create(name string) (io.Writer, func() error, error) {
	if name == "-" {
		return r.stdout, func() error { return nil }, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, nil, err
	}
	return f, f.Close, nil
}

// printFacts prints what the clients and floods of each phase met with.
func printFacts(out io.Writer, facts []load.Facts) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	head := false
	for _, f := range facts {
		if f.Clients == 0 && f.Attempts == 0 {
			continue
		}
		if !head {
			line("\nclients of phase\tthere\thold a session\tall after\tconnects\tof one\trefused\twith hint\twithout\tsilent\tsessions lost")
			head = true
		}
		held := "never"
		if f.Held > 0 {
			held = f.Held.Round(time.Millisecond).String()
		}
		line("%s\t%d\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d", f.Phase, f.Clients, f.Holding, held, f.Attempts, f.MaxAttempts, f.Refused, f.Hinted, f.Unhinted, f.Silent, f.Lost)
	}
	head = false
	for _, f := range facts {
		for _, x := range f.Floods {
			if !head {
				line("\nflood of phase\tkind\tat once\ttaken\trefused\theld at the end\tmost\tlongest\tMB sent\tended by")
				head = true
			}
			line("%s\t%s\t%d\t%d\t%d\t%d\t%d\t%v\t%.1f\t%s", f.Phase, x.Kind, x.Connections, x.Opened, x.Refused, x.Held, x.Peak,
				x.Longest.Round(time.Millisecond), float64(x.Bytes)/1e6, ends(x.Ended))
		}
	}
	return w.Flush()
}

// ends lists what ended a flood's connections, the most frequent first.
func ends(m map[string]int) string {
	var names []string
	for n := range m {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		if m[a] != m[b] {
			return m[b] - m[a]
		}
		return strings.Compare(a, b)
	})
	for i, n := range names {
		names[i] = fmt.Sprintf("%d %s", m[n], n)
	}
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}
