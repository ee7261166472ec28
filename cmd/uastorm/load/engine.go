package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/internal/wheel"
)

// Groups of source addresses.
const (
	groupSteady = iota
	groupClients
	groupFlood
)

const (
	leavingAtOnce = 64
	sweepInterval = 250 * time.Millisecond
	pollInterval  = 20 * time.Millisecond
	// setupTime bounds the time in which all sessions of the steady load must stand.
	setupTime = 60 * time.Second
	// hurriedTime bounds the end of a run that was broken off, and the leaving of
	// sessions after a steady load's last answer.
	hurriedTime = 5 * time.Second
)

// ErrNotReady says that the sessions of the steady load could not be had.
var ErrNotReady = errors.New("the steady load's sessions do not stand")

// Options of an engine.
type Options struct {
	Target   *Target
	Recorder *measure.Recorder
	// Sources of connections; the zero value is this machine's address.
	Sources Sources
}

// An Engine runs plans against a target.
type Engine struct {
	target  *Target
	rec     *measure.Recorder
	sources Sources
	wheel   *wheel.Wheel
	leaving chan struct{} // places for sessions that end
	work    sync.WaitGroup
	fail    context.CancelCauseFunc // of the run, when this machine is at its end
	now     atomic.Pointer[tally]
	values  atomic.Int64 // of the counter, that the subscriber saw who saw most
	// rush ends when the run's end is to make haste: what is not answered is not
	// waited for, and nobody waits for his turn to leave. over ends when connections
	// are cut that are still there.
	rush, over context.Context

	mu      sync.Mutex
	members []*member // all there ever were
	floods  []*flood  // of the phase
	clients []*member // of Connect, that are there
	stops   []context.CancelFunc
	groups  []*sync.WaitGroup
	facts   []Facts
	why     error // of the last attempt of the steady load that failed
}

// A tally counts what the clients of Connect, and nobody else, met with in a phase.
type tally struct {
	refused, hinted, unhinted, silent, unreached, timedOut, lost atomic.Int64
}

// Facts are what happened in a phase beside what the recorder counts.
type Facts struct {
	Phase string
	// Ran is how long it took.
	Ran time.Duration
	// Clients of all Connects that are not released, and how many of them hold a
	// session at the phase's end.
	Clients, Holding int
	// Held is how long it took, from the phase's beginning, until all of them held
	// one; 0: they never did.
	Held time.Duration
	// Attempts are TCP connects, of all clients, and of the one that made most.
	Attempts, MaxAttempts int
	// Refused attempts of clients; Hinted said when to come back, Unhinted said no
	// more than that, Silent were closed without a word. Unreached is what the
	// operating system refused, TimedOut what had no answer.
	Refused, Hinted, Unhinted, Silent, Unreached, TimedOut int
	// Lost are sessions that ended without their client's or uastorm's doing.
	Lost int
	// CounterValues are the values of the counter node that one subscriber has seen
	// by the phase's end, since the run's beginning.
	CounterValues int
	// Floods, one for each kind.
	Floods []FloodFacts
}

// New makes an engine for one run.
func New(o Options) *Engine {
	e := &Engine{target: o.Target, rec: o.Recorder, sources: o.Sources, leaving: make(chan struct{}, leavingAtOnce)}
	e.now.Store(&tally{})
	return e
}

// Facts of the phases that have run.
func (e *Engine) Facts() []Facts { return e.facts }

// Run runs a plan, which must be valid, and ends everything it has begun. It
// returns an error when the run could not be made or ctx has ended it; what the
// server did is no error.
func (e *Engine) Run(ctx context.Context, p *Plan) error {
	ctx, e.fail = context.WithCancelCause(ctx)
	defer e.fail(nil)
	e.wheel = wheel.New(0)
	var sweeper sync.WaitGroup
	swept, stopSweeping := context.WithCancel(context.WithoutCancel(ctx))
	sweeper.Go(func() { e.sweep(swept) })

	var hurry, cut context.CancelFunc
	e.rush, hurry = context.WithCancel(context.Background())
	e.over, cut = context.WithCancel(context.Background())
	defer hurry()
	defer cut()
	hurried := min(e.target.timeout, hurriedTime)
	// within has the run end in time: sessions have at least least for leaving.
	within := func(answers, least time.Duration) (stop func()) {
		first, last := time.AfterFunc(answers, hurry), time.AfterFunc(answers+least, cut)
		return func() {
			first.Stop()
			last.Stop()
		}
	}
	brokenOff := make(chan struct{})
	unhurt := context.AfterFunc(ctx, func() {
		defer close(brokenOff)
		stop := within(hurried/2, hurried/2)
		<-swept.Done()
		stop()
	})

	pacing, halt := context.WithCancel(ctx)
	quietSteady, endSteady, err := e.startSteady(ctx, pacing, &p.Steady)
	for i := range p.Phases {
		if err != nil {
			break
		}
		err = e.phase(ctx, &p.Phases[i])
	}
	halt() // what is due from here on is nobody's business
	e.rec.Phase(measure.EndPhase)
	unbound := within(e.target.timeout, hurried)
	quietSteady()
	e.release()
	endSteady()
	e.wheel.Close()
	e.work.Wait()
	unbound()
	stopSweeping()
	sweeper.Wait()
	if !unhurt() {
		<-brokenOff
	}
	return err
}

// begin starts a member, which lives until its context ends.
func (e *Engine) begin(ctx context.Context, group *sync.WaitGroup, m *member, due time.Time) {
	m.e = e
	e.mu.Lock()
	e.members = append(e.members, m)
	e.mu.Unlock()
	group.Go(func() {
		if wait := time.Until(due); wait > 0 && !pause(ctx, wait) {
			return
		}
		m.run(ctx, due)
	})
}

// holding counts the members that hold the session that is wanted of them.
func holding(list []*member) (n int) {
	for _, m := range list {
		if m.cur.Load() != nil && m.sessions.Load() >= m.wanted {
			n++
		}
	}
	return n
}

// await waits until all members hold a session, for at most so long, and counts
// those that do.
func await(ctx context.Context, list []*member, most time.Duration) int {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	end := time.NewTimer(most)
	defer end.Stop()
	for {
		n := holding(list)
		if n == len(list) {
			return n
		}
		select {
		case <-tick.C:
		case <-end.C:
			return holding(list)
		case <-ctx.Done():
			return n
		}
	}
}

func (e *Engine) phase(ctx context.Context, f *Phase) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	facts := Facts{Phase: f.Name}
	counts := &tally{}
	e.rec.Phase(f.Name)
	e.now.Store(counts)
	begun := time.Now()
	tried := make(map[*member]int64, len(e.clients))
	for _, m := range e.clients {
		tried[m] = m.attempts.Load()
	}
	if f.Release {
		e.release()
	}
	if f.Cut > 0 {
		e.cut(f.Cut)
	}
	if f.Connect != nil {
		e.connect(ctx, f.Connect, begun)
	}
	flooding, ebb := context.WithCancel(ctx)
	defer ebb()
	if f.Flood != nil {
		floods := e.flood(flooding, f.Flood)
		e.mu.Lock()
		e.floods = floods
		e.mu.Unlock()
	}
	end := begun.Add(f.Duration)
	if len(e.clients) > 0 {
		if n := await(ctx, e.clients, time.Until(end)); n == len(e.clients) && ctx.Err() == nil {
			facts.Held = time.Since(begun)
			e.rec.Event(fmt.Sprintf("all %d clients hold a session, %v after the phase began", n, facts.Held.Round(time.Millisecond)))
		}
	}
	if !f.UntilConnected || facts.Held == 0 {
		pause(ctx, time.Until(end))
	}
	facts.Clients, facts.Holding = len(e.clients), holding(e.clients)
	ebb()
	for _, w := range e.floods {
		facts.Floods = append(facts.Floods, w.end())
	}
	e.floods = nil
	for _, m := range e.clients {
		n := int(m.attempts.Load() - tried[m])
		facts.Attempts += n
		facts.MaxAttempts = max(facts.MaxAttempts, n)
	}
	facts.Ran, facts.CounterValues = time.Since(begun), int(e.values.Load())
	facts.Refused, facts.Hinted, facts.Unhinted = int(counts.refused.Load()), int(counts.hinted.Load()), int(counts.unhinted.Load())
	facts.Silent, facts.Lost = int(counts.silent.Load()), int(counts.lost.Load())
	facts.Unreached, facts.TimedOut = int(counts.unreached.Load()), int(counts.timedOut.Load())
	e.facts = append(e.facts, facts)
	return context.Cause(ctx)
}

// connect starts the clients of a phase.
func (e *Engine) connect(ctx context.Context, c *Connect, begun time.Time) {
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	group := &sync.WaitGroup{}
	e.stops, e.groups = append(e.stops, stop), append(e.groups, group)
	gap := 0.0 // between two
	switch {
	case c.Rate > 0:
		gap = float64(time.Second) / c.Rate
	case c.Ramp > 0:
		gap = float64(c.Ramp) / float64(c.Clients)
	}
	before := len(e.clients)
	for i := range c.Clients {
		m := &member{from: e.sources.at(groupClients, before+i), buffer: smallBuffer, eager: c.IgnoreHints, flap: c.Flap, client: true}
		if c.Subscribe {
			e.subscribe(m, &Steady{})
		}
		e.clients = append(e.clients, m)
		e.begin(alive, group, m, begun.Add(time.Duration(gap*float64(i))))
	}
}

// cut resets the connections of a share of those that hold a session.
func (e *Engine) cut(share float64) {
	var up []*member
	for _, m := range e.clients {
		if m.cur.Load() != nil {
			up = append(up, m)
		}
	}
	rand.Shuffle(len(up), func(i, j int) { up[i], up[j] = up[j], up[i] })
	up = up[:int(float64(len(up))*share+0.5)]
	for _, m := range up {
		m.wanted = m.sessions.Load() + 1
		if c := m.cur.Load(); c != nil {
			c.cut(errCut)
		}
	}
	e.rec.Event(fmt.Sprintf("%d connections cut", len(up)))
}

// release ends all clients of Connect, their sessions in order.
func (e *Engine) release() {
	for _, stop := range e.stops {
		stop()
	}
	for _, g := range e.groups {
		g.Wait()
	}
	e.stops, e.groups, e.clients = nil, nil, nil
}

// sweep ends requests whose time is over.
func (e *Engine) sweep(ctx context.Context) {
	for pause(ctx, sweepInterval) {
		e.mu.Lock()
		all := e.members[:len(e.members):len(e.members)]
		e.mu.Unlock()
		now := time.Now()
		for _, m := range all {
			if c := m.cur.Load(); c != nil {
				c.sweep(now)
			}
		}
	}
}

// later calls f on a goroutine of its own after d, unless the run ends before.
func (e *Engine) later(d time.Duration, f func()) {
	t := &wheel.Timer{}
	t.Init(func(time.Time) { e.work.Go(f) })
	e.wheel.Schedule(t, time.Now().Add(d))
}

// counted notes how many values of the counter a subscriber has seen.
func (e *Engine) counted(n int64) {
	for most := e.values.Load(); n > most && !e.values.CompareAndSwap(most, n); most = e.values.Load() {
	}
}

// refused records an attempt that failed.
func (e *Engine) refused(m *member, err error) {
	if ours(err) {
		e.fail(fmt.Errorf("this machine is at its end: %w", err))
		return
	}
	how, code, hint := classify(err)
	e.rec.Refused(how, code, hint)
	if !m.client {
		e.mu.Lock()
		e.why = err
		e.mu.Unlock()
		return
	}
	t := e.now.Load()
	t.refused.Add(1)
	switch {
	case how == measure.BySilence:
		t.silent.Add(1)
	case how == measure.BySystem:
		t.unreached.Add(1)
	case how == measure.ByTimeout:
		t.timedOut.Add(1)
	case hint > 0:
		t.hinted.Add(1)
	case how == measure.ByError || how == measure.ByFault:
		if t.unhinted.Add(1) == 1 {
			e.rec.Event("a client was refused without a hint: " + err.Error())
		}
	}
}

// lost records a session's connection that the server, or the network, has ended.
func (e *Engine) lost(m *member, err error) {
	if errors.Is(err, errCut) {
		return
	}
	if !m.client {
		e.rec.Event("a session of the steady load lost its connection: " + err.Error())
		return
	}
	if e.now.Load().lost.Add(1) == 1 {
		e.rec.Event("a client lost its connection: " + err.Error())
	}
}
