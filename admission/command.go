package admission

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// CommandOptions are the limits of a [CommandGovernor]. Every field is at least
// 1; 0 means the default, a negative value is an error.
type CommandOptions struct {
	// MaxCommands in the data lane, queued and running. 0: 256.
	MaxCommands int `json:"maxCommands"`
	// MaxRetainedBytes charged in the data lane. 0: 128 MiB.
	MaxRetainedBytes int64 `json:"maxRetainedBytes"`
	// MaxTenantCommands in the data lane. 0: 128.
	MaxTenantCommands int `json:"maxTenantCommands"`
	// MaxPrincipalCommands in the data lane. 0: 64.
	MaxPrincipalCommands int `json:"maxPrincipalCommands"`
	// ReservedControlCommands is the size of the control lane. 0: 16.
	ReservedControlCommands int `json:"reservedControlCommands"`
	// ReservedControlBytes charged in the control lane. 0: 2 MiB.
	ReservedControlBytes int64 `json:"reservedControlBytes"`
	// MaxControlPayloadBytes of one control command. 0: 64 KiB.
	MaxControlPayloadBytes int64 `json:"maxControlPayloadBytes"`
	// MaxTenantControlCommands in the control lane. 0: 8.
	MaxTenantControlCommands int `json:"maxTenantControlCommands"`
	// MaxPrincipalControlCommands in the control lane. 0: 8.
	MaxPrincipalControlCommands int `json:"maxPrincipalControlCommands"`
}

// Resolved returns the options with defaults filled in, or an [OptionError].
func (o CommandOptions) Resolved() (CommandOptions, error) {
	err := resolve([]number{
		{"MaxCommands", &o.MaxCommands, nil, 256},
		{"MaxRetainedBytes", nil, &o.MaxRetainedBytes, 128 << 20},
		{"MaxTenantCommands", &o.MaxTenantCommands, nil, 128},
		{"MaxPrincipalCommands", &o.MaxPrincipalCommands, nil, 64},
		{"ReservedControlCommands", &o.ReservedControlCommands, nil, 16},
		{"ReservedControlBytes", nil, &o.ReservedControlBytes, 2 << 20},
		{"MaxControlPayloadBytes", nil, &o.MaxControlPayloadBytes, 64 << 10},
		{"MaxTenantControlCommands", &o.MaxTenantControlCommands, nil, 8},
		{"MaxPrincipalControlCommands", &o.MaxPrincipalControlCommands, nil, 8},
	})
	return o, err
}

func (o *CommandOptions) lane(l Lane) laneLimits {
	if l == ControlLane {
		return laneLimits{o.ReservedControlCommands, o.MaxTenantControlCommands, o.MaxPrincipalControlCommands, o.ReservedControlBytes}
	}
	return laneLimits{o.MaxCommands, o.MaxTenantCommands, o.MaxPrincipalCommands, o.MaxRetainedBytes}
}

// Command is what asks a [CommandGovernor] for admission.
type Command struct {
	Principal Principal
	// Control puts the command into the control lane.
	Control bool
	// UTF16Units of the payload's text; 0 for a binary one.
	UTF16Units int64
	// PayloadBytes of the payload, encoded (a text in UTF-8).
	PayloadBytes int64
}

func (c *Command) lane() Lane {
	if c.Control {
		return ControlLane
	}
	return DataLane
}

// CommandGovernor bounds the commands that are queued or running. Its methods
// may be called concurrently.
type CommandGovernor struct {
	limits atomic.Pointer[CommandOptions] // resolved; stored under mu
	mu     sync.Mutex
	lanes  [lanes]lane

	refused refusals
}

// NewCommandGovernor returns a governor that holds nothing, or an [OptionError].
func NewCommandGovernor(o CommandOptions) (*CommandGovernor, error) {
	g := &CommandGovernor{lanes: [lanes]lane{newLane(), newLane()}}
	if err := g.Apply(o); err != nil {
		return nil, err
	}
	return g, nil
}

// Apply puts other limits in force, all or none. Reservations stay; a limit
// below what is held refuses until enough was released.
func (g *CommandGovernor) Apply(o CommandOptions) error {
	o, err := o.Resolved()
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.limits.Store(&o)
	g.mu.Unlock()
	return nil
}

// Reserve admits a command before it is queued, charging
//
//	2 × UTF16Units + 2 × PayloadBytes + 4,096
//
// bytes. Errors, in the order of the checks: the context's; [ErrInvalidCommand];
// [ErrResourceExhausted] as a [RefusedError]. Cancelling ctx afterwards changes
// nothing: the reservation lasts until [Reservation.Release].
func (g *CommandGovernor) Reserve(ctx context.Context, c Command) (*Reservation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.Principal.blank() {
		return nil, fmt.Errorf("%w: blank tenant or principal", ErrInvalidCommand)
	}
	if c.UTF16Units < 0 || c.PayloadBytes < 0 {
		return nil, fmt.Errorf("%w: negative size", ErrInvalidCommand)
	}
	lane, o := c.lane(), g.limits.Load()
	charge, ok := sum(2, c.UTF16Units, 2, c.PayloadBytes, overhead)
	if !ok || c.Control && c.PayloadBytes > o.MaxControlPayloadBytes || charge > o.lane(lane).bytes {
		return nil, g.refused.refuse(lane, TooLarge)
	}
	scopes, reason, err := g.admit(ctx, &c, lane, charge)
	switch {
	case err != nil:
		return nil, err
	case scopes.tenant == nil:
		return nil, g.refused.refuse(lane, reason)
	}
	return &Reservation{governor: g, principal: c.Principal, scopes: scopes, lane: lane, charge: charge}, nil
}

// admit counts a command, and returns the scopes it is counted in; without them
// there was no room.
func (g *CommandGovernor) admit(ctx context.Context, c *Command, lane Lane, charge int64) (scopes, Reason, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return scopes{}, 0, err
	}
	limit, l := g.limits.Load().lane(lane), &g.lanes[lane]
	if l.used.Count >= limit.count {
		return scopes{}, CountFull, nil
	}
	if charge > limit.bytes-l.used.Bytes {
		return scopes{}, BytesFull, nil
	}
	found, reason, ok := l.find(c.Principal, &limit)
	if !ok {
		return scopes{}, reason, nil
	}
	l.used.add(charge)
	return l.enter(c.Principal, found, charge), 0, nil
}

// Reservation is an admitted command's place.
type Reservation struct {
	governor  *CommandGovernor
	principal Principal
	scopes    scopes
	charge    int64
	lane      Lane
	released  bool // guarded by the governor's mu
}

// Lane returns the lane that admitted the command.
func (r *Reservation) Lane() Lane { return r.lane }

// Charge returns the bytes that the command is charged.
func (r *Reservation) Charge() int64 { return r.charge }

// Release returns what the command held, once: further calls do nothing.
func (r *Reservation) Release() {
	g := r.governor
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.released {
		return
	}
	r.released = true
	l := &g.lanes[r.lane]
	l.used.remove(r.charge)
	l.leave(r.principal, r.scopes, r.charge)
}
