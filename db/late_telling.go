package db

import (
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// tellLate makes the entries of what late usage adds to the closed periods: the
// oldest open one carries them to the subscription's next invoice, as money.
func (t *telling) tellLate(chain []metering.Period, carrier metering.Period) error {
	if t.link.Subscription == "" {
		return nil
	}
	at := place{customer: t.link.Customer, item: t.link.Subscription, mechanism: metering.InvoiceItem, window: carrier.Range}
	known, err := t.lateSeries(at)
	if err != nil {
		return err
	}
	carried := make([]line, len(known))
	for i, s := range known {
		carried[i] = line{meter: s.meter, closed: metering.Period{ID: s.period}}
	}
	lines, err := t.adjustments(chain, at, carried)
	if err != nil {
		return err
	}
	for _, l := range lines {
		if slices.Contains(t.hold, l.meter) {
			continue
		}
		var s lateSeries
		if i := slices.IndexFunc(carried, l.sameSeries); i >= 0 {
			s = known[i]
		}
		if !t.next(s.series, !l.amount.Equal(s.told)) {
			continue
		}
		at.period = l.closed.ID
		call := metering.Call{
			Mechanism: at.mechanism, Target: at.item, Customer: at.customer, Quantity: l.amount.Sub(s.told), Timestamp: t.now,
			Currency: l.currency, Period: &l.closed.Range, Description: t.describe(l),
		}
		if err := t.write(at, l, call, l.closed.Range, carrier.Deadline(t.payer.grace)); err != nil {
			return err
		}
	}
	return nil
}

// describe is what the customer reads on the invoice.
func (t *telling) describe(l line) string {
	last := l.closed.End.Add(-time.Microsecond)
	return fmt.Sprintf("%s: usage from %s to %s that was reported late", l.name,
		l.closed.Start.In(t.payer.zone).Format(time.DateOnly), last.In(t.payer.zone).Format(time.DateOnly))
}

// lateSeries is a series of money for one meter of a closed period.
type lateSeries struct {
	series
	period metering.PeriodID
}

func (t *telling) lateSeries(carrier place) ([]lateSeries, error) {
	rows, err := t.tx.Query(t.ctx, `
		select r.period_id, r.meter_id, coalesce(last.added, 0), last.unsettled, last.id, last.number, last.status
		from billing_series r
		cross join lateral (
		  select sum(e.quantity) filter (where e.status in ('acknowledged', 'confirmed')) as added, `+lastColumns+`
		  from billing_entries e
		  where e.tenant_id = r.tenant_id
		    and e.series_id = r.id
		  having count(*) > 0) last
		where r.tenant_id = $1
		  and r.customer_id = $2
		  and r.provider_account = $3
		  and r.provider_customer = $4
		  and r.item = $5
		  and r.mechanism = $6
		  and r.window_start = $7`,
		t.tenant, t.payer.id, t.account, carrier.customer, carrier.item, carrier.mechanism, carrier.window.Start)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s lateSeries, err error) {
		err = row.Scan(&s.period, &s.meter, &s.told, &s.unsettled, &s.last, &s.number, &s.status)
		if s.status == metering.EntryAcknowledged {
			s.status = metering.EntryConfirmed // the answer is the item itself: there is nothing more to see
		}
		return s, err
	})
}
