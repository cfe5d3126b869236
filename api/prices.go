package api

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

type price struct {
	Version       int              `json:"version"`
	BasePrice     metering.Decimal `json:"base_price" doc:"Per billing period, whatever the usage"`
	IncludedUnits metering.Decimal `json:"included_units" doc:"Covered by the base price"`
	OverageRate   metering.Decimal `json:"overage_rate" doc:"Per unit beyond the included ones"`
	Currency      string           `json:"currency" example:"USD"`
	EffectiveFrom *time.Time       `json:"effective_from" doc:"A period is charged at the version in force at its start; null: from the beginning"`
	CreatedAt     time.Time        `json:"created_at"`
}

func showPrice(p billing.Price) price {
	shown := price{
		Version: p.Version, BasePrice: p.BasePrice, IncludedUnits: p.IncludedUnits, OverageRate: p.OverageRate,
		Currency: p.Currency, CreatedAt: p.CreatedAt.UTC(),
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
	Versions  []price `json:"versions" doc:"Oldest first"`
}

type pricingOutput struct{ Body pricing }

func (s *server) getPricing(ctx context.Context, in *meterSlug) (*pricingOutput, error) {
	m, err := s.meter(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	return s.pricingOf(ctx, m, 0)
}

// pricingOf is a meter's price in a product, or its own (0).
func (s *server) pricingOf(ctx context.Context, m metering.Meter, product metering.ProductID) (*pricingOutput, error) {
	tenant := principalOf(ctx).Tenant
	versions, err := s.Store.Prices.Versions(ctx, tenant.ID, m.ID, product)
	if err != nil {
		return nil, err
	}
	out := &pricingOutput{pricing{MeterID: m.ID.String(), MeterSlug: m.Slug, Versions: []price{}}}
	for _, p := range versions {
		out.Body.Versions = append(out.Body.Versions, showPrice(p))
	}
	period := billing.CalendarPeriod(s.Now(), tenant.Location())
	if p, ok := billing.PriceAt(versions, product, period.Start); ok {
		current := showPrice(p)
		out.Body.Current = &current
	}
	return out, nil
}

// NewPrice is a price that is to hold.
type NewPrice struct {
	BasePrice     SentDecimal `json:"base_price" required:"false"`
	IncludedUnits SentDecimal `json:"included_units" required:"false"`
	OverageRate   SentDecimal `json:"overage_rate" required:"false"`
	Currency      string      `json:"currency,omitempty" doc:"ISO 4217; the tenant's when absent"`
	EffectiveFrom *time.Time  `json:"effective_from,omitempty" doc:"The start of the next billing period when absent. The first price holds from the beginning"`
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

func (s *server) setPrice(ctx context.Context, m metering.Meter, product metering.ProductID, in NewPrice) (*pricingOutput, error) {
	who := principalOf(ctx)
	p := billing.Price{
		MeterID: m.ID, ProductID: product, EffectiveFrom: billing.CalendarPeriod(s.Now(), who.Tenant.Location()).End,
		Terms: billing.Terms{
			BasePrice: in.BasePrice.Decimal, IncludedUnits: in.IncludedUnits.Decimal, OverageRate: in.OverageRate.Decimal, Currency: in.Currency,
		},
	}
	if p.Currency == "" {
		p.Currency = who.Tenant.Currency
	}
	if in.EffectiveFrom != nil {
		if err := metering.ValidInstant("body.effective_from", *in.EffectiveFrom); err != nil {
			return nil, err
		}
		p.EffectiveFrom = metering.Instant(*in.EffectiveFrom)
	}
	if _, err := s.Store.Prices.Set(ctx, who.Tenant.ID, who.Actor, p); err != nil {
		return nil, err
	}
	return s.pricingOf(ctx, m, product)
}
