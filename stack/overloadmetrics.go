package stack

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/breakwater-ua/breakwater/isolation"
)

// overloadMetrics are those of isolation, the connection limiter, establishment
// and the planner. They read what is counted anyway.
type overloadMetrics struct {
	usage, capacity, owners, rejections, runSlots, runSlotsMax, queued *prometheus.Desc
	polite, tokens                                                     *prometheus.Desc
	establishing, establishWaiting, establishRefused, establishTime    *prometheus.Desc
	backlog, rate, level, shadowed                                     *prometheus.Desc
}

func newOverloadMetrics(desc func(name, help string, labels ...string) *prometheus.Desc) overloadMetrics {
	return overloadMetrics{
		usage:            desc("isolation_used", "What is in use of a stage.", "stage", "part"),
		capacity:         desc("isolation_capacity", "What may be used of a stage.", "stage"),
		owners:           desc("isolation_owners", "Owners that hold something."),
		rejections:       desc("isolation_rejections_total", "Leases refused.", "stage", "reason"),
		runSlots:         desc("run_slots_used", "Requests running on their connection's goroutine."),
		runSlotsMax:      desc("run_slots", "How many may; 0: no bound."),
		queued:           desc("requests_queued", "Requests that wait for a place to run."),
		polite:           desc("connections_refused_politely_total", "Refused connections that were told when to come back."),
		tokens:           desc("connection_limiter_tokens", "Connections that the limiter would admit at once.", "bucket"),
		establishing:     desc("session_establishment_in_flight", "CreateSession and ActivateSession calls at work."),
		establishWaiting: desc("session_establishment_waiting", "Those that wait for a place."),
		establishRefused: desc("session_establishment_refused_total", "Those refused as busy."),
		establishTime:    desc("session_establishment_duration_seconds", "Time at work, private-key operations and their queue included."),
		backlog:          desc("retry_backlog_seconds", "How long the slots handed out to refused clients still take."),
		rate:             desc("retry_rate", "Sessions per second that the planner expects to serve."),
		level:            desc("service_level", "Server/ServiceLevel as last published."),
		shadowed:         desc("shadow_refusals_total", "What would have been refused and was let pass, in shadow mode.", "limit", "reason"),
	}
}

func (c *collector) collectOverload(ch chan<- prometheus.Metric, gauge, counter func(d *prometheus.Desc, v float64, labels ...string)) {
	s, m := c.srv, &c.overload
	stages, owners := s.provider.Snapshot()
	for i, u := range stages {
		for _, part := range []struct {
			name string
			used int64
		}{{"shared", u.Shared}, {"bootstrap", u.Bootstrap}, {"reconnect", u.Reconnect}, {"control", u.Control}, {"trusted", u.Trusted}} {
			gauge(m.usage, float64(part.used), u.Name, part.name)
		}
		gauge(m.capacity, float64(u.Capacity), u.Name)
		for r := isolation.InvalidOwner; r < isolation.Reasons; r++ {
			counter(m.rejections, float64(s.provider.Refused(isolation.Stage(i), r)), u.Name, r.String())
			if n := s.provider.Shadowed(isolation.Stage(i), r); n > 0 {
				counter(m.shadowed, float64(n), u.Name, r.String())
			}
		}
	}
	gauge(m.owners, float64(owners))
	used, slots := s.provider.RunSlots()
	gauge(m.runSlots, float64(used))
	gauge(m.runSlotsMax, float64(slots))
	gauge(m.queued, float64(s.dispatch.short.queue.Len()+s.dispatch.slow.queue.Len()))

	now := time.Now()
	connections := s.connections.Usage()
	counter(m.polite, float64(connections.Polite))
	for reason, n := range connections.Shadowed {
		counter(m.shadowed, float64(n), "connections", reason.String())
	}
	counter(m.shadowed, float64(s.establish.shadowed.Load()), "establishment", isolation.Capacity.String())
	counter(m.shadowed, float64(s.channels.Shadowed()), "crypto wait", isolation.Capacity.String())
	counter(m.shadowed, float64(s.discovery.shadowed.Load()), "discovery", "rate")
	if t := s.connections.Tokens(); t != nil {
		shared, bootstrap, reconnect, trusted := t.Tokens(now)
		gauge(m.tokens, shared, "shared")
		gauge(m.tokens, bootstrap, "bootstrap")
		gauge(m.tokens, reconnect, "reconnect")
		gauge(m.tokens, trusted, "trusted")
	}
	inFlight, waiting := s.establish.usage()
	gauge(m.establishing, float64(inFlight))
	gauge(m.establishWaiting, float64(waiting))
	counter(m.establishRefused, float64(s.establish.refused.Load()))
	ch <- s.establish.took.metric(m.establishTime)
	gauge(m.backlog, s.planner.Backlog(now).Seconds())
	gauge(m.rate, s.planner.Rate())
	gauge(m.level, float64(s.ServiceLevel()))
}

// metric is the histogram as Prometheus has it.
func (h *histogram) metric(d *prometheus.Desc, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(latencyBuckets))
	var sum uint64
	for i, top := range latencyBuckets {
		sum += h.buckets[i].Load()
		buckets[top.Seconds()] = sum
	}
	return prometheus.MustNewConstHistogram(d, max(h.timed.Load(), sum), time.Duration(h.nanoseconds.Load()).Seconds(), buckets, labels...)
}
