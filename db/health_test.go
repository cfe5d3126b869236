package db_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// faulty is a database server that a test makes read-only or full while a crowd ingests events.
type faulty struct {
	*crowd
	server *server
	store  *db.DB
}

func newFaulty(t *testing.T, s *server) *faulty {
	t.Helper()
	store, err := dbtest.Connect(t.Context(), s.address)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.NoError(t, store.Migrate(t.Context(), dbtest.Roles))
	f := &faulty{newCrowd(t, store), s, store}
	f.send(16, newWriter(t, store, usage.WriterOptions{}))
	f.await(500)
	return f
}

// requireHealth waits until Health reports the state.
func (f *faulty) requireHealth(want pg.Health) {
	f.Helper()
	dbtest.Eventually(f, func() error {
		got, err := f.store.Health(f.Context())
		if got != want {
			return fmt.Errorf("the database is %s, not %s: %w", got, want, err)
		}
		return nil
	})
}

// requireFault waits until a request fails, and requires that the database caused all failures so far.
func (f *faulty) requireFault() {
	f.Helper()
	_, before := f.counts()
	dbtest.Eventually(f, func() error {
		if _, failed := f.counts(); failed == before {
			return errors.New("no request has failed")
		}
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range f.failed {
		require.Contains(f, []metering.Code{metering.CodeUnavailable, metering.CodeOverloaded}, metering.CodeOf(err), "%v", err)
	}
}

// end waits until the database is healthy, and requires that every answered event is stored once.
func (f *faulty) end() {
	f.Helper()
	f.requireHealth(pg.Healthy)
	f.await(500)
	conn := f.connect()
	f.stop(conn)
}

func (f *faulty) connect() *pgx.Conn {
	f.Helper()
	conn, err := pgx.Connect(f.Context(), f.server.address)
	require.NoError(f, err)
	f.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func (f *faulty) exec(statements ...string) {
	f.Helper()
	conn := f.connect()
	for _, statement := range statements {
		_, err := conn.Exec(f.Context(), statement)
		require.NoError(f, err)
	}
}

func TestDrillAReadOnlyServerIsUnavailableUntilItAcceptsWrites(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, newServer(t))

	f.exec(`alter system set default_transaction_read_only = on`, `select pg_reload_conf()`)
	f.requireHealth(pg.ReadOnly)
	f.requireFault()
	f.exec(`set default_transaction_read_only = off`, `alter system reset default_transaction_read_only`, `select pg_reload_conf()`)
	f.requireHealth(pg.Healthy)
	f.await(500)

	standby := filepath.Join(f.server.data, "standby.signal")
	f.server.run("stop", f.server.data)
	require.NoError(t, os.WriteFile(standby, nil, 0o644))
	f.server.start()
	f.requireHealth(pg.ReadOnly)
	f.requireFault()
	f.exec(`select pg_promote()`)
	f.end()
}

func TestDrillServerWithFullDiskIsUnavailableUntilItHasRoom(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.run("stop", s.data)
	s.startOnSmallDisk()
	f := newFaulty(t, s)
	full := filepath.Join(s.disk(), "full")
	file, err := os.Create(full)
	require.NoError(t, err)
	_, err = io.Copy(file, zeros{})
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, file.Close())
	f.requireHealth(pg.Full)
	f.requireFault()
	require.NoError(t, os.Remove(full))
	f.end()
}

// zeros is an endless reader. Copying it to a file fills the disk.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// startOnSmallDisk starts the server with its database on a separate, small disk. The write-ahead log does not move.
func (s *server) startOnSmallDisk() {
	s.Helper()
	const mount = `mkdir -p "$1/small" && mount -t tmpfs -o size=160m none "$1/small" && exec ../dev/timescaledb start "$@"`
	namespace := []string{"--mount"}
	if os.Getuid() != 0 {
		namespace = append(namespace, "--map-root-user")
	}
	start := exec.Command("unshare", append(namespace, "bash", "-c", mount, "bash", s.data, s.port, s.pidfile)...)
	start.Env = append(os.Environ(), "DATABASE_SETTINGS=")
	out, err := start.CombinedOutput()
	require.NoError(s, err, "%s", out)
	config, err := pgx.ParseConfig(s.address)
	require.NoError(s, err)
	config.Database = "postgres"
	conn, err := pgx.ConnectConfig(s.Context(), config)
	require.NoError(s, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(s.Context(), `create tablespace small location '`+s.setting(conn, "data_directory")+`/small'`)
	require.NoError(s, err)
	dbtest.Eventually(s, func() error { // fails while a background worker of TimescaleDB is connected
		_, err := conn.Exec(s.Context(), `alter database odometer set tablespace small`)
		return err
	})
}

// disk returns the path of the small disk. The disk is mounted only for the server, so the path goes through the
// server's working directory in /proc.
func (s *server) disk() string {
	s.Helper()
	pid, err := os.ReadFile(s.pidfile)
	require.NoError(s, err)
	return "/proc/" + strings.TrimSpace(string(pid)) + "/cwd/small"
}

func (s *server) setting(conn *pgx.Conn, name string) (value string) {
	s.Helper()
	require.NoError(s, conn.QueryRow(s.Context(), `select current_setting($1)`, name).Scan(&value))
	return value
}
