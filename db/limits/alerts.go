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
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Alerts stores the alerts of tenants and their firings.
type Alerts struct{ pool pg.Beginner }

// NewAlerts returns an Alerts that uses a transaction or a pool.
func NewAlerts(pool pg.Beginner) Alerts { return Alerts{pool} }

const selectAlerts = `
	select a.id, a.name, a.type, coalesce(a.customer_id, 0), coalesce(a.plan_id, 0), coalesce(a.meter_id, 0), a.group_id, a.group_key, a.thresholds, a.minutes, a.currency,
	  a.enabled, a.created_at, a.changed_at, coalesce(c.external_id, ''), coalesce(p.slug, ''), coalesce(m.slug, ''), coalesce(m.unit, '')
	from alerts a
	left join customers c on c.tenant_id = a.tenant_id and c.id = a.customer_id
	left join plans p on p.tenant_id = a.tenant_id and p.id = a.plan_id
	left join meters m on m.tenant_id = a.tenant_id and m.id = a.meter_id
	where a.tenant_id = @tenant
	  and a.deleted_at is null `

func scanAlert(row pgx.CollectableRow) (a metering.Alert, err error) {
	var group *[16]byte
	var key json.RawMessage
	err = row.Scan(&a.ID, &a.Name, &a.Type, &a.CustomerID, &a.PlanID, &a.MeterID, &group, &key, &a.Thresholds, &a.Minutes, &a.Currency,
		&a.Enabled, &a.CreatedAt, &a.ChangedAt, &a.ExternalID, &a.Plan, &a.Meter, &a.Unit)
	a.Group = storedGroup(group, key)
	return a, err
}

var errNoAlert = metering.Errorf(metering.CodeNotFound, "there is no such alert")

// Create stores an alert and queues its customers for evaluation. It returns CodeConflict if the tenant or the
// customer has the maximum number of alerts.
func (s Alerts) Create(ctx context.Context, tenant metering.TenantID, actor metering.Actor, a metering.Alert, now time.Time) (created metering.Alert, err error) {
	if err := a.Validate(); err != nil {
		return metering.Alert{}, err
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.LockTenantShared(ctx, tx, tenant); err != nil { // blocks meter changes and new erasures
			return err
		}
		if err := pg.LockAccess(ctx, tx, tenant); err != nil {
			return err
		}
		if err := refuseErased(ctx, tx, tenant, a.CustomerID); err != nil {
			return err
		}
		if err := requireRoomForAlert(ctx, tx, tenant, a.CustomerID); err != nil {
			return err
		}
		if err := catalog.RegisterGroup(ctx, tx, tenant, a.MeterID, a.Group); err != nil {
			return err
		}
		if err := requireCurrency(ctx, tx, tenant, a); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `
			insert into alerts (tenant_id, name, type, customer_id, plan_id, meter_id, group_id, group_key, thresholds, minutes, currency, created_at, changed_at, created_by)
			values (@tenant, @name, @type, nullif(@customer::bigint, 0), nullif(@plan::bigint, 0), nullif(@meter::bigint, 0), @group, @group_key, @thresholds::text[]::numeric[], @minutes, @currency, @now, @now, @actor)
			returning id`, pgx.NamedArgs{
			"tenant": tenant, "name": a.Name, "type": a.Type, "customer": a.CustomerID, "plan": a.PlanID, "meter": a.MeterID, "group": catalog.GroupID(a.Group), "group_key": catalog.GroupKey(a.Group),
			"thresholds": decimalTexts(a.Thresholds), "minutes": a.Minutes, "currency": a.Currency, "now": metering.Instant(now), "actor": actor,
		}).Scan(&a.ID)
		if err != nil {
			return err
		}
		if created, err = getAlert(ctx, tx, tenant, a.ID, ""); err != nil {
			return err
		}
		if err := catalog.QueueAlerts(ctx, tx, tenant, a.CustomerID); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "alert.create", created.ID.String(), nil, auditedAlert(created))
	})
	if err != nil {
		return metering.Alert{}, fmt.Errorf("create alert: %w", err)
	}
	return created, nil
}

// refuseErased returns CodeNotFound if the customer is erased. The caller may have found the customer by its
// external ID before the erasure.
func refuseErased(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) error {
	var erased bool
	err := tx.QueryRow(ctx, `select exists (select from customers where tenant_id = $1 and id = $2 and erased_at is not null)`, tenant, customer).Scan(&erased)
	if err == nil && erased {
		err = catalog.ErrNoCustomer
	}
	return err
}

var customerAlertLimit = pg.Limit{
	Count: `select count(*) from alerts where tenant_id = @tenant and customer_id = @of and deleted_at is null`,
	Owner: "customer", Most: metering.MaxAlertsOfCustomer, Noun: "alerts", Fix: "delete one first",
}

var alertLimit = pg.Limit{
	Count: `select count(*) from alerts where tenant_id = @tenant and deleted_at is null`,
	Most:  metering.MaxAlerts, Noun: "alerts", Fix: "delete one first",
}

func requireRoomForAlert(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) error {
	if err := pg.RequireRoom(ctx, tx, tenant, alertLimit); err != nil || customer == 0 {
		return err
	}
	return pg.RequireRoom(ctx, tx, tenant, customerAlertLimit.OfOwner(int64(customer)))
}

// requireCurrency returns an error if the currency of the alert differs from that of the customer's subscription.
func requireCurrency(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, a metering.Alert) error {
	if a.Type != metering.SpendAlert || a.CustomerID == 0 {
		return nil
	}
	var currency string
	err := tx.QueryRow(ctx, `select coalesce(max(currency), '') from billing_links where tenant_id = $1 and customer_id = $2`, tenant, a.CustomerID).Scan(&currency)
	if err == nil && currency != "" && currency != a.Currency {
		err = metering.Invalid("body.currency", "must be the currency in which the customer is billed, %s", currency)
	}
	return err
}

// Get returns an alert, or CodeNotFound.
func (s Alerts) Get(ctx context.Context, tenant metering.TenantID, id metering.AlertID) (metering.Alert, error) {
	return getAlert(ctx, s.pool, tenant, id, "")
}

func getAlert(ctx context.Context, q pg.Querier, tenant metering.TenantID, id metering.AlertID, lock string) (a metering.Alert, err error) {
	rows, err := q.Query(ctx, selectAlerts+`and a.id = @id `+lock, pgx.NamedArgs{"tenant": tenant, "id": id})
	if err != nil {
		return a, fmt.Errorf("read alert: %w", pg.Coded(err))
	}
	a, err = pgx.CollectExactlyOneRow(rows, scanAlert)
	if errors.Is(err, pgx.ErrNoRows) {
		return a, errNoAlert
	}
	if err != nil {
		return a, fmt.Errorf("read alert: %w", pg.Coded(err))
	}
	return a, nil
}

// List returns the next alerts in order of creation, at most limit. It begins after the given ID.
func (s Alerts) List(ctx context.Context, tenant metering.TenantID, after metering.AlertID, limit int) (page pg.Page[metering.Alert], err error) {
	rows, err := s.pool.Query(ctx, selectAlerts+`and a.id > @after order by a.id limit @limit`, pgx.NamedArgs{"tenant": tenant, "after": after, "limit": limit + 1})
	if err == nil {
		page, err = pg.ReadPage(ctx, rows, limit, scanAlert)
	}
	if err != nil {
		return page, fmt.Errorf("list alerts: %w", pg.Coded(err))
	}
	return page, nil
}

// AlertChange is a change of an alert. Nil fields stay unchanged.
type AlertChange struct {
	Name       *string
	Thresholds []metering.Decimal
	Minutes    *int
	Enabled    *bool
}

func (c AlertChange) appliedTo(a metering.Alert) metering.Alert {
	catalog.SetField(&a.Name, c.Name)
	catalog.SetField(&a.Minutes, c.Minutes)
	catalog.SetField(&a.Enabled, c.Enabled)
	if c.Thresholds != nil {
		a.Thresholds = c.Thresholds
	}
	return a
}

// Update changes an alert and queues its customers for evaluation.
func (s Alerts) Update(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.AlertID, change AlertChange, now time.Time) (updated metering.Alert, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		before, err := getAlert(ctx, tx, tenant, id, "for no key update of a")
		if err != nil {
			return err
		}
		updated = change.appliedTo(before)
		if err := updated.Validate(); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			update alerts
			set name = $3, thresholds = $4::text[]::numeric[], minutes = $5, enabled = $6, changed_at = $7
			where tenant_id = $1
			  and id = $2`, tenant, id, updated.Name, decimalTexts(updated.Thresholds), updated.Minutes, updated.Enabled, metering.Instant(now))
		if err != nil {
			return err
		}
		if err := catalog.QueueAlerts(ctx, tx, tenant, updated.CustomerID); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "alert.update", id.String(), auditedAlert(before), auditedAlert(updated))
	})
	if err != nil {
		return metering.Alert{}, fmt.Errorf("update alert: %w", err)
	}
	return updated, nil
}

// Delete marks an alert as deleted. Evaluations that begin later do not read the alert. SweepDeleted deletes
// its firings later, because there may be millions of them.
func (s Alerts) Delete(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.AlertID, now time.Time) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		// This lock does not wait for evaluations, which lock alerts "for key share".
		before, err := getAlert(ctx, tx, tenant, id, "for no key update of a")
		if err != nil {
			return err
		}
		if err := MarkDeleted(ctx, tx, tenant, `id = $3`, id, now); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "alert.delete", id.String(), auditedAlert(before), nil)
	})
	if err != nil {
		return fmt.Errorf("delete alert: %w", err)
	}
	return nil
}

// MarkDeleted marks the alerts that meet a condition as deleted, and removes their names. The condition is SQL
// with arg as $3.
func MarkDeleted(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, condition string, arg any, now time.Time) error {
	_, err := tx.Exec(ctx, `
		update alerts
		set deleted_at = coalesce(deleted_at, $2), enabled = false, name = ''
		where tenant_id = $1
		  and `+condition, tenant, metering.Instant(now), arg)
	return err
}

// Firings returns up to limit firings of an alert, newest first. If before is not 0, it returns only firings with a
// smaller ID.
func (s Alerts) Firings(ctx context.Context, tenant metering.TenantID, alert metering.AlertID, before metering.FiringID, limit int) (page pg.Page[metering.Firing], err error) {
	rows, err := s.pool.Query(ctx, `
		select `+firingColumns+`, c.external_id
		from alert_firings f
		join customers c on c.tenant_id = f.tenant_id and c.id = f.customer_id
		where f.tenant_id = @tenant
		  and f.alert_id = @alert
		  and (@before = 0 or f.id < @before)
		order by f.id desc
		limit @limit`, pgx.NamedArgs{"tenant": tenant, "alert": alert, "before": before, "limit": limit + 1})
	if err == nil {
		page, err = pg.ReadPage(ctx, rows, limit, func(row pgx.CollectableRow) (f metering.Firing, err error) {
			return f, row.Scan(append(firingFields(&f), &f.ExternalID)...)
		})
	}
	if err != nil {
		return page, fmt.Errorf("list firings: %w", pg.Coded(err))
	}
	return page, nil
}

// Sweep deletes up to limit firings, of any tenant, of billing periods that ended before the instant.
func (s Alerts) Sweep(ctx context.Context, before time.Time, limit int) (deleted int64, err error) {
	return pg.OldRows{Table: "alert_firings", Key: "tenant_id, id", By: "fired_at", And: "and period_end < $1", Noun: "firings"}.Sweep(ctx, s.pool, before, limit)
}

// SweepDeleted deletes up to limit firings, of any tenant, of deleted alerts, and the deleted alerts that have
// no firings left. It returns the number of deleted firings and alerts.
func (s Alerts) SweepDeleted(ctx context.Context, limit int) (deleted int64, err error) {
	for _, statement := range []string{`
		delete from alert_firings
		where (tenant_id, id) in (
		  select f.tenant_id, f.id
		  from alerts a
		  join alert_firings f on f.tenant_id = a.tenant_id and f.alert_id = a.id
		  where a.deleted_at is not null
		  limit $1
		  for update of f skip locked)`, `
		delete from alerts
		where (tenant_id, id) in (
		  select a.tenant_id, a.id
		  from alerts a
		  where a.deleted_at is not null
		    and not exists (select from alert_firings f where f.tenant_id = a.tenant_id and f.alert_id = a.id)
		  limit $1
		  for update skip locked)`,
	} {
		tag, err := s.pool.Exec(ctx, statement, limit-int(deleted))
		if err != nil {
			return deleted, fmt.Errorf("delete deleted alerts: %w", pg.Coded(err))
		}
		deleted += tag.RowsAffected()
	}
	return deleted, nil
}

const firingColumns = `f.id, f.alert_id, f.customer_id, f.threshold, f.quota_id, f.stream, f.period_start, f.period_end, f.value, f.late, f.fired_at`

func firingFields(f *metering.Firing) []any {
	return []any{&f.ID, &f.AlertID, &f.CustomerID, &f.Threshold, &f.QuotaID, &f.Stream, &f.Period.Start, &f.Period.End, &f.Value, &f.Late, &f.At}
}

func decimalTexts(values []metering.Decimal) []string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.String()
	}
	return texts
}

func auditedAlert(a metering.Alert) audit.Fields {
	return audit.Fields{
		"name": audit.Personal(a.Name), "type": a.Type, "customer": audit.Personal(a.ExternalID), "plan": a.Plan, "meter": a.Meter, "grouped": a.Group != nil,
		"thresholds": a.Thresholds, "minutes": a.Minutes, "currency": a.Currency, "enabled": a.Enabled,
	}
}
