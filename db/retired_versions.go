package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// retiredVersion identifies a meter version with rollups to drop.
type retiredVersion struct {
	Tenant  metering.TenantID
	Version metering.MeterVersionID
}

// DropRetired drops the rollups of meter versions that were retired more than RetiredFor ago, at most limit versions. It
// returns the number of versions with dropped rollups.
func (m Maintenance) DropRetired(ctx context.Context, now time.Time, limit int) (int, error) {
	rows, err := m.pool.Query(ctx, `
		select tenant_id, id
		from meter_versions
		where status = 'retired'
		  and dropped_at is null
		  and retired_at < $1
		order by retired_at
		limit $2`, now.Add(-catalog.RetiredFor), limit)
	if err != nil {
		return 0, fmt.Errorf("find retired meter versions: %w", pg.Coded(err))
	}
	retired, err := pgx.CollectRows(rows, pgx.RowToStructByPos[retiredVersion])
	if err != nil {
		return 0, fmt.Errorf("find retired meter versions: %w", pg.Coded(err))
	}
	dropped := 0
	var failures []error
	for _, g := range retired {
		if err := m.dropRollups(ctx, g, now); err != nil {
			failures = append(failures, fmt.Errorf("drop rollups of retired meter version %d: %w", g.Version, err))
			continue // a failure of one version must not delay the others
		}
		dropped++
	}
	return dropped, errors.Join(failures...)
}

// customersDropped is the maximum number of customers per transaction that drops rollups.
const customersDropped = 100

// dropRollups folds the tenant's usage, deletes the rollups and the groups of a retired version, and marks the version
// as dropped.
func (m Maintenance) dropRollups(ctx context.Context, g retiredVersion, now time.Time) error {
	// No transaction adds usage to a retired version, so this fold moves the version's remaining
	// usage to the rollups.
	err := pg.InTx(ctx, m.pool, func(tx pgx.Tx) error {
		if err := pg.LockTenant(ctx, tx, g.Tenant); err != nil {
			return err
		}
		return usage.FoldAll(ctx, tx, g.Tenant)
	})
	if err != nil {
		return err
	}
	for after := metering.CustomerID(-1); ; {
		rows, err := m.pool.Query(ctx, `
			select id
			from (select 0 as id union all select id from customers where tenant_id = $1) c
			where id > $2
			order by id
			limit $3`, g.Tenant, after, customersDropped)
		if err != nil {
			return pg.Coded(err)
		}
		customers, err := pgx.CollectRows(rows, pgx.RowTo[metering.CustomerID])
		if err != nil {
			return pg.Coded(err)
		}
		if len(customers) == 0 {
			break
		}
		if err := pg.InTx(ctx, m.pool, func(tx pgx.Tx) error { return usage.DeleteRollups(ctx, tx, g.Tenant, g.Version, customers) }); err != nil {
			return err
		}
		after = customers[len(customers)-1]
	}
	return pg.InTx(ctx, m.pool, func(tx pgx.Tx) error {
		for _, statement := range []string{
			`delete from usage_groups where tenant_id = $1 and meter_version_id = $2`,
			`delete from backfill_hours where tenant_id = $1 and meter_version_id = $2`,
			`delete from backfill_days where tenant_id = $1 and meter_version_id = $2`,
		} {
			if _, err := tx.Exec(ctx, statement, g.Tenant, g.Version); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `update meter_versions set dropped_at = $3 where tenant_id = $1 and id = $2`, g.Tenant, g.Version, metering.Instant(now))
		return err
	})
}
