package worker_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// state waits until wanted accepts the state of the customer's run, and returns the state.
func (s *system) state(wanted func(workflows.SyncState) bool) (state workflows.SyncState) {
	s.Helper()
	dbtest.Eventually(s, func() (err error) {
		state, err = workflows.DescribeSyncCustomer(s.Context(), s.temporal, s.tenant, s.customer.ID)
		if err == nil && !wanted(state) {
			err = errors.New("it is not there yet")
		}
		return err
	})
	return state
}

// TestSyncIsPausedResumedAndRetried pauses, resumes and retries a sync on the real server.
func TestSyncIsPausedResumedAndRetried(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	require.Zero(t, s.state(func(workflows.SyncState) bool { return true }), "there is no run")
	stop := s.work()
	run := workflows.SyncCustomerID(s.tenant, s.customer.ID)
	s.use("5")
	s.behave(`{"status":503,"times":1000}`)
	sync := s.request()
	waiting := s.state(func(state workflows.SyncState) bool { return state.Attempts >= 2 && !state.NextAttempt.IsZero() })
	require.Equal(t, "the webhook answered 503", waiting.LastError)
	require.False(t, waiting.Paused)
	tried, err := s.store.Syncs.Tried(t.Context(), s.tenant, []metering.CustomerID{s.customer.ID})
	require.NoError(t, err)
	require.GreaterOrEqual(t, tried[s.customer.ID].Attempts, 2)
	require.Equal(t, "the webhook answered 503", tried[s.customer.ID].LastError)

	require.Equal(t, metering.CodeConflict, metering.CodeOf(workflows.ResumeSyncCustomer(t.Context(), s.temporal, s.tenant, s.customer.ID, asks)))
	for range 2 { // a second pause changes nothing
		require.NoError(t, s.update(run, "pause"), "as the Temporal UI does")
		s.awaitIdle(run)
		require.Equal(t, workflows.SyncState{Paused: true}, s.state(func(state workflows.SyncState) bool { return state.Paused }))
	}
	sent := len(s.received())
	require.NoError(t, workflows.ResumeSyncCustomer(t.Context(), s.temporal, s.tenant, s.customer.ID, asks))
	s.awaitDeliveries(sent + 1)

	stop()
	dbtest.Eventually(t, func() error { // Temporal knows the attempts without a worker
		alone, err := workflows.DescribeSyncCustomer(t.Context(), s.workerClient, s.tenant, s.customer.ID)
		if metering.CodeOf(err) != metering.CodeUnavailable || alone.Attempts == 0 {
			return fmt.Errorf("%+v: %w", alone, err)
		}
		return nil
	})

	s.work()
	s.behave(`{"times":0}`)
	dbtest.Eventually(t, func() error {
		return workflows.RetrySyncCustomer(t.Context(), s.temporal, s.tenant, s.customer.ID, asks)
	})
	require.Equal(t, metering.SyncSucceeded, s.await(sync).Status)
	require.Equal(t, "5", s.billed()[s.customer.ExternalID])
}

// TestCanceledRunFailsSyncsAndKeepsReports cancels a paused run. The run ends, and its syncs fail as interrupted. The
// ledger has the reports that the run has sent, so the next sync continues from these reports.
func TestCanceledRunFailsSyncsAndKeepsReports(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.work()
	s.use("5")
	s.behave(`{"status":503,"times":1000}`)
	first := s.request()
	s.awaitDeliveries(1)
	require.NoError(t, s.update(workflows.SyncCustomerID(s.tenant, s.customer.ID), "pause"))
	second := s.request()
	open, err := s.store.Syncs.OpenOf(t.Context(), s.tenant, s.customer.ID)
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{first, second}, open)

	s.cancel(second, open)
	for _, id := range open {
		sync := s.await(id)
		require.Equal(t, metering.SyncFailed, sync.Status)
		require.Equal(t, "the sync was interrupted; sync again", sync.Error)
	}
	require.Error(t, s.awaitClosed(workflows.SyncCustomerID(s.tenant, s.customer.ID)))
	require.NoError(t, workflows.CancelSyncCustomer(t.Context(), s.temporal, s.tenant, s.customer.ID), "again")

	s.behave(`{"times":0}`)
	require.Equal(t, metering.SyncSucceeded, s.await(s.request()).Status)
	require.Equal(t, "5", s.billed()[s.customer.ExternalID])
}

// TestSyncRequestedAfterCancellationStartsImmediately cancels a sync and requests another one. The request starts
// the new run, so the new sync does not wait until a worker polls for it.
func TestSyncRequestedAfterCancellationStartsImmediately(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.work()
	for range 5 {
		s.use("5")
		s.behave(`{"status":503,"times":1000}`)
		deliveries := len(s.received())
		canceled := s.request()
		s.awaitDeliveries(deliveries + 1)
		s.cancel(canceled, []uuid.UUID{canceled})
		s.behave(`{"times":0}`)
		sync := s.await(s.request())
		require.Equal(t, metering.SyncFailed, s.await(canceled).Status)
		require.Equal(t, metering.SyncSucceeded, sync.Status)
		require.Equal(t, string(metering.Manual), s.triggerOf(workflows.SyncCustomerID(s.tenant, s.customer.ID)), "a run that the worker begins by itself is scheduled")
	}
	require.Equal(t, "25", s.billed()[s.customer.ExternalID])
}

// triggerOf returns the trigger of the latest run of a workflow.
func (s *system) triggerOf(workflowID string) (trigger string) {
	s.Helper()
	started := s.history(workflowID).GetEvents()[0].GetWorkflowExecutionStartedEventAttributes()
	payload := started.GetSearchAttributes().GetIndexedFields()["OdometerTrigger"]
	require.NoError(s, converter.GetDefaultDataConverter().FromPayload(payload, &trigger))
	return trigger
}

// cancel cancels syncs as the API does.
func (s *system) cancel(sync uuid.UUID, open []uuid.UUID) {
	s.Helper()
	require.NoError(s, s.store.Syncs.Cancel(s.Context(), s.tenant, s.steering(sync), open, workflows.Interrupted, time.Now(), func() error {
		return workflows.CancelSyncCustomer(s.Context(), s.temporal, s.tenant, s.customer.ID)
	}))
}

// steering returns an operator's request about a sync.
func (s *system) steering(sync uuid.UUID) ledger.Steering {
	return ledger.Steering{Actor: metering.Operator, Sync: sync, Customer: s.customer.ID, Reason: "for the test"}
}

// TestNoRunReportsPausedCustomer pauses a customer. The pause is a row in the database. The open run ends
// at its next attempt. Until the customer is resumed, no new run, no Auto-Sync and no closing sends a report.
func TestNoRunReportsPausedCustomer(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.useAll(3)
	s.work()
	s.schedule()
	_, result := s.autoSync()
	s.requireResult(workflows.BulkSyncResult{Customers: 4, Sent: 4}, result)
	s.use("5")
	s.behave(`{"status":503,"times":1000}`)
	first := s.request()
	run := workflows.SyncCustomerID(s.tenant, s.customer.ID)
	s.state(func(state workflows.SyncState) bool { return state.Attempts >= 1 })
	require.NoError(t, s.store.Syncs.Pause(t.Context(), s.tenant, s.steering(first), time.Now()))
	require.NoError(t, s.awaitClosed(run))
	s.behave(`{"times":0}`)
	s.forget()
	require.Contains(t, s.history(run).String(), "paused")

	second := s.request()
	require.NoError(t, s.awaitClosed(run), "it has accepted no message")
	s.useAll(3)
	_, result = s.autoSync()
	s.requireResult(workflows.BulkSyncResult{Customers: 3, Sent: 3}, result)
	require.NotContains(t, s.billed(), s.customer.ExternalID)
	open, err := s.store.Syncs.Open(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Empty(t, open, "no worker begins a run for it")

	ended, err := s.store.Syncs.EndPause(t.Context(), s.tenant, s.steering(first), time.Now())
	require.NoError(t, err)
	require.True(t, ended)
	dbtest.Eventually(t, func() error {
		return workflows.StartSyncCustomer(t.Context(), s.temporal, s.tenant, s.customer.ID, true)
	})
	for _, sync := range []uuid.UUID{first, second} {
		require.Equal(t, metering.SyncSucceeded, s.await(sync).Status)
	}
	require.Equal(t, "5", s.billed()[s.customer.ExternalID])
}
