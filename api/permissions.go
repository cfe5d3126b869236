package api

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// Permission is the permission that an operation requires of its caller.
type Permission string

const (
	Public Permission = "public" // no credentials

	EventsWrite    Permission = "events:write"
	EventsRead     Permission = "events:read" // events with the properties that clients sent
	UsageRead      Permission = "usage:read"
	CustomersRead  Permission = "customers:read"
	CustomersWrite Permission = "customers:write"
	CustomersErase Permission = "customers:erase"
	MetersRead     Permission = "meters:read"
	MetersWrite    Permission = "meters:write"
	PricingRead    Permission = "pricing:read"
	PricingWrite   Permission = "pricing:write"
	QuotasRead     Permission = "quotas:read"
	QuotasWrite    Permission = "quotas:write"
	BillingRead    Permission = "billing:read"
	BillingWrite   Permission = "billing:write"
	HooksRead      Permission = "webhooks:read"
	HooksWrite     Permission = "webhooks:write"
	AlertsRead     Permission = "alerts:read"
	AlertsWrite    Permission = "alerts:write"
	KeysManage     Permission = "api_keys:manage" // API keys, HMAC secrets, audit log
	TenantManage   Permission = "tenant:manage"   // tenant settings, members
	OwnSession     Permission = "session:own"     // every caller: see its own session and permissions, sign out
)

const (
	adm = metering.ScopeAdmin
	rw  = metering.ScopeReadWrite
	ro  = metering.ScopeReadOnly
	ink = metering.ScopeIngestOnly

	owner     = metering.RoleOwner
	admin     = metering.RoleAdmin
	developer = metering.RoleDeveloper
	biller    = metering.RoleBilling
	viewer    = metering.RoleViewer
)

type grant struct {
	scopes []metering.Scope
	roles  []metering.Role
}

// permissions maps each permission to the scopes and roles that have it. It is the only such table.
var permissions = map[Permission]grant{
	EventsWrite:    {[]metering.Scope{adm, rw, ink}, []metering.Role{owner, admin, developer}},
	EventsRead:     {[]metering.Scope{adm, rw}, []metering.Role{owner, admin, developer, biller}},
	UsageRead:      {[]metering.Scope{adm, rw, ro}, []metering.Role{owner, admin, developer, biller, viewer}},
	CustomersRead:  {[]metering.Scope{adm, rw, ro}, []metering.Role{owner, admin, developer, biller, viewer}},
	CustomersWrite: {[]metering.Scope{adm, rw}, []metering.Role{owner, admin, developer}},
	CustomersErase: {[]metering.Scope{adm}, []metering.Role{owner, admin}},
	MetersRead:     {[]metering.Scope{adm, rw, ro}, []metering.Role{owner, admin, developer, biller, viewer}},
	MetersWrite:    {[]metering.Scope{adm, rw}, []metering.Role{owner, admin, developer}},
	PricingRead:    {[]metering.Scope{adm}, []metering.Role{owner, admin, developer, biller}},
	PricingWrite:   {[]metering.Scope{adm}, []metering.Role{owner, admin, biller}},
	QuotasRead:     {[]metering.Scope{adm, rw}, []metering.Role{owner, admin, developer, biller}},
	QuotasWrite:    {[]metering.Scope{adm, rw}, []metering.Role{owner, admin}},
	BillingRead:    {[]metering.Scope{adm}, []metering.Role{owner, admin, biller}},
	BillingWrite:   {[]metering.Scope{adm}, []metering.Role{owner, admin, biller}},
	HooksRead:      {[]metering.Scope{adm}, []metering.Role{owner, admin, developer, biller}},
	HooksWrite:     {[]metering.Scope{adm}, []metering.Role{owner, admin, developer}},
	AlertsRead:     {[]metering.Scope{adm}, []metering.Role{owner, admin, developer, biller}},
	AlertsWrite:    {[]metering.Scope{adm}, []metering.Role{owner, admin, developer}},
	KeysManage:     {[]metering.Scope{adm}, []metering.Role{owner, admin}},
	TenantManage:   {[]metering.Scope{adm}, []metering.Role{owner}},
	OwnSession:     {[]metering.Scope{adm, rw, ro, ink}, []metering.Role{owner, admin, developer, biller, viewer}},
}

// Holders returns the scopes and the roles that have the permission.
func (p Permission) Holders() ([]metering.Scope, []metering.Role) {
	return slices.Clone(permissions[p].scopes), slices.Clone(permissions[p].roles)
}

// allows reports whether the caller has the permission: a member by its role, any other credential by its
// scope.
func (p Permission) allows(who Principal) bool {
	if who.Role != "" {
		return slices.Contains(permissions[p].roles, who.Role)
	}
	return slices.Contains(permissions[p].scopes, who.Scope)
}

// mayGrant reports whether the caller has every permission of another principal. Handlers call it so that a caller can
// create only credentials and members with at most its own permissions.
func mayGrant(caller, granted Principal) bool {
	for p := range permissions {
		if p.allows(granted) && !p.allows(caller) {
			return false
		}
	}
	return true
}
