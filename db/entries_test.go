package db_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
)

// useStripe makes an account of Stripe's the tenant's provider.
func (b *biller) useStripe(account string) {
	b.Helper()
	_, err := b.store.Providers.Save(b.Context(), b.tenant, metering.Operator, metering.Provider{
		Kind: metering.Stripe, Account: account, SealedSecret: []byte("sealed"), LastFour: "abcd", ValidatedAt: b.now,
	})
	require.NoError(b, err)
}

// link gives the meter a place at Stripe: cus_1, subscribed for a period.
func (b *biller) link(account, subscription string, period metering.Range, destination billing.Destination) {
	b.Helper()
	b.exec(`update customers set billing_provider_id = 'cus_1' where tenant_id = $1 and id = $2`, b.tenant, b.customer.ID)
	destination.MeterID = b.meter.ID
	require.NoError(b, b.store.Links.Save(b.Context(), b.tenant, b.customer.ID, account, billing.Side{
		Customer: "cus_1", Subscription: subscription, Period: period, Destinations: []billing.Destination{destination},
	}, b.now))
}

var (
	calls    = map[string]string{"item_id": "si_1", "event_name": "calls"}
	asDelta  = billing.Destination{Method: stripe.MeterDelta, Counting: billing.Adds, Target: "mtr_1", Address: calls}
	asWindow = billing.Destination{Method: stripe.MeterWindow, Counting: billing.Replaces, Target: "mtr_1", Address: calls, NotNegative: true, Window: metering.Hour}
	asLast   = billing.Destination{Method: stripe.MeterLast, Counting: billing.Latest, Target: "mtr_1", Address: calls}
	asRecord = billing.Destination{Method: stripe.UsageRecord, Counting: billing.Replaces, Target: "si_1", Address: calls, WholeUnits: true, NotNegative: true, OnlyWhileRun: true}
)

func (b *biller) prepareEntries() db.PreparedEntries {
	b.Helper()
	prepared, err := b.store.Ledger.PrepareEntries(b.Context(), b.tenant, b.customer.ID, 1<<62,
		dbtest.Frame, b.now)
	require.NoError(b, err)
	return prepared
}

func (b *biller) settleEntry(id uuid.UUID, outcome metering.EntryStatus) {
	b.Helper()
	require.NoError(b, b.store.Ledger.SettleEntry(b.Context(), b.tenant, id, outcome, "tested", b.now))
}

func (b *biller) markEntry(id uuid.UUID) {
	b.Helper()
	_, err := b.store.Ledger.MarkEntrySent(b.Context(), b.tenant, id, b.now, lease)
	require.NoError(b, err)
}

// tell sends and confirms whatever there is, and returns the sum of what went out.
func (b *biller) tell() (sum metering.Decimal) {
	b.Helper()
	for {
		open := b.prepareEntries().Send
		if len(open) == 0 {
			return sum
		}
		for _, e := range open {
			b.markEntry(e.ID)
			b.settleEntry(e.ID, metering.EntryAcknowledged)
			require.NoError(b, b.store.Ledger.Confirm(b.Context(), b.tenant, []uuid.UUID{e.ID}, metering.EntryConfirmed, "tested"))
			sum = sum.Add(e.Quantity)
		}
	}
}

func TestWindowsAreWorthOnlyWhatOthersHaveNotBilled(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.exec(`delete from meter_prices where tenant_id = $1`, b.tenant)
	b.price("3", "0", "1")
	b.use("10")
	require.Equal(t, "13", b.acknowledge().Data.Meters[0].Amount.String())
	b.useStripe("acct_1")
	b.now = b.now.Add(10 * time.Minute)
	b.link("acct_1", "sub_1", month, asWindow)
	b.use("7")
	require.Equal(t, "7", b.tell().String())
	b.useProvider("https://billing.example.com/usage")
	b.use("1")
	m := b.acknowledge()
	require.Equal(t, "11", m.Data.Meters[0].Usage.String())
	require.Equal(t, "14", m.Data.Meters[0].Amount.String())
}

func TestASubscriptionThatBeganEarlierIsNotToldAgain(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t) // the 15th
	b.acknowledge()
	b.useStripe("acct_1")
	b.use("10")
	b.link("acct_1", "sub_new", metering.Range{Start: month.Start.AddDate(0, 0, 12), End: month.Start.AddDate(0, 0, 12+30)}, asDelta)
	require.Equal(t, "10", b.tell().String())
	b.now = b.now.Add(time.Hour)
	b.link("acct_1", "sub_old", metering.Range{Start: month.Start.AddDate(0, 0, 5), End: month.Start.AddDate(0, 0, 5+30)}, asDelta)
	require.Equal(t, "0", b.tell().String(), "Stripe adds up the meter's events since the earlier start")
	b.use("1")
	require.Equal(t, "1", b.tell().String())
}

func TestUsageOfTheNextWindowIsNotForgotten(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("acct_1", "sub_1", month, asWindow)
	b.now = b.now.Add(50 * time.Minute)
	b.use("1")
	b.useAt("2", b.now.Add(20*time.Minute)) // somebody's clock is ahead
	require.Equal(t, "1", b.tell().String())
	b.now = b.now.Add(30 * time.Minute)
	page, err := b.store.Ledger.Due(t.Context(), b.tenant, 0, 10, b.now)
	require.NoError(t, err)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, page.Customers)
	require.Equal(t, "2", b.tell().String())
}

func TestAnInvoiceOfThePeriodBeforeTheLinkClosesNothing(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("10")
	b.acknowledge()
	b.useStripe("acct_1")
	renewed := b.now
	b.now = b.now.Add(30 * time.Minute)
	b.link("acct_1", "sub_1", metering.Range{Start: renewed, End: renewed.AddDate(0, 1, 0)}, asDelta)
	b.use("10")
	b.tell()
	require.NoError(t, b.store.Invoices.Save(t.Context(), b.tenant, b.customer.ID, metering.Invoice{
		ID: "in_1", Account: "acct_1", Subscription: "sub_1", Status: "open", Reason: "subscription_cycle", Renewal: true, Currency: "USD",
		Period: metering.Range{Start: renewed.AddDate(0, -1, 0), End: renewed}, CreatedAt: renewed, FinalizedAt: renewed.Add(time.Hour),
	}, b.now))
	require.Equal(t, db.Closing{}, b.closePeriods(), "%s has not even ended", month)
	b.use("10")
	require.Equal(t, "10", b.tell().String())
}

func TestAPeriodIsNotClosedWhileAnEntryIsOnItsWay(t *testing.T) {
	t.Parallel()
	for _, item := range []billing.Destination{asRecord, asDelta} {
		for outcome, late := range map[metering.EntryStatus]string{metering.EntryAcknowledged: "0", metering.EntryRejected: "0.25"} {
			b, month := newOldBiller(t)
			b.useStripe("acct_1")
			b.link("acct_1", "sub_1", month, item)
			b.use("150")
			unheard := b.prepareEntries().Send[0].ID
			b.markEntry(unheard)
			b.now = month.End.Add(2 * time.Hour)
			b.link("acct_1", "sub_1", metering.Range{Start: month.End, End: month.End.AddDate(0, 1, 0)}, item)
			b.invoiced(month)
			require.Zero(t, b.closePeriods().Closed, item.Method)
			sending, err := b.store.Ledger.MarkEntrySent(t.Context(), b.tenant, unheard, b.now, lease)
			require.NoError(t, err)
			require.True(t, sending.Invoiced)
			b.settleEntry(unheard, outcome)
			require.Equal(t, 1, b.closePeriods().Closed)
			require.Equal(t, late, b.tell().String(), "150 of which 100 are included, at half a cent, where the invoice has none of it")
		}
	}
}

func TestLastCountsAllOfASubscriptionsPeriod(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("10")
	b.acknowledge()
	b.useStripe("acct_1")
	sub := metering.Range{Start: b.now, End: b.now.AddDate(0, 1, 0)}
	item := asLast
	b.link("acct_1", "sub_1", sub, item)
	b.use("5")
	require.Equal(t, "5", b.tell().String())
	b.now = month.End.Add(time.Hour)
	b.use("3")
	require.Equal(t, "8", b.tell().String(), "Stripe bills the subscription's period by the last event")
	require.Empty(t, b.prepareEntries().Send)

	b.useAt("1", month.End.Add(-time.Hour)) // in the grace of our former period
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.due())
	var told []string
	for open := b.prepareEntries().Send; len(open) > 0; open = b.prepareEntries().Send {
		for _, e := range open {
			b.settleEntry(e.ID, metering.EntryAcknowledged)
			told = append(told, e.Quantity.String())
		}
	}
	require.Equal(t, []string{"6", "9"}, told)
	counted, err := b.store.Ledger.Unconfirmed(t.Context(), b.tenant, b.customer.ID, b.now)
	require.NoError(t, err)
	require.Equal(t, []string{"6", "9"}, []string{counted[0].Total.String(), counted[1].Total.String()}, "what Stripe shows of each")

	b.now = sub.End.Add(time.Hour)
	next := metering.Range{Start: sub.End, End: sub.End.AddDate(0, 1, 0)}
	b.link("acct_1", "sub_1", next, item)
	b.use("2")
	require.Equal(t, "2", b.tell().String(), "a new period of the subscription's begins at nothing")
}
