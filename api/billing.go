package api

import (
	"context"

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
	UnitPrice metering.Decimal `json:"unit_price" doc:"The overage rate; 0 where the meter has no price. Of a provider's own price the rate of the last units, or of a package of them"`
	Amount    metering.Decimal `json:"amount" doc:"The charge of the price for usage, exact, in the decimals that the provider takes, or what the provider's own price makes of it, as the provider rounds; of a late item, the closed period's additional charge"`
	Currency  string           `json:"currency" example:"USD"`
	Excluded  string           `json:"excluded,omitempty" doc:"Why the meter is excluded, as of the customer's last sync"`

	Backfilling bool `json:"backfilling,omitempty" doc:"The meter's past is still being counted: usage and amount are 0 and not known yet"`

	ProviderPrice   string           `json:"provider_price,omitempty" doc:"The id of the provider's own price, where that is charged" example:"price_1Q2"`
	PriceDifference *priceDifference `json:"price_difference,omitempty"`

	// LateFor is the closed period, where usage arrived after it was closed.
	LateFor *usagePeriod `json:"late_for,omitempty"`
}

type previewOutput struct{ Body []previewItem }

// previewBilling charges the current period as if it ended now. A period is
// charged at the prices in force at its start.
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
			Excluded: l.Excluded, Backfilling: l.Excluded == billing.ExcludedBackfilling, ProviderPrice: priceID(l.Price),
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
