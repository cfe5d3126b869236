package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

type listPeriodsInput struct {
	Paging
	Customer string `query:"customer" required:"true" maxLength:"255" doc:"The customer's external ID"`
}

type billingPeriod struct {
	PeriodHead
	Lines []periodLine `json:"lines"`
}

// PeriodHead is a billing period without its amounts.
type PeriodHead struct {
	ID       *string             `json:"id" example:"per_42" doc:"Null until the period is stored, by a sync of the customer or in the background"`
	Start    time.Time           `json:"start"`
	End      time.Time           `json:"end"`
	Stream   int                 `json:"stream,omitempty" doc:"Billing schedule of the period. A subscription with different periods has a schedule of its own. Absent for the first schedule"`
	State    billing.PeriodState `json:"state" doc:"in_grace: the period has ended and accepts late events until it is closed"`
	DueAt    time.Time           `json:"due_at" doc:"Planned closing time: the end of the period plus the grace"`
	Bills    metering.Bills      `json:"bills,omitempty" doc:"Unit in which the provider bills the period: 'quantities' or 'amounts'. The unit does not change during a period. Absent if the unit is undecided or the provider makes no invoices"`
	ClosedAt *time.Time          `json:"closed_at" doc:"Time at which the period was closed. Null while the period is not closed"`
}

func showPeriodHead(s billing.Statement) PeriodHead {
	head := PeriodHead{Start: s.Start.UTC(), End: s.End.UTC(), Stream: s.Stream, State: s.State, DueAt: s.ClosesAt.UTC(), Bills: s.Bills, ClosedAt: s.ClosedAt}
	if s.ID != 0 {
		id := s.ID.String()
		head.ID = &id
	}
	return head
}

type periodLine struct {
	MeterID       string           `json:"meter_id"`
	MeterSlug     string           `json:"meter_slug"`
	Usage         metering.Decimal `json:"usage" doc:"Usage so far. For a closed period, the usage at its closing"`
	EventCount    int64            `json:"event_count"`
	PriceVersion  int              `json:"price_version" doc:"Version of the meter's price. 0 without a price or if the provider's own price applies"`
	ProviderPrice string           `json:"provider_price,omitempty" doc:"Id of the provider's own price. Absent if Odometer's price applies" example:"price_1Q2"`
	Amount        metering.Decimal `json:"amount" doc:"Amount, rounded to the currency's minor unit"`
	Currency      string           `json:"currency"`
	Billed        bool             `json:"billed" doc:"Whether the closed period is billed through a provider, in the provider's current mode. The provider may accept the reports later"`
	LateUsage     metering.Decimal `json:"late_usage" doc:"Usage that arrived after the closing"`
	LateAmount    metering.Decimal `json:"late_amount" doc:"Additional charge from late usage"`
}

type listPeriodsOutput struct{ Body List[billingPeriod] }

type periodCursor struct {
	Before time.Time `json:"before"`
	Stream int       `json:"stream,omitempty"` // billing schedule; orders periods with this start
}

func (s *server) registerPeriods() {
	huma.Register(s.api, get("list-billing-periods", "/v1/billing/periods", BillingRead, "List a customer's billing periods",
		"Billing periods are listed newest first. A closed period never changes. Usage that arrives later is shown as late usage. Another "+
			"period bills it, unless the tenant's `late_policy` is `report`."), s.listPeriods)
	huma.Register(s.api, heavy(get("get-revenue", "/v1/billing/revenue", BillingRead, "Get billed and estimated revenue by month and currency",
		"Months are calendar months of the tenant's time zone. Invoices at the provider may differ.\n\n"+
			"- `billed`: closed periods that a provider bills in live mode, with their billed adjustments. The closing decides whether a provider bills a period.\n"+
			"- `estimated`: periods that are not closed.\n"+
			"- `unbilled`: the other closed periods and adjustments.")), s.revenue)
}

// listPeriods lists the billing periods of all the customer's billing schedules, newest first.
func (s *server) listPeriods(ctx context.Context, in *listPeriodsInput) (*listPeriodsOutput, error) {
	c, err := s.customer(ctx, in.Customer)
	if err != nil {
		return nil, err
	}
	cursor := periodCursor{Before: s.Now().AddDate(1, 0, 0)}
	if err := s.readPageToken(ctx, in.PageToken, &cursor); err != nil {
		return nil, err
	}
	size := min(in.PageSize, maxPeriods)
	periods, err := s.Store.Ledger.Statements(ctx, principalOf(ctx).Tenant.ID, c.ID, billing.PeriodPlace{Start: cursor.Before, Stream: cursor.Stream}, size, s.Now())
	if err != nil {
		return nil, err
	}
	return &listPeriodsOutput{listOf(ctx, s, periods, showPeriod,
		func(p billing.Statement) periodCursor { return periodCursor{p.Start, p.Stream} })}, nil
}

// maxPeriods is the maximum number of periods per page. It is low, because each period needs several queries.
const maxPeriods = 100

func showPeriod(p billing.Statement) billingPeriod {
	shown := billingPeriod{showPeriodHead(p), []periodLine{}}
	for _, l := range p.Lines {
		shown.Lines = append(shown.Lines, periodLine{
			MeterID: l.MeterID.String(), MeterSlug: l.MeterSlug, Usage: l.Usage, EventCount: l.Events, PriceVersion: l.PriceVersion, ProviderPrice: priceID(l.Price),
			Amount: l.Charge, Currency: l.Currency, Billed: l.Billed, LateUsage: l.LateUsage, LateAmount: l.LateCharge,
		})
	}
	return shown
}

type revenueInput struct {
	Months int `query:"months" minimum:"1" maximum:"60" default:"12" doc:"Number of months, including the current one. A later month is added if a running billing period ends in that month"`
}

type revenueOutput struct {
	Body struct {
		Data   []monthlyRevenue `json:"data"`
		Caveat string           `json:"caveat"`
	}
}

type monthlyRevenue struct {
	Month     string           `json:"month" example:"2026-11" doc:"Month in the tenant's time zone. A billing period belongs to the month in which it ends"`
	Currency  string           `json:"currency"`
	Amount    metering.Decimal `json:"amount" doc:"Sum of 'billed', 'estimated' and 'unbilled'"`
	Customers int64            `json:"customers" doc:"Number of customers with usage in the billing periods of the month"`
	Billed    metering.Decimal `json:"billed" doc:"Charges of closed periods that a provider bills in live mode, and their billed adjustments. The closing decides whether a provider bills a period"`
	Estimated metering.Decimal `json:"estimated" doc:"Charges of periods that are not closed, for the usage so far"`
	Unbilled  metering.Decimal `json:"unbilled" doc:"Charges of closed periods that no provider bills in live mode, as decided at the closing, and adjustments that are not billed"`
}

// revenue returns the amounts of all customers' billing periods by month.
func (s *server) revenue(ctx context.Context, in *revenueInput) (*revenueOutput, error) {
	tenant := principalOf(ctx).Tenant
	now := s.Now().In(tenant.Location())
	first := time.Date(now.Year(), now.Month()-time.Month(in.Months-1), 1, 12, 0, 0, 0, tenant.Location())
	months, err := s.Store.Ledger.Revenue(ctx, tenant.ID, first, now)
	if err != nil {
		return nil, err
	}
	out := new(revenueOutput)
	out.Body.Data, out.Body.Caveat = []monthlyRevenue{}, billing.Caveat
	for _, m := range months {
		out.Body.Data = append(out.Body.Data, monthlyRevenue{
			m.Month.In(tenant.Location()).Format("2006-01"), m.Currency, m.Amount(), m.Customers, m.Billed, m.Estimated, m.Unbilled,
		})
	}
	return out, nil
}
