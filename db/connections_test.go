package db_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

const (
	oneReceiver     = "https://billing.example.com/usage" // the URL of a new biller's provider
	anotherReceiver = "https://other.example.com/"
)

func TestNewProviderReplacesPreviousProvider(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.useProvider(anotherReceiver)
	active, err := b.store.Providers.Active(t.Context(), b.tenant)
	require.NoError(t, err)
	require.Equal(t, anotherReceiver, active.Address)
	require.Equal(t, "abcd", active.LastFour)
	require.NotZero(t, active.ID)
	require.Len(t, b.audited("provider.save"), 2)
}

func TestNewSecretForSameAccountKeepsPlannedReports(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	b.accept()
	b.useProvider(oneReceiver)
	require.Empty(t, b.plan(1).Send)
	b.use("1")
	s := b.next(1)
	b.useProvider(oneReceiver)
	require.Equal(t, "2", read(t, b.lease(s.ID).Body).Data.Meters[0].Usage.String())
}

// moveTo saves another URL of the same receiver.
func (b *biller) moveTo(url string) {
	b.Helper()
	saved, err := b.store.Providers.Save(b.Context(), b.tenant, metering.Operator, metering.Provider{
		Kind: metering.Webhook, Statements: true, Address: url, SealedSecret: []byte("sealed"), LastFour: "abcd", ValidatedAt: b.now,
	})
	require.NoError(b, err)
	b.connection = saved.ID
}

func TestReceiverThatMovesToAnotherURLKeepsItsConnection(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	connection := b.connection
	b.use("1000")
	require.EqualValues(t, 1, b.accept().Data.Sequence)
	b.use("1")
	planned := b.next(anew)
	b.moveTo(anotherReceiver)
	require.Equal(t, connection, b.connection)
	require.Equal(t, planned, b.next(anew), "the planned report is kept, and sent to the new URL")
	leased := b.lease(planned.ID)
	require.Equal(t, anotherReceiver, leased.Provider.Address)
	b.complete(planned.ID, billing.Accepted)
	require.Empty(t, b.outOfSync())
	b.use("19")
	said := b.accept().Data
	require.Equal(t, "1020", said.Meters[0].Usage.String())
	require.EqualValues(t, 3, said.Sequence)

	b.now = over(month)
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)
	b.useAt("5", month.Start)
	require.Len(t, b.accept().Data.Adjustments, 1)
	b.moveTo(oneReceiver)
	require.Empty(t, b.plan(anew).Send)
	b.use("1")
	require.Len(t, b.accept().Data.Adjustments, 1, "the previous adjustments are unchanged")
}

func TestNewReceiverIsCreatedOnceAndGetsUnbilledUsage(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	begin := func(url string) metering.ConnectionID {
		saved, err := b.store.Providers.Begin(t.Context(), b.tenant, metering.Operator, metering.Provider{
			Kind: metering.Webhook, Statements: true, Address: url, SealedSecret: []byte("sealed"), LastFour: "abcd", ValidatedAt: b.now,
		})
		require.NoError(t, err)
		return saved.ID
	}
	first := b.connection
	b.use("60")
	b.accept()
	require.Equal(t, first, begin(oneReceiver), "the connection already has this URL")
	second := begin(anotherReceiver)
	require.NotEqual(t, first, second)
	b.use("5")
	require.Equal(t, "5", b.accept().Data.Meters[0].Usage.String())
	require.Equal(t, second, begin(anotherReceiver), "the same connection, if the provider is saved again")
	require.Empty(t, b.plan(anew).Send)

	third := begin(oneReceiver)
	require.NotContains(t, []metering.ConnectionID{first, second}, third, "the connection is new, because the receiver has changed")
	b.use("1")
	require.Equal(t, "1", b.accept().Data.Meters[0].Usage.String())
	b.moveTo(oneReceiver)
	require.Equal(t, third, b.connection, "of two connections with the same URL, the last one is used")
	b.moveTo("https://third.example.com/")
	require.Equal(t, third, b.connection)
}

func TestTestAndLiveModeOfAnAccountAreTwoConnections(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useMode("acct_1", false)
	test := b.connection
	b.link("sub_1", month, asDelta)
	b.use("10")
	require.Equal(t, "10", b.reportAll().String())
	b.invoiced(month, "10")

	b.useMode("acct_1", true)
	require.NotEqual(t, test, b.connection)
	b.link("sub_1", month, asDelta)
	b.use("7")
	require.Equal(t, "17", b.reportAll().String(), "the invoice of test mode does not bill the 10")
	require.Empty(t, b.outOfSync())

	b.useMode("acct_1", false)
	require.Equal(t, test, b.connection)
	b.link("sub_1", month, asDelta)
	require.Empty(t, b.plan(anew).Send, "its invoice is final")
	b.useProvider(oneReceiver)
	require.Empty(t, b.plan(anew).Send[1:])
	require.Equal(t, "0", b.accept().Data.Meters[0].Usage.String(), "the 17 are billed in live mode")
}

func TestAPeriodThatClosesInTestModeIsNotBilledLive(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.useMode("acct_1", false)
	b.link("sub_1", month, asDelta)
	b.use("10")
	b.reportAll()
	b.invoiced(month, "10")
	b.now = over(month)
	next := metering.Range{Start: month.End, End: month.End.AddDate(0, 1, 0)}
	b.link("sub_1", next, asDelta)
	require.Equal(t, 1, b.closePeriods().Closed)
	var billed, test bool
	b.scan(`select billed, test from billing_period_totals where tenant_id = $1`, []any{b.tenant}, &billed, &test)
	require.True(t, billed)
	require.True(t, test)

	b.useMode("acct_1", true)
	b.link("sub_1", next, asDelta)
	b.useAt("5", month.Start)
	b.reportAll()
	var late int
	b.scan(`select count(*) from billing_report_lines where tenant_id = $1 and late`, []any{b.tenant}, &late)
	require.Zero(t, late)
}

func TestNewAccountBillsOnlyUsageNotBilledByFirstAccount(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.price("10", "0", "1")
	b.use("60")
	require.Equal(t, "70", b.accept().Data.Meters[0].Amount.String())

	b.useProvider(anotherReceiver)
	b.use("40")
	m := b.accept()
	require.Equal(t, "40", m.Data.Meters[0].Usage.String())
	require.Equal(t, "40", m.Data.Meters[0].Amount.String())

	b.useProvider(oneReceiver)
	require.Equal(t, "60", b.accept().Data.Meters[0].Usage.String(), "the other connection has billed 40")
	b.use("5")
	m = b.accept()
	require.Equal(t, "65", m.Data.Meters[0].Usage.String())
	require.Equal(t, "75", m.Data.Meters[0].Amount.String())
}

// moveWhileSending leases a report of usage at the active connection, and calls move before the outcome
// is known. It returns the report.
func (b *biller) moveWhileSending(value string, move func()) (unheard uuid.UUID) {
	b.Helper()
	b.use(value)
	unheard = b.next(anew).ID
	b.lease(unheard)
	move()
	return unheard
}

func (b *biller) requireConflict(err error, why string) {
	b.Helper()
	require.Equal(b, metering.CodeConflict, metering.CodeOf(err))
	require.ErrorContains(b, err, why)
}

func (b *biller) leaseError(report uuid.UUID) error {
	_, err := b.store.Ledger.Lease(b.Context(), b.tenant, report, b.now, lease)
	return err
}

func TestTheSameAccountKeepsItsConnection(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	first := b.connection
	b.useProvider(oneReceiver)
	require.Equal(t, first, b.connection)
	b.useProvider(anotherReceiver)
	require.NotEqual(t, first, b.connection)
	b.useProvider(oneReceiver)
	require.Equal(t, first, b.connection, "the same connection, after another one was active")
	active, err := b.store.Providers.Active(t.Context(), b.tenant)
	require.NoError(t, err)
	require.Equal(t, first, active.ID)
	b.useStripe("acct_1")
	require.NotEqual(t, first, b.connection, "another kind is another account")
	b.useProvider(oneReceiver)
	require.Equal(t, first, b.connection, "the same connection, after another kind was active")
}

func TestUnsentReportToPreviousConnectionIsWithdrawn(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("60")
	s := b.next(0)
	b.useProvider(anotherReceiver)
	b.requireConflict(b.leaseError(s.ID), "the billing provider was replaced")
	next := b.next(0)
	require.NotEqual(t, s.ID, next.ID)
	require.Equal(t, "60", b.readMessage(next.ID).Data.Meters[0].Usage.String(), "the report of the previous connection does not count as billed")
	state, response := b.state(s.ID)
	require.Equal(t, billing.Rejected, state)
	require.Contains(t, response, "withdrawn")

	b.useProvider(oneReceiver)
	b.requireConflict(b.leaseError(s.ID), "the outcome of the report is already known")
	require.Equal(t, "60", b.accept().Data.Meters[0].Usage.String(), "the report of the other connection was withdrawn")
	require.Empty(t, b.outOfSync())
}

func TestCustomerIsOutOfSyncIfConnectionReturnsAfterWithdrawal(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("60")
	b.next(anew)
	b.useProvider(anotherReceiver)
	b.closePeriods()
	b.useProvider(oneReceiver)
	require.NotEmpty(t, b.outOfSync())
	require.Equal(t, "60", b.accept().Data.Meters[0].Usage.String())
	require.Empty(t, b.outOfSync())
}

func TestPlannedReportIsKeptIfConnectionReturnsBeforeNextPlan(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("60")
	s := b.next(0)
	b.useProvider(anotherReceiver)
	b.useProvider(oneReceiver)
	require.Equal(t, s, b.next(0))
	b.lease(s.ID)
}

func TestUndecidedReportCountsAsBilledByPreviousConnection(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[billing.State]string{billing.Accepted: "0", billing.Rejected: "60"} {
		b, _ := newOldBiller(t)
		s := b.moveWhileSending("60", func() { b.useProvider(anotherReceiver) })
		planned := b.plan(0)
		require.Equal(t, "0", b.readMessage(planned.Send[0].ID).Data.Meters[0].Usage.String(), "the plan does not wait for the outcome of the report")
		state, _ := b.state(s)
		require.Equal(t, billing.Sending, state, "its lease has not ended")
		b.acceptOf(planned)
		require.NotEmpty(t, b.outOfSync(), "its lease will end")

		b.now = b.now.Add(lease)
		require.Empty(t, b.plan(anew).Send)
		state, response := b.state(s)
		require.Equal(t, billing.InDoubt, state)
		require.Equal(t, "the provider was replaced before it answered", response)
		require.Empty(t, b.outOfSync(), "a report to another connection would not reveal the outcome")
		b.requireConflict(b.leaseError(s), "the billing provider was replaced")
		b.use("5")
		require.Equal(t, "5", b.accept().Data.Meters[0].Usage.String())

		b.complete(s, outcome) // the late response of the previous connection
		require.Len(t, b.outOfSync(), 1, "the outcome may change the quantity to bill")
		b.use("1")
		require.Equal(t, metering.MustDecimal(want).Add(metering.Whole(6)).String(), b.accept().Data.Meters[0].Usage.String())
		require.Empty(t, b.outOfSync())
	}
}

func TestLateAcceptanceIsDeductedAtNewConnection(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	s := b.moveWhileSending("60", func() { b.useProvider(anotherReceiver) })
	b.complete(s, billing.Rejected)
	require.Equal(t, "60", b.accept().Data.Meters[0].Usage.String())
	require.Empty(t, b.outOfSync())
	b.complete(s, billing.Accepted)
	require.Equal(t, "0", b.accept().Data.Meters[0].Usage.String(), "the new connection no longer bills these 60 units")
}

func TestReportInDoubtIsSentAgainAfterConnectionReturns(t *testing.T) {
	t.Parallel()
	b, _ := newOldBiller(t)
	s := b.moveWhileSending("60", func() { b.useProvider(anotherReceiver) })
	written := b.body(s)
	b.now = b.now.Add(lease)
	b.use("5")
	require.Equal(t, "5", b.accept().Data.Meters[0].Usage.String())
	state, _ := b.state(s)
	require.Equal(t, billing.InDoubt, state)
	b.useProvider(oneReceiver)
	require.Equal(t, s, b.next(anew).ID, "the report in doubt is sent first")
	leased := b.lease(s)
	require.Equal(t, 2, leased.Attempt)
	require.Equal(t, written, leased.Body)
	b.complete(s, billing.Accepted)
	require.Equal(t, "60", b.accept().Data.Meters[0].Usage.String(), "the other connection has billed 5, so 60 of 65 are left")
	require.Empty(t, b.outOfSync())
}

func TestReportInDoubtAtPreviousConnectionDoesNotDelayClosing(t *testing.T) {
	t.Parallel()
	for _, outcome := range []billing.State{billing.Accepted, billing.Rejected} {
		b, month := newOldBiller(t)
		s := b.moveWhileSending("60", func() { b.useProvider(anotherReceiver) })
		b.use("5")
		b.acceptAll()
		require.Empty(t, b.plan(anew).Send, "the report in doubt delays no other report")
		b.now = over(month)
		b.acceptAll()
		require.Equal(t, ledger.Closing{Closed: 1}, b.closePeriods())
		state, _ := b.state(s)
		require.Equal(t, billing.InDoubt, state)
		b.acceptAll()
		require.NoError(t, b.store.Ledger.Resolve(t.Context(), b.tenant, ledger.Resolution{Report: s, State: outcome, Actor: metering.Operator}, b.now))
		if outcome == billing.Accepted {
			require.Empty(t, b.plan(anew).Send)
		} else {
			late := adjustments(t, b.accept())
			require.Len(t, late, 1)
			require.Equal(t, "60", late[0].Usage.String(), "late usage of a closed period is an adjustment")
		}
		var usage metering.Decimal
		b.scan(`select usage from billing_period_totals where tenant_id = $1`, []any{b.tenant}, &usage)
		require.Equal(t, "65", usage.String())
	}
}

func TestWithdrawnReportDoesNotKeepPeriodOpen(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("60")
	s := b.next(anew).ID
	b.useProvider(anotherReceiver)
	b.now = over(month)
	b.acceptAll()
	state, _ := b.state(s)
	require.Equal(t, billing.Rejected, state)
	require.Equal(t, ledger.Closing{Closed: 1}, b.closePeriods())
}

func TestReportsOfEveryKindAreNumberedTogether(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("1")
	require.EqualValues(t, 1, b.accept().Data.Sequence)
	b.useStripe("acct_1")
	b.now = b.now.Add(time.Minute)
	b.link("sub_1", month, asDelta)
	b.use("2")
	require.EqualValues(t, 2, b.next(anew).Number)
	b.reportAll()
	b.useProvider(oneReceiver)
	b.use("4")
	require.EqualValues(t, 3, b.accept().Data.Sequence)

	other := dbtest.Customer(t, b.store, b.tenant, "other")
	numbers, err := b.store.Ledger.LastNumbers(t.Context(), b.tenant, []metering.CustomerID{b.customer.ID, other.ID})
	require.NoError(t, err)
	require.Equal(t, map[metering.CustomerID]int64{b.customer.ID: 3}, numbers)
}

func (b *biller) deleteProvider() error {
	return b.store.Providers.Delete(b.Context(), b.tenant, "key_1", b.now)
}

// TestUndecidedReportCountsAsBilledAfterProviderIsDeleted deletes the provider while the outcome of a report is
// unknown. Until an operator resolves the report, its usage counts as billed, as after a change of provider.
func TestUndecidedReportCountsAsBilledAfterProviderIsDeleted(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("60")
	b.accept()
	b.use("5")
	unheard := b.next(anew).ID
	b.lease(unheard)
	b.requireConflict(b.deleteProvider(), unheard.String()+": these reports are being sent")
	b.now = b.now.Add(lease + time.Second)
	require.NoError(t, b.deleteProvider())

	_, err := b.store.Providers.Active(t.Context(), b.tenant)
	require.Equal(t, metering.CodeNoProvider, metering.CodeOf(err))
	require.Equal(t, metering.CodeNoProvider, metering.CodeOf(b.deleteProvider()))
	deleted := b.audited("provider.delete")
	require.Len(t, deleted, 1)

	b.useProvider(anotherReceiver)
	require.Equal(t, "0", b.accept().Data.Meters[0].Usage.String(), "65 may have arrived at the first receiver")
	require.NoError(t, b.store.Ledger.Resolve(t.Context(), b.tenant, ledger.Resolution{Report: unheard, State: billing.Rejected, Actor: "key_1", Reason: "not there"}, b.now))
	require.Equal(t, "5", b.accept().Data.Meters[0].Usage.String())
}

// TestAReportThatIsLeasedWhileItsProviderIsDeletedIsInDoubt leases a planned report after the deletion has checked for
// reports that are being sent.
func TestAReportThatIsLeasedWhileItsProviderIsDeletedIsInDoubt(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("60")
	planned := b.next(anew).ID
	sending, err := dbtest.Conn(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = sending.Exec(t.Context(), `
		update billing_reports
		set state = 'sending', first_sent_at = $3, lease_until = $4, attempts = 1
		where tenant_id = $1
		  and id = $2`, b.tenant, planned, b.now, b.now.Add(lease))
	require.NoError(t, err)
	deleted := make(chan error, 1)
	go func() {
		deleted <- b.store.Providers.Delete(context.WithoutCancel(t.Context()), b.tenant, "key_1", b.now)
	}()
	awaitBlocked(t, sending)
	require.NoError(t, sending.Commit(t.Context()))
	require.NoError(t, <-deleted)

	state, response := b.state(planned)
	require.Equal(t, billing.InDoubt, state)
	require.Equal(t, "the provider was deleted before it answered", response)
	b.useProvider(anotherReceiver)
	require.Equal(t, "0", b.accept().Data.Meters[0].Usage.String(), "60 may have arrived at the first receiver")
}

func TestADeletedProvidersUnsentReportIsWithdrawn(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("60")
	planned := b.next(anew).ID
	require.NoError(t, b.deleteProvider())
	require.Equal(t, metering.CodeConflict, metering.CodeOf(b.leaseError(planned)))
	b.useProvider(anotherReceiver)
	require.Equal(t, "60", b.accept().Data.Meters[0].Usage.String())
}

func TestProviderIsNotDeletedWhileClosedPeriodIsPartlyUnreported(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("10")
	b.accept()
	b.use("5")
	b.now = over(month)
	require.Equal(t, 1, b.closePeriods().Closed)
	b.requireConflict(b.deleteProvider(), "per_")
	b.acceptAll()
	require.NoError(t, b.deleteProvider())
}
