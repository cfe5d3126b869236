package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Unresolved is a reconciliation that is open, or that found a discrepancy and awaits a decision.
type Unresolved struct {
	PeriodID  metering.PeriodID
	Period    metering.Range
	MeterID   metering.MeterID
	MeterSlug string
	State     billing.ReconciliationState
	Reason    billing.ReconciliationReason
	Units     metering.Decimal  // the units, or the money, with which the period closed
	Invoiced  *metering.Decimal // the units, or the money, on final invoices; nil if the reconciliation is open
}

// Unresolved returns up to limit of a customer's reconciliations that are open or await a decision, newest
// periods first.
func (s Reconciliations) Unresolved(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, limit int) ([]Unresolved, error) {
	rows, err := s.pool.Query(ctx, `
		select p.id, p.starts_at, p.ends_at, t.meter_id, m.slug, coalesce(r.state, 'open'), coalesce(r.reason, ''), coalesce(r.units, case p.bills when 'amounts' then t.charge end, round(t.usage, t.scale), t.usage), r.invoiced
		from (
		  select *
		  from billing_periods
		  where tenant_id = @tenant
		    and customer_id = @customer
		    and closed_at is not null
		    and exists (select from billing_connections where tenant_id = @tenant and invoices)
		  offset 0) p
		join billing_period_totals t on t.tenant_id = p.tenant_id and t.period_id = p.id and t.billed
		left join meters m on m.tenant_id = t.tenant_id and m.id = t.meter_id and t.component = 'usage'
		`+lastReconciliation+`
		where r.id is null and t.unreconciled
		  or r.state <> 'agreed' and r.actor = ''
		order by p.starts_at desc, t.meter_key
		limit @limit`, pgx.NamedArgs{"tenant": tenant, "customer": customer, "limit": limit})
	if err != nil {
		return nil, fmt.Errorf("list unresolved reconciliations: %w", pg.Coded(err))
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (u Unresolved, err error) {
		return u, row.Scan(&u.PeriodID, &u.Period.Start, &u.Period.End, &u.MeterID, &u.MeterSlug, &u.State, &u.Reason, &u.Units, &u.Invoiced)
	})
	if err != nil {
		return nil, fmt.Errorf("list unresolved reconciliations: %w", pg.Coded(err))
	}
	return list, nil
}
