package db_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/metering"
)

// crowd ingests events without keys from many goroutines. Each event has its own number, and crowd
// records which events were answered.
type crowd struct {
	testing.TB
	tenant metering.TenantID

	mu       sync.Mutex
	next     int
	answered map[int]bool
	failed   map[int]error
	last     error
	all      sync.WaitGroup
	done     chan struct{}
}

func newCrowd(t testing.TB, store *db.DB) *crowd {
	t.Helper()
	c := &crowd{TB: t, tenant: dbtest.Tenant(t, store).ID, answered: make(map[int]bool), failed: make(map[int]error), done: make(chan struct{})}
	dbtest.Meter(t, store, c.tenant, "calls", "call", "model")
	return c
}

// send starts clients that ingest events until stop is called. After a failed request, a client
// continues with other events.
func (c *crowd) send(clients int, w *usage.Writer) {
	for client := range clients {
		c.all.Go(func() {
			for {
				select {
				case <-c.done:
					return
				default:
				}
				numbers, events := c.batch(client)
				_, err := w.Ingest(context.Background(), c.tenant, events)
				c.mu.Lock()
				for _, n := range numbers {
					if err != nil {
						c.failed[n], c.last = err, err
					} else {
						c.answered[n] = true
					}
				}
				c.mu.Unlock()
			}
		})
	}
}

func (c *crowd) batch(client int) (numbers []int, events []metering.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range 1 + c.next%4 {
		c.next++
		at := november.Add(time.Duration(c.next%5000) * time.Minute)
		properties := fmt.Sprintf(`{"n":%d,"model":"%c"}`, c.next, 'a'+rune(c.next%3))
		numbers = append(numbers, c.next)
		events = append(events, dbtest.Event(c, "call", fmt.Sprint("customer ", client), at, "0.1", "", properties))
	}
	return numbers, events
}

func (c *crowd) counts() (answered, failed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.answered), len(c.failed)
}

func (c *crowd) lastError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// await waits until that many more events are answered.
func (c *crowd) await(more int) {
	c.Helper()
	before, _ := c.counts()
	dbtest.Eventually(c, func() error {
		if now, failed := c.counts(); now < before+more {
			return fmt.Errorf("%d of %d events are answered, %d failed, the last with %w", now-before, more, failed, c.lastError())
		}
		return nil
	})
}

// stop ends the clients, and compares the answers with the stored events. No event may be stored twice,
// and each answered event must be stored. A failed event may be stored only if its error says that the
// outcome is unknown.
func (c *crowd) stop(conn *pgx.Conn) {
	c.Helper()
	close(c.done)
	c.all.Wait()
	rows, err := conn.Query(c.Context(), `select (properties ->> 'n')::int, count(*) from events where tenant_id = $1 group by 1`, c.tenant)
	require.NoError(c, err)
	var n, times int
	found := make(map[int]bool)
	_, err = pgx.ForEachRow(rows, []any{&n, &times}, func() error {
		found[n] = true
		if times != 1 {
			return fmt.Errorf("event %d is stored %d times (answered: %t, failed: %s)", n, times, c.answered[n], fmt.Sprint(c.failed[n]))
		}
		return nil
	})
	require.NoError(c, err)
	for n := range c.answered {
		require.True(c, found[n], "event %d was answered and is not stored", n)
	}
	for n, err := range c.failed {
		if found[n] {
			require.Contains(c, err.Error(), "may or may not be stored", "event %d is stored, and its client was told that it is not", n)
		}
	}
	requireRollupsEqualARecount(c, conn, c.tenant)
	c.Logf("%d events answered, %d failed", len(c.answered), len(c.failed))
}

// server is a TimescaleDB server of the test's own.
type server struct {
	testing.TB
	data, port, pidfile, address string
}

func newServer(t testing.TB) *server {
	t.Helper()
	_, port, err := net.SplitHostPort(proc.FreeAddress(t))
	require.NoError(t, err)
	dir := t.TempDir()
	s := &server{TB: t, data: filepath.Join(dir, "data"), port: port, pidfile: filepath.Join(dir, "pid")}
	t.Cleanup(func() { s.run("remove", s.data) })
	s.start()
	return s
}

func (s *server) run(words ...string) string {
	s.Helper()
	command := exec.Command("../dev/timescaledb", words...)
	command.Env = append(os.Environ(), "DATABASE_SETTINGS=") // the settings of the tests' server disable durability, which is tested here
	out, err := command.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		s.Fatalf("dev/timescaledb %s: %s", words[0], failed.Stderr)
	}
	require.NoError(s, err)
	return strings.TrimSpace(string(out))
}

func (s *server) start() {
	s.Helper()
	s.address = s.run("start", s.data, s.port, s.pidfile)
}

// crash kills the postmaster and all its children at once, as a power cut would.
func (s *server) crash() {
	s.Helper()
	text, err := os.ReadFile(s.pidfile)
	require.NoError(s, err)
	postmaster := strings.TrimSpace(string(text))
	children, err := os.ReadFile("/proc/" + postmaster + "/task/" + postmaster + "/children")
	require.NoError(s, err)
	require.NotEmpty(s, children)
	processes := append([]string{postmaster}, strings.Fields(string(children))...)
	for _, word := range processes {
		pid, err := strconv.Atoi(word)
		require.NoError(s, err)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			require.ErrorIs(s, err, syscall.ESRCH)
		}
	}
	dbtest.Eventually(s, func() error {
		for _, word := range processes {
			if _, err := os.Readlink("/proc/" + word + "/cwd"); err == nil {
				return fmt.Errorf("process %s is still there", word)
			}
		}
		return nil
	})
}

func TestDrillAnsweredEventsSurviveCrashOfDatabaseServer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	store, err := dbtest.Connect(t.Context(), s.address)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.NoError(t, store.Migrate(t.Context(), dbtest.Roles))
	c := newCrowd(t, store)
	w := newWriter(t, store, dbtest.WriterOptions)
	c.send(16, w)
	for range 2 {
		c.await(500)
		s.crash()
		s.start()
	}
	c.await(500)
	conn, err := pgx.Connect(t.Context(), s.address)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	c.stop(conn)
}

func TestDrillTerminatedBackendsLoseAndRepeatNoEvent(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	c := newCrowd(t, store)
	c.send(16, newWriter(t, store, dbtest.WriterOptions))
	terminate := func(condition string) int {
		tag, err := conn.Exec(t.Context(), `
			select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and state = 'active' and `+condition+` limit 1`)
		require.NoError(t, err)
		return int(tag.RowsAffected())
	}
	c.await(200)
	committing, others := 0, 0
	dbtest.Eventually(t, func() error {
		for range 50 {
			committing += terminate(`query = 'commit'`)
		}
		others += terminate(`true`)
		if committing < 20 || others < 20 {
			return fmt.Errorf("%d commits and %d other statements were cut off", committing, others)
		}
		return nil
	})
	c.await(200)
	c.stop(conn)
	require.Empty(t, c.failed, "the writer did not recover by itself")
}

// cutter is a proxy to the database that breaks connections at random. Either the client misses a
// response of the server, or the last bytes of the client arrive only after its connection is closed.
type cutter struct {
	net.Listener
	server  string
	percent int
}

func (c *cutter) serve() {
	for {
		client, err := c.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.server)
		if err != nil {
			client.Close()
			continue
		}
		go c.pass(client, server, func(last []byte) {
			client.Close()
			time.Sleep(30 * time.Millisecond) // network delay: the server receives the last bytes after the client has closed its connection
			_, _ = server.Write(last)
		})
		go c.pass(server, client, func([]byte) {})
	}
}

// pass forwards bytes until an error or a random break. At a break, it calls broken with the bytes that
// it did not forward.
func (c *cutter) pass(from, to net.Conn, broken func(last []byte)) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if rand.IntN(100) < c.percent {
			broken(buffer[:n])
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func TestWriterRecoversFromLostDatabaseResponses(t *testing.T) {
	t.Parallel()
	direct, address := dbtest.Fresh(t)
	target, err := url.Parse(address)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go (&cutter{listener, target.Host, 2}).serve()
	target.Host = listener.Addr().String()
	store, err := dbtest.Connect(t.Context(), target.String())
	require.NoError(t, err)
	t.Cleanup(store.Close)

	c := newCrowd(t, direct)
	c.send(16, newWriter(t, store, dbtest.WriterOptions))
	c.await(1500)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	c.stop(conn)
	require.Empty(t, c.failed, "the writer did not find out by itself")
}
