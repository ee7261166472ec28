package stack

import (
	"reflect"
)

// takeWeb takes what ApplyLimits may change of HTTPS and the governors from o.
// A governor that o does not name stays as it is.
func (next *Options) takeWeb(o *Options) error {
	next.HTTP.RequestsPerSecond, next.HTTP.RequestBurst = o.HTTP.RequestsPerSecond, o.HTTP.RequestBurst
	next.HTTP.MaxSessionless = o.HTTP.MaxSessionless
	const restart = "switching a governor on needs a restart"
	if g := o.Governors.HTTP; g != nil {
		if next.Governors.HTTP == nil {
			return bad("Governors.HTTP", restart)
		}
		next.Governors.HTTP = g
	}

	if g := o.Governors.Commands; g != nil {
		if next.Governors.Commands == nil {
			return bad("Governors.Commands", restart)
		}
		next.Governors.Commands = g
	}
	next.Governors = next.Governors.clone()
	return nil
}

// clone copies the options, which the caller may change.
func (g Governors) clone() Governors {
	if g.HTTP != nil {
		c := *g.HTTP
		g.HTTP = &c
	}
	if g.Commands != nil {
		c := *g.Commands
		g.Commands = &c
	}
	return g
}

// compareWeb notes the fields that differ. Both have been validated.
func (r *LimitsReport) compareWeb(have, next *Options) error {
	if have.HTTP.RequestsPerSecond != next.HTTP.RequestsPerSecond {
		r.Changed = append(r.Changed, "HTTP.RequestsPerSecond")
	}
	if or(have.HTTP.RequestBurst, defaultRequestBurst) != or(next.HTTP.RequestBurst, defaultRequestBurst) {
		r.Changed = append(r.Changed, "HTTP.RequestBurst")
	}
	if or(have.HTTP.MaxSessionless, defaultMaxSessionless) != or(next.HTTP.MaxSessionless, defaultMaxSessionless) {
		r.Changed = append(r.Changed, "HTTP.MaxSessionless")
	}
	if a, b := have.Governors.HTTP, next.Governors.HTTP; a != nil && b != nil {
		x, err := a.Resolved()
		if err != nil {
			return governorError("Governors.HTTP", err)
		}
		y, err := b.Resolved()
		if err != nil {
			return governorError("Governors.HTTP", err)
		}
		r.differ("Governors.HTTP", reflect.ValueOf(x), reflect.ValueOf(y))
	}
	if a, b := have.Governors.Commands, next.Governors.Commands; a != nil && b != nil {
		x, err := a.Resolved()
		if err != nil {
			return governorError("Governors.Commands", err)
		}
		y, err := b.Resolved()
		if err != nil {
			return governorError("Governors.Commands", err)
		}
		r.differ("Governors.Commands", reflect.ValueOf(x), reflect.ValueOf(y))
	}
	return nil
}

// differ notes the fields of two structs that differ, all of which may change.
func (r *LimitsReport) differ(group string, have, want reflect.Value) {
	for i := range have.NumField() {
		if !have.Field(i).Equal(want.Field(i)) {
			r.Changed = append(r.Changed, group+"."+have.Type().Field(i).Name)
		}
	}
}

// applyWeb puts what takeWeb took in force. It has been validated.
func (s *Server) applyWeb(next *Options) {
	if g := s.governors.http; g != nil && next.Governors.HTTP != nil {
		_ = g.Apply(*next.Governors.HTTP)
	}
	if g := s.governors.commands; g != nil && next.Governors.Commands != nil {
		_ = g.Apply(*next.Governors.Commands)
	}
	s.dispatch.sessionless.most.Store(int64(or(next.HTTP.MaxSessionless, defaultMaxSessionless)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rate.perSecond, s.rate.burst = next.HTTP.RequestsPerSecond, or(next.HTTP.RequestBurst, defaultRequestBurst)
	for _, l := range s.listeners {
		if w, ok := l.(interface{ SetRate(float64, int) }); ok {
			w.SetRate(s.rate.perSecond, s.rate.burst)
		}
	}
}
