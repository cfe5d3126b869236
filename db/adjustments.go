package db

import (
	"cmp"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// adjustments works out what late usage adds to the closed periods, and what
// the provider could not be told of them before its invoice was final. The
// carrier's window is the oldest open period; what earlier carriers have
// said already is not said again. carried is what the carrier has said so far:
// it is repeated even if it comes to nothing now.
func (b *bill) adjustments(chain []metering.Period, carrier place, carried []line) ([]line, error) {
	open, _ := oldestOpen(chain)
	if b.payer.late != metering.AdjustLate || open.Range != carrier.window {
		return nil, nil
	}
	var lines []line
	closed, err := b.closedToAdjust(chain)
	if err != nil {
		return nil, err
	}
	for _, period := range closed {
		more, err := b.adjust(period, carrier, carried)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

// oldestOpen is the chain's first period that is not frozen, if there is one.
func oldestOpen(chain []metering.Period) (p metering.Period, found bool) {
	for _, p := range chain {
		if p.ClosedAt == nil {
			return p, true
		}
	}
	return metering.Period{}, false
}

// closedToAdjust are the frozen periods that a month with late usage touches,
// or that have usage which the provider was not told of, oldest first.
func (b *bill) closedToAdjust(chain []metering.Period) ([]metering.Period, error) {
	rows, err := b.tx.Query(b.ctx, `
		select distinct u.month
		from usage_monthly u
		join meters m on m.tenant_id = u.tenant_id and m.meter_version_id = u.meter_version_id
		where u.tenant_id = $1
		  and u.customer_id = $2
		  and u.late_count > 0`, b.tenant, b.payer.id)
	if err != nil {
		return nil, err
	}
	months, err := pgx.CollectRows(rows, scanMonth)
	if err != nil {
		return nil, err
	}
	untold, err := b.untold()
	if err != nil {
		return nil, err
	}
	var closed []metering.Period
	for _, period := range chain {
		touched := slices.ContainsFunc(months, func(month metering.Range) bool {
			return month.Start.Before(period.End) && month.End.After(period.Start)
		})
		if period.ClosedAt != nil && (touched || slices.Contains(untold, period.ID)) {
			closed = append(closed, period)
		}
	}
	return closed, nil
}

// untold are the frozen periods of which the provider was told another number
// of units than they have, and those whose late usage is settled.
func (b *bill) untold() ([]metering.PeriodID, error) {
	rows, err := b.tx.Query(b.ctx, `
		select distinct p.id
		from billing_periods p
		join billing_period_totals t on t.tenant_id = p.tenant_id and t.period_id = p.id
		where p.tenant_id = $1
		  and p.customer_id = $2
		  and t.billed
		  and (abs(t.usage - t.told) * power(10::numeric, t.reported_scale) >= 0.5 or t.late_count > 0)`, b.tenant, b.payer.id)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[metering.PeriodID])
}

// scanMonth reads the start of a month as a range that no month outlasts.
func scanMonth(row pgx.CollectableRow) (r metering.Range, err error) {
	err = row.Scan(&r.Start)
	r.End = r.Start.AddDate(0, 0, 32)
	return r, err
}

func (b *bill) adjust(closed metering.Period, carrier place, carried []line) ([]line, error) {
	late, frozen, err := b.lateUsage(closed)
	if err != nil {
		return nil, err
	}
	others, err := b.adjustedElsewhere(closed, carrier)
	if err != nil {
		return nil, err
	}
	var lines []line
	for _, t := range late {
		then, known := frozen[t.Meter.ID]
		if !known || !then.billed || t.Backfilling {
			continue
		}
		l := b.adjustment(closed, t, then, others[t.Meter.ID])
		if !l.value.IsZero() || !l.amount.IsZero() || slices.ContainsFunc(carried, l.sameSeries) {
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// lateUsage is what came for the closed period after it was frozen, up to when
// its events went, and what it was frozen at.
func (b *bill) lateUsage(closed metering.Period) (late []MeterTotal, frozen map[metering.MeterID]periodTotal, err error) {
	if frozen, err = periodTotals(b.ctx, b.tx, b.tenant, closed.ID); err != nil {
		return nil, nil, err
	}
	meters, err := collectMeters(b.ctx, b.tx, `order by m.id`, b.tenant)
	if err != nil {
		return nil, nil, err
	}
	if late, err = totalsOf(b.ctx, b.tx, b.tenant, b.payer.id, meters, closed.Range, lateOnly); err != nil {
		return nil, nil, err
	}
	for i := range late {
		if then := frozen[late[i].Meter.ID]; then.lateCount != nil {
			late[i].Usage, late[i].Count = *then.lateUsage, *then.lateCount
		}
	}
	return late, frozen, nil
}

// adjustment is charge(usage with what came late) − charge(usage billed so
// far), at the closed period's price.
func (b *bill) adjustment(closed metering.Period, late MeterTotal, then periodTotal, other billed) line {
	price := priceVersion(b.prices[late.Meter.ID], then.priceVersion)
	usage := then.usage.Add(late.Usage)
	billable := usage
	if then.decimals != nil {
		billable = metering.Units(usage, *then.decimals)
	}
	charge := metering.RoundMoney(price.Charge(billable), then.currency)
	return line{
		closed: closed, meter: late.Meter.ID, slug: late.Meter.Slug, name: cmp.Or(late.Meter.Name, late.Meter.Slug), cumulative: usage, events: then.events + late.Count,
		value: billable.Sub(then.told).Sub(other.value), priceVersion: then.priceVersion, unitPrice: price.OverageRate, charge: charge,
		amount: charge.Sub(then.charge).Sub(other.amountIn(then.currency)), currency: then.currency,
	}
}

func priceVersion(versions []metering.Price, version int) metering.Price {
	for _, p := range versions {
		if p.Version == version {
			return p
		}
	}
	return metering.Price{}
}

// adjustedElsewhere is what other carriers have acknowledged of the closed
// period's adjustments.
func (b *bill) adjustedElsewhere(closed metering.Period, carrier place) (map[metering.MeterID]billed, error) {
	return b.acknowledged(closed, adjusts+`
		  and (r.provider_account, r.provider_customer, r.item, r.mechanism, r.window_start) <> (@account, @at_provider, @item, @mechanism, @start)`,
		pgx.NamedArgs{"at_provider": carrier.customer, "item": carrier.item, "mechanism": carrier.mechanism, "start": carrier.window.Start})
}
