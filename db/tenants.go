package db

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Tenants stores tenants.
type Tenants struct{ pool pg.Beginner }

// Create creates a tenant. Grace and LatePolicy have the schema's defaults. A zero RequestsPerMinute
// becomes DefaultRequestsPerMinute, and an empty KeyConflicts becomes AcceptConflicts.
func (s Tenants) Create(ctx context.Context, actor metering.Actor, t metering.Tenant) (created metering.Tenant, err error) {
	t.KeyConflicts = cmp.Or(t.KeyConflicts, metering.AcceptConflicts)
	if err := t.Validate(); err != nil {
		return metering.Tenant{}, err
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			insert into tenants as t (name, timezone, currency, requests_per_minute, strict, idempotency_conflicts) values ($1, $2, $3, $4, $5, $6)
			returning `+access.TenantColumns, t.Name, t.Timezone, t.Currency, cmp.Or(t.RequestsPerMinute, metering.DefaultRequestsPerMinute), t.Strict, t.KeyConflicts).Scan(access.TenantFields(&created)...)
		if err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, created.ID, actor, "tenant.create", created.ID.String(), nil, auditedTenant(created))
	})
	return created, err
}

// Get returns a tenant, or CodeNotFound.
func (s Tenants) Get(ctx context.Context, tenant metering.TenantID) (t metering.Tenant, err error) {
	err = s.pool.QueryRow(ctx, `select `+access.TenantColumns+` from tenants t where t.id = $1`, tenant).Scan(access.TenantFields(&t)...)
	return t, pg.Coded(err)
}

// After returns the next IDs of tenants in order, at most limit. It begins after the given ID.
func (s Tenants) After(ctx context.Context, after metering.TenantID, limit int) ([]metering.TenantID, error) {
	rows, err := s.pool.Query(ctx, `select id from tenants where id > $1 order by id limit $2`, after, limit)
	if err != nil {
		return nil, pg.Coded(err)
	}
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[metering.TenantID])
	return tenants, pg.Coded(err)
}

// TenantChange is the set of fields to change; nil fields keep their values.
type TenantChange struct {
	Name              *string
	Timezone          *string
	Currency          *string
	Grace             *time.Duration
	LatePolicy        *metering.LatePolicy
	RequestsPerMinute *int
	Strict            *bool
	KeyConflicts      *metering.ConflictPolicy
	V1BodylessWrites  *bool
	InvoiceHold       *bool
	HoldDeadline      *time.Duration
}

func (c TenantChange) appliedTo(t metering.Tenant) metering.Tenant {
	catalog.SetField(&t.Name, c.Name)
	catalog.SetField(&t.Timezone, c.Timezone)
	catalog.SetField(&t.Currency, c.Currency)
	catalog.SetField(&t.Grace, c.Grace)
	catalog.SetField(&t.LatePolicy, c.LatePolicy)
	catalog.SetField(&t.RequestsPerMinute, c.RequestsPerMinute)
	catalog.SetField(&t.Strict, c.Strict)
	catalog.SetField(&t.KeyConflicts, c.KeyConflicts)
	catalog.SetField(&t.V1BodylessWrites, c.V1BodylessWrites)
	catalog.SetField(&t.InvoiceHold.Enabled, c.InvoiceHold)
	catalog.SetField(&t.InvoiceHold.Deadline, c.HoldDeadline)
	return t
}

// Update changes a tenant. A new time zone creates a backfilling version of each meter that is not
// archived. The caller starts these backfills, and reads use a meter's previous version until its backfill
// is complete. Update fails with CodeConflict for a new time zone once a customer has a billing period,
// because the periods follow the months of one zone.
func (s Tenants) Update(ctx context.Context, tenant metering.TenantID, actor metering.Actor, change TenantChange) (updated metering.Tenant, backfilling []metering.MeterVersionID, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		backfilling = nil
		if change.Timezone != nil {
			if _, err := catalog.RaiseRevision(ctx, tx, tenant); err != nil {
				return err
			}
		}
		if err := pg.LockTenant(ctx, tx, tenant); err != nil {
			return err
		}
		var former metering.Tenant
		err := tx.QueryRow(ctx, `select `+access.TenantColumns+` from tenants t where t.id = $1 for no key update`, tenant).Scan(access.TenantFields(&former)...)
		if err != nil {
			return err
		}
		next := change.appliedTo(former)
		if err := next.Validate(); err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `
			update tenants t
			set name = @name, timezone = @timezone, currency = @currency, grace = @grace, late_policy = @late_policy, requests_per_minute = @requests_per_minute, strict = @strict,
			  idempotency_conflicts = @idempotency_conflicts, v1_bodyless_writes = @v1_bodyless_writes, invoice_hold = @invoice_hold, invoice_hold_deadline = @invoice_hold_deadline
			where t.id = @tenant
			returning `+access.TenantColumns, pgx.NamedArgs{
			"tenant": tenant, "name": next.Name, "timezone": next.Timezone, "currency": next.Currency, "grace": next.Grace,
			"late_policy": next.LatePolicy, "requests_per_minute": next.RequestsPerMinute, "strict": next.Strict, "idempotency_conflicts": next.KeyConflicts,
			"v1_bodyless_writes": next.V1BodylessWrites, "invoice_hold": next.InvoiceHold.Enabled, "invoice_hold_deadline": next.InvoiceHold.Deadline,
		}).Scan(access.TenantFields(&updated)...)
		if err != nil {
			return err
		}
		if updated.Timezone != former.Timezone {
			if backfilling, err = rezone(ctx, tx, tenant, updated.Timezone); err != nil {
				return err
			}
			if err := catalog.QueueAlerts(ctx, tx, tenant, 0); err != nil {
				return err
			}
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "tenant.update", tenant.String(), auditedTenant(former), auditedTenant(updated))
	})
	return updated, backfilling, err
}

// rezone creates a version in a new zone of each meter that is not archived, and returns the versions to
// backfill. It returns CodeConflict if a billing period of the tenant is stored.
func rezone(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, zone string) (backfilling []metering.MeterVersionID, err error) {
	var billed bool
	err = tx.QueryRow(ctx, `select exists (select from billing_periods where tenant_id = $1)`, tenant).Scan(&billed)
	if err != nil {
		return nil, err
	}
	if billed {
		return nil, metering.Errorf(metering.CodeConflict, "timezone cannot change, because a billing period of a customer is stored; create another tenant for another zone")
	}
	meters, err := catalog.CollectMeters(ctx, tx, `and m.archived_at is null order by m.id`, tenant)
	if err != nil {
		return nil, err
	}
	for _, m := range meters {
		next, err := catalog.LatestMeterVersion(ctx, tx, tenant, m.ID)
		if err != nil {
			return nil, err
		}
		next.Timezone = zone
		published, err := catalog.Regroup(ctx, tx, tenant, next)
		if err != nil {
			return nil, err
		}
		if published != nil {
			backfilling = append(backfilling, published.ID)
		}
	}
	return backfilling, nil
}

func auditedTenant(t metering.Tenant) audit.Fields {
	return audit.Fields{
		"name": t.Name, "timezone": t.Timezone, "currency": t.Currency, "grace_hours": t.Grace.Hours(), "late_policy": t.LatePolicy,
		"requests_per_minute": t.RequestsPerMinute, "strict": t.Strict, "idempotency_conflicts": t.KeyConflicts, "v1_bodyless_writes": t.V1BodylessWrites,
		"invoice_hold.enabled": t.InvoiceHold.Enabled, "invoice_hold.deadline_hours": t.InvoiceHold.Deadline.Hours(),
	}
}
