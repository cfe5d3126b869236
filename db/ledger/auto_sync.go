package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// AutoSyncs stores the tenants' settings for automatic syncs of their customers. The API and the workers apply
// the settings to schedules in Temporal.
type AutoSyncs struct{ pool *pg.Pool }

const autoSyncColumns = `a.tenant_id, a.enabled, a.schedule, a.paused, a.updated_at,
	case when a.applied_at >= a.updated_at then a.applied_at end`

func scanAutoSync(row pgx.CollectableRow) (a metering.AutoSync, err error) {
	err = row.Scan(&a.TenantID, &a.Enabled, &a.Schedule, &a.Paused, &a.UpdatedAt, &a.AppliedAt)
	return a, err
}

// Get returns the tenant's settings. The default is off and hourly.
func (s AutoSyncs) Get(ctx context.Context, tenant metering.TenantID) (metering.AutoSync, error) {
	return autoSyncOf(ctx, s.pool, tenant)
}

func autoSyncOf(ctx context.Context, q pg.Querier, tenant metering.TenantID) (metering.AutoSync, error) {
	rows, err := q.Query(ctx, `select `+autoSyncColumns+` from auto_syncs a where a.tenant_id = $1`, tenant)
	if err != nil {
		return metering.AutoSync{}, fmt.Errorf("read auto-sync: %w", pg.Coded(err))
	}
	a, err := pgx.CollectExactlyOneRow(rows, scanAutoSync)
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.AutoSync{TenantID: tenant, Schedule: metering.Hourly}, nil
	}
	if err != nil {
		return metering.AutoSync{}, fmt.Errorf("read auto-sync: %w", pg.Coded(err))
	}
	return a, nil
}

// Save stores the tenant's settings and marks them as not yet applied to its Temporal schedule.
func (s AutoSyncs) Save(ctx context.Context, tenant metering.TenantID, actor metering.Actor, a metering.AutoSync, now time.Time) (saved metering.AutoSync, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		former, err := autoSyncOf(ctx, tx, tenant)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			insert into auto_syncs as a (tenant_id, enabled, schedule, paused, updated_at, updated_by)
			values (@tenant, @enabled, @schedule, @paused, @now, @actor)
			on conflict (tenant_id) do update
			set enabled = excluded.enabled, schedule = excluded.schedule, paused = excluded.paused,
			    updated_at = greatest(excluded.updated_at, a.updated_at + interval '1 microsecond'), updated_by = excluded.updated_by
			returning `+autoSyncColumns, pgx.NamedArgs{
			"tenant": tenant, "enabled": a.Enabled, "schedule": a.Schedule, "paused": a.Paused, "now": metering.Instant(now), "actor": actor,
		})
		if err != nil {
			return err
		}
		if saved, err = pgx.CollectExactlyOneRow(rows, scanAutoSync); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "auto_sync.save", tenant.String(), auditedAutoSync(former), auditedAutoSync(saved))
	})
	if err != nil {
		return metering.AutoSync{}, fmt.Errorf("save auto-sync: %w", err)
	}
	return saved, nil
}

// Applied records that the given settings are applied to the tenant's Temporal schedule. If newer settings are
// stored, Applied marks those as not applied, because the caller may have overwritten the schedule with older ones.
func (s AutoSyncs) Applied(ctx context.Context, tenant metering.TenantID, applied metering.AutoSync) error {
	_, err := s.pool.Exec(ctx, `
		update auto_syncs
		set applied_at = case when updated_at = $2 then updated_at end
		where tenant_id = $1`, tenant, applied.UpdatedAt)
	if err != nil {
		return fmt.Errorf("note auto-sync: %w", pg.Coded(err))
	}
	return nil
}

// ToApply returns the settings, of all tenants, that are not yet applied to Temporal schedules. If all is true,
// it returns all stored settings, so that the caller can check every schedule.
func (s AutoSyncs) ToApply(ctx context.Context, all bool) ([]TenantAutoSync, error) {
	rows, err := s.pool.Query(ctx, `
		select `+access.TenantColumns+`, `+autoSyncColumns+`
		from auto_syncs a
		join tenants t on t.id = a.tenant_id
		where $1 or a.applied_at is null or a.applied_at < a.updated_at
		order by a.tenant_id`, all)
	if err != nil {
		return nil, fmt.Errorf("list auto-syncs: %w", pg.Coded(err))
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (x TenantAutoSync, err error) {
		a := &x.AutoSync
		err = row.Scan(append(access.TenantFields(&x.Tenant), &a.TenantID, &a.Enabled, &a.Schedule, &a.Paused, &a.UpdatedAt, &a.AppliedAt)...)
		return x, err
	})
	if err != nil {
		return nil, fmt.Errorf("list auto-syncs: %w", pg.Coded(err))
	}
	return list, nil
}

// TenantAutoSync is a tenant and its settings.
type TenantAutoSync struct {
	Tenant metering.Tenant
	metering.AutoSync
}

func auditedAutoSync(a metering.AutoSync) audit.Fields {
	return audit.Fields{"enabled": a.Enabled, "schedule": a.Schedule, "paused": a.Paused}
}
