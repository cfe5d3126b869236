package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Usage that no price by dimension matches is unrated if a price by dimension charges the meter. No such price
// charges a meter if the period bills quantities or is a trial, or during a backfill.
func TestUsageThatNoPriceByDimensionMatchesIsUnrated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		otherwise string
		change    func(*billing.Facts)
		terms     bool
		unrated   bool
	}{
		"AtAReceiver":      {"null", func(*billing.Facts) {}, true, true},
		"WithoutAProvider": {"null", func(f *billing.Facts) { f.Connection = nil }, true, true},
		"InAmounts": {"null", func(f *billing.Facts) {
			*f = atMeters(february, *f)
			f.Stored[0].Bills = metering.BillsAmounts
		}, true, true},
		"InQuantities":       {"null", func(f *billing.Facts) { *f = atMeters(february, *f) }, false, false},
		"InATrial":           {"null", func(f *billing.Facts) { f.Stored[0].Subscription.Trial = true }, false, false},
		"WhileItIsCounted":   {"null", func(f *billing.Facts) { f.Meters[0].Version.Status = metering.Backfilling }, false, false},
		"WithADefault":       {`{"overage_rate":2}`, func(*billing.Facts) {}, true, false},
		"WithOnePrice":       {"null", func(f *billing.Facts) { f.Prices[1][0].Dimensions = nil }, false, false},
		"WithoutSuchUsage":   {"null", func(f *billing.Facts) { f.Usage[0].Dimensions = f.Usage[0].Dimensions[1:] }, true, false},
		"BeforeTheFirstOnes": {"null", func(f *billing.Facts) { f.Customer.BillingStartsAt, f.Stored = &march.Start, nil }, true, false},
	} {
		f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 9), billing.Period{Range: february}))
		f.Prices[1][0].Terms = byModel(t, c.otherwise)
		f.Usage = []billing.Usage{{
			Period: february.Start, MeterID: 1, Total: metering.Whole(5), Events: 4,
			Dimensions: []billing.DimensionUsage{byGroup("other", "3", 2), byGroup("large", "2", 2)},
		}}
		c.change(&f)
		unrated := billing.UnratedFacts{Facts: f, Linked: true, Since: january.Start}
		period := billing.Period{Range: february}
		if len(f.Stored) > 0 {
			period = f.Stored[0]
		}
		var terms []metering.MeterID
		for _, of := range unrated.DimensionTerms(period) {
			require.Equal(t, february, of.Period, name)
			require.Equal(t, byModel(t, c.otherwise), of.Terms, name)
			terms = append(terms, of.MeterID)
		}
		require.Equal(t, c.terms, len(terms) == 1, name)
		var lines []billing.UnratedLine
		for _, l := range unrated.Lines(period) {
			if l.Reason == billing.UnpricedDimension {
				lines = append(lines, l)
			}
		}
		require.Equal(t, c.unrated, len(lines) == 1, name)
		if c.unrated {
			require.Equal(t, []any{"3", int64(2), ""}, []any{lines[0].Usage.String(), lines[0].Events, lines[0].Currency}, name)
			require.Nil(t, lines[0].Estimate, name)
			require.Equal(t, february, unrated.Periods()[len(unrated.Periods())-1].Range, name)
		}
	}
}
