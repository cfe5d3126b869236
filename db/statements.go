package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Statements returns the customer's chain of billing periods with what each
// comes to, newest first: up to limit of those that begin before `before`.
func (l Ledger) Statements(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, before time.Time, limit int) (list []metering.PeriodStatement, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		p, err := readPayer(ctx, tx, tenant, customer, "")
		if err != nil {
			return err
		}
		b := bill{ctx: ctx, tx: tx, tenant: tenant, payer: p}
		if b.prices, err = allPrices(ctx, tx, tenant); err != nil {
			return err
		}
		chain, err := readPeriods(ctx, tx, tenant, customer)
		if err != nil {
			return err
		}
		list = nil
		for i := len(chain) - 1; i >= 0 && len(list) < limit; i-- {
			if !chain[i].Start.Before(before) {
				continue
			}
			lines, err := b.statement(chain[i])
			if err != nil {
				return err
			}
			list = append(list, metering.PeriodStatement{Period: chain[i], DueAt: chain[i].Deadline(p.grace), Lines: lines})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read billing periods: %w", err)
	}
	return list, nil
}

func (b *bill) statement(period metering.Period) ([]metering.PeriodLine, error) {
	if period.FrozenAt != nil {
		return b.frozenStatement(period)
	}
	all, err := b.figures(period)
	if err != nil {
		return nil, err
	}
	var lines []metering.PeriodLine
	for _, l := range toTell(all) {
		lines = append(lines, metering.PeriodLine{
			MeterID: l.meter, MeterSlug: l.slug, Usage: l.cumulative, EventCount: l.events, Charge: l.charge, Currency: l.currency, Price: l.priceVersion,
		})
	}
	return lines, nil
}

func (b *bill) frozenStatement(period metering.Period) ([]metering.PeriodLine, error) {
	frozen, err := periodTotals(b.ctx, b.tx, b.tenant, period.ID)
	if err != nil {
		return nil, err
	}
	meters, err := collectMeters(b.ctx, b.tx, `order by m.id`, b.tenant)
	if err != nil {
		return nil, err
	}
	late, err := totalsOf(b.ctx, b.tx, b.tenant, b.payer.id, meters, period.Range, lateOnly)
	if err != nil {
		return nil, err
	}
	var lines []metering.PeriodLine
	for _, t := range late {
		then, known := frozen[t.Meter.ID]
		if !known {
			continue // it came later
		}
		now := b.adjustment(period, t, then, billed{})
		lines = append(lines, metering.PeriodLine{
			MeterID: t.Meter.ID, MeterSlug: t.Meter.Slug, Usage: then.usage, EventCount: then.events, Charge: then.charge,
			Currency: then.currency, Price: then.priceVersion, Billed: then.billed, LateUsage: t.Usage, LateCharge: now.amount,
		})
	}
	return lines, nil
}

// Revenue is an estimate of a month's charges in one currency.
type Revenue struct {
	Month     time.Time
	Currency  string
	Amount    metering.Decimal
	Customers int64
}

// Revenue estimates what each month of the range comes to, by currency, newest
// first: every customer's usage of the calendar month at the prices in force
// at its start. Customers without usage in a month are charged nothing in this
// estimate, whatever the base price.
func (l Ledger) Revenue(ctx context.Context, tenant metering.TenantID, r metering.Range) (months []Revenue, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		rates, err := monthlyRates(ctx, tx, tenant, r)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			with rates as (
			  select *
			  from unnest($2::bigint[], $3::timestamptz[], $4::numeric[], $5::numeric[], $6::numeric[], $7::text[], $8::int[], $9::boolean[])
			    as r (generation_id, month, base, included, rate, currency, digits, counts)),
			used as (
			  select u.customer_id, u.generation_id, u.month, sum(u.sum + u.late_sum) as sum, sum(u.count + u.late_count) as count
			  from usage_monthly u
			  where u.tenant_id = $1
			    and u.customer_id > 0
			    and u.generation_id = any($2)
			    and u.month = any($3)
			  group by 1, 2, 3)
			select used.month, rates.currency,
			  sum(round(rates.base + greatest(0, case when rates.counts then used.count else used.sum end - rates.included) * rates.rate, rates.digits)),
			  count(distinct used.customer_id)
			from used
			join rates using (generation_id, month)
			group by 1, 2
			order by 1 desc, 2`, append([]any{tenant}, rates.arrays()...)...)
		if err != nil {
			return err
		}
		months, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Revenue])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("estimate revenue: %w", err)
	}
	return months, nil
}

// rates are the prices of each month, in columns.
type rates struct {
	generations                    []int64
	months                         []time.Time
	base, included, rate, currency []string
	digits                         []int32
	counts                         []bool
}

func (r *rates) arrays() []any {
	return []any{r.generations, r.months, r.base, r.included, r.rate, r.currency, r.digits, r.counts}
}

func monthlyRates(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, span metering.Range) (*rates, error) {
	meters, err := collectMeters(ctx, tx, `order by m.id`, tenant)
	if err != nil {
		return nil, err
	}
	prices, err := allPrices(ctx, tx, tenant)
	if err != nil {
		return nil, err
	}
	all := new(rates)
	for _, m := range meters {
		zone := metering.Location(m.Generation.Zone)
		for month := metering.CalendarPeriod(span.Start, zone); month.Start.Before(span.End); month = metering.CalendarPeriod(month.End, zone) {
			price, priced := metering.PriceAt(prices[m.ID], month.Start)
			if !priced || m.Generation.Status == metering.Filling {
				continue
			}
			all.generations, all.months = append(all.generations, int64(m.Generation.ID)), append(all.months, month.Start)
			all.base, all.included = append(all.base, price.BasePrice.String()), append(all.included, price.IncludedUnits.String())
			all.rate, all.currency = append(all.rate, price.OverageRate.String()), append(all.currency, price.Currency)
			all.digits = append(all.digits, metering.MinorDigits(price.Currency))
			all.counts = append(all.counts, m.Generation.Aggregation == metering.Count)
		}
	}
	return all, nil
}
