package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// A meter is unrated in a period if nothing bills it, and if it has events or its price has a charge.
func TestUnratedLinesHaveEventsOrCharge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events   int64
		terms    billing.Terms
		receiver bool
		want     []billing.UnratedReason
	}{
		"events with a charge":    {2, billing.Terms{OverageRate: metering.Whole(1), Currency: "USD"}, false, []billing.UnratedReason{billing.NoProvider}},
		"events without a charge": {2, billing.Terms{Currency: "USD"}, false, []billing.UnratedReason{billing.NoProvider}},
		"a base price alone":      {0, billing.Terms{BasePrice: metering.Whole(5), Currency: "USD"}, false, []billing.UnratedReason{billing.NoProvider}},
		"no events and no charge": {0, billing.Terms{OverageRate: metering.Whole(1), Currency: "USD"}, false, nil},
		"a receiver bills them":   {2, billing.Terms{OverageRate: metering.Whole(1), Currency: "USD"}, true, nil},
	} {
		f := knownOf(february.Start.AddDate(0, 0, 9), billing.Period{Range: february})
		if c.receiver {
			f = withStatementReceiver(first, f)
		}
		f.Prices[1][0].Terms = c.terms
		f.Usage = []billing.Usage{{Period: february.Start, MeterID: 1, Total: metering.Whole(c.events), Events: c.events}}
		var reasons []billing.UnratedReason
		for _, l := range (billing.UnratedFacts{Facts: f, Linked: true, Since: january.Start}).Lines(f.Stored[0]) {
			reasons = append(reasons, l.Reason)
		}
		require.Equal(t, c.want, reasons, name)
	}
}
