package stack

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/id"

	"github.com/breakwater-ua/breakwater/uabinary"
)

const (
	fullService = 255
	// lowestService is what a server that is full, but works, still claims: 1
	// would say that it has no data (OPC 10000-4 §6.6.2.4.2 ServiceLevel).
	lowestService = 2
	// serviceLevelStep is the least change that is published, the ends apart.
	serviceLevelStep = 5
	// serviceLevelPeriod is how often the level is computed.
	serviceLevelPeriod = time.Second
)

// serviceLevel is what a server claims of which the share used of some
// resource is in use: all of it up to a fifth, then down to the floor.
func serviceLevel(used float64) byte {
	switch {
	case used <= 0.2 || math.IsNaN(used):
		return fullService
	case used >= 1:
		return lowestService
	}
	return lowestService + byte(math.Round((fullService-lowestService)*(1-used)/0.8))
}

// level computes the ServiceLevel from the sessions, the line of those who wait
// for one, and the memory of partial messages; the lowest counts.
func (s *Server) level(now time.Time) byte {
	if f := s.opts.ServiceLevel; f != nil {
		return f(now)
	}
	l := serviceLevel(float64(s.sessions.Len()) / float64(s.sessions.Max()))
	l = min(l, serviceLevel(s.planner.Backlog(now).Seconds()/s.planner.Max().Seconds()))
	if most := s.budget.Max(); most > 0 {
		l = min(l, serviceLevel(float64(s.budget.Reserved())/float64(most)))
	}
	return l
}

// watchServiceLevel publishes the level until ctx ends.
func (s *Server) watchServiceLevel(ctx context.Context) {
	tick := time.NewTicker(serviceLevelPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.published.publish(s, s.level(now))
		}
	}
}

// publishedLevel is the value of Server/ServiceLevel. It has one writer at a
// time: the server's own estimate until it shuts down, then Shutdown.
type publishedLevel struct {
	value atomic.Int32 // last one published

	mu    sync.Mutex
	final bool // shutting down: 0 stays
}

// publish sets the variable when the change is worth a notification.
func (p *publishedLevel) publish(s *Server, level byte) {
	have := int(p.value.Load())
	diff := int(level) - have
	if diff == 0 || diff > -serviceLevelStep && diff < serviceLevelStep && level != fullService && level != lowestService {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.final {
		p.set(s, level)
	}
}

// end publishes 0, and nothing else ever again.
func (p *publishedLevel) end(s *Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.final = true
	p.set(s, 0)
}

func (p *publishedLevel) set(s *Server, level byte) {
	p.value.Store(int32(level))
	if v := s.space.Variable(uabinary.NumericID(0, id.Server_ServiceLevel)); v != nil {
		_ = v.Set(level)
	}
}

// ServiceLevel returns the level last published.
func (s *Server) ServiceLevel() byte { return byte(s.published.value.Load()) }
