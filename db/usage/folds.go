package usage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Folds moves usage from the table usage_added to the rollups usage_hourly and usage_monthly. A fold changes no
// total.
type Folds struct{ pool *pg.Pool }

// Bounds on the rows of usage_added that one statement folds, and on the tallies in these rows. Many rows are
// allowed, because single events add rows of few tallies, and a statement costs more than a row.
const (
	rowsFoldedAtOnce    = 2_000
	talliesFoldedAtOnce = 100 * addedAtOnce
)

// foldAdded is the SQL that adds the tenant's oldest rows of usage_added to usage_hourly and to usage_monthly, and
// deletes them. It writes usage_hourly first, and each rollup in the order of its key. It is one statement, so that a
// reader finds each tally either in usage_added or in the rollups. It queues the customers with alerts in alert_due. It
// returns true only if it folded all rows of its snapshot.
var foldAdded = `
	with oldest as materialized (
	  select id, sum(cardinality(customer_ids)) over (order by id) as tallies
	  from (select id, customer_ids from usage_added where tenant_id = @tenant order by id limit @rows) r),
	last as materialized (select max(id) as id from oldest where tallies <= @tallies),
	added as materialized (select * from usage_unfolded where tenant_id = @tenant and id <= (select id from last)),
	queued as (
	  insert into alert_due (tenant_id, customer_id, used_from)
	  select u.tenant_id, u.event_customer_id, u.used_from
	  from (select tenant_id, event_customer_id, min(hour) as used_from from added group by 1, 2) u
	  where ` + catalog.HasAlerts("u.event_customer_id") + `),
	hours as (` + addTallies("usage_hourly", "hour", "added") + ` returning 1),
	months as (` + addTallies("usage_monthly", "month", "(select a.* from added a, (select count(*) from hours) h)") + ` returning 1),
	folded as (delete from usage_added where tenant_id = @tenant and id <= (select id from last) and (select count(*) from months) > 0 returning 1)
	select count(*) < @rows and coalesce(bool_and(tallies <= @tallies), true) from oldest, (select count(*) from folded) f`

// foldLock is the SQL of the key of an advisory lock. A transaction that folds usage of tenant $1 holds the lock
// until it ends, so a tenant has one fold at a time.
const foldLock = `hashtextextended('fold usage', $1)`

// Tenant folds the tenant's added usage. It does nothing if another transaction is folding the tenant's usage.
func (f Folds) Tenant(ctx context.Context, tenant metering.TenantID) error {
	for {
		if done, err := f.foldOnce(ctx, tenant); err != nil || done {
			return err
		}
	}
}

// foldOnce folds as much of the tenant's added usage as one statement may. done reports whether no added usage is left,
// or another transaction is folding the tenant's usage.
func (f Folds) foldOnce(ctx context.Context, tenant metering.TenantID) (done bool, err error) {
	done = true
	err = pg.InTx(ctx, f.pool, func(tx pgx.Tx) (err error) {
		var free bool
		if err := tx.QueryRow(ctx, `select pg_try_advisory_xact_lock(`+foldLock+`)`, tenant).Scan(&free); err != nil || !free {
			return err
		}
		done, err = foldSome(ctx, tx, tenant)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("fold usage: %w", err)
	}
	return done, nil
}

// All folds the added usage of every tenant in rounds. In each round, every tenant with added usage folds as much as
// one statement may, so that a tenant that adds usage all the time does not keep the others waiting. After a
// failure, a tenant takes part in no further round.
func (f Folds) All(ctx context.Context) (failed error) {
	skipped := make(map[metering.TenantID]bool)
	for more := true; more; {
		more = false
		rows, err := f.pool.Query(ctx, `select distinct tenant_id from usage_added`)
		if err != nil {
			return errors.Join(failed, fmt.Errorf("list usage that is not folded: %w", pg.Coded(err)))
		}
		tenants, err := pgx.CollectRows(rows, pgx.RowTo[metering.TenantID])
		if err != nil {
			return errors.Join(failed, fmt.Errorf("list usage that is not folded: %w", pg.Coded(err)))
		}
		for _, tenant := range tenants {
			if skipped[tenant] {
				continue
			}
			done, err := f.foldOnce(pg.For(ctx, tenant), tenant)
			skipped[tenant], failed = err != nil, errors.Join(failed, err)
			more = more || !done && err == nil
		}
	}
	return failed
}

// FoldAll folds all added usage of the tenant in the caller's transaction. The caller holds the tenant's
// lock, so no more usage can be added.
func FoldAll(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(`+foldLock+`)`, tenant); err != nil {
		return err
	}
	for {
		all, err := foldSome(ctx, tx, tenant)
		if err != nil || all {
			return err
		}
	}
}

// foldSome folds as many rows as the bounds of one statement allow. all is true only if it folded all rows.
func foldSome(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) (all bool, err error) {
	err = tx.QueryRow(ctx, foldAdded, pgx.NamedArgs{"tenant": tenant, "rows": rowsFoldedAtOnce, "tallies": talliesFoldedAtOnce}).Scan(&all)
	return all, err
}

// Folder folds the usage of all tenants every foldEvery.
type Folder struct{ repeater *pg.Repeater }

const (
	foldEvery   = time.Second
	foldsWithin = 30 * time.Second // time limit of folding all tenants
)

// NewFolder starts a Folder. If a fold fails, the Folder calls failed with the error, and the next fold retries.
func (s Stores) NewFolder(failed func(error)) *Folder {
	return &Folder{pg.StartRepeater(foldEvery, func(r *pg.Repeater) {
		if r.IsClosing() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), foldsWithin)
		defer cancel()
		if err := s.Folds.All(ctx); err != nil {
			failed(err)
		}
	})}
}

// Close stops the Folder and waits until a running fold has ended. The next fold of any process folds the usage
// that remains.
func (f *Folder) Close() { f.repeater.Close() }
