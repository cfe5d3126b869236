package activities_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// far notes what it is sent and answers as it is told.
type far struct {
	mu     sync.Mutex
	secret string
	bodies [][]byte
	answer webhook.Answer
	err    error
}

func (f *far) Deliver(_ context.Context, _ string, secrets []string, _ string, _ time.Time, body []byte) (webhook.Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.secret = secrets[0]
	f.bodies = append(f.bodies, body)
	return f.answer, f.err
}

// registry has the far end as the webhook.
func (f *far) registry() providers.Registry {
	return providers.Registered(webhook.NewProvider(f), stripe.NewProvider(stripe.New("")))
}

type bench struct {
	*testsuite.TestActivityEnvironment
	do       *activities.Activities
	store    *db.DB
	far      *far
	ring     db.Keyring
	tenant   metering.TenantID
	customer metering.CustomerID
	sync     uuid.UUID
	now      time.Time
}

// newBench is a customer with five units of usage, a provider and a request.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{store: dbtest.Open(t), far: &far{answer: webhook.Answer{Status: 204}}, now: clock.Now()}
	ring, err := db.ParseKeyring("test:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)))
	require.NoError(t, err)
	b.ring = ring
	b.do = activities.New(b.store, ring, b.far, b.far.registry(), 0, activities.NewMetrics(nil), func() time.Time { return b.now })
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	b.TestActivityEnvironment = suite.NewTestActivityEnvironment()
	b.RegisterActivity(b.do)

	b.tenant = dbtest.Tenant(t, b.store).ID
	b.customer = dbtest.Customer(t, b.store, b.tenant, "acme").ID
	dbtest.Meter(t, b.store, b.tenant, "calls", "call")
	writer := db.NewWriter(b.store, db.WriterOptions{})
	t.Cleanup(writer.Close)
	_, err = writer.Ingest(t.Context(), b.tenant, []metering.Event{dbtest.Event(t, "call", "acme", b.now, "5", "", "")})
	require.NoError(t, err)
	sealed, err := ring.Seal(b.tenant, db.ProviderSecret, []byte("the secret"))
	require.NoError(t, err)
	_, err = b.store.Providers.Save(t.Context(), b.tenant, metering.Operator, metering.Provider{
		Kind: metering.Webhook, Statements: true, Account: "https://billing.example.com/", SealedSecret: sealed, ValidatedAt: b.now,
	})
	require.NoError(t, err)
	requested, err := b.store.Syncs.Request(t.Context(), b.tenant, metering.Operator, b.customer, metering.Manual, b.now)
	require.NoError(t, err)
	b.sync = requested.ID
	return b
}

// run executes an activity and returns its result.
func run[Out any](t *testing.T, b *bench, activity, in any) (out Out) {
	t.Helper()
	value, err := b.ExecuteActivity(activity, in)
	require.NoError(t, err)
	if value != nil && value.HasValue() {
		require.NoError(t, value.Get(&out))
	}
	return out
}

func (b *bench) prepare(t *testing.T) activities.PrepareSnapshotResult {
	t.Helper()
	return run[activities.PrepareSnapshotResult](t, b, b.do.PrepareSnapshot,
		activities.PrepareSnapshotInput{TenantID: b.tenant, CustomerID: b.customer})
}

func TestEachActivityMayRunTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begin := activities.BeginSyncInput{TenantID: b.tenant, CustomerID: b.customer}
	begun := run[activities.BeginSyncResult](t, b, b.do.BeginSync, begin)
	require.Equal(t, []uuid.UUID{b.sync}, begun.Syncs)
	require.Equal(t, begun, run[activities.BeginSyncResult](t, b, b.do.BeginSync, begin))

	prepared := b.prepare(t)
	require.NotNil(t, prepared.Send)
	require.Equal(t, prepared, b.prepare(t))

	deliver := activities.DeliverSnapshotInput{TenantID: b.tenant, SnapshotID: prepared.Send.ID}
	require.Equal(t, "the webhook answered 204", run[activities.DeliverSnapshotResult](t, b, b.do.DeliverSnapshot, deliver).Answer)
	_, err := b.ExecuteActivity(b.do.DeliverSnapshot, deliver)
	require.ErrorContains(t, err, "the snapshot is being sent", "the lease lasts until it is settled")
	b.now = b.now.Add(time.Minute)
	run[activities.DeliverSnapshotResult](t, b, b.do.DeliverSnapshot, deliver)
	require.Len(t, b.far.bodies, 2)
	require.Equal(t, b.far.bodies[0], b.far.bodies[1])
	require.Equal(t, "the secret", b.far.secret)

	settle := activities.SettleSnapshotInput{TenantID: b.tenant, SnapshotID: prepared.Send.ID, Answer: "the webhook answered 204"}
	run[struct{}](t, b, b.do.SettleSnapshot, settle)
	run[struct{}](t, b, b.do.SettleSnapshot, settle)
	again := b.prepare(t)
	if b.now.Before(prepared.Send.PeriodEnd) {
		require.Nil(t, again.Send)
	} else {
		require.Equal(t, prepared.Send.PeriodEnd, again.Send.PeriodStart, "the next period has begun meanwhile")
	}

	finish := activities.FinishSyncInput{TenantID: b.tenant, CustomerID: b.customer, Syncs: begun.Syncs, Snapshots: []uuid.UUID{prepared.Send.ID}}
	for range 2 {
		require.False(t, run[activities.FinishSyncResult](t, b, b.do.FinishSync, finish).More)
	}
	sync, err := b.store.Syncs.Get(t.Context(), b.tenant, b.sync)
	require.NoError(t, err)
	require.Equal(t, metering.SyncSucceeded, sync.Status)
	require.Len(t, sync.Entries, 1)
}

func TestAFailedDeliveryGivesItsLeaseBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	deliver := activities.DeliverSnapshotInput{TenantID: b.tenant, SnapshotID: b.prepare(t).Send.ID}
	b.far.err = metering.Errorf(metering.CodeProviderDown, "the webhook answered 503")
	b.far.answer = webhook.Answer{Status: 503, RetryAfter: time.Minute}
	for range 2 {
		_, err := b.ExecuteActivity(b.do.DeliverSnapshot, deliver)
		require.ErrorContains(t, err, "the webhook answered 503")
	}
	require.Len(t, b.far.bodies, 2)
	b.far.err = nil
	run[activities.DeliverSnapshotResult](t, b, b.do.DeliverSnapshot, deliver)
}

func TestAReceiversWishIsPassedOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	snapshot := b.prepare(t).Send.ID
	b.far.err = metering.Errorf(metering.CodeProviderDown, "the webhook answered 429")
	b.far.answer = webhook.Answer{Status: 429, RetryAfter: time.Minute}
	_, err := b.do.DeliverSnapshot(t.Context(), activities.DeliverSnapshotInput{TenantID: b.tenant, SnapshotID: snapshot})
	require.Equal(t, time.Minute, nextRetry(t, activities.Failure(err)))
}

func TestASecretSealedWithALostKeyIsSaidToBe(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other, err := db.ParseKeyring("other:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{8}, 32)))
	require.NoError(t, err)
	do := activities.New(b.store, other, b.far, b.far.registry(), 0, activities.NewMetrics(nil), clock.Now)
	_, err = do.DeliverSnapshot(t.Context(), activities.DeliverSnapshotInput{TenantID: b.tenant, SnapshotID: b.prepare(t).Send.ID})
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
	require.ErrorContains(t, err, "save the provider again")
	require.Empty(t, b.far.bodies)
}

func TestARefusalIsRecordedWithWhatToDo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	snapshot := b.prepare(t).Send.ID
	run[struct{}](t, b, b.do.SettleSnapshot, activities.SettleSnapshotInput{TenantID: b.tenant, SnapshotID: snapshot, Refusal: "save another URL"})
	require.Nil(t, b.prepare(t).Send, "this pass has been told no")
	again := run[activities.PrepareSnapshotResult](t, b, b.do.PrepareSnapshot,
		activities.PrepareSnapshotInput{TenantID: b.tenant, CustomerID: b.customer, After: 1})
	require.NotEqual(t, snapshot, again.Send.ID)
	require.EqualValues(t, 2, again.Send.Sequence)
}

func nextRetry(t *testing.T, err error) time.Duration {
	t.Helper()
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	return failure.NextRetryDelay()
}
