package billing_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

func TestTotalsAreRoundedHalfToEven(t *testing.T) {
	t.Parallel()
	for scale, totals := range map[int32]map[string]string{
		0: {
			"0": "0", "0.4": "0", "0.5": "0", "0.500000000001": "1", "1.5": "2", "2.5": "2", "-0.5": "0", "-1.5": "-2", "7": "7",
			"999999999999999999.5": "1000000000000000000",
		},
		3: {"1.2345": "1.234", "1.2355": "1.236", "1.234500000001": "1.235", "-1.2345": "-1.234", "0.0005": "0", "7": "7"},
		6: {"0.0000005": "0", "0.0000015": "0.000002", "999999999.9999995": "1000000000"},
	} {
		for total, want := range totals {
			require.Equal(t, want, billing.Units(decimal(t, total), scale).String(), "%s to %d decimals", total, scale)
		}
	}
}

func TestUnitsBetweenTotalsIsDifferenceOfRoundedTotals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to string
		scale    int32
		want     string
	}{
		{"0.5", "1.1", 0, "1"},
		{"0.6", "1.4", 0, "0"},
		{"3.7", "2.4", 0, "-2"},
		{"1.2345", "1.2349", 3, "0.001"}, // 1.235 less 1.234
		{"1.2355", "1.2364", 3, "0"},
		{"1.2345", "1.2345", 6, "0"},
	} {
		require.Equal(t, c.want, billing.UnitsBetween(decimal(t, c.from), decimal(t, c.to), c.scale).String(), "%v", c)
	}
}

func TestPropertyDeltasNeverLoseARemainder(t *testing.T) {
	t.Parallel()
	histories.Check(t, func(t *rapid.T) {
		var sent, total metering.Decimal
		scale := rapid.Int32Range(0, metering.MaxUsageScale).Draw(t, "scale")
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			next := total.Add(metering.Whole(rapid.Int64Range(-1_000_000, 5_000_000).Draw(t, "ten-millionths")).Mul(decimal(t, "0.0000001")))
			sent, total = sent.Add(billing.UnitsBetween(total, next, scale)), next
		}
		require.Equal(t, billing.Units(total, scale).String(), sent.String())
	})
}

// With a destination of Counting Latest, a reported quantity is the sum of two periods. The later period is reported
// again if its own part changed, even if the sum is unchanged.
func TestLatestQuantityIsReportedAgainWhenItsPartsChange(t *testing.T) {
	t.Parallel()
	january, february := span(t, "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"), span(t, "2026-02-01T00:00:00Z", "2026-02-15T00:00:00Z")
	subscription := billing.Subscription{ID: "sub_1", Range: span(t, "2026-01-15T00:00:00Z", "2026-02-15T00:00:00Z")}
	reported := func(period metering.Range, value, quantity string) billing.Reported {
		return billing.Reported{
			Series: billing.Series{
				Kind: billing.QuantityReport, Connection: 1, Customer: "cus_1", Target: "seats", Method: "last", Counting: billing.Latest,
				Period: period.Start, Window: period.Intersect(subscription.Range),
			},
			MeterID: 1, Taken: billing.Sums{Any: true, Value: decimal(t, value), Quantity: decimal(t, quantity)},
			Last: uuid.UUID{byte(period.Start.Month())}, State: billing.Counted,
		}
	}
	facts := billing.Facts{
		Now: instant(t, "2026-02-02T00:00:00Z"), Customer: billing.Customer{CreatedAt: january.Start},
		Settings:   billing.Settings{Timezone: location(t, "UTC"), Currency: "USD"},
		Meters:     []metering.Meter{{ID: 1, Version: metering.MeterVersion{Status: metering.Complete}}},
		Connection: &billing.Connection{ID: 1},
		Side: &billing.Side{Customer: "cus_1", Subscription: "sub_1", Period: subscription.Range, Destinations: []billing.Destination{
			{MeterID: 1, Target: "seats", Method: "last", Counting: billing.Latest},
		}},
		Stored: []billing.Period{{ID: 1, Range: january, Subscription: subscription}, {ID: 2, Range: february, Subscription: subscription}},
		Usage: []billing.Usage{
			{Period: january.Start, MeterID: 1, Total: decimal(t, "4"), Events: 1}, {Period: february.Start, MeterID: 1, Total: decimal(t, "3"), Events: 2},
		},
		Reported: []billing.Reported{reported(january, "4", "4"), reported(february, "7", "7")},
	}
	plan := billing.NewBooks(facts).Plan()
	require.Len(t, plan.Reports, 1)
	require.Equal(t, february.Start, plan.Reports[0].Period)
	require.Equal(t, "7", plan.Reports[0].Quantity.String())
	require.Equal(t, "3", plan.Reports[0].Lines[0].Quantity.String())

	facts.Reported[1].Taken.Value = decimal(t, "3")
	require.Empty(t, billing.NewBooks(facts).Plan().Reports)
}

// With a destination of Counting Latest, a changed total of an earlier period causes a new report of the current
// period, if the current period was reported before.
func TestLatestQuantityIsReportedAgainAfterEarlierPeriodChanges(t *testing.T) {
	t.Parallel()
	ofSubscription := metering.Range{Start: january.Start.AddDate(0, 0, 9), End: february.Start.AddDate(0, 0, 9)}
	next := billing.Period{Range: february, Subscription: billing.Subscription{ID: "sub_1", Range: ofSubscription}}
	f := atMeters(ofSubscription, knownOf(february.Start.AddDate(0, 0, 2), closedAt(january, "6", "600"), next))
	f.Side.Destinations[0].Counting = billing.Latest
	before := counted(january, "6")
	before.Counting, before.Window.Start = billing.Latest, ofSubscription.Start
	f.Reported = []billing.Reported{before}
	require.Empty(t, billing.NewBooks(f).Plan().Reports, "nothing was used, and nothing reported")

	f.Usage = []billing.Usage{used(february, "3")}
	last := counted(february, "3")
	last.Counting, last.Taken.Quantity = billing.Latest, metering.Whole(7)
	f.Reported = append(f.Reported, last)
	reports := billing.NewBooks(f).Plan().Reports
	require.Len(t, reports, 1)
	require.Equal(t, "9", reports[0].Quantity.String())

	f.Reported[1].Taken.Quantity = metering.Whole(9)
	require.Empty(t, billing.NewBooks(f).Plan().Reports)
}
