package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// archivedAt is when a row of a table was archived, or the zero time, as SQL.
func archivedAt(of string) string {
	return `coalesce(` + of + `.archived_at, timestamptz '0001-01-01')`
}

// setArchived archives a row that is not archived yet, or has it back. changed is
// false where it was so already.
func setArchived(ctx context.Context, tx pgx.Tx, table string, tenant metering.TenantID, id int64, at time.Time) (changed bool, err error) {
	tag, err := tx.Exec(ctx, `
		update `+table+`
		set archived_at = nullif($3, timestamptz '0001-01-01')
		where tenant_id = $1
		  and id = $2
		  and (archived_at is null) <> ($3 = timestamptz '0001-01-01')`, tenant, id, at)
	return tag.RowsAffected() > 0, err
}

// auditArchived tells that something was archived at an instant; zero: it is back.
func auditArchived(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, noun, id string, at time.Time) error {
	action := noun + ".archive"
	if at.IsZero() {
		action = noun + ".unarchive"
	}
	return auditChange(ctx, tx, tenant, actor, action, id, told{"archived": at.IsZero()}, told{"archived": !at.IsZero()})
}

// Archive leaves the customer out of lists from an instant on, or has it back
// (zero). It changes nothing that is counted or billed, and the next event has the
// customer back. Doing so again changes nothing.
func (s Customers) Archive(ctx context.Context, tenant metering.TenantID, actor metering.Actor, externalID string, at time.Time) (c metering.Customer, err error) {
	err = inTx(ctx, s.pool, func(tx pgx.Tx) error {
		if c, err = lockKnownCustomer(ctx, tx, tenant, externalID); err != nil {
			return err
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

// used has archived customers back who have events again.
func (s Customers) used(ctx context.Context, tenant metering.TenantID, customers []metering.CustomerID) error {
	return inTx(ctx, s.pool, func(tx pgx.Tx) error {
		for _, id := range customers {
			changed, err := setArchived(ctx, tx, "customers", tenant, int64(id), time.Time{})
			if err == nil && changed {
				err = auditArchived(ctx, tx, tenant, metering.Scheduler, "customer", id.String(), time.Time{})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Archive leaves the plan out of lists from an instant on, or has it back
// (zero). Who has it keeps it; nobody gets it anew.
func (s Plans) Archive(ctx context.Context, tenant metering.TenantID, actor metering.Actor, p metering.Plan, at time.Time) error {
	return inTx(ctx, s.pool, func(tx pgx.Tx) error {
		changed, err := setArchived(ctx, tx, "plans", tenant, int64(p.ID), metering.Instant(at))
		if err != nil || !changed {
			return err
		}
		return auditArchived(ctx, tx, tenant, actor, "plan", p.ID.String(), at)
	})
}

// Archive has the meter count no event that comes from now on, and leaves it out
// of lists. What it has counted stays. A backfill of the meter ends; if it was the
// meter's first, the meter has counted nothing.
func (s Meters) Archive(ctx context.Context, tenant metering.TenantID, actor metering.Actor, slug string, now time.Time) error {
	return inTx(ctx, s.pool, func(tx pgx.Tx) error {
		m, changed, err := archiveMeter(ctx, tx, tenant, slug, metering.Instant(now))
		if err != nil || !changed {
			return err
		}
		if m.Version.Status == metering.Backfilling {
			err = countNothing(ctx, tx, tenant, m.Version)
		} else {
			err = stopCounting(ctx, tx, tenant, m.Version)
		}
		if err != nil {
			return err
		}
		return auditArchived(ctx, tx, tenant, actor, "meter", m.ID.String(), now)
	})
}

// stopCounting has the version that is read count no event that comes from now on, if it was
// not archived before, and retires the one that is being backfilled.
func stopCounting(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, g metering.MeterVersion) error {
	epoch, err := raiseEpoch(ctx, tx, tenant)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `update meter_versions set until_epoch = coalesce(until_epoch, $3) where tenant_id = $1 and id = $2`, tenant, g.ID, epoch); err != nil {
		return err
	}
	return retireOthers(ctx, tx, tenant, g.MeterID, g.ID)
}

// countNothing replaces a version that was never read with one that has counted nothing.
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
	return adopt(ctx, tx, tenant, published)
}

// Unarchive has the meter count again, what came meanwhile too: as one that
// counts in another way, it comes back as backfilling, and the caller starts that.
func (s Meters) Unarchive(ctx context.Context, tenant metering.TenantID, actor metering.Actor, slug string) (backfilling *metering.MeterVersion, err error) {
	err = inTx(ctx, s.pool, func(tx pgx.Tx) error {
		m, changed, err := archiveMeter(ctx, tx, tenant, slug, time.Time{})
		if err != nil || !changed {
			return err
		}
		if err := roomForMeter(ctx, tx, tenant, m.EventType, m.ID); err != nil {
			return err
		}
		latest, err := latestMeterVersion(ctx, tx, tenant, m.ID)
		if err != nil {
			return err
		}
		if backfilling, err = regroup(ctx, tx, tenant, latest); err != nil {
			return err
		}
		return auditArchived(ctx, tx, tenant, actor, "meter", m.ID.String(), time.Time{})
	})
	if err != nil {
		return nil, fmt.Errorf("unarchive meter: %w", err)
	}
	return backfilling, nil
}

// archiveMeter archives a meter under the tenant's lock; zero: has it back.
func archiveMeter(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, slug string, at time.Time) (m metering.Meter, changed bool, err error) {
	if _, err := raiseCatalogRevision(ctx, tx, tenant); err != nil {
		return m, false, err
	}
	if err := lockTenant(ctx, tx, tenant); err != nil {
		return m, false, err
	}
	if m, err = meterBySlug(ctx, tx, tenant, slug); err != nil {
		return m, false, err
	}
	changed, err = setArchived(ctx, tx, "meters", tenant, int64(m.ID), at)
	return m, changed, err
}
