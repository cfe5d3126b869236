package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

type autoSync struct {
	Enabled   bool              `json:"enabled"`
	Schedule  metering.Schedule `json:"schedule" doc:"'hourly', 'daily', a cron expression, or a duration of whole minutes from 5m to 24h, such as 15m. 'hourly', 'daily' and cron expressions use the tenant's time zone"`
	Paused    bool              `json:"paused" doc:"Whether the schedule is paused, here or in the Temporal UI"`
	AppliedAt *time.Time        `json:"applied_at" doc:"Time at which these settings were applied to the schedule. Null before that time"`
	NextRuns  []time.Time       `json:"next_runs"`
	LastRuns  []autoSyncRun     `json:"last_runs" doc:"Latest runs, newest first"`
}

// autoSyncRun is a run of Auto-Sync. Status is empty if Temporal does not return the status. Outcome is set if
// the run has succeeded.
type autoSyncRun struct {
	WorkflowID string              `json:"workflow_id"`
	StartedAt  time.Time           `json:"started_at"`
	Status     metering.SyncStatus `json:"status,omitempty"`
	Outcome    *autoSyncOutcome    `json:"outcome,omitempty"`
}

type autoSyncOutcome struct {
	Customers int `json:"customers" doc:"Number of customers that the run handled because they were out of sync. Includes busy and failed customers, and customers without new usage"`
	Reports   int `json:"reports" doc:"Number of reports that were sent"`
	Failed    int `json:"failed" doc:"Number of customers with a failed or unfinished sync. The list of syncs shows these customers"`
	Busy      int `json:"busy" doc:"Number of customers with another sync in progress"`
	Closed    int `json:"closed" doc:"Number of billing periods that were closed"`
}

func showAutoSyncRun(run workflows.ScheduledRun) autoSyncRun {
	shown := autoSyncRun{WorkflowID: run.WorkflowID, StartedAt: run.StartedAt, Status: run.Status}
	if run.Status == metering.SyncSucceeded {
		r := run.Result
		shown.Outcome = &autoSyncOutcome{r.Customers, r.Sent, r.Failed, r.Busy, r.Closed}
	}
	return shown
}

type autoSyncOutput struct{ Body autoSync }

func (s *server) registerAutoSync() {
	huma.Register(s.api, get("get-auto-sync", "/v1/billing/auto-sync", BillingRead, "Get the Auto-Sync settings",
		"Returns the schedule, whether it is paused, and the last and next runs."), s.getAutoSync)
	huma.Register(s.api, put("save-auto-sync", "/v1/billing/auto-sync", BillingWrite, "Save the Auto-Sync settings",
		"Replaces the saved settings and updates the schedule immediately. If Temporal is unavailable, the schedule is updated once it responds.\n\n"+
			"- `enabled: false` deletes the schedule and cancels its run that is in progress. Reports that were sent stay sent."), s.saveAutoSync)
	huma.Register(s.api, accepted(post("trigger-auto-sync", "/v1/billing/auto-sync/trigger", BillingWrite, "Run Auto-Sync now",
		"Syncs every customer who is out of sync.")), s.triggerAutoSync)
}

func (s *server) getAutoSync(ctx context.Context, _ *struct{}) (*autoSyncOutput, error) {
	settings, err := s.Store.AutoSyncs.Get(ctx, principalOf(ctx).Tenant.ID)
	if err != nil {
		return nil, err
	}
	return s.showAutoSync(ctx, settings), nil
}

// showAutoSync returns the stored settings with the pause, the next runs and the last runs in Temporal. If
// Temporal does not respond, it returns the stored settings alone.
func (s *server) showAutoSync(ctx context.Context, settings metering.AutoSync) *autoSyncOutput {
	out := &autoSyncOutput{autoSync{
		Enabled: settings.Enabled, Schedule: settings.Schedule, Paused: settings.Paused, AppliedAt: settings.AppliedAt,
		NextRuns: []time.Time{}, LastRuns: []autoSyncRun{},
	}}
	if !settings.Enabled || settings.AppliedAt == nil {
		return out
	}
	state, err := workflows.DescribeAutoSync(ctx, s.Temporal, settings.TenantID)
	if err != nil {
		s.Log.WarnContext(ctx, "cannot read the Auto-Sync schedule from Temporal", "error", err)
		return out
	}
	out.Body.Paused = state.Paused
	out.Body.NextRuns = append(out.Body.NextRuns, state.Next...)
	for _, run := range state.Last {
		out.Body.LastRuns = append([]autoSyncRun{showAutoSyncRun(run)}, out.Body.LastRuns...)
	}
	return out
}

type saveAutoSyncInput struct {
	Body struct {
		Enabled  bool              `json:"enabled"`
		Schedule metering.Schedule `json:"schedule" maxLength:"255" doc:"'hourly', 'daily', a cron expression, or a duration of whole minutes from 5m to 24h, such as 15m. 'hourly', 'daily' and cron expressions use the tenant's time zone"`
		Paused   bool              `json:"paused,omitempty"`
	}
}

// saveAutoSync stores the settings and updates the schedule in Temporal immediately. If Temporal does not respond,
// a worker updates the schedule later.
func (s *server) saveAutoSync(ctx context.Context, in *saveAutoSyncInput) (*autoSyncOutput, error) {
	if err := in.Body.Schedule.Validate("body.schedule"); err != nil {
		return nil, err
	}
	who := principalOf(ctx)
	saved, err := s.Store.AutoSyncs.Save(ctx, who.Tenant.ID, who.Actor,
		metering.AutoSync{Enabled: in.Body.Enabled, Schedule: in.Body.Schedule, Paused: in.Body.Paused}, s.Now())
	if err != nil {
		return nil, err
	}
	if err := workflows.ApplyAutoSync(ctx, s.Temporal, who.Tenant, saved, true); err != nil {
		s.Log.WarnContext(ctx, "apply the Auto-Sync schedule: Temporal did not answer, a worker applies it", "error", err)
		return s.showAutoSync(ctx, saved), nil
	}
	if err := s.Store.AutoSyncs.Applied(ctx, who.Tenant.ID, saved); err != nil {
		return nil, err
	}
	saved.AppliedAt = &saved.UpdatedAt
	return s.showAutoSync(ctx, saved), nil
}

type triggerAutoSyncOutput struct{ Status int }

// triggerAutoSync starts a run of Auto-Sync now.
func (s *server) triggerAutoSync(ctx context.Context, _ *struct{}) (*triggerAutoSyncOutput, error) {
	settings, err := s.Store.AutoSyncs.Get(ctx, principalOf(ctx).Tenant.ID)
	if err != nil {
		return nil, err
	}
	if !settings.Enabled {
		return nil, metering.Errorf(metering.CodeConflict, "Auto-Sync is off; turn it on with PUT /v1/billing/auto-sync")
	}
	if err := s.auditAsked(ctx, "auto_sync.trigger", settings.TenantID.String(), nil); err != nil {
		return nil, err
	}
	if err := workflows.TriggerAutoSync(ctx, s.Temporal, settings.TenantID); err != nil {
		return nil, err
	}
	return &triggerAutoSyncOutput{http.StatusAccepted}, nil
}
