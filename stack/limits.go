package stack

import (
	"fmt"
	"reflect"
	"time"

	"github.com/breakwater-ua/breakwater/isolation"
	"github.com/breakwater-ua/breakwater/securechannel"
)

// A LimitsReport says what ApplyLimits has done, or would do.
type LimitsReport struct {
	// Plan is the division by the new limits.
	Plan *isolation.Plan
	// Changed names the fields of Options that differ from what was in force.
	Changed []string
	// Over lists what is in use now beyond a new limit. Nothing of it is taken
	// away: newcomers are refused until enough was returned.
	Over []Overrun
}

// An Overrun is a part of the present load that would not be admitted again.
type Overrun struct {
	What  string `json:"what"` // a stage, or the name of a limit
	InUse int64  `json:"inUse"`
	Limit int64  `json:"limit"`
}

// live are the limits that can change while a server runs, with RequestCost and
// Shadow; the rest of Limits, RateLimits, Isolation and Budget needs a restart.
var live = map[string]bool{
	"Limits.MaxSessions": true, "Limits.MaxChannels": true, "Limits.MaxExecutingRequests": true,
	"Limits.MaxQueuedRequests": true, "Limits.MaxParkedRequests": true, "Limits.RunSlots": true,
	"Limits.MinSessionTimeout": true, "Limits.MaxSessionTimeout": true, "Limits.ActivationTimeout": true,
	"Limits.EvictDetachedSessions": true,
	"Limits.HelloTimeout":          true, "Limits.HandshakeTimeout": true, "Limits.AssemblyTimeout": true,
	"Limits.MaxPublishRequests": true, "Limits.MinPublishingInterval": true, "Limits.MaxPublishingInterval": true,
	"Limits.MaxSubscriptionsPerSession": true, "Limits.MaxMonitoredItemsPerSubscription": true,
	"Limits.MaxMonitoredItemQueueSize": true, "Limits.MaxRetransmissionQueueSize": true,
	"Limits.WriteTimeout": true, "Limits.WriteQueueBytes": true, "Isolation.HandshakeTimeout": true,

	"RateLimits.Disabled": true, "RateLimits.ConnectionsPerSecond": true, "RateLimits.ConnectionBurst": true,
	"RateLimits.ConnectionsUnlimited": true, "RateLimits.ConnectionsPerSecondPerAddress": true,
	"RateLimits.PoliteRefusalsPerSecond": true, "RateLimits.MaxConcurrentSessionEstablishment": true,
	"RateLimits.SessionEstablishmentQueueLimit": true, "RateLimits.EstablishmentUnlimited": true,
	"RateLimits.MaxCryptoWait": true, "RateLimits.DiscoveryPerSecond": true, "RateLimits.DiscoveryBurst": true,
	"Limits.MinTokenLifetime": true, "Limits.MaxTokenLifetime": true, "Limits.MaxOutstandingPerConnection": true,

	"Budget.MaxBytes": true, "Budget.SessionlessBytes": true, "Retry.Min": true, "Retry.Max": true,

	"Isolation.MaxTrackedOwners": true, "Isolation.DefaultWeight": true, "Isolation.MaxRetainedMessageBytes": true,
	"Isolation.MaxOwnerKeyLength": true, "Isolation.BootstrapReservedBytes": true, "Isolation.ReconnectReservedBytes": true,
	"Isolation.Stages": true, "Isolation.TrustedOwners": true, // their keys stay, see Provider.Apply
}

// ApplyLimits puts the Limits, RateLimits, Isolation, Budget, Retry, RequestCost
// and Shadow of other options in force while the server runs, the Governors that
// they name, and the rate and MaxSessionless of HTTP; the rest of the options is
// not looked at. The size of a shared Budget is its owner's to change,
// with Resize; another ApplyLimits divides it anew. The limits are validated as a whole: on an error, an *OptionError, nothing has changed. A
// field that cannot change says that it needs a restart. With dryRun nothing
// changes in any case, and the report says what would. Limits below what is in
// use take nothing away; they refuse until enough was returned.
func (s *Server) ApplyLimits(o Options, dryRun bool) (*LimitsReport, error) {
	s.limits.Lock()
	defer s.limits.Unlock()
	next := s.inForce
	next.Limits, next.RateLimits, next.Isolation = o.Limits, o.RateLimits, o.Isolation
	next.Budget, next.Retry, next.RequestCost, next.Shadow = o.Budget, o.Retry, o.RequestCost, o.Shadow
	if err := next.takeWeb(&o); err != nil {
		return nil, err
	}
	if next.Budget.Shared != s.inForce.Budget.Shared {
		return nil, bad("Budget.Shared", "another budget needs a restart")
	}
	if err := next.Validate(); err != nil {
		return nil, err
	}
	next = next.resolved()
	r := new(LimitsReport)
	for _, g := range []struct {
		name      string
		have, new any
	}{
		{"Limits", s.inForce.Limits, next.Limits}, {"RateLimits", s.inForce.RateLimits, next.RateLimits},
		{"Isolation", s.inForce.Isolation, next.Isolation}, {"Budget", s.inForce.Budget, next.Budget},
		{"Retry", s.inForce.Retry, next.Retry},
	} {
		if err := r.compare(g.name, reflect.ValueOf(g.have), reflect.ValueOf(g.new)); err != nil {
			return nil, err
		}
	}
	if next.RequestCost != s.inForce.RequestCost {
		r.Changed = append(r.Changed, "RequestCost")
	}
	if next.Shadow != s.inForce.Shadow {
		r.Changed = append(r.Changed, "Shadow")
	}
	if err := r.compareWeb(&s.inForce, &next); err != nil {
		return nil, err
	}
	var err error
	if r.Plan, err = next.plan(); err != nil {
		return nil, err
	}
	now := s.provider.Plan()
	for i := range r.Plan.Trusted {
		if len(now.Trusted) != len(r.Plan.Trusted) || now.Trusted[i].Key != r.Plan.Trusted[i].Key {
			return nil, bad("Isolation.TrustedOwners", "other keys need a restart")
		}
	}
	if len(now.Trusted) != len(r.Plan.Trusted) {
		return nil, bad("Isolation.TrustedOwners", "other keys need a restart")
	}
	r.measure(s, &next)
	if dryRun {
		return r, nil
	}
	return r, s.apply(next, r.Plan)
}

// compare notes the fields that differ.
func (r *LimitsReport) compare(group string, have, want reflect.Value) error {
	for i := range have.NumField() {
		name := group + "." + have.Type().Field(i).Name
		if name == "Limits.Operations" {
			if err := r.compare(name, have.Field(i), want.Field(i)); err != nil {
				return err
			}
			continue
		}
		if reflect.DeepEqual(have.Field(i).Interface(), want.Field(i).Interface()) {
			continue
		}
		if !live[name] && group != "Limits.Operations" {
			return bad(name, "is %v now; a change to %v needs a restart", have.Field(i).Interface(), want.Field(i).Interface())
		}
		r.Changed = append(r.Changed, name)
	}
	return nil
}

// measure holds the present load against the new limits.
func (r *LimitsReport) measure(s *Server, next *Options) {
	over := func(what string, used, limit int64) {
		if used > limit {
			r.Over = append(r.Over, Overrun{what, used, limit})
		}
	}
	stages, _ := s.provider.Snapshot()
	for i, u := range stages {
		over(u.Name, u.Used, r.Plan.Stages[i].Capacity)
		over(u.Name+" (shared)", u.Shared, r.Plan.Stages[i].Shared)
	}
	over("Limits.MaxSessions", int64(s.sessions.Len()), int64(next.Limits.MaxSessions))
	over("Limits.MaxChannels", int64(s.connections.Usage().Connections), int64(next.Limits.MaxChannels))
	if slots, _ := s.provider.RunSlots(); r.Plan.RunSlots > 0 {
		over("Limits.RunSlots", slots, r.Plan.RunSlots)
	}
	if next.Budget.Shared == nil {
		over("Budget.MaxBytes", s.budget.Reserved(), next.Budget.MaxBytes)
	}
	if l := &next.RateLimits; !l.Disabled && !l.EstablishmentUnlimited {
		running, waiting := s.establish.usage()
		over("RateLimits.MaxConcurrentSessionEstablishment", int64(running), int64(l.MaxConcurrentSessionEstablishment))
		over("RateLimits.SessionEstablishmentQueueLimit", int64(waiting), int64(l.SessionEstablishmentQueueLimit))
	}
	var most int
	s.channels.Each(func(ch *securechannel.Channel) bool {
		most = max(most, ch.Outstanding())
		return true
	})
	over("Limits.MaxOutstandingPerConnection", int64(most), int64(next.Limits.MaxOutstandingPerConnection))
}

// apply changes the parts. The gate comes first, because it alone may refuse.
func (s *Server) apply(next Options, plan *isolation.Plan) error {
	perAddress := s.perAddress
	switch n := next.RateLimits.ConnectionsPerSecondPerAddress; {
	case n == 0 || next.RateLimits.Disabled:
		perAddress = nil
	case perAddress == nil || n != s.inForce.RateLimits.ConnectionsPerSecondPerAddress:
		var err error
		if perAddress, err = isolation.NewAddressLimiter(float64(n)); err != nil {
			return isolationError(err)
		}
	}
	before := s.perAddress
	s.perAddress = perAddress
	if err := s.provider.Apply(plan); err != nil {
		s.perAddress = before
		return &OptionError{Field: "Isolation", Reason: err.Error()}
	}
	if err := s.connections.Apply(s.gateOptions(&next)); err != nil {
		s.perAddress = before
		_ = s.provider.Apply(s.plan) // as it was
		return &OptionError{Field: "RateLimits", Reason: err.Error()}
	}
	s.plan = plan
	s.provider.Shadow(next.Shadow)
	s.establish.configure(&next)
	s.discovery.configure(&next)
	l := &next.Limits
	if next.Budget.Shared == nil {
		_ = s.budget.Resize(next.Budget.MaxBytes, next.Budget.SessionlessBytes) // validated
	}
	s.planner.Clamp(next.Retry.Min, next.Retry.Max, time.Now())
	s.cost.encoded.Store(next.RequestCost == CostEncoded)
	_ = s.channels.Apply(securechannel.Bounds{ // validated
		MinTokenLifetime: l.MinTokenLifetime, MaxTokenLifetime: l.MaxTokenLifetime,
		MaxCryptoWait: next.RateLimits.MaxCryptoWait, MaxOutstandingPerConnection: l.MaxOutstandingPerConnection,
		Shadow: next.Shadow,
	})
	s.transport.Apply(l.transport())
	s.sessions.Resize(l.MaxSessions, l.MinSessionTimeout, l.MaxSessionTimeout, l.ActivationTimeout)
	s.sessions.EvictDetached(l.EvictDetachedSessions)
	s.engine.Apply(l.subscription())
	s.set.SetLimits(l.Operations)
	s.showLimits(&binder{space: s.space}, l)
	s.applyWeb(&next)
	s.inForce = next
	s.dispatch.pump(&s.dispatch.short) // there may be room now
	s.dispatch.pump(&s.dispatch.slow)
	s.log.Info("limits changed")
	s.logPlan(plan)
	return nil
}

// LimitsInForce returns Options with the limits in force, all defaults filled
// in: what a tool shows, and what it may change and give to ApplyLimits.
func (s *Server) LimitsInForce() Options {
	s.limits.Lock()
	defer s.limits.Unlock()
	o := s.inForce
	o.Governors = o.Governors.clone()
	return o
}

// String says in one line what is over.
func (o Overrun) String() string {
	return fmt.Sprintf("%s: %d in use, limit %d", o.What, o.InUse, o.Limit)
}
