package db_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

func (b *biller) outOfSync() []metering.CustomerID {
	b.Helper()
	page, err := b.store.Ledger.OutOfSync(b.Context(), b.tenant, 0, 100, b.now)
	require.NoError(b, err)
	require.False(b, page.More)
	return page.Customers
}

func TestCustomerIsOutOfSyncUntilAllChangesAreAccepted(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	acme := []metering.CustomerID{b.customer.ID}
	require.Equal(t, acme, b.outOfSync(), "nothing was ever reported")
	b.use("1")
	sent := b.next(0)
	b.lease(sent.ID)
	require.Equal(t, acme, b.outOfSync(), "its outcome is not known")
	b.complete(sent.ID, billing.Accepted)
	require.Empty(t, b.outOfSync())

	b.use("1")
	require.Equal(t, acme, b.outOfSync(), "an event")
	b.accept()
	require.Empty(t, b.outOfSync())
	b.use("0")
	require.Equal(t, acme, b.outOfSync(), "an event with the value 0 counts as a change")
	b.accept()
	b.price("1", "0", "1")
	require.Equal(t, acme, b.outOfSync(), "a price")
	b.accept()
	b.price("2", "0", "2")
	require.Empty(t, b.outOfSync(), "a price for periods to come")
	dbtest.Meter(t, b.store, b.tenant, "storage", "stored")
	require.Equal(t, acme, b.outOfSync(), "a meter")
	b.accept()
	b.useProvider("https://other.example.com/")
	require.Equal(t, acme, b.outOfSync(), "another account")
	b.accept()
	require.Empty(t, b.outOfSync())
	refused := b.sendNew("5")
	b.complete(refused.ID, billing.Rejected)
	require.Equal(t, acme, b.outOfSync(), "a refusal")
	b.accept()
	b.now = billing.CalendarPeriod(b.now, time.UTC).End
	require.Equal(t, acme, b.outOfSync(), "another month")
	b.acceptAll()
	require.Empty(t, b.outOfSync())
}

func (b *biller) sendNew(value string) ledger.Report {
	b.Helper()
	b.use(value)
	sent := b.next(anew)
	b.lease(sent.ID)
	return sent
}

// TestOutOfSyncSearchReadsNoPriceTerms replaces the stored terms with a value that cannot be decoded. The
// search depends only on the versions of the prices.
func TestOutOfSyncSearchReadsNoPriceTerms(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	b := newBillerAt(t, store, address)
	b.price("1", "0", "1")
	b.use("1")
	b.accept()
	require.Empty(t, b.outOfSync())
	b.exec(`update price_terms set terms = '[]' where tenant_id = $1`, b.tenant)
	require.Empty(t, b.outOfSync())
}

func TestUsageThatArrivesLatePutsItsCustomerOutOfSync(t *testing.T) {
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

func TestOutOfSyncListsCustomersOfOneTenantInPages(t *testing.T) {
	t.Parallel()
	b, other := newBiller(t), newBiller(t)
	want := []metering.CustomerID{b.customer.ID}
	for i := range 6 {
		want = append(want, dbtest.Customer(t, b.store, b.tenant, fmt.Sprint("customer-", i)).ID)
	}
	var got []metering.CustomerID
	page := ledger.CustomerPage{More: true}
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
	duePeriods := func() ledger.CustomerPage {
		page, err := b.store.Ledger.DuePeriods(t.Context(), b.tenant, 0, 10, b.now)
		require.NoError(t, err)
		return page
	}
	b.now = over(month).Add(-time.Microsecond)
	require.Empty(t, duePeriods().Customers)
	b.now = over(month)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, duePeriods().Customers, "even if no sync has created the periods")
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

// TestCustomerIsOutOfSyncAfterLatePolicyChangesToAdjust changes the late policy from report to adjust. Late usage
// that was booked before stays unbilled, and later late usage is billed.
func TestCustomerIsOutOfSyncAfterLatePolicyChangesToAdjust(t *testing.T) {
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
	require.Empty(t, b.plan(anew).Send)
	require.Empty(t, b.outOfSync())
	b.useAt("10", month.Start.AddDate(0, 0, 20))
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync())
	list := adjustments(t, b.accept())
	require.Len(t, list, 1)
	require.Equal(t, "10", list[0].Usage.String())
	require.Empty(t, b.outOfSync())
}

func TestCustomerIsOutOfSyncAfterReadFindsAnotherTarget(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, asDelta)
	b.use("10")
	b.reportAll()
	b.link("sub_1", month, asDelta)
	require.Empty(t, b.outOfSync(), "the read returned no new state")
	b.link("sub_1", month, asRecord)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync(), "the process that read it may have died before planning")
}

func TestCustomerIsOutOfSyncAfterFirstReportToNewItemIsRejected(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, billing.Destination{Excluded: billing.NoTarget("no subscription item of the customer has its price")})
	b.use("10")
	b.reportAll()
	require.Empty(t, b.outOfSync(), "the usage has no destination at the provider")
	b.link("sub_1", month, asDelta)
	sent := b.next(anew).ID
	b.lease(sent)
	b.complete(sent, billing.Rejected)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync())
	require.Equal(t, "10", b.reportAll().String())
	require.Empty(t, b.outOfSync())
}

func TestCustomerIsOutOfSyncAfterReportToPreviousAccountIsRejected(t *testing.T) {
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
	b.use("2")
	require.Equal(t, "2", b.reportAll().String(), "the 10 may have arrived at the other account")
	require.Empty(t, b.outOfSync(), "a report to another account would not reveal the outcome")
	b.complete(unheard, billing.Rejected)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync())
	require.Equal(t, "10", b.reportAll().String())
	require.Empty(t, b.outOfSync())
	b.complete(unheard, billing.Accepted) // a later acceptance overrides the rejection
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync())
	require.Equal(t, "-10", b.reportAll().String())
	require.Empty(t, b.outOfSync())
}

func TestCustomerIsInSyncOnceAllPlannedReportsAreAccepted(t *testing.T) {
	t.Parallel()
	for _, outcome := range []billing.State{billing.Accepted, billing.InDoubt, billing.Rejected} {
		b, month := newOldBiller(t)
		b.useStripe("acct_1")
		b.link("sub_1", month, asWindow)
		b.use("10")
		b.now = b.now.Add(time.Hour)
		b.use("5")
		planned := b.plan(anew).Send
		require.Len(t, planned, 2)
		b.lease(planned[0].ID)
		b.complete(planned[0].ID, billing.Accepted)
		require.NotEmpty(t, b.outOfSync(), "the outcome of the other is not known")
		b.lease(planned[1].ID)
		b.complete(planned[1].ID, outcome)
		require.Equal(t, outcome == billing.Accepted, len(b.outOfSync()) == 0, outcome)
	}
}

func TestCustomerIsOutOfSyncAfterAcceptedReportIsRejected(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, asDelta)
	sent := b.sendAccepted("10")
	b.observe(billing.Accepted, sent)
	require.Empty(t, b.outOfSync(), "it may still be counted")
	b.observe(billing.Rejected, sent)
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync())
	require.Equal(t, "10", b.reportAll().String())
	b.observe(billing.Counted, sent)
	state, _ := b.state(sent)
	require.Equal(t, billing.Rejected, state, "a rejected report does not become counted")
	require.Empty(t, b.outOfSync())
}

func TestUncountedReportOfPreviousSubscriptionLeavesCustomerInSync(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.accept()
	b.useStripe("acct_1")
	b.link("sub_1", month, asDelta)
	b.sendAccepted("10")
	b.now = b.now.Add(time.Hour)
	b.link("sub_2", metering.Range{Start: b.now, End: b.now.AddDate(0, 0, 31)}, asDelta)
	b.reportAll()
	require.NotEmpty(t, b.outOfSync(), "the plan has changed the subscription of the period, so another plan follows")
	b.plan(anew)
	b.now = b.now.Add(25 * time.Hour)
	require.Empty(t, b.uncounted(b.now), "the previous subscription's period has ended")
	require.Empty(t, b.outOfSync())
}
