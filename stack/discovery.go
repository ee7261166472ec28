package stack

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/service"
	"github.com/breakwater-ua/breakwater/uastatus"
	"github.com/gopcua/opcua/ua"
)

// discovery bounds how often somebody without a session may ask who the server
// is: the answers are many times larger than the questions (hostile.md X36). The
// bucket is the remote address's, so that nobody is kept from finding the
// server by others.
type discovery struct {
	shadowed atomic.Uint64

	mu         sync.Mutex
	perSecond  int // 0 = no limit
	burst      int
	shadow     bool
	perAddress *isolation.AddressLimiter
}

// configure puts limits in force. The buckets start full when they change.
func (l *discovery) configure(o *Options) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shadow = o.Shadow
	perSecond, burst := max(o.RateLimits.DiscoveryPerSecond, 0), o.RateLimits.DiscoveryBurst
	if perSecond == l.perSecond && burst == l.burst {
		return
	}
	l.perSecond, l.burst, l.perAddress = perSecond, burst, nil
	if perSecond > 0 {
		l.perAddress = isolation.NewAddressBuckets(float64(perSecond), burst)
	}
}

// admit decides about a request of the discovery services.
func (l *discovery) admit(ch channel, r *service.Request) ua.StatusCode {
	if s, ok := ch.(interface{ HasSession() bool }); ok && s.HasSession() {
		return ua.StatusOK
	}
	l.mu.Lock()
	limiter, shadow := l.perAddress, l.shadow
	l.mu.Unlock()
	if limiter == nil {
		return ua.StatusOK
	}
	ok, wait := limiter.Allow(r.Time, ch.RemoteAddr().Addr())
	switch {
	case ok:
		return ua.StatusOK
	case shadow:
		l.shadowed.Add(1)
		return ua.StatusOK
	}
	r.RetryHint = max(wait, time.Millisecond)
	return uastatus.BadServerTooBusy
}
