package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

func TestPlanReturnsOutstandingReportAgain(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	first := b.plan(0).Send
	written := b.body(first[0].ID)
	b.use("1")
	again := b.plan(0).Send
	require.Equal(t, first, again)
	require.Equal(t, written, b.body(again[0].ID))
	require.Equal(t, written, b.lease(again[0].ID).Body)

	b.complete(first[0].ID, billing.Accepted)
	require.Empty(t, b.plan(0).Send, "the pass has reported this period already")
	next := b.next(first[0].Number)
	require.EqualValues(t, 2, next.Number)
	require.Equal(t, "2", b.readMessage(next.ID).Data.Meters[0].Usage.String())
}

func TestRejectedReportIsReplacedByReportWithNextNumber(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	refused := b.next(0)
	b.lease(refused.ID)
	b.complete(refused.ID, billing.Rejected)
	require.Empty(t, b.plan(0).Send, "the receiver refused the report in this pass")
	require.EqualValues(t, 2, b.next(refused.Number).Number)
	_, err := b.store.Ledger.Lease(t.Context(), b.tenant, refused.ID, b.now, lease)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err), "a report with an outcome is never sent again")
}

func TestLeaseBlocksSecondLeaseOfReport(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	b.now = metering.Instant(b.now) // in the precision of the database
	s := b.next(0)
	first := b.lease(s.ID)
	b.now = b.now.Add(10 * time.Second)
	_, err := b.store.Ledger.Lease(t.Context(), b.tenant, s.ID, b.now, lease)
	var busy ledger.Busy
	require.ErrorAs(t, err, &busy)
	require.Equal(t, 15*time.Second, busy.Wait)

	require.NoError(t, b.store.Ledger.Release(t.Context(), b.tenant, s.ID, first.Attempt, "the webhook answered 503", false))
	second := b.lease(s.ID)
	require.Equal(t, first.Body, second.Body)
	require.NoError(t, b.store.Ledger.Release(t.Context(), b.tenant, s.ID, first.Attempt, "late", false))
	_, err = b.store.Ledger.Lease(t.Context(), b.tenant, s.ID, b.now, lease)
	require.ErrorAs(t, err, &busy, "only the holder ends a lease")
	b.now = b.now.Add(lease)
	b.lease(s.ID)
}

func TestSecondCompletionOfReportChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	s := b.next(0)
	b.lease(s.ID)
	b.complete(s.ID, billing.Accepted)
	b.complete(s.ID, billing.Accepted)
	b.complete(s.ID, billing.Rejected)
	require.Empty(t, b.plan(s.Number).Send)
}

// TestOnlyTheLastAttemptRejectsAReport completes a refused attempt after its lease, when the next attempt may have
// arrived. An acceptance of any attempt is valid.
func TestOnlyTheLastAttemptRejectsAReport(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("60")
	s := b.next(0)
	refused := b.lease(s.ID)
	require.False(t, refused.MayHaveArrived)
	b.now = b.now.Add(lease)
	unheard := b.lease(s.ID)
	require.True(t, unheard.MayHaveArrived)
	complete := func(of ledger.Leased, outcome billing.State) billing.State {
		require.NoError(t, b.store.Ledger.CompleteAttempt(t.Context(), b.tenant, of, outcome, "tested", b.now))
		state, _ := b.state(s.ID)
		return state
	}
	require.Equal(t, billing.Sending, complete(refused, billing.Rejected))
	require.Equal(t, billing.Sending, complete(refused, billing.InDoubt))
	require.NoError(t, b.store.Ledger.Release(t.Context(), b.tenant, s.ID, unheard.Attempt, "the webhook did not answer", false))
	require.Equal(t, billing.Sending, complete(refused, billing.Rejected))
	require.Equal(t, billing.InDoubt, complete(unheard, billing.InDoubt))
	require.Equal(t, billing.Accepted, complete(refused, billing.Accepted))
}

// TestARefusedAttemptLeavesAReportPlanned checks that the provider surely does not have a report of which the only
// attempt was refused: if the connection is replaced, the report is withdrawn.
func TestARefusedAttemptLeavesAReportPlanned(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("60")
	s := b.next(0)
	refused := b.lease(s.ID)
	require.NoError(t, b.store.Ledger.ReleaseRefused(t.Context(), b.tenant, refused, "the webhook answered 404"))
	state, response := b.state(s.ID)
	require.Equal(t, billing.Planned, state)
	require.Equal(t, "the webhook answered 404", response)
	again := b.lease(s.ID)
	require.Equal(t, 2, again.Attempt)
	require.False(t, again.MayHaveArrived)
	require.NoError(t, b.store.Ledger.ReleaseRefused(t.Context(), b.tenant, refused, "late"))
	state, _ = b.state(s.ID)
	require.Equal(t, billing.Sending, state, "only the holder ends a lease")

	require.NoError(t, b.store.Ledger.ReleaseRefused(t.Context(), b.tenant, again, "the webhook answered 404"))
	b.useProvider(anotherReceiver)
	require.Equal(t, "60", b.accept().Data.Meters[0].Usage.String())
	state, _ = b.state(s.ID)
	require.Equal(t, billing.Rejected, state)
}

func TestPlanFailsWithoutProvider(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	customer := dbtest.Customer(t, store, tenant, "acme")
	_, err := store.Ledger.Plan(t.Context(), tenant, customer.ID, ledger.Pass{}, dbtest.Frame, clock.Now())
	require.Equal(t, metering.CodeNoProvider, metering.CodeOf(err))
	require.ErrorContains(t, err, "save one with PUT /v1/billing/provider")
	_, err = store.Providers.Active(t.Context(), tenant)
	require.Equal(t, metering.CodeNoProvider, metering.CodeOf(err))
}

func TestTenantCannotUseReportsOfAnotherTenant(t *testing.T) {
	t.Parallel()
	mine, theirs := newBiller(t), newBiller(t)
	mine.use("1")
	theirs.use("2")
	s := mine.next(0)

	_, err := theirs.store.Ledger.Plan(t.Context(), theirs.tenant, mine.customer.ID, ledger.Pass{}, dbtest.Frame, mine.now)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	_, err = theirs.store.Ledger.Lease(t.Context(), theirs.tenant, s.ID, mine.now, lease)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	theirs.complete(s.ID, billing.Accepted)
	require.Equal(t, s, mine.next(0))
	require.Equal(t, "2", theirs.accept().Data.Meters[0].Usage.String())
}

// take plans the reports and leases the first one.
func (b *biller) take(after int64) ledger.Planned {
	b.Helper()
	planned, err := b.store.Ledger.Plan(b.Context(), b.tenant, b.customer.ID, ledger.Pass{After: after, Lease: lease}, dbtest.Frame, b.now)
	require.NoError(b, err)
	return planned
}

func TestPlanWithLeaseLeasesPlannedReport(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("5")
	planned := b.take(0)
	require.Len(t, planned.Send, 1)
	require.False(t, planned.More)
	require.Equal(t, planned.Send[0].ID, planned.Leased.ReportID)
	require.Equal(t, 1, planned.Leased.Attempt)
	require.Equal(t, b.body(planned.Send[0].ID), planned.Leased.Body)

	_, err := b.store.Ledger.Plan(t.Context(), b.tenant, b.customer.ID, ledger.Pass{Lease: lease}, dbtest.Frame, b.now)
	var busy ledger.Busy
	require.ErrorAs(t, err, &busy)
	require.Equal(t, metering.CodeOverloaded, metering.CodeOf(err))

	b.now = b.now.Add(lease)
	again := b.take(0)
	require.True(t, again.More, "the usage may have changed since the first plan")
	require.Equal(t, planned.Send, again.Send)
	require.Equal(t, 2, again.Leased.Attempt)
	require.Equal(t, planned.Leased.Body, again.Leased.Body)
	require.Nil(t, b.plan(0).Leased, "the pass requests no lease")
}

func TestRecordAcceptedStoresSyncWithAcceptedReport(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("5")
	planned := b.take(0)
	last := ledger.Accepted{Report: planned.Leased.ReportID, Response: "the webhook answered 200"}
	answer := ledger.Answer{Reports: append(planned.UpToDate, last.Report)}
	require.NoError(t, b.store.Syncs.RecordAccepted(t.Context(), b.tenant, b.customer.ID, last, answer, b.now, b.now))
	syncs, err := dbtest.Items(b.store.Syncs.List(t.Context(), b.tenant, ledger.SyncFilter{}, 2))
	require.NoError(t, err)
	require.Len(t, syncs, 1)
	sync := b.sync(syncs[0].ID)
	require.Equal(t, metering.SyncSucceeded, sync.Status)
	require.Len(t, sync.Lines, 1)
	require.Equal(t, string(billing.Accepted), sync.Lines[0].State)
	require.Equal(t, "the webhook answered 200", sync.Lines[0].Response)
	require.Equal(t, "5", sync.Lines[0].Usage.String())
	require.Empty(t, b.outOfSync())
	none := b.take(0)
	require.Empty(t, none.Send)
	require.Nil(t, none.Leased)
}

// TestStatementsOfOpenPeriodsArePlannedOldestFirst checks that two open periods are reported one after the other, and
// that More is set for the first.
func TestStatementsOfOpenPeriodsArePlannedOldestFirst(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	before := billing.CalendarPeriod(b.now, time.UTC).Start.Add(-time.Hour)
	b.exec(`update customers set created_at = $2 where tenant_id = $1`, b.tenant, before)
	b.useAt("5", before)
	b.use("7")
	first := b.take(0)
	require.True(t, first.More)
	b.complete(first.Leased.ReportID, billing.Accepted)
	second := b.take(0)
	require.False(t, second.More)
	require.Equal(t, first.Send[0].Period.End, second.Send[0].Period.Start)
}
