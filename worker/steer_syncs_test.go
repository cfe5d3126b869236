package worker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// state waits until what is known of the customer's run is as wanted.
func (s *system) state(wanted func(workflows.SyncState) bool) (state workflows.SyncState) {
	s.Helper()
	dbtest.Eventually(s, 30*time.Second, func() (err error) {
		state, err = workflows.DescribeSyncCustomer(s.Context(), s.temporal, s.tenant, s.customer.ID)
		if err == nil && !wanted(state) {
			err = errors.New("it is not there yet")
		}
		return err
	})
	return state
}

// TestASyncIsSteeredAsTheAPIDoes on the real server.
func TestASyncIsSteeredAsTheAPIDoes(t *testing.T) {
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

	require.Equal(t, metering.CodeConflict, metering.CodeOf(workflows.ResumeSyncCustomer(t.Context(), s.temporal, s.tenant, s.customer.ID)))
	for range 2 { // twice is the same as once
		require.NoError(t, workflows.PauseSyncCustomer(t.Context(), s.temporal, s.tenant, s.customer.ID))
		s.awaitIdle(run)
		require.Equal(t, workflows.SyncState{Paused: true}, s.state(func(state workflows.SyncState) bool { return state.Paused }))
	}
	sent := len(s.received())
	require.NoError(t, workflows.ResumeSyncCustomer(t.Context(), s.temporal, s.tenant, s.customer.ID))
	s.awaitDeliveries(sent + 1)

	stop()
	began := time.Now()
	alone, err := workflows.DescribeSyncCustomer(t.Context(), s.temporal, s.tenant, s.customer.ID)
	require.Equal(t, metering.CodeUnavailable, metering.CodeOf(err), "%v", err)
	require.Less(t, time.Since(began), 5*time.Second)
	require.Positive(t, alone.Attempts, "Temporal knows it without a worker")

	s.work()
	s.behave(`{"times":0}`)
	dbtest.Eventually(t, 30*time.Second, func() error {
		return workflows.RetrySyncCustomer(t.Context(), s.temporal, s.tenant, s.customer.ID)
	})
	require.Equal(t, metering.SyncSucceeded, s.await(sync).Status)
	require.Equal(t, "5", s.billed()[s.customer.ExternalID])
}

// Cancelling ends the run also while it is paused, and answers what it has
// taken. What was sent is known: the next sync goes on from there.
func TestASyncIsCancelledAsTheAPIDoes(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.work()
	s.use("5")
	s.behave(`{"status":503,"times":1000}`)
	first := s.request()
	s.awaitDeliveries(1)
	require.NoError(t, workflows.PauseSyncCustomer(t.Context(), s.temporal, s.tenant, s.customer.ID))
	second := s.request()
	open, err := s.store.Syncs.OpenOf(t.Context(), s.tenant, s.customer.ID)
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{first, second}, open)

	require.NoError(t, workflows.CancelSyncCustomer(t.Context(), s.temporal, s.tenant, s.customer.ID))
	require.NoError(t, s.store.Syncs.Cancel(t.Context(), s.tenant, metering.Operator, second, open, workflows.Interrupted, time.Now()))
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
