package worker_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/bench/figure"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// fleetSize returns the number of customers. The default is small enough for every test run.
// AUTO_SYNC_CUSTOMERS=10000 measures the promised figure.
func fleetSize(t *testing.T) int {
	text := os.Getenv("AUTO_SYNC_CUSTOMERS")
	if text == "" {
		return 400
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// useAll ingests an event of each customer from customer-0 on, for the given number of customers.
func (s *system) useAll(customers int) {
	s.Helper()
	for begin := 0; begin < customers; begin += 1000 {
		var events []metering.Event
		for i := begin; i < min(begin+1000, customers); i++ {
			events = append(events, dbtest.Event(s, "api_call", fmt.Sprintf("customer-%d", i), time.Now(), "1", "", ""))
		}
		_, err := s.writer.Ingest(s.Context(), s.tenant, events)
		require.NoError(s, err)
	}
}

// schedule enables Auto-Sync, with a schedule that starts no run during the test.
func (s *system) schedule() {
	s.Helper()
	settings, err := s.store.AutoSyncs.Save(s.Context(), s.tenant, metering.Operator,
		metering.AutoSync{Enabled: true, Schedule: "0 0 29 2 *"}, time.Now())
	require.NoError(s, err)
	s.apply(settings)
}

// apply applies settings to the schedule in Temporal.
func (s *system) apply(settings metering.AutoSync) {
	s.Helper()
	tenant, err := s.store.Tenants.Get(s.Context(), s.tenant)
	require.NoError(s, err)
	dbtest.Eventually(s, func() error { // a busy server may not answer at once
		return workflows.ApplyAutoSync(s.Context(), s.temporal, tenant, settings, true)
	})
}

// trigger runs the schedule once and returns the run's workflow id.
func (s *system) trigger() (id string) {
	s.Helper()
	var before workflows.ScheduleState
	dbtest.Eventually(s, func() (err error) { // a busy server may not answer at once
		before, err = workflows.DescribeAutoSync(s.Context(), s.temporal, s.tenant)
		return err
	})
	// A schedule names its runs by the second: two triggers within a second would start only one run.
	dbtest.Eventually(s, func() error {
		if n := len(before.Last); n > 0 && time.Now().Unix() == before.Last[n-1].StartedAt.Unix() {
			return errors.New("the last run began within this second")
		}
		return nil
	})
	require.NoError(s, workflows.TriggerAutoSync(s.Context(), s.temporal, s.tenant))
	// The first schedule of a new namespace waits for an internal worker of Temporal.
	dbtest.Eventually(s, func() error {
		now, err := workflows.DescribeAutoSync(s.Context(), s.temporal, s.tenant)
		if err == nil && len(now.Last) == len(before.Last) {
			err = fmt.Errorf("no run has begun")
		}
		if err == nil {
			id = now.Last[len(now.Last)-1].WorkflowID
		}
		return err
	})
	return id
}

// autoSync runs the schedule once and waits until the run ends.
func (s *system) autoSync() (took time.Duration, result workflows.BulkSyncResult) {
	s.Helper()
	began := time.Now()
	id := s.trigger()
	require.NoError(s, s.temporal.GetWorkflow(s.Context(), id, "").Get(s.Context(), &result))
	took = time.Since(began)
	s.requireShown(id, result)
	return took, result
}

// requireResult requires the result of the last run. On a busy machine, an attempt may time out or be refused.
// The next attempt does not count the work of that attempt after its last heartbeat.
func (s *system) requireResult(want, result workflows.BulkSyncResult) {
	s.Helper()
	if s.isRetried(s.lastAutoSync()) {
		require.LessOrEqual(s, result.Sent, want.Sent)
		want.Sent, want.Busy = result.Sent, result.Busy // the earlier attempt may still be syncing customers
	}
	require.Equal(s, want, result)
}

// isRetried reports whether a busy machine ended an attempt of any activity of a run. History keeps only the
// failure of the last attempt, so a lost heartbeat of any run counts as well.
func (s *system) isRetried(workflowID string) bool {
	if lost := s.lostBeats.Load(); lost > 0 {
		s.Logf("%d heartbeats were lost", lost)
		return true
	}
	busy := []string{string(metering.CodeOverloaded), string(metering.CodeUnavailable)}
	return slices.ContainsFunc(s.history(workflowID).GetEvents(), func(e *historypb.HistoryEvent) bool {
		failure := e.GetActivityTaskStartedEventAttributes().GetLastFailure()
		if failure != nil {
			s.Logf("an attempt ended with %s: %q", failure.GetApplicationFailureInfo().GetType(), failure.GetMessage())
		}
		return failure.GetTimeoutFailureInfo() != nil || slices.Contains(busy, failure.GetApplicationFailureInfo().GetType())
	})
}

// requireShown requires that the schedule shows the outcome of the run.
func (s *system) requireShown(id string, result workflows.BulkSyncResult) {
	s.Helper()
	dbtest.Eventually(s, func() error { // a busy server may not answer at once
		state, err := workflows.DescribeAutoSync(s.Context(), s.temporal, s.tenant)
		if err != nil {
			return err
		}
		last := state.Last[len(state.Last)-1]
		last.StartedAt = time.Time{}
		if want := (workflows.ScheduledRun{WorkflowID: id, Status: metering.SyncSucceeded, Result: result}); last != want {
			return fmt.Errorf("the last run is shown as %+v, and not as %+v", last, want)
		}
		return nil
	})
}

// lastAutoSync returns the workflow ID of the schedule's last run.
func (s *system) lastAutoSync() (workflowID string) {
	s.Helper()
	dbtest.Eventually(s, func() error {
		now, err := workflows.DescribeAutoSync(s.Context(), s.temporal, s.tenant)
		if err == nil {
			workflowID = now.Last[len(now.Last)-1].WorkflowID
		}
		return err
	})
	return workflowID
}

// awaitRuns waits until Temporal lists this number of Auto-Sync and SyncCustomer runs. It lists a run some time after
// the start.
func (s *system) awaitRuns(want int64) {
	s.Helper()
	dbtest.Eventually(s, func() error {
		count, err := s.temporal.CountWorkflow(s.Context(), &workflowservice.CountWorkflowExecutionsRequest{
			Namespace: s.namespace, Query: "WorkflowType in ('AutoSync', 'SyncCustomer')",
		})
		if err == nil && count.GetCount() != want {
			err = fmt.Errorf("%d runs", count.GetCount())
		}
		return err
	})
}

// TestDurationScheduleRunsAtThatInterval changes a schedule from a cron expression to durations and then to
// hourly. It checks the runs that Temporal plans.
func TestDurationScheduleRunsAtThatInterval(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for _, c := range []struct {
		schedule metering.Schedule
		every    time.Duration
	}{{"0 0 29 2 *", 0}, {"15m", 15 * time.Minute}, {"1h30m", 90 * time.Minute}, {"hourly", time.Hour}} {
		s.apply(metering.AutoSync{TenantID: s.tenant, Enabled: true, Schedule: c.schedule, UpdatedAt: time.Now()})
		dbtest.Eventually(t, func() error {
			state, err := workflows.DescribeAutoSync(t.Context(), s.temporal, s.tenant)
			if err != nil || c.every == 0 {
				return err
			}
			if len(state.Next) < 2 {
				return fmt.Errorf("%s: %d runs are planned", c.schedule, len(state.Next))
			}
			first := state.Next[0].Truncate(c.every)
			for i, next := range state.Next {
				late := next.Sub(first.Add(time.Duration(i) * c.every))
				if late < 0 || late > c.schedule.Jitter() {
					return fmt.Errorf("%s: run %d is planned for %s", c.schedule, i, next)
				}
			}
			return nil
		})
	}
}

func TestAutoSyncSyncsOnlyChangedCustomers(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	customers := fleetSize(t)
	changed := customers / 100
	folder := s.store.NewFolder(func(err error) { t.Error(err) }) // as in the API
	defer folder.Close()
	s.useAll(customers - 1)
	s.work()
	s.schedule()

	all, result := s.autoSync()
	s.requireResult(workflows.BulkSyncResult{Customers: customers, Sent: customers}, result) // including the customer without usage
	require.Equal(t, customers, len(s.billed()))                                             //nolint:testifylint // a failure of Len would print them all
	const rounds = 3
	var some, everything []float64
	for round := range rounds {
		s.forget()
		s.useAll(changed)
		few, result := s.autoSync()
		s.requireResult(workflows.BulkSyncResult{Customers: changed, Sent: changed}, result)
		s.requireDeliveries(s.lastAutoSync(), changed)
		for _, total := range s.billed() {
			require.Equal(t, strconv.Itoa(round+2), total)
		}
		some, everything = append(some, few.Seconds()), append(everything, all.Seconds())
	}
	_, result = s.autoSync()
	require.Zero(t, result, "nothing has changed")
	work := figure.Compare("auto-sync-changed-vs-all", fmt.Sprintf("s for %d of %d customers", changed, customers), some, everything)
	t.Logf("%s, to reach 0.05", work)
	if os.Getenv("AUTO_SYNC_CUSTOMERS") != "" {
		require.NoError(t, figure.Keep("../.dev/bench.json", work))
	}
	s.awaitRuns(rounds + 2)
}

func TestAutoSyncStartsSeparateRunForFailedCustomer(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.useAll(20)
	s.work()
	s.schedule()
	s.behave(`{"status":422,"times":1}`)
	_, result := s.autoSync()
	s.requireResult(workflows.BulkSyncResult{Customers: 21, Sent: 20, Failed: 1}, result)
	dbtest.Eventually(t, func() error {
		open, err := s.store.Syncs.Open(t.Context(), time.Now())
		if err == nil && len(open) > 0 {
			err = fmt.Errorf("%d are open", len(open))
		}
		return err
	})
	s.awaitRuns(2)
	_, result = s.autoSync()
	require.Zero(t, result, "the run of its own has sent it")
	require.Len(t, s.billed(), 21)
}

func TestAutoSyncWaitsWhileProviderIsUnavailable(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.useAll(20)
	s.work()
	s.schedule()
	s.behave(`{"status":503,"times":5}`)
	_, result := s.autoSync()
	s.requireResult(workflows.BulkSyncResult{Customers: 21, Sent: 21}, result)
	require.Len(t, s.billed(), 21)
	s.awaitRuns(1)
}

// TestDisablingAutoSyncCancelsItsRun disables Auto-Sync while a run waits for the provider.
func TestDisablingAutoSyncCancelsItsRun(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.useAll(20)
	s.work()
	s.schedule()
	s.behave(`{"status":503,"times":1000000}`)
	run := s.trigger()
	s.apply(metering.AutoSync{TenantID: s.tenant})
	err := s.temporal.GetWorkflow(t.Context(), run, "").Get(t.Context(), nil)
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	state, err := workflows.DescribeAutoSync(t.Context(), s.temporal, s.tenant)
	require.NoError(t, err)
	require.Empty(t, state.Last, "the schedule is deleted")
}

func TestWorkerClosesAndReportsDuePeriodsWithoutRequest(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	month := billing.CalendarPeriod(clock.Month(time.Now(), -2), time.UTC)
	_, err := s.connect().Exec(t.Context(), `update customers set created_at = $2 where tenant_id = $1`, s.tenant, month.Start.AddDate(0, 0, 5))
	require.NoError(t, err)
	_, err = s.writer.Ingest(t.Context(), s.tenant,
		[]metering.Event{dbtest.Event(t, "api_call", s.customer.ExternalID, month.Start.AddDate(0, 0, 6), "3", "", "")})
	require.NoError(t, err)
	s.work()
	conn := s.connect()
	dbtest.Eventually(t, func() error {
		var closed int
		err := conn.QueryRow(t.Context(), `select count(*) from billing_periods where tenant_id = $1 and closed_at is not null`, s.tenant).Scan(&closed)
		if err == nil && closed == 0 {
			err = fmt.Errorf("nothing is closed")
		}
		return err
	})
	dbtest.Eventually(t, func() error { // another run reports the usage of closed periods
		if len(s.received()) == 0 {
			return fmt.Errorf("nothing is reported")
		}
		return nil
	})
}
