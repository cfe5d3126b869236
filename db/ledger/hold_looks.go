package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// NewHold is a stored draft invoice that Odometer may have to hold.
type NewHold struct {
	Customer metering.CustomerID
	Invoice  metering.Invoice
	Draft    billing.Draft
	Frame    func(until time.Time) (billing.Framed, error) // encodes the request that holds the draft
}

// Begin records the hold of a draft, and plans the report that holds the draft. It returns 0 and records
// nothing if the tenant has disabled holds, no line of the draft is ours, or the hold is already recorded. If
// the draft cannot be held, Begin records a hold that has already ended, and returns 0.
func (s Holds) Begin(ctx context.Context, tenant metering.TenantID, h NewHold, now time.Time) (id metering.HoldID, err error) {
	err = pg.AtOneInstant(ctx, s.pool, func(tx pgx.Tx) error {
		id = 0
		if err := TakeTurn(ctx, tx, tenant, h.Customer); err != nil {
			return err
		}
		w := holdWriter{ctx: ctx, tx: tx, tenant: tenant, customer: h.Customer, now: metering.Instant(now)}
		id, err = w.begin(h)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("hold invoice: %w", err)
	}
	return id, nil
}

// holdWriter writes the changes of one hold.
type holdWriter struct {
	ctx      context.Context
	tx       pgx.Tx
	tenant   metering.TenantID
	customer metering.CustomerID
	now      time.Time
}

func (w *holdWriter) begin(h NewHold) (id metering.HoldID, err error) {
	var (
		grace time.Duration
		hold  metering.InvoiceHold
		known bool
	)
	err = w.tx.QueryRow(w.ctx, `
		select t.grace, t.invoice_hold, t.invoice_hold_deadline, exists (
		  select
		  from billing_holds h
		  where h.tenant_id = t.id
		    and h.connection_id = $2
		    and h.invoice_id = $3)
		from tenants t
		where t.id = $1`, w.tenant, h.Invoice.Connection, h.Invoice.ID).Scan(&grace, &hold.Enabled, &hold.Deadline, &known)
	if err != nil || known || !hold.Enabled || !h.Draft.Ours() {
		return 0, err
	}
	graceUntil := h.Invoice.Period.End.Add(grace)
	deadline := graceUntil.Add(hold.Deadline).Truncate(time.Second)
	row := pgx.NamedArgs{
		"tenant": w.tenant, "customer": w.customer, "connection": h.Invoice.Connection, "invoice": h.Invoice.ID, "grace_until": graceUntil, "deadline": deadline,
		"draft": h.Draft, "state": billing.HoldPlanned, "reasons": []billing.HoldReason{}, "report": nil, "ended": nil, "now": w.now,
	}
	switch {
	case !h.Draft.Automatic:
		row["state"], row["reasons"], row["ended"] = billing.HoldTheirs, []billing.HoldReason{{Code: billing.HoldNotAutomatic}}, w.now
	case !deadline.After(w.now):
		row["state"], row["reasons"], row["ended"] = billing.HoldRefused, []billing.HoldReason{{Code: billing.HoldTooLate}}, w.now
	default:
		if row["report"], err = w.planHold(h, deadline); err != nil {
			return 0, err
		}
	}
	err = w.tx.QueryRow(w.ctx, `
		insert into billing_holds (tenant_id, customer_id, connection_id, invoice_id, grace_until, deadline, draft, state, reasons, hold_report, looked_at, ended_at, recorded_at)
		values (@tenant, @customer, @connection, @invoice, @grace_until, @deadline, @draft, @state, @reasons, @report, @now, @ended, @now)
		returning id`, row).Scan(&id)
	if row["ended"] != nil {
		return 0, err
	}
	return id, err
}

// planHold stores the report that holds the draft.
func (w *holdWriter) planHold(h NewHold, deadline time.Time) (uuid.UUID, error) {
	framed, err := h.Frame(deadline)
	if err != nil {
		return uuid.UUID{}, err
	}
	_, err = w.tx.Exec(w.ctx, `
		insert into billing_destinations (tenant_id, customer_id, connection_id, provider_customer)
		values ($1, $2, $3, $4)
		on conflict (tenant_id, customer_id, connection_id, provider_customer) do nothing`, w.tenant, w.customer, h.Invoice.Connection, h.Invoice.Customer)
	if err != nil {
		return uuid.UUID{}, err
	}
	_, err = w.tx.Exec(w.ctx, `
		insert into billing_series (tenant_id, destination_id, kind, target, counting)
		select d.tenant_id, d.id, 'invoice_action', $5, 'replaces'
		from billing_destinations d
		where d.tenant_id = $1
		  and d.customer_id = $2
		  and d.connection_id = $3
		  and d.provider_customer = $4`, w.tenant, w.customer, h.Invoice.Connection, h.Invoice.Customer, h.Invoice.ID)
	if err != nil {
		return uuid.UUID{}, err
	}
	return w.plan(h.Invoice.Connection, h.Invoice.ID, framed)
}

// plan stores an invoice action as the customer's next report.
func (w *holdWriter) plan(connection metering.ConnectionID, invoice string, framed billing.Framed) (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.UUID{}, err
	}
	_, err = w.tx.Exec(w.ctx, `
		insert into billing_reports (tenant_id, id, customer_id, number, series_id, body, recorded_at)
		select d.tenant_id, $5, d.customer_id, `+lastNumber("$1", "$2")+` + 1, s.id, $6, $7
		from billing_destinations d
		join billing_series s on s.tenant_id = d.tenant_id and s.destination_id = d.id and s.kind = 'invoice_action' and s.target = $4
		where d.tenant_id = $1
		  and d.customer_id = $2
		  and d.connection_id = $3`, w.tenant, w.customer, connection, invoice, id, framed.Body, w.now)
	return id, err
}

// HoldLook is the stored state of a held invoice, to which the caller adds the provider's state.
type HoldLook struct {
	Hold
	Customer string // at the provider
	Facts    billing.HoldFacts
	Places   []Counted                           // meter targets to which usage of the period was reported
	terms    map[metering.MeterID]*billing.Terms // our terms
}

// Look reads the stored state of a held invoice, and the state of the customer's last sync since the sync that was
// requested for the invoice. sync is nil if no sync was requested.
func (s Holds) Look(ctx context.Context, tenant metering.TenantID, id metering.HoldID, sync *uuid.UUID, now time.Time) (l HoldLook, err error) {
	if l.Hold, err = getHold(ctx, s.pool, tenant, id); err != nil {
		return l, fmt.Errorf("look at hold: %w", pg.Coded(err))
	}
	l.Facts = billing.HoldFacts{
		Now: now, GraceUntil: l.GraceUntil, Deadline: l.Deadline, Hold: l.Hold.Hold, Release: l.Release, Asked: l.ReleaseAskedAt != nil,
	}
	var draft []byte
	err = s.pool.QueryRow(ctx, `
		select h.draft, i.provider_customer, k.retired_at is not null
		from billing_holds h
		join billing_invoices i on i.tenant_id = h.tenant_id and i.connection_id = h.connection_id and i.invoice_id = h.invoice_id
		join billing_connections k on k.tenant_id = h.tenant_id and k.id = h.connection_id
		where h.tenant_id = $1
		  and h.id = $2`, tenant, id).Scan(&draft, &l.Customer, &l.Facts.Replaced)
	if err == nil {
		err = json.Unmarshal(draft, &l.Facts.Before)
	}
	if err == nil && sync != nil {
		l.Facts.Sync, err = s.syncSince(ctx, tenant, l.CustomerID, *sync)
	}
	if err != nil {
		return l, fmt.Errorf("look at hold: %w", pg.Coded(err))
	}
	return l, nil
}

// syncSince returns the customer's newest successful sync, from the given sync on. If none was successful, it returns the
// newest one. So a meter that an operator has corrected is no longer excluded after the next sync.
func (s Holds) syncSince(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, first uuid.UUID) (of billing.HeldSync, err error) {
	var id uuid.UUID
	err = s.pool.QueryRow(ctx, `
		select id, status
		from billing_syncs
		where tenant_id = $1
		  and customer_id = $2
		  and id >= $3
		order by status = 'succeeded' desc, id desc
		limit 1`, tenant, customer, first).Scan(&id, &of.Status)
	if errors.Is(err, pgx.ErrNoRows) {
		return of, nil
	}
	if err != nil {
		return of, err
	}
	excluded, err := Syncs{s.pool}.excluded(ctx, tenant, id)
	for _, m := range excluded {
		of.Excluded = append(of.Excluded, billing.Exclusion{
			MeterID: m.MeterID, MeterSlug: m.MeterSlug,
			ExclusionReason: billing.ExclusionReason{Code: billing.ExclusionCode(m.Code), Detail: m.Detail},
		})
	}
	return of, err
}

// ReadPlaces adds to l the meter targets to which usage of the invoice's period was reported. It also adds the
// lines of meters that are charged as amounts, and our price terms.
func (s Holds) ReadPlaces(ctx context.Context, tenant metering.TenantID, l *HoldLook) (err error) {
	of := pgx.NamedArgs{
		"tenant": tenant, "customer": l.CustomerID, "connection": l.Connection, "invoice": l.InvoiceID, "cutoff": nil,
	}
	const billed = `
		exists (
		    select
		    from billing_invoices i
		    where i.tenant_id = p.tenant_id
		      and i.connection_id = @connection
		      and i.invoice_id = @invoice
		      and i.subscription = p.subscription
		      and i.provider_customer = d.provider_customer
		      and p.starts_at < i.period_end
		      and p.ends_at > i.period_start)`
	l.Places, err = s.ledger.counted(ctx, `and d.customer_id = @customer and d.connection_id = @connection and `+billed, of)
	if err != nil {
		return err
	}
	if err = s.readLines(ctx, l, billed, of); err != nil {
		return fmt.Errorf("read lines: %w", pg.Coded(err))
	}
	streams, err := s.ledger.streams(ctx, tenant, l.CustomerID, l.Facts.Now)
	if err != nil {
		return fmt.Errorf("read prices: %w", err)
	}
	l.terms = make(map[metering.MeterID]*billing.Terms)
	for _, read := range streams {
		maps.Copy(l.terms, read.facts.TermsIn(l.Period))
	}
	return nil
}

// readLines adds the lines of meters that are charged as amounts. It skips lines that are on a final invoice.
func (s Holds) readLines(ctx context.Context, l *HoldLook, billed string, of pgx.NamedArgs) error {
	rows, err := s.pool.Query(ctx, `
		select s.meter_id, coalesce(x.id, '00000000-0000-0000-0000-000000000000'), coalesce(x.quantity, 0), x.outstanding
		from billing_destinations d
		join billing_series s on s.tenant_id = d.tenant_id and s.destination_id = d.id and s.kind = 'charge' and s.counting = 'replaces' and not s.late
		join billing_periods p on p.tenant_id = s.tenant_id and p.id = s.period_id
		cross join lateral (
		  select (array_agg(r.id order by r.number desc) filter (where r.state in ('accepted', 'counted')))[1] as id,
		    (array_agg(r.quantity order by r.number desc) filter (where r.state in ('accepted', 'counted')))[1] as quantity,
		    coalesce(bool_or(r.state in ('planned', 'sending', 'in_doubt')), false) as outstanding,
		    coalesce(bool_or(exists (
		      select
		      from billing_invoice_lines n
		      join billing_invoices i on i.tenant_id = n.tenant_id and i.connection_id = n.connection_id and i.invoice_id = n.invoice_id and i.version = n.version
		      where n.tenant_id = r.tenant_id
		        and n.report_id = r.id
		        and i.finalized_at is not null)), false) as final
		  from billing_reports r
		  where r.tenant_id = s.tenant_id
		    and r.series_id = s.id) x
		where d.tenant_id = @tenant
		  and d.customer_id = @customer
		  and d.connection_id = @connection
		  and not x.final
		  and `+billed+`
		order by s.meter_id`, of)
	if err != nil {
		return err
	}
	l.Facts.Lines, err = pgx.CollectRows(rows, pgx.RowToStructByPos[billing.HeldLine])
	return err
}

// AddCounted adds the quantity that the provider has counted at a meter target.
func (l *HoldLook) AddCounted(at Counted, counted metering.Decimal) {
	l.Facts.Places = append(l.Facts.Places, billing.HeldPlace{
		MeterID: at.Meter, Reported: at.Total, Counted: counted, Outstanding: at.Outstanding, Terms: l.terms[at.Meter],
	})
}

// ReadCharges adds the amounts of accepted charge reports to which the draft's lines refer.
func (s Holds) ReadCharges(ctx context.Context, tenant metering.TenantID, l *HoldLook) error {
	var ids []uuid.UUID
	for _, line := range l.Facts.Draft.Lines {
		if line.ReportID != nil {
			ids = append(ids, *line.ReportID)
		}
	}
	rows, err := s.pool.Query(ctx, `
		select r.id, r.quantity
		from billing_reports r
		join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id and s.kind = 'charge'
		where r.tenant_id = $1
		  and r.customer_id = $2
		  and r.id = any($3)
		  and r.state in ('accepted', 'counted')`, tenant, l.CustomerID, ids)
	if err != nil {
		return fmt.Errorf("read charges: %w", pg.Coded(err))
	}
	l.Facts.Charges = map[uuid.UUID]metering.Decimal{}
	var (
		id     uuid.UUID
		amount metering.Decimal
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &amount}, func() error {
		l.Facts.Charges[id] = amount
		return nil
	})
	return pg.Coded(err)
}

// Decided stores a decision about a held invoice. If the decision is to release the invoice, Decided also plans
// the report that releases the invoice. send is the report to send now, or the zero ID if there is none. It
// returns CodeConflict if the hold has changed since l was read. The caller must then evaluate the hold again.
func (s Holds) Decided(ctx context.Context, tenant metering.TenantID, l HoldLook, d billing.HoldDecision, frame func() (billing.Framed, error), now time.Time) (send uuid.UUID, err error) {
	err = pg.AtOneInstant(ctx, s.pool, func(tx pgx.Tx) error {
		if err := TakeTurn(ctx, tx, tenant, l.CustomerID); err != nil {
			return err
		}
		is, err := getHold(ctx, tx, tenant, l.ID)
		if err != nil {
			return err
		}
		if is.State != l.State || !is.Hold.Same(l.Hold.Hold) || !is.Release.Same(l.Release) || (is.ReleaseAskedAt == nil) != (l.ReleaseAskedAt == nil) {
			return metering.Errorf(metering.CodeConflict, "the hold has changed in the meantime; it is evaluated again")
		}
		w := holdWriter{ctx: ctx, tx: tx, tenant: tenant, customer: l.CustomerID, now: metering.Instant(now)}
		send, err = w.decided(l, d, frame)
		return err
	})
	if err != nil {
		return uuid.UUID{}, fmt.Errorf("decide on hold: %w", err)
	}
	return send, nil
}

// decided settles the reports of the hold, plans the release if necessary, and stores the decision.
func (w *holdWriter) decided(l HoldLook, d billing.HoldDecision, frame func() (billing.Framed, error)) (send uuid.UUID, err error) {
	for _, r := range d.Settle {
		response := "found at the provider"
		if r.State == billing.Rejected {
			response = billing.Withdrawn
		}
		if err := complete(w.ctx, w.tx, w.tenant, r.ID, r.State, response, w.now); err != nil {
			return send, err
		}
	}
	release := l.Release.ID
	switch {
	case d.SendHold:
		send = l.Hold.Hold.ID
	case d.Release && l.Release.State.Outstanding():
		send = release
	case d.Release:
		framed, err := frame()
		if err != nil {
			return send, err
		}
		if send, err = w.plan(l.Connection, l.InvoiceID, framed); err != nil {
			return send, err
		}
		release = send
	}
	if err := w.save(l, d, release); err != nil {
		return send, err
	}
	if d.State == billing.HoldDisagrees && l.State != billing.HoldDisagrees {
		return send, w.alarm(l, d)
	}
	return send, nil
}

func (w *holdWriter) save(l HoldLook, d billing.HoldDecision, release uuid.UUID) error {
	found := append([]billing.HoldReason{}, d.Reasons...)
	if len(found) == 0 && l.Facts.Asked { // released on request: keep the reasons found earlier
		found = append(found, slices.DeleteFunc(l.Reasons, func(r billing.HoldReason) bool { return r.Code == billing.HoldNotReleased })...)
	}
	_, err := w.tx.Exec(w.ctx, `
		update billing_holds
		set state = @state, reasons = @reasons, release_report = nullif(@release::uuid, '00000000-0000-0000-0000-000000000000'), looked_at = @now,
		  ended_at = case when @ended::boolean then coalesce(ended_at, @now) end
		where tenant_id = @tenant
		  and id = @id`, pgx.NamedArgs{
		"tenant": w.tenant, "id": l.ID, "state": d.State, "reasons": found, "release": release, "now": w.now, "ended": d.State.Ended(),
	})
	return err
}

// alarm publishes an InvoiceHeld message: a held invoice disagrees with our usage or charges.
func (w *holdWriter) alarm(l HoldLook, d billing.HoldDecision) error {
	found := []outbox.InvoiceDisagreement{}
	for _, r := range d.Reasons {
		one := outbox.InvoiceDisagreement{Code: r.Code, Text: r.Text(r.MeterID.String()), Ours: r.Ours, Theirs: r.Theirs}
		if r.MeterID != 0 {
			one.MeterID = r.MeterID.String()
		}
		found = append(found, one)
	}
	return outbox.Publish(w.ctx, w.tx, w.tenant, l.CustomerID, outbox.InvoiceHeld{
		HoldID: l.ID.String(), InvoiceID: l.InvoiceID, Deadline: l.Deadline.UTC(), Reasons: found, Period: outbox.PeriodOf(l.Period),
	}, w.now)
}
