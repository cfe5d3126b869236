package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// What was accepted before a meter moved to another subscription is on the former
// one's invoice or on none, whatever the later one's names.
func TestWhatWasAcceptedBeforeAMeterMovedIsOnTheFormerInvoice(t *testing.T) {
	t.Parallel()
	later := ofAnother(renewal("0"))
	later.Period = metering.Range{Start: january.Start.AddDate(0, 0, 14), End: january.Start.AddDate(0, 0, 19)}
	for name, c := range map[string]struct {
		former billing.Invoice
		want   string
	}{
		"it has no line of it any more": {without(renewal("10")), "carried 0 invoiced, 0 unexplained, 0 billed: accepted, not billed; carried 1000"},
		"it has one":                    {renewal("10"), "agreed 10 invoiced, 0 unexplained, 10 billed; carried 0"},
	} {
		for _, invoices := range [][]billing.Invoice{{c.former, later}, {later, c.former}} {
			f := closedWith("10")
			f.Invoices = invoices
			f.Reconcile()
			require.Equal(t, c.want, reconciledAs(f), name)
		}
	}
}

// A subscription that was cut short where the period's own began keeps nobody
// waiting for an invoice.
func TestASubscriptionThatWasCutShortBillsNothingOfTheNextOne(t *testing.T) {
	t.Parallel()
	f := closedWith("10")
	december := metering.Range{Start: january.Start.AddDate(0, 0, -10), End: january.Start}
	f.Stored = append([]billing.Period{{
		ID: 9, Range: december, ClosedAt: &january.End, Complete: true,
		Subscription: billing.Subscription{ID: "sub_0", Range: metering.Range{Start: december.Start, End: january.Start.AddDate(0, 0, 20)}, Connection: first},
	}}, f.Stored...)
	f.Invoices = []billing.Invoice{without(renewal("10"))}
	f.Reconcile()
	require.Equal(t, "carried 0 invoiced, 0 unexplained, 0 billed: accepted, not billed; carried 1000", reconciledAs(f))
}

// A line of a meter that has fed another stream all the time says nothing of this one.
func TestALineOfAnotherStreamIsNotBilledHere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from time.Time
		want string
	}{
		"it fed another": {january.Start, "carried 0 invoiced, 0 unexplained, 0 billed: accepted, not billed; carried 1000"},
		"it fed both":    {january.End.Add(-time.Hour), "disputed 41 invoiced, 31 unexplained, 10 billed: billed more than reported; carried 0"},
	} {
		f := closedWith("10")
		f.Feeds = []billing.Feed{{MeterID: 1, Stream: 1, From: c.from}}
		f.Invoices = []billing.Invoice{renewal("41")}
		f.Reconcile()
		require.Equal(t, c.want, reconciledAs(f), name)
	}
}
