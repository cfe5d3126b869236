package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/metering"
)

// AuditTenantsInput selects the next page of tenants.
type AuditTenantsInput struct {
	After metering.TenantID `json:"after"`
}

// AuditTenantsResult counts the work for a page of tenants. The next page begins after Last. Last
// is 0 on the last page.
type AuditTenantsResult struct {
	Tenants       int               `json:"tenants"`
	Discrepancies int               `json:"discrepancies"`
	Last          metering.TenantID `json:"last"`
}

const (
	tenantsPerAudit = 20
	daysPerAudit    = 7
)

// AuditTenants compares the rollups of each tenant's last complete days with the independent daily
// count. It stores the discrepancies that a recount of the events confirms.
func (a *Activities) AuditTenants(ctx context.Context, in AuditTenantsInput) (AuditTenantsResult, error) {
	defer sendHeartbeats(ctx)()
	tenants, err := a.store.Tenants.After(ctx, in.After, tenantsPerAudit)
	if err != nil {
		return AuditTenantsResult{}, err
	}
	var result AuditTenantsResult
	today := a.now().UTC().Truncate(24 * time.Hour)
	for _, tenant := range tenants {
		for back := 1; back <= daysPerAudit; back++ {
			day := today.AddDate(0, 0, -back)
			found, err := a.store.Discrepancies.Audit(ctx, tenant, day, a.now())
			if err != nil {
				return AuditTenantsResult{}, err
			}
			if found > 0 {
				activity.GetLogger(ctx).Error("totals and events differ for a day of a meter", "tenant", tenant.String(), "day", day.Format(time.DateOnly), "rows", found)
			}
			result.Discrepancies += found
		}
		result.Tenants++
	}
	if len(tenants) == tenantsPerAudit {
		result.Last = tenants[len(tenants)-1]
	}
	return result, nil
}
