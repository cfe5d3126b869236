package db_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/metering"
)

// exceeded returns the quota.exceeded messages so far, ordered by occurred_at.
func (w *watcher) exceeded() (messages []outbox.QuotaExceeded) {
	w.Helper()
	payloads := w.payloads(`select payload from outbox where tenant_id = $1 and kind = 'quota.exceeded' order by payload ->> 'occurred_at'`)
	for _, payload := range payloads {
		var m outbox.QuotaExceeded
		require.NoError(w, json.Unmarshal(payload, &m))
		messages = append(messages, m)
	}
	return messages
}

// watchQuotas creates a webhook that receives quota.exceeded.
func (w *watcher) watchQuotas() {
	w.Helper()
	_, err := w.store.Webhooks.Create(w.Context(), w.tenant, metering.Operator, metering.Endpoint{
		URL: "https://example.com/quotas", EventTypes: []metering.MessageKind{metering.MessageQuotaExceeded}, Sealed: []byte("sealed"), LastFour: "abcd",
	}, w.now)
	require.NoError(w, err)
}

func TestAnExceededQuotaIsNotifiedOnceInEachWindow(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t) // a sweep covers all tenants
	w := newWatcherOn(t, store, address)
	w.now = billing.CalendarPeriod(w.now, time.UTC).Start.Add(time.Hour)
	w.watchQuotas()
	set := func(limit string) limits.StoredQuota {
		quota, err := w.store.Quotas.Set(t.Context(), w.tenant, metering.Operator, metering.Quota{
			CustomerID: w.customer.ID, Meter: w.meter, Limit: new(metering.MustDecimal(limit)), Mode: metering.HardQuota, Period: metering.PerMonth,
		}, w.now)
		require.NoError(t, err)
		return quota
	}
	quota := set("10")
	w.use("10")
	w.evaluate()
	require.Empty(t, w.exceeded(), "a quota that is used up is not exceeded")
	for range 2 {
		w.use("1")
		w.evaluate()
	}
	require.Len(t, w.exceeded(), 1)
	month := metering.WindowOf(w.now, metering.Month, time.UTC)
	m := w.exceeded()[0]
	require.Equal(t, []any{quota.ID.String(), "api-calls", "10", "11", month.End.UTC(), "acme"}, []any{
		m.QuotaID, m.MeterSlug, m.Limit.String(), m.Used.String(), m.ResetsAt.UTC(), m.CustomerExternalID,
	})
	w.now = month.Start.Add(-time.Hour)
	w.useAt("20", w.now)
	w.evaluate()
	require.Len(t, w.exceeded(), 2, "another window")

	deleted, err := w.store.Quotas.SweepExceeded(t.Context(), month.Start.Add(time.Second), 100)
	require.NoError(t, err)
	require.Positive(t, deleted)
	require.NoError(t, w.store.Quotas.Delete(t.Context(), w.tenant, metering.Operator, quota.ID))
	w.now = month.Start.Add(2 * time.Hour)
	set("5")
	w.evaluate()
	require.Len(t, w.exceeded(), 3, "a quota that is already exceeded is notified at once")
}

func TestUsageInTheLastSecondOfAWindowExceedsItsQuota(t *testing.T) {
	t.Parallel()
	for _, period := range []metering.QuotaPeriod{metering.PerHour, metering.PerDay, metering.PerMonth, metering.PerBilling} {
		t.Run(string(period), func(t *testing.T) {
			t.Parallel()
			w := newWatcher(t)
			w.watchQuotas()
			month := billing.CalendarPeriod(w.now, time.UTC)
			w.created(month.Start.AddDate(0, -2, 0))
			w.now = month.Start.Add(-time.Hour)
			w.quota("10", period)
			w.evaluate()
			w.now = month.Start.Add(2 * time.Second)
			w.useAt("11", month.Start.Add(-time.Second))
			w.evaluate()
			require.Len(t, w.exceeded(), 1)
			require.Equal(t, month.Start.UTC(), w.exceeded()[0].ResetsAt.UTC())
			w.use("12")
			w.evaluate()
			require.Len(t, w.exceeded(), 2, "the current window is another one")
			w.useAt("1", month.Start.Add(-time.Second))
			w.evaluate()
			require.Len(t, w.exceeded(), 2, "one message for each window")
		})
	}
}

func TestUsageEvaluatedSeveralWindowsLaterExceedsItsQuota(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.watchQuotas()
	w.now = w.now.Truncate(time.Hour).AddDate(0, 0, -3)
	quota := w.quota("10", metering.PerHour)
	w.alert(metering.Alert{Name: "share", Type: metering.QuotaAlert, Thresholds: decimals("100")})
	w.evaluate()
	used := w.now
	w.useAt("11", used)
	w.now = used.Add(5 * time.Hour)
	w.evaluate()
	require.Len(t, w.exceeded(), 1)
	require.Equal(t, []string{quota.ID.String(), used.Add(time.Hour).UTC().String()}, []string{w.exceeded()[0].QuotaID, w.exceeded()[0].ResetsAt.UTC().String()})
	require.Equal(t, []string{"100:110"}, w.thresholds())
	w.useAt("12", used.Add(time.Hour))
	w.now = w.now.Add(time.Hour)
	w.evaluate()
	require.Len(t, w.exceeded(), 2, "late usage of an earlier window")
	w.now = w.now.Add(time.Hour)
	w.use("1")
	w.evaluate()
	require.Len(t, w.exceeded(), 2)
}

// TestLimitDoesNotApplyToWindowsEndedBeforeItWasSet checks that a limit does not apply to windows that ended before
// the limit was set.
func TestLimitDoesNotApplyToWindowsEndedBeforeItWasSet(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.watchQuotas()
	w.now = metering.WindowOf(w.now, metering.Day, time.UTC).Start.Add(-time.Hour)
	w.quota("100", metering.PerDay)
	w.use("50")
	w.evaluate()
	w.now = w.now.Add(2 * time.Hour)
	w.quota("10", metering.PerDay)
	w.evaluate()
	require.Empty(t, w.exceeded())
	w.quota("10", metering.PerDay, func(q *metering.Quota) { q.Mode = metering.SoftQuota })
	w.now = w.now.AddDate(0, 0, 1)
	w.useAt("50", w.now.AddDate(0, 0, -1))
	w.evaluate()
	require.Len(t, w.exceeded(), 1, "the limit of the previous day")
}

func TestQuotaOfPlanAtWindowEndLimitsTheWindow(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.watchQuotas()
	midnight := metering.WindowOf(w.now, metering.Day, time.UTC).Start
	w.now = midnight.Add(-time.Hour)
	quotas := make(map[string]limits.StoredQuota)
	for slug, limit := range map[string]string{"small": "10", "large": "100"} {
		plan, err := w.store.Plans.Create(t.Context(), w.tenant, metering.Operator, metering.Plan{Slug: slug, Name: slug})
		require.NoError(t, err)
		quotas[slug] = w.quota(limit, metering.PerDay, func(q *metering.Quota) { q.CustomerID, q.PlanID = 0, plan.ID })
		from := midnight
		if slug == "small" {
			from = midnight.AddDate(0, 0, -10)
		}
		require.NoError(t, w.store.Plans.Assign(t.Context(), w.tenant, metering.Operator, w.customer.ID, billing.Assignment{PlanID: plan.ID, EffectiveFrom: from}))
	}
	w.now = midnight.Add(time.Second)
	w.useAt("20", midnight.Add(-time.Second))
	w.use("20")
	w.evaluate()
	require.Len(t, w.exceeded(), 1)
	require.Equal(t, quotas["small"].ID.String(), w.exceeded()[0].QuotaID)
}

func TestUsageAheadOfTheClockExceedsTheQuotaOfItsWindow(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.watchQuotas()
	next := metering.WindowOf(w.now, metering.Day, time.UTC).Start
	w.now = next.Add(-time.Minute)
	w.quota("10", metering.PerDay)
	w.useAt("20", next.Add(time.Minute))
	w.evaluate()
	require.Empty(t, w.exceeded())
	w.now = next
	w.evaluate()
	require.Len(t, w.exceeded(), 1, "without another event")
}

func TestQuotaOfPlanAppliesAfterCustomersQuotaIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.watchQuotas()
	plan, err := w.store.Plans.Create(t.Context(), w.tenant, metering.Operator, metering.Plan{Slug: "pro", Name: "Pro"})
	require.NoError(t, err)
	require.NoError(t, w.store.Plans.Assign(t.Context(), w.tenant, metering.Operator, w.customer.ID, billing.Assignment{PlanID: plan.ID, EffectiveFrom: w.now.AddDate(0, 0, -93)}))
	ofPlan := w.quota("10", metering.PerLifetime, func(q *metering.Quota) { q.CustomerID, q.PlanID = 0, plan.ID })
	own := w.quota("100", metering.PerLifetime)
	w.use("20")
	w.evaluate()
	require.Empty(t, w.exceeded())
	require.NoError(t, w.store.Quotas.Delete(t.Context(), w.tenant, metering.Operator, own.ID))
	w.evaluate()
	require.Len(t, w.exceeded(), 1)
	require.Equal(t, ofPlan.ID.String(), w.exceeded()[0].QuotaID)
}

func TestAQuotaThatHasEndedCountsNoUsageAheadOfTheClock(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.watchQuotas()
	next := metering.WindowOf(w.now, metering.Day, time.UTC).Start
	w.now = next.Add(-time.Minute)
	for slug, since := range map[string]int{"former": -20, "present": -10} {
		plan, err := w.store.Plans.Create(t.Context(), w.tenant, metering.Operator, metering.Plan{Slug: slug, Name: slug})
		require.NoError(t, err)
		require.NoError(t, w.store.Plans.Assign(t.Context(), w.tenant, metering.Operator, w.customer.ID, billing.Assignment{PlanID: plan.ID, EffectiveFrom: w.now.AddDate(0, 0, since)}))
		if slug == "former" {
			w.quota("10", metering.PerDay, func(q *metering.Quota) { q.CustomerID, q.PlanID = 0, plan.ID })
		}
	}
	w.useAt("20", next.Add(time.Minute))
	w.evaluate()
	var rows int
	w.scan(`select count(*) from alert_due where tenant_id = $1`, []any{w.tenant}, &rows)
	require.Zero(t, rows, "nothing can be exceeded in the next window")
}

func TestAQuotaThatIsDeletedDuringAnEvaluationIsSkipped(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.watchQuotas()
	deleted, kept := w.quota("10", metering.PerLifetime), w.quota("10", metering.PerMonth)
	w.alert(w.usage("1000"))
	w.use("11")
	require.NoError(t, w.store.Folds.Tenant(t.Context(), w.tenant))
	tx, err := w.connect().Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select from alerts where tenant_id = $1 for update`, w.tenant) // the evaluation waits before it reads quotas
	require.NoError(t, err)
	evaluated := make(chan error, 1)
	go func() { evaluated <- w.store.Evaluations.Tenant(context.WithoutCancel(t.Context()), w.tenant, w.now) }()
	awaitBlocked(t, tx)
	require.NoError(t, w.store.Quotas.Delete(t.Context(), w.tenant, metering.Operator, deleted.ID))
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-evaluated)
	require.Len(t, w.exceeded(), 1)
	require.Equal(t, kept.ID.String(), w.exceeded()[0].QuotaID)
}

func TestTimeZoneChangeRepeatsNoNotification(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.watchQuotas()
	day := metering.WindowOf(w.now, metering.Day, time.UTC).Start.AddDate(0, 0, -3)
	w.now = day.Add(10 * time.Hour)
	for _, period := range []metering.QuotaPeriod{metering.PerLifetime, metering.PerMonth, metering.PerDay, metering.PerHour} {
		w.quota("10", period)
	}
	w.alert(metering.Alert{Name: "share", Type: metering.QuotaAlert, Thresholds: decimals("100")})
	notified := func() [2]int { return [2]int{len(w.exceeded()), len(w.triggered())} }
	w.use("11")
	w.evaluate()
	require.Equal(t, [2]int{4, 4}, notified())
	w.exec(`update meter_versions set timezone = 'Asia/Tokyo' where tenant_id = $1`, w.tenant)
	w.exec(`insert into alert_due (tenant_id, customer_id, used_from) values ($1, $2, $3)`, w.tenant, w.customer.ID, w.now.AddDate(0, 0, -2))
	w.evaluate()
	require.Equal(t, [2]int{4, 4}, notified())
	w.now = day.Add(15 * time.Hour) // midnight in Tokyo
	w.use("11")
	w.evaluate()
	require.Equal(t, [2]int{6, 6}, notified(), "another day and hour")
}
