package isolation

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// Provider keeps account of what each owner holds and grants leases under a
// plan. All methods may be called concurrently. One short mutex guards it: a
// request is admitted to all its stages in one call, which two cores share
// better than a row of atomics.
type Provider struct {
	mu        sync.Mutex
	closed    bool
	shadow    bool // see Shadow
	plan      *Plan
	present   int // accounts with leases
	trustedIn int // trusted ones among them
	roomy     int // so many accounts may be present whatever their classes
	levels    [lanes]level
	floorUse  [Classes][Stages]int64 // of bootstrap, reconnect and control
	accounts  map[string]*account
	sole      [Classes]int // accounts all of whose leases have exactly that class
	idle      []*account   // accounts without leases that are still in the map
	hasFloor  [Classes]bool
	trusted   map[string]int

	refused  [Stages + 1][Reasons]atomic.Uint64
	shadowed [Stages + 1][Reasons]atomic.Uint64
}

// level is a lane's bounds and what is in use, which are looked at together.
type level struct{ capacity, shared, used, sharedUse int64 }

// NewProvider returns a Provider for a plan.
func NewProvider(plan *Plan) *Provider {
	p := &Provider{accounts: map[string]*account{}, trusted: map[string]int{}}
	p.apply(plan)
	return p
}

func (p *Provider) apply(plan *Plan) {
	p.plan = plan
	p.hasFloor = [Classes]bool{}
	for i, s := range plan.Stages {
		p.levels[i].capacity, p.levels[i].shared = s.Capacity, s.Shared
		p.hasFloor[Bootstrap] = p.hasFloor[Bootstrap] || s.Bootstrap > 0
		p.hasFloor[Reconnect] = p.hasFloor[Reconnect] || s.Reconnect > 0
		p.hasFloor[Control] = p.hasFloor[Control] || s.Control > 0
	}
	p.levels[runSlot].capacity = plan.RunSlots
	p.levels[runSlot].shared = plan.RunSlots
	p.roomy = math.MaxInt
	if plan.MaxTrackedOwners > 0 {
		p.roomy = plan.MaxTrackedOwners - len(plan.Trusted) - int(Classes)
	}
	clear(p.trusted)
	for i, t := range plan.Trusted {
		p.trusted[t.Key] = i
	}
}

// Plan returns the plan in force. It must not be changed.
func (p *Provider) Plan() *Plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plan
}

// Apply puts another plan in force. Leases keep the split between floor and
// shared part that they were granted; a limit below what is used refuses until
// enough was returned. Mode and the trusted owners' keys must stay the same.
func (p *Provider) Apply(plan *Plan) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if plan.Mode != p.plan.Mode {
		return fmt.Errorf("isolation: Mode cannot change from %v to %v without a restart", p.plan.Mode, plan.Mode)
	}
	if len(plan.Trusted) != len(p.plan.Trusted) {
		return fmt.Errorf("isolation: TrustedOwners cannot change without a restart")
	}
	for i := range plan.Trusted {
		if plan.Trusted[i].Key != p.plan.Trusted[i].Key {
			return fmt.Errorf("isolation: TrustedOwners cannot change without a restart")
		}
	}
	p.apply(plan)
	return nil
}

// Issue returns an owner with a key and a class. A key longer than the plan's
// MaxOwnerKeyLength, an empty one, and class Trusted with a key that is not
// provisioned are errors: a trusted key that nobody provisioned is never a free
// pass.
func (p *Provider) Issue(key string, class Class) (*Owner, error) {
	if class >= Classes {
		return nil, fmt.Errorf("isolation: no class %d", class)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if key == "" || len(key) > p.plan.MaxOwnerKeyLength {
		return nil, fmt.Errorf("isolation: owner key of %d bytes, need 1 to %d", len(key), p.plan.MaxOwnerKeyLength)
	}
	o := &Owner{provider: p, key: key, class: class, trusted: -1, weight: p.plan.DefaultWeight}
	if i, ok := p.trusted[key]; ok {
		o.trusted, o.weight = i, p.plan.Trusted[i].Weight
	} else if class == Trusted {
		return nil, fmt.Errorf("isolation: a key of class Trusted is not among TrustedOwners")
	}
	return o, nil
}

// IssueFor is Issue for an owner that may use one stage only.
func (p *Provider) IssueFor(key string, class Class, only Stage) (*Owner, error) {
	o, err := p.Issue(key, class)
	if err == nil {
		o.only, o.limited = only, true
	}
	return o, err
}

// TryAcquire grants an amount of one stage. An amount of 0 or less is a
// programming error and panics. On refusal the lease stays as it was: empty.
func (p *Provider) TryAcquire(l *Lease, s Stage, o *Owner, amount int64) Reason {
	claims := [1]Claim{{s, amount}}
	return p.Admit(l, o, claims[:])
}

// Admit grants all claims or none, at most three, of different stages. Checks
// are made claim by claim, in the order of [Reason]. The lease must be empty.
func (p *Provider) Admit(l *Lease, o *Owner, claims []Claim) Reason {
	if len(claims) == 0 || len(claims) > maxClaims || l.n != 0 {
		panic("isolation: Admit needs an empty lease and one to three claims")
	}
	if o == nil || o.provider != p {
		p.refused[claims[0].Stage][InvalidOwner].Add(1)
		return InvalidOwner
	}
	p.mu.Lock()
	s, r := p.admit(l, o, claims)
	p.mu.Unlock()
	if r != Granted {
		p.refused[s][r].Add(1)
	}
	return r
}

// AdmitInline grants a run slot and the bytes that a request costs while it
// runs on its connection's goroutine. Reason Capacity with saturated true means
// that no run slot is free: the request may wait in the queue instead.
func (p *Provider) AdmitInline(l *Lease, o *Owner, bytes int64) (r Reason, saturated bool) {
	if o == nil || o.provider != p {
		p.refused[RequestQueueBytes][InvalidOwner].Add(1)
		return InvalidOwner, false
	}
	p.mu.Lock()
	if slots := &p.levels[runSlot]; slots.capacity > 0 && slots.used >= slots.capacity {
		p.mu.Unlock()
		return Capacity, true
	}
	r = p.admitInline(l, o, bytes)
	p.mu.Unlock()
	if r != Granted {
		p.refused[RequestQueueBytes][r].Add(1)
	}
	return r, false
}

// admitInline is admit for the one case that is worth writing out: every
// request that runs at once comes here.
func (p *Provider) admitInline(l *Lease, o *Owner, bytes int64) Reason {
	const s = RequestQueueBytes
	if p.closed {
		return Closed
	}
	if bytes <= 0 {
		panic("isolation: an amount must be positive")
	}
	if o.limited && s != o.only {
		return InvalidOwner
	}
	a := o.account
	if a == nil || !a.tabled {
		a = p.lookup(o)
	}
	if bytes > p.limit(o, s)-a.used[s] {
		return OwnerLimit
	}
	reserved := int64(0)
	if o.class != Established {
		reserved = min(bytes, p.ownFloor(o, a, s))
	}
	level := &p.levels[s]
	if bytes > level.capacity-level.used || bytes-reserved > level.shared-level.sharedUse {
		return Capacity
	}
	if !a.present() && !p.room(o) {
		if !p.shadow {
			return OwnerTableFull
		}
		p.shadowed[s][OwnerTableFull].Add(1)
	}
	o.account = a
	p.enter(a, o)
	l.provider, l.account, l.class, l.limited, l.n = p, a, o.class, o.limited, 2
	l.parts[0] = part{uint8(s), bytes, reserved}
	l.parts[1] = part{runSlot, 1, 0}
	p.take(a, o.class, l.parts[0])
	p.take(a, o.class, l.parts[1])
	return Granted
}

// take books one part.
func (p *Provider) take(a *account, c Class, x part) {
	p.levels[x.lane].used += x.amount
	p.levels[x.lane].sharedUse += x.amount - x.reserved
	a.used[x.lane] += x.amount
	if x.reserved > 0 {
		p.floors(a, c, Stage(x.lane), x.reserved)
	}
}

// admit does the work of Admit under mu and says which claim was refused.
func (p *Provider) admit(l *Lease, o *Owner, claims []Claim) (Stage, Reason) {
	if p.closed {
		return claims[0].Stage, Closed
	}
	a := o.account
	if a == nil || !a.tabled {
		a = p.lookup(o)
	}
	var parts [maxClaims]part
	var passed [maxClaims]Reason // in shadow mode: what would have been the answer
	n := 0
	for _, c := range claims {
		if c.Amount <= 0 {
			panic("isolation: an amount must be positive")
		}
		s := c.Stage
		if o.limited && s != o.only {
			return s, InvalidOwner
		}
		reserved := min(c.Amount, p.ownFloor(o, a, s))
		if r := p.fits(o, a, s, c.Amount, reserved); r != Granted {
			if !p.passes(s, c.Amount) {
				return s, r
			}
			passed[n] = r
		}
		parts[n] = part{uint8(s), c.Amount, reserved}
		n++
	}
	if !a.present() && !p.room(o) {
		if !p.shadow || claims[0].Stage == ReassemblyBytes {
			return claims[0].Stage, OwnerTableFull
		}
		p.shadowed[claims[0].Stage][OwnerTableFull].Add(1)
	}
	for i, r := range passed[:n] {
		if r != Granted {
			p.shadowed[parts[i].lane][r].Add(1)
		}
	}
	o.account = a
	p.enter(a, o)
	*l = Lease{provider: p, account: a, class: o.class, limited: o.limited, n: uint8(n), parts: parts}
	for _, x := range parts[:n] {
		p.take(a, o.class, x)
	}
	return 0, Granted
}

// fits holds an amount, of which reserved comes out of a floor, against the
// owner's limit and then against the stage.
func (p *Provider) fits(o *Owner, a *account, s Stage, amount, reserved int64) Reason {
	if amount > p.limit(o, s)-a.used[s] {
		return OwnerLimit
	}
	if x := &p.levels[s]; amount > x.capacity-x.used || amount-reserved > x.shared-x.sharedUse {
		return Capacity
	}
	return Granted
}

// limit is the most that an owner may hold of a stage.
func (p *Provider) limit(o *Owner, s Stage) int64 {
	if o.trusted >= 0 {
		return p.plan.Trusted[o.trusted].HardLimit[s]
	}
	return p.plan.Stages[s].HardLimit
}

// ownFloor is what is left of the floor that an owner may draw on.
func (p *Provider) ownFloor(o *Owner, a *account, s Stage) int64 {
	st := &p.plan.Stages[s]
	var floor, used int64
	switch {
	case o.class == Bootstrap:
		floor, used = st.Bootstrap, p.floorUse[Bootstrap][s]
	case o.class == Reconnect:
		floor, used = st.Reconnect, p.floorUse[Reconnect][s]
	case o.class == Control:
		floor, used = st.Control, p.floorUse[Control][s]
	case o.class == Trusted && o.trusted >= 0:
		floor, used = p.plan.Trusted[o.trusted].Floor[s], a.floor[s]
	}
	return max(0, floor-used) // a plan applied later may have lowered the floor
}

func (p *Provider) floors(a *account, c Class, s Stage, delta int64) {
	if c == Trusted {
		a.floor[s] += delta
	} else {
		p.floorUse[c][s] += delta
	}
}

// lookup finds or makes the account of an owner whose last one, if any, is not
// in the table.
func (p *Provider) lookup(o *Owner) *account {
	if a := p.accounts[o.key]; a != nil {
		return a
	}
	if o.account != nil { // it left the table while it held nothing
		return o.account
	}
	return &account{key: o.key, trusted: o.trusted}
}

// room reports whether an account that is not present may enter the owner
// table: places are kept for trusted owners that are not there, and for each
// class with a floor of which no owner of exactly that class is.
func (p *Provider) room(o *Owner) bool {
	if p.present < p.roomy {
		return true
	}
	kept := len(p.plan.Trusted) - p.trustedIn
	if o.trusted >= 0 {
		kept--
	}
	for _, c := range [...]Class{Bootstrap, Reconnect, Control} {
		if p.sole[c] == 0 && o.counts() != c && p.hasFloor[c] {
			kept++
		}
	}
	return p.present+1+kept <= p.plan.MaxTrackedOwners
}

// enter counts one more lease of an account.
func (p *Provider) enter(a *account, o *Owner) {
	counts := o.counts()
	plain := counts == Established && a.leases == a.classes[Established]
	if !plain {
		p.recount(a, -1)
	}
	if a.leases == 0 {
		if !a.tabled {
			p.accounts[a.key], a.tabled = a, true
		}
		p.present++
		if a.trusted >= 0 {
			p.trustedIn++
		}
	}
	a.leases++
	a.classes[counts]++
	if !plain {
		p.recount(a, +1)
	}
}

// recount takes an account out of, or puts it into, the count of those that
// have exactly one class.
func (p *Provider) recount(a *account, delta int) {
	if !a.present() {
		return
	}
	for _, c := range [...]Class{Bootstrap, Reconnect, Control} {
		if a.exactly(c) {
			p.sole[c] += delta
		}
	}
}

// giveBack returns one part to the totals.
func (p *Provider) giveBack(a *account, c Class, x part) {
	p.levels[x.lane].used -= x.amount
	p.levels[x.lane].sharedUse -= x.amount - x.reserved
	a.used[x.lane] -= x.amount
	if x.reserved > 0 {
		p.floors(a, c, Stage(x.lane), -x.reserved)
	}
}

func (p *Provider) release(l *Lease) {
	if l.n == 0 {
		return
	}
	a := l.account
	for i := range l.parts[:l.n] {
		p.giveBack(a, l.class, l.parts[i])
	}
	plain := a.leases == a.classes[Established]
	if !plain {
		p.recount(a, -1)
	}
	a.leases--
	if l.limited {
		a.classes[Established]--
	} else {
		a.classes[l.class]--
	}
	if a.leases == 0 {
		p.present--
		if a.trusted >= 0 {
			p.trustedIn--
		}
		p.retire(a)
	}
	if !plain {
		p.recount(a, +1)
	}
	l.provider, l.account, l.n = nil, nil, 0
}

// maxIdle bounds the accounts that stay in the map without a lease, so that an
// owner whose requests come one at a time costs no map operation for each.
const maxIdle = 1024

func (p *Provider) retire(a *account) {
	if a.listed {
		return
	}
	if len(p.idle) >= maxIdle {
		for _, old := range p.idle {
			old.listed = false
			if !old.present() { // those that came back stay
				delete(p.accounts, old.key)
				old.tabled = false
			}
		}
		clear(p.idle)
		p.idle = p.idle[:0]
	}
	a.listed = true
	p.idle = append(p.idle, a)
}

// Close refuses every further lease with Closed. Leases out are still returned.
func (p *Provider) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
}

// Usage is what is in use at one stage.
type Usage struct {
	Stage     Stage  `json:"-"`
	Name      string `json:"stage"`
	Used      int64  `json:"used"`
	Capacity  int64  `json:"capacity"`
	Shared    int64  `json:"sharedUsed"`
	Bootstrap int64  `json:"bootstrapUsed"`
	Reconnect int64  `json:"reconnectUsed"`
	Control   int64  `json:"controlUsed"`
	Trusted   int64  `json:"trustedUsed"`
}

// Snapshot returns the usage of every stage and the number of owners that hold
// leases, all of one moment.
func (p *Provider) Snapshot() (stages [Stages]Usage, owners int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range stages {
		u := Usage{Stage: Stage(i), Name: Stage(i).String(), Used: p.levels[i].used, Capacity: p.levels[i].capacity, Shared: p.levels[i].sharedUse,
			Bootstrap: p.floorUse[Bootstrap][i], Reconnect: p.floorUse[Reconnect][i], Control: p.floorUse[Control][i]}
		u.Trusted = u.Used - u.Shared - u.Bootstrap - u.Reconnect - u.Control
		stages[i] = u
	}
	return stages, p.present
}

// Used returns what is in use at a stage.
func (p *Provider) Used(s Stage) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.levels[s].used
}

// OwnerUsed returns what an owner holds of a stage.
func (p *Provider) OwnerUsed(o *Owner, s Stage) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.accounts[o.key]; a != nil {
		return a.used[s]
	}
	return 0
}

// Owners returns how many owners hold leases.
func (p *Provider) Owners() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.present
}

// Refused returns how often a stage was refused for a reason.
func (p *Provider) Refused(s Stage, r Reason) uint64 { return p.refused[s][r].Load() }
