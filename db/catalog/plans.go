package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Plans stores the tenants' plans and their assignments to customers.
type Plans struct{ pool pg.Beginner }

var planColumns = `p.id, p.slug, p.name, p.created_at, ` + ArchivedAt("p") + `, p.features`

var selectPlans = `select ` + planColumns + ` from plans p where p.tenant_id = $1 `

func scanPlan(row pgx.CollectableRow) (p metering.Plan, err error) {
	return p, row.Scan(&p.ID, &p.Slug, &p.Name, &p.CreatedAt, &p.ArchivedAt, &p.Features)
}

// planLimit includes archived plans, because ingest and billing read all meters, plans and prices of a tenant at
// once.
var planLimit = pg.Limit{
	Count: `select count(*) from plans where tenant_id = @tenant`,
	Most:  metering.MaxPlans, Noun: "plans", Fix: "change an existing plan, such as an archived one, instead",
}

// Create creates a plan. It returns CodeConflict if a plan with the slug exists.
func (s Plans) Create(ctx context.Context, tenant metering.TenantID, actor metering.Actor, p metering.Plan) (made metering.Plan, err error) {
	if err := p.Validate(); err != nil {
		return metering.Plan{}, err
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.LockAccess(ctx, tx, tenant); err != nil {
			return err
		}
		if err := pg.RequireRoom(ctx, tx, tenant, planLimit); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			insert into plans as p (tenant_id, slug, name, created_by) values ($1, $2, $3, $4)
			returning `+planColumns, tenant, p.Slug, p.Name, actor)
		if err != nil {
			return err
		}
		made, err = pgx.CollectExactlyOneRow(rows, scanPlan)
		if pg.ViolatedUnique(err) != "" {
			return metering.Errorf(metering.CodeConflict, "a plan with this slug exists already").Because(err)
		}
		if err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "plan.create", made.ID.String(), nil, auditedPlan(made))
	})
	return made, err
}

// Get returns the plan with that slug, or CodeNotFound.
func (s Plans) Get(ctx context.Context, tenant metering.TenantID, slug string) (metering.Plan, error) {
	rows, err := s.pool.Query(ctx, selectPlans+`and slug = $2`, tenant, slug)
	if err != nil {
		return metering.Plan{}, fmt.Errorf("read plan: %w", pg.Coded(err))
	}
	p, err := pgx.CollectExactlyOneRow(rows, scanPlan)
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.Plan{}, metering.Errorf(metering.CodeNotFound, "there is no plan with this slug")
	}
	if err != nil {
		return metering.Plan{}, fmt.Errorf("read plan: %w", pg.Coded(err))
	}
	return p, nil
}

// List returns the next plans in order of ID, at most limit. It begins after the given ID. It includes archived plans
// only if archived is true.
func (s Plans) List(ctx context.Context, tenant metering.TenantID, after metering.PlanID, limit int, archived bool) (page pg.Page[metering.Plan], err error) {
	rows, err := s.pool.Query(ctx, selectPlans+`and id > $2 and ($4 or archived_at is null) order by id limit $3`, tenant, after, limit+1, archived)
	if err != nil {
		return page, fmt.Errorf("list plans: %w", pg.Coded(err))
	}
	page, err = pg.ReadPage(ctx, rows, limit, scanPlan)
	if err != nil {
		return page, fmt.Errorf("list plans: %w", pg.Coded(err))
	}
	return page, nil
}

// Of returns the plan that the customer has at an instant. If there is none, it returns a Plan that has no
// id and no features.
func (s Plans) Of(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) (metering.Plan, error) {
	rows, err := s.pool.Query(ctx, selectPlans+`and p.id = `+PlanAt("$1", "$2", "$3"), tenant, customer, metering.Instant(now))
	if err != nil {
		return metering.Plan{}, fmt.Errorf("read plan: %w", pg.Coded(err))
	}
	p, err := pgx.CollectExactlyOneRow(rows, scanPlan)
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.Plan{Features: json.RawMessage("{}")}, nil
	}
	if err != nil {
		return metering.Plan{}, fmt.Errorf("read plan: %w", pg.Coded(err))
	}
	return p, nil
}

// SetFeatures replaces the features of a plan.
func (s Plans) SetFeatures(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.PlanID, features json.RawMessage) (changed metering.Plan, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `update plans p set features = $3 where p.tenant_id = $1 and p.id = $2 returning `+planColumns, tenant, id, features)
		if err != nil {
			return err
		}
		if changed, err = pgx.CollectExactlyOneRow(rows, scanPlan); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "plan.set_features", id.String(), nil, audit.Fields{"features": features})
	})
	if err != nil {
		return metering.Plan{}, fmt.Errorf("set features: %w", err)
	}
	return changed, nil
}

// Assign assigns a plan to a customer from an instant on; PlanID 0 ends the assignment of a plan. It
// replaces an assignment from the same instant.
func (s Plans) Assign(ctx context.Context, tenant metering.TenantID, actor metering.Actor, customer metering.CustomerID, a billing.Assignment) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := RaiseRevision(ctx, tx, tenant); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			insert into customer_plans (tenant_id, customer_id, plan_id, effective_from, created_by)
			values ($1, $2, nullif($3::bigint, 0), $4, $5)
			on conflict (tenant_id, customer_id, effective_from) do update
			set plan_id = excluded.plan_id, created_at = excluded.created_at, created_by = excluded.created_by`, tenant, customer, a.PlanID, metering.Instant(a.EffectiveFrom), actor)
		if err != nil {
			return err
		}
		if err := QueueAlerts(ctx, tx, tenant, customer); err != nil {
			return err
		}
		assigned := audit.Fields{"plan_id": nil, "effective_from": metering.Instant(a.EffectiveFrom).UTC()}
		if a.PlanID != 0 {
			assigned["plan_id"] = a.PlanID.String()
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "plan.assign", customer.String(), nil, assigned)
	})
	if err != nil {
		return fmt.Errorf("assign plan: %w", err)
	}
	return nil
}

// Assignment is an assignment of a plan to a customer, with the slug of the plan.
type Assignment struct {
	billing.Assignment
	Slug string // "": no plan
}

// Assignments returns the customer's past, present and future assignments, ordered by EffectiveFrom.
func (s Plans) Assignments(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID) ([]Assignment, error) {
	rows, err := s.pool.Query(ctx, `
		select coalesce(a.plan_id, 0), a.effective_from, coalesce(p.slug, '')
		from customer_plans a
		left join plans p on p.tenant_id = a.tenant_id and p.id = a.plan_id
		where a.tenant_id = $1
		  and a.customer_id = $2
		order by a.effective_from`, tenant, customer)
	if err != nil {
		return nil, fmt.Errorf("list assignments: %w", pg.Coded(err))
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a Assignment, err error) {
		return a, row.Scan(&a.PlanID, &a.EffectiveFrom, &a.Slug)
	})
	if err != nil {
		return nil, fmt.Errorf("list assignments: %w", pg.Coded(err))
	}
	return list, nil
}

// PlanAt returns the SQL of the id of the plan that a customer has at an instant. The id is 0 if the customer has none.
func PlanAt(tenant, customer, at string) string {
	return `coalesce((
		select coalesce(a.plan_id, 0)
		from customer_plans a
		where a.tenant_id = ` + tenant + `
		  and a.customer_id = ` + customer + `
		  and a.effective_from <= ` + at + `
		order by a.effective_from desc
		limit 1), 0)`
}

func auditedPlan(p metering.Plan) audit.Fields { return audit.Fields{"slug": p.Slug, "name": p.Name} }
