package db

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/metering"
)

// Tenants reads and makes tenants.
type Tenants struct{ pool *pgxpool.Pool }

const tenantColumns = `t.id, t.name, t.zone, t.currency, t.grace, t.late_policy, t.events_per_minute, t.created_at`

func tenantFields(t *metering.Tenant) []any {
	return []any{&t.ID, &t.Name, &t.Zone, &t.Currency, &t.Grace, &t.LatePolicy, &t.EventsPerMinute, &t.CreatedAt}
}

// Create makes a tenant. Grace and LatePolicy take the schema's defaults; a
// zero EventsPerMinute takes the domain's.
func (s Tenants) Create(ctx context.Context, actor metering.Actor, t metering.Tenant) (created metering.Tenant, err error) {
	if err := t.Validate(); err != nil {
		return metering.Tenant{}, err
	}
	err = inTx(ctx, s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			insert into tenants as t (name, zone, currency, events_per_minute) values ($1, $2, $3, $4)
			returning `+tenantColumns, t.Name, t.Zone, t.Currency, cmp.Or(t.EventsPerMinute, metering.DefaultEventsPerMinute)).Scan(tenantFields(&created)...)
		if err != nil {
			return err
		}
		return audit(ctx, tx, created.ID, actor, "tenant.create", created.ID.String())
	})
	return created, err
}

// Get returns a tenant, or CodeNotFound.
func (s Tenants) Get(ctx context.Context, tenant metering.TenantID) (t metering.Tenant, err error) {
	err = s.pool.QueryRow(ctx, `select `+tenantColumns+` from tenants t where t.id = $1`, tenant).Scan(tenantFields(&t)...)
	return t, coded(err)
}

// After lists up to limit tenants with an id above after.
func (s Tenants) After(ctx context.Context, after metering.TenantID, limit int) ([]metering.TenantID, error) {
	rows, err := s.pool.Query(ctx, `select id from tenants where id > $1 order by id limit $2`, after, limit)
	if err != nil {
		return nil, coded(err)
	}
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[metering.TenantID])
	return tenants, coded(err)
}
