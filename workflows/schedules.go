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

// catchUp is how long after its time a run that was missed is still begun. One
// is enough: it does all that is due.
const catchUp = 2 * time.Hour

// ApplyAutoSync makes the tenant's schedule follow its settings. Whether the
// schedule is paused stays as it is, except where setPaused says that the
// tenant has just decided. Disabling it cancels its open run, too. CodeUnavailable when
// Temporal does not answer.
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

// deleteSchedule cancels the open runs of a schedule, then deletes it. A schedule that does
// not exist is no error. A run that begins in between goes on.
func deleteSchedule(ctx context.Context, c client.Client, handle client.ScheduleHandle) error {
	described, err := handle.Describe(ctx)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, run := range described.Info.RunningWorkflows {
		if err := c.CancelWorkflow(ctx, run.WorkflowID, ""); err != nil && !missing(err) {
			return err
		}
	}
	if err := handle.Delete(ctx); err != nil && !missing(err) {
		return err
	}
	return nil
}

func specOf(schedule metering.Schedule, timezone string) client.ScheduleSpec {
	if every := schedule.Every(); every > 0 {
		return client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: every}}, Jitter: schedule.Jitter()}
	}
	return client.ScheduleSpec{CronExpressions: []string{schedule.Cron()}, TimeZoneName: timezone, Jitter: schedule.Jitter()}
}

// EnsureSchedules makes the schedules of the service itself.
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

// ensureSchedule creates a schedule of runs, or gives the one that is there its
// timing, action and policy; what operators have paused stays paused, unless
// setPaused.
func ensureSchedule(ctx context.Context, c client.Client, runs start, options client.ScheduleOptions, setPaused bool) error {
	options.ID, options.Action = runs.id, runs.action()
	options.Overlap, options.CatchupWindow = enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, catchUp
	if err := createOrUpdate(ctx, c, options, setPaused); err != nil {
		return unreachable(runs.id, err)
	}
	return nil
}

// createOrUpdate pauses and resumes by an update: Temporal keeps one pending
// request to trigger, pause or resume a schedule, so that resuming one that
// was just triggered would make it forget the run.
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
	return followed(ctx, handle, options.Note)
}

// followed says whether the schedule has taken a change: of two that cross,
// Temporal drops the later one without a word.
func followed(ctx context.Context, handle client.ScheduleHandle, note string) error {
	described, err := handle.Describe(ctx)
	if err != nil {
		return err
	}
	if state := described.Schedule.State; state == nil || state.Note != note {
		return errors.New("another caller changed the schedule at the same time")
	}
	return nil
}

// ScheduleState is what Temporal says of a tenant's schedule.
type ScheduleState struct {
	Paused bool
	Next   []time.Time
	Last   []ScheduledRun // oldest first
}

// ScheduledRun is one that a schedule has begun.
type ScheduledRun struct {
	WorkflowID string
	StartedAt  time.Time
	Status     metering.SyncStatus // failed also where somebody has ended it; "" where Temporal does not say
	Result     BulkSyncResult      // of one that has succeeded
}

// DescribeAutoSync returns the state of the tenant's schedule; none is no error.
func DescribeAutoSync(ctx context.Context, c client.Client, tenant metering.TenantID) (ScheduleState, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	described, err := c.ScheduleClient().GetHandle(ctx, AutoSyncID(tenant)).Describe(ctx)
	if missing(err) {
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
		asked.Go(func() { state.Last[i].ask(ctx, c) })
	}
	asked.Wait()
	return state, nil
}

// ask says what has become of a run. Temporal keeps it for a while alone.
func (r *ScheduledRun) ask(ctx context.Context, c client.Client) {
	described, err := c.DescribeWorkflowExecution(ctx, r.WorkflowID, "") // the last of those by which it was continued
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

// TriggerAutoSync begins a run now, or after the one that is open.
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
