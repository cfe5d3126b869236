package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// AutoSyncInput names the tenant, and how far earlier parts of the run have come.
type AutoSyncInput struct {
	TenantID  metering.TenantID   `json:"tenant_id"`
	After     metering.CustomerID `json:"after"`
	SoFar     MassResult          `json:"so_far"`
	Unindexed bool                `json:"unindexed"`
	Paused    bool                `json:"paused,omitempty"`
}

// AutoSync brings every customer whose usage the provider does not know of up
// to date, and then closes the periods that are due.
func AutoSync(ctx workflow.Context, in AutoSyncInput) (MassResult, error) {
	m := &mass{tenant: in.TenantID, unindexed: in.Unindexed, after: in.After, result: in.SoFar}
	m.paused = in.Paused
	more, err := m.pages(ctx, do.DueCustomers, "find who is due", m.sync)
	if more {
		in.After, in.SoFar, in.Paused = m.after, m.result, m.paused
		return m.result, workflow.NewContinueAsNewError(ctx, AutoSync, in)
	}
	if err != nil {
		return m.result, err
	}
	return m.result, m.startClosing(ctx)
}

// startClosing leaves the periods that are due to a run of their own.
func (m *mass) startClosing(ctx workflow.Context) error {
	var due activities.DuePageResult
	err := workflow.ExecuteActivity(storing(ctx, "look for periods to close"), do.DuePeriods,
		activities.DuePageInput{TenantID: m.tenant, Limit: 1}).Get(ctx, &due)
	if err != nil || !due.More {
		return err
	}
	return closePeriodStart(m.tenant).withoutAttributes(m.unindexed).apart(ctx)
}
