package isolation

// Shadow switches shadow mode on or off: what a stage would refuse is counted
// (see Shadowed) and granted all the same, so that limits can be tried out on
// the load that there is. What bounds memory and sockets is never passed over:
// ReassemblyBytes, RequestQueueBytes, and the capacity of Connection, within
// which owners may exceed their own limit and use floors. RequestExecution
// refuses nobody, it makes wait, and goes on doing so. Closed and InvalidOwner
// are refused as ever. Leases that were granted so are counted like any other;
// when the mode ends the stages refuse until enough was returned.
func (p *Provider) Shadow(on bool) {
	p.mu.Lock()
	p.shadow = on
	p.mu.Unlock()
}

// Shadowed returns how often a stage would have been refused for a reason and
// was granted, because shadow mode was on.
func (p *Provider) Shadowed(s Stage, r Reason) uint64 { return p.shadowed[s][r].Load() }

// passes reports whether shadow mode grants an amount that does not fit.
func (p *Provider) passes(s Stage, amount int64) bool {
	if !p.shadow {
		return false
	}
	switch s {
	case ReassemblyBytes, RequestQueueBytes, RequestExecution:
		return false
	case Connection:
		return amount <= p.levels[s].capacity-p.levels[s].used
	}
	return true
}
