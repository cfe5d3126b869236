package api

import (
	"context"
	"encoding/json"

	"github.com/odometer-metering/odometer/metering"
)

type entitlements struct {
	Customer string            `json:"customer" example:"acme" doc:"External ID of the customer"`
	Plan     *string           `json:"plan" example:"pro" doc:"Slug of the plan that is assigned to the customer now. Null if there is none"`
	Features json.RawMessage   `json:"features" doc:"Features of the plan"`
	Quotas   []entitledToQuota `json:"quotas" doc:"Quotas that limit the customer now"`
}

type entitledToQuota struct {
	Meter  string               `json:"meter" example:"tokens" doc:"Slug of the meter"`
	Group  json.RawMessage      `json:"group" nullable:"true" doc:"Group of the meter that is limited. Null if the quota limits all usage"`
	Mode   metering.QuotaMode   `json:"mode"`
	Period metering.QuotaPeriod `json:"period" doc:"Time after which usage starts again from zero"`
	QuotaLevel
}

type entitlementsOutput struct{ Body entitlements }

func (s *server) entitlements(ctx context.Context, in *CustomerPath) (*entitlementsOutput, error) {
	c, err := s.customerAt(ctx, *in)
	if err != nil {
		return nil, err
	}
	tenant, now := principalOf(ctx).Tenant.ID, s.sharedNow()
	plan, err := s.Store.Plans.Of(ctx, tenant, c.ID, now)
	if err != nil {
		return nil, err
	}
	levels, err := s.Store.Quotas.OfCustomer(ctx, tenant, c.ID, now)
	if err != nil {
		return nil, err
	}
	out := &entitlementsOutput{entitlements{Customer: c.ExternalID, Features: plan.Features, Quotas: []entitledToQuota{}}}
	if plan.ID != 0 {
		out.Body.Plan = &plan.Slug
	}
	for _, l := range levels {
		shown := entitledToQuota{Meter: l.Meter.Slug, Mode: l.Mode, Period: l.Period, QuotaLevel: showLevel(&l)}
		if l.Group != nil {
			shown.Group = l.Group.Key
		}
		out.Body.Quotas = append(out.Body.Quotas, shown)
	}
	return out, nil
}

type setFeaturesInput struct {
	Slug string `path:"slug" maxLength:"64"`
	Body struct {
		Features json.RawMessage `json:"features" doc:"At most 100 features by key. A value is a string, a number or a boolean"`
	}
}

func (s *server) setFeatures(ctx context.Context, in *setFeaturesInput) (*planOutput, error) {
	who := principalOf(ctx)
	p, err := s.plan(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	features, err := metering.ParseFeatures(in.Body.Features)
	if err != nil {
		return nil, err
	}
	changed, err := s.Store.Plans.SetFeatures(ctx, who.Tenant.ID, who.Actor, p.ID, features)
	if err != nil {
		return nil, err
	}
	return &planOutput{showPlan(changed)}, nil
}
