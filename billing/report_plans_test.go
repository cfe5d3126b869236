package billing_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// A plan that withdraws a report that was never sent to a previous connection also ends the report's period early,
// where the new subscription's period begins. A report that may have arrived keeps the end of its period.
func TestWithdrawnReportDoesNotExtendPeriod(t *testing.T) {
	t.Parallel()
	id := uuid.UUID{1}
	month := span(t, "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
	subscribed := span(t, "2026-01-10T08:00:00Z", "2026-02-10T08:00:00Z")
	facts := billing.Facts{
		Now: instant(t, "2026-01-10T09:00:00Z"), Customer: billing.Customer{CreatedAt: month.Start},
		Settings:   billing.Settings{Timezone: location(t, "UTC"), Currency: "USD", LatePolicy: metering.AdjustLate},
		Connection: &billing.Connection{ID: 2}, Side: &billing.Side{Customer: "cus_1", Subscription: "sub_1", Period: subscribed},
		Stored: []billing.Period{{ID: 1, Range: month}},
		Reported: []billing.Reported{{
			Series:  billing.Series{Kind: billing.StatementReport, Connection: 1, Counting: billing.Replaces, Period: month.Start, Window: month},
			MeterID: 1, Outstanding: true, Last: id, Number: 1, State: billing.Planned,
		}},
		Open: []billing.Open{{ID: id, Kind: billing.StatementReport, Connection: 1, State: billing.Planned}},
	}
	plan := billing.NewBooks(facts).Plan()
	require.Equal(t, []uuid.UUID{id}, plan.Withdraw)
	require.Len(t, plan.Periods, 2)
	require.Equal(t, subscribed.Start, plan.Periods[0].End)
	require.Equal(t, subscribed, plan.Periods[1].Range)

	facts.Open[0].State, facts.Reported[0].State, facts.Reported[0].Standing.Any = billing.Sending, billing.Sending, true
	plan = billing.NewBooks(facts).Plan()
	require.Equal(t, month, plan.Periods[0].Range, "it may have arrived")
	require.Equal(t, []uuid.UUID{id}, plan.Doubt)

	lease := facts.Now.Add(1)
	facts.Open[0].LeaseUntil, facts.Stored = &lease, plan.Periods
	plan = billing.NewBooks(facts).Plan()
	require.Empty(t, plan.Doubt, "somebody is sending it")
	require.Equal(t, lease, plan.ReplanAt)
}

// If the units of a closed period differ from the reported units, the oldest open period bills the difference.
// The plan clears that period's watermark, which marks it as not fully reported.
func TestClosingWithUnreportedUnitsClearsOpenPeriodsWatermark(t *testing.T) {
	t.Parallel()
	january := span(t, "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
	february := span(t, "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z")
	facts := billing.Facts{
		Now: instant(t, "2026-02-02T00:00:00Z"), MayClose: true, Customer: billing.Customer{CreatedAt: january.Start},
		Settings:   billing.Settings{Timezone: location(t, "UTC"), Currency: "USD", LatePolicy: metering.AdjustLate},
		Meters:     []metering.Meter{{ID: 1, Slug: "calls", Version: metering.MeterVersion{Status: metering.Complete}}},
		Prices:     map[metering.MeterID][]billing.Price{1: {{MeterID: 1, Version: 1, Terms: billing.Terms{OverageRate: metering.Whole(1), Currency: "USD"}}}},
		Connection: &billing.Connection{ID: 1, Invoices: true},
		Side: &billing.Side{Customer: "cus_1", Subscription: "sub_1", Period: february, Destinations: []billing.Destination{
			{MeterID: 1, Target: "calls", Method: "delta", Counting: billing.Adds},
		}},
		Stored: []billing.Period{
			{ID: 1, Range: january, Subscription: billing.Subscription{ID: "sub_1", Range: january, Invoiced: true}},
			{ID: 2, Range: february, Watermark: billing.Watermark{Events: 3, Configuration: "known"}},
		},
		Usage: []billing.Usage{{Period: january.Start, MeterID: 1, Total: decimal(t, "3"), Events: 3}},
	}
	plan := billing.NewBooks(facts).Plan()
	require.Len(t, plan.Closings, 1)
	require.Equal(t, []billing.PeriodWatermark{{Start: february.Start}}, plan.Reported)

	facts.Usage = nil
	require.Empty(t, billing.NewBooks(facts).Plan().Reported, "nothing is left to adjust")
}

// A closed period is charged at the provider's price that was recorded while the period ran, even if the item changed
// since. If the provider's price is unknown, Odometer's price is charged.
func TestPeriodClosesAtRecordedProviderPrice(t *testing.T) {
	t.Parallel()
	then, now := &tariff{"price_then", "USD", tariffOf(1, 1, 0)}, &tariff{"price_now", "USD", tariffOf(1, 1, 1)}
	for name, c := range map[string]struct {
		change func(*billing.Facts)
		want   billing.ProviderPrice // nil: Odometer's price is charged
	}{
		"it has another now": {func(*billing.Facts) {}, then},
		"its item is gone": {func(f *billing.Facts) {
			f.Side.Destinations[0] = billing.Destination{MeterID: 1, Excluded: billing.NoTarget("no item")}
		}, then},
		"nobody has looked":              {func(f *billing.Facts) { f.Side = nil }, then},
		"nobody knows the item's by now": {func(f *billing.Facts) { f.Side.Destinations[0].Price = nil }, nil},
		"nobody has noted it":            {func(f *billing.Facts) { f.Stored[0].Subscription.Prices = nil }, now},
		"nor is the item a former one's": {func(f *billing.Facts) { f.Stored[0].Subscription.Prices, f.Stored[0].Subscription.ID = nil, "sub_0" }, nil},
	} {
		f := atMeters(february, knownOf(january.End.Add(2*time.Hour), invoiced(january), subscribed(february)))
		f.Stored[0].Subscription.Prices = map[metering.MeterID]billing.ProviderPrice{1: then}
		f.Side.Destinations[0].Price = now
		f.Usage, f.Reported = []billing.Usage{used(january, "10")}, []billing.Reported{counted(january, "10")}
		c.change(&f)
		_, line := afterClosing(t, f)
		require.Equal(t, c.want, line.Price, name)
	}
}
