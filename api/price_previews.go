package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// PriceImpact is the effect of a price on the charges in one currency.
type PriceImpact struct {
	Currency  string           `json:"currency" example:"USD"`
	Before    metering.Decimal `json:"before" doc:"Total charges of the affected customers now"`
	After     metering.Decimal `json:"after" doc:"Total charges of the affected customers with the change"`
	Customers int              `json:"customers" doc:"Number of customers with different charges"`
}

func showImpact(impact []ledger.PriceImpact) []PriceImpact {
	shown := []PriceImpact{}
	for _, i := range impact {
		shown = append(shown, PriceImpact{i.Currency, i.Before, i.After, i.Customers})
	}
	return shown
}

// previewedImpact is a PriceImpact with the most affected customers.
type previewedImpact struct {
	PriceImpact
	Largest []customerImpact `json:"largest" doc:"At most 10 customers with different charges, in order of the absolute difference, largest first"`
}

type customerImpact struct {
	ExternalID string           `json:"external_id"`
	Before     metering.Decimal `json:"before" doc:"Charges of the customer now"`
	After      metering.Decimal `json:"after" doc:"Charges of the customer with the change"`
}

func showPreviewedImpact(impact []ledger.PriceImpact) []previewedImpact {
	shown := []previewedImpact{}
	for n, total := range showImpact(impact) {
		of := previewedImpact{total, []customerImpact{}}
		for _, c := range impact[n].Largest {
			of.Largest = append(of.Largest, customerImpact(c))
		}
		shown = append(shown, of)
	}
	return shown
}

// aboutPreview is the API text about the operations that preview a price.
const aboutPreview = "Takes the same body as setting a price, and changes nothing. Returns the difference in the charges of billing periods that are not closed."

type pricePreview struct {
	EffectiveFrom *time.Time        `json:"effective_from" doc:"Time from which the price would apply. Null: from the beginning"`
	Changes       []previewedImpact `json:"changes" doc:"Changes in the charges of billing periods that are not closed, by currency, for the usage so far. Empty if no charge changes"`
	IfInForce     []previewedImpact `json:"if_in_force" doc:"Changes in the charges of the same periods, computed as if the price had applied when they began"`

	ProviderDifferences []providerDifference `json:"provider_differences" doc:"Prices at the provider that differ from the price and charge its customers, as they were read last. The provider's price is billed"`
}

type pricePreviewOutput struct{ Body pricePreview }

func (s *server) registerPricePreviews() {
	huma.Register(s.api, heavy(post("preview-pricing", "/v1/meters/{slug}/pricing/preview", PricingWrite, "Preview the effect of a price",
		aboutPreview)), s.previewPricing)
	huma.Register(s.api, heavy(post("preview-plan-pricing", "/v1/plans/{slug}/pricing/{meter}/preview", PricingWrite, "Preview the effect of a price in a plan",
		aboutPreview)), s.previewPlanPricing)
}

func (s *server) previewPricing(ctx context.Context, in *setPricingInput) (*pricePreviewOutput, error) {
	m, err := s.meter(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	return s.previewPrice(ctx, m, catalog.PriceOwner{}, in.Body.NewPrice)
}

func (s *server) previewPlanPricing(ctx context.Context, in *setPlanPricingInput) (*pricePreviewOutput, error) {
	p, m, err := s.planAndMeter(ctx, in.PlanMeter)
	if err != nil {
		return nil, err
	}
	return s.previewPrice(ctx, m, catalog.PriceOwner{Plan: p.ID}, in.Body.NewPrice)
}

func (s *server) previewPrice(ctx context.Context, m metering.Meter, of catalog.PriceOwner, in NewPrice) (*pricePreviewOutput, error) {
	tenant := principalOf(ctx).Tenant.ID
	p, err := s.priceIn(ctx, m, of, in)
	if err != nil {
		return nil, err
	}
	if err := s.Store.Prices.RefuseBesideQuantities(ctx, tenant, p.Terms); err != nil {
		return nil, err
	}
	if m.Version.Status == metering.Backfilling {
		return nil, errBackfilling
	}
	changes, err := s.Store.Ledger.PriceImpact(ctx, tenant, p, s.Now())
	if err != nil {
		return nil, err
	}
	inForce, err := s.Store.Ledger.InForceImpact(ctx, tenant, p, s.Now())
	if err != nil {
		return nil, err
	}
	differences, err := s.providerDifferences(ctx, m, p)
	if err != nil {
		return nil, err
	}
	shown := showPrice(p)
	return &pricePreviewOutput{pricePreview{shown.EffectiveFrom, showPreviewedImpact(changes.Changes), showPreviewedImpact(inForce.Changes), differences}}, nil
}
