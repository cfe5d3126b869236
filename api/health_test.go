package api_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// awaitReadiness waits until GET /readyz answers with a status and a body.
func (b *bundle) awaitReadiness(t *testing.T, status int, body string) {
	t.Helper()
	dbtest.Eventually(t, func() error {
		a := b.send(t, "GET", "/readyz", "")
		if a.status != status {
			return fmt.Errorf("/readyz answers %d: %s", a.status, a.body)
		}
		if strings.TrimSpace(a.body) != body {
			return fmt.Errorf("/readyz answers %s", a.body)
		}
		return nil
	})
}

func TestEventsAreRefusedIfClockIsUnknownOrFarOff(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var offset atomic.Int64
	b.deps.ClockOffset = func() (time.Duration, bool) { return time.Duration(offset.Load()), offset.Load() != 1 }
	b.deps.Metrics = nil
	b.serve(t)
	event := `{"event_type":"call","customer_id":"acme"}`
	for _, c := range []struct {
		offset time.Duration
		write  int
		ready  int
		clock  string
	}{
		{0, 200, 200, "ok"},
		{1, 503, 503, "unknown"},
		{10 * time.Second, 200, 503, "wrong"},
		{40 * 24 * time.Hour, 503, 503, "wrong"},
		{-40 * 24 * time.Hour, 503, 503, "wrong"},
		{time.Second, 200, 200, "ok"},
	} {
		offset.Store(int64(c.offset))
		a := b.send(t, "POST", "/v1/events", event)
		require.Equal(t, c.write, a.status, "%s: %s", c.offset, a.body)
		if c.write == 503 {
			a.problem(t, 503, string(metering.CodeUnavailable))
			require.NotEmpty(t, a.header.Get("Retry-After"))
			require.Equal(t, 503, b.send(t, "GET", "/v1/auth/oidc/"+b.tenant.ID.String()+"/login", "").status, "a sign-in writes")
		}
		require.Equal(t, 200, b.send(t, "GET", "/v1/usage/total?customer=acme", "").status)
		state := map[int]string{200: "ok", 503: "unavailable"}[c.ready]
		b.awaitReadiness(t, c.ready, fmt.Sprintf(`{"status":%q,"database":"ok","clock":%q,"temporal":"ok","bodies":"ok"}`, state, c.clock))
	}
}

func TestNoOperationReturns500WhileDatabaseIsReadOnly(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	b := setupAt(t, store)
	calls := b.calls(t)
	owner, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { owner.Close(context.Background()) })
	for _, statement := range []string{
		`do $$ begin execute format('alter database %I set default_transaction_read_only = on', current_database()); end $$`,
		`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and usename <> current_user`,
	} {
		_, err := owner.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	refused := 0
	for _, c := range calls {
		if c.session {
			continue
		}
		a := b.send(t, c.method, c.path, c.body)
		require.NotEqual(t, 500, a.status, "%s: %s", c.id, a.body)
		if a.status == 503 {
			a.problem(t, 503, string(metering.CodeUnavailable))
			require.NotEmpty(t, a.header.Get("Retry-After"), c.id)
			refused++
		}
	}
	require.Greater(t, refused, 10)
	b.awaitReadiness(t, 503, `{"status":"unavailable","database":"read_only","clock":"ok","temporal":"ok","bodies":"ok"}`)
	_, err = owner.Exec(t.Context(), `do $$ begin execute format('alter database %I reset default_transaction_read_only', current_database()); end $$`)
	require.NoError(t, err)
	b.awaitReadiness(t, 200, `{"status":"ok","database":"ok","clock":"ok","temporal":"ok","bodies":"ok"}`)
}
