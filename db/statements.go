package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Statements returns the customer's chain of billing periods, as it is or would
// be now, with what each comes to, newest first: up to limit of those that
// begin before `before`.
func (l Ledger) Statements(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, before time.Time, limit int, now time.Time) (list []metering.PeriodStatement, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		p, err := readPayer(ctx, tx, tenant, customer, "")
		if err != nil {
			return err
		}
		b := bill{ctx: ctx, tx: tx, tenant: tenant, payer: p}
		if b.prices, err = allPrices(ctx, tx, tenant); err != nil {
			return err
		}
		chain, err := chainNow(ctx, tx, tenant, p, now)
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
	if period.ClosedAt != nil {
		return b.closedStatement(period)
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

func (b *bill) closedStatement(period metering.Period) ([]metering.PeriodLine, error) {
	late, frozen, err := b.lateUsage(period)
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

// Adjustments are what late usage adds to the customer's closed periods, as the
// period that now lies in will bill it: what earlier ones have billed is not
// in it.
func (l Ledger) Adjustments(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (late []metering.Adjustment, err error) {
	err = atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		late = nil
		p, err := readPayer(ctx, tx, tenant, customer, "")
		if err != nil {
			return err
		}
		provider, err := activeProvider(ctx, tx, tenant)
		if err != nil {
			return err
		}
		b := bill{ctx: ctx, tx: tx, tenant: tenant, payer: p, now: metering.Instant(now), account: provider.Account}
		if b.prices, err = allPrices(ctx, tx, tenant); err != nil {
			return err
		}
		late, err = b.owedLate(provider.Kind)
		return err
	})
	if metering.CodeOf(err) == metering.CodeNoProvider {
		return nil, nil // without a provider nothing is billed
	}
	if err != nil {
		return nil, fmt.Errorf("work out adjustments: %w", err)
	}
	return late, nil
}

func (b *bill) owedLate(kind metering.ProviderKind) (late []metering.Adjustment, err error) {
	chain, err := chainNow(b.ctx, b.tx, b.tenant, b.payer, b.now)
	if err != nil {
		return nil, err
	}
	carrier := place{mechanism: metering.Adjusted}
	if kind == metering.Stripe {
		carrier = place{mechanism: metering.InvoiceItem, customer: b.payer.atProvider, item: b.payer.subscription}
	}
	open, found := oldestOpen(chain)
	if !found {
		return nil, nil
	}
	carrier.window = open.Range
	lines, err := b.adjustments(chain, carrier, nil)
	for _, l := range lines {
		late = append(late, l.adjustment())
	}
	return late, err
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
			  from unnest($2::bigint[], $3::bigint[], $4::timestamptz[], $5::numeric[], $6::numeric[], $7::numeric[], $8::text[], $9::int[], $10::boolean[])
			    as r (meter_version_id, product_id, month, base, included, rate, currency, digits, counts)),
			used as (
			  select u.customer_id, u.meter_version_id, u.month, `+productAt("$1", "u.customer_id", "u.month")+` as product_id, sum(u.sum + u.late_sum) as sum, sum(u.count + u.late_count) as count
			  from usage_monthly u
			  where u.tenant_id = $1
			    and u.customer_id > 0
			    and u.meter_version_id = any($2)
			    and u.month = any($4)
			  group by 1, 2, 3)
			select used.month, rates.currency, sum(`+roundedMoney("charge", "rates.digits")+`), count(distinct used.customer_id)
			from used
			join rates using (meter_version_id, product_id, month),
			lateral (select rates.base + greatest(0, case when rates.counts then used.count else used.sum end - rates.included) * rates.rate) c (charge)
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

// roundedMoney is metering.RoundMoney as SQL, whose own round takes halves away from zero.
func roundedMoney(amount, digits string) string {
	return `case when abs(` + amount + ` - trunc(` + amount + `, ` + digits + `)) = 0.5 * power(10::numeric, -` + digits + `)
		then 2 * round(` + amount + ` / 2, ` + digits + `) else round(` + amount + `, ` + digits + `) end`
}

// rates are the prices of each month, in columns.
type rates struct {
	versions, products             []int64
	months                         []time.Time
	base, included, rate, currency []string
	digits                         []int32
	counts                         []bool
}

func (r *rates) arrays() []any {
	return []any{r.versions, r.products, r.months, r.base, r.included, r.rate, r.currency, r.digits, r.counts}
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
	products, err := productIDs(ctx, tx, tenant)
	if err != nil {
		return nil, err
	}
	all := new(rates)
	for _, m := range meters {
		if m.Version.Status == metering.Backfilling {
			continue
		}
		zone := metering.Location(m.Version.Timezone)
		for month := metering.CalendarPeriod(span.Start, zone); month.Start.Before(span.End); month = metering.CalendarPeriod(month.End, zone) {
			for _, product := range products {
				if price, priced := metering.PriceAt(prices[m.ID], product, month.Start); priced {
					all.add(m, product, month.Start, price)
				}
			}
		}
	}
	return all, nil
}

func (r *rates) add(m metering.Meter, product metering.ProductID, month time.Time, p metering.Price) {
	r.versions, r.products, r.months = append(r.versions, int64(m.Version.ID)), append(r.products, int64(product)), append(r.months, month)
	r.base, r.included = append(r.base, p.BasePrice.String()), append(r.included, p.IncludedUnits.String())
	r.rate, r.currency = append(r.rate, p.OverageRate.String()), append(r.currency, p.Currency)
	r.digits = append(r.digits, metering.MinorDigits(p.Currency))
	r.counts = append(r.counts, m.Version.Aggregation == metering.Count)
}
