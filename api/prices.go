package api

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

type price struct {
	Version       int              `json:"version"`
	BasePrice     metering.Decimal `json:"base_price" doc:"Fixed charge for each billing period"`
	IncludedUnits metering.Decimal `json:"included_units" doc:"Units that the base price includes"`
	OverageRate   metering.Decimal `json:"overage_rate" doc:"Price of each unit beyond the included units. With another model, 0"`
	Currency      string           `json:"currency" example:"USD"`
	EffectiveFrom *time.Time       `json:"effective_from" doc:"A billing period is charged at the version in force at its start. Null: from the beginning"`
	CreatedAt     time.Time        `json:"created_at"`
	ModelTerms
}

func showPrice(p billing.Price) price {
	shown := price{
		Version: p.Version, BasePrice: p.BasePrice, IncludedUnits: p.IncludedUnits, OverageRate: p.OverageRate,
		Currency: p.Currency, CreatedAt: p.CreatedAt.UTC(), ModelTerms: showModelTerms(p.Terms),
	}
	if from := p.EffectiveFrom.UTC(); from.Year() > 1 {
		shown.EffectiveFrom = &from
	}
	return shown
}

type pricing struct {
	MeterID   string  `json:"meter_id"`
	MeterSlug string  `json:"meter_slug"`
	Current   *price  `json:"current,omitempty"` // what charges the current period
	Versions  []price `json:"versions" doc:"Versions, oldest first"`
}

type pricingOutput struct{ Body pricing }

func (s *server) getPricing(ctx context.Context, in *meterSlug) (*pricingOutput, error) {
	m, err := s.meter(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	return s.pricingOf(ctx, m, 0)
}

// pricingOf is a meter's price in a plan, or its own (0).
func (s *server) pricingOf(ctx context.Context, m metering.Meter, plan metering.PlanID) (*pricingOutput, error) {
	versions, err := s.Store.Prices.Versions(ctx, principalOf(ctx).Tenant.ID, m.ID, plan)
	if err != nil {
		return nil, err
	}
	return &pricingOutput{s.showPricing(ctx, m.ID, m.Slug, versions)}, nil
}

// showPricing shows the versions of one price.
func (s *server) showPricing(ctx context.Context, meter metering.MeterID, slug string, versions []billing.Price) pricing {
	shown := pricing{MeterID: meter.String(), MeterSlug: slug, Versions: []price{}}
	for _, p := range versions {
		shown.Versions = append(shown.Versions, showPrice(p))
	}
	period := billing.CalendarPeriod(s.Now(), principalOf(ctx).Tenant.Location())
	if len(versions) == 0 {
		return shown
	}
	if p, ok := billing.PriceAt(versions, versions[0].PlanID, period.Start); ok {
		shown.Current = new(showPrice(p))
	}
	return shown
}

type listPricingInput struct {
	Paging

	Plan string `query:"plan" maxLength:"64" doc:"Slug of a plan, to list its prices instead of the meters' own"`
}

type listPricingOutput struct{ Body List[pricing] }

func (s *server) listPricing(ctx context.Context, in *listPricingInput) (*listPricingOutput, error) {
	var plan metering.PlanID
	if in.Plan != "" {
		p, err := s.plan(ctx, in.Plan)
		if err != nil {
			return nil, err
		}
		plan = p.ID
	}
	var after metering.MeterID
	if err := s.readPageToken(ctx, in.PageToken, &after); err != nil {
		return nil, err
	}
	prices, err := s.Store.Prices.List(ctx, principalOf(ctx).Tenant.ID, plan, after, in.PageSize)
	if err != nil {
		return nil, err
	}
	show := func(p db.MeterPrices) pricing { return s.showPricing(ctx, p.MeterID, p.MeterSlug, p.Versions) }
	cursorOf := func(p db.MeterPrices) metering.MeterID { return p.MeterID }
	return &listPricingOutput{listOf(ctx, s, prices, show, cursorOf)}, nil
}

// NewPrice is a price that is to hold.
type NewPrice struct {
	BasePrice     SentDecimal `json:"base_price" required:"false" doc:"Fixed charge for each billing period. With the model 'overage', a price needs base_price, overage_rate or both; use 0 for free usage"`
	IncludedUnits SentDecimal `json:"included_units" required:"false" doc:"Units that the base price includes. They are subtracted before the model is applied"`
	OverageRate   SentDecimal `json:"overage_rate" required:"false" doc:"Price of each unit beyond the included units. Only with the model 'overage'"`
	Currency      *string     `json:"currency,omitempty" doc:"ISO 4217 code. Default: the tenant's currency"`
	EffectiveFrom *SentTime   `json:"effective_from,omitempty" doc:"Time from which the version applies. Default for the first price: from the beginning, so it also charges billing periods that have begun. Default for later versions: the start of the next calendar month. Replaces a version with the same time"`
	NewModel
	Confirm
}

type setPricingInput struct {
	Slug string `path:"slug" maxLength:"64"`
	Body struct{ NewPrice }
}

func (s *server) setPricing(ctx context.Context, in *setPricingInput) (*pricingOutput, error) {
	m, err := s.meter(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	return s.setPrice(ctx, m, 0, in.Body.NewPrice)
}

// pricedMeter names a price in the change of a catalogWrite.
type pricedMeter struct {
	Operation string
	Meter     metering.MeterID
	Plan      metering.PlanID
}

func (s *server) setPrice(ctx context.Context, m metering.Meter, plan metering.PlanID, in NewPrice) (*pricingOutput, error) {
	who := principalOf(ctx)
	p, err := s.priceIn(ctx, m, plan, in)
	if err != nil {
		return nil, err
	}
	err = s.writeCatalog(ctx, catalogWrite{
		change: struct {
			pricedMeter
			Terms []byte
			From  time.Time
		}{pricedMeter{"set-price", m.ID, plan}, p.JSON(), p.EffectiveFrom.UTC()},
		subject: "The price", confirm: in.Token,
		impact: func(now time.Time) (db.Impact, error) { return s.Store.Ledger.PriceImpact(ctx, who.Tenant.ID, p, now) },
		write: func(within db.Catalog) error {
			_, err := within.Prices.Set(ctx, who.Tenant.ID, who.Actor, p)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return s.pricingOf(ctx, m, plan)
}

// priceIn is the price that a body asks for.
func (s *server) priceIn(ctx context.Context, m metering.Meter, plan metering.PlanID, in NewPrice) (p billing.Price, err error) {
	tenant := principalOf(ctx).Tenant
	p = billing.Price{MeterID: m.ID, PlanID: plan, EffectiveFrom: billing.CalendarPeriod(s.Now(), tenant.Location()).End}
	if p.Terms, err = in.terms(tenant.Currency); err != nil {
		return p, err
	}
	if in.EffectiveFrom != nil {
		p.EffectiveFrom = in.EffectiveFrom.Time
	} else if versions, err := s.Store.Prices.Versions(ctx, tenant.ID, m.ID, plan); err != nil {
		return p, err
	} else if len(versions) == 0 {
		p.EffectiveFrom = time.Time{}
	}
	return p, nil
}

// PriceVersion names a version of a price.
type PriceVersion struct {
	Version int `path:"version" minimum:"1" maximum:"2147483647"`
}

type withdrawPricingInput struct {
	Slug string `path:"slug" maxLength:"64"`
	PriceVersion
}

func (s *server) withdrawPricing(ctx context.Context, in *withdrawPricingInput) (*pricingOutput, error) {
	m, err := s.meter(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	return s.withdrawPrice(ctx, m, 0, in.Version)
}

type withdrawPlanPricingInput struct {
	PlanMeter
	PriceVersion
}

func (s *server) withdrawPlanPricing(ctx context.Context, in *withdrawPlanPricingInput) (*pricingOutput, error) {
	p, m, err := s.inPlan(ctx, in.PlanMeter)
	if err != nil {
		return nil, err
	}
	return s.withdrawPrice(ctx, m, p.ID, in.Version)
}

func (s *server) withdrawPrice(ctx context.Context, m metering.Meter, plan metering.PlanID, version int) (*pricingOutput, error) {
	who := principalOf(ctx)
	p := billing.Price{MeterID: m.ID, PlanID: plan, Version: version}
	if err := s.Store.Prices.Withdraw(ctx, who.Tenant.ID, who.Actor, p, s.Now()); err != nil {
		return nil, err
	}
	return s.pricingOf(ctx, m, plan)
}
