package db_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// sendAccepted ingests usage, sends its report, and completes it as accepted. It returns the report.
func (b *biller) sendAccepted(value string) uuid.UUID {
	b.Helper()
	b.use(value)
	sent := b.next(anew).ID
	b.lease(sent)
	b.complete(sent, billing.Accepted)
	return sent
}

func (b *biller) observe(state billing.State, reports ...uuid.UUID) {
	b.Helper()
	require.NoError(b, b.store.Ledger.StoreObserved(b.Context(), b.tenant, reports, state, "tested"))
}

func (b *biller) uncounted(cutoff time.Time) []ledger.Counted {
	b.Helper()
	open, err := b.store.Ledger.Uncounted(b.Context(), b.tenant, b.customer.ID, cutoff)
	require.NoError(b, err)
	return open
}

func TestUncountedListsAcceptedReports(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, asDelta)
	since := b.now
	first := b.sendAccepted("10")
	b.now = b.now.Add(time.Hour)
	second := b.sendAccepted("5")

	open := b.uncounted(since.Add(time.Minute))
	require.Len(t, open, 1)
	c := open[0]
	require.Equal(t, []string{"mtr_1", "cus_1"}, []string{c.Target, c.Customer})
	require.True(t, c.Range.Start.Equal(month.Start) && c.Range.End.Equal(month.End))
	require.Equal(t, []string{"15", "0", "10"}, []string{c.Total.String(), c.Seen.String(), c.Old.String()})
	require.Equal(t, []uuid.UUID{second}, c.Reports)
	require.Equal(t, []uuid.UUID{first}, c.OldReports)

	b.observe(billing.Counted, first)
	c = b.uncounted(since.Add(time.Minute))[0]
	require.Equal(t, []string{"15", "10", "0"}, []string{c.Total.String(), c.Seen.String(), c.Old.String()})
	require.Empty(t, c.OldReports)
	state, _ := b.state(second)
	require.Equal(t, billing.Accepted, state, "it was accepted after the read")

	b.use("2")
	b.lease(b.next(anew).ID)
	require.Empty(t, b.uncounted(b.now), "the provider may have counted the leased report already")
}

func TestCountedReportMarksEarlierReportsAsCounted(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, asRecord)
	first, second := b.sendAccepted("10"), b.sendAccepted("5")
	c := b.uncounted(b.now.Add(time.Minute))[0]
	require.Equal(t, []string{"15", "15"}, []string{c.Total.String(), c.Old.String()}, "the last one takes the place of those before it")
	b.observe(billing.Counted, second)
	for _, r := range []uuid.UUID{first, second} {
		state, response := b.state(r)
		require.Equal(t, billing.Counted, state)
		require.Equal(t, "tested", response)
	}
	require.Empty(t, b.uncounted(b.now.Add(time.Minute)))
}

func TestCountedBeforeReturnsTotalsOfEarlierReports(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, asDelta)
	b.counted(b.sendAccepted("10"))
	b.sendAccepted("5")
	b.use("7")
	sent := b.next(anew).ID
	b.lease(sent)
	before, err := b.store.Ledger.CountedBefore(t.Context(), b.tenant, sent)
	require.NoError(t, err)
	require.Equal(t, []string{"15", "10"}, []string{before.Total.String(), before.Seen.String()})
	require.True(t, before.Outstanding)

	_, err = b.store.Ledger.CountedBefore(t.Context(), newBiller(t).tenant, sent)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
}

// TestReportIsCountedInSubscriptionThatContainsItsTime sends a report before Odometer knows of
// the new subscription. The time of the report is in the new subscription, so the provider counts the
// report there.
func TestReportIsCountedInSubscriptionThatContainsItsTime(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, asDelta)
	swapped := b.now
	b.sendAccepted("10")
	b.link("sub_2", metering.Range{Start: swapped, End: month.End}, asDelta)
	b.now = b.now.Add(time.Hour)
	second := b.sendAccepted("5")

	open := b.uncounted(b.now.Add(-time.Minute))
	require.Len(t, open, 1)
	c := open[0]
	require.True(t, c.Range.Start.Equal(swapped))
	require.Equal(t, []string{"15", "10", "0"}, []string{c.Total.String(), c.Seen.String(), c.Old.String()})
	require.Equal(t, []uuid.UUID{second}, c.Reports)

	b.use("2")
	third := b.next(anew).ID
	b.lease(third)
	before, err := b.store.Ledger.CountedBefore(t.Context(), b.tenant, third)
	require.NoError(t, err)
	require.Equal(t, "15", before.Total.String())
}

// TestUncountedSkipsReportsToReplacedSubscription replaces the subscription after all its reports
// were accepted. Uncounted then returns no target.
func TestUncountedSkipsReportsToReplacedSubscription(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, asDelta)
	b.sendAccepted("10")
	b.now = b.now.Add(time.Hour)
	b.link("sub_2", metering.Range{Start: b.now, End: month.End}, asDelta)
	b.plan(anew)
	require.Empty(t, b.uncounted(b.now))
}

// TestUnsentReportToReplacedSubscriptionIsWithdrawn checks that an unsent report to a replaced subscription is
// withdrawn. The last invoice of the replaced subscription may not bill usage that Stripe accepts now.
func TestUnsentReportToReplacedSubscriptionIsWithdrawn(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.link("sub_1", month, asDelta)
	b.sendAccepted("10")
	b.use("5")
	former := b.next(anew).ID
	b.now = b.now.Add(time.Hour)
	b.link("sub_2", metering.Range{Start: b.now, End: month.End}, asDelta)
	next := b.next(anew)
	require.NotEqual(t, former, next.ID)
	require.Equal(t, "5", next.Quantity.String())
	state, response := b.state(former)
	require.Equal(t, billing.Rejected, state)
	require.Contains(t, response, "the subscription was replaced")
	b.requireConflict(b.leaseError(former), "the outcome of the report is already known")
	b.lease(next.ID)
	b.counted(next.ID)
	b.plan(anew) // the previous plan has changed the subscription of the period
	require.Empty(t, b.outOfSync())
}

// TestReportsOfTwoPeriodsAreCountedInOneSubscriptionPeriod has two billing periods of the customer in one
// subscription period. The provider sums up the subscription period as a whole.
func TestReportsOfTwoPeriodsAreCountedInOneSubscriptionPeriod(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useStripe("acct_1")
	b.now = month.Start.AddDate(0, 0, 20)
	b.use("7")
	b.plan(anew) // the customer's period is the month, because there is no subscription yet
	subscribed := metering.Range{Start: month.Start.AddDate(0, 0, 15), End: month.End.AddDate(0, 0, 15)}
	b.link("sub_1", subscribed, asRecord)
	b.now = month.End.Add(time.Hour)
	b.use("5")
	for _, r := range b.plan(anew).Send {
		b.lease(r.ID)
		b.complete(r.ID, billing.Accepted)
	}

	open := b.uncounted(b.now.Add(time.Minute))
	require.Len(t, open, 1)
	c := open[0]
	require.True(t, c.Range.Start.Equal(subscribed.Start) && c.Range.End.Equal(subscribed.End))
	require.Equal(t, []string{"12", "12"}, []string{c.Total.String(), c.Old.String()})
	require.Len(t, c.Reports, 2)
	b.observe(billing.Counted, c.OldReports...)
	require.Empty(t, b.uncounted(b.now.Add(time.Minute)))
}
