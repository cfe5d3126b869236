// Package dbtest gives tests a real TimescaleDB: one migrated database for each
// test binary, and a fresh tenant for each test.
package dbtest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/registry"
)

// Frame encodes reports as the service does, for every provider.
var Frame ledger.Frame = registry.New(providers.Guard{}, "").Frame

// ReadPrice decodes the stored prices of every provider.
var ReadPrice ledger.ReadPrice = registry.New(providers.Guard{}, "").Price

var shared struct {
	sync.Mutex
	store *db.DB
	url   string
}

// Open returns the test binary's database. It fails without TEST_DATABASE_URL, because these tests need a
// database.
func Open(t testing.TB) *db.DB {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.store == nil {
		shared.url = create(t, ServerURL(t), templateName(t))
		shared.store = connect(t, As(t, shared.url, service))
	}
	return shared.store
}

func connect(t testing.TB, address string) *db.DB {
	t.Helper()
	store, err := Connect(context.Background(), address)
	require.NoError(t, err)
	return store
}

// AuditSecret is the secret from which the keys of tests' audit logs are derived.
var AuditSecret = []byte("the audit logs of tests are signed")

// Connect opens a database as the service does. A statement waits for its tenant's turn for as long as a test waits.
func Connect(ctx context.Context, address string) (*db.DB, error) {
	store, err := db.Open(ctx, address, AuditSecret, ReadPrice)
	if err != nil {
		return nil, err
	}
	store.SetTurnTimeout(Deadline)
	return store, nil
}

// Roles are the roles of the API and the worker on each server that tests use.
var Roles = pg.Roles{API: "odometer_api", Worker: "odometer_worker"}

// service is a role with the privileges of both Roles, because a test uses its store as the API and as the worker.
const service = "odometer_service"

// Owner opens a database as its owner, for the tasks of operators.
func Owner(t testing.TB, address string) *db.DB {
	t.Helper()
	owner := connect(t, address)
	t.Cleanup(owner.Close)
	return owner
}

// migrate applies all migrations to the database, as its owner.
func migrate(t testing.TB, address string) {
	t.Helper()
	require.NoError(t, Owner(t, address).Migrate(context.Background(), Roles))
}

// makeRoles creates the roles, unless the server has them.
func makeRoles(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	_, err := conn.Exec(context.Background(), `
		do $$
		begin
		  perform pg_advisory_xact_lock(hashtext('odometer_service'));
		  if not exists (select from pg_roles where rolname = 'odometer_api') then
		    create role odometer_api login;
		  end if;
		  if not exists (select from pg_roles where rolname = 'odometer_worker') then
		    create role odometer_worker login;
		    execute format('grant %I to odometer_worker with inherit false, set true', current_user);
		  end if;
		  if not exists (select from pg_roles where rolname = 'odometer_service') then
		    create role odometer_service login in role odometer_api, odometer_worker;
		  end if;
		end $$`)
	require.NoError(t, err)
}

// As returns the address of the same database for another role.
func As(t testing.TB, address, role string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	require.NoError(t, err)
	parsed.User = url.User(role)
	return parsed.String()
}

// OpenAsWorker opens a database with the role of the worker, until the test ends.
func OpenAsWorker(t testing.TB, address string) *db.DB {
	t.Helper()
	store := connect(t, As(t, address, Roles.Worker))
	t.Cleanup(store.Close)
	return store
}

// With returns the address with a parameter set to another value.
func With(t testing.TB, address, parameter, value string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	require.NoError(t, err)
	query := parsed.Query()
	query.Set(parameter, value)
	parsed.RawQuery = query.Encode()
	return parsed.String()
}

// URL returns the owner's address of the database that Open returns.
func URL(t testing.TB) string {
	Open(t)
	return shared.url
}

// ServerURL returns the server on which tests create their databases.
func ServerURL(t testing.TB) string {
	t.Helper()
	server := os.Getenv("TEST_DATABASE_URL")
	if server == "" {
		t.Fatal("TEST_DATABASE_URL is not set: run make test, or dev/up test go test ./...")
	}
	return server
}

// create creates a database and returns its URL. The database is empty, or a copy of source, which must have no
// connections. create does not drop the database; the server ends with the test run. The timeouts in the URL are so
// long that only a hanging test reaches them.
func create(t testing.TB, server string, source ...string) string {
	t.Helper()
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), time.Now().UnixNano())
	conn := connectTo(t, server)
	defer conn.Close(context.Background())
	makeRoles(t, conn)
	statement := "create database " + name
	if len(source) > 0 {
		statement += " template " + source[0] + " strategy file_copy"
	}
	_, err := conn.Exec(context.Background(), statement)
	require.NoError(t, err)
	if len(source) > 0 {
		copySettings(t, conn, source[0], name)
	}
	parsed, err := url.Parse(server)
	require.NoError(t, err)
	parsed.Path = "/" + name
	address := parsed.String()
	for _, bound := range []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"} {
		address = With(t, address, bound, fmt.Sprint(Deadline.Milliseconds()))
	}
	return address
}

// connectTo opens a connection that outlives the test's context.
func connectTo(t testing.TB, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), address)
	require.NoError(t, err)
	return conn
}

// copySettings copies the settings of roles in a database, which create database does not copy.
func copySettings(t testing.TB, conn *pgx.Conn, from, to string) {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		select format('alter role %I in database %I set %s = %L', r.rolname, $2::text, split_part(setting, '=', 1), substr(setting, strpos(setting, '=') + 1))
		from pg_db_role_setting s
		join pg_database d on d.oid = s.setdatabase
		join pg_roles r on r.oid = s.setrole,
		  unnest(s.setconfig) as setting
		where d.datname = $1`, from, to)
	require.NoError(t, err)
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, statement := range statements {
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
}

var template struct {
	sync.Mutex
	name string
}

// templateName returns the name of a migrated database to copy. The first caller of a test run creates it;
// other test binaries wait for it.
func templateName(t testing.TB) string {
	t.Helper()
	template.Lock()
	defer template.Unlock()
	if template.name != "" {
		return template.name
	}
	run := sha256.Sum256([]byte(cmp.Or(os.Getenv("TEST_BINARIES"), fmt.Sprint(os.Getpid(), time.Now().UnixNano()))))
	name, server, ctx := fmt.Sprintf("template_%x", run[:8]), ServerURL(t), context.Background()
	conn := connectTo(t, server)
	defer conn.Close(ctx) // also releases the lock
	_, err := conn.Exec(ctx, `select pg_advisory_lock(hashtext('the template of tests'))`)
	require.NoError(t, err)
	var exists bool
	require.NoError(t, conn.QueryRow(ctx, `select exists (select from pg_database where datname = $1)`, name).Scan(&exists))
	if !exists {
		unfinished := create(t, server)
		migrate(t, unfinished)
		from := nameOf(t, unfinished)
		disconnect(t, conn, from)
		_, err = conn.Exec(ctx, "alter database "+from+" rename to "+name)
		require.NoError(t, err)
	}
	template.name = name
	return name
}

// disconnect forbids connections to a database and ends the existing connections, including the connections of
// TimescaleDB's background workers.
func disconnect(t testing.TB, conn *pgx.Conn, name string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), "alter database "+name+" allow_connections false")
	require.NoError(t, err)
	Eventually(t, func() error {
		var connected int
		err := conn.QueryRow(t.Context(), `select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = $1`, name).Scan(&connected)
		if err == nil && connected > 0 {
			err = fmt.Errorf("%d are connected to %s", connected, name)
		}
		return err
	})
}

func nameOf(t testing.TB, address string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	require.NoError(t, err)
	return strings.TrimPrefix(parsed.Path, "/")
}

// Empty creates a database without a schema on the server and returns its address. The database is dropped
// when the test ends.
func Empty(t testing.TB, server string) string {
	t.Helper()
	address := create(t, server)
	t.Cleanup(func() { Drop(t, server, address) })
	return address
}

// Fresh returns a migrated database for this test alone, and its owner's address. The database is dropped
// when the test ends.
func Fresh(t testing.TB) (*db.DB, string) {
	t.Helper()
	server := ServerURL(t)
	address := create(t, server, templateName(t))
	t.Cleanup(func() { Drop(t, server, address) })
	store := connect(t, As(t, address, service))
	t.Cleanup(store.Close)
	return store, address
}

// Copy copies the current state of a database and returns the address of the copy. It ends all connections
// to the original. The copy is dropped when the test ends.
func Copy(t testing.TB, address string) string {
	t.Helper()
	server, from := ServerURL(t), nameOf(t, address)
	conn := connectTo(t, server)
	defer conn.Close(context.Background())
	disconnect(t, conn, from)
	defer func() {
		_, err := conn.Exec(context.Background(), "alter database "+from+" allow_connections true")
		require.NoError(t, err)
	}()
	target := create(t, server, from)
	t.Cleanup(func() { Drop(t, server, target) })
	return target
}

// Drop drops a database, and ends its open connections.
func Drop(t testing.TB, server, address string) {
	t.Helper()
	conn := connectTo(t, server)
	defer conn.Close(context.Background())
	_, err := conn.Exec(context.Background(), "drop database if exists "+nameOf(t, address)+" with (force)")
	require.NoError(t, err)
}

// Conn returns a bare connection to the database that Open returns, for tests that check results with their
// own SQL.
func Conn(t testing.TB) *pgx.Conn {
	t.Helper()
	return ConnTo(t, URL(t))
}

// ConnTo is Conn for the database at an address.
func ConnTo(t testing.TB, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// Tenant creates a tenant for this test, in UTC unless a zone is given.
func Tenant(t testing.TB, store *db.DB, zone ...string) metering.Tenant {
	t.Helper()
	tenant := metering.Tenant{Name: t.Name(), Timezone: "UTC", Currency: "USD"}
	if len(tenant.Name) > 200 {
		tenant.Name = tenant.Name[:200]
	}
	if len(zone) > 0 {
		tenant.Timezone = zone[0]
	}
	tenant, err := store.Tenants.Create(t.Context(), metering.Operator, tenant)
	require.NoError(t, err)
	return tenant
}

// Customer creates a customer.
func Customer(t testing.TB, store *db.DB, tenant metering.TenantID, externalID string) metering.Customer {
	t.Helper()
	c, err := store.Customers.Create(t.Context(), tenant, metering.Operator, metering.Customer{ExternalID: externalID}, clock.Now())
	require.NoError(t, err)
	return c
}

// Provider saves a tenant's billing provider. If p has a new address, Provider begins a new connection.
func Provider(t testing.TB, store *db.DB, tenant metering.TenantID, p metering.Provider) metering.Provider {
	t.Helper()
	save := store.Providers.Save
	if last, err := store.Providers.Last(t.Context(), tenant, p.Kind, p.Address, false); err == nil && last.Address != p.Address {
		save = store.Providers.Begin
	}
	saved, err := save(t.Context(), tenant, metering.Operator, p)
	require.NoError(t, err)
	return saved
}

// Meter creates a meter with the aggregation Sum.
func Meter(t testing.TB, store *db.DB, tenant metering.TenantID, slug, eventType string, groupBy ...string) metering.Meter {
	t.Helper()
	m, err := store.Meters.Create(t.Context(), tenant, metering.Operator, metering.Meter{
		Slug: slug, EventType: eventType, Version: metering.MeterVersion{Aggregation: metering.Sum, GroupBy: groupBy},
	})
	require.NoError(t, err)
	return m
}

// Price sets a price as the API does by default: the first price of a meter, or of a meter in a plan, takes
// effect from the beginning.
func Price(t testing.TB, store *db.DB, tenant metering.TenantID, p billing.Price) billing.Price {
	t.Helper()
	versions, err := store.Prices.Versions(t.Context(), tenant, p.MeterID, catalog.PriceOwner{Plan: p.PlanID, Customer: p.CustomerID})
	require.NoError(t, err)
	if len(versions) == 0 {
		p.EffectiveFrom = time.Time{}
	}
	p, err = store.Prices.Set(t.Context(), tenant, metering.Operator, p)
	require.NoError(t, err)
	return p
}

// Event returns a validated event, as the API does. key and properties may be "".
func Event(t testing.TB, eventType, customer string, at time.Time, value, key, properties string) metering.Event {
	t.Helper()
	stamp := at.Format(time.RFC3339Nano)
	sent := metering.SentEvent{EventType: eventType, CustomerID: customer, Timestamp: &stamp, Value: json.RawMessage(value)}
	if key != "" {
		sent.IdempotencyKey = &key
	}
	if properties != "" {
		sent.Properties = json.RawMessage(properties)
	}
	event, rejection := sent.Judge(clock.Now())
	if rejection != nil {
		t.Fatalf("event was rejected: %v", rejection)
	}
	return event
}

// Deadline is the time that a test waits for a result that an idle machine returns in a moment. A busy
// machine may take a hundred times as long; a passing test does not wait.
const Deadline = 20 * time.Minute

// WriterOptions are the options of a writer that retries for as long as a test waits.
var WriterOptions = usage.WriterOptions{Deadline: Deadline}

// Eventually calls check until it returns nil. It fails with the last error of check after Deadline, or when the
// test's context ends.
func Eventually(t testing.TB, check func() error) {
	t.Helper()
	Within(t, Deadline, check)
}

// Within is Eventually with another deadline.
func Within(t testing.TB, deadline time.Duration, check func() error) {
	t.Helper()
	end, stopped := time.After(deadline), t.Context().Done()
	if t.Context().Err() != nil {
		stopped = nil // the context of a cleanup has ended
	}
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-end:
			t.Fatalf("not within %s: %v", deadline, err)
		case <-stopped:
			t.Fatalf("stopped before it succeeded: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Items returns the items of a page.
func Items[T any](page pg.Page[T], err error) ([]T, error) { return page.Items, err }
