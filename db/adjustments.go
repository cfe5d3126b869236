package db

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// adjustments works out what late usage adds to the closed periods. carrier is
// the oldest open period, whose snapshots say so; what earlier carriers have
// said already is not said again. carried is what the carrier has said so far:
// it is repeated even if it comes to nothing now.
func (b *bill) adjustments(chain []metering.Period, carrier metering.Period, carried []line) ([]line, error) {
	if b.payer.late != metering.AdjustLate || !b.isCarrier(chain, carrier) {
		return nil, nil
	}
	var lines []line
	closed, err := b.closedWithLateUsage(chain)
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

func (b *bill) isCarrier(chain []metering.Period, period metering.Period) bool {
	for _, p := range chain {
		if p.FrozenAt == nil {
			return p.ID == period.ID
		}
	}
	return false
}

// closedWithLateUsage are the frozen periods that a month with late usage
// touches, oldest first.
func (b *bill) closedWithLateUsage(chain []metering.Period) ([]metering.Period, error) {
	rows, err := b.tx.Query(b.ctx, `
		select distinct u.month
		from usage_monthly u
		join meters m on m.tenant_id = u.tenant_id and m.generation_id = u.generation_id
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
	var closed []metering.Period
	for _, period := range chain {
		touched := slices.ContainsFunc(months, func(month metering.Range) bool {
			return month.Start.Before(period.End) && month.End.After(period.Start)
		})
		if period.FrozenAt != nil && touched {
			closed = append(closed, period)
		}
	}
	return closed, nil
}

// scanMonth reads the start of a month as a range that no month outlasts.
func scanMonth(row pgx.CollectableRow) (r metering.Range, err error) {
	err = row.Scan(&r.Start)
	r.End = r.Start.AddDate(0, 0, 32)
	return r, err
}

func (b *bill) adjust(closed, carrier metering.Period, carried []line) ([]line, error) {
	frozen, err := periodTotals(b.ctx, b.tx, b.tenant, closed.ID)
	if err != nil {
		return nil, err
	}
	meters, err := collectMeters(b.ctx, b.tx, `order by m.id`, b.tenant)
	if err != nil {
		return nil, err
	}
	late, err := totalsOf(b.ctx, b.tx, b.tenant, b.payer.id, meters, closed.Range, lateOnly)
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
		if !known || !then.billed || t.Filling {
			continue
		}
		l := b.adjustment(closed, t, then, others[t.Meter.ID])
		if !l.value.IsZero() || !l.amount.IsZero() || slices.ContainsFunc(carried, l.sameSeries) {
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// adjustment is charge(usage with what came late) − charge(usage billed so
// far), at the closed period's price.
func (b *bill) adjustment(closed metering.Period, late MeterTotal, then periodTotal, other billed) line {
	price := priceVersion(b.prices[late.Meter.ID], then.priceVersion)
	usage := then.usage.Add(late.Usage)
	charge := metering.RoundMoney(price.Charge(usage), then.currency)
	return line{
		closed: closed, meter: late.Meter.ID, slug: late.Meter.Slug, cumulative: usage, events: then.events + late.Count,
		value: late.Usage.Sub(other.value), priceVersion: then.priceVersion, unitPrice: price.OverageRate, charge: charge,
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

// adjustedElsewhere is what other carriers, and other accounts, have
// acknowledged of the closed period's adjustments.
func (b *bill) adjustedElsewhere(closed, carrier metering.Period) (map[metering.MeterID]billed, error) {
	return b.acknowledged(closed, `r.mechanism = 'adjustment' and (r.provider_account <> @account or r.window_start <> @start)`,
		pgx.NamedArgs{"start": carrier.Start})
}
