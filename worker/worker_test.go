package worker_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/registry"
	"github.com/odometer-metering/odometer/worker"
	"github.com/odometer-metering/odometer/workflows"
)

const webhookSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// system is a database, a Temporal namespace and a receiver for a single test, with one customer.
type system struct {
	testing.TB
	log          *slog.Logger
	clock        *proc.Clock
	store        *db.DB
	database     string // its URL
	writer       *usage.Writer
	temporal     client.Client // for the test; it waits for a busy server
	workerClient client.Client // for workers; it has the SDK's time limits
	namespace    string
	keyring      seal.Keyring
	farEnd
	stripeBase string
	third      providers.Provider // in addition to the registered providers; may be nil
	tenant     metering.TenantID
	customer   metering.Customer
	meter      metering.Meter
	lostBeats  atomic.Int64 // heartbeats that Temporal did not answer in time
}

// newSystem returns a system with a new Temporal namespace.
func newSystem(t testing.TB) *system {
	t.Helper()
	return newSystemIn(t, proc.Namespace(t, temporalAddress(t)))
}

// newSystemIn returns a system in the Temporal namespace.
func newSystemIn(t testing.TB, namespace string) *system {
	t.Helper()
	s := &system{TB: t, namespace: namespace, log: proc.Logger(t), clock: proc.NewClock(t)}
	s.store, s.database = dbtest.Fresh(t)
	s.writer = s.store.NewWriter(dbtest.WriterOptions)
	t.Cleanup(s.writer.Close)
	address := temporalAddress(t)
	s.temporal = proc.Temporal(t, address, s.namespace)
	workerClient, err := client.Dial(client.Options{
		HostPort: address, Namespace: s.namespace, Identity: "test", Logger: s.log,
		ConnectionOptions: client.ConnectionOptions{
			GetSystemInfoTimeout: dbtest.Deadline,
			DialOptions:          []grpc.DialOption{grpc.WithChainUnaryInterceptor(s.noteLostBeat, workflows.AskAgain)},
		},
	})
	require.NoError(t, err)
	t.Cleanup(workerClient.Close)
	s.workerClient = workerClient
	s.farEnd = newFarEnd(t)
	s.keyring, err = seal.ParseKeyring(testKey())
	require.NoError(t, err)
	s.tenant = dbtest.Tenant(t, s.store).ID
	s.customer = dbtest.Customer(t, s.store, s.tenant, "canary-customer")
	s.meter = dbtest.Meter(t, s.store, s.tenant, "api-calls", "api_call")
	s.useProvider(s.farEnd.url + "/canary-path")
	return s
}

// noteLostBeat counts the heartbeats that fail. The SDK cancels the attempt after such a failure, and the next
// attempt continues from the previous heartbeat.
func (s *system) noteLostBeat(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := call(ctx, method, request, answer, conn, options...)
	if err != nil && method == workflowservice.WorkflowService_RecordActivityTaskHeartbeat_FullMethodName {
		s.lostBeats.Add(1)
	}
	return err
}

// testKey returns an encryption key as the environment variable contains it.
func testKey() string {
	return "test:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
}

// temporalAddress returns the address of the Temporal server for tests.
func temporalAddress(t testing.TB) string {
	t.Helper()
	address := os.Getenv("TEST_TEMPORAL_ADDRESS")
	if address == "" {
		t.Fatal("TEST_TEMPORAL_ADDRESS is not set: run make test, or dev/up test go test ./...")
	}
	return address
}

// quiet returns a logger that discards everything.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// useProvider connects the tenant to a receiver of statements at the URL.
func (s *system) useProvider(url string) {
	s.Helper()
	sealed, err := s.keyring.Seal(s.tenant, seal.ProviderSecret, []byte(webhookSecret))
	require.NoError(s, err)
	dbtest.Provider(s, s.store, s.tenant, metering.Provider{
		Kind: metering.Webhook, Statements: true, Address: url, SealedSecret: sealed, LastFour: "ZWY=", ValidatedAt: time.Now(),
	})
}

// useStripe connects the tenant to an account of Stripe.
func (s *system) useStripe(account, key string, mapping map[string]string) {
	s.Helper()
	sealed, err := s.keyring.Seal(s.tenant, seal.ProviderSecret, []byte(key))
	require.NoError(s, err)
	hook, err := s.keyring.Seal(s.tenant, seal.ProviderWebhookSecret, []byte(webhookSecret))
	require.NoError(s, err)
	_, err = s.store.Providers.Save(s.Context(), s.tenant, metering.Operator, metering.Provider{
		Kind: metering.Stripe, Invoices: true, Account: account, SealedSecret: sealed, LastFour: "nary", SealedWebhookSecret: hook,
		WebhookLastFour: "ZWY=", Mapping: mapping, ValidatedAt: time.Now(),
	})
	require.NoError(s, err)
}

// providers returns the registered providers, and the third one if it is set.
func (s *system) providers(guard providers.Guard) providers.Registry {
	all := registry.New(guard, s.stripeBase)
	if s.third != nil {
		all[s.third.Describe().Kind] = s.third
	}
	return all
}

// work runs a worker in this process until the test ends or stop is called.
func (s *system) work() (stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan struct{}), make(chan error, 1)
	guard := providers.Guard{AllowLoopback: true}
	go func() {
		ended <- worker.Run(ctx, worker.Config{
			Store: s.store, Temporal: s.workerClient, Namespace: s.namespace, Keyring: s.keyring, Now: s.clock.Now,
			Guard: guard, Providers: s.providers(guard), Log: s.log, Started: func() { close(started) },
		})
	}()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(s, <-ended)
		}
	}
	s.Cleanup(stop)
	select {
	case <-started:
	case err := <-ended:
		s.Fatalf("the worker ended: %v", err)
	}
	return stop
}

// use ingests an event of the customer.
func (s *system) use(value string) {
	s.Helper()
	_, err := s.writer.Ingest(s.Context(), s.tenant,
		[]metering.Event{dbtest.Event(s, "api_call", s.customer.ExternalID, time.Now(), value, "", "")})
	require.NoError(s, err)
}

// request requests a sync as the API does, and returns its id.
func (s *system) request() uuid.UUID {
	s.Helper()
	sync, err := s.store.Syncs.Request(s.Context(), s.tenant, metering.Operator, s.customer.ID, metering.Manual, s.clock.Now())
	require.NoError(s, err)
	dbtest.Eventually(s, func() error { // a busy server may not answer at once
		return workflows.StartSyncCustomer(s.Context(), s.temporal, s.tenant, s.customer.ID, true)
	})
	return sync.ID
}

// await waits until the sync has ended, and returns it.
func (s *system) await(id uuid.UUID) metering.Sync {
	s.Helper()
	var sync metering.Sync
	dbtest.Eventually(s, func() (err error) {
		if sync, err = s.store.Syncs.Get(s.Context(), s.tenant, id); err == nil && !sync.Status.Done() {
			err = fmt.Errorf("the sync is %s", sync.Status)
		}
		return err
	})
	return sync
}

// counted waits for a sync, and requests further syncs until no line of the first sync is in the state accepted. A pass
// that cannot read the provider's count leaves the count to the next pass.
func (s *system) counted(id uuid.UUID) metering.Sync {
	s.Helper()
	sync := s.await(id)
	isAccepted := func(l metering.SyncLine) bool { return l.State == string(billing.Accepted) }
	dbtest.Eventually(s, func() (err error) {
		if !slices.ContainsFunc(sync.Lines, isAccepted) {
			return nil
		}
		s.await(s.request())
		if sync, err = s.store.Syncs.Get(s.Context(), s.tenant, id); err == nil {
			err = fmt.Errorf("the lines are %v", linesOf(sync))
		}
		return err
	})
	return sync
}

// awaitClosed waits until the run has ended, and returns its error.
func (s *system) awaitClosed(workflowID string) error {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	defer time.AfterFunc(dbtest.Deadline, cancel).Stop() // s.temporal ignores deadlines
	return s.temporal.GetWorkflow(ctx, workflowID, "").Get(ctx, nil)
}

func TestASyncReportsTheTotalToTheReceiver(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.work()
	s.use("41.5")
	s.use("0.25")
	sync := s.await(s.request())
	require.Equal(t, metering.SyncSucceeded, sync.Status)
	require.Len(t, sync.Lines, 1)
	require.Equal(t, "41.75", sync.Lines[0].Usage.String())
	require.Equal(t, "accepted", sync.Lines[0].State)
	require.Equal(t, "api-calls", sync.Lines[0].MeterSlug)
	require.Equal(t, "41.75", s.billed()[s.customer.ExternalID])
	require.NoError(t, s.awaitClosed(workflows.SyncCustomerID(s.tenant, s.customer.ID)))

	sent := len(s.received())
	again := s.await(s.request())
	require.Equal(t, metering.SyncSucceeded, again.Status)
	require.Equal(t, sync.Lines, again.Lines, "nothing has changed: nothing is sent, and the lines are those that hold")
	require.Len(t, s.received(), sent)
}

func TestSyncRequestIsNotLostWithoutWorker(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.use("1")
	first, second := s.request(), s.request()
	s.work()
	require.Equal(t, metering.SyncSucceeded, s.await(first).Status)
	require.Equal(t, metering.SyncSucceeded, s.await(second).Status)
	require.Equal(t, "1", s.billed()[s.customer.ExternalID])
	s.requireDeliveries(workflows.SyncCustomerID(s.tenant, s.customer.ID), 1)
}

// requireDeliveries requires this number of deliveries to the receiver, or more if an attempt of the run was repeated.
func (s *system) requireDeliveries(workflowID string, want int) {
	s.Helper()
	if s.isRetried(workflowID) {
		require.GreaterOrEqual(s, len(s.received()), want)
		return
	}
	require.Len(s, s.received(), want)
}

func TestReceiverRefusalFailsSyncWithNextStep(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.work()
	s.use("5")
	s.behave(`{"status":404,"times":1}`)
	sync := s.await(s.request())
	require.Equal(t, metering.SyncFailed, sync.Status)
	require.Equal(t, "the webhook answered 404; check that the URL accepts POST requests", sync.Error)
	require.Len(t, sync.Lines, 1)
	require.Equal(t, "rejected", sync.Lines[0].State)
	require.ErrorContains(t, s.awaitClosed(workflows.SyncCustomerID(s.tenant, s.customer.ID)), "check that the URL accepts POST requests")

	again := s.await(s.request())
	require.Equal(t, metering.SyncSucceeded, again.Status)
	require.EqualValues(t, 2, again.Lines[0].Number)
	require.Equal(t, "5", s.billed()[s.customer.ExternalID])
}

func TestSyncWaitsForUnavailableReceiver(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.work()
	s.use("5")
	s.behave(`{"status":503,"times":2}`)
	sync := s.await(s.request())
	require.Equal(t, metering.SyncSucceeded, sync.Status)
	require.Equal(t, "5", s.billed()[s.customer.ExternalID])
	require.Len(t, s.statements(), 1)
	require.GreaterOrEqual(t, len(s.received()), 3)
}

// connect connects to the database until the test ends.
func (s *system) connect() *pgx.Conn {
	s.Helper()
	conn, err := pgx.Connect(s.Context(), s.database)
	require.NoError(s, err)
	s.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
