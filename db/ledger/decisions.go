package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Verdict is an operator's decision about a reconciliation.
type Verdict struct {
	billing.Decision
	Actor metering.Actor
	Note  string // the operator's reason
}

// Decide stores an operator's decision and returns the resulting reconciliation. Repeating a decision changes
// nothing. Decide returns CodeNotFound if there is no such reconciliation, and CodeConflict if there is nothing
// to decide.
func (s Reconciliations) Decide(ctx context.Context, tenant metering.TenantID, key ReconciliationKey, v Verdict, now time.Time) (r Reconciled, err error) {
	err = pg.AtOneInstant(ctx, s.pool, func(tx pgx.Tx) error {
		if err := takeTurnOf(ctx, tx, "billing_periods", tenant, int64(key.Period)); err != nil {
			return err
		}
		if r, err = getReconciled(ctx, tx, tenant, key); err != nil {
			return err
		}
		if !slices.Contains(r.Decisions(), v.Decision) {
			return nothingToDecide(r.State)
		}
		if err := decide(ctx, tx, tenant, r, v, now); err != nil {
			return err
		}
		r, err = getReconciled(ctx, tx, tenant, key)
		return err
	})
	if err != nil {
		return Reconciled{}, fmt.Errorf("decide on reconciliation: %w", err)
	}
	return r, nil
}

// nothingToDecide returns CodeConflict if a reconciliation in this state needs no decision. It returns nil in
// the other states. In these, the reconciliation does not offer the requested decision because the decision is
// already in effect.
func nothingToDecide(state billing.ReconciliationState) error {
	switch state {
	case billing.ReconciliationOpen:
		return metering.Errorf(metering.CodeConflict, "there is nothing to decide: the period's last invoice is not final yet")
	case billing.ReconciliationAgreed:
		return metering.Errorf(metering.CodeConflict, "there is nothing to decide: the invoices bill the reported usage")
	}
	return nil
}

func getReconciled(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, key ReconciliationKey) (Reconciled, error) {
	found, err := readReconciled(ctx, tx, selectOneReconciled, pgx.NamedArgs{"tenant": tenant, "period": key.Period, "meter": key.Meter, "limit": 1})
	if err == nil && len(found) == 0 {
		err = metering.Errorf(metering.CodeNotFound, "there is no such reconciliation: the period is not closed, or no provider bills the meter in it")
	}
	if err != nil {
		return Reconciled{}, err
	}
	return found[0], nil
}

// decide appends the reconciliation that results from the decision. It marks the customer as out of sync, so
// that the next sync plans its billing again.
func decide(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, r Reconciled, v Verdict, now time.Time) error {
	after := r.Decide(v.Decision)
	if _, err := tx.Exec(ctx, `
		insert into billing_reconciliations (tenant_id, customer_id, period_id, meter_id, units, reported, invoiced, unexplained, elsewhere, billed, state, reason, actor, note, recorded_at)
		values (@tenant, @customer, @period, @meter, @units, @reported, @invoiced, @unexplained, @elsewhere, @billed, @state, @reason, @actor, @note, @now)`, pgx.NamedArgs{
		"tenant": tenant, "customer": r.CustomerID, "period": r.PeriodID, "meter": r.MeterID, "units": after.Units, "reported": after.Reported,
		"invoiced": after.Invoiced, "unexplained": after.Unexplained, "elsewhere": after.Elsewhere, "billed": after.Billed, "state": after.State, "reason": after.Reason,
		"actor": v.Actor, "note": v.Note, "now": metering.Instant(now),
	}); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `update customers set look_again_at = $3 where tenant_id = $1 and id = $2`, tenant, r.CustomerID, metering.Instant(now)); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `
		update billing_periods
		set watermark_configuration = ''
		where tenant_id = $1
		  and customer_id = $2
		  and closed_at is null
		  and watermark_configuration <> ''`, tenant, r.CustomerID); err != nil {
		return err
	}
	return audit.RecordDecision(ctx, tx, tenant, audit.Decision{Actor: v.Actor, Action: "reconciliation." + string(v.Decision), Resource: r.PeriodID.String() + " " + r.MeterID.String(), Reason: v.Note},
		audit.Fields{"state": r.State, "billed": r.Billed}, audit.Fields{"state": after.State, "billed": after.Billed})
}
