package activities

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// BeginSyncInput names the customer whose requests a pass takes.
type BeginSyncInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	CustomerID metering.CustomerID `json:"customer_id"`
}

// BeginSyncResult is what the pass answers.
type BeginSyncResult struct {
	Syncs []uuid.UUID `json:"syncs"`
	After int64       `json:"after"` // the last sequence used before the pass

	Statements bool  `json:"statements,omitempty"`  // they are what the provider takes
	AfterEntry int64 `json:"after_entry,omitempty"` // the last number of an entry given before the pass
}

// BeginSync takes all open requests of the customer.
func (a *Activities) BeginSync(ctx context.Context, in BeginSyncInput) (BeginSyncResult, error) {
	defer alive(ctx)()
	pass, err := a.store.Syncs.Begin(ctx, in.TenantID, in.CustomerID, a.now())
	return BeginSyncResult(pass), err
}

// PrepareSnapshotInput names the customer and the pass.
type PrepareSnapshotInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	CustomerID metering.CustomerID `json:"customer_id"`
	After      int64               `json:"after"`
	Hold       []metering.MeterID  `json:"hold,omitempty"` // meters that stay as the provider knows them
}

// PrepareSnapshotResult is what there is to send, if anything.
type PrepareSnapshotResult struct {
	Send     *Snapshot   `json:"send"`
	UpToDate []uuid.UUID `json:"up_to_date"`
	Skipped  []Skipped   `json:"skipped"`
}

// Snapshot names a stored message; its bytes stay in the database.
type Snapshot struct {
	ID          uuid.UUID `json:"id"`
	Sequence    int64     `json:"sequence"`
	PeriodStart time.Time `json:"period_start"`
	PeriodEnd   time.Time `json:"period_end"`
	Deadline    time.Time `json:"deadline"`
}

// Skipped is a meter that is left out, and why.
type Skipped struct {
	MeterID metering.MeterID `json:"meter_id"`
	Reason  string           `json:"reason"`
}

// PrepareSnapshot writes down what the provider is to be told next.
func (a *Activities) PrepareSnapshot(ctx context.Context, in PrepareSnapshotInput) (PrepareSnapshotResult, error) {
	defer alive(ctx)()
	prepared, err := a.store.Ledger.PrepareSnapshot(ctx, in.TenantID, in.CustomerID, in.After, a.providers.Frame, a.now(), in.Hold...)
	if err != nil {
		return PrepareSnapshotResult{}, err
	}
	out := PrepareSnapshotResult{UpToDate: prepared.UpToDate}
	for _, skipped := range prepared.Skipped {
		out.Skipped = append(out.Skipped, Skipped{skipped.MeterID, skipped.Reason})
	}
	if s := prepared.Send; s != nil {
		out.Send = &Snapshot{s.ID, s.Sequence, s.Period.Start, s.Period.End, s.Deadline}
	}
	return out, nil
}

// DeliverSnapshotInput names the snapshot to send.
type DeliverSnapshotInput struct {
	TenantID   metering.TenantID `json:"tenant_id"`
	SnapshotID uuid.UUID         `json:"snapshot_id"`
}

// DeliverSnapshotResult is what the receiver answered.
type DeliverSnapshotResult struct {
	Answer string `json:"answer"`
}

// DeliverSnapshot sends the snapshot's stored bytes once. That it may have
// been sent is committed first.
func (a *Activities) DeliverSnapshot(ctx context.Context, in DeliverSnapshotInput) (DeliverSnapshotResult, error) {
	defer alive(ctx)()
	delivery, err := a.store.Ledger.MarkSent(ctx, in.TenantID, in.SnapshotID, a.now(), a.lease())
	if err != nil {
		return DeliverSnapshotResult{}, err
	}
	answer, err := a.attempt(ctx, in, delivery)
	return DeliverSnapshotResult{answer}, err
}

// attempt sends a snapshot that is leased to the caller, and ends the lease
// where that brings no decision.
func (a *Activities) attempt(ctx context.Context, in DeliverSnapshotInput, d db.Delivery) (answer string, err error) {
	answer, err = a.deliver(ctx, in, d)
	if err == nil {
		return answer, nil
	}
	released := a.store.Ledger.Release(context.WithoutCancel(ctx), in.TenantID, in.SnapshotID, d.Attempt, problemText(err))
	return "", errors.Join(err, released)
}

func (a *Activities) deliver(ctx context.Context, in DeliverSnapshotInput, d db.Delivery) (string, error) {
	p, err := a.open(in.TenantID, d.Provider)
	if err != nil {
		return "", err
	}
	return measured(a.metrics, p.Kind, func() (string, error) {
		outcome := p.Send(ctx, p.credentials, providers.Sending{
			Series: billing.Series{Kind: billing.StatementReport, Account: d.Provider.Account}, ReportID: in.SnapshotID, Body: d.Body, Now: a.now(),
		})
		return outcome.Answer, outcome.Err
	})
}

// SettleSnapshotInput is the provider's decision. Refusal says why it was
// refused; "" means that it was taken, as Answer says.
type SettleSnapshotInput struct {
	TenantID   metering.TenantID `json:"tenant_id"`
	SnapshotID uuid.UUID         `json:"snapshot_id"`
	Answer     string            `json:"answer"`
	Refusal    string            `json:"refusal"`
}

// SettleSnapshot records the provider's decision.
func (a *Activities) SettleSnapshot(ctx context.Context, in SettleSnapshotInput) error {
	defer alive(ctx)()
	outcome, answer := db.Acknowledged, in.Answer
	if in.Refusal != "" {
		outcome, answer = db.Rejected, in.Refusal
	}
	err := a.store.Ledger.Settle(ctx, in.TenantID, in.SnapshotID, outcome, answer, a.now())
	return a.metrics.settled("snapshot", string(outcome), err)
}

// FinishSyncInput is how a pass ended.
type FinishSyncInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	CustomerID metering.CustomerID `json:"customer_id"`
	Syncs      []uuid.UUID         `json:"syncs"`
	Problem    string              `json:"problem"`
	Snapshots  []uuid.UUID         `json:"snapshots"`
	Entries    []uuid.UUID         `json:"entries,omitempty"`
	Skipped    []Skipped           `json:"skipped"`
}

// FinishSyncResult says whether other requests have come meanwhile.
type FinishSyncResult struct {
	More bool `json:"more"`
}

// FinishSync answers the requests that the pass took.
func (a *Activities) FinishSync(ctx context.Context, in FinishSyncInput) (FinishSyncResult, error) {
	defer alive(ctx)()
	answer := db.Answer{Syncs: in.Syncs, Problem: in.Problem, Snapshots: in.Snapshots, Entries: in.Entries}
	for _, skipped := range in.Skipped {
		answer.Skipped = append(answer.Skipped, metering.SkippedMeter{MeterID: skipped.MeterID, Reason: skipped.Reason})
	}
	more, err := a.store.Syncs.Finish(ctx, in.TenantID, in.CustomerID, answer, a.now())
	return FinishSyncResult{more}, a.metrics.synced(in.Problem, len(in.Syncs), err)
}
