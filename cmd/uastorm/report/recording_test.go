package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
	"github.com/breakwater-ua/breakwater/uastatus"
)

// hostile is a text that a server could choose.
const hostile = `</title></script><img src=x onerror="document.title='owned'">'"{{.}}` + "\x1b[2J\u202e"

// recorded is a storm of 90 seconds as a Recorder measures it, in simulated
// time: 1,000 sessions with steady reads, 8,000 clients that connect at once,
// most of them told to come back.
//
// It is simulated once for all tests; each gets a copy whose slices are its own.
func recorded(t *testing.T) *measure.Result {
	t.Helper()
	simulation.Do(func() {
		synctest.Test(t, func(t *testing.T) { simulated = simulate(t) })
	})
	if simulated == nil {
		t.Fatal("the simulation failed")
	}
	res := *simulated
	res.Phases, res.Samples = slices.Clone(res.Phases), slices.Clone(res.Samples)
	res.Events, res.Verdicts = slices.Clone(res.Events), slices.Clone(res.Verdicts)
	return &res
}

var (
	simulation sync.Once
	simulated  *measure.Result
)

// poisoned is a result whose texts are all hostile.
func poisoned(res *measure.Result) *measure.Result {
	bad := *res
	bad.Title, bad.Target, bad.Server, bad.Command = hostile, hostile, hostile, hostile
	bad.Phases = slices.Clone(res.Phases)
	for i := range bad.Phases {
		bad.Phases[i].Name = hostile
	}
	bad.Events = slices.Clone(res.Events)
	for i := range bad.Events {
		bad.Events[i].Text = hostile
	}
	bad.Verdicts = slices.Repeat([]measure.Verdict{{Phase: hostile, What: hostile, Limit: hostile, Measured: hostile}}, 2)
	bad.Metrics = slices.Clone(res.Metrics)
	for i := range bad.Metrics {
		bad.Metrics[i].Help = hostile
	}
	bad.Samples = slices.Clone(res.Samples)
	for i := range bad.Samples {
		s := &bad.Samples[i]
		s.Phase, s.Errors = hostile, map[string]uint64{hostile: 1}
		s.Server = maps.Clone(s.Server)
		s.Server[`opcua_server_sessions{a="`+hostile+`"}`] = float64(i)
	}
	bad.Clients = []measure.ClientFacts{{Phase: hostile}}
	bad.Floods = []measure.FloodFacts{{Phase: hostile, Kind: hostile, Ended: map[string]int{hostile: 1}}}
	bad.Total.Refusals = []measure.RefusalCount{{Name: hostile, Count: 1}}
	bad.Total.Errors = []measure.ErrorCount{{Name: hostile, Count: 1}}
	return &bad
}

// metricsPage is what the simulated server answers to a scrape.
type metricsPage struct {
	mu                         sync.Mutex
	sessions, requests, refuse int
}

func (m *metricsPage) RoundTrip(*http.Request) (*http.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := fmt.Sprintf(`# HELP opcua_server_sessions Sessions that are activated.
# TYPE opcua_server_sessions gauge
opcua_server_sessions %d
# HELP opcua_server_requests_total Requests answered.
# TYPE opcua_server_requests_total counter
opcua_server_requests_total{service="Read"} %d
opcua_server_requests_total{service="Write"} %d
opcua_server_requests_total{service="</script>"} %d
# HELP opcua_server_request_duration_seconds Time to answer.
# TYPE opcua_server_request_duration_seconds histogram
opcua_server_request_duration_seconds_bucket{le="+Inf"} %d
opcua_server_request_duration_seconds_sum %g
opcua_server_request_duration_seconds_count %d
# HELP opcua_server_isolation_rejections_total Leases refused.
# TYPE opcua_server_isolation_rejections_total counter
opcua_server_isolation_rejections_total{stage="session",reason="capacity"} %d
# HELP process_resident_memory_bytes Resident memory size in bytes.
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes %d
# TYPE go_goroutines gauge
go_goroutines 42
`, m.sessions, m.requests, m.requests/5, m.requests/50, m.requests, float64(m.requests)*0.0004, m.requests, m.refuse, 64<<20+m.sessions*38_000)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

func simulate(t *testing.T) *measure.Result {
	rng := rand.New(rand.NewPCG(1, 2))
	server := &metricsPage{}
	r, err := measure.Start(measure.Options{Title: "storm of 8,000 clients", Target: "opc.tcp://localhost:4840",
		Server: "Breakwater refserver 0.4", Command: "uastorm storm --clients 8000 --sessions 1000 --report storm.html opc.tcp://localhost:4840",
		Phase: "warm-up", ServerMetrics: "http://localhost/metrics", Client: &http.Client{Transport: server}})
	if err != nil {
		t.Fatal(err)
	}
	ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	sessions, waiting := 0, 0
	for tick := range 900 {
		now := time.Now()
		switch tick {
		case 100:
			r.Phase("steady")
		case 300:
			r.Phase("storm")
			r.Event("8,000 clients connect")
			waiting = 8000
		case 600:
			r.Phase("recovery")
		}
		server.mu.Lock()
		load := float64(waiting) / 8000
		if tick < 100 {
			for range 10 {
				r.Attempt()
				r.ConnectionUp()
				r.SessionUp()
				r.Operation(measure.Connect, now, now, now.Add(ms(9+4*rng.ExpFloat64())), ua.StatusOK)
				sessions++
			}
		}
		if waiting > 0 {
			admitted, refused := min(waiting, 32), waiting/9
			for range admitted {
				r.Attempt()
				r.ConnectionUp()
				r.SessionUp()
				r.Operation(measure.Connect, now, now, now.Add(ms(15+30*rng.ExpFloat64()*(1+4*load))), ua.StatusOK)
			}
			for range refused {
				r.Attempt()
				hint := ms(500 + rng.Float64()*1000*float64(waiting)/320)
				switch n := rng.IntN(100); {
				case n < 82:
					r.Refused(measure.ByError, ua.StatusBadTCPServerTooBusy, hint)
				case n < 97:
					r.Refused(measure.ByFault, uastatus.BadServerTooBusy, hint)
				case n < 99:
					r.Refused(measure.BySilence, 0, 0)
				default:
					r.Refused(measure.ByTimeout, ua.StatusBadTimeout, 0)
				}
			}
			waiting -= admitted
			sessions += admitted
			server.refuse += refused
			server.requests += 5 * admitted
		}
		for range 50 {
			latency := ms(0.6 + 0.5*rng.ExpFloat64()*(1+2*load) + 3*load*math.Pow(rng.Float64(), 12))
			r.Operation(measure.Read, now, now.Add(latency/10), now.Add(latency), ua.StatusOK)
			r.Operation(measure.Publish, now, now, now.Add(latency+ms(20*rng.Float64())), ua.StatusOK)
			r.Woke(now, now.Add(ms(0.1*rng.ExpFloat64()*(1+8*load))))
			server.requests++
		}
		for range 10 {
			code := ua.StatusOK
			if load > 0.3 && rng.IntN(200) == 0 {
				code = ua.StatusBadTimeout
			} else if load > 0 && rng.IntN(150) == 0 {
				code = ua.StatusBadTooManyOperations
			}
			r.Operation(measure.Write, now, now, now.Add(ms(1+rng.ExpFloat64()*(1+load))), code)
		}
		r.Notifications(sessions / 2)
		if tick == 340 || tick == 371 {
			r.Gap(3)
		}
		server.sessions = sessions
		server.mu.Unlock()
		time.Sleep(100 * time.Millisecond)
	}
	res := r.Finish()
	for i := range res.Samples { // simulated time is not what a processor takes
		res.Samples[i].Saturated = false
		res.Samples[i].CPU = 0.2 + 1.2*float64(res.Samples[i].Attempts)/9500
	}
	for i := range res.Phases {
		res.Phases[i].Saturation = measure.Saturation{CPU: 0.3 + 0.2*float64(i%3), MaxCPU: 1.4}
	}
	res.Processors = 2
	res.Clients = []measure.ClientFacts{
		{Phase: "storm", Clients: 8000, Holding: 8000, HeldAfter: 25_100, Attempts: 9_215, MostAttempts: 4, Refused: 1_215, Hinted: 1_180, Silent: 24, Unreached: 8, TimedOut: 3},
		{Phase: "recovery", Clients: 8000, Holding: 7999, Lost: 1},
	}
	res.Floods = []measure.FloodFacts{{Phase: "storm", Kind: "slow chunks", Connections: 20, Opened: 41, Held: 20, Peak: 20, Longest: 10_020, Bytes: 1_530_000,
		Ended: map[string]int{"BadTcpMessageTooLarge": 17, "silence": 4}}}
	res.Verdicts = []measure.Verdict{
		{Phase: "storm", What: "read p99", Limit: "≤ 20 ms", Measured: measure.Duration(res.Phases[2].Totals.Operations[measure.Read].Latency.P99), Pass: true},
		{Phase: "storm", What: "values lost", Limit: "0", Measured: "6", Pass: false},
		{Phase: "storm", What: "refused politely", Limit: "≥ 95 %", Measured: "97.1 %", Pass: true},
		{Phase: "recovery", What: "sessions at the end", Limit: "≥ 9,000", Measured: "9,000", Pass: true},
	}
	return res
}
