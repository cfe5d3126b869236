package workflows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/odometer-metering/odometer/metering"
)

// catchUp is how long after its time a run that was missed is still begun. One
// is enough: it does all that is due.
const catchUp = 2 * time.Hour

// Schedules of the service's own, for all tenants.
const (
	maintainID = "maintain"
	auditID    = "audit-usage"
)

// ApplyAutoSync makes the tenant's schedule follow its settings. Whether the
// schedule is paused stays as it is, except where setPaused says that the
// tenant has just decided. CodeUnavailable when Temporal does not answer.
func ApplyAutoSync(ctx context.Context, c client.Client, tenant metering.Tenant, settings metering.AutoSync, setPaused bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	id := AutoSyncID(tenant.ID)
	handle := c.ScheduleClient().GetHandle(ctx, id)
	if !settings.Enabled {
		err := handle.Delete(ctx)
		var missing *serviceerror.NotFound
		if err != nil && !errors.As(err, &missing) {
			return unreachable(id, err)
		}
		return nil
	}
	if err := ensureSchedule(ctx, c, autoSyncSchedule(tenant, settings), setPaused); err != nil {
		return unreachable(id, err)
	}
	return nil
}

func autoSyncSchedule(tenant metering.Tenant, settings metering.AutoSync) client.ScheduleOptions {
	return client.ScheduleOptions{
		ID: AutoSyncID(tenant.ID),
		Spec: client.ScheduleSpec{
			CronExpressions: []string{settings.Schedule.Cron()}, TimeZoneName: tenant.Timezone, Jitter: settings.Schedule.Jitter(),
		},
		Action: &client.ScheduleWorkflowAction{
			ID: AutoSyncID(tenant.ID), Workflow: AutoSync, TaskQueue: TaskQueue, Args: []any{AutoSyncInput{TenantID: tenant.ID}},
			StaticSummary:         fmt.Sprintf("Auto-Sync of %s", tenant.ID),
			StaticDetails:         "Tells the billing provider whatever it does not know yet, of every customer.",
			TypedSearchAttributes: attributesOf(tenant.ID, triggerAttribute.ValueSet(string(metering.Scheduled))),
			Priority:              temporal.Priority{PriorityKey: background, FairnessKey: tenant.ID.String()},
		},
		Overlap:       enumspb.SCHEDULE_OVERLAP_POLICY_SKIP,
		CatchupWindow: catchUp,
		Paused:        settings.Paused,
		Note:          "as the tenant decided at " + settings.UpdatedAt.UTC().Format(time.RFC3339Nano),
	}
}

// EnsureSchedules makes the schedules of the service itself.
func EnsureSchedules(ctx context.Context, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, own := range []struct {
		id, cron, summary string
		workflow          any
		args              []any
	}{
		{maintainID, "17 * * * *", "Hourly maintenance", Maintain, nil},
		{auditID, "0 3 * * *", "Daily comparison of usage with its independent count", AuditUsage, []any{AuditUsageInput{}}},
	} {
		err := ensureSchedule(ctx, c, client.ScheduleOptions{
			ID:   own.id,
			Spec: client.ScheduleSpec{CronExpressions: []string{own.cron}},
			Action: &client.ScheduleWorkflowAction{
				ID: own.id, Workflow: own.workflow, Args: own.args, TaskQueue: TaskQueue, StaticSummary: own.summary,
				Priority: temporal.Priority{PriorityKey: background},
			},
			Overlap:       enumspb.SCHEDULE_OVERLAP_POLICY_SKIP,
			CatchupWindow: catchUp,
		}, false)
		if err != nil {
			return unreachable(own.id, err)
		}
	}
	return nil
}

// ensureSchedule creates a schedule, or gives the one that is there its
// timing, action and policy; what operators have paused stays paused, unless
// setPaused. Without registered search attributes, its runs go without.
func ensureSchedule(ctx context.Context, c client.Client, options client.ScheduleOptions, setPaused bool) error {
	err := createOrUpdate(ctx, c, options, setPaused)
	var invalid *serviceerror.InvalidArgument
	if action, ok := options.Action.(*client.ScheduleWorkflowAction); ok && errors.As(err, &invalid) && action.TypedSearchAttributes.Size() > 0 {
		action.TypedSearchAttributes = temporal.SearchAttributes{}
		action.Args = unindexed(action.Args)
		err = createOrUpdate(ctx, c, options, setPaused)
	}
	return err
}

func unindexed(args []any) []any {
	args = slices.Clone(args)
	for i, arg := range args {
		if in, ok := arg.(AutoSyncInput); ok {
			in.Unindexed = true
			args[i] = in
		}
	}
	return args
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
		return errors.New("the schedule was changed by somebody else at the same time")
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
}

// DescribeAutoSync returns the state of the tenant's schedule; none is no error.
func DescribeAutoSync(ctx context.Context, c client.Client, tenant metering.TenantID) (ScheduleState, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	described, err := c.ScheduleClient().GetHandle(ctx, AutoSyncID(tenant)).Describe(ctx)
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
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
			state.Last = append(state.Last, ScheduledRun{action.StartWorkflowResult.WorkflowID, action.ActualTime})
		}
	}
	return state, nil
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
