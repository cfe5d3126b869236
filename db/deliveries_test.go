package db_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

func TestWhatComesWhileAMessageWaitsForLongerThanTheRestIsNotHeldUp(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.BillingSynced)
	h.happen("")
	h.attempt(503, 0)
	h.now = h.now.Add(5 * time.Second)
	h.attempt(503, 0)
	require.Equal(t, h.now.Add(5*time.Minute), h.waiting().Next.UTC())
	h.happen("")
	require.False(t, h.wanted(), "it rests")
	h.now = h.now.Add(10 * time.Second)
	require.True(t, h.wanted(), "the run waits for what was tried in vain")
}

func TestAFailureOfTheFormerAddressSaysNothingOfTheNewOne(t *testing.T) {
	t.Parallel()
	for _, status := range []int{410, 503} {
		h := newHooked(t, metering.BillingSynced)
		h.happen("")
		h.happen("")
		c := h.claim()
		url := "https://example.com/other"
		_, err := h.store.Endpoints.Update(t.Context(), h.tenant, metering.Operator, h.hook.ID, db.EndpointChange{URL: &url}, h.now)
		require.NoError(t, err)
		h.settle(*c, status, 0)
		require.Nil(t, h.read().DisabledAt)
		require.Nil(t, h.read().FailingSince)
		h.attempt(200, 0)
		h.now = h.now.Add(5 * time.Second)
		h.attempt(200, 0)
	}
}

func TestAnEndpointThatFailsOnceAfterALongSilenceIsNotDisabled(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.BillingSynced)
	h.happen("")
	for range 10 {
		h.attempt(503, 0)
		if due := h.deliveries()[0].DueAt; due != nil {
			h.now = due.UTC()
		}
	}
	require.Equal(t, metering.DeliveryFailed, h.deliveries()[0].Status)
	h.now = h.now.AddDate(0, 1, 0)
	h.happen("")
	h.attempt(503, 0)
	require.Nil(t, h.read().DisabledAt, "one failure in a month")
	require.Equal(t, metering.DeliveryPending, h.deliveries()[0].Status)
}

func TestASyncEndsThoughAWebhookIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.BillingSynced)
	other := h.add(metering.BillingSynced)
	conn, err := pgx.Connect(t.Context(), h.address)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `delete from webhook_endpoints where tenant_id = $1 and id = $2`, h.tenant, h.hook.ID)
	require.NoError(t, err)
	recorded := make(chan error, 1)
	go func() {
		recorded <- h.store.Syncs.Record(t.Context(), h.tenant, h.customer.ID, db.Answer{}, h.now, h.now)
	}()
	dbtest.Eventually(t, 10*time.Second, func() error {
		var waits bool
		err := tx.QueryRow(t.Context(), `select exists (select from pg_stat_activity where pg_backend_pid() = any(pg_blocking_pids(pid)))`).Scan(&waits)
		if err == nil && !waits {
			err = errors.New("nobody waits for the deletion")
		}
		return err
	})
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-recorded)
	h.hook = other
	require.Len(t, h.deliveries(), 1)
}
