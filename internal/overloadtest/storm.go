package overloadtest

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/client/reconnect"
	"github.com/breakwater-ua/breakwater/internal/child"
	"github.com/breakwater-ua/breakwater/security"
	"github.com/breakwater-ua/breakwater/transport/uatcp"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// Groups of source addresses.
const (
	groupBare   = 10
	groupStorm  = 11
	groupLoop   = 12
	groupFlood  = 13
	groupHog    = 14
	groupActive = 15
	groupPlant  = 16
)

type attackConfig struct {
	To address
	// Keys is how many clients with certificates of their own there can be.
	Keys int
}

type stormConfig struct {
	Schemes []string // of the clients, in turn
	Clients int
	Group   byte
	// AtOnce bounds the clients that connect at the same time; 0: all.
	AtOnce int
	// Loop makes clients that ignore every hint and, once they have a session,
	// end it and begin again, until the time is over.
	Loop time.Duration
	// Limit ends the storm.
	Limit time.Duration
}

// A stormResult counts what the clients of one storm met with.
type stormResult struct {
	Clients     int
	Connected   int // clients that hold a session, or sessions made by loopers
	Attempts    int // TCP connects tried
	MaxAttempts int // of one client
	Hints       int // refusals with a hint
	Unhinted    int // refusals with a code, without a hint
	Silent      int // connections closed without a word
	Timeouts    int // nothing came in time
	Other       int // everything else
	Codes       map[string]int
	Took        time.Duration
	CPU         time.Duration // of the clients' process
	// Percentiles of the time from the start to a client's session.
	P50, P99, Last time.Duration
	MaxHint        time.Duration
}

// An attack is the process of the storm's clients.
type attack struct {
	attackConfig
	gate *security.CryptoGate
	keys []*security.Key

	mu   sync.Mutex
	held []*channel
}

func attackVerbs() (map[string]child.Verb, func()) {
	a := &attack{gate: security.NewCryptoGate(runtime.NumCPU())}
	return map[string]child.Verb{
		"prepare": child.Asks(a.prepare),
		"storm":   child.Asks(a.storm),
		"flood":   child.Asks(a.flood),
		"hog":     child.Asks(hog),
		"release": child.Asks(a.release),
	}, func() { a.gate.Close() }
}

func (a *attack) prepare(_ context.Context, c attackConfig) (child.None, error) {
	var err error
	a.attackConfig = c
	a.keys, err = newKeys(c.Keys, "storm", a.gate)
	return child.None{}, err
}

// release ends all sessions that storms have left.
func (a *attack) release(ctx context.Context, _ child.None) (child.None, error) {
	a.mu.Lock()
	held := a.held
	a.held = nil
	a.mu.Unlock()
	var (
		wg   sync.WaitGroup
		next atomic.Int64
		mu   sync.Mutex
		errs []error
	)
	for range 16 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(held)); i = next.Add(1) - 1 {
				if err := held[i].end(ctx); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		return child.None{}, errors.Join(errs[0], errors.New("a held session was lost"))
	}
	return child.None{}, nil
}

func (a *attack) key(i int) *security.Key {
	if len(a.keys) == 0 {
		return nil
	}
	return a.keys[i%len(a.keys)]
}

// storm lets clients connect until all have a session, or the time is over.
func (a *attack) storm(ctx context.Context, c stormConfig) (stormResult, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	t := &tally{res: stormResult{Clients: c.Clients, Codes: map[string]int{}}, start: time.Now()}
	cpu := child.CPU()
	var turns chan struct{}
	if c.AtOnce > 0 {
		turns = make(chan struct{}, c.AtOnce)
	}
	var wg sync.WaitGroup
	for i := range c.Clients {
		wg.Go(func() {
			if turns != nil {
				turns <- struct{}{}
				defer func() { <-turns }()
			}
			s := stormClient{to: a.To.via(c.Schemes, i), t: t, key: a.key(i), from: source(c.Group, i+1)}
			defer func() { t.client(s.attempts) }()
			if c.Loop > 0 {
				s.loop(ctx, c.Loop)
				return
			}
			if ch := s.connect(ctx); ch != nil {
				a.mu.Lock()
				a.held = append(a.held, ch)
				a.mu.Unlock()
			}
		})
	}
	wg.Wait()
	return t.result(child.CPU() - cpu), nil
}

// A stormClient connects as a product would: it waits as reconnect tells it, and
// as long as its channel lives it asks on that.
type stormClient struct {
	to       address
	t        *tally
	key      *security.Key
	from     net.IP
	attempts int
	ch       *channel
}

// step does what is missing to a session.
func (s *stormClient) step(ctx context.Context) error {
	if s.ch == nil {
		s.attempts++
		ch, err := openChannel(ctx, s.to, s.key, s.from)
		if err != nil {
			return err
		}
		s.ch = ch
	}
	if s.ch.token == nil {
		if err := s.ch.create(ctx); err != nil {
			return err
		}
	}
	return s.ch.activate(ctx)
}

// failed notes what a step failed with, and drops the channel unless the server
// has answered on it that it is busy.
func (s *stormClient) failed(err error) (ua.StatusCode, time.Duration) {
	code, hint := reconnect.Signal(err)
	s.t.failed(err, code, hint)
	var busy *reconnect.Error
	if s.ch != nil && !(errors.As(err, &busy) && reconnect.IsBusy(code)) {
		s.ch.close()
		s.ch = nil
	}
	return code, hint
}

func (s *stormClient) connect(ctx context.Context) *channel {
	state := reconnect.NewState(reconnect.Policy{})
	for {
		err := s.step(ctx)
		if err == nil {
			state.Connected(time.Now())
			s.t.connected()
			return s.ch
		}
		if ctx.Err() != nil {
			break
		}
		code, hint := s.failed(err)
		delay, more := state.Failed(code, hint)
		if !more || !pause(ctx, delay) {
			break
		}
	}
	if s.ch != nil {
		s.ch.close()
	}
	return nil
}

// loop ignores every hint.
func (s *stormClient) loop(ctx context.Context, d time.Duration) {
	end := time.Now().Add(d)
	for time.Now().Before(end) && ctx.Err() == nil {
		if err := s.step(ctx); err != nil {
			s.failed(err)
			continue
		}
		s.t.connected()
		_ = s.ch.end(ctx)
		s.ch = nil
	}
	if s.ch != nil {
		s.ch.close()
	}
}

// A tally gathers the result.
type tally struct {
	start time.Time
	mu    sync.Mutex
	res   stormResult
	took  []time.Duration
}

func (t *tally) connected() {
	d := time.Since(t.start)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.res.Connected++
	t.took = append(t.took, d)
}

func (t *tally) client(attempts int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.res.Attempts += attempts
	t.res.MaxAttempts = max(t.res.MaxAttempts, attempts)
}

func (t *tally) failed(err error, code ua.StatusCode, hint time.Duration) {
	var (
		word  *uatcp.Error
		fault *reconnect.Error
		r     = &t.res
	)
	t.mu.Lock()
	defer t.mu.Unlock()
	r.MaxHint = max(r.MaxHint, hint)
	switch {
	case hint > 0:
		r.Hints++
	case errors.As(err, &word), errors.As(err, &fault):
		r.Unhinted++
	case timeout(err):
		r.Timeouts++
		r.Codes["no answer in time"]++
		return
	case closed(err):
		r.Silent++
		return
	default:
		r.Other++
		r.Codes[err.Error()]++
		return
	}
	r.Codes[uastatus.Name(code)]++
}

func (t *tally) result(cpu time.Duration) stormResult {
	r := t.res
	r.Took, r.CPU = time.Since(t.start), cpu
	p := percentiles(t.took)
	r.P50, r.P99, r.Last = p.P50, p.P99, p.Max
	return r
}
