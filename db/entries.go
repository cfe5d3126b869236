package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Sending is one attempt at reporting an entry to the provider.
type Sending struct {
	billing.Series
	Attempt     int
	Body        []byte
	Revision    int // of the idempotency key
	FirstSentAt time.Time
	Provider    metering.Provider
	Invoiced    bool // the invoice of its period is final: what is taken now is on none
}

// MarkEntrySent leases an entry to the caller, who may send it once it has
// returned and must be done before the lease ends. It answers CodeOverloaded,
// caused by Busy, while another's lease runs, and CodeConflict where the entry
// is settled or its account has been replaced: prepare again.
func (l Ledger) MarkEntrySent(ctx context.Context, tenant metering.TenantID, entry uuid.UUID, now time.Time, lease time.Duration) (s Sending, err error) {
	err = inTx(ctx, l.pool, func(tx pgx.Tx) error {
		var (
			status     metering.EntryStatus
			leaseUntil *time.Time
		)
		err := tx.QueryRow(ctx, `
			select e.status, e.lease_until, e.attempts + 1, e.call, e.key_revision, coalesce(e.first_sent_at, $3),
			  r.kind, r.provider_account, r.provider_customer, r.item, r.mechanism, r.counting, p.starts_at, r.window_start, r.window_end, r.late, exists (
			    select
			    from billing_invoices i
			    where i.tenant_id = r.tenant_id
			      and i.period_id = r.period_id
			      and i.provider_account = r.provider_account
			      and i.finalized_at is not null)
			from billing_entries e
			join billing_series r on r.tenant_id = e.tenant_id and r.id = e.series_id
			join billing_periods p on p.tenant_id = r.tenant_id and p.id = r.period_id
			where e.tenant_id = $1
			  and e.id = $2
			  and e.call is not null
			for update of e`, tenant, entry, now,
		).Scan(&status, &leaseUntil, &s.Attempt, &s.Body, &s.Revision, &s.FirstSentAt,
			&s.Kind, &s.Account, &s.Customer, &s.Target, &s.Method, &s.Counting, &s.Period, &s.Window.Start, &s.Window.End, &s.Late, &s.Invoiced)
		if errors.Is(err, pgx.ErrNoRows) {
			return metering.Errorf(metering.CodeNotFound, "there is no such entry")
		}
		if err != nil {
			return err
		}
		if status != metering.EntryPrepared && status != metering.EntrySent && status != metering.EntryAmbiguous {
			return metering.Errorf(metering.CodeConflict, "the entry is settled")
		}
		if leaseUntil != nil && leaseUntil.After(now) {
			return metering.Errorf(metering.CodeOverloaded, "the entry is being sent").Because(Busy{leaseUntil.Sub(now)})
		}
		if s.Provider, err = activeProvider(ctx, tx, tenant); err != nil {
			return err
		}
		if s.Provider.Statements || s.Provider.Account != s.Account {
			return metering.Errorf(metering.CodeConflict, "the billing provider was replaced")
		}
		_, err = tx.Exec(ctx, `
			update billing_entries
			set status = 'sent', first_sent_at = $3, lease_until = $4, attempts = $5
			where tenant_id = $1
			  and id = $2`, tenant, entry, s.FirstSentAt, now.Add(lease), s.Attempt)
		return err
	})
	if err != nil {
		return Sending{}, fmt.Errorf("mark entry sent: %w", err)
	}
	return s, nil
}

// ReleaseEntry ends the lease of an attempt that brought no decision. With
// newKey the next attempt has another idempotency key.
func (l Ledger) ReleaseEntry(ctx context.Context, tenant metering.TenantID, entry uuid.UUID, attempt int, answer string, newKey bool) error {
	_, err := l.pool.Exec(ctx, `
		update billing_entries
		set lease_until = null, answer = $4, key_revision = key_revision + $5::boolean::integer
		where tenant_id = $1
		  and id = $2
		  and attempts = $3
		  and status = 'sent'`, tenant, entry, attempt, answer, newKey)
	if err != nil {
		return fmt.Errorf("release entry: %w", coded(err))
	}
	return nil
}

// SettleEntry records what came of an entry: acknowledged, rejected or, until
// something is known, ambiguous. Settling again changes nothing,
// except that an acknowledgement that turns up late outweighs a rejection: what
// was told meanwhile may have to be taken back.
func (l Ledger) SettleEntry(ctx context.Context, tenant metering.TenantID, entry uuid.UUID, outcome metering.EntryStatus, answer string, now time.Time) error {
	_, err := l.pool.Exec(ctx, `
		with settled as (
		  update billing_entries
		  set status = $3, answer = $4, lease_until = null, settled_at = case when $3 <> 'ambiguous' then $5::timestamptz end
		  where tenant_id = $1
		    and id = $2
		    and (status in ('prepared', 'sent', 'ambiguous') or status = 'rejected' and $3 = 'acknowledged')
		  returning series_id)
		update billing_periods p
		set watermark_configuration = ''
		from billing_series r
		where r.tenant_id = $1
		  and r.id = (select series_id from settled)
		  and p.tenant_id = $1
		  and p.customer_id = r.customer_id
		  and p.closed_at is null
		  and p.watermark_configuration <> ''`,
		tenant, entry, outcome, answer, now)
	if err != nil {
		return fmt.Errorf("settle entry: %w", coded(err))
	}
	return nil
}

// Counted is what a provider should have counted in one place, once it has
// seen everything that was acknowledged.
type Counted struct {
	Target   string
	Method   billing.Method
	Customer string         // at the provider
	Range    metering.Range // at the provider
	Total    metering.Decimal
	Seen     metering.Decimal // of Total, what was confirmed
	Old      metering.Decimal // of the rest, what was acknowledged before a cutoff

	// The last ones of each series that are acknowledged and not confirmed.
	Entries, OldEntries []uuid.UUID

	Unsettled bool // something is on its way, which the provider may have counted
}

// BeforeEntry is what the provider had counted before an unsettled entry was
// sent, where it adds up what it is told.
func (l Ledger) BeforeEntry(ctx context.Context, tenant metering.TenantID, entry uuid.UUID) (Counted, error) {
	counted, err := l.counted(ctx, `and exists (
		  select
		  from billing_entries x
		  join billing_series y on y.tenant_id = x.tenant_id and y.id = x.series_id
		  where x.tenant_id = r.tenant_id
		    and x.id = @entry
		    and y.customer_id = r.customer_id
		    and y.provider_account = r.provider_account
		    and y.provider_customer = r.provider_customer
		    and y.item = r.item
		    and y.mechanism = r.mechanism
		    and y.window_start = r.window_start)`, pgx.NamedArgs{"tenant": tenant, "entry": entry, "cutoff": nil})
	if err != nil {
		return Counted{}, err
	}
	if len(counted) == 0 {
		return Counted{}, metering.Errorf(metering.CodeNotFound, "there is no such entry")
	}
	return counted[0], nil
}

// Unconfirmed are the places where the provider has acknowledged what it was
// told of the customer's open periods, and has not been seen to count it yet.
// What it acknowledged before the cutoff is Old. Places to which something is
// on its way are left out.
func (l Ledger) Unconfirmed(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, cutoff time.Time) ([]Counted, error) {
	all, err := l.counted(ctx, `and r.customer_id = @customer and p.closed_at is null
		  and r.provider_account = (select account from billing_providers where tenant_id = @tenant and retired_at is null and not statements)`,
		pgx.NamedArgs{"tenant": tenant, "customer": customer, "cutoff": cutoff})
	var open []Counted
	for _, c := range all {
		if len(c.Entries) > 0 && !c.Unsettled {
			open = append(open, c)
		}
	}
	return open, err
}

func (l Ledger) counted(ctx context.Context, which string, args pgx.NamedArgs) ([]Counted, error) {
	rows, err := l.pool.Query(ctx, `
		select r.item, r.mechanism, r.provider_customer,
		  greatest(p.starts_at, p.subscription_start), least(p.ends_at, p.subscription_end),
		  sum(coalesce(case when r.counting = 'adds' then last.added else last.quantity end, 0)),
		  sum(coalesce(case when r.counting = 'adds' then last.added_seen else last.quantity_seen end, 0)),
		  sum(case
		    when last.old is null then 0
		    when r.counting = 'adds' then last.added_old
		    when last.old = last.unconfirmed then last.quantity - coalesce(last.quantity_seen, 0)
		    else 0 end),
		  array_remove(array_agg(last.unconfirmed), null), array_remove(array_agg(last.old), null), bool_or(last.unsettled)
		from billing_series r
		join billing_periods p on p.tenant_id = r.tenant_id and p.id = r.period_id and p.subscription <> ''
		cross join lateral (
		  select `+toldColumns+`,
		    bool_or(e.status in ('prepared', 'sent', 'ambiguous')) as unsettled,
		    sum(e.quantity) filter (where e.status = 'confirmed') as added_seen,
		    (array_agg(e.quantity order by e.version desc) filter (where e.status = 'confirmed'))[1] as quantity_seen,
		    sum(e.quantity) filter (where e.status = 'acknowledged' and e.settled_at < @cutoff::timestamptz) as added_old,
		    (array_agg(e.id order by e.version desc) filter (where e.status = 'acknowledged'))[1] as unconfirmed,
		    (array_agg(e.id order by e.version desc) filter (where e.status = 'acknowledged' and e.settled_at < @cutoff::timestamptz))[1] as old
		  from billing_entries e
		  where e.tenant_id = r.tenant_id
		    and e.series_id = r.id) last
		where r.tenant_id = @tenant
		  and r.kind = 'quantity'
		  and r.window_start >= greatest(p.starts_at, p.subscription_start)
		  `+which+`
		group by 1, 2, 3, 4, 5
		order by 4, 1`, args)
	if err != nil {
		return nil, fmt.Errorf("list what was told: %w", coded(err))
	}
	counted, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Counted, err error) {
		err = row.Scan(&c.Target, &c.Method, &c.Customer, &c.Range.Start, &c.Range.End, &c.Total, &c.Seen, &c.Old, &c.Entries, &c.OldEntries, &c.Unsettled)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("list what was told: %w", coded(err))
	}
	return counted, nil
}

// toldColumns are what the provider has acknowledged of a series, from its entries e.
const toldColumns = `
	sum(e.quantity) filter (where e.status in ('acknowledged', 'confirmed')) as added,
	(array_agg(e.quantity order by e.version desc) filter (where e.status in ('acknowledged', 'confirmed')))[1] as quantity`

// Confirm records what was seen of these entries, and of those before them,
// that were acknowledged: confirmed where the provider has counted them,
// rejected where it has dropped them, acknowledged where that may still change.
func (l Ledger) Confirm(ctx context.Context, tenant metering.TenantID, entries []uuid.UUID, seen metering.EntryStatus, answer string) error {
	_, err := l.pool.Exec(ctx, `
		update billing_entries e
		set status = $3, answer = $4
		from billing_entries last
		where last.tenant_id = $1
		  and last.id = any($2)
		  and e.tenant_id = last.tenant_id
		  and e.series_id = last.series_id
		  and e.version <= last.version
		  and e.status = 'acknowledged'`, tenant, entries, seen, answer)
	if err != nil {
		return fmt.Errorf("confirm entries: %w", coded(err))
	}
	return nil
}

// PreparedEntries is what there is to tell the provider about a customer, meter
// by meter.
type PreparedEntries struct {
	Send     []Entry     // unsettled ones first
	UpToDate []uuid.UUID // acknowledged ones that still hold
	Skipped  []metering.SkippedMeter
}

// Entry names what is to be told about one meter.
type Entry struct {
	ID       uuid.UUID
	Meter    metering.MeterID
	Method   billing.Method
	Quantity metering.Decimal
	Period   metering.Range
	Deadline time.Time // until when it is worth trying
}

// Frame makes the bytes of a report to a provider of the kind. It is called in
// the transaction that plans, again where another came first.
type Frame func(kind metering.ProviderKind, m billing.Message) (billing.Framed, error)

// PrepareEntries returns the customer's unsettled entries and makes the next
// ones, as planned. Entries with a number above after belong to the caller's own
// pass. CodeConflict where the customer's link has to be read again.
func (l Ledger) PrepareEntries(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, after int64, frame Frame, now time.Time, hold ...metering.MeterID) (prepared PreparedEntries, err error) {
	err = l.planned(ctx, tenant, customer, now, passOf(after, hold), func(w *planWriter, plan billing.Plan) error {
		prepared, err = w.prepareEntries(plan, frame)
		return err
	})
	if err != nil {
		return PreparedEntries{}, fmt.Errorf("prepare entries: %w", err)
	}
	return prepared, nil
}

func (w *planWriter) prepareEntries(plan billing.Plan, frame Frame) (prepared PreparedEntries, err error) {
	switch {
	case w.facts.Connection == nil:
		return prepared, errNoProvider
	case w.facts.Connection.Statements:
		return prepared, metering.Errorf(metering.CodeConflict, "the billing provider was replaced")
	case !plan.BusyUntil.IsZero():
		return prepared, busyElsewhere(plan.BusyUntil.Sub(w.facts.Now))
	case plan.ReadFirst:
		return prepared, errLinkChanged
	}
	prepared.UpToDate, prepared.Skipped = plan.UpToDate, skippedOf(plan.Excluded)
	if prepared.Send, err = w.unsettledEntries(plan.Resume); err != nil {
		return prepared, err
	}
	for _, r := range plan.Reports {
		entry, err := w.call(r, frame)
		if err != nil {
			return prepared, err
		}
		prepared.Send = append(prepared.Send, entry)
	}
	return prepared, nil
}

func (w *planWriter) unsettledEntries(ids []uuid.UUID) ([]Entry, error) {
	rows, err := w.tx.Query(w.ctx, `
		select e.id, r.meter_id, r.mechanism, e.quantity, p.starts_at, p.ends_at, case when r.late then r.window_end else p.ends_at end
		from billing_entries e
		join billing_series r on r.tenant_id = e.tenant_id and r.id = e.series_id
		join billing_periods p on p.tenant_id = r.tenant_id and p.id = r.period_id
		where e.tenant_id = $1
		  and e.id = any($2)
		order by e.number`, w.tenant, ids)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Entry, err error) {
		err = row.Scan(&e.ID, &e.Meter, &e.Method, &e.Quantity, &e.Period.Start, &e.Period.End, &e.Deadline)
		e.Deadline = e.Deadline.Add(w.facts.Settings.Grace)
		return e, err
	})
}

// LastEntry is the highest number that the customer's entries have got.
func (l Ledger) LastEntry(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID) (int64, error) {
	number, err := lastEntry(ctx, l.pool, tenant, customer)
	return number, coded(err)
}

func lastEntry(ctx context.Context, q querier, tenant metering.TenantID, customer metering.CustomerID) (number int64, err error) {
	err = q.QueryRow(ctx, `
		select coalesce(max(e.number), 0)
		from billing_entries e
		join billing_series r on r.tenant_id = e.tenant_id and r.id = e.series_id
		where r.tenant_id = $1
		  and r.customer_id = $2
		  and e.snapshot_id is null`, tenant, customer).Scan(&number)
	return number, err
}
