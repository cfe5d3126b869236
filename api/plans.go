package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

type plan struct {
	ID        string    `json:"id" example:"pln_3"`
	Slug      string    `json:"slug"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`

	ArchivedAt *time.Time `json:"archived_at" doc:"Time at which the plan was archived. Null if the plan is not archived"`

	Features json.RawMessage `json:"features" doc:"Features of the plan, by key: strings, numbers and booleans that your application interprets"`
}

func showPlan(p metering.Plan) plan {
	return plan{ID: p.ID.String(), Slug: p.Slug, Name: p.Name, CreatedAt: p.CreatedAt.UTC(), ArchivedAt: utcOrNil(p.ArchivedAt), Features: p.Features}
}

type planOutput struct{ Body plan }

type createPlanInput struct {
	Repeatable
	Body struct {
		Slug string `json:"slug" minLength:"1" maxLength:"64" pattern:"^[a-z0-9][a-z0-9_-]*$"`
		Name string `json:"name,omitempty" maxLength:"255"`
	}
}

func (s *server) registerPlans() {
	huma.Register(s.api, created(post("create-plan", "/v1/plans", PricingWrite, "Create a plan",
		"A plan contains prices for some meters. Customers of the plan pay these prices. All other meters are charged at their own prices.\n\n"+
			"- A tenant has at most 1,000 plans, archived ones included. Beyond that the request returns 409.")), s.createPlan)
	huma.Register(s.api, get("list-plans", "/v1/plans", PricingRead, "List plans",
		"Plans are listed in order of creation. Archived plans are included only with `archived=true`."), s.listPlans)
	huma.Register(s.api, get("get-plan", "/v1/plans/{slug}", PricingRead, "Get a plan",
		"The plan is identified by its slug."), s.getPlan)
	huma.Register(s.api, get("get-plan-pricing", "/v1/plans/{slug}/pricing/{meter}", PricingRead, "Get a meter's prices in a plan",
		"Returns the price in force now in this plan and all versions. Without a price in the plan, the meter's own price applies."), s.getPlanPricing)
	huma.Register(s.api, heavy(put("set-plan-pricing", "/v1/plans/{slug}/pricing/{meter}", PricingWrite, "Set a meter's price in a plan",
		"Adds a version of the meter's price in this plan. The rules of `PUT /v1/meters/{slug}/pricing` apply.")), s.setPlanPricing)
	huma.Register(s.api, get("get-customer-plan", "/v1/customers/{external_id}/plan", PricingRead, "Get a customer's plan",
		"Returns the plan that charges the current billing period, and every assignment in order of `effective_from`."), s.getCustomerPlan)
	huma.Register(s.api, put("assign-plan", "/v1/customers/{external_id}/plan", PricingWrite, "Assign a plan to a customer",
		"The assignment applies to the billing periods that start at `effective_from` or later. If the plan has a price for a meter, that price replaces "+
			"the meter's own price.\n\n"+
			howToConfirm), s.assignPlan)
}

func (s *server) createPlan(ctx context.Context, in *createPlanInput) (*planOutput, error) {
	who := principalOf(ctx)
	shown, _, err := once(ctx, s, in.Repeatable, "create-plan", in.Body, func(within db.Creators) (plan, error) {
		p, err := within.Plans.Create(ctx, who.Tenant.ID, who.Actor, metering.Plan{Slug: in.Body.Slug, Name: in.Body.Name})
		return showPlan(p), err
	})
	if err != nil {
		return nil, err
	}
	return &planOutput{shown}, nil
}

type listPlansOutput struct{ Body List[plan] }

func (s *server) listPlans(ctx context.Context, in *struct {
	Paging
	Archivable
}) (*listPlansOutput, error) {
	var after metering.PlanID
	if err := s.readPageToken(ctx, in.PageToken, &after); err != nil {
		return nil, err
	}
	plans, err := s.Store.Plans.List(ctx, principalOf(ctx).Tenant.ID, after, in.PageSize, in.Archived)
	if err != nil {
		return nil, err
	}
	cursorOf := func(p metering.Plan) metering.PlanID { return p.ID }
	return &listPlansOutput{listOf(ctx, s, plans, showPlan, cursorOf)}, nil
}

// plan returns the tenant's plan with this slug.
func (s *server) plan(ctx context.Context, slug string) (metering.Plan, error) {
	if !storable(slug) {
		return metering.Plan{}, metering.Errorf(metering.CodeNotFound, "there is no plan with this slug")
	}
	return s.Store.Plans.Get(ctx, principalOf(ctx).Tenant.ID, slug)
}

type planSlug struct {
	Slug string `path:"slug" maxLength:"64"`
}

func (s *server) getPlan(ctx context.Context, in *planSlug) (*planOutput, error) {
	p, err := s.plan(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	return &planOutput{showPlan(p)}, nil
}

// PlanMeter identifies a meter in a plan.
type PlanMeter struct {
	Slug  string `path:"slug" maxLength:"64"`
	Meter string `path:"meter" maxLength:"64" doc:"The meter's slug"`
}

// planAndMeter returns the plan and the meter that a path identifies.
func (s *server) planAndMeter(ctx context.Context, in PlanMeter) (p metering.Plan, m metering.Meter, err error) {
	if p, err = s.plan(ctx, in.Slug); err != nil {
		return p, m, err
	}
	m, err = s.meter(ctx, in.Meter)
	return p, m, err
}

func (s *server) getPlanPricing(ctx context.Context, in *PlanMeter) (*pricingOutput, error) {
	p, m, err := s.planAndMeter(ctx, *in)
	if err != nil {
		return nil, err
	}
	return s.pricingOf(ctx, m, catalog.PriceOwner{Plan: p.ID})
}

type setPlanPricingInput struct {
	PlanMeter
	Body struct{ NewPrice }
}

func (s *server) setPlanPricing(ctx context.Context, in *setPlanPricingInput) (*pricingOutput, error) {
	p, m, err := s.planAndMeter(ctx, in.PlanMeter)
	if err != nil {
		return nil, err
	}
	return s.setPrice(ctx, m, catalog.PriceOwner{Plan: p.ID}, in.Body.NewPrice)
}

type customerPlan struct {
	Plan     *string      `json:"plan" doc:"Slug of the plan that charges the current period of the first billing schedule. Null if the meters' own prices apply"`
	Versions []assignment `json:"versions" doc:"Assignments in order of effective_from"`
}

type assignment struct {
	Plan          *string   `json:"plan"`
	EffectiveFrom time.Time `json:"effective_from"`
}

type customerPlanOutput struct{ Body customerPlan }

func (s *server) getCustomerPlan(ctx context.Context, in *CustomerPath) (*customerPlanOutput, error) {
	c, err := s.customerAt(ctx, *in)
	if err != nil {
		return nil, err
	}
	return s.planOf(ctx, c)
}

// planOf returns the customer's plan and assignments.
func (s *server) planOf(ctx context.Context, c metering.Customer) (*customerPlanOutput, error) {
	period, err := s.Store.Ledger.CurrentPeriod(ctx, principalOf(ctx).Tenant.ID, c.ID, s.Now())
	if err != nil {
		return nil, err
	}
	list, err := s.Store.Plans.Assignments(ctx, principalOf(ctx).Tenant.ID, c.ID)
	if err != nil {
		return nil, err
	}
	out := &customerPlanOutput{customerPlan{Versions: []assignment{}}}
	for _, a := range list {
		shown := assignment{EffectiveFrom: a.EffectiveFrom.UTC()}
		if a.Slug != "" {
			shown.Plan = &a.Slug
		}
		out.Body.Versions = append(out.Body.Versions, shown)
		if !a.EffectiveFrom.After(period.Start) {
			out.Body.Plan = shown.Plan
		}
	}
	return out, nil
}

// effectiveFrom returns the time from which a change of a customer's prices applies: the time in the request, or
// the default for the customer's billing schedules.
func (s *server) effectiveFrom(ctx context.Context, c metering.Customer, sent SentTime, byDefault func(schedules []billing.Facts) time.Time) (time.Time, error) {
	if sent.sent {
		return sent.Time, nil
	}
	schedules, err := s.Store.Ledger.Schedules(ctx, c.TenantID, c.ID, s.Now())
	if err != nil {
		return time.Time{}, err
	}
	return byDefault(schedules), nil
}

type assignPlanInput struct {
	CustomerPath
	Body struct {
		Plan          *string  `json:"plan" maxLength:"64" nullable:"true" doc:"Slug of the plan. Null to use the meters' own prices"`
		EffectiveFrom SentTime `json:"effective_from" required:"false" doc:"Billing periods that start at this time or later are charged at the plan's prices. Default: the start of the customer's next billing period, or of the current period if the customer was created in the current period. If the customer's subscriptions have different periods, the earliest of these starts"`
		Confirm
	}
}

func (s *server) assignPlan(ctx context.Context, in *assignPlanInput) (*customerPlanOutput, error) {
	who := principalOf(ctx)
	c, err := s.customerAt(ctx, in.CustomerPath)
	if err != nil {
		return nil, err
	}
	var a billing.Assignment
	if in.Body.Plan != nil {
		p, err := s.plan(ctx, *in.Body.Plan)
		if err != nil {
			return nil, err
		}
		if !p.ArchivedAt.IsZero() {
			return nil, metering.Invalid("body.plan", "is archived and cannot be assigned")
		}
		a.PlanID = p.ID
	}
	if a.EffectiveFrom, err = s.effectiveFrom(ctx, c, in.Body.EffectiveFrom, billing.PlanStart); err != nil {
		return nil, err
	}
	err = s.writeCatalog(ctx, catalogWrite{
		change: struct {
			Operation string
			Customer  metering.CustomerID
			Plan      metering.PlanID
			From      time.Time
		}{"assign-plan", c.ID, a.PlanID, a.EffectiveFrom.UTC()},
		subject: "The plan", confirm: in.Body.Token, from: a.EffectiveFrom,
		impact: func(now time.Time) (ledger.Impact, error) {
			return s.Store.Ledger.AssignmentImpact(ctx, who.Tenant.ID, c.ID, a, now)
		},
		write: func(within db.Catalog) error { return within.Plans.Assign(ctx, who.Tenant.ID, who.Actor, c.ID, a) },
	})
	if err != nil {
		return nil, err
	}
	return s.planOf(ctx, c)
}
