package isolation

import (
	"fmt"
	"math"
	"time"
)

// StagePlan is what a stage holds and how it is divided.
type StagePlan struct {
	Stage     Stage
	Total     int64 // what the server has
	Capacity  int64 // what may be used; at most Total
	Unit      int64 // the least useful amount
	Bootstrap int64 // floors
	Reconnect int64
	Control   int64
	Trusted   int64 // sum of the trusted owners' floors
	Shared    int64 // Capacity − floors
	HardLimit int64 // of an owner that has none of its own
}

// TrustedPlan is a trusted owner's part of the plan.
type TrustedPlan struct {
	Key       string
	Weight    int
	Floor     [Stages]int64
	HardLimit [Stages]int64
}

// Plan is a validated division of a server's resources.
type Plan struct {
	Mode              Mode
	Stages            [Stages]StagePlan
	Trusted           []TrustedPlan
	Footprint         int64 // bytes of one message in assembly; 0 in SharedOnly
	MaxTrackedOwners  int
	MaxOwnerKeyLength int
	DefaultWeight     int
	HandshakeTimeout  time.Duration
	RunSlots          int64
}

// TooFewOwners says whether there can be more connections than owners are
// tracked: those that come when the table is full are refused ([OwnerTableFull]).
func (p *Plan) TooFewOwners() bool {
	return p.MaxTrackedOwners > 0 && int64(p.MaxTrackedOwners) < p.Stages[Connection].Total
}

// OptionError says which option cannot work and the least value that does.
type OptionError struct {
	Field   string
	Value   int64
	Minimum int64 // meaningful when HasMin
	HasMin  bool
	Why     string

	text bool // the option is no number
}

// Error names the field and says what is wrong with it.
func (e *OptionError) Error() string {
	if e.text {
		return "isolation: " + e.Field + ": " + e.Reason()
	}
	return "isolation: " + e.Field + " " + e.Reason()
}

// Reason is Error without the field's name.
func (e *OptionError) Reason() string {
	if e.text {
		return e.Why
	}
	s := fmt.Sprintf("is %d: %s", e.Value, e.Why)
	if e.HasMin {
		s += fmt.Sprintf("; the smallest value that works is %d", e.Minimum)
	}
	return s
}

func atLeast(field string, value, minimum int64, why string) error {
	return &OptionError{Field: field, Value: value, Minimum: minimum, HasMin: true, Why: why}
}

func wrong(field string, value int64, why string) error {
	return &OptionError{Field: field, Value: value, Why: why}
}

func wrongText(field, why string) error { return &OptionError{Field: field, Why: why, text: true} }

const (
	minBuffer           = 8192
	maxBuffer           = 147456
	maxHandshake        = 2 * time.Minute
	footprintMessages   = 4 // copies of a message that assembly may hold at its worst
	defaultOwnerKeySize = 256
)

// CreatePlan divides the totals as the options say. It is pure: the same
// arguments give the same plan. The error is an *OptionError that names the
// field and, where there is one, the smallest value that works.
func CreatePlan(o Options, t Totals) (*Plan, error) {
	p := &Plan{Mode: o.Mode, MaxOwnerKeyLength: o.MaxOwnerKeyLength, DefaultWeight: o.DefaultWeight,
		HandshakeTimeout: o.HandshakeTimeout, RunSlots: t.RunSlots}
	if o.Mode > TrustedReservations {
		return nil, wrong("Mode", int64(o.Mode), "it is none of the modes")
	}
	switch {
	case o.HandshakeTimeout == 0:
		p.HandshakeTimeout = maxHandshake
	case o.HandshakeTimeout < 0 || o.HandshakeTimeout > maxHandshake:
		return nil, wrong("HandshakeTimeout", int64(o.HandshakeTimeout), "it must be more than 0 and at most 2 min")
	}
	if p.MaxOwnerKeyLength == 0 {
		p.MaxOwnerKeyLength = defaultOwnerKeySize
	}
	if p.MaxOwnerKeyLength < 1 {
		return nil, atLeast("MaxOwnerKeyLength", int64(o.MaxOwnerKeyLength), 1, "owners need keys")
	}
	if p.DefaultWeight == 0 {
		p.DefaultWeight = 1
	}
	if p.DefaultWeight < 1 {
		return nil, atLeast("DefaultWeight", int64(o.DefaultWeight), 1, "an owner without weight never runs")
	}
	if err := totals(p, t); err != nil {
		return nil, err
	}
	if o.Mode == SharedOnly {
		if len(o.TrustedOwners) > 0 {
			return nil, wrong("TrustedOwners", int64(len(o.TrustedOwners)), "SharedOnly knows no owners")
		}
		if err := noFloors(o); err != nil {
			return nil, err
		}
		if err := overrideCapacities(p, o); err != nil {
			return nil, err
		}
		p.MaxTrackedOwners = 0
		return p, nil
	}
	if err := divide(p, o, t); err != nil {
		return nil, err
	}
	return p, nil
}

// totals fills in what the server has at each stage.
func totals(p *Plan, t Totals) error {
	if p.Mode != SharedOnly {
		for _, c := range []struct {
			field string
			value int64
		}{{"MaxMessageSize", t.MaxMessageSize}, {"MaxBufferSize", t.MaxBufferSize}, {"MaxSessions", t.MaxSessions}} {
			if c.value <= 0 {
				return atLeast(c.field, c.value, 1, "isolation by owner needs a finite limit")
			}
		}
	}
	queued, execution, parked := max(100, t.MaxQueuedRequests), max(100, t.MaxExecutingRequests), t.MaxParkedRequests
	if parked <= 0 {
		parked = queued
	}
	slots, ok := sum(queued, execution, parked)
	bytes, ok2 := times(slots, max(t.MaxMessageSize, 0))
	if !ok || !ok2 {
		return wrong("MaxMessageSize", t.MaxMessageSize, "the request slots times its size overflow")
	}
	if p.Mode == SharedOnly && t.MaxMessageSize <= 0 {
		bytes = math.MaxInt64
	}
	have := [Stages]int64{Connection: t.MaxChannels, Handshake: t.MaxChannels, ReassemblyBytes: t.Budget,
		SessionEstablishment: t.MaxEstablishment, RequestQueue: queued, RequestExecution: execution,
		RequestQueueBytes: bytes, ParkedRequest: parked}
	for s := range Stage(Stages) {
		p.Stages[s] = StagePlan{Stage: s, Total: have[s], Capacity: have[s], Unit: 1, Shared: have[s], HardLimit: have[s]}
	}
	return nil
}

func noFloors(o Options) error {
	for _, b := range []struct {
		field string
		v     *int64
	}{{"BootstrapReservedBytes", o.BootstrapReservedBytes}, {"ReconnectReservedBytes", o.ReconnectReservedBytes}} {
		if b.v != nil && *b.v != 0 {
			return wrong(b.field, *b.v, o.Mode.String()+" keeps no floors; it must be 0 or unset")
		}
	}
	for _, s := range o.Stages {
		for _, f := range []struct {
			name string
			v    *int64
		}{{"BootstrapReserved", s.BootstrapReserved}, {"ReconnectReserved", s.ReconnectReserved}, {"ControlReserved", s.ControlReserved}} {
			if f.v != nil && *f.v != 0 {
				return wrong(stageField(s.Stage, f.name), *f.v, o.Mode.String()+" keeps no floors; it must be 0 or unset")
			}
		}
	}
	return nil
}

func stageField(s Stage, name string) string { return fmt.Sprintf("Stages[%s].%s", s, name) }

func overrideCapacities(p *Plan, o Options) error {
	seen := [Stages]bool{}
	for _, so := range o.Stages {
		if so.Stage >= Stages {
			return wrong("Stages.Stage", int64(so.Stage), "it is none of the stages")
		}
		if seen[so.Stage] {
			return wrong(stageField(so.Stage, "Stage"), int64(so.Stage), "it is listed twice")
		}
		seen[so.Stage] = true
		s := &p.Stages[so.Stage]
		if so.Capacity != nil {
			if *so.Capacity <= 0 {
				return atLeast(stageField(so.Stage, "Capacity"), *so.Capacity, 1, "nothing would ever be admitted")
			}
			if *so.Capacity > s.Total {
				return wrong(stageField(so.Stage, "Capacity"), *so.Capacity, fmt.Sprintf("it may only lower the server's total of %d", s.Total))
			}
			s.Capacity = *so.Capacity
		}
		s.Shared, s.HardLimit = s.Capacity, s.Capacity
		if so.OwnerHardLimit != nil {
			if *so.OwnerHardLimit > s.Capacity {
				return wrong(stageField(so.Stage, "OwnerHardLimit"), *so.OwnerHardLimit, fmt.Sprintf("it must not exceed the capacity of %d", s.Capacity))
			}
			s.HardLimit = *so.OwnerHardLimit
		}
	}
	return nil
}

// divide computes footprint, floors and shared parts and checks them.
func divide(p *Plan, o Options, t Totals) error {
	p.Footprint = o.MaxRetainedMessageBytes
	if p.Footprint < 0 {
		return atLeast("MaxRetainedMessageBytes", p.Footprint, 1, "a message takes room")
	}
	if p.Footprint == 0 {
		whole, ok := sum(t.MaxMessageSize, min(max(t.MaxBufferSize, minBuffer), maxBuffer))
		foot, ok2 := times(footprintMessages, whole)
		if !ok || !ok2 {
			return wrong("MaxMessageSize", t.MaxMessageSize, "its footprint overflows")
		}
		p.Footprint = foot
	}
	p.Stages[ReassemblyBytes].Unit = p.Footprint
	p.Stages[RequestQueueBytes].Unit = t.MaxMessageSize
	if !o.Mode.floors() {
		if err := noFloors(o); err != nil {
			return err
		}
	}
	if err := overrideCapacities(p, o); err != nil {
		return err
	}
	if err := floors(p, o); err != nil {
		return err
	}
	if err := trusted(p, o, t); err != nil {
		return err
	}
	for i := range p.Stages {
		if err := check(&p.Stages[i], p, t); err != nil {
			return err
		}
	}
	return tableSize(p, o, t)
}

func floors(p *Plan, o Options) error {
	if !o.Mode.floors() {
		return nil
	}
	for i := range p.Stages {
		s := &p.Stages[i]
		s.Bootstrap, s.Reconnect = s.Unit, s.Unit
		if s.Stage.request() {
			s.Control = s.Unit
		}
	}
	b := &p.Stages[ReassemblyBytes]
	if o.BootstrapReservedBytes != nil {
		b.Bootstrap = *o.BootstrapReservedBytes
	}
	if o.ReconnectReservedBytes != nil {
		b.Reconnect = *o.ReconnectReservedBytes
	}
	for _, so := range o.Stages {
		s := &p.Stages[so.Stage]
		for _, f := range []struct {
			from *int64
			to   *int64
		}{{so.BootstrapReserved, &s.Bootstrap}, {so.ReconnectReserved, &s.Reconnect}, {so.ControlReserved, &s.Control}} {
			if f.from != nil {
				*f.to = *f.from
			}
		}
	}
	return nil
}

func trusted(p *Plan, o Options, t Totals) error {
	if o.Mode == TrustedReservations {
		if len(o.TrustedOwners) == 0 {
			return atLeast("TrustedOwners", 0, 1, "TrustedReservations needs trusted owners")
		}
		if !t.HasClassifier {
			return wrongText("Classifier", "TrustedReservations needs a classifier that names the trusted owners")
		}
	}
	if o.Mode == FairShare && len(o.TrustedOwners) > 0 {
		return wrong("TrustedOwners", int64(len(o.TrustedOwners)), "FairShare keeps no floors")
	}
	keys := map[string]bool{}
	for i, owner := range o.TrustedOwners {
		field := func(name string) string { return fmt.Sprintf("TrustedOwners[%d].%s", i, name) }
		switch {
		case owner.Key == "":
			return wrongText(field("Key"), "it is empty")
		case len(owner.Key) > p.MaxOwnerKeyLength:
			return wrongText(field("Key"), fmt.Sprintf("its %d bytes are more than MaxOwnerKeyLength, %d", len(owner.Key), p.MaxOwnerKeyLength))
		case keys[owner.Key]:
			return wrongText(field("Key"), fmt.Sprintf("%q is listed twice", owner.Key))
		case owner.Weight < 0:
			return atLeast(field("Weight"), int64(owner.Weight), 1, "an owner without weight never runs")
		}
		keys[owner.Key] = true
		tp := TrustedPlan{Key: owner.Key, Weight: owner.Weight}
		if tp.Weight == 0 {
			tp.Weight = p.DefaultWeight
		}
		for s := range Stage(Stages) {
			tp.Floor[s], tp.HardLimit[s] = p.Stages[s].Unit, p.Stages[s].HardLimit
		}
		listed := [Stages]bool{}
		for _, r := range owner.Reservations {
			if r.Stage >= Stages || listed[r.Stage] {
				return wrongText(field("Reservations"), fmt.Sprintf("stage %v is unknown or listed twice", r.Stage))
			}
			listed[r.Stage] = true
			tp.Floor[r.Stage] = r.Reserved
			if r.HardLimit != 0 {
				tp.HardLimit[r.Stage] = r.HardLimit
			}
		}
		for s := range Stage(Stages) {
			sp := &p.Stages[s]
			name := field(fmt.Sprintf("Reservations[%s]", s))
			if f := tp.Floor[s]; f != 0 && f < sp.Unit {
				return atLeast(name+".Reserved", f, sp.Unit, "a floor is 0 or at least one unit")
			}
			if h := tp.HardLimit[s]; h > sp.Capacity {
				return wrong(name+".HardLimit", h, fmt.Sprintf("it must not exceed the capacity of %d", sp.Capacity))
			}
			// A limit that is the capacity is check's.
			if h, least := tp.HardLimit[s], max(sp.Unit, tp.Floor[s]); h < least && h < sp.Capacity {
				return atLeast(name+".HardLimit", h, least, "it must hold the owner's floor and one unit")
			}
			total, ok := sum(sp.Trusted, tp.Floor[s])
			if !ok {
				return wrong(name+".Reserved", tp.Floor[s], "the floors overflow")
			}
			sp.Trusted = total
		}
		p.Trusted = append(p.Trusted, tp)
	}
	return nil
}

// check validates one stage and computes its shared part.
func check(s *StagePlan, p *Plan, t Totals) error {
	source := map[Stage]string{Connection: "MaxChannels", Handshake: "MaxChannels", ReassemblyBytes: "Budget",
		SessionEstablishment: "MaxConcurrentSessionEstablishment", RequestQueue: "MaxQueuedRequests",
		RequestExecution: "MaxExecutingRequests", RequestQueueBytes: "MaxMessageSize", ParkedRequest: "MaxParkedRequests"}[s.Stage]
	if s.Capacity < s.Total {
		source = stageField(s.Stage, "Capacity")
	}
	floors := []struct {
		name  string
		value int64
	}{{"BootstrapReserved", s.Bootstrap}, {"ReconnectReserved", s.Reconnect}, {"ControlReserved", s.Control}}
	for _, f := range floors {
		if f.value != 0 && f.value < s.Unit {
			return atLeast(stageField(s.Stage, f.name), f.value, s.Unit, "a floor is 0 or at least one unit")
		}
	}
	all, ok := sum(s.Bootstrap, s.Reconnect, s.Control, s.Trusted)
	if !ok {
		return wrong(source, s.Capacity, "the floors overflow")
	}
	// A connection is worth nothing without room for every session and one newcomer.
	least, why := s.Unit, "one unit must be left for everybody beside the floors"
	if s.Stage == Connection {
		least, why = t.MaxSessions+1, "every session and one newcomer must fit beside the floors"
	}
	need, ok := sum(all, least)
	if !ok {
		return wrong(source, s.Capacity, "the floors overflow")
	}
	if s.Capacity < need {
		if s.Stage == ReassemblyBytes && s.Capacity == s.Total && s.Trusted == 0 {
			why = "the floors and one message must fit: Budget ≥ 12 × (MaxMessageSize + MaxBufferSize), or set BootstrapReservedBytes and ReconnectReservedBytes to 0"
		}
		return atLeast(source, s.Capacity, need, why)
	}
	if s.HardLimit < s.Unit {
		return atLeast(stageField(s.Stage, "OwnerHardLimit"), s.HardLimit, s.Unit, "an owner must be able to hold one unit")
	}
	for _, f := range floors {
		if f.value > s.HardLimit {
			return atLeast(stageField(s.Stage, "OwnerHardLimit"), s.HardLimit, f.value, "one owner must be able to use the whole "+f.name)
		}
	}
	s.Shared = s.Capacity - all
	return nil
}

// usedClasses counts the classes that have a floor anywhere.
func usedClasses(p *Plan) int {
	var b, r, c bool
	for _, s := range p.Stages {
		b, r, c = b || s.Bootstrap > 0, r || s.Reconnect > 0, c || s.Control > 0
	}
	n := 0
	for _, has := range []bool{b, r, c} {
		if has {
			n++
		}
	}
	return n
}

func tableSize(p *Plan, o Options, t Totals) error {
	p.MaxTrackedOwners = o.MaxTrackedOwners
	if o.MaxTrackedOwners == 0 {
		p.MaxTrackedOwners = int(max(4096, 2*t.MaxChannels+int64(len(p.Trusted))+8))
	}
	if least := len(p.Trusted) + 1 + usedClasses(p); p.MaxTrackedOwners < least {
		return atLeast("MaxTrackedOwners", int64(p.MaxTrackedOwners), int64(least), "every trusted owner, every class with a floor and one other owner must fit")
	}
	return nil
}

func sum(values ...int64) (int64, bool) {
	var total int64
	for _, v := range values {
		if v < 0 || total > math.MaxInt64-v {
			return 0, false
		}
		total += v
	}
	return total, true
}

func times(a, b int64) (int64, bool) {
	if a < 0 || b < 0 || (b > 0 && a > math.MaxInt64/b) {
		return 0, false
	}
	return a * b, true
}
