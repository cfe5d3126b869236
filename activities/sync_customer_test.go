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
	"go.temporal.io/sdk/testsuite"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/billing/passes"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// far is a webhook client that records the deliveries, and returns answer and err.
type far struct {
	mu     sync.Mutex
	secret string
	ids    []string
	bodies [][]byte
	answer webhook.Answer
	err    error

	onDeliver func() // called after far has recorded a delivery, before it returns
}

func (f *far) Deliver(_ context.Context, _ string, secrets []string, id string, _ time.Time, body []byte) (webhook.Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.secret = secrets[0]
	f.ids, f.bodies = append(f.ids, id), append(f.bodies, body)
	if f.onDeliver != nil {
		f.onDeliver()
	}
	return f.answer, f.err
}

// registry returns a registry with far as the webhook client.
func (f *far) registry() providers.Registry {
	return providers.Registered(webhook.NewProvider(f), stripe.NewProvider(stripe.New("")))
}

// bench is a customer of a tenant with a receiver of statements, for tests of single activities.
type bench struct {
	*testsuite.TestActivityEnvironment
	do       *activities.Activities
	store    *db.DB
	far      *far
	ring     seal.Keyring
	tenant   metering.TenantID
	customer metering.CustomerID
	sync     uuid.UUID
	now      time.Time
}

// newBench returns a bench: a customer with five units of usage, a billing provider and a requested sync.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{store: dbtest.Open(t), far: &far{answer: webhook.Answer{Status: 204}}, now: clock.Now()}
	ring, err := seal.ParseKeyring("test:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)))
	require.NoError(t, err)
	b.ring = ring
	b.do = activities.New(activities.Config{
		Store: b.store, Keyring: ring, Webhook: b.far, Providers: b.far.registry(), Metrics: activities.NewMetrics(nil), Now: func() time.Time { return b.now },
		BaseURL: "https://usage.example.com",
	})
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	b.TestActivityEnvironment = suite.NewTestActivityEnvironment()
	b.RegisterActivity(b.do)

	b.tenant = dbtest.Tenant(t, b.store).ID
	b.customer = dbtest.Customer(t, b.store, b.tenant, "acme").ID
	dbtest.Meter(t, b.store, b.tenant, "calls", "call")
	writer := b.store.NewWriter(dbtest.WriterOptions)
	t.Cleanup(writer.Close)
	_, err = writer.Ingest(t.Context(), b.tenant, []metering.Event{dbtest.Event(t, "call", "acme", b.now, "5", "", "")})
	require.NoError(t, err)
	b.useProvider(t, "https://billing.example.com/")
	requested, err := b.store.Syncs.Request(t.Context(), b.tenant, metering.Operator, b.customer, metering.Manual, b.now)
	require.NoError(t, err)
	b.sync = requested.ID
	return b
}

// useProvider connects the tenant to a receiver of statements at the URL.
func (b *bench) useProvider(t *testing.T, url string) {
	t.Helper()
	sealed, err := b.ring.Seal(b.tenant, seal.ProviderSecret, []byte("the secret"))
	require.NoError(t, err)
	dbtest.Provider(t, b.store, b.tenant, metering.Provider{
		Kind: metering.Webhook, Statements: true, Address: url, SealedSecret: sealed, ValidatedAt: b.now,
	})
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

// customerInput returns the input of activities about the customer.
func (b *bench) customerInput() activities.CustomerInput {
	return activities.CustomerInput{TenantID: b.tenant, CustomerID: b.customer}
}

// plan runs the activity PlanReports for a pass that began after the report with the given number.
func (b *bench) plan(t *testing.T, after int64) passes.Plan {
	t.Helper()
	return run[passes.Plan](t, b, b.do.PlanReports, activities.PlanReportsInput{CustomerInput: b.customerInput(), After: after})
}

// planned returns the report to send. If another period has begun since newBench, it is the report of the oldest
// period.
func (b *bench) planned(t *testing.T) activities.SendReportInput {
	t.Helper()
	plan := b.plan(t, 0)
	require.NotEmpty(t, plan.Send)
	return activities.SendReportInput{TenantID: b.tenant, ReportID: plan.Send[0].ID}
}

func TestEachActivityMayRunTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begun := run[activities.BeginSyncResult](t, b, b.do.BeginSync, b.customerInput())
	require.Equal(t, 1, begun.Requests)
	require.False(t, begun.Reads, "there is nothing to read of who takes statements")
	require.Equal(t, "https://usage.example.com/v1/customers/by-id?id="+b.customerInput().CustomerID.String(), begun.Page)
	former := begun
	begun = run[activities.BeginSyncResult](t, b, b.do.BeginSync, b.customerInput())
	former.PassID = begun.PassID
	require.Equal(t, former, begun, "a repeat takes the same")

	plan := b.plan(t, begun.After)
	require.Len(t, plan.Send, 1)
	repeated := b.plan(t, begun.After)
	require.Equal(t, plan.Send, repeated.Send)
	require.True(t, repeated.More, "what has come since is planned once this is decided")
	report := plan.Send[0]

	send := activities.SendReportInput{TenantID: b.tenant, ReportID: report.ID}
	sent := run[activities.SendReportResult](t, b, b.do.SendReport, send)
	require.Equal(t, activities.SendReportResult{State: billing.Accepted, Response: "the webhook answered 204"}, sent)
	_, err := b.ExecuteActivity(b.do.SendReport, send)
	require.ErrorContains(t, err, "the outcome of the report is already known")
	require.Len(t, b.far.bodies, 1)
	require.Equal(t, "the secret", b.far.secret)

	again := b.plan(t, begun.After)
	if b.now.Before(report.PeriodEnd) {
		require.Empty(t, again.Send)
	} else {
		require.Equal(t, report.PeriodEnd, again.Send[0].PeriodStart, "the next period has begun meanwhile")
	}

	finish := activities.FinishSyncInput{CustomerInput: b.customerInput(), PassID: begun.PassID, Reports: []uuid.UUID{report.ID}}
	for range 2 {
		require.False(t, run[activities.FinishSyncResult](t, b, b.do.FinishSync, finish).More)
	}
	sync, err := b.store.Syncs.Get(t.Context(), b.tenant, b.sync)
	require.NoError(t, err)
	require.Equal(t, metering.SyncSucceeded, sync.Status)
	require.Len(t, sync.Lines, 1)
	require.Equal(t, report.ID, sync.Lines[0].ReportID)
	require.Equal(t, "5", sync.Lines[0].Usage.String())
}
