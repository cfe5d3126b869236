package workflows

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// ClosePeriodInput names the tenant, and how far earlier parts of the run have come.
type ClosePeriodInput struct {
	TenantID metering.TenantID   `json:"tenant_id"`
	After    metering.CustomerID `json:"after"`
	SoFar    MassResult          `json:"so_far"`
	Paused   bool                `json:"paused,omitempty"`
}

// ClosePeriod closes a tenant's billing periods whose end and grace are over:
// a last sync, and then the closing, which takes place only where the provider
// has acknowledged everything. What cannot be closed stays due.
func ClosePeriod(ctx workflow.Context, in ClosePeriodInput) (MassResult, error) {
	m := &mass{tenant: in.TenantID, unindexed: true, after: in.After, result: in.SoFar}
	m.paused = in.Paused
	more, err := m.pages(ctx, do.DuePeriods, "find periods to close", m.close)
	if more {
		in.After, in.SoFar, in.Paused = m.after, m.result, m.paused
		return m.result, workflow.NewContinueAsNewError(ctx, ClosePeriod, in)
	}
	return m.result, err
}

// closeTries is how often usage may overtake the closing before the period is
// left to the next run.
const closeTries = 3

func (m *mass) close(ctx workflow.Context, customers []metering.CustomerID) error {
	for try := 0; try < closeTries && len(customers) > 0; try++ {
		err := m.sync(ctx, customers)
		if code, _, ok := problemOf(err); err != nil && (!ok || code != string(metering.CodeNoProvider)) {
			return err // without a provider there is nobody to tell
		}
		var open []metering.CustomerID
		for few := range slices.Chunk(customers, customersPerChunk) {
			var closed activities.CloseChunkResult
			err := workflow.ExecuteActivity(storing(ctx, fmt.Sprintf("close %s to %s", few[0], few[len(few)-1])), do.CloseChunk,
				activities.SyncChunkInput{TenantID: m.tenant, Customers: few}).Get(ctx, &closed)
			if err != nil {
				return err
			}
			m.result.Closed += closed.Closed
			open = append(open, closed.Open...)
		}
		customers = open
		m.report(ctx)
	}
	m.result.Open += len(customers)
	m.report(ctx)
	return nil
}
