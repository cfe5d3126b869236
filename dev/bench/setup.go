package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/metering"
)

// bench is a database with the API processes that use it, and the tenant of the measurements.
type bench struct {
	testing.TB
	system                 *proc.System
	api                    *proc.Process
	coalesced, uncoalesced string // HOST:PORT; uncoalesced uses one transaction per request
	key                    string
	copyTenant             int64 // tenant of COPY's rows, which does not exist, so that the totals of real tenants stay correct
	conn                   *pgx.Conn
	pool                   *pgxpool.Pool
}

// secret is the ODOMETER_SECRET of the processes.
var secret = bytes.Repeat([]byte{7}, 32)

// open creates a database and starts an API process that uses it. Rate limits do not affect the measurements.
func open(t testing.TB) *bench {
	t.Helper()
	b := &bench{TB: t, copyTenant: 1 << 40}
	b.system = proc.Fresh(t, proc.Config{Env: []string{
		"LOG_LEVEL=warn", "ODOMETER_SECRET=" + base64.StdEncoding.EncodeToString(secret), "CALLS_PER_MINUTE=1000000000",
	}})
	_, b.key = b.system.Tenant(t)
	b.conn = b.system.Conn(t)
	b.exec("set statement_timeout = 0") // a large database takes long to fill
	var err error
	b.pool, err = pgxpool.New(t.Context(), b.system.DatabaseURL)
	require.NoError(t, err)
	t.Cleanup(b.pool.Close)
	b.api = b.system.API(t)
	b.coalesced = b.api.Address
	return b
}

// startUncoalesced starts a second API process that uses one transaction per request.
func (b *bench) startUncoalesced() {
	b.uncoalesced = b.withConnections("64").With("INGEST_GROUP_EVENTS=1", "INGEST_LANES=64").API(b).Address
}

// startWorker starts a worker with workConnections database connections.
func (b *bench) startWorker() { b.withConnections(workConnections).Worker(b) }

// withConnections returns the system with a limit on the database connections of each process that it starts.
func (b *bench) withConnections(most string) *proc.System {
	limited := b.system.With()
	limited.DatabaseURL = dbtest.With(b, limited.DatabaseURL, "pool_max_conns", most)
	return limited
}

// close stops the API before the end of the measurement.
func (b *bench) close() {
	b.api.Kill(b)
	b.pool.Close()
}

// exec executes a statement on the database.
func (b *bench) exec(sql string, args ...any) {
	b.Helper()
	_, err := b.conn.Exec(b.Context(), sql, args...)
	require.NoError(b, err)
}

// createTenants creates tenants directly in the database and returns their admin keys.
func (b *bench) createTenants(n int) (keys []string) {
	b.Helper()
	store, err := db.Open(b.Context(), b.system.DatabaseURL, secret, nil)
	require.NoError(b, err)
	defer store.Close()
	maker, err := api.NewKeys("svc", secret)
	require.NoError(b, err)
	for i := range n {
		tenant, err := store.Tenants.Create(b.Context(), metering.Operator, metering.Tenant{
			Name: fmt.Sprintf("bench %d", i), Timezone: "UTC", Currency: "USD", RequestsPerMinute: 1_000_000_000,
		})
		require.NoError(b, err)
		key, record := maker.Make(metering.ScopeAdmin)
		record.Name = "bench"
		_, err = store.Credentials.Create(b.Context(), tenant.ID, metering.Operator, metering.APIKeyCredential, record, time.Now())
		require.NoError(b, err)
		keys = append(keys, key)
	}
	return keys
}

// createMeter creates a meter of the benchmark's tenant, which sums values.
func (b *bench) createMeter(slug, eventType string, groupBy ...string) {
	b.Helper()
	b.createMeterOf(b.key, slug, eventType, groupBy...)
}

// createMeterOf creates a meter with the key of any tenant.
func (b *bench) createMeterOf(key, slug, eventType string, groupBy ...string) {
	b.Helper()
	body, err := json.Marshal(map[string]any{"slug": slug, "event_type": eventType, "aggregation": "sum", "group_by": groupBy})
	require.NoError(b, err)
	require.NoError(b, b.callAs(key, http.MethodPost, "/v1/meters", string(body), http.StatusCreated, nil), "create meter %s", slug)
}

// load sends requests to the API over a number of connections and returns the time until the last answer.
func (b *bench) load(connections int, requests ...[]byte) time.Duration {
	b.Helper()
	took, err := load(b.coalesced, connections, requests)
	require.NoError(b, err)
	return took
}

// must sends a request, requires the status, and decodes the answer unless it is nil.
func (b *bench) must(method, path, body string, status int, answer any) {
	b.Helper()
	require.NoError(b, b.callAs(b.key, method, path, body, status, answer), "%s %s", method, path)
}

// callAs sends a request with the key, and decodes the answer unless it is nil. It returns an error unless the
// answer has the status.
func (b *bench) callAs(key, method, path, body string, status int, answer any) error {
	request, err := http.NewRequest(method, "http://"+b.coalesced+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != status {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // as much as can be read
		return fmt.Errorf("the API answered %s: %s", response.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
