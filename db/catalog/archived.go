package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// ArchivedAt returns the SQL of the time at which a row of table was archived. The time is zero if the row is not
// archived.
func ArchivedAt(table string) string {
	return `coalesce(` + table + `.archived_at, timestamptz '0001-01-01')`
}

// setArchived archives a row, or unarchives it if the instant is zero. changed is false if the row was in that state
// already.
func setArchived(ctx context.Context, tx pgx.Tx, table string, tenant metering.TenantID, id int64, at time.Time) (changed bool, err error) {
	tag, err := tx.Exec(ctx, `
		update `+table+`
		set archived_at = nullif($3, timestamptz '0001-01-01')
		where tenant_id = $1
		  and id = $2
		  and (archived_at is null) <> ($3 = timestamptz '0001-01-01')`, tenant, id, at)
	return tag.RowsAffected() > 0, err
}

// auditArchived records in the audit log that a resource was archived, or unarchived if the instant is zero.
func auditArchived(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, noun, id string, at time.Time) error {
	action := noun + ".archive"
	if at.IsZero() {
		action = noun + ".unarchive"
	}
	return audit.RecordChange(ctx, tx, tenant, actor, action, id, audit.Fields{"archived": at.IsZero()}, audit.Fields{"archived": !at.IsZero()})
}

// Archive hides the customer from lists, or unarchives it if at is zero. at is stored as the time of archiving.
// Counting and billing do not change. The next event of the customer unarchives it. Repeating the call changes
// nothing. Archive returns CodeConflict if it would unarchive an erased customer.
func (s Customers) Archive(ctx context.Context, tenant metering.TenantID, actor metering.Actor, externalID string, at time.Time) (c metering.Customer, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if c, err = LockCustomer(ctx, tx, tenant, externalID); err != nil {
			return err
		}
		if at.IsZero() && !c.ErasedAt.IsZero() {
			return metering.Errorf(metering.CodeConflict, "the customer is erased; an erased customer stays archived")
		}
		changed, err := setArchived(ctx, tx, "customers", tenant, int64(c.ID), metering.Instant(at))
		if err != nil || !changed {
			return err
		}
		c.ArchivedAt = metering.Instant(at)
		return auditArchived(ctx, tx, tenant, actor, "customer", c.ID.String(), at)
	})
	return c, err
}

// UnarchiveUsed unarchives customers that have new events. It skips customers that were erased since the events were
// stored. It locks the rows in the order of their ids, so that two calls cannot wait for each other.
func (s Customers) UnarchiveUsed(ctx context.Context, tenant metering.TenantID, customers []metering.CustomerID) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			with used as (
			  select c.id
			  from customers c
			  where c.tenant_id = $1
			    and c.id = any($2)
			    and c.archived_at is not null
			    and c.erased_at is null
			  order by c.id
			  for update)
			update customers c
			set archived_at = null
			from used
			where c.tenant_id = $1
			  and c.id = used.id
			returning c.id`, tenant, customers)
		if err != nil {
			return err
		}
		unarchived, err := pgx.CollectRows(rows, pgx.RowTo[metering.CustomerID])
		if err != nil {
			return err
		}
		for _, id := range unarchived {
			if err := auditArchived(ctx, tx, tenant, metering.Scheduler, "customer", id.String(), time.Time{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Archive hides the plan from lists, or unarchives it if at is zero. at is stored as the time of archiving. Customers
// with the plan keep the plan, but the plan cannot be assigned to other customers.
func (s Plans) Archive(ctx context.Context, tenant metering.TenantID, actor metering.Actor, p metering.Plan, at time.Time) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		changed, err := setArchived(ctx, tx, "plans", tenant, int64(p.ID), metering.Instant(at))
		if err != nil || !changed {
			return err
		}
		return auditArchived(ctx, tx, tenant, actor, "plan", p.ID.String(), at)
	})
}

// Archive stops the meter from counting new events, and hides it from lists. Its counted usage stays. A running
// backfill of the meter ends. If the backfill was for a changed definition, the change is canceled: the meter
// keeps the definition from which usage is read. If the backfill was the meter's first, the meter has no usage.
func (s Meters) Archive(ctx context.Context, tenant metering.TenantID, actor metering.Actor, slug string, now time.Time) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		m, changed, err := archiveMeter(ctx, tx, tenant, slug, metering.Instant(now))
		if err != nil || !changed {
			return err
		}
		if m.Version.Status == metering.Backfilling {
			err = countNothing(ctx, tx, tenant, m.Version)
		} else if err = auditCanceled(ctx, tx, tenant, actor, m); err == nil {
			err = stopCounting(ctx, tx, tenant, m.Version)
		}
		if err != nil {
			return err
		}
		return auditArchived(ctx, tx, tenant, actor, "meter", m.ID.String(), now)
	})
}

// auditCanceled records in the audit log that a change of the meter's definition is canceled, if such a change is
// being backfilled.
func auditCanceled(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, m metering.Meter) error {
	latest, err := LatestMeterVersion(ctx, tx, tenant, m.ID)
	if err != nil || latest.SameCounting(m.Version) {
		return err
	}
	changed := m
	changed.Version = latest
	return audit.RecordChange(ctx, tx, tenant, actor, "meter.update", m.ID.String(), auditedMeter(changed), auditedMeter(m))
}

// stopCounting ends the counting of new events by the meter's current version, from which usage is read. If that version
// has already ended, its end stays unchanged. stopCounting also retires a version that is being backfilled.
func stopCounting(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, g metering.MeterVersion) error {
	epoch, err := RaiseEpoch(ctx, tx, tenant)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `update meter_versions set until_epoch = coalesce(until_epoch, $3) where tenant_id = $1 and id = $2`, tenant, g.ID, epoch); err != nil {
		return err
	}
	return retireOthers(ctx, tx, tenant, g.MeterID, g.ID)
}

// countNothing publishes a complete version without usage, in place of a version that is still in
// the meter's first backfill.
func countNothing(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, g metering.MeterVersion) error {
	published, err := publishMeterVersion(ctx, tx, tenant, g)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		update meter_versions
		set status = 'complete', completed_at = now(), until_epoch = 0
		where tenant_id = $1
		  and id = $2`, tenant, published.ID)
	if err != nil {
		return err
	}
	return Adopt(ctx, tx, tenant, published)
}

// Unarchive makes the meter count again by the same definition, including the events received while it was
// archived. It returns a new version that is backfilling; the caller starts the backfill. It returns nil if the
// meter was not archived, or if there are no events to backfill.
func (s Meters) Unarchive(ctx context.Context, tenant metering.TenantID, actor metering.Actor, slug string) (backfilling *metering.MeterVersion, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		m, changed, err := archiveMeter(ctx, tx, tenant, slug, time.Time{})
		if err != nil || !changed {
			return err
		}
		if err := requireRoomForMeter(ctx, tx, tenant, m.EventType, m.ID); err != nil {
			return err
		}
		latest, err := LatestMeterVersion(ctx, tx, tenant, m.ID)
		if err != nil {
			return err
		}
		if backfilling, err = Regroup(ctx, tx, tenant, latest); err != nil {
			return err
		}
		return auditArchived(ctx, tx, tenant, actor, "meter", m.ID.String(), time.Time{})
	})
	if err != nil {
		return nil, fmt.Errorf("unarchive meter: %w", err)
	}
	return backfilling, nil
}

// archiveMeter archives a meter under the tenant's lock, or unarchives it if the instant is zero. It raises the
// revision of the catalog. changed is false if the meter was in that state already.
func archiveMeter(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, slug string, at time.Time) (m metering.Meter, changed bool, err error) {
	if _, err := RaiseRevision(ctx, tx, tenant); err != nil {
		return m, false, err
	}
	if err := pg.LockTenant(ctx, tx, tenant); err != nil {
		return m, false, err
	}
	if m, err = MeterBySlug(ctx, tx, tenant, slug); err != nil {
		return m, false, err
	}
	changed, err = setArchived(ctx, tx, "meters", tenant, int64(m.ID), at)
	return m, changed, err
}
