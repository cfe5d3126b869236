package api

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// SyncProgress is the progress of an unfinished sync. One workflow run performs all syncs of a customer, so
// all its syncs have the same progress.
type SyncProgress struct {
	Attempts       int        `json:"attempts" required:"false" doc:"Number of attempts to send the current report, including one in progress. Only for an unfinished sync" example:"3"`
	LastError      string     `json:"last_error" required:"false" doc:"Error of the last attempt. Empty if no attempt failed" example:"the webhook answered 503"`
	NextAttemptAt  *time.Time `json:"next_attempt_at,omitempty" doc:"Time of the next attempt. Absent during an attempt or a pause, if the time is unknown, and in the list of syncs"`
	Paused         *bool      `json:"paused,omitempty" doc:"Whether the sync is paused. Absent if unknown. The list of syncs shows this field only for paused customers"`
	Pause          *syncPause `json:"pause,omitempty"` // nil unless the customer was paused through the API; a pause in the Temporal UI is not stored
	EngineAnswered *bool      `json:"engine_answered,omitempty" doc:"False if the workflow engine did not respond within a second. The fields 'paused' and 'next_attempt_at' can then be absent. The list of syncs does not have this field"`
}

type syncPause struct {
	Since  time.Time      `json:"since" doc:"Time of the pause"`
	By     metering.Actor `json:"by" example:"key_12" doc:"Actor that paused the customer"`
	Reason string         `json:"reason" example:"the receiver is being moved" doc:"Reason given by the actor"`
}

// progressOf returns the progress of an unfinished sync as stored in the database.
func progressOf(run metering.Sync, tried ledger.Tried) *SyncProgress {
	p := &SyncProgress{Attempts: tried.Attempts, LastError: tried.LastError}
	if run.Pause != nil {
		paused := true
		p.Paused, p.Pause = &paused, &syncPause{run.Pause.Since.UTC(), run.Pause.By, run.Pause.Reason}
	}
	return p
}

// showSyncProgress converts a sync for a response. For an unfinished sync, it adds the progress. If Temporal does not
// respond, the fields that only Temporal knows are absent.
func (s *server) showSyncProgress(ctx context.Context, run metering.Sync) (syncRun, error) {
	show, err := s.syncConverter(ctx, []metering.Sync{run})
	if err != nil {
		return syncRun{}, err
	}
	shown := show(run)
	if shown.SyncProgress == nil {
		return shown, nil
	}
	state, err := workflows.DescribeSyncCustomer(ctx, s.Temporal, principalOf(ctx).Tenant.ID, run.CustomerID)
	answered := err == nil
	if !answered {
		s.Log.WarnContext(ctx, "cannot read the progress of a sync from Temporal", "sync", run.ID, "error", err)
	}
	shown.add(state, answered)
	return shown, nil
}

// add adds the state of the workflow run to the progress from the database. answered is false if Temporal did not
// respond. The state is then unknown. If no report is being sent, Attempts counts the attempts of the run's current
// step, such as reading the provider's data.
func (p *SyncProgress) add(state workflows.SyncState, answered bool) {
	p.EngineAnswered = &answered
	if answered && p.Pause == nil {
		p.Paused = &state.Paused
	}
	if p.Attempts == 0 {
		p.Attempts, p.LastError = state.Attempts, state.LastError
	}
	if !state.NextAttempt.IsZero() && p.Pause == nil {
		p.NextAttemptAt = &state.NextAttempt
	}
}

// syncConverter returns a function that converts a sync for a response. For an unfinished sync, the function adds
// the attempts and the last error of the current report. syncConverter reads them from the database, for all
// unfinished runs at once.
func (s *server) syncConverter(ctx context.Context, runs []metering.Sync) (func(metering.Sync) syncRun, error) {
	var open []metering.CustomerID
	for _, run := range runs {
		if !run.Status.Done() {
			open = append(open, run.CustomerID)
		}
	}
	if len(open) == 0 {
		return showSync, nil
	}
	tried, err := s.Store.Syncs.Tried(ctx, principalOf(ctx).Tenant.ID, open)
	if err != nil {
		return nil, err
	}
	return func(run metering.Sync) syncRun {
		shown := showSync(run)
		if !run.Status.Done() {
			shown.SyncProgress = progressOf(run, tried[run.CustomerID])
		}
		return shown
	}, nil
}
