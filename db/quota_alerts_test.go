package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/metering"
)

// limit sets a hard quota on the meter for the customer.
func (w *watcher) limit(limit string, period metering.QuotaPeriod) limits.StoredQuota {
	w.Helper()
	set, err := w.store.Quotas.Set(w.Context(), w.tenant, metering.Operator, metering.Quota{
		CustomerID: w.customer.ID, Meter: w.meter, Limit: new(metering.MustDecimal(limit)), Mode: metering.HardQuota, Period: period,
	}, w.now)
	require.NoError(w, err)
	return set
}

func (w *watcher) reserve(id, amount string) {
	w.Helper()
	answers, err := w.store.Quotas.Reserve(w.Context(), w.tenant, "acme", []limits.ReserveRequest{{
		ID: id, Amounts: []limits.QuotaAmount{{Meter: w.meter.Slug, Amount: metering.MustDecimal(amount)}}, For: time.Hour, Digest: []byte(id),
	}}, w.now)
	require.NoError(w, err)
	require.NoError(w, answers[0].Err)
	require.Nil(w, answers[0].Refusal)
}

func TestAQuotaAlertCountsUsageAndReservations(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.now = w.now.Truncate(time.Hour).Add(-40 * time.Minute)
	quota := w.limit("10", metering.PerHour)
	w.evaluate()
	w.reserve("before", "1")
	require.Zero(t, w.due(), "without a quota alert, a reservation queues no customer")
	w.alert(w.usage("1000"))
	w.evaluate()
	w.reserve("usage", "1")
	require.Zero(t, w.due(), "an alert of usage reads no reservations")
	w.alert(metering.Alert{Name: "share", Type: metering.QuotaAlert, Thresholds: decimals("80", "100")})
	w.use("5.9")
	w.evaluate()
	require.Empty(t, w.triggered())
	w.reserve("80", "0.3")
	require.Positive(t, w.due())
	w.evaluate()
	require.Equal(t, []string{"80:82"}, w.thresholds())
	m := w.triggered()[0]
	window := metering.WindowOf(w.now, metering.Hour, time.UTC)
	require.Equal(t, []any{"percent", quota.ID.String(), outbox.PeriodOf(window), metering.QuotaAlert}, []any{m.Unit, *m.QuotaID, m.Period, m.Alert.Type})
	for range 2 {
		w.use("0.9")
		w.evaluate()
	}
	require.Equal(t, []string{"80:82", "100:100"}, w.thresholds())

	w.now = window.End.Add(time.Minute)
	w.evaluate()
	require.Len(t, w.triggered(), 2, "the next window begins at zero")
	w.use("8.123")
	w.evaluate()
	require.Equal(t, []string{"80:82", "80:81.23", "100:100"}, w.thresholds())
	w.limit("8", metering.PerHour)
	w.evaluate()
	require.Equal(t, []string{"80:82", "80:81.23", "100:100", "100:101.53"}, w.thresholds(), "a lower limit")
}

func TestAChangedQuotaAlertSkipsTheWindowBeforeItsChange(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.now = w.now.Truncate(time.Hour).Add(-40 * time.Minute)
	w.limit("10", metering.PerHour)
	a := w.alert(metering.Alert{Name: "share", Type: metering.QuotaAlert, Thresholds: decimals("90")})
	w.use("8.5")
	w.evaluate()
	w.now = w.now.Add(time.Hour)
	_, err := w.store.Alerts.Update(t.Context(), w.tenant, metering.Operator, a.ID, limits.AlertChange{Thresholds: decimals("80", "90")}, w.now)
	require.NoError(t, err)
	w.evaluate()
	require.Empty(t, w.thresholds())
	w.use("8.5")
	w.evaluate()
	require.Equal(t, []string{"80:85"}, w.thresholds())
}

func TestAQuotaAlertReadsTheQuotasOfItsMeterAndGroup(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	alert := func(name string, meter metering.MeterID, group *metering.Group) metering.Alert {
		a, err := l.store.Alerts.Create(t.Context(), l.tenant, metering.Operator, metering.Alert{
			Name: name, Type: metering.QuotaAlert, MeterID: meter, Group: group, Thresholds: decimals("50"),
		}, november)
		require.NoError(t, err)
		return a
	}
	other := dbtest.Meter(t, l.store, l.tenant, "other", "other")
	all, large, none := alert("all", 0, nil), alert("large", l.meter.ID, groupOfModel(t, l.meter, "large")), alert("none", other.ID, nil)
	month := l.quota("10", metering.SoftQuota, metering.PerMonth)
	l.quota("", metering.SoftQuota, metering.PerDay)
	grouped := l.quota("4", metering.SoftQuota, metering.PerLifetime, ofModel("large"))
	zero := l.quota("0", metering.SoftQuota, metering.PerLifetime)
	l.use(november, "3", "small")
	l.use(november, "2", "large")
	require.NoError(t, l.store.Folds.Tenant(t.Context(), l.tenant))
	require.NoError(t, l.store.Evaluations.Tenant(t.Context(), l.tenant, november))
	fired := func(a metering.Alert) (all []string) {
		page, err := l.store.Alerts.Firings(t.Context(), l.tenant, a.ID, 0, 100)
		require.NoError(t, err)
		for _, f := range page.Items {
			all = append(all, f.QuotaID.String()+" "+f.Value.String())
		}
		return all
	}
	require.ElementsMatch(t, []string{month.ID.String() + " 50", grouped.ID.String() + " 50", zero.ID.String() + " 100"}, fired(all))
	require.Equal(t, []string{grouped.ID.String() + " 50"}, fired(large))
	require.Empty(t, fired(none))
}

func TestDryRunOfQuotaAlertReturnsPastFirings(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	w.created(w.now.AddDate(0, 0, -124))
	w.now = w.now.UTC().Truncate(24 * time.Hour).Add(90 * time.Minute)
	day := func(ago int) time.Time { return w.now.Truncate(24*time.Hour).AddDate(0, 0, -ago) }
	hourly, lifetime := w.limit("2", metering.PerHour), w.limit("20", metering.PerLifetime)
	w.limit("30", metering.PerBilling)
	w.useAt("12", day(50))
	w.useAt("1", day(10).Add(5*time.Minute))
	w.useAt("1", day(10).Add(50*time.Minute))
	w.useAt("2", day(9).Add(59*time.Minute))
	w.reserve("none", "1")
	run, err := w.store.Evaluations.DryRun(t.Context(), w.tenant, metering.Alert{Type: metering.QuotaAlert, Thresholds: decimals("60", "80", "100")}, w.now)
	require.NoError(t, err)
	type row struct {
		quota     metering.QuotaID
		day       time.Time
		threshold string
		value     string
	}
	var got []row
	for _, f := range run.Firings {
		got = append(got, row{f.QuotaID, f.Day.UTC(), f.Threshold.String(), f.Value.String()})
	}
	want := []row{{lifetime.ID, day(9), "80", "80"}}
	for _, ago := range []int{10, 9} {
		for _, threshold := range []string{"60", "80", "100"} {
			want = append(want, row{hourly.ID, day(ago), threshold, "100"})
		}
	}
	require.ElementsMatch(t, want, got)
	require.Equal(t, hourly.ID, run.Highest.QuotaID)
	course := make(map[time.Time]string)
	for _, d := range run.Highest.Days {
		course[d.Day.UTC()] = d.Value.String()
	}
	require.Equal(t, []string{"100", "100", "0"}, []string{course[day(10)], course[day(9)], course[day(8)]})
}
