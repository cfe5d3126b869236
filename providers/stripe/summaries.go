package stripe

import (
	"context"
	"fmt"
	"strconv"
	"time"

	stripego "github.com/stripe/stripe-go/v76"

	"github.com/odometer-metering/odometer/metering"
)

// Summary reads Stripe's sum of a customer's events on a meter in the whole minutes from start to end.
// The sum is up to some minutes behind the accepted events, and never ahead of them.
func (c *Client) Summary(ctx context.Context, key, meterID, customer string, start, end time.Time) (metering.Decimal, error) {
	from, until := wholeMinutes(start, end)
	if !from.Before(until) {
		return metering.Decimal{}, nil
	}
	summaries, err := list[eventSummary](ctx, c, key, stripego.FormatURLPath("/v1/billing/meters/%s/event_summaries", meterID),
		query("customer", customer, "start_time", seconds(from), "end_time", seconds(until)))
	if err != nil {
		return metering.Decimal{}, fmt.Errorf("list event summaries: %w", err)
	}
	var total metering.Decimal
	for _, s := range summaries {
		total = total.Add(s.Value.Decimal)
	}
	return total, nil
}

type eventSummary struct {
	ID    string    `json:"id"`
	Value aggregate `json:"aggregated_value"`
}

// aggregate is a sum that Stripe computes in double precision, in which 0.1 + 0.2 is 0.30000000000000004.
// Decimals beyond those of our reports are rounding errors, and are rounded off.
type aggregate struct{ metering.Decimal }

func (a *aggregate) UnmarshalJSON(literal []byte) error {
	parsed, err := metering.ParseRounded(string(literal), metering.MaxUsageScale)
	a.Decimal = parsed
	return err
}

func (s eventSummary) id() string { return s.ID }

// seconds returns a time as seconds since 1970.
func seconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// RecordSummary reads Stripe's total of an item's usage records in the period that contains the given time.
func (c *Client) RecordSummary(ctx context.Context, key, itemID string, at time.Time) (metering.Decimal, error) {
	summaries, err := list[recordSummary](ctx, c, key,
		stripego.FormatURLPath("/v1/subscription_items/%s/usage_record_summaries", itemID), query())
	if err != nil {
		return metering.Decimal{}, fmt.Errorf("list usage record summaries: %w", err)
	}
	for _, s := range summaries { // newest first
		if s.contains(at) {
			return s.Total, nil
		}
	}
	return metering.Decimal{}, metering.Errorf(metering.CodeNotFound, "Stripe has no usage of the period")
}

type recordSummary struct {
	ID     string           `json:"id"`
	Total  metering.Decimal `json:"total_usage"`
	Period struct {
		Start int64 `json:"start"` // 0 and null: no limit
		End   int64 `json:"end"`
	} `json:"period"`
}

func (s recordSummary) id() string { return s.ID }

// contains reports whether the period contains the given time. A period excludes its start and includes its end:
// https://docs.stripe.com/api/usage-record-summary
func (s recordSummary) contains(at time.Time) bool {
	return at.Unix() > s.Period.Start && (s.Period.End == 0 || at.Unix() <= s.Period.End)
}
