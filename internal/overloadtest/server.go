package overloadtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/internal/child"
	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/stack"
)

// How the server under test is protected.
const (
	balanced  = "balanced"
	shared    = "SharedOnly"
	unlimited = "limits off"
)

// Nodes of the server under test, all in its own namespace.
const (
	counterNode = "Counter" // a new number every 100 ms
	bulkNode    = "Bulk"    // a writable ByteString
	workObject  = "Work"
	workNode    = "Work.Do" // a method that takes workTime
)

const (
	changeInterval = 100 * time.Millisecond
	workTime       = 2 * time.Millisecond
)

// trustedAddress is the local address whose connections belong to trustedOwner.
var trustedAddress = netip.MustParseAddr("127.0.0.2")

const trustedOwner = "plant"

type serverConfig struct {
	Protection    string
	MaxSessions   int
	ListenBacklog int
	// ConnectionsPerSecond and ConnectionBurst; 0: the defaults.
	ConnectionsPerSecond, ConnectionBurst int
	MaxMessageSize                        int
	BudgetBytes                           int64
	Trusted                               bool  // keep room for trustedOwner
	Web                                   bool  // serve opc.wss and opc.https, too
	Executing                             int64 // capacity of RequestExecution; 0: the default
	RunSlots                              int
	MemoryLimit                           int64 // what an operator would set with GOMEMLIMIT, in bytes; 0: none
}

type serverStarted struct {
	URL, TrustedURL string
	URLs            map[string]string // by scheme
	Namespace       uint16
	Certificate     []byte
	BudgetMax       int64
}

type serverStats struct {
	CPU            time.Duration
	RSS            int64
	Stages         [isolation.Stages]isolation.Usage
	Owners         int
	BudgetReserved int64
	BudgetMax      int64
	BudgetPeak     int64 // of samples every 5 ms, since the last "mark"
	RSSPeak        int64 // likewise
	Sessions       int
	Channels       int
	Refused        uint64 // requests answered BadServerTooBusy
	NoRoom         uint64 // partial messages and bodies refused for want of memory
	Counter        int64
	Goroutines     int
	Pauses         pauses
}

// pauses are the collector's stops of the world since the process began.
type pauses struct {
	N   uint64
	Max time.Duration // upper bound of the last bucket that counts any
}

func gcPauses() (p pauses) {
	sample := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return p
	}
	h := sample[0].Value.Float64Histogram()
	for i, n := range h.Counts {
		p.N += n
		if n > 0 && !math.IsInf(h.Buckets[i+1], 0) {
			p.Max = time.Duration(h.Buckets[i+1] * float64(time.Second))
		}
	}
	return p
}

// plantIngress claims what arrives at the trusted address.
type plantIngress struct{}

func (plantIngress) ClassifyIngress(_, local netip.AddrPort) (isolation.OwnerClaim, bool) {
	return isolation.OwnerClaim{Key: trustedOwner, Class: isolation.Trusted}, local.Addr().Unmap() == trustedAddress
}

func (plantIngress) Classify(isolation.ServiceKind, *isolation.ChannelFacts, *isolation.BindingFacts) (isolation.OwnerClaim, bool) {
	return isolation.OwnerClaim{}, false
}

// A target is the server under test in its process.
type target struct {
	srv                 *stack.Server
	dir                 string
	stop                context.CancelFunc
	work                sync.WaitGroup
	ended               error
	counter             atomic.Int64
	budgetPeak, rssPeak atomic.Int64
}

func serverVerbs() (map[string]child.Verb, func()) {
	t := &target{stop: func() {}}
	return map[string]child.Verb{
		"start": child.Asks(t.start),
		"stats": child.Asks(func(context.Context, child.None) (serverStats, error) { return t.stats(), nil }),
		"mark": child.Asks(func(context.Context, child.None) (serverStats, error) {
			debug.FreeOSMemory()
			t.budgetPeak.Store(0)
			t.rssPeak.Store(child.Resident())
			return t.stats(), nil
		}),
		"shutdown": child.Asks(func(context.Context, child.None) (serverStats, error) {
			t.end()
			return t.stats(), t.ended
		}),
	}, t.end
}

func (t *target) options(c serverConfig) stack.Options {
	cores := runtime.NumCPU()
	runtime.GOMAXPROCS(2 * cores) // as refserver does, see security.CryptoGate
	o := stack.Options{
		ApplicationName: "Breakwater overload test",
		Endpoints:       []string{"opc.tcp://127.0.0.1:0"},
		Security:        stack.Security{AllowNone: true, AllowAnonymous: true, TrustAll: true, PKI: t.dir, CryptoWorkers: cores},
		Limits:          stack.Limits{MaxSessions: c.MaxSessions, MaxMessageSize: c.MaxMessageSize, RunSlots: c.RunSlots},
		RateLimits:      stack.RateLimits{ListenBacklog: c.ListenBacklog, ConnectionsPerSecond: c.ConnectionsPerSecond, ConnectionBurst: c.ConnectionBurst},
		Budget:          stack.Budget{MaxBytes: c.BudgetBytes},
		RequestCost:     stack.CostEncoded,
		Logger:          slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	switch c.Protection {
	case shared:
		o.Isolation.Mode = isolation.SharedOnly
	case unlimited:
		o.Isolation.Mode = isolation.SharedOnly
		o.RateLimits.Disabled = true
		o.RateLimits.MaxCryptoWait = -1
	}
	if c.Web {
		o.Endpoints = append(o.Endpoints, "opc.wss://127.0.0.3:0", "opc.https://127.0.0.3:0")
		o.HTTP.AllowPolicyNone = true
	}
	if c.Trusted {
		o.Endpoints = append(o.Endpoints, fmt.Sprintf("opc.tcp://%s:0", trustedAddress))
		o.Classifier = plantIngress{}
		o.Isolation.Mode = isolation.TrustedReservations
		o.Isolation.TrustedOwners = []isolation.TrustedOwner{{Key: trustedOwner}}
	}
	if c.Executing > 0 {
		o.Isolation.Stages = append(o.Isolation.Stages, isolation.StageOptions{Stage: isolation.RequestExecution, Capacity: isolation.Amount(c.Executing)})
	}
	return o
}

func (t *target) start(_ context.Context, c serverConfig) (serverStarted, error) {
	if c.MemoryLimit > 0 {
		debug.SetMemoryLimit(c.MemoryLimit)
	}
	var err error
	if t.dir, err = os.MkdirTemp("", "overloadtest"); err != nil {
		return serverStarted{}, err
	}
	if t.srv, err = stack.NewServer(t.options(c)); err != nil {
		return serverStarted{}, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.stop = cancel
	ns := t.srv.AddressSpace().Namespace("urn:breakwater:overloadtest")
	counter := ns.Variable(counterNode, int64(0))
	ns.Variable(bulkNode, []byte{}, addressspace.Writable())
	ns.Object(workObject)
	ns.Method(workNode, nil, nil, func(ctx context.Context, _ *addressspace.Call) ([]any, error) {
		if !pause(ctx, workTime) {
			return nil, ctx.Err()
		}
		return nil, nil
	})
	if err := t.srv.Listen(ctx); err != nil {
		return serverStarted{}, err
	}
	t.work.Go(func() { t.ended = t.srv.Run(ctx) })
	t.work.Go(func() {
		tick := time.NewTicker(changeInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = counter.Set(t.counter.Add(1))
			}
		}
	})
	t.work.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				raise(&t.budgetPeak, t.srv.Stats().BudgetReserved)
				raise(&t.rssPeak, child.Resident())
			}
		}
	})
	urls := t.srv.URLs()
	s := serverStarted{URL: urls[0], URLs: map[string]string{}, Namespace: ns.Index(), Certificate: t.srv.Key().Certificate(), BudgetMax: t.srv.Stats().BudgetMax}
	for _, url := range urls {
		scheme, rest, _ := strings.Cut(url, "://")
		if strings.HasPrefix(rest, trustedAddress.String()) {
			s.TrustedURL = url
			continue
		}
		s.URLs[scheme] = url
	}
	return s, nil
}

func raise(peak *atomic.Int64, v int64) {
	for {
		was := peak.Load()
		if v <= was || peak.CompareAndSwap(was, v) {
			return
		}
	}
}

func (t *target) stats() serverStats {
	st := t.srv.Stats()
	s := serverStats{CPU: child.CPU(), RSS: child.Resident(), BudgetReserved: st.BudgetReserved, BudgetMax: st.BudgetMax,
		BudgetPeak: t.budgetPeak.Load(), RSSPeak: t.rssPeak.Load(), Sessions: st.Sessions, Channels: st.Channels,
		Refused: st.RefusedRequests, Counter: t.counter.Load(), Goroutines: runtime.NumGoroutine(), Pauses: gcPauses()}
	s.NoRoom = t.srv.Isolation().Refused(isolation.ReassemblyBytes, isolation.Capacity)
	s.Stages, s.Owners = t.srv.Isolation().Snapshot()
	for i := range s.Stages {
		s.Stages[i].Stage = isolation.Stage(i)
	}
	return s
}

func (t *target) end() {
	t.stop()
	t.work.Wait()
	if t.dir != "" {
		if err := os.RemoveAll(t.dir); err != nil {
			t.ended = errors.Join(t.ended, err)
		}
	}
}
