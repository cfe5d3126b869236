package workflows

import (
	"context"
	"errors"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/odometer-metering/odometer/metering"
)

// catchUp is the catch-up window: Temporal starts a missed run up to this long after its scheduled
// time. One such run is enough, because it does all work that is due.
const catchUp = 2 * time.Hour

// ApplyAutoSync updates the tenant's schedule to match its settings. It pauses or resumes an
// existing schedule only if setPaused is set, that is, if the tenant has just changed this setting.
// If auto-sync is disabled, ApplyAutoSync deletes the schedule and cancels its open runs. It
// returns CodeUnavailable if Temporal does not answer.
func ApplyAutoSync(ctx context.Context, c client.Client, tenant metering.Tenant, settings metering.AutoSync, setPaused bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	id := AutoSyncID(tenant.ID)
	handle := c.ScheduleClient().GetHandle(ctx, id)
	if !settings.Enabled {
		if err := deleteSchedule(ctx, c, handle); err != nil {
			return unreachable(id, err)
		}
		return nil
	}
	return ensureSchedule(ctx, c, autoSyncStart(tenant.ID), client.ScheduleOptions{
		Spec:   specOf(settings.Schedule, tenant.Timezone),
		Paused: settings.Paused,
		Note:   "set by the tenant at " + settings.UpdatedAt.UTC().Format(time.RFC3339Nano),
	}, setPaused)
}

// deleteSchedule cancels the open runs of a schedule, and then deletes the schedule. It returns no
// error if the schedule does not exist. A run that starts between the two steps is not canceled.
func deleteSchedule(ctx context.Context, c client.Client, handle client.ScheduleHandle) error {
	described, err := handle.Describe(ctx)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, run := range described.Info.RunningWorkflows {
		if err := c.CancelWorkflow(ctx, run.WorkflowID, ""); err != nil && !isNotFound(err) {
			return err
		}
	}
	if err := handle.Delete(ctx); err != nil && !isNotFound(err) {
		return err
	}
	return nil
}

// specOf returns the times of a schedule: at an interval, or by a cron expression in the time zone.
func specOf(schedule metering.Schedule, timezone string) client.ScheduleSpec {
	if every := schedule.Every(); every > 0 {
		return client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: every}}, Jitter: schedule.Jitter()}
	}
	return client.ScheduleSpec{CronExpressions: []string{schedule.Cron()}, TimeZoneName: timezone, Jitter: schedule.Jitter()}
}

// EnsureSchedules creates or updates the schedules of Maintain and AuditUsage.
func EnsureSchedules(ctx context.Context, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for cron, own := range map[string]start{"17 * * * *": maintainStart(), "0 3 * * *": auditUsageStart()} {
		if err := ensureSchedule(ctx, c, own, client.ScheduleOptions{Spec: client.ScheduleSpec{CronExpressions: []string{cron}}}, false); err != nil {
			return err
		}
	}
	return nil
}

// ensureSchedule creates a schedule of runs, or updates the spec, action and policies of the
// existing one. An existing schedule stays paused or active, unless setPaused is set.
func ensureSchedule(ctx context.Context, c client.Client, runs start, options client.ScheduleOptions, setPaused bool) error {
	options.ID, options.Action = runs.id, runs.action()
	options.Overlap, options.CatchupWindow = enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, catchUp
	if err := createOrUpdate(ctx, c, options, setPaused); err != nil {
		return unreachable(runs.id, err)
	}
	return nil
}

// createOrUpdate creates a schedule, or updates the spec, action and policies of the existing one. If
// setPaused is true, the update also pauses or resumes the schedule. A separate request to resume could
// replace a pending trigger, because Temporal keeps only one pending request of a schedule. The
// triggered run would then never start.
func createOrUpdate(ctx context.Context, c client.Client, options client.ScheduleOptions, setPaused bool) error {
	_, err := c.ScheduleClient().Create(ctx, options)
	if !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return err
	}
	handle := c.ScheduleClient().GetHandle(ctx, options.ID)
	err = handle.Update(ctx, client.ScheduleUpdateOptions{
		DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			changed := in.Description.Schedule
			changed.Spec, changed.Action = &options.Spec, options.Action
			changed.Policy = &client.SchedulePolicies{Overlap: options.Overlap, CatchupWindow: options.CatchupWindow}
			if setPaused {
				changed.State = &client.ScheduleState{Paused: options.Paused, Note: options.Note}
			}
			return &client.ScheduleUpdate{Schedule: &changed}, nil
		},
	})
	if err != nil || !setPaused {
		return err
	}
	return checkNote(ctx, handle, options.Note)
}

// checkNote returns an error if the schedule does not have the note of this caller's change. Temporal drops the later
// one of two concurrent changes without an error.
func checkNote(ctx context.Context, handle client.ScheduleHandle, note string) error {
	described, err := handle.Describe(ctx)
	if err != nil {
		return err
	}
	if state := described.Schedule.State; state == nil || state.Note != note {
		return errors.New("another caller changed the schedule at the same time")
	}
	return nil
}

// ScheduleState is the state of a tenant's schedule in Temporal.
type ScheduleState struct {
	Paused bool
	Next   []time.Time
	Last   []ScheduledRun // oldest first
}

// ScheduledRun is a run that a schedule started.
type ScheduledRun struct {
	WorkflowID string
	StartedAt  time.Time
	Status     metering.SyncStatus // also failed if the run was canceled, terminated or timed out; "": unknown
	Result     BulkSyncResult      // of a succeeded run
}

// DescribeAutoSync returns the state of the tenant's schedule, or the zero value if there is none.
func DescribeAutoSync(ctx context.Context, c client.Client, tenant metering.TenantID) (ScheduleState, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	described, err := c.ScheduleClient().GetHandle(ctx, AutoSyncID(tenant)).Describe(ctx)
	if isNotFound(err) {
		return ScheduleState{}, nil
	}
	if err != nil {
		return ScheduleState{}, unreachable(AutoSyncID(tenant), err)
	}
	state := ScheduleState{Next: described.Info.NextActionTimes}
	if described.Schedule.State != nil {
		state.Paused = described.Schedule.State.Paused
	}
	for _, action := range described.Info.RecentActions {
		if action.StartWorkflowResult != nil {
			state.Last = append(state.Last, ScheduledRun{WorkflowID: action.StartWorkflowResult.WorkflowID, StartedAt: action.ActualTime})
		}
	}
	var asked sync.WaitGroup
	for i := range state.Last {
		asked.Go(func() { state.Last[i].readState(ctx, c) })
	}
	asked.Wait()
	return state, nil
}

// readState reads the run's status and result into r. The status stays empty if Temporal no longer has the run.
func (r *ScheduledRun) readState(ctx context.Context, c client.Client) {
	described, err := c.DescribeWorkflowExecution(ctx, r.WorkflowID, "") // without a run ID: the latest run, if the workflow continued as new
	if err != nil {
		return
	}
	switch info := described.GetWorkflowExecutionInfo(); info.GetStatus() {
	case enumspb.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED:
	case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED, enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
		r.Status = metering.SyncRunning
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		if err := c.GetWorkflow(ctx, r.WorkflowID, info.GetExecution().GetRunId()).Get(ctx, &r.Result); err == nil {
			r.Status = metering.SyncSucceeded
		}
	default:
		r.Status = metering.SyncFailed
	}
}

// TriggerAutoSync starts a run now, or after the open run ends.
func TriggerAutoSync(ctx context.Context, c client.Client, tenant metering.TenantID) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := c.ScheduleClient().GetHandle(ctx, AutoSyncID(tenant)).Trigger(ctx,
		client.ScheduleTriggerOptions{Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_BUFFER_ONE})
	if err != nil {
		return unreachable(AutoSyncID(tenant), err)
	}
	return nil
}
