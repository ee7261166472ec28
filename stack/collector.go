package stack

import (
	"github.com/prometheus/client_golang/prometheus"
)

// A collector turns Stats into metrics when it is scraped; counting itself
// knows nothing of Prometheus. No label carries an owner, user, token or address.
type collector struct {
	srv      *Server
	overload overloadMetrics

	channels, sessions, activated, subscriptions, items, parked *prometheus.Desc
	sessionsCreated, sessionsRejected, sessionTimeouts          *prometheus.Desc
	blocking, refused, lost, requests, duration, notifications  *prometheus.Desc
	budgetReserved, budgetMax, budgetRefused                    *prometheus.Desc
	connections, connectionsAccepted, connectionsRefused        *prometheus.Desc
	connectionCloses                                            *prometheus.Desc
	cryptoWaiting, cryptoMean                                   *prometheus.Desc
	admission                                                   admissionMetrics
}

// Collector returns the server's metrics for a Prometheus registry. All names
// begin with opcua_server_.
func (s *Server) Collector() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("opcua_server_"+name, help, labels, nil)
	}
	return &collector{
		srv:                 s,
		overload:            newOverloadMetrics(desc),
		admission:           newAdmissionMetrics(desc),
		channels:            desc("channels", "Open secure channels."),
		sessions:            desc("sessions", "Sessions, activated or not."),
		activated:           desc("sessions_activated", "Activated sessions."),
		subscriptions:       desc("subscriptions", "Subscriptions, those without a session included."),
		items:               desc("monitored_items", "Monitored items."),
		parked:              desc("publish_parked", "Publish requests that wait for notifications."),
		sessionsCreated:     desc("sessions_created_total", "Sessions created."),
		sessionsRejected:    desc("sessions_rejected_total", "CreateSession and ActivateSession requests refused.", "reason"),
		sessionTimeouts:     desc("session_timeouts_total", "Sessions that ended by a timeout."),
		blocking:            desc("requests_blocking", "Requests on goroutines of their own, running or waiting."),
		refused:             desc("requests_refused_total", "Requests refused by admission."),
		lost:                desc("responses_lost_total", "Responses whose channel had gone."),
		requests:            desc("requests_total", "Requests answered.", "service", "status"),
		notifications:       desc("notifications_total", "Notifications sent to clients: values and events, Republish apart."),
		duration:            desc("request_duration_seconds", "From the last byte of a request to its answer: of requests answered at once every sixteenth, of the others all.", "service"),
		budgetReserved:      desc("budget_reserved_bytes", "Memory held by partly received messages."),
		budgetMax:           desc("budget_max_bytes", "Largest amount of memory for partly received messages."),
		budgetRefused:       desc("budget_rejections_total", "Chunks refused for want of memory."),
		connections:         desc("connections", "Open connections."),
		connectionsAccepted: desc("connections_accepted_total", "Connections admitted, by the address that is listened on.", "listener"),
		connectionsRefused:  desc("connections_refused_total", "Connections refused before a byte was read.", "listener", "reason"),
		connectionCloses:    desc("connection_closes_total", "Connections that ended.", "reason"),
		cryptoWaiting:       desc("crypto_gate_waiting", "Private-key operations that wait.", "priority"),
		cryptoMean:          desc("crypto_gate_operation_seconds", "Mean duration of a private-key operation."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	st := c.srv.Stats()
	gauge(c.channels, float64(st.Channels))
	gauge(c.sessions, float64(st.Sessions))
	gauge(c.activated, float64(st.ActivatedSessions))
	gauge(c.subscriptions, float64(st.Subscriptions))
	gauge(c.items, float64(st.MonitoredItems))
	gauge(c.parked, float64(st.ParkedPublishes))
	counter(c.notifications, float64(st.Notifications))
	counter(c.sessionsCreated, float64(st.SessionSummary.Cumulated))
	counter(c.sessionsRejected, float64(st.SessionSummary.SecurityRejected), "security")
	counter(c.sessionsRejected, float64(st.SessionSummary.Rejected-min(st.SessionSummary.Rejected, st.SessionSummary.SecurityRejected)), "other")
	counter(c.sessionTimeouts, float64(st.SessionSummary.Timeouts))
	gauge(c.blocking, float64(st.BlockingRequests))
	counter(c.refused, float64(st.RefusedRequests))
	counter(c.lost, float64(st.LostResponses))
	gauge(c.budgetReserved, float64(st.BudgetReserved))
	gauge(c.budgetMax, float64(st.BudgetMax))
	counter(c.budgetRefused, float64(st.BudgetRefused))
	for _, s := range st.Services {
		name := s.Name
		if name == "" {
			name = "unknown"
		}
		counter(c.requests, float64(s.Good), name, "good")
		counter(c.requests, float64(s.Bad), name, "bad")
		if s.Timed > 0 {
			buckets := make(map[float64]uint64, len(latencyBuckets))
			var sum uint64
			for i, top := range latencyBuckets {
				sum += s.Buckets[i]
				buckets[top.Seconds()] = sum
			}
			ch <- prometheus.MustNewConstHistogram(c.duration, s.Timed, s.Duration.Seconds(), buckets, name)
		}
	}
	c.collectOverload(ch, gauge, counter)
	c.srv.collectConnections(c, gauge, counter)
	c.collectAdmission(gauge, counter)
	if g := c.srv.gate; g != nil {
		waiting := g.Waiting()
		for i, n := range waiting {
			gauge(c.cryptoWaiting, float64(n), [...]string{"renew", "session", "issue"}[i])
		}
		gauge(c.cryptoMean, g.MeanOperation().Seconds())
	}
}
