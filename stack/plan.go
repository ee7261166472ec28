package stack

import (
	"errors"
	"runtime"
	"strings"

	"github.com/breakwater-ua/breakwater/admission/retry"
	"github.com/breakwater-ua/breakwater/isolation"
)

// Plan computes how the options divide a server, without making one. The
// error is an *OptionError that names the field and, where there is one, the
// smallest value that works.
func (o Options) Plan() (*isolation.Plan, error) {
	o = o.resolved()
	return o.plan()
}

// plan is Plan of resolved options.
func (o *Options) plan() (*isolation.Plan, error) {
	p, err := isolation.CreatePlan(o.Isolation, o.totals())
	if err != nil {
		err = isolationError(err)
		var e *OptionError
		if errors.As(err, &e) && e.Field == "Limits.MaxChannels" {
			e.Reason += o.Limits.descriptors()
		}
		return nil, err
	}
	return p, nil
}

// totals are what isolation divides.
func (o *Options) totals() isolation.Totals {
	l := &o.Limits
	held := o.Budget.MaxBytes
	if o.Budget.Shared != nil {
		held = o.Budget.Shared.Max()
	}
	return isolation.Totals{
		MaxMessageSize:       int64(l.MaxMessageSize),
		MaxBufferSize:        int64(max(l.ReceiveBufferSize, l.SendBufferSize)),
		MaxSessions:          int64(l.MaxSessions),
		MaxChannels:          int64(l.MaxChannels),
		Budget:               held,
		MaxEstablishment:     int64(o.RateLimits.MaxConcurrentSessionEstablishment + o.RateLimits.SessionEstablishmentQueueLimit),
		MaxQueuedRequests:    int64(l.MaxQueuedRequests),
		MaxExecutingRequests: int64(l.MaxExecutingRequests),
		MaxParkedRequests:    int64(l.MaxParkedRequests),
		HasClassifier:        o.Classifier != nil,
		RunSlots:             int64(max(l.RunSlots, 0)),
	}
}

// defaultRunSlots lets every core have a request in hand and one that was
// preempted with it.
func defaultRunSlots() int { return 2 * max(runtime.NumCPU(), runtime.GOMAXPROCS(0)) }

// optionFields says under which name Options knows what isolation complains of.
var optionFields = map[string]string{
	"MaxMessageSize": "Limits.MaxMessageSize", "MaxBufferSize": "Limits.ReceiveBufferSize",
	"MaxSessions": "Limits.MaxSessions", "MaxChannels": "Limits.MaxChannels", "Budget": "Budget.MaxBytes",
	"MaxConcurrentSessionEstablishment": "RateLimits.MaxConcurrentSessionEstablishment",
	"MaxQueuedRequests":                 "Limits.MaxQueuedRequests", "MaxExecutingRequests": "Limits.MaxExecutingRequests",
	"MaxParkedRequests": "Limits.MaxParkedRequests", "Classifier": "Classifier",
	"ConnectionsPerSecond": "RateLimits.ConnectionsPerSecond", "ConnectionBurst": "RateLimits.ConnectionBurst",
	"ConnectionsPerSecondPerAddress": "RateLimits.ConnectionsPerSecondPerAddress",
}

// isolationError turns an error of isolation into one that names our field.
func isolationError(err error) error {
	var e *isolation.OptionError
	if !errors.As(err, &e) {
		return err
	}
	field, ours := optionFields[e.Field]
	if !ours {
		field = "Isolation." + e.Field
	}
	return &OptionError{Field: field, Reason: e.Reason()}
}

// checkTokens reports rates of connections that leave nothing beside the tokens
// kept for trusted, start-up and returning owners. The transport's Gate makes
// the limiter.
func (o *Options) checkTokens(p *isolation.Plan) error {
	r := &o.RateLimits
	keeps := p.Mode == isolation.Balanced || p.Mode == isolation.TrustedReservations
	if !keeps || r.Disabled || r.ConnectionsUnlimited || o.ConnectionLimiter != nil {
		return nil
	}
	keys := make([]string, len(p.Trusted))
	for i := range p.Trusted {
		keys[i] = p.Trusted[i].Key
	}
	if _, err := isolation.NewTokenLimiter(float64(r.ConnectionsPerSecond), r.ConnectionBurst, keys); err != nil {
		return isolationError(err)
	}
	return nil
}

// divide makes the plan and what keeps account of it, and tells the operator.
func (s *Server) divide() error {
	o := &s.opts
	plan, err := o.plan()
	if err != nil {
		return err
	}
	if n := o.RateLimits.ConnectionsPerSecondPerAddress; n > 0 && !o.RateLimits.Disabled {
		if s.perAddress, err = isolation.NewAddressLimiter(float64(n)); err != nil {
			return isolationError(err)
		}
	}
	s.plan, s.provider = plan, isolation.NewProvider(plan)
	s.provider.Shadow(o.Shadow)
	ro := retry.Options{Min: o.Retry.Min, Max: o.Retry.Max}
	if s.gate != nil { // NewKey has measured one operation
		ro.Workers, ro.PrivateOperation = s.gate.Workers(), s.gate.MeanOperation()
	}
	s.planner = retry.New(ro)
	s.discovery.configure(o)
	s.cost = newRequestCost(o)
	s.logPlan(plan)
	return nil
}

// logPlan writes one line for each stage. Owner keys stay out of the log.
func (s *Server) logPlan(p *isolation.Plan) {
	for _, st := range p.Stages {
		s.log.Info("isolation", "mode", p.Mode.String(), "stage", st.Stage.String(), "total", st.Total, "capacity", st.Capacity,
			"shared", st.Shared, "bootstrap", st.Bootstrap, "reconnect", st.Reconnect, "control", st.Control,
			"trusted", st.Trusted, "ownerHardLimit", st.HardLimit)
	}
	if p.TooFewOwners() {
		s.log.Warn("fewer owners can be tracked than there can be channels: owners past that are refused",
			"maxTrackedOwners", p.MaxTrackedOwners, "maxChannels", s.opts.Limits.MaxChannels)
	}
}

// Plan returns the division in force. It must not be changed.
func (s *Server) Plan() *isolation.Plan { return s.provider.Plan() }

// Isolation returns the keeper of what is in use, for inspection.
func (s *Server) Isolation() *isolation.Provider { return s.provider }

// WhenFull says what a client sees when a stage is full.
func WhenFull(st isolation.Stage) string {
	switch st {
	case isolation.Connection, isolation.Handshake:
		return "the oldest idle connection without a session is closed to make room, else the newcomer gets ERR BadTcpServerTooBusy with RetryAfterMs, or a plain close"
	case isolation.ReassemblyBytes:
		return "the channel gets ERR BadTcpNotEnoughResources and is closed"
	case isolation.SessionEstablishment:
		return "CreateSession and ActivateSession get BadServerTooBusy with a hint"
	case isolation.RequestQueue:
		return "the newest waiting request of the owner that holds most gives its place up, else the newcomer gets BadServerTooBusy with a hint"
	case isolation.RequestExecution:
		return "requests that may block wait in the fair queue"
	case isolation.RequestQueueBytes, isolation.ParkedRequest:
		return "the request gets BadServerTooBusy with a hint"
	}
	return strings.ToLower(st.String())
}
