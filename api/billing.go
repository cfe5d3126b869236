package api

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

type previewInput struct {
	Customer string `query:"customer" required:"true" maxLength:"255" doc:"The customer's external ID"`
}

type previewItem struct {
	MeterSlug string           `json:"meter_slug"`
	MeterID   string           `json:"meter_id"`
	Usage     metering.Decimal `json:"usage"`
	UnitPrice metering.Decimal `json:"unit_price" doc:"Overage rate of the meter's price, or 0 without a price. With other models, the rate of the last unit or package beyond the included units, or 0 without such units. For a provider's own price, the rate of the last tier that the usage reaches. If that price has no tiers, its only rate: of a unit or of a package"`
	Amount    metering.Decimal `json:"amount" doc:"Exact charge for the usage in the decimals that the provider accepts. A provider's own price is rounded by the provider's rules. For a late item, the additional charge of the closed period"`
	Currency  string           `json:"currency" example:"USD"`
	Excluded  *Exclusion       `json:"excluded,omitempty"`

	PriceSource     billing.PriceSource `json:"price_source,omitempty" doc:"Where the price is set: the customer's own price, the price in the customer's plan or the meter's own price. Absent if none of Odometer's prices applies" example:"meter"`
	ProviderPrice   string              `json:"provider_price,omitempty" doc:"Id of the provider's own price. Absent if Odometer's price applies" example:"price_1Q2"`
	PriceDifference *priceDifference    `json:"price_difference,omitempty"`

	// LateFor is the closed billing period of late usage. It is set only on items for late usage.
	LateFor *usagePeriod `json:"late_for,omitempty"`

	Steps []step `json:"steps,omitempty" doc:"Steps from the usage to the amount to report, as in GET /v1/billing/explain. The step exact_charge or provider_charge is 'amount' before a trial; later steps round it and deduct reported amounts. Absent if no price applies"`
}

type previewOutput struct{ Body []previewItem }

func (s *server) registerBillingPreview() {
	huma.Register(s.api, get("preview-billing", "/v1/billing/preview", BillingRead, "Preview the charges of the current billing period",
		"Returns the charge of each meter as if the current billing period ended now. Nothing is reported.\n\n"+
			"- Amounts that were already reported are not deducted.\n"+
			"- Items with `late_for` are late usage of closed periods.\n"+
			"- Items with `excluded` are not reported, as of the customer's last sync. With the reason `backfilling`, `usage` and `amount` are 0.\n"+
			"- `GET /v1/billing/explain` returns the breakdown of a charge."), s.previewBilling)
}

// previewBilling returns the charges of the current period as if it ended now, at the prices in force at its
// start.
func (s *server) previewBilling(ctx context.Context, in *previewInput) (*previewOutput, error) {
	c, err := s.customer(ctx, in.Customer)
	if err != nil {
		return nil, err
	}
	lines, err := s.Store.Ledger.Preview(ctx, principalOf(ctx).Tenant.ID, c.ID, s.Now())
	if err != nil {
		return nil, err
	}
	out := &previewOutput{[]previewItem{}}
	for _, l := range lines {
		item := previewItem{
			MeterSlug: l.MeterSlug, MeterID: l.MeterID.String(), Usage: l.Usage, UnitPrice: l.UnitPrice, Amount: l.Amount, Currency: l.Currency,
			ProviderPrice: priceID(l.Price), PriceSource: l.Source, Steps: showSteps(l.Working),
		}
		if l.Excluded.Code != "" {
			item.Excluded = new(showExclusion(l.Excluded))
		}
		if l.Differs != nil {
			differs := showDifference(*l.Differs)
			item.PriceDifference = &differs
		}
		if l.LateFor != nil {
			item.LateFor = &usagePeriod{l.LateFor.Start, l.LateFor.End}
		}
		out.Body = append(out.Body, item)
	}
	return out, nil
}
