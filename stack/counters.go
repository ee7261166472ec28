package stack

import (
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/service"
	"github.com/gopcua/opcua/ua"
)

// counters counts requests by service and outcome. Each service has a cache
// line of its own.
type counters struct {
	services []serviceCounter // one more than the table: unknown services
	lost     atomic.Uint64    // answers whose channel had gone
	security atomic.Uint64    // refused for security reasons
	refused  atomic.Uint64    // answered BadServerTooBusy
}

type serviceCounter struct {
	good, bad atomic.Uint64
	histogram
	_ [64]byte
}

// histogram counts durations.
type histogram struct {
	nanoseconds, timed atomic.Uint64
	buckets            [len(latencyBuckets)]atomic.Uint64
}

func (h *histogram) add(d time.Duration) {
	h.timed.Add(1)
	h.nanoseconds.Add(uint64(max(d, 0)))
	for i, top := range latencyBuckets {
		if d <= top {
			h.buckets[i].Add(1)
			return
		}
	}
}

// latencyBuckets are upper bounds of the duration histogram.
var latencyBuckets = [...]time.Duration{
	100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond,
	100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 10 * time.Second,
}

func newCounters(t *service.Table) *counters {
	return &counters{services: make([]serviceCounter, len(t.Entries())+1)}
}

// of returns the counter of a service; nil is the unknown one.
func (c *counters) of(e *service.Entry) *serviceCounter {
	if e == nil {
		return &c.services[len(c.services)-1]
	}
	return &c.services[e.Index]
}

func (c *counters) service(e *service.Entry, code ua.StatusCode) {
	if service.Failed(code) {
		c.of(e).bad.Add(1)
		switch code {
		case ua.StatusBadSecurityPolicyRejected, ua.StatusBadSecurityChecksFailed, ua.StatusBadSessionIDInvalid,
			ua.StatusBadSessionNotActivated, ua.StatusBadIdentityTokenInvalid, ua.StatusBadIdentityTokenRejected, ua.StatusBadUserAccessDenied:
			c.security.Add(1)
		}
	} else {
		c.of(e).good.Add(1)
	}
}

// inlineSample: one of so many requests that are answered at once is timed. To ask
// the clock for each would cost as much as to admit it.
const inlineSample = 16

// sampled says, of a request that has just been counted, whether it is to be timed.
func (c *serviceCounter) sampled() bool { return c.good.Load()%inlineSample == 0 }

// took records the duration of a request.
func (c *counters) took(e *service.Entry, d time.Duration) {
	c.of(e).add(d)
}

// rejected is the number of requests answered with a Bad result.
func (c *counters) rejected() (n uint64) {
	for i := range c.services {
		n += c.services[i].bad.Load()
	}
	return n
}
