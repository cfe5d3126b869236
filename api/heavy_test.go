package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// lockCharges locks a table that reads of all customers' charges need, as lockTable does.
func lockCharges(t *testing.T, address string) (awaitBlocked func(int), unlock func()) {
	t.Helper()
	return lockTable(t, address, "billing_period_totals")
}

// lockTable locks a table until unlock is called. Other tests must not use the database. awaitBlocked waits until the
// given number of statements is blocked.
func lockTable(t *testing.T, address, table string) (awaitBlocked func(int), unlock func()) {
	t.Helper()
	owner, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { owner.Close(context.Background()) })
	lock, err := owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), `lock table `+table)
	require.NoError(t, err)
	watching, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { watching.Close(context.Background()) })
	awaitBlocked = func(want int) {
		t.Helper()
		dbtest.Eventually(t, func() error {
			var n int
			err := watching.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).Scan(&n)
			if err == nil && n != want {
				return fmt.Errorf("%d statements are blocked", n)
			}
			return err
		})
	}
	return awaitBlocked, func() { require.NoError(t, lock.Rollback(t.Context())) }
}

// TestOneHeavyOperationRunsPerTenantAtATime checks that one heavy operation of a tenant runs at a time, and two of all
// tenants. Other operations do not wait.
func TestOneHeavyOperationRunsPerTenantAtATime(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	b := setupAt(t, store)
	b.meter(t, "calls", "call")
	b.ingest(t, "/v1/events", hello)
	awaitBlocked, unlock := lockCharges(t, address)
	var reads sync.WaitGroup
	read := func(as credential) {
		reads.Go(func() {
			require.Equal(t, http.StatusOK, b.send(t, "GET", "/v1/billing/revenue", "", as.headers("")...).status)
		})
	}
	ours := b.keyOf(t, b.tenant.ID, metering.ScopeAdmin)
	read(ours)
	awaitBlocked(1)
	read(ours) // waits for the first one
	read(b.keyOf(t, dbtest.Tenant(t, store).ID, metering.ScopeAdmin))
	awaitBlocked(2)
	read(b.keyOf(t, dbtest.Tenant(t, store).ID, metering.ScopeAdmin)) // waits for one of the two
	b.ingest(t, "/v1/events", hello)
	require.Equal(t, http.StatusOK, b.send(t, "GET", "/v1/usage/total?customer=acme", "").status)
	awaitBlocked(2)
	unlock()
	reads.Wait()
}

// TestOneTenantReadsAtMostHalfOfConcurrentTimeSeries checks that one tenant reads at most half of the time series that
// are read at once, and that other tenants do not wait for its reads.
func TestOneTenantReadsAtMostHalfOfConcurrentTimeSeries(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	b := setupAt(t, store)
	ours, theirs := b.keyOf(t, b.tenant.ID, metering.ScopeAdmin), b.keyOf(t, dbtest.Tenant(t, store).ID, metering.ScopeAdmin)
	for _, as := range []credential{ours, theirs} {
		require.Equal(t, http.StatusCreated, b.send(t, "POST", "/v1/meters", `{"slug":"calls","event_type":"call","aggregation":"count"}`, as.headers("")...).status)
		require.Equal(t, http.StatusOK, b.send(t, "POST", "/v1/events", hello, as.headers("")...).status)
	}
	awaitBlocked, unlock := lockTable(t, address, "usage_hourly")
	var reads sync.WaitGroup
	read := func(as credential) {
		reads.Go(func() {
			require.Equal(t, http.StatusOK, b.send(t, "GET", "/v1/usage?meter=calls&customer=acme", "", as.headers("")...).status)
		})
	}
	half := (max(2, runtime.GOMAXPROCS(0)) + 1) / 2
	for range half + 1 {
		read(ours)
	}
	awaitBlocked(half)
	read(theirs)
	awaitBlocked(half + 1)
	unlock()
	reads.Wait()
}

// TestMeterPreviewWaitsForHeavyOperationOnlyWithStart checks that a preview waits for another heavy operation of its
// tenant only if it has a start.
func TestMeterPreviewWaitsForHeavyOperationOnlyWithStart(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	b := setupAt(t, store)
	b.ingest(t, "/v1/events", hello)
	awaitBlocked, unlock := lockCharges(t, address)
	var reads sync.WaitGroup
	reads.Go(func() { require.Equal(t, http.StatusOK, b.send(t, "GET", "/v1/billing/revenue", "").status) })
	awaitBlocked(1)
	var answered atomic.Bool
	reads.Go(func() {
		start := b.now().Add(-time.Hour).UTC().Format(time.RFC3339)
		require.EqualValues(t, 1, b.previewMeter(t, "/v1/meters/preview", `{"event_type":"call","start":"`+start+`"}`).EventsRead)
		answered.Store(true)
	})
	for range 5 {
		require.EqualValues(t, 1, b.previewMeter(t, "/v1/meters/preview", `{"event_type":"call"}`).EventsRead)
	}
	require.False(t, answered.Load())
	unlock()
	reads.Wait()
	require.True(t, answered.Load())
}

// TestOperationsThatCompareAllChargesAreHeavy checks that operations that can need a confirmation are heavy. The
// exceptions are plan assignments and a customer's own prices, which affect one customer.
func TestOperationsThatCompareAllChargesAreHeavy(t *testing.T) {
	t.Parallel()
	text, _, err := documents()
	require.NoError(t, err)
	var document struct {
		Paths map[string]map[string]struct {
			ID          string `json:"operationId"`
			Description string `json:"description"`
			Heavy       bool   `json:"x-heavy"`
		} `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(text, &document))
	ofOneCustomer := []string{"assign-plan", "set-customer-pricing", "end-customer-pricing"}
	heavy := 0
	for _, item := range document.Paths {
		for _, op := range item {
			if op.Heavy {
				heavy++
			}
			if strings.Contains(op.Description, "confirmation_required") && !slices.Contains(ofOneCustomer, op.ID) {
				require.True(t, op.Heavy, op.ID)
			}
		}
	}
	require.Greater(t, heavy, 10)
}
