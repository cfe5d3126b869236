package db_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// sendAll ingests an event of each customer, and folds the tenant's usage.
func (w *watcher) sendAll(value string, customers ...string) {
	w.Helper()
	var events []metering.Event
	for _, customer := range customers {
		events = append(events, dbtest.Event(w, "api_call", customer, w.now, value, "", ""))
	}
	_, err := w.writer.Ingest(w.Context(), w.tenant, events)
	require.NoError(w, err)
	require.NoError(w, w.store.Folds.Tenant(w.Context(), w.tenant))
}

// firedFor returns the external id of the customer in each alert.triggered message so far.
func (w *watcher) firedFor() (customers []string) {
	w.Helper()
	for _, m := range w.triggered() {
		customers = append(customers, m.CustomerExternalID)
	}
	return customers
}

// insertInvalidBillingLink stores a billing link with invalid destinations. Until the link is deleted, the evaluation
// of the biller's customer fails.
func (w *watcher) insertInvalidBillingLink() {
	w.Helper()
	w.exec(`
		insert into billing_links (tenant_id, customer_id, connection_id, provider_customer, subscription, destinations, read_at)
		values ($1, $2, $3, '', '', '1', $4)`, w.tenant, w.customer.ID, w.connection, w.now)
}

func TestFailedEvaluationDoesNotBlockOtherCustomers(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	w, second := newWatcherOn(t, store, address), newWatcherOn(t, store, address)
	for _, of := range []*watcher{w, second} {
		a := of.usage("10")
		a.CustomerID = 0
		of.alert(a)
	}
	w.evaluate()
	second.evaluate()
	failures := 0
	evaluator := store.NewEvaluator(func() time.Time { return w.now }, func(error) { failures++ })
	evaluator.Timeout = dbtest.Deadline
	all := func() {
		for evaluator.Pass() {
		}
	}
	w.insertInvalidBillingLink()
	w.sendAll("10", "acme", "b", "c", "d", "e", "f")
	second.sendAll("10", "acme")
	evaluator.Pass()
	require.Equal(t, []string{"acme"}, second.firedFor(), "one pass evaluates every tenant")
	require.Empty(t, w.firedFor())
	all()
	require.Equal(t, []string{"b", "c", "d", "e", "f"}, w.firedFor())
	failed := failures
	require.Positive(t, failed)

	w.sendAll("1", "acme", "b")
	all()
	require.Equal(t, failed, failures, "a postponed customer is not tried again before a minute has passed")
	w.exec(`delete from billing_links where tenant_id = $1`, w.tenant)
	w.now = w.now.Add(time.Minute)
	all()
	require.Equal(t, failed, failures)
	require.Equal(t, []string{"acme", "b", "c", "d", "e", "f"}, w.firedFor(), "no crossing is lost")
}

func TestFailedEvaluationIsRetriedSeparatelyWithBackoff(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	w := newWatcherOn(t, store, address)
	w.created(clock.Month(w.now, -1)) // no month ends meanwhile
	of := w.usage("10")
	of.CustomerID = 0
	w.alert(of)
	failures := 0
	evaluator := store.NewEvaluator(func() time.Time { return w.now }, func(error) { failures++ })
	evaluator.Timeout = dbtest.Deadline
	all := func() {
		for evaluator.Pass() {
		}
	}
	all()
	w.insertInvalidBillingLink()
	w.sendAll("10", "acme")
	all()
	require.Equal(t, 1, failures)
	for i, minutes := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		w.now = w.now.Add(time.Duration(minutes)*time.Minute - time.Microsecond)
		other := fmt.Sprintf("other %02d", i)
		w.sendAll("10", "acme", other)
		all()
		require.Equal(t, i+1, failures, "the failed customer is not in the batch of others")
		require.Contains(t, w.firedFor(), other)
		w.now = w.now.Add(time.Microsecond)
		all()
		require.Equal(t, i+2, failures, "after %d minutes", minutes)
	}
	state, err := store.Maintenance.State(t.Context(), w.now)
	require.NoError(t, err)
	require.Equal(t, int64(1), state.EvaluationsDue, "a failing customer")
	require.NotNil(t, state.OldestEvaluation)
	w.exec(`delete from billing_links where tenant_id = $1`, w.tenant)
	w.now = w.now.Add(time.Hour)
	all()
	require.Equal(t, 9, failures)
	require.Contains(t, w.firedFor(), "acme", "no crossing is lost")
	w.insertInvalidBillingLink()
	w.sendAll("1", "acme")
	all()
	w.now = w.now.Add(time.Minute)
	all()
	require.Equal(t, 11, failures, "the delay begins with a minute again")
}

func TestEventAndTimeEvaluationsDoNotStarveEachOther(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	w := newWatcherOn(t, store, address)
	w.created(clock.Month(w.now, -1)) // no month ends meanwhile
	now := w.now
	w.alert(metering.Alert{Type: metering.SilenceAlert, CustomerID: w.customer.ID, Minutes: 30})
	w.now = now.Add(-2 * time.Hour)
	w.use("1")
	w.evaluate()
	w.now = now
	backlog := func(due string) { // queued now, by the clock of the test
		w.exec(`insert into alert_due (tenant_id, customer_id, due_at, queued_at) select $1, 1000000000 + n, $2::timestamptz, $3 from generate_series(1, 600) n`,
			w.tenant, due, w.now)
	}
	backlog("-infinity")
	evaluator := store.NewEvaluator(func() time.Time { return w.now }, func(err error) { t.Error(err) })
	evaluator.Timeout = dbtest.Deadline
	evaluator.Pass()
	require.Equal(t, []string{"30:120"}, w.thresholds(), "a silence was due before the events")
	w.alert(w.usage("1"))
	w.exec(`delete from alert_due where tenant_id = $1`, w.tenant)
	w.now = now.Add(time.Hour)
	w.useAt("1", now)
	require.NoError(t, w.store.Folds.Tenant(t.Context(), w.tenant))
	w.exec(`update alert_due set queued_at = $2 where tenant_id = $1`, w.tenant, now)
	backlog(now.Add(30 * time.Minute).Format(time.RFC3339Nano))
	evaluator.Pass()
	require.Contains(t, w.thresholds(), "1:2", "an event was due before the times")
}

func TestStateReportsSizeAndAgeOfEvaluationQueue(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	w := newWatcherOn(t, store, address)
	state := func() db.State {
		s, err := store.Maintenance.State(t.Context(), w.now)
		require.NoError(t, err)
		return s
	}
	w.exec(`delete from alert_due where $1::bigint > 0`, w.tenant)
	require.Zero(t, state().EvaluationsDue)
	require.Nil(t, state().OldestEvaluation)
	hourAgo, minuteAgo := metering.Instant(w.now.Add(-time.Hour)), metering.Instant(w.now.Add(-time.Minute))
	queue := func(customer int, due any, queued time.Time) {
		w.exec(`insert into alert_due (tenant_id, customer_id, due_at, queued_at) values ($1, $2, coalesce($3::timestamptz, '-infinity'), $4)`, w.tenant, customer, due, queued)
	}
	queue(1, w.now.Add(time.Second), hourAgo)
	require.Zero(t, state().EvaluationsDue, "a time in the future")
	queue(1, minuteAgo, hourAgo)
	require.Equal(t, minuteAgo.UTC(), state().OldestEvaluation.UTC(), "a time is due since then")
	queue(1, nil, hourAgo)
	queue(2, nil, minuteAgo)
	require.Equal(t, int64(2), state().EvaluationsDue)
	require.Equal(t, hourAgo.UTC(), state().OldestEvaluation.UTC(), "an event is due at once")
}

// due returns the number of the tenant's rows in alert_due that are due.
func (w *watcher) due() (rows int) {
	w.Helper()
	w.scan(`select count(*) from alert_due where tenant_id = $1 and due_at <= $2`, []any{w.tenant, w.now}, &rows)
	return rows
}

func TestChangeForAllCustomersQueuesOneEvaluationRow(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	const others = 1_100 // more than one batch
	w.exec(`insert into customers (tenant_id, external_id, created_at) select $1, 'customer ' || n, $2 from generate_series(1, $3) n`, w.tenant, w.now, others)
	w.alert(metering.Alert{Type: metering.SpendAlert, Thresholds: decimals("3"), Currency: "USD"})
	w.evaluate()
	require.Zero(t, w.due())
	w.price("3", "0", "0")
	require.Equal(t, 1, w.due())
	w.evaluate()
	require.Len(t, w.triggered(), others+1)
	require.Zero(t, w.due())
}

func TestOnlyCustomersWithAlertsOrQuotasAreQueued(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	plan, err := w.store.Plans.Create(t.Context(), w.tenant, metering.Operator, metering.Plan{Slug: "pro", Name: "Pro"})
	require.NoError(t, err)
	planned, limited := dbtest.Customer(t, w.store, w.tenant, "planned"), dbtest.Customer(t, w.store, w.tenant, "limited")
	dbtest.Customer(t, w.store, w.tenant, "unwatched")
	require.NoError(t, w.store.Plans.Assign(t.Context(), w.tenant, metering.Operator, planned.ID, billing.Assignment{PlanID: plan.ID, EffectiveFrom: w.now}))
	of := w.usage("10")
	w.alert(of)
	of.CustomerID, of.PlanID = 0, plan.ID
	w.alert(of)
	w.quota("10", metering.PerMonth, func(q *metering.Quota) { q.CustomerID = limited.ID })
	w.evaluate()
	w.sendAll("1", "acme", "planned", "limited", "unwatched")
	rows, err := w.connect().Query(t.Context(), `
		select c.external_id
		from alert_due d
		join customers c on c.tenant_id = d.tenant_id and c.id = d.customer_id
		where d.tenant_id = $1
		  and d.due_at <= $2
		order by c.id`, w.tenant, w.now)
	require.NoError(t, err)
	queued, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"acme", "planned", "limited"}, queued)
}

// quota sets a hard quota for the biller's customer and meter. Each edit may change the quota before it is stored.
func (w *watcher) quota(limit string, period metering.QuotaPeriod, edit ...func(*metering.Quota)) limits.StoredQuota {
	w.Helper()
	q := metering.Quota{CustomerID: w.customer.ID, Meter: w.meter, Limit: new(metering.MustDecimal(limit)), Mode: metering.HardQuota, Period: period}
	for _, e := range edit {
		e(&q)
	}
	set, err := w.store.Quotas.Set(w.Context(), w.tenant, metering.Operator, q, w.now)
	require.NoError(w, err)
	return set
}

// TestChangeOfAlertedValueQueuesCustomerForEvaluation checks that a change queues the customer for evaluation if it can
// change a value that an alert compares.
func TestChangeOfAlertedValueQueuesCustomerForEvaluation(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*watcher){
		"AUsageScale": func(w *watcher) {
			_, _, err := w.store.Meters.Update(w.Context(), w.tenant, metering.Operator, w.meter.Slug, catalog.MeterChange{UsageScale: new(int32(2))})
			require.NoError(w, err)
		},
		"ATimezone": func(w *watcher) {
			// An archived meter gets no new version when the time zone changes.
			w.exec(`update meters set archived_at = $2 where tenant_id = $1`, w.tenant, w.now)
			_, _, err := w.store.Tenants.Update(w.Context(), w.tenant, metering.Operator, db.TenantChange{Timezone: new("Asia/Tokyo")})
			require.NoError(w, err)
		},
		"ASubscriptionOfItsOwnForAMeter": func(w *watcher) { w.plan(anew) },
		"APrice":                         func(w *watcher) { w.price("1", "0", "0") },
		"APlan": func(w *watcher) {
			plan, err := w.store.Plans.Create(w.Context(), w.tenant, metering.Operator, metering.Plan{Slug: "pro", Name: "Pro"})
			require.NoError(w, err)
			require.NoError(w, w.store.Plans.Assign(w.Context(), w.tenant, metering.Operator, w.customer.ID, billing.Assignment{PlanID: plan.ID, EffectiveFrom: w.now}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatcher(t)
			now := metering.Instant(w.now)
			w.created(now.AddDate(0, 0, -31))
			w.now = now
			w.useStripe("acct_" + name)
			w.link("sub_1", billing.CalendarPeriod(w.now, time.UTC), asDelta)
			second := dbtest.Meter(t, w.store, w.tenant, "tokens", "token")
			other := billing.Side{Subscription: "sub_2", Period: metering.Range{Start: w.now.AddDate(0, 0, -3), End: w.now.AddDate(0, 0, 4)}, Destinations: []billing.Destination{asDelta}}
			other.Destinations[0].MeterID, other.Destinations[0].Target = second.ID, "mtr_2"
			own := asDelta
			own.MeterID = w.meter.ID
			require.NoError(t, w.store.Links.Save(t.Context(), w.tenant, w.customer.ID, w.connection, billing.Side{
				Customer: "cus_1", Subscription: "sub_1", Period: billing.CalendarPeriod(w.now, time.UTC), Destinations: []billing.Destination{own}, Others: []billing.Side{other},
			}, w.now))
			w.alert(w.usage("10"))
			w.evaluate()
			require.Zero(t, w.due())
			change(w)
			require.Positive(t, w.due())
		})
	}
}

func TestAlertsAndQuotasOfFuturePlanApplyFromItsStart(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.watchQuotas()
	w.now = metering.WindowOf(w.now, metering.Day, time.UTC).Start.AddDate(0, 0, -1)
	plan, err := w.store.Plans.Create(t.Context(), w.tenant, metering.Operator, metering.Plan{Slug: "pro", Name: "Pro"})
	require.NoError(t, err)
	w.alert(metering.Alert{Name: "silent", Type: metering.SilenceAlert, PlanID: plan.ID, Minutes: 30})
	w.quota("10", metering.PerDay, func(q *metering.Quota) { q.CustomerID, q.PlanID = 0, plan.ID })
	w.use("20")
	begins := w.now.Add(2 * time.Hour)
	require.NoError(t, w.store.Plans.Assign(t.Context(), w.tenant, metering.Operator, w.customer.ID, billing.Assignment{PlanID: plan.ID, EffectiveFrom: begins}))
	w.evaluate()
	w.now = begins.Add(-time.Microsecond)
	w.evaluate()
	require.Empty(t, w.triggered())
	require.Empty(t, w.exceeded())
	w.now = begins
	w.evaluate()
	require.Equal(t, []string{"30:120"}, w.thresholds())
	require.Len(t, w.exceeded(), 1)
}

func TestSQLStatementsOfEvaluationDoNotGrowWithCustomers(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.watchQuotas()
	m := dbtest.Meter(t, w.store, w.tenant, "tokens", "token", "model")
	for _, model := range []string{"large", "small"} {
		w.alert(metering.Alert{Type: metering.UsageAlert, MeterID: m.ID, Group: groupOfModel(t, m, model), Thresholds: decimals("10")})
	}
	var customers []metering.CustomerID
	for i := range 11 {
		c := dbtest.Customer(t, w.store, w.tenant, fmt.Sprint("customer ", i))
		w.quota("10", metering.PerBilling, func(q *metering.Quota) { q.CustomerID = c.ID })
		customers = append(customers, c.ID)
	}
	store, counter := openCounted(t)
	statements := func(customers []metering.CustomerID) int {
		w.evaluate()
		w.exec(`insert into alert_due (tenant_id, customer_id) select $1, unnest($2::bigint[])`, w.tenant, customers)
		return counter.Count(func() { require.NoError(t, store.Evaluations.Tenant(t.Context(), w.tenant, w.now)) })
	}
	require.Equal(t, statements(customers[:1]), statements(customers))
}
