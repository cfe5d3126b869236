package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// SyncDelayedAfter is the time that a sync may be open before it needs attention.
const SyncDelayedAfter = 15 * time.Minute

// DelayedSyncs returns the SQL of each customer's oldest open sync that was requested before @delayed. It excludes
// customers with a failed last sync. The syncs s must also meet condition.
func DelayedSyncs(condition string) string {
	return `
		    select distinct on (s.tenant_id, s.customer_id) s.tenant_id, s.customer_id, s.id, s.requested_at, s.delay_reported_at,
		      coalesce('paused: ' || p.reason, nullif(r.response, ''), case s.status when 'requested' then 'no worker has started the sync' else 'the sync has not finished' end) as cause
		    from billing_syncs s
		    left join lateral (` + pauseOf("s.tenant_id", "s.customer_id") + `) p on true
		    left join billing_reports r on r.tenant_id = s.tenant_id and r.customer_id = s.customer_id and r.state in ('planned', 'sending') and r.attempts > 0
		    where ` + condition + `
		      and s.status in ('requested', 'running')
		      and s.requested_at < @delayed
		      and not exists (
		        select
		        from billing_syncs f
		        where f.tenant_id = s.tenant_id
		          and f.customer_id = s.customer_id
		          and f.failing_since is not null)
		    order by s.tenant_id, s.customer_id, s.requested_at`
}

// DelayedSync is a customer's oldest open sync, if it has been open for longer than SyncDelayedAfter.
type DelayedSync struct {
	Tenant      metering.TenantID
	Customer    metering.CustomerID
	ID          uuid.UUID
	RequestedAt time.Time
	Cause       string
}

// delaysListed is the maximum number of syncs that one call of Delayed returns.
const delaysListed = 1000

// Delayed returns the delayed syncs of all tenants that were not reported yet, oldest first.
func (s Syncs) Delayed(ctx context.Context, now time.Time) ([]DelayedSync, error) {
	rows, err := s.pool.Query(ctx, `
		select tenant_id, customer_id, id, requested_at, cause
		from (`+DelayedSyncs("true")+`) s
		where delay_reported_at is null
		order by requested_at
		limit @limit`, pgx.NamedArgs{"delayed": now.Add(-SyncDelayedAfter), "limit": delaysListed})
	if err != nil {
		return nil, fmt.Errorf("list delayed syncs: %w", pg.Coded(err))
	}
	delayed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[DelayedSync])
	if err != nil {
		return nil, fmt.Errorf("list delayed syncs: %w", pg.Coded(err))
	}
	return delayed, nil
}

// ReportDelay publishes a SyncDelayed message for a sync that is still open, at most once per sync.
func (s Syncs) ReportDelay(ctx context.Context, d DelayedSync, now time.Time) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			update billing_syncs
			set delay_reported_at = $3
			where tenant_id = $1
			  and id = $2
			  and status in ('requested', 'running')
			  and delay_reported_at is null`, d.Tenant, d.ID, metering.Instant(now))
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return outbox.Publish(ctx, tx, d.Tenant, d.Customer, outbox.SyncDelayed{SyncID: d.ID, RequestedAt: d.RequestedAt.UTC(), Cause: d.Cause}, now)
	})
	if err != nil {
		return fmt.Errorf("report delayed sync: %w", err)
	}
	return nil
}
