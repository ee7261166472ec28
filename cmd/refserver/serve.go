package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/breakwater-ua/breakwater/cmd/refserver/demo"
	"github.com/breakwater-ua/breakwater/internal/command"
	"github.com/breakwater-ua/breakwater/stack"
	"github.com/breakwater-ua/breakwater/telemetry"
)

// serveFlags are the settings that are worth a flag.
type serveFlags struct {
	listen, advertise, nodesets []string
	listenShared                string
	admin, format, level        string
	trustAll, noDemo            bool
	variables                   int
	memory                      size
}

func (s *serveFlags) add(f *pflag.FlagSet) {
	f.StringSliceVar(&s.listen, "listen", nil, "opc.tcp, opc.wss or opc.https `URL` to listen on, repeatable (default opc.tcp://:4840, opc.wss://:4843, opc.https://:4843)")
	f.StringVar(&s.listenShared, "listen-shared", "", "`address` of one port for opc.tcp, opc.wss and opc.https, like :4840; instead of --listen")
	f.StringSliceVar(&s.advertise, "advertise", nil, "further `host[:port]` by which clients reach this server, repeatable")
	f.StringSliceVar(&s.nodesets, "nodeset", nil, "NodeSet2 XML `file` to load, repeatable, in any order")
	f.IntVar(&s.variables, "demo-variables", 0, "number of mass variables below Objects/Demo/Mass")
	f.BoolVar(&s.noDemo, "no-demo", false, "leave the demo address space out")
	f.BoolVar(&s.trustAll, "trust-all", false, "accept EVERY client certificate; for demos and tests only")
	f.StringVar(&s.admin, "admin", "", "`address` of /metrics, /healthz, /readyz and pprof, or off (default 127.0.0.1:4841)")
	f.StringVar(&s.format, "log-format", "", "text or json (default text)")
	f.StringVar(&s.level, "log-level", "", "debug, info, warn or error (default info)")
	f.Var(&s.memory, "memory-limit", "`size` at which the garbage collector works harder, like 2GiB (default GOMEMLIMIT, else 90 % of the control group)")
	f.Lookup("memory-limit").DefValue = "" // the text says it
}

// apply lets flags that were given override settings.
func (s *serveFlags) apply(c *config, f *pflag.FlagSet) (err error) {
	f.Visit(func(flag *pflag.Flag) {
		switch flag.Name {
		case "listen":
			c.Listen = s.listen
		case "listen-shared":
			if f.Changed("listen") {
				err = errors.New("--listen and --listen-shared exclude each other")
				return
			}
			c.Listen, err = sharedListen(s.listenShared)
		case "advertise":
			c.Advertise = s.advertise
		case "nodeset":
			c.NodeSets = s.nodesets
		case "demo-variables":
			c.Demo.Variables = s.variables
		case "no-demo":
			c.Demo.Enabled = !s.noDemo
		case "trust-all":
			c.Security.TrustAll = s.trustAll
		case "admin":
			c.Admin.Listen = s.admin
		case "log-format":
			c.Log.Format = s.format
		case "log-level":
			c.Log.Level = s.level
		case "memory-limit":
			c.Runtime.MemoryLimit = s.memory
		}
	})
	return err
}

func (a *app) newServe() *cobra.Command {
	s := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve OPC UA clients until SIGINT or SIGTERM (the default)",
		Long: `Serve OPC UA clients until SIGINT or SIGTERM. The first signal ends the server
in order: clients are told, running requests may finish for shutdownTimeout. The
second one ends the process at once.`,
		Example: `  refserver serve --listen opc.tcp://127.0.0.1:48400 --admin off
  refserver serve --nodeset Opc.Ua.Di.NodeSet2.xml --nodeset Machine.xml
  BREAKWATER_SECURITY_NONE=false refserver serve`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd, s) },
	}
	s.add(cmd.Flags())
	return cmd
}

func (a *app) serve(cmd *cobra.Command, flags *serveFlags) error {
	c, err := a.load()
	if err != nil {
		return err
	}
	if err := errors.Join(flags.apply(c, cmd.Flags()), c.locate()); err != nil {
		return err
	}
	log, err := telemetry.NewLogger(a.stderr, c.Log.Format, c.Log.Level)
	if err != nil {
		return err
	}
	ctx, stop := command.UntilSignal(cmd.Context())
	defer stop()

	settings := *c // as they were given
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	plan := planRuntime(c.Runtime)
	plan.apply()
	c.Runtime.CryptoWorkers = plan.workers
	options, err := c.options(log)
	if err != nil {
		return err
	}
	if c.Security.OpenSSL {
		key, err := c.opensslKey(log)
		if err != nil {
			return err
		}
		defer key.Gate().Close()
		options.Security.Key = key
	}
	srv, err := stack.NewServer(options)
	if err != nil {
		return settingError(err)
	}
	live := &liveLimits{server: srv, log: log, inForce: settings, reload: func() (*config, error) {
		next, err := a.load()
		if err != nil {
			return nil, err
		}
		return next, errors.Join(flags.apply(next, cmd.Flags()), next.locate())
	}}
	run := &running{config: c, server: srv, plan: plan, limits: live, log: log}
	if err := run.open(ctx); err != nil {
		return errors.Join(err, run.shutdown())
	}
	if err := run.banner(a.stdout); err != nil {
		return errors.Join(err, run.shutdown())
	}
	return run.serve(ctx)
}

// running is a server with what stands beside it.
type running struct {
	config *config
	server *stack.Server
	demo   *demo.Space // nil without one
	admin  *admin      // nil without one
	limits *liveLimits
	plan   runtimePlan
	log    *slog.Logger
}

// open builds the demo space and opens the sockets.
func (r *running) open(ctx context.Context) (err error) {
	if r.config.Demo.Enabled {
		r.demo, err = demo.Build(r.server.AddressSpace(), demo.Options{
			Variables: r.config.Demo.Variables, Interval: r.config.Demo.Interval,
		})
		if err != nil {
			return err
		}
	}
	if err := r.server.Listen(ctx); err != nil {
		return fmt.Errorf("%w (another --listen would do)", err)
	}
	if r.config.Admin.Listen == "off" {
		return nil
	}
	r.admin, err = openAdmin(ctx, r.config.Admin, r.server, r.limits, r.log)
	return err
}

// serve runs everything until ctx ends or something fails, then ends it all.
func (r *running) serve(ctx context.Context) error {
	beside, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	hups, stop := hangups()
	defer stop()
	wg.Go(func() { r.limits.run(beside, hups) })
	if r.demo != nil {
		wg.Go(func() { r.demo.Run(beside) })
	}
	if r.admin != nil {
		wg.Go(r.admin.serve)
	}
	served := make(chan error, 1)
	// Not ctx: its end begins a shutdown with a deadline of ours.
	wg.Go(func() { served <- r.server.Run(context.WithoutCancel(ctx)) })
	var err error
	select {
	case <-ctx.Done():
		r.log.Info("shutting down", "timeout", r.config.ShutdownTimeout)
	case err = <-served:
	}
	err = errors.Join(err, r.shutdown())
	cancel()
	wg.Wait()
	if err == nil {
		r.log.Info("stopped")
	}
	return err
}

// shutdown ends the server within the configured time, then the admin interface,
// which says "not ready" until then.
func (r *running) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), r.config.ShutdownTimeout)
	defer cancel()
	if r.admin != nil {
		r.admin.ready.Store(false)
	}
	err := r.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		r.log.Warn("requests were cut short by the shutdown timeout")
		err = nil
	}
	if r.admin != nil {
		err = errors.Join(err, r.admin.close())
	}
	return err
}
