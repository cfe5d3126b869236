package db_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// newSubscriber returns a biller with the clock in the middle of a month that ended long ago. The
// customer was created at that instant. The meter is reported to Stripe, at 100 a unit.
func newSubscriber(t *testing.T, destination billing.Destination) (b *biller, month metering.Range) {
	t.Helper()
	b = newBiller(t)
	month = billing.CalendarPeriod(clock.Month(clock.Now(), -5), time.UTC)
	b.created(month.Start.AddDate(0, 0, 14))
	b.price("0", "0", "100")
	b.useStripe("acct_1")
	b.subscribe(month, destination)
	return b, month
}

// subscribe stores the customer's subscription sub_1 at Stripe as a sync pass reads it.
func (b *biller) subscribe(period metering.Range, destination billing.Destination) {
	b.Helper()
	destination.Target = "mtr_1"
	b.link("sub_1", period, destination)
}

func (b *biller) decimals(n int32) {
	b.Helper()
	_, _, err := b.store.Meters.Update(b.Context(), b.tenant, metering.Operator, b.meter.Slug, catalog.MeterChange{UsageScale: &n})
	require.NoError(b, err)
}

// reportEach plans reports until none is left, and completes each as accepted and counted. It returns
// the method, or else the kind, and the quantity of each report.
func (b *biller) reportEach() (reported []string) {
	b.Helper()
	for {
		send := b.plan(anew).Send
		if len(send) == 0 {
			return reported
		}
		for _, r := range send {
			b.counted(r.ID)
			reported = append(reported, fmt.Sprintf("%s %s", cmp.Or(string(r.Method), string(r.Kind)), r.Quantity))
		}
	}
}

// invoiced stores a final invoice of Stripe that bills units of the period.
func (b *biller) invoiced(period metering.Range, units string) {
	b.Helper()
	b.save(b.final(b.bill("in_1", period, b.line(units, "0"))), b.now)
}

// closed returns the usage of a closed period, the number of decimals that it is charged with, and the
// charge.
func (b *biller) closed(period metering.Range) string {
	b.Helper()
	var usage, charge metering.Decimal
	var decimals int
	require.NoError(b, b.connect().QueryRow(b.Context(), `
		select t.usage, t.scale, t.charge
		from billing_period_totals t
		join billing_periods p on p.tenant_id = t.tenant_id and p.id = t.period_id
		where t.tenant_id = $1
		  and p.ends_at = $2`, b.tenant, period.End).Scan(&usage, &decimals, &charge))
	return fmt.Sprintf("%s to %d decimals for %s", usage, decimals, charge)
}

func TestChangeOfDecimalsReportsDifferenceToNewlyRoundedTotal(t *testing.T) {
	t.Parallel()
	b, _ := newSubscriber(t, asDelta)
	b.use("1.2345")
	require.Equal(t, []string{"meter_delta 1"}, b.reportEach())
	require.Empty(t, b.outOfSync())
	b.decimals(3)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync(), "the decimals have changed")
	require.Equal(t, []string{"meter_delta 0.234"}, b.reportEach())
	require.Empty(t, b.outOfSync())
	b.use("0.0004")
	require.Equal(t, []string{"meter_delta 0.001"}, b.reportEach()) // 1.2349 rounds to 1.235
	b.decimals(0)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync(), "the decimals have changed to 0")
	require.Equal(t, []string{"meter_delta -0.235"}, b.reportEach())
	require.Empty(t, b.outOfSync())
}

func TestUsageRecordsHaveWholeUnitsForAnyUsageScale(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asRecord)
	b.decimals(6)
	b.use("1.6")
	require.Equal(t, []string{"usage_record 2"}, b.reportEach())
	b.now = over(month)
	require.Equal(t, 1, b.closePeriods().Closed)
	require.Equal(t, "1.6 to 0 decimals for 200", b.closed(month))
}

func TestAClosedPeriodKeepsTheDecimalsThatItWasReportedWith(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	b.decimals(3)
	b.use("1.2345")
	require.Equal(t, []string{"meter_delta 1.234"}, b.reportEach())
	next := billing.CalendarPeriod(month.End, time.UTC)
	b.now = over(month)
	b.subscribe(next, asDelta)
	require.Equal(t, 1, b.closePeriods().Closed)
	require.Equal(t, "1.2345 to 3 decimals for 123.4", b.closed(month))

	b.decimals(0)
	require.Empty(t, b.reportEach(), "a closed period keeps its decimals")
	b.useAt("0.0004", month.Start.AddDate(0, 0, 20))
	require.Equal(t, []string{"charge 0.1"}, b.reportEach()) // 1.2349 rounds to 1.235, for 123.50; 123.40 were billed

	b.use("0.6")
	require.Equal(t, []string{"meter_delta 1"}, b.reportEach())
	b.now = over(next)
	b.subscribe(billing.CalendarPeriod(next.End, time.UTC), asDelta)
	require.Equal(t, 1, b.closePeriods().Closed)
	require.Equal(t, "0.6 to 0 decimals for 100", b.closed(next))

	b.decimals(6)
	require.Empty(t, b.reportEach(), "a closed period keeps its decimals")
	b.useAt("0.8", next.Start.AddDate(0, 0, 1))
	require.Empty(t, b.reportEach(), "1.4 are 1")
	b.useAt("0.2", next.Start.AddDate(0, 0, 1))
	require.Equal(t, []string{"charge 100"}, b.reportEach()) // 1.6 rounds to 2, for 200; 100 were billed
}

// TestUnreportedUsageIsChargedWithDecimalsOfClosedPeriod ingests usage between the final
// invoice and the closing. The period keeps three decimals, so the rest is charged to a thousandth of a
// unit.
func TestUnreportedUsageIsChargedWithDecimalsOfClosedPeriod(t *testing.T) {
	t.Parallel()
	b, month := newSubscriber(t, asDelta)
	b.decimals(3)
	b.use("1.2345")
	require.Equal(t, []string{"meter_delta 1.234"}, b.reportEach())
	b.now = month.End.Add(time.Hour)
	b.invoiced(month, "1.234")
	b.useAt("0.0016", month.Start.AddDate(0, 0, 20))
	b.subscribe(billing.CalendarPeriod(month.End, time.UTC), asDelta)
	b.decimals(0)
	b.invoiced(month, "1.234")
	require.Empty(t, b.reportEach(), "the invoice is final, with the decimals that it has")
	b.now = over(month)
	require.Equal(t, 1, b.closePeriods().Closed)
	require.Equal(t, "1.2361 to 3 decimals for 123.6", b.closed(month))
	require.Equal(t, []string{"charge 0.2"}, b.reportEach()) // 1.2361 rounds to 1.236, for 123.60; 123.40 are invoiced
}

// setDecimals changes the decimals of the meter, which do not affect reports to a webhook.
func (m *machine) setDecimals(t *rapid.T) {
	m.decimals(rapid.Int32Range(0, metering.MaxUsageScale).Draw(t, "decimals"))
}
