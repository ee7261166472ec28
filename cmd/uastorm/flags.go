package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/load"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// common are the flags of every command that runs something.
type common struct {
	target targetFlags
	output outputFlags
	limits []string
}

func (c *common) add(s *pflag.FlagSet) {
	c.target.add(s)
	c.output.add(s)
}

func (c *common) addLimits(s *pflag.FlagSet, phase string) {
	s.StringArrayVar(&c.limits, "limit", nil, "`KEY=VALUE` that phase "+phase+" must keep to, such as readP99=250ms or readsFailed=0; may be given often; keys as in scenarios")
}

// limit sets the limits given with --limit.
func (c *common) limit(l *load.Limits) error {
	for _, s := range c.limits {
		if err := load.SetLimit(l, s); err != nil {
			return fails(exitUsage, fmt.Errorf("--limit %w", err))
		}
	}
	return nil
}

// run runs a plan against the target. scenario is where the plan is from; empty:
// the flags have made it.
func (c *common) run(a *app, cmd *cobra.Command, url, scenario string, p *load.Plan) error {
	if err := c.check(cmd.Flags(), &p.Steady); err != nil {
		return fails(exitUsage, err)
	}
	r := &runner{app: a, command: commandLine(), scenario: scenario, flags: cmd.Flags(), target: &c.target, output: &c.output, plan: p}
	return r.run(cmd.Context(), url)
}

// commandLine is what the report says it was made with.
func commandLine() string {
	args := append([]string{"uastorm"}, os.Args[1:]...)
	for i, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\"'\\$&|;<>()*?#") {
			args[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(args, " ")
}

// steadyFlags describe a steady load.
type steadyFlags struct{ load.Steady }

func (f *steadyFlags) add(s *pflag.FlagSet, readers int, readRate float64, subscribers int) {
	s.IntVar(&f.Readers, "readers", readers, "sessions that read")
	s.Float64Var(&f.ReadRate, "read-rate", readRate, "reads per second, of all readers together")
	s.IntVar(&f.Writers, "writers", 0, "sessions that write; they write back what they have read from --write-node")
	s.Float64Var(&f.WriteRate, "write-rate", 0, "writes per second, of all writers together (default one of each)")
	s.IntVar(&f.Subscribers, "subscribers", subscribers, "sessions with a subscription")
	s.IntVar(&f.Items, "items", 0, "monitored items of each subscription (default 1)")
	s.DurationVar(&f.PublishingInterval, "publishing-interval", 500*time.Millisecond, "publishing interval of the subscriptions")
	f.addNodes(s)
}

func (f *steadyFlags) addNodes(s *pflag.FlagSet) {
	s.IntVar(&f.NodesPerRead, "nodes-per-read", 0, "nodes in one Read request (default 1)")
	s.StringArrayVar(&f.ReadNodes, "read-node", nil, "`NodeId` to read, may be given often (default i=2258, the server's current time)")
	s.StringArrayVar(&f.SubscribeNodes, "subscribe-node", nil, "`NodeId` to subscribe, may be given often (default i=2258)")
	s.StringVar(&f.WriteNode, "write-node", "", "`NodeId` to write")
	s.StringVar(&f.CounterNode, "counter-node", "", "`NodeId` of a Variable that goes up by one at every change: subscribers then know which values are missing")
}

// override puts the nodes that were given over those of a scenario.
func (f *steadyFlags) override(s *load.Steady, flags *pflag.FlagSet) {
	flags.Visit(func(g *pflag.Flag) {
		switch g.Name {
		case "nodes-per-read":
			s.NodesPerRead = f.NodesPerRead
		case "read-node":
			s.ReadNodes = f.ReadNodes
		case "subscribe-node":
			s.SubscribeNodes = f.SubscribeNodes
		case "write-node":
			s.WriteNode = f.WriteNode
		case "counter-node":
			s.CounterNode = f.CounterNode
		}
	})
}

// connectFlags describe clients.
type connectFlags struct{ load.Connect }

func (f *connectFlags) add(s *pflag.FlagSet, clients int) {
	s.IntVar(&f.Clients, "clients", clients, "clients that connect")
	s.Float64Var(&f.Rate, "rate", 0, "new clients per second (default all at once)")
	s.DurationVar(&f.Ramp, "ramp", 0, "`time` over which the clients are spread (default all at once)")
	s.BoolVar(&f.IgnoreHints, "ignore-hints", false, fmt.Sprintf("clients that try again %d times a second, whatever the server says", load.MaxEager))
	s.BoolVar(&f.Subscribe, "subscribe", false, "give each client a subscription on the server's current time")
}
