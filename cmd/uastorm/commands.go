package main

import (
	"errors"
	"time"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/load"
	"github.com/spf13/cobra"
)

func none() *int { return new(int) }

func all() *float64 {
	v := 1.0
	return &v
}

func (a *app) newConnect() *cobra.Command {
	var (
		c            common
		f            connectFlags
		within, hold time.Duration
	)
	cmd := &cobra.Command{
		Use:   "connect URL",
		Short: "Let clients connect, at once or at a rate, and hold their sessions",
		Long: `Let clients connect, at once or at a rate, and hold their sessions. Clients that
are refused wait as the server's hint says, else as client/reconnect's policy
does, and try again. It fails when not all have a session within --within, or
one of them loses its session while it is held.`,
		Example: `  uastorm connect opc.tcp://localhost:4840 --clients 1000 --policy Basic256Sha256
  uastorm connect opc.tcp://localhost:4840 --clients 10000 --policy None --rate 500 --within 1m --hold 5m
  uastorm connect opc.tcp://localhost:4840 --clients 200 --ignore-hints --report rude.html`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := &load.Plan{Name: "connect", Phases: []load.Phase{
				{Name: "connect", Duration: within, UntilConnected: true, Connect: &f.Connect, Limits: load.Limits{Connected: all()}},
				{Name: "hold", Duration: hold, Limits: load.Limits{Connected: all(), SessionsLost: none()}},
			}}
			if err := c.limit(&p.Phases[0].Limits); err != nil {
				return err
			}
			return c.run(a, cmd, args[0], "", p)
		},
	}
	f.add(cmd.Flags(), 10)
	cmd.Flags().DurationVar(&within, "within", time.Minute, "longest `time` until all have a session")
	cmd.Flags().DurationVar(&hold, "hold", 10*time.Second, "`time` that the sessions are held then")
	c.add(cmd.Flags())
	c.addLimits(cmd.Flags(), "connect")
	return cmd
}

func (a *app) newSteady() *cobra.Command {
	var (
		c        common
		f        steadyFlags
		duration time.Duration
	)
	cmd := &cobra.Command{
		Use:   "steady URL",
		Short: "Read, write and subscribe by a schedule, and time it honestly",
		Long: `Read, write and subscribe by a schedule. What is due is sent when it is due, and
its latency counts from then, however many earlier answers are missing.
Subscriptions are watched for gaps in sequence numbers, and with --counter-node
for values that never came.`,
		Example: `  uastorm steady opc.tcp://localhost:4840 --readers 50 --read-rate 2000 --duration 1m
  uastorm steady opc.tcp://localhost:4840 --subscribers 100 --counter-node 'ns=2;s=Demo.Simulation.Counter'
  uastorm steady opc.tcp://localhost:4840 --writers 5 --write-rate 100 --write-node 'ns=2;s=Demo.Scalar.Double' --limit writeP99=50ms`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.Readers == 0 && f.Writers == 0 && f.Subscribers == 0 {
				return fails(exitUsage, errors.New("no load: --readers, --writers and --subscribers are 0"))
			}
			p := &load.Plan{Name: "steady", Steady: f.Steady, Phases: []load.Phase{
				{Name: "steady", Duration: duration, Limits: load.Limits{ReadsFailed: none(), WritesFailed: none(), NotificationsLost: none()}}}}
			if err := c.limit(&p.Phases[0].Limits); err != nil {
				return err
			}
			return c.run(a, cmd, args[0], "", p)
		},
	}
	f.add(cmd.Flags(), 10, 100, 5)
	cmd.Flags().DurationVar(&duration, "duration", 30*time.Second, "how long")
	c.add(cmd.Flags())
	c.addLimits(cmd.Flags(), "steady")
	return cmd
}

func (a *app) newStorm() *cobra.Command {
	var (
		c                    common
		s                    steadyFlags
		f                    connectFlags
		before, storm, after time.Duration
	)
	cmd := &cobra.Command{
		Use:   "storm URL",
		Short: "Measure what a storm of connects does to those who are there",
		Long: `Measure what a storm of connects does to those who are there: a steady load runs
throughout, in the middle of it clients connect all at once, and the verdict is
on the steady load: its latency during the storm, reads that failed,
notifications that were lost. Further limits are on the storm's clients: all must
have a session at its end, refused with a hint at most, never without a word.
Limits given with --limit replace those of the phase "storm".`,
		Example: `  uastorm storm opc.tcp://localhost:4840 --clients 1000 --report storm.html --server-metrics http://localhost:4841/metrics
  uastorm storm opc.tcp://localhost:4840 --clients 300 --ignore-hints --limit readP99=100ms --limit silentCloses=1000`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := &load.Plan{Name: "storm", Steady: s.Steady, Phases: []load.Phase{
				{Name: "before", Duration: before},
				{Name: "storm", Duration: storm, Connect: &f.Connect, Limits: load.Limits{ReadP99: time.Second, ReadsFailed: none(), WritesFailed: none(),
					NotificationsLost: none(), Connected: all(), Unhinted: none(), SilentCloses: none(), SessionsLost: none()}},
				{Name: "after", Duration: after, Limits: load.Limits{ReadsFailed: none(), NotificationsLost: none(), Connected: all()}},
			}}
			if f.Flap {
				p.Phases[1].Limits.Connected, p.Phases[2].Limits.Connected = nil, nil
			}
			if err := c.limit(&p.Phases[1].Limits); err != nil {
				return err
			}
			return c.run(a, cmd, args[0], "", p)
		},
	}
	f.add(cmd.Flags(), 100)
	cmd.Flags().BoolVar(&f.Flap, "flap", false, "the storm's clients end their sessions as soon as they have them, and begin again")
	s.add(cmd.Flags(), 10, 100, 5)
	cmd.Flags().DurationVar(&before, "before", 10*time.Second, "`time` of the steady load alone")
	cmd.Flags().DurationVar(&storm, "storm", 20*time.Second, "`time` of the storm")
	cmd.Flags().DurationVar(&after, "after", 10*time.Second, "`time` after it, with the storm's sessions held")
	c.add(cmd.Flags())
	c.addLimits(cmd.Flags(), "storm")
	return cmd
}

func (a *app) newFlood() *cobra.Command {
	var (
		c        common
		s        steadyFlags
		f        load.Flood
		duration time.Duration
	)
	cmd := &cobra.Command{
		Use:   "flood URL",
		Short: "Misbehave, and see what the server holds and answers",
		Long: `Misbehave in chosen ways, each over so many connections at once, beside a light
steady load. Connections that the server ends are opened again. The result says
what the server took, how long it bore it, and with which words it ended it; at
the end everything is closed, sessions too.

Not everything is possible over every transport:
  opc.tcp    --chunks --slow-chunks --silent --hellos --opn --slow-readers --sessions
  opc.wss    the same, in WebSocket frames; --tls-silent --slow-headers
  opc.https  --silent --tls-silent --slow-headers --slow-bodies --sessions`,
		Example: `  uastorm flood opc.tcp://localhost:4840 --chunks 20 --slow-chunks 20
  uastorm flood opc.tcp://localhost:4840 --silent 500 --duration 30s
  uastorm flood opc.tcp://localhost:4840 --opn 50 --limit readP99=100ms
  uastorm flood opc.https://localhost:4843 --slow-headers 100 --slow-bodies 100`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f == (load.Flood{}) {
				return fails(exitUsage, errors.New("choose what to do: --chunks, --slow-chunks, --silent, --tls-silent, --hellos, --slow-headers, --slow-bodies, --opn, --slow-readers, --sessions"))
			}
			p := &load.Plan{Name: "flood", Steady: s.Steady, Phases: []load.Phase{
				{Name: "before", Duration: 3 * time.Second},
				{Name: "flood", Duration: duration, Flood: &f},
				{Name: "after", Duration: 3 * time.Second, Limits: load.Limits{ReadsFailed: none()}},
			}}
			if err := c.limit(&p.Phases[1].Limits); err != nil {
				return err
			}
			return c.run(a, cmd, args[0], "", p)
		},
	}
	fl := cmd.Flags()
	fl.IntVar(&f.Chunks, "chunks", 0, "connections with messages that never end, chunk after chunk")
	fl.IntVar(&f.SlowChunks, "slow-chunks", 0, "the same, a chunk every 100 ms")
	fl.IntVar(&f.Silent, "silent", 0, "connections that say nothing")
	fl.IntVar(&f.TLSSilent, "tls-silent", 0, "connections that say nothing after the handshake of TLS")
	fl.IntVar(&f.Hellos, "hellos", 0, "connections that say nothing after their Hello")
	fl.IntVar(&f.SlowHeaders, "slow-headers", 0, "HTTP requests with header after header, one every 100 ms, that never end")
	fl.IntVar(&f.SlowBodies, "slow-bodies", 0, "HTTP requests whose body comes byte by byte")
	fl.IntVar(&f.OPN, "opn", 0, "connections with OpenSecureChannel requests that cost the server a decryption and the sender nothing (policy None: that open channels)")
	fl.IntVar(&f.SlowReaders, "slow-readers", 0, "sessions that ask for much and read nothing")
	fl.IntVar(&f.Sessions, "sessions", 0, "sessions that are created and never activated")
	fl.DurationVar(&duration, "duration", 10*time.Second, "how long")
	s.add(fl, 2, 20, 1)
	c.add(fl)
	c.addLimits(fl, "flood")
	return cmd
}
