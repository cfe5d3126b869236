package activities

import (
	"context"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// CustomerInput names a customer.
type CustomerInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	CustomerID metering.CustomerID `json:"customer_id"`
}

// BeginSyncResult names the pass. How many requests it answers has no bound, so
// that the result holds their number only.
type BeginSyncResult struct {
	PassID   uuid.UUID `json:"pass_id"`
	Requests int       `json:"requests"`
	After    int64     `json:"after"`            // the number of the customer's last report before the pass
	Reads    bool      `json:"reads"`            // the customer's state at the provider has to be read
	Paused   bool      `json:"paused,omitempty"` // an operator keeps the customer from being reported: no request was taken
	Page     string    `json:"page,omitempty"`   // of the customer in the API; "": it is not known where that is
}

// BeginSync takes all open requests of the customer.
func (a *Activities) BeginSync(ctx context.Context, in CustomerInput) (BeginSyncResult, error) {
	defer alive(ctx)()
	begun, err := a.store.Syncs.Begin(ctx, in.TenantID, in.CustomerID, a.now())
	return BeginSyncResult{begun.PassID, begun.Requests, begun.After, begun.Reads, begun.Paused, a.pageOf(in.CustomerID)}, err
}

// PlanReportsInput names the customer and the pass.
type PlanReportsInput struct {
	CustomerInput
	After    int64              `json:"after"`
	Excluded []metering.MeterID `json:"excluded,omitempty"` // meters that stay as they were reported
	PassID   uuid.UUID          `json:"pass_id"`            // the excluded meters are recorded for its requests
}

// PlanReportsResult is what there is to send, if anything. Why meters are left
// out stays in the database: it names what is the customer's at the provider.
type PlanReportsResult struct {
	ReadFirst bool        `json:"read_first,omitempty"` // the customer's state at the provider has to be read: nothing else was planned
	Send      []Report    `json:"send"`
	More      bool        `json:"more"` // there may be other reports once these are decided
	UpToDate  []uuid.UUID `json:"up_to_date"`
}

// Report names what is to be sent; to whom it goes, and its bytes, stay in the
// database.
type Report struct {
	ID          uuid.UUID         `json:"id"`
	Number      int64             `json:"number"`
	Kind        billing.Kind      `json:"kind"`
	MeterID     metering.MeterID  `json:"meter_id,omitempty"`
	Method      billing.Method    `json:"method,omitempty"`
	Quantity    *metering.Decimal `json:"quantity,omitempty"`
	PeriodStart time.Time         `json:"period_start"`
	PeriodEnd   time.Time         `json:"period_end"`
	Deadline    time.Time         `json:"deadline"`
}

// PlanReports plans what the provider is to be reported next, and writes it down.
func (a *Activities) PlanReports(ctx context.Context, in PlanReportsInput) (PlanReportsResult, error) {
	defer alive(ctx)()
	pass := db.Pass{After: in.After, Excluded: in.Excluded}
	planned, err := a.store.Ledger.Plan(ctx, in.TenantID, in.CustomerID, pass, a.providers.Frame, a.now())
	if err != nil {
		return PlanReportsResult{}, err
	}
	return planOf(planned), a.store.Syncs.Exclude(ctx, in.TenantID, in.CustomerID, in.PassID, planned.Excluded)
}

func planOf(planned db.Planned) PlanReportsResult {
	plan := PlanReportsResult{ReadFirst: planned.ReadFirst, More: planned.More, UpToDate: planned.UpToDate}
	for _, r := range planned.Send {
		plan.Send = append(plan.Send, Report{r.ID, r.Number, r.Kind, r.Meter, r.Method, r.Quantity, r.Period.Start, r.Period.End, r.Deadline})
	}
	return plan
}

// FinishSyncInput is how a pass ended.
type FinishSyncInput struct {
	CustomerInput
	PassID  uuid.UUID   `json:"pass_id"`
	Error   string      `json:"error"`
	Reports []uuid.UUID `json:"reports"`
}

// FinishSyncResult reports whether other requests are open, and which of the customer's
// closed periods are not settled with the provider's invoices.
type FinishSyncResult struct {
	More       bool         `json:"more"`
	Unresolved []Unresolved `json:"unresolved,omitempty"`
}

// Unresolved is a closed period's meter of which invoices bill something else, or
// are not known to bill anything.
type Unresolved struct {
	MeterID     metering.MeterID            `json:"meter_id"`
	PeriodStart time.Time                   `json:"period_start"`
	PeriodEnd   time.Time                   `json:"period_end"`
	State       billing.ReconciliationState `json:"state"`
	Reason      string                      `json:"reason,omitempty"`
	Units       metering.Decimal            `json:"units"`
	Invoiced    *metering.Decimal           `json:"invoiced,omitempty"`
}

// unresolvedShown bounds what a run shows of these; the API lists them all.
const unresolvedShown = 10

// FinishSync answers the requests that the pass took.
func (a *Activities) FinishSync(ctx context.Context, in FinishSyncInput) (FinishSyncResult, error) {
	defer alive(ctx)()
	answer := db.Answer{Error: in.Error, Reports: in.Reports}
	finished, err := a.store.Syncs.Finish(ctx, in.TenantID, in.CustomerID, in.PassID, answer, a.now())
	if err := a.metrics.synced(in.Error, finished.Requests, err); err != nil {
		return FinishSyncResult{}, err
	}
	result := FinishSyncResult{More: finished.More}
	unresolved, err := a.store.Reconciliations.Unresolved(ctx, in.TenantID, in.CustomerID, unresolvedShown)
	if err != nil { // the requests are answered without it
		activity.GetLogger(ctx).Warn("the worker cannot read the unresolved reconciliations", "error", err)
	}
	for _, u := range unresolved {
		result.Unresolved = append(result.Unresolved, Unresolved{u.MeterID, u.Period.Start, u.Period.End, u.State, u.Reason, u.Units, u.Invoiced})
	}
	return result, nil
}
