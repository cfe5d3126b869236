package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// AuditUsageInput contains the state that a previous run passes on.
type AuditUsageInput struct {
	After metering.TenantID `json:"after"`
	SoFar AuditUsageResult  `json:"so_far"`
}

// AuditUsageResult counts the work of a run.
type AuditUsageResult struct {
	Tenants       int `json:"tenants"`
	Discrepancies int `json:"discrepancies"`
}

// AuditUsage compares every tenant's usage of recent complete days with an independent count.
func AuditUsage(ctx workflow.Context, in AuditUsageInput) (AuditUsageResult, error) {
	for pages := 0; ; pages++ {
		if pages == pagesPerRun || longHistory(ctx) {
			return in.SoFar, workflow.NewContinueAsNewError(ctx, AuditUsage, in)
		}
		var found activities.AuditTenantsResult
		err := workflow.ExecuteActivity(longStep(ctx, "compare usage with the independent daily count"), do.AuditTenants,
			activities.AuditTenantsInput{After: in.After}).Get(ctx, &found)
		if err != nil {
			return in.SoFar, err
		}
		in.SoFar.Tenants += found.Tenants
		in.SoFar.Discrepancies += found.Discrepancies
		workflow.SetCurrentDetails(ctx, fmt.Sprintf("%d tenants, %d discrepancies", in.SoFar.Tenants, in.SoFar.Discrepancies))
		if in.After = found.Last; in.After == 0 {
			return in.SoFar, nil
		}
	}
}

// auditUsageStart returns the start of the daily AuditUsage run.
func auditUsageStart() start {
	return start{
		workflow: AuditUsage,
		input:    AuditUsageInput{},
		id:       "audit-usage",
		summary:  "Compare usage with the independent daily count",
		priority: background,
	}
}
