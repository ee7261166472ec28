package measure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/gopcua/opcua/ua"
)

// Names of the phases that are every run's: until the first of the load test's, and
// after its last. A load test has none of its own with such a name.
const (
	SetupPhase = "setup"
	EndPhase   = "end"
)

const (
	// EventLimit is how many events a run may have; later ones are dropped.
	EventLimit = 1000
	// textLimit is the length in bytes that texts of a run are cut to.
	textLimit = 500
	// maxShards bounds the memory of a recorder: a shard takes up to 3 MB.
	maxShards = 8
	// maxPhases bounds the same. Phases beyond it are added to the last.
	maxPhases = 100
)

// Options say what a run is and who watches it.
type Options struct {
	// Title, Target, Server and Command are for the reader of the result: what
	// is run, against which URL, what that is, and how it was started.
	Title, Target, Server, Command string
	// Phase names the first phase. Empty is "run".
	Phase string
	// Limits are those of a generator that keeps up; zero fields have defaults.
	Limits SaturationLimits
	// Observers are told of samples and events, in order, one at a time. One
	// that takes longer than a second delays the next sample.
	Observers []Observer
	// ServerMetrics is the URL of the server's metrics in Prometheus' text
	// format. Empty is none.
	ServerMetrics string
	// MetricPrefixes are those of the families kept. Nil is
	// DefaultMetricPrefixes.
	MetricPrefixes []string
	// Client scrapes ServerMetrics. Nil is a client of its own. Without a
	// CheckRedirect it follows no redirects to other hosts.
	Client *http.Client
}

// An Observer watches a run while it goes on.
type Observer interface {
	// Sample is called once a second. The sample stays as it is: it may be kept.
	Sample(s *Sample)
	// Event is called when something happened, phases' begins included.
	Event(e Event)
}

// A Recorder counts and times. All methods may be called by any number of
// goroutines at once; those that record allocate nothing.
type Recorder struct {
	options Options
	began   time.Time
	shards  []shard
	mask    uint32
	scrape  *scraper // nil: no server metrics

	wake   chan struct{} // events that wait to be told
	stop   chan struct{}
	worker sync.WaitGroup
	finish sync.Once
	result *Result

	// mu is taken before a shard's.
	mu       sync.Mutex
	interval *tally // since the last sample
	spare    *tally // empty; swapped into shards
	phases   []*phase
	events   []Event
	told     int      // of events
	dropped  int      // events beyond the limit
	sampling sampling // of the worker alone, and of Finish after it
}

// A shard takes a part of the events.
type shard struct {
	mu    sync.Mutex
	since time.Duration // when the running phase began
	t     *tally
	_     [64]byte // shards are not to share a cache line
}

// A phase is one that runs or has run.
type phase struct {
	name       string
	begin, end time.Duration // end 0: runs
	t          *tally
	cpu        float64 // sum over its samples
	maxCPU     float64
	cpuKnown   bool
	busy       int
	seconds    int
}

// Start begins a run. Finish ends it and must be called. It fails when
// ServerMetrics is not an http or https URL.
func Start(o Options) (*Recorder, error) {
	o.Limits = o.Limits.resolved()
	if o.Phase == "" {
		o.Phase = "run"
	}
	for _, s := range []*string{&o.Title, &o.Target, &o.Server, &o.Command, &o.Phase} {
		*s = clip(*s)
	}
	n := 1
	for n < runtime.GOMAXPROCS(0) && n < maxShards {
		n *= 2
	}
	r := &Recorder{options: o, shards: make([]shard, n), mask: uint32(n - 1),
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
		interval: newTally(), spare: newTally(), phases: []*phase{{name: o.Phase, t: newTally()}}}
	for i := range r.shards {
		r.shards[i].t = newTally()
	}
	if o.ServerMetrics != "" {
		u, err := url.Parse(o.ServerMetrics)
		if err != nil {
			return nil, err
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, errors.New("measure: the server's metrics are at an http or https URL, not at " + o.ServerMetrics)
		}
		r.scrape = newScraper(u.String(), o.MetricPrefixes, o.Client, r.Event)
	}
	r.began = time.Now()
	r.event(r.began, "phase "+o.Phase)
	r.sampling.begin(r.began)
	r.worker.Go(r.run)
	return r, nil
}

// Began is when the run began; Sample.At and the like count from it.
func (r *Recorder) Began() time.Time { return r.began }

// shard gives a locked shard.
func (r *Recorder) shard() *shard {
	s := &r.shards[rand.Uint32()&r.mask]
	s.mu.Lock()
	return s
}

// Operation records one that ended. Latency is ended − scheduled, service time
// ended − begun; a time before the one it is compared with counts as 0. A code
// whose severity is Bad makes it an error, which is timed only when it is
// BadTimeout or BadRequestTimeout.
func (r *Recorder) Operation(k Kind, scheduled, begun, ended time.Time, code ua.StatusCode) {
	if k >= Kinds {
		return
	}
	latency, service := ended.Sub(scheduled), ended.Sub(begun)
	at := scheduled.Sub(r.began)
	s := r.shard()
	if at >= s.since {
		s.t.operation(k, latency, service, code)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	r.overdue(k, at, latency, service, code)
}

// overdue records an operation of a phase that is over.
func (r *Recorder) overdue(k Kind, at, latency, service time.Duration, code ua.StatusCode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phaseAt(at).t.operation(k, latency, service, code)
	r.interval.operation(k, latency, service, code)
}

// phaseAt is the phase that ran at a time; the first one for times before the
// run. The caller holds r.mu.
func (r *Recorder) phaseAt(at time.Duration) *phase {
	i := len(r.phases) - 1
	for i > 0 && at < r.phases[i].begin {
		i--
	}
	return r.phases[i]
}

// Attempt records that a connection is tried.
func (r *Recorder) Attempt() {
	s := r.shard()
	s.t.Attempts++
	s.mu.Unlock()
}

// Refused records that an attempt failed, how, with which StatusCode (0: none
// known) and with which hint when to come back (0: none).
func (r *Recorder) Refused(how Refusal, code ua.StatusCode, hint time.Duration) {
	if how >= Refusals {
		return
	}
	s := r.shard()
	s.t.refused(how, code, hint)
	s.mu.Unlock()
}

// SessionUp records an activated session.
func (r *Recorder) SessionUp() {
	s := r.shard()
	s.t.SessionsUp++
	s.mu.Unlock()
}

// SessionDown records the end of one that SessionUp recorded.
func (r *Recorder) SessionDown() {
	s := r.shard()
	s.t.SessionsDown++
	s.mu.Unlock()
}

// ConnectionUp records a TCP connection made.
func (r *Recorder) ConnectionUp() {
	s := r.shard()
	s.t.ConnectionsUp++
	s.mu.Unlock()
}

// ConnectionDown records the end of one that ConnectionUp recorded.
func (r *Recorder) ConnectionDown() {
	s := r.shard()
	s.t.ConnectionsDown++
	s.mu.Unlock()
}

// Notifications records values that arrived on subscriptions.
func (r *Recorder) Notifications(n int) {
	s := r.shard()
	s.t.Notifications += uint64(max(n, 0))
	s.mu.Unlock()
}

// Gap records a jump of sequence numbers or of values counted up by the
// server, and how many values are known to be missing because of it.
func (r *Recorder) Gap(lost int) {
	s := r.shard()
	s.t.Gaps++
	s.t.Lost += uint64(max(lost, 0))
	s.mu.Unlock()
}

// Duplicates records values that came again.
func (r *Recorder) Duplicates(n int) {
	s := r.shard()
	s.t.Duplicates += uint64(max(n, 0))
	s.mu.Unlock()
}

// Woke records a wake-up of the load engine: when it had asked for, and when it
// was. This is the schedule's lateness, the generator's own: waiting for an
// answer of the server is not to be in it.
func (r *Recorder) Woke(wanted, woke time.Time) {
	s := r.shard()
	note(microseconds(&s.t.lateness), woke.Sub(wanted))
	s.mu.Unlock()
}

// Event records a remark for the time axis. Beyond EventLimit it is dropped and
// counted.
func (r *Recorder) Event(text string) {
	r.mu.Lock()
	r.event(time.Now(), text)
	r.mu.Unlock()
	r.tell()
}

func (r *Recorder) event(now time.Time, text string) {
	if len(r.events) >= EventLimit {
		r.dropped++
		return
	}
	r.events = append(r.events, Event{At: now.Sub(r.began).Seconds(), Text: clip(text)})
}

// tell wakes the worker.
func (r *Recorder) tell() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Phase ends the phase that runs and begins the next.
func (r *Recorder) Phase(name string) {
	r.mu.Lock()
	now := time.Now()
	at := now.Sub(r.began)
	r.flush(at)
	if len(r.phases) < maxPhases {
		r.phases[len(r.phases)-1].end = at
		r.phases = append(r.phases, &phase{name: clip(name), begin: at, t: newTally()})
	}
	r.event(now, "phase "+name)
	r.mu.Unlock()
	r.tell()
}

// flush empties the shards into the interval and the phase that runs. A
// positive since is when the next phase begins. The caller holds r.mu.
func (r *Recorder) flush(since time.Duration) {
	current := r.phases[len(r.phases)-1].t
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		s.t, r.spare = r.spare, s.t
		if since > 0 {
			s.since = since
		}
		s.mu.Unlock()
		r.interval.add(r.spare)
		current.add(r.spare)
		r.spare.reset()
	}
}

// Finish ends the run: it stops sampling, waits for that, and sums up. Called
// again it gives the same result. What is recorded afterwards is lost.
func (r *Recorder) Finish() *Result {
	r.finish.Do(func() {
		close(r.stop)
		r.worker.Wait()
		r.result = r.sum()
	})
	return r.result
}

func (r *Recorder) sum() *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush(0) // what came after the last sample
	o := &r.options
	end := r.sampling.last.Sub(r.began)
	res := &Result{Version: Version, Title: o.Title, Target: o.Target, Server: o.Server, Command: o.Command,
		Begun: r.began.Round(0), Seconds: end.Seconds(), Processors: processors, Limits: o.Limits,
		Samples: r.sampling.kept, Events: r.events}
	total := newTally()
	for _, p := range r.phases {
		if p.end == 0 {
			p.end = end
		}
		total.add(p.t)
		s := Saturation{BusySeconds: p.busy, Seconds: p.seconds, CPU: -1, MaxCPU: -1}
		if p.cpuKnown {
			s.CPU, s.MaxCPU = p.cpu/float64(max(p.seconds, 1)), p.maxCPU
		}
		totals := p.t.totals()
		res.Phases = append(res.Phases, Phase{Name: p.name, Begin: p.begin.Seconds(), End: p.end.Seconds(), Totals: totals,
			Saturation: o.Limits.judge(s, totals.Lateness, res.Processors)})
	}
	res.Total = total.totals()
	if r.scrape != nil {
		res.Metrics = r.scrape.described()
	}
	if r.dropped > 0 {
		res.Events = append(res.Events, Event{At: res.Seconds, Text: fmt.Sprintf("%d more events left out", r.dropped)})
	}
	return res
}

// run samples once a second, and tells of events, until Finish.
func (r *Recorder) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var scraping sync.WaitGroup
	if r.scrape != nil {
		scraping.Go(func() { r.scrape.run(ctx) })
	}
	defer scraping.Wait()
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.sample()
		case <-r.wake:
			r.tellEvents()
		case <-r.stop:
			r.sample()
			return
		}
	}
}

// tellEvents tells the observers of the events they do not know yet.
func (r *Recorder) tellEvents() {
	r.mu.Lock()
	news := r.events[r.told:len(r.events):len(r.events)]
	r.told = len(r.events)
	r.mu.Unlock()
	for _, e := range news {
		for _, o := range r.options.Observers {
			o.Event(e)
		}
	}
}

// clip cuts a text that is too long, at a rune, and takes out what is not UTF-8.
func clip(s string) string {
	if len(s) > textLimit {
		s = s[:textLimit] + "…"
	}
	return strings.ToValidUTF8(s, "")
}
