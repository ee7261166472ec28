package isolation

// A request's lease has a place, one of a run slot, RequestQueue and
// RequestExecution, beside what it keeps all the time: RequestQueueBytes and,
// when it can park, ParkedRequest. The methods of this file change the place
// under one lock, so that a request never gives up one before it has the other.

// AdmitParking is AdmitInline for a request that may park: it takes a
// ParkedRequest as well.
func (p *Provider) AdmitParking(l *Lease, o *Owner, bytes int64) (r Reason, saturated bool) {
	if o == nil || o.provider != p {
		p.refused[ParkedRequest][InvalidOwner].Add(1)
		return InvalidOwner, false
	}
	claims := [2]Claim{{RequestQueueBytes, bytes}, {ParkedRequest, 1}}
	p.mu.Lock()
	if p.levels[runSlot].capacity > 0 && p.levels[runSlot].used >= p.levels[runSlot].capacity {
		p.mu.Unlock()
		return Capacity, true
	}
	s, r := p.admit(l, o, claims[:])
	if r == Granted {
		l.parts[l.n] = part{runSlot, 1, 0}
		p.take(l.account, l.class, l.parts[l.n])
		l.n++
	}
	p.mu.Unlock()
	if r != Granted {
		p.refused[s][r].Add(1)
	}
	return r, false
}

// AdmitBlocking grants RequestExecution and the bytes that a request costs
// which runs apart from its connection. saturated true means that it is
// RequestExecution that has no room: the request may wait in the queue instead.
func (p *Provider) AdmitBlocking(l *Lease, o *Owner, bytes int64) (r Reason, saturated bool) {
	if o == nil || o.provider != p {
		p.refused[RequestExecution][InvalidOwner].Add(1)
		return InvalidOwner, false
	}
	claims := [2]Claim{{RequestExecution, 1}, {RequestQueueBytes, bytes}}
	p.mu.Lock()
	s, r := p.admit(l, o, claims[:])
	p.mu.Unlock()
	if s == RequestExecution && (r == Capacity || r == OwnerLimit) {
		return r, true
	}
	if r != Granted {
		p.refused[s][r].Add(1)
	}
	return r, false
}

// AdmitQueued grants RequestQueue, the bytes, and with parks a ParkedRequest,
// and says which stage refused.
func (p *Provider) AdmitQueued(l *Lease, o *Owner, bytes int64, parks bool) (Stage, Reason) {
	if o == nil || o.provider != p {
		p.refused[RequestQueue][InvalidOwner].Add(1)
		return RequestQueue, InvalidOwner
	}
	claims := [3]Claim{{RequestQueue, 1}, {RequestQueueBytes, bytes}, {ParkedRequest, 1}}
	n := 2
	if parks {
		n = 3
	}
	p.mu.Lock()
	s, r := p.admit(l, o, claims[:n])
	p.mu.Unlock()
	if r != Granted {
		p.refused[s][r].Add(1)
	}
	return s, r
}

// Run exchanges the place for a run slot; Capacity when none is free, and the
// lease stays as it was.
func (l *Lease) Run() Reason { return l.move(runSlot) }

// Execute exchanges the place for RequestExecution, likewise.
func (l *Lease) Execute() Reason { return l.move(uint8(RequestExecution)) }

// Enqueue exchanges the place for RequestQueue, likewise.
func (l *Lease) Enqueue() Reason {
	p := l.provider
	r := l.move(uint8(RequestQueue))
	if r != Granted && p != nil {
		p.refused[RequestQueue][r].Add(1)
	}
	return r
}

// Keep moves all that the lease holds except its place into another one, which
// must be empty: what a request keeps when it parks. The two are released apart
// from each other.
func (l *Lease) Keep(into *Lease) {
	p := l.provider
	if p == nil || into.n != 0 {
		panic("isolation: Keep needs a lease that holds something and an empty one")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := l.place()
	if !ok || l.n == 1 {
		panic("isolation: Keep needs a request's lease")
	}
	for i, x := range l.parts[:l.n] {
		if i != at {
			into.parts[into.n] = x
			into.n++
		}
	}
	into.provider, into.account, into.class = p, l.account, l.class
	l.parts[0], l.n = l.parts[at], 1
	// One more lease of a class that the account holds: what it is exactly stays.
	l.account.leases++
	l.account.classes[l.class]++
}

// place finds the part that is the request's place.
func (l *Lease) place() (int, bool) {
	for i, x := range l.parts[:l.n] {
		if x.lane == runSlot || x.lane == uint8(RequestQueue) || x.lane == uint8(RequestExecution) {
			return i, true
		}
	}
	return 0, false
}

func (l *Lease) move(to uint8) Reason {
	p := l.provider
	if p == nil {
		panic("isolation: a lease that holds nothing has no place")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := l.place()
	if !ok {
		panic("isolation: not a request's lease")
	}
	if l.parts[at].lane == to {
		return Granted
	}
	x := part{to, 1, 0}
	if to == runSlot {
		if p.levels[runSlot].capacity > 0 && p.levels[runSlot].used >= p.levels[runSlot].capacity {
			return Capacity
		}
	} else {
		s := Stage(to)
		o := Owner{class: l.class, trusted: l.account.trusted}
		x.reserved = min(1, p.ownFloor(&o, l.account, s))
		if r := p.fits(&o, l.account, s, 1, x.reserved); r != Granted {
			if !p.passes(s, 1) {
				return r
			}
			p.shadowed[s][r].Add(1)
		}
	}
	p.giveBack(l.account, l.class, l.parts[at])
	l.parts[at] = x
	p.take(l.account, l.class, x)
	return Granted
}

// RunSlots returns how many run slots are in use and how many there are; 0
// slots = no bound.
func (p *Provider) RunSlots() (used, capacity int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.levels[runSlot].used, p.levels[runSlot].capacity
}

// UnderFairShare reports whether an owner that wants amount of a stage holds less
// of it than its fair share, which is its capacity divided by the owners present
// and may be less than one unit. most is what another owner may hold without
// having to give a place up for it: the fair share, and at least what the first
// would hold then, so that no place goes to and fro between equals.
func (p *Provider) UnderFairShare(o *Owner, s Stage, amount int64) (most int64, under bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := int64(p.present)
	var held int64
	if a := p.accounts[o.key]; a != nil && a.present() {
		held = a.used[s]
	} else {
		n++
	}
	n = max(n, 1)
	capacity := p.levels[s].capacity
	return max(capacity/n, held+amount), held <= (capacity-1)/n // held < capacity ÷ n
}
