package stack

import (
	"time"

	"github.com/breakwater-ua/breakwater/session"
)

// Stats is a snapshot of what a server is doing.
type Stats struct {
	Channels               int // open secure channels
	Sessions               int // sessions, activated or not
	ActivatedSessions      int
	SessionSummary         session.Summary
	Subscriptions          int
	MonitoredItems         int
	ParkedPublishes        int
	CumulatedSubscriptions uint64
	Notifications          uint64 // sent, Republish apart
	BlockingRequests       int    // requests apart from their connection's goroutine, running or waiting
	Establishing           int    // CreateSession and ActivateSession in flight
	EstablishmentWaiting   int    // those that wait for a place
	EstablishmentRefused   uint64 // those that were refused
	QueuedRequests         int    // those of them that wait for a place to run
	BudgetReserved         int64  // bytes of partly received messages
	BudgetMax              int64
	BudgetRefused          uint64
	RefusedRequests        uint64 // answered BadServerTooBusy
	RejectedRequests       uint64 // answered with a Bad result
	LostResponses          uint64 // whose channel had gone
	// SecurityRejectedRequests were refused for security reasons.
	SecurityRejectedRequests uint64
	Services                 []ServiceStats
}

// ServiceStats counts one service. The last element of Stats.Services, with an
// empty name, stands for type ids that are no service.
type ServiceStats struct {
	Name      string
	Good, Bad uint64
	// Timed and Duration cover every sixteenth of the requests that were answered
	// at once, and all that ran on goroutines of their own.
	Timed    uint64
	Duration time.Duration
	// Buckets counts those up to each of LatencyBuckets, not cumulated.
	Buckets []uint64
}

// LatencyBuckets returns the upper bounds of ServiceStats.Buckets.
func LatencyBuckets() []time.Duration { return latencyBuckets[:] }

// Stats returns a snapshot. Its numbers are read one after the other and need
// not agree to the last request.
func (s *Server) Stats() Stats {
	counts := s.engine.Counts()
	d := s.dispatch
	st := Stats{
		Channels:               int(d.channels.Load()),
		Sessions:               s.sessions.Len(),
		ActivatedSessions:      s.sessions.Activated(),
		SessionSummary:         s.sessions.Summary(),
		Subscriptions:          counts.Subscriptions,
		MonitoredItems:         counts.MonitoredItems,
		ParkedPublishes:        counts.ParkedPublish,
		CumulatedSubscriptions: counts.Created,
		Notifications:          counts.Notifications,
		BlockingRequests:       d.blocking.Len(),
		QueuedRequests:         d.short.queue.Len() + d.slow.queue.Len(),
		BudgetReserved:         s.budget.Reserved(),
		BudgetMax:              s.budget.Max(),
		BudgetRefused:          s.budget.Refused(),
		RefusedRequests:        d.counters.refused.Load(),
		EstablishmentRefused:   s.establish.refused.Load(),
		LostResponses:          d.counters.lost.Load(),
	}
	st.Establishing, st.EstablishmentWaiting = s.establish.usage()
	entries := d.table.Entries()
	st.Services = make([]ServiceStats, len(d.counters.services))
	for i := range d.counters.services {
		c := &d.counters.services[i]
		sv := ServiceStats{Good: c.good.Load(), Bad: c.bad.Load(), Timed: c.timed.Load(), Duration: time.Duration(c.nanoseconds.Load())}
		if i < len(entries) {
			sv.Name = entries[i].Name
		}
		sv.Buckets = make([]uint64, len(c.buckets))
		for k := range c.buckets {
			sv.Buckets[k] = c.buckets[k].Load()
		}
		st.RejectedRequests += sv.Bad
		st.Services[i] = sv
	}
	st.SecurityRejectedRequests = d.counters.security.Load()
	return st
}
