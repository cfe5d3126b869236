package api

import (
	"context"
	"encoding/json"

	"github.com/odometer-metering/odometer/metering"
)

type entitlements struct {
	Customer string            `json:"customer" example:"acme" doc:"External ID of the customer"`
	Plan     *string           `json:"plan" example:"pro" doc:"Slug of the plan that is assigned to the customer now. Null if there is none"`
	Features map[string]any    `json:"features" doc:"Features of the plan"`
	Quotas   []entitledToQuota `json:"quotas"`
}

type entitledToQuota struct {
	Meter  string               `json:"meter" example:"tokens" doc:"Slug of the meter"`
	Group  json.RawMessage      `json:"group" doc:"Group of the meter that is limited. Null if all usage is"`
	Mode   metering.QuotaMode   `json:"mode"`
	Period metering.QuotaPeriod `json:"period"`
	quotaLevel
}

type entitlementsOutput struct{ Body entitlements }

func (s *server) entitlements(ctx context.Context, in *CustomerPath) (*entitlementsOutput, error) {
	c, err := s.customerAt(ctx, *in)
	if err != nil {
		return nil, err
	}
	tenant, now := principalOf(ctx).Tenant.ID, s.Now()
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
		shown := entitledToQuota{Meter: l.Meter.Slug, Mode: l.Mode, Period: l.Period, quotaLevel: showLevel(&l)}
		if l.Group != nil {
			shown.Group = l.Group.Key
		}
		out.Body.Quotas = append(out.Body.Quotas, shown)
	}
	return out, nil
}
