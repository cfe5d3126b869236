package db

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Prepared is what there is to tell the provider about a customer.
type Prepared struct {
	Send     *Snapshot   // nil: nothing
	Last     bool        // once Send is settled, nothing is left to tell in this pass
	UpToDate []uuid.UUID // acknowledged snapshots that still hold
	Skipped  []metering.SkippedMeter
}

// Snapshot is one stored message to the provider.
type Snapshot struct {
	ID       uuid.UUID
	Sequence int64
	Period   metering.Range
	Deadline time.Time // until when it is worth trying
	Body     []byte
}

// PrepareSnapshot returns the customer's unsettled snapshot or makes the next
// one, as planned. Snapshots with a sequence above after belong to the caller's
// own pass. Meters to hold stay in it as they were acknowledged last.
func (l Ledger) PrepareSnapshot(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, after int64, frame Frame, now time.Time, hold ...metering.MeterID) (prepared Prepared, err error) {
	err = l.planned(ctx, tenant, customer, now, passOf(after, hold), func(w *planWriter, plan billing.Plan) error {
		prepared, err = w.prepareSnapshot(plan, frame)
		return err
	})
	if err != nil {
		return Prepared{}, fmt.Errorf("prepare snapshot: %w", err)
	}
	return prepared, nil
}

func passOf(after int64, excluded []metering.MeterID) func(*billing.Facts) {
	return func(f *billing.Facts) { f.After, f.Excluded = after, excluded }
}

// TakeSnapshot is PrepareSnapshot and MarkSent in one transaction, for a
// caller who sends the snapshot at once.
func (l Ledger) TakeSnapshot(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, after int64, frame Frame, now time.Time, lease time.Duration) (prepared Prepared, d Delivery, err error) {
	err = l.planned(ctx, tenant, customer, now, passOf(after, nil), func(w *planWriter, plan billing.Plan) error {
		if prepared, err = w.prepareSnapshot(plan, frame); err != nil || prepared.Send == nil {
			return err
		}
		if err := w.flush(); err != nil {
			return err
		}
		d, err = markSent(ctx, w.tx, tenant, prepared.Send.ID, now, lease)
		return err
	})
	if err != nil {
		return Prepared{}, Delivery{}, fmt.Errorf("take snapshot: %w", err)
	}
	return prepared, d, nil
}

func (w *planWriter) prepareSnapshot(plan billing.Plan, frame Frame) (prepared Prepared, err error) {
	switch {
	case w.facts.Connection == nil:
		return prepared, errNoProvider
	case !w.facts.Connection.Statements:
		return prepared, metering.Errorf(metering.CodeConflict, "the billing provider was replaced; sync again")
	case !plan.BusyUntil.IsZero():
		return prepared, busyElsewhere(plan.BusyUntil.Sub(w.facts.Now))
	case len(plan.Resume) > 0:
		prepared.Send, err = w.unsettled(plan.Resume[0])
		return prepared, err
	}
	prepared.UpToDate, prepared.Skipped = plan.UpToDate, skippedOf(plan.Excluded)
	for _, r := range plan.Reports {
		sequence, err := lastSequence(w.ctx, w.tx, w.tenant, w.customer)
		if err != nil {
			return prepared, err
		}
		if prepared.Send, err = w.statement(r, sequence+1, frame); err != nil {
			return prepared, err
		}
		prepared.Last = !plan.More
	}
	return prepared, nil
}

func skippedOf(excluded []billing.Exclusion) (skipped []metering.SkippedMeter) {
	for _, e := range excluded {
		skipped = append(skipped, metering.SkippedMeter(e))
	}
	return skipped
}

// busyElsewhere says that somebody is sending a report to a former connection.
func busyElsewhere(wait time.Duration) error {
	return metering.Errorf(metering.CodeOverloaded, "a report is being sent to the former provider").Because(Busy{wait})
}

// unsettled returns a snapshot that has to be settled before another is made.
func (w *planWriter) unsettled(id uuid.UUID) (*Snapshot, error) {
	s := Snapshot{ID: id}
	err := w.tx.QueryRow(w.ctx, `
		select s.sequence, s.body, p.starts_at, p.ends_at
		from billing_snapshots s
		join billing_periods p on p.tenant_id = s.tenant_id and p.id = s.period_id
		where s.tenant_id = $1
		  and s.id = $2`, w.tenant, id).Scan(&s.Sequence, &s.Body, &s.Period.Start, &s.Period.End)
	s.Deadline = s.Period.End.Add(w.facts.Settings.Grace)
	return &s, err
}

// lastSequence is the highest sequence that the customer's snapshots have used.
func lastSequence(ctx context.Context, q querier, tenant metering.TenantID, customer metering.CustomerID) (sequence int64, err error) {
	err = q.QueryRow(ctx, `
		select coalesce(max(sequence), 0)
		from billing_snapshots
		where tenant_id = $1
		  and customer_id = $2`, tenant, customer).Scan(&sequence)
	return sequence, err
}
