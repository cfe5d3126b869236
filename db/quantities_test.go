package db_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
)

// useStripe makes a Stripe account the tenant's provider.
func (b *biller) useStripe(account string) {
	b.Helper()
	b.connectTo(metering.Provider{Kind: metering.Stripe, Invoices: true, Account: account})
}

// useMode makes a Stripe account the tenant's provider, in live or test mode.
func (b *biller) useMode(account string, live bool) {
	b.Helper()
	b.connectTo(metering.Provider{Kind: metering.Stripe, Invoices: true, Account: account, Livemode: &live})
}

// link stores the customer's state at Stripe: cus_1 with a subscription in a period, and a destination of the meter.
func (b *biller) link(subscription string, period metering.Range, destination billing.Destination) {
	b.Helper()
	b.linkAs("cus_1", subscription, period, destination)
}

// linkAs links the biller's customer to a customer at Stripe, and stores its subscription as a sync pass reads it.
func (b *biller) linkAs(customer, subscription string, period metering.Range, destination billing.Destination) {
	b.Helper()
	b.exec(`update customers set billing_provider_id = $3 where tenant_id = $1 and id = $2`, b.tenant, b.customer.ID, customer)
	destination.MeterID = b.meter.ID
	require.NoError(b, b.store.Links.Save(b.Context(), b.tenant, b.customer.ID, b.connection, billing.Side{
		Customer: customer, Subscription: subscription, Period: period, Destinations: []billing.Destination{destination},
	}, b.now))
}

var (
	calls    = map[string]string{"item_id": "si_1", "event_name": "calls"}
	asDelta  = billing.Destination{Method: stripe.MeterDelta, Counting: billing.Adds, Target: "mtr_1", Address: calls}
	asWindow = billing.Destination{Method: stripe.MeterWindow, Counting: billing.Replaces, Target: "mtr_1", Address: calls, NotNegative: true, Window: metering.Hour}
	asLast   = billing.Destination{Method: stripe.MeterLast, Counting: billing.Latest, Target: "mtr_1", Address: calls}
	asRecord = billing.Destination{Method: stripe.UsageRecord, Counting: billing.Replaces, Target: "si_1", Address: calls, WholeUnits: true, NotNegative: true, OnlyWhileRun: true}
)

// counted marks a report as accepted, and then as counted by the provider.
func (b *biller) counted(report uuid.UUID) {
	b.Helper()
	b.complete(report, billing.Accepted)
	b.observe(billing.Counted, report)
}

// reportAll sends reports until none is left, marks them as counted, and returns the sum of their quantities.
func (b *biller) reportAll() (sum metering.Decimal) {
	b.Helper()
	for {
		send := b.plan(anew).Send
		if len(send) == 0 {
			return sum
		}
		for _, r := range send {
			b.lease(r.ID)
			b.counted(r.ID)
			sum = sum.Add(*r.Quantity)
		}
	}
}

func TestPlanReportsThatCustomerStateMustBeReadFirst(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("10")
	former := b.next(anew).ID
	b.useStripe("acct_1")
	require.Equal(t, ledger.Planned{ReadFirst: true}, b.plan(anew))
	state, _ := b.state(former)
	require.Equal(t, billing.Planned, state, "nothing else is planned")
	b.link("sub_1", month, asDelta)
	require.False(t, b.plan(anew).ReadFirst)
	b.reportAll()
	require.Empty(t, b.outOfSync())
	b.exec(`update customers set billing_provider_id = 'cus_2' where tenant_id = $1`, b.tenant)
	require.NotEmpty(t, b.outOfSync())
	require.Equal(t, ledger.Planned{ReadFirst: true}, b.plan(anew), "the totals of cus_2 must be read first")
}

func TestWindowsExcludeUsageBilledByOtherConnections(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.exec(`delete from meter_prices where tenant_id = $1`, b.tenant)
	b.price("3", "0", "1")
	b.use("10")
	require.Equal(t, "13", b.accept().Data.Meters[0].Amount.String())
	b.useStripe("acct_1")
	b.now = b.now.Add(10 * time.Minute)
	b.link("sub_1", month, asWindow)
	b.use("7")
	require.Equal(t, "7", b.reportAll().String())
	b.useProvider("https://billing.example.com/usage")
	b.use("1")
	m := b.accept()
	require.Equal(t, "11", m.Data.Meters[0].Usage.String())
	require.Equal(t, "14", m.Data.Meters[0].Amount.String())
}

func TestUsageIsNotReportedAgainToSubscriptionWithEarlierStart(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t) // the clock shows the 15th
	b.accept()
	b.useStripe("acct_1")
	b.use("10")
	b.link("sub_new", metering.Range{Start: month.Start.AddDate(0, 0, 12), End: month.Start.AddDate(0, 0, 12+30)}, asDelta)
	require.Equal(t, "10", b.reportAll().String())
	b.now = b.now.Add(time.Hour)
	b.link("sub_old", metering.Range{Start: month.Start.AddDate(0, 0, 5), End: month.Start.AddDate(0, 0, 5+30)}, asDelta)
	require.Equal(t, "0", b.reportAll().String(), "Stripe adds up the meter's events since the earlier start")
	b.use("1")
	require.Equal(t, "1", b.reportAll().String())
}

func TestUsageAheadOfClockIsReportedInNextWindow(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, asWindow)
	b.now = b.now.Add(50 * time.Minute)
	b.use("1")
	b.useAt("2", b.now.Add(20*time.Minute)) // the sender's clock is ahead
	require.Equal(t, "1", b.reportAll().String())
	b.now = b.now.Add(30 * time.Minute)
	page, err := b.store.Ledger.OutOfSync(t.Context(), b.tenant, 0, 10, b.now)
	require.NoError(t, err)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, page.Customers)
	require.Equal(t, "2", b.reportAll().String())
}

func TestInvoiceOfPeriodBeforeLinkDoesNotClosePeriod(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("10")
	b.accept()
	b.useStripe("acct_1")
	renewed := b.now
	b.now = b.now.Add(30 * time.Minute)
	b.link("sub_1", metering.Range{Start: renewed, End: renewed.AddDate(0, 1, 0)}, asDelta)
	b.use("10")
	b.reportAll()
	b.invoiced(metering.Range{Start: renewed.AddDate(0, -1, 0), End: renewed}, "0")
	require.Equal(t, ledger.Closing{}, b.closePeriods(), "%s has not ended", month)
	b.use("10")
	require.Equal(t, "10", b.reportAll().String())
}

func TestUndecidedQuantityDoesNotDelayClosing(t *testing.T) {
	t.Parallel()
	for _, item := range []billing.Destination{asRecord, asDelta} {
		for outcome, late := range map[billing.State]string{billing.Accepted: "0", billing.Rejected: "0.25"} {
			b, month := newOldBiller(t)
			b.useStripe("acct_1")
			b.link("sub_1", month, item)
			b.use("150")
			unheard := b.next(anew).ID
			b.lease(unheard)
			b.now = month.End.Add(2 * time.Hour)
			b.link("sub_1", metering.Range{Start: month.End, End: month.End.AddDate(0, 1, 0)}, item)
			b.invoiced(month, map[billing.State]string{billing.Accepted: "150", billing.Rejected: "0"}[outcome])
			b.now = over(month)
			require.True(t, b.lease(unheard).Invoiced)
			require.Equal(t, 1, b.closePeriods().Closed, item.Method)
			state, _ := b.state(unheard)
			require.Equal(t, billing.Sending, state, "its lease has not ended")
			b.now = b.now.Add(lease)
			b.plan(anew)
			state, _ = b.state(unheard)
			require.Equal(t, outcome, state, "the outcome that the invoice shows")
			require.Equal(t, late, b.reportAll().String(), "if the invoice does not bill the 150 units, 50 are charged at half a cent")
		}
	}
}

func TestLastAggregationReportsTotalOfSubscriptionPeriod(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("10")
	b.accept()
	b.useStripe("acct_1")
	sub := metering.Range{Start: b.now, End: b.now.AddDate(0, 0, 31)}
	item := asLast
	b.link("sub_1", sub, item)
	b.use("5")
	require.Equal(t, "5", b.reportAll().String())
	b.now = month.End.Add(time.Hour)
	b.use("3")
	require.Equal(t, "8", b.reportAll().String(), "Stripe bills the subscription's period by the last event")
	require.Empty(t, b.plan(anew).Send)

	b.useAt("1", month.End.Add(-time.Hour)) // within the grace of the customer's previous period
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync())
	var reported []string
	for open := b.plan(anew).Send; len(open) > 0; open = b.plan(anew).Send {
		for _, e := range open {
			b.complete(e.ID, billing.Accepted)
			reported = append(reported, e.Quantity.String())
		}
	}
	require.Equal(t, []string{"6", "9"}, reported)
	counted := b.uncounted(b.now)
	require.Equal(t, []string{"6", "9"}, []string{counted[0].Total.String(), counted[1].Total.String()}, "the totals that Stripe shows")

	b.now = sub.End.Add(time.Hour)
	next := metering.Range{Start: sub.End, End: sub.End.AddDate(0, 1, 0)}
	b.link("sub_1", next, item)
	b.use("2")
	require.Equal(t, "2", b.reportAll().String(), "a new period of the subscription begins at 0")
}
