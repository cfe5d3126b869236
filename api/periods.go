package api

import (
	"context"
	"time"

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

// PeriodHead is a billing period without what it comes to.
type PeriodHead struct {
	ID       *string             `json:"id" example:"per_42" doc:"null: it is not stored yet, because the customer was not synced in it"`
	Start    time.Time           `json:"start"`
	End      time.Time           `json:"end"`
	Stream   int                 `json:"stream,omitempty" doc:"Which of the customer's streams it is of, where a second subscription with other periods has one of its own; absent: the first"`
	State    billing.PeriodState `json:"state" doc:"in_grace: it is over, and takes usage until it is closed"`
	DueAt    time.Time           `json:"due_at" doc:"When it is to be closed: its end and the grace"`
	Bills    metering.Bills      `json:"bills,omitempty" doc:"In what a provider with invoices bills it, whatever the tenant has chosen since; absent while that is not decided, and where there is none"`
	ClosedAt *time.Time          `json:"closed_at" doc:"When the period was closed; null while open"`
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
	Usage         metering.Decimal `json:"usage" doc:"So far; of a closed period, what it was closed at"`
	EventCount    int64            `json:"event_count"`
	PriceVersion  int              `json:"price_version" doc:"0 where the meter has no price, or the provider's own is charged"`
	ProviderPrice string           `json:"provider_price,omitempty" doc:"The id of the provider's own price, where that is charged" example:"price_1Q2"`
	Amount        metering.Decimal `json:"amount" doc:"Rounded to the currency's minor unit"`
	Currency      string           `json:"currency"`
	Billed        bool             `json:"billed" doc:"Whether the provider had accepted it when it was closed, in the mode that the present provider is in"`
	LateUsage     metering.Decimal `json:"late_usage" doc:"What arrived after the closing"`
	LateAmount    metering.Decimal `json:"late_amount" doc:"Additional charge from late usage"`
}

type listPeriodsOutput struct{ Body List[billingPeriod] }

type periodCursor struct {
	Before time.Time `json:"before"`
	Stream int       `json:"stream,omitempty"` // of those that begin then
}

// listPeriods shows the billing periods of a customer's streams, newest first.
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

// maxPeriods on a page: each costs a few reads.
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
	Months int `query:"months" minimum:"1" maximum:"60" default:"12" doc:"How many months, the current one included. Months that have not begun are shown besides where a billing period that runs now will end in one"`
}

type revenueOutput struct {
	Body struct {
		Data   []monthlyRevenue `json:"data"`
		Caveat string           `json:"caveat"`
	}
}

type monthlyRevenue struct {
	Month     string           `json:"month" example:"2026-11" doc:"In the tenant's time zone. A billing period is of the month that it ends in"`
	Currency  string           `json:"currency"`
	Amount    metering.Decimal `json:"amount" doc:"billed, estimated and unbilled together"`
	Customers int64            `json:"customers" doc:"That had usage in these periods"`
	Billed    metering.Decimal `json:"billed" doc:"Of closed periods: what a provider in live mode was reported, with the adjustments that were booked since"`
	Estimated metering.Decimal `json:"estimated" doc:"Of periods that are not closed: what they come to so far"`
	Unbilled  metering.Decimal `json:"unbilled" doc:"Of closed periods: what no provider was reported in time, or one in test mode, and adjustments that are only reported"`
}

// revenue is what the billing periods of all customers come to, by month.
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
