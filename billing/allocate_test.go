package billing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

// TestInvoicedUnitsAreAllocatedToOlderSeriesFirst divides invoiced units among two series, the older one first. A
// report with an unknown outcome adds 10 units to a series that is outstanding.
func TestInvoicedUnitsAreAllocatedToOlderSeriesFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		invoiced     int64
		void         bool
		older, newer int64 // accepted
		outstanding  bool
		want         [2]int64
		wantVoid     [2]int64
		more         int64
	}{
		"All":                              {invoiced: 50, older: 30, newer: 20, want: [2]int64{30, 20}},
		"TheNewestLacksUnits":              {invoiced: 35, older: 30, newer: 20, want: [2]int64{30, 5}},
		"BothLackUnits":                    {invoiced: 25, older: 30, newer: 20, want: [2]int64{25, 0}},
		"VoidUnitsOfTheNewest":             {invoiced: 35, void: true, older: 30, newer: 20, want: [2]int64{30, 20}, wantVoid: [2]int64{0, 15}},
		"TheRestIsFromAnotherSource":       {invoiced: 57, older: 30, newer: 20, want: [2]int64{30, 20}, more: 7},
		"TheOldestOutstandingReportFirst":  {invoiced: 57, older: 30, newer: 20, outstanding: true, want: [2]int64{37, 20}},
		"TheRestOfBothOutstandingReports":  {invoiced: 73, older: 30, newer: 20, outstanding: true, want: [2]int64{40, 30}, more: 3},
		"ANegativeTotalIsBilledAsZero":     {older: 30, newer: -40, want: [2]int64{30, -30}},
		"TheDecreaseOfTheNewestIsNotThere": {invoiced: 30, older: 30, newer: -40, want: [2]int64{30, 0}},
	} {
		var series []*Reported
		for _, accepted := range []int64{c.older, c.newer} {
			r := &Reported{Series: Series{Kind: QuantityReport, Counting: Adds}, Outstanding: c.outstanding}
			r.Taken = Sums{Any: true, Added: metering.Whole(accepted)}
			if r.Standing = r.Taken; c.outstanding {
				r.Standing.Added = metering.Whole(accepted + 10)
			}
			series = append(series, r)
		}
		shares, more := allocate(metering.Whole(c.invoiced), c.void, series)
		require.Len(t, shares, 2)
		for n, share := range shares {
			require.Equal(t, metering.Whole(c.want[n]).String(), share.units.String(), name)
			require.Equal(t, metering.Whole(c.wantVoid[n]).String(), share.void.String(), name)
			require.Nil(t, series[n].Invoiced, "no series is changed")
		}
		require.Equal(t, metering.Whole(c.more).String(), more.String(), name)
	}
}
