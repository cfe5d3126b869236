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

func (b *biller) due() []metering.CustomerID {
	b.Helper()
	page, err := b.store.Ledger.Due(b.Context(), b.tenant, 0, 100, b.now)
	require.NoError(b, err)
	require.False(b, page.More)
	return page.Customers
}

func TestACustomerIsDueUntilTheProviderKnowsOfEverything(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	due := []metering.CustomerID{b.customer.ID}
	require.Equal(t, due, b.due(), "nothing was ever told")
	b.use("1")
	sent := b.prepare(0).Send
	b.mark(sent)
	require.Equal(t, due, b.due(), "it is not settled")
	b.settle(sent.ID, db.Acknowledged)
	require.Empty(t, b.due())

	b.use("1")
	require.Equal(t, due, b.due(), "an event")
	b.acknowledge()
	require.Empty(t, b.due())
	b.use("0")
	require.Equal(t, due, b.due(), "an event of nothing is still an event")
	b.acknowledge()
	b.price("1", "0", "1")
	require.Equal(t, due, b.due(), "a price")
	b.acknowledge()
	b.price("2", "0", "2")
	require.Empty(t, b.due(), "a price for periods to come")
	dbtest.Meter(t, b.store, b.tenant, "storage", "stored")
	require.Equal(t, due, b.due(), "a meter")
	b.acknowledge()
	b.useProvider("https://other.example.com/")
	require.Equal(t, due, b.due(), "another account")
	b.acknowledge()
	require.Empty(t, b.due())
	refused := b.prepareNew("5")
	b.settle(refused.ID, db.Rejected)
	require.Equal(t, due, b.due(), "a refusal")
	b.acknowledge()
	b.now = billing.CalendarPeriod(b.now, time.UTC).End
	require.Equal(t, due, b.due(), "another month")
	b.acknowledgeAll()
	require.Empty(t, b.due())
}

func (b *biller) prepareNew(value string) *db.Snapshot {
	b.Helper()
	b.use(value)
	sent := b.prepare(1 << 62).Send
	b.mark(sent)
	return sent
}

func TestUsageThatArrivesLateMakesItsCustomerDue(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("100")
	b.now = over(month)
	b.acknowledgeAll()
	b.closePeriods()
	require.Empty(t, b.due())
	b.useAt("100", month.Start.AddDate(0, 0, 20))
	require.NotEmpty(t, b.due())
	b.acknowledgeAll()
	require.Empty(t, b.due())
}

func TestDueCustomersComeInPagesAndOfOneTenant(t *testing.T) {
	t.Parallel()
	b, other := newBiller(t), newBiller(t)
	want := []metering.CustomerID{b.customer.ID}
	for i := range 6 {
		want = append(want, dbtest.Customer(t, b.store, b.tenant, fmt.Sprint("customer-", i)).ID)
	}
	var got []metering.CustomerID
	page := db.DuePage{More: true}
	for page.More {
		var err error
		page, err = b.store.Ledger.Due(t.Context(), b.tenant, page.Last, 3, b.now)
		require.NoError(t, err)
		got = append(got, page.Customers...)
	}
	require.Equal(t, want, got)
	require.Equal(t, []metering.CustomerID{other.customer.ID}, other.due())
}

func TestAPeriodIsDueForClosingWhenItsGraceIsOver(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("1")
	duePeriods := func() db.DuePage {
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
	b.acknowledgeAll()
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
	b.acknowledgeAll()
	b.closePeriods()
	b.useAt("100", month.Start.AddDate(0, 0, 20))
	b.acknowledgeAll()
	require.Empty(t, b.due())
	b.exec(`update tenants set late_policy = 'adjust' where id = $1`, b.tenant)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.due())
	require.Len(t, adjustments(t, b.acknowledge()), 1)
	require.Empty(t, b.due())
}

func TestACustomerIsOutOfSyncOnceItIsReadToBeElsewhere(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("acct_1", "sub_1", month, asDelta)
	b.use("10")
	b.tell()
	b.link("acct_1", "sub_1", month, asDelta)
	require.Empty(t, b.due(), "nothing new was read")
	b.link("acct_1", "sub_1", month, asRecord)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.due(), "whoever has read it may have died before planning")
}

func TestACustomerIsDueWhoseNewItemRefusesItsUsage(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("acct_1", "sub_1", month, billing.Destination{Excluded: "no subscription item of the customer has its price"})
	b.use("10")
	b.tell()
	require.Empty(t, b.due(), "it can be told nowhere")
	b.link("acct_1", "sub_1", month, asDelta)
	sent := b.prepareEntries().Send[0].ID
	b.markEntry(sent)
	b.settleEntry(sent, metering.EntryRejected)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.due())
	require.Equal(t, "10", b.tell().String())
	require.Empty(t, b.due())
}

func TestACustomerIsDueWhoseFormerEntryTurnsOutToBeTaken(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("acct_1", "sub_1", month, asDelta)
	b.use("10")
	unheard := b.prepareEntries().Send[0].ID
	b.markEntry(unheard)
	b.now = b.now.Add(lease)
	b.useStripe("acct_2")
	b.link("acct_2", "sub_1", month, asDelta)
	require.Equal(t, "10", b.tell().String(), "the other account is given up")
	require.Empty(t, b.due())
	b.settleEntry(unheard, metering.EntryAcknowledged)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.due())
	require.Equal(t, "-10", b.tell().String())
	require.Empty(t, b.due())
}

func TestACustomerIsNotDueForWhatNobodyLooksForAnyMore(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.acknowledge()
	b.useStripe("acct_1")
	b.link("acct_1", "sub_1", month, asDelta)
	b.use("10")
	sent := b.prepareEntries().Send[0].ID
	b.markEntry(sent)
	b.settleEntry(sent, metering.EntryAcknowledged)
	b.link("acct_1", "sub_2", metering.Range{Start: b.now, End: b.now.AddDate(0, 1, 0)}, asDelta)
	b.tell()
	b.now = b.now.Add(25 * time.Hour)
	open, err := b.store.Ledger.Unconfirmed(t.Context(), b.tenant, b.customer.ID, b.now)
	require.NoError(t, err)
	require.Empty(t, open, "the former subscription's period has ended")
	require.Empty(t, b.due())
}
