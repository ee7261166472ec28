package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	neturl "net/url"
	"os"
	"strings"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/load"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/progress"
	"github.com/breakwater-ua/breakwater/cmd/uastorm/report"
	"github.com/breakwater-ua/breakwater/security/pki"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
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
	command  string
	scenario string // its file or name; empty: flags make the plan
	flags    *pflag.FlagSet
	target   *targetFlags
	output   *outputFlags
	plan     *load.Plan
	files    outputFiles
}

// run does what a command asks for: it says what, does it, and judges.
func (r *runner) run(ctx context.Context, url string) error {
	defer r.target.close()
	if err := r.plan.Validate(); err != nil {
		return fails(exitUsage, r.explain(err))
	}
	address, err := r.target.address(ctx, url)
	if err != nil {
		return err
	}
	if err := r.target.unused(address); err != nil {
		return fails(exitUsage, err)
	}
	want, err := r.target.security()
	if err != nil {
		return fails(exitUsage, err)
	}
	metrics, err := r.metricsClient(ctx)
	if err != nil {
		return err
	}
	if err := r.plan.For(address.Scheme()); err != nil {
		return fails(exitUsage, r.explain(err))
	}
	if r.plan.Connections() == 0 {
		return fails(exitUsage, r.explain(errNothing))
	}
	if have, need := descriptors(), uint64(r.plan.Connections()+spareDescriptors); have > 0 && need > have {
		return fails(exitUsage, fmt.Errorf("%d connections need as many open files; this process may have %d: see ulimit -n", need, have))
	}
	target, err := load.Discover(ctx, address, want)
	if err != nil {
		return unreached(ctx, fmt.Errorf("%s: %w", url, readable(err)))
	}
	target.SessionTimeout = r.target.sessionTimeout
	sources := load.NewSources(target.Host.Addr(), r.target.sources)
	if err := target.Try(ctx); err != nil {
		return unreached(ctx, r.refused(target, err))
	}
	if r.files, err = r.open(); err != nil {
		return fails(exitUsage, err)
	}
	// What will be done stands before what is done, also in a log.
	fmt.Fprintf(r.stderr, "target   %s\nsources  %s\n%s\n", target, sources, r.plan)
	res, err := r.measure(ctx, target, sources, metrics)
	return r.conclude(res, err)
}

// errInterrupted is what a signal ends a command with.
var errInterrupted = errors.New("interrupted")

// unreached is the end of a command that could not reach its target, unless it
// was a signal that kept it from that.
func unreached(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fails(exitCancelled, errInterrupted)
	}
	return fails(exitTarget, err)
}

// refused says what can be done about a server that lets nobody in.
func (r *runner) refused(t *load.Target, err error) error {
	code, _ := reconnect.Signal(err)
	err = fmt.Errorf("%s does not let uastorm in: %w", t, readable(err))
	if t.Key == nil || !doubtsCertificate(code) {
		return err
	}
	return fmt.Errorf("%w\nDoes the server trust uastorm's certificate? Its thumbprint is %s, and it is in the folder of --pki; or try --policy None",
		err, pki.Thumbprint(t.Key.Certificate()))
}

// doubtsCertificate tells whether a server answers with a code to a certificate
// that it does not trust, or finds fault with (OPC 10000-4 §6.1.3).
func doubtsCertificate(code ua.StatusCode) bool {
	return code == ua.StatusBadSecurityChecksFailed || strings.HasPrefix(uastatus.Name(code), "BadCertificate")
}

// readable is an error without the StatusCode that stands before what HTTP says.
func readable(err error) error {
	var cause *neturl.Error
	if errors.Is(err, ua.StatusBadConnectionClosed) && errors.As(err, &cause) {
		return cause
	}
	return err
}

// measure runs the plan and shows its progress. The result is nil when nothing ran.
func (r *runner) measure(ctx context.Context, target *load.Target, sources load.Sources, metrics *http.Client) (*measure.Result, error) {
	o := measure.Options{Title: r.plan.Name, Target: target.URL, Command: r.command, Phase: setup,
		ServerMetrics: r.output.serverMetrics, Client: metrics,
		Limits: measure.SaturationLimits{MaxLateness: r.output.maxLateness, MaxCPU: r.output.maxCPU}}
	if s := target.Endpoint.Server; s != nil && s.ApplicationName != nil {
		o.Server = s.ApplicationName.Text
	}
	if r.files.lines != nil {
		o.Observers = append(o.Observers, r.files.lines)
	}
	if !r.output.quiet {
		p := progress.Options{Title: r.plan.Name, Target: target.URL, Processors: measure.Processors()}
		if f, ok := r.stderr.(*os.File); ok {
			p = progress.ForFile(f, p)
		}
		view := progress.New(r.stderr, p)
		o.Observers = append(o.Observers, view)
		defer view.Close()
	}
	rec, err := measure.Start(o)
	if err != nil {
		return nil, fails(exitUsage, err)
	}
	e := load.New(load.Options{Target: target, Recorder: rec, Sources: sources})
	said := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(said)
		r.closing(rec)
	})
	err = e.Run(ctx, r.plan)
	if !stop() {
		<-said
	}
	res, facts := rec.Finish(), e.Facts()
	res.Verdicts = load.Judge(r.plan, res, facts)
	load.Record(res, facts)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, load.ErrNotReady): // else this machine was at its end before
		err = unreached(ctx, err)
	case err != nil:
		err = fails(exitTarget, err)
	}
	return res, err
}

// closing says that the signal has been heard: sessions take their time to end.
func (r *runner) closing(rec *measure.Recorder) {
	const text = "interrupted, sessions are being closed; a second Ctrl-C ends uastorm at once"
	rec.Event(text) // and so the progress shows it
	if r.output.quiet {
		fmt.Fprintln(r.stderr, "uastorm:", text)
	}
}

// conclude writes the report and the summary, and says how it all ended. That
// something could not be written does not hide how the run ended.
func (r *runner) conclude(res *measure.Result, err error) error {
	if res == nil {
		return errors.Join(err, r.files.close())
	}
	out := r.stdout
	if r.output.json == "-" || r.output.report == "-" {
		out = r.stderr
	}
	lost := errors.Join(r.files.write(res), r.files.close(), report.Text(out, res))
	if err == nil {
		err = judged(res)
	}
	switch {
	case lost == nil:
		return err
	case err == nil:
		return fails(exitTarget, lost)
	}
	return errors.Join(err, lost)
}

// judged is nil when the generator kept up and all limits were kept.
func judged(res *measure.Result) error {
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
