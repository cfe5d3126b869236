package db_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

func (b *biller) request() uuid.UUID {
	b.Helper()
	s, err := b.store.Syncs.Request(b.Context(), b.tenant, "key_1", b.customer.ID, metering.Manual, b.now)
	require.NoError(b, err)
	return s.ID
}

func (b *biller) begin() ledger.Begun {
	b.Helper()
	begun, err := b.store.Syncs.Begin(b.Context(), b.tenant, b.customer.ID, b.now)
	require.NoError(b, err)
	return begun
}

func (b *biller) finish(pass uuid.UUID, a ledger.Answer) ledger.Finished {
	b.Helper()
	finished, err := b.store.Syncs.Finish(b.Context(), b.tenant, b.customer.ID, pass, a, b.now)
	require.NoError(b, err)
	return finished
}

func (b *biller) sync(id uuid.UUID) metering.Sync {
	b.Helper()
	s, err := b.store.Syncs.Get(b.Context(), b.tenant, id)
	require.NoError(b, err)
	return s
}

func TestPassAnswersRequestsMadeBeforeItBegins(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	first := b.request()
	require.Equal(t, metering.SyncRequested, b.sync(first).Status)
	cut := b.begin()
	require.Equal(t, 1, cut.Requests)
	second := b.request()
	begun := b.begin()
	require.Equal(t, 2, begun.Requests, "a pass after an interrupted one takes its requests and the later ones")
	third := b.request()
	require.Equal(t, metering.SyncRunning, b.sync(first).Status)

	b.use("3")
	s := b.next(begun.After)
	b.lease(s.ID)
	b.complete(s.ID, billing.Accepted)
	answer := ledger.Answer{Reports: []uuid.UUID{s.ID}, Excluded: []billing.Exclusion{{MeterID: b.meter.ID, ExclusionReason: billing.NoTarget("for the test")}}}
	require.Equal(t, ledger.Finished{More: true}, b.finish(cut.PassID, ledger.Answer{Error: "cut short"}), "the next pass has taken its requests")
	require.Equal(t, ledger.Finished{Requests: 2, More: true}, b.finish(begun.PassID, answer), "another request has come")
	require.Equal(t, ledger.Finished{More: true}, b.finish(begun.PassID, answer), "finishing again changes nothing")

	require.Equal(t, metering.SyncSucceeded, b.sync(second).Status)
	done := b.sync(first)
	require.Equal(t, metering.SyncSucceeded, done.Status)
	require.NotNil(t, done.FinishedAt)
	require.Len(t, done.Lines, 1)
	require.Equal(t, "3", done.Lines[0].Usage.String())
	require.Equal(t, string(billing.Accepted), done.Lines[0].State)
	require.Equal(t, b.meter.ID, done.Lines[0].MeterID)
	require.EqualValues(t, 1, done.Lines[0].Number)
	require.Len(t, done.Excluded, 1)
	require.Equal(t, "api-calls", done.Excluded[0].MeterSlug)
	require.Equal(t, []string{string(billing.ExcludedNoTarget), "for the test"}, []string{done.Excluded[0].Code, done.Excluded[0].Detail})
	require.Equal(t, metering.SyncRequested, b.sync(third).Status)
	require.Equal(t, ledger.Finished{Requests: 1}, b.finish(b.begin().PassID, ledger.Answer{}))
	require.Equal(t, metering.SyncSucceeded, b.sync(third).Status)
}

func TestRequestsBeforeNextPassShareOneSync(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	first := b.request()
	second, err := b.store.Syncs.Request(t.Context(), b.tenant, "key_2", b.customer.ID, metering.Manual, b.now.Add(time.Minute))
	require.NoError(t, err)
	require.Equal(t, []any{first, true, b.sync(first).RequestedAt}, []any{second.ID, second.Joined, second.RequestedAt})
	byProvider, err := b.store.Syncs.RequestByProvider(t.Context(), b.tenant, b.customer.ID, b.now)
	require.NoError(t, err)
	require.Equal(t, first, byProvider)
	require.NoError(t, b.store.Syncs.RequestOnce(t.Context(), b.tenant, b.customer.ID, b.now))
	require.NoError(t, b.store.Syncs.Withdraw(t.Context(), b.tenant, first))
	require.Equal(t, metering.SyncRequested, b.sync(first).Status, "other callers still wait for it")

	begun := b.begin()
	require.Equal(t, 1, begun.Requests)
	later := b.request()
	require.NotEqual(t, first, later, "totals that were read before a request do not answer it")
	require.Equal(t, ledger.Finished{Requests: 1, More: true}, b.finish(begun.PassID, ledger.Answer{}))
	require.Equal(t, []metering.SyncStatus{metering.SyncSucceeded, metering.SyncRequested}, []metering.SyncStatus{b.sync(first).Status, b.sync(later).Status})
}

func TestARequestIsWithdrawnWithItsLastCaller(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	id := b.request()
	require.Equal(t, id, b.request())
	for _, want := range []metering.Code{"", metering.CodeNotFound} {
		require.NoError(t, b.store.Syncs.Withdraw(t.Context(), b.tenant, id))
		_, err := b.store.Syncs.Get(t.Context(), b.tenant, id)
		require.Equal(t, want, metering.CodeOf(err))
	}
}

// TestAPassAnswersAnyNumberOfRequests checks a pass with 60,000 requests. An activity may return at most 2 MB, so Begin
// returns the number of requests instead of their ids.
func TestAPassAnswersAnyNumberOfRequests(t *testing.T) {
	t.Parallel()
	const requests = 60_000
	b := newBiller(t)
	_, err := b.store.Webhooks.Create(t.Context(), b.tenant, metering.Operator, metering.Endpoint{
		URL: "https://example.com/hook", EventTypes: []metering.MessageKind{metering.MessageSyncSucceeded}, Sealed: []byte("sealed"), LastFour: "abcd",
	}, b.now)
	require.NoError(t, err)
	b.exec(`
		insert into billing_syncs (tenant_id, id, customer_id, trigger, actor, status, requested_at)
		select $1, gen_random_uuid(), $2, 'provider', 'operator', 'running', $3
		from generate_series(1, $4)`, b.tenant, b.customer.ID, b.now, requests)
	begun := b.begin()
	require.Equal(t, requests, begun.Requests)
	require.Equal(t, ledger.Finished{Requests: requests}, b.finish(begun.PassID, ledger.Answer{Reports: []uuid.UUID{uuid.New()}}))
	var answered, published int
	b.scan(`select count(*) from billing_syncs where tenant_id = $1 and status = 'succeeded'`, []any{b.tenant}, &answered)
	b.scan(`select count(distinct payload->>'sync_id') from outbox where tenant_id = $1 and kind = 'sync.succeeded'`, []any{b.tenant}, &published)
	require.Equal(t, []int{requests, requests}, []int{answered, published})
}

func TestSyncLinesShowReportOfEachMeter(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.exec(`update meters set usage_scale = 2 where tenant_id = $1`, b.tenant)
	b.useStripe("acct_1")
	b.link("sub_1", month, asDelta)
	b.counted(b.sendAccepted("120.125"))
	id := b.request()
	begun := b.begin()
	require.True(t, begun.Reads)
	require.EqualValues(t, 1, begun.After)
	sent := b.sendAccepted("30")
	b.finish(begun.PassID, ledger.Answer{Reports: []uuid.UUID{sent}})

	lines := b.sync(id).Lines
	require.Len(t, lines, 1)
	l := lines[0]
	require.Equal(t, []string{"quantity", "accepted", "usage", "meter_delta", "mtr_1", "USD", "tested"},
		[]string{l.Kind, l.State, l.Component, l.Method, l.Target, l.Currency, l.Response})
	require.Equal(t, []string{"150.125", "0.005", "10.25", "150.12", "30"},
		[]string{l.Usage.String(), l.UnitPrice.String(), l.Amount.String(), l.Quantity.String(), l.Sent.String()})
	for _, r := range []metering.Range{l.Period, l.Window} {
		require.True(t, r.Start.Equal(month.Start) && r.End.Equal(month.End))
	}

	b.useProvider(oneReceiver)
	require.False(t, b.begin().Reads)
}

func TestFailedPassStoresErrorInSync(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	id := b.request()
	b.finish(b.begin().PassID, ledger.Answer{Error: "save another URL"})
	require.Equal(t, metering.SyncFailed, b.sync(id).Status)
	require.Equal(t, "save another URL", b.sync(id).Error)
}

func TestOnlyRequestWithoutPassIsWithdrawn(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	taken := b.request()
	b.begin()
	open := b.request()
	for _, id := range []uuid.UUID{taken, open, open} {
		require.NoError(t, b.store.Syncs.Withdraw(t.Context(), b.tenant, id))
	}
	require.Equal(t, metering.SyncRunning, b.sync(taken).Status)
	_, err := b.store.Syncs.Get(t.Context(), b.tenant, open)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
}

func TestASyncNeedsAProvider(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	customer := dbtest.Customer(t, store, tenant, "acme")
	_, err := store.Syncs.Request(t.Context(), tenant, "key_1", customer.ID, metering.Manual, clock.Now())
	require.Equal(t, metering.CodeNoProvider, metering.CodeOf(err))
}

func TestTenantCannotUseSyncsOfAnotherTenant(t *testing.T) {
	t.Parallel()
	mine, theirs := newBiller(t), newBiller(t)
	id := mine.request()
	_, err := theirs.store.Syncs.Get(t.Context(), theirs.tenant, id)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	require.NoError(t, theirs.store.Syncs.Withdraw(t.Context(), theirs.tenant, id))
	begun, err := theirs.store.Syncs.Begin(t.Context(), theirs.tenant, mine.customer.ID, mine.now)
	require.NoError(t, err)
	require.Zero(t, begun.Requests)
	_, err = theirs.store.Syncs.Finish(t.Context(), theirs.tenant, mine.customer.ID, mine.begin().PassID, ledger.Answer{}, mine.now)
	require.NoError(t, err)
	require.Equal(t, metering.SyncRunning, mine.sync(id).Status)
}

func TestOpenSyncsAreFoundByAge(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.request()
	mine := ledger.OpenSyncs{Tenant: b.tenant, Customer: b.customer.ID}
	open, err := b.store.Syncs.Open(t.Context(), b.now)
	require.NoError(t, err)
	require.NotContains(t, open, mine)
	open, err = b.store.Syncs.Open(t.Context(), b.now.Add(time.Second))
	require.NoError(t, err)
	require.Contains(t, open, mine)
}

// TestOldSyncsAreDeleted deletes with the role of the worker. It keeps reports, open syncs and failed last syncs.
func TestOldSyncsAreDeleted(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	worker := dbtest.OpenAsWorker(t, address)
	b := newBillerAt(t, store, address)
	b.price("0", "0", "1")
	b.use("1")
	succeeded := b.request()
	sent := b.next(0)
	b.finish(b.begin().PassID, ledger.Answer{Reports: []uuid.UUID{sent.ID}, Excluded: []billing.Exclusion{{MeterID: b.meter.ID, ExclusionReason: billing.ExclusionReason{Code: billing.ExcludedByOperator}}}})
	require.Len(t, b.sync(succeeded).Lines, 1)
	require.Len(t, b.sync(succeeded).Excluded, 1)
	failed := b.request()
	b.finish(b.begin().PassID, ledger.Answer{Error: "the receiver refused"})
	last := b.request()
	b.finish(b.begin().PassID, ledger.Answer{Error: "the receiver refused"})
	open := b.request()
	for _, want := range []int64{1, 1, 0} {
		deleted, err := worker.Syncs.Sweep(t.Context(), b.now.Add(time.Second), 1)
		require.NoError(t, err)
		require.Equal(t, want, deleted)
	}
	for _, id := range []uuid.UUID{succeeded, failed} {
		_, err := store.Syncs.Get(t.Context(), b.tenant, id)
		require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	}
	require.Equal(t, metering.SyncFailed, b.sync(last).Status)
	require.Equal(t, metering.SyncRequested, b.sync(open).Status)
	_, err := store.Ledger.Lease(t.Context(), b.tenant, sent.ID, b.now, lease)
	require.NoError(t, err, "the report is kept")
}
