package admission

import "strings"

// Principal is who a request acts for, out of the server's verified catalogue.
// All credentials of one principal share its scope. Principals of one name in
// two tenants are two.
type Principal struct {
	Tenant string
	Name   string
}

// blank reports whether a part of p is missing.
func (p Principal) blank() bool {
	return strings.TrimSpace(p.Tenant) == "" || strings.TrimSpace(p.Name) == ""
}

// Usage is a number of requests or commands and the bytes they are charged.
type Usage struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"`
}

func (u *Usage) add(bytes int64) {
	u.Count++
	u.Bytes += bytes
}

func (u *Usage) remove(bytes int64) {
	u.Count--
	u.Bytes -= bytes
}

// laneLimits are what a lane and each scope in it may hold.
type laneLimits struct {
	count, perTenant, perPrincipal int
	bytes                          int64
}

// A lane keeps the account of what it admitted. Scopes have an entry while they
// hold something and none otherwise, so there are never more than admissions.
// Its governor's lock guards it.
type lane struct {
	used       Usage
	tenants    map[string]*Usage
	principals map[Principal]*Usage
	free       []*Usage // entries of scopes that emptied; never more than were in use at once
}

func newLane() lane {
	return lane{tenants: map[string]*Usage{}, principals: map[Principal]*Usage{}}
}

// scopes are the entries of a principal and its tenant; nil where it has none.
type scopes struct{ tenant, principal *Usage }

// find returns a principal's entries, and whether they have room for one more.
func (l *lane) find(p Principal, limit *laneLimits) (s scopes, reason Reason, ok bool) {
	s = scopes{l.tenants[p.Tenant], l.principals[p]}
	switch {
	case s.tenant != nil && s.tenant.Count >= limit.perTenant:
		return s, TenantFull, false
	case s.principal != nil && s.principal.Count >= limit.perPrincipal:
		return s, PrincipalFull, false
	}
	return s, 0, true
}

// enter counts one more in what find found, and makes the entries it did not find.
func (l *lane) enter(p Principal, s scopes, bytes int64) scopes {
	if s.tenant == nil {
		s.tenant = l.entry()
		l.tenants[p.Tenant] = s.tenant
	}
	if s.principal == nil {
		s.principal = l.entry()
		l.principals[p] = s.principal
	}
	s.tenant.add(bytes)
	s.principal.add(bytes)
	return s
}

// leave undoes one enter.
func (l *lane) leave(p Principal, s scopes, bytes int64) {
	s.tenant.remove(bytes)
	if s.tenant.Count == 0 {
		delete(l.tenants, p.Tenant)
		l.free = append(l.free, s.tenant)
	}
	s.principal.remove(bytes)
	if s.principal.Count == 0 {
		delete(l.principals, p)
		l.free = append(l.free, s.principal)
	}
}

func (l *lane) entry() *Usage {
	if n := len(l.free); n > 0 {
		u := l.free[n-1]
		l.free = l.free[:n-1]
		return u
	}
	return &Usage{}
}
