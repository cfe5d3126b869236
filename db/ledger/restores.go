package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Restores recovers a ledger that was restored from a backup. Such a ledger lacks the reports that were
// sent after the backup was made.
type Restores struct {
	pool   *pg.Pool
	ledger Ledger
}

// ledgerEpoch is the SQL expression of the current epoch of the ledger; 0 if the ledger was never restored.
const ledgerEpoch = `select coalesce(max(epoch), 0) from ledger_epochs`

// isUnread is the SQL condition that the totals of customer c at connection k have not been read since the
// last restore of the ledger. It is false for receivers of statements, which keep no totals.
const isUnread = `not k.statements and (` + ledgerEpoch + `) > 0 and not exists (
	    select
	    from billing_destinations d
	    where d.tenant_id = c.tenant_id
	      and d.customer_id = c.id
	      and d.connection_id = k.id
	      and d.provider_customer = coalesce(c.billing_provider_id, '')
	      and d.read_epoch = (` + ledgerEpoch + `))`

// isUnreadThere is the SQL condition that the totals of destination d at connection k have not been read since the last
// restore of the ledger.
const isUnreadThere = `(not k.statements and d.read_epoch < (` + ledgerEpoch + `))`

// isReadFirst is the SQL condition that the totals and charges of destination d must be read before report r of series s
// is sent: r precedes a restore, and the totals or charges may include it. A quantity that replaces the earlier one can
// be sent at any time, and so can a hold, which has no period.
const isReadFirst = `r.ledger_epoch < (` + ledgerEpoch + `) and r.period_id is not null and (s.kind <> 'quantity' or s.counting = 'adds') and ` + isUnreadThere

// numbersOfEpoch is the number of report numbers that a customer has per second between two epochs, which are
// Unix times. The report numbers of a later epoch are therefore higher than those of earlier epochs.
const numbersOfEpoch = 1_000_000

// Restored is the result of raising the epoch.
type Restored struct {
	Epoch   int64
	InDoubt int64 // reports without an outcome in the backup
	Periods int64 // open billing periods, which are planned again
}

// Raise begins a new epoch of the ledger. An operator calls it after each restore, before any worker runs.
// The numbers of later reports are higher than all earlier ones, and no id is used twice.
func (s Restores) Raise(ctx context.Context, now time.Time) (r Restored, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := skipIDs(ctx, tx); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `
			insert into ledger_epochs (epoch, raised_at, known_at)
			values (greatest($1, (`+ledgerEpoch+`) + 1), $2, (select coalesce(max(recorded_at), timestamptz '2000-01-01') from billing_reports))
			returning epoch`, now.Unix(), metering.Instant(now)).Scan(&r.Epoch); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, doubtOpen)
		if err != nil {
			return err
		}
		r.InDoubt = tag.RowsAffected()
		tag, err = tx.Exec(ctx, forgetWatermarks)
		r.Periods = tag.RowsAffected()
		return err
	})
	if err != nil {
		return Restored{}, fmt.Errorf("raise epoch of ledger: %w", pg.Coded(err))
	}
	return r, nil
}

const (
	// doubtOpen marks the open reports as in_doubt. A report that was unsent at the backup may have been sent
	// since. A rejection of the next attempt is then no evidence about that earlier attempt.
	doubtOpen = `
		update billing_reports
		set state = 'in_doubt', response = 'the backup was made before the outcome of the report was known', lease_until = null,
		    first_sent_at = coalesce(first_sent_at, recorded_at), attempts = greatest(attempts, 1)
		where state in ('planned', 'sending', 'in_doubt')`
	forgetWatermarks = `
		update billing_periods
		set watermark_configuration = ''
		where closed_at is null`
)

// skipIDs advances all sequences in the schema public. IDs that may have been assigned after the backup was made
// are then not used again, because receivers may know them.
func skipIDs(ctx context.Context, tx pgx.Tx) error {
	const skipped = 1_000_000
	_, err := tx.Exec(ctx, `
		select setval(format('%I.%I', schemaname, sequencename)::regclass, coalesce(last_value, 0) + $1)
		from pg_sequences
		where schemaname = 'public'`, skipped)
	return err
}

// Reading is a request to read a customer's state at the provider after a restore.
type Reading struct {
	Places   []billing.AddedUp
	RaisedAt time.Time
	KnownAt  time.Time // later reports are unknown; the earliest such time of all restores since the last reading
	Customer string    // at the provider
	Since    time.Time // charges made or changed since then may be unknown
}

// Seen is the result of a Reading: the totals and charges that the provider has.
type Seen struct {
	Customer string // of the Reading
	Added    []billing.Found
	Charges  []billing.FoundCharge
}

// Unread returns the Reading of a customer, and reports whether the reading is due. A reading is due once per
// epoch and destination, except for receivers of statements. If it is due, Unread also assigns the customer's
// meters to its billing schedules.
func (s Restores) Unread(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (r Reading, unread bool, err error) {
	err = s.pool.QueryRow(ctx, `
		select exists (
		  select
		  from customers c
		  join billing_connections k on k.tenant_id = c.tenant_id and k.retired_at is null
		  where c.tenant_id = $1
		    and c.id = $2
		    and `+isUnread+`)`, tenant, customer).Scan(&unread)
	if err != nil || !unread {
		return Reading{}, false, pg.Coded(err)
	}
	err = pg.AtOneInstant(ctx, s.pool, func(tx pgx.Tx) error {
		streams, err := s.ledger.readRegrouped(ctx, tx, tenant, customer, now)
		if err != nil {
			return err
		}
		first := streams[0].facts
		unread = first.Unread && first.Side != nil
		if !unread {
			return nil
		}
		r = Reading{Customer: first.Side.Customer}
		if err := tx.QueryRow(ctx, `
			select e.raised_at, (
			  select min(o.known_at)
			  from ledger_epochs o
			  where o.epoch > coalesce((
			    select max(d.read_epoch)
			    from billing_destinations d
			    where d.tenant_id = $2
			      and d.customer_id = $3
			      and d.connection_id = $4
			      and d.provider_customer = $5), 0))
			from ledger_epochs e
			where e.epoch = $1`, first.Epoch, tenant, customer, first.Connection.ID, r.Customer).Scan(&r.RaisedAt, &r.KnownAt); err != nil {
			return err
		}
		for _, read := range streams {
			r.Places, r.Since = append(r.Places, read.books().AddedUp()...), metering.Sooner(r.Since, read.facts.ChargedSince(r.KnownAt))
		}
		// A window that begins after the restore has no lost reports. Usage that the destination has of such a window was
		// reported for another customer, so it must not be added to the ledger.
		r.Places = slices.DeleteFunc(r.Places, func(at billing.AddedUp) bool { return !at.Window.Start.Before(r.RaisedAt) })
		return nil
	})
	if err != nil {
		return Reading{}, false, fmt.Errorf("read what the provider has counted, after a restore: %w", err)
	}
	return r, unread, nil
}

// Read stores the totals and charges that were read at the customer's destination. It adds a report for each
// difference from the ledger, because the ledger lacks the reports that were sent after the backup. If the customer
// was linked to another customer of the provider since the Reading, Read stores nothing.
func (s Restores) Read(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, seen Seen, frame Frame, now time.Time) error {
	err := pg.AtOneInstant(ctx, s.pool, func(tx pgx.Tx) error {
		streams, err := s.ledger.planSchedules(ctx, tx, tenant, customer, now, func(*billing.Facts) {})
		if err != nil {
			return err
		}
		w := streams[0]
		if !w.facts.Unread || w.facts.Side == nil || w.facts.Side.Customer != seen.Customer {
			return nil // another worker has already stored a reading, or the customer needs another one
		}
		scheduleReplan(streams, false)
		at := billing.Series{Connection: w.facts.Connection.ID, Customer: w.facts.Side.Customer}
		w.destination(at)
		for _, of := range streams {
			books := of.books()
			w.batch.Queue(settleForgotten, tenant, slices.Concat(books.Forgotten(seen.Added), books.ReportsWithoutLine(seen.Charges)), w.facts.Now)
		}
		w.batch.Queue(countNamed, tenant, reportIDsOf(seen.Charges), w.facts.Now)
		charges, err := unknownCharges(ctx, tx, tenant, seen.Charges)
		if err != nil {
			return err
		}
		for i, of := range streams {
			if i > 0 {
				of.lastNumber = streams[i-1].lastNumber
			}
			books := of.books()
			if err := of.storeLost(append(books.Lost(seen.Added), books.LostCharges(charges)...), frame); err != nil {
				return err
			}
			if err := of.flush(); err != nil {
				return err
			}
		}
		for _, c := range seen.Charges {
			if c.Object != "" {
				w.batch.Queue(keepObject, tenant, c.ReportID, c.Object)
			}
		}
		w.batch.Queue(`
			update billing_destinations
			set read_epoch = $5
			where tenant_id = $1
			  and customer_id = $2
			  and connection_id = $3
			  and provider_customer = $4`, tenant, customer, at.Connection, at.Customer, w.facts.Epoch)
		return w.flush()
	})
	if err != nil {
		return fmt.Errorf("store what the provider has counted, after a restore: %w", err)
	}
	return nil
}

// storeLost stores the reports that the ledger lacks and the provider has counted, in state counted.
func (w *planWriter) storeLost(reports []billing.Report, frame Frame) error {
	for _, report := range reports {
		written, err := w.report(report, frame)
		if err != nil {
			return err
		}
		w.batch.Queue(`
			update billing_reports
			set state = 'counted', response = 'found in the provider''s counts after the ledger was restored', decided_at = $3
			where tenant_id = $1
			  and id = $2`, w.tenant, written.ID, w.facts.Now)
	}
	return nil
}

// unknownCharges returns the charges that belong to no report of the ledger.
func unknownCharges(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, charges []billing.FoundCharge) ([]billing.FoundCharge, error) {
	rows, err := tx.Query(ctx, `select id from billing_reports where tenant_id = $1 and id = any($2)`, tenant, reportIDsOf(charges))
	if err != nil {
		return nil, err
	}
	known, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	return slices.DeleteFunc(slices.Clone(charges), func(c billing.FoundCharge) bool { return slices.Contains(known, c.ReportID) }), err
}

// reportIDsOf returns the ids of the reports that the charges name.
func reportIDsOf(charges []billing.FoundCharge) []uuid.UUID {
	ids := make([]uuid.UUID, len(charges))
	for i, c := range charges {
		ids[i] = c.ReportID
	}
	return ids
}

// countNamed is the SQL that marks the reports that charges at the provider name as counted.
const countNamed = `
	update billing_reports
	set state = 'counted', response = 'found among the customer''s invoice items after the ledger was restored', lease_until = null, decided_at = $3
	where tenant_id = $1
	  and id = any($2)
	  and state not in ('accepted', 'counted')`

// keepObject is the SQL that stores the provider object that the series of a charge overwrites.
const keepObject = `
	update billing_series s
	set object = $3
	from billing_reports r
	where r.tenant_id = $1
	  and r.id = $2
	  and s.tenant_id = r.tenant_id
	  and s.id = r.series_id`

// settleForgotten is the SQL that rejects reports of a previous epoch with an unknown outcome. If such a report
// arrived, the totals that were read include it, or a later report has replaced it on its line.
const settleForgotten = `
	update billing_reports
	set state = 'rejected', response = 'withdrawn: the ledger was restored from a backup, and the provider''s totals and invoice items were read since', lease_until = null, decided_at = $3
	where tenant_id = $1
	  and id = any($2)
	  and state in ('planned', 'sending', 'in_doubt')`
