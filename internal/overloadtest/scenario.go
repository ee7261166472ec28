package overloadtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/breakwater-ua/breakwater/internal/child"
	"github.com/breakwater-ua/breakwater/isolation"
)

// settle bounds the waiting for leases to come back and values to arrive.
const settle = 20 * time.Second

// A stand is the three processes of a test.
type stand struct {
	server, active, attack *child.Process
	started                serverStarted
	to                     address
}

// places says where the processes of a stand run.
type places struct{ server, active, attack placement }

var (
	unpinned = places{server: anywhere, active: anywhere, attack: anywhere}
	// pinned is how the full size runs on two cores.
	pinned = places{server: placement{Core: 0}, active: placement{Core: 1}, attack: placement{Core: 1, Nice: 19}}
)

// newStand starts a server, so many active sessions, and an attacker with so
// many certificates.
func newStand(at places, c serverConfig, sessions, keys int) (*stand, error) {
	s := &stand{}
	err := func() (err error) {
		if s.server, err = startProcess("server", at.server); err != nil {
			return err
		}
		if err = s.server.Ask("start", c, &s.started); err != nil {
			return err
		}
		s.to = address{URL: s.started.URL, URLs: s.started.URLs, Certificate: s.started.Certificate, Namespace: s.started.Namespace}
		if s.attack, err = startProcess("attack", at.attack); err != nil {
			return err
		}
		if err = s.attack.Ask("prepare", attackConfig{To: s.to, Keys: keys}, nil); err != nil {
			return err
		}
		if s.active, err = startProcess("active", at.active); err != nil {
			return err
		}
		return s.active.Ask("start", activeConfig{To: s.to, Sessions: sessions}, nil)
	}()
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *stand) stop() error {
	var errs []error
	for _, p := range []*child.Process{s.active, s.attack, s.server} {
		if p != nil {
			errs = append(errs, p.Stop())
		}
	}
	return errors.Join(errs...)
}

func (s *stand) stats() (st serverStats, err error) {
	err = s.server.Ask("stats", child.None{}, &st)
	return st, err
}

// mark begins a new measurement of the server's peaks.
func (s *stand) mark() (st serverStats, err error) {
	err = s.server.Ask("mark", child.None{}, &st)
	return st, err
}

// bystanders takes the report of the active sessions, once they have seen all
// values up to now.
func (s *stand) bystanders(ctx context.Context) (activeReport, error) {
	st, err := s.stats()
	if err != nil {
		return activeReport{}, err
	}
	var last int64
	seen := until(ctx, settle, fmt.Sprintf("all active sessions have seen value %d", st.Counter), func() (bool, error) {
		err := s.active.Ask("last", child.None{}, &last)
		return last >= st.Counter, err
	})
	var r activeReport
	if err := s.active.Ask("report", child.None{}, &r); err != nil {
		return r, errors.Join(seen, err)
	}
	if seen != nil {
		return r, fmt.Errorf("%w; seen up to %d; %q", seen, last, r.Failures)
	}
	return r, nil
}

// idle waits until nothing is left at the server: no session, no channel, no
// lease, no byte of the budget.
func (s *stand) idle(ctx context.Context) (serverStats, error) {
	var st serverStats
	err := until(ctx, settle, "nothing is left", func() (_ bool, err error) {
		if st, err = s.stats(); err != nil {
			return false, err
		}
		return st.Sessions == 0 && st.Channels == 0 && st.BudgetReserved == 0 && st.leased() == "" && st.Owners == 0, nil
	})
	if err != nil {
		err = fmt.Errorf("%w: %d sessions, %d channels, %d bytes of the budget, %d owners, leases:%s",
			err, st.Sessions, st.Channels, st.BudgetReserved, st.Owners, st.leased())
	}
	return st, err
}

// leased lists what is leased.
func (st *serverStats) leased() string {
	text := ""
	for _, u := range st.Stages {
		if u.Used != 0 {
			text += fmt.Sprintf(" %s %d", u.Stage, u.Used)
		}
	}
	return text
}

func (st *serverStats) stage(i isolation.Stage) isolation.Usage { return st.Stages[i] }

// StormSizes is the size of a storm.
type StormSizes struct {
	Schemes                        []string // of the clients, in turn; none: opc.tcp
	Active, Clients, Bare, Loopers int
	Quiet, Loop, Limit             time.Duration
}

// StormReport is what a storm showed.
type StormReport struct {
	Protection                 string
	Sizes                      StormSizes
	Quiet, Calm                activeReport // with nothing else, and beside the bare establishments
	During, Loopers            activeReport
	Storm, Bare, Loop          stormResult
	BareServer, StormServer    time.Duration // CPU of the server
	Others                     time.Duration // CPU that the machine spent on other things than server and storm
	Before, Peak, Loop0, Loop1 serverStats
	After                      serverStats
}

// storm runs the storm and the loopers against one server.
func storm(ctx context.Context, at places, c serverConfig, n StormSizes) (r StormReport, err error) {
	c.Web, r.Protection, r.Sizes = len(n.Schemes) > 0, c.Protection, n
	s, err := newStand(at, c, n.Active, n.Clients)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()

	var st serverStats
	if _, err = s.bystanders(ctx); err != nil { // the first reads warm up
		return r, err
	}
	if !pause(ctx, n.Quiet) {
		return r, ctx.Err()
	}
	if r.Quiet, err = s.bystanders(ctx); err != nil {
		return r, fmt.Errorf("before the storm: %w", err)
	}

	if n.Bare > 0 { // what so many establishments cost in peace
		if st, err = s.stats(); err != nil {
			return r, err
		}
		if err = s.attack.Ask("storm", stormConfig{Schemes: n.Schemes, Clients: n.Bare, Group: groupBare, AtOnce: 8, Limit: n.Limit}, &r.Bare); err != nil {
			return r, err
		}
		before := st.CPU
		if st, err = s.stats(); err != nil {
			return r, err
		}
		r.BareServer = st.CPU - before
		if err = s.attack.Ask("release", child.None{}, nil); err != nil {
			return r, err
		}
		if r.Calm, err = s.bystanders(ctx); err != nil {
			return r, fmt.Errorf("after the bare establishments: %w", err)
		}
	}

	if r.Before, err = s.mark(); err != nil {
		return r, err
	}
	busy := machineBusy()
	if err = s.attack.Ask("storm", stormConfig{Schemes: n.Schemes, Clients: n.Clients, Group: groupStorm, Limit: n.Limit}, &r.Storm); err != nil {
		return r, err
	}
	if r.Peak, err = s.stats(); err != nil {
		return r, err
	}
	r.StormServer = r.Peak.CPU - r.Before.CPU
	r.Others = machineBusy() - busy - r.StormServer - r.Storm.CPU
	if r.During, err = s.bystanders(ctx); err != nil {
		return r, fmt.Errorf("during the storm: %w", err)
	}

	if n.Loopers > 0 {
		if r.Loop0, err = s.mark(); err != nil {
			return r, err
		}
		if err = s.attack.Ask("storm", stormConfig{Schemes: n.Schemes, Clients: n.Loopers, Group: groupLoop, Loop: n.Loop, Limit: n.Loop + callTimeout}, &r.Loop); err != nil {
			return r, err
		}
		if r.Loop1, err = s.stats(); err != nil {
			return r, err
		}
		if r.Loopers, err = s.bystanders(ctx); err != nil {
			return r, fmt.Errorf("during the loops: %w", err)
		}
	}
	if err = s.attack.Ask("release", child.None{}, nil); err != nil {
		return r, err
	}
	if err = s.active.Ask("end", child.None{}, nil); err != nil {
		return r, err
	}
	r.After, err = s.idle(ctx)
	return r, err
}

// FloodSizes is the size of a flood.
type FloodSizes struct {
	Schemes             []string // of the connections, in turn; none: opc.tcp
	Active, Connections int
	For                 time.Duration
	BulkBytes, Bulks    int
}

// FloodReport is what a flood showed.
type FloodReport struct {
	Sizes         FloodSizes
	MemoryLimit   int64 // of the server
	Quiet, During activeReport
	Flood         floodResult
	Bulks         int // large requests of the trusted ingress that were taken
	Before, Peak  serverStats
	After         serverStats
}

// flood runs a flood against one server, with a client at its trusted ingress.
func flood(ctx context.Context, at places, c serverConfig, n FloodSizes) (r FloodReport, err error) {
	c.Trusted, c.Web, r.Sizes, r.MemoryLimit = true, len(n.Schemes) > 0, n, c.MemoryLimit
	s, err := newStand(at, c, n.Active, 0)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if _, err = s.bystanders(ctx); err != nil {
		return r, err
	}
	if !pause(ctx, n.For/4) {
		return r, ctx.Err()
	}
	if r.Quiet, err = s.bystanders(ctx); err != nil {
		return r, err
	}
	if r.Before, err = s.mark(); err != nil {
		return r, err
	}
	var (
		beside   sync.WaitGroup
		floodErr error
	)
	beside.Go(func() {
		floodErr = s.attack.Ask("flood", floodConfig{Schemes: n.Schemes, Connections: n.Connections, For: n.For}, &r.Flood)
	})
	pause(ctx, n.For/4)
	plant := address{URL: s.started.TrustedURL, Namespace: s.to.Namespace}
	bulkErr := s.active.Ask("bulk", bulkConfig{To: plant, Bytes: n.BulkBytes, Times: n.Bulks}, &r.Bulks)
	beside.Wait()
	if err = errors.Join(floodErr, bulkErr); err != nil {
		return r, err
	}
	if r.Peak, err = s.stats(); err != nil {
		return r, err
	}
	if r.During, err = s.bystanders(ctx); err != nil {
		return r, fmt.Errorf("during the flood: %w", err)
	}
	if err = s.active.Ask("end", child.None{}, nil); err != nil {
		return r, err
	}
	r.After, err = s.idle(ctx)
	return r, err
}

// HogSizes is the size of a hog.
type HogSizes struct {
	Schemes                         []string // of the hog's connections, in turn, and of the second's; none: opc.tcp
	Connections, Depth, SecondDepth int
	Method                          bool
	For                             time.Duration
}

// HogReport is what a hog and its victim got.
type HogReport struct {
	Sizes         HogSizes
	Hog, Second   hogResult
	During, After serverStats
}

// Share is the second owner's part of what was executed.
func (r *HogReport) Share() float64 {
	return float64(r.Second.Good) / float64(max(1, r.Second.Good+r.Hog.Good))
}

// hogs lets one owner pipeline over many connections beside another with one.
func hogs(ctx context.Context, at places, c serverConfig, n HogSizes) (r HogReport, err error) {
	c.Web, r.Sizes = len(n.Schemes) > 0, n
	s, err := newStand(at, c, 0, 0)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	var (
		beside sync.WaitGroup
		hogErr error
	)
	beside.Go(func() {
		hogErr = s.attack.Ask("hog", hogConfig{To: s.to, Schemes: n.Schemes, Connections: n.Connections, Depth: n.Depth, Group: groupHog, Method: n.Method, For: n.For}, &r.Hog)
	})
	secondErr := s.active.Ask("hog", hogConfig{To: s.to, Schemes: n.Schemes, Connections: 1, Depth: n.SecondDepth, Group: groupPlant, Method: n.Method, For: n.For}, &r.Second)
	r.During, err = s.stats()
	beside.Wait()
	if err = errors.Join(err, hogErr, secondErr); err != nil {
		return r, err
	}
	r.After, err = s.idle(ctx)
	return r, err
}
