package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Closing is what came of freezing the periods of some customers.
type Closing struct {
	Closed int                   // periods
	Open   []metering.CustomerID // those with a due period that cannot be frozen yet
}

// Freeze closes the periods of these customers whose end and grace are over,
// oldest first, and only where the provider has acknowledged exactly what they
// come to: usage that arrives later is kept apart, and nothing falls between.
// Ingest of the tenant waits meanwhile, so the customers are few.
func (l Ledger) ClosePeriods(ctx context.Context, tenant metering.TenantID, customers []metering.CustomerID, now time.Time) (f Closing, err error) {
	err = inTx(ctx, l.pool, func(tx pgx.Tx) error {
		f = Closing{}
		if err := lockTenant(ctx, tx, tenant); err != nil {
			return err
		}
		epoch, err := raiseEpoch(ctx, tx, tenant)
		if err != nil {
			return err
		}
		for _, customer := range customers {
			p, err := lockPayer(ctx, tx, tenant, customer)
			if err != nil {
				return err
			}
			b := bill{ctx: ctx, tx: tx, tenant: tenant, payer: p, now: metering.Instant(now)}
			frozen, done, err := b.freeze(epoch)
			if err != nil {
				return err
			}
			f.Closed += frozen
			if !done {
				f.Open = append(f.Open, customer)
			}
		}
		return nil
	})
	if err != nil {
		return Closing{}, fmt.Errorf("freeze periods: %w", err)
	}
	return f, nil
}

// freeze closes the customer's due periods. done is false where one has to wait.
func (b *bill) freeze(epoch int64) (frozen int, done bool, err error) {
	provider, err := activeProvider(b.ctx, b.tx, b.tenant)
	if err != nil && metering.CodeOf(err) != metering.CodeNoProvider {
		return 0, false, err
	}
	b.account, b.mapping = provider.Account, provider.Mapping
	waiting, err := b.unsettled()
	if err != nil || waiting != nil {
		return 0, false, err
	}
	chain, err := extendPeriods(b.ctx, b.tx, b.tenant, b.payer, b.now)
	if err != nil {
		return 0, false, err
	}
	if b.prices, err = allPrices(b.ctx, b.tx, b.tenant); err != nil {
		return 0, false, err
	}
	for i, period := range chain {
		if period.ClosedAt != nil {
			continue
		}
		final, err := b.invoiced(period)
		if err != nil {
			return frozen, false, err
		}
		if b.now.Before(period.Deadline(b.payer.grace)) && !final {
			return frozen, true, nil
		}
		all, err := b.figures(period)
		if err != nil {
			return frozen, false, err
		}
		told, err := b.settledFor(provider.Kind, chain, period, all)
		if err != nil || !told {
			return frozen, false, err
		}
		if err := b.close(period, all, epoch); err != nil {
			return frozen, false, err
		}
		chain[i].ClosedAt = &b.now
		frozen++
	}
	return frozen, true, nil
}

// invoiced says whether the provider has billed the period for good.
func (b *bill) invoiced(period metering.Period) (final bool, err error) {
	err = b.tx.QueryRow(b.ctx, `select `+finalInvoice+` from billing_periods p where p.tenant_id = $1 and p.id = $2`,
		b.tenant, period.ID).Scan(&final)
	return final, err
}

// settledFor says whether the period may be frozen: every meter is counted,
// and the provider, if there is one, knows what it comes to.
func (b *bill) settledFor(kind metering.ProviderKind, chain []metering.Period, period metering.Period, all []line) (bool, error) {
	for _, l := range all {
		if l.skipped == skippedBackfilling {
			return false, nil
		}
	}
	switch kind {
	case "":
		return true, nil
	case metering.Stripe:
		return b.confirmed(chain, period, all)
	}
	latest, err := b.latest(period)
	if err != nil {
		return false, err
	}
	late, err := b.adjustments(chain, place{mechanism: metering.Adjusted, window: period.Range}, latest.lines)
	if err != nil {
		return false, err
	}
	lines := append(toTell(all), late...)
	return len(lines) == 0 || latest.status == Acknowledged && sameLines(latest.lines, lines), nil
}

func (b *bill) close(period metering.Period, all []line, epoch int64) error {
	var batch pgx.Batch
	for _, l := range all {
		batch.Queue(`
			insert into billing_period_totals
			  (tenant_id, period_id, meter_id, usage, event_count, price_version, charge, currency, billed, told, reported_scale)
			values (@tenant, @period, @meter, @usage, @events, @price_version, @charge, @currency, @billed, @told, @decimals)`, pgx.NamedArgs{
			"tenant": b.tenant, "period": period.ID, "meter": l.meter, "usage": l.cumulative, "events": l.events,
			"price_version": l.priceVersion, "charge": l.charge, "currency": l.currency, "billed": b.account != "" && l.skipped == "",
			"told": l.told, "decimals": l.decimals,
		})
	}
	batch.Queue(`
		update billing_periods
		set closed_at = $3, closed_epoch = $4
		where tenant_id = $1
		  and id = $2`, b.tenant, period.ID, b.now, epoch)
	batch.Queue(`
		update customers
		set closed_from = least(closed_from, $3), closed_until = greatest(closed_until, $4)
		where tenant_id = $1
		  and id = $2`, b.tenant, b.payer.id, period.Start, period.End)
	if err := b.tx.SendBatch(b.ctx, &batch).Close(); err != nil {
		return err
	}
	return publish(b.ctx, b.tx, b.tenant, b.payer.id, metering.PeriodClosed, map[string]any{
		"period": map[string]any{"start": period.Start.UTC(), "end": period.End.UTC()},
	}, b.now)
}

// periodTotal is what a frozen period came to for one meter.
type periodTotal struct {
	usage        metering.Decimal
	events       int64
	priceVersion int
	charge       metering.Decimal
	currency     string
	billed       bool
	told         metering.Decimal  // what of usage the charge is for
	decimals     *int32            // that told is rounded to; nil: it is exact
	lateUsage    *metering.Decimal // what came later, once it is settled
	lateCount    *int64
}

func periodTotals(ctx context.Context, q querier, tenant metering.TenantID, period metering.PeriodID) (map[metering.MeterID]periodTotal, error) {
	rows, err := q.Query(ctx, `
		select meter_id, usage, event_count, price_version, charge, currency, billed, coalesce(told, usage), case when told is not null then reported_scale end,
		  late_usage, late_count
		from billing_period_totals
		where tenant_id = $1
		  and period_id = $2`, tenant, period)
	if err != nil {
		return nil, err
	}
	totals := make(map[metering.MeterID]periodTotal)
	var (
		meter metering.MeterID
		t     periodTotal
	)
	_, err = pgx.ForEachRow(rows, []any{
		&meter, &t.usage, &t.events, &t.priceVersion, &t.charge, &t.currency, &t.billed, &t.told, &t.decimals, &t.lateUsage, &t.lateCount,
	}, func() error {
		totals[meter] = t
		return nil
	})
	return totals, err
}
