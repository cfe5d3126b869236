package activities_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/lives"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// TestSimulatedLivesReplayWithRealComponents replays recorded lives of billing's simulator with the database, the
// activities, and receivers and the fake of Stripe over HTTP. It checks the reports of each plan, and whether the
// customer is out of sync after each step. At the end, it checks all reports and periods, and the last statements at
// receivers.
//
// Recorded lives exclude steps that the real components cannot perform for one customer alone: the end of a
// connection without a successor, and retention. The fake's counts are always up to date, and its items begin
// and end with their subscription. An invoice is final when the simulator finalizes it, and its event arrives
// at once. The totals of invoices are compared only through the usage that is treated as billed. Only
// receivers get concurrent calls of workers.
func TestSimulatedLivesReplayWithRealComponents(t *testing.T) {
	t.Parallel()
	all, err := lives.Load("../billing/testdata/lives")
	require.NoError(t, err)
	require.NotEmpty(t, all)
	pool, err := pgxpool.New(t.Context(), dbtest.URL(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for _, recorded := range all {
		t.Run(fmt.Sprint(recorded.Seed), func(t *testing.T) {
			t.Parallel()
			l := newLife(t, pool, recorded)
			for n, action := range recorded.Actions {
				l.now = action.At
				l.clock.Store(&action.At)
				l.do(n, action)
			}
			want, err := recorded.Text()
			require.NoError(t, err)
			got, err := l.outcome().Text()
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

// life replays a recorded life for one customer of a new tenant in the database.
type life struct {
	testing.TB
	pool     *pgxpool.Pool // reads rows that no method of store returns
	store    *db.DB
	writer   *usage.Writer
	keyring  seal.Keyring
	recorded lives.Life
	tenant   metering.TenantID
	customer metering.CustomerID
	meters   []metering.Meter
	plan     metering.PlanID
	passes   map[int]*pass
	mortal   map[int]bool // passes with a worker that stops
	now      time.Time
	done     int // number of started actions

	receiver             *receiver
	receiverAt, stripeAt *httptest.Server
	fake                 *stripetest.Fake
	subscription         string                              // ID of the customer's subscription at the fake
	clock                atomic.Pointer[time.Time]           // time of the fake
	answered             atomic.Pointer[func(*http.Request)] // called after a server has answered; may be nil
	// atOnce means that each report is leased, sent and recorded at one instant. It is set if the life has a counter.
	atOnce bool
}

// newLife creates the tenant and the customer of a recorded life, and starts its receiver and its fake of Stripe.
func newLife(t *testing.T, pool *pgxpool.Pool, recorded lives.Life) *life {
	l := &life{
		TB: t, pool: pool, store: dbtest.Open(t), recorded: recorded, now: recorded.Born, passes: make(map[int]*pass), mortal: make(map[int]bool),
		receiver: newReceiver(),
	}
	l.writer = l.store.NewWriter(dbtest.WriterOptions)
	t.Cleanup(l.writer.Close)
	l.receiverAt = l.serve(l.receiver)
	l.clock.Store(&recorded.Born)
	l.fake = stripetest.New(stripetest.Options{Now: func() time.Time { return *l.clock.Load() }})
	l.stripeAt = l.serve(l.fake)
	t.Cleanup(l.end)
	for _, a := range recorded.Actions {
		l.mortal[a.Pass] = l.mortal[a.Pass] || a.Do == lives.Dies
		l.atOnce = l.atOnce || a.Do == lives.Counter
	}
	var err error
	l.keyring, err = seal.ParseKeyring("test:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)))
	require.NoError(t, err)
	l.tenant = dbtest.Tenant(t, l.store, recorded.Timezone).ID
	l.change(db.TenantChange{Grace: new(time.Duration(recorded.GraceSeconds) * time.Second), LatePolicy: &recorded.LatePolicy})
	customer, err := l.store.Customers.Create(t.Context(), l.tenant, metering.Operator, metering.Customer{ExternalID: "a customer", BillingProviderID: new(atProvider)}, recorded.Born)
	require.NoError(t, err)
	l.customer = customer.ID
	if recorded.BillingStartsAt != nil {
		_, err := pool.Exec(t.Context(), `update customers set billing_starts_at = $3 where tenant_id = $1 and id = $2`, l.tenant, l.customer, recorded.BillingStartsAt)
		require.NoError(t, err)
	}
	plan, err := l.store.Plans.Create(t.Context(), l.tenant, metering.Operator, metering.Plan{Slug: "plan", Name: "Plan"})
	require.NoError(t, err)
	l.plan = plan.ID
	return l
}

// serve starts an HTTP server for a receiver or the fake.
func (l *life) serve(far http.Handler) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answered := l.answered.Load(); answered != nil {
			defer (*answered)(r)
		}
		far.ServeHTTP(w, r)
	}))
	l.Cleanup(server.Close)
	return server
}

// do replays one action; n is its index.
func (l *life) do(n int, a lives.Action) {
	l.Helper()
	l.done = n + 1
	switch a.Do {
	case lives.Meter:
		l.make(a)
	case lives.Counted:
		meter, err := l.store.Meters.Get(l.Context(), l.tenant, slug(a.Meter))
		require.NoError(l, err)
		l.count(meter.Version.ID)
	case lives.Version:
		group := append([]string{fmt.Sprintf("group-%d", n)}, l.meters[a.Meter-1].Version.GroupBy...)
		_, version, err := l.store.Meters.Update(l.Context(), l.tenant, metering.Operator, slug(a.Meter), catalog.MeterChange{Aggregation: &a.Aggregation, GroupBy: &group})
		require.NoError(l, err)
		if version != nil { // nil: the version has no past events
			l.count(version.ID)
		}
	case lives.Scale:
		_, _, err := l.store.Meters.Update(l.Context(), l.tenant, metering.Operator, slug(a.Meter), catalog.MeterChange{UsageScale: &a.Scale})
		require.NoError(l, err)
	case lives.Price:
		price := billing.Price{MeterID: l.meters[a.Meter-1].ID, PlanID: l.planOf(a), EffectiveFrom: *a.From, Inherits: a.Price == nil}
		if a.Own {
			price.CustomerID = l.customer
		}
		if a.Price != nil {
			price.Terms = *a.Price
		}
		_, err := l.store.Prices.Set(l.Context(), l.tenant, metering.Operator, price)
		require.NoError(l, err)
	case lives.Assign:
		require.NoError(l, l.store.Plans.Assign(l.Context(), l.tenant, metering.Operator, l.customer, billing.Assignment{PlanID: l.planOf(a), EffectiveFrom: *a.From}))
	case lives.LatePolicy:
		l.change(db.TenantChange{LatePolicy: &a.LatePolicy})
	case lives.Grace:
		l.change(db.TenantChange{Grace: new(time.Duration(a.Seconds) * time.Second)})
	case lives.Receiver:
		l.connect(a.Connection)
	case lives.Counter:
		l.subscribe(a)
		l.connectCounter(a)
	case lives.Resubscribe:
		l.cancel(a)
		l.subscribe(a)
	case lives.Link:
		l.link(new(atProvider))
	case lives.Unlink:
		l.link(nil)
	case lives.Invoice:
		l.invoice(a)
	case lives.Use:
		l.use("a customer", slug(a.Meter), *a.Time, *a.Value, a.Properties)
	default:
		l.work(a)
	}
}

// work replays an action of a worker or an operator.
func (l *life) work(a lives.Action) {
	l.Helper()
	alone := activities.BatchInput{TenantID: l.tenant, Customers: []metering.CustomerID{l.customer}}
	switch a.Do {
	case lives.Sync:
		var result activities.SyncBatchResult
		do := l.activities(l.store, caller())
		l.run(do, do.SyncBatch, alone, &result)
		require.Equal(l, 1, result.Customers)
		require.Zero(l, result.Busy)
		require.Empty(l, result.Failed)
	case lives.Close:
		do := l.activities(l.store, nil)
		l.run(do, do.CloseBatch, alone, new(activities.CloseBatchResult))
	case lives.Look:
		var page activities.CustomerPageResult
		do := l.activities(l.store, nil)
		l.run(do, do.FindOutOfSync, activities.CustomerPageInput{TenantID: l.tenant, Limit: 10}, &page)
		require.Equal(l, a.OutOfSync, slices.Contains(page.Customers, l.customer), "at %s", l.now)
	case lives.Resolve:
		require.NoError(l, l.store.Ledger.Resolve(l.Context(), l.tenant, ledger.Resolution{Report: l.report(a.Report), State: a.State, Actor: metering.Operator}, l.now))
	case lives.Again:
		l.again(l.report(a.Report))
	default:
		l.pass(a.Pass).step(a)
	}
}

// make creates a meter. If the meter needs a backfill, another customer sends usage first, so that past
// events exist.
func (l *life) make(a lives.Action) {
	if a.Backfilling {
		l.use("a neighbour", slug(a.Meter), l.recorded.Born, metering.Whole(1), nil)
	}
	m, err := l.store.Meters.Create(l.Context(), l.tenant, metering.Operator, metering.Meter{
		Slug: slug(a.Meter), EventType: slug(a.Meter), UsageScale: a.Scale, Version: metering.MeterVersion{Aggregation: metering.Sum, GroupBy: a.GroupBy},
	})
	require.NoError(l, err)
	require.Equal(l, a.Backfilling, m.Version.Status == metering.Backfilling)
	l.meters = append(l.meters, m)
}

// count counts the past events of a meter version.
func (l *life) count(version metering.MeterVersionID) {
	do := l.activities(l.store, nil)
	in := activities.BackfillInput{TenantID: l.tenant, MeterVersionID: version}
	var plan activities.PlanBackfillResult
	l.run(do, do.PlanBackfill, in, &plan)
	l.run(do, do.CountDays, activities.CountDaysInput{BackfillInput: in, Days: plan.Days}, new(activities.CountDaysResult))
	l.run(do, do.CompleteMeterVersion, in, nil)
}

// use ingests an event of a customer.
func (l *life) use(customer, eventType string, at time.Time, value metering.Decimal, properties json.RawMessage) {
	l.Helper()
	stamp := at.Format(time.RFC3339Nano)
	sent := metering.SentEvent{EventType: eventType, CustomerID: customer, Timestamp: &stamp, Value: json.RawMessage(value.String()), Properties: properties}
	event, rejection := sent.Judge(l.now)
	if rejection != nil {
		l.Fatalf("at %s: %v", l.now, rejection)
	}
	_, err := l.writer.Ingest(l.Context(), l.tenant, []metering.Event{event})
	require.NoError(l, err)
}

// connect connects the tenant to a receiver of statements.
func (l *life) connect(connection int) {
	sealed, err := l.keyring.Seal(l.tenant, seal.ProviderSecret, []byte(receiverSecret))
	require.NoError(l, err)
	dbtest.Provider(l, l.store, l.tenant, metering.Provider{
		Kind: metering.Webhook, Statements: true, Address: fmt.Sprintf("%s/%d", l.receiverAt.URL, connection), SealedSecret: sealed, ValidatedAt: l.now,
	})
}

// change changes the settings of the tenant.
func (l *life) change(change db.TenantChange) {
	_, _, err := l.store.Tenants.Update(l.Context(), l.tenant, metering.Operator, change)
	require.NoError(l, err)
}

// planOf returns the plan that an action names, or 0.
func (l *life) planOf(a lives.Action) metering.PlanID {
	if a.Plan == 0 {
		return 0
	}
	return l.plan
}

// activities returns the activities of a worker that delivers statements through client.
func (l *life) activities(store *db.DB, client webhook.Deliverer) *activities.Activities {
	return activities.New(activities.Config{
		Store: store, Keyring: l.keyring, Providers: providers.Registered(webhook.NewProvider(client), stripe.NewProvider(stripe.New(l.stripeAt.URL))),
		Metrics: activities.NewMetrics(nil), Now: func() time.Time { return l.now },
	})
}

// run executes an activity, as a worker does.
func (l *life) run(do *activities.Activities, activity, in, out any) {
	l.Helper()
	value, err := executing(do).ExecuteActivity(activity, in)
	require.NoError(l, err)
	if out != nil {
		require.NoError(l, value.Get(out))
	}
}

// executing returns an environment that executes activities of do.
func executing(do *activities.Activities) *testsuite.TestActivityEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(do)
	return env
}

// slug returns the slug of a meter of the life.
func slug(meter metering.MeterID) string { return fmt.Sprintf("meter-%d", meter) }

// meterOf returns the number of a meter in the life.
func (l *life) meterOf(id metering.MeterID) metering.MeterID {
	for i, m := range l.meters {
		if m.ID == id {
			return metering.MeterID(i + 1)
		}
	}
	l.Fatalf("there is no meter %s", id)
	return 0
}

// connectionOf returns the number at the end of a connection's account or address, such as 2 for acct_2. It is the
// connection's number in the life, not its id.
func connectionOf(account string) (n int) {
	_, _ = fmt.Sscan(account[strings.LastIndexAny(account, "/_")+1:], &n)
	return n
}
