package access

import "github.com/odometer-metering/odometer/metering"

// TenantColumns are the columns of a tenant t, in the order of TenantFields.
const TenantColumns = `t.id, t.name, t.timezone, t.currency, t.grace, t.late_policy, t.requests_per_minute, t.strict, t.idempotency_conflicts, t.v1_bodyless_writes, t.invoice_hold, t.invoice_hold_deadline, t.created_at`

// TenantFields returns the destinations of TenantColumns in a Scan.
func TenantFields(t *metering.Tenant) []any {
	return []any{&t.ID, &t.Name, &t.Timezone, &t.Currency, &t.Grace, &t.LatePolicy, &t.RequestsPerMinute, &t.Strict, &t.KeyConflicts, &t.V1BodylessWrites, &t.InvoiceHold.Enabled, &t.InvoiceHold.Deadline, &t.CreatedAt}
}
