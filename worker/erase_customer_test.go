package worker_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// TestDrillErasureContinuesAfterEachWorkerKill kills the worker in the middle of each step, while the worker waits for
// a locked table that the step needs.
func TestDrillErasureContinuesAfterEachWorkerKill(t *testing.T) {
	t.Parallel()
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: temporalAddress(t)})
	_, key := system.Tenant(t)
	api := caller{system.API(t).URL, key}
	api.must(t, 201, http.MethodPost, "/v1/meters", map[string]any{"slug": "calls", "event_type": "call", "group_by": []string{"device"}})
	for i := range 3 {
		api.must(t, 200, http.MethodPost, "/v1/events", map[string]any{
			"event_type": "call", "customer_id": "ada@example.com", "value": 5, "idempotency_key": fmt.Sprint("ada@example.com ", i),
			"properties": map[string]any{"device": "ada-laptop", "name": "Lovelace"},
		})
	}
	const path = "/v1/customers/ada@example.com/erase"
	api.must(t, 422, http.MethodPost, path, map[string]any{"confirm": "ada", "reason": "she has asked for it"})
	api.must(t, 202, http.MethodPost, path, map[string]any{"confirm": "ada@example.com", "reason": "she has asked for it"})
	api.must(t, 404, http.MethodPost, path, map[string]any{"confirm": "ada@example.com", "reason": "again"})

	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close(context.Background()) })
		return conn
	}
	look, worker := connect(), (*proc.Process)(nil)
	var former pgx.Tx
	for _, table := range []string{"usage_groups", "erased_event_keys", "idempotency_keys", "audit_heads"} {
		held, err := connect().Begin(t.Context())
		require.NoError(t, err)
		_, err = held.Exec(t.Context(), `lock table `+table+` in access exclusive mode`)
		require.NoError(t, err)
		if former != nil {
			require.NoError(t, former.Rollback(t.Context()))
		}
		former = held
		if worker == nil {
			worker = system.Worker(t)
		} else {
			worker.Start(t)
		}
		dbtest.Eventually(t, func() error {
			var waiting int
			err := look.QueryRow(t.Context(), `select count(*) from pg_locks where relation = $1::text::regclass and not granted`, table).Scan(&waiting)
			if err == nil && waiting == 0 {
				err = fmt.Errorf("nobody waits for %s", table)
			}
			return err
		})
		worker.Kill(t)
	}
	require.NoError(t, former.Rollback(t.Context()))
	worker.Start(t)
	dbtest.Eventually(t, func() error {
		var done bool
		err := look.QueryRow(t.Context(), `select erasure_done_at is not null from customers where external_id = 'erased-' || id`).Scan(&done)
		if err == nil && !done {
			err = fmt.Errorf("the erasure is not done")
		}
		return err
	})
	// A digest or an id may contain "ada" by chance.
	for _, statement := range []string{
		`select count(*) from events e where e::text ~ 'ada@|ada-laptop|Lovelace'`, `select count(*) from event_keys`, `select count(*) from usage_groups g where g::text ~ 'ada@|ada-|Lovelace'`,
		`select count(*) from customers c where c::text ~ 'ada@|ada-laptop|Lovelace'`, `select count(*) - 1 from audit_log where action = 'customer.erased'`,
		`select count(*) - 3 from events where erased is not null`, `select coalesce(sum(sum), 0)::bigint - 15 from usage_months where customer_id = 0`,
	} {
		var n int
		require.NoError(t, look.QueryRow(t.Context(), statement).Scan(&n))
		require.Zero(t, n, statement)
	}
}
