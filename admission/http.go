package admission

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// HTTPOptions are the limits of an [HTTPGovernor]. 0 means the default; a
// negative value is an error, except where the field says otherwise.
type HTTPOptions struct {
	// MaxRequests in the data lane, from before the body to the end of the
	// response. 0: 32.
	MaxRequests int `json:"maxRequests"`
	// MaxReservedBytes charged in the data lane. 0: 1 GiB.
	MaxReservedBytes int64 `json:"maxReservedBytes"`
	// MaxTenantRequests in the data lane. 0: 16.
	MaxTenantRequests int `json:"maxTenantRequests"`
	// MaxPrincipalRequests in the data lane. 0: 8.
	MaxPrincipalRequests int `json:"maxPrincipalRequests"`
	// SmallBodyRequests of MaxRequests are kept, with the bytes they need, for
	// bodies of at most MaxControlBodyBytes, so that slow uploads leave a way
	// in. 0: 16, but at most half of MaxRequests; negative: none.
	SmallBodyRequests int `json:"smallBodyRequests"`
	// ReservedControlRequests is the size of the control lane. 0: 16.
	ReservedControlRequests int `json:"reservedControlRequests"`
	// ReservedControlBytes charged in the control lane. 0: 8 MiB.
	ReservedControlBytes int64 `json:"reservedControlBytes"`
	// MaxTenantControlRequests in the control lane. 0: 8.
	MaxTenantControlRequests int `json:"maxTenantControlRequests"`
	// MaxPrincipalControlRequests in the control lane. 0: 8.
	MaxPrincipalControlRequests int `json:"maxPrincipalControlRequests"`
	// MaxBodyBytes of a request. 0: 8 MiB.
	MaxBodyBytes int64 `json:"maxBodyBytes"`
	// MaxControlBodyBytes of a request in the control lane; a larger one stays
	// in the data lane whatever its kind. 0: 64 KiB.
	MaxControlBodyBytes int64 `json:"maxControlBodyBytes"`
	// HeavyReadReservedBytes is the working space charged for a [HeavyRead].
	// 0: 64 MiB.
	HeavyReadReservedBytes int64 `json:"heavyReadReservedBytes"`
	// OtherReservedBytes is the working space charged for any other request in
	// the data lane. 0: 8 MiB.
	OtherReservedBytes int64 `json:"otherReservedBytes"`
}

// Resolved returns the options with defaults filled in, or an [OptionError].
func (o HTTPOptions) Resolved() (HTTPOptions, error) {
	err := resolve([]number{
		{"MaxRequests", &o.MaxRequests, nil, 32},
		{"MaxReservedBytes", nil, &o.MaxReservedBytes, 1 << 30},
		{"MaxTenantRequests", &o.MaxTenantRequests, nil, 16},
		{"MaxPrincipalRequests", &o.MaxPrincipalRequests, nil, 8},
		{"ReservedControlRequests", &o.ReservedControlRequests, nil, 16},
		{"ReservedControlBytes", nil, &o.ReservedControlBytes, 8 << 20},
		{"MaxTenantControlRequests", &o.MaxTenantControlRequests, nil, 8},
		{"MaxPrincipalControlRequests", &o.MaxPrincipalControlRequests, nil, 8},
		{"MaxBodyBytes", nil, &o.MaxBodyBytes, 8 << 20},
		{"MaxControlBodyBytes", nil, &o.MaxControlBodyBytes, 64 << 10},
		{"HeavyReadReservedBytes", nil, &o.HeavyReadReservedBytes, 64 << 20},
		{"OtherReservedBytes", nil, &o.OtherReservedBytes, 8 << 20},
	})
	switch {
	case err != nil:
	case o.SmallBodyRequests == 0:
		o.SmallBodyRequests = min(16, o.MaxRequests/2)
	case o.SmallBodyRequests >= o.MaxRequests:
		err = &OptionError{"SmallBodyRequests", fmt.Sprintf("is %d; MaxRequests, %d, must be larger", o.SmallBodyRequests, o.MaxRequests)}
	}
	return o, err
}

// charge is what a request of a kind costs in a lane: the body four times over
// (as read, decoded, and both again for the answer), working space, overhead.
func (o *HTTPOptions) charge(l Lane, k Kind, body int64) (int64, bool) {
	working := o.OtherReservedBytes
	switch {
	case l == ControlLane:
		working = 0
	case k == HeavyRead:
		working = o.HeavyReadReservedBytes
	}
	return sum(4, body, 1, working, overhead)
}

// httpLimits are HTTPOptions, resolved, by lane.
type httpLimits struct {
	HTTPOptions
	lanes [lanes]laneLimits
	large Usage // the most that large bodies may hold of the data lane
}

func newHTTPLimits(o HTTPOptions) *httpLimits {
	l := &httpLimits{HTTPOptions: o, large: Usage{o.MaxRequests, o.MaxReservedBytes}}
	l.lanes[DataLane] = laneLimits{o.MaxRequests, o.MaxTenantRequests, o.MaxPrincipalRequests, o.MaxReservedBytes}
	l.lanes[ControlLane] = laneLimits{o.ReservedControlRequests, o.MaxTenantControlRequests, o.MaxPrincipalControlRequests, o.ReservedControlBytes}
	if kept := int64(o.SmallBodyRequests); kept > 0 {
		l.large.Count -= o.SmallBodyRequests
		// One body of the largest size always has its chance.
		small, fits := o.charge(DataLane, OtherRequest, o.MaxControlBodyBytes)
		largest, ok := o.charge(DataLane, OtherRequest, o.MaxBodyBytes)
		if fits && ok {
			small, fits = sum(kept, small, 0, 0, 0)
		}
		if fits && ok && largest <= o.MaxReservedBytes {
			l.large.Bytes = max(largest, o.MaxReservedBytes-small)
		}
	}
	return l
}

// Kind is what a request turned out to be once its body was read.
type Kind uint8

const (
	OtherRequest   Kind = iota // stays in the data lane
	HeavyRead                  // a query or bulk read: the data lane, with more working space
	ControlRequest             // moves to the control lane if its body is small
)

// HTTPGovernor bounds the requests that are being read, run or answered. Its
// methods may be called concurrently.
type HTTPGovernor struct {
	limits  atomic.Pointer[httpLimits] // stored under mu
	mu      sync.Mutex
	lanes   [lanes]lane
	unbound [lanes]Usage // leases of nobody yet
	large   Usage        // leases of large bodies, all in the data lane

	refused refusals
}

// NewHTTPGovernor returns a governor that holds nothing, or an [OptionError].
func NewHTTPGovernor(o HTTPOptions) (*HTTPGovernor, error) {
	g := &HTTPGovernor{lanes: [lanes]lane{newLane(), newLane()}}
	if err := g.Apply(o); err != nil {
		return nil, err
	}
	return g, nil
}

// Apply puts other limits in force, all or none. Leases stay and keep their
// charge; a limit below what is held refuses until enough was released.
func (g *HTTPGovernor) Apply(o HTTPOptions) error {
	o, err := o.Resolved()
	if err != nil {
		return err
	}
	l := newHTTPLimits(o)
	g.mu.Lock()
	g.limits.Store(l)
	g.mu.Unlock()
	return nil
}

// Ingress takes a slot of the node's data lane for a request whose head was
// read, before its body is and before anybody is authenticated. declared is its
// Content-Length, or -1 when it has none: that costs as much as the largest
// body. The charge is 4 × declared + OtherReservedBytes + 4,096 bytes. Errors,
// in the order of the checks: the context's; [ErrInvalidCommand] below -1;
// [ErrResourceExhausted] as a [RefusedError], with [TooLarge] for a body over
// MaxBodyBytes. The lease lasts until [HTTPLease.Release].
func (g *HTTPGovernor) Ingress(ctx context.Context, declared int64) (*HTTPLease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if declared < -1 {
		return nil, fmt.Errorf("%w: negative size", ErrInvalidCommand)
	}
	o := g.limits.Load()
	if declared == -1 {
		declared = o.MaxBodyBytes
	}
	charge, ok := o.charge(DataLane, OtherRequest, declared)
	if !ok || declared > o.MaxBodyBytes || charge > o.MaxReservedBytes {
		return nil, g.refused.refuse(DataLane, TooLarge)
	}
	large := declared > o.MaxControlBodyBytes
	reason, ok, err := g.admit(ctx, charge, large)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, g.refused.refuse(DataLane, reason)
	}
	return &HTTPLease{governor: g, charge: charge, large: large}, nil
}

// admit counts a request of nobody yet in the data lane.
func (g *HTTPGovernor) admit(ctx context.Context, charge int64, large bool) (Reason, bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, false, err
	}
	if reason, ok := g.room(DataLane, charge, large); !ok {
		return reason, false, nil
	}
	g.lanes[DataLane].used.add(charge)
	g.unbound[DataLane].add(charge)
	if large {
		g.large.add(charge)
	}
	return 0, true, nil
}

// room reports whether a lane has a place and charge bytes left, for a large
// body outside of what is kept for small ones.
func (g *HTTPGovernor) room(lane Lane, charge int64, large bool) (Reason, bool) {
	o := g.limits.Load()
	limit, used := &o.lanes[lane], &g.lanes[lane].used
	if used.Count >= limit.count || large && g.large.Count >= o.large.Count {
		return CountFull, false
	}
	if charge > limit.bytes-used.Bytes || large && charge > o.large.Bytes-g.large.Bytes {
		return BytesFull, false
	}
	return 0, true
}

// enter counts l where it says it is, a bound one in the scopes found.
func (g *HTTPGovernor) enter(l *HTTPLease, found scopes) {
	lane := &g.lanes[l.lane]
	lane.used.add(l.charge)
	if l.large {
		g.large.add(l.charge)
	}
	if l.bound {
		l.scopes = lane.enter(l.principal, found, l.charge)
	} else {
		g.unbound[l.lane].add(l.charge)
	}
}

// leave undoes enter.
func (g *HTTPGovernor) leave(l *HTTPLease) {
	lane := &g.lanes[l.lane]
	lane.used.remove(l.charge)
	if l.large {
		g.large.remove(l.charge)
	}
	if l.bound {
		lane.leave(l.principal, l.scopes, l.charge)
	} else {
		g.unbound[l.lane].remove(l.charge)
	}
}

// HTTPLease is an admitted request's place. Its methods may be called from any
// goroutine.
type HTTPLease struct {
	governor *HTTPGovernor
	// The rest is guarded by the governor's mu.
	principal              Principal
	scopes                 scopes
	charge                 int64
	lane                   Lane
	large                  bool
	moved, bound, released bool
}

// Reclassify charges the request for what it turned out to be, once: body is
// how many bytes were read. A [ControlRequest] of at most MaxControlBodyBytes
// moves to the control lane, where it is charged 4 × body + 4,096; others stay
// in the data lane for 4 × body + their working space + 4,096. It reports
// whether there was room. If not, the lease stays what it was, and the request
// is to be refused as busy. Further calls, and those on a released lease,
// report false and change nothing.
func (l *HTTPLease) Reclassify(k Kind, body int64) bool {
	g := l.governor
	g.mu.Lock()
	defer g.mu.Unlock()
	if l.moved || l.released || body < 0 {
		return false
	}
	l.moved = true
	o := g.limits.Load()
	to := DataLane
	if k == ControlRequest && body <= o.MaxControlBodyBytes {
		to = ControlLane
	}
	charge, ok := o.charge(to, k, body)
	if !ok || body > o.MaxBodyBytes || charge > o.lanes[to].bytes {
		g.refused.refuse(to, TooLarge)
		return false
	}
	large := body > o.MaxControlBodyBytes
	if to == l.lane {
		reason, ok := g.grows(l, charge, large)
		if !ok {
			g.refused.refuse(to, reason)
			return false
		}
		g.recharge(l, charge, large)
		return true
	}
	reason, ok := g.room(to, charge, false)
	var found scopes
	if ok && l.bound {
		found, reason, ok = g.lanes[to].find(l.principal, &o.lanes[to])
	}
	if !ok {
		g.refused.refuse(to, reason)
		return false
	}
	g.leave(l)
	l.lane, l.charge, l.large = to, charge, false
	g.enter(l, found)
	return true
}

// grows reports whether the data lane has room for what l would hold more. One
// that grows no larger is never refused: lowered limits are for newcomers.
func (g *HTTPGovernor) grows(l *HTTPLease, charge int64, large bool) (Reason, bool) {
	o := g.limits.Load()
	more, moreLarge := charge-l.charge, charge
	if l.large {
		moreLarge -= l.charge
	}
	switch {
	case large && !l.large && g.large.Count >= o.large.Count:
		return CountFull, false
	case more > 0 && more > o.MaxReservedBytes-g.lanes[DataLane].used.Bytes,
		large && moreLarge > 0 && moreLarge > o.large.Bytes-g.large.Bytes:
		return BytesFull, false
	}
	return 0, true
}

// recharge corrects what l holds where it is.
func (g *HTTPGovernor) recharge(l *HTTPLease, charge int64, large bool) {
	if l.large {
		g.large.remove(l.charge)
	}
	if large {
		g.large.add(charge)
	}
	more := charge - l.charge
	g.lanes[l.lane].used.Bytes += more
	if l.bound {
		l.scopes.tenant.Bytes += more
		l.scopes.principal.Bytes += more
	} else {
		g.unbound[l.lane].Bytes += more
	}
	l.charge, l.large = charge, large
}

// Bind moves the request from the node's ingress scope into those of who sent
// it, once: after authentication, before or after Reclassify. It reports
// whether the tenant and the principal had room. If not, or for a blank
// principal, the lease stays with the node, and the request is to be refused as
// busy. When it was bound before or is released, Bind reports false and changes
// nothing.
func (l *HTTPLease) Bind(p Principal) bool {
	g := l.governor
	g.mu.Lock()
	defer g.mu.Unlock()
	if l.bound || l.released || p.blank() {
		return false
	}
	lane := &g.lanes[l.lane]
	found, reason, ok := lane.find(p, &g.limits.Load().lanes[l.lane])
	if !ok {
		g.refused.refuse(l.lane, reason)
		return false
	}
	g.unbound[l.lane].remove(l.charge)
	l.principal, l.bound = p, true
	l.scopes = lane.enter(p, found, l.charge)
	return true
}

// Release returns what the request held, once: further calls do nothing. It
// comes at the end of the response, or when the answer was put off (a parked
// Publish), also when nobody was authenticated.
func (l *HTTPLease) Release() {
	g := l.governor
	g.mu.Lock()
	defer g.mu.Unlock()
	if l.released {
		return
	}
	l.released = true
	g.leave(l)
}
