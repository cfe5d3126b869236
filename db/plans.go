package db

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// planned plans the customer's billing on what is known at one instant, and has
// carry write it down in the same transaction.
func (l Ledger) planned(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time, ask func(*billing.Facts), carry func(*planWriter, billing.Plan) error) error {
	return atOneInstant(ctx, l.pool, func(tx pgx.Tx) error {
		w, plan, err := planIn(ctx, tx, tenant, customer, now, ask)
		if err != nil {
			return err
		}
		if err := carry(w, plan); err != nil {
			return err
		}
		return w.flush()
	})
}

// planIn takes the customer's turn and plans its billing.
func planIn(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, now time.Time, ask func(*billing.Facts)) (*planWriter, billing.Plan, error) {
	if err := takeTurn(ctx, tx, tenant, customer); err != nil {
		return nil, billing.Plan{}, err
	}
	read, err := readFacts(ctx, tx, tenant, customer, now)
	if err != nil {
		return nil, billing.Plan{}, err
	}
	ask(&read.facts)
	plan := read.facts.Plan()
	w := &planWriter{factReader: read, tx: tx}
	w.periods(plan.Periods)
	w.abandon(plan.Abandon)
	w.watermarks(plan.Reported)
	w.lookAgain(plan.LookAgain)
	return w, plan, nil
}

// flush sends what was written down so far.
func (w *planWriter) flush() error {
	err := w.tx.SendBatch(w.ctx, &w.batch).Close()
	w.batch = pgx.Batch{}
	return err
}

// planWriter writes a plan down, in the transaction that read its facts.
type planWriter struct {
	*factReader
	tx    pgx.Tx
	batch pgx.Batch
}

// takeTurn makes the transaction the only one that plans the customer's
// billing: whoever waited for another fails and reads again, because what it
// sees is older than what it waited for. It has to be the first statement.
func takeTurn(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) error {
	_, err := tx.Exec(ctx, `
		update customers
		set billing_turn = billing_turn + 1
		where tenant_id = $1
		  and id = $2`, tenant, customer)
	return err
}

// periods stores the customer's periods as they are now.
func (w *planWriter) periods(periods []billing.Period) {
	for _, p := range periods {
		i := slices.IndexFunc(w.facts.Stored, func(s billing.Period) bool { return s.Start.Equal(p.Start) })
		if i < 0 {
			w.batch.Queue(`insert into billing_periods (tenant_id, customer_id, starts_at, ends_at) values ($1, $2, $3, $4)`,
				w.tenant, w.facts.Customer.ID, p.Start, p.End)
		}
		if i >= 0 && !w.facts.Stored[i].End.Equal(p.End) {
			w.batch.Queue(`update billing_periods set ends_at = $3 where tenant_id = $1 and id = $2`, w.tenant, p.ID, p.End)
		}
		s := p.Subscription
		if s.ID == "" || i >= 0 && w.facts.Stored[i].Subscription.ID == s.ID && w.facts.Stored[i].Subscription.Range == s.Range {
			continue
		}
		w.batch.Queue(`
			update billing_periods
			set subscription = $4, subscription_start = $5, subscription_end = $6
			where tenant_id = $1
			  and customer_id = $2
			  and starts_at = $3`, w.tenant, w.facts.Customer.ID, p.Start, s.ID, s.Start, s.End)
	}
}

// abandon gives up what was to be reported to former connections: it may or may
// not have arrived there, and counts as if it had not until the answer turns up.
func (w *planWriter) abandon(reports []uuid.UUID) {
	if len(reports) == 0 {
		return
	}
	for _, table := range []string{"billing_snapshots", "billing_entries"} {
		w.batch.Queue(`
			update `+table+`
			set status = 'rejected', answer = 'given up: the provider was replaced', settled_at = $3, lease_until = null
			where tenant_id = $1
			  and id = any($2)`, w.tenant, reports, w.facts.Now)
	}
	w.batch.Queue(`
		update billing_entries
		set status = 'rejected', settled_at = $3
		where tenant_id = $1
		  and snapshot_id = any($2)`, w.tenant, reports, w.facts.Now)
}

// watermarks notes what the provider knows of the open periods.
func (w *planWriter) watermarks(reported []billing.PeriodWatermark) {
	for _, p := range reported {
		w.batch.Queue(`
			update billing_periods
			set watermark_events = $4, watermark_configuration = $5
			where tenant_id = $1
			  and customer_id = $2
			  and starts_at = $3`, w.tenant, w.facts.Customer.ID, p.Start, p.Events, p.Configuration)
	}
}

// lookAgain notes when there may be something to do although no fact has changed.
func (w *planWriter) lookAgain(at time.Time) {
	var when *time.Time
	if !at.IsZero() {
		when = &at
	}
	w.batch.Queue(`
		update customers
		set look_again_at = $3
		where tenant_id = $1
		  and id = $2
		  and look_again_at is distinct from $3`, w.tenant, w.customer, when)
}

// line writes a line of a report down as the next version of its series, and
// the series if it is new.
func (w *planWriter) line(s billing.Series, l billing.Line, m message) {
	args := pgx.NamedArgs{
		"tenant": w.tenant, "customer": w.facts.Customer.ID, "meter": l.MeterID, "account": s.Account, "at_provider": s.Customer,
		"item": s.Target, "mechanism": s.Method, "kind": s.Kind, "counting": s.Counting, "late": s.Late, "period": s.Period, "start": s.Window.Start, "end": s.Window.End,
		"id": m.id, "cumulative": l.Usage, "events": l.Events, "value": l.Quantity, "price_version": l.PriceVersion,
		"unit_price": l.UnitPrice, "charge": l.Charge, "amount": l.Amount, "currency": l.Currency,
		"identifier": m.identifier, "snapshot": m.snapshot, "call": nil, "quantity": nil, "provider_time": nil, "now": w.facts.Now,
	}
	if m.snapshot == nil {
		args["call"], args["quantity"] = json.RawMessage(m.framed.Body), m.quantity
	}
	if !m.framed.Timestamp.IsZero() {
		args["provider_time"] = m.framed.Timestamp
	}
	w.batch.Queue(`
		insert into billing_series
		  (tenant_id, customer_id, meter_id, provider_account, provider_customer, item, mechanism, kind, counting, late, period_id, window_start, window_end)
		select @tenant, @customer, @meter, @account, @at_provider, @item, @mechanism, @kind, @counting, @late, p.id, @start, @end
		from billing_periods p
		where p.tenant_id = @tenant
		  and p.customer_id = @customer
		  and p.starts_at = @period
		on conflict (tenant_id, customer_id, meter_id, period_id, provider_account, provider_customer, item, mechanism, window_start)
		do nothing`, args)
	w.batch.Queue(`
		insert into billing_entries
		  (tenant_id, id, series_id, version, cumulative_total, event_count, value, quantity, call, provider_time, price_version, unit_price,
		   charge, amount, currency, identifier, snapshot_id, status, prepared_at)
		select r.tenant_id, @id, r.id, 1 + coalesce(former.version, 0), @cumulative, @events, @value, @quantity, @call, @provider_time, @price_version, @unit_price,
		  @charge, @amount, @currency, @identifier, @snapshot, 'prepared', @now
		from billing_series r
		join billing_periods p on p.tenant_id = r.tenant_id and p.id = r.period_id and p.starts_at = @period
		left join lateral (
		  select max(e.version) as version
		  from billing_entries e
		  where e.tenant_id = r.tenant_id
		    and e.series_id = r.id) former on true
		where r.tenant_id = @tenant
		  and r.customer_id = @customer
		  and r.meter_id = @meter
		  and r.provider_account = @account
		  and r.provider_customer = @at_provider
		  and r.item = @item
		  and r.mechanism = @mechanism
		  and r.window_start = @start`, args)
}

// message is how a line goes out: in a snapshot, or by a call of its own.
type message struct {
	id         uuid.UUID // of the entry
	identifier string    // at the provider
	snapshot   *uuid.UUID
	framed     billing.Framed
	quantity   metering.Decimal // that goes out by itself
}

// statement writes a statement down with its bytes.
func (w *planWriter) statement(r billing.Report, sequence int64, frame Frame) (*Snapshot, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	m := w.message(id, r)
	m.Sequence = sequence
	framed, err := frame(w.kind, m)
	if err != nil {
		return nil, err
	}
	s := Snapshot{ID: id, Sequence: sequence, Period: r.Of, Deadline: r.Deadline, Body: framed.Body}
	w.batch.Queue(`
		insert into billing_snapshots
		  (tenant_id, id, customer_id, sequence, provider_id, period_id, body, prepared_at, watermark_events, watermark_configuration)
		select @tenant, @id, @customer, @sequence, @provider, p.id, @body, @now, @events, @catalog
		from billing_periods p
		where p.tenant_id = @tenant
		  and p.customer_id = @customer
		  and p.starts_at = @period`, pgx.NamedArgs{
		"tenant": w.tenant, "id": s.ID, "customer": w.facts.Customer.ID, "sequence": s.Sequence, "provider": w.provider,
		"period": r.Period, "body": s.Body, "now": w.facts.Now, "events": r.Watermark.Events, "catalog": r.Watermark.Configuration,
	})
	for _, l := range r.Lines {
		entry, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		series := r.Series
		series.Method = metering.InSnapshot
		if !l.Closed.IsZero() {
			series.Period, series.Method, series.Late = l.Closed, metering.Adjusted, true
		}
		w.line(series, l, message{id: entry, identifier: s.ID.String(), snapshot: &s.ID})
	}
	return &s, nil
}

// message is the report with what its receiver is told besides.
func (w *planWriter) message(id uuid.UUID, r billing.Report) billing.Message {
	m := billing.Message{
		Report: r, ID: id, TenantID: w.tenant, CustomerExternalID: w.facts.Customer.ExternalID, Timezone: w.facts.Settings.Timezone, Now: w.facts.Now,
	}
	for _, p := range w.facts.Stored {
		m.Periods = append(m.Periods, p.Range)
	}
	return m
}

// call writes a quantity or a charge down, to be sent by a call of its own.
func (w *planWriter) call(r billing.Report, frame Frame) (Entry, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Entry{}, err
	}
	l := r.Lines[0]
	m := w.message(id, r)
	m.Meter = w.facts.Meters[slices.IndexFunc(w.facts.Meters, func(m metering.Meter) bool { return m.ID == l.MeterID })]
	framed, err := frame(w.kind, m)
	if err != nil {
		return Entry{}, err
	}
	if r.Kind == billing.ChargeReport {
		r.Method = metering.Charged
	}
	w.line(r.Series, l, message{id: id, identifier: id.String(), framed: framed, quantity: r.Quantity})
	return Entry{ID: id, Meter: l.MeterID, Method: r.Method, Quantity: r.Quantity, Period: r.Of, Deadline: r.Deadline}, nil
}
