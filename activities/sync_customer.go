package activities

import (
	"context"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/billing/passes"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// CustomerInput names a customer.
type CustomerInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	CustomerID metering.CustomerID `json:"customer_id"`
}

// BeginSyncResult describes a pass. It contains the number of requests instead of their ids,
// because a pass may answer any number of requests.
type BeginSyncResult struct {
	PassID   uuid.UUID `json:"pass_id"`
	Requests int       `json:"requests"`
	After    int64     `json:"after"`            // the number of the customer's last report before the pass
	Reads    bool      `json:"reads"`            // the customer's state at the provider has to be read
	Paused   bool      `json:"paused,omitempty"` // an operator paused the customer: no request was taken
	Page     string    `json:"page,omitempty"`   // the customer's URL in the API; "": unknown
}

// BeginSync takes all open requests of the customer for a new pass.
func (a *Activities) BeginSync(ctx context.Context, in CustomerInput) (BeginSyncResult, error) {
	defer sendHeartbeats(ctx)()
	begun, err := a.store.Syncs.Begin(ctx, in.TenantID, in.CustomerID, a.now())
	return BeginSyncResult{begun.PassID, begun.Requests, begun.After, begun.Reads, begun.Paused, a.pageOf(in.CustomerID)}, err
}

// PlanReportsInput names the customer and the pass.
type PlanReportsInput struct {
	CustomerInput
	After    int64              `json:"after"`
	Excluded []metering.MeterID `json:"excluded,omitempty"` // meters that operators excluded
	PassID   uuid.UUID          `json:"pass_id"`            // pass for which the excluded meters are recorded
}

// PlanReports plans and stores the next reports. It also records the excluded meters for the syncs of the pass.
func (a *Activities) PlanReports(ctx context.Context, in PlanReportsInput) (passes.Plan, error) {
	defer sendHeartbeats(ctx)()
	pass := ledger.Pass{After: in.After, Excluded: in.Excluded}
	planned, err := a.store.Ledger.Plan(ctx, in.TenantID, in.CustomerID, pass, a.providers.Frame, a.now())
	if err != nil {
		return passes.Plan{}, err
	}
	return planOf(planned), a.store.Syncs.Exclude(ctx, in.TenantID, in.CustomerID, in.PassID, planned.Excluded)
}

// planOf returns the stored plan as the steps of a pass use it.
func planOf(planned ledger.Planned) passes.Plan {
	plan := passes.Plan{ReadFirst: planned.ReadFirst, More: planned.More, UpToDate: planned.UpToDate}
	for _, r := range planned.Send {
		plan.Send = append(plan.Send, passes.Report{
			ID: r.ID, Number: r.Number, Kind: r.Kind, MeterID: r.Meter, Method: r.Method, Quantity: r.Quantity,
			PeriodStart: r.Period.Start, PeriodEnd: r.Period.End, Deadline: r.Deadline,
		})
	}
	return plan
}

// FinishSyncInput contains the result of a pass.
type FinishSyncInput struct {
	CustomerInput
	PassID  uuid.UUID   `json:"pass_id"`
	Error   string      `json:"error"`
	Reports []uuid.UUID `json:"reports"`
}

// FinishSyncResult reports whether more requests are open, and lists unresolved reconciliations of
// closed periods.
type FinishSyncResult struct {
	More       bool         `json:"more"`
	Unresolved []Unresolved `json:"unresolved,omitempty"`
}

// Unresolved is a meter of a closed period for which the invoices bill a different quantity, or the
// billed quantity is unknown.
type Unresolved struct {
	MeterID     metering.MeterID            `json:"meter_id"`
	PeriodStart time.Time                   `json:"period_start"`
	PeriodEnd   time.Time                   `json:"period_end"`
	State       billing.ReconciliationState `json:"state"`
	billing.Text
	Units    metering.Decimal  `json:"units"`
	Invoiced *metering.Decimal `json:"invoiced,omitempty"`
}

// unresolvedShown bounds the number of unresolved reconciliations that a run shows. The API lists
// all.
const unresolvedShown = 10

// FinishSync answers the requests of the pass, and returns the customer's unresolved reconciliations.
func (a *Activities) FinishSync(ctx context.Context, in FinishSyncInput) (FinishSyncResult, error) {
	defer sendHeartbeats(ctx)()
	answer := ledger.Answer{Error: in.Error, Reports: in.Reports}
	finished, err := a.store.Syncs.Finish(ctx, in.TenantID, in.CustomerID, in.PassID, answer, a.now())
	if err := a.metrics.countSyncs(in.Error, finished.Requests, err); err != nil {
		return FinishSyncResult{}, err
	}
	result := FinishSyncResult{More: finished.More}
	unresolved, err := a.store.Reconciliations.Unresolved(ctx, in.TenantID, in.CustomerID, unresolvedShown)
	if err != nil { // the requests are already answered
		activity.GetLogger(ctx).Warn("the worker cannot read the unresolved reconciliations", "error", err)
	}
	for _, u := range unresolved {
		result.Unresolved = append(result.Unresolved, Unresolved{u.MeterID, u.Period.Start, u.Period.End, u.State, u.Reason.Text(), u.Units, u.Invoiced})
	}
	return result, nil
}
