package api

import (
	"context"

	"github.com/odometer-metering/odometer/metering"
)

type previewInput struct {
	Customer string `query:"customer" required:"true" maxLength:"255" doc:"The customer's external ID"`
}

type previewItem struct {
	MeterSlug string           `json:"meter_slug"`
	MeterID   string           `json:"meter_id"`
	Usage     metering.Decimal `json:"usage"`
	UnitPrice metering.Decimal `json:"unit_price" doc:"The overage rate; 0 where the meter has no price"`
	Amount    metering.Decimal `json:"amount" doc:"base_price + max(0, usage - included_units) * overage_rate, exact"`
}

type previewOutput struct{ Body []previewItem }

// previewBilling charges the current period as if it ended now. A period is
// charged at the prices in force at its start.
func (s *server) previewBilling(ctx context.Context, in *previewInput) (*previewOutput, error) {
	c, err := s.customer(ctx, in.Customer)
	if err != nil {
		return nil, err
	}
	period := s.period(ctx)
	totals, err := s.totals(ctx, c, period)
	if err != nil {
		return nil, err
	}
	prices, err := s.Store.Prices.All(ctx, principalOf(ctx).Tenant.ID)
	if err != nil {
		return nil, err
	}
	out := &previewOutput{[]previewItem{}}
	for _, t := range totals {
		item := previewItem{MeterSlug: t.Meter.Slug, MeterID: t.Meter.ID.String(), Usage: t.Usage}
		if p, ok := metering.PriceAt(prices[t.Meter.ID], period.Start); ok {
			item.UnitPrice, item.Amount = p.OverageRate, p.Charge(t.Usage)
		}
		out.Body = append(out.Body, item)
	}
	return out, nil
}
