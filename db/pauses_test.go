package db_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

func (b *biller) steering(reason string) ledger.Steering {
	return ledger.Steering{Actor: "key_1", Sync: uuid.UUID{1}, Customer: b.customer.ID, Reason: reason}
}

func (b *biller) pause(reason string) {
	b.Helper()
	require.NoError(b, b.store.Syncs.Pause(b.Context(), b.tenant, b.steering(reason), b.now))
}

func (b *biller) resume(reason string) (ended bool) {
	b.Helper()
	ended, err := b.store.Syncs.EndPause(b.Context(), b.tenant, b.steering(reason), b.now)
	require.NoError(b, err)
	return ended
}

func TestPausedCustomerIsNotReported(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	sync := b.request()
	sent := b.sendNew("1")
	require.NoError(t, b.store.Ledger.Release(t.Context(), b.tenant, sent.ID, 1, "the webhook answered 503", false))
	began := metering.Instant(b.now)
	b.pause("the receiver is being moved")
	b.now = b.now.Add(time.Hour)
	b.pause("twice is the same as once")

	_, err := b.store.Ledger.Plan(t.Context(), b.tenant, b.customer.ID, ledger.Pass{After: anew}, dbtest.Frame, b.now)
	require.Equal(t, metering.CodePaused, metering.CodeOf(err))
	_, err = b.store.Ledger.Lease(t.Context(), b.tenant, sent.ID, b.now, lease)
	require.Equal(t, metering.CodePaused, metering.CodeOf(err))
	require.Empty(t, b.outOfSync())
	begun, err := b.store.Syncs.Begin(t.Context(), b.tenant, b.customer.ID, b.now)
	require.NoError(t, err)
	require.Equal(t, []any{true, 0}, []any{begun.Paused, begun.Requests})
	open, err := b.store.Syncs.Open(t.Context(), b.now.Add(time.Hour))
	require.NoError(t, err)
	require.NotContains(t, open, ledger.OpenSyncs{Tenant: b.tenant, Customer: b.customer.ID})
	read, err := b.store.Syncs.Get(t.Context(), b.tenant, sync)
	require.NoError(t, err)
	require.Equal(t, []any{began, metering.Actor("key_1"), "the receiver is being moved"}, []any{metering.Instant(read.Pause.Since), read.Pause.By, read.Pause.Reason})
	list, err := dbtest.Items(b.store.Syncs.List(t.Context(), b.tenant, ledger.SyncFilter{}, 10))
	require.NoError(t, err)
	require.Equal(t, read.Pause, list[0].Pause)

	require.True(t, b.resume("it is there"))
	require.False(t, b.resume("again"))
	require.Equal(t, []metering.CustomerID{b.customer.ID}, b.outOfSync())
	b.acceptAll() // in the last hour of a month, another period has begun
	require.Empty(t, b.outOfSync())
	require.Equal(t, []string{uuid.UUID{1}.String(), uuid.UUID{1}.String()}, b.audited("sync.pause"))
	require.Len(t, b.audited("sync.resume"), 1)
}

func TestPauseDoesNotBlockOtherCustomers(t *testing.T) {
	t.Parallel()
	paused, b := newBiller(t), newBiller(t)
	paused.pause("the receiver is being moved")
	b.request()
	open, err := b.store.Syncs.Open(t.Context(), b.now.Add(time.Second))
	require.NoError(t, err)
	require.Contains(t, open, ledger.OpenSyncs{Tenant: b.tenant, Customer: b.customer.ID})
}

// TestPeriodsOfPausedCustomerClose checks that a paused customer's usage is accepted, and that its fully
// reported period closes.
func TestPeriodsOfPausedCustomerClose(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.use("3")
	b.now = over(month)
	b.acceptAll()
	b.pause("for a while")
	b.use("4")
	require.Equal(t, 1, b.closePeriods().Closed)
	require.Empty(t, b.outOfSync())
	require.True(t, b.resume("it is over"))
	b.accept()
}

func TestCancelOfSyncEndsPause(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	sync := b.request()
	b.pause("for a while")
	require.NoError(t, b.store.Syncs.Cancel(t.Context(), b.tenant, b.steering("never mind"), []uuid.UUID{sync}, "canceled", b.now, func() error { return nil }))
	read, err := b.store.Syncs.Get(t.Context(), b.tenant, sync)
	require.NoError(t, err)
	require.Equal(t, metering.SyncFailed, read.Status)
	require.Nil(t, read.Pause)
	require.False(t, b.resume("again"))
}

// TestPassDoesNotBeginSyncDuringItsCancellation checks that a pass does not begin a sync that is being canceled.
// Another run, such as the successor of the canceled one, may begin a pass before the cancellation is committed.
func TestPassDoesNotBeginSyncDuringItsCancellation(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	b := newBillerAt(t, store, address)
	watch := b.connect()
	canceled, taken := b.request(), make(chan ledger.Begun, 1)
	cancel := func(run func() error) error {
		return b.store.Syncs.Cancel(t.Context(), b.tenant, b.steering("never mind"), []uuid.UUID{canceled}, "canceled", b.now, run)
	}
	down := errors.New("Temporal does not answer")
	require.ErrorIs(t, cancel(func() error { return down }), down)
	read, err := b.store.Syncs.Get(t.Context(), b.tenant, canceled)
	require.NoError(t, err)
	require.Equal(t, metering.SyncRequested, read.Status)

	require.NoError(t, cancel(func() error {
		go func() {
			begun, err := b.store.Syncs.Begin(context.WithoutCancel(t.Context()), b.tenant, b.customer.ID, b.now)
			assert.NoError(t, err)
			taken <- begun
		}()
		awaitLockWaiters(t, watch, 1)
		return nil
	}))
	require.Zero(t, (<-taken).Requests)
	later := b.request()
	b.finish(b.begin().PassID, ledger.Answer{})
	require.Equal(t, []metering.SyncStatus{metering.SyncFailed, metering.SyncSucceeded}, []metering.SyncStatus{b.sync(canceled).Status, b.sync(later).Status})
}

// TestPlanFailsAfterPauseHasReturned checks that a plan that runs concurrently with a pause either precedes the
// pause or fails with CodePaused.
func TestPlanFailsAfterPauseHasReturned(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	for range 20 {
		b.use("1")
		var both sync.WaitGroup
		var planned error
		both.Go(func() {
			_, planned = b.store.Ledger.Plan(context.WithoutCancel(t.Context()), b.tenant, b.customer.ID, ledger.Pass{After: anew}, dbtest.Frame, b.now)
		})
		b.pause("meanwhile")
		_, after := b.store.Ledger.Plan(t.Context(), b.tenant, b.customer.ID, ledger.Pass{After: anew}, dbtest.Frame, b.now)
		both.Wait()
		require.Equal(t, metering.CodePaused, metering.CodeOf(after))
		if planned != nil {
			require.Equal(t, metering.CodePaused, metering.CodeOf(planned))
		}
		b.resume("meanwhile")
		b.acceptAll()
	}
}

// TestPausedErasedCustomerCanBeResumed erases a customer of a provider with invoices, which still bills the
// customer. The clock of the process that pauses the customer is behind the clock of the process that erased it.
func TestPausedErasedCustomerCanBeResumed(t *testing.T) {
	t.Parallel()
	b, _ := newReported(t)
	_, err := b.erase()
	require.NoError(t, err)

	b.now = b.now.Add(-time.Second)
	b.pause("the account is being checked")
	b.now = b.now.Add(time.Minute)
	_, err = b.store.Ledger.Plan(t.Context(), b.tenant, b.customer.ID, ledger.Pass{After: anew}, dbtest.Frame, b.now)
	require.Equal(t, metering.CodePaused, metering.CodeOf(err))
	require.True(t, b.resume("it is checked"))
	b.plan(anew)
}
