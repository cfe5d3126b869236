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
	dry    bool                       // only look
	open   bool                       // there is something in the period that the provider does not know, or was not seen to
	told   map[metering.MeterID]units // of the period, what of each meter that is billed
	batch  pgx.Batch
	result PreparedEntries
}

// units are a total as the provider is told it.
type units struct {
	quantity metering.Decimal
	decimals int32 // that quantity is rounded to
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
		if period.ClosedAt != nil {
			continue
		}
		t.open = false
		if err := t.tell(period, subscribed[period.ID]); err != nil {
			return err
		}
		if err := t.tellLate(chain, period); err != nil {
			return err
		}
		if err := t.cover(period); err != nil {
			return err
		}
	}
	return t.tx.SendBatch(t.ctx, &t.batch).Close()
}

// cover notes whether the provider knows everything about the period. It may
// have known before, where the meter has another place now.
func (t *telling) cover(period metering.Period) error {
	if t.open {
		return t.bill.cover(period, coverage{})
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
		select e.id, r.meter_id, r.mechanism, e.quantity, p.starts_at, p.ends_at, case when `+adjusts+` then r.window_end else p.ends_at end
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
		err = row.Scan(&e.ID, &e.Meter, &e.Mechanism, &e.Quantity, &e.Period.Start, &e.Period.End, &e.Deadline)
		e.Deadline = e.Deadline.Add(t.payer.grace)
		return e, err
	})
}

// subscription is what a period of ours lies in.
type subscription struct {
	id string
	metering.Range
	invoiced bool                       // its invoice is final
	decimals map[metering.MeterID]int32 // of the meters that had any when it became so; nil: nobody noted them
}

func (t *telling) subscribed() (map[metering.PeriodID]subscription, error) {
	rows, err := t.tx.Query(t.ctx, `
		select p.id, p.subscription, p.subscription_start, p.subscription_end, i.finalized_at is not null, i.decimals
		from billing_periods p
		left join lateral (
		  select i.finalized_at, i.decimals
		  from billing_invoices i
		  where i.tenant_id = p.tenant_id
		    and i.period_id = p.id
		    and i.finalized_at is not null
		  order by i.finalized_at
		  limit 1) i on true
		where p.tenant_id = $1
		  and p.customer_id = $2
		  and p.closed_at is null
		  and p.subscription <> ''`, t.tenant, t.payer.id)
	if err != nil {
		return nil, err
	}
	all := make(map[metering.PeriodID]subscription)
	var (
		id metering.PeriodID
		s  subscription
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &s.id, &s.Start, &s.End, &s.invoiced, &s.decimals}, func() error {
		all[id], s = s, subscription{}
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
	quantity  metering.Decimal // the last number that was
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
		  `+toldBySeries+`, coalesce(last.quantity, 0), coalesce(last.amount, 0), last.unsettled, last.id, last.number, last.status, last.timestamp
		from billing_series r
		cross join lateral (
		  select `+toldColumns+`, `+lastColumns+`,
		    (array_agg(e.amount order by e.version desc) filter (where e.status in ('acknowledged', 'confirmed')))[1] as amount,
		    max((e.call ->> 'timestamp')::timestamptz) as timestamp
		  from billing_entries e
		  where e.tenant_id = r.tenant_id
		    and e.series_id = r.id
		  having count(*) > 0) last
		where r.tenant_id = $1
		  and r.customer_id = $2
		  and r.period_id = $3
		  and not `+adjusts+``, t.tenant, t.payer.id, period.ID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s series, err error) {
		err = row.Scan(&s.meter, &s.account, &s.customer, &s.target, &s.mechanism, &s.windowStart,
			&s.told, &s.quantity, &s.amount, &s.unsettled, &s.last, &s.number, &s.status, &s.timestamp)
		return s, err
	})
}

// Why a sync leaves a meter out of what it tells Stripe.
const (
	skippedUnread    = "it was made while the customer's items were being read; sync again"
	skippedEarlier   = "usage from before the customer's subscription is not billed with it"
	skippedInvoiced  = "the period's invoice is final; what came after it is late usage"
	skippedRecords   = "the period is over, and usage records are taken only while it runs; what came last will be late usage"
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
	t.told = make(map[metering.MeterID]units)
	for _, total := range totals {
		item := t.item(total.Meter.ID)
		m := meterTelling{telling: t, period: period, sub: sub, part: period.Within(sub.Range), item: item, total: total}
		m.split(known)
		refused, over := m.refused(taken[item.Target]), m.over()
		if told := m.others.Add(m.toldHere()); !told.IsZero() || refused == "" && over != skippedEarlier {
			t.told[total.Meter.ID] = units{told, m.decimals()}
		}
		switch {
		case refused != "":
			t.skip(total.Meter, refused)
		case over != "":
			m.skipRest(over)
		default:
			if err := m.tell(); err != nil {
				return err
			}
		}
		taken[item.Target] = true
	}
	return nil
}

// next says whether a series' next entry is to be made: there is something new,
// and none is unsettled or of this pass.
func (t *telling) next(s series, changed bool) bool {
	settled := s.status == metering.EntryAcknowledged || s.status == metering.EntryConfirmed
	t.open = t.open || s.unsettled || changed || t.dry && settled && s.status != metering.EntryConfirmed
	switch {
	case t.dry || s.unsettled || s.number > t.after && !settled:
		return false
	case !changed || s.number > t.after:
		if settled {
			t.result.UpToDate = append(t.result.UpToDate, s.last)
		}
		return false
	}
	return len(t.result.Send) < entriesAtOnce
}

// write writes the next entry of a place down, to be sent.
func (t *telling) write(at place, l line, call metering.Call, period metering.Range, deadline time.Time) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	t.queue(&t.batch, at, l, message{id: id, identifier: id.String(), call: &call})
	t.result.Send = append(t.result.Send, Entry{
		ID: id, Meter: l.meter, Mechanism: at.mechanism, Quantity: call.Quantity, Period: period, Deadline: deadline,
	})
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

// confirmed says whether the provider was seen to have counted everything that
// it can be told of the period, and notes in all what that was: for the rest it
// is never charged with the period.
func (b *bill) confirmed(chain []metering.Period, period metering.Period, all []line) (bool, error) {
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
	if err := t.tell(period, subscribed[period.ID]); err != nil {
		return false, err
	}
	if err := t.tellLate(chain, period); err != nil || t.open {
		return false, err
	}
	for i := range all {
		t.note(&all[i], period)
	}
	return true, nil
}

// note writes down what the provider was told of a line's meter.
func (t *telling) note(l *line, period metering.Period) {
	told, billed := t.told[l.meter]
	if !billed {
		l.skipped = cmp.Or(l.skipped, "it went nowhere")
		return
	}
	price, _ := t.price(l.meter, period)
	l.told, l.decimals = &told.quantity, told.decimals
	l.charge = metering.RoundMoney(price.Charge(told.quantity), l.currency)
}
