package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// registerUnrated registers the operations on usage that will not be billed.
func (s *server) registerUnrated() {
	const path = "/v1/billing/unrated"
	const which = "- Covers open billing periods, closed billing periods that no provider bills, and usage before the customer's first period.\n" +
		"- A tenant without any price and without a provider has no unrated usage.\n"
	huma.Register(s.api, heavy(get("list-unrated-usage", path, BillingRead, "List unrated usage", "Unrated usage will not be billed, for example because its meter has no price. Each line is one customer, meter, period and reason, with the estimated charge.\n\n"+
		which+
		"- A page may have few lines or none while `next_page_token` is set. Continue until `next_page_token` is null.")), s.listUnrated)
	huma.Register(s.api, heavy(get("get-unrated-totals", path+"/totals", BillingRead, "Get the total of unrated usage", "Returns totals by reason and currency. Unrated usage will not be billed, for example because its meter has no price.\n\n"+
		which)), s.unratedTotals)
}

// UnratedMonths selects the billing periods of a query.
type UnratedMonths struct {
	Months int `query:"months" minimum:"1" maximum:"60" default:"3" doc:"Number of calendar months, the current one included, in the tenant's time zone. Billing periods that ended before these months are excluded"`
}

// unratedMonths is the default of UnratedMonths.Months.
const unratedMonths = 3

// since returns noon of the first day of the first month.
func (m UnratedMonths) since(now time.Time, zone *time.Location) time.Time {
	local := now.In(zone)
	return time.Date(local.Year(), local.Month()-time.Month(m.Months-1), 1, 12, 0, 0, 0, zone)
}

type listUnratedInput struct {
	Paging
	UnratedMonths
}

type unratedUsage struct {
	CustomerID   string                `json:"customer_id"`
	ExternalID   string                `json:"external_id"`
	CustomerName string                `json:"customer_name" doc:"Empty if the customer has no name"`
	MeterID      string                `json:"meter_id"`
	MeterSlug    string                `json:"meter_slug"`
	Period       unratedPeriod         `json:"period"`
	Reason       billing.UnratedReason `json:"reason" doc:"Reason why nothing bills the usage. 'message' and 'next_step' explain it"`
	billing.Text
	Usage      metering.Decimal  `json:"usage" doc:"Usage of the meter in the period. With unpriced_dimension, only the part with these values"`
	EventCount int64             `json:"event_count"`
	Estimate   *metering.Decimal `json:"estimate" doc:"Charge at the price in force at the start of the period, base price included, rounded to the currency's minor unit. Null without a price"`
	Currency   *string           `json:"currency" doc:"Null without a price" example:"USD"`
}

type unratedPeriod struct {
	Start time.Time    `json:"start"`
	End   time.Time    `json:"end"`
	State unratedState `json:"state" doc:"'before': a calendar month, or part of one, before the first billing period. in_grace: the period has ended and accepts late events until it is closed"`
}

// unratedState is a billing.PeriodState, or PeriodBefore for usage before the first period.
type unratedState billing.PeriodState

// Values returns all states.
func (unratedState) Values() (all []unratedState) {
	for _, state := range append(billing.PeriodState("").Values(), billing.PeriodBefore) {
		all = append(all, unratedState(state))
	}
	return all
}

func showUnrated(u ledger.UnratedUsage) unratedUsage {
	shown := unratedUsage{
		CustomerID: u.Customer.String(), ExternalID: u.ExternalID, CustomerName: u.CustomerName, MeterID: u.MeterID.String(), MeterSlug: u.MeterSlug,
		Period: unratedPeriod{u.Period.Start.UTC(), u.Period.End.UTC(), unratedState(u.State)}, Reason: u.Reason, Text: u.Text(),
		Usage: u.Usage, EventCount: u.Events, Estimate: u.Estimate,
	}
	if u.Estimate != nil {
		shown.Currency = &u.Currency
	}
	return shown
}

type listUnratedOutput struct{ Body List[unratedUsage] }

func (s *server) listUnrated(ctx context.Context, in *listUnratedInput) (*listUnratedOutput, error) {
	var after *ledger.UnratedKey
	if err := s.readPageToken(ctx, in.PageToken, &after); err != nil {
		return nil, err
	}
	tenant, now := principalOf(ctx).Tenant, s.Now()
	page, err := s.Store.Unrated.List(ctx, tenant.ID, in.since(now, tenant.Location()), now, after, in.PageSize)
	if err != nil {
		return nil, err
	}
	list := List[unratedUsage]{Data: make([]unratedUsage, 0, len(page.Lines))}
	for _, line := range page.Lines {
		list.Data = append(list.Data, showUnrated(line))
	}
	if page.Next != nil {
		list.HasMore, list.NextPageToken = true, new(s.pageToken(ctx, page.Next))
	}
	return &listUnratedOutput{list}, nil
}

type unratedTotal struct {
	Reason billing.UnratedReason `json:"reason" doc:"Reason why nothing bills the usage. 'message' and 'next_step' explain it"`
	billing.Text
	Currency  *string           `json:"currency" doc:"Null if the usage has no price" example:"USD"`
	Customers int64             `json:"customers"`
	Lines     int64             `json:"lines" doc:"Number of lines in the list"`
	Estimate  *metering.Decimal `json:"estimate" doc:"Sum of the estimates. Null if the usage has no price"`
}

type unratedTotalsInput struct{ UnratedMonths }

type unratedTotalsOutput struct {
	Body struct {
		Since  time.Time      `json:"since" doc:"Start of the first month. Billing periods that end after this time are included"`
		Data   []unratedTotal `json:"data" doc:"Totals by reason and currency"`
		Caveat string         `json:"caveat"`
	}
}

func (s *server) unratedTotals(ctx context.Context, in *unratedTotalsInput) (*unratedTotalsOutput, error) {
	tenant, now := principalOf(ctx).Tenant, s.Now()
	since := in.since(now, tenant.Location())
	totals, err := s.Store.Unrated.Totals(ctx, tenant.ID, since, now)
	if err != nil {
		return nil, err
	}
	out := new(unratedTotalsOutput)
	out.Body.Since, out.Body.Data, out.Body.Caveat = billing.CalendarPeriod(since, tenant.Location()).Start.UTC(), []unratedTotal{}, billing.Caveat
	for _, t := range totals {
		shown := unratedTotal{Reason: t.Reason, Text: t.Reason.Text(), Customers: t.Customers, Lines: t.Lines}
		if t.Currency != "" {
			shown.Currency, shown.Estimate = &t.Currency, &t.Estimate
		}
		out.Body.Data = append(out.Body.Data, shown)
	}
	return out, nil
}

// recentUnrated returns the tenant's totals of unrated usage, at most cachedFor old. If they cannot be computed, it
// returns a single entry with the reason UnratedUnknown, so that the other attention entries are still listed.
func (s *server) recentUnrated(ctx context.Context) []ledger.UnratedTotal {
	tenant, now := principalOf(ctx).Tenant, s.Now()
	if totals, found := s.unratedKept.get(tenant.ID, now); found {
		return totals
	}
	totals, err := s.Store.Unrated.Totals(ctx, tenant.ID, UnratedMonths{unratedMonths}.since(now, tenant.Location()), now)
	if ctx.Err() != nil {
		return nil // the client has disconnected
	}
	if err != nil {
		s.Log.WarnContext(ctx, "cannot compute unrated usage", "tenant", tenant.ID, "error", err)
		totals = []ledger.UnratedTotal{{Reason: billing.UnratedUnknown, Since: now}}
	}
	return s.unratedKept.add(tenant.ID, totals, now)
}
