// Command bench measures Breakwater beside gopcua's server: the same load, one
// after the other in interleaved pairs, and prints what each operation cost the
// server in CPU time, and the ratio. It also prints what an idle session and a
// subscription cost in memory.
//
//	go run ./internal/bench                      # everything, about 5 minutes
//	go run ./internal/bench -pairs 1 -d 500ms    # a quick look
//
// The two servers run in processes of their own; load goes to loopback only.
// Figures from different runs or machines do not compare; ratios do.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/internal/child"
)

// nodeCount is how many variables each server has.
const nodeCount = 1000

func main() {
	var (
		serve    = flag.String("serve", "", "run as the server `name` (used by the parent process)")
		addr     = flag.String("addr", "", "listen `address` of -serve")
		change   = flag.Duration("change", 100*time.Millisecond, "how often every value changes")
		pairs    = flag.Int("pairs", 5, "interleaved pairs of each workload")
		d        = flag.Duration("d", 3*time.Second, "length of one run")
		only     = flag.String("only", "", "run only workloads whose name contains this `text`")
		sessions = flag.Int("sessions", 10000, "idle sessions for the memory figure; 0 skips it")
		subs     = flag.Int("subscriptions", 2000, "subscriptions for the publishing figures; 0 skips them")
		secured  = flag.Int("secured", 300, "secured establishments to measure; 0 skips them")
		profile  = flag.String("profile", "", "write our server's CPU profile to `file`; use it with -only and -pairs 1")
		check    = flag.Bool("check", false, "exit with 1 when a ratio misses its target")
	)
	flag.Parse()
	if *serve != "" {
		if err := serveChild(*serve, *addr, *profile, *change); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	r := runner{pairs: *pairs, d: *d, profile: *profile}
	err := r.run(*only, *sessions, *subs, *secured)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if *check && r.missed > 0 {
		os.Exit(1)
	}
}

func serveChild(name, addr, profile string, change time.Duration) error {
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := newServer()
	var talk sync.WaitGroup
	talk.Go(func() {
		defer cancel()
		child.Serve(ctx, s.verbs())
	})
	defer talk.Wait() // a server that failed tells the parent when it is asked
	defer cancel()
	switch name {
	case "gopcua":
		return serveGopcua(ctx, s, addr, nodeCount, change)
	case "breakwater":
		return serveBreakwater(ctx, s, addr, nodeCount, change)
	}
	return fmt.Errorf("no server %q", name)
}

type runner struct {
	pairs   int
	d       time.Duration
	profile string
	missed  int
}

func (r *runner) run(only string, sessions, subs, secured int) error {
	fmt.Printf("medians of %d interleaved pairs of %v; server CPU per operation\n\n", r.pairs, r.d)
	fmt.Println("| workload | breakwater µs | gopcua µs | ratio | target |")
	fmt.Println("|---|---|---|---|---|")
	for _, w := range workloads {
		if !strings.Contains(w.name, only) {
			continue
		}
		if err := r.compare(w); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	if subs > 0 && strings.Contains("subscriptions", only) {
		if err := r.subscriptions(subs); err != nil {
			return fmt.Errorf("subscriptions: %w", err)
		}
	}
	if sessions > 0 && strings.Contains("idle sessions", only) {
		if err := r.memory(sessions); err != nil {
			return fmt.Errorf("idle sessions: %w", err)
		}
	}
	if secured > 0 && strings.Contains("secured establishment", only) {
		if err := r.secured(secured); err != nil {
			return fmt.Errorf("secured establishment: %w", err)
		}
	}
	return nil
}

func (r *runner) compare(w workload) error {
	cost := map[string][]float64{}
	var ratios []float64
	for range r.pairs {
		var pair [2]float64
		for i, name := range []string{"breakwater", "gopcua"} {
			c, err := r.measure(name, w)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			cost[name], pair[i] = append(cost[name], c), c
		}
		ratios = append(ratios, pair[1]/pair[0])
	}
	ratio := median(ratios)
	mark := "met"
	if ratio < w.target {
		mark = "MISSED"
		r.missed++
	}
	fmt.Printf("| %s | %.2f | %.2f | %.1f | ≥ %v %s |\n", w.name, median(cost["breakwater"]), median(cost["gopcua"]), ratio, w.target, mark)
	return nil
}

// measure returns the server's CPU time for one operation in µs.
func (r *runner) measure(name string, w workload) (float64, error) {
	args := []string{"-addr", freeAddr()}
	if name == "breakwater" && r.profile != "" {
		args = append(args, "-profile", r.profile)
	}
	p, err := start(name, args...)
	if err != nil {
		return 0, err
	}
	defer p.stop()
	if _, err := w.run(p, r.d/5); err != nil { // warm up
		return 0, err
	}
	before, _, err := p.usage(false)
	if err != nil {
		return 0, err
	}
	n, err := w.run(p, r.d)
	if err != nil {
		return 0, err
	}
	after, _, err := p.usage(false)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, fmt.Errorf("nothing was answered")
	}
	return float64((after - before).Nanoseconds()) / 1000 / float64(n), nil
}

func (r *runner) subscriptions(n int) error {
	cpu, bytes := map[string]float64{}, 0.0
	for _, name := range []string{"breakwater", "gopcua"} {
		p, err := start(name, "-addr", freeAddr(), "-change", "1s")
		if err != nil {
			return err
		}
		err = func() error {
			defer p.stop()
			conns, err := hold(p, n)
			defer closeAll(conns)
			if err != nil {
				return err
			}
			_, idle, err := p.usage(true)
			if err != nil {
				return err
			}
			stop := make(chan struct{})
			var notes atomic.Int64
			wg, err := subscribe(p, conns, time.Second, stop, &notes)
			defer wg.Wait()
			defer close(stop)
			if err != nil {
				return err
			}
			time.Sleep(3 * time.Second)
			before, _, err := p.usage(false)
			if err != nil {
				return err
			}
			from, seen := time.Now(), notes.Load()
			time.Sleep(2 * r.d)
			after, _, err := p.usage(false)
			if err != nil {
				return err
			}
			took := time.Since(from).Seconds()
			rate := float64(notes.Load()-seen) / took
			cpu[name] = (after - before).Seconds() / took
			_, busy, err := p.usage(true)
			if err != nil {
				return err
			}
			if name == "breakwater" {
				bytes = float64(busy-idle) / float64(n)
			}
			fmt.Printf("\n%s: %d subscriptions, %.0f notifications/s, %.1f %% of a core, %.1f KiB per subscription with its item",
				name, n, rate, 100*cpu[name], float64(busy-idle)/float64(n)/1024)
			return nil
		}()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	fmt.Printf("\nserver CPU ours ÷ gopcua's: %.2f (target ≤ 0.5)\n", cpu["breakwater"]/cpu["gopcua"])
	if cpu["breakwater"] > cpu["gopcua"]/2 || bytes > 12<<10 {
		r.missed++
	}
	return nil
}

func (r *runner) memory(n int) error {
	p, err := start("breakwater", "-addr", freeAddr())
	if err != nil {
		return err
	}
	defer p.stop()
	warm, err := hold(p, 50)
	closeAll(warm)
	if err != nil {
		return err
	}
	_, none, err := p.usage(true)
	if err != nil {
		return err
	}
	conns, err := hold(p, n)
	defer closeAll(conns)
	if err != nil {
		return err
	}
	_, all, err := p.usage(true)
	if err != nil {
		return err
	}
	each := float64(all-none) / float64(n) / 1024
	if each > 12 {
		r.missed++
	}
	fmt.Printf("\nidle session with its channel, None: %.1f KiB at %d sessions (target ≤ 12)\n", each, n)
	return nil
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		if c != nil {
			c.close()
		}
	}
}

func freeAddr() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "127.0.0.1:48400"
	}
	defer l.Close()
	return l.Addr().String()
}

func median(v []float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}
