package load

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/breakwater-ua/breakwater/cmd/uastorm/measure"
)

// Hard maxima. A load test that needs more is a matter of several machines.
const (
	MaxClients  = 50_000
	MaxFlooders = 10_000 // connections of all floods of a phase
	MaxRate     = 200_000.0
	MaxDuration = time.Hour // of a whole plan
	MaxPhases   = 50
)

// A Plan is what a run does: phases one after the other, with a steady load beside
// all of them.
type Plan struct {
	Name        string  `yaml:"name"`
	Description string  `yaml:"description"`
	Steady      Steady  `yaml:"steady"`
	Phases      []Phase `yaml:"phases"`
}

// Steady is load by a schedule: what is due is sent when it is due, whether or not
// earlier requests were answered, as on a site where nobody waits for anybody.
// Latency counts from when it was due.
type Steady struct {
	// Readers and Writers are sessions; ReadRate and WriteRate are requests per
	// second of all of them together. 0 for a rate: one per second and session.
	Readers   int     `yaml:"readers"`
	ReadRate  float64 `yaml:"readRate"`
	Writers   int     `yaml:"writers"`
	WriteRate float64 `yaml:"writeRate"`
	// NodesPerRead is how often ReadNodes are repeated, in turn, in one request. 0: 1.
	NodesPerRead int `yaml:"nodesPerRead"`
	// Subscribers are sessions with one subscription each; Items monitored items in
	// each. 0: 1.
	Subscribers int `yaml:"subscribers"`
	Items       int `yaml:"items"`
	// PublishingInterval; 0: 1 s.
	PublishingInterval time.Duration `yaml:"publishingInterval"`
	// ReadNodes that readers read, SubscribeNodes that subscribers watch; empty:
	// Server_ServerStatus_CurrentTime, which every server has.
	ReadNodes      []string `yaml:"readNodes"`
	SubscribeNodes []string `yaml:"subscribeNodes"`
	// WriteNode that writers write what they have read from it at the start.
	WriteNode string `yaml:"writeNode"`
	// CounterNode, a Variable whose value goes up by one at every change; subscribers
	// watch it too, and each value that is missing is a lost notification.
	CounterNode string `yaml:"counterNode"`
}

// sessions counts the sessions of a steady load.
func (s *Steady) sessions() int { return s.Readers + s.Writers + s.Subscribers }

// Connect is a population of clients that connect and then hold a session, until a
// later phase releases or cuts them, or the run ends.
type Connect struct {
	// Clients; they start all at once, or so many per second (Rate), or evenly
	// spread over Ramp.
	Clients int           `yaml:"clients"`
	Rate    float64       `yaml:"rate"`
	Ramp    time.Duration `yaml:"ramp"`
	// IgnoreHints makes clients that try again at once whatever the server says, up
	// to MaxEager times a second each.
	IgnoreHints bool `yaml:"ignoreHints"`
	// Subscribe gives each client a subscription.
	Subscribe bool `yaml:"subscribe"`
	// Flap makes clients that end their session as soon as they have it, and begin
	// again.
	Flap bool `yaml:"flap"`
}

// Flood is misbehaviour, each kind by so many connections at once. A connection
// that the server ends is opened again.
type Flood struct {
	// Chunks send intermediate chunks of messages that never end, as fast as they
	// can; SlowChunks one every 100 ms.
	Chunks     int `yaml:"chunks"`
	SlowChunks int `yaml:"slowChunks"`
	// Silent connect and say nothing; TLSSilent stop after the handshake of TLS, and
	// Hellos after the Hello.
	Silent    int `yaml:"silent"`
	TLSSilent int `yaml:"tlsSilent"`
	Hellos    int `yaml:"hellos"`
	// SlowHeaders send header after header of an HTTP request that never ends;
	// SlowBodies one whose body comes byte by byte.
	SlowHeaders int `yaml:"slowHeaders"`
	SlowBodies  int `yaml:"slowBodies"`
	// OPN send OpenSecureChannel requests that cost the server a private-key
	// operation and the sender nothing; under policy None they open channels.
	OPN int `yaml:"opn"`
	// SlowReaders ask for much and never read an answer.
	SlowReaders int `yaml:"slowReaders"`
	// Sessions are created and never activated.
	Sessions int `yaml:"sessions"`
}

// A floodKind is a way to misbehave.
type floodKind struct {
	n       *int // connections
	key     string
	name    string   // of one kind, in tables
	what    string   // so many of them
	schemes []string // that it is possible over
}

// kinds lists all ways to misbehave.
func (f *Flood) kinds() []floodKind {
	all, channel, web := Schemes(), []string{SchemeTCP, SchemeWSS}, []string{SchemeWSS, SchemeHTTPS}
	return []floodKind{
		{&f.Chunks, "chunks", "chunks", "chunk floods", channel},
		{&f.SlowChunks, "slowChunks", "slow chunks", "slow chunk floods", channel},
		{&f.Silent, "silent", "silent", "silent sockets", all},
		{&f.TLSSilent, "tlsSilent", "TLS silent", "sockets silent after the TLS handshake", web},
		{&f.Hellos, "hellos", "hellos", "sockets silent after Hello", channel},
		{&f.SlowHeaders, "slowHeaders", "slow headers", "requests whose headers never end", web},
		{&f.SlowBodies, "slowBodies", "slow bodies", "requests whose body comes byte by byte", []string{SchemeHTTPS}},
		{&f.OPN, "opn", "OPN", "OPN floods", channel},
		{&f.SlowReaders, "slowReaders", "slow readers", "slow readers", channel},
		{&f.Sessions, "sessions", "sessions", "sessions never activated", all},
	}
}

func (f *Flood) total() (n int) {
	for _, k := range f.kinds() {
		n += *k.n
	}
	return n
}

// over says which floods are not possible over a scheme.
func (f *Flood) over(scheme string) *FieldError {
	var there []string
	for _, k := range f.kinds() {
		if slices.Contains(k.schemes, scheme) {
			there = append(there, k.key)
		}
	}
	for _, k := range f.kinds() {
		if *k.n > 0 && !slices.Contains(k.schemes, scheme) {
			return bad("not possible over %s, where there are %s", scheme, strings.Join(there, ", ")).in(k.key)
		}
	}
	return nil
}

// A Phase is a part of a plan.
type Phase struct {
	Name     string        `yaml:"name"`
	Duration time.Duration `yaml:"duration"`
	// Cut resets this share, 0 to 1, of the held connections at the beginning, as a
	// network does; their clients come back by themselves. Release ends held
	// sessions in order.
	Cut     float64  `yaml:"cut"`
	Release bool     `yaml:"release"`
	Connect *Connect `yaml:"connect"`
	Flood   *Flood   `yaml:"flood"`
	// Only is for phases that make sense over some schemes only; others are without
	// it. Empty: all.
	Only []string `yaml:"only"`
	// UntilConnected ends the phase as soon as all clients hold a session; Duration
	// is then the longest time.
	UntilConnected bool   `yaml:"untilConnected"`
	Limits         Limits `yaml:"limits"`
}

// A FieldError names what is wrong in a plan.
type FieldError struct {
	// Path of keys and indices, "phases[1].connect.clients" as {"phases", 1, "connect", "clients"}.
	Path   []any
	Reason string
}

// Error names the field.
func (e *FieldError) Error() string {
	s := ""
	for _, p := range e.Path {
		switch p := p.(type) {
		case int:
			s += fmt.Sprintf("[%d]", p)
		case string:
			if s != "" {
				s += "."
			}
			s += p
		}
	}
	return s + ": " + e.Reason
}

// Validate reports the first thing that is wrong, as *FieldError.
func (p *Plan) Validate() error {
	if err := p.Steady.validate(); err != nil {
		return err
	}
	if len(p.Phases) == 0 || len(p.Phases) > MaxPhases {
		return bad("need 1 to %d phases", MaxPhases).in("phases")
	}
	var whole time.Duration
	clients := p.Steady.sessions()
	names := map[string]bool{}
	for i := range p.Phases {
		f := &p.Phases[i]
		if err := f.validate(); err != nil {
			return err.in("phases", i)
		}
		if f.Name == measure.SetupPhase || f.Name == measure.EndPhase {
			return bad("%s is what uastorm calls a part of each run itself", f.Name).in("phases", i, "name")
		}
		if names[f.Name] {
			return bad("two phases are called %q", f.Name).in("phases", i, "name")
		}
		names[f.Name] = true
		if f.Connect != nil {
			clients += f.Connect.Clients
		}
		if clients > MaxClients {
			return bad("%d sessions with those before, at most %d", clients, MaxClients).in("phases", i, "connect", "clients")
		}
		if whole += f.Duration; whole > MaxDuration {
			return bad("%v with the phases before, at most %v", whole, MaxDuration).in("phases", i, "duration")
		}
	}
	return nil
}

func bad(format string, args ...any) *FieldError {
	return &FieldError{Reason: fmt.Sprintf(format, args...)}
}

func (e *FieldError) in(path ...any) *FieldError {
	e.Path = append(path, e.Path...)
	return e
}

type bounded struct {
	name     string
	v, least float64
	most     float64
}

func check(fields ...bounded) *FieldError {
	for _, f := range fields {
		if !(f.v >= f.least && f.v <= f.most) { // NaN too
			return bad("%v, need %v to %v", f.v, f.least, f.most).in(f.name)
		}
	}
	return nil
}

func (s *Steady) validate() error {
	if err := check(
		bounded{"readers", float64(s.Readers), 0, MaxClients}, bounded{"readRate", s.ReadRate, 0, MaxRate},
		bounded{"writers", float64(s.Writers), 0, MaxClients}, bounded{"writeRate", s.WriteRate, 0, MaxRate},
		bounded{"nodesPerRead", float64(s.NodesPerRead), 0, 10_000},
		bounded{"subscribers", float64(s.Subscribers), 0, MaxClients}, bounded{"items", float64(s.Items), 0, 1000},
	); err != nil {
		return err.in("steady")
	}
	if s.PublishingInterval < 0 || s.PublishingInterval > time.Hour {
		return bad("%v, need 0 to 1h", s.PublishingInterval).in("steady", "publishingInterval")
	}
	if s.Writers > 0 && s.WriteNode == "" {
		return bad("writers need a node to write").in("steady", "writeNode")
	}
	for _, n := range []struct {
		key  string
		list []string
	}{{"readNodes", s.ReadNodes}, {"subscribeNodes", s.SubscribeNodes}} {
		for i, text := range n.list {
			if _, err := nodeID(text); err != nil {
				return bad("%v", err).in("steady", n.key, i)
			}
		}
	}
	for _, n := range []struct{ key, text string }{{"writeNode", s.WriteNode}, {"counterNode", s.CounterNode}} {
		if n.text == "" {
			continue
		}
		if _, err := nodeID(n.text); err != nil {
			return bad("%v", err).in("steady", n.key)
		}
	}
	return nil
}

func (f *Phase) validate() *FieldError {
	if f.Name == "" {
		return bad("a phase needs a name").in("name")
	}
	if f.Duration <= 0 || f.Duration > MaxDuration {
		return bad("%v, need more than 0 and at most %v", f.Duration, MaxDuration).in("duration")
	}
	if err := check(bounded{"cut", f.Cut, 0, 1}); err != nil {
		return err
	}
	if c := f.Connect; c != nil {
		if err := check(bounded{"clients", float64(c.Clients), 1, MaxClients}, bounded{"rate", c.Rate, 0, MaxRate}); err != nil {
			return err.in("connect")
		}
		switch {
		case c.Ramp < 0 || c.Ramp > f.Duration:
			return bad("%v, need 0 to the phase's %v", c.Ramp, f.Duration).in("connect", "ramp")
		case c.Ramp > 0 && c.Rate > 0:
			return bad("rate says it already").in("connect", "ramp")
		case c.Flap && c.Subscribe:
			return bad("clients that flap hold nothing").in("connect", "subscribe")
		}
	}
	for i, s := range f.Only {
		if !slices.Contains(Schemes(), s) {
			return bad("%q, need %s", s, strings.Join(Schemes(), ", ")).in("only", i)
		}
	}
	if f.Flood != nil {
		for _, k := range f.Flood.kinds() {
			if err := check(bounded{k.key, float64(*k.n), 0, MaxFlooders}); err != nil {
				return err.in("flood")
			}
		}
		if n := f.Flood.total(); n < 1 || n > MaxFlooders {
			return bad("%d connections, need 1 to %d", n, MaxFlooders).in("flood")
		}
	}
	if err := f.Limits.validate(); err != nil {
		return err.in("limits")
	}
	return nil
}

// For makes the plan, which must be valid, one for a scheme: phases that are for
// others are left out. What is not possible over it is reported as *FieldError.
func (p *Plan) For(scheme string) error {
	var phases []Phase
	for i := range p.Phases {
		f := &p.Phases[i]
		if len(f.Only) > 0 && !slices.Contains(f.Only, scheme) {
			continue
		}
		if f.Flood != nil {
			if err := f.Flood.over(scheme); err != nil {
				return err.in("phases", i, "flood")
			}
		}
		phases = append(phases, *f)
	}
	if len(phases) == 0 {
		return bad("none is for %s", scheme).in("phases")
	}
	p.Phases = phases
	return nil
}

// Scale multiplies the numbers of clients, rates and floods by f; durations and
// limits stay.
func (p *Plan) Scale(f float64) {
	n := func(v *int) {
		if *v > 0 {
			*v = int(max(1, math.Round(min(float64(*v)*f, 1e9))))
		}
	}
	s := &p.Steady
	for _, v := range []*int{&s.Readers, &s.Writers, &s.Subscribers} {
		n(v)
	}
	s.ReadRate *= f
	s.WriteRate *= f
	for i := range p.Phases {
		if c := p.Phases[i].Connect; c != nil {
			n(&c.Clients)
			c.Rate *= f
		}
		if w := p.Phases[i].Flood; w != nil {
			for _, k := range w.kinds() {
				n(k.n)
			}
		}
	}
}

// Duration of all phases.
func (p *Plan) Duration() (d time.Duration) {
	for _, f := range p.Phases {
		d += f.Duration
	}
	return d
}
