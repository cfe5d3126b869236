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
	Amount    metering.Decimal `json:"amount" doc:"base_price + max(0, usage - included_units) * overage_rate, exact; of a late item, what the closed period's charge grows by"`
	Currency  string           `json:"currency" example:"USD"`
	Skipped   string           `json:"skipped,omitempty" doc:"Why the meter is excluded, as of the customer's last sync"`

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
	tenant := principalOf(ctx).Tenant
	period, err := s.Store.Ledger.CurrentPeriod(ctx, tenant.ID, c.ID, s.Now())
	if err != nil {
		return nil, err
	}
	totals, err := s.totals(ctx, c, period)
	if err != nil {
		return nil, err
	}
	prices, err := s.Store.Prices.InForce(ctx, tenant.ID, c.ID, period.Start)
	if err != nil {
		return nil, err
	}
	skipped, err := s.Store.Links.Skipped(ctx, tenant.ID, c.ID)
	if err != nil {
		return nil, err
	}
	late, err := s.Store.Ledger.Adjustments(ctx, tenant.ID, c.ID, s.Now())
	if err != nil {
		return nil, err
	}
	out := &previewOutput{[]previewItem{}}
	for _, t := range totals {
		item := previewItem{MeterSlug: t.Meter.Slug, MeterID: t.Meter.ID.String(), Usage: t.Usage, Currency: tenant.Currency, Skipped: skipped[t.Meter.ID]}
		if p, ok := prices[t.Meter.ID]; ok {
			item.UnitPrice, item.Amount, item.Currency = p.OverageRate, p.Charge(t.Usage), p.Currency
		}
		out.Body = append(out.Body, item)
	}
	for _, l := range late {
		out.Body = append(out.Body, previewItem{
			MeterSlug: l.MeterSlug, MeterID: l.MeterID.String(), Usage: l.Quantity, UnitPrice: l.UnitPrice, Amount: l.Amount, Currency: l.Currency,
			LateFor: &usagePeriod{l.Period.Start, l.Period.End},
		})
	}
	return out, nil
}
