package api

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// step is a step in the breakdown of an amount.
type step struct {
	Name          stepName          `json:"name"`
	Description   string            `json:"description" doc:"Explanation of the amount in one sentence" example:"The included units, which are not charged."`
	Amount        metering.Decimal  `json:"amount" doc:"Exact amount in 'unit'"`
	Unit          string            `json:"unit" doc:"'units', 'packages', 'percent', or a currency code" example:"USD"`
	RoundedTo     *int32            `json:"rounded_to,omitempty" doc:"Decimals to which the amount is rounded, half to even. For 'charge', the decimals of the currency. For reported_units and elsewhere_units, the decimals that the provider accepts. For a charge that contains a quotient with infinitely many decimals, at least 16. Otherwise absent"`
	MeterVersion  *int64            `json:"meter_version,omitempty" doc:"Version of the meter that counted the usage. Present only in the step 'usage'"`
	EventCount    *int64            `json:"event_count,omitempty" doc:"Number of counted events. Present only in the steps 'usage', late_usage, total_usage, fixed_fees, matched_units, dimension_units and unrated_units. total_usage, matched_units and unrated_units have the sum of their parts"`
	Dimension     json.RawMessage   `json:"dimension,omitempty" doc:"Values by property. Present in the step dimension_units, unless it sums up the units with other or unknown values"`
	RateNumber    int               `json:"dimension_price,omitempty" doc:"Number of the price in the list of prices by dimension, from 1. Present only in the step dimension_charge" example:"1"`
	Tier          int               `json:"tier,omitempty" doc:"Number of the price's tier, from 1. Present only in steps of a tier. Each tier of flat_fees is a tier of unit_charges" example:"1"`
	Above         *metering.Decimal `json:"above,omitempty" doc:"Number of charged_units below the tier. Present only in the step 'tier', except in the first tier"`
	UpTo          *metering.Decimal `json:"up_to,omitempty" doc:"Last of the charged_units in the tier. Present only in the step 'tier', except in the last tier of the price"`
	PriceVersion  int               `json:"price_version,omitempty" doc:"Version of the price with this value. Present only in steps with a field of the price, such as included_units, overage_rate and base_price"`
	ProviderPrice string            `json:"provider_price,omitempty" doc:"Id of the provider's own price with this value. Present only in the steps provider_charge and 'charge'" example:"price_1Q2"`
	ClosedPeriod  *usagePeriod      `json:"closed_period,omitempty"`
	Reason        string            `json:"reason,omitempty" doc:"Reason for the adjustment of the closed period" example:"late usage"`
	Series        *stepSeries       `json:"series,omitempty"`
	Steps         []step            `json:"steps,omitempty" doc:"Parts of the amount. For an adjustment, its breakdown. For a line of a provider's price, its calculation"`
}

// stepSeries identifies the series of reports that sent an amount to the provider.
type stepSeries struct {
	Kind             lineKind    `json:"kind"`
	ConnectionID     string      `json:"connection_id" example:"con_1"`
	ProviderCustomer string      `json:"provider_customer,omitempty" example:"cus_NffrFeUfNV2Hib"`
	Method           string      `json:"method,omitempty" doc:"How the provider adds up the number: usage_record, meter_delta, meter_window or meter_last for a quantity, pending_item for a charge with 'bills' set to 'amounts'. Otherwise absent" example:"meter_delta"`
	Target           string      `json:"target,omitempty" example:"si_Na6dzxczY5fwHx"`
	Window           usagePeriod `json:"window"`
}

func showSteps(steps []billing.Step) []step {
	shown := make([]step, 0, len(steps))
	for _, s := range steps {
		shown = append(shown, showStep(s))
	}
	return shown
}

// countSteps returns the number of steps, with their parts.
func countSteps(steps []step) int {
	n := len(steps)
	for _, s := range steps {
		n += countSteps(s.Steps)
	}
	return n
}

func showStep(s billing.Step) step {
	shown := step{
		Name: stepName(s.Name), Description: s.Sentence(), Amount: s.Amount, Unit: s.Unit, RoundedTo: s.Digits,
		PriceVersion: s.PriceVersion, ProviderPrice: s.Price, Reason: s.Reason, Tier: s.Tier, Above: s.Above, UpTo: s.UpTo, RateNumber: s.Rate, Dimension: s.Dimension, Steps: showSteps(s.Of),
	}
	if s.Counted() {
		shown.EventCount = &s.Events
	}
	if version := int64(s.MeterVersion); version != 0 {
		shown.MeterVersion = &version
	}
	if s.Closed != nil {
		shown.ClosedPeriod = &usagePeriod{s.Closed.Start.UTC(), s.Closed.End.UTC()}
	}
	if s.Series != nil {
		shown.Series = &stepSeries{
			Kind: lineKind(s.Series.Kind), ConnectionID: s.Series.Connection.String(), ProviderCustomer: s.Series.Customer, Method: string(s.Series.Method),
			Target: s.Series.Target, Window: usagePeriod{s.Series.Window.Start.UTC(), s.Series.Window.End.UTC()},
		}
	}
	return shown
}

type explainInput struct {
	Customer string   `query:"customer" required:"true" maxLength:"255" doc:"The customer's external ID"`
	Meter    string   `query:"meter" required:"true" maxLength:"64" doc:"The meter's slug"`
	Period   string   `query:"period" maxLength:"64" doc:"Id of one of the customer's billing periods"`
	At       SentTime `query:"at" doc:"A time in the billing period. Use 'at' or 'period', not both. Default: now"`
}

type explainOutput struct {
	Body struct {
		CustomerID string     `json:"customer_id" example:"cus_42"`
		ExternalID string     `json:"external_id" doc:"External ID of the customer"`
		Period     PeriodHead `json:"period"`
		StatementLine
	}
}

func (s *server) registerExplanations() {
	huma.Register(s.api, get("explain-billing", "/v1/billing/explain", BillingRead, "Get the breakdown of a meter's charge in a billing period",
		"Lists the steps from the number of events to the amount, which is the last step. Without `period` and `at`, the current period is explained."), s.explain)
}

// explain returns the breakdown of a meter's amount in a billing period.
func (s *server) explain(ctx context.Context, in *explainInput) (*explainOutput, error) {
	asked, err := in.period(s.Now())
	if err != nil {
		return nil, err
	}
	c, err := s.customer(ctx, in.Customer)
	if err != nil {
		return nil, withLocation("query.customer", err)
	}
	m, err := s.meter(ctx, in.Meter)
	if err != nil {
		return nil, withLocation("query.meter", err)
	}
	statement, err := s.Store.Ledger.StatementOf(ctx, principalOf(ctx).Tenant.ID, c.ID, m.ID, asked.is, s.Now())
	if err != nil {
		return nil, withLocation(asked.parameter, err)
	}
	line, known := statement.Line(m.ID)
	switch {
	case known:
	case m.Version.Status == metering.Backfilling && statement.ClosedAt == nil:
		return nil, withLocation("query.meter", errBackfilling)
	case statement.ClosedAt == nil:
		return nil, withLocation("query.meter", errOtherStream)
	default:
		return nil, withLocation("query.meter", errMadeLater)
	}
	digests, err := s.Store.Ledger.Digests(ctx, principalOf(ctx).Tenant.ID, statement.ID)
	if err != nil {
		return nil, err
	}
	out := new(explainOutput)
	out.Body.CustomerID, out.Body.ExternalID, out.Body.Period = c.ID.String(), c.ExternalID, showPeriodHead(statement)
	out.Body.StatementLine = showStatementLine(line, digests)
	return out, nil
}

var (
	errMadeLater   = metering.Errorf(metering.CodeNotFound, "the period closed before the meter was created, or the meter is billed in the customer's other billing periods")
	errOtherStream = metering.Errorf(metering.CodeNotFound, "the meter is billed in the customer's other billing periods")
)

// askedPeriod selects the requested billing period. parameter is the query parameter to which errors about the
// period refer.
type askedPeriod struct {
	parameter string
	is        func(billing.Period) bool
}

func (in *explainInput) period(now time.Time) (askedPeriod, error) {
	if in.Period != "" && in.At.sent {
		return askedPeriod{}, metering.Invalid("query.at", "must be absent if period is given")
	}
	if in.Period != "" {
		id, _ := metering.ParsePeriodID(in.Period)
		return askedPeriod{"query.period", func(p billing.Period) bool { return p.ID == id && id != 0 }}, nil
	}
	at := now
	if in.At.sent {
		at = in.At.Time
	}
	return askedPeriod{"query.at", func(p billing.Period) bool { return p.Contains(at) }}, nil
}

// withLocation adds the location in the request to an error with the code not_found or backfilling.
func withLocation(location string, err error) error {
	var coded *metering.Error
	if !errors.As(err, &coded) || coded.Code != metering.CodeNotFound && coded.Code != metering.CodeBackfilling {
		return err
	}
	named := *coded
	named.Fields = []metering.Field{{Location: location, Message: coded.Message}}
	return &named
}
