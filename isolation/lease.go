package isolation

// lanes are the stages and, behind them, the run slots, which have a capacity
// but no floors and stand in no plan table.
const (
	runSlot = Stages
	lanes   = Stages + 1

	maxClaims = 3 // the most stages one call admits to
)

// Claim asks for an amount of one stage.
type Claim struct {
	Stage  Stage
	Amount int64
}

// Lease is what an owner was granted, of one or several stages. The zero value
// holds nothing. It must not be copied while it holds something, so that it can
// live inside the request it belongs to without an allocation.
type Lease struct {
	provider *Provider
	account  *account
	class    Class
	limited  bool // its owner is: it counts as Established in the owner table
	n        uint8
	parts    [maxClaims]part
}

// part is one stage of a lease and how much of it came out of a floor.
type part struct {
	lane     uint8
	amount   int64
	reserved int64
}

// Held reports whether the lease holds something.
func (l *Lease) Held() bool { return l.n > 0 }

// Amount returns how much of a stage the lease holds.
func (l *Lease) Amount(s Stage) int64 {
	for _, p := range l.parts[:l.n] {
		if p.lane == uint8(s) {
			return p.amount
		}
	}
	return 0
}

// Release returns what the lease holds. The first call counts; further ones,
// and those on an empty lease, do nothing. It works after the Provider was closed.
func (l *Lease) Release() {
	p := l.provider
	if p == nil {
		return
	}
	p.mu.Lock()
	p.release(l)
	p.mu.Unlock()
}

// Shrink returns what the lease holds of one stage and keeps the rest: a
// Publish that parks gives up its execution.
func (l *Lease) Shrink(s Stage) {
	p := l.provider
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range l.parts[:l.n] {
		if l.parts[i].lane != uint8(s) {
			continue
		}
		if l.n == 1 {
			p.release(l)
			return
		}
		p.giveBack(l.account, l.class, l.parts[i])
		copy(l.parts[i:l.n], l.parts[i+1:l.n])
		l.n--
		return
	}
}

// Reserved returns how much of what the lease holds of a stage came out of a
// floor; only owners of that floor could use it if it were returned.
func (l *Lease) Reserved(s Stage) int64 {
	for _, p := range l.parts[:l.n] {
		if p.lane == uint8(s) {
			return p.reserved
		}
	}
	return 0
}
