package main_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// awaitReady waits until a process answers /readyz with a status.
func awaitReady(t *testing.T, p *proc.Process, want int) {
	t.Helper()
	dbtest.Eventually(t, func() error {
		if status, text := call(t, "GET", p.URL+"/readyz", "", ""); status != want {
			return fmt.Errorf("/readyz answers %d: %s", status, text)
		}
		return nil
	})
}

func TestWrongClockPreventsClosingsAndNewEvents(t *testing.T) {
	t.Parallel()
	clock := proc.NewClock(t)
	w := watchAt(t, "UTC", clock, "DATABASE_CLOCK_FOLLOWS=false")
	receiver, secret := newReceiver(t)
	w.call(200, "PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"webhook","url":%q,"secret":%q}`, receiver.URL, secret))
	w.call(200, "POST", "/v1/events", `{"event_type":"call","customer_id":"acme"}`)
	w.sync("acme")
	var tenant metering.TenantID
	require.NoError(t, w.conn.QueryRow(t.Context(), `select id from tenants`).Scan(&tenant))
	count := func(query string) (n int) {
		require.NoError(t, w.conn.QueryRow(t.Context(), query).Scan(&n))
		return n
	}

	clock.To(t, clock.Now().AddDate(0, 0, 40))
	awaitReady(t, w.api, http.StatusServiceUnavailable)
	awaitReady(t, w.worker, http.StatusServiceUnavailable)
	status, text := call(t, "POST", w.api.URL+"/v1/events", w.key, `{"event_type":"call","customer_id":"acme"}`)
	require.Equal(t, http.StatusServiceUnavailable, status, text)
	require.Contains(t, text, "clock")
	w.call(200, "GET", "/v1/usage/total?customer=acme", "")
	require.NoError(t, workflows.StartClosePeriod(t.Context(), w.temporal, tenant))
	dbtest.Eventually(t, func() error {
		if !strings.Contains(w.worker.Output(t), `"activity":"DuePeriods"`) {
			return errors.New("the worker has not refused to look for periods")
		}
		return nil
	})
	require.Zero(t, count(`select count(*) from billing_periods where closed_at is not null`))

	clock.Correct(t)
	awaitReady(t, w.api, http.StatusOK)
	awaitReady(t, w.worker, http.StatusOK)
	w.call(200, "POST", "/v1/events", `{"event_type":"call","customer_id":"acme"}`)
	w.run(workflows.ClosePeriod, workflows.ClosePeriodInput{TenantID: tenant})
	require.Zero(t, count(`select count(*) from billing_periods where closed_at is not null`))
	require.Equal(t, 2, count(`select count(*) from events`))
	require.Zero(t, count(`select count(*) from events where ts > now() + interval '1 hour'`))
	w.sync("acme")
}
