package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	temporal "go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/workflows"
)

// watched is a system with an API and a worker. Tests read the metrics of the worker.
type watched struct {
	*testing.T
	key         string
	api, worker *proc.Process
	conn        *pgx.Conn
	temporal    temporal.Client
}

// watch starts a system with a tenant in the time zone.
func watch(t *testing.T, zone string, env ...string) *watched {
	return watchAt(t, zone, nil, env...)
}

// watchAt is like watch, for processes with the given clock.
func watchAt(t *testing.T, zone string, clock *proc.Clock, env ...string) *watched {
	_, address := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: address, TemporalAddress: temporalAddress(t), Clock: clock, Env: env})
	_, key := system.Tenant(t)
	w := &watched{T: t, key: key, api: system.API(t), worker: system.Worker(t)}
	var err error
	w.conn, err = pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.conn.Close(t.Context()) })
	w.temporal = proc.Temporal(t, temporalAddress(t), system.Namespace)
	w.exec(`update tenants set timezone = $1`, zone)
	w.call(201, "POST", "/v1/meters", `{"slug":"calls","event_type":"call"}`)
	return w
}

// call sends a request to the API and requires the status. It repeats the request until it is answered, except a POST
// request.
func (w *watched) call(want int, method, path, body string) string {
	w.Helper()
	send := callUntilAnswered
	if method == http.MethodPost {
		send = call
	}
	status, text := send(w.T, method, w.api.URL+path, w.key, body)
	require.Equal(w, want, status, text)
	return text
}

// sync requests a sync of a customer and waits until it ends, with any outcome. It polls, because the request
// waits only some seconds.
func (w *watched) sync(customer string) {
	w.Helper()
	r := replicas{T: w.T, apis: []*proc.Process{w.api}, key: w.key}
	r.must("POST", "/v1/billing/sync", fmt.Sprintf(`{"customer_external_id":%q}`, customer))
	dbtest.Eventually(w, func() error {
		if page := w.call(200, "GET", "/v1/billing/syncs?page_size=1", ""); !strings.Contains(page, `"finished_at":"`) {
			return fmt.Errorf("it has not ended: %s", page)
		}
		return nil
	})
}

func (w *watched) exec(sql string, args ...any) {
	w.Helper()
	_, err := w.conn.Exec(w.Context(), sql, args...)
	require.NoError(w, err)
}

// folded waits until all usage is in the rollups.
func (w *watched) folded() {
	w.Helper()
	dbtest.Eventually(w, func() error {
		var left int
		if err := w.conn.QueryRow(w.Context(), `select count(*) from usage_added`).Scan(&left); err != nil || left == 0 {
			return err
		}
		return fmt.Errorf("%d rows are not folded", left)
	})
}

// metric returns the value of a series in the worker's metrics as text, or "" if the series is missing.
func (w *watched) metric(series string) string {
	w.Helper()
	_, text := call(w.T, "GET", w.worker.MetricsURL, "", "")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (.*)$`).FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return found[1]
}

// audit runs the daily audit of usage now.
func (w *watched) audit() { w.run(workflows.AuditUsage, workflows.AuditUsageInput{}) }

// run executes a workflow and waits until it succeeds.
func (w *watched) run(workflow any, args ...any) {
	w.Helper()
	run, err := w.temporal.ExecuteWorkflow(w.Context(), temporal.StartWorkflowOptions{ID: "test-run", TaskQueue: workflows.TaskQueue}, workflow, args...)
	require.NoError(w, err)
	require.NoError(w, run.Get(w.Context(), nil))
}

// discrepancies returns the discrepancies that the API lists.
func (w *watched) discrepancies() (list []map[string]any) {
	w.Helper()
	var page struct{ Data []map[string]any }
	require.NoError(w, json.Unmarshal([]byte(w.call(200, "GET", "/v1/billing/discrepancies", "")), &page))
	return page.Data
}

// TestAuditReportsWrongTotalUntilItIsCorrected uses the timezone of Kathmandu, where local hours begin at :15 of the
// UTC hours.
func TestAuditReportsWrongTotalUntilItIsCorrected(t *testing.T) {
	t.Parallel()
	w := watch(t, "Asia/Kathmandu")
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -2)
	for _, at := range []time.Duration{0, 14 * time.Minute, 12*time.Hour + 20*time.Minute, 24*time.Hour - time.Minute} {
		for _, customer := range []string{"acme", "globex"} {
			w.call(200, "POST", "/v1/events", fmt.Sprintf(`{"event_type":"call","customer_id":%q,"value":2.5,"timestamp":%q}`,
				customer, day.Add(at).Format(time.RFC3339)))
		}
	}
	w.audit()
	require.Equal(t, "0", w.metric("odometer_usage_discrepancies"))
	require.Empty(t, w.discrepancies())

	const one = `update usage_hourly set sum = sum + $1::numeric
		where hour = $2 and customer_id = (select id from customers where external_id = 'acme')`
	noon := day.Add(12*time.Hour + 15*time.Minute)
	w.folded()
	w.exec(one, "0.5", noon)
	require.Equal(t, "0", w.metric("odometer_usage_discrepancies"), "nobody has looked")
	w.audit()
	require.Equal(t, "1", w.metric("odometer_usage_discrepancies"))
	list := w.discrepancies()
	require.Len(t, list, 1)
	require.Equal(t, "acme", list[0]["customer_external_id"])
	require.Equal(t, day.Format(time.DateOnly), list[0]["day"])
	require.InDelta(t, 10.5, list[0]["total"], 0)
	require.InDelta(t, 10, list[0]["events"], 0)

	w.exec(one, "-0.5", noon)
	w.audit()
	require.Equal(t, "0", w.metric("odometer_usage_discrepancies"))
	require.Empty(t, w.discrepancies())
}

func TestWorkerMetricsCountProviderCalls(t *testing.T) {
	t.Parallel()
	w := watch(t, "UTC")
	hook, secret := newReceiver(t)
	w.call(200, "PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"webhook","url":%q,"secret":%q}`, hook.URL, secret))
	w.call(200, "POST", "/v1/events", `{"event_type":"call","customer_id":"acme","value":2.5}`)
	behave := func(body string) {
		status, text := call(t, "POST", hook.URL+"/behave", "", body)
		require.Less(t, status, 300, text)
	}
	calls := func(outcome string) string {
		return w.metric(`odometer_provider_call_duration_seconds_count{outcome="` + outcome + `",provider="webhook"}`)
	}
	require.Empty(t, w.metric(`odometer_provider_last_failure_timestamp_seconds{provider="webhook"}`))

	behave(`{"status":503,"times":1}`)
	w.sync("acme")
	require.NotEmpty(t, calls("unavailable")) // on a busy machine, further calls may end at a time limit
	require.Equal(t, "1", calls("answered"))
	require.NotEmpty(t, w.metric(`odometer_provider_last_failure_timestamp_seconds{provider="webhook"}`))
	require.Equal(t, "1", w.metric(`odometer_billing_reports_total{kind="statement",state="accepted"}`))
	require.Equal(t, "1", w.metric(`odometer_syncs_total{outcome="succeeded"}`))

	behave(`{"status":410,"times":1000}`)
	w.call(200, "POST", "/v1/events", `{"event_type":"call","customer_id":"acme","value":1}`)
	w.sync("acme")
	require.Equal(t, "1", calls("refused"))
	require.Equal(t, "1", w.metric(`odometer_billing_reports_total{kind="statement",state="rejected"}`))
	require.Equal(t, "1", w.metric(`odometer_syncs_total{outcome="failed"}`))
	for _, series := range []string{"odometer_syncs_open", "odometer_billing_reports_outstanding", `odometer_billing_reconciliations{state="disputed"}`, `odometer_billing_holds{state="disagrees"}`, "odometer_billing_periods_due", "odometer_alert_customers_due"} {
		require.Equal(t, "0", w.metric(series), series)
	}
	require.Empty(t, w.metric("odometer_billing_oldest_outstanding_report_timestamp_seconds"))
	require.NotEmpty(t, w.metric("go_build_info{checksum=\"\",path=\"github.com/odometer-metering/odometer\",version=\"(devel)\"}"))
	_, text := call(t, "GET", w.worker.MetricsURL, "", "")
	require.Regexp(t, `(?m)^temporal_activity_execution_latency_seconds_bucket\{.*activity_type="[A-Za-z]+"`, text)
	require.Regexp(t, `(?m)^temporal_workflow_task_schedule_to_start_latency_seconds_bucket\{`, text)
	w.exec(`update billing_reports set state = 'in_doubt', recorded_at = '2026-01-01T00:00:00Z' where number = 1`)
	require.Equal(t, "1.7672256e+09", w.metric("odometer_billing_oldest_outstanding_report_timestamp_seconds"))
	require.Equal(t, "1", w.metric("odometer_billing_reports_outstanding"))
	require.Empty(t, w.metric("odometer_alert_oldest_due_timestamp_seconds"))
	w.exec(`insert into alert_due (tenant_id, customer_id, due_at, failures, queued_at) select tenant_id, id, '2100-01-01', 1, '2026-01-01T00:00:00Z' from customers`)
	require.Equal(t, "1.7672256e+09", w.metric("odometer_alert_oldest_due_timestamp_seconds"))
	require.Equal(t, "1", w.metric("odometer_alert_customers_due"))
	require.Empty(t, w.metric("odometer_events_kept_from_timestamp_seconds"), "all are kept")
	w.exec(`update event_retention set kept_from = '2026-01-01T00:00:00Z'`)
	require.Equal(t, "1.7672256e+09", w.metric("odometer_events_kept_from_timestamp_seconds"))
}

func TestTheMaintenanceDropsEventsAndKeepsTotals(t *testing.T) {
	t.Parallel()
	w := watch(t, "UTC", "EVENT_RETENTION=35d")
	send := func(want, days int, key string) {
		t.Helper()
		at := time.Now().UTC().AddDate(0, 0, -days).Format(time.RFC3339)
		w.call(want, "POST", "/v1/events", fmt.Sprintf(`{"event_type":"call","customer_id":"acme","value":2.5,"timestamp":%q%s}`, at, key))
	}
	send(422, 100, `,"idempotency_key":"k"`)
	send(200, 100, "")
	send(200, 30, `,"idempotency_key":"k"`)
	total := "/v1/usage/total?customer=acme&start=" + time.Now().UTC().AddDate(0, 0, -120).Format(time.DateOnly) + "T00:00:00Z"
	require.JSONEq(t, `{"total":5}`, w.call(200, "GET", total, ""))
	w.run(workflows.Maintain)
	require.NotEmpty(t, w.metric("odometer_events_kept_from_timestamp_seconds"))
	require.JSONEq(t, `{"total":5}`, w.call(200, "GET", total, ""))
	var events int
	require.NoError(t, w.conn.QueryRow(t.Context(), `select count(*) from events`).Scan(&events))
	require.Equal(t, 1, events)
}
