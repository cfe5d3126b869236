package ledger

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Syncs stores the requests to report customers' usage to the billing provider. A pass takes all open requests
// of a customer, then reads the customer's totals, then answers the requests.
type Syncs struct{ pool *pg.Pool }

// Request requests a sync, or joins a waiting request and returns that sync. It commits the request before
// the caller starts the workflow.
func (s Syncs) Request(ctx context.Context, tenant metering.TenantID, actor metering.Actor, customer metering.CustomerID, trigger metering.Trigger, now time.Time) (metering.Sync, error) {
	if _, err := activeProvider(ctx, s.pool, tenant); err != nil {
		return metering.Sync{}, err
	}
	var sync metering.Sync
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if sync, err = requestSync(ctx, tx, tenant, actor, customer, trigger, now); err != nil {
			return err
		}
		return audit.RecordAction(ctx, tx, tenant, actor, "sync.request", sync.ID.String()+" "+customer.String())
	})
	if err != nil {
		return metering.Sync{}, fmt.Errorf("request sync: %w", err)
	}
	return sync, nil
}

// joinsWaiting is the SQL clause that makes an insert into billing_syncs s join the customer's waiting
// request.
const joinsWaiting = `on conflict (tenant_id, customer_id) where status = 'requested' do update set callers = s.callers + 1`

// requestSync inserts a request or joins the waiting one. It locks the row until commit, so that a pass
// that takes the request begins after the commit.
func requestSync(ctx context.Context, q pg.Querier, tenant metering.TenantID, actor metering.Actor, customer metering.CustomerID, trigger metering.Trigger, now time.Time) (metering.Sync, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return metering.Sync{}, err
	}
	sync := metering.Sync{CustomerID: customer, Status: metering.SyncRequested}
	err = q.QueryRow(ctx, `
		insert into billing_syncs as s (tenant_id, id, customer_id, trigger, actor, requested_at)
		values (@tenant, @id, @customer, @trigger, @actor, @now)
		`+joinsWaiting+`
		returning id, trigger, requested_at`, pgx.NamedArgs{
		"tenant": tenant, "id": id, "customer": customer, "trigger": trigger, "actor": actor, "now": metering.Instant(now),
	}).Scan(&sync.ID, &sync.Trigger, &sync.RequestedAt)
	sync.Joined = sync.ID != id
	return sync, err
}

// Withdraw withdraws one caller's request, because its workflow could not be started. The request remains
// if a pass has taken it or other callers share it.
func (s Syncs) Withdraw(ctx context.Context, tenant metering.TenantID, sync uuid.UUID) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `
			update billing_syncs
			set callers = callers - 1
			where tenant_id = $1
			  and id = $2
			  and status = 'requested'`, tenant, sync); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			delete from billing_syncs
			where tenant_id = $1
			  and id = $2
			  and status = 'requested'
			  and callers = 0`, tenant, sync)
		return err
	})
	if err != nil {
		return fmt.Errorf("withdraw sync: %w", err)
	}
	return nil
}

// RequestOnce requests a sync on behalf of the scheduler, unless the customer has an open request.
func (s Syncs) RequestOnce(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("request sync: %w", err)
	}
	_, err = s.pool.Exec(ctx, `
		insert into billing_syncs (tenant_id, id, customer_id, trigger, actor, requested_at)
		select @tenant, @id, c.id, 'schedule', @actor, @now
		from customers c
		where c.tenant_id = @tenant
		  and c.id = @customer
		  and not exists (
		  select
		  from billing_syncs
		  where tenant_id = @tenant
		    and customer_id = @customer
		    and status in ('requested', 'running'))
		on conflict do nothing`, pgx.NamedArgs{
		"tenant": tenant, "id": id, "customer": customer, "actor": metering.Scheduler, "now": metering.Instant(now),
	})
	if err != nil {
		return fmt.Errorf("request sync: %w", pg.Coded(err))
	}
	return nil
}

// RequestByProvider requests a sync because of an event at the provider. It returns the id of the sync,
// which may be one that was waiting already.
func (s Syncs) RequestByProvider(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (uuid.UUID, error) {
	sync, err := requestSync(ctx, s.pool, tenant, metering.Scheduler, customer, metering.ByProvider, now)
	if err != nil {
		return uuid.UUID{}, fmt.Errorf("request sync: %w", pg.Coded(err))
	}
	return sync.ID, nil
}

// Record stores a scheduled sync that succeeded without a request.
func (s Syncs) Record(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, a Answer, began, now time.Time) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error { return record(ctx, tx, tenant, customer, a, began, now) })
	if err != nil {
		return fmt.Errorf("record sync: %w", err)
	}
	return nil
}

// Accepted is a report that the provider has accepted, with its response.
type Accepted struct {
	Report   uuid.UUID
	Response string
}

// RecordAccepted stores a scheduled sync that succeeded, and completes its last report, in one transaction.
func (s Syncs) RecordAccepted(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, last Accepted, a Answer, began, now time.Time) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := complete(ctx, tx, tenant, last.Report, billing.Accepted, last.Response, now); err != nil {
			return err
		}
		return record(ctx, tx, tenant, customer, a, began, now)
	})
	if err != nil {
		return fmt.Errorf("record sync: %w", err)
	}
	return nil
}

// record stores a scheduled sync that succeeded without a request, with its reports and excluded meters, and publishes
// a message about it.
func record(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, a Answer, began, now time.Time) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `
		insert into billing_syncs (tenant_id, id, customer_id, trigger, actor, status, requested_at, started_at, finished_at)
		values (@tenant, @id, @customer, 'schedule', @actor, 'succeeded', @began, @began, @now)`, pgx.NamedArgs{
		"tenant": tenant, "id": id, "customer": customer, "actor": metering.Scheduler,
		"began": metering.Instant(began), "now": metering.Instant(now),
	}); err != nil {
		return err
	}
	ids := []uuid.UUID{id}
	if err := storeSyncDetails(ctx, tx, tenant, ids, a); err != nil {
		return err
	}
	return recordSyncEnd(ctx, tx, tenant, customer, ids, "", now)
}

// recordSyncEnd records the end of syncs of a customer that have the same result, and publishes a message for
// each. failure is their error, or "" if they succeeded.
func recordSyncEnd(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, ids []uuid.UUID, failure string, now time.Time) error {
	if len(ids) == 0 {
		return nil
	}
	newest := slices.MaxFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	if err := setFailing(ctx, tx, tenant, customer, newest, failure != "", now); err != nil {
		return err
	}
	return publishSyncs(ctx, tx, tenant, customer, ids, failure, now)
}

// setFailing moves failing_since to the customer's last sync if that sync failed, and clears it otherwise.
// failing_since is the time of the first failure since the last success.
func setFailing(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, last uuid.UUID, failed bool, now time.Time) error {
	since := metering.Instant(now)
	err := tx.QueryRow(ctx, `
		with failing as (
		  select id, failing_since
		  from billing_syncs
		  where tenant_id = $1
		    and customer_id = $2
		    and failing_since is not null
		  for update),
		cleared as (
		  update billing_syncs s
		  set failing_since = null
		  from failing f
		  where s.tenant_id = $1
		    and s.id = f.id)
		select coalesce(min(failing_since), $3)
		from failing`, tenant, customer, since).Scan(&since)
	if err != nil || !failed {
		return err
	}
	_, err = tx.Exec(ctx, `
		update billing_syncs
		set failing_since = $3
		where tenant_id = $1
		  and id = $2`, tenant, last, since)
	return err
}

// publishSyncs publishes a message for each sync of a customer that has ended.
func publishSyncs(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, ids []uuid.UUID, failure string, now time.Time) error {
	messages := make([]outbox.MessageData, len(ids))
	for i, id := range ids {
		messages[i] = outbox.SyncSucceeded{SyncID: id}
		if failure != "" {
			messages[i] = outbox.SyncFailed{SyncID: id, Error: failure}
		}
	}
	return outbox.PublishAll(ctx, tx, tenant, customer, messages, now)
}

// ReportedSince reports whether a sync of the tenant has succeeded since an instant. It checks only the 100
// newest syncs.
func (s Syncs) ReportedSince(ctx context.Context, tenant metering.TenantID, since time.Time) (reported bool, err error) {
	err = s.pool.QueryRow(ctx, `
		select exists (
		  select
		  from (
		    select status, finished_at
		    from billing_syncs
		    where tenant_id = $1
		    order by id desc
		    limit 100) newest
		  where status = 'succeeded'
		    and finished_at >= $2)`, tenant, since).Scan(&reported)
	if err != nil {
		return false, fmt.Errorf("read newest syncs: %w", pg.Coded(err))
	}
	return reported, nil
}

// Begun is a pass over a customer's billing. The requests that it answers are stored in the database.
type Begun struct {
	PassID   uuid.UUID
	Requests int
	After    int64 // the number of the customer's last report before the pass
	Reads    bool  // the customer's state at the provider has to be read
	Paused   bool  // an operator pauses the customer's reports: the pass took no request
}

// Begin assigns all open requests of the customer to a new pass: new requests, and those of an interrupted
// pass. The pass answers them with totals that it reads after Begin returns. A repeated Begin moves the
// requests to another new pass. The previous pass then answers no requests.
func (s Syncs) Begin(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (b Begun, err error) {
	if b.PassID, err = uuid.NewV7(); err != nil {
		return Begun{}, fmt.Errorf("begin sync: %w", err)
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			update billing_syncs
			set status = 'running', started_at = coalesce(started_at, $3), pass_id = $4
			where tenant_id = $1
			  and customer_id = $2
			  and status in ('requested', 'running')
			  and not `+isPaused("$1", "$2"), tenant, customer, now, b.PassID)
		if err != nil {
			return err
		}
		b.Requests = int(tag.RowsAffected())
		return tx.QueryRow(ctx, `
			select `+lastNumber("$1", "$2")+`, `+isPaused("$1", "$2")+`, exists (
			  select
			  from billing_connections
			  where tenant_id = $1
			    and retired_at is null
			    and not statements)`, tenant, customer).Scan(&b.After, &b.Paused, &b.Reads)
	})
	if err != nil {
		return Begun{}, fmt.Errorf("begin sync: %w", err)
	}
	return b, nil
}

// Answer is the result of a pass.
type Answer struct {
	Error    string      // the fix that the operator should make; "" if the pass succeeded
	Reports  []uuid.UUID // reports that were sent, rejected, or found up to date
	Excluded []billing.Exclusion
}

// Finished is the result of Syncs.Finish.
type Finished struct {
	Requests int
	More     bool // other requests are open: new requests, or requests of another pass
}

// Finish answers the requests of a pass.
func (s Syncs) Finish(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, pass uuid.UUID, a Answer, now time.Time) (f Finished, err error) {
	status := metering.SyncSucceeded
	if a.Error != "" {
		status = metering.SyncFailed
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		taken, err := syncsOfPass(ctx, tx, tenant, customer, pass)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			update billing_syncs
			set status = @status, error = @error, finished_at = @now
			where tenant_id = @tenant
			  and customer_id = @customer
			  and pass_id = @pass
			  and status = 'running'
			returning id`, pgx.NamedArgs{
			"tenant": tenant, "customer": customer, "pass": pass, "status": status, "error": a.Error, "now": now,
		})
		if err != nil {
			return err
		}
		finished, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return err
		}
		f.Requests = len(finished)
		if err := recordSyncEnd(ctx, tx, tenant, customer, finished, a.Error, now); err != nil {
			return err
		}
		if err := storeSyncDetails(ctx, tx, tenant, taken, a); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `
			select exists (
			  select
			  from billing_syncs
			  where tenant_id = $1
			    and customer_id = $2
			    and status in ('requested', 'running'))`, tenant, customer).Scan(&f.More)
	})
	if err != nil {
		return Finished{}, fmt.Errorf("finish sync: %w", err)
	}
	return f, nil
}

// syncsOfPass returns the syncs of a pass, including those that were canceled since.
func syncsOfPass(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, pass uuid.UUID) ([]uuid.UUID, error) {
	rows, err := tx.Query(ctx, `
		select id
		from billing_syncs
		where tenant_id = $1
		  and customer_id = $2
		  and pass_id = $3`, tenant, customer, pass)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
}

// storeSyncDetails stores the reports and the excluded meters of the syncs. It skips reports that are missing
// because the database was restored after the run began.
func storeSyncDetails(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, syncs []uuid.UUID, a Answer) error {
	if _, err := tx.Exec(ctx, `
		insert into billing_sync_reports (tenant_id, sync_id, report_id)
		select $1, s.id, r.id
		from billing_syncs s
		cross join billing_reports r
		where s.tenant_id = $1
		  and s.id = any($3)
		  and r.tenant_id = $1
		  and r.id = any($2)
		on conflict do nothing`, tenant, a.Reports, syncs); err != nil {
		return err
	}
	return exclude(ctx, tx, tenant, syncs, a.Excluded)
}

// Exclude records the excluded meters for the syncs of a pass.
func (s Syncs) Exclude(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, pass uuid.UUID, meters []billing.Exclusion) error {
	if len(meters) == 0 {
		return nil
	}
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		syncs, err := syncsOfPass(ctx, tx, tenant, customer, pass)
		if err != nil {
			return err
		}
		return exclude(ctx, tx, tenant, syncs, meters)
	})
	if err != nil {
		return fmt.Errorf("note excluded meters: %w", err)
	}
	return nil
}

func exclude(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, syncs []uuid.UUID, meters []billing.Exclusion) error {
	if len(meters) == 0 {
		return nil
	}
	ids, codes, details := make([]metering.MeterID, len(meters)), make([]billing.ExclusionCode, len(meters)), make([]string, len(meters))
	for i, excluded := range meters {
		ids[i], codes[i], details[i] = excluded.MeterID, excluded.Code, excluded.Detail
	}
	_, err := tx.Exec(ctx, `
		insert into billing_sync_exclusions (tenant_id, sync_id, meter_id, code, detail)
		select $1, s.id, m.id, m.code, m.detail
		from billing_syncs s
		cross join unnest($3::bigint[], $4::text[], $5::text[]) m (id, code, detail)
		where s.tenant_id = $1
		  and s.id = any($2)
		on conflict do nothing`, tenant, syncs, ids, codes, details)
	return err
}

// Sweep deletes up to limit syncs, of any tenant, that finished before an instant. It keeps their reports, and the last
// sync of each customer if that sync failed.
func (s Syncs) Sweep(ctx context.Context, before time.Time, limit int) (deleted int64, err error) {
	return pg.OldRows{
		Table: "billing_syncs", Key: "tenant_id, id", By: "finished_at", And: "and failing_since is null", Noun: "syncs",
	}.Sweep(ctx, s.pool, before, limit)
}
