package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Retries requests syncs of many customers at once.
type Retries struct{ pool pg.Beginner }

// NewRetries returns a Retries that uses a transaction or a pool.
func NewRetries(pool pg.Beginner) Retries { return Retries{pool} }

// RetryFilter selects customers by their failed last sync. Zero fields do not restrict.
type RetryFilter struct {
	Cause     string
	Customers []string // external ids
}

// Retried is the result of a retry.
type Retried struct {
	Customers []metering.CustomerID // customers for which a sync was requested
	Joined    int                   // number of these customers with a waiting request, which the retry joined
	Remaining int                   // selected customers beyond maxRetried
}

// maxRetried is the maximum number of customers of one retry.
const maxRetried = 10_000

// Failed requests a sync of each selected customer with a failed last sync. Customers that have been failing
// for longest come first.
func (s Retries) Failed(ctx context.Context, tenant metering.TenantID, actor metering.Actor, f RetryFilter, now time.Time) (r Retried, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := activeProvider(ctx, tx, tenant); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			select s.customer_id, count(*) over ()
			from (
			  select tenant_id, customer_id, min(failing_since) as failing_since, min(error) as error
			  from billing_syncs
			  where tenant_id = @tenant
			    and failing_since is not null
			  group by tenant_id, customer_id) s
			join customers c on c.tenant_id = s.tenant_id and c.id = s.customer_id
			where (@cause = '' or s.error = @cause)
			  and (@all or c.external_id = any(@customers))
			order by s.failing_since, s.customer_id
			limit @limit`, pgx.NamedArgs{"tenant": tenant, "cause": f.Cause, "all": len(f.Customers) == 0, "customers": f.Customers, "limit": maxRetried})
		if err != nil {
			return err
		}
		var (
			customer metering.CustomerID
			picked   int
		)
		_, err = pgx.ForEachRow(rows, []any{&customer, &picked}, func() error {
			r.Customers = append(r.Customers, customer)
			return nil
		})
		if err != nil || len(r.Customers) == 0 {
			return err
		}
		r.Remaining = picked - len(r.Customers)
		if r.Joined, err = requestSyncs(ctx, tx, tenant, actor, r.Customers, now); err != nil {
			return err
		}
		return audit.RecordDecision(ctx, tx, tenant, audit.Decision{Actor: actor, Action: "sync.retry_failed", Resource: tenant.String()}, nil,
			audit.Fields{"customers": len(r.Customers), "cause": f.Cause, "remaining": r.Remaining})
	})
	if err != nil {
		return Retried{}, fmt.Errorf("retry failed syncs: %w", err)
	}
	return r, nil
}

// requestSyncs is requestSync for many customers. It returns the number of waiting requests that it joined.
func requestSyncs(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, customers []metering.CustomerID, now time.Time) (joined int, err error) {
	ids := make([]uuid.UUID, len(customers))
	for i := range ids {
		if ids[i], err = uuid.NewV7(); err != nil {
			return 0, err
		}
	}
	err = tx.QueryRow(ctx, `
		with requested as (
		  insert into billing_syncs as s (tenant_id, id, customer_id, trigger, actor, requested_at)
		  select @tenant, n.id, n.customer, 'manual', @actor, @now
		  from unnest(@ids::uuid[], @customers::bigint[]) n (id, customer)
		  order by n.customer
		  `+joinsWaiting+`
		  returning id)
		select count(*) filter (where not id = any(@ids))
		from requested`, pgx.NamedArgs{
		"tenant": tenant, "ids": ids, "customers": customers, "actor": actor, "now": metering.Instant(now),
	}).Scan(&joined)
	return joined, err
}
