package db_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// watcher is a biller with a webhook that receives alert.triggered.
type watcher struct{ *biller }

func newWatcher(t testing.TB) *watcher {
	t.Helper()
	return newWatcherOn(t, dbtest.Open(t), dbtest.URL(t))
}

func newWatcherOn(t testing.TB, store *db.DB, address string) *watcher {
	t.Helper()
	w := &watcher{newBillerAt(t, store, address)}
	_, err := w.store.Webhooks.Create(t.Context(), w.tenant, metering.Operator, metering.Endpoint{
		URL: "https://example.com/alerts", EventTypes: []metering.MessageKind{metering.MessageAlertTriggered}, Sealed: []byte("sealed"), LastFour: "abcd",
	}, w.now)
	require.NoError(t, err)
	return w
}

func (w *watcher) alert(a metering.Alert) metering.Alert {
	w.Helper()
	if a.Name == "" {
		a.Name = "watched"
	}
	created, err := w.store.Alerts.Create(w.Context(), w.tenant, metering.Operator, a, w.now)
	require.NoError(w, err)
	return created
}

// usage returns a usage alert on the biller's customer and meter.
func (w *watcher) usage(thresholds ...string) metering.Alert {
	return metering.Alert{Type: metering.UsageAlert, MeterID: w.meter.ID, CustomerID: w.customer.ID, Thresholds: decimals(thresholds...)}
}

func decimals(literals ...string) (all []metering.Decimal) {
	for _, l := range literals {
		all = append(all, metering.MustDecimal(l))
	}
	return all
}

// evaluate folds the tenant's usage and evaluates the due customers.
func (w *watcher) evaluate() {
	w.Helper()
	require.NoError(w, w.store.Folds.Tenant(w.Context(), w.tenant))
	require.NoError(w, w.store.Evaluations.Tenant(w.Context(), w.tenant, w.now))
}

// payloads returns the message payloads that a query selects. $1 is the tenant. payloads closes its
// connection at once, because a test with many histories calls it often.
func (w *watcher) payloads(query string) []json.RawMessage {
	w.Helper()
	conn, err := pgx.Connect(w.Context(), w.address)
	require.NoError(w, err)
	defer conn.Close(w.Context())
	rows, err := conn.Query(w.Context(), query, w.tenant)
	require.NoError(w, err)
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[json.RawMessage])
	require.NoError(w, err)
	return payloads
}

// triggered returns the alert.triggered messages so far, ordered by customer, alert, threshold and period.
func (w *watcher) triggered() (messages []outbox.AlertTriggered) {
	w.Helper()
	payloads := w.payloads(`
		select payload
		from outbox
		where tenant_id = $1
		  and kind = 'alert.triggered'
		order by payload ->> 'customer_external_id', substr(payload -> 'alert' ->> 'id', 5)::bigint, payload -> 'threshold', payload -> 'period' ->> 'start'`)
	for _, payload := range payloads {
		var m outbox.AlertTriggered
		require.NoError(w, json.Unmarshal(payload, &m))
		messages = append(messages, m)
	}
	return messages
}

// thresholds returns "threshold:value" of each alert.triggered message.
func (w *watcher) thresholds() (all []string) {
	w.Helper()
	for _, m := range w.triggered() {
		all = append(all, m.Threshold.String()+":"+m.Value.String())
	}
	return all
}

func TestAUsageAlertFiresOnceAtEachThreshold(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t) // a sweep covers all tenants
	w := newWatcherOn(t, store, address)
	w.created(w.now.AddDate(0, 0, -93))
	w.now = billing.CalendarPeriod(w.now, time.UTC).Start.Add(time.Hour)
	a := w.alert(w.usage("20", "10"))
	require.Equal(t, decimals("10", "20"), a.Thresholds, "ascending")
	w.evaluate()
	require.Empty(t, w.triggered())
	w.use("9.5")
	w.evaluate()
	require.Empty(t, w.triggered())
	w.use("0.5")
	w.evaluate()
	require.Equal(t, []string{"10:10"}, w.thresholds(), "a threshold that is reached exactly")
	for range 3 {
		w.use("1")
		w.evaluate()
	}
	require.Equal(t, []string{"10:10"}, w.thresholds(), "once")
	w.use("100")
	w.evaluate()
	require.Equal(t, []string{"10:10", "20:113"}, w.thresholds())

	m := w.triggered()[0]
	period := billing.CalendarPeriod(w.now, time.UTC)
	require.Equal(t, outbox.AlertTriggered{
		OfCustomer: outbox.OfCustomer{OfTenant: outbox.OfTenant{TenantID: w.tenant.String()}, CustomerID: w.customer.ID.String(), CustomerExternalID: "acme"},
		ID:         m.ID, Alert: outbox.TriggeredAlert{ID: a.ID.String(), Name: "watched", Type: metering.UsageAlert},
		Threshold: metering.MustDecimal("10"), Value: metering.MustDecimal("10"), Period: outbox.MessagePeriod{Start: period.Start.UTC(), End: period.End.UTC()},
		OccurredAt: metering.Instant(w.now),
	}, m)
	firings, err := dbtest.Items(w.store.Alerts.Firings(t.Context(), w.tenant, a.ID, 0, 10))
	require.NoError(t, err)
	require.Len(t, firings, 2)
	require.Equal(t, "20", firings[0].Threshold.String(), "newest first")
	require.Equal(t, "acme", firings[0].ExternalID)

	w.now = period.End
	w.use("15")
	w.evaluate()
	require.Equal(t, []string{"10:10", "10:15", "20:113"}, w.thresholds(), "again in the next period")

	deleted, err := w.store.Alerts.Sweep(t.Context(), period.End.Add(time.Microsecond), 100)
	require.NoError(t, err)
	require.GreaterOrEqual(t, deleted, int64(2))
	firings, err = dbtest.Items(w.store.Alerts.Firings(t.Context(), w.tenant, a.ID, 0, 10))
	require.NoError(t, err)
	require.Len(t, firings, 1, "the firing of the current period")
}

func TestNewAlertFiresIfThresholdIsAlreadyExceeded(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.use("50")
	a := w.alert(w.usage("10", "40", "60"))
	w.evaluate()
	require.Equal(t, []string{"10:50", "40:50"}, w.thresholds())
	_, err := w.store.Alerts.Update(t.Context(), w.tenant, metering.Operator, a.ID, limits.AlertChange{Thresholds: decimals("40", "45")}, w.now)
	require.NoError(t, err)
	w.evaluate()
	require.Equal(t, []string{"10:50", "40:50", "45:50"}, w.thresholds(), "a changed threshold too")
	_, err = w.store.Alerts.Update(t.Context(), w.tenant, metering.Operator, a.ID, limits.AlertChange{Enabled: new(false)}, w.now)
	require.NoError(t, err)
	w.use("50")
	w.evaluate()
	require.Len(t, w.thresholds(), 3, "a disabled alert does not fire")
	require.NoError(t, w.store.Alerts.Delete(t.Context(), w.tenant, metering.Operator, a.ID, w.now))
	w.evaluate()
	require.Equal(t, []string{a.ID.String()}, w.audited("alert.delete"))
}

func TestASpendAlertReadsTheEstimatedCharge(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.now = billing.CalendarPeriod(w.now, time.UTC).Start.Add(time.Hour)
	second := dbtest.Meter(t, w.store, w.tenant, "calls", "call")
	w.alert(metering.Alert{Name: "of a meter", Type: metering.SpendAlert, MeterID: w.meter.ID, Thresholds: decimals("5"), Currency: "USD"})
	w.alert(metering.Alert{Name: "of all", Type: metering.SpendAlert, Thresholds: decimals("5", "7"), Currency: "USD"})
	w.alert(metering.Alert{Name: "of another currency", Type: metering.SpendAlert, Thresholds: decimals("1"), Currency: "EUR"})
	w.use("10")
	w.evaluate()
	require.Empty(t, w.triggered(), "without a price")
	for _, m := range []metering.Meter{w.meter, second} {
		dbtest.Price(t, w.store, w.tenant, billing.Price{MeterID: m.ID, Terms: billing.Terms{BasePrice: metering.MustDecimal("3"), OverageRate: metering.MustDecimal("0.1"), Currency: "USD"}})
	}
	w.evaluate()
	require.Equal(t, []string{"5:7", "7:7"}, w.thresholds(), "a new price causes an evaluation: 3 + 1 for one meter, 3 for the other")
	w.use("10")
	w.evaluate()
	require.Equal(t, []string{"5:5", "5:7", "7:7"}, w.thresholds())
	require.Equal(t, "USD", w.triggered()[0].Currency)

	w.now = billing.CalendarPeriod(w.now, time.UTC).End
	w.evaluate()
	require.Equal(t, []string{"5:5", "5:7", "5:6", "7:7"}, w.thresholds(), "the base prices of the next period, without an event")
}

func TestUsageAlertOfGroupCountsOnlyThatGroup(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	m := dbtest.Meter(t, w.store, w.tenant, "tokens", "token", "model")
	w.alert(metering.Alert{Type: metering.UsageAlert, MeterID: m.ID, Group: groupOfModel(t, m, "large"), Thresholds: decimals("10")})
	send := func(model, value string) {
		event := dbtest.Event(t, "token", "acme", w.now, value, "", `{"model":"`+model+`"}`)
		_, err := w.writer.Ingest(t.Context(), w.tenant, []metering.Event{event})
		require.NoError(t, err)
		w.evaluate()
	}
	send("small", "100")
	send("large", "9")
	require.Empty(t, w.triggered())
	send("large", "2")
	require.Equal(t, []string{"10:11"}, w.thresholds())

	conn := w.connect()
	fillGroups(t, conn, w.tenant, m)
	create := func(model string) error {
		_, err := w.store.Alerts.Create(t.Context(), w.tenant, metering.Operator, metering.Alert{
			Name: "group", Type: metering.UsageAlert, MeterID: m.ID, Group: groupOfModel(t, m, model), Thresholds: decimals("1"),
		}, w.now)
		return err
	}
	require.NoError(t, create("small"))
	require.ErrorContains(t, create("unknown"), "body.group is counted in $other")
}

func TestASilenceAlertFiresOncePerSilence(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.alert(metering.Alert{Type: metering.SilenceAlert, Minutes: 30})
	w.evaluate()
	require.Empty(t, w.triggered(), "a customer who never sent an event")
	w.use("1")
	sent := metering.Instant(w.now)
	for range 3 {
		w.now = w.now.Add(9 * time.Minute)
		w.evaluate()
	}
	require.Empty(t, w.triggered())
	for range 3 {
		w.now = w.now.Add(9 * time.Minute)
		w.evaluate()
	}
	require.Equal(t, []string{"30:36"}, w.thresholds())
	m := w.triggered()[0]
	require.Equal(t, "minutes", m.Unit)
	require.Equal(t, outbox.MessagePeriod{Start: sent, End: sent.Add(30 * time.Minute)}, m.Period)
	w.use("1")
	w.evaluate()
	w.now = w.now.Add(31 * time.Minute)
	w.evaluate()
	require.Equal(t, []string{"30:36", "30:31"}, w.thresholds(), "after another event")
}

// TestASilenceBeginsAtAnEventAheadOfTheClock checks that a silence begins at the event's timestamp, even if the clock
// of the client is ahead of the server's.
func TestASilenceBeginsAtAnEventAheadOfTheClock(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.alert(metering.Alert{Type: metering.SilenceAlert, Minutes: 30})
	w.evaluate()
	sent := w.now.Add(20 * time.Minute)
	w.useAt("1", sent)
	for range 4 {
		w.evaluate()
		w.now = w.now.Add(12 * time.Minute)
	}
	require.Empty(t, w.triggered())
	w.now = sent.Add(31 * time.Minute)
	w.evaluate()
	require.Equal(t, []string{"30:31"}, w.thresholds())
}

func TestAnAlertFiresForItsScope(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.now = billing.CalendarPeriod(w.now, time.UTC).Start.Add(time.Hour)
	plan, err := w.store.Plans.Create(t.Context(), w.tenant, metering.Operator, metering.Plan{Slug: "pro", Name: "Pro"})
	require.NoError(t, err)
	other := dbtest.Customer(t, w.store, w.tenant, "other")
	of := func(name string, customer metering.CustomerID, plan metering.PlanID) {
		a := w.usage("10")
		a.Name, a.CustomerID, a.PlanID = name, customer, plan
		w.alert(a)
	}
	of("of acme", w.customer.ID, 0)
	of("of pro", 0, plan.ID)
	of("of all", 0, 0)
	for _, customer := range []string{"acme", "other"} {
		_, err := w.writer.Ingest(t.Context(), w.tenant, []metering.Event{dbtest.Event(t, "api_call", customer, w.now, "10", "", "")})
		require.NoError(t, err)
	}
	fired := func() (all []string) {
		w.evaluate()
		for _, m := range w.triggered() {
			all = append(all, m.CustomerExternalID+" "+m.Alert.Name)
		}
		return all
	}
	require.Equal(t, []string{"acme of acme", "acme of all", "other of all"}, fired())
	require.NoError(t, w.store.Plans.Assign(t.Context(), w.tenant, metering.Operator, other.ID, billing.Assignment{
		PlanID: plan.ID, EffectiveFrom: billing.CalendarPeriod(w.now, time.UTC).Start,
	}))
	require.Equal(t, []string{"acme of acme", "acme of all", "other of pro", "other of all"}, fired(), "a new assignment causes an evaluation")
}

// TestClosingFiresThresholdsOfUnevaluatedEvents checks that a closing fires the thresholds that the period's last event
// reaches, although the evaluator has not read this event.
func TestClosingFiresThresholdsOfUnevaluatedEvents(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.created(w.now.AddDate(0, 0, -31))
	w.alert(w.usage("10", "20"))
	w.use("10")
	w.evaluate()
	period := billing.CalendarPeriod(w.now, time.UTC)
	w.now = period.End
	w.plan(anew)
	w.useAt("10", period.End.Add(-time.Hour))
	w.now = period.End.Add(100 * time.Hour)
	w.closePeriods()
	require.Equal(t, []string{"10:10", "20:20"}, w.thresholds())
	require.Equal(t, []bool{false, true}, []bool{w.triggered()[0].Late, w.triggered()[1].Late})
	w.useAt("100", period.End.Add(-time.Hour))
	w.evaluate()
	require.Len(t, w.triggered(), 2, "usage of a closed period fires nothing")
}

// TestClosingReadsAlertsBeforeItLocksTenant checks that a closing compares its periods with the alerts
// before it waits for the tenant's lock.
func TestClosingReadsAlertsBeforeItLocksTenant(t *testing.T) {
	t.Parallel()
	b, month := newOldBillerIn(t, 4)
	b.use("141.75")
	b.now = over(month)
	ingest := b.connect()
	_, err := ingest.Exec(t.Context(), `select pg_advisory_lock_shared($1)`, b.tenant)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var closing sync.WaitGroup
	closing.Go(func() {
		for ctx.Err() == nil {
			_, _ = b.store.Ledger.ClosePeriods(ctx, b.tenant, []metering.CustomerID{b.customer.ID}, b.now) // waits for the lock in vain
		}
	})
	dbtest.Eventually(t, func() error {
		var read bool
		err := ingest.QueryRow(t.Context(), `
			select exists (
			  select
			  from pg_locks waiting
			  join pg_locks reading on reading.pid = waiting.pid
			  where waiting.locktype = 'advisory'
			    and not waiting.granted
			    and reading.database = (select oid from pg_database where datname = current_database())
			    and reading.relation = 'alerts'::regclass)`).Scan(&read)
		if err == nil && !read {
			err = errors.New("the closing that waits for ingest has not read the alerts")
		}
		return err
	})
	stop()
	closing.Wait()
}

// TestEachCrossingIsNotifiedOnce runs three evaluators concurrently, and terminates some of their
// transactions. Each of 1,000 crossings is notified once.
func TestEachCrossingIsNotifiedOnce(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	a := w.usage("10")
	a.CustomerID = 0
	w.alert(a)
	const customers = 1000
	send := func(from, until int) {
		var events []metering.Event
		for i := from; i < until; i++ {
			events = append(events, dbtest.Event(t, "api_call", fmt.Sprintf("customer %04d", i), w.now, "10", "", ""))
		}
		for chunk := range slices.Chunk(events, 500) {
			_, err := w.writer.Ingest(t.Context(), w.tenant, chunk)
			require.NoError(t, err)
		}
		require.NoError(t, w.store.Folds.Tenant(t.Context(), w.tenant))
	}
	conn, name := w.connect(), "evaluator-"+fmt.Sprint(int64(w.tenant))
	victims, err := dbtest.Connect(t.Context(), w.address+"&application_name="+name)
	require.NoError(t, err)
	t.Cleanup(victims.Close)
	ctx, stop := context.WithCancel(t.Context())
	var evaluators sync.WaitGroup
	for range 3 {
		evaluators.Go(func() {
			for ctx.Err() == nil {
				_ = victims.Evaluations.Tenant(ctx, w.tenant, w.now) // fails when its connection is terminated
			}
		})
	}
	send(0, customers)
	for killed := 0; killed < 5; {
		send(0, 50)
		var n int
		require.NoError(t, conn.QueryRow(t.Context(), `
			select count(*) filter (where pg_terminate_backend(pid))
			from pg_stat_activity
			where application_name = $1
			  and xact_start is not null`, name).Scan(&n))
		killed += n
	}
	stop()
	evaluators.Wait()
	require.NoError(t, w.store.Evaluations.Tenant(t.Context(), w.tenant, w.now))
	require.Len(t, w.triggered(), customers)
	var firings, due int
	w.scan(`select count(*) from alert_firings where tenant_id = $1`, []any{w.tenant}, &firings)
	require.Equal(t, customers, firings)
	w.scan(`select count(*) from alert_due where tenant_id = $1 and due_at <= $2`, []any{w.tenant, w.now}, &due)
	require.Zero(t, due)
}

func TestDryRunOfSilenceAlertReturnsPastSilences(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.now = w.now.Truncate(time.Hour)
	first := w.now.AddDate(0, 0, -20)
	for _, at := range []time.Time{first, first.Add(time.Hour), first.AddDate(0, 0, 2), first.AddDate(0, 0, 2).Add(time.Hour)} {
		w.useAt("1", at)
	}
	run, err := w.store.Evaluations.DryRun(t.Context(), w.tenant, metering.Alert{Type: metering.SilenceAlert, Minutes: 120}, w.now)
	require.NoError(t, err)
	var silent []metering.Range
	for _, f := range run.Firings {
		silent = append(silent, f.Period)
	}
	require.Equal(t, []metering.Range{
		{Start: first.Add(time.Hour).UTC(), End: first.Add(3 * time.Hour).UTC()},
		{Start: first.AddDate(0, 0, 2).Add(time.Hour).UTC(), End: first.AddDate(0, 0, 2).Add(3 * time.Hour).UTC()},
	}, silent)
}

// TestDryRunOfSilenceAlertLimitsListedFirings sends an event every two minutes. Nothing fires before the
// customer has the plan.
func TestDryRunOfSilenceAlertLimitsListedFirings(t *testing.T) {
	t.Parallel()
	const before, listed = 100, 10_000
	w := newWatcher(t)
	w.now = w.now.Truncate(time.Hour)
	plan, err := w.store.Plans.Create(t.Context(), w.tenant, metering.Operator, metering.Plan{Slug: "gold", Name: "Gold"})
	require.NoError(t, err)
	first := w.now.AddDate(0, 0, -20)
	at := func(n int) time.Time { return first.Add(time.Duration(n) * 2 * time.Minute) }
	require.NoError(t, w.store.Plans.Assign(t.Context(), w.tenant, metering.Operator, w.customer.ID, billing.Assignment{PlanID: plan.ID, EffectiveFrom: at(before)}))
	send := func(from, until int) {
		for ; from < until; from += 1000 {
			var events []metering.Event
			for n := from; n < min(from+1000, until); n++ {
				events = append(events, dbtest.Event(t, "api_call", "acme", at(n), "1", "", ""))
			}
			_, err := w.writer.Ingest(t.Context(), w.tenant, events)
			require.NoError(t, err)
		}
	}
	run := func() (firings int, more bool) {
		run, err := w.store.Evaluations.DryRun(t.Context(), w.tenant, metering.Alert{Type: metering.SilenceAlert, Minutes: 1, PlanID: plan.ID}, w.now)
		require.NoError(t, err)
		require.Equal(t, at(before).UTC(), run.Firings[0].Period.Start)
		return len(run.Firings), run.More
	}
	send(0, before+listed)
	firings, more := run()
	require.Equal(t, listed, firings)
	require.False(t, more)
	send(before+listed, before+listed+1)
	firings, more = run()
	require.Equal(t, listed, firings)
	require.True(t, more)
}

// TestAnEvaluatorFiresAlertsOfEveryTenant checks that the evaluator of a process fires the alerts of all
// tenants in the background.
func TestAnEvaluatorFiresAlertsOfEveryTenant(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	watchers := []*watcher{newWatcherOn(t, store, address), newWatcherOn(t, store, address)}
	for _, w := range watchers {
		w.alert(w.usage("10"))
		w.use("10")
		require.NoError(t, store.Folds.Tenant(t.Context(), w.tenant))
	}
	evaluator := store.NewEvaluator(clock.Now, func(err error) { t.Error(err) })
	evaluator.Timeout = dbtest.Deadline
	evaluator.Start()
	defer evaluator.Close()
	for _, w := range watchers {
		dbtest.Eventually(t, func() error {
			if n := len(w.triggered()); n != 1 {
				return fmt.Errorf("%d messages", n)
			}
			return nil
		})
	}
}
