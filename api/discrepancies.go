package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

type listDiscrepanciesOutput struct{ Body List[usageDiscrepancy] }

type usageDiscrepancy struct {
	CustomerID         *string          `json:"customer_id" doc:"Null for the sum of all customers"`
	CustomerExternalID *string          `json:"customer_external_id"`
	CustomerName       *string          `json:"customer_name" doc:"Empty if the customer has no name"`
	MeterID            string           `json:"meter_id"`
	MeterSlug          string           `json:"meter_slug"`
	Day                string           `json:"day" format:"date" doc:"Day in UTC"`
	Total              metering.Decimal `json:"total" doc:"Usage in the totals"`
	TotalCount         int64            `json:"total_count"`
	Events             metering.Decimal `json:"events" doc:"Usage in the stored events"`
	EventCount         int64            `json:"event_count"`
	FoundAt            time.Time        `json:"found_at"`
}

type listDiscrepanciesInput struct{ Paging }

func (s *server) registerDiscrepancies() {
	huma.Register(s.api, get("list-discrepancies", "/v1/billing/discrepancies", BillingRead, "List discrepancies between totals and events",
		"Lists the differences that the daily audit found. The list is empty unless something is wrong with the service."), s.listDiscrepancies)
}

// listDiscrepancies lists the differences that the daily audit has found between the totals of meters and the
// stored events. The list is empty unless the service has a fault.
func (s *server) listDiscrepancies(ctx context.Context, in *listDiscrepanciesInput) (*listDiscrepanciesOutput, error) {
	var after *db.DiscrepancyKey
	if err := s.readPageToken(ctx, in.PageToken, &after); err != nil {
		return nil, err
	}
	found, err := s.Store.Discrepancies.List(ctx, principalOf(ctx).Tenant.ID, after, in.PageSize)
	if err != nil {
		return nil, err
	}
	return &listDiscrepanciesOutput{listOf(ctx, s, found, showDiscrepancy, db.Discrepancy.Key)}, nil
}

func showDiscrepancy(d db.Discrepancy) usageDiscrepancy {
	shown := usageDiscrepancy{
		MeterID: d.MeterID.String(), MeterSlug: d.MeterSlug, Day: d.Day.Format(time.DateOnly), Total: d.RollupSum, TotalCount: d.RollupCount,
		Events: d.EventSum, EventCount: d.EventCount, FoundAt: d.FoundAt.UTC(),
	}
	if d.CustomerID != metering.WholeTenant {
		id := d.CustomerID.String()
		shown.CustomerID, shown.CustomerExternalID, shown.CustomerName = &id, &d.ExternalID, &d.CustomerName
	}
	return shown
}
