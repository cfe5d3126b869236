package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Quotas stores quotas, which limit usage, and reservations.
type Quotas struct {
	pool *pg.Pool
	read ledger.ReadPrice // decodes the prices of billing periods
}

// StoredQuota is a quota with the name of its customer or plan.
type StoredQuota struct {
	metering.Quota
	Customer string // external id; "": the quota of a plan
	Plan     string // slug; "": the quota of a customer
}

// quotaColumns are the columns of quotas q with their meters m and meter versions g, from quotaTables.
var quotaColumns = `
	  q.id, coalesce(q.customer_id, 0), coalesce(q.plan_id, 0), q.group_id, q.group_key, q.amount, q.mode, q.period, q.created_at,
	  coalesce(c.external_id, ''), coalesce(p.slug, ''),
	  m.id, m.slug, m.event_type, m.name, m.unit, m.usage_scale, m.created_at, ` + catalog.ArchivedAt("m") + `, ` + catalog.MeterVersionColumns

const quotaTables = `
	quotas q
	join meters m on m.tenant_id = q.tenant_id and m.id = q.meter_id
	join meter_versions g on g.tenant_id = m.tenant_id and g.id = m.meter_version_id
	left join customers c on c.tenant_id = q.tenant_id and c.id = q.customer_id
	left join plans p on p.tenant_id = q.tenant_id and p.id = q.plan_id
	`

var selectQuotas = `select ` + quotaColumns + ` from ` + quotaTables + ` where q.tenant_id = $1 `

func quotaFields(q *StoredQuota, group **[16]byte, key *json.RawMessage) []any {
	m := &q.Meter
	return append([]any{
		&q.ID, &q.CustomerID, &q.PlanID, group, key, &q.Limit, &q.Mode, &q.Period, &q.CreatedAt, &q.Customer, &q.Plan,
		&m.ID, &m.Slug, &m.EventType, &m.Name, &m.Unit, &m.UsageScale, &m.CreatedAt, &m.ArchivedAt,
	}, catalog.MeterVersionFields(&m.Version)...)
}

// scanQuota reads a row of quotaColumns, and the columns before them.
func scanQuota(row pgx.CollectableRow, before ...any) (q StoredQuota, err error) {
	var group *[16]byte
	var key json.RawMessage
	if err := row.Scan(append(before, quotaFields(&q, &group, &key)...)...); err != nil {
		return q, err
	}
	q.Group = storedGroup(group, key)
	return q, nil
}

func storedGroup(id *[16]byte, key json.RawMessage) *metering.Group {
	if id == nil {
		return nil
	}
	return &metering.Group{ID: *id, Key: key}
}

var errNoQuota = metering.Errorf(metering.CodeNotFound, "there is no such quota")

var customerQuotaLimit = pg.Limit{
	Count: `select count(*) from quotas where tenant_id = @tenant and customer_id = @of`,
	Owner: "customer", Most: metering.MaxQuotas, Noun: "quotas", Fix: "delete one first",
}

var planQuotaLimit = pg.Limit{
	Count: `select count(*) from quotas where tenant_id = @tenant and plan_id = @of`,
	Owner: "plan", Most: metering.MaxQuotas, Noun: "quotas", Fix: "delete one first",
}

// Set stores the quota, or replaces the limit and mode of the stored quota with the same customer or plan,
// meter, group and period. It returns CodeNotFound if the customer is erased, and CodeConflict if the customer or
// plan has the maximum number of quotas.
func (s Quotas) Set(ctx context.Context, tenant metering.TenantID, actor metering.Actor, q metering.Quota, now time.Time) (set StoredQuota, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.LockTenantShared(ctx, tx, tenant); err != nil { // blocks meter changes and new erasures
			return err
		}
		if err := pg.LockAccess(ctx, tx, tenant); err != nil {
			return err
		}
		if err := refuseErased(ctx, tx, tenant, q.CustomerID); err != nil {
			return err
		}
		if err := catalog.RegisterGroup(ctx, tx, tenant, q.Meter.ID, q.Group); err != nil {
			return err
		}
		former, err := sameQuota(ctx, tx, tenant, q)
		if err != nil {
			return err
		}
		if former == nil {
			room := customerQuotaLimit.OfOwner(int64(q.CustomerID))
			if q.PlanID != 0 {
				room = planQuotaLimit.OfOwner(int64(q.PlanID))
			}
			if err := pg.RequireRoom(ctx, tx, tenant, room); err != nil {
				return err
			}
		}
		if set, err = storeQuota(ctx, tx, tenant, actor, q, former, now); err != nil {
			return err
		}
		if err := catalog.QueueAlerts(ctx, tx, tenant, set.CustomerID); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "quota.set", set.ID.String(), auditedFormerQuota(former), auditedQuota(set))
	})
	if err != nil {
		return StoredQuota{}, fmt.Errorf("set quota: %w", err)
	}
	return set, nil
}

// sameQuota returns the quota with the same customer or plan, meter, group and period; nil if there is
// none.
func sameQuota(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, q metering.Quota) (*StoredQuota, error) {
	subject, id := "q.customer_id", int64(q.CustomerID)
	if q.PlanID != 0 {
		subject, id = "q.plan_id", int64(q.PlanID)
	}
	rows, err := tx.Query(ctx, selectQuotas+`and `+subject+` = $2 and q.meter_id = $3 and q.period = $4 and q.group_id is not distinct from $5`,
		tenant, id, q.Meter.ID, q.Period, catalog.GroupID(q.Group))
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (StoredQuota, error) { return scanQuota(row) })
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &found, err
}

func storeQuota(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, q metering.Quota, former *StoredQuota, now time.Time) (StoredQuota, error) {
	var id metering.QuotaID
	var err error
	if former == nil {
		err = tx.QueryRow(ctx, `
			insert into quotas (tenant_id, customer_id, plan_id, meter_id, group_id, group_key, amount, mode, period, created_at, limited_at, created_by)
			values ($1, nullif($2::bigint, 0), nullif($3::bigint, 0), $4, $5, $6, $7, $8, $9, $10, $10, $11)
			returning id`,
			tenant, q.CustomerID, q.PlanID, q.Meter.ID, catalog.GroupID(q.Group), catalog.GroupKey(q.Group), q.Limit, q.Mode, q.Period, metering.Instant(now), actor).Scan(&id)
	} else {
		id = former.ID
		_, err = tx.Exec(ctx, `
			update quotas
			set amount = $3, mode = $4, limited_at = case when amount is distinct from $3 then $5 else limited_at end
			where tenant_id = $1
			  and id = $2`, tenant, id, q.Limit, q.Mode, metering.Instant(now))
	}
	if err != nil {
		return StoredQuota{}, err
	}
	return getQuota(ctx, tx, tenant, id)
}

func getQuota(ctx context.Context, q pg.Querier, tenant metering.TenantID, id metering.QuotaID) (StoredQuota, error) {
	rows, err := q.Query(ctx, selectQuotas+`and q.id = $2`, tenant, id)
	if err != nil {
		return StoredQuota{}, pg.Coded(err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (StoredQuota, error) { return scanQuota(row) })
	if errors.Is(err, pgx.ErrNoRows) {
		return StoredQuota{}, errNoQuota
	}
	return found, pg.Coded(err)
}

// QuotaFilter selects quotas. Zero fields match every quota.
type QuotaFilter struct {
	Customer metering.CustomerID
	Plan     metering.PlanID
}

// List returns the next quotas that match the filter, in order of ID, at most limit. It begins after the given ID.
func (s Quotas) List(ctx context.Context, tenant metering.TenantID, filter QuotaFilter, after metering.QuotaID, limit int) (page pg.Page[StoredQuota], err error) {
	rows, err := s.pool.Query(ctx, selectQuotas+`
		and q.id > $2 and ($4 = 0 or q.customer_id = $4) and ($5 = 0 or q.plan_id = $5) order by q.id limit $3`,
		tenant, after, limit+1, filter.Customer, filter.Plan)
	if err != nil {
		return page, fmt.Errorf("list quotas: %w", pg.Coded(err))
	}
	page, err = pg.ReadPage(ctx, rows, limit, func(row pgx.CollectableRow) (StoredQuota, error) { return scanQuota(row) })
	if err != nil {
		return page, fmt.Errorf("list quotas: %w", pg.Coded(err))
	}
	return page, nil
}

// Delete deletes a quota, or returns CodeNotFound. The reservations remain.
func (s Quotas) Delete(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.QuotaID) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		former, err := getQuota(ctx, tx, tenant, id)
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `delete from quotas where tenant_id = $1 and id = $2`, tenant, id)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 { // another request has deleted the quota
			return errNoQuota
		}
		if former.CustomerID != 0 { // a quota of the customer's plan may apply now
			if err := catalog.QueueAlerts(ctx, tx, tenant, former.CustomerID); err != nil {
				return err
			}
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "quota.delete", id.String(), auditedQuota(former), nil)
	})
	if err != nil {
		return fmt.Errorf("delete quota: %w", err)
	}
	return nil
}

func auditedFormerQuota(q *StoredQuota) audit.Fields {
	if q == nil {
		return nil
	}
	return auditedQuota(*q)
}

// auditedQuota returns the audited fields of a quota. They contain the customer's id only, and no group values,
// because names and group values may be personal data of the customer.
func auditedQuota(q StoredQuota) audit.Fields {
	fields := audit.Fields{"meter": q.Meter.Slug, "limit": nil, "mode": q.Mode, "period": q.Period, "grouped": q.Group != nil}
	if q.Limit != nil {
		fields["limit"] = q.Limit.String()
	}
	if q.CustomerID != 0 {
		fields["customer_id"] = q.CustomerID.String()
	} else {
		fields["plan_id"] = q.PlanID.String()
	}
	return fields
}
