package worker_test

import (
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

var record = flag.Bool("record", false, "write the histories that are missing from workflows/testdata/histories")

// TestHistories runs every branch of the workflows on the real server. It checks that the histories replay, and contain
// no secret, no name and no URL.
func TestHistories(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for range 3 {
		_, err := s.writer.Ingest(t.Context(), s.tenant,
			[]metering.Event{dbtest.Event(t, "canary-type", s.customer.ExternalID, time.Now().AddDate(0, 0, -40), "2", "", "")})
		require.NoError(t, err)
	}
	past := dbtest.Meter(t, s.store, s.tenant, "canary-slug", "canary-type")
	_, err := s.connect().Exec(t.Context(), `update customers set created_at = now() - interval '40 days' where tenant_id = $1`, s.tenant)
	require.NoError(t, err)
	require.Equal(t, metering.Backfilling, past.Version.Status)
	s.work()

	syncing := workflows.SyncCustomerID(s.tenant, s.customer.ID)
	backfilling := workflows.BackfillMeterID(s.tenant, past.Version.ID)
	histories := map[string]*historypb.History{}
	keep := func(name, workflowID string) {
		_ = s.awaitClosed(workflowID) // a refused run has failed, and also has a history
		histories[name] = s.history(workflowID)
	}

	dbtest.Eventually(t, func() error { return workflows.StartBackfillMeter(t.Context(), s.temporal, s.tenant, past.Version.ID) })
	keep("backfill_meter", backfilling)
	dbtest.Eventually(t, func() error {
		meter, err := s.store.Meters.Get(t.Context(), s.tenant, past.Slug)
		require.Equal(t, metering.Complete, meter.Version.Status)
		return err
	})

	s.use("5")
	s.await(s.request())
	keep("sync_customer_one_statement", syncing)
	s.await(s.request())
	keep("sync_customer_nothing_to_do", syncing)
	require.Equal(t, []string{"BeginSync", "PlanReports", "FinishSync"}, withoutIdlePass(activitiesOf(histories["sync_customer_nothing_to_do"])))

	delivered := len(s.received())
	s.use("5")
	s.behave(`{"status":503,"times":1000}`)
	first := s.request()
	dbtest.Eventually(t, func() error {
		if got := len(s.received()); got == delivered { // this one is answered with 503
			return fmt.Errorf("%d deliveries", got)
		}
		return nil
	})
	s.use("5")
	second := s.request()
	s.behave(`{"times":0}`)
	s.await(first)
	s.await(second)
	keep("sync_customer_outage_and_second_pass", syncing)
	require.Equal(t, []string{
		"BeginSync", "PlanReports", "SendReport", "FinishSync",
		"BeginSync", "PlanReports", "SendReport", "FinishSync",
	}, slices.Compact(withoutIdlePass(activitiesOf(histories["sync_customer_outage_and_second_pass"]))), "a late request makes the run send again")
	require.Equal(t, "15", s.billed()[s.customer.ExternalID])

	s.use("5")
	s.behave(`{"status":410,"times":1}`)
	s.await(s.request())
	keep("sync_customer_refused", syncing)

	s.useAll(3)
	s.behave(`{"status":422,"times":1}`)
	s.schedule()
	auto := s.trigger()
	keep("auto_sync_one_fails_on_its_own", auto)
	for name, run := range map[string]any{"maintain": workflows.Maintain, "audit_usage": workflows.AuditUsage, "close_period": workflows.ClosePeriod, "rotate_secrets": workflows.RotateSecrets} {
		args := map[string][]any{"audit_usage": {workflows.AuditUsageInput{}}, "close_period": {workflows.ClosePeriodInput{TenantID: s.tenant}},
			"rotate_secrets": {workflows.RotateSecretsInput{KeyID: s.keyring.First()}}}[name]
		_, err := s.temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "test-" + name, TaskQueue: workflows.TaskQueue}, run, args...)
		require.NoError(t, err)
		keep(name, "test-"+name)
	}

	require.Equal(t, metering.SyncSucceeded, s.await(s.request()).Status, "who owes something is not erased")
	_, err = s.store.Erasures.Begin(t.Context(), s.tenant, metering.Operator, s.customer.ExternalID, "it was asked for", time.Now())
	require.NoError(t, err)
	dbtest.Eventually(t, func() error { return workflows.StartEraseCustomer(t.Context(), s.temporal, s.tenant, s.customer.ID) })
	keep("erase_customer", workflows.EraseCustomerID(s.tenant, s.customer.ID))
	require.Equal(t, []string{"EraseGroups", "EraseEvents", "EraseMessages", "FinishErasure"}, activitiesOf(histories["erase_customer"]))

	keepHistories(t, histories)
}

// keepHistories requires that each history replays, and contains no secret, no personal data and no URL. With
// -record, it writes missing histories to workflows/testdata/histories.
func keepHistories(t *testing.T, histories map[string]*historypb.History) {
	t.Helper()
	replayer := sdkworker.NewWorkflowReplayer()
	for _, workflow := range workflows.All() {
		replayer.RegisterWorkflow(workflow)
	}
	for name, history := range histories {
		text, err := temporalproto.CustomJSONMarshalOptions{Indent: "  "}.Marshal(history)
		require.NoError(t, err)
		for _, readable := range append(payloads(t, text), string(text)) {
			require.NotContains(t, readable, "canary")
			require.NotContains(t, readable, "http://")
			require.NotContains(t, readable, "whsec_")
			require.NotContains(t, readable, "sk_test_")
			require.NotContains(t, readable, webhookSecret)
		}
		require.NoError(t, replayer.ReplayWorkflowHistory(log.NewStructuredLogger(quiet()), history), name)
		if file := filepath.Join("../workflows/testdata/histories", name+".json"); *record && missing(file) {
			require.NoError(t, os.WriteFile(file, text, 0o644))
		}
	}
}

// missing reports whether the file does not exist.
func missing(file string) bool {
	_, err := os.Stat(file)
	return errors.Is(err, fs.ErrNotExist)
}

// history returns the history of the workflow's latest run.
func (s *system) history(workflowID string) *historypb.History {
	s.Helper()
	var history historypb.History
	events := s.temporal.GetWorkflowHistory(s.Context(), workflowID, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(s, err)
		history.Events = append(history.Events, event)
	}
	return &history
}

// withoutIdlePass removes final passes that found nothing. Workers also poll for requested syncs, and may signal a run
// that a request has already started.
func withoutIdlePass(activities []string) []string {
	for len(activities) > 0 && activities[len(activities)-1] == "BeginSync" {
		activities = activities[:len(activities)-1]
	}
	return activities
}

// openEvents contains the numbers of timers, activities and workflow tasks that have not ended.
type openEvents struct{ timers, activities, workflowTasks int }

// openOf counts the open timers, activities and workflow tasks of a run. On a busy machine, the server may
// schedule another workflow task for a waiting run. The history then ends with a task that does nothing.
func openOf(history *historypb.History) (open openEvents) {
	for _, event := range history.GetEvents() {
		switch event.GetEventType() {
		case enumspb.EVENT_TYPE_TIMER_STARTED:
			open.timers++
		case enumspb.EVENT_TYPE_TIMER_FIRED, enumspb.EVENT_TYPE_TIMER_CANCELED:
			open.timers--
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
			open.activities++
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED,
			enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT, enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
			open.activities--
		case enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED:
			open.workflowTasks++
		case enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED, enumspb.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
			open.workflowTasks--
		}
	}
	return open
}

// activitiesOf returns the names of the activities that a run has scheduled, in their order.
func activitiesOf(history *historypb.History) (names []string) {
	for _, event := range history.GetEvents() {
		if scheduled := event.GetActivityTaskScheduledEventAttributes(); scheduled != nil {
			names = append(names, scheduled.GetActivityType().GetName())
		}
	}
	return names
}

var data = regexp.MustCompile(`"data":\s*"([^"]*)"`)

// payloads decodes the base64 data in a history.
func payloads(t *testing.T, history []byte) []string {
	t.Helper()
	var decoded []string
	for _, match := range data.FindAllSubmatch(history, -1) {
		text, err := base64.StdEncoding.DecodeString(string(match[1]))
		require.NoError(t, err)
		decoded = append(decoded, string(text))
	}
	require.NotEmpty(t, strings.Join(decoded, ""))
	return decoded
}
