package admission

import (
	"cmp"
	"slices"
)

// ScopeUsage is what one tenant holds, or one principal of it.
type ScopeUsage struct {
	Tenant    string `json:"tenant"`
	Principal string `json:"principal,omitempty"`
	Usage
}

// ScopesStatus are the scopes that hold something now, in order of their names.
type ScopesStatus struct {
	Tenants    []ScopeUsage `json:"tenants"`
	Principals []ScopeUsage `json:"principals"`
}

// VerifiedScopes are the scopes of authenticated principals, by lane.
type VerifiedScopes struct {
	Data    ScopesStatus `json:"data"`
	Control ScopesStatus `json:"control"`
}

// LaneStatus is the node's account of a lane and what it refused since the
// governor was made, by [Reason].
type LaneStatus struct {
	Usage
	Refused map[string]uint64 `json:"refused"`
}

// NodeStatus is the node's account, whoever it is held for.
type NodeStatus struct {
	Data    LaneStatus `json:"data"`
	Control LaneStatus `json:"control"`
}

// IngressStatus is the part of the node's account that is held for nobody yet.
type IngressStatus struct {
	Data    Usage `json:"data"`
	Control Usage `json:"control"`
	// LargeBodies are the bodies over MaxControlBodyBytes, of anybody.
	LargeBodies Usage `json:"largeBodies"`
}

// CommandStatus is a [CommandGovernor] at one instant.
type CommandStatus struct {
	Limits         CommandOptions `json:"limits"`
	Node           NodeStatus     `json:"node"`
	VerifiedScopes VerifiedScopes `json:"verifiedScopes"`
}

// HTTPStatus is an [HTTPGovernor] at one instant.
type HTTPStatus struct {
	Limits         HTTPOptions    `json:"limits"`
	Node           NodeStatus     `json:"node"`
	Ingress        IngressStatus  `json:"ingress"`
	VerifiedScopes VerifiedScopes `json:"verifiedScopes"`
}

// Status returns the limits in force and what is held now.
func (g *CommandGovernor) Status() CommandStatus {
	g.mu.Lock()
	s := CommandStatus{Limits: *g.limits.Load()}
	s.Node, s.VerifiedScopes = statusOf(&g.lanes)
	g.mu.Unlock()
	s.Node.Data.Refused, s.Node.Control.Refused = g.refused.of(DataLane), g.refused.of(ControlLane)
	s.VerifiedScopes.sort()
	return s
}

// Status returns the limits in force and what is held now.
func (g *HTTPGovernor) Status() HTTPStatus {
	g.mu.Lock()
	s := HTTPStatus{
		Limits:  g.limits.Load().HTTPOptions,
		Ingress: IngressStatus{g.unbound[DataLane], g.unbound[ControlLane], g.large},
	}
	s.Node, s.VerifiedScopes = statusOf(&g.lanes)
	g.mu.Unlock()
	s.Node.Data.Refused, s.Node.Control.Refused = g.refused.of(DataLane), g.refused.of(ControlLane)
	s.VerifiedScopes.sort()
	return s
}

func statusOf(l *[lanes]lane) (NodeStatus, VerifiedScopes) {
	return NodeStatus{LaneStatus{Usage: l[DataLane].used}, LaneStatus{Usage: l[ControlLane].used}},
		VerifiedScopes{l[DataLane].status(), l[ControlLane].status()}
}

func (l *lane) status() ScopesStatus {
	s := ScopesStatus{make([]ScopeUsage, 0, len(l.tenants)), make([]ScopeUsage, 0, len(l.principals))}
	for t, u := range l.tenants {
		s.Tenants = append(s.Tenants, ScopeUsage{t, "", *u})
	}
	for p, u := range l.principals {
		s.Principals = append(s.Principals, ScopeUsage{p.Tenant, p.Name, *u})
	}
	return s
}

func (v *VerifiedScopes) sort() {
	for _, s := range [][]ScopeUsage{v.Data.Tenants, v.Data.Principals, v.Control.Tenants, v.Control.Principals} {
		slices.SortFunc(s, func(a, b ScopeUsage) int {
			return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Principal, b.Principal))
		})
	}
}
