package db

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// meterTelling is one meter in one period.
type meterTelling struct {
	*telling
	period metering.Period
	sub    subscription
	part   metering.Range // of the period, in the subscription's
	item   metering.Item
	total  MeterTotal
	own    []series         // of this place
	others metering.Decimal // acknowledged in other places
	amount metering.Decimal // the same in money
	before metering.Decimal // told of the subscription's period with our earlier ones, where only what comes last counts
}

// split parts the meter's series from those of another account, customer,
// place, mechanism or subscription period: those have ended. So has one of
// differences that began after this subscription's period did, which counts it.
func (m *meterTelling) split(known []series) {
	for _, s := range known {
		ended := s.windowStart.Before(m.part.Start) || s.mechanism == metering.MeterDelta && s.windowStart.After(m.part.Start)
		switch {
		case s.meter != m.total.Meter.ID:
		case s.account == m.account && s.customer == m.link.Customer && s.target == m.item.Target &&
			s.mechanism == m.item.Mechanism && !ended:
			m.own = append(m.own, s)
		default:
			m.others, m.amount = m.others.Add(s.told), m.amount.Add(s.amount)
		}
	}
}

// refused says why the meter is not told, if it is not.
func (m *meterTelling) refused(taken bool) string {
	switch {
	case m.total.Backfilling:
		return skippedBackfilling
	case m.item.Skipped != "":
		return m.item.Skipped
	case taken:
		return skippedElsewhere
	case slices.Contains(m.hold, m.item.MeterID):
		return skippedHeld
	}
	return ""
}

// over says why nothing more is told of the period, if nothing is.
func (m *meterTelling) over() string {
	switch {
	case m.sub.id == "" || m.sub.id != m.link.Subscription || m.part.Empty():
		return skippedEarlier
	case m.sub.invoiced:
		return skippedInvoiced
	case m.item.Mechanism == metering.UsageRecord && !m.part.End.After(m.link.Period.Start):
		return skippedRecords
	}
	return ""
}

// skipRest says what is left untold. Whether what is on its way was taken in
// time has to be known first; what is ambiguous waits for people.
func (m *meterTelling) skipRest(reason string) {
	for _, s := range m.own {
		m.open = m.open || s.unsettled && s.status != metering.EntryAmbiguous
	}
	if !m.value(m.total.Usage).Equal(m.toldHere()) {
		m.skip(m.total.Meter, reason)
	}
}

// toldHere is what this place was told of the period.
func (m *meterTelling) toldHere() (told metering.Decimal) {
	for _, s := range m.own {
		told = told.Add(s.told)
	}
	return told
}

// decimals are those of the total that this place is told. A usage record has
// none, and what is invoiced keeps those that it had.
func (m *meterTelling) decimals() int32 {
	switch {
	case m.item.Mechanism == metering.UsageRecord:
		return 0
	case m.sub.decimals != nil:
		return m.sub.decimals[m.item.MeterID]
	}
	return m.total.Meter.UsageScale
}

// value is what this place should have counted when the period's usage is
// total. Where the provider keeps a total it is never below zero.
func (m *meterTelling) value(total metering.Decimal) metering.Decimal {
	value := metering.UnitsBetween(m.others, total, m.decimals())
	keeps := m.item.Mechanism == metering.UsageRecord || m.item.Mechanism == metering.MeterWindow
	if keeps && value.IsNegative() {
		return metering.Decimal{}
	}
	return value
}

func (m *meterTelling) tell() error {
	switch m.item.Mechanism {
	case metering.MeterWindow:
		return m.tellWindows()
	case metering.MeterLast:
		if err := m.readBefore(); err != nil {
			return err
		}
	}
	l := m.line(m.total.Usage)
	l.amount = l.charge.Sub(m.amount)
	return m.tellOne(l, m.part)
}

// readBefore reads what this place was told with earlier periods of ours that
// lie in the same one of the subscription's.
func (m *meterTelling) readBefore() error {
	return m.tx.QueryRow(m.ctx, `
		select coalesce(sum(`+toldBySeries+`), 0)
		from billing_series r
		cross join lateral (
		  select `+toldColumns+`
		  from billing_entries e
		  where e.tenant_id = r.tenant_id
		    and e.series_id = r.id) last
		where r.tenant_id = $1
		  and r.customer_id = $2
		  and r.meter_id = $3
		  and r.provider_account = $4
		  and r.provider_customer = $5
		  and r.item = $6
		  and r.mechanism = $7
		  and r.window_start >= $8
		  and r.window_start < $9
		  and r.period_id <> $10`, m.tenant, m.payer.id, m.item.MeterID, m.account, m.link.Customer, m.item.Target, m.item.Mechanism,
		m.sub.Start, m.part.Start, m.period.ID).Scan(&m.before)
}

// line is what this place should be told when the period's usage is total.
func (m *meterTelling) line(total metering.Decimal) line {
	price, _ := m.price(m.total.Meter.ID, m.period)
	currency := cmp.Or(price.Currency, m.payer.currency)
	return line{
		meter: m.item.MeterID, slug: m.total.Meter.Slug, cumulative: total, events: m.total.Count, value: m.value(total),
		priceVersion: price.Version, unitPrice: price.OverageRate, currency: currency,
		charge: metering.RoundMoney(price.Charge(metering.Units(total, m.decimals())), currency), // of what Stripe can count
	}
}

// tellOne makes the next entry of the window's series, if it has none that is
// unsettled or of this pass, and there is something new.
func (m *meterTelling) tellOne(l line, window metering.Range) error {
	var s series
	for _, own := range m.own {
		if own.windowStart.Equal(window.Start) {
			s = own
		}
	}
	changed := !l.value.Equal(s.told)
	if m.item.Mechanism == metering.MeterLast && s.last != uuid.Nil {
		changed = !l.value.Add(m.before).Equal(s.quantity)
	}
	if !m.next(s, changed) {
		return nil
	}
	at := place{customer: m.link.Customer, item: m.item.Target, mechanism: m.item.Mechanism, period: m.period.ID, window: window}
	return m.write(at, l, m.call(l, s, window), m.period.Range, m.period.Deadline(m.payer.grace))
}

func (m *meterTelling) call(l line, s series, window metering.Range) metering.Call {
	call := metering.Call{
		Mechanism: m.item.Mechanism, Target: m.item.Target, ItemID: m.item.ItemID, EventName: m.item.EventName,
		CustomerKey: m.item.CustomerKey, ValueKey: m.item.ValueKey, Customer: m.link.Customer, Quantity: l.value,
	}
	switch call.Mechanism {
	case metering.MeterDelta:
		call.Quantity = l.value.Sub(s.told)
	case metering.MeterLast:
		call.Quantity = l.value.Add(m.before)
	}
	var last time.Time
	if s.timestamp != nil {
		last = *s.timestamp
	}
	call.Timestamp = m.at(call.Mechanism, m.now, last, window)
	return call
}
