package isolation

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// defaults are the totals of a server with the zero options (overload.md §0).
func defaults() Totals {
	return Totals{MaxMessageSize: 4 << 20, MaxBufferSize: 65535, MaxSessions: 1000, MaxChannels: 2010, Budget: 64 << 20,
		MaxEstablishment: 128, MaxQueuedRequests: 200, MaxExecutingRequests: 100, MaxParkedRequests: 20000, RunSlots: 4}
}

func small(sessions, channels int64) Totals {
	t := defaults()
	t.MaxSessions, t.MaxChannels = sessions, channels
	return t
}

func TestPlanOfTheZeroOptions(t *testing.T) {
	p, err := CreatePlan(Options{}, defaults())
	if err != nil {
		t.Fatal(err)
	}
	if p.Mode != Balanced || p.MaxTrackedOwners != 4096 || p.HandshakeTimeout != 2*time.Minute || p.DefaultWeight != 1 || p.MaxOwnerKeyLength != 256 {
		t.Errorf("%+v", p)
	}
	if s := p.Stages[Connection]; s.Shared != 2008 || s.HardLimit != 2010 {
		t.Errorf("Connection %+v", s)
	}
	if s := p.Stages[RequestQueue]; s.Control != 1 || s.Shared != 197 {
		t.Errorf("RequestQueue %+v", s)
	}
	if s := p.Stages[SessionEstablishment]; s.Control != 0 || s.Shared != 126 {
		t.Errorf("SessionEstablishment %+v", s)
	}
}

// The channels that 2 and 100 sessions need in each mode.
func TestPlanVectorsChannels(t *testing.T) {
	one := []TrustedOwner{{Key: "line 1"}}
	for _, c := range []struct {
		mode     Mode
		owners   []TrustedOwner
		sessions int64
		channels int64
		ok       bool
		shared   int64
	}{
		{Balanced, nil, 2, 3, false, 0}, {Balanced, nil, 2, 4, false, 0}, {Balanced, nil, 2, 5, true, 3},
		{FairShare, nil, 2, 2, false, 0}, {FairShare, nil, 2, 3, true, 3},
		{TrustedReservations, one, 2, 5, false, 0}, {TrustedReservations, one, 2, 6, true, 3},
		{Balanced, nil, 100, 101, false, 0}, {Balanced, nil, 100, 103, true, 101},
		{SharedOnly, nil, 2, 1, true, 1},
	} {
		totals := small(c.sessions, c.channels)
		totals.HasClassifier = true
		totals.Budget = 256 << 20
		p, err := CreatePlan(Options{Mode: c.mode, TrustedOwners: c.owners}, totals)
		if (err == nil) != c.ok {
			t.Errorf("%v, %d sessions, %d channels: %v", c.mode, c.sessions, c.channels, err)
			continue
		}
		if err != nil {
			var oe *OptionError
			if !errors.As(err, &oe) || oe.Field != "MaxChannels" || !oe.HasMin || oe.Minimum <= c.channels {
				t.Errorf("%v, %d channels: the error %q must name MaxChannels and a larger minimum", c.mode, c.channels, err)
				continue
			}
			// The minimum that the error names must work.
			totals.MaxChannels = oe.Minimum
			if _, err := CreatePlan(Options{Mode: c.mode, TrustedOwners: c.owners}, totals); err != nil {
				if !errors.As(err, &oe) || oe.Minimum == totals.MaxChannels {
					t.Errorf("%v: the minimum %d does not work: %v", c.mode, totals.MaxChannels, err)
				}
			}
			continue
		}
		if s := p.Stages[Connection].Shared; s != c.shared {
			t.Errorf("%v, %d channels: shared %d, want %d", c.mode, c.channels, s, c.shared)
		}
	}
}

func TestPlanVectorsBytes(t *testing.T) {
	for _, c := range []struct {
		message, buffer                     int64
		footprint, bootstrap, shared        int64
		queued, execution, parked, byteslot int64
	}{
		{4 << 20, 65536, 17039360, 17039360, 33030144, 100, 100, 100, 0},
		{2 << 20, 65535, 8650748, 8650748, 49807368, 100, 100, 100, 629145600},
		{2 << 20, 65535, 8650748, 8650748, 49807368, 200, 100, 200, 1048576000},
	} {
		totals := defaults()
		totals.MaxMessageSize, totals.MaxBufferSize = c.message, c.buffer
		totals.MaxQueuedRequests, totals.MaxExecutingRequests, totals.MaxParkedRequests = c.queued, c.execution, c.parked
		p, err := CreatePlan(Options{}, totals)
		if err != nil {
			t.Fatal(err)
		}
		s := p.Stages[ReassemblyBytes]
		if p.Footprint != c.footprint || s.Bootstrap != c.bootstrap || s.Reconnect != c.bootstrap || s.Shared != c.shared {
			t.Errorf("%d: footprint %d, floors %d and %d, shared %d", c.message, p.Footprint, s.Bootstrap, s.Reconnect, s.Shared)
		}
		if got := p.Stages[RequestQueueBytes].Total; c.byteslot != 0 && got != c.byteslot {
			t.Errorf("RequestQueueBytes %d, want %d", got, c.byteslot)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	stage := func(s Stage, f func(*StageOptions)) Options {
		so := StageOptions{Stage: s}
		f(&so)
		return Options{Stages: []StageOptions{so}}
	}
	for _, c := range []struct {
		name    string
		o       Options
		t       func(*Totals)
		field   string
		minimum int64 // 0: none is named
	}{
		{"capacity 0", stage(RequestQueue, func(s *StageOptions) { s.Capacity = Amount(0) }), nil, "Stages[RequestQueue].Capacity", 1},
		{"capacity over the total", stage(RequestQueue, func(s *StageOptions) { s.Capacity = Amount(1000) }), nil, "Stages[RequestQueue].Capacity", 0},
		{"capacity without room beside the floors", stage(RequestQueue, func(s *StageOptions) { s.Capacity = Amount(3) }), nil, "Stages[RequestQueue].Capacity", 4},
		{"hard limit under a unit", stage(ReassemblyBytes, func(s *StageOptions) { s.OwnerHardLimit = Amount(5) }), nil, "Stages[ReassemblyBytes].OwnerHardLimit", 4 * (4<<20 + 65535)},
		{"hard limit over the capacity", stage(RequestQueue, func(s *StageOptions) { s.OwnerHardLimit = Amount(201) }), nil, "Stages[RequestQueue].OwnerHardLimit", 0},
		{"hard limit under a floor", stage(RequestQueue, func(s *StageOptions) { s.OwnerHardLimit, s.ControlReserved = Amount(2), Amount(3) }), nil, "Stages[RequestQueue].OwnerHardLimit", 3},
		{"floor under a unit", stage(ReassemblyBytes, func(s *StageOptions) { s.BootstrapReserved = Amount(7) }), nil, "Stages[ReassemblyBytes].BootstrapReserved", 4 * (4<<20 + 65535)},
		{"a stage twice", Options{Stages: []StageOptions{{Stage: Handshake}, {Stage: Handshake}}}, nil, "Stages[Handshake].Stage", 0},
		{"an owner twice", Options{TrustedOwners: []TrustedOwner{{Key: "a"}, {Key: "a"}}}, func(t *Totals) { t.Budget = 1 << 30 }, "TrustedOwners[1].Key", 0},
		{"an owner without key", Options{TrustedOwners: []TrustedOwner{{}}}, nil, "TrustedOwners[0].Key", 0},
		{"trusted owners in FairShare", Options{Mode: FairShare, TrustedOwners: []TrustedOwner{{Key: "a"}}}, nil, "TrustedOwners", 0},
		{"TrustedReservations without owners", Options{Mode: TrustedReservations}, nil, "TrustedOwners", 1},
		{"TrustedReservations without classifier", Options{Mode: TrustedReservations, TrustedOwners: []TrustedOwner{{Key: "a"}}}, nil, "Classifier", 0},
		{"floors in FairShare", Options{Mode: FairShare, Stages: []StageOptions{{Stage: Handshake, BootstrapReserved: Amount(1)}}}, nil, "Stages[Handshake].BootstrapReserved", 0},
		{"floors in SharedOnly", Options{Mode: SharedOnly, ReconnectReservedBytes: Amount(1)}, nil, "ReconnectReservedBytes", 0},
		{"a small table", Options{MaxTrackedOwners: 3}, nil, "MaxTrackedOwners", 4},
		{"a long handshake", Options{HandshakeTimeout: time.Hour}, nil, "HandshakeTimeout", 0},
		{"a negative handshake", Options{HandshakeTimeout: -1}, nil, "HandshakeTimeout", 0},
		{"no message limit", Options{}, func(t *Totals) { t.MaxMessageSize = 0 }, "MaxMessageSize", 1},
		{"a budget too small", Options{}, func(t *Totals) { t.Budget = 48 << 20 }, "Budget", 12 * (4<<20 + 65535)},
		{"a budget under a floor", Options{}, func(t *Totals) { t.Budget = 1024 }, "Budget", 12 * (4<<20 + 65535)},
		{"a capacity under a floor", stage(RequestQueueBytes, func(s *StageOptions) { s.Capacity = Amount(1) }), nil, "Stages[RequestQueueBytes].Capacity", 4 * 4 << 20},
		{"a floor over the total", stage(RequestQueue, func(s *StageOptions) { s.BootstrapReserved = Amount(250) }), nil, "MaxQueuedRequests", 253},
		{"channels for half the sessions", Options{}, func(t *Totals) { t.MaxSessions, t.MaxChannels = 1000, 500 }, "MaxChannels", 1003},
		{"an overflow", Options{}, func(t *Totals) { t.MaxMessageSize = 1 << 62 }, "MaxMessageSize", 0},
		{"an owner's floor under a unit", Options{TrustedOwners: []TrustedOwner{{Key: "a", Reservations: []Reservation{{Stage: ReassemblyBytes, Reserved: 1}}}}}, nil, "TrustedOwners[0].Reservations[ReassemblyBytes].Reserved", 4 * (4<<20 + 65535)},
	} {
		totals := defaults()
		if c.t != nil {
			c.t(&totals)
		}
		_, err := CreatePlan(c.o, totals)
		var oe *OptionError
		if !errors.As(err, &oe) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if oe.Field != c.field || oe.HasMin != (c.minimum != 0) || oe.Minimum != c.minimum {
			t.Errorf("%s: %v; want field %s and minimum %d", c.name, err, c.field, c.minimum)
		}
	}
}

func TestPlanErrorSaysHowToGoOnWithLargeMessages(t *testing.T) {
	totals := defaults()
	totals.MaxMessageSize = 100 << 20
	totals.Budget = 1 << 30
	_, err := CreatePlan(Options{}, totals)
	if err == nil || !strings.Contains(err.Error(), "Budget ≥ 12 × (MaxMessageSize + MaxBufferSize), or set BootstrapReservedBytes and ReconnectReservedBytes to 0") {
		t.Errorf("%v", err)
	}
	if _, err := CreatePlan(Options{BootstrapReservedBytes: Amount(0), ReconnectReservedBytes: Amount(0)}, totals); err != nil {
		t.Errorf("with both at 0: %v", err)
	}
}
