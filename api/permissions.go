package api

import (
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// Permission is what an operation asks of its caller.
type Permission string

const (
	Public Permission = "public" // no credentials

	EventsWrite    Permission = "events:write"
	EventsRead     Permission = "events:read"
	UsageRead      Permission = "usage:read"
	CustomersRead  Permission = "customers:read"
	CustomersWrite Permission = "customers:write"
	MetersRead     Permission = "meters:read"
	MetersWrite    Permission = "meters:write"
	QuotasRead     Permission = "quotas:read"
	QuotasWrite    Permission = "quotas:write"
	PricingRead    Permission = "pricing:read"
	PricingWrite   Permission = "pricing:write"
	BillingRead    Permission = "billing:read"
	BillingWrite   Permission = "billing:write"
	HooksRead      Permission = "webhooks:read"
	HooksWrite     Permission = "webhooks:write"
	KeysManage     Permission = "api_keys:manage" // API keys, HMAC secrets, audit log
	TenantManage   Permission = "tenant:manage"   // tenant settings, members
)

// Role is what a member of a tenant may do.
type Role string

const (
	Owner     Role = "owner"
	Admin     Role = "admin"
	Developer Role = "developer"
	Billing   Role = "billing"
	Viewer    Role = "viewer"
)

const (
	adm = metering.ScopeAdmin
	rw  = metering.ScopeReadWrite
	ro  = metering.ScopeReadOnly
	ink = metering.ScopeIngestOnly
)

type grant struct {
	scopes []metering.Scope
	roles  []Role
}

// permissions is the one table of who may do what.
var permissions = map[Permission]grant{
	EventsWrite:    {[]metering.Scope{adm, rw, ink}, []Role{Owner, Admin, Developer}},
	EventsRead:     {[]metering.Scope{adm, rw}, []Role{Owner, Admin, Developer, Billing}},
	UsageRead:      {[]metering.Scope{adm, rw, ro}, []Role{Owner, Admin, Developer, Billing, Viewer}},
	CustomersRead:  {[]metering.Scope{adm, rw, ro}, []Role{Owner, Admin, Developer, Billing, Viewer}},
	CustomersWrite: {[]metering.Scope{adm, rw}, []Role{Owner, Admin, Developer}},
	MetersRead:     {[]metering.Scope{adm, rw, ro}, []Role{Owner, Admin, Developer, Billing, Viewer}},
	MetersWrite:    {[]metering.Scope{adm, rw}, []Role{Owner, Admin, Developer}},
	QuotasRead:     {[]metering.Scope{adm, rw}, []Role{Owner, Admin, Developer, Billing}},
	QuotasWrite:    {[]metering.Scope{adm, rw}, []Role{Owner, Admin}},
	PricingRead:    {[]metering.Scope{adm}, []Role{Owner, Admin, Developer, Billing}},
	PricingWrite:   {[]metering.Scope{adm}, []Role{Owner, Admin, Billing}},
	BillingRead:    {[]metering.Scope{adm}, []Role{Owner, Admin, Billing}},
	BillingWrite:   {[]metering.Scope{adm}, []Role{Owner, Admin, Billing}},
	HooksRead:      {[]metering.Scope{adm}, []Role{Owner, Admin, Developer, Billing}},
	HooksWrite:     {[]metering.Scope{adm}, []Role{Owner, Admin, Developer}},
	KeysManage:     {[]metering.Scope{adm}, []Role{Owner, Admin}},
	TenantManage:   {[]metering.Scope{adm}, []Role{Owner}},
}

// allows says whether a key of that scope may do it.
func (p Permission) allows(scope metering.Scope) bool {
	return slices.Contains(permissions[p].scopes, scope)
}

// within says whether every permission of scope is also one of the other's, so
// that no credential makes one that can do more than itself.
func within(scope, other metering.Scope) bool {
	for p := range permissions {
		if p.allows(scope) && !p.allows(other) {
			return false
		}
	}
	return true
}
