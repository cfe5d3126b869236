package db

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// PreparedEntries is what there is to tell the provider about a customer, meter
// by meter.
type PreparedEntries struct {
	Send     []Entry     // unsettled ones first
	UpToDate []uuid.UUID // acknowledged ones that still hold
	Skipped  []metering.SkippedMeter
}

// Entry names what is to be told about one meter.
type Entry struct {
	ID        uuid.UUID
	Meter     metering.MeterID
	Mechanism metering.Mechanism
	Quantity  metering.Decimal
	Period    metering.Range
	Deadline  time.Time // until when it is worth trying
}

// entriesAtOnce bounds what one preparation makes; the next one makes the rest.
const entriesAtOnce = 200

// Timestamp says with which time something of the range is told now, if it must
// be later than the last one of its series.
type Timestamp func(m metering.Mechanism, now, last time.Time, r metering.Range) time.Time

// PrepareEntries returns the customer's unsettled entries and makes the next
// ones for each series that has none and whose total has changed. Entries with
// a number above after belong to the caller's own pass: their series are done
// with. Everything is read at one instant. CodeConflict where the customer's
// link has to be read again.
func (l Ledger) PrepareEntries(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, after int64, at Timestamp, now time.Time, hold ...metering.MeterID) (PreparedEntries, error) {
	var prepared PreparedEntries
	err := atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		p, err := lockPayer(ctx, tx, tenant, customer)
		if err != nil {
			return err
		}
		t := telling{bill: bill{ctx: ctx, tx: tx, tenant: tenant, payer: p, now: metering.Instant(now), hold: hold}, after: after, at: at}
		err = t.prepare()
		prepared = t.result
		return err
	})
	if err != nil {
		return PreparedEntries{}, fmt.Errorf("prepare entries: %w", err)
	}
	return prepared, nil
}

type telling struct {
	bill
	link   metering.Link
	after  int64
	at     Timestamp
	dry    bool // only look
	open   bool // there is something in the period that the provider does not know, or was not seen to
	batch  pgx.Batch
	result PreparedEntries
}

func (t *telling) prepare() error {
	provider, err := activeProvider(t.ctx, t.tx, t.tenant)
	if err != nil {
		return err
	}
	if provider.Kind != metering.Stripe {
		return metering.Errorf(metering.CodeConflict, "the billing provider was replaced")
	}
	t.account, t.mapping = provider.Account, provider.Mapping
	if err := t.leaveOthers(); err != nil {
		return err
	}
	if t.link, err = readLink(t.ctx, t.tx, t.tenant, t.payer.id, t.account); err != nil {
		return err
	}
	if t.result.Send, err = t.unsettledEntries(); err != nil {
		return err
	}
	if t.prices, err = allPrices(t.ctx, t.tx, t.tenant); err != nil {
		return err
	}
	chain, err := extendPeriods(t.ctx, t.tx, t.tenant, t.payer, t.now)
	if err != nil {
		return err
	}
	subscribed, err := t.subscribed()
	if err != nil {
		return err
	}
	for _, period := range slices.Backward(chain) {
		if period.FrozenAt != nil {
			continue
		}
		t.open = false
		if err := t.tell(period, subscribed[period.ID]); err != nil {
			return err
		}
		if err := t.cover(period); err != nil {
			return err
		}
	}
	return t.tx.SendBatch(t.ctx, &t.batch).Close()
}

// cover notes that the provider knows everything about the period, if it does.
func (t *telling) cover(period metering.Period) error {
	if t.open {
		return nil
	}
	covered, err := t.coverage(period)
	if err != nil {
		return err
	}
	return t.bill.cover(period, covered)
}

// leaveOthers settles what was to be told to other accounts.
func (t *telling) leaveOthers() error {
	waiting, err := t.unsettled()
	if err != nil {
		return err
	}
	if waiting != nil {
		return metering.Errorf(metering.CodeOverloaded, "a snapshot is being sent to the former provider")
	}
	return t.giveUpEntries()
}

func (t *telling) unsettledEntries() ([]Entry, error) {
	rows, err := t.tx.Query(t.ctx, `
		select e.id, r.meter_id, r.mechanism, e.quantity, p.starts_at, p.ends_at
		from billing_entries e
		join billing_series r on r.tenant_id = e.tenant_id and r.id = e.series_id
		join billing_periods p on p.tenant_id = r.tenant_id and p.id = r.period_id
		where e.tenant_id = $1
		  and r.customer_id = $2
		  and e.snapshot_id is null
		  and e.status in ('prepared', 'sent', 'ambiguous')
		order by e.number`, t.tenant, t.payer.id)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Entry, err error) {
		err = row.Scan(&e.ID, &e.Meter, &e.Mechanism, &e.Quantity, &e.Period.Start, &e.Period.End)
		e.Deadline = e.Period.End.Add(t.payer.grace)
		return e, err
	})
}

// subscription is what a period of ours lies in.
type subscription struct {
	id string
	metering.Range
	invoiced bool // its invoice is final
}

func (t *telling) subscribed() (map[metering.PeriodID]subscription, error) {
	rows, err := t.tx.Query(t.ctx, `
		select p.id, p.subscription, p.subscription_start, p.subscription_end, exists (
		  select
		  from billing_invoices i
		  where i.tenant_id = p.tenant_id
		    and i.period_id = p.id
		    and i.finalized_at is not null)
		from billing_periods p
		where p.tenant_id = $1
		  and p.customer_id = $2
		  and p.frozen_at is null
		  and p.subscription <> ''`, t.tenant, t.payer.id)
	if err != nil {
		return nil, err
	}
	all := make(map[metering.PeriodID]subscription)
	var (
		id metering.PeriodID
		s  subscription
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &s.id, &s.Start, &s.End, &s.invoiced}, func() error {
		all[id] = s
		return nil
	})
	return all, err
}

// series is what was told of a meter in one place.
type series struct {
	meter       metering.MeterID
	account     string
	customer    string
	target      string
	mechanism   metering.Mechanism
	windowStart time.Time

	told      metering.Decimal // acknowledged
	amount    metering.Decimal
	unsettled bool
	last      uuid.UUID
	number    int64
	status    metering.EntryStatus
	timestamp *time.Time
}

func (t *telling) series(period metering.Period) ([]series, error) {
	rows, err := t.tx.Query(t.ctx, `
		select r.meter_id, r.provider_account, r.provider_customer, r.item, r.mechanism, r.window_start,
		  `+toldBySeries+`, coalesce(last.amount, 0), last.unsettled, last.id, last.number, last.status, last.timestamp
		from billing_series r
		cross join lateral (
		  select `+toldColumns+`,
		    (array_agg(e.amount order by e.version desc) filter (where e.status in ('acknowledged', 'confirmed')))[1] as amount,
		    bool_or(e.status in ('prepared', 'sent', 'ambiguous')) as unsettled,
		    (array_agg(e.id order by e.version desc))[1] as id,
		    (array_agg(e.number order by e.version desc))[1] as number,
		    (array_agg(e.status order by e.version desc))[1] as status,
		    max((e.call ->> 'timestamp')::timestamptz) as timestamp
		  from billing_entries e
		  where e.tenant_id = r.tenant_id
		    and e.series_id = r.id
		  having count(*) > 0) last
		where r.tenant_id = $1
		  and r.customer_id = $2
		  and r.period_id = $3
		  and r.mechanism <> 'adjustment'`, t.tenant, t.payer.id, period.ID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s series, err error) {
		err = row.Scan(&s.meter, &s.account, &s.customer, &s.target, &s.mechanism, &s.windowStart,
			&s.told, &s.amount, &s.unsettled, &s.last, &s.number, &s.status, &s.timestamp)
		return s, err
	})
}

// Why a sync leaves a meter out of what it tells Stripe.
const (
	skippedUnread    = "it was made while the customer's items were being read; sync again"
	skippedEarlier   = "usage from before the customer's subscription is not billed with it"
	skippedInvoiced  = "the period's invoice is final; what came after it is shown and not billed"
	skippedRecords   = "the period is over, and usage records are taken only while it runs; what came last is shown and not billed"
	skippedElsewhere = "another meter goes to the same place at the provider; map each to a price of its own"
)

// tell makes the entries of one period.
func (t *telling) tell(period metering.Period, sub subscription) error {
	totals, err := Usage{t.tx}.MeterTotals(t.ctx, t.tenant, t.payer.id, period.Range)
	if err != nil {
		return err
	}
	known, err := t.series(period)
	if err != nil {
		return err
	}
	taken := make(map[string]bool)
	for _, total := range totals {
		item := t.item(total.Meter.ID)
		m := meterTelling{telling: t, period: period, sub: sub, part: period.Within(sub.Range), item: item, total: total}
		m.split(known)
		if reason := m.refused(taken[item.Target]); reason != "" {
			t.skip(total.Meter, reason)
		} else if reason := m.over(); reason != "" {
			m.skipRest(reason)
		} else if err := m.tell(); err != nil {
			return err
		}
		taken[item.Target] = true
	}
	return nil
}

func (t *telling) item(meter metering.MeterID) metering.Item {
	for _, i := range t.link.Items {
		if i.MeterID == meter {
			return i
		}
	}
	return metering.Item{MeterID: meter, Skipped: skippedUnread}
}

// skip notes why a meter is left out: of several periods, the newest says.
func (t *telling) skip(m metering.Meter, reason string) {
	if slices.ContainsFunc(t.result.Skipped, func(known metering.SkippedMeter) bool { return known.MeterID == m.ID }) {
		return
	}
	t.result.Skipped = append(t.result.Skipped, metering.SkippedMeter{MeterID: m.ID, MeterSlug: m.Slug, Reason: reason})
}

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
}

// split parts the meter's series from those of another account, customer,
// place, mechanism or subscription period: those have ended.
func (m *meterTelling) split(known []series) {
	for _, s := range known {
		switch {
		case s.meter != m.total.Meter.ID:
		case s.account == m.account && s.customer == m.link.Customer && s.target == m.item.Target &&
			s.mechanism == m.item.Mechanism && !s.windowStart.Before(m.part.Start):
			m.own = append(m.own, s)
		default:
			m.others, m.amount = m.others.Add(s.told), m.amount.Add(s.amount)
		}
	}
}

// refused says why the meter is not told, if it is not.
func (m *meterTelling) refused(taken bool) string {
	switch {
	case m.total.Filling:
		return skippedFilling
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

func (m *meterTelling) skipRest(reason string) {
	var told metering.Decimal
	for _, s := range m.own {
		told = told.Add(s.told)
	}
	if !m.value(m.total.Usage).Equal(told) {
		m.skip(m.total.Meter, reason)
	}
}

// value is what this place should have counted when the period's usage is
// total. Where the provider keeps a total it is never below zero.
func (m *meterTelling) value(total metering.Decimal) metering.Decimal {
	value := metering.UnitsBetween(m.others, total)
	keeps := m.item.Mechanism == metering.UsageRecord || m.item.Mechanism == metering.MeterWindow
	if keeps && value.IsNegative() {
		return metering.Decimal{}
	}
	return value
}

func (m *meterTelling) tell() error {
	if m.item.Mechanism == metering.MeterWindow {
		return m.tellWindows()
	}
	return m.tellOne(figure{
		place: m.part, at: m.part, total: m.total.Usage, value: m.value(m.total.Usage), charge: m.charge(m.total.Usage), amount: m.charge(m.total.Usage).Sub(m.amount),
	})
}

// figure is what one series should be told.
type figure struct {
	place  metering.Range // the series' window
	at     metering.Range // where its timestamp lies
	total  metering.Decimal
	value  metering.Decimal
	charge metering.Decimal
	amount metering.Decimal
}

// charge is what the period's usage comes to at our prices.
func (m *meterTelling) charge(usage metering.Decimal) metering.Decimal {
	price, _ := metering.PriceAt(m.prices[m.total.Meter.ID], m.period.Start)
	return metering.RoundMoney(price.Charge(usage), m.currency())
}

func (m *meterTelling) currency() string {
	price, _ := metering.PriceAt(m.prices[m.total.Meter.ID], m.period.Start)
	return cmp.Or(price.Currency, m.payer.currency)
}

// tellOne makes a series' next entry, if it has none that is unsettled or of
// this pass, and there is something new.
func (m *meterTelling) tellOne(f figure) error {
	var s series
	for _, own := range m.own {
		if own.windowStart.Equal(f.place.Start) {
			s = own
		}
	}
	settled := s.status == metering.EntryAcknowledged || s.status == metering.EntryConfirmed
	t := m.telling
	t.open = t.open || s.unsettled || !f.value.Equal(s.told) || t.dry && settled && s.status != metering.EntryConfirmed
	switch {
	case t.dry:
		return nil
	case s.unsettled || s.number > m.after && !settled:
		return nil
	case f.value.Equal(s.told) || s.number > m.after:
		if settled {
			m.result.UpToDate = append(m.result.UpToDate, s.last)
		}
		return nil
	case len(m.result.Send) >= entriesAtOnce:
		return nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	call := m.call(f, s)
	m.queue(id, f, call)
	m.result.Send = append(m.result.Send, Entry{
		ID: id, Meter: m.item.MeterID, Mechanism: m.item.Mechanism, Quantity: call.Quantity,
		Period: m.period.Range, Deadline: m.period.Deadline(m.payer.grace),
	})
	return nil
}

func (m *meterTelling) call(f figure, s series) metering.Call {
	call := metering.Call{
		Mechanism: m.item.Mechanism, Target: m.item.Target, ItemID: m.item.ItemID, EventName: m.item.EventName,
		CustomerKey: m.item.CustomerKey, ValueKey: m.item.ValueKey, Customer: m.link.Customer, Quantity: f.value,
	}
	if call.Mechanism == metering.MeterDelta {
		call.Quantity = f.value.Sub(s.told)
	}
	var last time.Time
	if s.timestamp != nil {
		last = *s.timestamp
	}
	call.Timestamp = m.at(call.Mechanism, m.now, last, f.at)
	return call
}

func (m *meterTelling) queue(id uuid.UUID, f figure, call metering.Call) {
	price, _ := metering.PriceAt(m.prices[m.total.Meter.ID], m.period.Start)
	args := pgx.NamedArgs{
		"tenant": m.tenant, "customer": m.payer.id, "meter": m.item.MeterID, "account": m.account, "at_provider": m.link.Customer,
		"item": m.item.Target, "mechanism": m.item.Mechanism, "period": m.period.ID, "start": f.place.Start, "end": f.place.End,
		"id": id, "cumulative": f.total, "events": m.total.Count, "value": f.value, "quantity": call.Quantity, "call": call,
		"price_version": price.Version, "unit_price": price.OverageRate, "charge": f.charge, "amount": f.amount, "currency": m.currency(),
		"identifier": id.String(), "now": m.now,
	}
	m.batch.Queue(`
		insert into billing_series
		  (tenant_id, customer_id, meter_id, provider_account, provider_customer, item, mechanism, period_id, window_start, window_end)
		values (@tenant, @customer, @meter, @account, @at_provider, @item, @mechanism, @period, @start, @end)
		on conflict (tenant_id, customer_id, meter_id, period_id, provider_account, provider_customer, item, mechanism, window_start)
		do nothing`, args)
	m.batch.Queue(`
		insert into billing_entries
		  (tenant_id, id, series_id, version, cumulative_total, event_count, value, quantity, call, price_version, unit_price,
		   charge, amount, currency, identifier, status, prepared_at)
		select r.tenant_id, @id, r.id, 1 + coalesce(former.version, 0), @cumulative, @events, @value, @quantity, @call, @price_version, @unit_price,
		  @charge, @amount, @currency, @identifier, 'prepared', @now
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

// tellWindows makes an entry for each of the provider's windows that changed.
// What a window is told is the difference of two rounded totals, so that the
// windows add up to the period's.
func (m *meterTelling) tellWindows() error {
	busy, err := m.busyHours()
	if err != nil {
		return err
	}
	var total metering.Decimal
	var former figure
	for _, w := range windowsOf(m.period.Range, m.part, m.item.Window, m.now) {
		if slices.ContainsFunc(busy, func(hour time.Time) bool { return hour.Before(w.usage.End) && hour.Add(time.Hour).After(w.usage.Start) }) {
			usage, err := m.usage(w.usage)
			if err != nil {
				return err
			}
			total = total.Add(usage)
		}
		now := figure{place: w.place, at: w.place, total: total, value: m.value(total), charge: m.charge(total)}
		told := now
		told.value, told.amount = now.value.Sub(former.value), now.charge.Sub(former.charge)
		if err := m.tellOne(told); err != nil {
			return err
		}
		former = now
	}
	return nil
}

// busyHours are the starts of the hours of the period in which there is usage.
func (m *meterTelling) busyHours() ([]time.Time, error) {
	rows, err := m.tx.Query(m.ctx, `
		select distinct hour
		from usage_hourly
		where tenant_id = $1
		  and customer_id = $2
		  and generation_id = $3
		  and hour > $4::timestamptz - interval '1 hour'
		  and hour < $5`, m.tenant, m.payer.id, m.total.Meter.Generation.ID, m.period.Start, m.period.End)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[time.Time])
}

func (m *meterTelling) usage(r metering.Range) (metering.Decimal, error) {
	totals, err := Usage{m.tx}.MeterTotals(m.ctx, m.tenant, m.payer.id, r)
	for _, t := range totals {
		if t.Meter.ID == m.total.Meter.ID {
			return t.Usage, err
		}
	}
	return metering.Decimal{}, err
}

// window is one of the provider's, and the usage that goes into it.
type window struct{ place, usage metering.Range }

// windowsOf are the provider's windows of UTC that end in the part of the
// period, as far as they have begun. One that the part's end cuts would be
// billed with the next period, so its usage goes into the one before it.
func windowsOf(period, part metering.Range, g metering.Granularity, now time.Time) []window {
	width := time.Hour
	if g == metering.Day {
		width = 24 * time.Hour
	}
	var windows []window
	begin, from := part.Start, period.Start
	for end := part.Start.Truncate(width).Add(width); !end.After(part.End) && !begin.After(now); end = end.Add(width) {
		if end.Sub(begin) < leastWindow {
			continue
		}
		windows = append(windows, window{metering.Range{Start: begin, End: end}, metering.Range{Start: from, End: end}})
		begin, from = end, end
	}
	if len(windows) == 0 {
		return []window{{part, period}}
	}
	if last := &windows[len(windows)-1]; last.place.End.Add(width).After(part.End) {
		last.usage.End = period.End
	}
	return windows
}

// leastWindow holds a whole minute, which a timestamp has to lie in.
const leastWindow = 2 * time.Minute

// confirmed says whether the provider was seen to have counted everything that
// it can be told of the period.
func (b *bill) confirmed(period metering.Period) (bool, error) {
	t := telling{bill: *b, dry: true}
	var err error
	if t.link, err = readLink(t.ctx, t.tx, t.tenant, t.payer.id, t.account); err != nil {
		if metering.CodeOf(err) == metering.CodeConflict {
			return false, nil // it has to be read again
		}
		return false, err
	}
	subscribed, err := t.subscribed()
	if err != nil {
		return false, err
	}
	err = t.tell(period, subscribed[period.ID])
	return !t.open, err
}
