package db_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// linkTo stores the state of cus_1 at Stripe as a sync pass reads it. Reports of the biller's meter add up at Stripe.
func (b *biller) linkTo(side billing.Side) {
	b.Helper()
	side.Customer, side.Destinations = "cus_1", []billing.Destination{asDelta}
	side.Destinations[0].MeterID = b.meter.ID
	require.NoError(b, b.store.Links.Save(b.Context(), b.tenant, b.customer.ID, b.connection, side, b.now))
}

// newReported returns a biller with a subscriber of whom three units are reported, and the subscriber's side. The side
// was read again after the report.
func newReported(t *testing.T) (*biller, billing.Side) {
	t.Helper()
	b, month := newSubscriber(t, asDelta)
	b.use("3")
	side := billing.Side{Subscription: "sub_1", Period: month, Currency: "USD"}
	b.linkTo(side)
	require.Equal(t, []string{"meter_delta 3"}, b.reportEach())
	b.linkTo(side)
	return b, side
}

// nextMonth returns the month after a month.
func nextMonth(month metering.Range) metering.Range {
	return metering.Range{Start: month.End, End: month.End.AddDate(0, 1, 0)}
}

func TestTrialPeriodAndItsLateUsageCostNothing(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	b.linkTo(billing.Side{Subscription: "sub_1", Period: month, Currency: "USD", Trial: true})
	b.use("3")
	require.Equal(t, []string{"meter_delta 3"}, b.reportEach())
	b.now = over(month)
	b.linkTo(billing.Side{Subscription: "sub_1", Period: nextMonth(month), Currency: "USD"})
	b.reportEach()
	require.Equal(t, ledger.Closing{Closed: 1}, b.closePeriods())
	require.Equal(t, "3 to 0 decimals for 0", b.closed(month))

	b.useAt("2", month.Start.AddDate(0, 0, 20))
	require.Empty(t, b.reportEach(), "late usage is not charged either")
	var units, charge metering.Decimal
	b.scan(`select units - units_before, charge from billing_adjustments where tenant_id = $1`, []any{b.tenant}, &units, &charge)
	require.Equal(t, []string{"2", "0"}, []string{units.String(), charge.String()})
	require.Empty(t, b.outOfSync())
}

func TestEndedSubscriptionStillGetsUsageBeforeLastInvoice(t *testing.T) {
	t.Parallel()
	b, side := newReported(t)
	require.Empty(t, b.outOfSync())
	side.Ended = true
	b.linkTo(side)
	require.NotEmpty(t, b.outOfSync(), "the state at the provider has changed")
	b.now = over(side.Period)
	b.useAt("2", side.Period.Start.AddDate(0, 0, 20))
	require.Equal(t, []string{"meter_delta 2"}, b.reportEach(), "the last invoice of the subscription can bill the usage")
}

func TestLateUsageWaitsForASubscriptionInItsCurrency(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	b.linkTo(billing.Side{Subscription: "sub_1", Period: month, Currency: "EUR"})
	b.use("3")
	require.Equal(t, []string{"meter_delta 3"}, b.reportEach())
	b.now = over(month)
	euros := billing.Side{Subscription: "sub_1", Period: nextMonth(month), Currency: "EUR"}
	b.linkTo(euros)
	b.reportEach()
	require.Equal(t, ledger.Closing{Closed: 1}, b.closePeriods())
	b.linkTo(euros)
	require.Empty(t, b.outOfSync(), "the read returned no new state")
	require.Equal(t, "3 to 0 decimals for 300", b.closed(month))

	b.useAt("2", month.Start.AddDate(0, 0, 20))
	planned := b.plan(anew)
	require.Empty(t, planned.Send)
	require.Len(t, planned.Excluded, 1)
	require.Equal(t, billing.ExcludedLateCurrency, planned.Excluded[0].Code)
	require.Empty(t, b.outOfSync(), "the adjustment is booked, and no report is due")

	euros.Currency = "USD"
	b.linkTo(euros)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync(), "the currency has changed")
	require.Equal(t, []string{"charge 200"}, b.reportEach())
	require.Empty(t, b.outOfSync())
}
