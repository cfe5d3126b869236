package db

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// bill is one customer's ledger, read at one instant under a lock.
type bill struct {
	ctx     context.Context
	tx      pgx.Tx
	tenant  metering.TenantID
	payer   payer
	now     time.Time
	account string // the destination
	mapping map[string]string
	prices  map[metering.MeterID][]metering.Price
	hold    []metering.MeterID // that stay as they were acknowledged last
}

// line is what one meter comes to.
type line struct {
	closed       metering.Period   // that an adjustment belongs to; none: the snapshot's own
	skipped      string            // why it is not told; "": it is
	told         *metering.Decimal // what the provider was told in rounded units; nil: cumulative
	decimals     int32             // that told is rounded to
	meter        metering.MeterID
	slug         string
	name         string // what the meter is called on an invoice; only of an adjustment
	cumulative   metering.Decimal
	events       int64
	value        metering.Decimal // cumulative less what other accounts have billed
	priceVersion int
	unitPrice    metering.Decimal
	charge       metering.Decimal
	amount       metering.Decimal // charge less what other accounts have billed
	currency     string
}

func (l line) sameSeries(o line) bool { return l.meter == o.meter && l.closed.ID == o.closed.ID }

func sameLines(a, b []line) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		same := a[i].sameSeries(b[i]) && a[i].events == b[i].events && a[i].priceVersion == b[i].priceVersion &&
			a[i].currency == b[i].currency && a[i].cumulative.Equal(b[i].cumulative) && a[i].value.Equal(b[i].value) &&
			a[i].unitPrice.Equal(b[i].unitPrice) && a[i].charge.Equal(b[i].charge) && a[i].amount.Equal(b[i].amount)
		if !same {
			return false
		}
	}
	return true
}

// Why a sync leaves a meter out.
const (
	skippedBackfilling = "its past is still being counted; it is billed as soon as that is done"
	skippedHeld        = "an operator has left it as it was for this run"
)

// price is what the customer is charged for the meter in the period, if it has one.
func (b *bill) price(meter metering.MeterID, period metering.Period) (p metering.Price, priced bool) {
	return metering.PriceAt(b.prices[meter], metering.ProductAt(b.payer.products, period.Start), period.Start)
}

// figures works out what every meter of the period comes to now.
func (b *bill) figures(period metering.Period) ([]line, error) {
	totals, err := Usage{b.tx}.MeterTotals(b.ctx, b.tenant, b.payer.id, period.Range)
	if err != nil {
		return nil, err
	}
	elsewhere, err := b.billedElsewhere(period)
	if err != nil {
		return nil, err
	}
	common := b.inCommon(b.currencies(totals, period)) // for what has no price
	lines := make([]line, len(totals))
	for i, t := range totals {
		price, priced := b.price(t.Meter.ID, period)
		currency := common
		if priced {
			currency = price.Currency
		}
		charge := metering.RoundMoney(price.Charge(t.Usage), currency)
		other := elsewhere[t.Meter.ID]
		lines[i] = line{
			meter: t.Meter.ID, slug: t.Meter.Slug, cumulative: t.Usage, events: t.Count, value: t.Usage.Sub(other.value),
			priceVersion: price.Version, unitPrice: price.OverageRate, charge: charge, amount: charge.Sub(other.amountIn(currency)),
			currency: currency,
		}
		if t.Backfilling {
			lines[i].skipped = skippedBackfilling
		}
	}
	return lines, nil
}

// currencies are those of the meters' prices.
func (b *bill) currencies(totals []MeterTotal, period metering.Period) (all []string) {
	for _, t := range totals {
		if price, priced := b.price(t.Meter.ID, period); priced && !t.Backfilling {
			all = append(all, price.Currency)
		}
	}
	return all
}

// inCommon is the tenant's currency where these differ or are none.
func (b *bill) inCommon(currencies []string) string {
	if len(slices.Compact(slices.Clone(currencies))) == 1 {
		return currencies[0]
	}
	return b.payer.currency
}

type billed struct {
	value   metering.Decimal
	amounts map[string]metering.Decimal // by currency
}

func (b billed) amountIn(currency string) metering.Decimal { return b.amounts[currency] }

// billedElsewhere is what accounts other than the active one have acknowledged
// for the period, so that no usage is billed at two of them.
func (b *bill) billedElsewhere(period metering.Period) (map[metering.MeterID]billed, error) {
	return b.acknowledged(period, `not `+adjusts+` and r.provider_account <> @account`, pgx.NamedArgs{})
}

// acknowledged adds up what the period's series of a kind have been
// acknowledged for.
func (b *bill) acknowledged(period metering.Period, kind string, args pgx.NamedArgs) (map[metering.MeterID]billed, error) {
	args["tenant"], args["customer"], args["period"], args["account"] = b.tenant, b.payer.id, period.ID, b.account
	rows, err := b.tx.Query(b.ctx, `
		select r.meter_id, sum(case when r.mechanism = 'meter_delta' then last.added else last.value end),
		  sum(case when r.mechanism = 'invoice_item' then last.added else last.amount end), last.currency
		from billing_series r
		cross join lateral (
		  select sum(e.quantity) as added, (array_agg(e.value order by e.version desc))[1] as value,
		    (array_agg(e.amount order by e.version desc))[1] as amount,
		    (array_agg(e.currency order by e.version desc))[1] as currency
		  from billing_entries e
		  where e.tenant_id = r.tenant_id
		    and e.series_id = r.id
		    and e.status in ('acknowledged', 'confirmed')
		  having count(*) > 0) last
		where r.tenant_id = @tenant
		  and r.customer_id = @customer
		  and r.period_id = @period
		  and `+kind+`
		group by r.meter_id, last.currency`, args)
	if err != nil {
		return nil, err
	}
	elsewhere := make(map[metering.MeterID]billed)
	var (
		meter         metering.MeterID
		value, amount metering.Decimal
		currency      string
	)
	_, err = pgx.ForEachRow(rows, []any{&meter, &value, &amount, &currency}, func() error {
		other := elsewhere[meter]
		if other.amounts == nil {
			other.amounts = make(map[string]metering.Decimal)
		}
		other.value, other.amounts[currency] = other.value.Add(value), amount
		elsewhere[meter] = other
		return nil
	})
	return elsewhere, err
}

// adjusts is whether a series r carries what late usage adds to its period.
const adjusts = `r.mechanism in ('adjustment', 'invoice_item')`

// place is where a provider adds up what it is told of a meter. With the bill's
// customer and account it makes a series.
type place struct {
	customer  string // at the provider
	item      string
	mechanism metering.Mechanism
	period    metering.PeriodID
	window    metering.Range
}

// message is how an entry goes out: in a snapshot, or by a call of its own.
type message struct {
	id         uuid.UUID // of the entry
	identifier string    // at the provider
	snapshot   *uuid.UUID
	call       *metering.Call
}

// queue writes a line down as the next version of its series, and the series
// if it is new.
func (b *bill) queue(batch *pgx.Batch, at place, l line, m message) {
	args := pgx.NamedArgs{
		"tenant": b.tenant, "customer": b.payer.id, "meter": l.meter, "account": b.account, "at_provider": at.customer,
		"item": at.item, "mechanism": at.mechanism, "period": at.period, "start": at.window.Start, "end": at.window.End,
		"id": m.id, "cumulative": l.cumulative, "events": l.events, "value": l.value, "price_version": l.priceVersion,
		"unit_price": l.unitPrice, "charge": l.charge, "amount": l.amount, "currency": l.currency,
		"identifier": m.identifier, "snapshot": m.snapshot, "call": m.call, "now": b.now,
	}
	if m.call != nil {
		args["quantity"] = m.call.Quantity
	}
	batch.Queue(`
		insert into billing_series
		  (tenant_id, customer_id, meter_id, provider_account, provider_customer, item, mechanism, period_id, window_start, window_end)
		values (@tenant, @customer, @meter, @account, @at_provider, @item, @mechanism, @period, @start, @end)
		on conflict (tenant_id, customer_id, meter_id, period_id, provider_account, provider_customer, item, mechanism, window_start)
		do nothing`, args)
	batch.Queue(`
		insert into billing_entries
		  (tenant_id, id, series_id, version, cumulative_total, event_count, value, quantity, call, price_version, unit_price,
		   charge, amount, currency, identifier, snapshot_id, status, prepared_at)
		select r.tenant_id, @id, r.id, 1 + coalesce(former.version, 0), @cumulative, @events, @value, @quantity, @call, @price_version, @unit_price,
		  @charge, @amount, @currency, @identifier, @snapshot, 'prepared', @now
		from billing_series r
		left join lateral (
		  select max(e.version) as version
		  from billing_entries e
		  where e.tenant_id = r.tenant_id
		    and e.series_id = r.id) former on true
		where r.tenant_id = @tenant
		  and r.customer_id = @customer
		  and r.meter_id = @meter
		  and r.period_id = @period
		  and r.provider_account = @account
		  and r.provider_customer = @at_provider
		  and r.item = @item
		  and r.mechanism = @mechanism
		  and r.window_start = @start`, args)
}
