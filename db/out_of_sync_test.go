package db_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

func (b *biller) outOfSync() []metering.CustomerID {
	b.Helper()
	page, err := b.store.Ledger.OutOfSync(b.Context(), b.tenant, 0, 100, b.now)
	require.NoError(b, err)
	require.False(b, page.More)
	return page.Customers
}

func TestACustomerIsDueUntilTheProviderKnowsOfEverything(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	due := []metering.CustomerID{b.customer.ID}
	require.Equal(t, due, b.outOfSync(), "nothing was ever told")
	b.use("1")
	sent := b.next(0)
	b.lease(sent.ID)
	require.Equal(t, due, b.outOfSync(), "it is not settled")
	b.complete(sent.ID, billing.Accepted)
	require.Empty(t, b.outOfSync())

	b.use("1")
	require.Equal(t, due, b.outOfSync(), "an event")
	b.accept()
	require.Empty(t, b.outOfSync())
	b.use("0")
	require.Equal(t, due, b.outOfSync(), "an event of nothing is still an event")
	b.accept()
	b.price("1", "0", "1")
	require.Equal(t, due, b.outOfSync(), "a price")
	b.accept()
	b.price("2", "0", "2")
	require.Empty(t, b.outOfSync(), "a price for periods to come")
	dbtest.Meter(t, b.store, b.tenant, "storage", "stored")
	require.Equal(t, due, b.outOfSync(), "a meter")
	b.accept()
	b.useProvider("https://other.example.com/")
	require.Equal(t, due, b.outOfSync(), "another account")
	b.accept()
	require.Empty(t, b.outOfSync())
	refused := b.sendNew("5")
	b.complete(refused.ID, billing.Rejected)
	require.Equal(t, due, b.outOfSync(), "a refusal")
	b.accept()
	b.now = billing.CalendarPeriod(b.now, time.UTC).End
	require.Equal(t, due, b.outOfSync(), "another month")
	b.acceptAll()
	require.Empty(t, b.outOfSync())
}

func (b *biller) sendNew(value string) db.Report {
	b.Helper()
	b.use(value)
	sent := b.next(anew)
	b.lease(sent.ID)
	return sent
}

func TestUsageThatArrivesLateMakesItsCustomerDue(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("100")
	b.now = over(month)
	b.acceptAll()
	b.closePeriods()
	require.Empty(t, b.outOfSync())
	b.useAt("100", month.Start.AddDate(0, 0, 20))
	require.NotEmpty(t, b.outOfSync())
	b.acceptAll()
	require.Empty(t, b.outOfSync())
}

func TestCustomersOutOfSyncComeInPagesAndOfOneTenant(t *testing.T) {
	t.Parallel()
	b, other := newBiller(t), newBiller(t)
	want := []metering.CustomerID{b.customer.ID}
	for i := range 6 {
		want = append(want, dbtest.Customer(t, b.store, b.tenant, fmt.Sprint("customer-", i)).ID)
	}
	var got []metering.CustomerID
	page := db.CustomerPage{More: true}
	for page.More {
		var err error
		page, err = b.store.Ledger.OutOfSync(t.Context(), b.tenant, page.Last, 3, b.now)
		require.NoError(t, err)
		got = append(got, page.Customers...)
	}
	require.Equal(t, want, got)
	require.Equal(t, []metering.CustomerID{other.customer.ID}, other.outOfSync())
}

func TestAPeriodIsDueForClosingWhenItsGraceIsOver(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("1")
	duePeriods := func() db.CustomerPage {
		page, err := b.store.Ledger.DuePeriods(t.Context(), b.tenant, 0, 10, b.now)
		require.NoError(t, err)
		return page
	}
	b.now = over(month).Add(-time.Microsecond)
	require.Empty(t, duePeriods().Customers)
	b.now = over(month)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, duePeriods().Customers, "also where no sync has made its chain")
	tenants, err := b.store.Ledger.DueTenants(t.Context(), b.now)
	require.NoError(t, err)
	require.Contains(t, tenants, b.tenant)
	b.acceptAll()
	b.closePeriods()
	require.Empty(t, duePeriods().Customers)
	tenants, err = b.store.Ledger.DueTenants(t.Context(), b.now)
	require.NoError(t, err)
	require.NotContains(t, tenants, b.tenant)
}

func TestACustomerIsDueWhoseLateUsageIsToBeBilledAfterAll(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.exec(`update tenants set late_policy = 'report' where id = $1`, b.tenant)
	b.use("100")
	b.now = over(month)
	b.acceptAll()
	b.closePeriods()
	b.useAt("100", month.Start.AddDate(0, 0, 20))
	b.acceptAll()
	require.Empty(t, b.outOfSync())
	b.exec(`update tenants set late_policy = 'adjust' where id = $1`, b.tenant)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync())
	require.Len(t, adjustments(t, b.accept()), 1)
	require.Empty(t, b.outOfSync())
}

func TestACustomerIsOutOfSyncOnceItIsReadToBeElsewhere(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, asDelta)
	b.use("10")
	b.reportAll()
	b.link("sub_1", month, asDelta)
	require.Empty(t, b.outOfSync(), "nothing new was read")
	b.link("sub_1", month, asRecord)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync(), "whoever has read it may have died before planning")
}

func TestACustomerIsDueWhoseNewItemRefusesItsUsage(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, billing.Destination{Excluded: "no subscription item of the customer has its price"})
	b.use("10")
	b.reportAll()
	require.Empty(t, b.outOfSync(), "it can be told nowhere")
	b.link("sub_1", month, asDelta)
	sent := b.next(anew).ID
	b.lease(sent)
	b.complete(sent, billing.Rejected)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync())
	require.Equal(t, "10", b.reportAll().String())
	require.Empty(t, b.outOfSync())
}

func TestACustomerIsDueWhoseFormerEntryTurnsOutToBeTaken(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, asDelta)
	b.use("10")
	unheard := b.next(anew).ID
	b.lease(unheard)
	b.now = b.now.Add(lease)
	b.useStripe("acct_2")
	b.link("sub_1", month, asDelta)
	require.Equal(t, "10", b.reportAll().String(), "the other account is given up")
	require.Empty(t, b.outOfSync())
	b.complete(unheard, billing.Accepted)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync())
	require.Equal(t, "-10", b.reportAll().String())
	require.Empty(t, b.outOfSync())
}

func TestACustomerIsNotDueForWhatNobodyLooksForAnyMore(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.accept()
	b.useStripe("acct_1")
	b.link("sub_1", month, asDelta)
	b.use("10")
	sent := b.next(anew).ID
	b.lease(sent)
	b.complete(sent, billing.Accepted)
	b.link("sub_2", metering.Range{Start: b.now, End: b.now.AddDate(0, 1, 0)}, asDelta)
	b.reportAll()
	b.now = b.now.Add(25 * time.Hour)
	open, err := b.store.Ledger.Uncounted(t.Context(), b.tenant, b.customer.ID, b.now)
	require.NoError(t, err)
	require.Empty(t, open, "the former subscription's period has ended")
	require.Empty(t, b.outOfSync())
}
