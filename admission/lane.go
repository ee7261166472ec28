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

// room reports whether a principal and its tenant may have one more.
func (l *lane) room(p Principal, perTenant, perPrincipal int) (Reason, bool) {
	if u := l.tenants[p.Tenant]; u != nil && u.Count >= perTenant {
		return TenantFull, false
	}
	if u := l.principals[p]; u != nil && u.Count >= perPrincipal {
		return PrincipalFull, false
	}
	return 0, true
}

// enter counts one more for a principal and its tenant, and returns their entries.
func (l *lane) enter(p Principal, bytes int64) (tenant, principal *Usage) {
	tenant = l.tenants[p.Tenant]
	if tenant == nil {
		tenant = l.entry()
		l.tenants[p.Tenant] = tenant
	}
	principal = l.principals[p]
	if principal == nil {
		principal = l.entry()
		l.principals[p] = principal
	}
	tenant.add(bytes)
	principal.add(bytes)
	return tenant, principal
}

// leave undoes one enter.
func (l *lane) leave(p Principal, tenant, principal *Usage, bytes int64) {
	tenant.remove(bytes)
	if tenant.Count == 0 {
		delete(l.tenants, p.Tenant)
		l.free = append(l.free, tenant)
	}
	principal.remove(bytes)
	if principal.Count == 0 {
		delete(l.principals, p)
		l.free = append(l.free, principal)
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
