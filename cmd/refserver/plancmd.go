package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"text/tabwriter"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/spf13/cobra"
)

// planView is a plan as operators see it. Owner keys are in it only where the
// reader can see the configuration file anyway.
type planView struct {
	Mode             string        `json:"mode"`
	FootprintBytes   int64         `json:"footprintBytes"`
	MaxTrackedOwners int           `json:"maxTrackedOwners"`
	TooFewOwners     bool          `json:"tooFewOwners,omitempty"` // for the channels there may be
	RunSlots         int64         `json:"runSlots"`               // 0 = no bound
	HandshakeTimeout string        `json:"handshakeTimeout"`
	Stages           []stageView   `json:"stages"`
	TrustedOwners    []trustedView `json:"trustedOwners,omitempty"`
}

type stageView struct {
	Stage          string     `json:"stage"`
	Bytes          bool       `json:"bytes"` // amounts are bytes, not a count
	Total          int64      `json:"total"`
	Capacity       int64      `json:"capacity"`
	Unit           int64      `json:"unit"`
	Shared         int64      `json:"shared"`
	Kept           floorsView `json:"kept"`
	OwnerHardLimit int64      `json:"ownerHardLimit"`
	WhenFull       string     `json:"whenFull"`
}

// floorsView has an amount for each class that can have a floor.
type floorsView struct {
	Bootstrap int64 `json:"bootstrap"`
	Reconnect int64 `json:"reconnect"`
	Control   int64 `json:"control"`
	Trusted   int64 `json:"trusted"`
}

type trustedView struct {
	Key    string               `json:"key"`
	Weight int                  `json:"weight"`
	Stages map[string]floorView `json:"stages"`
}

type floorView struct {
	Kept      int64 `json:"kept"`
	HardLimit int64 `json:"hardLimit"`
}

func viewPlan(p *isolation.Plan) planView {
	v := planView{Mode: p.Mode.String(), FootprintBytes: p.Footprint, MaxTrackedOwners: p.MaxTrackedOwners,
		TooFewOwners: p.TooFewOwners(), RunSlots: p.RunSlots, HandshakeTimeout: p.HandshakeTimeout.String()}
	for _, s := range p.Stages {
		v.Stages = append(v.Stages, stageView{
			Stage: s.Stage.String(), Bytes: inBytes(s.Stage), Total: s.Total, Capacity: s.Capacity, Unit: s.Unit, Shared: s.Shared,
			Kept:           floorsView{Bootstrap: s.Bootstrap, Reconnect: s.Reconnect, Control: s.Control, Trusted: s.Trusted},
			OwnerHardLimit: s.HardLimit, WhenFull: stack.WhenFull(s.Stage),
		})
	}
	return v
}

// withOwners adds the trusted owners by key.
func (v planView) withOwners(p *isolation.Plan) planView {
	for _, o := range p.Trusted {
		t := trustedView{Key: o.Key, Weight: o.Weight, Stages: map[string]floorView{}}
		for s := range isolation.Stage(isolation.Stages) {
			t.Stages[s.String()] = floorView{Kept: o.Floor[s], HardLimit: o.HardLimit[s]}
		}
		v.TrustedOwners = append(v.TrustedOwners, t)
	}
	return v
}

func inBytes(s isolation.Stage) bool {
	return s == isolation.ReassemblyBytes || s == isolation.RequestQueueBytes
}

func (a *app) newPlan() *cobra.Command {
	s := &serveFlags{}
	asJSON := false
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show how the server would be divided between its clients",
		Long: `Show how "serve" with the same settings would divide the server between its
clients: for each stage of a request what there is, what of it is kept for whom,
what one owner may hold, and what a client sees when it is full. Nothing is
started. Settings that cannot work are named with the least value that does.`,
		Example: `  refserver plan
  refserver plan --config /etc/breakwater/refserver.yaml --json
  BREAKWATER_LIMITS_MAX_SESSIONS=6000 refserver plan`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.plan(cmd, s)
			if err != nil {
				return err
			}
			view := viewPlan(p).withOwners(p)
			if asJSON {
				e := json.NewEncoder(a.stdout)
				e.SetIndent("", "  ")
				return e.Encode(view)
			}
			return view.print(a.stdout)
		},
	}
	s.add(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON instead of tables")
	return cmd
}

// plan resolves the settings as serve does.
func (a *app) plan(cmd *cobra.Command, flags *serveFlags) (*isolation.Plan, error) {
	c, err := a.load()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(flags.apply(c, cmd.Flags()), c.locate()); err != nil {
		return nil, err
	}
	// The number of run slots depends on GOMAXPROCS, which serve raises.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(planRuntime(c.Runtime).procs))
	o, err := c.options(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, settingError(err)
	}
	p, err := o.Plan()
	return p, settingError(err)
}

// print writes the plan as tables.
func (v planView) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	line("mode\t%s", v.Mode)
	if v.FootprintBytes > 0 {
		line("one message in assembly takes\t%s", roughSize(v.FootprintBytes))
	}
	if v.RunSlots > 0 {
		line("requests running inline at once\t%d", v.RunSlots)
	} else {
		line("requests running inline at once\tunbounded")
	}
	if v.MaxTrackedOwners > 0 {
		line("owners tracked at once\t%d", v.MaxTrackedOwners)
	}
	if v.TooFewOwners {
		line("! fewer than channels\towners past that are refused (isolation.maxTrackedOwners)")
	}
	line("handshake must be complete within\t%s\n", v.HandshakeTimeout)
	if err := w.Flush(); err != nil {
		return err
	}
	line("stage\tcapacity\tof\tshared\tkept: start-up\treturning\tfreeing\ttrusted\tone owner at most")
	for _, s := range v.Stages {
		n := s.amount
		line("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", s.Stage, n(s.Capacity), n(s.Total), n(s.Shared), n(s.Kept.Bootstrap),
			n(s.Kept.Reconnect), n(s.Kept.Control), n(s.Kept.Trusted), n(s.OwnerHardLimit))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nwhen it is full")
	for _, s := range v.Stages {
		line("  %s\t%s", s.Stage, s.WhenFull)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(v.TrustedOwners) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	line("trusted owner\tweight\tstage\tkept\tat most")
	for _, o := range v.TrustedOwners {
		for _, s := range v.Stages {
			f := o.Stages[s.Stage]
			line("%s\t%d\t%s\t%s\t%s", o.Key, o.Weight, s.Stage, s.amount(f.Kept), s.amount(f.HardLimit))
		}
	}
	return w.Flush()
}

func (s stageView) amount(n int64) string {
	switch {
	case n == 0:
		return "-"
	case s.Bytes:
		return roughSize(n)
	}
	return fmt.Sprint(n)
}

// roughSize is a number of bytes for people: three or four digits and a unit.
func roughSize(n int64) string {
	unit := 0
	f := float64(n)
	for f >= 1024 && unit < 4 {
		f /= 1024
		unit++
	}
	name := [...]string{"B", "KiB", "MiB", "GiB", "TiB"}[unit]
	if f == float64(int64(f)) || f >= 100 {
		return fmt.Sprintf("%.0f %s", f, name)
	}
	return fmt.Sprintf("%.1f %s", f, name)
}
