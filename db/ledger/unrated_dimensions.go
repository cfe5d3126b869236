package ledger

import (
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// closedUnpriced reads the usage of closed periods with dimension values that the price of the period does not
// charge. It includes late usage that is booked as an adjustment.
func (b *unratedBatch) closedUnpriced() error {
	rows, err := b.tx.Query(b.ctx, `
		select p.customer_id, p.starts_at, p.ends_at, p.stream, t.meter_id, m.slug, x.terms, coalesce(a.dimensions, t.dimensions)
		from billing_periods p
		join billing_period_totals t on t.tenant_id = p.tenant_id and t.period_id = p.id and not t.trial
		join price_terms x on x.tenant_id = t.tenant_id and x.hash = t.terms and x.schema = 1 and x.terms ? 'dimensions'
		join meters m on m.tenant_id = p.tenant_id and m.id = t.meter_id
		left join lateral (
		  select a.dimensions
		  from billing_adjustments a
		  where a.tenant_id = p.tenant_id
		    and a.customer_id = p.customer_id
		    and a.period_id = p.id
		    and a.meter_key = t.meter_key
		    and a.component = t.component
		  order by a.id desc
		  limit 1) a on true
		where p.tenant_id = @tenant
		  and p.customer_id = any(@customers)
		  and p.closed_at is not null
		  and p.ends_at > @since
		  and coalesce(a.dimensions, t.dimensions) is not null`,
		pgx.NamedArgs{"tenant": b.tenant, "customers": b.ids, "since": b.months[0]})
	if err != nil {
		return err
	}
	var (
		customer metering.CustomerID
		line     billing.UnratedLine
	)
	terms, dimensions := new(billing.Terms), new([]billing.DimensionUsage)
	_, err = pgx.ForEachRow(rows, []any{&customer, &line.Period.Start, &line.Period.End, &line.Stream, &line.MeterID, &line.MeterSlug, &terms, &dimensions}, func() error {
		found := line
		found.State, found.Reason = billing.PeriodClosed, billing.UnpricedDimension
		if found.Usage, found.Events = terms.UnratedUsage(*dimensions); found.Events > 0 {
			b.closed[customer] = append(b.closed[customer], found)
		}
		terms, dimensions = new(billing.Terms), new([]billing.DimensionUsage)
		return nil
	})
	return err
}
