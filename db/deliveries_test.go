package db_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/metering"
)

func TestNewMessageDoesNotWaitForRetryOfEarlierMessage(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	h.runSync("")
	h.attempt(503, 0)
	h.now = h.now.Add(5 * time.Second)
	h.attempt(503, 0)
	require.Equal(t, h.now.Add(5*time.Minute), h.waiting().Next.UTC())
	h.runSync("")
	require.False(t, h.wanted(), "the endpoint backs off")
	h.now = h.now.Add(10 * time.Second)
	require.True(t, h.wanted(), "a run starts for the message after the backoff")
}

func TestFailureOfPreviousURLDoesNotAffectNewURL(t *testing.T) {
	t.Parallel()
	for _, status := range []int{410, 503} {
		h := newHooked(t, metering.MessageSyncSucceeded)
		h.runSync("")
		h.runSync("")
		c := h.claim()
		url := "https://example.com/other"
		_, err := h.store.Webhooks.Update(t.Context(), h.tenant, metering.Operator, h.hook.ID, access.EndpointChange{URL: &url}, h.now)
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
	h := newHooked(t, metering.MessageSyncSucceeded)
	h.runSync("")
	for range 10 {
		h.attempt(503, 0)
		if due := h.deliveries()[0].DueAt; due != nil {
			h.now = due.UTC()
		}
	}
	require.Equal(t, metering.DeliveryFailed, h.deliveries()[0].Status)
	h.now = h.now.AddDate(0, 0, 31)
	h.runSync("")
	h.attempt(503, 0)
	require.Nil(t, h.read().DisabledAt, "one failure in a month")
	require.Equal(t, metering.DeliveryPending, h.deliveries()[0].Status)
}

// begin begins a transaction on a connection of its own.
func (h *hooked) begin() pgx.Tx {
	h.Helper()
	conn, err := pgx.Connect(h.Context(), h.address)
	require.NoError(h, err)
	h.Cleanup(func() { conn.Close(context.Background()) })
	tx, err := conn.Begin(h.Context())
	require.NoError(h, err)
	return tx
}

// awaitBlocked returns once another session waits for the transaction.
func awaitBlocked(t *testing.T, tx pgx.Tx) {
	t.Helper()
	dbtest.Eventually(t, func() error {
		var waits bool
		err := tx.QueryRow(t.Context(), `select exists (select from pg_stat_activity where pg_backend_pid() = any(pg_blocking_pids(pid)))`).Scan(&waits)
		if err == nil && !waits {
			err = errors.New("no backend waits for a lock")
		}
		return err
	})
}

// awaitLockWaiters returns once at least that many sessions wait for locks in the database of conn. The
// database must be the test's own.
func awaitLockWaiters(t *testing.T, conn *pgx.Conn, atLeast int) {
	t.Helper()
	dbtest.Eventually(t, func() error {
		var n int
		err := conn.QueryRow(context.Background(), `
			select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).Scan(&n)
		if err == nil && n < atLeast {
			err = fmt.Errorf("%d wait", n)
		}
		return err
	})
}

func TestSyncEndsDespiteConcurrentDeletionOfWebhook(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	other := h.add(metering.MessageSyncSucceeded)
	tx := h.begin()
	_, err := tx.Exec(t.Context(), `delete from webhook_endpoints where tenant_id = $1 and id = $2`, h.tenant, h.hook.ID)
	require.NoError(t, err)
	recorded := make(chan error, 1)
	go func() {
		recorded <- h.store.Syncs.Record(t.Context(), h.tenant, h.customer.ID, ledger.Answer{}, h.now, h.now)
	}()
	awaitBlocked(t, tx)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-recorded)
	h.hook = other
	require.Len(t, h.deliveries(), 1)
}

func TestDeliveryAddedDuringDisablingOfEndpointFails(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	tx := h.begin()
	_, err := tx.Exec(t.Context(), `insert into outbox (tenant_id, id, kind, payload, created_at) values ($1, $2, 'sync.succeeded', '{}', $3)`,
		h.tenant, uuid.New(), h.now)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `
		insert into webhook_deliveries (tenant_id, endpoint_id, message_id, due_at)
		select tenant_id, $2, id, $3
		from outbox
		where tenant_id = $1`, h.tenant, h.hook.ID, h.now)
	require.NoError(t, err)
	disabled := make(chan error, 1)
	go func() {
		off := false
		_, err := h.store.Webhooks.Update(t.Context(), h.tenant, metering.Operator, h.hook.ID, access.EndpointChange{Enabled: &off}, h.now)
		disabled <- err
	}()
	awaitBlocked(t, tx)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-disabled)
	require.Equal(t, metering.DeliveryFailed, h.deliveries()[0].Status)
}

// databaseTime returns the time by which budgets are spent.
func (h *hooked) databaseTime() time.Time {
	h.Helper()
	now, err := h.store.ReadClock(h.Context())
	require.NoError(h, err)
	return now
}

func TestADeliveryWithoutBudgetStaysDueAndIsSentLater(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	h.runSync("")
	conn, err := pgx.Connect(t.Context(), h.address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	before := h.deliveries()[0]
	for _, target := range []string{h.tenant.String(), "host example.com"} {
		_, err := conn.Exec(t.Context(), `
			insert into webhook_budgets values ($1, $2)
			on conflict (target) do update set spent = excluded.spent`, target, h.databaseTime().AddDate(0, 0, 1))
		require.NoError(t, err)
		_, err = h.store.Deliveries.Claim(t.Context(), h.tenant, h.hook.ID, h.now, time.Minute)
		require.Equal(t, metering.CodeRateLimited, metering.CodeOf(err), target)
		require.Equal(t, before, h.deliveries()[0], target)
		waiting := h.waiting()
		require.Equal(t, 1, waiting.Messages)
		require.True(t, before.DueAt.Equal(*waiting.Next))
		_, err = conn.Exec(t.Context(), `delete from webhook_budgets`)
		require.NoError(t, err)
	}
	h.attempt(200, 0)
	require.Equal(t, metering.DeliveryDelivered, h.deliveries()[0].Status)
}

// TestTenantsShareTheBudgetOfAHost checks that all tenants share the budget of a host, with any case,
// trailing dot and port in their URLs.
func TestTenantsShareTheBudgetOfAHost(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageSyncSucceeded)
	conn, err := pgx.Connect(t.Context(), h.address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	spent := func(target string) (at time.Time) {
		require.NoError(t, conn.QueryRow(t.Context(), `select spent from webhook_budgets where target = $1`, target).Scan(&at))
		return at
	}
	h.runSync("")
	h.claim()
	unchanged := spent(h.tenant.String())

	other := dbtest.Tenant(t, h.store).ID
	for _, url := range []string{"https://EXAMPLE.com/x", "https://example.com:8443/x", "https://example.com./x"} {
		hook, err := h.store.Webhooks.Create(t.Context(), other, metering.Operator, metering.Endpoint{
			URL: url, EventTypes: []metering.MessageKind{metering.MessageSyncSucceeded}, Sealed: []byte("sealed"), LastFour: "abcd",
		}, h.now)
		require.NoError(t, err)
		dbtest.Eventually(t, func() error {
			_, err := h.store.Deliveries.Test(t.Context(), other, hook.ID, h.now)
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), `update webhook_budgets set spent = $1 where target = 'host example.com'`, h.databaseTime().Add(4*time.Second))
			require.NoError(t, err)
			before := spent("host example.com")
			c, err := h.store.Deliveries.Claim(t.Context(), other, hook.ID, h.now, time.Minute)
			require.NoError(t, err)
			if c.Wait == 0 {
				return fmt.Errorf("the delivery to %s was claimed after the budget had recovered", url)
			}
			require.Equal(t, time.Second/50, spent("host example.com").Sub(before), url)
			return nil
		})
	}
	require.True(t, unchanged.Equal(spent(h.tenant.String())), "the deliveries of the other tenant use none of this tenant's budget")
}

// TestDisabledEndpointIsReportedOnceToOtherEndpoints disables two endpoints concurrently. The message about each
// disabled endpoint locks the other endpoint.
func TestDisabledEndpointIsReportedOnceToOtherEndpoints(t *testing.T) {
	t.Parallel()
	h := newHooked(t, metering.MessageWebhookDisabled)
	listening := h.hook
	both := []metering.MessageKind{metering.MessageSyncSucceeded, metering.MessageWebhookDisabled}
	failing := []metering.Endpoint{h.add(both...), h.add(both...)}
	want := map[string]int{}
	for round := 1; round <= 3; round++ {
		h.now = h.now.Add(time.Minute)
		h.runSync("")
		h.runSync("")
		var claimed []access.ClaimedDelivery
		for _, e := range failing {
			h.hook = e
			claimed = append(claimed, *h.claim(), *h.claim())
			want[e.ID.String()] = round
		}
		var lanes sync.WaitGroup
		for _, c := range claimed {
			lanes.Go(func() {
				gone := metering.Attempt{At: h.now, Took: time.Second, Status: 410, Problem: "the webhook answered 410"}
				if err := h.store.Deliveries.Settle(t.Context(), c, gone, 0, h.now); err != nil {
					t.Error(err)
				}
			})
		}
		lanes.Wait()
		h.hook = listening
		got := map[string]int{}
		for _, d := range h.deliveries() {
			var data outbox.WebhookDisabled
			require.NoError(t, json.Unmarshal(d.Data, &data))
			require.Equal(t, metering.DisabledGone, data.Because)
			got[data.WebhookID]++
		}
		require.Equal(t, want, got)
		for _, e := range failing {
			_, err := h.store.Webhooks.Update(t.Context(), h.tenant, metering.Operator, e.ID, access.EndpointChange{Enabled: new(true)}, h.now)
			require.NoError(t, err)
		}
	}
}
